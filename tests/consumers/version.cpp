#include <cstdio>

#include "buzz.h"

// That buzz.h is found, and is this version's. (main.cpp does more with it, and takes twice as long to compile.)
int main() {
  const buzz::Shape shape{/*query_heads*/ 8, /*kv_heads*/ 2, /*head_dim*/ 64};
  std::printf("buzz %d.%d.%d\n", BUZZ_VERSION_MAJOR, BUZZ_VERSION_MINOR, BUZZ_VERSION_PATCH);
  return shape.group() == 4 ? 0 : 1;
}
