#!/bin/sh
# Runs a GoogleTest binary (the arguments) and turns "passed, but some tests
# skipped" into exit code 77, which CTest shows as skipped.
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
{ "$@"; echo "$?" >"$output.rc"; } 2>&1 | tee "$output"
rc=$(cat "$output.rc"); rm -f "$output.rc"
if [ "$rc" -eq 0 ] && grep -q '^\[  SKIPPED \]' "$output"; then exit 77; fi
exit "$rc"
