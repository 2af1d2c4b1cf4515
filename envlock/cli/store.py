"""`envlock store`: verify the content-addressed store, or remove what no lockfile needs."""

from pathlib import Path

import click

from envlock.cli import options, usage
from envlock.errors import EXIT_INTEGRITY, EXIT_MATCH


@click.group(name="store", cls=usage.Group)
def command() -> None:
    """Verify or clean the content-addressed store."""


@command.command("verify")
@click.option("--repair", is_flag=True, help="Remove damaged blobs, so that they are fetched again.")
@options.format_option("text", "json")
@options.output_option
def verify(repair: bool, output_format: str, output: Path | None) -> int:
    """Hash every blob of the store; exit 4 when one is damaged (0 once repaired)."""
    from envlock.store import Store, default_root

    found = Store(default_root()).verify(repair)
    if output_format == "json":
        options.emit_json(
            {
                "schema": "envlock.store-verify/1",
                "blobs": found.blobs,
                "size": found.size,
                "broken": list(found.broken),
                "repaired": repair,
            },
            output,
        )
    else:
        word = "removed" if repair else "damaged"
        lines = [f"{found.blobs} blobs, {found.size / 1e6:.1f} MB, {len(found.broken)} {word}"]
        options.emit("\n".join([*lines, *(f"  {digest}" for digest in found.broken)]), output)
    return EXIT_INTEGRITY if found.broken and not repair else EXIT_MATCH


@command.command("gc")
@click.argument("lockfiles", nargs=-1, type=options.PATH, metavar="[LOCKFILE]...")
@options.spec_option
@options.lock_option
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@options.format_option("text", "json")
@options.output_option
def gc(
    lockfiles: tuple[Path, ...],
    spec: Path | None,
    lock: Path | None,
    dry_run: bool,
    output_format: str,
    output: Path | None,
) -> int:
    """Remove every blob that none of the LOCKFILEs needs [default: the lockfile of this folder]."""
    from envlock import lockstore
    from envlock.lock.needed import needed
    from envlock.store import Store, default_root

    paths = lockfiles or (lockstore.find(lock, spec, Path()),)
    keep, keys = needed([lockstore.read(path) for path in paths])
    found = Store(default_root()).gc(keep, keys, dry_run)
    if output_format == "json":
        options.emit_json(
            {
                "schema": "envlock.store-gc/1",
                "blobs": found.blobs,
                "derived": found.derived,
                "size": found.size,
                "dry-run": dry_run,
            },
            output,
        )
    else:
        word = "would remove" if dry_run else "removed"
        options.emit(f"{word} {found.blobs} blobs and {found.derived} records, {found.size / 1e6:.1f} MB", output)
    return EXIT_MATCH
