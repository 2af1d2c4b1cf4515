"""`envlock.run.compare`: a report judged against the golden of its class."""

import dataclasses
from typing import Any

import pytest
import samples
from made_reports import PLATFORM, report, sha, tensor, with_outputs, with_settings

from envlock import lockfile
from envlock.canary.report import failed
from envlock.digest import Digest
from envlock.drift import Verdict
from envlock.errors import CouldNotTell, UsageError
from envlock.lockfile import Lockfile
from envlock.run import compare, recording
from envlock.run.findings import Finding, Judgement, Kind
from envlock.run.in_force import setting_differences

BARE = dataclasses.replace(
    samples.lock(),
    determinism=lockfile.Determinism(
        profile="strict", threads=2, env=(("LANG", "C"), ("MKL_CBWR", "AVX512")),
        torch=(("use_deterministic_algorithms", True),),
    ),
    goldens=(),
)  # fmt: skip
LOCK = BARE.with_golden(recording.golden_from(report(), None))


def only(judgement: Judgement, kind: Kind) -> Finding:
    """Return the one finding of `kind`."""
    found = [finding for finding in judgement.findings if finding.kind is kind]
    assert len(found) == 1, judgement.findings
    return found[0]


def test_the_same_report_matches_its_golden() -> None:
    """Equal outputs under equal settings are a match, every tier counted."""
    judgement = compare.judge(report(), LOCK)

    assert (judgement.verdict, judgement.exit_code) == (Verdict.MATCH, 0)
    assert [(tier.name, tier.matched, tier.total) for tier in judgement.tiers] == [
        ("T1", 2, 2),
        ("T2", 2, 2),
        ("T3", 6, 6),
    ]
    assert judgement.findings == ()


def test_a_golden_comes_back_from_the_lockfile_s_text() -> None:
    """What is recorded is written and read as the same value, in the order of computation."""
    again = lockfile.parse(lockfile.render(LOCK).encode(), "lock")

    assert again.goldens == LOCK.goldens
    assert [name for name, _ in again.goldens[0].outputs][1:4:2] == ["t2.s1.mantissa.mm", "t3.encoder.001.linear_q"]


def test_without_a_golden_t1_is_judged_and_the_rest_is_unknown() -> None:
    """A class that nobody recorded is exit 3, and says how to record it."""
    judgement = compare.judge(report(), BARE)

    assert (judgement.exit_code, judgement.golden_known) == (3, False)
    assert [str(tier.verdict) for tier in judgement.tiers] == ["match", "unknown", "unknown"]
    assert judgement.unknowns == ("no golden for this platform class: only T1 is judged",)


def test_a_wrong_known_answer_is_drift_without_any_golden() -> None:
    """T1 needs no golden: a difference that was found outranks one that might exist."""
    judgement = compare.judge(with_outputs(report(), t1__k3__int_mm="wrong: 9 of 9"), BARE)

    assert judgement.exit_code == 1
    finding = only(judgement, Kind.BROKEN_HARDWARE)
    assert (finding.tier, finding.name, finding.found) == ("T1", "t1.k3.int_mm", "wrong: 9 of 9")


def test_a_known_answer_that_was_not_given_is_unknown() -> None:
    """A case that this build cannot run is neither right nor wrong."""
    judgement = compare.judge(with_outputs(report(), t1__k3__int_mm="unavailable: no _int_mm"), LOCK)

    assert judgement.exit_code == 3
    assert judgement.unknowns == ("t1.k3.int_mm: unavailable: no _int_mm",)


def test_what_was_unavailable_for_the_golden_as_well_matches() -> None:
    """The golden holds the text of T1 cases that its build could not run."""
    lacking = with_outputs(report(), t1__k3__int_mm="unavailable: no _int_mm")
    lock = BARE.with_golden(recording.golden_from(lacking, None))

    assert compare.judge(lacking, lock).verdict is Verdict.MATCH


def test_another_class_says_how_the_nearest_one_differs() -> None:
    """A golden of another class is never compared with, only named."""
    other = report(platform={**PLATFORM, "cpu.flags": "avx2 fma"})
    judgement = compare.judge(other, LOCK)

    assert judgement.exit_code == 3
    assert judgement.hints[0] == (
        "the nearest class in the lockfile differs: cpu.flags is `avx2 fma`, `avx2 avx512f fma` in the golden"
    )


