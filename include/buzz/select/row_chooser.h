#pragma once

#include <cstdint>
#include <numeric>
#include <optional>

#include "buzz/kept_rows.h"
#include "buzz/select/leave.h"
#include "buzz/select/thinner.h"

namespace buzz {

/// The rows of a layer that stay, by how important they are: sink and window, and of the middle the pinned ones and
/// what the selection leaves, or exactly so many. Allocates in the constructor alone.
class RowChooser {
 public:
  /// For kv_heads lists of up to `capacity` rows. scored: has the policy a score?
  RowChooser(const Selection& select, bool scored, int kv_heads, int capacity)
      : select_(select), leave_(select, scored), kept_(kv_heads, capacity), thinner_(capacity) {}

  /// Does the budget call for an eviction?
  bool should_evict(const Regions& r) const { return select_.should_evict(r); }
  /// [middle]: where the importance of a head's middle rows goes before each list().
  double* importance() { return thinner_.importance(); }

  /// Makes a head's list, of sizes that are the same for all heads. positions: of its rows. to: exactly so many rows,
  /// those protected among them; none: what the selection leaves. Returns how many rows from the first on were kept
  /// without ever reading their scores again; -1: all may be read.
  int list(int head, const Regions& r, const Pins& pins, const std::int32_t* positions, std::optional<int> to) {
    int forgotten = -1;
    std::int32_t *kept = kept_.list(head), *middle = kept + r.sink;
    const auto thinned = [&](const auto& select) {
      return thinner_(select, r, pins, positions + r.sink, middle, &forgotten);
    };
    const int count = to ? thinned(leave_.of(*to - r.sink - r.window)) : thinned(select_);
    std::iota(kept, middle, 0);
    for (int i = 0; i < count; ++i) middle[i] += r.sink;
    std::iota(middle + count, middle + count + r.window, r.sink + r.middle());
    kept_.begin(r.rows(), r.sink + count + r.window);
    return forgotten < 0 ? -1 : r.sink + forgotten;
  }
  /// All `rows` rows of each head stay.
  void list_all(int rows) {
    kept_.begin(rows, rows);
    for (int h = 0; h < kept_.heads(); ++h) std::iota(kept_.list(h), kept_.list(h) + rows, 0);
  }
  /// Each head's list is another's first, or this one's.
  void list_as(const RowChooser& other) {
    const KeptRows& one = other.kept_;
    kept_.begin(one.from(), one.size());
    for (int h = 0; h < kept_.heads(); ++h)
      if (kept_.list(h) != one.list(0)) std::copy_n(one.list(0), one.size(), kept_.list(h));
  }
  const KeptRows& kept() const { return kept_; }                          ///< the lists
  std::size_t bytes() const { return kept_.bytes() + thinner_.bytes(); }  ///< allocated

 private:
  AnySelect select_;
  Leave leave_;
  KeptRows kept_;
  Thinner thinner_;
};

}  // namespace buzz
