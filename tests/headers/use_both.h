#pragma once

#include "buzz.h"

// What both translation units instantiate: the same functions, so that the linker has two of each to merge.
inline int rows_after(int tokens) {
  buzz::BeehiveOptions options;
  options.threshold = 10;
  options.window = 4;
  buzz::BuzzCache<float> cache(buzz::Shape{2, 1, 4}, buzz::beehive(options), buzz::Rope{10000.0});
  std::vector<float> q(8, 1.f), kv(4, 1.f), out(8);
  for (int i = 0; i < tokens; ++i)
    cache.attend(buzz::view(q, 1, 2, 4), buzz::view(kv, 1, 1, 4), buzz::view(kv, 1, 1, 4), buzz::view(out, 1, 2, 4));
  return cache.rows();
}
