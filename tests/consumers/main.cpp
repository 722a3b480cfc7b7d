#include <cstdio>
#include <vector>

#ifndef BUZZ_CONSUMER_HEADER
#define BUZZ_CONSUMER_HEADER "buzz.h"
#endif
#include BUZZ_CONSUMER_HEADER

// Decodes 100 tokens through a small cache: the bound holds, and the newest position is the last token's.
int main() {
  buzz::BeehiveOptions options;
  options.sink = 2;
  options.window = 8;
  options.threshold = 10;
  options.stride = 2;
  const buzz::Shape shape{/*query_heads*/ 2, /*kv_heads*/ 1, /*head_dim*/ 4};
  buzz::BuzzCache<float> cache(shape, buzz::beehive(options));

  std::vector<float> q(8, 0.5f), kv(4, 0.25f), out(8);
  for (int i = 0; i < 100; ++i) {
    cache.attend(buzz::view(q, 1, 2, 4), buzz::view(kv, 1, 1, 4), buzz::view(kv, 1, 1, 4), buzz::view(out, 1, 2, 4));
    if (cache.rows() > cache.capacity()) return 1;
  }
  std::printf("buzz %d.%d.%d keeps %d of 100 rows\n", BUZZ_VERSION_MAJOR, BUZZ_VERSION_MINOR, BUZZ_VERSION_PATCH,
              cache.rows());
  return cache.rows() < 100 && cache.next_position() == 100 ? 0 : 1;
}
