# The README's first ```cpp block is SOURCE byte for byte, and the first ```text block after it is what PROGRAM prints.
# cmake -DREADME=... -DSOURCE=... -DPROGRAM=... -P check_readme.cmake

# Sets `out` to the block that opens with "```LANGUAGE", and `rest` to what follows it.
function(next_block text language out rest)
  set(open "\n```${language}\n")
  string(FIND "${text}" "${open}" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "${README}: no ```${language} block where one should be")
  endif()
  string(LENGTH "${open}" length)
  math(EXPR begin "${begin} + ${length}")
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "\n```" end)
  if(end EQUAL -1)
    message(FATAL_ERROR "${README}: a ```${language} block is not closed")
  endif()
  math(EXPR end "${end} + 1")
  string(SUBSTRING "${text}" 0 ${end} block)
  string(SUBSTRING "${text}" ${end} -1 text)
  set(${out} "${block}" PARENT_SCOPE)
  set(${rest} "${text}" PARENT_SCOPE)
endfunction()

function(require_same what expected actual)
  if(NOT "${expected}" STREQUAL "${actual}")
    message(FATAL_ERROR "${README}: ${what}.\n--- the README has\n${expected}--- but it is\n${actual}---")
  endif()
endfunction()

file(READ "${README}" readme)
file(READ "${SOURCE}" source)
execute_process(COMMAND "${PROGRAM}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)

next_block("${readme}" cpp program rest)
next_block("${rest}" text printed rest)
require_same("its program is not ${SOURCE}" "${program}" "${source}")
require_same("its output is not what the program prints" "${printed}" "${output}")
