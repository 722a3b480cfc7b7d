#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/score/standardise.h"
#include "buzz/sizes.h"

namespace buzz {

/// How the scores that several heads have for a row become one number. sum: they are added up as they are. The others
/// compare heads whatever their units: each head's scores are first given mean 0 and deviation 1 over the rows that
/// stand for choice. mean: of all heads. maximum: what one head needs, all keep. top: the mean of a row's highest, so
/// that it takes several heads.
enum class Reduction { sum, mean, maximum, top };

/// A Reduction with its options.
struct ReductionOptions {
  Reduction reduce = Reduction::sum;  ///< how
  double part = 0.125;                ///< of Reduction::top alone: of the heads, rounded up; above 0 to 1
};
/// Is it a part of Reduction::top's?
inline bool is_part(double x) { return is_finite(x) && x > 0 && x <= 1; }
/// Errors: an option out of its range.
inline void check(const ReductionOptions& o) {
  require_enum("reduce", o.reduce, Reduction::top);
  if (!is_part(o.part)) fail("part", std::to_string(o.part), "above 0 to 1");
}

/// How important rows are to several heads together: takes the scores of one head after another. But for
/// Reduction::sum a head to which no score is finite says nothing, and is as if it were not there. A row that is NaN to
/// another head is NaN to all, and loses; an infinite score stays infinite.
class SharedImportance {
 public:
  SharedImportance() = default;  ///< of no heads
  /// Of up to `capacity` rows. The options have been checked.
  SharedImportance(const ReductionOptions& o, int heads, int capacity)
      : reduce_(o.reduce),
        best_(o.reduce == Reduction::top ? of_top(o.part, heads) : 1),
        capacity_(capacity),
        room_(count_of<double>("part of the heads * capacity", {1LL + best_, capacity})) {}

  /// No head has said anything yet of `count` rows.
  void begin(int count) {
    count_ = count;
    heads_ = 0;
    std::fill(room_.begin(), room_.end(), 0.);
  }
  /// [count]: where the next head's scores go, before add().
  double* scores() { return room_.data(); }
  /// Takes them. O(count), with top O(count * part * heads) at worst.
  void add() {
    if (reduce_ != Reduction::sum && standardise_finite(room_.data(), count_) == 0) return;
    for (int i = 0; i < count_; ++i) {
      const double score = room_[static_cast<std::size_t>(i)];
      if (reduce_ == Reduction::sum || reduce_ == Reduction::mean)
        *best(i) += score;
      else
        insert(score, best(i));
    }
    ++heads_;
  }
  /// Writes how important each row is, [count]: what no head said anything of, 0.
  void write(double* out) const {
    for (int i = 0; i < count_; ++i) {
      const double* scores = best(i);
      out[i] = reduce_ == Reduction::mean && heads_ > 0 ? scores[0] / heads_ : scores[0];
      if (reduce_ != Reduction::top || heads_ == 0 || is_nan(scores[0])) continue;
      const int held = (std::min)(heads_, best_);
      for (int b = 1; b < held; ++b) out[i] += scores[b];
      out[i] /= held;
    }
  }

  std::size_t bytes() const { return room_.size() * sizeof(double); }  ///< allocated

 private:
  /// ceil(part * heads), but for the last bits of `part`.
  static int of_top(double part, int heads) {
    return (std::max)(1, (std::min)(heads, static_cast<int>(std::ceil((part - 1e-12) * heads))));
  }
  /// Into a row's highest so far, descending; NaN first, and for ever.
  void insert(double score, double* scores) const {
    const int held = (std::min)(heads_, best_);
    if (held > 0 && is_nan(scores[0])) return;
    if (is_nan(score)) return void(scores[0] = score);
    if (held == best_ && !(score > scores[held - 1])) return;
    int at = held == best_ ? held - 1 : held;
    for (; at > 0 && score > scores[at - 1]; --at) scores[at] = scores[at - 1];
    scores[at] = score;
  }
  double* best(int i) { return room_.data() + capacity_ + static_cast<std::ptrdiff_t>(i) * best_; }
  const double* best(int i) const { return room_.data() + capacity_ + static_cast<std::ptrdiff_t>(i) * best_; }

  Reduction reduce_ = Reduction::sum;
  int best_ = 0, capacity_ = 0;  // scores held of a row; rows
  int count_ = 0, heads_ = 0;    // rows now; heads that said something
  std::vector<double> room_;     // [capacity]: a head's scores; [capacity, best]: each row's sum, or highest
};

}  // namespace buzz
