"""`envlock build`: the canonical image, its digest recorded in the lockfile or verified against it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envlock.cli import options

if TYPE_CHECKING:
    from envlock.image.engine import Engine


@click.command(name="build")
@options.lock_option
@options.spec_option
@click.option("--tag", metavar="NAME", help="The image's name in the engine [default: localhost/envlock/NAME:INPUTS].")
@click.option("--archive", type=options.PATH, metavar="FILE", help="Also write the image there; every engine loads it.")
@click.option("--update", is_flag=True, help="Replace the digest that the lockfile holds.")
@click.option("--paranoid", is_flag=True, help="Prove again what the engine holds, whatever was proved before.")
@click.option("--by-engine", is_flag=True, help="Let the engine's builder do all of it, even where nothing has to run.")
@click.option("--force", is_flag=True, help="Build although the engine holds the proved image.")
@click.option("--no-cache", is_flag=True, help="Make everything anew, the base too.")
@click.option("--from-image", metavar="REF", help="Take this image, built by hand from the rendered folder.")
@options.registry_option
@options.template_options
@options.format_option("text", "json")
@options.output_option
def command(lock: Path | None, spec: Path | None, **chosen: Any) -> int:
    """Build the canonical image; record its digest, or verify it when there is one.

    The image is loaded into the engine, saved again and hashed: that is the proof.
    Exit codes: 0 recorded or equal, 1 another digest than the locked one (the lockfile is
    left alone), 3 no engine or a file is missing, 4 the bytes are wrong.
    """
    from envlock import lockstore
    from envlock.image import operation
    from envlock.report.build_text import build_text
    from envlock.store import Store, default_root

    path = lockstore.find(lock, spec, Path())
    order = operation.Order(
        name=operation.checked_name(chosen["tag"] or ""),
        archive=chosen["archive"],
        by_engine=chosen["by_engine"],
        cache=not chosen["no_cache"],
        built=chosen["from_image"],
        update=chosen["update"],
        force=chosen["force"],
        paranoid=chosen["paranoid"],
        choices=operation.choices(
            path,
            spec,
            chosen["registry"],
            chosen["template"],
            chosen["allow_custom_template"],
            fresh=chosen["no_cache"],
        ),
    )
    built, locked = operation.run(path, order, _engine, Store(default_root()), options.say)
    if chosen["output_format"] == "json":
        options.emit_json(built.to_document(path, locked), chosen["output"])
    else:
        options.emit(build_text(built, path, locked), chosen["output"])
    return built.exit_code


def _engine() -> "Engine":
    from envlock.image.engine import connect

    return connect(os.environ)
