"""The cases themselves, in this process, on the real torch."""

from collections.abc import Iterator
from typing import Any

import pytest

from envlock.canary import answers, known, signatures, suite, tensors, trees, worker
from envlock.canary.inputs import Input
from envlock.canary.tensors import Maker, hash_tensor, output_of
from envlock.canary.trace import Trace

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch() -> Any:
    """The real torch, imported once for this module."""
    import torch

    return torch


@pytest.fixture(scope="module")
def maker(torch: Any) -> Maker:
    """All inputs of the suite."""
    return Maker(torch, "cpu", suite.INPUTS)


@pytest.fixture
def inference(torch: Any) -> Iterator[None]:
    """The mode in which the suite runs."""
    with torch.inference_mode():
        yield


def test_the_digest_made_with_torch_is_the_one_made_without(torch: Any, maker: Maker) -> None:
    """What the worker reports is what every interpreter computes."""
    from envlock.canary.inputs import digest_of_all

    assert maker.digest == digest_of_all(suite.INPUTS)


def test_every_known_answer_is_right_here(torch: Any, maker: Maker, inference: None) -> None:
    """This machine works: T1 is green, and no case is left out."""
    outputs = known.run(torch, maker)

    assert {output.name: output.value for output in outputs if output.value != known.OK} == {}
    assert len(outputs) == len({output.name for output in outputs}) > 45


def test_one_wrong_element_is_counted_and_placed(torch: Any) -> None:
    """The text says how many, where first, and both values."""
    expected = torch.arange(12).reshape(3, 4)
    got = expected.to(torch.float32)
    got[1, 2] += 1

    assert known.compare(torch, "x", got, expected).value == "wrong: 1 of 12, first at [1, 2]: 7.0, expected 6"
    assert known.compare(torch, "x", got[:2], expected).value == "wrong: shape [2, 4], expected [3, 4]"


def test_a_nan_is_a_wrong_integer(torch: Any) -> None:
    """Nothing that compares unequal to everything slips through."""
    got = torch.tensor([1.0, float("nan")])

    assert known.compare(torch, "x", got, torch.tensor([1, 2])).value.startswith("wrong: 1 of 2")


