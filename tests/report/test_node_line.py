"""The line and the exit code for a node's supervisor."""

import dataclasses
import re

import pytest
from hypothesis import given
from made_views import ALLOWED, CHANGED, VIEWS, WARNING, every_view, view_of

from envlock.drift import Comparison, Kind, unanswered
from envlock.report import formats, node
from envlock.report.view import View

VIEWS_BY_NAME = every_view()

# The table of docs/exit-codes.md: slurm, npd, nagios.
CODES = {
    "match": (0, 0, 0),
    "warning": (0, 0, 1),
    "drift": (1, 1, 2),
    "unknown": (3, 2, 3),
    "nothing": (0, 0, 0),
    "usage": (2, 2, 3),
    "engine": (3, 2, 3),
    "integrity": (4, 1, 2),
}


@pytest.mark.parametrize(("name", "codes"), CODES.items())
def test_each_protocol_has_its_codes(name: str, codes: tuple[int, int, int]) -> None:
    """As the reader of the code understands it; unknown is never OK."""
    view = VIEWS_BY_NAME[name]
    assert tuple(node.exit_code(view, protocol) for protocol in ("slurm", "npd", "nagios")) == codes


def test_the_line_says_what_decides() -> None:
    """The verdict, how many, the first fact."""
    assert node.line(VIEWS_BY_NAME["match"], "npd") == "envlock: match: 2 checked, no difference"
    assert node.line(VIEWS_BY_NAME["drift"], "slurm") == (
        "envlock: drift: gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 -> 96.00.A5.00.01"
    )
    assert node.line(VIEWS_BY_NAME["usage"], "npd") == "envlock: unknown: a.lock.toml: no such lockfile"
    # Of a waiver that ended and the difference that it covered, the difference is the reason to drain.
    expired = dataclasses.replace(CHANGED, kind=Kind.EXPIRED, device="", observed="expired")
    assert node.line(view_of(Comparison(drifts=(expired, CHANGED))), "slurm") == (
        "envlock: drift (2): gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 -> 96.00.A5.00.01"
    )
    eight = tuple(dataclasses.replace(CHANGED, device=f"0000:0{number}:00.0") for number in range(8))
    assert node.line(view_of(Comparison(drifts=eight)), "npd") == (
        "envlock: drift (8): gpu.vbios on 8 devices: 96.00.5E.00.01 -> 96.00.A5.00.01"
    )


def test_nagios_gets_its_word_and_its_numbers() -> None:
    """The word that belongs to the code, a text, a bar, the performance data."""
    assert node.line(VIEWS_BY_NAME["warning"], "nagios") == (
        "ENVLOCK WARNING - match, with a warning: nvidia.driver: 535.161.08 -> 550.120"
        " | checked=3 drift=0 unknown=0 warning=1 allowed=0 waived=0 ignored=0"
    )
    assert node.line(VIEWS_BY_NAME["engine"], "nagios") == (
        "ENVLOCK UNKNOWN - unknown: docker: no engine answers; tried a socket"
    )


def test_a_value_is_escaped_once() -> None:
    """What is no printable ASCII is an escape; a backslash stays one."""
    odd = dataclasses.replace(CHANGED, observed="a\nb é 'q' \\")
    assert node.line(view_of(Comparison(drifts=(odd,))), "nagios").startswith(
        "ENVLOCK CRITICAL - drift: gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 -> a\\nb \\xe9 'q' \\ | "
    )


@given(VIEWS)
def test_every_line_is_one_short_line_of_ascii(view: View) -> None:
    """Bytes are counted by the reader, not letters; nothing but the last bar of Nagios is one."""
    most = {"slurm": 80, "npd": 80, "nagios": 1000}
    for protocol in formats.PROTOCOLS:
        line = node.line(view, protocol)
        assert line.isascii()
        assert line.isprintable()
        assert len(line) <= most[protocol]
    assert re.fullmatch(r"ENVLOCK (OK|WARNING|CRITICAL|UNKNOWN) - [^|]* \| ([a-z]+=\d+ ?)+", node.line(view, "nagios"))


def test_only_what_was_found_about_the_node_counts_against_it() -> None:
    """A lockfile without a host, a waiver that ended, a warning: these would drain a whole cluster."""
    expired = dataclasses.replace(CHANGED, kind=Kind.EXPIRED, device="")
    assert node.says_of_the_node(VIEWS_BY_NAME["drift"])
    assert node.says_of_the_node(VIEWS_BY_NAME["unknown"])
    assert node.says_of_the_node(view_of(Comparison(drifts=(expired, CHANGED))))
    assert not node.says_of_the_node(view_of(Comparison(drifts=(expired,))))
    assert not node.says_of_the_node(
        view_of(unanswered("host", "(not in the lockfile)", "(not compared)", "record it"))
    )
    assert not node.says_of_the_node(view_of(Comparison(drifts=(WARNING,), allowed=(ALLOWED,))))
    assert not any(node.says_of_the_node(VIEWS_BY_NAME[name]) for name in ("usage", "engine", "integrity"))
