"""`envlock.report.canary_text`: what a person reads about a canary."""

import dataclasses

import samples
from made_reports import report, sha, with_outputs, with_settings

from envlock import lockfile
from envlock.report.canary_text import comparison_text, judgement_text
from envlock.run import compare, recording, reports

DETERMINISM = lockfile.Determinism(
    profile="strict", threads=2, env=(("MKL_CBWR", "AVX512"),), torch=(("use_deterministic_algorithms", True),)
)
BARE = dataclasses.replace(samples.lock(), determinism=DETERMINISM, goldens=())
LOCK = BARE.with_golden(recording.golden_from(report(), None))


def text_of(document: dict[str, object], lock: lockfile.Lockfile = LOCK, colored: bool = False) -> str:
    """Return the text on `document` under `lock`."""
    return judgement_text(compare.judge(document, lock), reports.from_document(document, "made"), "sample", colored)


def test_a_match_is_five_lines() -> None:
    """Verdict, one line for each tier, and where it ran."""
    assert text_of(report()) == (
        "match: canary of sample: the same bits as the golden\n"
        "  T1 known answers    match    2 of 2\n"
        "  T2 mode signatures  match    2 of 2\n"
        "  T3 models           match    6 of 6\n"
        "\n"
        "  ran on this host: cpu, torch 2.13.0+cpu, threads 2, ATen AVX512\n"
    )


def test_drift_names_setting_signature_and_operator_and_says_each_cause_once() -> None:
    """Settings first, then the tiers, then what could explain it."""
    seen = with_settings(report(), threads="1")
    seen = with_outputs(seen, t2__s1__mantissa__mm="10", t3__encoder__002__softmax=[0.5, 0.5])
    text = text_of(seen)

    assert "  setting: is not what the lockfile holds\n    threads: 2 → 1\n" in text
    assert "  other-mode T2: another arithmetic ran\n    t2.s1.mantissa.mm: 23 → 10\n" in text
    assert "    t3.encoder.002.softmax: sha256:" in text
    assert text.count("threads: 2 → 1") == 2
    assert "  what could explain it:\n    threads: 2 → 1\n    mode signatures that moved: t2.s1.mantissa.mm\n" in text


def test_digests_are_cut_for_people() -> None:
    """Twelve digits tell two digests apart; the JSON form holds all of them."""
    text = text_of(with_outputs(report(), t2__s5__tree__sum=sha("other")))

    assert sha("other") not in text
    assert sha("other")[:19] + "…" in text


def test_many_findings_are_counted_not_listed() -> None:
    """A screen stays a screen."""
    many = [{"name": f"t1.k1.mm.{number}", "value": "wrong: 1 of 1"} for number in range(40)]
    document = report(outputs=[*many, *report()["outputs"]])

    assert text_of(document).count("t1.k1.mm.") == 12
    assert "and 28 findings more: `--format json` holds all" in text_of(document)


def test_nothing_a_report_says_reaches_the_terminal_as_a_control_character() -> None:
    """A report may come from a stranger's node."""
    hostile = with_outputs(report(), t1__k1__mm="wrong: \x1b[2J\x07")
    hostile["settings"]["torch.version"] = "2\x1b]0;x\x07"
    both = comparison_text(compare.compare(report(), hostile), "a", "b\x1b", False)

    assert "\x1b" not in text_of(hostile) + both
    assert "\x07" not in text_of(hostile) + both


def test_colours_only_when_asked_for() -> None:
    """The verdict is coloured on a terminal."""
    assert text_of(report(), colored=True).startswith("\x1b[32mmatch\x1b[0m: ")


def test_a_run_without_a_golden_says_what_to_do() -> None:
    """The hint is the next command."""
    text = text_of(report(), BARE)

    assert text.startswith("unknown: canary of sample: could not tell\n")
    assert "  T3 models           unknown  6 computed, none judged\n" in text
    assert "hint: record one with `envlock canary run --record`" in text
