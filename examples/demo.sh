#!/usr/bin/env bash
# A conversation with a model through tokend: streamed, continued, forked, measured.
# Usage: demo.sh MODEL.gguf, with the programs' folder in TOKEND_BIN_DIR.
set -euo pipefail

model=$1
bin=${TOKEND_BIN_DIR:-/usr/bin}
work=$(mktemp -d)
daemon=
finish() {
  [ $? -eq 0 ] || { printf '\ntokend said:\n'; cat "$work/log"; } >&2
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
    kill "$daemon"
    wait "$daemon" || true
  fi
  rm -rf "$work"
}
trap finish EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
ctl() { "$bin/tokctl" --server "unix:$work/tokend.sock" "$@"; }
ask() {
  say "$1> $2"
  ctl chat --session "$1" --max-tokens 96 --temperature 0 --message "$2"
}
tell() {
  say "$1> $2"
  ctl generate --session "$1" --max-tokens 32 --temperature 0 --prompt "$2"
}

"$bin/tokend" --model "$model" --listen "unix:$work/tokend.sock" --listen 127.0.0.1:0 \
  --metrics-listen 127.0.0.1:0 --ports-file "$work/ports" 2>"$work/log" &
daemon=$!
printf 'Loading %s ' "$(basename "$model")"
until ctl --wait 500ms model >"$work/model" 2>"$work/waiting"; do
  kill -0 "$daemon" 2>/dev/null || exit 1
  printf .
done
printf ' ready on %s\n' "$(sed -n 's/^grpc=//p' "$work/ports" | paste -sd' ')"
cat "$work/model"

if grep -q '^features.*chat' "$work/model"; then
  ask demo 'Name the capital of France in one short sentence.'
  ask demo 'Which river flows through that city?'
else
  say 'This model has no chat format: it continues texts.'
  tell demo 'The capital of France is'
  tell demo ' The river that flows through that city is'
fi

say 'A fork shares the past and goes its own way; the first session stays as it was.'
ctl sessions fork demo demo-fork
if grep -q '^features.*chat' "$work/model"; then
  ask demo-fork 'Name one famous museum there.'
else
  tell demo-fork ' One famous museum there is'
fi

say 'Versions of both sessions'
ctl sessions show demo
ctl sessions show demo-fork

say "A few lines of http://$(sed -n 's/^metrics=//p' "$work/ports")/metrics"
/usr/bin/python3 - "$(sed -n 's/^metrics=//p' "$work/ports")" <<'PY'
import re, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
text = opener.open(f"http://{sys.argv[1]}/metrics", timeout=10).read().decode()
wanted = re.compile(
    r"tokend_(generated_tokens_total|prompt_tokens_total|prefill_seconds_total"
    r"|decode_seconds_total|requests_total|sessions|versions|kv_pages"
    r"|time_to_first_token_seconds_(sum|count))[ {]")
print("\n".join(
    line for line in text.splitlines() if wanted.match(line) and not line.endswith(" 0")))
value = lambda name: sum(
    float(line.split()[-1]) for line in text.splitlines() if re.match(name + r"[ {]", line))
tokens, seconds = value("tokend_generated_tokens_total"), value("tokend_decode_seconds_total")
first, turns = (value("tokend_time_to_first_token_seconds_" + part) for part in ("sum", "count"))
print(f"\n{tokens / seconds:.1f} tokens/s while decoding, "
      f"{1000 * first / turns:.0f} ms to the first token on average")
PY
