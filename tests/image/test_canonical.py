"""The canonical image: the same for every history that leads to one content."""

import json
from pathlib import Path

import pytest
from worlds import EPOCH, Thing, in_pieces, layer_bytes, read_tar, saved_archive, tar_of

from envlock.digest import sha256
from envlock.errors import IntegrityError, LockfileError
from envlock.image import canonical, layout
from envlock.image.canonical import Shape, recorded

SITE = "opt/venv/lib/python3.11/site-packages"


def shape(base: tuple[bytes, ...] = (), files: frozenset[bytes] = frozenset()) -> Shape:
    return Shape(epoch=EPOCH, platform="linux/amd64", base=tuple(sha256(layer) for layer in base), files=files)


def made(
    folder: Path, layers: list[bytes], wanted: Shape | None = None, settings: dict[str, object] | None = None
) -> tuple[layout.OutputImage, dict[str, bytes]]:
    """Return the canonical image of saved layers, and the bytes of its layers."""
    with layout.spooled(in_pieces(saved_archive(layers, settings)), folder, "a test") as spool:
        image = canonical.canonical(spool, wanted or shape(), "a test")
        return image, layer_bytes(image)


def names(data: bytes, folder: Path) -> list[str]:
    return [entry.name.decode() for entry, _ in read_tar(data, folder)]


SYSTEM = (
    Thing("etc", None, 0o755), Thing("etc/a", b"a"), Thing("opt", None, 0o755), Thing("usr", None, 0o755),
    Thing("usr/x", b"xx", 0o755), Thing("usr/y", mode=0o755, link="usr/x", hard=True),
)  # fmt: skip
VENV = (
    Thing("opt", None, 0o755), Thing("opt/venv", None, 0o755), Thing("opt/venv/bin", None, 0o755),
    Thing("opt/venv/bin/python", link="/usr/bin/python3.11"), Thing("opt/venv/bin/tool", b"#!", 0o755),
    Thing("opt/venv/m.py", b"m = 1"),
)  # fmt: skip


def test_history_leaves_no_trace(tmp_path: Path) -> None:
    """One step or many, files removed again, touched, linked the other way, other times: one digest."""
    plain, _ = made(tmp_path, [tar_of(*SYSTEM), tar_of(*VENV)])
    winding, _ = made(
        tmp_path,
        [
            tar_of(
                Thing("tmp", None, 0o1777), Thing("etc", None, 0o700), Thing("etc/old", b"o"), Thing("usr/x", b"before")
            ),
            tar_of(Thing("etc", None, 0o755, mtime=5), Thing("etc/.wh.old"), Thing("etc/a", b"not yet")),
            tar_of(
                Thing("usr", None, 0o755),
                Thing("usr/y", b"xx", 0o755),
                Thing("usr/x", mode=0o755, link="usr/y", hard=True),
            ),
            tar_of(Thing("etc/a", b"a", mtime=99, uname="builder"), Thing(".wh.tmp")),
            tar_of(*VENV),
            tar_of(Thing("opt/venv/m.py", b"m = 1", mtime=1)),
        ],
    )

    assert plain.config == winding.config
    assert recorded(plain) == recorded(winding)


@pytest.mark.parametrize(
    "volatile",
    [
        "var/log/dpkg.log", "var/cache/ldconfig/aux-cache", "var/cache/apt/pkgcache.bin",
        "var/cache/debconf/config.dat",
        "var/lib/dpkg/status-old", "var/lib/dpkg/available", "var/lib/dpkg/lock", "etc/machine-id", "etc/hostname",
        "etc/resolv.conf", "etc/hosts", "etc/passwd-", "etc/.pwd.lock", ".dockerenv", "tmp/x", "run/x", "dev/null",
        "root/.cache/pip/x", "root/.wget-hsts", "usr/lib/python3/__pycache__/os.cpython-311.pyc",
        f"{SITE}/__pycache__/m.pyc", "var/lib/apt/lists/x",
    ],
)  # fmt: skip
def test_a_volatile_file_is_no_content(volatile: str, tmp_path: Path) -> None:
    """Neither its name nor its content is in any layer."""
    _, layers = made(tmp_path, [tar_of(*SYSTEM), tar_of(*VENV, Thing(volatile, b"of this minute"))])

    assert volatile not in [name for data in layers.values() for name in names(data, tmp_path)]
    assert all(b"of this minute" not in data for data in layers.values())
    _, layers = made(tmp_path, [tar_of(*SYSTEM), tar_of(*VENV, Thing("usr/kept", b"of this minute"))])
    assert any(b"of this minute" in data for data in layers.values())


