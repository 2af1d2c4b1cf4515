"""The spec: what is read, what is refused with which words, and what its digest is over."""

# ruff: noqa: E501 -- tables of faults read better with one fault a line

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlock import spec
from envlock.errors import SpecError
from envlock.lockfile import Rule
from envlock.spec import DebianBase, Determinism, File, ImageBase, Python

SMALL = """\
[environment]
name = "small"
[base]
debian = "bookworm"
[python]
version = "3.11"
"""

FULL = """\
[environment]
name = "full"
platform = "linux/arm64"
epoch = 1700000000
[base]
debian = "trixie"
components = ["non-free", "main"]
[apt]
packages = ["libstdc++6", "ca-certificates"]
[python]
version = "3.13"
interpreter = "/usr/bin/python3.13"
requirements = ["torch==2.13.0+cpu", " numpy ", "numpy"]
torch-backend = "cpu"
exclude-newer = "2026-01-31"
[[file]]
source = "models/b.onnx"
path = "/opt/b.onnx"
[[file]]
source = "models/a.onnx"
path = "/opt/a.onnx"
[determinism]
profile = "portable"
threads = 4
[determinism.env]
MKL_CBWR = false
A = "1"
[determinism.torch]
"sdp.flash" = false
[policy]
profile = "default"
[policy.rules]
"system.kernel" = { rule = "ignore", severity = "warning", unknown = "allow", reason = "ours" }
"""


def parse(text: str) -> spec.Spec:
    return spec.parse(text.encode(), "envlock.toml")


def test_a_small_spec_has_the_documented_defaults() -> None:
    """Name, base and Python are enough; the rest is constant, never taken from this host."""
    found = parse(SMALL)

    assert found.platform == "linux/amd64"
    assert found.epoch == spec.DEFAULT_EPOCH
    assert DebianBase(suite="bookworm", components=("main",)) == found.base
    assert found.apt == ()
    assert found.python.interpreter == "/usr/bin/python3.11"
    assert Determinism(profile="strict", threads=1, env=(), torch=()) == found.determinism
    assert (found.policy_profile, found.policy) == ("bits", ())


def test_every_key_is_read_sorted_and_normalised() -> None:
    """Order and blanks are taken out, so that equal wishes are equal values."""
    found = parse(FULL)

    assert DebianBase(suite="trixie", components=("main", "non-free")) == found.base
    assert found.apt == ("ca-certificates", "libstdc++6")
    assert (
        Python(
            version="3.13",
            interpreter="/usr/bin/python3.13",
            requirements=("numpy", "torch==2.13.0+cpu"),
            torch_backend="cpu",
            exclude_newer="2026-01-31",
        )
        == found.python
    )
    assert (
        File(source="models/a.onnx", path="/opt/a.onnx"),
        File(source="models/b.onnx", path="/opt/b.onnx"),
    ) == found.files
    assert found.determinism.env == (("A", "1"), ("MKL_CBWR", None))
    assert found.determinism.torch == (("sdp.flash", False),)
    assert (
        Rule(key="system.kernel", rule="ignore", severity="warning", unknown="allow", reason="ours"),
    ) == found.policy


def test_an_image_is_the_other_kind_of_base() -> None:
    """The registry stays in the spec, where it is a wish; its Python must be named."""
    text = SMALL.replace('debian = "bookworm"', 'image = "localhost:5000/team/python:3.11-slim"')
    found = parse(text + 'interpreter = "/usr/local/bin/python3"\n')

    assert ImageBase(reference="localhost:5000/team/python:3.11-slim") == found.base


def test_comments_order_and_blanks_do_not_change_the_digest() -> None:
    """A spec that says the same has the same digest, however it is written."""
    reordered = FULL.replace('"libstdc++6", "ca-certificates"', '"ca-certificates",   "libstdc++6"')
    commented = "# a remark\n" + reordered.replace(" numpy ", "numpy")

    assert parse(FULL).digest() == parse(commented).digest()


