# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/mgroups)
configure_package_config_file(.cmake/mgroupsConfig.cmake.in mgroupsConfig.cmake INSTALL_DESTINATION ${package_dir}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
# A minor version has a namespace of its own: programs are written against one.
write_basic_package_version_file(mgroupsConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)

install(DIRECTORY include/mgroups DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS mgroups EXPORT mgroupsTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT mgroupsTargets NAMESPACE mgroups:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/mgroupsConfig.cmake ${PROJECT_BINARY_DIR}/mgroupsConfigVersion.cmake
              .cmake/mgroups-components.cmake
        DESTINATION ${package_dir})
