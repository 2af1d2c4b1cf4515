"""`envlock diff`: what differs between two lockfiles, two facts files, or one of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envlock import documents, lockfile
from envlock.cli import gate, options
from envlock.errors import UsageError
from envlock.facts import Facts
from envlock.lockfile import Lockfile
from envlock.report import formats

if TYPE_CHECKING:
    from envlock.difference import Differences
    from envlock.probe.libraries.values import Loaded


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two files, read."""

    name: str
    held: "Lockfile | Facts | Loaded"

    @property
    def kind(self) -> str:
        return (
            "lockfile" if isinstance(self.held, Lockfile) else "facts" if isinstance(self.held, Facts) else "libraries"
        )


@click.command(name="diff")
@click.argument("before", type=options.PATH, metavar="A")
@click.argument("after", type=options.PATH, metavar="B")
@options.format_option(*formats.NAMES)
@options.output_option
def command(before: Path, after: Path, output_format: str, output: Path | None) -> int:
    """Show what differs between two lockfiles, facts files or lists of libraries.

    A and B are lockfiles or the output of `envlock probe --format json`, in any
    combination (`-` is standard input). Of a lockfile and facts, the host's
    facts are compared, as the lockfile's policy judges them. What `envlock probe
    --exec` or `--pid` printed is compared with its like.

    Exit codes: 0 the same, 1 different, 3 one side does not say.
    """
    from envlock.difference import diff_facts, diff_lock_with_facts, reverse
    from envlock.lockdiff import diff_lockfiles
    from envlock.policy import policy_of_lock
    from envlock.report.diff import diff_document, diff_text, diff_view

    if before == after == options.STANDARD:
        raise UsageError("standard input can be read only once", where="envlock diff", hint="name a file for A or B")
    left, right = _read(before), _read(after)
    compared = "the host's facts"
    if isinstance(left.held, Lockfile) and isinstance(right.held, Lockfile):
        found = diff_lockfiles(left.held, right.held)
        compared = "every section of the lockfiles"
    elif isinstance(left.held, Lockfile) and isinstance(right.held, Facts):
        found = diff_lock_with_facts(left.held, right.held, policy_of_lock(left.held, left.name), options.today())
    elif isinstance(left.held, Facts) and isinstance(right.held, Lockfile):
        found = diff_lock_with_facts(right.held, left.held, policy_of_lock(right.held, right.name), options.today())
        found = reverse(found)
    elif isinstance(left.held, Facts) and isinstance(right.held, Facts):
        found = diff_facts(left.held, right.held)
    else:
        found, compared = _diff_libraries(left, right), "the loaded libraries"
    if output_format == "json":
        sides = [{"path": side.name, "kind": side.kind} for side in (left, right)]
        options.emit_json(diff_document(found, *sides), output)
    elif output_format == "text":
        options.emit(diff_text(found, left.name, right.name, compared, options.colored(output)), output)
    else:
        # The items point into a lockfile, the newer one where both are.
        path = next((p for p, side in ((after, right), (before, left)) if side.kind == "lockfile"), after)
        place = "" if path == options.STANDARD else gate.in_repository(path)
        view = diff_view(found, (left.name, right.name), compared, place, gate.lines(path) if place else {})
        return gate.answer(view, None, output_format, output)
    return found.verdict.exit_code


def _diff_libraries(left: _Side, right: _Side) -> "Differences":
    from envlock import libraries
    from envlock.probe.libraries.values import Loaded

    if not (isinstance(left.held, Loaded) and isinstance(right.held, Loaded)):
        hint = "`envlock check --exec` holds what a program loads against a lockfile"
        raise UsageError(f"{left.kind} and {right.kind} cannot be compared", where="envlock diff", hint=hint)
    return libraries.diff(left.held, right.held)


def _read(path: Path) -> _Side:
    """Read one side; what it is shows in its first letter, and in the schema that a JSON object names."""
    data = documents.read(path)
    name = documents.name(path)
    if data.lstrip()[:1] == b"{":
        document = documents.parse(data, name)
        if str(document.get("schema", "")).startswith("envlock.libraries/"):
            from envlock import libraries

            return _Side(name, libraries.from_document(document, name))
        return _Side(name, Facts.from_document(document, name))
    return _Side(name, lockfile.parse(data, name))
