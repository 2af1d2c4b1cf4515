#!/usr/bin/env bash
# Find a container engine that answers, or start one where that may be done.
#   scripts/engine.sh              find one; as root on Debian or Ubuntu install and start Docker
#   scripts/engine.sh --registry   the same, and have Debian's docker-registry and gpg for the tests
#   scripts/engine.sh stop         end the engine that this script started, and no other
# Standard output is for `eval`: `export DOCKER_HOST=...` when envlock would not find the
# engine by itself, else nothing. Each step is one line on standard error. Exit 3 when
# there is no engine and none can be had.
#
# An engine started here is private: its socket, process file and images lie in folders of
# its own, it has no network (envlock builds and runs without one) and leaves the host's
# firewall alone. ENVLOCK_ENGINE_RUN and ENVLOCK_ENGINE_DATA move the folders.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${ENVLOCK_PYTHON:-.venv/bin/python}
run=${ENVLOCK_ENGINE_RUN:-/run/envlock-engine}
data=${ENVLOCK_ENGINE_DATA:-/var/lib/envlock-engine}
socket=$run/docker.sock

say() { printf 'engine: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2; exit 3; }
has() { command -v "$1" >/dev/null; }
may_apt() { [ "$(id -u)" = 0 ] && has apt-get; }

# Prints the engine's name and version; the same search as envlock's own.
answers() {
  "$python" - 2>&1 <<'PYTHON'
import os, sys
from envlock.errors import EnvlockError
from envlock.image.engine import connect
try:
    info = connect(os.environ).info
except EnvlockError as error:
    sys.exit(f"{error}")
print(f"{info.name} {info.version}, {info.storage_driver}, by {info.endpoint}")
PYTHON
}

ours() { # is the process in our file really the engine that we started?
  local pid
  pid=$(cat "$run/docker.pid" 2>/dev/null) || return 1
  [ -n "$pid" ] && [ -r "/proc/$pid/cmdline" ] &&
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$socket" && printf '%s' "$pid"
}

stop() {
  local pid try
  pid=$(ours) || { say 'nothing to stop: no engine was started from here'; return; }
  say "stopping the engine that was started from here (process $pid)"
  kill "$pid" 2>/dev/null || true
  for try in $(seq 100); do
    [ -d "/proc/$pid" ] || break
    [ "$try" != 80 ] || kill -9 "$pid" 2>/dev/null || true
    sleep 0.2
  done
  rm -rf "$run"
}

lacking() { # which packages' programs are missing: PROGRAM=PACKAGE ...
  local pair
  for pair in "$@"; do has "${pair%%=*}" || printf '%s\n' "${pair#*=}"; done
}

install() { # install the packages whose program is missing: PROGRAM=PACKAGE ...
  local missing
  mapfile -t missing < <(lacking "$@")
  [ ${#missing[@]} != 0 ] || return 0
  may_apt || return 1
  say "installing Debian's ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local get=(apt-get install -y -qq --no-install-recommends "${missing[@]}")
  "${get[@]}" >/dev/null 2>&1 || { apt-get update -qq >/dev/null && "${get[@]}" >/dev/null 2>"$(log apt)"; } ||
    fail "apt-get could not install ${missing[*]}: $(tail -n 3 "$(log apt)" | tr '\n' ' ')" "install them by hand, then run this again"
}

log() { mkdir -p "$run" && printf '%s' "$run/$1.log"; }

cgroups() { # a machine without systemd may have none mounted, and dockerd needs them
  [ -n "$(ls -A /sys/fs/cgroup 2>/dev/null)" ] && return
  say 'mounting cgroups (this machine has none mounted)'
  mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null || say 'cgroups could not be mounted; dockerd will say what it lacks'
}

start() { # try the gentlest way first: no bridge, no firewall rules, the best storage driver
  local attempt try
  local quiet='--iptables=false --ip6tables=false --bridge=none'
  mkdir -p "$run" "$data"
  chmod 700 "$run"
  cgroups
  for attempt in "$quiet" "$quiet --storage-driver=vfs" ''; do
    say "starting dockerd${attempt:+ $attempt}"
    rm -f "$run/docker.pid"
    # In a session of its own and without our file descriptors: it outlives `make` and holds no pipe open.
    # shellcheck disable=SC2086
    setsid dockerd -H "unix://$socket" --data-root "$data" --exec-root "$run/exec" --pidfile "$run/docker.pid" \
      $attempt </dev/null >"$run/dockerd.log" 2>&1 9>&- &
    local child=$!
    for try in $(seq 150); do
      if [ -S "$socket" ] && found=$(DOCKER_HOST=unix://$socket answers); then
        disown "$child" 2>/dev/null || true
        say "started: $found; its images lie in $data; \`scripts/engine.sh stop\` ends it"
        printf 'export DOCKER_HOST=unix://%s\n' "$socket"
        return
      fi
      kill -0 "$child" 2>/dev/null || break
      sleep 0.2
    done
    kill "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  done
  fail "dockerd did not come up: $(grep -E 'level=(error|fatal)|failed' "$run/dockerd.log" | tail -n 2 | tr '\n' ' ')" \
    "its whole log is $run/dockerd.log; start an engine yourself and set DOCKER_HOST"
}

main() {
  local found why tools=(mmdebstrap=mmdebstrap)
  [ "${1:-}" != --registry ] || tools+=(docker-registry=docker-registry gpg=gpg gpg-agent=gpg-agent)
  install "${tools[@]}" ||
    say "parts of the work need what is not installed (Debian or Ubuntu: \`sudo apt-get install $(lacking "${tools[@]}" | xargs)\`)"
  if found=$(answers); then
    say "$found"
    return
  fi
  why=$found
  if ours >/dev/null && found=$(DOCKER_HOST=unix://$socket answers); then
    say "$found, started from here before"
    printf 'export DOCKER_HOST=unix://%s\n' "$socket"
    return
  fi
  # Its own socket names no other engine: the one that was started from here has ended, and is started again.
  if [ -n "${DOCKER_HOST:-}${DOCKER_CONTEXT:-}" ] && [ "${DOCKER_HOST:-}" != "unix://$socket" ]; then
    fail "$why" 'the engine was named by DOCKER_HOST or DOCKER_CONTEXT; unset them to let one be found or started here'
  fi
  [ "$(id -u)" = 0 ] || fail "$why" 'start an engine (Debian or Ubuntu: `sudo apt-get install docker.io mmdebstrap`, then `sudo usermod -aG docker $USER` and log in again), or run this as root'
  has dockerd || may_apt || fail "$why" 'install Docker or Podman, start it, and run this again'
  install dockerd=docker.io
  if [ -d /run/systemd/system ] && systemctl start docker >/dev/null 2>&1 && found=$(answers); then
    say "started by systemd: $found"
    return
  fi
  start
}

[ -x "$python" ] || fail "no Python at $python" 'run `scripts/venv.sh` first'
if [ "${1:-}" = stop ]; then
  stop
  exit
fi
# Two makes at once: one starts the engine, the other finds it.
if [ "$(id -u)" = 0 ] && has flock; then
  mkdir -p "$(dirname "$run")"
  exec 9>"$run.flock"
  flock -w 300 9
fi
main "$@"
