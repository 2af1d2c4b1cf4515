"""The view in the middle: levels, one line for each text, equal devices once, the line in the lockfile."""

import dataclasses

from hypothesis import given
from made_views import CHANGED, ERRORS, LOCKFILE, TEXTS, UNKNOWN, VIEWS, every_view, view_of

from envlock.drift import Comparison, Kind
from envlock.errors import UsageError
from envlock.report.view import Item, Level, View, alike, devices, line_of, lines_of, of_error


def test_a_drift_keeps_its_weight() -> None:
    """Errors, what could not be told, and warnings are three levels; allowed and waived are notes with their reason."""
    view = every_view()["drift"]
    assert [item.level for item in view.items] == [Level.ERROR, Level.UNKNOWN, Level.WARNING]
    assert [(item.level, item.kind, item.because) for item in view.excused] == [
        (Level.NOTE, "allowed", "hidden when locked"),
        (Level.NOTE, "waived", "until 2026-12-31, ticket 4711"),
    ]
    assert (view.verdict, view.exit_code, view.failed) == ("drift", 1, False)


def test_the_counts_are_those_of_the_comparison() -> None:
    """Each word has its number, in one order."""
    assert every_view()["drift"].counts == (
        ("checked", 7), ("drift", 1), ("unknown", 1), ("warning", 1), ("allowed", 1), ("waived", 1), ("ignored", 1),
    )  # fmt: skip


def test_an_item_says_it_in_one_line() -> None:
    """The fact, the place, both values and the reason; an unknown says that it is one."""
    changed, unknown, warning = every_view()["drift"].items
    assert changed.message == "gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 → 96.00.A5.00.01"
    assert unknown.message == "could not tell: gpu.ecc on 0000:05:00.0: yes → (failed) (GPU is lost)"
    assert warning.message == "nvidia.driver: 535.161.08 → 550.120"


def test_what_was_reset_is_called_that() -> None:
    """A setting that fell back is another case than one that somebody changed."""
    assert view_of(Comparison(drifts=(dataclasses.replace(CHANGED, reset=True),))).items[0].kind == "reset"


def test_a_failure_is_never_a_verdict_but_unknown() -> None:
    """Whatever its exit code; the only item says why, and it keeps the hint."""
    for error in ERRORS.values():
        view = of_error(error, "check", "")
        assert (view.verdict, view.exit_code, view.failed) == ("unknown", error.exit_code, True)
        assert view.items[0].fix == (error.hint or "")
    assert (
        of_error(ERRORS["engine"], "check", "").items[0].message
        == "could not tell: docker: no engine answers; tried a socket"
    )
    assert of_error(UsageError("x"), "check", "").items[0].level is Level.ERROR


def test_a_key_is_found_where_the_lockfile_holds_it() -> None:
    """The line with that value, of several the first, never one of the policy; the table's line for an image."""
    lines = lines_of(LOCKFILE)
    assert line_of(lines, "nvidia.driver", "535.161.08") == 4
    assert line_of(lines, "gpu.ecc", "true") == 16
    assert line_of(lines, "gpu.ecc", "false") == 10
    assert line_of(lines, "gpu.ecc", "another") == 10
    assert line_of(lines, "image.config", "sha256:00") == 22
    assert line_of(lines, "no.such", "") == 1
    assert line_of(lines_of(""), "gpu.ecc", "true") == 1


def test_equal_devices_are_one_group() -> None:
    """Eight equal drifts are one group with eight places; another value is another group."""
    eight = tuple(dataclasses.replace(CHANGED, device=f"0000:0{number}:00.0") for number in range(8))
    groups = alike(view_of(Comparison(drifts=(*eight, dataclasses.replace(CHANGED, observed="other")))).items)
    assert [len(group) for group in groups] == [8, 1]
    assert devices(groups[0]).startswith(" on 8 devices (0000:00:00.0, 0000:01:00.0")
    assert devices(groups[1]) == " on 0000:03:00.0"


def texts_of(item: Item) -> list[str]:
    return [
        item.kind, item.key, item.device, item.said, item.expected, item.observed, item.because, item.why, item.fix,
        item.command,
    ]  # fmt: skip


@given(VIEWS)
def test_every_text_of_a_view_is_one_printable_line(view: View) -> None:
    """Whatever a stranger wrote: no control character, no line break, nothing that no encoding knows."""
    texts = [view.headline, view.summary, view.path, view.environment, *view.notes]
    texts += [text for item in (*view.items, *view.excused) for text in texts_of(item)]
    texts += [text for pair in view.same for text in pair]
    assert [text for text in texts if not text.isprintable()] == []


@given(TEXTS, TEXTS)
def test_an_error_too(message: str, hint: str) -> None:
    """An error may quote a file."""
    view = of_error(UsageError(message, where=message, hint=hint), "check", message)
    assert all(text.isprintable() for text in (view.headline, view.path, *texts_of(view.items[0])))


def test_unanswered_is_called_unknown() -> None:
    """One word for one thing in what people read."""
    assert view_of(Comparison(drifts=(UNKNOWN,))).items[0].kind == "unknown"
    assert UNKNOWN.kind is Kind.UNANSWERED
