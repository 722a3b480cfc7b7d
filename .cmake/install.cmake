include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(buzz_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/buzz)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(TARGETS buzz EXPORT buzz)
if(BUZZ_CUDA)
  install(TARGETS buzz_cuda EXPORT buzz)
endif()
install(EXPORT buzz NAMESPACE buzz:: FILE buzzTargets.cmake DESTINATION ${buzz_package_dir})

# While the major version is 0, a new minor version may break callers.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/buzzConfigVersion.cmake COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/buzzConfig.cmake ${PROJECT_BINARY_DIR}/buzzConfigVersion.cmake
        DESTINATION ${buzz_package_dir})

configure_file(${CMAKE_CURRENT_LIST_DIR}/buzz.pc.in ${PROJECT_BINARY_DIR}/buzz.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/buzz.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
