#pragma once

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "buzz/archive.h"
#include "buzz/pins.h"
#include "buzz/policy.h"
#include "buzz/row_positions.h"
#include "buzz/rows.h"
#include "buzz/score/column_sums.h"
#include "buzz/score/make_score.h"
#include "buzz/score/query_moments.h"
#include "buzz/score/undo.h"
#include "buzz/select/row_chooser.h"
#include "buzz/unrotated_keys.h"

namespace buzz {

/// A policy at work on one layer of one sequence: scores and positions, no K or V. The cache's owner tells it what
/// happens and moves its rows as the KeptRows say:
///
///     evictor.append(n);              // n rows were added
///     evictor.observe(probabilities); // what attention gave, where the score needs it
///     if (evictor.should_evict()) compact(evictor.select(), keys), ...
///
/// Sink and window are protected by index; sizes never depend on scores. After the constructor nothing allocates.
class Evictor {
 public:
  /// kv_heads lists of rows, 1 to 65536; max_chunk >= 1: the most tokens that one append() may bring; max_rollback, 0
  /// to 2^20: the most that rollback() may take back, with a copy of the score's state for each. shown: of the
  /// rows that select() will be given; leverage has to know it. rows_seen: where queries see the newest so many rows
  /// alone, and the score has no memory; then rollback() goes back past evictions too, as far as that many rows are
  /// left. 0: all rows are seen. Errors: options out of their range; sizes of rows that are not said, or keys of
  /// several positions a token, where a score needs them; a product of sizes past all memory. Where memory ends sooner:
  /// std::bad_alloc.
  explicit Evictor(const Policy& policy, int kv_heads, int max_chunk = 1, int max_rollback = 0,
                   const ShownRows& shown = {}, int rows_seen = 0)
      : policy_(policy),
        heads_((require_size("kv_heads", kv_heads, most_heads), kv_heads)),
        max_chunk_(max_chunk),
        max_rollback_((require_range("max_rollback", max_rollback, 0, 1 << 20), max_rollback)),
        rows_seen_(rows_seen),
        capacity_(policy_.most_rows(max_chunk)),
        needs_(policy_.needs()),
        unrotation_(shown, needs_.unrotated_keys, needs_.rotated_keys || needs_.queries),
        queries_(needs_.queries ? QueryMoments(shown, unrotation_.rotation(), kv_heads, policy_.protect.sink,
                                               max_rollback, needs_.query_lengths)
                                : QueryMoments()),
        score_(reserved(make_score(policy_.score), kv_heads, capacity_, unrotation_, queries_.query_heads())),
        chooser_(policy_.select, policy_.score.code() != 0, kv_heads, capacity_),
        undo_(max_rollback, kv_heads, capacity_, number_size()),
        positions_(kv_heads, capacity_),
        sums_(needs_.attention ? size(kv_heads, capacity_) : 0),
        shared_(shares() ? SharedImportance(policy_.reduction, kv_heads, capacity_) : SharedImportance()) {}

  Evictor(Evictor&&) = default;             ///< the source may only be destroyed or assigned to
  Evictor& operator=(Evictor&&) = default;  ///< the same
  /// A deep copy, O(kv_heads * capacity); the two live apart.
  Evictor fork() const { return Evictor(*this); }
  explicit Evictor(const Evictor&) = default;  ///< as fork(), for containers