def test_the_first_operator_whose_own_kernel_differs_is_named() -> None:
    """Chain and solo differ: this operator's kernel; later ones with own differences are listed."""
    judgement = compare.judge(
        with_outputs(
            report(),
            t3__encoder__001__linear_q=[1.0, 2.0, 3.5],
            t3__encoder__001__linear_q_solo=[4.0, 5.5],
            t3__encoder__002__softmax=[0.5, 0.5],
            t3__encoder__002__softmax_solo=[0.5, 0.25],
        ),
        LOCK,
    )

    finding = only(judgement, Kind.OTHER_KERNEL)
    assert (finding.name, finding.operator) == ("t3.encoder.001.linear_q", "linear_q")
    assert "alone, too" in finding.message
    assert finding.also == ("t3.encoder.002.softmax",)


def test_an_operator_that_is_right_alone_points_upstream() -> None:
    """Only the chain differs: fusion, or the data it meets."""
    judgement = compare.judge(with_outputs(report(), t3__encoder__002__softmax=[0.5, 0.5]), LOCK)

    assert "though alone this operator gives the same bits" in only(judgement, Kind.OTHER_KERNEL).message


def test_a_kernel_that_differs_alone_only_is_still_drift() -> None:
    """The model's outputs agree by luck; the kernel is another one."""
    judgement = compare.judge(with_outputs(report(), t3__convnet__001__conv_solo=[9.0]), LOCK)

    finding = only(judgement, Kind.OTHER_KERNEL)
    assert (judgement.exit_code, finding.name) == (1, "t3.convnet.001.conv")
    assert "the model's outputs are the same" in finding.message


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("t2__s1__mantissa__mm", "10", Kind.OTHER_MODE), ("t2__s5__tree__sum", sha("other"), Kind.OTHER_KERNEL)],
)
def test_a_signature_says_mode_or_kernel(name: str, value: str, kind: Kind) -> None:
    """A mantissa that shrank is another arithmetic; another summation tree is another kernel."""
    judgement = compare.judge(with_outputs(report(), **{name: value}), LOCK)

    assert (judgement.exit_code, only(judgement, kind).tier) == (1, "T2")


def test_causes_name_the_setting_and_the_signature_that_moved() -> None:
    """A T3 finding carries what could explain it."""
    seen = with_settings(report(), aten__cpu__capability="x")
    seen["settings"]["aten.cpu-capability"] = "DEFAULT"
    seen["settings"].pop("aten.cpu.capability")
    seen = with_outputs(seen, t2__s5__tree__sum=sha("other"), t3__encoder__002__softmax=[0.5, 0.5])
    finding = next(found for found in compare.judge(seen, LOCK).findings if found.tier == "T3")

    assert finding.causes == ("aten.cpu-capability: AVX512 → DEFAULT", "mode signatures that moved: t2.s5.tree.sum")


def test_a_difference_with_equal_settings_says_so() -> None:
    """Nothing locked explains it: the finding does not pretend to know."""
    judgement = compare.judge(with_outputs(report(), t3__encoder__002__softmax=[0.5, 0.5]), LOCK)

    assert only(judgement, Kind.OTHER_KERNEL).causes[0].startswith("no setting in the golden differs")


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("threads", "1", ("threads", "2", "1")),
        ("env__MKL_CBWR", "COMPATIBLE", ("env.MKL_CBWR", "AVX512", "COMPATIBLE")),
        ("env__ONEDNN_MAX_CPU_ISA", "AVX2", ("env.ONEDNN_MAX_CPU_ISA", "(unset)", "AVX2")),
        ("torch__version", "2.12.0", ("torch.version", "2.13.0+cpu", "2.12.0")),
        ("switch__use_deterministic_algorithms", "false", ("switch.use_deterministic_algorithms", "true", "false")),
    ],
)
def test_a_setting_that_differs_is_drift_though_all_bits_agree(
    setting: str, value: str, shown: tuple[str, str, str]
) -> None:
    """What decides bits is locked: another value is a finding by itself, with both values."""
    judgement = compare.judge(with_settings(report(), **{setting: value}), LOCK)

    finding = only(judgement, Kind.SETTING)
    assert (judgement.exit_code, (finding.name, finding.expected, finding.found)) == (1, shown)


