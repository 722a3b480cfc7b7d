#pragma once

#include <limits>
#include <numeric>
#include <vector>

#include "buzz/archive.h"
#include "buzz/options.h"
#include "buzz/pins.h"
#include "buzz/rows.h"
#include "buzz/score/column_sums.h"
#include "buzz/score/given.h"
#include "buzz/score/undo.h"
#include "buzz/select/thinner.h"

namespace buzz {

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
  using Options = PolicyOptions<Score, Select>;          ///< sink, window, and what score and selection have
  static constexpr bool needs_mass = Score::needs_mass;  ///< observe() has to be fed
  static constexpr bool needs_rows = Score::needs_rows;  ///< select() has to be given K and V

  /// Most rows that there can ever be: sink + window + threshold + max_chunk for what evicts in time, or what
  /// Passes::single has where that is more; Full's own capacity.
  /// Errors: what check() refuses.
  static int capacity(const Options& options, int max_chunk) { return options.most_rows(max_chunk); }

  /// kv_heads lists of rows, 1 to 65536; max_chunk >= 1: the most tokens that one append() may bring; max_rollback, 0
  /// to 2^20: the most that rollback() may take back, at kv_heads * capacity of Score::Value each where the score has a
  /// memory. Errors: what check() refuses; a product of sizes past all memory. Where memory ends sooner:
  /// std::bad_alloc.
  explicit Policy(const Options& options, int kv_heads, int max_chunk = 1, int max_rollback = 0)
      : options_(options),
        heads_((require_size("kv_heads", kv_heads, most_heads), kv_heads)),
        max_chunk_(max_chunk),
        max_rollback_((require_range("max_rollback", max_rollback, 0, 1 << 20), max_rollback)),
        capacity_(capacity(options, max_chunk)),
        score_(options, kv_heads, capacity_),
        select_(options),
        keep_(kv_heads, capacity_),
        undo_(Score::remembers ? max_rollback : 0, kv_heads, capacity_),
        thinner_(capacity_),
        positions_(count_of<std::int32_t>("kv_heads * capacity", {kv_heads, capacity_})) {}

  Policy(Policy&&) = default;             ///< the source may only be destroyed or assigned to
  Policy& operator=(Policy&&) = default;  ///< the same
  /// A deep copy, O(kv_heads * capacity); the two live apart.
  Policy fork() const { return Policy(*this); }
  explicit Policy(const Policy&) = default;  ///< as fork(), for containers

  /// `tokens` rows were added after the last one, at the next positions; their scores are 0.
  /// Errors: tokens out of 0 to max_chunk; CacheFull: more rows than capacity() (an eviction that was due did not
  /// happen, or the cache is Full), or no positions left. O(kv_heads * tokens).
  void append(int tokens) {
    check_append(tokens);
    for (int h = 0; h < heads_; ++h) {
      std::int32_t* positions = position_row(h) + rows_;
      for (int i = 0; i < tokens; ++i) positions[i] = next_ + i;
    }
    score_.append(rows_, tokens);
    rows_ += tokens;
    next_ += tokens;
  }

  /// Refuses what append(tokens) would refuse, and changes nothing.
  void check_append(int tokens) const {
    require_range("tokens", tokens, 0, max_chunk_);
    require_room("rows", static_cast<long long>(rows_) + tokens, tokens, capacity_);
    require_room("position", static_cast<long long>(next_) + tokens, tokens,
                 (std::numeric_limits<std::int32_t>::max)());
  }

  /// One call's attention probabilities, [query_heads, queries, rows()]; the queries are the newest rows, and query
  /// head q belongs to KV head q / (query_heads / kv_heads). Queries are added one after the other, so that n calls of
  /// one query give the same bits as one call of n (MassKind::latest apart, which is about calls). What is not finite
  /// adds nothing. Errors: another shape; a number below 0 or above 2^64. O(query_heads * queries * rows).
  template <class S = Score>
  void observe(View<const float> probabilities) {
    static_assert(S::needs_mass, "this policy's score does not use attention probabilities");
    const int query_heads = probabilities.shape(0), queries = probabilities.shape(1);
    if (query_heads < heads_ || query_heads % heads_ != 0)
      fail("probabilities.shape[0]", query_heads, "a multiple of kv_heads = " + std::to_string(heads_));
    require_range("probabilities.shape[1]", queries, 0, rows_);
    require_equal("probabilities.shape[2]", probabilities.shape(2), rows_, "rows");
    for (int head = 0; head < query_heads; ++head)
      for (int i = 0; i < queries; ++i)
        require_masses("probabilities", probabilities.row(head, i), rows_ - queries + i + 1, true);
    observe_parts(queries, [&](int head, int query) { return score_.column_sums(probabilities, head, query); });
  }