def test_a_reference_that_is_not_the_locked_one_is_wrong(
    torch: Any, maker: Maker, inference: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose integer product is broken cannot make its own reference."""
    monkeypatch.setitem(answers.ANSWERS, "int8.48x64x56", "sha256:" + "0" * 64)
    values = {output.name: output.value for output in known.run(torch, maker)}

    assert values["t1.k3.int_mm.int8.48x64x56"].startswith("wrong: the integer reference itself")


def test_a_case_that_raises_gives_no_answer_and_the_others_still_run(
    torch: Any, maker: Maker, inference: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception is no wrong answer."""

    def broken(*_: Any) -> Any:
        raise NotImplementedError("no int8 here")

    monkeypatch.setattr(torch, "_int_mm", broken)
    values = {output.name: output.value for output in known.run(torch, maker)}

    assert values["t1.k3.int_mm"] == "unavailable: NotImplementedError: no int8 here"
    assert values["t1.k7.div.float32"] == known.OK


def test_a_hash_sees_order_sign_shape_dtype_and_zeros(torch: Any) -> None:
    """What sums and norms miss is another digest here."""
    x = torch.tensor([1.5, 1.5, 7.0, 0.0])
    others = [x.flip(0), -x, x.reshape(2, 2), x.to(torch.float64), torch.tensor([1.5, 1.5, 7.0, -0.0])]
    digests = [hash_tensor(torch, tensor) for tensor in (x, *others)]

    assert len(set(digests)) == len(digests)


def test_a_hash_does_not_hang_on_strides(torch: Any) -> None:
    """The same elements in another memory layout are the same tensor."""
    x = torch.arange(12.0).reshape(3, 4)

    assert hash_tensor(torch, x) == hash_tensor(torch, x.t().contiguous().t())


def test_a_sample_is_evenly_strided_raw_bits(torch: Any) -> None:
    """64 elements at most, their stride kept; all of them when asked for."""
    x = torch.arange(1000, dtype=torch.int32)
    some, every = output_of(torch, "x", x), output_of(torch, "x", x, samples=0)

    assert (some.stride, len(some.sample or "") // 8, (some.sample or "")[8:16]) == (15, 64, "0f000000")
    assert (every.stride, len(every.sample or "") // 8) == (1, 1000)


def test_nans_of_other_bits_share_the_second_digest(torch: Any) -> None:
    """The first digest tells NaN payloads apart, the second does not; without NaNs there is none."""
    quiet = torch.tensor([0x7FC00000, 0x3F800000], dtype=torch.int32).view(torch.float32)
    other = torch.tensor([0x7FC00001, 0x3F800000], dtype=torch.int32).view(torch.float32)
    a, b = output_of(torch, "x", quiet), output_of(torch, "x", other)

    assert a.value != b.value
    assert a.canonical == b.canonical is not None
    assert output_of(torch, "x", torch.ones(2)).canonical is None


def test_a_flipped_bit_is_found_by_hashing_the_weights_again(torch: Any) -> None:
    """`changed` names the tensor, and nothing once the bit is back."""
    made = Maker(torch, "cpu", (Input("a", (8,)), Input("b", (8,))))
    made.flip("b", 77)
    flipped = made.changed()
    made.flip("b", 77)

    assert (flipped, made.changed()) == (["b"], [])


def test_a_bit_that_is_not_there_is_an_error(torch: Any) -> None:
    """A flip out of the tensor would test nothing."""
    with pytest.raises(ValueError, match="a has 256 bits, there is no bit 256"):
        Maker(torch, "cpu", (Input("a", (8,)),)).flip("a", 256)


def test_both_controls_fail_as_they_must(torch: Any, maker: Maker) -> None:
    """A wrong integer and a flipped weight bit are seen, and the weights are whole afterwards."""
    assert suite.controls(torch, maker) == {"wrong-integer": True, "weight-bit": True}
    assert maker.changed() == []


def test_a_control_that_changes_nothing_is_reported_as_blind(
    torch: Any, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If flipping a bit leaves every digest as it was, the canary cannot see."""
    monkeypatch.setattr(Maker, "flip", lambda self, name, bit: None)

    assert suite.controls(torch, maker)["weight-bit"] is False


def test_a_comparison_that_sees_nothing_is_reported_as_blind(
    torch: Any, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison that always says `ok` fails its own control."""
    monkeypatch.setattr(known, "compare", lambda torch, name, got, expected: tensors.Output(name, known.OK))

    assert suite.controls(torch, maker)["wrong-integer"] is False


def test_two_runs_give_the_same_names_and_values_in_order(torch: Any, maker: Maker) -> None:
    """The suite is repeatable in one process, and names are unique and stable."""
    first, problems, _ = suite.run_once(torch, maker)
    second, _, _ = suite.run_once(torch, maker, keep=False)

    assert problems == []
    assert [(output.name, output.value) for output in first] == [(output.name, output.value) for output in second]
    assert len({output.name for output in first}) == len(first)
    assert not [output.name for output in first if output.value.startswith(known.UNAVAILABLE)]


def test_a_model_that_raises_is_a_problem_and_hides_nothing(
    torch: Any, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operators before the fault and the other model are still there."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no pooling here")

    monkeypatch.setattr(torch.nn.functional, "max_pool2d", broken)
    outputs, problems, _ = suite.run_once(torch, maker)
    names = {output.name for output in outputs}

    assert problems == ["t3.convnet: raised RuntimeError: no pooling here"]
    assert {"t3.convnet.009.sigmoid", "t3.encoder.034.topk"} <= names
    assert "t3.convnet.018.softmax" not in names


def test_an_operator_alone_does_not_depend_on_the_chain(torch: Any, maker: Maker) -> None:
    """The solo digest is the same whatever came before; the chain digest is not."""

    def digests(start: float) -> list[str]:
        trace = Trace(torch, maker, "m")
        x = trace.step("one", lambda a: a * 2, torch.full((4, 4), start))
        trace.step("two", torch.exp, x)
        return [output.value for output in trace.outputs]

    a, b = digests(1.0), digests(2.0)

    assert [left == right for left, right in zip(a, b, strict=True)] == [False, True, False, True]


def test_the_trees_of_sums_of_known_order_are_told(torch: Any) -> None:
    """A loop is sequential, halving is pairwise, and their digests differ."""

    def sequential(values: Any) -> Any:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def pairwise(values: Any) -> Any:
        while len(values) > 1:
            values = values[0::2] + values[1::2]
        return values[0]

    found = [trees.output(torch, "cpu", "t2.s5.tree.x", summer, 16, True) for summer in (sequential, pairwise)]

    assert [output.detail for output in found] == ["sequential", "pairwise"]
    assert found[0].value != found[1].value


def test_labels_are_grouped_by_what_they_gave() -> None:
    """A partition reads as groups, in order of appearance."""
    assert signatures.partition([("1", "a"), ("2", "b"), ("17", "b"), ("33", "a")]) == "1 33 | 2 17"


def test_the_thread_count_is_as_it_was_after_the_thread_probe(torch: Any, maker: Maker, inference: None) -> None:
    """Probing other counts leaves the one in force as it was."""
    before = torch.get_num_threads()
    signatures.run(torch, maker)

    assert torch.get_num_threads() == before


def test_on_another_device_the_models_are_the_same_and_convolutions_of_integers_a_signature(
    torch: Any, inference: None
) -> None:
    """The way of a GPU, taken by a CPU under another name: every step runs, and `k5` is no known answer."""
    there = Maker(torch, "cpu:0", suite.INPUTS)
    names = {output.name for output in known.run(torch, there) if output.value == known.OK}
    models = []
    for device in (Maker(torch, "cpu", suite.INPUTS), there):
        traced = Trace(torch, device, "convnet", keep=False)
        suite.convnet.run(traced)
        models.append([output.value for output in traced.outputs])

    assert {name for name in names if ".k5." in name} == {
        "t2.k5.conv.float32." + "-".join(map(str, shape)) for shape in known.CONVS
    }
    assert models[0] == models[1]


def test_a_matrix_for_a_gpu_lies_column_by_column(torch: Any) -> None:
    """The same values in the order that cuBLASLt's 8-bit product takes; on the CPU untouched."""
    matrix = torch.arange(6, dtype=torch.int8).reshape(2, 3)
    laid = tensors.columns(matrix, "cuda:0")

    assert tensors.columns(matrix, "cpu") is matrix
    assert (laid.stride(), laid.tolist()) == ((1, 2), matrix.tolist())


def test_outputs_computed_on_another_device_are_named(torch: Any, maker: Maker, inference: None) -> None:
    """A run that was asked for a GPU and answered from the CPU has a problem, never a match."""
    outputs = known.run(torch, maker)

    assert worker.elsewhere(outputs, "cpu") == []
    (problem,) = worker.elsewhere(outputs, "cuda:0")
    assert problem.startswith("cuda:0 was asked for, and ")
    assert "outputs were computed on cpu, first t1.k1.mm.float32.33x64x47" in problem


@pytest.mark.parametrize("answer", [float("nan"), float("inf")])
def test_a_sum_that_is_not_finite_has_no_size(torch: Any, answer: float) -> None:
    """One kernel that cannot be seen through must not take the trees of all others with it."""
    sizes = trees.subtree_sizes(torch, "cpu", lambda values: torch.tensor([answer]), 4, trees.pairs(4))

    assert sizes == [trees.NOT_FINITE] * 6
