#!/usr/bin/env bash
# HealthCheckProgram for Slurm: is this node as its lockfile says?
# Dry unless ENVLOCK_DRAIN=1: it logs the reason and the `scontrol` command, and runs nothing.
# It never resumes a node, and leaves one alone that is drained or down already.
#
# Settings, from the environment or /etc/default/envlock:
#   ENVLOCK          the program                [/usr/local/bin/envlock]
#   ENVLOCK_LOCK     the lockfile of this node  [/etc/envlock/node.lock.toml]
#   ENVLOCK_DRAIN    1 drains a node that is not as locked
#   ENVLOCK_TIMEOUT  seconds; slurmd kills a health check after 60 [50]
#   ENVLOCK_NVML_DEADLINE  seconds for the driver, and again for nvidia-smi [what fits ENVLOCK_TIMEOUT]
set -u
settings=${ENVLOCK_SETTINGS:-/etc/default/envlock}
if [ -r "$settings" ]; then
  # shellcheck disable=SC1090
  . "$settings"
fi
envlock=${ENVLOCK:-/usr/local/bin/envlock}
lock=${ENVLOCK_LOCK:-/etc/envlock/node.lock.toml}
limit=${ENVLOCK_TIMEOUT:-50}
# A driver that hangs is to be told, and its node drained, before the time is over.
if [[ $limit =~ ^[1-9][0-9]{1,3}$ ]]; then
  export ENVLOCK_NVML_DEADLINE=${ENVLOCK_NVML_DEADLINE:-$(((limit - 6) / 2))}
fi
drain=()
[ "${ENVLOCK_DRAIN:-}" = 1 ] && drain=(--drain)

said=$(timeout -k 5 "$limit" "$envlock" check --as slurm --lock "$lock" "${drain[@]+"${drain[@]}"}" 2>&1 </dev/null)
code=$?
failed=
if [ "$code" -ge 125 ] && [ "$code" -le 127 ]; then
  failed="$envlock cannot be run (status $code)"
elif [ "$code" -ge 124 ]; then
  failed="no answer within $limit s, or killed (status $code)"
fi
[ -z "$failed" ] || said="${said:+$said$'\n'}envlock: unknown: $failed"
if [ "$code" -ne 0 ]; then
  if command -v logger >/dev/null; then
    printf '%s\n' "$said" | logger -t envlock -p daemon.warning
  fi
  printf '%s\n' "$said" >&2
fi
# What is to happen has happened: slurmd only logs another status.
exit 0
