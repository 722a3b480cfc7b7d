#pragma once

#include <cstring>

/// Can this processor run what is compiled for that one of CMakeLists.txt's units, and for all before it?
inline bool runs(const char* unit) {
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2") &&
         (std::strcmp(unit, "avx512") != 0 || __builtin_cpu_supports("avx512f"));
}
