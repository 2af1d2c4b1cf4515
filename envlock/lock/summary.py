"""What a relock changed, in words and as the JSON document of `envlock lock`."""

from pathlib import Path

from envlock.lockfile import Lockfile


def moved(before: Lockfile | None, after: Lockfile) -> tuple[str, ...]:
    """Return one line per package that came, went, or has another version or file than in `before`."""
    if before is None:
        return ()
    lines = []
    for kind, old, new in (("apt", before.apt, after.apt), ("python", before.python, after.python)):
        was = {package.name: (package.version, package.sha256) for package in old}
        now = {package.name: (package.version, package.sha256) for package in new}
        for name in sorted(was.keys() | now.keys()):
            if name not in now:
                lines.append(f"{kind} {name} {was[name][0]} removed")
            elif name not in was:
                lines.append(f"{kind} {name} {now[name][0]} added")
            elif was[name][0] != now[name][0]:
                lines.append(f"{kind} {name} {was[name][0]} -> {now[name][0]}")
            elif was[name] != now[name]:
                lines.append(f"{kind} {name} {now[name][0]}: another file of the same version")
    return tuple(lines)


def summary(path: Path, found: Lockfile, before: Lockfile | None, changed: bool) -> dict[str, object]:
    """Return the JSON document that `envlock lock` prints."""
    return {
        "schema": "envlock.lock/1",
        "lockfile": str(path),
        "name": found.environment.name,
        "changed": changed,
        "inputs": str(found.inputs()),
        "image": str(found.image.config) if found.image is not None else None,
        "apt": len(found.apt),
        "python": len(found.python),
        "files": len(found.files),
        "moved": list(moved(before, found)),
    }
