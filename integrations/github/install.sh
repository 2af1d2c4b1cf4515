#!/usr/bin/env bash
# Install envlock from this very checkout of the action into a virtual environment of its own.
set -euo pipefail
python=${ENVLOCK_ACTION_PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "::error title=envlock::Python 3.11 or newer is needed: put actions/setup-python before this step"
  exit 2
fi
"$python" -m venv "$RUNNER_TEMP/envlock-venv"
"$RUNNER_TEMP/envlock-venv/bin/python" -m pip install --quiet --disable-pip-version-check "$GITHUB_ACTION_PATH"
