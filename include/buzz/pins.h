#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "buzz/archive.h"

namespace buzz {

/// A set of positions that no eviction may take: ranges, ascending, apart from each other.
class Pins {
 public:
  /// Positions [first, end()).
  struct Range {
    int first;                                 ///< >= 0
    int count;                                 ///< >= 1
    int end() const { return first + count; }  ///< the one after the last
    bool operator==(const Range& other) const { return first == other.first && count == other.count; }  ///< the same?
  };

  bool empty() const { return ranges_.empty(); }                ///< are there none?
  const std::vector<Range>& ranges() const { return ranges_; }  ///< ascending, apart from each other

  /// O(log ranges).
  bool contains(int position) const {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), position, [](int p, const Range& r) { return p < r.first; });
    return after != ranges_.begin() && position < std::prev(after)->end();
  }

  /// Pinned positions >= first.
  int count_from(int first) const {
    int count = 0;
    for (const Range& r : ranges_) count += (std::max)(0, r.end() - (std::max)(first, r.first));
    return count;
  }

  /// This set with positions [first, first + count) in it. O(ranges).
  Pins with(int first, int count) const {
    Pins result = without(first, count);
    if (count > 0) result.insert({first, count});
    return result;
  }
  /// This set without positions [first, first + count). O(ranges).
  Pins without(int first, int count) const {
    const int end = first + count;
    Pins result;
    for (const Range& r : ranges_) {
      if (r.first < first) result.insert({r.first, (std::min)(r.end(), first) - r.first});
      if (r.end() > end) result.insert({(std::max)(r.first, end), r.end() - (std::max)(r.first, end)});
    }
    return result;
  }

  bool operator==(const Pins& other) const { return ranges_ == other.ranges_; }  ///< the same positions?

  /// Writes or reads the ranges. Errors: ranges that overlap or go back.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a) {
    constexpr int most = (std::numeric_limits<std::int32_t>::max)();
    int count = static_cast<int>(self.ranges_.size());
    a.number("pins", count, 0, most / 2);
    for (int i = 0, from = 0; i < count; ++i) {
      Range range = i < static_cast<int>(self.ranges_.size()) ? self.ranges_[static_cast<std::size_t>(i)] : Range{0, 0};
      a.number("pin.first", range.first, from, most - 1);
      a.number("pin.count", range.count, 1, most - range.first);
      from = range.end();
      if constexpr (!std::is_const<Self>::value) self.insert(range);
    }
  }

 private:
  void insert(const Range& range) {
    const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), range.first,
                                     [](int p, const Range& r) { return p < r.first; });
    const auto added = ranges_.insert(at, range);
    const auto begin = added == ranges_.begin() ? added : std::prev(added);
    // Neighbours that touch are one range.
    for (auto r = begin; std::next(r) != ranges_.end() && r->first <= range.end();) {
      if (r->end() == std::next(r)->first) {
        r->count += std::next(r)->count;
        ranges_.erase(std::next(r));
      } else {
        ++r;
      }
    }
  }

  std::vector<Range> ranges_;
};

}  // namespace buzz
