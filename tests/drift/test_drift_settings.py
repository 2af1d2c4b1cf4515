"""Settings that come and go: what was reset, and the command that sets it again (`envlock.drift.settings`)."""

import shlex

import pytest
from gpu_worlds import AFTER_BOOT, H100, MIG, PLACES, UNSUPPORTED, check, errors, hgx, laptop, of, warnings

from envlock.drift import Kind, Verdict
from envlock.facts import Device, Facts, Observed, absent, value
from envlock.lockfile import Rule

ALL = ",".join(PLACES)


def test_a_node_after_a_reboot_is_told_as_reset_with_the_commands_that_put_it_right() -> None:
    """Each setting that fell back is one command for all eight GPUs, with the locked value."""
    found = check(hgx(), hgx(gpu_changes=AFTER_BOOT))

    assert found.verdict is Verdict.MATCH
    assert {(drift.key, drift.command, drift.reset) for drift in found.drifts} == {
        ("gpu.persistence", f"nvidia-smi -i {ALL} -pm 1", True),
        ("gpu.compute_mode", f"nvidia-smi -i {ALL} -c EXCLUSIVE_PROCESS", True),
        ("gpu.power_limit", f"nvidia-smi -i {ALL} -pl 650", True),
        ("gpu.clock_graphics_application", f"nvidia-smi -i {ALL} -ac 2619,1410", True),
    }
    assert len(found.drifts) == 4 * 8


def test_persistence_is_switched_on_before_what_would_fall_back_without_it() -> None:
    """People run the commands in the order in which they are printed."""
    found = check(hgx(), hgx(gpu_changes=AFTER_BOOT))
    keys = list(dict.fromkeys(drift.key for drift in found.drifts if drift.command))
    assert keys[0] == "gpu.persistence"
    assert keys[1:] == sorted(keys[1:])


def test_a_reset_power_limit_says_the_default_and_why_it_fell_back() -> None:
    """With persistence off the last user that leaves is enough; else it takes a reboot or an update."""
    off, on = ({"gpu.power_limit": value(700000), "gpu.persistence": value(held)} for held in (False, True))

    assert of(check(hgx(), hgx(gpu_changes=off)), "gpu.power_limit")[0].because == (
        "reset to default: the default is 700 W; persistence is off, so limits fall back when the last user leaves"
    )
    assert of(check(hgx(), hgx(gpu_changes=on)), "gpu.power_limit")[0].because == (
        "reset to default: the default is 700 W; such a setting is lost with a reboot or a driver update"
    )


def test_a_default_that_is_a_word_is_quoted() -> None:
    """The compute mode's default is called default."""
    drift = of(check(hgx(), hgx(gpu_changes=AFTER_BOOT)), "gpu.compute_mode")[0]
    assert drift.because.startswith("reset to default: the default is `default`; ")


def test_a_limit_that_somebody_set_is_no_reset() -> None:
    """Another value than the default was chosen; the command is the same."""
    (drift,) = check(hgx(), hgx(gpu_changes={"gpu.power_limit": value(500000)}, on=(2,))).drifts

    assert (drift.reset, drift.because) == (False, "")
    assert drift.command == f"nvidia-smi -i {PLACES[2]} -pl 650"
    assert (drift.expected, drift.observed) == ("650000 within 1000 mW", "500000 mW")


@pytest.mark.parametrize("bound", [("gpu.power_limit_max", 600000), ("gpu.power_limit_min", 660000)])
def test_a_limit_that_the_board_does_not_take_is_in_no_command(bound: tuple[str, int]) -> None:
    """Another board has other bounds: to paste the command would only give an error."""
    seen = {"gpu.power_limit": value(600000), bound[0]: value(bound[1])}
    drift = of(check(hgx(), hgx(gpu_changes=seen)), "gpu.power_limit")[0]

    assert (drift.kind, drift.command) == (Kind.CHANGED, "")


def test_rounding_does_not_hide_a_reset() -> None:
    """The default is met within the tolerance that the fact's own rule has."""
    assert of(check(hgx(), hgx(gpu_changes={"gpu.power_limit": value(699900)})), "gpu.power_limit")[0].reset


def test_a_locked_default_cannot_be_reset_to() -> None:
    """Where the golden host ran with the default, a value that differs is a change."""
    golden = hgx(gpu_changes={"gpu.power_limit": value(700000)})
    (drift, *_) = check(golden, hgx()).drifts

    assert (drift.key, drift.reset, drift.because) == ("gpu.power_limit", False, "")


