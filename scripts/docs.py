"""Keep what the documentation quotes equal to what the program prints.

Every block that begins with `<!-- prints: COMMAND -->` and ends with `<!-- end -->` in
README.md and docs/ holds the standard output of that command. `--write` writes the
blocks and the generated pages anew, `--check` compares and names what is stale (exit 1).
"""

import difflib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- prints: (?P<command>envlock [^\n]*?) -->\n```text\n).*?(```\n<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def printed(command: str) -> str:
    """Return what `command` prints; `SystemExit` when it fails."""
    argv = [sys.executable, "-m", *shlex.split(command)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ENVLOCK_")} | {
        "COLUMNS": "80"
    }
    finished = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    if finished.returncode != 0:
        raise SystemExit(f"error: `{command}` failed with status {finished.returncode}:\n{finished.stderr}")
    return finished.stdout


def current(text: str) -> str:
    """Return `text` with every block as the program prints it now."""
    return BLOCK.sub(lambda match: match.group(1) + printed(match.group("command")) + match.group(3), text)


def broken_links(page: Path) -> list[str]:
    """Return the relative links of `page` that lead nowhere."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return [link for link in found if "://" not in link and not (page.parent / link).exists()]


def main(mode: str) -> int:
    if mode not in ("--write", "--check"):
        print("usage: scripts/docs.py --write | --check", file=sys.stderr)
        return 2
    stale = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        fresh = current(text)
        if fresh != text and mode == "--write":
            page.write_text(fresh, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
        elif fresh != text:
            stale += 1
            print(f"stale: {page.relative_to(ROOT)}; run `make docs`", file=sys.stderr)
            sys.stderr.writelines(
                difflib.unified_diff(text.splitlines(True), fresh.splitlines(True), "page", "program", n=1)
            )
        for link in broken_links(page):
            stale += 1
            print(f"broken link in {page.relative_to(ROOT)}: {link}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
