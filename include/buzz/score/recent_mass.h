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
    int queries = 32;                ///< of the observation window; >= 1
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
    require_at_least("queries", o.queries, 1);
    require_at_least("kernel", o.kernel, 1);
    if (o.kernel % 2 == 0) fail("kernel", o.kernel, "an odd number");
  }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("queries", o.queries);
    a.same("kernel", o.kernel);
    a.same("pooling", static_cast<int>(o.pooling));
  }
  static int queries_apart(const Options& o) { return o.queries; }
  RecentMass(const Options& o, int heads, int capacity)
      : o_(o), heads_(heads), column_sums_(heads, capacity), sums_(static_cast<std::size_t>(capacity)) {
    for (int i = 0; i < o.queries; ++i) ring_.emplace_back(heads, capacity);
  }

  void append(int rows, int tokens) {
    for (RowScores<Value>& query : ring_) query.clear(heads_, rows, rows + tokens);
  }
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
      sums += Eigen::Map<const Eigen::ArrayXf>(at(age).head(head) + begin, count);
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
    for (RowScores<Value>& query : ring_) query.compact(keep);
  }
  void forget(int end) {
    for (RowScores<Value>& query : ring_) query.clear(heads_, 0, end);
  }
  /// None to show: a row has as many as there are queries.
  Span<const double> scores(int, int) const { return {}; }
  Value* target(int head) { return ring_[static_cast<std::size_t>(next_)].head(head); }
  void step_back() { next_ = (next_ + o_.queries - 1) % o_.queries; }
  /// Oldest query first.
  template <class Self, class Archive>
  static void archive_rows(Self& self, Archive& a, int head, int rows) {
    for (int age = self.o_.queries - 1; age >= 0; --age)
      a.array(self.at(age).head(head), static_cast<std::size_t>(rows));
  }
  std::size_t bytes() const {
    return ring_.size() * ring_[0].bytes() + column_sums_.bytes() + sums_.size() * sizeof(float);
  }
  /// @}

 private:
  /// The sums of the query before which `age` others came last; the newest is 0.
  RowScores<Value>& at(int age) { return ring_[slot(age)]; }
  const RowScores<Value>& at(int age) const { return ring_[slot(age)]; }
  std::size_t slot(int age) const { return static_cast<std::size_t>((next_ + o_.queries - 1 - age) % o_.queries); }

  Options o_;
  int heads_;
  int next_ = 0;  // the oldest query's place, which the next one takes
  std::vector<RowScores<Value>> ring_;
  ColumnSums column_sums_;
  std::vector<float> sums_;  // [capacity], of the middle rows
};

}  // namespace buzz