def test_base_layers_stay_byte_for_byte(tmp_path: Path) -> None:
    """The first layers are the base's own bytes, whatever their form; above them only the difference."""
    base = tar_of(
        *SYSTEM, Thing("etc/gone", b"g"), Thing("var", None, 0o755), Thing("var/log", None), Thing("var/log/x", b"1")
    )
    upper = tar_of(
        Thing("etc", None, 0o755), Thing("etc/a", b"a", mtime=3), Thing("etc/.wh.gone"), Thing("usr/new", b"n"),
        Thing("var/log/x", b"2"), Thing("usr/y", b"xx", 0o755),
    )  # fmt: skip
    image, layers = made(tmp_path, [base, upper], shape((base,)))

    assert layers["base"] == base
    assert image.layers[0].diff_id == sha256(base)
    assert names(layers["system"], tmp_path) == ["etc", "etc/.wh.gone", "usr", "usr/new"]


def test_another_base_is_refused(tmp_path: Path) -> None:
    """An image whose first layers are not the locked base's is no image of this lockfile."""
    base = tar_of(*SYSTEM)

    with pytest.raises(IntegrityError, match="does not begin with the layers of the locked base"):
        made(tmp_path, [tar_of(*SYSTEM, Thing("etc/more"))], shape((base,)))
    with pytest.raises(IntegrityError, match="does not begin"):
        made(tmp_path, [base], shape((base, base)))


def test_one_whiteout_hides_a_whole_folder(tmp_path: Path) -> None:
    """Its files need none of their own."""
    base = tar_of(*SYSTEM)
    _, layers = made(tmp_path, [base, tar_of(Thing(".wh.usr"))], shape((base,)))

    assert names(layers["system"], tmp_path) == [".wh.usr"]


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "LARGE", 1000)


def python_layer(torch: bytes, other: bytes = b"other") -> bytes:
    record = "torch/__init__.py,,\ntorch/lib/big.so,,\ntorch-2.1+cpu.dist-info/RECORD,,\n../../../bin/torchrun,,\n"
    return tar_of(
        *VENV[:3],
        Thing(f"{SITE}/torch/__init__.py", b""),
        Thing(f"{SITE}/torch/lib/big.so", torch, 0o755),
        Thing(f"{SITE}/torch-2.1+cpu.dist-info/RECORD", record.encode()),
        Thing("opt/venv/bin/torchrun", b"#!", 0o755),
        Thing(f"{SITE}/small/__init__.py", other),
        Thing(f"{SITE}/small-1.0.dist-info/RECORD", b"small/__init__.py,,\nsmall-1.0.dist-info/RECORD,,\n"),
        Thing("models/a.bin", b"weights", 0o600, uid=1000),
    )


@pytest.mark.usefixtures("small_is_large")
def test_layers_are_split_by_owner(tmp_path: Path) -> None:
    """System files, each large distribution alone, the other ones, the environment's own files."""
    image, layers = made(
        tmp_path, [tar_of(*SYSTEM), python_layer(bytes(2000))], shape(files=frozenset((b"models/a.bin",)))
    )

    assert [layer.owner for layer in image.layers] == ["system", "python:torch", "python", "files"]
    torch = names(layers["python:torch"], tmp_path)
    assert f"{SITE}/torch/lib/big.so" in torch
    assert "opt/venv/bin/torchrun" in torch
    assert not [name for name in torch if "small" in name]
    assert names(layers["files"], tmp_path) == ["models", "models/a.bin"]


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize(
    ("change", "owner"), [((bytes(2001), b"other"), "python:torch"), ((bytes(2000), b"changed"), "python")]
)
def test_one_changed_wheel_changes_one_layer(change: tuple[bytes, bytes], owner: str, tmp_path: Path) -> None:
    """All other layers keep their bytes, so that they are stored and sent once."""
    wanted = shape(files=frozenset((b"models/a.bin",)))
    before = recorded(made(tmp_path, [tar_of(*SYSTEM), python_layer(bytes(2000))], wanted)[0])
    after = recorded(made(tmp_path, [tar_of(*SYSTEM), python_layer(*change)], wanted)[0])

    pairs = zip(before.layers, after.layers, strict=True)
    assert [one.owner for one, other in pairs if one.diff_id != other.diff_id] == [owner]


def test_what_the_environment_brings_has_normal_modes_and_owners(tmp_path: Path) -> None:
    """A context copied under umask 077 by somebody with another id gives the same image."""
    strict = [Thing(t.name, t.data, (t.mode & 0o700) or 0o600, t.link, uid=1000, gid=100) for t in VENV[1:]]
    wanted = shape(files=frozenset((b"models/a",)))
    one, _ = made(tmp_path, [tar_of(*SYSTEM), tar_of(VENV[0], *strict, Thing("models/a", b"w", 0o600, uid=7))], wanted)
    other, _ = made(tmp_path, [tar_of(*SYSTEM), tar_of(*VENV, Thing("models/a", b"w"))], wanted)

    assert one.config == other.config


