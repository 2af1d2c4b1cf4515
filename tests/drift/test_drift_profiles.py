"""Policy profiles over whole hosts: what each makes of a reboot, a repair, another slot, an update."""

import pytest
from gpu_worlds import AFTER_BOOT, CPU, H100, PLACES, check, errors, hgx, laptop, locked, warnings, without

from envlock.drift import Kind, Verdict
from envlock.facts import Facts, absent, value
from envlock.lockfile import POLICY_PROFILES, Rule
from envlock.policy import GPU_COUNT, default_rules, not_told
from envlock.registry import REGISTRY

DRIVER_UPDATE = {
    "nvidia.driver": value("550.120"), "nvidia.kernel_driver": value("550.120"), "nvidia.cuda": value("12.4"),
}  # fmt: skip
RETURNED = {
    # Another board of the same model: other revision, firmware of its day, the same silicon.
    "gpu.board_part": value("692-2G520-0205-000"), "gpu.vbios": value("96.00.A5.00.01"),
    "gpu.inforom": value("G520.0200.00.07"), "gpu.uuid": value("GPU-new"),
}  # fmt: skip
OTHER_SLOT = {"gpu.cpu_affinity": value("56-111,168-223"), "gpu.pcie_width": value(8)}


@pytest.mark.parametrize("profile", POLICY_PROFILES)
def test_a_host_matches_itself_under_every_profile(profile: str) -> None:
    """A lockfile without a hand-written policy says match on its own golden host."""
    for facts in (hgx(), laptop()):
        found = check(facts, facts, profile=profile)
        assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
        assert found.checked + found.ignored == len(found.same) + found.ignored


@pytest.mark.parametrize(
    ("observed", "identity", "bits", "strict"),
    [
        (hgx(gpu_changes=AFTER_BOOT), "match", "match", "drift"),
        (hgx(DRIVER_UPDATE), "match", "drift", "drift"),
        (hgx(gpu_changes=RETURNED, on=(2,)), "match", "drift", "drift"),
        (hgx(gpu_changes=OTHER_SLOT, on=(2,)), "match", "match", "drift"),
        (hgx(gpu_changes={"gpu.ecc": value(False)}, on=(2,)), "match", "drift", "drift"),
        (hgx(gpu_changes={"gpu.fabric": value("not started")}), "match", "drift", "drift"),
        (hgx({"system.kernel": value("6.1.0-21-amd64")}), "match", "match", "drift"),
        (hgx({"cpu.model": value(85)}), "drift", "drift", "drift"),
        (hgx(gpu_changes={"gpu.pci_id": value("10de:2324")}, on=(2,)), "drift", "drift", "drift"),
        (hgx(gpu_changes={"gpu.memory": value(95830)}), "drift", "drift", "drift"),
        (without(hgx(), 3, {GPU_COUNT: value(7)}), "drift", "drift", "drift"),
        (hgx({"nvidia.driver": absent("failed")}), "match", "unknown", "unknown"),
        (hgx({"system.kernel": absent("failed")}), "match", "match", "unknown"),
        (hgx(gpu_changes={"gpu.pci_id": absent("failed")}, on=(2,)), "unknown", "unknown", "unknown"),
        (laptop(), "drift", "drift", "drift"),
    ],
    ids=[
        "reboot", "driver update", "board replaced", "other slot", "ECC off", "fabric down", "kernel", "other CPU",
        "other model", "other memory", "GPU missing", "driver mute", "kernel mute", "GPU mute", "laptop",
    ],
)  # fmt: skip
def test_what_each_profile_makes_of_a_change(observed: Facts, identity: str, bits: str, strict: str) -> None:
    """`identity` asks for the same kind of machine, `bits` for what can change bits, `strict` for everything."""
    verdicts = {profile: check(hgx(), observed, profile=profile).verdict for profile in POLICY_PROFILES}
    assert verdicts == {"identity": identity, "bits": bits, "strict": strict}


def test_a_replaced_board_is_told_on_that_gpu_alone() -> None:
    """One board of the golden node is of another part already: the pairing takes none for another."""
    found = check(hgx(), hgx(gpu_changes=RETURNED, on=(2,)))

    assert {drift.device for drift in found.drifts} == {PLACES[2]}
    assert errors(found) == {("gpu.vbios", Kind.CHANGED)}
    assert warnings(found) == {"gpu.board_part", "gpu.inforom"}
    assert warnings(check(hgx(), hgx(gpu_changes=RETURNED, on=(2,)), profile="identity")) == {
        "gpu.board_part", "gpu.vbios"
    }  # fmt: skip


def test_boards_that_changed_places_are_the_same_node() -> None:
    """GPUs are a multiset: which slot holds which board is nobody's fact."""
    facts = hgx()
    held = [gpu.facts for gpu in facts.gpus()]
    turned = [type(gpu)("gpu", gpu.ident, held[(index + 3) % 8]) for index, gpu in enumerate(facts.gpus())]
    found = check(facts, Facts(facts.host, turned), profile="strict")
    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())


