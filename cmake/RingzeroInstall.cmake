# `cmake --install` exports find_package(ringzero). The libraries and headers are installed by ringzero_library.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ringzero)
configure_package_config_file(cmake/ringzeroConfig.cmake.in ${PROJECT_BINARY_DIR}/ringzeroConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ringzeroConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ringzeroConfig.cmake ${PROJECT_BINARY_DIR}/ringzeroConfigVersion.cmake
              cmake/FindRingzeroTorch.cmake cmake/FindRingzeroUcx.cmake
        DESTINATION ${package_folder})
install(EXPORT ringzero NAMESPACE ringzero:: FILE ringzeroTargets.cmake DESTINATION ${package_folder})
foreach(program ringzero ring_perf)
  if(TARGET ${program})
    add_dependencies(ringzero_package ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/ringzero)
install(CODE "message(STATUS \"To remove these files: xargs -d '\\\\n' rm -f <${PROJECT_BINARY_DIR}/install_manifest.txt\")")
