"""The container engine: finding one that answers, and what envlock asks of it.

Images go through here as streams; nothing is held in memory whole and nothing is
believed without being hashed again by the caller. What `inspect` says is a claim, what
`save` gives is the thing itself. Reading saved images is `envlock.image.saved`'s work,
the canary's container `envlock.run.container`'s.
"""

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from envlock.digest import Digest
from envlock.errors import EngineError
from envlock.image import owner
from envlock.image.endpoints import Endpoint, candidates, redacted
from envlock.image.failures import EngineRefused
from envlock.image.transport import Transport, Upload

if TYPE_CHECKING:
    from envlock.image.saved import Resolved

MINIMUM_API = (1, 41)
"""Docker 20.10 and Podman 3: the oldest API that this is tested with."""

CONNECT = 5.0  # seconds for one candidate to answer
QUICK = 60.0  # seconds for a request that moves no image
TRANSFER = 1800.0  # seconds for one that does

INSTALL = "on Debian or Ubuntu: `apt-get install docker.io`, then `systemctl start docker` (elsewhere Docker or Podman)"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineInfo:
    """What an engine says about itself.

    `name` is `Docker` or `Podman Engine`. With `containerd_store` the Id of an image is
    its manifest digest; without, its config digest. `endpoint` is the way it is reached
    (`unix`, `tcp`, `ssh`), never an address. `seccomp`: the default filter is in force.
    `cdi_gpus`: it gives GPUs to containers by their CDI names (`nvidia.com/gpu=all`).
    """

    name: str
    version: str
    api_version: str
    endpoint: str
    storage_driver: str
    containerd_store: bool
    cgroup_version: str
    architecture: str
    seccomp: bool
    cdi_gpus: bool = False


def connect(environ: Mapping[str, str]) -> "Engine":
    """Return the first engine that answers: DOCKER_HOST, docker's context, Docker's and Podman's sockets.

    Raises `EngineError` that lists every place tried and why it failed.
    """
    failures = []
    hint = INSTALL
    for endpoint in candidates(environ):
        try:
            return _open(endpoint)
        except EngineError as error:
            failures.append(f"\n  {endpoint.text}: {error.message}")
            denied = "join the group of the socket (`docker`) and log in again, or run this as root"
            hint = error.hint or (denied if "permission denied" in error.message else hint)
    raise EngineError(f"no container engine answers; tried{''.join(failures)}", hint=hint)


def _open(endpoint: Endpoint) -> "Engine":
    transport = Transport(_client(endpoint, "1.41"), endpoint)
    version = transport.call("no answer", "GET", "/version", deadline=CONNECT, versioned=False)
    api = version.get("ApiVersion") if isinstance(version, dict) else None
    if not isinstance(api, str) or not re.fullmatch(r"\d+\.\d+", api):
        raise EngineError("this is no container engine: its answer names no API version")
    if tuple(map(int, api.split("."))) < MINIMUM_API:
        raise EngineError(
            f"the engine is too old: API {api} (expected 1.41 or newer)",
            hint="update the engine: Docker 20.10, Podman 3 or newer",
        )
    transport = Transport(_client(endpoint, api), endpoint)
    info = transport.call("no answer", "GET", "/info", deadline=QUICK)
    return Engine(transport, _info(endpoint, api, version, info if isinstance(info, dict) else {}))


def _client(endpoint: Endpoint, api: str) -> Any:
    import docker
    import docker.errors
    import docker.tls

    tls: Any = False
    try:
        if endpoint.tls is not None:
            files = endpoint.tls
            tls = docker.tls.TLSConfig(
                client_cert=(str(files.cert), str(files.key)) if files.cert and files.key else None,
                ca_cert=str(files.ca) if files.ca else None,
                verify=files.verify,
            )
        client = docker.APIClient(base_url=endpoint.url, version=api, timeout=int(QUICK), tls=tls, use_ssh_client=True)
    except docker.errors.DockerException as error:
        hint = "install `docker[ssh]` beside envlock" if endpoint.kind == "ssh" else None
        raise EngineError(f"cannot be used: {redacted(str(error))}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot be used: {redacted(str(error))}") from error
    client.trust_env = False  # no proxy, no .netrc between envlock and its engine
    return client


