"""`envlock.run.twins` and `distance`: two reports side by side."""

import math
import struct
import time

import pytest
from made_reports import PLATFORM, report, sha, tensor, with_outputs, with_settings

from envlock.drift import Verdict
from envlock.run import distance, reports, twins


def output(values: list[float], dtype: str = "float32") -> reports.Output:
    """Return an output whose sample holds float32 `values`."""
    document = report(outputs=[tensor("t3.m.001.op", values, dtype)])
    return reports.from_document(document, "made").outputs[0]


def next_up(value: float, steps: int) -> float:
    """Return the float32 that is `steps` neighbours above a positive `value`."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0] + steps
    found: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return found


def test_two_reports_of_the_same_bits_match() -> None:
    """All outputs are compared, and none differs."""
    comparison = twins.compare(report(), report())

    assert (comparison.verdict, comparison.exit_code, comparison.compared) == (Verdict.MATCH, 0, 10)


def test_the_first_operator_of_each_model_and_its_distance_are_named() -> None:
    """Where outputs part comes first, with units in the last place, absolute distance and cosine."""
    other = with_outputs(
        report(), t3__encoder__001__linear_q=[1.0, 2.0, next_up(3.0, 5)], t3__encoder__002__softmax=[0.25, 0.5]
    )
    comparison = twins.compare(report(), other)

    assert (comparison.exit_code, comparison.first) == (1, ("t3.encoder.001.linear_q",))
    apart = comparison.outputs[0].distance
    assert apart is not None
    assert (apart.elements, apart.differing, apart.ulp, apart.largest) == (3, 1, 5, 5 * 2.0**-22)
    assert apart.cosine is not None
    assert 0.999999 < apart.cosine <= 1.0


def test_settings_and_signatures_that_differ_are_named() -> None:
    """What could explain the difference stands beside it."""
    other = with_settings(with_outputs(report(), t2__s1__mantissa__mm="10"), threads="1")
    comparison = twins.compare(report(), other)

    assert comparison.settings == (("threads", "2", "1"),)
    assert comparison.signatures == ("t2.s1.mantissa.mm",)


def test_other_settings_alone_are_no_other_bits() -> None:
    """Two reports may agree in every bit under other settings: that is the answer asked for."""
    comparison = twins.compare(report(), with_settings(report(platform={**PLATFORM, "machine": "x"}), threads="1"))

    assert (comparison.verdict, comparison.platform) == (Verdict.MATCH, (("machine", "x86_64", "x"),))


def test_reports_of_two_suites_are_not_compared() -> None:
    """Other inputs give other outputs: that says nothing."""
    comparison = twins.compare(report(), report(inputs=sha("other")))

    assert (comparison.exit_code, comparison.compared) == (3, 0)


def test_a_failed_or_blind_report_could_not_tell() -> None:
    """Equal outputs of a canary that sees nothing are no match."""
    failed = {"schema": report()["schema"], "suite": "torch/1", "outcome": "failed", "failure": "no torch"}
    blind = report(controls={"weight-bit": False})

    assert twins.compare(report(), failed).unknowns == ("B did not run: no torch",)
    assert [twins.compare(report(), other).exit_code for other in (failed, blind)] == [3, 3]


def test_what_is_wrong_in_both_is_no_match() -> None:
    """Two hosts broken in the same way agree, and both are wrong."""
    broken = with_outputs(report(), t1__k1__mm="wrong: 9 of 9")
    comparison = twins.compare(broken, broken)

    assert (comparison.exit_code, comparison.wrong) == (1, ("t1.k1.mm",))


@pytest.mark.parametrize("second", ["unavailable: no _int_mm", "ok"])
def test_what_a_report_could_not_give_is_unknown(second: str) -> None:
    """Two runs that both could not compute an output have not computed the same bits."""
    lacking = with_outputs(report(), t1__k3__int_mm="unavailable: no _int_mm")
    comparison = twins.compare(lacking, with_outputs(report(), t1__k3__int_mm=second))

    assert (comparison.exit_code, comparison.wrong, comparison.outputs) == (3, (), ())
    assert comparison.unknowns == ("t1.k3.int_mm: unavailable: no _int_mm",)


def test_a_weight_that_changed_in_memory_is_no_match() -> None:
    """Both hosts may have computed the same from the same broken weight."""
    broken = report(**{"changed-inputs": ["t3.encoder.q.weight"]})

    assert twins.compare(broken, broken).exit_code == 3


def test_what_is_not_repeatable_on_one_side_is_no_match() -> None:
    """A host that disagrees with itself cannot agree with another."""
    unstable = report(differences=[{"process": 1, "run": 2, "name": "t1.k1.mm", "value": "x"}])

    assert twins.compare(report(), unstable).exit_code == 1


def test_an_output_of_one_side_only_differs() -> None:
    """A missing output is shown as missing."""
    comparison = twins.compare(report(), with_outputs(report(), t3__convnet__001__conv=None))

    assert [(parting.name, parting.b) for parting in comparison.outputs] == [("t3.convnet.001.conv", "(missing)")]


def test_nans_of_other_bits_are_named_as_such() -> None:
    """The second digest, with all NaNs made equal, tells payload from value."""
    a = report(outputs=[{**tensor("t3.m.001.op", [math.nan]), "nan-canonical": sha("nan")}])
    b = report(outputs=[{**tensor("t3.m.001.op", [math.inf]), "nan-canonical": sha("nan")}])

    assert twins.compare(a, b).outputs[0].nan_bits


def test_ulps_count_through_zero_and_zeros_are_one_place() -> None:
    """The smallest numbers of both signs are two apart; -0 and +0 are the same place but other bits."""
    tiny = 2.0**-149
    across = distance.between(output([tiny]), output([-tiny]))
    zeros = distance.between(output([0.0]), output([-0.0]))

    assert across is not None
    assert zeros is not None
    assert (across.ulp, zeros.ulp, zeros.differing, zeros.largest) == (2, 0, 1, 0.0)


def test_a_nan_has_no_distance_in_ulps() -> None:
    """The largest difference is infinite, and no cosine is made up."""
    apart = distance.between(output([1.0, math.nan]), output([1.0, 2.0]))

    assert apart is not None
    assert (apart.ulp, apart.largest, apart.cosine) == (None, math.inf, None)


def test_bfloat16_and_integers_are_decoded_by_their_own_width() -> None:
    """The dtype says how the raw bytes are read."""
    half = distance.between(output([1.0], "bfloat16"), output([1.0], "bfloat16"))
    whole = distance.between(output([1.0], "int32"), output([2.0], "int32"))

    assert half is not None
    assert (half.elements, half.ulp) == (2, 0)
    assert whole is not None
    assert (whole.ulp, whole.largest) == (None, float(0x40000000 - 0x3F800000))


def test_all_values_of_a_large_output_are_measured_in_linear_time() -> None:
    """A run with `--values` keeps hundreds of thousands of elements."""
    many = [float(number) for number in range(200_000)]
    begin = time.monotonic()
    apart = distance.between(output(many), output([*many[:-1], 0.0]))

    assert apart is not None
    assert (apart.elements, apart.differing) == (200_000, 1)
    assert time.monotonic() - begin < 20


def test_samples_that_do_not_correspond_have_no_distance() -> None:
    """Other shapes or strides: elements cannot be paired."""
    assert distance.between(output([1.0]), output([1.0, 2.0])) is None
    assert distance.between(output([1.0], "complex64"), output([1.0], "complex64")) is None


def test_a_comparison_is_one_json_document_without_floats() -> None:
    """Distances are kept as text: JSON has no infinity and no NaN."""
    document = twins.compare(report(), with_outputs(report(), t3__convnet__001__conv=[math.inf])).to_document()

    assert document["outputs"][0]["distance"]["largest"] == "inf"