def test_bits_is_the_registry_and_the_profile_without_a_name() -> None:
    """What the registry says can change bits is an error, the rest a warning."""
    host = locked(hgx())
    rules = default_rules(host)
    assert rules == default_rules(host, "bits")
    for rule in rules:
        entry = REGISTRY[rule.key]
        assert (rule.rule, rule.severity) == (entry.rule, entry.severity)


def test_strict_judges_by_the_same_rules_and_takes_nothing_lightly() -> None:
    """Tolerances for rounding stay; every severity is an error."""
    for rule in default_rules(locked(hgx()), "strict"):
        assert (rule.rule, rule.severity) == (REGISTRY[rule.key].rule, "error")


def test_identity_judges_hardware_and_ignores_the_rest() -> None:
    """Model, board, memory, count and CPU model; no driver, setting, firmware image or kernel."""
    rules = {rule.key: rule for rule in default_rules(locked(hgx()), "identity")}
    judged = {key for key, rule in rules.items() if rule.rule != "ignore"}

    assert {"gpu.pci_id", "gpu.name", "gpu.board_part", "gpu.memory", "nvidia.gpu_count", "cpu.model"} <= judged
    assert not {"nvidia.driver", "gpu.ecc", "gpu.power_limit", "gpu.topology", "system.kernel"} & judged
    assert rules["gpu.power_limit"] == Rule(key="gpu.power_limit", rule="ignore", severity="warning")
    assert rules["gpu.name"].severity == "warning"  # drivers rename models


@pytest.mark.parametrize("profile", POLICY_PROFILES)
def test_an_unknown_number_of_gpus_is_allowed_by_no_profile(profile: str) -> None:
    """Locked while the driver was dead, checked while it is dead: unknown, until a person says otherwise."""
    dead = {GPU_COUNT: absent("failed", detail="driver not loaded")}
    facts = Facts({**CPU, **dead})
    assert check(facts, facts, profile=profile).verdict is Verdict.UNKNOWN
    by_name = Rule(key=GPU_COUNT, rule="exact", unknown="allow", reason="no driver on purpose")
    assert check(facts, facts, by_name, profile=profile).verdict is Verdict.MATCH


def test_what_was_hidden_is_allowed_by_name_under_bits_and_by_nobody_under_strict() -> None:
    """Strict leaves it to a person; the facts that need one are named."""
    facts = hgx({"cpu.microcode": absent("hidden")})
    host = locked(facts)
    assert check(facts, facts).verdict is Verdict.MATCH
    assert check(facts, facts, profile="strict").verdict is Verdict.UNKNOWN
    assert not_told(host, default_rules(host)) == ()
    assert not_told(host, default_rules(host, "strict")) == ("cpu.microcode",)
    assert not_told(host, default_rules(host, "identity")) == ()


def test_a_fact_that_the_registry_does_not_know_is_exact_where_it_is_judged() -> None:
    """From a newer envlock: an error under `bits` and `strict`, none of the identity."""
    host = locked(hgx())
    odd = type(host)(facts=(*host.facts, ("new.fact", value(1))), gpus=host.gpus)
    found = {profile: {r.key: r for r in default_rules(odd, profile)}["new.fact"] for profile in POLICY_PROFILES}
    assert (found["bits"].rule, found["bits"].severity) == ("exact", "error")
    assert found["strict"] == found["bits"]
    assert found["identity"].rule == "ignore"


def test_a_fact_that_is_new_in_the_registry_is_not_judged_by_an_old_lockfile() -> None:
    """What was not locked is nobody's claim."""
    host = dict(hgx().host)
    old = Facts({key: seen for key, seen in host.items() if key != "cpu.boost"}, hgx().gpus())
    found = check(old, hgx())
    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
    assert ("cpu.boost", "") not in found.same


def test_the_name_of_a_gpu_is_compared_whole() -> None:
    """One name that begins with another is another GPU."""
    renamed = hgx(gpu_changes={"gpu.name": value("NVIDIA H100")}, on=(0,))
    assert warnings(check(hgx(), renamed)) == {"gpu.name"}
    rule = Rule(key="gpu.name", rule="one-of NVIDIA H100")
    assert {drift.key for drift in check(hgx(), hgx(), rule).drifts} == {"gpu.name"}
    assert str(H100["gpu.name"].value).startswith("NVIDIA H100 ")


@pytest.mark.parametrize("rule", ["exact", "one-of 96.00.99.00.01, 96.00.A5.00.01", ">=96.00.A5, <97", "==96.00.A5.*"])
def test_the_letter_case_of_firmware_decides_under_no_rule(rule: str) -> None:
    """One board prints its VBIOS in either case, depending on the system."""
    golden, seen = ({"gpu.vbios": value(text)} for text in ("96.00.A5.00.01", "96.00.a5.00.01"))
    found = check(hgx(gpu_changes=golden), hgx(gpu_changes=seen), Rule(key="gpu.vbios", rule=rule))
    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
