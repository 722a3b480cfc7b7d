#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/score/row_sums.h"
#include "buzz/sizes.h"
#include "buzz/unrotated_keys.h"

namespace buzz {

/// Writes the length of each pair of elements that a rotation turns together, into the place of its first element, and
/// 0 into that of its second; an element that is not rotated (null: none is) is a pair of its own. [dim] each. O(dim).
inline void pair_lengths(const Rotation* rotation, const float* x, int dim, float* lengths) {
  for (int d = 0; d < dim; ++d) lengths[d] = std::abs(x[d]);
  if (rotation == nullptr) return;
  rotation->for_each_pair([&](int, int a, int b) {
    const double first = static_cast<double>(x[a]), second = static_cast<double>(x[b]);
    constexpr double most = static_cast<double>((std::numeric_limits<float>::max)());
    lengths[a] = static_cast<float>((std::min)(most, std::sqrt(first * first + second * second)));
    lengths[b] = 0;
  });
}

/// The sums of a sequence's queries as they came, before any rotation: of each query head how many there were, their
/// sum, and, where that is wanted, the sum of their pairs' lengths, in double. A call's tokens are added one by one, so
/// that how a text is cut into calls shows in no bit. The newest max_rollback tokens are kept apart, and can be taken
/// back. A token is seen once: its queries shown again are passed over. A query that is not finite does not count.
class QueryMoments {
 public:
  QueryMoments() = default;  ///< of no queries
  /// Of queries as `shown` says. rotation: theirs; null: none. first: queries of the tokens before it do not count,
  /// such as the sink's, which are unlike all others. lengths: are those of pairs wanted? Errors: query_heads not said
  /// or no multiple of kv_heads; scale not finite or < 0; a product of sizes past all memory.
  QueryMoments(const ShownRows& shown, std::shared_ptr<const Rotation> rotation, int kv_heads, int first,
               int max_rollback, bool lengths)
      : rotation_(std::move(rotation)),
        heads_(shown.query_heads),
        dim_(shown.head_dim),
        first_(first),
        has_lengths_(lengths) {
    if (heads_ < 1 || heads_ > most_heads || heads_ % kv_heads != 0)
      fail("query_heads", heads_,
           "a multiple of kv_heads = " + std::to_string(kv_heads) + ": the policy looks at queries");
    if (!is_finite(shown.scale) || shown.scale < 0) fail("scale", std::to_string(shown.scale), "0, or finite and > 0");
    scale_ = is_zero(shown.scale) ? 1 / std::sqrt(static_cast<double>(dim_)) : shown.scale;
    group_ = heads_ / kv_heads;
    sums_.assign(count_of<double>("query_heads * head_dim", {heads_, numbers()}), 0);
    totals_ = sums_;
    ring_.assign(count_of<float>("max_rollback * query_heads * head_dim", {max_rollback + 1, heads_, numbers()}), 0);
    labels_.assign(static_cast<std::size_t>(max_rollback) + 1, 0);
  }

  /// The queries of a call's tokens, which are at positions from `position` on: queries' "heads" are the tokens, and
  /// its rows the query heads. O(tokens * query_heads * head_dim).
  void observe(int position, int tokens, const FloatRows& queries) {
    for (int t = 0; t < tokens; ++t, ++position) {
      if (position < seen_) continue;
      seen_ = position + 1;
      if (position < first_) continue;
      const int slot = at(used_);
      labels_[static_cast<std::size_t>(slot)] = position;
      float* to = ring_.data() + static_cast<std::ptrdiff_t>(slot) * heads_ * numbers();
      for (int q = 0; q < heads_; ++q, to += numbers()) write(queries, t, q, to);
      if (++used_ == slots()) settle_oldest();
    }
  }
  /// Tokens from `position` on never came. No more than max_rollback of them.
  void take_back(int position) {
    while (used_ > 0 && labels_[static_cast<std::size_t>(at(used_ - 1))] >= position) --used_;
    seen_ = (std::min)(seen_, position);
  }
  /// Makes the sums that are read below, of all tokens so far. O(max_rollback * query_heads * head_dim).
  void add_up() {
    std::copy(sums_.begin(), sums_.end(), totals_.begin());
    for (int i = 0; i < used_; ++i) add(at(i), totals_.data());
  }
  /// No query came yet.
  void clear() {
    used_ = seen_ = 0;
    std::fill(sums_.begin(), sums_.end(), 0.);
  }

