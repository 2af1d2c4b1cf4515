#!/usr/bin/env bash
# One observation, told several times: annotations, step summary, a report, and the verdict as output.
set -euo pipefail
envlock=${ENVLOCK_ACTION_PROGRAM:-$RUNNER_TEMP/envlock-venv/bin/envlock}
lock=()
[ -z "${ENVLOCK_ACTION_LOCK:-}" ] || lock=(--lock "$ENVLOCK_ACTION_LOCK")
facts=${ENVLOCK_ACTION_FACTS:-}
form=${ENVLOCK_ACTION_FORMAT:-}
report=
failed=0
# What a workflow set for other steps must not steer this one.
unset ENVLOCK_FORMAT "${!ENVLOCK_CHECK_@}" "${!ENVLOCK_PROBE_@}"

if [ -z "$facts" ]; then
  facts=$RUNNER_TEMP/envlock-facts.json
  rm -f "$facts"
  # A probe that fails leaves no file: the check then says that it could not tell.
  "$envlock" probe --format json --output "$facts" || true
fi

check() { "$envlock" check "${lock[@]}" --facts "$facts" "$@"; }

code=0
check --format github || code=$?
check --format markdown --output "$RUNNER_TEMP/envlock-summary.md" 2>/dev/null || true
cat "$RUNNER_TEMP/envlock-summary.md" >>"$GITHUB_STEP_SUMMARY"
if [ -n "$form" ]; then
  report=${ENVLOCK_ACTION_REPORT:-$RUNNER_TEMP/envlock-report.$form}
  told=0
  check --format "$form" --output "$report" >/dev/null || told=$?
  if [ "$told" -ne "$code" ]; then
    # A format that there is not, a place that cannot be written: the verdict stands, the step fails.
    report=
    failed=3
  fi
fi

case $code in
  0) verdict=match ;;
  1) verdict=drift ;;
  *) verdict=unknown ;;
esac
# A heredoc with a name nobody can guess: a path may hold a newline, and must not set another output.
end=end-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
{
  printf 'verdict=%s\nexit-code=%s\n' "$verdict" "$code"
  printf 'report<<%s\n%s\n%s\n' "$end" "$report" "$end"
} >>"$GITHUB_OUTPUT"
[ "$code" -ne 0 ] || exit "$failed"
exit "$code"