  /// The same where the caller has summed the columns already: [parts, kv_heads, rows()], oldest queries first. One
  /// part may hold all queries of a call, but for the newest queries_apart(); rollback() can only take back tokens that
  /// have a part each. Errors: another shape; a sum that is not finite, below 0 or above 2^64. O(parts * kv_heads *
  /// rows).
  template <class S = Score>
  void observe_mass(View<const float> mass) {
    static_assert(S::needs_mass, "this policy's score does not use attention probabilities");
    require_range("mass.shape[0]", mass.shape(0), 0, rows_);
    require_shape("mass", mass, mass.shape(0), heads_, rows_);
    for (int part = 0; part < mass.shape(0); ++part)
      for (int h = 0; h < heads_; ++h) require_masses("mass", mass.row(part, h), rows_);
    observe_parts(mass.shape(0), [&](int head, int part) { return mass.row(part, head); });
  }

  /// The user's scores, [1, kv_heads, rows()], for Given; earlier ones go. Errors: another shape. O(kv_heads * rows).
  template <class S = Score>
  void give(View<const float> scores) {
    static_assert(std::is_base_of<Given, S>::value, "only Given takes the user's own scores");
    require_shape("scores", scores, 1, heads_, rows_);
    remember(0, 1);
    score_.give(scores);
  }

  /// The newest queries of a call that have to have a part each in observe_mass(): those that the score looks at one by
  /// one, and max_rollback more, so that it still has its own when those are taken back.
  int queries_apart() const {
    if constexpr (needs_mass)
      return static_cast<int>((std::min<long long>)(1LL * Score::queries_apart(options_) + max_rollback_,
                                                    (std::numeric_limits<int>::max)()));
    else
      return 0;
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
    using Stored = std::remove_const_t<T>;
    return select(RowsView<Stored>(keys), RowsView<Stored>(values));
  }
  /// The same where rows have scales, [1, kv_heads, rows()] each. Errors: also a scale that is not finite and >= 0.
  template <class T>
  const Keep& select(const RowsView<T>& keys, const RowsView<T>& values) {
    require_rows("keys", keys, heads_, rows_);
    require_rows("values", values, heads_, rows_);
    require_scales("keys", keys);
    require_scales("values", values);
    return choose(CachedRows<T>{keys, values});
  }
  /// The same of rows as quantise_row() makes them: a scale of NaN marks a row that was not finite.
  template <class T>
  const Keep& select_quantised(const RowsView<T>& keys, const RowsView<T>& values) {
    require_rows("keys", keys, heads_, rows_);
    require_rows("values", values, heads_, rows_);
    return choose(CachedRows<T>{keys, values});
  }

  /// Positions [first, first + count) are not evicted until they are unpinned: a system prompt, an image. They may lie
  /// ahead. They count against the bound. Errors: first or count < 0 or too large; a position that a head has evicted;
  /// more pins, the sink's apart, than the threshold has room for (CacheFull where fewer pins would leave it):
  /// threshold - 1 rows in a beehive (KNOBS.md has the others), `heavy` in HeavyHitter, `threshold` in Streaming,
  /// capacity - sink in Full. O(kv_heads * (count + rows)).
  void pin(int first, int count) {
    check_pin(first, count);
    pins_ = pins_.with(first, count);
  }
  /// Refuses what pin() would refuse, and changes nothing.
  void check_pin(int first, int count) const {
    check_range(first, count);
    require_held<InvalidArgument>(first, count);
    require_room("pinned rows", pins_.with(first, count).count_from(options_.sink),
                 Pins().with(first, count).count_from(options_.sink), Select::room(options_, max_chunk_));
  }
  /// Positions [first, first + count), pinned or not, may be evicted again. Errors: first or count < 0 or too large.
  void unpin(int first, int count) {
    check_range(first, count);
    pins_ = pins_.without(first, count);
  }
  const Pins& pins() const { return pins_; }  ///< positions that no eviction takes

