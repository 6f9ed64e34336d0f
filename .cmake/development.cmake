# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors

# What tests, examples and benchmarks share. Users of the library see nothing of it.

# The flags that our own translation units are held to.
add_library(mgroups_warnings INTERFACE)
target_compile_options(mgroups_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow;-Werror>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")

set(CMAKE_CXX_EXTENSIONS OFF)

# Debian's package of what is missing, so that the summary can name it.
set(mgroups_package_of_doctest doctest-dev)
set(mgroups_package_of_nlohmann_json nlohmann-json3-dev)
set(mgroups_package_of_OpenSSL libssl-dev)
set(mgroups_package_of_CLI11 libcli11-dev)

# mgroups_need(<part> <package>...): finds the packages of a part of the build (tests, examples, bench) and notes the outcome
# for the summary. Sets <part>_missing to the Debian packages that would bring what was not found.
macro(mgroups_need part)
  set(${part}_missing "")
  foreach(package IN ITEMS ${ARGN})
    find_package(${package} QUIET)
    if(NOT ${package}_FOUND)
      list(APPEND ${part}_missing ${mgroups_package_of_${package}})
    endif()
  endforeach()
  if(${part}_missing)
    list(JOIN ${part}_missing " " missing_text)
    set_property(GLOBAL PROPERTY mgroups_${part}_state "left out, they need ${missing_text}")
  else()
    set_property(GLOBAL PROPERTY mgroups_${part}_state "built")
  endif()
endmacro()

# The language CUDA, where mgroups::cuda is and a compiler for it: .cu files of tests and benchmarks are built then.
set(mgroups_nvcc FALSE)
if(mgroups_cuda_FOUND)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(mgroups_nvcc TRUE)
  endif()
endif()
