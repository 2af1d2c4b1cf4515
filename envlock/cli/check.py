"""`envlock check`: is this host, are these facts, is this image as the lockfile says?"""

from pathlib import Path
from typing import Any

import click

from envlock.cli import early, gate, options, program
from envlock.report import formats


@click.command(name="check", context_settings=program.SETTINGS)
@options.lock_option
@options.spec_option
@click.option(
    "--facts", type=options.PATH, metavar="FILE", help="Check these facts (`-`: standard input), not this host."
)
@click.option("--image", metavar="REF", help="Check what the engine holds as REF, not this host.")
@options.format_option(*formats.NAMES)
@click.option(
    "--as",
    "protocol",
    type=click.Choice(formats.PROTOCOLS),
    envvar="ENVLOCK_CHECK_AS",
    help="One line and the exit codes of that supervisor.",
)
@click.option("--drain", is_flag=True, help="With --as slurm: drain the node, unless it is as locked.")
@click.option("--node", metavar="NAME", help="The node that is meant [default: SLURMD_NODENAME, else this host].")
@options.output_option
@program.program_options
@click.pass_context
def command(
    context: click.Context,
    /,
    lock: Path | None,
    spec: Path | None,
    facts: Path | None,
    image: str | None,
    output_format: str,
    protocol: str | None,
    drain: bool,
    node: str | None,
    output: Path | None,
    **given: Any,
) -> int:
    """Check this host, an image or a facts file against the lockfile.

    Without --image no container engine is needed. With --image only the image is
    checked, from its bytes; with --facts as well, both are. With --exec or --pid the
    CUDA libraries that a program really loads are held against the locked packages.

    Exit codes: 0 match, 1 drift, 3 could not tell, 4 the image's bytes are wrong.
    With --as npd or nagios they are the supervisor's own (docs/exit-codes.md).
    """
    protocol = gate.protocol(context)
    asked = program.program(given, "envlock check")
    # A driver takes longest: it is asked before anything else is so much as imported.
    host = None if facts or image or asked else early.host()
    from envlock import checks, lockstore
    from envlock.policy import policy_of_lock
    from envlock.report.text import check_text

    path = lockstore.find(lock, spec, Path())
    held = lockstore.read(path)
    policy = policy_of_lock(held, str(path))
    loaded = program.look(asked) if asked else None
    comparison, subject = checks.check(held, policy, facts, image, options.today(), loaded, host)
    name = held.environment.name
    if output_format == "text" and not protocol:
        options.emit(check_text(comparison, subject, name, str(path), options.colored(output)), output)
        return comparison.verdict.exit_code
    if output_format == "json" and not protocol:
        from envlock.report.document import check_document

        options.emit_json(check_document(comparison, subject, str(path), name, held.inputs()), output)
        return comparison.verdict.exit_code
    from envlock.report.view import of_check

    view = of_check(comparison, subject, name, gate.in_repository(path), gate.lines(path))
    return gate.answer(view, protocol, output_format, output, (drain, node))
