"""`envlock probe`."""

from pathlib import Path
from typing import Any

import click

from envlock.cli import options, program
from envlock.errors import EXIT_MATCH, UsageError
from envlock.probe import probe


@click.command(context_settings=program.SETTINGS)
@options.format_option("text", "json")
@options.output_option
@click.option("--only", default="", metavar="PREFIX", help="Only facts whose keys start with PREFIX.")
@program.program_options
def command(output_format: str, output: Path | None, only: str, **given: Any) -> int:
    """Print the facts of this host, or the CUDA libraries that a program loads.

    Every fact is there, with a value or with the reason why there is none. Exit code 0
    means that the probe worked, not that the host is as it should be: see `check`.

    With --exec or --pid the libraries that CMD or the process really loads take the
    place of the facts. CMD's standard output goes to standard error. Exit code 3: CMD
    failed, or something may have been missed.
    """
    asked = program.program(given, "envlock probe")
    if asked:
        if only:
            raise UsageError("--only chooses facts of the host", where="envlock probe", hint="leave it out")
        return _libraries(asked, output_format, output)
    facts = probe(only=only)
    if output_format == "json":
        options.emit_json(facts.to_document(), output)
        return EXIT_MATCH
    from envlock.probe.text import render

    options.emit(render(facts), output)
    return EXIT_MATCH


def _libraries(asked: program.Program, output_format: str, output: Path | None) -> int:
    loaded = program.look(asked)
    if output_format == "json":
        options.emit_json(loaded.to_document(), output)
    else:
        from envlock.probe.libraries.text import render

        options.emit(render(loaded), output)
    return program.verdict(loaded)
