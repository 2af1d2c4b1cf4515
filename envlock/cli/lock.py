"""`envlock lock`: resolve the spec, write the lockfile, or say whether it still fits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envlock.cli import options
from envlock.errors import EXIT_DRIFT, EXIT_MATCH, CouldNotTell, UsageError

if TYPE_CHECKING:
    from envlock.lock.content import Ports
    from envlock.lockfile import Lockfile
    from envlock.spec import Spec
    from envlock.store import Store


@click.command("lock")
@options.spec_option
@options.lock_option
@click.option("--check", is_flag=True, help="Say fresh (0) or stale (1); without a network, nothing is written.")
@click.option("--upgrade", "-U", is_flag=True, help="Let every version move.")
@click.option("--upgrade-package", "-P", multiple=True, metavar="NAME", help="Let this package's version move.")
@click.option("--update-host", is_flag=True, help="Observe [host] anew on this machine.")
@click.option("--seed", type=options.PATH, metavar="FILE", help="Prefer the versions of another lockfile.")
@click.option(
    "--offline", is_flag=True, envvar="ENVLOCK_OFFLINE", help="Use the store and what is locked, never a network."
)
@click.option(
    "--locked", is_flag=True, envvar="ENVLOCK_LOCKED", help="Write nothing: an error when the lockfile is not fresh."
)
@click.option(
    "--frozen", is_flag=True, envvar="ENVLOCK_FROZEN", help="Use the lockfile as it is, without a look at the spec."
)
@click.option(
    "--merge", nargs=3, type=options.PATH, metavar="BASE OURS THEIRS", help="Merge lockfiles into OURS, for Git."
)
@options.format_option("text", "json")
@options.output_option
def command(spec: Path | None, lock: Path | None, **chosen: Any) -> int:
    """Resolve the spec and write the lockfile, its packages in the store.

    What is locked stays locked: only --upgrade and --upgrade-package move a version.
    """
    from envlock import lockstore
    from envlock import spec as specs

    _refuse_contradictions(chosen)
    if chosen["merge"]:
        return _merge(chosen)
    spec_path = spec or Path(lockstore.SPEC_NAME)
    if chosen["frozen"]:
        return _frozen(lockstore.find(lock, spec, Path()), chosen)
    wanted = specs.read(spec_path)
    path = lock or lockstore.beside(spec_path, wanted.name)
    if chosen["check"] or chosen["locked"]:
        return _check(wanted, spec_path, path, chosen)
    return _lock(wanted, spec_path, path, chosen)


def _refuse_contradictions(chosen: dict[str, Any]) -> None:
    reading = [name for name in ("check", "locked", "frozen") if chosen[name]]
    writing = [name for name in ("upgrade", "upgrade_package", "update_host", "seed") if chosen[name]]
    if chosen["merge"] and (reading or writing):
        raise UsageError(f"`--merge` and `--{[*reading, *writing][0].replace('_', '-')}` contradict each other")
    if len(reading) > 1 or (reading and writing):
        names = " and ".join(f"`--{name.replace('_', '-')}`" for name in [*reading, *writing][:2])
        raise UsageError(f"{names} contradict each other")
    if chosen["offline"] and (chosen["upgrade"] or chosen["upgrade_package"]):
        raise UsageError("`--offline` and an upgrade contradict each other")


def _check(wanted: "Spec", spec_path: Path, path: Path, chosen: dict[str, Any]) -> int:
    from envlock import lockstore
    from envlock.lock.freshness import freshness

    if not path.exists():
        raise CouldNotTell("no such lockfile", where=path, hint="`envlock lock` writes it")
    found = freshness(wanted, lockstore.read(path), spec_path.parent)
    if chosen["output_format"] == "json":
        options.emit_json(found.to_document(path), chosen["output"])
    else:
        lines = [f"{path} is {'stale' if found.stale else 'fresh'}", *(f"  {reason}" for reason in found.stale)]
        options.emit("\n".join(lines), chosen["output"])
    if chosen["locked"] and found.stale:
        options.say("`envlock lock` writes it anew")
    return EXIT_DRIFT if found.stale else EXIT_MATCH


def _lock(wanted: "Spec", spec_path: Path, path: Path, chosen: dict[str, Any]) -> int:
    from envlock import files, lockstore
    from envlock.lock.content import Request
    from envlock.lock.operation import lock as locked
    from envlock.lockfile import LOCK_VERSION
    from envlock.store import Store, default_root

    store = Store(default_root())
    with files.exclusive(path), store.using():
        previous = lockstore.read(path, edited=True) if path.exists() else None
        if previous is not None and previous.environment.merged:
            options.say(f"{path} was merged or edited by hand: resolving all of it")
        found = locked(
            Request(
                spec=wanted,
                where=spec_path,
                today=options.today(),
                previous=previous,
                seed=lockstore.read(chosen["seed"]) if chosen["seed"] else None,
                upgrade=chosen["upgrade"],
                upgrade_packages=frozenset(chosen["upgrade_package"]),
                offline=chosen["offline"],
                update_host=chosen["update_host"],
            ),
            _ports(store),
        )
        changed = lockstore.write(path, found)
    if previous is not None and previous.lock_version != LOCK_VERSION:
        options.say(f"written in format version {LOCK_VERSION} (was {previous.lock_version})")
    _tell(path, found, previous, changed, chosen)
    return EXIT_MATCH


def _ports(store: "Store") -> "Ports":
    import os

    from envlock.lock.content import Ports
    from envlock.lock.indexes import of_host

    def engine() -> Any:
        from envlock.image.engine import connect

        return connect(os.environ)

    def probe() -> Any:
        from envlock.probe import probe as observe

        return observe()

    return Ports(store=store, indexes=of_host(os.environ), probe=probe, engine=engine, say=options.say)


def _merge(chosen: dict[str, Any]) -> int:
    """Merge as Git asks for it: exit 0 and OURS holds the result, or 1 and it holds marked conflicts.

    Standard output may be Git's own, so words go to standard error.
    """
    from envlock import lockstore
    from envlock.report.words import counted

    merged = lockstore.merge(*chosen["merge"])
    for conflict in merged.conflicts:
        click.echo(f"conflict: {conflict}", err=True)
    for note in merged.notes:
        options.say(note)
    if merged.conflicts:
        options.say(f"{counted(len(merged.conflicts), 'conflict')}: keep one side of each, then run `envlock lock`")
    if chosen["output_format"] == "json":
        options.emit_json(merged.to_document(), chosen["output"])
    return EXIT_DRIFT if merged.conflicts else EXIT_MATCH


def _frozen(path: Path, chosen: dict[str, Any]) -> int:
    from envlock import lockstore

    _tell(path, lockstore.read(path), None, False, chosen)
    return EXIT_MATCH


def _tell(path: Path, found: "Lockfile", previous: "Lockfile | None", changed: bool, chosen: dict[str, Any]) -> None:
    from envlock.lock.summary import moved, summary
    from envlock.report.words import counted

    if chosen["output_format"] == "json":
        options.emit_json(summary(path, found, previous, changed), chosen["output"])
        return
    for line in moved(previous, found):
        options.say(line)
    state = "wrote" if changed else "unchanged"
    holds = (
        counted(len(found.apt), "Debian package"),
        counted(len(found.python), "wheel"),
        counted(len(found.files), "file"),
    )
    options.emit(f"{state} {path}\n  {', '.join(holds)}\n  inputs {found.inputs()}", chosen["output"])
