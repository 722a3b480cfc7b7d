#include "buzz/version.h"

#include <cstdio>

#include "buzz/eigen.h"

#if !__has_include("buzz.h")
#error "without buzz.h"
#endif

// That the headers are found, Eigen with them, and are this version's. (What does more takes twice as long to compile:
// readme, and main.cpp.)
int main() {
  std::printf("buzz %d.%d.%d, Eigen %d\n", BUZZ_VERSION_MAJOR, BUZZ_VERSION_MINOR, BUZZ_VERSION_PATCH,
              EIGEN_WORLD_VERSION);
  return Eigen::Array2f(1, 2).sum() == 3 ? 0 : 1;
}
