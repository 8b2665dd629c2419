#!/usr/bin/env bash
# All checks that want a GPU, from this folder alone: ./run.sh [MODEL.gguf]
# Each part has its own limit and all of them together RUN_SECONDS (default 230); what
# fails or hangs does not keep the next from running. The table comes last; the same is in
# results/summary.json and each part's output in results/PART.log. Exit code: 1 if a part
# failed, 77 if none could run, else 0.
set -u
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
cd "$here/work" || exit 1
out=$here/results
rm -rf "$out"
mkdir -p "$out"
model=${1:-$here/models/llama.gguf}
deadline=$((SECONDS + ${RUN_SECONDS:-230}))
names=() states=() times=() notes=()

# The libraries beside the programs; this machine's own C library, unless it is too old.
export LD_LIBRARY_PATH=$here/lib
"$here/bin/cuda_device" >/dev/null 2>&1
case $? in 0 | 77) ;; *) export LD_LIBRARY_PATH=$here/lib:$here/lib/glibc ;; esac

record() {
  names+=("$1") states+=("$2") times+=("$3") notes+=("$4")
  printf '%-28s %-8s %4s s  %s\n' "$1" "$2" "$3" "$4"
}

# One line of a log that says how it went: GoogleTest's count, a benchmark's speed of a
# single sequence, else the last that says anything.
summary() {
  local line
  line=$(grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$1" | sort -u | head -2 | tr '\n' ' ')
  [ -n "$line" ] || line=$(sed -n 's/^ *[^ ]*_decode_1\(_share\)\{0,1\}  */ /p' "$1" | tr -s '\n ' ' ')
  [ -n "$line" ] || line=$(grep -v '^[[:space:]]*$' "$1" | tail -1)
  printf '%s' "${line:0:110}"
}

# part NAME SECONDS COMMAND...: exit code 77 is "skipped".
part() {
  local name=$1 limit=$2 start=$SECONDS left=$((deadline - SECONDS)) state rc
  shift 2
  if [ -n "${no_device:-}" ]; then record "$name" skipped 0 "no device"; return; fi
  if [ "$left" -le 1 ]; then record "$name" skipped 0 "no time left"; return; fi
  [ "$limit" -le "$left" ] || limit=$left
  timeout --kill-after=3 "$limit" "$@" >"$out/$name.log" 2>&1
  rc=$?
  case $rc in
    0) state=ok ;;
    77) state=skipped ;;
    124 | 137) state=TIMEOUT ;;
    *) state=FAILED ;;
  esac
  record "$name" "$state" $((SECONDS - start)) "$(summary "$out/$name.log")"
}

finish() {
  local i failed=0 ran=0
  printf '\n%-28s %-8s %6s  %s\n' part state time what
  {
    printf '{"seconds": %d, "parts": [' "$SECONDS"
    for i in "${!names[@]}"; do
      [ "$i" -eq 0 ] || printf ', '
      printf '{"name": "%s", "state": "%s", "seconds": %d, "note": "%s"}' "${names[$i]}" \
        "${states[$i]}" "${times[$i]}" "$(tr -d '\000-\037' <<<"${notes[$i]}" | sed 's/[\\"]/\\&/g')"
    done
    printf ']}\n'
  } >"$out/summary.json"
  for i in "${!names[@]}"; do
    printf '%-28s %-8s %4s s  %s\n' "${names[$i]}" "${states[$i]}" "${times[$i]}" "${notes[$i]}"
    case ${states[$i]} in ok) ran=1 ;; FAILED | TIMEOUT) ran=1 failed=1 ;; esac
  done
  [ "$failed" -eq 0 ] || exit 1
  [ "$ran" -eq 1 ] || exit 77
  exit 0
}
trap finish EXIT

part device 30 "$here/bin/cuda_device"
[ "${states[0]}" = ok ] || no_device=1
for test in "$here"/tests/*; do
  [ -x "$test" ] || continue
  part "op_$(basename "$test")" 40 "$test" --gtest_brief=1
done
part daemon 50 "$here/daemon.sh" "$here" "$model"
part sanitizer 30 "$here/sanitizer.sh" "$here"
# The most telling ones first, should time run out.
for shape in llama-3-8b:Q4_K_M llama-3-8b:F16 smollm2-135m:F16 llama-3.2-1b:F16 \
  llama-2-7b:Q4_0 phi-3-mini:Q4_K_M gpt2-124m:F16 smollm2-135m:Q4_0; do
  name=bench_${shape/:/_}
  part "$name" 45 "$here/bin/tokend_device_bench" --device cuda:0 --models "$shape" \
    --seconds 0.3 --json "$out/$name.json"
done
