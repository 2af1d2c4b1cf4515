"""`envlock render`: the Dockerfile and its complete context, as a folder."""

from pathlib import Path
from typing import Any

import click

from envlock.cli import options


@click.command(name="render")
@options.lock_option
@options.spec_option
@click.option("-o", "--output", type=options.PATH, required=True, metavar="DIR", help="The folder to write.")
@click.option("--force", is_flag=True, help="Replace a folder that envlock did not write.")
@options.registry_option
@options.template_options
def command(lock: Path | None, spec: Path | None, output: Path, force: bool, **chosen: Any) -> int:
    """Write a folder that `docker build --network none DIR` builds, today or in five years.

    It holds the Dockerfile, the base, the unpacked wheels and all files, each one hashed
    on the way. The folder is replaced whole or not at all.
    """
    from envlock import lockstore
    from envlock.image import operation, plan
    from envlock.image.context import write_folder
    from envlock.store import Store, default_root

    path = lockstore.find(lock, spec, Path())
    held = lockstore.read(path)
    choices = operation.choices(path, spec, chosen["registry"], chosen["template"], chosen["allow_custom_template"])
    with plan.context(held, Store(default_root()), choices) as made:
        for clash in made.clashes:
            options.say(f"two wheels bring {clash}; the last one is taken")
        write_folder(made.items, output, held.environment.epoch, force)
    options.emit(f"{output}\nnext: docker build --network none {output}", None)
    return 0
