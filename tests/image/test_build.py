"""`envlock build` on a real engine: one digest by every way, and what happens when it is not."""

import contextlib
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import jsonschema
import pytest
from engine_fixtures import archive_of, chunks, tar_of
from worlds import locked_debs, world

from envlock import lockfile, lockstore
from envlock.errors import CouldNotTell, EngineError, IntegrityError, LockHeldError
from envlock.files import exclusive
from envlock.image import context as contexts
from envlock.image import layout, operation, plan, proof, tree
from envlock.image.engine import Engine, temporary_tag
from envlock.image.layertar import RangeSource
from envlock.image.operation import Built, Order
from envlock.lockfile import DebPackage, Image, ImageBase, Lockfile

ROOT = Path(__file__).resolve().parents[2]

MADE: list[Image] = []
"""What the tests of one name built."""

pytestmark = pytest.mark.engine


@pytest.fixture
def name(engine: Engine) -> Iterator[str]:
    """A name for an image that is gone after the test."""
    given = f"localhost/envlock-test/{secrets.token_hex(6)}:1"
    yield given
    engine.remove_image(given)
    for image in MADE:  # those whose name went to another one
        engine.remove_image(str(image.manifest if engine.info.containerd_store else image.config))
    MADE.clear()


def quiet(text: str) -> None:
    """Say nothing."""


def write(folder: Path, lock: Lockfile) -> Path:
    path = folder / "lockfiles" / "tiny.lock.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(lockfile.render(lock))
    return path


def build(engine: Engine, folder: Path, order: Order, text: bytes = b"VALUE = 1\n") -> tuple[Built, Path]:
    store, lock, _ = world(folder, text)
    path = folder / "lockfiles" / "tiny.lock.toml"
    if not path.exists():
        path = write(folder, lock)
    order = dataclasses.replace(order, choices=plan.Choices(folder=folder))
    built, _ = operation.run(path, order, lambda: engine, store, quiet)
    MADE.append(built.image)
    return built, path


# ---- one digest --------------------------------------------------------------------------


def test_the_first_build_records_and_the_next_ones_verify(engine: Engine, name: str, tmp_path: Path) -> None:
    """Recorded; then unchanged by the earlier proof; then equal by a new build; the lockfile is written once."""
    first, path = build(engine, tmp_path, Order(name=name))
    recorded = path.read_bytes()
    outcomes = [first.outcome]
    for order in (Order(name=name), Order(name=name, paranoid=True), Order(name=name, cache=False)):
        outcomes.append(build(engine, tmp_path, order)[0].outcome)

    assert outcomes == ["recorded", "unchanged", "unchanged", "match"]
    assert path.read_bytes() == recorded
    assert lockstore.read(path).image == first.image
    assert [layer.owner for layer in first.image.layers] == ["system", "python", "files"]


def test_assembled_and_built_by_the_engine_are_the_same_image(engine: Engine, name: str, tmp_path: Path) -> None:
    """The engine's builder makes other layers at other times; the canonical image is one."""
    assembled, _ = build(engine, tmp_path, Order(name=name))
    by_engine, _ = build(engine, tmp_path, Order(name=name, by_engine=True, cache=False))

    assert by_engine.image == assembled.image
    assert by_engine.outcome == "match"


