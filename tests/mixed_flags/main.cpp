// Units of one program that are compiled for different processors pass caches to each other: whoever makes, feeds,
// evicts, saves, loads, forks, moves or frees one, it goes on and attends as arithmetic says. 77: this processor
// cannot.

#include <cstdio>
#include <vector>

#include "processor.h"
#include "unit.h"

namespace {

int failures = 0;

template <class Cache>
void pass_around(const std::vector<Unit>& units, std::size_t first) {
  const auto who = [&](std::size_t turn) { return std::get<Calls<Cache>>(units[(first + turn) % units.size()].calls); };
  // Each part of a step is in the hands of another unit, and 12 steps bring every unit to every part.
  Cache* cache = who(0).make();
  for (unsigned step = 0; step < 12; ++step) {
    const double miss = who(step).attend(*cache, step % 5 == 0 ? 1 : 4, step);
    if (!(miss < 1e-5)) {
      std::printf("step %u, first in %s: the output is off by %g\n", step, units[first].flags, miss);
      ++failures;
    }
    who(step + 1).evict(*cache);
    if (step % 4 == 1) {
      Cache* other = who(step + 2).make();
      who(step + 1).load(*other, who(step).save(*cache));
      who(step).assign(*cache, *other);
      who(step + 1).free(other);
    }
    if (step % 4 == 3) {
      Cache* twin = who(step + 1).fork(*cache);
      who(step + 2).free(cache);
      cache = twin;
    }
  }
  if (cache->rows() == cache->next_position()) {
    std::printf("nothing was evicted\n");
    ++failures;
  }
  who(1).free(cache);
}

}  // namespace

int main() {
  if (!runs(BUZZ_WIDEST)) {
    std::printf("this processor has not all of %s and FMA: nothing was run\n", BUZZ_WIDEST);
    return 77;
  }
  const std::vector<Unit> units = {BUZZ_UNITS};
  for (const Unit& unit : units) std::printf("%s\n", unit.flags);
  for (std::size_t first = 0; first < units.size(); ++first) {
    pass_around<Bees<float>>(units, first);
    pass_around<Bees<Eigen::half>>(units, first);
    pass_around<Bees<std::int8_t>>(units, first);
    pass_around<Diverse>(units, first);
    pass_around<Recent>(units, first);
  }
  return failures == 0 ? 0 : 1;
}
