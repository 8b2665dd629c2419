#!/usr/bin/env bash
# NVIDIA's compute-sanitizer on a short test, where it is installed: sanitizer.sh BUNDLE
set -eu
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
  { echo "compute-sanitizer is not installed"; exit 77; }
exec "$tool" --error-exitcode 1 --leak-check full "$1/tests/cuda_copy_pages_test"
