"""Two sources about one host, and facts without what names a part."""

from envlock.facts import FAILED, NOT_SUPPORTED, Device, Facts, Observed, absent, value
from envlock.probe.crosscheck import agree, cross_check, merged
from envlock.probe.identity import without_identity

PLACE = "0000:01:00.0"


def facts(source: str, **found: Observed) -> Facts:
    held = {f"gpu.{key}": Observed(seen.outcome, seen.value, source, seen.detail) for key, seen in found.items()}
    return Facts({"nvidia.gpu_count": value(1, source)}, [Device("gpu", PLACE, held)])


def test_values_that_differ_are_named_with_both_sources() -> None:
    """One line says the GPU, the fact, and what each source says."""
    found = cross_check(facts("NVML", power_limit=value(1)), facts("nvidia-smi", power_limit=value(2)))

    assert [str(one) for one in found] == [f"GPU at {PLACE}: power limit: NVML says 1; nvidia-smi says 2"]
    assert (found[0].key, found[0].device) == ("gpu.power_limit", PLACE)


def test_sources_that_agree_are_silent() -> None:
    """Letter case, placement, and what moves from moment to moment are no disagreement."""
    first = facts("a", vbios=value("90.0a"), mig_layout=value(["1g.10gb@3"]), pcie_generation=value(1))
    second = facts("b", vbios=value("90.0A"), mig_layout=value(["1g.10gb"]), pcie_generation=value(4))

    assert cross_check(first, second) == ()


def test_source_without_an_answer_contradicts_nothing() -> None:
    """A failure is no value; "not supported" against a value is a contradiction, but for GSP that is off."""
    assert agree("gpu.ecc", value(True), absent(FAILED))
    assert not agree("gpu.ecc", value(True), absent(NOT_SUPPORTED))
    assert agree("gpu.gsp", value(False), absent(NOT_SUPPORTED))
    assert not agree("gpu.gsp", value(True), absent(NOT_SUPPORTED))


def test_count_of_gpus_is_compared() -> None:
    """GPUs that one side lacks show in the count."""
    fewer = Facts({"nvidia.gpu_count": value(0, "b")})

    assert [one.key for one in cross_check(facts("a"), fewer)] == ["nvidia.gpu_count"]


def test_second_source_fills_and_never_overrides() -> None:
    """An answer stays; a failure gives way to an answer, "not supported" too."""
    first = {"a": value(1), "b": absent(FAILED), "c": absent(FAILED), "d": absent(NOT_SUPPORTED)}
    second = {"a": value(2), "b": value(2), "c": absent(NOT_SUPPORTED), "d": value(2), "e": absent(FAILED)}

    assert merged(first, second) == {
        "a": value(1), "b": value(2), "c": absent(NOT_SUPPORTED), "d": absent(NOT_SUPPORTED), "e": absent(FAILED),
    }  # fmt: skip


def test_names_of_parts_are_left_out_everywhere() -> None:
    """Unique facts go, and their values with them from details and notes; what the document covers stays said."""
    held = {
        "gpu.name": Observed("value", "A10", "s", "board 1500000000001"),
        "gpu.serial": value("1500000000001"),
        "gpu.uuid": absent(FAILED),
    }
    notes = ("serial 1500000000001", "MIG-0dd00000-0000-4000-8000-000000000011 is gone")
    bare = without_identity(Facts({}, [Device("gpu", PLACE, held)], notes, ("gpu.",)))

    assert list(bare.gpus()[0].facts) == ["gpu.name"]
    assert bare.gpus()[0].facts["gpu.name"].detail == "board (left out)"
    assert bare.notes == ("serial (left out)", "(left out) is gone")
    assert bare.only == ("gpu.",)


def test_document_says_what_it_covers() -> None:
    """A document without a limit covers all; one with a limit what starts with it."""
    assert Facts({}).covers("gpu.")
    assert Facts({}, only=("gpu.",)).covers("gpu.vbios")
    assert Facts({}, only=("gpu.vbios",)).covers("gpu.")
    assert not Facts({}, only=("cpu.", "nvidia.")).covers("gpu.")


def test_names_that_only_a_remark_holds_are_left_out() -> None:
    """What a second source calls a part, or a line quoted whole, stands in no fact: it goes all the same."""
    first, second = (facts(name, serial=value(number)) for name, number in (("a", "PC1A"), ("b", "PC2B")))
    notes = [*map(str, cross_check(first, second)), "Serial Number   : PC4D"]
    quoted = "2 cells where the header has 3: `0, PC3C`"
    said = "board 1650000000009, device 0x050A83763506d60d; asked with `nvidia-smi -q -x`"
    held = {"gpu.name": Observed("failed", None, "s", quoted), "gpu.vbios": Observed("failed", None, "s", said)}

    bare = without_identity(Facts({}, [Device("gpu", PLACE, held)], notes))

    assert bare.notes == (f"GPU at {PLACE}: serial number: (left out)", "Serial Number   : (left out)")
    assert bare.gpus()[0].facts["gpu.name"].detail == "2 cells where the header has 3: (left out)"
    assert bare.gpus()[0].facts["gpu.vbios"].detail == (
        "board (left out), device (left out); asked with `nvidia-smi -q -x`"
    )