def test_a_locked_variable_that_is_not_set_is_drift_without_a_golden() -> None:
    """The lockfile itself says what must be in force."""
    seen = report()
    del seen["settings"]["env.MKL_CBWR"]

    assert only(compare.judge(seen, BARE), Kind.SETTING).found == "(unset)"


def test_a_switch_that_did_not_stay_in_force_is_drift() -> None:
    """A library that flips a flag back is seen."""
    judgement = compare.judge(report(**{"not-in-force": ["torch switch `x` was set to true and reads false"]}), LOCK)

    assert only(judgement, Kind.SETTING).found == "torch switch `x` was set to true and reads false"


def test_what_is_not_repeatable_on_one_host_is_named_once() -> None:
    """Runs and processes that disagree are a finding of their own kind."""
    differences = [
        {"process": 2, "run": run, "name": "t2.s7.math.exp", "value": sha(f"run {run}")} for run in (1, 3)
    ]  # fmt: skip
    judgement = compare.judge(report(differences=differences), LOCK)

    finding = only(judgement, Kind.NOT_REPEATABLE)
    assert (judgement.exit_code, finding.tier, finding.name) == (1, "T2", "t2.s7.math.exp")
    assert "first in process 2, run 1" in finding.message


def test_a_control_that_did_not_fail_makes_all_of_it_unknown() -> None:
    """A canary that cannot see says nothing, not even about what it thinks it found."""
    blind = report(controls={"wrong-integer": True, "weight-bit": False})

    assert compare.judge(blind, LOCK).exit_code == 3
    judgement = compare.judge(with_outputs(blind, t1__k1__mm="wrong: 1 of 1"), LOCK)
    assert judgement.exit_code == 3
    assert judgement.unknowns[0] == "the canary could not see: the control weight-bit must fail and did not"


