"""A facts file of the sample host, with what a test changes."""

import json
from pathlib import Path

from samples import facts, gpu_facts

from envlock.facts import value


def facts_file(path: Path, **changed: str) -> Path:
    """Write the facts of the sample host with one GPU to `path`; `vbios="…"` changes `gpu.vbios`."""
    gpu = gpu_facts(**{name: value(text) for name, text in changed.items()})
    path.write_text(json.dumps(facts([gpu]).to_document()))
    return path
