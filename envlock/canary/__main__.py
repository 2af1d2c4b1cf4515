"""`python -m envlock.canary run`: the canary without the rest of envlock."""

from __future__ import annotations

import sys

from envlock.canary.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
