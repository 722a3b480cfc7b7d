# buzz.hpp: the library in one header. Target buzz_hpp writes it into the folder amalgamated/ of the build.
file(GLOB_RECURSE buzz_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h)
file(GLOB buzz_adapters RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/include/buzz/adapters/*.h)
set(buzz_hpp ${PROJECT_BINARY_DIR}/amalgamated/buzz.hpp)
add_custom_command(OUTPUT ${buzz_hpp} DEPENDS ${buzz_headers} ${CMAKE_CURRENT_LIST_DIR}/amalgamate.cmake VERBATIM
                   COMMAND ${CMAKE_COMMAND} -DINCLUDE=${PROJECT_SOURCE_DIR}/include "-DROOTS=buzz.h;${buzz_adapters}"
                           -DVERSION=${PROJECT_VERSION} -DOUT=${buzz_hpp} -P ${CMAKE_CURRENT_LIST_DIR}/amalgamate.cmake)
add_custom_target(buzz_hpp DEPENDS ${buzz_hpp})

# cpack makes libbuzz-dev_*_all.deb.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # nothing that is installed has to be built
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_VENDOR buzz)
  set(CPACK_PACKAGE_CONTACT "the buzz authors <buzz@localhost>")
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
  set(CPACK_DEBIAN_PACKAGE_NAME libbuzz-dev)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libeigen3-dev (>= 3.4)")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  include(CPack)
endif()
