"""Broken lockfiles, specs and facts, each through the real program: its own message, and never a traceback."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program import Ended, envlock
from samples import facts, gpu_facts, host, lock

from envlock import documents, lockfile
from envlock.errors import UsageError

GOOD_LOCK = lockfile.render(lock(host([gpu_facts()])))
GOOD_FACTS = json.dumps(facts([gpu_facts()]).to_document(), indent=1)


def twice(text: str, name: str) -> str:
    """Return the lockfile with a second entry for the package `name`."""
    start = text.index(f'[[python]]\nname = "{name}"')
    end = text.index("[[", start + 2)
    return text[:end] + text[start:end] + text[end:]


LOCKFILES: dict[str, tuple[Callable[[str], str | bytes], str, str]] = {
    "empty": (lambda text: "", "is empty", "restore the file from version control"),
    "blank": (lambda text: " \n\n", "is empty", "restore the file"),
    "conflict": (
        lambda text: text.replace("[base]", "<<<<<<< ours\n[base]\n=======\n[base]\n>>>>>>> theirs", 1),
        "holds a merge conflict (line ",
        "resolve the conflict",
    ),
    "byte order mark": (
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        "starts with a byte order mark",
        "save the file as UTF-8",
    ),
    "crlf": (lambda text: text.replace("\n", "\r\n"), "has CRLF line ends (line 1)", "save the file with LF line ends"),
    "utf-16": (lambda text: text.encode("utf-16"), "starts with a byte order mark", "save the file as UTF-8"),
    "latin-1": (lambda text: text.encode() + b"\n# caf\xe9\n", "is not UTF-8 (line ", "save the file as UTF-8"),
    "cut off": (lambda text: text[: text.index("interpreter") + 5], "is not valid TOML", "is the file cut off"),
    "cut off between tables": (lambda text: text[: text.index("[base]")], "missing key, at `", ""),
    "wrong type": (
        lambda text: text.replace("epoch = 1700000000", 'epoch = "1700000000"'),
        "unexpected type string (expected integer), at `environment.epoch`",
        "",
    ),
    "float": (
        lambda text: text.replace("epoch = 1700000000", "epoch = 1.5"),
        "unexpected type float (expected integer)",
        "",
    ),
    "two entries": (
        lambda text: twice(text, "numpy"),
        "two entries for 'numpy', at `python[1]`",
        "keep one of the two",
    ),
    "two keys": (
        lambda text: text.replace('name = "sample"', 'name = "sample"\nname = "other"'),
        "is not valid TOML",
        "",
    ),
    "unknown key": (
        lambda text: text.replace("epoch = 1700000000", "epoch = 1700000000\npythn = 1"),
        "unknown key, at `environment.pythn`",
        "did you mean `python`?",
    ),
    "newer": (
        lambda text: text.replace("lock-version = 2", "lock-version = 99"),
        "format version 99 is newer than this envlock reads (2), at `lock-version`",
        "use a newer envlock",
    ),
    "older": (lambda text: text.replace("lock-version = 2", "lock-version = 0"), "unknown format version 0", ""),
    "edited by hand": (
        lambda text: text.replace('version = "2.13.0"', 'version = "2.13.1"'),
        "does not fit the file's content",
        "the file was edited by hand or merged: run `envlock lock` to write it again",
    ),
    "bad digest": (lambda text: text.replace("sha256:", "sha256:X", 1), "not a digest", ""),
    "nested": (lambda text: "a = " + "[" * 20000, "is nested too deeply", ""),
    "too many GPUs": (lambda text: text.replace("count = 1", "count = 1000000000"), "1000000000 is more than 1024", ""),
    "rule that is none": (
        lambda text: text.replace('rule = "within 1000 mW"', 'rule = "within 5 MHz"'),
        "a tolerance in 'MHz' does not fit a fact measured in 'mW', at `policy.rules.\"gpu.power_limit\"`",
        "write `within 5 mW`",
    ),
    "another TOML file": (lambda text: '[project]\nname = "x"\n', "missing key, at `lock-version`", ""),
}


def refused(ended: Ended, message: str, hint: str) -> None:
    """Assert exit 2 with this message, and nothing on standard output."""
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert message in ended.err
    assert f"hint: {hint}" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("fault", list(LOCKFILES))
def test_a_broken_lockfile_has_its_own_message(tmp_path: Path, fault: str) -> None:
    """Exit 2, the file, the key where there is one, and what to do."""
    broken, message, hint = LOCKFILES[fault]
    path = tmp_path / "x.lock.toml"
    data = broken(GOOD_LOCK)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    (tmp_path / "facts.json").write_text(GOOD_FACTS)
    ended = envlock("check", "-l", path, "--facts", tmp_path / "facts.json")
    refused(ended, message, hint) if hint else refused_without_hint(ended, message)
    assert ended.err.startswith(f"error: {path}: ")


def refused_without_hint(ended: Ended, message: str) -> None:
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_a_path_that_is_no_file_is_said_to_be_that(tmp_path: Path) -> None:
    """A folder, nothing at all, a link that leads nowhere."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, message in (
        (tmp_path, "is a folder, expected a file"),
        (tmp_path / "none", "no such"),
        (tmp_path / "link", "no such"),
    ):
        refused_without_hint(envlock("check", "-l", path), message)
        refused_without_hint(envlock("diff", path, path), message)


