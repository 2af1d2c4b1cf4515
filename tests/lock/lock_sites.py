"""A site of our own to lock from: a signed Debian archive, a Python index, and a server that can misbehave.

All real: the archive is made by `dpkg-deb` and signed by `gpg`, apt and uv read it over
HTTP from loopback. Nothing here imitates envlock's own parts.
"""

import base64
import hashlib
import http.server
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SUITES = ("bookworm", "bookworm-updates", "bookworm-security")


# ---- a server -----------------------------------------------------------------------------


class Server:
    """Serves a folder on loopback. `script[path]` lists statuses to answer before the file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.script: dict[str, list[int]] = {}
        self.replaced: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.login: tuple[str, str] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked_for(self, part: str) -> list[str]:
        """Return the paths asked for that hold `part`."""
        return [path for path, _ in self.seen if part in path]


@contextmanager
def served(root: Path) -> Iterator[Server]:
    """Serve `root` for the time of the block."""
    server = Server(root)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(root))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            server.seen.append((self.path, dict(self.headers)))
            if server.login is not None:
                given = self.headers.get("Authorization", "")
                if given != "Basic " + base64.b64encode(":".join(server.login).encode()).decode():
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="x"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
            if server.script.get(self.path):
                self.send_response(server.script[self.path].pop(0))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if self.path in server.replaced or self.path in server.cut:
                self._send(server)
                return
            super().do_GET()

        def _send(self, server: Server) -> None:
            data = server.replaced.get(self.path) or (root / self.path.lstrip("/")).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.path in server.cut:
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            else:
                self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Listening(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed, or has seen enough, is no fault of the server."""

    listening = Listening(("127.0.0.1", 0), Handler)
    server.port = listening.server_address[1]
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


# ---- Python -------------------------------------------------------------------------------


