"""`envlock.canary.switches`: set by name, read back, and never silently ignored."""

from types import SimpleNamespace
from typing import Any

import pytest

from envlock.canary import switches
from envlock.errors import UsageError


def old_torch() -> Any:
    """Return what a torch before 2.9 offers for fp32 precision: the `allow_tf32` flags alone."""
    return SimpleNamespace(
        __version__="2.4.1",
        backends=SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)),
            cudnn=SimpleNamespace(allow_tf32=True),
        ),
    )


def new_torch() -> Any:
    """Return what torch 2.9 and newer offer: `fp32_precision`, and flags that raise when mixed in."""
    return SimpleNamespace(
        __version__="2.10.0+cpu",
        backends=SimpleNamespace(
            cuda=SimpleNamespace(
                matmul=SimpleNamespace(fp32_precision="none", allow_bf16_reduced_precision_reduction=True)
            )
        ),
    )


def test_before_2_9_the_old_flag_is_set() -> None:
    """`ieee` on an old torch is `allow_tf32 = False`, and reads back as `ieee`."""
    torch = old_torch()
    switches.apply(torch, {"matmul.fp32_precision": "ieee"})

    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert switches.not_in_force(torch, {"matmul.fp32_precision": "ieee"}) == []


def test_since_2_9_only_the_new_attribute_is_touched() -> None:
    """Mixing the old and the new interface raises in torch: the old one is left alone."""
    torch = new_torch()
    switches.apply(torch, {"matmul.fp32_precision": "ieee"})

    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert not hasattr(torch.backends.cuda.matmul, "allow_tf32")


def test_since_2_10_split_k_goes_with_reduced_precision() -> None:
    """Both items of the pair are set, and a pair of equal items reads back as one value."""
    torch = new_torch()
    name = "matmul.allow_bf16_reduced_precision_reduction"
    switches.apply(torch, {name: False})

    assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction == (False, False)
    assert switches.not_in_force(torch, {name: False}) == []


def test_a_switch_that_was_flipped_back_is_named() -> None:
    """What a library changed after it was set is said with both values."""
    torch = new_torch()
    switches.apply(torch, {"matmul.fp32_precision": "ieee"})
    torch.backends.cuda.matmul.fp32_precision = "tf32"

    assert switches.not_in_force(torch, {"matmul.fp32_precision": "ieee"}) == [
        "torch switch `matmul.fp32_precision` was set to ieee and reads tf32"
    ]


def test_an_unknown_switch_names_the_nearest_known_one() -> None:
    """A misspelt switch would otherwise be thought to be on."""
    with pytest.raises(UsageError, match=r"unknown torch switch 'cudnn\.determinstic'") as caught:
        switches.check("cudnn.determinstic", True)

    assert caught.value.hint == "did you mean `cudnn.deterministic`?"


@pytest.mark.parametrize(
    ("name", "value"), [("cudnn.benchmark", "yes"), ("cudnn.benchmark", 1), ("matmul.fp32_precision", True)]
)
def test_a_value_of_another_type_is_refused(name: str, value: object) -> None:
    """1 is not true, and text is no boolean."""
    with pytest.raises(UsageError, match="takes a"):
        switches.check(name, value)


def test_a_word_out_of_the_set_is_refused() -> None:
    """Only precisions that torch knows pass."""
    with pytest.raises(UsageError, match="takes one of ieee, tf32, bf16, none, not 'fp32'"):
        switches.check("matmul.fp32_precision", "fp32")


def test_a_switch_that_this_torch_has_not_is_an_error() -> None:
    """Setting an attribute that does not exist would do nothing at all."""
    torch = SimpleNamespace(__version__="2.4.1", backends=SimpleNamespace(mkldnn=SimpleNamespace()))

    with pytest.raises(
        UsageError, match=r"cannot be set: torch 2\.4\.1 has no `torch\.backends\.mkldnn\.deterministic`"
    ):
        switches.apply(torch, {"mkldnn.deterministic": True})


@pytest.mark.torch
def test_every_boolean_switch_takes_both_values_in_the_real_torch() -> None:
    """Each switch reads back what it was set to, and is put back as it was."""
    import torch

    for name, switch in switches.SWITCHES.items():
        if switch.kind is not bool or name == "inductor.deterministic":
            continue
        before = bool(switch.get(torch))
        for value in (not before, before):
            switches.apply(torch, {name: value})

            assert switches.not_in_force(torch, {name: value}) == []
