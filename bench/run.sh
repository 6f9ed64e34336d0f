#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/.ci/lib.sh"

usage() {
  cat <<'TEXT'
usage: bench/run.sh [--no-install] [--repeats N] [--only PART] [--quick] [--json FILE] [--svg FILE] [--disk DIRECTORY]

Measures ours, real peers (PyTorch's distributed checkpoint, Megatron-Core, safetensors, Python's pickle) and the machine's
limit in turn, on disk and on tmpfs, at two sizes each. Prints the medians as one table: wall and CPU seconds of each, how
many times as fast ours is, the part of the other's CPU time that it takes, and the exponent of growth between the sizes.
What ours saves is loaded by torch in the same run and every element compared; what ours loads, by our program.
About fifteen minutes.

  --repeats N       rounds of each measurement (default 5); slow peers have fewer, as the table says
  --only PART       parts whose name holds it: checkpoint, again, rows, copies, small, stage, training, plan, metadata,
                    all_gather
  --quick           sizes / 8, to check that everything runs
  --json FILE       write all samples there
  --svg FILE        draw the picture there (default build/run/bench.svg)
  --disk DIRECTORY  where the disk is measured (default build)

exit status: 0 measured, 1 something failed or was saved or loaded wrongly, 2 wrong usage, 3 packages are missing
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
