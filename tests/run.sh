#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
source .ci/lib.sh

usage() {
  cat <<'TEXT'
usage: tests/run.sh [--quick | --full] [--no-install] [--help] [-- ARGUMENTS OF CTEST]

Builds mgroups and runs its tests; the output ends on ctest's closing lines. Says first which Debian packages
are missing and installs them (as root).

  (default)      the tests, also under ASan+UBSan and TSan, and interop with PyTorch from PyPI
  --quick        no interop, no sanitizers, no headers one by one: for the inner loop, and without a network
  --full         everything: also g++ 11 and clang 16
  --no-install   install no packages; name what is missing and stop

environment: MGROUPS_SHARED_DIR      the folder with the fixtures (../shared beside the checkout)
             MGROUPS_PROPERTY_CASES  cases of each property test
             PYTHON                  the python3 for build/venv
exit status: 0 all passed, 2 wrong usage, 3 packages are missing, others: a build or a test failed
TEXT
}

preset=release-default
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) preset=release-quick ;;
    --full) preset=release-full ;;
    --no-install) no_install=true ;;
    -h | --help) usage && exit 0 ;;
    --) shift && break ;;
    *) fail 2 "unknown argument '$1'; see --help" ;;
  esac
  shift
done

need_build_tools
need make make
need python3 "$python"
need_library doctest-dev doctest/doctest.h
need_library nlohmann-json3-dev nlohmann/json.hpp
need_library libssl-dev openssl/evp.h
need_library libcli11-dev CLI/CLI.hpp
if [ $preset != release-quick ]; then
  "$python" -c 'import ensurepip' 2>/dev/null || missing_packages+=(python3-venv)
fi
if [ $preset = release-full ]; then
  need g++-11 g++-11
  need clang-16 clang++-16
  need libclang-rt-16-dev /usr/lib/llvm-16/lib/clang/16/lib/linux
fi
install_missing
MGROUPS_SHARED_DIR=$(realpath -m "${MGROUPS_SHARED_DIR:-../shared}")
export MGROUPS_SHARED_DIR

say "building"
cmake --preset release
cmake --build --preset release

say "testing"
exec ctest --preset $preset -j "$(nproc)" "$@"
