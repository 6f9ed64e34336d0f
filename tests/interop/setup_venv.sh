#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
#
# Makes build/venv with the real peers of the interop tests and benchmarks, from PyPI: torch, numpy, safetensors and, each in
# a folder of its own beside them, two generations of Megatron-Core.
# Does nothing when it is there already. Needs python3 (PYTHON=... for another one) with venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/lib.sh

torch='torch==2.14.*'
others=('numpy>=2,<3' 'safetensors>=0.8,<0.9' 'packaging' 'psutil')
# The last that writes common.pt and still runs under Python 3.10, and the newest, which has an item of its own instead.
megatron=(megatron-core==0.16.1 megatron-core==0.19.2)
venv=build/venv
wanted="$torch ${others[*]} ${megatron[*]}"
stamp=$venv/mgroups-packages.txt
if [ "$(cat $stamp 2>/dev/null)" = "$wanted" ] && [ -x $venv/bin/python ]; then exit 0; fi

# Packages of NVIDIA's libraries, by what the loader says is missing.
package_of_library() {
  case "$1" in
    *libcufile*) echo nvidia-cufile ;;
    *libcusparseLt*) echo nvidia-cusparselt-cu13 ;;
    *libnvshmem*) echo nvidia-nvshmem-cu13 ;;
    *libnccl* | *'undefined symbol: nccl'*) echo nvidia-nccl-cu13 ;;
    *libcudnn*) echo nvidia-cudnn-cu13 ;;
  esac
}

# The requirements of the installed torch: those of a name with its exact version, or those that are not NVIDIA's.
torch_requirements() {
  $venv/bin/python - "$@" <<'PY'
import importlib.metadata, re, sys
for line in importlib.metadata.requires("torch"):
    name = re.match(r"[\w.-]+", line).group()
    if "extra ==" not in line and (name in sys.argv[1:] or (len(sys.argv) == 1 and not re.match("nvidia|cuda|triton|setuptools", name))):
        print(line.split(";")[0].strip())
PY
}

pip() { $venv/bin/python -m pip --disable-pip-version-check install --quiet "$@"; }

say "making $venv: $wanted"
rm -rf $venv
mkdir -p build
"${PYTHON:-python3}" -m venv $venv
if ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.13 '; then
  # Beside a CUDA 13 toolkit only what the toolkit lacks is wanted of the gigabytes that torch requires.
  pip --no-deps "$torch"
  mapfile -t small < <(torch_requirements)
  pip "${small[@]}" "${others[@]}" 2>&1 | grep -v -E "torch .* requires|dependency resolver" || true
  until problem=$($venv/bin/python -c 'import torch' 2>&1); do
    package=$(package_of_library "$problem")
    if [ -z "$package" ] || $venv/bin/python -m pip --disable-pip-version-check show --quiet "$package" 2>/dev/null; then
      say "the toolkit does not satisfy torch (${problem##*$'\n'}); installing all that it requires"
      pip "$torch"
      break
    fi
    say "torch misses something: $package"
    requirement=$(torch_requirements "$package")
    pip --no-deps "${requirement:-$package}"
  done
else
  pip "$torch" "${others[@]}"
fi
# The newest names Python 3.12 as the oldest, but has wheels for 3.11, and what the test uses of it runs there.
for package in "${megatron[@]}"; do pip --no-deps --ignore-requires-python --target "$venv/${package/==/-}" "$package"; done
$venv/bin/python -c 'import torch, torch.distributed.checkpoint, numpy, safetensors
print("torch", torch.__version__, "numpy", numpy.__version__, "safetensors", safetensors.__version__)'
echo "$wanted" >$stamp