def test_a_plain_build_of_the_rendered_folder_is_the_same_image(engine: Engine, name: str, tmp_path: Path) -> None:
    """Rendered under one umask, copied under another in another order, built by hand, canonical: one digest."""
    assembled, _ = build(engine, tmp_path, Order(name=name))
    store, lock, folder = world(tmp_path)
    out = tmp_path / "out"
    with plan.context(lock, store, plan.Choices(folder=folder)) as made:
        contexts.write_folder(made.items, out, lock.environment.epoch, force=False)
    copy = tmp_path / "copy"
    subprocess.run(
        f"umask 077; cp -r --no-preserve=mode {out} {copy} && touch {copy}/venv/pyvenv.cfg", shell=True, check=True
    )
    programs = [
        path for path in out.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o100
    ]
    for program in programs:
        (copy / program.relative_to(out)).chmod(0o700)  # `cp` without modes loses this one, which is content
    archive = subprocess.run(
        ["tar", "-C", copy, "--owner=1000", "--group=1000", "--sort=none", "-cf", "-", "."],
        capture_output=True,
        check=True,
    )
    tag = temporary_tag()
    try:
        engine.build(iter((archive.stdout,)), tag, nocache=True)
        by_hand, _ = build(engine, tmp_path, Order(name=name, built=tag))
    finally:
        engine.remove_image(tag)

    assert by_hand.image == assembled.image


def as_base(built: Built) -> ImageBase:
    """Return an image of ours as the base image of another lockfile."""
    return ImageBase(
        repository="envlock-test/base",
        tag="1",
        digest=built.image.manifest,
        config=built.image.config,
        diff_ids=tuple(layer.diff_id for layer in built.image.layers),
    )


def on_base(lock: Lockfile, built: Built, *debs: DebPackage) -> Lockfile:
    return dataclasses.replace(lock, base=as_base(built), apt=debs, image=None)


def test_an_image_base_keeps_its_layers(engine: Engine, name: str, tmp_path: Path) -> None:
    """Both ways give one image whose first layers are the base's; another base is refused."""
    base, _ = build(engine, tmp_path, Order(name=name))
    (tmp_path / "more").mkdir()
    store, lock, folder = world(tmp_path / "more", b"VALUE = 7\n")
    lock = on_base(lock, base)
    order = Order(name=name.replace(":1", ":2"), choices=plan.Choices(folder=folder))
    try:
        assembled = operation.build(engine, lock, store, quiet, order)
        by_engine = operation.build(engine, lock, store, quiet, dataclasses.replace(order, by_engine=True, cache=False))
        wrong = dataclasses.replace(
            lock, base=dataclasses.replace(as_base(base), diff_ids=as_base(base).diff_ids[::-1])
        )
        with pytest.raises(IntegrityError, match="does not begin with the layers of the locked base"):
            operation.build(engine, wrong, store, quiet, order)
    finally:
        engine.remove_image(order.name)

    assert assembled.image == by_engine.image
    assert [layer.diff_id for layer in assembled.image.layers[:3]] == list(as_base(base).diff_ids)
    assert [layer.owner for layer in assembled.image.layers] == ["base", "base", "base", "python"]


@pytest.mark.slow
def test_debian_packages_on_an_image_base_are_installed_without_a_trace(
    engine: Engine, name: str, essential: tuple[Path, ...], tmp_path: Path
) -> None:
    """The engine runs the script twice, at different times: one digest, the package is there, the script is not."""
    store, lock, folder = world(tmp_path)
    choices = plan.Choices(folder=folder)
    environment = dataclasses.replace(lock.environment, interpreter="/usr/bin/perl")  # stands for one
    lock = dataclasses.replace(lock, environment=environment)
    system = dataclasses.replace(lock, apt=tuple(locked_debs(essential, store)), python=(), files=())
    base = operation.build(engine, system, store, quiet, Order(name=name, choices=choices))
    extra = tuple(locked_debs((made_deb(tmp_path),), store))
    images = []
    order = Order(name=name.replace(":1", ":2"), choices=choices, cache=False)
    try:
        for _ in range(2):
            images.append(operation.build(engine, on_base(lock, base, *extra), store, quiet, order).image)
            time.sleep(1.1)
        found = engine.read_file(order.name, "/etc/made.conf"), engine.read_file(order.name, "/var/lib/made/configured")
        with pytest.raises(EngineError):
            engine.read_file(order.name, "/.envlock-debs/install.sh")
        with pytest.raises(EngineError):
            engine.read_file(order.name, "/usr/sbin/policy-rc.d")
    finally:
        engine.remove_image(order.name)

    assert images[0] == images[1]
    assert found == (b"setting\n", b"configured\n")
    assert [layer.owner for layer in images[0].layers] == ["base", "base", "system", "python", "files"]


