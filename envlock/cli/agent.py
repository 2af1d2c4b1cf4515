"""`envlock agent`."""

from pathlib import Path

import click

from envlock import agent
from envlock.cli import options
from envlock.digest import sha256
from envlock.files import write_atomic


@click.command()
@click.option("-o", "--output", type=options.PATH, metavar="FILE", default="envlock-agent.pyz", show_default=True)
def command(output: Path) -> None:
    """Write the zip application that travels to bare nodes.

    It needs nothing but Python 3.8 or newer there: `python3 -I envlock-agent.pyz probe`.
    """
    data = agent.build()
    write_atomic(output, data)
    options.emit(f"{output}  {sha256(data)}", None)
