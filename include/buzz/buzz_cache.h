#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "buzz/attention.h"
#include "buzz/evictor_archive.h"
#include "buzz/layer_sizes.h"
#include "buzz/memory.h"
#include "buzz/rope_table.h"

namespace buzz {

template <class T>
class ModelCache;

/// The KV cache of one attention layer of one sequence: a policy at work, a store and attention, nothing else.
///
///     cache.attend(q, k, v, out);  // append, attend over all rows, observe, evict where it should
///
/// T: float, Eigen::half, Eigen::bfloat16 or std::int8_t (with a scale a row), the type of the stored rows. All
/// is allocated in the constructor. rows() never exceeds capacity(), which is sink + window + threshold + max_chunk but
/// for Full and Passes::single (see Policy::capacity). One sequence and no mask: pads are not to be appended. Not
/// copyable but by fork(); a moved-from cache may only be destroyed or assigned to.
template <class T>
class BuzzCache {
 public:
  /// Errors: what Shape, Policy, Rope or AttentionOptions do not allow.
  BuzzCache(const Shape& shape, const Policy& policy, const Rope& rope = {}, const AttentionOptions& attention = {})
      : BuzzCache(Layer{shape, policy, rope, attention}) {}
  /// Of a model's layer. Errors: the same, and check(Layer)'s.
  explicit BuzzCache(const Layer& layer) : BuzzCache(make_table(layer), layer) {}

  BuzzCache(BuzzCache&&) = default;             ///< the source may only be destroyed or assigned to
  BuzzCache& operator=(BuzzCache&&) = default;  ///< the same
  /// A deep copy, scratch and all: O(bytes()). The two live apart.
  BuzzCache fork() const {
    BuzzCache copy(*this);
    copy.table_ = std::make_shared<RopeTable>(*table_);
    return copy;
  }

  /// One call: appends k and v, attends q over all rows, adds the probabilities to the scores, and evicts where it
  /// should, so that the eviction acts from the next call. q: [tokens, query_heads, head_dim]; k: [tokens, kv_heads,
  /// head_dim]; v and out the same, but rows of value_size(), and v empty where Shape::values_in_keys; 0 <= tokens <=
  /// max_chunk; each of float, half or bfloat16. Causal within the call. out may be
  /// q, k or v (the same data and strides), or have no memory in common with any, be it one tensor that they are parts
  /// of. Errors: another shape, more tokens than max_chunk, an out that reaches into q, k, v or the cache; CacheFull:
  /// no room for the rows, a position past the Rope's. The cache is then as it was. O(tokens * query_heads * rows *
  /// head_dim).
  template <class Q, class K, class O>
  void attend(View<Q> q, View<K> k, View<K> v, View<O> out, Executor run = {}) {
    require_shape("q", q, k.shape(0), shape_.query_heads, shape_.head_dim);
    require_shape("out", out, k.shape(0), shape_.query_heads, shape_.value_size());
    require_apart("out", out, "q", q);
    require_apart("out", out, "k", k);
    require_apart("out", out, "v", v);
    require_not_own(out);
    append(k, v);
    attend(q, out, run);
    observe();
    evict();
  }

  /// Step 1: appends rows k, v, unrotated where there is a Rope. Shapes and errors as above.
  template <class K>
  void append(View<K> k, View<K> v) {
    const int tokens = k.shape(0);
    require_shape("k", k, tokens, shape_.kv_heads, shape_.head_dim);
    if (!shape_.values_in_keys)
      require_shape("v", v, tokens, shape_.kv_heads, shape_.value_size());
    else if (!v.empty())
      fail("v", "given", "empty: values are in the keys");
    evictor_.check_append(tokens);
    const int first = next_rotary_position();
    if (!rotation().compact())
      require_room("position", static_cast<long long>(first) + tokens, tokens, rope().max_position);
    using In = std::remove_const_t<K>;
    store_.append(rows(), View<const In>(k), View<const In>(v), rotation(),
                  raw_keys_ ? nullptr : angles(first, tokens).queries);
    evictor_.append(tokens);
    discard();
  }

