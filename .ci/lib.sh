# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
#
# What the scripts share; to be sourced, with the repository's root as the working directory.

say() { printf '== %s\n' "$*"; }

# fail STATUS TEXT...: says why and stops.
fail() {
  local status=$1
  shift
  printf '%s: %s\n' "$0" "$*" >&2
  exit "$status"
}

no_install=false
missing_packages=()

# need PACKAGE WHAT: notes a Debian package as missing when neither a command nor a file WHAT is there.
need() {
  command -v "$2" >/dev/null || [ -e "$2" ] || missing_packages+=("$1")
}

# need_library PACKAGE HEADER: the same, by a header in the directories of Debian's packages.
need_library() {
  need "$1" "/usr/include/$2"
}

# Packages of every build here.
need_build_tools() {
  need g++ g++
  need cmake cmake
  need ninja-build ninja
}

# Installs what was noted, after saying so. Stops with status 3 where it may not, or cannot.
install_missing() {
  [ ${#missing_packages[@]} -gt 0 ] || return 0
  local wish="apt-get install ${missing_packages[*]}"
  [ $no_install = false ] || fail 3 "missing packages (--no-install was given): $wish"
  [ "$(id -u)" = 0 ] || fail 3 "missing packages, and installing them takes root's rights: $wish"
  command -v apt-get >/dev/null || fail 3 "missing, under their names in Debian: ${missing_packages[*]}"
  say "installing ${missing_packages[*]}"
  mkdir -p build
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing_packages[@]}"; } \
      >build/apt.log 2>&1 </dev/null; then
    tail -n 5 build/apt.log >&2
    fail 3 "could not install them (all of the output: build/apt.log): $wish"
  fi
  missing_packages=()
}
