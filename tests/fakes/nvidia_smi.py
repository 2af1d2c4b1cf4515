"""A stand-in for nvidia-smi: a program that prints what it is told to, for each list of arguments."""

import shlex
from collections.abc import Mapping
from pathlib import Path

REFUSED = ("", "Invalid combination of input arguments\n", 2)


def replay(
    folder: Path, says: Mapping[str, tuple[str, str, int]], delay: float = 0.0, never_ends: bool = False
) -> Path:
    """Write the program `nvidia-smi` into `folder`: it maps its arguments to output, error output and status.

    After `delay` seconds it answers; one that `never_ends` ignores every polite signal.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["#!/bin/sh", 'printf "%s\\n" "$*" >> ' + shlex.quote(str(folder / "asked"))]
    if never_ends:
        lines += ["trap '' TERM INT HUP", "while :; do sleep 1; done"]
    lines += [f"sleep {delay}"] if delay else []
    lines.append('case "$*" in')
    for number, (arguments, (out, err, status)) in enumerate([*says.items(), ("*", REFUSED)]):
        for name, text in (("out", out), ("err", err)):
            (folder / f"{number}.{name}").write_text(text, encoding="utf-8")
        pattern = arguments if arguments == "*" else shlex.quote(arguments)
        files = (shlex.quote(str(folder / f"{number}.out")), shlex.quote(str(folder / f"{number}.err")))
        lines.append(f"{pattern}) cat {files[0]}; cat {files[1]} >&2; exit {status};;")
    lines.append("esac")
    program = folder / "nvidia-smi"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def asked(folder: Path) -> list[str]:
    """Return the arguments of each start, in order."""
    path = folder / "asked"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