def made_deb(folder: Path) -> Path:
    """Return a Debian package with a configuration file and a script that runs when it is configured."""
    root = folder / "made"
    for path, text in {
        "DEBIAN/control": "Package: made\nVersion: 2:1.0-1\nArchitecture: all\nMaintainer: x\nDescription: x\n",
        "DEBIAN/conffiles": "/etc/made.conf\n",
        "DEBIAN/postinst": "#!/bin/sh\nset -e\nmkdir -p /var/lib/made\ndate >> /var/log/made\n"
        "echo configured > /var/lib/made/configured\n",
        "etc/made.conf": "setting\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "DEBIAN/postinst").chmod(0o755)
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", root, folder / "made.deb"], capture_output=True, check=True
    )
    return folder / "made.deb"


HOSTS: dict[str, tuple[Mapping[str, str], int]] = {
    "plain": ({}, 0o022),
    "open umask": ({}, 0o000),
    "closed umask, far away": (
        {
            "TZ": "Asia/Tokyo",
            "LANG": "tr_TR.UTF-8",
            "LC_ALL": "tr_TR.UTF-8",
            "HOME": "/nonexistent",
            "USER": "somebody",
        },
        0o077,
    ),
    "other hash seed and epoch": ({"PYTHONHASHSEED": "12345", "SOURCE_DATE_EPOCH": "1", "LOGNAME": "x"}, 0o027),
}


def program(
    path: Path, *arguments: str, env: Mapping[str, str] | None = None, umask: int = -1
) -> subprocess.CompletedProcess[bytes]:
    """Run `envlock build` for a lockfile in a child process."""
    argv = [sys.executable, "-m", "envlock", "build", "-l", str(path), "--format", "json", *arguments]
    store = str(path.parent.parent / "store")
    return subprocess.run(
        argv, capture_output=True, check=False, umask=umask, cwd="/", timeout=300,
        env={**os.environ, "ENVLOCK_STORE": store, **(env or {})},
    )  # fmt: skip


def test_one_digest_on_every_host(engine: Engine, name: str, tmp_path: Path) -> None:
    """Another folder, umask, time zone, locale, home, user, hash seed: the same document."""
    found = {}
    for number, (host, (env, umask)) in enumerate(HOSTS.items()):
        folder = tmp_path / f"folder-{'x' * number}"
        folder.mkdir()
        _, lock, _ = world(folder)
        done = program(write(folder, lock), "--tag", name, env=env, umask=umask)
        assert done.returncode == 0, done.stderr.decode()
        document = json.loads(done.stdout)
        found[host] = (document["config"], document["manifest"], json.dumps(document["layers"]))

    assert len(set(found.values())) == 1, found
    schema = json.loads((ROOT / "docs/schema/build-result.schema.json").read_text())
    jsonschema.validate(document, schema)