  /// Can the newest `tokens` rows be taken back? Not past the last eviction, nor more than max_rollback. O(1).
  bool can_rollback(int tokens) const {
    return tokens == 0 || (tokens > 0 && tokens <= max_rollback_ && next_ - tokens >= undo_.floor());
  }

  /// Takes back the newest `tokens` rows: positions, scores and regions are bit for bit as they were before them, pins
  /// on them are gone. Errors: can_rollback() says no. O(tokens * kv_heads * rows).
  void rollback(int tokens) {
    check_rollback(tokens);
    rows_ -= tokens;
    next_ -= tokens;
    if constexpr (Score::remembers) undo_.restore(next_, score_, rows_);
    observed_ = (std::min)(observed_, next_);
    if (!pins_.empty()) pins_ = pins_.without(next_, tokens);
  }

  /// Refuses what rollback() would refuse, and changes nothing.
  void check_rollback(int tokens) const {
    if (!can_rollback(tokens))
      fail("rollback", tokens,
           "0 to " + std::to_string((std::max)(0, (std::min)(max_rollback_, next_ - undo_.floor()))) +
               " (max_rollback, and tokens since the last eviction)");
  }

  const Options& options() const { return options_; }                 ///< as given
  int kv_heads() const { return heads_; }                             ///< lists of rows
  int max_chunk() const { return max_chunk_; }                        ///< most tokens of an append()
  int capacity() const { return capacity_; }                          ///< most rows that there can ever be
  int rows() const { return rows_; }                                  ///< rows of each head, now
  Regions regions() const { return divide(rows_, hive_, options_); }  ///< where they lie
  int next_position() const { return next_; }                         ///< the next token's: the number of tokens so far
  /// Each row's position, ascending, [rows]. Errors: no such head.
  Span<const std::int32_t> positions(int head) const {
    require_range("head", head, 0, heads_ - 1);
    return {position_row(head), rows_};
  }
  /// The score of each row, [rows], empty where the score has no memory. Errors: no such head.
  Span<const double> scores(int head) const {
    require_range("head", head, 0, heads_ - 1);
    return score_.scores(head, rows_);
  }
  /// Bytes allocated.
  std::size_t bytes() const {
    return score_.bytes() + keep_.bytes() + thinner_.bytes() + positions_.size() * sizeof(std::int32_t) + undo_.bytes();
  }

  /// As newly made.
  void reset() {
    rows_ = hive_ = next_ = observed_ = 0;
    pins_ = Pins();
    undo_.clear(0);
  }

