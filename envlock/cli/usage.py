"""Errors of the command line in envlock's words, the same with every version of click."""

import difflib
import re

import click

from envlock.errors import UsageError
from envlock.report import formats

_NUMBERS = {"integer range": "whole number", "integer": "whole number", "float range": "number", "float": "number"}


class Group(click.Group):
    """A group whose help cuts no line short, and which names the nearest of its commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, held.get_short_help_str(200)) for name, held in commands if held])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, names = args[0] if args else "", tuple(self.list_commands(ctx))
        if name and not name.startswith("-") and name not in names:
            from envlock.tables import nearest_hint

            where = ctx.command_path if ctx.parent else None
            raise UsageError(f"no such command `{name}`", where=where, hint=nearest_hint(name, names, "one of"))
        return super().resolve_command(ctx, args)


class FormatOption(click.Option):
    """`--format`; a format of other commands in ENVLOCK_FORMAT leaves this one with its default.

    The variable is set for a whole job: `junit`, meant for `check`, must not keep `probe` from working.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        chosen = super().resolve_envvar_value(ctx)
        own: tuple[str, ...] = tuple(self.type.choices) if isinstance(self.type, click.Choice) else ()
        return None if chosen in formats.NAMES and chosen not in own else chosen


def usage_error(error: click.ClickException, command: str) -> UsageError:
    """Return a click error in envlock's words: lower case, no full stop, the nearest known word.

    `command` is the command line up to the command's name, for errors that do not say.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else command
    hint = f"`{path} --help` shows how it is used"
    if isinstance(error, click.NoSuchOption):
        near = difflib.get_close_matches(error.option_name, sorted(error.possibilities or ()), n=1)
        hint = f"did you mean `{near[0]}`?" if near else hint
        return UsageError(f"no such option `{error.option_name}`", where=path, hint=hint)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        name = error.param.get_error_hint(context) if context is not None else str(error.param.name)
        return UsageError(f"missing {name}".replace("'", "`"), where=path, hint=hint)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return UsageError(_bad_value(error, error.param, context), where=path, hint=hint)
    message = error.format_message().rstrip(".").replace("'", "`")
    surplus = re.fullmatch(r"got unexpected extra argument(s?) \((.*)\)", message, re.IGNORECASE | re.DOTALL)
    if surplus:
        return UsageError(f"unexpected argument{surplus[1]} `{surplus[2]}`", where=path, hint=hint)
    return UsageError(message[:1].lower() + message[1:], where=path, hint=hint)


def _bad_value(error: click.BadParameter, parameter: click.Parameter, context: click.Context | None) -> str:
    """Return what is wrong with a value, at which option, and that a variable gave it if one did."""
    name = parameter.get_error_hint(context) if context is not None else str(parameter.name)
    text = error.message.rstrip(".")
    for kind, word in _NUMBERS.items():
        text = text.replace(f"is not a valid {kind}", f"is not a {word}")
    said = f"invalid value for {name}: {text}".replace("'", "`")
    given = context is not None and parameter.name and context.get_parameter_source(parameter.name)
    if context is not None and given is click.core.ParameterSource.ENVIRONMENT:
        said += f" (from {_variable(parameter, context)})"
    return said


def _variable(parameter: click.Parameter, context: click.Context) -> str:
    if isinstance(parameter.envvar, str):
        return parameter.envvar
    return f"{context.auto_envvar_prefix}_{parameter.name}".upper()
