#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/lib.sh

usage() {
  cat <<'TEXT'
usage: tests/gpu.sh [--arch ARCH] [--build-only] [--no-bench] [--help]

Builds the GPU tests (tests/cuda) and their benchmark (bench/*_cuda.cu) into build/gpu with plain nvcc and runs them, in
at most 8 minutes. Without nvcc it says so and does nothing; without a device it builds and says so.

  --arch ARCH    what nvcc compiles for (default: sm_90)
  --build-only   do not look for a device
  --no-bench     tests only

environment: NVCC   the compiler (default: nvcc from PATH, else /usr/local/cuda/bin/nvcc)
exit status: 0 passed, built without a device, or skipped; 2 wrong usage; others: a build, a test or a benchmark failed
TEXT
}

arch=sm_90
run=true
bench=true
while [ $# -gt 0 ]; do
  case "$1" in
    --arch)
      [ $# -ge 2 ] || fail 2 "--arch needs a value, such as sm_90"
      arch=$2
      shift
      ;;
    --build-only) run=false ;;
    --no-bench) bench=false ;;
    -h | --help) usage && exit 0 ;;
    *) fail 2 "unknown argument '$1'; see --help" ;;
  esac
  shift
done

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if ! command -v "$nvcc" >/dev/null; then
  echo "skipped: no nvcc here (a CUDA Toolkit of 12.4 or newer has it; NVCC=PATH names another place)"
  exit 0
fi

deadline=$((SECONDS + 8 * 60))
# limited COMMAND...: stops it at the deadline of the whole script.
limited() {
  local left=$((deadline - SECONDS))
  [ $left -gt 0 ] || fail 1 "8 minutes are over; not done: $*"
  timeout --kill-after=5 $left "$@"
}

sources=(tests/cuda/*_test.cu)
[ $bench = false ] || sources+=(bench/*_cuda.cu)
mkdir -p build/gpu

# Two compilers at a time: each takes about 40 seconds and 1 GiB.
say "building for $arch with $("$nvcc" --version | sed -n 's/.*release \([^,]*\),.*/nvcc \1/p')"
pids=()
wait_for_builds() {
  local pid
  for pid in "${pids[@]}"; do wait "$pid" || fail 1 "nvcc failed"; done
  pids=()
}
for source in "${sources[@]}"; do
  limited "$nvcc" -std=c++20 -O2 -arch="$arch" -I include -Xcompiler -Wall,-Wextra -Werror all-warnings \
    -o "build/gpu/$(basename "$source" .cu)" "$source" &
  pids+=($!)
  [ ${#pids[@]} -lt 2 ] || wait_for_builds
done
[ ${#pids[@]} -eq 0 ] || wait_for_builds

if [ $run = false ]; then
  echo "built"
  exit 0
fi
for source in "${sources[@]}"; do
  program=build/gpu/$(basename "$source" .cu)
  say "$program"
  status=0
  limited "$program" || status=$?
  if [ $status = 77 ]; then
    echo "built; no device to run on"
    exit 0
  fi
  [ $status = 0 ] || fail $status "$program failed"
done
echo "passed"
