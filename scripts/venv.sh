#!/usr/bin/env bash
# Make this project's virtual environment (.venv) and install envlock into it.
#   scripts/venv.sh run   what `make golden` needs
#   scripts/venv.sh test  the same, the test tools, and torch for CPU
# Takes nothing for granted: finds a Python, installs Debian's venv module when it may,
# says what it does in one line each, and does nothing when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
want=${1:-run}
venv=.venv

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2; exit 3; }
may_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail 'no Python 3.11 or newer found' 'install one (Debian 12 or 13: `apt-get install python3 python3-venv`), or name it: PYTHON=/path/to/python3.12'
}

make_venv() {
  local python
  python=$(find_python)
  say "making $venv with $("$python" -V)"
  if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
    # Debian splits the venv module off Python; as root we may fetch it.
    rm -rf "$venv"
    if may_apt && "$python" -c 'import sys; sys.exit(sys.prefix != "/usr")'; then
      say "installing Debian's python3-venv"
      local log
      log=$(mktemp)
      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; } >"$log" 2>&1 ||
        fail "apt-get could not install python3-venv: $(tail -n 2 "$log" | tr '\n' ' ')" 'install it by hand, then run this again'
      rm -f "$log"
      "$python" -m venv "$venv"
    else
      fail "\`$python -m venv\` does not work" 'install the venv module (Debian: `apt-get install python3-venv`)'
    fi
  fi
}

# Some tests make a shared library of their own, a driver's among them. Debian's gcc comes without the C
# library's headers, so a compiler is one that compiles.
compiles() {
  local compiler made
  made=$(mktemp)
  for compiler in cc gcc clang; do
    if printf '#include <stdio.h>\nint main(void) { return 0; }\n' | "$compiler" -x c -o "$made" - >/dev/null 2>&1; then
      rm -f "$made"
      return
    fi
  done
  rm -f "$made"
  return 1
}

get_compiler() {
  compiles && return
  if may_apt; then
    say "installing Debian's gcc"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev; } >/dev/null 2>&1 || true
    compiles && return
  fi
  say 'no C compiler here, and none can be installed (Debian or Ubuntu, as root: `apt-get install gcc libc6-dev`): the tests that make a library are skipped, each saying so'
}

# What was installed, for which Python and from which list of dependencies: the stamp.
wanted() { printf '%s %s %s\n' "$want" "$("$venv/bin/python" -V)" "$(sha256sum pyproject.toml scripts/venv.sh | sha256sum | cut -c1-16)"; }

"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { rm -rf "$venv"; make_venv; }
if [ "$want" = test ]; then get_compiler; fi
stamp=$venv/.envlock-$want
[ "$(cat "$stamp" 2>/dev/null)" = "$(wanted)" ] && "$venv/bin/envlock" --version >/dev/null 2>&1 && exit 0

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet --no-input "$@" 2> >(grep -v '^WARNING' >&2); }
if [ "$want" = test ]; then
  say 'installing envlock and its test tools'
  pip install -e '.[dev]'
  # One torch for all, CPU only: the build that the example environment locks. From
  # where the host's pip finds it, else from where uv knows that it lies. Never a build
  # for a GPU: those are gigabytes that no test here uses.
  torch=$(sed -n 's/.*"torch==\([0-9.]*\)+cpu".*/\1/p' examples/torch-cpu/envlock.toml)
  pip install --only-binary :all: numpy || say 'no numpy for this Python can be had here'
  if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    say "installing torch $torch for CPU"
    pip install --only-binary :all: "torch==$torch+cpu" 2>/dev/null ||
      why=$("$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --torch-backend cpu "torch==$torch" 2>&1) ||
      say "no torch for this Python can be had here ($(tail -n 1 <<<"$why" | sed 's/^ *\(cause: \)*//')): the tests that need it will be skipped, each saying so; \`make clean\` lets the next run try again"
  fi
else
  say 'installing envlock'
  pip install -e .
fi
wanted > "$stamp"
