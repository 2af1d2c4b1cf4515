"""`envlock.probe.libraries.asking`: real libraries asked in a child process, good, hanging and crashing ones."""

import time
from pathlib import Path

import pytest
from made_libraries import compiled

from envlock.facts import FAILED, NOT_SUPPORTED
from envlock.probe.libraries.asking import Question, ask
from envlock.probe.libraries.kinds import BY_STEM, CONSTANT, PROPERTY, RETURNED, SIZE, Call

CALLS = BY_STEM["libcudart"].calls
GOOD = "int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }"


def question(path: Path, *calls: Call, before: tuple[str, ...] = ()) -> Question:
    return Question(str(path), calls or CALLS, before)


def test_a_crash_and_a_hang_cost_one_answer_each(tmp_path: Path) -> None:
    """Of four libraries in one child, the two good ones answer; the others are named with what happened."""
    good = compiled(tmp_path, GOOD, name="good.so")
    crash = compiled(
        tmp_path,
        "#include <signal.h>\n__attribute__((constructor)) void f(void) { raise(SIGSEGV); }" + GOOD,
        name="crash.so",
    )
    hang = compiled(
        tmp_path, "#include <unistd.h>\nint cudaRuntimeGetVersion(int *v) { for (;;) pause(); }", name="hang.so"
    )
    begun = time.monotonic()
    first, crashed, hung, last = ask([question(good), question(crash), question(hang), question(good)], deadline=0.5)

    assert (first.value, first.source, last.value) == ("12.9", "cudaRuntimeGetVersion", "12.9")
    assert (crashed.outcome, crashed.detail) == (FAILED, "ended the process that loaded it by signal 11")
    assert (hung.outcome, hung.detail) == (FAILED, "gave no answer within 0.5 s")
    assert time.monotonic() - begun < 10


def test_a_library_that_leaves_takes_nobody_along(tmp_path: Path) -> None:
    """Start-up code that ends the process, with whatever status, is no answer."""
    path = compiled(tmp_path, "#include <unistd.h>\n__attribute__((constructor)) void f(void) { _exit(0); }" + GOOD)

    assert ask([question(path)])[0].detail == "ended the process that loaded it with status 0"


def test_what_a_library_prints_is_no_answer(tmp_path: Path) -> None:
    """A banner on standard output, even one that looks like an answer, does not reach the result."""
    banner = 'envlock-version {\\"number\\": 0, \\"call\\": 0, \\"numbers\\": [11080]}\\n'
    path = compiled(
        tmp_path,
        f'#include <stdio.h>\n__attribute__((constructor)) void f(void) {{ puts("{banner}"); fflush(stdout); }}{GOOD}',
    )

    good = compiled(tmp_path, GOOD, name="good.so")

    assert [seen.value for seen in ask([question(good), question(path)])] == ["12.9", "12.9"]


def test_a_library_without_the_call_has_no_version(tmp_path: Path) -> None:
    """An older library that lacks the call is not-supported, with the call's name."""
    seen = ask([question(compiled(tmp_path, "int other;"))])[0]

    assert (seen.outcome, seen.detail) == (NOT_SUPPORTED, "it has none of cudaRuntimeGetVersion")


def test_a_call_that_fails_is_no_version(tmp_path: Path) -> None:
    """An error code is told; whatever stood in the number is not."""
    path = compiled(tmp_path, "int cudaRuntimeGetVersion(int *v) { *v = 12090; return 35; }")

    assert ask([question(path)])[0].detail == "`cudaRuntimeGetVersion` failed with code 35"


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    """The loader's own words are the reason."""
    path = tmp_path / "libcudart.so.12"
    path.write_bytes(b"not an ELF file")

    assert "cannot be loaded: " in ask([question(path)])[0].detail


@pytest.mark.parametrize(
    ("form", "parts", "read", "source", "version"),
    [
        (SIZE, 1, "cudnn", "unsigned long f(void) { return 92400; }", "9.24.0"),
        (RETURNED, 1, "ten-thousands", "int f(void) { return 101303; }", "10.13.3"),
        (PROPERTY, 3, "dotted", "int f(int p, int *v) { *v = p == 0 ? 12 : p == 1 ? 6 : 3; return 0; }", "12.6.3"),
        (CONSTANT, 1, "bytes", "const unsigned f = 0x91800;", "9.24.0"),
        ("parts", 3, "dotted", "int f(int *a, int *b, int *c) { *a = 3; *b = 4; *c = 5; return 0; }", "3.4.5"),
    ],
)
def test_every_form_of_call(form: str, parts: int, read: str, source: str, version: str, tmp_path: Path) -> None:
    """Each way in which a library tells its version is called as its header says."""
    assert ask([question(compiled(tmp_path, source), Call("f", form, parts, read))])[0].value == version


def test_needs_come_from_what_the_process_had_mapped(tmp_path: Path) -> None:
    """A needed library that no search path holds is loaded first, from the file that was mapped."""
    part = "int part(void) { return %d; }"
    needed = compiled(tmp_path / "mapped", part % 12090, "-Wl,-soname,libpart.so.1", name="libpart.so")
    flags = (f"-L{needed.parent}", "-lpart")
    main = compiled(
        tmp_path / "main",
        "int part(void); int cudaRuntimeGetVersion(int *v) { *v = part(); return 0; }",
        *flags,
        name="main.so",
    )

    assert ask([question(main)])[0].outcome == FAILED
    assert ask([question(main, before=(str(needed),))])[0].value == "12.9"


def test_nothing_of_this_environment_is_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LD_PRELOAD and LD_LIBRARY_PATH of this process do not decide what is asked."""
    other = compiled(tmp_path / "other", "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { exit(3); }")
    good = compiled(tmp_path, GOOD)
    monkeypatch.setenv("LD_PRELOAD", str(other))

    assert ask([question(good)])[0].value == "12.9"


def test_nothing_to_ask_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a question there is no child process."""
    monkeypatch.setattr("sys.executable", "/nonexistent")

    assert ask([]) == []


def test_a_child_that_cannot_start_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a Python to start, every version is failed in words."""
    monkeypatch.setattr("sys.executable", "/nonexistent")
    assert ask([question(tmp_path)])[0].detail == "it was asked in a child process: `/nonexistent` is not installed"
    monkeypatch.setattr("sys.executable", "")
    assert "does not know its own program" in ask([question(tmp_path)])[0].detail
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert ask([question(tmp_path)])[0].detail == "the child process left no answer (status 1)"


def test_a_sibling_that_is_opened_by_name_is_found_on_the_second_try(tmp_path: Path) -> None:
    """What no mapped file satisfies is searched beside the file, in a second child."""
    compiled(tmp_path, "int part(void) { return 12090; }", "-Wl,-soname,libpart.so.1", name="libpart.so")
    main = compiled(
        tmp_path,
        "int part(void); int cudaRuntimeGetVersion(int *v) { *v = part(); return 0; }",
        f"-L{tmp_path}",
        "-lpart",
        name="main.so",
    )
    assert ask([question(main)])[0].outcome == FAILED
    (tmp_path / "libpart.so").rename(tmp_path / "libpart.so.1")

    good = compiled(tmp_path, GOOD, name="good.so")
    assert [seen.value for seen in ask([question(good), question(main)])] == ["12.9", "12.9"]
