# The README's first ```cpp block is SOURCE byte for byte, and the first ```text block after it is what PROGRAM prints.
# cmake -DREADME=... -DSOURCE=... -DPROGRAM=... -P check_readme.cmake

include(${CMAKE_CURRENT_LIST_DIR}/block.cmake)

function(require_same what expected actual)
  if(NOT "${expected}" STREQUAL "${actual}")
    message(FATAL_ERROR "${README}: ${what}.\n--- the README has\n${expected}--- but it is\n${actual}---")
  endif()
endfunction()

file(READ "${README}" readme)
file(READ "${SOURCE}" source)
execute_process(COMMAND "${PROGRAM}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)

next_block("${README}" "${readme}" cpp program rest)
next_block("${README}" "${rest}" text printed rest)
require_same("its program is not ${SOURCE}" "${program}" "${source}")
require_same("its output is not what the program prints" "${printed}" "${output}")
