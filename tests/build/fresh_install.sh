#!/usr/bin/env bash
# Runs ./dev's install step and the configure step in a new, minimal Debian 12: no
# compiler, Python, git or certificates; with TOKEND_FRESH_DEMO=1 the whole demo, too.
# Needs root and debootstrap; exit code 77 (skipped) without them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

skip() {
  echo "SKIPPED: $1" >&2
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip 'a chroot needs root'
command -v debootstrap >/dev/null || skip 'debootstrap is not installed'

chroot=$PWD/build/fresh
# Its own mount namespace, so that nothing stays mounted whatever happens.
if [ -z "${TOKEND_FRESH_INSIDE:-}" ]; then
  unshare --mount true 2>/dev/null || skip 'this root may not mount'
  TOKEND_FRESH_INSIDE=1 exec unshare --mount "$0"
fi

# The mirrors this machine uses itself, as DEB822 says them.
# shellcheck disable=SC2016  # apt's own variables
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
  awk '$2 == "bookworm" && /debian/ { print $1; exit }')
[ -n "$mirror" ] || { echo "apt names no mirror: skipped"; exit 77; }

rm -rf "$chroot"
mkdir -p "$chroot"
trap 'umount "$chroot/proc" 2>/dev/null; rm -rf --one-file-system "$chroot"' EXIT
echo "Debian 12 from $mirror"
debootstrap --variant=minbase bookworm "$chroot" "$mirror" >build/fresh.log 2>&1 ||
  { tail -20 build/fresh.log; exit 1; }
for tool in gcc cc python3 git pip cmake sudo; do
  ! chroot "$chroot" sh -c "command -v $tool" || { echo "the chroot is not bare: $tool"; exit 1; }
done

mount -t proc proc "$chroot/proc"
cp -L /etc/resolv.conf "$chroot/etc/resolv.conf"
# A certificate authority that this machine trusts, as Debian has it: the
# ca-certificates package picks it up when ./dev installs it.
mkdir -p "$chroot/usr/local/share/ca-certificates"
cp -rL /usr/local/share/ca-certificates/. "$chroot/usr/local/share/ca-certificates/"
mkdir "$chroot/src"
tar -c --exclude=./build --exclude=./.git . | tar -x -C "$chroot/src"

inside() { env -u CCACHE_DIR HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$chroot" "$@"; }
inside /src/dev configure
# A second run touches neither apt nor the network.
for tool in usr/bin/apt-get usr/bin/apt; do
  printf '#!/bin/sh\necho "apt was called again" >&2\nexit 1\n' >"$chroot/$tool"
done
https_proxy=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 inside /src/dev configure
grep -q 'Build files have been written' "$chroot/src/build/release.log"
[ -z "${TOKEND_FRESH_DEMO:-}" ] || inside /src/dev demo
echo "A fresh Debian 12 installs and configures: $(du -sxm --exclude=proc "$chroot" | cut -f1) MB"
