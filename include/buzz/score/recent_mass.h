#pragma once

#include <numeric>

#include "buzz/chunk.h"
#include "buzz/eigen.h"
#include "buzz/error.h"
#include "buzz/score/column_sums.h"
#include "buzz/score/row_scores.h"

namespace buzz {

/// How the scores of neighbouring rows become one: their largest, or their sum over `kernel`.
enum class Pooling { max, average };

/// Score: the attention mass that the last `queries` queries gave a row, then pooled over the `kernel` rows around it
/// (SnapKV, arXiv 2404.14469, section 4: observation window and pooling). Right after a prompt it is SnapKV's own;
/// while decoding the observation window moves on with each query. Rows around are those side by side in the cache;
/// sink and window are not among them, and where there are none, average counts zeros, as the authors' code does.
///
/// Holds the column sums of the last queries, [queries, kv_heads, capacity]. A part of observe_mass() counts as one
/// query.
class RecentMass {
 public:
  /// The observation window and the pooling.
  struct Options {
    int queries = 32;                ///< of the observation window; 1 to 16384
    int kernel = 7;                  ///< rows, odd; 1: no pooling
    Pooling pooling = Pooling::max;  ///< what neighbours become
  };
  /// @{
  /// As in Mass.
  static constexpr int code = 5;            // in saved files
  using Value = float;                      // of target()
  static constexpr bool remembers = true;   // has scores between calls: target()
  static constexpr bool needs_mass = true;  // observe() has to be fed
  static constexpr bool needs_rows = false;

  static void check(const Options& o) {
    require_size("queries", o.queries, 1 << 14);
    require_at_least("kernel", o.kernel, 1);
    if (o.kernel % 2 == 0) fail("kernel", o.kernel, "an odd number");
    require_enum("pooling", o.pooling, Pooling::average);
  }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("queries", o.queries);
    a.same("kernel", o.kernel);
    a.same("pooling", static_cast<int>(o.pooling));
  }
  static int queries_apart(const Options& o) { return o.queries; }
  RecentMass(const Options& o, int heads, int capacity)
      : o_(o),
        heads_((count_of<Value>("queries * kv_heads * capacity", {o.queries, heads, capacity}), heads)),
        ring_(o.queries * heads, capacity),
        column_sums_(heads, capacity),
        sums_(static_cast<std::size_t>(capacity)) {}

  void append(int rows, int tokens) { ring_.clear(o_.queries * heads_, rows, rows + tokens); }
  const float* column_sums(const View<const float>& probabilities, int head, int query) {
    return column_sums_(probabilities, head, query);
  }
  /// Column sums of one head, [rows], heads in order, take the place of the oldest. O(rows).
  void add(int head, const float* sums, int rows, bool) {
    std::copy_n(sums, rows, target(head));
    if (head == heads_ - 1) next_ = (next_ + 1) % o_.queries;
  }

  /// O(count * (queries + kernel)).
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t*, int, const Rows&, Real* out) {
    Eigen::Map<Eigen::ArrayXf> sums(sums_.data(), count);
    sums.setZero();
    for (int age = o_.queries - 1; age >= 0; --age)
      sums += Eigen::Map<const Eigen::ArrayXf>(at(age, head) + begin, count);
    const int reach = (std::min)(o_.kernel / 2, count);
    for (int i = 0; i < count; ++i) {
      const int first = (std::max)(0, i - reach), end = (std::min)(count, i + reach + 1);
      const float* around = sums_.data() + first;
      out[i] = o_.pooling == Pooling::max
                   ? around[heaviest(around, end - first)]
                   : std::accumulate(around, around + (end - first), 0.f) / static_cast<float>(o_.kernel);
    }
  }

  void compact(const Keep& keep) {
    for (int query = 0; query < o_.queries; ++query) ring_.compact(keep, query * heads_);
  }
  void forget(int end) { ring_.clear(o_.queries * heads_, 0, end); }
  /// None to show: a row has as many as there are queries.
  Span<const double> scores(int, int) const { return {}; }
  Value* target(int head) { return ring_.head(next_ * heads_ + head); }
  void step_back() { next_ = (next_ + o_.queries - 1) % o_.queries; }
  /// Oldest query first.
  template <class Self, class Archive>
  static void archive_rows(Self& self, Archive& a, int head, int rows) {
    for (int age = self.o_.queries - 1; age >= 0; --age) {
      a.array(self.at(age, head), static_cast<std::size_t>(rows));
      if constexpr (!std::is_const<Self>::value) require_masses<FileError>("scores", self.at(age, head), rows);
    }
  }
  std::size_t bytes() const { return ring_.bytes() + column_sums_.bytes() + sums_.size() * sizeof(float); }
  /// @}

 private:
  /// The sums of the query before which `age` others came last; the newest is 0.
  Value* at(int age, int head) { return ring_.head(slot(age) * heads_ + head); }
  const Value* at(int age, int head) const { return ring_.head(slot(age) * heads_ + head); }
  int slot(int age) const { return (next_ + o_.queries - 1 - age) % o_.queries; }

  Options o_;
  int heads_;
  int next_ = 0;           // the oldest query's place, which the next one takes
  RowScores<Value> ring_;  // [queries * kv_heads, capacity]
  ColumnSums column_sums_;
  std::vector<float> sums_;  // [capacity], of the middle rows
};

}  // namespace buzz
