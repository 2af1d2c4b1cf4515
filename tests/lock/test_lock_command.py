"""`envlock lock`, `init` and `store` as a person runs them: the real program, its codes and its words."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import samples
from lock_project import SPEC, Site

from envlock import lockfile, lockstore
from envlock.lock.needed import base_key

ENVLOCK = [sys.executable, "-m", "envlock"]


def run(site: Site, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENVLOCK, *arguments],
        cwd=site.folder,
        env={**site.environment, **changed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def path_of(site: Site) -> Path:
    return site.folder / "lockfiles" / "small.lock.toml"


def test_lock_check_relock(site: Site) -> None:
    """The way of a day: missing (3), written, fresh (0), stale (1), written again."""
    site.spec()
    missing = run(site, "lock", "--check")
    written = run(site, "lock")
    fresh = run(site, "lock", "--check")
    before = path_of(site).read_bytes()
    again = run(site, "lock")
    site.spec(('["app"]', '["app", "lib"]'))
    stale = run(site, "lock", "--check", "--format", "json")
    locked = run(site, "lock", "--locked")

    assert (missing.returncode, written.returncode, fresh.returncode) == (3, 0, 0)
    assert "no such lockfile" in missing.stderr
    assert written.stdout.startswith(
        "wrote lockfiles/small.lock.toml\n  7 Debian packages, 2 wheels, 0 files\n  inputs sha256:"
    )
    assert fresh.stdout == "lockfiles/small.lock.toml is fresh\n"
    assert again.stdout.startswith("unchanged ")
    assert path_of(site).read_bytes() == before
    assert (stale.returncode, locked.returncode) == (1, 1)
    assert json.loads(stale.stdout) == {
        "schema": "envlock.lock-check/1",
        "lockfile": "lockfiles/small.lock.toml",
        "verdict": "drift",
        "stale": ["the spec has changed since it was locked"],
    }
    assert run(site, "lock", "--frozen").returncode == 0
    assert path_of(site).read_bytes() == before
    assert run(site, "lock").returncode == 0
    assert run(site, "lock", "--check").returncode == 0


def test_a_changed_file_is_stale(site: Site) -> None:
    """A model that is no longer the one that was locked."""
    site.spec(("[python]", '[[file]]\nsource = "m.bin"\npath = "/opt/m.bin"\n[python]'))
    (site.folder / "m.bin").write_bytes(b"1")
    assert run(site, "lock").returncode == 0
    assert run(site, "lock", "--check").returncode == 0

    (site.folder / "m.bin").write_bytes(b"2")
    changed = run(site, "lock", "--check")
    (site.folder / "m.bin").unlink()
    gone = run(site, "lock", "--check")

    assert (changed.returncode, gone.returncode) == (1, 1)
    assert "the file 'm.bin' has changed since it was locked" in changed.stdout
    assert "the file 'm.bin' is gone" in gone.stdout


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data.replace(b"\n", b"\r\n"), "has CRLF line ends (line 1)"),
        (lambda data: b"\xef\xbb\xbf" + data, "starts with a byte order mark"),
        (lambda data: b"<<<<<<< HEAD\n" + data, "holds a merge conflict (line 1)"),
        (lambda data: data[: len(data) // 2], "is not valid TOML"),
        (lambda data: data.replace(b"threads = 1", b'threads = "1"'), "unexpected type string (expected integer), at"),
        (lambda data: data.replace(b'name = "lib"', b'name = "app"'), "two entries for 'app', at `python[1]`"),
    ],
    ids=["empty", "crlf", "bom", "conflict", "truncated", "wrong type", "two entries"],
)  # fmt: skip
def test_each_broken_lockfile_has_its_own_message(site: Site, spoil, message: str) -> None:  # type: ignore[no-untyped-def]
    """Exit 2, the file and the key named, and `lock` overwrites none of it."""
    site.spec()
    assert run(site, "lock").returncode == 0
    broken = spoil(path_of(site).read_bytes())
    path_of(site).write_bytes(broken)

    for arguments in (("lock", "--check"), ("lock",)):
        ended = run(site, *arguments)
        assert ended.returncode == 2
        assert f"error: lockfiles/small.lock.toml: {message}" in ended.stderr
        assert "Traceback" not in ended.stderr
    assert path_of(site).read_bytes() == broken


def test_the_check_imports_nothing_heavy(site: Site) -> None:
    """It runs before every commit: no tomlkit, packaging, requests, docker or subprocess on its way."""
    site.spec()
    assert run(site, "lock").returncode == 0
    program = (
        "import sys\nfrom envlock.cli.main import main\n"
        "try:\n    main(['lock', '--check'])\nexcept SystemExit as done:\n    assert done.code == 0\n"
        "print(sorted({'tomlkit', 'packaging', 'requests', 'docker', 'jinja2', 'uv', 'torch'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=site.folder,
        env=site.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.splitlines()[-1] == "[]"


def test_the_check_asks_no_network(site: Site) -> None:
    """Fresh or stale is told with every server gone."""
    site.spec()
    assert run(site, "lock").returncode == 0
    site.server.seen.clear()

    assert run(site, "lock", "--check").returncode == 0
    assert site.server.seen == []


def test_contradictions_are_usage_errors(site: Site) -> None:
    """Reading and writing at once, or an upgrade without a network."""
    site.spec()
    for arguments in (("--check", "--upgrade"), ("--locked", "--frozen"), ("--offline", "-U"), ("--frozen", "-P", "x")):
        ended = run(site, "lock", *arguments)
        assert ended.returncode == 2
        assert "contradict each other" in ended.stderr


def test_the_environment_speaks_like_the_options(site: Site) -> None:
    """ENVLOCK_OFFLINE and its kin mean what `--offline` means."""
    site.spec()

    offline = run(site, "lock", ENVLOCK_OFFLINE="1")
    frozen = run(site, "lock", ENVLOCK_FROZEN="1")

    assert offline.returncode == 2
    assert frozen.returncode == 2
    assert "no such lockfile" in frozen.stderr
    assert not path_of(site).exists()


def test_the_json_document_is_alone_on_standard_output(site: Site) -> None:
    """Progress and words go to standard error."""
    site.spec()
    document = json.loads(run(site, "lock", "--format", "json").stdout)

    assert (document["schema"], document["changed"]) == ("envlock.lock/1", True)
    assert (document["apt"], document["python"]) == (7, 2)
    site.index.wheel("lib", "1.2")
    moved = json.loads(run(site, "lock", "-U", "--format", "json").stdout)
    assert moved["moved"] == ["python lib 1.1 -> 1.2"]


def test_two_at_once_on_one_lockfile(site: Site) -> None:
    """One works, the other is told at once; the file is whole, and nothing stays behind."""
    site.spec()
    both = [
        subprocess.Popen([*ENVLOCK, "lock"], cwd=site.folder, env=site.environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [(process.communicate()[1], process.returncode) for process in both]

    codes = sorted(code for _, code in ended)
    assert codes in ([0, 0], [0, 2])
    if codes == [0, 2]:
        assert any("another envlock is writing this file" in said for said, _ in ended)
    lockstore.read(path_of(site))
    assert sorted(entry.name for entry in path_of(site).parent.iterdir()) == [
        ".small.lock.toml.flock",
        "small.lock.toml",
    ]


def test_kill_9_at_any_moment_of_lock(site: Site) -> None:
    """Thirty-two runs killed at random moments: the lockfile is the old one or the new one, the next run succeeds."""
    randomness = random.Random(3)
    temporary = site.folder / "tmp"
    temporary.mkdir()
    site.environment["TMPDIR"] = str(temporary)
    site.spec()
    assert run(site, "lock").returncode == 0
    whole = {path_of(site).read_bytes()}
    site.spec(("[python]", "[determinism]\nthreads = 2\n[python]"))
    assert run(site, "lock").returncode == 0
    whole.add(path_of(site).read_bytes())
    slow = time.monotonic()
    site.spec()
    assert run(site, "lock").returncode == 0
    slow = time.monotonic() - slow

    for turn in range(32):
        if turn % 2:
            site.spec(("[python]", "[determinism]\nthreads = 2\n[python]"))
        else:
            site.spec()
        if turn % 4 == 0:
            site.store.gc(set(), set())
        process = subprocess.Popen(
            [*ENVLOCK, "-q", "lock"],
            cwd=site.folder,
            env=site.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Half of them near the end, where the lockfile is written.
        low = 0.0 if turn % 3 else slow * 0.7
        time.sleep(randomness.uniform(low, slow * 1.1))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert path_of(site).read_bytes() in whole

    site.spec()
    ended = run(site, "lock", "-U")  # a lock that is fresh already needs no scratch folder, and so clears none
    assert ended.returncode == 0, ended.stderr
    assert list(temporary.iterdir()) == []
    assert site.store.verify(repair=False).broken == ()
    assert sorted(entry.name for entry in path_of(site).parent.iterdir()) == [
        ".small.lock.toml.flock",
        "small.lock.toml",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("kilobytes", [16, 64, 100])
def test_a_full_disk_while_locking(site: Site, kilobytes: int) -> None:
    """A disk too small for the store: exit 3 and words, the old lockfile untouched; with room the next run succeeds."""
    site.spec()
    assert run(site, "lock").returncode == 0
    before = path_of(site).read_bytes()
    site.spec(("[python]", "[determinism]\nthreads = 2\n[python]"))
    small = site.folder / "disk"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        ended = run(site, "lock", ENVLOCK_STORE=str(small / "store"))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)

    assert ended.returncode == 3, ended.stderr
    assert "no space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert path_of(site).read_bytes() == before
    assert run(site, "lock").returncode == 0


def test_secrets_of_the_configuration_appear_nowhere(site: Site) -> None:
    """An index that wants a login is served with it; neither login nor host is in output, lockfile or store."""
    site.spec()
    site.server.login = ("reader", "s3cr3t-w0rd")
    # The archive asks for the login too: apt has it in its own file.
    folder = Path(site.environment["APT_CONFIG"]).parent
    auth = folder / "auth.conf"
    auth.write_text(f"machine http://127.0.0.1:{site.server.port}/ login reader password s3cr3t-w0rd\n")
    auth.chmod(0o600)
    with open(folder / "apt.conf", "a") as stream:
        stream.write(f'Dir::Etc::netrc "{auth}";\n')
    index = f"http://reader:s3cr3t-w0rd@127.0.0.1:{site.server.port}/simple"

    good = run(site, "-v", "lock", UV_DEFAULT_INDEX=index)
    site.spec(('["app"]', '["nothing-of-this-name"]'))
    bad = run(site, "-v", "lock", UV_DEFAULT_INDEX=index)
    wrong = run(site, "-v", "lock", UV_DEFAULT_INDEX=index.replace("w0rd", "w1rd"))

    assert (good.returncode, bad.returncode) == (0, 2), good.stderr
    assert wrong.returncode in (2, 3)
    said = good.stdout + good.stderr + bad.stdout + bad.stderr + wrong.stdout + wrong.stderr + path_of(site).read_text()
    for secret in ("s3cr3t", "127.0.0.1", str(site.server.port)):
        assert secret not in said


# ---- init ---------------------------------------------------------------------------------


def test_init_writes_a_spec_that_reads(tmp_path: Path) -> None:
    """The commented spec is a spec, named after its folder, and is never overwritten unasked."""
    from envlock import spec

    folder = tmp_path / "My Project"
    folder.mkdir()

    def init(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*ENVLOCK, "init", *arguments], cwd=folder, capture_output=True, text=True, check=False)

    first = init()
    found = spec.read(folder / "envlock.toml")
    (folder / "envlock.toml").write_text(SPEC)
    second = init()

    assert (first.returncode, second.returncode) == (0, 2)
    assert found.name == "my-project"
    assert "is already there" in second.stderr
    assert (folder / "envlock.toml").read_text() == SPEC
    assert init("--force", "--name", "other").returncode == 0
    assert spec.read(folder / "envlock.toml").name == "other"
    assert init("--force", "--name", "No Name").returncode == 2


def test_every_commented_line_of_the_init_template_is_valid(tmp_path: Path) -> None:
    """What a person uncomments works: each example line, taken in, still gives a spec."""
    from envlock import spec
    from envlock.cli.init import TEMPLATE

    text = TEMPLATE.format(name="x", epoch=spec.DEFAULT_EPOCH)
    lines = []
    for line in text.splitlines():
        bare = line.removeprefix("# ")
        is_code = line.startswith("# ") and (bare.startswith("[") or " = " in bare.split("#")[0])
        if is_code and not bare.startswith("image"):
            line = bare
        lines.append(line)
    found = spec.parse("\n".join(lines).encode(), "x")

    assert found.files
    assert found.policy
    assert found.determinism.torch
    assert found.python.torch_backend == "cpu"


# ---- store --------------------------------------------------------------------------------


def test_store_verify_and_gc(site: Site) -> None:
    """Whole (0), damaged (4), repaired (0), fetched again; `gc` keeps what the lockfile needs."""
    site.spec()
    assert run(site, "lock").returncode == 0
    whole = run(site, "store", "verify")
    lock = lockstore.read(path_of(site))
    place = site.store.path(lock.apt[0].sha256, "x")
    place.chmod(0o644)
    place.write_bytes(b"")

    damaged = run(site, "store", "verify")
    repaired = run(site, "store", "verify", "--repair", "--format", "json")
    again = run(site, "lock")

    assert whole.stdout.startswith("9 blobs, ")
    assert (whole.returncode, damaged.returncode, repaired.returncode, again.returncode) == (0, 4, 0, 0)
    assert str(lock.apt[0].sha256) in damaged.stdout
    assert json.loads(repaired.stdout)["broken"] == [str(lock.apt[0].sha256)]
    base = site.store.add_derived("base", base_key(lock), io.BytesIO(b"a base made of the locked packages"))
    assert run(site, "store", "gc").stdout.startswith("removed 0 blobs and 0 records")
    assert base.exists()
    assert run(site, "store", "verify").stdout.startswith("10 blobs, ")
    other = site.folder / "other.lock.toml"
    other.write_text(lockfile.render(samples.lock()))
    assert run(site, "store", "gc", "--dry-run", str(other)).stdout.startswith("would remove 10 blobs")
    assert run(site, "store", "gc", str(other)).stdout.startswith("removed 10 blobs")


def test_each_document_fits_its_schema(site: Site) -> None:
    """What the four commands print as JSON is what `docs/schema` says."""
    site.spec()
    schemas = Path(__file__).parent.parent.parent / "docs" / "schema"
    for name, arguments in (
        ("lock-result", ("lock",)),
        ("lock-check-result", ("lock", "--check")),
        ("store-verify-result", ("store", "verify")),
        ("store-gc-result", ("store", "gc", "--dry-run")),
    ):
        document = json.loads(run(site, *arguments, "--format", "json").stdout)
        schema = json.loads((schemas / f"{name}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document, schema)