def test_a_run_that_failed_is_unknown_with_its_reason_and_hint() -> None:
    """No torch, no GPU, a process that died: unknown, never a match."""
    judgement = compare.judge(failed("no GPU", "load it"), LOCK)

    assert (judgement.exit_code, judgement.unknowns, judgement.hints) == (
        3, ("the canary did not run: no GPU",), ("load it",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("torch", "lock", "code"), [("1.13.1", LOCK, 1), ("2.13.0+cpu", LOCK, 3), (None, LOCK, 3), ("1.13.1", BARE, 3)]
)
def test_a_run_that_failed_under_another_torch_than_the_golden_s_is_drift(
    torch: str | None, lock: Lockfile, code: int
) -> None:
    """It lacks what the suite needs: the reason is unknown work, the version is a definite difference."""
    judgement = compare.judge(failed("no such switch", torch=torch), lock)

    assert (judgement.exit_code, judgement.unknowns) == (code, ("the canary did not run: no such switch",))
    if code == 1:
        finding = only(judgement, Kind.SETTING)
        assert (finding.name, finding.expected, finding.found) == ("torch.version", "2.13.0+cpu", "1.13.1")
    else:
        assert judgement.findings == ()


@pytest.mark.parametrize("changed", [{"suite": "torch/2"}, {"inputs": sha("other inputs")}])
def test_a_golden_of_another_suite_is_not_compared_with(changed: dict[str, Any]) -> None:
    """Another suite or other inputs: T1 is judged, and the golden is to be recorded again."""
    judgement = compare.judge(report(**changed), LOCK)

    assert (judgement.exit_code, only(judgement, Kind.SUITE_DIFFERS).name) == (3, "suite")
    assert judgement.hints == ("record the golden again: `envlock canary run --record`",)


def test_an_output_that_is_missing_is_unknown() -> None:
    """A model that raised half-way leaves the rest untold."""
    judgement = compare.judge(
        with_outputs(report(problems=["t3.convnet: raised RuntimeError: x"]), t3__convnet__001__conv=None), LOCK
    )

    assert judgement.exit_code == 3
    assert judgement.unknowns == ("t3.convnet: raised RuntimeError: x", "t3.convnet.001.conv was not computed")


def test_a_version_is_named_before_the_build_ids_that_follow_from_it() -> None:
    """A person reads the first line."""
    before = (("library.libtorch.so", "aa"), ("threads", "2"), ("torch.version", "2.13.0"))
    after = (("library.libtorch.so", "bb"), ("threads", "2"), ("torch.version", "2.14.1"))

    assert setting_differences(before, after) == [
        ("torch.version", "2.13.0", "2.14.1"),
        ("library.libtorch.so", "aa", "bb"),
    ]


def test_a_known_answer_that_is_left_out_is_unknown() -> None:
    """A right answer is in no golden; which answers there were is, so that none goes missing unseen."""
    short = report()
    short["outputs"] = [held for held in short["outputs"] if held["name"] != first_known_answer(short)]
    judgement = compare.judge(short, LOCK)

    assert judgement.exit_code == 3
    assert judgement.unknowns[0].startswith("T1 is not whole: 1 known answers")


def first_known_answer(document: dict[str, Any]) -> str:
    return next(str(held["name"]) for held in document["outputs"] if held["name"].startswith("t1."))


def test_a_container_that_crashed_after_its_answer_is_unknown() -> None:
    """The bits may be right; the process was not."""
    container = {"image": LOCK.image.config if LOCK.image else "", "exit-status": 139}
    judgement = compare.judge(report(container=container), LOCK)

    assert (judgement.exit_code, judgement.unknowns) == (3, ("the container ended with status 139",))


def test_what_ran_out_of_memory_is_not_recorded() -> None:
    """A state of this hour must not become what is expected of every host."""
    spoilt = with_outputs(report(), t2__s1__mantissa__mm="unavailable: RuntimeError: CUDA out of memory")

    assert "was not computed" in recording.refusals(spoilt, LOCK)[0]


@pytest.mark.parametrize("tier", ["T1", "T2", "T3"])
def test_a_tier_without_any_output_is_unknown(tier: str) -> None:
    """T1 stands in no golden: that all of it is gone shows only here. A short golden hides no tier either."""
    left = [output for output in report()["outputs"] if output["name"][:2].upper() != tier]
    short = report(outputs=left)
    judgement = compare.judge(short, BARE.with_golden(recording.golden_from(short, None)))

    assert (judgement.exit_code, judgement.unknowns) == (3, (f"{tier}: nothing was computed",))


def test_a_weight_that_changed_in_memory_is_broken_hardware() -> None:
    """Weights are hashed again after the run: a bit that flipped by itself is found without any golden."""
    judgement = compare.judge(report(**{"changed-inputs": ["t3.encoder.q.weight"]}), BARE)

    assert (judgement.exit_code, only(judgement, Kind.BROKEN_HARDWARE).name) == (1, "t3.encoder.q.weight")


def test_a_requested_flip_is_shown_as_what_it_is() -> None:
    """The person asked for it: no broken hardware, but drift all the same."""
    request = {"backend": "cpu", "weight-bit-flip": {"tensor": "t3.encoder.q.weight", "bit": 9}}
    judgement = compare.judge(report(request=request, **{"changed-inputs": ["t3.encoder.q.weight"]}), LOCK)

    assert only(judgement, Kind.SETTING).found == "t3.encoder.q.weight bit 9"


def test_a_run_in_another_image_than_the_golden_s_says_so() -> None:
    """Where the lockfile holds no image, equal bits are a match; where each ran is worth knowing all the same."""
    judgement = compare.judge(report(container={"image": sha("image")}), LOCK.with_image(None))

    assert judgement.verdict is Verdict.MATCH
    assert judgement.hints == (f"the golden was recorded on the host, this ran in image {sha('image')}",)


def test_a_run_in_another_image_than_the_locked_one_is_drift() -> None:
    """Equal bits from another image are not what the lockfile holds, and no golden of it."""
    assert LOCK.image is not None
    other = report(container={"image": sha("another image")})
    judgement = compare.judge(other, LOCK)

    finding = only(judgement, Kind.SETTING)
    assert (judgement.exit_code, finding.name, finding.expected) == (1, "image", LOCK.image.config)
    assert recording.refusals(other, LOCK) == [
        f"image is {sha('another image')}, the lockfile holds {LOCK.image.config}"
    ]


@pytest.mark.parametrize("which", ["config", "manifest"])
def test_the_locked_image_is_known_by_either_digest(which: str) -> None:
    """Engines with a containerd store name an image by its manifest."""
    judgement = compare.judge(report(container={"image": getattr(LOCK.image, which)}), LOCK)

    assert judgement.verdict is Verdict.MATCH


# ---- recording -----------------------------------------------------------------------


def test_a_golden_leaves_out_t1_and_keeps_the_order() -> None:
    """T1 needs no golden but for which answers there were; the others stand in their order of computation."""
    golden = recording.golden_from(report(), Digest.parse(sha("image")))

    assert golden.suite == f"torch/1 {sha('inputs')}"
    assert golden.image == sha("image")
    assert golden.outputs[0][1].startswith("2 known answers, names sha256:")
    assert [name for name, _ in golden.outputs][:4] == [
        "t1",
        "t2.s1.mantissa.mm",
        "t2.s5.tree.sum",
        "t3.encoder.001.linear_q",
    ]


def test_a_failed_run_gives_no_golden() -> None:
    """There is nothing to record."""
    with pytest.raises(CouldNotTell, match="the canary did not run: no torch"):
        recording.golden_from(
            {"schema": report()["schema"], "suite": "s", "outcome": "failed", "failure": "no torch"}, None
        )


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (with_outputs(report(), t1__k1__mm="wrong: 1 of 9"), "T1 is red: t1.k1.mm wrong: 1 of 9"),
        (
            report(controls={"weight-bit": False, "wrong-integer": True}),
            "the control weight-bit must fail and did not",
        ),
        (report(controls={"wrong-integer": True}), "the control weight-bit must fail and did not"),
        (
            report(differences=[{"process": 1, "run": 2, "name": "t2.s7.math.exp", "value": "x"}]),
            "t2.s7.math.exp is not repeatable",
        ),
        (with_settings(report(), env__MKL_CBWR="COMPATIBLE"), "env.MKL_CBWR is COMPATIBLE, the lockfile holds AVX512"),
        (report(problems=["t3.convnet: raised X"]), "t3.convnet: raised X"),
        (
            report(request={"backend": "cpu", "weight-bit-flip": {"tensor": "w", "bit": 1}}),
            "a weight bit was flipped on request",
        ),
        (
            {"schema": report()["schema"], "suite": "s", "outcome": "failed", "failure": "x"},
            "the canary did not run: x",
        ),
    ],
)
def test_what_speaks_against_recording_is_said(document: dict[str, Any], reason: str) -> None:
    """A golden is never made from a red, blind, unstable or altered run."""
    assert recording.refusals(document, BARE) == [reason]


