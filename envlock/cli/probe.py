"""`envlock probe`."""

from pathlib import Path

import click

from envlock.cli import options
from envlock.probe import probe


@click.command()
@options.format_option("text", "json")
@options.output_option
@click.option("--only", default="", metavar="PREFIX", help="Only facts whose keys start with PREFIX.")
def command(output_format: str, output: Path | None, only: str) -> None:
    """Print the facts of this host.

    Every fact is there, with a value or with the reason why there is none. Exit code 0
    means that the probe worked, not that the host is as it should be: see `check`.
    """
    facts = probe(only=only)
    if output_format == "json":
        options.emit_json(facts.to_document(), output)
        return
    from envlock.probe.text import render

    options.emit(render(facts), output)
