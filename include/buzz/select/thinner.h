#pragma once

#include <cstdint>
#include <vector>

#include "buzz/pins.h"
#include "buzz/regions.h"

namespace buzz {

/// Thins the middle rows of one head by a selection's passes until its budget holds, around pinned rows. Allocates in
/// the constructor alone.
class Thinner {
 public:
  /// For heads of up to `capacity` rows.
  explicit Thinner(int capacity)
      : importance_(static_cast<std::size_t>(capacity)),
        picks_(static_cast<std::size_t>(capacity)),
        free_(static_cast<std::size_t>(capacity)) {}

  /// [capacity]: where the importance of the middle rows goes before each call, which changes it.
  double* importance() { return importance_.data(); }

  /// Writes the indices of the middle rows that stay, ascending, and returns how many; `positions` are the middle
  /// rows'. `forgotten`: how many rows, pinned ones too, were kept unread at the beginning; -1: scores are read again.
  /// O(middle) a pass, and what the selection takes.
  template <class Select>
  int operator()(const Select& select, const Regions& r, const Pins& pins, const std::int32_t* positions,
                 std::int32_t* kept, int* forgotten) {
    return pins.empty() ? thin(select, r.hive, r.unfiltered, 0, 0, kept, forgotten)
                        : around(select, r, pins, positions, kept, forgotten);
  }

  std::size_t bytes() const {  ///< allocated
    return importance_.size() * sizeof(double) + (picks_.size() + free_.size()) * sizeof(std::int32_t);
  }

 private:
  /// Passes over importance_[0, hive + unfiltered) until the budget holds, with `pinned` more rows counted,
  /// `pinned_hive` of them in the hive; writes the indices kept, ascending, and returns how many. `forgotten`: how many
  /// rows, pinned ones too, were kept unread at the beginning; -1: scores are read again.
  template <class Select>
  int thin(const Select& select, int hive, int unfiltered, int pinned_hive, int pinned, std::int32_t* kept,
           int* forgotten) {
    int unread = select.forgotten(hive);
    int count = select.pass(importance_.data(), hive, unfiltered, pinned, kept);
    const std::int32_t* last = kept;  // the last pass's picks, of what the pass before it left
    while (select.again(count + pinned)) {
      // In place: picks ascend, so that index i is read before anything is written past it.
      for (int i = 0; i < count; ++i)
        importance_[static_cast<std::size_t>(i)] = importance_[static_cast<std::size_t>(last[i])];
      unread = select.forgotten(count);
      pinned_hive = pinned;
      const int fewer = select.pass(importance_.data(), count, 0, pinned, picks_.data());
      for (int i = 0; i < fewer; ++i) kept[i] = kept[picks_[static_cast<std::size_t>(i)]];
      count = fewer;
      last = picks_.data();
    }
    *forgotten = unread < 0 ? -1 : unread + pinned_hive;
    return count;
  }

  /// The same where rows may be pinned: those stay, and the others are thinned as if they were not there.
  template <class Select>
  int around(const Select& select, const Regions& r, const Pins& pins, const std::int32_t* positions,
             std::int32_t* kept, int* forgotten) {
    int hive = 0, free = 0, pinned_hive = 0;
    for (int i = 0; i < r.middle(); ++i) {
      if (pins.contains(positions[i])) {
        pinned_hive += i < r.hive;
        continue;
      }
      hive += i < r.hive;
      importance_[static_cast<std::size_t>(free)] = importance_[static_cast<std::size_t>(i)];
      free_[static_cast<std::size_t>(free++)] = i;
    }
    const int pinned = r.middle() - free;
    const int count = thin(select, hive, free - hive, pinned_hive, pinned, kept, forgotten);
    for (int i = 0; i < count; ++i) kept[i] = free_[static_cast<std::size_t>(kept[i])];
    // Merge from the back, in place: pinned and kept rows, ascending.
    int end = count + pinned, k = count - 1;
    for (int i = r.middle() - 1; i >= 0; --i) {
      if (pins.contains(positions[i]))
        kept[--end] = i;
      else if (k >= 0 && kept[k] == i)
        kept[--end] = kept[k--];
    }
    return count + pinned;
  }

  std::vector<double> importance_;   // [capacity], of the middle rows of one head
  std::vector<std::int32_t> picks_;  // [capacity], of a pass after the first
  std::vector<std::int32_t> free_;   // [capacity], the middle's rows that are not pinned
};

}  // namespace buzz
