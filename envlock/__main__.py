"""The program `envlock`, also as `python -m envlock`."""

import atexit
import gc
import os
import sys

from envlock.cli import early


def main() -> None:
    """Have the driver asked where it will be needed, then run the command line."""
    # A program that ends soon has little to collect, and at its end the system takes all back at once:
    # looking through every object on the way out would take as long as a check itself.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    early.begin(sys.argv[1:], os.environ)
    # Only now: importing the command line takes as long as a driver needs to wake.
    from envlock.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