def test_a_symbolic_link_to_a_lockfile_is_read(tmp_path: Path) -> None:
    """Reading follows a link; only writing refuses to."""
    (tmp_path / "real").write_text(GOOD_LOCK)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert envlock("diff", tmp_path / "real", tmp_path / "link").code == 0


def test_a_result_is_not_written_through_a_symbolic_link(tmp_path: Path) -> None:
    """The file that the link points to is left alone."""
    (tmp_path / "a").write_text(GOOD_LOCK)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out").symlink_to(tmp_path / "precious")
    ended = envlock("diff", tmp_path / "a", tmp_path / "a", "-o", tmp_path / "out")
    assert (ended.code, (tmp_path / "precious").read_text()) == (2, "mine")
    assert "is a symbolic link" in ended.err


def test_a_file_that_the_disk_does_not_give_is_3(tmp_path: Path) -> None:
    """An I/O error is not the lockfile's fault."""
    ended = envlock("diff", "/proc/self/mem", "/proc/self/mem")
    assert ended.code == 3
    assert ended.err.startswith("error: /proc/self/mem: input/output error")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_3_with_a_hint(tmp_path: Path) -> None:
    """The hint speaks of permissions."""
    path = tmp_path / "x.lock.toml"
    path.write_text(GOOD_LOCK)
    path.chmod(0)
    ended = envlock("check", "-l", path)
    assert ended.code == 3
    assert "check the permissions" in ended.err


@pytest.mark.parametrize("data", ["# " + "x" * (17 << 20), "a = 1\n" + "#\n" * (9 << 20)])
def test_a_huge_file_is_refused_soon(tmp_path: Path, data: str) -> None:
    """Above 16 MiB nothing is parsed."""
    path = tmp_path / "x.lock.toml"
    path.write_text(data)
    begin = time.monotonic()
    refused_without_hint(envlock("check", "-l", path), "larger than 16777216 bytes")
    assert time.monotonic() - begin < 5


def test_an_endless_file_is_refused() -> None:
    """A device that never ends is read up to the limit."""
    refused_without_hint(envlock("diff", "/dev/zero", "/dev/zero"), "larger than 16777216 bytes")


