# PROGRAM with ARGUMENTS (a list) ends with 2 and says TEXT on its standard error, nothing on its standard output.
# cmake -DPROGRAM=... -DARGUMENTS=... -DTEXT=... -P check_refusal.cmake
execute_process(COMMAND "${PROGRAM}" ${ARGUMENTS} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error)
string(FIND "${error}" "${TEXT}" at)
if(NOT result EQUAL 2 OR at EQUAL -1 OR NOT output STREQUAL "")
  message(FATAL_ERROR "It ended with ${result}, said\n${error}and printed\n${output}")
endif()
