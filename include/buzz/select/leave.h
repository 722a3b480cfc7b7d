#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "buzz/select/selection.h"

namespace buzz {

/// Select: exactly so many rows of the middle, in one pass, whatever the selection's own sizes are. A beehive's are the
/// best of each chunk, of chunks as long as its own or so much longer that the number comes out; the others' the best
/// of all, or the newest where there is no score.
class Leave {
 public:
  /// scored: has the policy a score?
  Leave(const Selection& select, bool scored) : scored_(scored) {
    const auto* segments = select.as<Segments::Options>();
    if (segments != nullptr)
      chunk_ =
          static_cast<int>((std::min<long long>)(Segments::thin(*segments).chunk, (std::numeric_limits<int>::max)()));
  }
  /// That leaves `rows` rows: the pinned ones among them, and no more than there are.
  Leave of(int rows) const {
    Leave result = *this;
    result.rows_ = rows;
    return result;
  }
  /// @{
  /// As in Segments.
  bool again(int) const { return false; }
  int forgotten(int) const { return -1; }
  /// O(hive + unfiltered) on average; of a beehive what pick_of_chunks() takes.
  int pass(const double* importance, int hive, int unfiltered, int pinned, std::int32_t* out) const {
    const int count = hive + unfiltered, left = rows_ - pinned;
    if (left == 0) return 0;
    if (chunk_ > 0) {
      Segments::Options o;
      o.leave(left, count, chunk_);
      return pick_of_chunks(importance, count, o.chunk, o.keep, out);
    }
    if (scored_) return TopK::best(importance, count, left, out);
    std::iota(out, out + left, count - left);
    return left;
  }
  /// @}

 private:
  bool scored_;
  int rows_ = 0, chunk_ = 0;  // chunk_: of a beehive
};

}  // namespace buzz