def test_one_changed_wheel_changes_one_layer(engine: Engine, name: str, tmp_path: Path) -> None:
    """System and files keep their layers."""
    results = []
    for number, text in enumerate((b"VALUE = 1\n", b"VALUE = 2\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        results.append(build(engine, folder, Order(name=name), text)[0].image)
    same = [one == other for one, other in zip(results[0].layers, results[1].layers, strict=True)]

    assert same == [True, False, True]


# ---- another digest ----------------------------------------------------------------------


def test_another_image_than_the_locked_one_is_drift_and_the_lockfile_stays(
    engine: Engine, name: str, tmp_path: Path
) -> None:
    """Exit 1 with what differs, layer by layer; only `--update` replaces the digest."""
    _, path = build(engine, tmp_path, Order(name=name))
    lock = lockstore.read(path)
    assert lock.image is not None
    layers = (dataclasses.replace(lock.image.layers[0], diff_id=lock.image.config), *lock.image.layers[1:])
    wrong = lock.with_image(dataclasses.replace(lock.image, config=lock.image.manifest, layers=layers))
    path.write_text(lockfile.render(wrong))
    before = path.read_bytes()

    done = program(path, "--tag", name)
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["outcome"] == "drift"
    assert [item["what"] for item in document["differences"]] == ["config", "layer system"]
    assert path.read_bytes() == before

    done = program(path, "--tag", name, "--update")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (0, "updated")
    assert lockstore.read(path).image == lock.image


def test_drift_names_the_files_that_differ(engine: Engine, name: str, tmp_path: Path) -> None:
    """As long as the engine still holds the locked image."""
    other = name.replace(":1", ":2")
    try:
        locked, _ = build(engine, tmp_path, Order(name=other))
        (tmp_path / "more").mkdir()
        store, lock, folder = world(tmp_path / "more", b"VALUE = 9\n# more\n")
        order = Order(name=name, choices=plan.Choices(folder=folder))
        found = operation.build(engine, lock.with_image(locked.image), store, quiet, order).differences
    finally:
        engine.remove_image(other)

    entries = {difference.what: difference.entries for difference in found}
    assert list(entries) == ["config", "layer python"]
    site = "/opt/venv/lib/python3.11/site-packages"
    assert entries["layer python"] == (
        f"{site}/alpha-1.0.dist-info/RECORD: content",
        f"{site}/alpha/__init__.py: size 10 -> 17",
    )


def test_an_image_proven_before_and_replaced_since_is_not_believed(engine: Engine, name: str, tmp_path: Path) -> None:
    """The note of the proof names the Id; another image under the same name is built anew."""
    built, _ = build(engine, tmp_path, Order(name=name))
    other = temporary_tag()
    try:
        engine.load(chunks(archive_of([tar_of({"x": b"x"})], other)))
        engine.tag(other, name)
    finally:
        engine.remove_image(other)

    assert build(engine, tmp_path, Order(name=name))[0].outcome == "match"
    assert engine.image_id(name) in (built.image.config, built.image.manifest)


def test_prove_tells_equal_from_other(engine: Engine, name: str, tmp_path: Path) -> None:
    """The same image has no differences, another one names config and layer; none at all is an error."""
    built, _ = build(engine, tmp_path, Order(name=name))
    assert proof.prove(engine, name, built.image).differences == ()

    other = dataclasses.replace(built.image, config=built.image.manifest, layers=built.image.layers[:2])
    assert [item.what for item in proof.prove(engine, name, other).differences] == ["config", "layer 3"]
    with pytest.raises(EngineError, match="has no image"):
        proof.prove(engine, "localhost/envlock-test/none:1", built.image)


def test_the_archive_written_beside_is_the_image(engine: Engine, name: str, tmp_path: Path) -> None:
    """It loads under the name, and its layers are the locked ones; an altered one is refused."""
    archive = tmp_path / "image.tar"
    built, _ = build(engine, tmp_path, Order(name=name, archive=archive))
    data = archive.read_bytes()
    with layout.spooled(iter((data,)), tmp_path, "x") as found:
        assert found.config == built.image.config
        assert [layer.digest for layer in found.layers] == [layer.diff_id for layer in built.image.layers]

    flipped = data.replace(b"VALUE = 1\n", b"VALUE = 9\n")
    assert flipped != data
    with pytest.raises(IntegrityError, match="layer 2 of 3"), layout.spooled(iter((flipped,)), tmp_path, "x"):
        pass


# ---- faults ------------------------------------------------------------------------------


def test_a_blob_changed_in_the_store_is_an_integrity_error(engine: Engine, name: str, tmp_path: Path) -> None:
    """Right size, wrong bytes: exit 4, and the lockfile holds no image (ollama#17520)."""
    store, lock, _ = world(tmp_path)
    blob = store.path(lock.python[0].sha256, "x")
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    path = write(tmp_path, lock)
    done = program(path, "--tag", name)

    assert done.returncode == 4
    assert b"is damaged in the store" in done.stderr
    assert b"Traceback" not in done.stderr
    assert lockstore.read(path).image is None


def test_a_changed_or_missing_model_file_is_noticed(engine: Engine, name: str, tmp_path: Path) -> None:
    """Its bytes are hashed while they are read; a missing one is named with what to do."""
    store, lock, folder = world(tmp_path)
    order = Order(name=name, choices=plan.Choices(folder=folder))
    model = folder / "models/a.bin"
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match=r"a\.bin: has digest"):
        operation.build(engine, lock, store, quiet, order)
    model.unlink()
    with pytest.raises(CouldNotTell, match=r"a\.bin: no such file"):
        operation.build(engine, lock, store, quiet, order)


def test_two_builds_of_one_lockfile_exclude_each_other(engine: Engine, name: str, tmp_path: Path) -> None:
    """The second one says so at once."""
    store, lock, _ = world(tmp_path)
    path = write(tmp_path, lock)
    with exclusive(path), pytest.raises(LockHeldError):
        operation.run(path, Order(name=name), lambda: engine, store, quiet)


def test_without_an_engine_it_cannot_tell(tmp_path: Path) -> None:
    """Exit 3, with every place that was tried."""
    _, lock, _ = world(tmp_path)
    done = program(write(tmp_path, lock), env={"DOCKER_HOST": "unix:///nonexistent.sock"})

    assert done.returncode == 3
    assert json.loads(done.stdout)["exit-code"] == 3


@pytest.mark.slow
def test_killed_at_any_moment_the_next_build_succeeds(engine: Engine, name: str, tmp_path: Path) -> None:
    """The lockfile is the old or the new one; no temporary image, file or folder stays behind."""
    store, lock, _ = world(tmp_path)
    path = write(tmp_path, lock)
    before = path.read_bytes()
    argv = [sys.executable, "-m", "envlock", "build", "-l", str(path), "--tag", name, "--by-engine", "--no-cache"]
    for delay in (0.25, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7):
        child = subprocess.Popen(
            argv,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "ENVLOCK_STORE": str(store.root)},
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert path.read_bytes() == before or lockstore.read(path).image is not None
    time.sleep(1)  # the engine may still be finishing the killed build
    done = program(path, "--tag", name)

    assert done.returncode == 0, done.stderr.decode()
    assert [image for image in engine.images("envlock-temporary:*") if f"p{child.pid}-" in image] == []
    assert [entry for entry in tmp_path.rglob(".envlock-*") if not entry.name.endswith(".flock")] == []


def test_layers_hold_what_the_environment_says(engine: Engine, name: str, tmp_path: Path) -> None:
    """Modes, links and files are as they shall be, read from what the engine gives back."""
    build(engine, tmp_path, Order(name=name))

    assert engine.read_file(name, "/models/a.bin") == b"weights" * 1000
    assert engine.read_file(name, "/opt/venv/bin/beta").startswith(b"#!/opt/venv/bin/python\n")
    assert engine.read_file(name, "/srv/b.bin") == b"weights" * 1000
    assert engine.read_file(name, "/usr/bin/perl5") == b"perl" * 500
    with layout.spooled(engine.save(name), tmp_path, name) as spool:
        top: tree.Tree = {}
        for layer in spool.layers:
            tree.apply_layer(top, RangeSource(spool.descriptor, layer.offset, layer.size, name), name)
    assert (top[b"srv"].mode, top[b"srv"].gid) == (0o2775, 8)
    assert (top[b"tmp"].mode, top[b"models"].mode, top[b"usr/bin/su"].mode) == (0o1777, 0o755, 0o4755)
    assert top[b"opt/venv/bin/python"].link == b"/usr/bin/python3.11"