def make_wheel(
    folder: Path, name: str, version: str, tag: str = "py3-none-any", requires: tuple[str, ...] = (), body: str = ""
) -> Path:
    """Write a small wheel that a resolver accepts, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    depends = "".join(f"Requires-Dist: {text}\n" for text in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name.replace('-', '_')}.py", body)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{depends}")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


class Index:
    """A simple index (PEP 503) in a folder: `simple/NAME/` lists what lies in `files/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.links: dict[str, dict[str, str]] = {}
        (root / "simple").mkdir(parents=True)

    def add(self, path: Path, yanked: str | None = None, digest: str | None = None) -> None:
        """List the file at `path`; `yanked` is the reason, `digest` replaces the true SHA-256 (`` for none)."""
        name = path.name.split("-")[0].replace("_", "-")
        found = hashlib.sha256(path.read_bytes()).hexdigest() if digest is None else digest
        fragment = f"#sha256={found}" if found else ""
        attribute = f' data-yanked="{yanked}"' if yanked is not None else ""
        # PEP 658: with its metadata beside it a resolver need not open the wheel.
        with zipfile.ZipFile(path) as wheel:
            metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
            path.with_name(path.name + ".metadata").write_bytes(wheel.read(metadata))
        attribute += ' data-core-metadata="true"'
        href = f"/{path.relative_to(self.root)}{fragment}"
        self.links.setdefault(name, {})[path.name] = f'<a href="{href}"{attribute}>{path.name}</a>'
        self._write(name)

    def wheel(self, name: str, version: str, tag: str = "py3-none-any", requires: tuple[str, ...] = ()) -> Path:
        path = make_wheel(self.root / "files", name, version, tag, requires)
        self.add(path)
        return path

    def remove(self, path: Path) -> None:
        """Take the file from the listing and from the server."""
        name = path.name.split("-")[0].replace("_", "-")
        del self.links[name][path.name]
        path.unlink()
        self._write(name)

    def _write(self, name: str) -> None:
        folder = self.root / "simple" / name
        folder.mkdir(exist_ok=True)
        lines = "\n".join(self.links[name].values())
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{lines}</body></html>")


# ---- Debian -------------------------------------------------------------------------------


class Archive:
    """A Debian archive under `root`, with three suites, signed by a key of its own."""

    def __init__(self, root: Path, keys: Path) -> None:
        self.root = root
        self.keys = keys
        self.debs: dict[str, list[str]] = {suite: [] for suite in SUITES}

    def deb(self, name: str, version: str, suite: str = "bookworm", architecture: str = "amd64", **fields: str) -> Path:
        """Build a package and put it into `suite`; `publish` makes it known."""
        area = "debian-security" if suite.endswith("-security") else "debian"
        pool = f"pool/updates/main/{name}" if area == "debian-security" else f"pool/main/{name}"
        base = self.root / area
        tree = self.keys / "tree" / f"{name}_{version}_{architecture}"
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        control = {"Package": name, "Version": version, "Architecture": architecture, "Maintainer": "x <x@example.org>"}
        control.update({key.replace("_", "-"): text for key, text in fields.items()})
        control["Description"] = "a package of a test"
        text = "".join(f"{key}: {value}\n" for key, value in control.items())
        (tree / "DEBIAN" / "control").write_text(text)
        path = base / pool / f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(path)],
            check=True,
            capture_output=True,
        )
        data = path.read_bytes()
        self.debs[suite].append(
            f"{text}Filename: {path.relative_to(base)}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        )
        return path

    def withdraw(self, name: str, version: str) -> None:
        """Take one version from every index and the pool, as a mirror does after an update."""
        for suite, stanzas in self.debs.items():
            self.debs[suite] = [text for text in stanzas if f"Package: {name}\nVersion: {version}\n" not in text]
        for path in self.root.glob(f"*/pool/**/{name}_{version}_*.deb"):
            path.unlink()

    def publish(self, sign: bool = True, until: str = "") -> None:
        """Write and sign the indexes of all suites, valid `until` then (always, when that is empty)."""
        for suite, stanzas in self.debs.items():
            area = "debian-security" if suite.endswith("-security") else "debian"
            dist = self.root / area / "dists" / suite
            sums = []
            for architecture in ("amd64", "arm64"):
                fitting = [
                    text
                    for text in stanzas
                    if f"Architecture: {architecture}\n" in text or "Architecture: all\n" in text
                ]
                packages = dist / "main" / f"binary-{architecture}" / "Packages"
                packages.parent.mkdir(parents=True, exist_ok=True)
                packages.write_text("\n".join(fitting))
                data = packages.read_bytes()
                sums.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {packages.relative_to(dist)}")
            release = (
                f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
                + (f"Valid-Until: {until}\n" if until else "")
                + "Architectures: amd64 arm64\nComponents: main\nSHA256:\n"
                + "\n".join(sums)
                + "\n"
            )
            (dist / "Release").write_text(release)
            for left in ("InRelease", "Release.gpg"):
                (dist / left).unlink(missing_ok=True)
            if sign:
                self._gpg("--clearsign", "-o", str(dist / "InRelease"), str(dist / "Release"))

    def make_key(self) -> Path:
        """Make the key that signs, and return the keyring that verifies."""
        self._gpg("--passphrase", "", "--quick-gen-key", "archive@example.org", "ed25519", "sign", "never")
        keyring = self.keys / "archive.gpg"
        keyring.write_bytes(self._gpg("--export"))
        return keyring

    def _gpg(self, *arguments: str) -> bytes:
        home = self.keys / "gnupg"
        home.mkdir(mode=0o700, exist_ok=True)
        argv = ["gpg", "--homedir", str(home), "--batch", "--yes", "--no-tty", "--quiet", *arguments]
        return subprocess.run(argv, check=True, capture_output=True).stdout

    def close(self) -> None:
        """End the agent that gpg started."""
        subprocess.run(
            ["gpgconf", "--homedir", str(self.keys / "gnupg"), "--kill", "gpg-agent"], check=False, capture_output=True
        )


def apt_configuration(folder: Path, server: str, keyring: Path) -> Path:
    """Write a host's apt configuration whose only mirror is `server`; return it for APT_CONFIG."""
    folder.mkdir(parents=True)
    (folder / "lists" / "partial").mkdir(parents=True)
    signed = f"[signed-by={keyring}]"
    (folder / "sources.list").write_text(
        f"deb {signed} {server}/debian bookworm main\n"
        f"deb {signed} {server}/debian bookworm-updates main\n"
        f"deb {signed} {server}/debian-security bookworm-security main\n"
    )
    conf = folder / "apt.conf"
    conf.write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{folder}/lists";\nAcquire::Retries "0";\n'
    )
    return conf


def site_environment(conf: Path, index: str, cache: Path) -> Mapping[str, str]:
    """Return the variables of a host whose apt and uv know only this site."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "ENVLOCK_")) and not name.lower().endswith("_proxy")
    }
    return {
        **kept,
        "APT_CONFIG": str(conf),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_DEFAULT_INDEX": index,
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_NO_CONFIG": "1",
        "ENVLOCK_STORE": str(cache / "store"),
    }
