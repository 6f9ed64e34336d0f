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

  (default)      an optimised build and its tests; again under ASan+UBSan and TSan; each reader fuzzed for a
                 few seconds; interop with PyTorch from PyPI
  --quick        for the inner loop: unoptimised, no interop, no sanitizers, no fuzzing, no GPU sources, no
                 header tests
  --full         everything: also with g++ 11 and clang 16, and longer fuzzing
  --no-install   install no packages; name what is missing and stop

environment: MGROUPS_SHARED_DIR      the folder with the fixtures (../shared beside the checkout)
             MGROUPS_PROPERTY_CASES  cases of each property test
             MGROUPS_FUZZ_SECONDS    how long each reader is fuzzed (5; with --full 120)
             PYTHON                  the python3 for build/venv
exit status: 0 all passed, 2 wrong usage, 3 packages are missing, others: a build or a test failed
TEXT
}

build=release
tests=release-default
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) build=quick tests=quick ;;
    --full) tests=release-full ;;
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
if [ $tests != quick ]; then
  "$python" -c 'import ensurepip' 2>/dev/null || missing_packages+=(python3-venv)
  need clang-16 clang++-16
  need libclang-rt-16-dev /usr/lib/llvm-16/lib/clang/16/lib/linux
fi
if [ $tests = release-full ]; then
  need g++-11 g++-11
fi
install_missing
MGROUPS_SHARED_DIR=$(realpath -m "${MGROUPS_SHARED_DIR:-../shared}")
export MGROUPS_SHARED_DIR

say "building"
cmake --preset ${build/quick/debug}
cmake --build --preset $build

say "testing"
exec ctest --preset $tests -j "$(nproc)" "$@"
