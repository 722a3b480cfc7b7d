# Makes the .deb of the build in BUILD, looks at what it says of itself, and unpacks it into PREFIX.
# cmake -DBUILD=... -DPREFIX=... -DVERSION=... -DCPACK=... -P check_deb.cmake
file(REMOVE_RECURSE "${PREFIX}")
file(MAKE_DIRECTORY "${PREFIX}")
execute_process(COMMAND "${CPACK}" --config "${BUILD}/CPackConfig.cmake" -B "${PREFIX}/made" OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
set(deb "${PREFIX}/made/libbuzz-dev_${VERSION}_all.deb")
execute_process(COMMAND dpkg-deb --field "${deb}" Package Version Architecture Depends OUTPUT_VARIABLE fields
                COMMAND_ERROR_IS_FATAL ANY)
set(expected "Package: libbuzz-dev\nVersion: ${VERSION}\nArchitecture: all\nDepends: libeigen3-dev (>= 3.4)\n")
if(NOT fields STREQUAL expected)
  message(FATAL_ERROR "${deb} says\n${fields}in place of\n${expected}")
endif()
execute_process(COMMAND dpkg-deb --extract "${deb}" "${PREFIX}" COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE "${PREFIX}" "${PREFIX}/usr/*")
foreach(file IN LISTS files)
  if(NOT file MATCHES "^usr/(include/buzz(\\.h|/.*\\.(h|cuh))|share/(cmake/buzz/[^/]*\\.cmake|pkgconfig/buzz\\.pc))$")
    message(FATAL_ERROR "${deb} has ${file}")
  endif()
endforeach()
