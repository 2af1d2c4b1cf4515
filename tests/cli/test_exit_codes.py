"""Each exit code of `docs/exit-codes.md`, through the real program in a child process."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_fixtures import archive_of, tar_of
from fakes.saved_engine import saved_engine
from program import ARGV, environment, envlock
from samples import facts, gpu_facts, host, lock

from envlock import lockfile
from envlock.errors import worst_exit_code
from envlock.facts import Facts, absent, value

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A lockfile of a host with one GPU."""
    path = tmp_path / "sample.lock.toml"
    path.write_text(lockfile.render(lock(host([gpu_facts()]))))
    return path


def written(folder: Path, observed: Facts) -> Path:
    path = folder / "facts.json"
    path.write_text(json.dumps(observed.to_document()))
    return path


def test_0_is_a_match(tmp_path: Path, locked: Path) -> None:
    """Everything that the lockfile asks for was seen, and is so."""
    assert envlock("check", "-l", locked, "--facts", written(tmp_path, facts([gpu_facts()]))).code == 0


def test_1_is_a_definite_difference(tmp_path: Path, locked: Path) -> None:
    """One fact has another value."""
    assert envlock("check", "-l", locked, "--facts", written(tmp_path, facts([gpu_facts(mig=value(True))]))).code == 0
    assert envlock("check", "-l", locked, "--facts", written(tmp_path, facts([gpu_facts(ecc=value(False))]))).code == 1


def test_2_is_unusable_input(tmp_path: Path) -> None:
    """A command line, spec or lockfile that cannot be used."""
    assert envlock("check", "--no-such-option").code == 2
    assert envlock("check", "-l", tmp_path / "missing.lock.toml").code == 2


def test_3_is_not_being_able_to_tell(tmp_path: Path, locked: Path) -> None:
    """A fact without an answer; an engine that is not there."""
    lost = facts([gpu_facts(vbios=absent("failed"))])
    assert envlock("check", "-l", locked, "--facts", written(tmp_path, lost)).code == 3
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/nowhere.sock"}
    assert envlock("check", "-l", locked, "--image", "a:b", env=nowhere).code == 3


def altered_image() -> bytes:
    """Return an image archive with one byte of a layer changed."""
    archive = archive_of([tar_of({"opt/two": b"2"})], "a:b")
    place = archive.rindex(b"opt/two") + 512
    return archive[:place] + b"X" + archive[place + 1 :]


def test_4_is_bytes_that_are_not_what_they_claim(tmp_path: Path, locked: Path) -> None:
    """An image with an altered layer."""
    with saved_engine(tmp_path, {"a:b": altered_image()}) as engine:
        ended = envlock("check", "-l", locked, "--image", "a:b", env={"DOCKER_HOST": engine})
    assert ended.code == 4
    assert ended.err.startswith("error: ")


def test_the_worst_code_wins(tmp_path: Path, locked: Path) -> None:
    """Integrity outranks drift, drift outranks unknown."""
    both = facts([gpu_facts(ecc=value(False), vbios=absent("failed"))])
    path = written(tmp_path, both)
    assert envlock("check", "-l", locked, "--facts", path).code == 1
    with saved_engine(tmp_path, {"a:b": altered_image()}) as engine:
        ended = envlock("check", "-l", locked, "--facts", path, "--image", "a:b", env={"DOCKER_HOST": engine})
    assert ended.code == 4


def test_no_answer_at_all_is_not_a_match() -> None:
    """The worst of nothing is unknown; the order is 4, 2, 1, 3, 0."""
    assert worst_exit_code(()) == 3
    assert [worst_exit_code(codes) for codes in ((0, 3), (3, 1), (1, 2), (2, 4), (0, 0))] == [3, 1, 2, 4, 0]


@contextlib.contextmanager
def waiting(locked: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give the program while it waits for facts on standard input."""
    process = subprocess.Popen(
        [*ARGV, "check", "-l", str(locked), "--facts", "-", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        # A runner that is started with `nohup` ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        # More than a pipe holds: once it is written, the program is past its start and reading.
        assert process.stdin is not None
        process.stdin.write(b" " * (1 << 20))
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_its_code_and_without_a_traceback(locked: Path, number: signal.Signals, code: int) -> None:
    """130 for Ctrl-C, 143 for a polite kill, 129 for a terminal that is gone: 128 and the signal, as shells say it."""
    with waiting(locked) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (code, b"")
    assert b"Traceback" not in err


def test_an_interrupted_command_still_gives_one_json_document(locked: Path) -> None:
    """A reader of standard output gets the error document."""
    with waiting(locked, "--format", "json") as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(out)["message"] == "interrupted"


def test_141_is_a_reader_that_has_gone(tmp_path: Path, locked: Path) -> None:
    """A closed pipe is neither drift nor a traceback."""
    for arguments in (["check", "-l", str(locked), "--facts", str(written(tmp_path, facts()))], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run(
            [*ARGV, *arguments], stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False
        )
        os.close(writer)
        assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_disk_under_standard_output_is_3(tmp_path: Path, locked: Path) -> None:
    """The result could not be given: an error in words."""
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*ARGV, "check", "-l", str(locked), "--facts", str(written(tmp_path, facts()))],
            stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 3
    assert ended.stderr.decode().startswith("error: standard output: no space left on device")


@pytest.mark.parametrize(("arguments", "code"), [(["-l", "missing.lock.toml"], 2), ([], 3)])
def test_a_full_disk_under_both_streams_is_never_drift(
    tmp_path: Path, locked: Path, arguments: list[str], code: int
) -> None:
    """Where nothing can be said, the exit code still tells: Python's own 1 would mean drift."""
    chosen = arguments or ["-l", str(locked), "--facts", str(written(tmp_path, facts()))]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*ARGV, "check", *chosen], stdout=full, stderr=full, env=environment(), timeout=60, check=False
        )
    assert ended.returncode == code


def test_the_documented_table_is_the_table_in_the_code() -> None:
    """`docs/exit-codes.md` lists every code that these tests show."""
    text = (ROOT / "docs/exit-codes.md").read_text()
    for code in (0, 1, 2, 3, 4, 129, 130, 141, 143):
        assert f"| {code} |" in text, code
