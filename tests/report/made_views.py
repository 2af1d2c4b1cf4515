"""Results to render: one of each kind, and any text that a stranger could put into one."""

from hypothesis import strategies as st

from envlock.drift import Comparison, Drift, Kind
from envlock.errors import CouldNotTell, IntegrityError, UsageError
from envlock.report.view import View, of_check, of_error

LOCKFILE = """lock-version = 2

[host.facts]
"nvidia.driver" = "535.161.08"

[[host.gpu]]
count = 1

[host.gpu.facts]
"gpu.ecc" = false

[[host.gpu]]
count = 2

[host.gpu.facts]
"gpu.ecc" = true
"gpu.vbios" = "96.00.5E.00.01"

[policy.rules]
"gpu.ecc" = {rule = "exact"}

[image]
config = "sha256:00"
"""

CHANGED = Drift(
    key="gpu.vbios", device="0000:03:00.0", expected="96.00.5E.00.01", observed="96.00.A5.00.01", kind=Kind.CHANGED,
    why="firmware of the board", fix="flash the `locked` one", command="nvidia-smi -i 0000:03:00.0 -pl 650",
)  # fmt: skip
UNKNOWN = Drift(
    key="gpu.ecc", device="0000:05:00.0", expected="yes", observed="(failed)", kind=Kind.UNANSWERED,
    because="GPU is lost", why="a flipped bit goes unseen", fix="reset the GPU",
)  # fmt: skip
WARNING = Drift(
    key="nvidia.driver", expected="535.161.08", observed="550.120", kind=Kind.CHANGED, severity="warning",
    why="it chooses kernels",
)  # fmt: skip
ALLOWED = Drift(
    key="cpu.microcode", expected="(hidden)", observed="(hidden)", kind=Kind.UNANSWERED, because="hidden when locked"
)
WAIVED = Drift(
    key="gpu.power_limit", device="0000:03:00.0", expected="700000 mW", observed="650000 mW", kind=Kind.CHANGED,
    because="ticket 4711", until="2026-12-31",
)  # fmt: skip
SAME = (("cpu.model", ""), ("gpu.name", "0000:03:00.0"))

EVERYTHING = Comparison(
    drifts=(CHANGED, UNKNOWN, WARNING), allowed=(ALLOWED,), waived=(WAIVED,), same=SAME, checked=7, ignored=1,
    notes=("clocks may be locked",),
)  # fmt: skip
RESULTS = {
    "match": Comparison(same=SAME, checked=2),
    "warning": Comparison(drifts=(WARNING,), same=SAME, checked=3),
    "drift": EVERYTHING,
    "unknown": Comparison(drifts=(UNKNOWN,), same=SAME, checked=3),
    "nothing": Comparison(),
}
ERRORS = {
    "usage": UsageError("no such lockfile", where="a.lock.toml", hint="`envlock lock` writes it"),
    "engine": CouldNotTell("no engine answers;\n  tried a socket", where="docker"),
    "integrity": IntegrityError("a layer is altered", where="image"),
}


def view_of(comparison: Comparison) -> View:
    """Return the view of a check against `LOCKFILE`."""
    from envlock.report.view import lines_of

    return of_check(comparison, "node17.json", "sample", "lockfiles/sample.lock.toml", lines_of(LOCKFILE))


def every_view() -> dict[str, View]:
    """Return one view of each verdict, and of each kind of failure."""
    return {
        **{name: view_of(comparison) for name, comparison in RESULTS.items()},
        **{name: of_error(error, "check", "lockfiles/sample.lock.toml") for name, error in ERRORS.items()},
    }


NASTY = (
    "::error::x", "\n::add-mask::y", "%0A::warning::", "##[add-mask]z", "a|b", "`code`", "``", "<img src=x>", "</code>",
    "[x](http://example.invalid)", "![x](y)", "**bold**", "_em_ a_b __c__", "~~s~~", "@someone", "#12", "&amp; &#65;",
    "]]>", "<!--", "\x1b[31mred\x1b[0m", "\x00", "\ufffe", "\udc80", "\u2028", "\r\n", "\\", '"', "{0}", "{{", "\t|\t",
    "| x=1", "=1+1", "$(id)", "'; id; '", "\u202eabc", "www.example.invalid", "- a", "1. b",
    "a,line=1", ",file=x", "> c", "# d", "---", "→",
)  # fmt: skip

TEXTS = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), max_size=4).map("".join),
    st.text(max_size=60),
    st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=40),
)

DRIFTS = st.builds(
    Drift,
    key=TEXTS.filter(bool),
    device=TEXTS,
    expected=TEXTS,
    observed=TEXTS,
    kind=st.sampled_from(Kind),
    severity=st.sampled_from(("error", "warning")),
    because=TEXTS,
    why=TEXTS,
    fix=TEXTS,
    reset=st.booleans(),
    command=TEXTS,
    until=st.sampled_from(("", "2026-12-31")),
)

COMPARISONS = st.builds(
    Comparison,
    drifts=st.lists(DRIFTS, max_size=4).map(tuple),
    allowed=st.lists(DRIFTS, max_size=2).map(tuple),
    waived=st.lists(DRIFTS, max_size=2).map(tuple),
    same=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    checked=st.integers(0, 100),
    ignored=st.integers(0, 5),
    notes=st.lists(TEXTS, max_size=2).map(tuple),
)

VIEWS = st.builds(
    lambda comparison, subject, name, path: of_check(comparison, subject, name, path, {}),
    COMPARISONS, TEXTS, TEXTS, TEXTS,
)  # fmt: skip