def test_a_value_that_the_policy_no_longer_wants_is_no_reset() -> None:
    """Locked and observed are both the default; it is the rule that asks for another value."""
    golden = hgx(gpu_changes={"gpu.power_limit": value(700000)})
    rule = Rule(key="gpu.power_limit", rule="one-of 650000")
    assert {drift.reset for drift in check(golden, golden, rule).drifts} == {False}


def test_the_default_is_read_from_the_lockfile_where_the_gpu_does_not_say() -> None:
    """A driver that stopped telling the default does not hide a reset."""
    changes = {"gpu.power_limit": value(700000), "gpu.power_limit_default": absent("no-permission")}
    assert of(check(hgx(), hgx(gpu_changes=changes)), "gpu.power_limit")[0].reset


def test_a_default_that_nobody_knows_is_no_claim() -> None:
    """Without a default there is a difference, and a command, and no story."""
    unknown = {"gpu.power_limit_default": UNSUPPORTED}
    golden = hgx(gpu_changes=unknown)
    (drift, *_) = of(check(golden, hgx(gpu_changes={**unknown, "gpu.power_limit": value(700000)})), "gpu.power_limit")

    assert (drift.reset, drift.because) == (False, "")
    assert drift.command


def test_gpus_with_different_drift_have_commands_of_their_own() -> None:
    """Three GPUs at the default and one at another limit are two commands."""
    observed = hgx(gpu_changes={"gpu.power_limit": value(700000)}, on=(0, 4, 7))
    (other,) = (gpu for gpu in observed.gpus() if gpu.ident == PLACES[5])
    other.facts["gpu.power_limit"] = value(600000)

    assert {drift.command for drift in check(hgx(), observed).drifts} == {
        f"nvidia-smi -i {PLACES[0]},{PLACES[4]},{PLACES[7]} -pl 650",
        f"nvidia-smi -i {PLACES[5]} -pl 650",
    }


# ---- modes that wait for a reset -------------------------------------------------------------


def test_ecc_that_was_switched_on_and_waits_says_so() -> None:
    """The value is on its way: the command is the reset that brings it."""
    found = check(hgx(), hgx(gpu_changes={"gpu.ecc": value(False)}, on=(1,)))
    (drift,) = found.drifts

    assert found.verdict is Verdict.DRIFT
    assert drift.because == "a change waits for a reset: ECC will then be on"
    assert drift.command == f"nvidia-smi --gpu-reset -i {PLACES[1]}"


def test_ecc_that_will_go_off_with_the_next_reset_is_a_warning_of_its_own() -> None:
    """Today all is as locked; the next reset will change it."""
    found = check(hgx(), hgx(gpu_changes={"gpu.ecc_pending": value(False)}, on=(1,)))
    (drift,) = found.drifts

    assert found.verdict is Verdict.MATCH
    assert (drift.key, drift.because) == ("gpu.ecc_pending", "a change waits for a reset: ECC will then be off")
    assert drift.command == f"nvidia-smi -i {PLACES[1]} -e 1"


def test_ecc_off_now_and_after_a_reset_is_to_be_set() -> None:
    """No change waits; the default would have been on, so it was no reset; both modes are one difference."""
    off = {"gpu.ecc": value(False), "gpu.ecc_pending": value(False)}
    found = check(hgx(), hgx(gpu_changes=off, on=(1,)))

    assert errors(found) == {("gpu.ecc", Kind.CHANGED)}
    assert {(drift.command, drift.because, drift.reset) for drift in found.drifts} == {
        (f"nvidia-smi -i {PLACES[1]} -e 1", "", False)
    }
    assert [drift.key for drift in found.drifts] == ["gpu.ecc"]


@pytest.mark.parametrize(
    "rules",
    [
        (Rule(key="gpu.ecc", rule="ignore"),),
        (Rule(key="gpu.ecc", rule="one-of true, false"),),
        (Rule(key="gpu.ecc", rule="exact", severity="warning"), Rule(key="gpu.ecc_pending", rule="exact")),
    ],
)
def test_a_mode_after_a_reset_is_told_where_the_mode_itself_does_not_tell_it(rules: tuple[Rule, ...]) -> None:
    """Where the rule of the mode lets it pass, or takes it more lightly, nothing is hidden by it."""
    off = {"gpu.ecc": value(False), "gpu.ecc_pending": value(False)}
    found = check(hgx(), hgx(gpu_changes=off, on=(1,)), *rules)
    assert [(drift.key, drift.kind) for drift in found.drifts if drift.key == "gpu.ecc_pending"] == [
        ("gpu.ecc_pending", Kind.CHANGED)
    ]


