"""Options that several commands share, so that one word means one thing everywhere."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from envlock.cli.usage import FormatOption
from envlock.errors import StorageError

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path, readable=False)  # who opens the file says why it cannot be read, exit 3

STANDARD = Path("-")
"""Standard input, or standard output, where a file is expected."""


def spec_option(function: F) -> F:
    return click.option(
        "-f", "--spec", type=PATH, metavar="FILE", envvar="ENVLOCK_SPEC", help="The spec [default: envlock.toml here]."
    )(function)


def lock_option(function: F) -> F:
    return click.option(
        "-l",
        "--lock",
        type=PATH,
        metavar="FILE",
        envvar="ENVLOCK_LOCK",
        help="The lockfile [default: the spec's, or the only one here].",
    )(function)


def format_option(*formats: str) -> Callable[[F], F]:
    return click.option(
        "--format",
        "output_format",
        cls=FormatOption,
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        envvar="ENVLOCK_FORMAT",
        help="Output.",
    )


def output_option(function: F) -> F:
    return click.option("-o", "--output", type=PATH, metavar="FILE", help="Write the result there instead.")(function)


def registry_option(function: F) -> F:
    return click.option(
        "--registry",
        default="",
        metavar="HOST[:PORT]",
        envvar="ENVLOCK_REGISTRY",
        help="Whence an image base comes.",
    )(function)


def template_options(function: F) -> F:
    allow = click.option("--allow-custom-template", is_flag=True, help="Say that --template is to be trusted.")
    template = click.option("--template", type=PATH, metavar="FILE", help="A Dockerfile template of your own.")
    return template(allow(function))


def today() -> date:
    """Return the day by which waivers are judged: in UTC, so that it is one day for a whole fleet."""
    return datetime.now(UTC).date()


# ---- options of every command ----------------------------------------------------------


@dataclass
class _Settings:
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


_settings = _Settings()  # one process runs one command line


def reset() -> None:
    """Forget what an earlier command line of this process set (tests run several)."""
    _settings.quiet, _settings.verbose, _settings.color = False, False, "auto"


def _set(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        setattr(_settings, str(parameter.name), value)


def _globals(hidden: bool) -> list[click.Option]:
    shared: dict[str, Any] = {
        "expose_value": False,
        "callback": _set,
        "hidden": hidden,
        "is_eager": True,
        "allow_from_autoenv": not hidden,
    }
    return [
        click.Option(["-q", "--quiet"], is_flag=True, help="Say only the result and errors.", **shared),
        click.Option(["-v", "--verbose"], is_flag=True, help="Say more about what is being done.", **shared),
        click.Option(
            ["--color"],
            type=click.Choice(("auto", "always", "never")),
            help="Colour; `auto` also heeds NO_COLOR, FORCE_COLOR and TERM.",
            **shared,
        ),
    ]


def global_options(command: F) -> F:
    """Give `-q`, `-v` and `--color` to the command being decorated."""
    held = command.__dict__.setdefault("__click_params__", [])
    held.extend(reversed(_globals(hidden=False)))
    return command


def accept_globals(command: click.Command) -> None:
    """Let `command`, and the commands below it, take `-q`, `-v` and `--color` after their name too."""
    taken = {option for parameter in command.params for option in parameter.opts}
    for option in _globals(hidden=True):
        if not taken & set(option.opts):
            command.params.append(option)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            accept_globals(inner)


def wants_color(stream: TextIO) -> bool:
    """Return whether to colour what goes to `stream`: `--color`, else the environment, else a terminal.

    NO_COLOR (https://no-color.org) wins over FORCE_COLOR and CLICOLOR_FORCE.
    """
    if _settings.color != "auto":
        return _settings.color == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("CLICOLOR") == "0":
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return os.environ.get("TERM") != "dumb" and not os.environ.get("CI") and stream.isatty()


# ---- what is printed ---------------------------------------------------------------------


def emit(text: str, output: Path | None) -> None:
    """Write the one result document: to `output`, atomically, or to standard output (`-` too).

    Raises `StorageError` when it cannot be written, `BrokenPipeError` when the reader has gone.
    """
    if not text.endswith("\n"):
        text += "\n"
    if output is not None and output != STANDARD:
        from envlock.files import write_atomic

        write_atomic(output, text.encode("utf-8"))
        return
    if sys.stdout is None:
        raise StorageError("is closed", where="standard output", hint="write the result to a file with `-o FILE`")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise StorageError((error.strerror or str(error)).lower(), where="standard output") from error


def emit_json(document: Any, output: Path | None) -> None:
    # ASCII: one JSON document in any locale, whatever bytes a file name holds.
    emit(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True), output)


def colored(output: Path | None) -> bool:
    """Return whether the result document, written to `output`, may hold colours."""
    return (output is None or output == STANDARD) and sys.stdout is not None and wants_color(sys.stdout)


def say(text: str) -> None:
    """Tell the person what is being done: standard error, never part of the result; nothing with `-q`."""
    if not _settings.quiet:
        _tell(text)


def say_more(text: str) -> None:
    """Tell what only `-v` asks for."""
    if _settings.verbose and not _settings.quiet:
        _tell(text)


def say_error(message: str, hint: str | None) -> None:
    """Print `error: …`, and the hint after a blank line, on standard error."""
    color = sys.stderr is not None and wants_color(sys.stderr)
    _tell(f"{click.style('error', fg='red', bold=True)}: {message}", color)
    if hint:
        _tell(f"\n{click.style('hint', fg='cyan', bold=True)}: {hint}", color)


def _tell(text: str, color: bool | None = None) -> None:
    """Write `text` on standard error; where that cannot be written, the exit code alone must do."""
    try:
        click.echo(text, err=True, color=color)
    except OSError:
        # What is still held would fail again at the interpreter's end, and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def silence_stdout() -> None:
    """Send what is still held for a broken standard output nowhere, so that exiting does not fail on it."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