def test_a_good_run_may_replace_a_golden_that_differs() -> None:
    """Recording anew after an upgrade is what the command is for."""
    moved = with_outputs(report(), t3__encoder__002__softmax=[0.5, 0.5])

    assert recording.refusals(moved, LOCK) == []
    updated: Lockfile = LOCK.with_golden(recording.golden_from(moved, None))
    assert (len(updated.goldens), compare.judge(moved, updated).verdict) == (1, Verdict.MATCH)


# ---- documents -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schema": "x/1"}, "unexpected schema 'x/1'"),
        ({"outcome": "maybe"}, "unknown outcome 'maybe'"),
        ({"outputs": []}, "is empty, or names one output twice, at `outputs`"),
        ({"outputs": [tensor("t3.a.001.b", [1.0])] * 2}, "names one output twice"),
        ({"outputs": [{"name": "../x", "value": "ok"}]}, "not the name of an output: '../x', at `outputs\\[0\\].name`"),
        (
            {"request": {"backend": "cpu", "weight-bit-flip": "x"}},
            "unexpected type \\(expected object\\), at `request.weight-bit-flip`",
        ),
        ({"controls": {}}, "a run without a control that must fail proves nothing"),
        ({"platform": {"x": 1}}, "no object of strings, at `platform`"),
        ({"differences": [{"process": "1"}]}, "no number, at `differences\\[0\\].process`"),
    ],
)
def test_a_document_that_is_no_report_says_where(changed: dict[str, Any], message: str) -> None:
    """A report may come from any node: every part of it is checked, with its key."""
    with pytest.raises(UsageError, match=message):
        compare.judge(report(**changed), LOCK)


def test_a_judgement_is_one_json_document() -> None:
    """Counts, findings and verdict are all in it."""
    document = compare.judge(with_outputs(report(), t2__s1__mantissa__mm="10"), LOCK).to_document()

    assert (document["verdict"], document["exit-code"]) == ("drift", 1)
    assert document["tiers"]["T2"] == {"verdict": "drift", "passed": 1, "total": 2, "differing": 1, "unknown": 0}
    assert [finding["name"] for finding in document["findings"]] == ["t2.s1.mantissa.mm"]
