# Installs the library, its headers, the command, its documents, and what find_package and pkg-config need.
if(NOT TARGET weir)
  return()
endif()
include(CMakePackageConfigHelpers)

set(weir_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weir")

set_target_properties(weir_usage PROPERTIES EXPORT_NAME usage)
set_target_properties(weir_system PROPERTIES EXPORT_NAME system)
install(TARGETS weir weir_usage weir_system EXPORT weirTargets)
install(EXPORT weirTargets NAMESPACE weir:: DESTINATION "${weir_package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/weir" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/weirConfig.cmake.in" "${PROJECT_BINARY_DIR}/weirConfig.cmake"
                              INSTALL_DESTINATION "${weir_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weirConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weirConfig.cmake" "${PROJECT_BINARY_DIR}/weirConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindIPSecMB.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindNgtcp2.cmake"
              DESTINATION "${weir_package_dir}")

# Relative, so that the installed tree may be moved.
file(RELATIVE_PATH weir_pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
set(weir_pc_libs "-pthread")
if(IPSecMB_FOUND)
  set(weir_pc_libs "-lIPSec_MB -pthread")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/weir.pc.in" "${PROJECT_BINARY_DIR}/weir.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weir.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(TARGET weir_command)
  install(TARGETS weir_command)
endif()

# Laid out as in the tree, so that their links lead somewhere.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
              "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        FILES_MATCHING PATTERN "*.md" PATTERN "*.cc")

# The compiler's own form of the code is of use to that very compiler only, and an error to any other.
if(weir_lto AND CMAKE_STRIP)
  install(CODE "
    set(archive \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libweir.a\")
    if(EXISTS \"\${archive}\")
      execute_process(COMMAND \"${CMAKE_STRIP}\" -p -R .gnu.lto_* -R .gnu.debuglto_* -N __gnu_lto_v1 \"\${archive}\"
                      COMMAND_ERROR_IS_FATAL ANY)
    endif()")
endif()
