"""The result of `envlock build`, for a person."""

from collections.abc import Iterator
from pathlib import Path

from envlock.image.operation import Built
from envlock.lockfile import Lockfile

_WORDS = {
    "recorded": "recorded in {path}",
    "updated": "replaced in {path}",
    "match": "equal to {path}",
    "unchanged": "equal to {path}, proved before; `--paranoid` proves it again",
    "drift": "not the image in {path}",
}


def build_text(built: Built, path: Path, lock: Lockfile) -> str:
    """Return which image it is, its layers, and what differs from the locked one."""
    return "\n".join(_lines(built, path, lock))


def _lines(built: Built, path: Path, lock: Lockfile) -> Iterator[str]:
    yield f"{lock.environment.name}: {_WORDS[built.outcome].format(path=path)}"
    yield f"image   {built.image.config}"
    yield f"name    {built.reference}"
    differing = {difference.what for difference in built.differences}
    for layer in built.image.layers:
        mark = "  differs" if f"layer {layer.owner}" in differing else ""
        yield f"layer   {layer.owner:<20} {layer.size / 1e6:>9.1f} MB  {layer.diff_id.short}{mark}"
    for difference in built.differences:
        yield f"\n{difference.what} differs"
        yield f"  locked  {difference.locked or '(none)'}"
        yield f"  found   {difference.found or '(none)'}"
        yield from (f"  {entry}" for entry in difference.entries)
    if built.outcome == "drift":
        yield "\nthe lockfile is unchanged; `envlock build --update` records this image instead"
