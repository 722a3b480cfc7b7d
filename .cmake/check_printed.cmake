# What PROGRAM (a list) prints is in PAGE, byte for byte, in the ```text block that begins with "$ NAME".
# cmake -DPAGE=... -DNAME=... -DPROGRAM=... -P check_printed.cmake
file(READ "${PAGE}" page)
set(open "\n```text\n$ ${NAME}\n")
string(FIND "${page}" "${open}" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "${PAGE}: no block that begins with $ ${NAME}")
endif()
string(LENGTH "${open}" length)
math(EXPR begin "${begin} + ${length}")
string(SUBSTRING "${page}" ${begin} -1 rest)
string(FIND "${rest}" "```" end)
string(SUBSTRING "${rest}" 0 ${end} expected)

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE result ERROR_VARIABLE error)
if(NOT result EQUAL 0 OR NOT printed STREQUAL expected)
  message(FATAL_ERROR "It ended with ${result} and said ${error}--- ${PAGE} has\n${expected}--- but it printed\n${printed}---")
endif()
