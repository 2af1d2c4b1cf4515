"""`envlock probe`."""

from pathlib import Path
from typing import Any

import click

from envlock.cli import options, program
from envlock.errors import EXIT_MATCH, UsageError
from envlock.facts import Facts
from envlock.probe import probe, recorded_smi


@click.command(context_settings=program.SETTINGS)
@options.format_option("text", "json")
@options.output_option
@click.option("--only", default="", metavar="PREFIX", help="Only facts whose keys start with PREFIX.")
@click.option(
    "--nvidia-smi",
    "smi",
    type=options.PATH,
    metavar="FILE",
    help="Facts from what nvidia-smi printed (`-`: standard input), not from this host.",
)
@click.option("--cross-check", is_flag=True, help="Ask nvidia-smi beside NVML, and note where they disagree.")
@click.option("--no-identity", is_flag=True, help="Leave out what names one machine or part: UUIDs, serials.")
@program.program_options
def command(
    output_format: str,
    output: Path | None,
    only: str,
    smi: Path | None,
    cross_check: bool,
    no_identity: bool,
    **given: Any,
) -> int:
    """Print the facts of this host, or the CUDA libraries that a program loads.

    Every fact is there, with a value or with the reason why there is none. Exit code 0
    means that the probe worked, not that the host is as it should be: see `check`.

    With --nvidia-smi, FILE is what any of nvidia-smi's commands printed on some
    host, best `nvidia-smi -q -x`. The document then holds the facts about its GPUs and
    driver, and no others.

    With --exec or --pid the libraries that CMD or the process really loads take the
    place of the facts. CMD's standard output goes to standard error. Exit code 3: CMD
    failed, or something may have been missed.
    """
    asked = program.program(given, "envlock probe")
    if asked:
        if only or smi or cross_check or no_identity:
            name = "--only" if only else "--nvidia-smi" if smi else "--cross-check" if cross_check else "--no-identity"
            raise UsageError(f"{name} is about facts of a host", where="envlock probe", hint="leave it out")
        return _libraries(asked, output_format, output)
    if no_identity:
        from envlock.probe.identity import observed_without_identity

        facts = observed_without_identity(lambda: _facts(only, smi, cross_check))
    else:
        facts = _facts(only, smi, cross_check)
    if output_format == "json":
        options.emit_json(facts.to_document(), output)
        return EXIT_MATCH
    from envlock.probe.text import render

    options.emit(render(facts), output)
    return EXIT_MATCH


def _facts(only: str, smi: Path | None, cross_check: bool) -> Facts:
    if smi is None:
        return probe(only=only, cross_check=cross_check)
    if cross_check:
        hint = "leave one of them out; `envlock diff` compares two documents of facts"
        raise UsageError("--cross-check is about this host, --nvidia-smi is not", where="envlock probe", hint=hint)
    from envlock import documents

    return recorded_smi(documents.read(smi), documents.name(smi), only)


def _libraries(asked: program.Program, output_format: str, output: Path | None) -> int:
    loaded = program.look(asked)
    if output_format == "json":
        options.emit_json(loaded.to_document(), output)
    else:
        from envlock.probe.libraries.text import render

        options.emit(render(loaded), output)
    return program.verdict(loaded)