  /// Step 2: attends q, the queries of the newest rows, over all rows.
  /// Errors: another shape, more tokens than max_chunk or rows, an out that reaches into q or the cache: see above.
  template <class Q, class O>
  void attend(View<Q> q, View<O> out, Executor run = {}) {
    const int tokens = check_queries(q);
    require_shape("out", out, tokens, shape_.query_heads, shape_.value_size());
    require_apart("out", out, "q", q);
    require_not_own(out);
    if (tokens == 0) return;
    using In = std::remove_const_t<Q>;
    const Needs needs = evictor_.needs();
    for (int i = 0; needs.queries && i < tokens * shape_.query_heads; ++i)  // now, since out may be q
      convert_row(q.row(i / shape_.query_heads, i % shape_.query_heads), shape_.head_dim,
                  queries_.data() + static_cast<std::ptrdiff_t>(i) * shape_.head_dim);
    attention_(View<const In>(q), places_of_newest(tokens), store_.keys(rows()), store_.values(rows()), out,
               sums(slices(tokens)), run);
    if (needs.attention || needs.queries) pending_ = {tokens, slices(tokens)};
  }

  /// Step 3: adds the last attend's probabilities, or queries, to the scores, once; nothing where none are of use.
  void observe() {
    const Needs needs = pending_.tokens > 0 ? evictor_.needs() : Needs();
    if (needs.attention) evictor_.observe_sums(sums(pending_.slices));
    if (needs.queries)
      evictor_.observe_queries(View<float>(queries_.data(), pending_.tokens, shape_.query_heads, shape_.head_dim));
    discard();
  }

  /// Queries that, or whose probabilities, wait for observe(), 0 where the policy has no use for them. Until then they
  /// are forked and moved with the cache, and rollback() takes the newest ones back; save(), an eviction and observe(q)
  /// are refused; append(), discard(), reset() and load() drop them.
  int unobserved() const { return pending_.tokens; }
  /// Step 3 where the last attend shall not count: drops its probabilities and queries.
  void discard() { pending_ = {}; }

  /// Step 3 where a flash kernel of the engine's attended over keys() and values() and gives no probabilities: their
  /// column sums are made again from q, [tokens, query_heads, head_dim] unrotated, and from the log-sum-exp of each
  /// query's natural logits, lse [1, tokens, query_heads]; one that is -inf or NaN says nothing. The logits are those
  /// of AttentionOptions, and the head's sink is one of them, as in FlashAttention's and vLLM's kernels; from a kernel
  /// that leaves it out, give log(exp(lse) + exp(sink)). Errors: as attend(); unobserved() is not 0; an lse of other
  /// logits (in base 2, of another cap, scale or sink): the probabilities of a query that it makes do not add up to 1
  /// within AttentionOptions::lse_tolerance. The scores are then as they were.
  template <class Q>
  void observe(View<Q> q, View<const float> lse, Executor run = {}) {
    evictor_.require_attention();
    const int tokens = check_queries(q);
    require_shape("lse", lse, 1, tokens, shape_.query_heads);
    require_observed("observe(q, lse)");
    if (tokens == 0) return;
    using In = std::remove_const_t<Q>;
    attention_.column_sums(View<const In>(q), places_of_newest(tokens), store_.keys(rows()), lse, sums(slices(tokens)),
                           run);
    attention_.check_lse();
    evictor_.observe_sums(sums(slices(tokens)));
    if (evictor_.needs().queries) evictor_.observe_queries(q);
  }
  /// The same for a policy that looks at queries and not at attention, which needs no lse. Errors: another policy.
  template <class Q>
  void observe(View<Q> q) {
    if (evictor_.needs().attention) fail("lse", "none", "the queries': the policy looks at attention too");
    check_queries(q);
    require_observed("observe(q)");
    evictor_.observe_queries(q);
  }
  /// How far from 1 the probabilities of a query of the last observe(q, lse) added up, at most; 0: nowhere, or none.
  double lse_mismatch() const { return attention_.lse_mismatch(); }