def _info(endpoint: Endpoint, api: str, version: dict[str, Any], info: dict[str, Any]) -> EngineInfo:
    components = version.get("Components")
    first = components[0] if isinstance(components, list) and components else {}
    # Podman's compat API gives its own name here, and Docker's version numbers elsewhere.
    name = str(first.get("Name", "")) if isinstance(first, dict) else ""
    podman = name.startswith("Podman")
    return EngineInfo(
        name="Podman Engine" if podman else "Docker",
        version=str((first.get("Version") if isinstance(first, dict) else None) or version.get("Version", "")),
        api_version=api,
        endpoint=endpoint.kind,
        storage_driver=str(info.get("Driver", "")),
        containerd_store="io.containerd.snapshotter.v1" in str(info.get("DriverStatus", "")),
        cgroup_version=str(info.get("CgroupVersion", "")),
        architecture=str(info.get("Architecture", "")),
        seccomp="seccomp" in str(info.get("SecurityOptions", "")),
        # Podman knows no other way; Docker lists the CDI devices that it found (API 1.50 and newer).
        cdi_gpus=podman or "nvidia.com/gpu" in str(info.get("DiscoveredDevices", "")),
    )


class Engine:
    """One engine that answers. Every `deadline` is in seconds from the call; every failure an `EngineError`."""

    def __init__(self, transport: Transport, info: EngineInfo) -> None:
        self.transport = transport
        self.info = info

    def build(
        self,
        context: Upload,
        tag: str,
        on_line: Callable[[str], None] = lambda line: None,
        *,
        deadline: float = TRANSFER * 2,
        nocache: bool = False,
        labels: Mapping[str, str] | None = None,
        platform: str | None = None,
    ) -> str:
        """Build `context` (a tar with a `Dockerfile`) without a network, and return the image's Id.

        `tag` must be new (`envlock.image.owner.temporary_tag`): the image is found by it,
        never by the log's words (podman#11326). `on_line` gets each line of the log.
        """
        import json

        what = "the build failed"
        params = {
            "t": tag,
            "rm": "1",
            "forcerm": "1",
            "networkmode": "none",
            "nocache": "1" if nocache else "0",
            "labels": json.dumps(dict(labels or {})),
        }
        if platform is not None:
            params["platform"] = platform
        for message in self.transport.messages(
            what, "POST", "/build", deadline=deadline, params=params, upload=context
        ):
            text = message.get("stream")
            if isinstance(text, str):
                for line in text.splitlines():
                    if line.strip():
                        on_line(line)
        return self.image_id(tag)

    def image_id(self, reference: str) -> str:
        """Return the Id of an image that must be there."""
        found = self.inspect_image(reference)
        if found is None:
            raise EngineError(f"the engine has no image `{reference}`")
        try:
            return Digest.parse(found.get("Id"))
        except ValueError:
            raise EngineError(f"the engine gave an Id that is no digest for `{reference}`") from None

    def inspect_image(self, reference: str) -> dict[str, Any] | None:
        """Return what the engine claims about an image, None when it has none of this name."""
        what = f"cannot inspect image `{reference}`"
        try:
            found = self.transport.call(what, "GET", f"/images/{_quoted(reference)}/json", deadline=QUICK)
        except EngineRefused as refused:
            if refused.status == 404:
                return None
            raise
        if not isinstance(found, dict):
            raise EngineError(f"{what}: the engine's answer is no description of an image")
        return found

    def save(self, reference: str, *, deadline: float = TRANSFER) -> Generator[bytes, None, None]:
        """Return the tar archive of an image, chunk by chunk; the caller hashes what it holds."""
        what = f"cannot save image `{reference}`"
        return self.transport.stream(what, "GET", f"/images/{_quoted(reference)}/get", deadline=deadline)

    def load(self, archive: Upload, *, deadline: float = TRANSFER) -> None:
        """Load an image archive. That it succeeds proves nothing: save and hash afterwards."""
        for _ in self.transport.messages(
            "cannot load the image", "POST", "/images/load", deadline=deadline, params={"quiet": "1"}, upload=archive
        ):
            pass

    def tag(self, reference: str, name: str) -> None:
        """Give the image `reference` the name `name` (`REPOSITORY:TAG`) as well."""
        repository, _, label = name.rpartition(":")
        self.transport.call(
            f"cannot tag image `{reference}`",
            "POST",
            f"/images/{_quoted(reference)}/tag",
            deadline=QUICK,
            params={"repo": repository, "tag": label},
        )

    def remove_image(self, reference: str) -> bool:
        """Remove a name, and the image with its last name; False when there was none."""
        try:
            self.transport.call(
                f"cannot remove image `{reference}`",
                "DELETE",
                f"/images/{_quoted(reference)}",
                deadline=QUICK * 5,
            )
        except EngineRefused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def images(self, reference: str) -> tuple[str, ...]:
        """Return the names of the images whose name matches `reference`."""
        import json

        found = self.transport.call(
            "cannot list images",
            "GET",
            "/images/json",
            deadline=QUICK,
            params={"filters": json.dumps({"reference": [reference]})},
        )
        items = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        return tuple(sorted(str(name) for item in items for name in item.get("RepoTags") or ()))

    def containers(self, label: str) -> tuple[dict[str, Any], ...]:
        """Return the containers, running or not, that carry `label`."""
        import json

        found = self.transport.call(
            "cannot list containers",
            "GET",
            "/containers/json",
            deadline=QUICK,
            params={"all": "1", "filters": json.dumps({"label": [label]})},
        )
        return tuple(item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()

    def remove_container(self, ident: str) -> None:
        """Kill and remove a container with its volumes; one that is gone already is no error."""
        try:
            self.transport.call(
                "cannot remove the container",
                "DELETE",
                f"/containers/{_quoted(ident)}",
                deadline=QUICK,
                params={"force": "1", "v": "1"},
            )
        except EngineRefused as refused:
            if refused.status != 404 and "already in progress" not in refused.message:
                raise

    def reap(self, older: float = 24 * 3600.0) -> tuple[str, ...]:
        """Remove containers and temporary images whose envlock is gone; return what was removed.

        What another boot, host or PID namespace made is removed when it is more than
        `older` seconds old: whether its process lives cannot be known from here.
        """
        from envlock.image.reap import reap

        return reap(self, older)

    def pull(self, reference: str, platform: str, *, deadline: float = TRANSFER) -> None:
        """Fetch an image from its registry; what came is proved by the caller."""
        from envlock.image.registry import pull

        pull(self, reference, platform, deadline)

    def resolve(self, reference: str, platform: str, *, deadline: float = TRANSFER) -> "Resolved":
        """Fetch `reference` and return the digests that fix it, from its own bytes.

        Raises `EngineError` when it cannot be fetched, `IntegrityError` when the bytes
        that the engine holds are not those that its config names.
        """
        from envlock.image.saved import resolve

        return resolve(self, reference, platform, deadline)

    def read_file(self, reference: str, path: str, *, limit: int = 64 << 20) -> bytes:
        """Return the regular file at `path` (absolute) in an image; nothing is started for it."""
        from envlock.image.saved import read_file

        return read_file(self, reference, path, limit)


def _quoted(reference: str) -> str:
    return quote(reference, safe="/:@")


def temporary_tag() -> str:
    """Return a new image name that `Engine.reap` removes once this process is gone."""
    return owner.temporary_tag()