FACTS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is empty"),
    "byte order mark": (b"\xef\xbb\xbf{}", "starts with a byte order mark"),
    "cut off": (GOOD_FACTS[:-40], "is not valid JSON"),
    "two entries": (GOOD_FACTS.replace('"schema"', '"host": {}, "schema"'), "two entries for 'host' in one object"),
    "not UTF-8": (b'{"schema": "\xff"}', "is not UTF-8 (line 1)"),
    "NaN": ('{"schema": NaN}', "holds a number that is no integer: NaN"),
    "float": ('{"schema": 1.5}', "holds a number that is no integer: 1.5"),
    "long number": ('{"schema": 1' + "0" * 5000 + "}", "holds a number of 5001 digits"),
    "nested": ('{"a":' + "[" * 100000, "is nested too deeply"),
    "list": ("[]", "not a facts document: expected a JSON object"),
    "other schema": ('{"schema": "envlock.canary/1"}', "unexpected schema 'envlock.canary/1'"),
    "wrong type": ('{"schema": "envlock.facts/1", "host": []}', "unexpected type (expected object), at `host`"),
    "unknown outcome": (
        '{"schema": "envlock.facts/1", "host": {"a": {"outcome": "fine"}}}',
        "unknown outcome 'fine'",
    ),
    "unhashable outcome": ('{"schema": "envlock.facts/1", "host": {"a": {"outcome": []}}}', "unknown outcome []"),
    "absence with a value": (
        '{"schema": "envlock.facts/1", "host": {"a": {"outcome": "hidden", "value": 1}}}',
        "outcome 'hidden' with value 1",
    ),
    "value that is none": (
        '{"schema": "envlock.facts/1", "host": {"a": {"outcome": "value", "value": {}}}}',
        "not a fact value",
    ),
    "device without a place": (
        '{"schema": "envlock.facts/1", "host": {}, "devices": [{"kind": "gpu"}]}',
        "needs an `id`",
    ),
}


@pytest.mark.parametrize("fault", list(FACTS))
def test_a_broken_facts_file_has_its_own_message(tmp_path: Path, fault: str) -> None:
    """Exit 2 from a file, and the same from standard input."""
    data, message = FACTS[fault]
    raw = data if isinstance(data, bytes) else data.encode()
    (tmp_path / "facts.json").write_bytes(raw)
    (tmp_path / "x.lock.toml").write_text(GOOD_LOCK)
    refused_without_hint(envlock("check", "-l", tmp_path / "x.lock.toml", "--facts", tmp_path / "facts.json"), message)
    ended = envlock("check", "-l", tmp_path / "x.lock.toml", "--facts", "-", stdin=raw)
    refused_without_hint(ended, message)
    assert ended.err.startswith("error: standard input: ")


def refusal(read: Callable[[], object]) -> UsageError | None:
    """Return the error in words that `read` ends with; any other exception passes through."""
    try:
        read()
    except UsageError as fault:
        return fault
    return None


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(0, len(GOOD_LOCK) - 1), st.integers(0, 255), st.booleans())
def test_a_lockfile_with_any_byte_changed_or_cut_off_is_refused_in_words_or_read(
    place: int, byte: int, cut: bool
) -> None:
    """No damage gives anything but a lockfile or a `UsageError` that says where."""
    data = GOOD_LOCK.encode()
    damaged = data[:place] if cut else data[:place] + bytes([byte]) + data[place + 1 :]
    fault = refusal(lambda: lockfile.parse(damaged, "x.lock.toml"))
    assert fault is None or fault.where == "x.lock.toml"


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(GOOD_FACTS) - 1), st.integers(0, 255), st.booleans())
def test_facts_with_any_byte_changed_are_refused_in_words_or_read(place: int, byte: int, cut: bool) -> None:
    """The same for facts."""
    data = GOOD_FACTS.encode()
    damaged = data[:place] if cut else data[:place] + bytes([byte]) + data[place + 1 :]
    fault = refusal(lambda: documents.parse_facts(damaged, "facts.json"))
    assert fault is None or fault.where == "facts.json"


_keys = st.sampled_from(["schema", "host", "devices", "outcome", "value", "kind", "id", "facts", "x"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(_json)
def test_any_json_is_facts_or_refused_in_words(document: object) -> None:
    """No document of the right schema and the wrong shape is a traceback."""
    if isinstance(document, dict):
        document["schema"] = "envlock.facts/1"
    fault = refusal(lambda: documents.parse_facts(json.dumps(document).encode(), "facts.json"))
    assert fault is None or fault.where == "facts.json"