  /// The user's own scores, [1, kv_heads, rows], for policies of user_score(). Errors: another shape or policy.
  void give(View<const float> scores) { evictor_.give(scores); }

  /// Step 4: evicts if it should. Returns whether it did. A layer of Sharing::model in a ModelCache leaves that to
  /// ModelCache::evict(). Errors: it should while unobserved() is not 0. O(rows * kv_heads * head_dim) then.
  bool evict() { return !of_model_ && evict({}); }
  /// Evicts whatever should_evict() says, once a prompt was read whole, so that exactly `to` rows are left, or all
  /// where there are no more: sink, window, pins and of the rest what Leave (select/leave.h) says. Returns whether any
  /// row went. Errors: fewer than evictor().least_rows(); unobserved() is not 0; a layer of Sharing::model in a
  /// ModelCache.
  bool evict_to(int to) {
    if (of_model_) fail("sharing", "model", "head or layer: ModelCache::evict_to() evicts all layers together");
    return evict(to);
  }

  /// Positions that no eviction takes, and that may lie ahead; errors: see Evictor::pin.
  void pin(int first, int count) { evictor_.pin(first, count); }
  void unpin(int first, int count) { evictor_.unpin(first, count); }  ///< the end of a pin(); see Evictor::unpin

  /// Can they be taken back? See Evictor::can_rollback.
  bool can_rollback(int tokens) const { return evictor_.can_rollback(tokens); }
  /// Takes back the newest `tokens` rows, scores and what is unobserved() included, bit for bit. Errors: can_rollback()
  /// says no.
  void rollback(int tokens) {
    evictor_.rollback(tokens);
    if (tokens < pending_.tokens)
      pending_ = {pending_.tokens - tokens, pending_.slices - tokens};
    else if (tokens > 0)
      discard();
  }

  /// As newly made: what follows is bit for bit what a new cache would do.
  void reset() {
    evictor_.reset();
    angles_count_ = 0;
    discard();
  }

  /// Writes the cache to a stream as archive.h says: shape and options, regions, positions, scores, pins, K and V.
  /// O(rows * kv_heads * head_dim). Errors: the stream refuses (FileError); unobserved() is not 0.
  void save(std::ostream& out) const {
    require_observed("save()");
    Writer writer(out);
    archive(*this, writer);
    writer.finish();
  }

  /// Makes this the cache that was saved; what follows is bit for bit what would have followed the save, but that
  /// rollback() cannot go back past it. Errors, all of them FileError: a file of another shape, type, policy, option or
  /// version, named; one that is damaged or too short. The cache is then as it was.
  void load(std::istream& in) {
    Reader reader(in);
    BuzzCache loaded(*this);  // with the same table, which a model's other layers have too
    loaded.reset();
    archive(loaded, reader);
    reader.finish();
    *this = std::move(loaded);
  }

  /// All fields in the order of the file; for ModelCache.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a) {
    a.same("type", type_code<T>);
    a.same("query_heads", self.shape_.query_heads);
    a.same("head_dim", self.shape_.head_dim);
    a.same_since(3, "value_dim", self.shape_.value_size(), self.shape_.head_dim);
    a.same_since(3, "values_in_keys", static_cast<int>(self.shape_.values_in_keys), 0);
    a.same("raw_keys", self.raw_keys_);
    self.attention_.options().archive(a);
    self.rotation().archive(a);
    Evictor::archive(self.evictor_, a);
    Store<T>::archive(self.store_, self.rows(), a);
  }

