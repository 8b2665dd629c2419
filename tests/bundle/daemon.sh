#!/usr/bin/env bash
# The daemon on the device, end to end: daemon.sh BUNDLE MODEL. Turns through gRPC on
# loopback, the same again, the same beside others, parity with the CPU, metrics.
set -eu
here=$1 model=$2 device=${BUNDLE_DEVICE:-cuda}
[ -f "$model" ] || { echo "no model at $model"; exit 77; }
temp=$(mktemp -d)
pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  rm -rf "$temp"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; tail -5 "$temp"/*.log; exit 1; }

# start NAME FLAG...: sets $address, $metrics.
start() {
  local name=$1 i
  shift
  "$here/bin/tokend" --model "$model" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \
    --ports-file "$temp/$name.ports" "$@" >"$temp/$name.log" 2>&1 &
  pids+=($!)
  for ((i = 0; i < 200; i++)); do
    if grep -q event=ready "$temp/$name.log"; then
      address=$(sed -n 's/^grpc=//p' "$temp/$name.ports")
      metrics=$(sed -n 's/^metrics=//p' "$temp/$name.ports")
      return
    fi
    kill -0 "${pids[-1]}" 2>/dev/null || fail "$name ended: $(tail -1 "$temp/$name.log")"
    sleep 0.1
  done
  fail "$name was not ready in time"
}
ask() { "$here/bin/tokctl" --server "$1" generate --prompt "$2" --max-tokens 24 --temperature 0; }
# No curl on a bare machine.
scrape() {
  exec 3<>"/dev/tcp/${1%:*}/${1##*:}"
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  cat <&3
  exec 3>&-
}

start cpu --device cpu --activations f32
cpu=$address
start exact --device "$device" --activations f32
exact=$address
start default --device "$device"
grep -h event=device "$temp"/*.log
prompt="The robot looked at the red box and"
want=$(ask "$cpu" "$prompt") || fail "the CPU does not answer"
[ -n "$want" ] || fail "an empty answer"
got=$(ask "$exact" "$prompt") || fail "the device does not answer"
[ "$got" = "$want" ] || fail "greedy tokens differ from the CPU's: $got / $want"
alone=$(ask "$address" "$prompt") || fail "the device does not answer by default"
for i in 1 2 3 4 5; do ask "$address" "$prompt$i" >"$temp/other$i" & others[i]=$!; done
beside=$(ask "$address" "$prompt")
for i in 1 2 3 4 5; do wait "${others[i]}" || fail "one of several turns failed"; done
[ "$beside" = "$alone" ] || fail "an answer depends on other turns: $beside / $alone"
"$here/bin/tokctl" --server "$address" stats
scrape "$metrics" >"$temp/metrics"
grep -q 'tokend_build_info{.*device="'"$device"'"' "$temp/metrics" || fail "the metrics name no device"
count=$(sed -n 's/^tokend_generated_tokens_total //p' "$temp/metrics")
echo "parity with the CPU, 7 turns alike alone and together, $count tokens counted"
