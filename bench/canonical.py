"""`python -m bench.canonical IMAGE LOCK OUT`: save an image, make it canonical, write it; what `make bench` times."""

import os
import sys
from pathlib import Path

from envlock import lockstore
from envlock.image import layout
from envlock.image.canonical import canonical, shape_of
from envlock.image.engine import connect
from envlock.image.operation import write_layout


def main(reference: str, lock: Path, out: Path) -> None:
    """Do what `build` does between the engine's builder and loading."""
    shape = shape_of(lockstore.read(lock))
    with layout.spooled(connect(os.environ).save(reference), out.parent, reference) as spool:
        write_layout(canonical(spool, shape, reference), "localhost/envlock/bench:1", out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
