"""The command `envlock`: the list of commands, and the one place that exits.

Each command is a module of this package with the same name and one click command
`command`, imported only when it is called: `envlock --help` loads none of them.
"""

import importlib
import os
import signal
import sys
from types import FrameType

import click

from envlock import __version__
from envlock.cli import gate, options, usage
from envlock.errors import CouldNotTell, EnvlockError, StorageError

EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
_ENDING = (signal.SIGTERM, signal.SIGHUP)

# Name, module, and the line that `envlock --help` shows (kept here so that help imports nothing).
COMMANDS = {
    "init": ("init", "Write a commented spec to start from."),
    "probe": ("probe", "Print the facts of this host."),
    "lock": ("lock", "Resolve the spec and write the lockfile."),
    "render": ("render", "Write the Dockerfile and its complete context."),
    "build": ("build", "Build the canonical image, and record or verify its digest."),
    "canary": ("canary", "Run the canary, or compare two reports."),
    "check": ("check", "Check this host, an image or a facts file against the lockfile."),
    "diff": ("diff", "Show what differs between two lockfiles or facts files."),
    "agent": ("agent", "Write the zip application that travels to bare nodes."),
    "store": ("store", "Verify or clean the content-addressed store."),
}


class LazyGroup(usage.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"envlock.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        options.accept_globals(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "ENVLOCK",
        # Fixed: the help in the documentation is compared with the program's.
        "terminal_width": 80,
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="envlock", message="%(prog)s %(version)s")
@options.global_options
def cli() -> None:
    """Fix the environment of a model, and prove that it is fixed.

    \b
    envlock.toml -> lock -> lockfile -> build -> image digest -> canary -> check
    Exit codes: 0 match, 1 drift, 2 unusable input, 3 could not tell, 4 integrity.

    Each option can be given by an environment variable, ENVLOCK_COMMAND_OPTION:
    ENVLOCK_CHECK_IMAGE is `envlock check --image`. The options below go before or
    after the command's name.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code; a person never sees a traceback."""
    if argv is None:
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, _terminate)
    arguments = sys.argv[1:] if argv is None else argv
    options.reset()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that knows no `→` shows an escape, never a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone: say nothing more, not even at interpreter shutdown.
        options.silence_stdout()
        code = EXIT_CLOSED_PIPE
    except OSError as error:
        options.silence_stdout()
        code = report(StorageError((error.strerror or str(error)).lower(), where="standard output"), gate.Asked())
    sys.exit(code)


def _terminate(number: int, frame: FrameType | None) -> None:
    # As an exception, so that containers and temporary files are put away on the way out.
    sys.exit(128 + number)


def _run(arguments: list[str]) -> int:
    """Run the command in `arguments` and return its exit code, every error of ours reported."""
    wanted = gate.asked(arguments, os.environ, tuple(COMMANDS))
    try:
        return _dispatch(arguments)
    except EnvlockError as error:
        return report(error, wanted)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return report(usage.usage_error(error, f"envlock {wanted.command}".rstrip()), wanted)
    except (click.Abort, KeyboardInterrupt, EOFError):
        report(CouldNotTell("interrupted"), wanted)
        return EXIT_INTERRUPTED
    except SystemExit as ended:
        if ended.code in [128 + number for number in _ENDING]:
            gate.fail(CouldNotTell("ended before there was an answer"), wanted)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        # Safety net: what a disk can cause is an error of ours, in words.
        where = error.filename if isinstance(error.filename, str) else None
        return report(StorageError((error.strerror or str(error)).lower(), where=where), wanted)
    except MemoryError:
        return report(CouldNotTell("out of memory"), wanted)
    except Exception as error:
        # A fault of envlock itself. Its code must not be Python's 1, which means drift.
        import traceback

        traceback.print_exc()
        hint = "this is a fault of envlock: please report it with the lines above"
        return report(CouldNotTell(f"{type(error).__name__}: {error}", where="internal fault", hint=hint), wanted)


def _dispatch(arguments: list[str]) -> int:
    if "_ENVLOCK_COMPLETE" in os.environ:
        cli.main(args=arguments, prog_name="envlock")  # shell completion: prints and exits
    # Not `cli.main`: click ends with 1 when the reader has gone, and 1 means drift.
    with cli.make_context("envlock", list(arguments)) as context:
        code = cli.invoke(context)
    return code if isinstance(code, int) else 0


def report(error: EnvlockError, wanted: gate.Asked) -> int:
    """Print `error`, and its document where the result would have gone; return the exit code."""
    try:
        code = gate.fail(error, wanted)
    except BrokenPipeError:
        raise
    except EnvlockError as fault:
        # Not even that could be written; the error itself is still said.
        options.say_error(str(fault), fault.hint)
        code = error.exit_code
    options.say_error(str(error), error.hint)
    return code
