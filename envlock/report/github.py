"""A view as workflow commands of GitHub Actions: annotations at the lines of the lockfile.

GitHub shows ten annotations of a kind for each step and drops the others in silence:
here at most nine and a last one that counts the rest. Equal GPUs are one annotation.
The whole list is what `--format markdown` is for. Escapes as the runner undoes them
(https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts).
"""

from envlock.report.view import FAILURE, Item, Level, View, alike, devices

MOST = 9

_COMMANDS = {Level.ERROR: "error", Level.UNKNOWN: "error", Level.WARNING: "warning"}


def render(view: View) -> str:
    """Return one workflow command a line; the last is the verdict."""
    groups = alike(view.items)
    notes = [_command("notice", {"title": f"envlock {view.command}: note"}, note) for note in view.notes[:MOST]]
    lines = [_annotation(view, group) for group in groups[:MOST]]
    rest = len(groups) - MOST
    more = f"; {rest} more: `--format markdown` shows all" if rest > 0 else ""
    # Words of a failure stand in its own annotation.
    told = view.summary if view.failed else f"{view.headline}; {view.summary}"
    title = f"envlock {view.command}: {view.verdict}"
    kind = "notice" if view.exit_code == 0 else "error"
    lines.append(_command(kind, {"title": title}, f"{told}{more}"))
    return "\n".join((*notes, *lines)) + "\n"


def _annotation(view: View, group: list[Item]) -> str:
    item = group[0]
    message = f"{_without_place(item)}{devices(group)}: {item.said}" if item.key != FAILURE else item.message
    if item.because and item.because != item.said:
        message += f" ({item.because})"
    for word, text in (("why", item.why), ("fix", item.fix)):
        if text:
            message += f"\n{word}: {text}"
    for command in dict.fromkeys(each.command for each in group if each.command):
        message += f"\nrun: {command}"
    place = {"file": view.path, "line": str(item.line)} if view.path else {}
    title = {"title": f"envlock {view.command}: {item.kind} {item.key}"}
    return _command(_COMMANDS[item.level], place | title, message)


def _without_place(item: Item) -> str:
    return f"could not tell: {item.key}" if item.level is Level.UNKNOWN and item.said != item.because else item.key


def _command(name: str, properties: dict[str, str], message: str) -> str:
    held = ",".join(f"{key}={_property(text)}" for key, text in properties.items())
    return f"::{name} {held}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
