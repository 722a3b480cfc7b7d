# Writes into TESTS what tells ctest of each test of the GoogleTest program PROGRAM: as SUBJECT.Suite.Name, where the
# test is in SUBJECT_test.cpp.
# cmake -DPROGRAM=... -DTESTS=... [-DEMULATOR=...] -P list_tests.cmake
execute_process(COMMAND ${EMULATOR} "${PROGRAM}" --gtest_list_tests "--gtest_output=xml:${TESTS}.xml" OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS "${TESTS}.xml" lines REGEX "<test(suite|case) ")
set(run "")
foreach(word IN LISTS EMULATOR PROGRAM)
  string(APPEND run " [=[${word}]=]")
endforeach()
set(text "")
foreach(line IN LISTS lines)
  if(line MATCHES "<testsuite name=\"([^\"]+)\"")
    set(suite ${CMAKE_MATCH_1})
  elseif(line MATCHES "<testcase name=\"([^\"]+)\".* file=\"([^\"]*/)?([^/\"]+)_test[.]cpp\"")
    set(filter "${suite}.${CMAKE_MATCH_1}")
    set(test "${CMAKE_MATCH_3}.${filter}")
    if(line MATCHES " type_param=\"([^\"]+)\"")  # of Suite/0 one wants to know what 0 is
      string(REPLACE "&lt;" "<" type "${CMAKE_MATCH_1}")
      string(REPLACE "&gt;" ">" type "${type}")
      string(REGEX REPLACE "/[0-9]+[.]" "." test "${test}<${type}>")
    endif()
    string(APPEND text "add_test([=[${test}]=]${run} [=[--gtest_filter=${filter}]=])\n"
                       "set_tests_properties([=[${test}]=] PROPERTIES TIMEOUT 600\n"
                       "                     SKIP_REGULAR_EXPRESSION [=[\\[  SKIPPED \\]]=])\n")
  else()
    message(FATAL_ERROR "${PROGRAM} lists tests in a way that is not known here: ${line}")
  endif()
endforeach()
file(WRITE "${TESTS}" "${text}")