  /// Writes or reads options (which have to agree) and state. No rollback goes past a load. Errors: a Reader's.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a) {
    a.same("score", Score::code);
    a.same("select", Select::code);
    a.same("kv_heads", self.heads_);
    a.same("max_chunk", self.max_chunk_);
    a.same("sink", self.options_.sink);
    a.same("window", self.options_.window);
    Score::archive(a, self.options_);
    Select::archive(a, self.options_);
    a.number("rows", self.rows_, 0, self.capacity_);
    a.number("hive", self.hive_, 0, (std::max)(0, self.rows_ - self.options_.sink - self.options_.window));
    a.number("next_position", self.next_, self.rows_, (std::numeric_limits<std::int32_t>::max)());
    for (int h = 0; h < self.heads_; ++h) {
      a.array(self.position_row(h), static_cast<std::size_t>(self.rows_));
      if constexpr (Score::remembers) Score::archive_rows(self.score_, a, h, self.rows_);
    }
    Pins::archive(self.pins_, a);
    self.loaded(a);
  }

 private:
  void loaded(Writer&) const {}
  void loaded(Reader&) {
    for (int h = 0; h < heads_; ++h)
      for (int r = 0; r < rows_; ++r)
        require_range<FileError>("positions", position_row(h)[r], r == 0 ? 0 : position_row(h)[r - 1] + 1LL,
                                 next_ - 1LL);
    require_range<FileError>("pinned rows", pins_.count_from(options_.sink), 0, Select::room(options_, max_chunk_));
    for (const Pins::Range& r : pins_.ranges()) require_held<FileError>(r.first, r.count);
    observed_ = next_;
    undo_.clear(next_);
  }

  static void check_range(int first, int count) {
    require_at_least("first", first, 0);
    require_range("count", count, 0, (std::numeric_limits<std::int32_t>::max)() - static_cast<long long>(first));
  }

  /// Refuses positions of which a head has evicted one.
  template <class Family>
  void require_held(int first, int count) const {
    for (int h = 0; h < heads_; ++h) {
      const Span<const std::int32_t> held = positions(h);
      const auto at = std::lower_bound(held.begin(), held.end(), first);
      const long long there = std::lower_bound(at, held.end(), first + count) - at;
      const long long ahead = (std::max)(0, first + count - (std::max)(first, next_));
      if (there + ahead < count)
        fail<Family>("pin", "positions " + std::to_string(first) + " to " + std::to_string(first + count - 1),
                     "positions that no head has evicted");
    }
  }

  /// sums(head, part) gives the column sums of each part's queries, [rows]; the last parts are the newest tokens'.
  template <class Sums>
  void observe_parts(int parts, Sums&& sums) {
    for (int part = 0; part < parts; ++part) {
      remember(part, parts);
      for (int h = 0; h < heads_; ++h) score_.add(h, sums(h, part), rows_, part == 0);
    }
  }

  /// Before a part of an observation changes the scores: keeps them for rollback().
  void remember(int part, int parts) {
    const int position = next_ - parts + part;
    // A part that stands for earlier tokens too is no query that a score of the newest ones could go back to.
    if (position > observed_) {
      int newest = 0;
      if constexpr (needs_mass) newest = (std::min)(Score::queries_apart(options_), parts - part - 1);
      undo_.raise_floor(position + 1 + newest);
    }
    if (position + 1 < observed_) undo_.raise_floor(observed_);  // seen again after later ones, which it cannot precede
    if constexpr (Score::remembers)
      undo_.push(position, score_, rows_);
    else
      undo_.raise_floor(position + 1);
    observed_ = position + 1;
  }

  template <class Rows>
  const Keep& choose(const Rows& rows) {
    const Regions r = regions();
    if (!select_.due(r)) {
      keep_.begin(rows_, rows_);
      for (int h = 0; h < heads_; ++h) std::iota(keep_.list(h), keep_.list(h) + rows_, 0);
      return keep_;
    }
    int middle = 0, forgotten = -1;
    for (int h = 0; h < heads_; ++h) {
      score_.worth(h, r.sink, r.middle(), position_row(h), next_, rows, thinner_.worth());
      std::int32_t* kept = keep_.list(h);
      std::iota(kept, kept + r.sink, 0);
      middle = thinner_(select_, r, pins_, position_row(h) + r.sink, kept + r.sink, &forgotten);
      for (int i = 0; i < middle; ++i) kept[r.sink + i] += r.sink;
      std::iota(kept + r.sink + middle, kept + r.sink + middle + r.window, r.sink + r.middle());
    }
    keep_.begin(rows_, r.sink + middle + r.window);
    for (int h = 0; h < heads_; ++h) compact(keep_, h, View<std::int32_t>(position_row(h), 1, rows_, 1));
    score_.compact(keep_);
    if (forgotten >= 0) score_.forget(r.sink + forgotten);
    rows_ = keep_.size();
    hive_ = middle;
    undo_.clear(next_);
    return keep_;
  }

  std::int32_t* position_row(int head) { return positions_.data() + static_cast<std::ptrdiff_t>(head) * capacity_; }
  const std::int32_t* position_row(int head) const {
    return positions_.data() + static_cast<std::ptrdiff_t>(head) * capacity_;
  }

  Options options_;
  int heads_, max_chunk_, max_rollback_, capacity_;
  int rows_ = 0, hive_ = 0, next_ = 0;
  int observed_ = 0;  // tokens before this position have been observed
  Score score_;
  Select select_;
  Keep keep_;
  Pins pins_;
  UndoLog<typename Score::Value> undo_;
  Thinner<Select> thinner_;
  std::vector<std::int32_t> positions_;  // [kv_heads, capacity]
};

}  // namespace buzz
