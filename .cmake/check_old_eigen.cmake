# HEADER does not compile beside the Eigen in OLD; the compiler says why, and stops. Nothing but eigen.h includes Eigen.
# cmake -DCOMPILER=... -DINCLUDE=... -DOLD=... -DHEADER=... -P check_old_eigen.cmake
execute_process(COMMAND "${COMPILER}" -std=c++17 -fsyntax-only -x c++ "-I${INCLUDE}" "-I${OLD}" "${INCLUDE}/${HEADER}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error)
string(REGEX MATCHALL "[^\n]*error: [^\n]*" errors "${error}")
list(LENGTH errors count)
if(result EQUAL 0 OR NOT error MATCHES "error: [^\n]*buzz needs Eigen 3[.]4 to 5" OR count GREATER 2)
  message(FATAL_ERROR "It ended with ${result} and ${count} errors:\n${error}")
endif()

file(GLOB_RECURSE headers "${INCLUDE}/*.h")
foreach(header IN LISTS headers)
  file(STRINGS "${header}" lines REGEX "#include *<Eigen/")
  if(lines AND NOT header MATCHES "/buzz/eigen[.]h$")
    message(FATAL_ERROR "${header}: ${lines}")
  endif()
endforeach()
