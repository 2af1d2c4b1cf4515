"""Try a machine with a real NVIDIA GPU: probe, compare, compute; leave a folder. Changes no setting.

Run by `make gpu-check` with the Python that has torch; nothing of envlock needs to be
installed. The work is `envlock.gpucheck`; docs/gpu-check.md describes it.
"""
# ruff: noqa: UP031, UP032, UP036, PTH120 - an old Python must be able to read this file and be told that it is too old

import os
import sys

if sys.version_info < (3, 8):
    sys.stderr.write("error: Python 3.8 or newer is needed, this is %d.%d\n" % sys.version_info[:2])
    sys.stderr.write("\nhint: choose another with `make gpu-check PYTHON=python3.11`\n")
    sys.exit(2)

# The checkout may belong to someone else; and it is the code beside this file that is tried.
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from envlock.errors import EnvlockError  # noqa: E402
from envlock.gpucheck.main import main  # noqa: E402


def say(text):
    sys.stderr.write("gpu-check: {}\n".format(text))
    sys.stderr.flush()


def tell(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(os.environ, say, tell))
    except EnvlockError as error:
        sys.stderr.write("error: {}\n".format(error))
        if error.hint:
            sys.stderr.write("\nhint: {}\n".format(error.hint))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("aborted\n")
        sys.exit(130)
