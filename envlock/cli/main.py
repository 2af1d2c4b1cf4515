"""The command `envlock`: the list of commands, and the one place that exits.

Each command is a module of this package with the same name and one click command
`command`, imported only when it is called: `envlock --help` loads none of them.
"""

import importlib
import json
import os
import sys

import click

from envlock import __version__
from envlock.errors import EnvlockError, StorageError

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


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"envlock.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`envlock --help` lists the commands"
            raise click.UsageError(f"no such command `{name}`; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "ENVLOCK",
        "max_content_width": 100,
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="envlock", message="%(prog)s %(version)s")
def cli() -> None:
    """Fix the environment of a model, and prove that it is fixed.

    \b
    envlock.toml -> lock -> lockfile -> build -> image digest -> canary -> check
    Exit codes: 0 match, 1 drift, 2 unusable input, 3 could not tell, 4 integrity.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code; a person never sees a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        code = cli.main(args=arguments, prog_name="envlock", standalone_mode=False)
        sys.stdout.flush()
    except EnvlockError as error:
        code = report(error, arguments)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.UsageError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("aborted", err=True)
        code = 130
    except BrokenPipeError:
        # The reader has gone: say nothing more, not even at interpreter shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except OSError as error:
        # Safety net: what a disk can cause is an error of ours, in words.
        where = error.filename if isinstance(error.filename, str) else None
        code = report(StorageError((error.strerror or str(error)).lower(), where=where), arguments)
    sys.exit(code if isinstance(code, int) else 0)


def report(error: EnvlockError, arguments: list[str]) -> int:
    """Print `error` (as JSON on standard output when JSON was asked for) and return its exit code."""
    if _wants_json(arguments):
        click.echo(json.dumps(error.to_document(), indent=2, sort_keys=True))
    click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
    if error.hint:
        click.echo(f"\n{click.style('hint', fg='cyan')}: {error.hint}", err=True)
    return error.exit_code


def _wants_json(arguments: list[str]) -> bool:
    joined = " ".join(arguments)
    return "--format json" in joined or "--format=json" in joined
