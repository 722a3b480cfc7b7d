#pragma once

#include <limits>
#include <numeric>
#include <vector>

#include "buzz/score/given.h"
#include "buzz/score/key_diversity.h"
#include "buzz/score/mass.h"
#include "buzz/score/no_score.h"
#include "buzz/select/by_index.h"
#include "buzz/select/segments.h"
#include "buzz/select/top_k.h"

namespace buzz {

/// The cached rows that a score may look at: [kv_heads, rows, head_dim] each.
template <class T>
struct CachedRows {
  View<const T> keys, values;
};

/// Decides which rows of a KV cache to keep: score x protect x select, with the budget in select's options. It holds
/// scores and positions of one layer of one sequence, and no K or V; the cache's owner tells it what happens and moves
/// its rows as the Keep says:
///
///     policy.append(n);              // n rows were added
///     policy.observe(probabilities); // what attention gave, where the score needs it
///     if (policy.due()) compact(policy.select(), keys), ...
///
/// A Score says what a row is worth (score/mass.h shows the interface), a Select which rows that keeps
/// (select/segments.h). Sink and window are protected by index. Sizes never depend on scores. Nothing allocates after
/// the constructor.
template <class Score, class Select>
class Policy {
 public:
  struct Options : Protect, Score::Options, Select::Options {
    Options() : Protect(Select::protect()) {}
  };
  static constexpr bool needs_mass = Score::needs_mass;
  static constexpr bool needs_rows = Score::needs_rows;

  /// Most rows that there can ever be: sink + window + threshold + max_chunk for what evicts in time.
  /// Errors: what check() refuses.
  static int capacity(const Options& options, int max_chunk) {
    require_at_least("sink", options.sink, 0);
    require_at_least("window", options.window, 0);
    Score::check(options);
    Select::check(options);
    require_at_least("max_chunk", max_chunk, 1);
    const long long rows = Select::bound(options, max_chunk) + options.sink + options.window;
    require_range("sink + window + threshold + max_chunk", rows, 1, std::numeric_limits<int>::max() / 2);
    return static_cast<int>(rows);
  }

  /// kv_heads >= 1 lists of rows; max_chunk >= 1: the most tokens that one append() may bring.
  explicit Policy(const Options& options, int kv_heads, int max_chunk = 1)
      : options_(options),
        heads_((require_at_least("kv_heads", kv_heads, 1), kv_heads)),
        max_chunk_(max_chunk),
        capacity_(capacity(options, max_chunk)),
        score_(options, kv_heads, capacity_),
        select_(options),
        keep_(kv_heads, capacity_),
        positions_(static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(capacity_)),
        worth_(static_cast<std::size_t>(capacity_)),
        picks_(static_cast<std::size_t>(capacity_)) {}

  /// `tokens` rows were added after the last one, at the next positions; their scores are 0.
  /// Errors: tokens out of 0 to max_chunk; more rows than capacity() (an eviction that was due did not happen, or the
  /// cache is Full). O(kv_heads * tokens).
  void append(int tokens) {
    check_append(tokens);
    for (int h = 0; h < heads_; ++h) {
      std::int32_t* positions = position_row(h) + rows_;
      std::iota(positions, positions + tokens, next_);
    }
    score_.append(rows_, tokens);
    rows_ += tokens;
    next_ += tokens;
  }

  /// Refuses what append(tokens) would refuse, and changes nothing.
  void check_append(int tokens) const {
    require_range("tokens", tokens, 0, max_chunk_);
    require_range("rows", static_cast<long long>(rows_) + tokens, 0, capacity_);
    require_range("position", static_cast<long long>(next_) + tokens, 0, std::numeric_limits<std::int32_t>::max());
  }

  /// One call's attention probabilities, [query_heads, queries, rows()]; the queries are the newest rows, and query
  /// head q belongs to KV head q / (query_heads / kv_heads). Errors: another shape. O(query_heads * queries * rows).
  template <class S = Score>
  void observe(View<const float> probabilities) {
    static_assert(S::needs_mass, "this policy's score does not use attention probabilities");
    const int query_heads = probabilities.shape(0);
    if (query_heads < heads_ || query_heads % heads_ != 0)
      fail("probabilities.shape[0]", query_heads, "a multiple of kv_heads = " + std::to_string(heads_));
    require_range("probabilities.shape[1]", probabilities.shape(1), 0, rows_);
    require_equal("probabilities.shape[2]", probabilities.shape(2), rows_, "rows");
    if (!probabilities.empty()) score_.observe(probabilities);
  }

  /// The same where the caller has summed the columns already: [1, kv_heads, rows()]. O(kv_heads * rows).
  template <class S = Score>
  void observe_mass(View<const float> mass) {
    static_assert(S::needs_mass, "this policy's score does not use attention probabilities");
    require_shape("mass", mass, 1, heads_, rows_);
    for (int h = 0; h < heads_; ++h) score_.add(h, mass.row(0, h), rows_);
  }

  /// The user's own scores, [1, kv_heads, rows()], in place of all earlier ones. For Given. O(kv_heads * rows).
  template <class S = Score>
  void give(View<const float> scores) {
    static_assert(std::is_same<S, Given>::value, "only Given takes the user's own scores");
    require_shape("scores", scores, 1, heads_, rows_);
    score_.give(scores);
  }

  /// Does the budget call for an eviction? O(1).
  bool due() const { return select_.due(regions()); }