  /// `tokens` rows were added after the last one, at the next positions. Errors: tokens out of 0 to max_chunk;
  /// CacheFull: more rows than capacity(), or no positions left. O(kv_heads * tokens).
  void append(int tokens) {
    check_append(tokens);
    positions_.append(rows_, tokens, next_);
    score().append(rows_, tokens);
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
  /// head q belongs to KV head q / (query_heads / kv_heads). Errors: another shape; a probability below 0 or above
  /// 2^64; a policy that does not look at attention. O(query_heads * queries * rows).
  void observe(View<const float> probabilities) {
    require_attention();
    const int query_heads = probabilities.shape(0), queries = probabilities.shape(1);
    if (query_heads < heads_ || query_heads % heads_ != 0)
      fail("probabilities.shape[0]", query_heads, "a multiple of kv_heads = " + std::to_string(heads_));
    require_range("probabilities.shape[1]", queries, 0, rows_);
    require_equal("probabilities.shape[2]", probabilities.shape(2), rows_, "rows");
    const View<float> sums(sums_.data(), 1, heads_, rows_, 0, capacity_);
    for_each_query(probabilities, sums, [&](int q) { observe_slice(View<const float>(sums), q, queries); });
  }
  /// The same where the caller has summed the columns already: [slices, kv_heads, rows()], oldest queries first. One
  /// slice may hold all queries of a call, but for the newest queries_apart(); rollback() can only take back tokens
  /// that have a slice each. Errors: another shape; a sum that is not finite, below 0 or above 2^64. O(slices *
  /// kv_heads * rows).
  void observe_sums(View<const float> sums) {
    require_attention();
    require_range("sums.shape[0]", sums.shape(0), 0, rows_);
    require_shape("sums", sums, sums.shape(0), heads_, rows_);
    for (int s = 0; s < sums.shape(0); ++s)
      for (int h = 0; h < heads_; ++h) require_attention_sums("sums", sums.row(s, h), rows_);
    for (int s = 0; s < sums.shape(0); ++s)
      observe_slice(View<const float>(sums.row(s, 0), 1, heads_, rows_, 0, sums.stride(1)), s, sums.shape(0));
  }
  /// One call's queries before any rotation, [tokens, query_heads, head_dim], of the newest rows, for scores that look
  /// at them; a token's count once, however often they are shown. Errors: another shape than ShownRows said, more
  /// tokens than rows(), another policy. O(tokens * query_heads * head_dim).
  template <class Q>
  void observe_queries(View<Q> queries) {
    using Given = std::remove_const_t<Q>;
    if (!needs_.queries) fail("policy", policy_.name, "one that looks at queries");
    const int tokens = queries.shape(0);
    require_range("queries.shape[0]", tokens, 0, rows_);
    require_shape("queries", queries, tokens, queries_.query_heads(), queries_.head_dim());
    const RowsView<Given> rows{View<const Given>(queries)};
    queries_.observe(next_ - tokens, tokens, FloatRowsOf<Given>(rows));
  }
  /// The user's scores, [1, kv_heads, rows()], for UserScores; earlier ones go. Errors: another shape, another policy.
  void give(View<const float> scores) {
    if (policy_.score.kind != ScoreKind::user) fail("policy", policy_.name, "one with UserScores");
    require_shape("scores", scores, 1, heads_, rows_);
    observe_slice(scores, 0, 1);
  }
  /// Refuses observations where the policy does not look at attention.
  void require_attention() const {
    if (!needs_.attention) fail("policy", policy_.name, "one that looks at attention probabilities");
  }
  /// The newest queries of a call that have to have a slice each in observe_sums(): those that the score looks at one
  /// by one, and max_rollback more, so that it still has its own when those are taken back.
  int queries_apart() const {
    if (!needs_.attention) return 0;
    return static_cast<int>(
        (std::min<long long>)(1LL * score_->queries_apart() + max_rollback_, (std::numeric_limits<int>::max)()));
  }

  /// Does the budget call for an eviction? O(1).
  bool should_evict() const { return chooser_.should_evict(regions()); }

  /// Chooses the rows to keep and forgets the others; where it should not evict, it keeps all. to: whatever
  /// should_evict() says, exactly so many rows are left, or all where there are no more: sink, window, pins and of the
  /// rest what Leave says; for a prompt that was read whole. The KeptRows are valid until the next call of select().
  /// Errors: the policy looks at keys or values; fewer rows than least_rows(). O(kv_heads * rows), and what the score
  /// and the selection take.
  const KeptRows& select(std::optional<int> to = {}) {
    require_blind();
    return choose({}, to);
  }
  /// The same for scores that look at K or V: [kv_heads, rows(), head_dim] each, with scales [1, kv_heads, rows()]
  /// where T has them; keys as ShownRows said. Errors: another shape; a scale that is not finite and >= 0.
  template <class T>
  const KeptRows& select(const RowsView<T>& keys, const RowsView<T>& values, std::optional<int> to = {}) {
    require_scales("keys", keys);
    require_scales("values", values);
    return select_quantised(keys, values, to);
  }
  /// The same of rows without scales.
  template <class T>
  const KeptRows& select(View<T> keys, View<T> values, std::optional<int> to = {}) {
    using Stored = std::remove_const_t<T>;
    return select(RowsView<Stored>(keys), RowsView<Stored>(values), to);
  }
  /// The same of rows as quantise_row() makes them: a scale of NaN marks a row that was not finite.
  template <class T>
  const KeptRows& select_quantised(const RowsView<T>& keys, const RowsView<T>& values, std::optional<int> to = {}) {
    return showing(keys, values, [&](const Shown& shown) -> const KeptRows& { return choose(shown, to); });
  }
  /// What the last select(), or ModelEvictor's, kept.
  const KeptRows& kept() const { return chooser_.kept(); }
  /// The fewest rows that select(to) may leave now: sink, window and pins. O(rows).
  int least_rows() const {
    const Regions r = regions();
    int rows = r.sink + r.window;
    for (int i = r.sink; i < r.sink + r.middle() && !pins_.empty(); ++i) rows += pins_.contains(positions_.row(0)[i]);
    return rows;
  }
  /// Would select(to) drop a row? Errors: fewer than least_rows().
  bool evicts(std::optional<int> to) const {
    if (!to) return should_evict();
    if (*to < rows_ || rows_ == 0) require_at_least("rows", *to, least_rows());
    return *to < rows_;
  }

  /// Positions [first, first + count) are not evicted until they are unpinned. They may lie ahead, and count against
  /// the bound. Errors: first or count < 0 or too large; a position that a head has evicted; more pins, the sink's
  /// apart, than the selection has room for. O(kv_heads * (count + rows)).
  void pin(int first, int count) {
    check_pin(first, count);
    pins_ = pins_.with(first, count);
  }
  /// Refuses what pin() would refuse, and changes nothing.
  void check_pin(int first, int count) const {
    check_range(first, count);
    positions_.require_held<InvalidArgument>(rows_, next_, first, count);
    const int sink = policy_.protect.sink;
    require_room("pinned rows", pins_.with(first, count).count_from(sink), Pins().with(first, count).count_from(sink),
                 room());
  }
  /// Positions [first, first + count), pinned or not, may be evicted again. Errors: first or count < 0 or too large.
  void unpin(int first, int count) {
    check_range(first, count);
    pins_ = pins_.without(first, count);
  }
  const Pins& pins() const { return pins_; }  ///< positions that no eviction takes

  /// Can the newest `tokens` rows be taken back? Not past the last eviction (but see rows_seen), nor more than
  /// max_rollback. O(1).
  bool can_rollback(int tokens) const {
    return tokens == 0 || (tokens > 0 && tokens <= max_rollback_ && next_ - tokens >= undo_.floor());
  }
  /// Takes back the newest `tokens` rows: positions, scores and regions are bit for bit as they were before them, pins
  /// on them are gone. Errors: can_rollback() says no. O(tokens * kv_heads * rows).
  void rollback(int tokens) {
    check_rollback(tokens);
    rows_ -= tokens;
    next_ -= tokens;
    undo_.restore(next_, score(), rows_);
    observed_ = (std::min)(observed_, next_);
    queries_.take_back(next_);
    if (!pins_.empty()) pins_ = pins_.without(next_, tokens);
  }
  /// Refuses what rollback() would refuse, and changes nothing.
  void check_rollback(int tokens) const {
    if (!can_rollback(tokens))
      fail("rollback", tokens,
           "0 to " + std::to_string((std::max)(0, (std::min)(max_rollback_, next_ - undo_.floor()))) +
               " (max_rollback, and tokens since the last eviction)");
  }

  const Policy& policy() const { return policy_; }                           ///< as given
  Needs needs() const { return needs_; }                                     ///< what has to be shown
  int kv_heads() const { return heads_; }                                    ///< lists of rows
  int max_chunk() const { return max_chunk_; }                               ///< most tokens of an append()
  int capacity() const { return capacity_; }                                 ///< most rows that there can ever be
  int rows() const { return rows_; }                                         ///< rows of each head, now
  Regions regions() const { return divide(rows_, hive_, policy_.protect); }  ///< where they lie
  int next_position() const { return next_; }                                ///< the number of tokens so far
  /// Each row's position, ascending, [rows]. Errors: no such head.
  Span<const std::int32_t> positions(int head) const {
    require_range("head", head, 0, heads_ - 1);
    return {positions_.row(head), rows_};
  }
  /// Of all heads: [1, kv_heads, rows].
  View<const std::int32_t> positions() const { return positions_.view(rows_); }
  /// The score of each row, [rows], empty where the score has none to show. Errors: no such head.
  Span<const double> scores(int head) const {
    require_range("head", head, 0, heads_ - 1);
    const double* scores = score_->scores(head);
    return {scores, scores == nullptr ? 0 : rows_};
  }
  /// Bytes allocated.
  std::size_t bytes() const {
    return score_->bytes() + chooser_.bytes() + positions_.bytes() + undo_.bytes() + unrotation_.bytes() +
           queries_.bytes() + sums_.size() * sizeof(float) + shared_.bytes();
  }

  /// As newly made.
  void reset() {
    rows_ = hive_ = next_ = observed_ = 0;
    pins_ = Pins();
    undo_.clear(0);
    queries_.clear();
  }

  /// Writes or reads options (which have to agree) and state: see evictor_archive.h. No rollback goes past a load.
  /// Errors: a Reader's.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a);

 private:
  friend class ModelEvictor;
  /// What the score is shown of K and V.
  struct Shown {
    const FloatRows *keys = nullptr, *values = nullptr, *unrotated = nullptr, *rotated = nullptr;
  };

  template <class... N>
  static std::size_t size(N... n) {
    return (static_cast<std::size_t>(n) * ...);
  }
  static AnyScore reserved(AnyScore score, int kv_heads, int capacity, const Unrotation& shown, int query_heads) {
    score->reserve(kv_heads, capacity);
    score->reserve_dims(shown.head_dim(), shown.value_dim());
    if (query_heads > 0) score->reserve_queries(query_heads);
    return score;
  }
  Score& score() { return *score_; }
  /// The state is the score's; a const evictor only reads it.
  Score& score() const { return const_cast<Score&>(*score_); }
  std::size_t number_size() { return score().states() == 0 ? 0 : score().changes(0).size; }
  int room() const { return policy_.select.room(policy_.protect, max_chunk_); }

  void loaded(Writer&) const {}
  void loaded(Reader&);

  static void check_range(int first, int count) {
    require_at_least("first", first, 0);
    require_range("count", count, 0, (std::numeric_limits<std::int32_t>::max)() - static_cast<long long>(first));
  }

  /// Slice s of `slices`; the last ones are the newest tokens'.
  void observe_slice(const View<const float>& sums, int s, int slices) {
    const int position = next_ - slices + s;
    // A slice that stands for earlier tokens too is no query that a score of the newest ones could go back to.
    if (position > observed_) undo_.raise_floor(position + 1 + (std::min)(score().queries_apart(), slices - s - 1));
    if (position + 1 < observed_) undo_.raise_floor(observed_);  // seen again after later ones, which it cannot precede
    undo_.push(position, score(), rows_);
    observed_ = position + 1;
    score().observe(sums, s == 0);
  }

  bool shares() const { return policy_.sharing != Sharing::head; }
  void require_blind() const {
    if (needs_.rows()) fail("policy", policy_.name, "one that looks at neither keys nor values");
  }
  /// f(Shown) of keys and values as they are stored. Errors: another shape.
  template <class T, class F>
  decltype(auto) showing(const RowsView<T>& keys, const RowsView<T>& values, F&& f) {
    require_rows("keys", keys, heads_, rows_);
    require_rows("values", values, heads_, rows_);
    const FloatRowsOf<T> k(keys), v(values);
    return unrotation_(k, v, positions(), [&](const FloatRows* came, const FloatRows* seen) -> decltype(auto) {
      return f(Shown{&k, &v, came, seen});
    });
  }

  const KeptRows& choose(const Shown& shown, std::optional<int> to) {
    if (!evicts(to)) return keep_all();
    int forgotten = -1;
    if (!shares()) {
      for (int h = 0; h < heads_; ++h) {
        ask(h, shown, chooser_.importance());
        forgotten = list(h, to);
      }
    } else {
      shared_.begin(regions().middle());
      ask_all(shown, shared_);
      forgotten = list_shared(shared_, to);
    }
    return keep(forgotten);
  }
  int list(int head, std::optional<int> to) { return chooser_.list(head, regions(), pins_, positions_.row(head), to); }
  /// One list for all heads.
  int list_shared(const SharedImportance& all, std::optional<int> to) {
    all.write(chooser_.importance());
    const int forgotten = list(0, to);
    chooser_.list_as(chooser_);
    return forgotten;
  }
  const KeptRows& keep_all() {
    chooser_.list_all(rows_);
    return kept();
  }
  /// How important the middle rows of a head are, [middle].
  void ask(int head, const Shown& shown, double* out) {
    const Regions r = regions();
    if (head == 0) queries_.add_up();
    score().importance({head, r.sink, r.middle(), positions_.row(head), next_, shown.keys, shown.values,
                        shown.unrotated, shown.rotated, needs_.queries ? &queries_ : nullptr},
                       out);
  }
  void ask_all(const Shown& shown, SharedImportance& all) {
    for (int h = 0; h < heads_; ++h) {
      ask(h, shown, all.scores());
      all.add();
    }
  }
  /// The lists are made: positions, scores and regions follow. Rows [0, forgotten) stay unread; -1: none.
  const KeptRows& keep(int forgotten) {
    const Regions r = regions();
    positions_.compact(kept());
    score().keep(kept());
    if (forgotten >= 0) score().forget(forgotten);
    rows_ = kept().size();
    hive_ = rows_ - r.sink - r.window;
    const int spare = rows_seen_ == 0 ? 0 : (std::max)(0, r.window - (rows_seen_ - 1));
    undo_.clear((std::max)(undo_.floor(), next_ - spare));
    return kept();
  }

  Policy policy_;
  int heads_, max_chunk_, max_rollback_, rows_seen_, capacity_;
  Needs needs_;
  Unrotation unrotation_;
  QueryMoments queries_;  // none where the score does not look at them
  AnyScore score_;        // this sequence's
  int rows_ = 0, hive_ = 0, next_ = 0;
  int observed_ = 0;  // tokens before this position have been observed
  RowChooser chooser_;
  Pins pins_;
  UndoLog undo_;
  RowPositions positions_;
  std::vector<float> sums_;  // [kv_heads, capacity], of a query, where the score looks at attention
  SharedImportance shared_;  // where heads share
};

}  // namespace buzz
