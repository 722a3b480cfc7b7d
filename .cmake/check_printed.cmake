# What PROGRAM (a list) prints is in PAGE, byte for byte, in the ```text block that begins with "$ NAME".
# cmake -DPAGE=... -DNAME=... -DPROGRAM=... -P check_printed.cmake
include(${CMAKE_CURRENT_LIST_DIR}/block.cmake)
file(READ "${PAGE}" page)
next_block("${PAGE}" "${page}" "text\n$ ${NAME}" expected rest)

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE result ERROR_VARIABLE error)
if(NOT result EQUAL 0 OR NOT printed STREQUAL expected)
  message(FATAL_ERROR "It ended with ${result} and said ${error}--- ${PAGE} has\n${expected}--- but it printed\n${printed}---")
endif()
