"""`envlock init`: write a commented spec to start from."""

import re
from pathlib import Path

import click

from envlock.cli import options
from envlock.errors import UsageError

TEMPLATE = """\
# What this environment is. `envlock lock` fixes it in lockfiles/{name}.lock.toml.
# Every key that is commented out shows its default, or an example.

[environment]
name = "{name}"
platform = "linux/amd64"            # or "linux/arm64"; locked anywhere, built where it runs
# epoch = {epoch}               # the time of every file in the image

[base]
debian = "bookworm"                 # bootstrapped from locked packages, no registry needed
# components = ["main"]
# image = "python:3.11-slim"        # instead of `debian`: a tag, fixed to its digest when locked

[apt]
# Debian packages on top of the essential ones; torch needs the C++ runtime.
packages = ["python3.11", "libstdc++6"]

[python]
version = "3.11"
interpreter = "/usr/bin/python3.11"
# PEP 508 requirements; `envlock lock` resolves them with uv, wheels only.
requirements = ["numpy"]
# torch-backend = "cpu"             # or "cu126", ...: which build of torch
# exclude-newer = "2026-01-31"      # as if nothing newer had been published

# Models and data: `source` beside this file, `path` in the image.
# [[file]]
# source = "models/encoder.onnx"
# path = "/opt/models/encoder.onnx"

[determinism]
profile = "strict"                  # "portable": equal across CPU makers, slower; "relaxed": threads only
threads = 2
# [determinism.env]                 # set a variable, or leave one of the profile out with `false`
# MKL_CBWR = "AVX2,STRICT"
# [determinism.torch]               # set a torch switch
# "sdp.flash" = false

# How facts of a host are judged; the lockfile starts with a rule for each fact it holds.
# [policy]
# profile = "bits"                  # "identity": the same kind of machine; "strict": every locked fact
# [policy.rules]
# "system.kernel" = {{ rule = "ignore" }}
"""


@click.command("init")
@click.option("--name", metavar="NAME", help="The environment's name [default: this folder's].")
@click.option("--force", is_flag=True, help="Replace a spec that is there.")
def command(name: str | None, force: bool) -> int:
    """Write a commented spec, envlock.toml, into this folder."""
    from envlock import files, spec
    from envlock.lockstore import SPEC_NAME

    path = Path(SPEC_NAME)
    text = TEMPLATE.format(name=name or _name_of(Path.cwd()), epoch=spec.DEFAULT_EPOCH)
    spec.parse(text.encode("utf-8"), SPEC_NAME)
    with files.exclusive(path):
        if path.exists() and not force:
            raise UsageError("is already there", where=path, hint="edit it, or replace it with `--force`")
        files.write_atomic(path, text.encode("utf-8"))
    options.say(f"wrote {path}; edit it, then run `envlock lock`")
    return 0


def _name_of(folder: Path) -> str:
    """Return the folder's name with what a name may not hold replaced; `environment` when nothing is left."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.name.lower()).strip("._-")[:64].strip("._-")
    return name or "environment"
