"""Options that several commands share, so that one word means one thing everywhere."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


def spec_option(function: F) -> F:
    return click.option("-f", "--spec", type=PATH, metavar="FILE", help="The spec [default: envlock.toml here].")(function)


def lock_option(function: F) -> F:
    return click.option(
        "-l", "--lock", type=PATH, metavar="FILE", help="The lockfile [default: the spec's, or the only one here]."
    )(function)


def format_option(*formats: str) -> Callable[[F], F]:
    return click.option(
        "--format", "output_format", type=click.Choice(formats), default=formats[0], show_default=True, help="Output."
    )


def output_option(function: F) -> F:
    return click.option("-o", "--output", type=PATH, metavar="FILE", help="Write the result there instead.")(function)


def emit(text: str, output: Path | None) -> None:
    """Write the one result document: to `output`, atomically, or to standard output."""
    if not text.endswith("\n"):
        text += "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        from envlock.files import write_atomic

        write_atomic(output, text.encode("utf-8"))


def emit_json(document: Any, output: Path | None) -> None:
    emit(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False), output)


def say(text: str) -> None:
    """Tell the person what is being done: standard error, never part of the result."""
    click.echo(text, err=True)