CHANGES = [
    ('name = "full"', 'name = "other"'),
    ("linux/arm64", "linux/amd64"),
    ("epoch = 1700000000", "epoch = 1700000001"),
    ('debian = "trixie"', 'debian = "sid"'),
    ('["non-free", "main"]', '["main"]'),
    ('"ca-certificates"]', '"curl"]'),
    ('"/usr/bin/python3.13"', '"/usr/bin/python3"'),
    ("2.13.0+cpu", "2.12.0+cpu"),
    ('torch-backend = "cpu"', 'torch-backend = "cu126"'),
    ("2026-01-31", "2026-02-01"),
    ("/opt/b.onnx", "/opt/c.onnx"),
    ("models/b.onnx", "models/c.onnx"),
    ('profile = "portable"', 'profile = "strict"'),
    ("threads = 4", "threads = 5"),
    ("MKL_CBWR = false", 'MKL_CBWR = "AVX2"'),
    ('"sdp.flash" = false', '"sdp.flash" = true'),
    ('rule = "ignore"', 'rule = "exact"'),
    ('reason = "ours"', 'reason = "theirs"'),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_every_wish_is_in_the_digest(old: str, new: str) -> None:
    """A changed wish makes the lockfile stale, whichever it is."""
    assert old in FULL

    assert parse(FULL).digest() != parse(FULL.replace(old, new)).digest()


FAULTS = [
    ('name = "full"', 'name = "Full"', "unexpected value 'Full' (expected lower-case letters, digits, `.`, `_`, `-`), at `environment.name`"),
    ('name = "full"', "", "missing key, at `environment.name`"),
    ('name = "full"', "name = 1", "unexpected type integer (expected string), at `environment.name`"),
    ("linux/arm64", "linux/arm", "unknown value 'linux/arm', at `environment.platform`"),
    ("epoch = 1700000000", "epoch = -1", "-1 is less than 0, at `environment.epoch`"),
    ("epoch = 17", "epoc = 17", "unknown key, at `environment.epoc`"),
    ('debian = "trixie"', "", "needs either `debian` or `image`, at `base`"),
    ('debian = "trixie"', 'debian = "trixie"\nimage = "a:b"', "needs either `debian` or `image`, at `base`"),
    ('debian = "trixie"', 'debian = "Trixie; rm"', "unexpected value 'Trixie; rm' (expected a suite such as `bookworm`), at `base.debian`"),
    ('"ca-certificates"]', '"Foo"]', "unexpected value 'Foo' (expected the name of a Debian package), at `apt.packages[1]`"),
    ('"ca-certificates"]', '"libstdc++6"]', "'libstdc++6' is listed twice, at `apt.packages[1]`"),
    ('version = "3.13"', 'version = "3"', "unexpected value '3' (expected a version such as `3.11`), at `python.version`"),
    ('version = "3.13"', "version = 3.13", "unexpected type float (expected string), at `python.version`"),
    ('"/usr/bin/python3.13"', '"python3"', "unexpected value 'python3' (expected an absolute path in the image), at `python.interpreter`"),
    ('version = "3.13"', 'version = "3.11"', "'/usr/bin/python3.13' is no Python 3.11, at `python.interpreter`"),
    ('" numpy "', '""', "unexpected value '' (expected a PEP 508 requirement), at `python.requirements[1]`"),
    ('" numpy "', '"a\\nb"', "unexpected value 'a\\nb' (expected a PEP 508 requirement), at `python.requirements[1]`"),
    ('" numpy "', '"a @ https://u:p@h/a.whl"', "holds credentials, at `python.requirements[1]`"),
    ('torch-backend = "cpu"', 'torch-backend = "gpu"', "unexpected value 'gpu' (expected `cpu`, `cu126`, `rocm6.4` or the like), at `python.torch-backend`"),
    ("2026-01-31", "yesterday", "unexpected value 'yesterday' (expected a date such as `2026-01-31`), at `python.exclude-newer`"),
    ("models/b.onnx", "../b.onnx", "unexpected value '../b.onnx' (expected a path beside the spec, without `..`), at `file[0].source`"),
    ("/opt/b.onnx", "opt/b.onnx", "unexpected value 'opt/b.onnx' (expected an absolute path in the image, without `..`), at `file[0].path`"),
    ("/opt/b.onnx", "/opt/a.onnx", "two files for '/opt/a.onnx', at `file[1].path`"),
    ('profile = "portable"', 'profile = "stric"', "unknown value 'stric', at `determinism.profile`"),
    ("threads = 4", "threads = 0", "0 is less than 1, at `determinism.threads`"),
    ('A = "1"', "A = 1", "unexpected type integer (expected string), at `determinism.env.A`"),
    ('A = "1"', '"A B" = "1"', 'not the name of an environment variable, at `determinism.env."A B"`'),
    ('A = "1"', 'A = "x\\nRUN id"', "holds a control character, at `determinism.env.A`"),
    ('A = "1"', 'A = "http://me:word@proxy"', "holds credentials, and an image hides none, at `determinism.env.A`"),
    ('A = "1"', 'HF_TOKEN = "x"', "looks like a secret, and an image hides none, at `determinism.env.HF_TOKEN`"),
    ('A = "1"', 'LD_PRELOAD = "x"', "may not be set in the image: it changes what is loaded, at `determinism.env.LD_PRELOAD`"),
    ('A = "1"', 'NVIDIA_VISIBLE_DEVICES = "all"', "may not be set in the image: it changes what is loaded, at `determinism.env.NVIDIA_VISIBLE_DEVICES`"),
    ('"sdp.flash" = false', '"sdp.flash" = 1.5', 'expected a string, an integer or a boolean, at `determinism.torch."sdp.flash"`'),
    ('severity = "warning"', 'severity = "bad"', "unknown value 'bad', at `policy.rules.\"system.kernel\".severity`"),
    ('rule = "ignore", ', "", "missing key, at `policy.rules.\"system.kernel\".rule`"),
    ('profile = "default"', 'profile = "lax"', "unknown value 'lax', at `policy.profile`"),
    (', reason = "ours"', ", waived-until = 2026-12-31", "a waiver needs a reason, at `policy.rules.\"system.kernel\".waived-until`"),
    ('rule = "ignore",', 'rule = "ignore", waived-until = 2026-12-31,', "`ignore` judges nothing, so there is nothing to waive, at `policy.rules.\"system.kernel\".waived-until`"),
    ('rule = "ignore",', 'rule = "exact", waived-until = "2026-02-30",', "2026-02-30 is not a day of the calendar, at `policy.rules.\"system.kernel\".waived-until`"),
    ('rule = "ignore",', 'rule = "exact", waived-until = "31.12.2026",', "unexpected value '31.12.2026' (expected a day such as `2026-12-31`), at `policy.rules.\"system.kernel\".waived-until`"),
    ('rule = "ignore",', 'rule = "exact", waived-until = 2026-12-31T00:00:00,', "unexpected value date-time (expected a day such as `2026-12-31`), at `policy.rules.\"system.kernel\".waived-until`"),
    ('rule = "ignore",', 'rule = "exact", waived-until = "20261231",', "unexpected value '20261231' (expected a day such as `2026-12-31`), at `policy.rules.\"system.kernel\".waived-until`"),
    ("[determinism]", "[determinsm]", "unknown key, at `determinsm`"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), FAULTS)
def test_each_fault_is_named_with_its_key(old: str, new: str, message: str) -> None:
    """The whole sentence is fixed: file, what is wrong, what was expected, and the key path."""
    assert old in FULL

    with pytest.raises(SpecError) as caught:
        parse(FULL.replace(old, new, 1))

    assert f"envlock.toml: {message}" == str(caught.value)


@pytest.mark.parametrize("day", ["2026-12-31", '"2026-12-31"'])
def test_a_waiver_has_a_last_day_as_a_toml_date_or_as_a_string(day: str) -> None:
    """Both forms are one wish, and it is part of what is wanted."""
    plain = FULL.replace('rule = "ignore"', 'rule = "exact"')
    found = parse(plain.replace('rule = "exact"', f'rule = "exact", waived-until = {day}'))

    assert found.policy[0].until == "2026-12-31"
    assert found.digest() != parse(plain).digest()


def test_the_profile_that_was_called_default_is_bits() -> None:
    """One policy under its old name, its new name and no name: one value, one digest."""
    held = [
        parse(FULL.replace('profile = "default"', line, 1)) for line in ('profile = "default"', 'profile = "bits"', "")
    ]

    assert {found.policy_profile for found in held} == {"bits"}
    assert len({found.digest() for found in held}) == 1
    assert parse(FULL.replace('"default"', '"strict"', 1)).digest() != held[0].digest()


def test_an_unknown_key_names_the_nearest_one() -> None:
    """The slip of the pen is told from what was meant."""
    with pytest.raises(SpecError) as caught:
        parse(FULL.replace("requirements = ", "requirments = "))

    assert caught.value.hint == "did you mean `requirements`?"


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("[base]", "[bas]", "is `bas` meant to be `base`?"),
        ('name = "full"', 'nmae = "full"', "is `nmae` meant to be `name`?"),
        ("debian = ", "debain = ", "is `debain` meant to be `debian`?"),
    ],
)
def test_a_slip_in_a_key_that_is_needed_is_named(old: str, new: str, hint: str) -> None:
    """The key is missing because it is misspelt: both words stand there."""
    assert old in FULL
    with pytest.raises(SpecError) as caught:
        parse(FULL.replace(old, new, 1))

    assert caught.value.hint == hint