  const Shape& shape() const { return shape_; }               ///< as given
  const Rope& rope() const { return rotation().rope(); }      ///< as given
  const Policy& policy() const { return evictor_.policy(); }  ///< as given
  bool is_sliding() const { return sliding_; }                ///< see Layer::sliding
  /// The policy at work, to read.
  const Evictor& evictor() const { return evictor_; }

  int rows() const { return evictor_.rows(); }            ///< rows of each head, now
  int capacity() const { return evictor_.capacity(); }    ///< most rows that there can ever be
  Regions regions() const { return evictor_.regions(); }  ///< where they lie
  /// The index that the next token gets in its sequence, whatever was evicted.
  int next_position() const { return evictor_.next_position(); }
  /// The rotary position that the next token gets: the same in logical positions, rows() in compact ones.
  int next_rotary_position() const { return rotation().compact() ? rows() : next_position(); }
  /// Each row's index in its sequence, ascending, [rows]. Errors: no such head.
  Span<const std::int32_t> positions(int head) const { return evictor_.positions(head); }
  /// The score of each row, [rows], empty where the score has no memory. Errors: no such head.
  Span<const double> scores(int head) const { return evictor_.scores(head); }
  /// As stored, [kv_heads, rows, head_dim]; keys are rotated unless has_raw_keys(). int8: a row is its scale times
  /// these.
  View<const T> keys() const { return store_.keys(rows()).values; }
  /// As stored, [kv_heads, rows, value_size()]; parts of keys() where Shape::values_in_keys.
  View<const T> values() const { return store_.values(rows()).values; }
  /// [1, kv_heads, rows], empty where T has no scales.
  View<const float> key_scales() const { return store_.keys(rows()).scales; }
  View<const float> value_scales() const { return store_.values(rows()).scales; }  ///< the same for values
  bool has_raw_keys() const { return raw_keys_; }  ///< keys() are not rotated yet; see KeyStorage

  /// Bytes allocated, by part, its table of angles among them, be it shared or not.
  Memory memory() const {
    return {store_.bytes(), evictor_.bytes(),
            attention_.bytes() + (sums_.size() + queries_.size() + angles_.size()) * sizeof(float) + table_->bytes()};
  }
  /// Bytes allocated, all of them.
  std::size_t bytes() const { return memory().total(); }
  /// The memory() of a cache that has not been made yet. No K and V are allocated; the policy and attention are made,
  /// and dropped again, to ask them. Errors: those of the constructor.
  static Memory memory_of(const Layer& layer) {
    const auto table = make_table(layer);
    Memory all = memory_without_table(layer, table->rotation());
    table->reserve_places(layer_sizes::places(layer));
    all.scratch += table->bytes();
    return all;
  }

 private:
  friend class ModelCache<T>;

  BuzzCache(const BuzzCache&) = default;  // has the same table
  BuzzCache(std::shared_ptr<RopeTable> table, const Layer& layer)
      : shape_(layer.shape),
        sliding_(layer.sliding),
        table_(std::move(table)),
        evictor_(layer_sizes::evictor_of(layer)),
        raw_keys_(stores_raw_keys(layer)),
        store_(shape_, evictor_.capacity()),
        attention_(shape_, layer.attention, evictor_.capacity()),
        sums_(layer_sizes::sums_of(layer, evictor_)),
        queries_(layer_sizes::queries_of(layer)),
        angles_(raw_keys_ ? 0 : layer_sizes::angles_of(layer, rotation())) {
    layer_sizes::check_positions(layer, rotation());
    table_->reserve_places(layer_sizes::places(layer));
  }
  static std::shared_ptr<RopeTable> make_table(const Layer& layer) {
    check(layer);
    return std::make_shared<RopeTable>(layer.rope, layer.shape.head_dim);
  }
  static Memory memory_without_table(const Layer& l, const Rotation& rotation) {
    layer_sizes::check_positions(l, rotation);
    const Evictor evictor = layer_sizes::evictor_of(l);
    const std::size_t one = Store<T>(l.shape, 1).bytes(), row = Store<T>(l.shape, 2).bytes() - one;
    const std::size_t more =
        count_of<char>("kv_heads * capacity * head_dim", {static_cast<long long>(row), evictor.capacity() - 1});
    return {one + more, evictor.bytes(),
            Attention(l.shape, l.attention, evictor.capacity()).bytes() +
                (layer_sizes::sums_of(l, evictor) + layer_sizes::queries_of(l) +
                 (stores_raw_keys(l) ? 0 : layer_sizes::angles_of(l, rotation))) *
                    sizeof(float)};
  }