def test_system_files_keep_modes_owners_and_capabilities(tmp_path: Path) -> None:
    """setuid, sticky, owners and security.capability are content; SELinux labels and user attributes are not."""
    capability = (("SCHILY.xattr.security.capability", "cap"), ("SCHILY.xattr.security.selinux", "label"))
    things = [
        Thing("su", b"s", 0o4755), Thing("mail", None, 0o2775, gid=8), Thing("ping", b"p", 0o755, pax=capability),
    ]  # fmt: skip
    _, layers = made(tmp_path, [tar_of(*things)])
    found = {entry.name: entry for entry, _ in read_tar(layers["system"], tmp_path)}

    assert found[b"su"].mode == 0o4755
    assert (found[b"mail"].mode, found[b"mail"].gid) == (0o2775, 8)
    assert found[b"ping"].capability == b"cap"
    assert b"selinux" not in layers["system"]


@pytest.mark.parametrize(
    ("things", "there"),
    [
        ([Thing("usr/bin/python3.11", b"elf", 0o755)], True),
        ([Thing("usr/bin/real", b"elf", 0o755), Thing("usr/bin/python3.11", link="../bin/./real")], True),
        ([Thing("real/python3.11", b"elf", 0o755), Thing("usr/bin", link="/real")], True),
        ([Thing("usr/bin/python3.11", b"elf", 0o644)], False),
        ([Thing("usr/bin/python3.11", None, 0o755)], False),
        ([Thing("usr/bin/python3.11", link="nowhere")], False),
        ([Thing("usr/bin/python3.11", link="python3.11")], False),
        ([Thing("usr/bin/python3.12", b"elf", 0o755)], False),
    ],
)
def test_an_image_without_the_interpreter_is_refused(things: list[Thing], there: bool, tmp_path: Path) -> None:
    """The environment's bin/python would lead nowhere; links inside the image are followed."""
    wanted = Shape(epoch=1, platform="linux/amd64", base=(), files=frozenset(), interpreter=b"/usr/bin/python3.11")
    if there:
        made(tmp_path, [tar_of(*things)], wanted)
        return
    with pytest.raises(LockfileError, match=r"no interpreter /usr/bin/python3\.11, at `environment\.interpreter`"):
        made(tmp_path, [tar_of(*things)], wanted)


# ---- config ----------------------------------------------------------------------------


def config_of(folder: Path, settings: dict[str, object]) -> dict[str, object]:
    image, _ = made(folder, [tar_of(*SYSTEM)], settings=settings)
    config = json.loads(image.config)
    assert isinstance(config, dict)
    return config


def test_the_config_says_how_it_runs_and_nothing_of_where_it_was_made(tmp_path: Path) -> None:
    """Settings stay; host name, build image, builder's labels and empty fields go."""
    config = config_of(
        tmp_path,
        {
            "Hostname": "builder-7", "Domainname": "", "Image": "sha256:abc", "AttachStdin": False,
            "Env": ["A=1", "B=2"], "Cmd": ["python"], "Entrypoint": None, "User": "1000:1000",
            "Labels": {"x": "y", "io.buildah.version": "1.30"}, "WorkingDir": "", "ArgsEscaped": True, "OnBuild": None,
        },
    )  # fmt: skip

    assert config["config"] == {
        "Cmd": ["python"], "Env": ["A=1", "B=2"], "Labels": {"x": "y"}, "User": "1000:1000", "WorkingDir": "/",
    }  # fmt: skip
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert config["history"] == [{"created": "2023-11-14T22:13:20Z", "created_by": "envlock: system"}]
    assert (config["os"], config["architecture"]) == ("linux", "amd64")


def test_the_config_is_canonical_json(tmp_path: Path) -> None:
    """Sorted keys and no spaces: one value, one digest."""
    image, _ = made(tmp_path, [tar_of(*SYSTEM)])
    parsed = json.loads(image.config)

    assert json.dumps(parsed, sort_keys=True, separators=(",", ":")).encode() == image.config


def test_the_digest_is_pinned(tmp_path: Path) -> None:
    """A change of this digest changes every locked image: raise RECIPE with it, and say so in the changelog."""
    image, _ = made(tmp_path, [tar_of(*SYSTEM), python_layer(bytes(2000))], shape(files=frozenset((b"models/a.bin",))))

    assert recorded(image).config == "sha256:5f6da4fb030d4e637750bc24493823d712f67cec064751a444f00cce58a6caff"