  /// Chooses the rows to keep and forgets the others; where no eviction is due, it keeps all. The Keep is valid until
  /// the next call of select() and has to be applied to the caller's K and V before the next append().
  /// O(kv_heads * rows) and what the score and the selection take.
  template <class S = Score>
  const Keep& select() {
    static_assert(!S::needs_rows, "this policy's score looks at keys: call select(keys, values)");
    return choose(nullptr);
  }

  /// The same for scores that look at K or V: [kv_heads, rows(), head_dim] each. Errors: another shape.
  template <class T>
  const Keep& select(View<T> keys, View<T> values) {
    require_shape("keys", keys, heads_, rows_, keys.shape(2));
    require_shape("values", values, heads_, rows_, values.shape(2));
    return choose(CachedRows<std::remove_const_t<T>>{keys, values});
  }

  const Options& options() const { return options_; }
  int kv_heads() const { return heads_; }
  int max_chunk() const { return max_chunk_; }
  int capacity() const { return capacity_; }
  int rows() const { return rows_; }
  Regions regions() const { return divide(rows_, hive_, options_); }
  /// The position that the next token gets: the number of tokens so far.
  int next_position() const { return next_; }
  /// Each row's position, ascending, [rows]; the score of each row, [rows], empty where the score has no memory.
  Span<const std::int32_t> positions(int head) const {
    require_range("head", head, 0, heads_ - 1);
    return {position_row(head), rows_};
  }
  Span<const float> scores(int head) const {
    require_range("head", head, 0, heads_ - 1);
    return score_.scores(head, rows_);
  }
  /// Bytes allocated.
  std::size_t bytes() const {
    return score_.bytes() + keep_.bytes() + positions_.size() * sizeof(std::int32_t) + worth_.size() * sizeof(float) +
           picks_.size() * sizeof(std::int32_t);
  }

  /// As newly made.
  void reset() { rows_ = hive_ = next_ = 0; }

 private:
  template <class Rows>
  const Keep& choose(const Rows& rows) {
    const Regions r = regions();
    if (!select_.due(r)) {
      keep_.begin(rows_, rows_);
      for (int h = 0; h < heads_; ++h) std::iota(keep_.list(h), keep_.list(h) + rows_, 0);
      return keep_;
    }
    int middle = 0, forgotten = 0;
    for (int h = 0; h < heads_; ++h) {
      score_.worth(h, r.sink, r.middle(), position_row(h), next_, rows, worth_.data());
      middle = thin(r, keep_.list(h) + r.sink, &forgotten);
      for (int i = 0; i < middle; ++i) keep_.list(h)[r.sink + i] += r.sink;
      std::iota(keep_.list(h), keep_.list(h) + r.sink, 0);
      std::iota(keep_.list(h) + r.sink + middle, keep_.list(h) + r.sink + middle + r.window, r.sink + r.middle());
    }
    keep_.begin(rows_, r.sink + middle + r.window);
    for (int h = 0; h < heads_; ++h) compact(keep_, h, View<std::int32_t>(position_row(h), 1, rows_, 1));
    score_.compact(keep_);
    if (forgotten > 0) score_.forget(r.sink + forgotten);
    rows_ = keep_.size();
    hive_ = middle;
    return keep_;
  }

  /// Passes over worth_[0, middle) until the budget holds; writes the indices kept, ascending, and returns how many.
  int thin(const Regions& r, std::int32_t* kept, int* forgotten) {
    *forgotten = select_.forgotten(r.hive);
    int count = select_.pass(worth_.data(), r.hive, r.fresh, kept);
    while (select_.again(count)) {
      // In place: picks ascend, so index i is read before anything is written past it.
      for (int i = 0; i < count; ++i) worth_[static_cast<std::size_t>(i)] = worth_[static_cast<std::size_t>(kept[i])];
      *forgotten = select_.forgotten(count);
      const int fewer = select_.pass(worth_.data(), count, 0, picks_.data());
      for (int i = 0; i < fewer; ++i) kept[i] = kept[picks_[static_cast<std::size_t>(i)]];
      count = fewer;
    }
    return count;
  }

  std::int32_t* position_row(int head) { return positions_.data() + static_cast<std::ptrdiff_t>(head) * capacity_; }
  const std::int32_t* position_row(int head) const {
    return positions_.data() + static_cast<std::ptrdiff_t>(head) * capacity_;
  }

  Options options_;
  int heads_, max_chunk_, capacity_;
  int rows_ = 0, hive_ = 0, next_ = 0;
  Score score_;
  Select select_;
  Keep keep_;
  std::vector<std::int32_t> positions_;  // [kv_heads, capacity]
  std::vector<float> worth_;             // [capacity], of the middle rows of one head
  std::vector<std::int32_t> picks_;      // [capacity], of a pass after the first
};

/// BUZZ (arXiv 2410.23079): accumulated attention, the heaviest row of each chunk. Options::mass = latest is the
/// authors' `fast`.
using Beehive = Policy<Mass, Segments>;
/// BUZZ without scores: the first row of each chunk (the authors' `no max`).
using Strided = Policy<NoScore, Segments>;
/// The beehive's even choice, of the keys that are least like the others.
using DiverseBeehive = Policy<KeyDiversity, Segments>;
/// H2O (arXiv 2306.14048): accumulated attention, the heaviest rows of all.
using HeavyHitter = Policy<Mass, TopK>;
/// StreamingLLM (arXiv 2309.17453): sink and window; with sink 0 a sliding window.
using Streaming = Policy<NoScore, Nothing>;
/// No eviction, up to a capacity.
using Full = Policy<NoScore, Everything>;

using Options = Beehive::Options;

}  // namespace buzz
