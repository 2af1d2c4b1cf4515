"""Whether a host is fit to be the golden one (`envlock.lock.fitness`)."""

from datetime import date

import pytest
import samples

from envlock.facts import Device, Facts, Observed, absent, value
from envlock.lock.fitness import doubts, outside_its_rules
from envlock.lockfile import Rule
from envlock.policy import GPU_COUNT, rules_of

FINE: dict[str, Observed] = {
    "gpu.name": value("NVIDIA H100 80GB HBM3"),
    "gpu.ecc": value(True),
    "gpu.ecc_pending": value(True),
    "gpu.mig": value(False),
    "gpu.mig_pending": value(False),
    "gpu.event_reasons": value(("gpu idle", "sw power cap")),
    "gpu.inforom_valid": value(True),
    "gpu.retired_pages_pending": absent("not-supported"),
    "gpu.remapped_rows": value(("correctable 1", "failed no", "pending no", "uncorrectable 0")),
    "gpu.recovery_action": value("none"),
}


def node(*changes: dict[str, Observed], host: dict[str, Observed] | None = None) -> Facts:
    gpus = [Device("gpu", f"0000:0{index}:00.0", {**FINE, **changed}) for index, changed in enumerate(changes)]
    return Facts({GPU_COUNT: value(len(gpus)), "nvidia.pci_count": value(len(gpus)), **(host or {})}, gpus)


def test_a_sound_node_and_a_host_without_gpus_give_no_doubt() -> None:
    """A warning that is always there is read by nobody."""
    assert doubts(node({}, {})) == ()
    assert doubts(node()) == ()
    assert doubts(Facts({})) == ()


def test_a_driver_that_does_not_answer_is_told_loudly() -> None:
    """A lockfile made now would know nothing about the GPUs; why, and what to do."""
    count = absent("failed", detail="NVML: driver not loaded")
    (line,) = doubts(node(host={GPU_COUNT: count}))
    assert line == (
        "this host may have GPUs, and the driver did not say how many (NVML: driver not loaded):"
        " make it answer, then run `envlock lock --update-host`"
    )
    assert "did not say how many (hidden)" in doubts(node(host={GPU_COUNT: absent("hidden")}))[0]


@pytest.mark.parametrize("profile", ["identity", "bits", "strict"])
def test_a_host_that_its_own_rules_leave_out_is_told(profile: str) -> None:
    """A range of the spec that the golden host is not in: the first check of this very host would be drift."""
    host = samples.host([samples.gpu_facts(), samples.gpu_facts()])
    today = date(2026, 11, 30)

    def said(*wanted: Rule) -> tuple[str, ...]:
        return outside_its_rules(host, rules_of(host, wanted, "envlock.toml", profile), today)

    assert said() == ()
    assert said(Rule(key="nvidia.driver", rule=">=550")) == (
        "the golden host and its own rule for `nvidia.driver`: it has 535.161.08, the rule wants >=550;"
        " put the rule in the spec right, else every check says drift",
    )
    assert len(said(Rule(key="gpu.vbios", rule="one-of 96.00.99.00.01"))) == 1
    assert said(Rule(key="nvidia.driver", rule=">=550", reason="r", until="2027-01-01")) == ()
    assert said(Rule(key="system.kernel", rule=">=6.1.0-18")) == (
        "the golden host and its own rule for `system.kernel`: 6.1.0-18-amd64 has no order against 6.1.0-18;"
        " put the rule in the spec right, else every check says unknown",
    )
    assert said(Rule(key="cpu.microcode", rule="exact")) == ()  # not answered: told as such


def test_gpus_that_gave_no_facts_are_told() -> None:
    """Counted, and not looked at: a check would say unknown."""
    (line,) = doubts(node({}, host={GPU_COUNT: value(4), "nvidia.pci_count": value(4)}))
    assert line.startswith("4 GPUs are there, and 1 gave their facts: make it answer")


def test_a_gpu_that_the_driver_lost_is_told() -> None:
    """More on the bus than the driver shows; and one that is shown and says nothing."""
    assert doubts(node({}, host={"nvidia.pci_count": value(2)})) == (
        "2 GPUs are on the PCI bus, and the driver shows 1",
    )
    lost = dict.fromkeys(FINE, absent("failed", detail="GPU is lost"))
    assert doubts(node({}, lost)) == (
        "the driver tells nothing about 0000:01:00.0: make it answer, then run `envlock lock --update-host`",
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"gpu.event_reasons": value(("hw slowdown",))}, "hw slowdown was in force on 0000:01:00.0 while this host"),
        ({"gpu.event_reasons": value(("hw power brake slowdown",))}, "hw power brake slowdown was in force on"),
        ({"gpu.ecc_pending": value(False)}, "a change of ECC waits for a reset of 0000:01:00.0"),
        ({"gpu.mig": value(True)}, "a change of MIG waits for a reset of 0000:01:00.0"),
        ({"gpu.inforom_valid": value(False)}, "the InfoROM is damaged: 0000:01:00.0"),
        ({"gpu.retired_pages_pending": value(True)}, "memory pages wait to be retired: 0000:01:00.0"),
        ({"gpu.remapped_rows": value(("failed yes", "pending no"))}, "memory rows wait to be remapped, or could not"),
        ({"gpu.recovery_action": value("drain and reset")}, "the driver asks for a recovery action: 0000:01:00.0"),
    ],
)
def test_each_sign_of_an_unfit_gpu_is_one_warning_that_names_it(changed: dict[str, Observed], words: str) -> None:
    """A golden made from a GPU that is slowed down, damaged or between two modes is compared with in vain."""
    (line,) = doubts(node({}, changed))
    assert line.startswith(words)
    assert line.endswith("; a golden made now is not one to compare with")
