#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/.ci/lib.sh"

usage() {
  cat <<'TEXT'
usage: bench/run.sh [--no-install] [--repeats N] [--only PART] [--json FILE] [--disk DIRECTORY]

Measures ours, a real peer (PyTorch's distributed checkpoint, safetensors) and the machine's limit in turn, and
prints the medians as one table, in seconds; ratios are speeds, so above 1 is faster. About ten minutes.

  --only PART   checkpoint, small, plan or all_gather
  --json FILE   write all samples there

exit status: 0 measured, 1 something failed, 2 wrong usage, 3 packages are missing
TEXT
}

arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) no_install=true ;;
    -h | --help) usage && exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
cd "$root"
need_build_tools
install_missing

say "building the benchmarks"
cmake --preset release
cmake --build --preset release --target benchmarks
say "setting up the peers"
tests/interop/setup_venv.sh
MGROUPS_TOOL_DIR="$root/build/bin" build/venv/bin/python bench/bench.py ${arguments[@]+"${arguments[@]}"}
