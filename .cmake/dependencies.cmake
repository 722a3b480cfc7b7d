# buzz_need(NAME): the installed package, or else its sources at the tag below. Eigen3 is the library's; the others are
# for tests, examples and benchmarks only.
include(FetchContent)

macro(buzz_package name version url tag)
  FetchContent_Declare(${name} GIT_REPOSITORY ${url} GIT_TAG ${tag} GIT_SHALLOW ON SYSTEM ${ARGN}
                       FIND_PACKAGE_ARGS ${version} GLOBAL)
endmacro()

# 3.4 to 5; asked for 3.4, an installed 5 would say no. Headers are all that is needed of it; its own CMakeLists.txt looks
# for a Fortran compiler.
buzz_package(Eigen3 "" https://gitlab.com/libeigen/eigen.git 3.4.0 SOURCE_SUBDIR headers-only)
buzz_package(GTest 1.12 https://github.com/google/googletest.git release-1.12.1)
buzz_package(benchmark 1.7 https://github.com/google/benchmark.git v1.7.1)
buzz_package(CLI11 2.1 https://github.com/CLIUtils/CLI11.git v2.1.2)
buzz_package(nlohmann_json 3.11 https://github.com/nlohmann/json.git v3.11.2)

function(buzz_need name)
  if(name STREQUAL "Eigen3" AND TARGET Eigen3::Eigen)
    return()  # the project that uses us has its own
  endif()
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  set(INSTALL_GTEST OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # their option() calls keep the values above
  FetchContent_MakeAvailable(${name})
  if(name STREQUAL "Eigen3" AND Eigen3_VERSION AND Eigen3_VERSION VERSION_LESS 3.4)
    message(FATAL_ERROR "buzz needs Eigen 3.4 to 5, but ${Eigen3_DIR} has ${Eigen3_VERSION}. "
                        "FETCHCONTENT_TRY_FIND_PACKAGE_MODE=NEVER takes one from the network.")
  endif()
  if(name STREQUAL "Eigen3" AND NOT TARGET Eigen3::Eigen)
    add_library(Eigen3::Eigen INTERFACE IMPORTED GLOBAL)
    target_include_directories(Eigen3::Eigen INTERFACE ${eigen3_SOURCE_DIR})
  endif()
endfunction()