  int query_heads() const { return heads_; }                                     ///< of each token
  int group() const { return group_; }                                           ///< query heads of a KV head
  int head_dim() const { return dim_; }                                          ///< of a query
  double scale() const { return scale_; }                                        ///< what logits are multiplied by
  const Rotation* rotation() const { return rotation_.get(); }                   ///< of queries and keys; null: none
  double count(int query_head) const { return *totals(query_head); }             ///< queries of that head that count
  const double* values(int query_head) const { return totals(query_head) + 1; }  ///< their sum, [head_dim]
  /// The sum of their pair_lengths(), [head_dim]; null where they are not wanted.
  const double* lengths(int query_head) const { return has_lengths_ ? values(query_head) + dim_ : nullptr; }
  /// Allocated.
  std::size_t bytes() const {
    return (sums_.size() + totals_.size()) * sizeof(double) + ring_.size() * sizeof(float) +
           labels_.size() * sizeof(int);
  }

  /// Writes or reads the sums of all tokens, none of which can be taken back then. Errors: a Reader's; what no sums
  /// are.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a, int next_position) {
    a.number("queries seen", self.seen_, 0, next_position);
    std::vector<double> sums = self.sums_;
    for (int i = 0; i < self.used_; ++i) self.add(self.at(i), sums.data());
    a.array(sums.data(), sums.size());
    if constexpr (!std::is_const<Self>::value) self.load(std::move(sums));
  }

 private:
  /// Of a query: 1 where it counts, its values, and its pairs' lengths.
  int numbers() const { return 1 + (has_lengths_ ? 2 : 1) * dim_; }
  int slots() const { return static_cast<int>(labels_.size()); }
  int at(int i) const { return (oldest_ + i) % slots(); }
  const double* totals(int query_head) const {
    return totals_.data() + static_cast<std::ptrdiff_t>(query_head) * numbers();
  }

  void write(const FloatRows& queries, int token, int head, float* out) const {
    float* values = out + 1;
    const float* from = queries.read(token, head, 1, 0, dim_, values).data;
    if (from != values) std::copy_n(from, dim_, values);
    if (!is_finite(row_sums::squares(values, dim_))) return void(std::fill_n(out, numbers(), 0.f));
    *out = 1;
    if (has_lengths_) pair_lengths(rotation_.get(), values, dim_, values + dim_);
  }
  void add(int slot, double* sums) const {
    const float* of = ring_.data() + static_cast<std::ptrdiff_t>(slot) * heads_ * numbers();
    for (int q = 0; q < heads_; ++q, of += numbers(), sums += numbers()) row_sums::add(of, numbers(), 1, sums);
  }
  void settle_oldest() {
    add(oldest_, sums_.data());
    oldest_ = at(1);
    --used_;
  }
  void load(std::vector<double> sums) {
    for (int q = 0; q < heads_; ++q) {
      const double* of = sums.data() + static_cast<std::ptrdiff_t>(q) * numbers();
      for (int i = 0; i < numbers(); ++i) {
        const bool at_least_0 = i == 0 || i > dim_;
        if (!is_finite(of[i]) || (at_least_0 && of[i] < 0) || (i == 0 && of[i] > seen_))
          fail<FileError>("queries", std::to_string(of[i]), "sums of queries");
      }
    }
    sums_ = std::move(sums);
    used_ = 0;
  }

  std::shared_ptr<const Rotation> rotation_;  // forks have the same
  int heads_ = 0, group_ = 0, dim_ = 0, first_ = 0;
  bool has_lengths_ = false;
  double scale_ = 0;
  int oldest_ = 0, used_ = 0;   // in the ring
  int seen_ = 0;                // tokens before this position have been seen, or never will be
  std::vector<double> totals_;  // [query_heads, numbers()], of all, as of the last add_up()
  std::vector<double> sums_;    // [query_heads, numbers()], of what is not in the ring
  std::vector<float> ring_;     // [max_rollback + 1, query_heads, numbers()]
  std::vector<int> labels_;     // [max_rollback + 1], positions
};

}  // namespace buzz
