"""`envlock check`: is this host, are these facts, is this image as the lockfile says?"""

from pathlib import Path

import click

from envlock.cli import options


@click.command(name="check")
@options.lock_option
@options.spec_option
@click.option(
    "--facts", type=options.PATH, metavar="FILE", help="Check these facts (`-`: standard input), not this host."
)
@click.option("--image", metavar="REF", help="Check what the engine holds as REF, not this host.")
@options.format_option("text", "json")
@options.output_option
def command(
    lock: Path | None,
    spec: Path | None,
    facts: Path | None,
    image: str | None,
    output_format: str,
    output: Path | None,
) -> int:
    """Check this host, an image or a facts file against the lockfile.

    Without --image no container engine is needed. With --image only the image is
    checked, from its bytes; with --facts as well, both are.

    Exit codes: 0 match, 1 drift, 3 could not tell, 4 the image's bytes are wrong.
    """
    from envlock import checks, lockstore
    from envlock.policy import policy_of_lock
    from envlock.report import document, text

    path = lockstore.find(lock, spec, Path())
    held = lockstore.read(path)
    policy = policy_of_lock(held, str(path))
    comparison, subject = checks.check(held, policy, facts, image)
    name = held.environment.name
    if output_format == "json":
        result = document.check_document(comparison, subject, str(path), name, held.inputs())
        options.emit_json(result, output)
    else:
        options.emit(text.check_text(comparison, subject, name, str(path), options.colored(output)), output)
    return comparison.verdict.exit_code