# ---- MIG -------------------------------------------------------------------------------------


def test_mig_instances_that_a_reboot_took_are_created_by_one_command() -> None:
    """The mode is on, the layout is empty: the command is built from the locked layout."""
    found = check(hgx(gpu_changes=MIG), hgx(gpu_changes={**MIG, "gpu.mig_layout": value(())}))

    assert errors(found) == {("gpu.mig_layout", Kind.CHANGED)}
    drift = found.drifts[0]
    assert (drift.observed, drift.reset) == ("(none)", True)
    assert drift.because == "instances are gone (they do not survive a reboot)"
    assert drift.command == f"nvidia-smi mig -i {ALL} -cgi 1g.10gb:6,2g.20gb:4,3g.40gb:0 -C"


def test_a_layout_without_placements_is_created_without() -> None:
    """Where the source told none, none is made up: the largest come first, and media extensions keep their name."""
    layout = value(("1g.10gb", "1g.10gb+me", "3g.40gb"))
    golden = hgx(gpu_changes={**MIG, "gpu.mig_layout": layout})
    found = check(golden, hgx(gpu_changes={**MIG, "gpu.mig_layout": value(())}))

    assert found.drifts[0].command.endswith(" -cgi 3g.40gb,1g.10gb,1g.10gb+me -C")


@pytest.mark.parametrize(
    ("golden", "seen"),
    [
        (MIG["gpu.mig_layout"], value(("7g.80gb@0",))),  # what is there would have to go first
        (MIG["gpu.mig_layout"], UNSUPPORTED),  # MIG is off
        (value(("1c.3g.40gb@0", "1c.3g.40gb@0")), value(())),  # compute instances take more than one command
        (value(("3g.40gb@0; reboot",)), value(())),
    ],
)
def test_where_no_single_command_does_there_is_none(golden: Observed, seen: Observed) -> None:
    """A command that would fail, or do half of it, is not printed."""
    found = check(hgx(gpu_changes={**MIG, "gpu.mig_layout": golden}), hgx(gpu_changes={**MIG, "gpu.mig_layout": seen}))
    assert {drift.command for drift in of(found, "gpu.mig_layout")} == {""}
    assert of(found, "gpu.mig_layout")[0].fix


def test_mig_that_is_off_is_switched_on() -> None:
    """The mode has its own command; MIG off is what a GPU starts with."""
    off = {"gpu.mig": value(False), "gpu.mig_pending": value(False), "gpu.mig_layout": UNSUPPORTED}
    drift = of(check(hgx(gpu_changes=MIG), hgx(gpu_changes=off)), "gpu.mig")[0]

    assert (drift.reset, drift.because) == (True, "reset to default: the default is off")
    assert drift.command == f"nvidia-smi -i {ALL} -mig 1"


# ---- CPU -------------------------------------------------------------------------------------


def test_cpu_settings_after_a_reboot_have_their_commands() -> None:
    """Limits fall back to what the CPU can, boost to on; which governor a kernel starts with it does not tell."""
    booted = {
        "cpu.governor": value("powersave"), "cpu.frequency_max": value(3800), "cpu.boost": value(True),
        "system.transparent_hugepage": value("always"),
    }  # fmt: skip
    found = check(hgx(), hgx(booted))

    assert {drift.key: (drift.reset, drift.command) for drift in found.drifts} == {
        "cpu.governor": (False, "cpupower frequency-set -g performance"),
        "cpu.frequency_max": (True, "cpupower frequency-set -u 3000MHz"),
        "cpu.boost": (True, ""),
        "system.transparent_hugepage": (False, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
    }
    assert of(found, "cpu.frequency_max")[0].because == "reset to default: the default is 3800 MHz"


def test_limits_that_differ_between_cores_have_no_single_command() -> None:
    """A value per kind of core cannot be set for all at once."""
    golden = hgx({"cpu.frequency_max": value((2400, 3000))})
    assert of(check(golden, hgx()), "cpu.frequency_max")[0].command == ""


# ---- what is printed is safe to paste ----------------------------------------------------------


@pytest.mark.parametrize("bad", ["performance; reboot", "$(reboot)", "a b", "`x`", "", "x" * 65, "a\nb", "-r", "--all"])
def test_a_value_that_a_shell_would_act_on_is_in_no_command(bad: str) -> None:
    """A lockfile may come from a stranger, and people paste commands."""
    golden = hgx({"cpu.governor": value(bad)})
    assert of(check(golden, hgx()), "cpu.governor")[0].command == ""


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("gpu.power_limit", -5000),
        ("gpu.power_limit", 0),
        ("gpu.clock_graphics_application", -1),
        ("gpu.clock_memory_application", "-x"),
        ("gpu.compute_mode", "-r"),
    ],
)
def test_a_value_that_nvidia_smi_would_take_for_an_option_is_in_no_command(key: str, bad: int | str) -> None:
    """What begins with a hyphen, and a limit that is none."""
    found = check(hgx(gpu_changes={key: value(bad)}), hgx(gpu_changes=AFTER_BOOT))
    assert of(found, key)
    assert {drift.command for drift in of(found, key)} == {""}