def test_the_tf32_override_may_be_set() -> None:
    """It is the one variable of NVIDIA's that fixes bits and loads nothing."""
    found = parse(FULL.replace('A = "1"', 'NVIDIA_TF32_OVERRIDE = "1"'))

    assert ("NVIDIA_TF32_OVERRIDE", "1") in found.determinism.env


def test_an_image_without_a_tag_is_refused() -> None:
    """A name alone says nothing that could be fixed."""
    with pytest.raises(SpecError, match="with its tag"):
        parse(SMALL.replace('debian = "bookworm"', 'image = "python"'))


def test_an_image_base_needs_its_interpreter() -> None:
    """Where an image keeps its Python cannot be known from its name."""
    with pytest.raises(SpecError, match=r"missing key, at `python.interpreter`"):
        parse(SMALL.replace('debian = "bookworm"', 'image = "python:3.11"'))


def test_no_spec_says_how_to_begin(tmp_path: Path) -> None:
    """The first message a newcomer sees names the command to type."""
    with pytest.raises(SpecError, match="no such spec") as caught:
        spec.read(tmp_path / "envlock.toml")

    assert caught.value.hint == "`envlock init` writes one to start from"


def test_the_example_is_read() -> None:
    """The committed example is a spec."""
    path = Path(__file__).parent.parent / "examples" / "torch-cpu" / "envlock.toml"

    assert spec.read(path).name == "torch-cpu"


@given(st.text(max_size=40))
def test_no_text_in_any_string_breaks_out_of_the_error_tree(text: str) -> None:
    """Any name gives a spec or an error of ours."""
    import tomlkit

    document = SMALL.replace('"small"', tomlkit.item(text).as_string())
    try:
        found = parse(document)
    except SpecError:
        return
    assert text == found.name
