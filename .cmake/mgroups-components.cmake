# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors

# The optional parts of mgroups. The build tree and the installed package both include this file, with mgroups_INCLUDE_DIR set.
# mgroups_find_component(<name>) makes the target mgroups::<name> and sets mgroups_<name>_FOUND and, where it cannot,
# mgroups_<name>_NOT_FOUND_MESSAGE: a sentence.
set(mgroups_known_components mpi nccl cuda)
set(mgroups_mpi_header comm/mpi.hpp)
set(mgroups_nccl_header comm/nccl.hpp)
set(mgroups_cuda_header pack/pack.cuh)

function(mgroups_find_component name)
  set(problem "")
  if(NOT name IN_LIST mgroups_known_components)
    list(JOIN mgroups_known_components ", " known)
    set(problem "mgroups has no component '${name}'; its components are ${known}")
  elseif(NOT EXISTS "${mgroups_INCLUDE_DIR}/mgroups/${mgroups_${name}_header}")
    set(problem "this version of mgroups comes without its component '${name}' (<mgroups/${mgroups_${name}_header}>)")
  elseif(name STREQUAL "cuda")
    find_package(CUDAToolkit 12.4 QUIET)
    if(NOT CUDAToolkit_FOUND)
      set(problem "the component 'cuda' of mgroups needs the CUDA Toolkit 12.4 or newer; set CUDAToolkit_ROOT to where it is")
    elseif(NOT TARGET mgroups::cuda)
      add_library(mgroups::cuda INTERFACE IMPORTED GLOBAL)
      target_link_libraries(mgroups::cuda INTERFACE mgroups::mgroups CUDA::cudart_static)
    endif()
  endif()
  set(mgroups_${name}_NOT_FOUND_MESSAGE "${problem}" PARENT_SCOPE)
  if(problem)
    set(mgroups_${name}_FOUND FALSE PARENT_SCOPE)
  else()
    set(mgroups_${name}_FOUND TRUE PARENT_SCOPE)
  endif()
endfunction()