def test_a_place_that_is_no_pci_address_is_in_no_command() -> None:
    """Facts may come from a stranger too."""
    facts = hgx(gpu_changes=AFTER_BOOT)
    odd = Facts(facts.host, [Device("gpu", gpu.ident + "; reboot", gpu.facts) for gpu in facts.gpus()])
    found = check(hgx(), odd)

    assert found.drifts
    assert {drift.command for drift in found.drifts} == {""}


def test_every_command_is_one_program_with_plain_arguments() -> None:
    """Nothing in it needs quotes, and each can be pasted as it is."""
    worlds = (
        check(hgx(), hgx(gpu_changes=AFTER_BOOT)),
        check(hgx(gpu_changes=MIG), hgx(gpu_changes={**MIG, "gpu.mig_layout": value(())})),
        check(hgx(), hgx(gpu_changes={"gpu.ecc": value(False)})),
    )
    commands = {drift.command for found in worlds for drift in found.drifts}

    assert len(commands) == 6
    for command in commands:
        assert shlex.split(command) == command.split()
        assert command.startswith("nvidia-smi ")


def test_what_was_not_answered_has_no_command() -> None:
    """Nobody knows whether it needs one."""
    found = check(hgx(), hgx(gpu_changes={"gpu.power_limit": absent("failed", detail="GPU is lost")}, on=(0,)))
    (drift,) = found.drifts

    assert (drift.kind, drift.command, drift.reset) == (Kind.UNANSWERED, "", False)


def test_a_laptop_that_cannot_tell_its_limit_is_no_reset() -> None:
    """`not-supported` on both sides agrees; persistence off is as locked."""
    found = check(laptop(), laptop())
    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
    told = check(laptop(), laptop({"gpu.power_limit": value(115000)}))
    assert [(drift.key, drift.reset, drift.command) for drift in told.drifts] == [("gpu.power_limit", False, "")]


# ---- clocks that cannot be read back -----------------------------------------------------------


def test_locked_clocks_are_never_claimed_and_a_hint_of_them_is_a_note() -> None:
    """A setting holds the clocks and the application clocks are not it: a remark that judges nothing."""
    held = {
        "gpu.event_reasons": value(("applications clocks setting",)),
        "gpu.clock_graphics_application": value(1980),
    }
    found = check(hgx(gpu_changes=held), hgx(gpu_changes=held))

    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
    (note,) = found.notes
    assert note.startswith(f"a setting holds the clocks of {PLACES[0]}, ")
    assert note.endswith("it may be locked clocks (`nvidia-smi -lgc`), which no driver tells")
    assert "gpu.clock_locked" not in {key for key, _ in found.same}


def test_application_clocks_that_were_set_explain_themselves() -> None:
    """No hint of locked clocks where a setting that can be read holds them."""
    held = {"gpu.event_reasons": value(("applications clocks setting",))}
    assert H100["gpu.clock_graphics_application"] != H100["gpu.clock_graphics_application_default"]
    assert check(hgx(gpu_changes=held), hgx(gpu_changes=held)).notes == ()


def test_a_slowdown_by_the_hardware_and_the_probe_s_own_remarks_are_notes() -> None:
    """What a person should know before believing the comparison."""
    facts = hgx(gpu_changes={"gpu.event_reasons": value(("hw power brake slowdown", "sw power cap"))}, on=(6,))
    noted = Facts(facts.host, facts.devices, ["nvidia-smi and NVML disagree"])

    assert check(hgx(), noted).notes == (
        "nvidia-smi and NVML disagree", f"hw power brake slowdown was in force on {PLACES[6]}"
    )  # fmt: skip


def test_reset_settings_decide_nothing_under_the_default_profile() -> None:
    """They change speed: warnings. Under `strict` they are errors."""
    observed = hgx(gpu_changes=AFTER_BOOT)
    assert warnings(check(hgx(), observed)) == set(AFTER_BOOT)
    assert {key for key, _ in errors(check(hgx(), observed, profile="strict"))} == set(AFTER_BOOT)