  bool evict(std::optional<int> to) {
    if (!evictor_.evicts(to)) return false;
    require_observed("an eviction");
    compact(evictor_.select_quantised(store_.keys(rows()), store_.values(rows()), to));
    return true;
  }
  /// Moves the rows that the evictor has kept.
  void compact(const KeptRows& kept) {
    store_.compact(kept);
    if (rotation().compact() && !raw_keys_) {
      angles_count_ = 0;  // angles_ serves as room
      store_.rotate_moved(kept, rotation(), angles_.data());
    }
  }

  template <class O>
  void require_not_own(const View<O>& out) const {
    if (store_.overlaps(footprint(out))) fail("out", "in the cache's own memory", "memory of the caller's");
  }

  template <class Q>
  int check_queries(const View<Q>& q) const {
    require_shape("q", q, q.shape(0), shape_.query_heads, shape_.head_dim);
    require_range("q.shape[0]", q.shape(0), 0, (std::min)(shape_.max_chunk, rows()));
    return q.shape(0);
  }

  void require_observed(const char* call) const {
    if (pending_.tokens > 0)
      fail("unobserved", pending_.tokens, std::string("0 at ") + call + ": observe() or discard() first");
  }

  int slices(int tokens) const { return layer_sizes::slices(tokens, evictor_); }

  /// Column sums of a call's queries: [slices, kv_heads, rows].
  View<float> sums(int slices) {
    const std::ptrdiff_t stride = capacity();
    return {sums_.data(), sums_.empty() ? 0 : slices, shape_.kv_heads, rows(), shape_.kv_heads * stride, stride};
  }

  const Rotation& rotation() const { return table_->rotation(); }
  /// Of the queries or rows at positions [first, first + tokens).
  RopeAngles angles(int first, int tokens) {
    if (rotation().dims() == 0) return {};
    if (raw_keys_)  // whose positions are places
      return {&rotation(), table_->places() + static_cast<std::ptrdiff_t>(first) * rotation().dims(), table_->places()};
    if (first != angles_from_ || tokens > angles_count_) {
      table_->angles(first, tokens, angles_.data());
      angles_from_ = first;
      angles_count_ = tokens;
    }
    return {&rotation(), angles_.data(), nullptr};
  }
  /// Of the newest queries and of all rows.
  RopeAngles places_of_newest(int tokens) {
    RopeAngles a = angles(next_rotary_position() - tokens, tokens);
    const AttentionOptions& o = attention_.options();
    if (!o.alibi_slopes.empty() && o.alibi_positions == Positions::logical) a.positions = evictor_.positions();
    return a;
  }

  Shape shape_;
  bool sliding_;
  bool of_model_ = false;  // its evictions are those of all layers together
  std::shared_ptr<RopeTable> table_;
  Evictor evictor_;
  bool raw_keys_;
  Store<T> store_;
  Attention attention_;
  std::vector<float> sums_;     // [slices(max_chunk), kv_heads, capacity], the last attend's
  std::vector<float> queries_;  // [max_chunk, query_heads, head_dim], the last attend's
  std::vector<float> angles_;   // [max_chunk, rotation().dims()], of angles_count_ positions from angles_from_
  int angles_from_ = 0, angles_count_ = 0;
  struct {
    int tokens = 0, slices = 0;
  } pending_;  // the last attend's queries that are to be observed, and how many slices of sums_ are theirs
};

}  // namespace buzz
