#pragma once

#include <vector>

#include "buzz/attention.h"
#include "buzz/policy.h"

namespace buzz {

/// The KV cache of one attention layer of one sequence: a policy, a store and attention, nothing else.
///
///     cache.attend(q, k, v, out);  // append, attend over all rows, observe, evict when due
///
/// T: float, Eigen::half or Eigen::bfloat16, the type of the stored rows. Everything is allocated in the constructor.
/// rows() never exceeds capacity() = sink + window + threshold + max_chunk. Not copyable; a moved-from cache may only
/// be destroyed or assigned to.
template <class T, class Policy_ = Beehive>
class BuzzCache {
 public:
  using Policy = Policy_;
  using Options = typename Policy::Options;

  /// Errors: what Shape, Policy::Options, Rope or AttentionOptions do not allow.
  explicit BuzzCache(const Shape& shape, const Options& options = {}, const Rope& rope = {},
                     const AttentionOptions& attention = {})
      : shape_((check(shape), shape)),
        rotation_(rope, shape.head_dim),
        policy_(options, shape.kv_heads, shape.max_chunk),
        store_(shape, policy_.capacity()),
        attention_(shape, attention, policy_.capacity()),
        mass_(Policy::needs_mass ? static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(capacity()) : 0),
        angles_(static_cast<std::size_t>(shape.max_chunk) * static_cast<std::size_t>(rotation_.dims())) {
    if (rotation_.compact()) require_range("capacity", capacity(), 1, rope.max_position);
  }

  BuzzCache(BuzzCache&&) = default;
  BuzzCache& operator=(BuzzCache&&) = default;

  /// One call: appends k and v, attends q over all rows, adds the probabilities to the scores, and evicts when due, so
  /// that the eviction acts from the next call. q, out: [tokens, query_heads, head_dim]; k, v: [tokens, kv_heads,
  /// head_dim]; 0 <= tokens <= max_chunk; each of float or T. Causal within the call. Errors: another shape, a full
  /// cache; the cache is then as it was. O(tokens * query_heads * rows * head_dim).
  template <class Q, class K, class O>
  void attend(View<Q> q, View<K> k, View<K> v, View<O> out, Executor run = {}) {
    require_shape("q", q, k.shape(0), shape_.query_heads, shape_.head_dim);
    require_shape("out", out, k.shape(0), shape_.query_heads, shape_.head_dim);
    append(k, v);
    attend(q, out, run);
    observe();
    evict();
  }

  /// Step 1: appends rows k, v: [tokens, kv_heads, head_dim], unrotated where there is a Rope. Errors as above.
  template <class K>
  void append(View<K> k, View<K> v) {
    require_shape("k", k, k.shape(0), shape_.kv_heads, shape_.head_dim);
    require_shape("v", v, k.shape(0), shape_.kv_heads, shape_.head_dim);
    const int tokens = k.shape(0);
    policy_.check_append(tokens);
    const int first = rotation_.compact() ? rows() : next_position();
    if (!rotation_.compact())
      require_range("position", static_cast<long long>(first) + tokens, 0, rotation_.rope().max_position);
    turn_to(first, tokens);
    using In = std::remove_const_t<K>;
    store_.append(View<const In>(k), View<const In>(v), rotation_, angles_.data());
    policy_.append(tokens);
    observed_ = true;
  }

  /// Step 2: attends q over all rows; q, out: [tokens, query_heads, head_dim], the queries of the newest rows.
  /// Errors: another shape, more tokens than max_chunk or rows.
  template <class Q, class O>
  void attend(View<Q> q, View<O> out, Executor run = {}) {
    const int tokens = q.shape(0);
    require_shape("q", q, tokens, shape_.query_heads, shape_.head_dim);
    require_shape("out", out, tokens, shape_.query_heads, shape_.head_dim);
    require_range("q.shape[0]", tokens, 0, std::min(shape_.max_chunk, rows()));
    if (tokens == 0) return;
    turn_to((rotation_.compact() ? rows() : next_position()) - tokens, tokens);
    using In = std::remove_const_t<Q>;
    attention_(View<const In>(q), rotation_, angles_.data(), store_.keys(), store_.values(), out, mass(), run);
    observed_ = false;
  }

  /// Step 3: adds the last attend's probabilities to the scores, once; nothing where there are none, or the policy has
  /// no use for them.
  void observe() {
    if constexpr (Policy::needs_mass) {
      if (!observed_) policy_.observe_mass(mass());
    }
    observed_ = true;
  }

  /// Step 4: evicts if due. Returns whether it did. O(rows * kv_heads * head_dim) then.
  bool evict() {
    if (!policy_.due()) return false;
    observed_ = true;  // the last attend's columns are no longer the cache's rows
    if constexpr (Policy::needs_rows)
      store_.compact(policy_.select(keys(), values()), rotation_, angles_.data());
    else
      store_.compact(policy_.select(), rotation_, angles_.data());
    turned_ = 0;
    return true;
  }

  const Shape& shape() const { return shape_; }
  const Options& options() const { return policy_.options(); }
  const Rope& rope() const { return rotation_.rope(); }
  /// The policy, to read; Given's scores are fed through give().
  const Policy& policy() const { return policy_; }
  template <class P = Policy>
  void give(View<const float> scores) {
    static_cast<P&>(policy_).give(scores);
  }

  int rows() const { return policy_.rows(); }
  int capacity() const { return policy_.capacity(); }
  Regions regions() const { return policy_.regions(); }
  /// The index that the next token gets in its sequence, whatever was evicted.
  int next_position() const { return policy_.next_position(); }
  /// Each row's index in its sequence, ascending, and its score, [rows].
  Span<const std::int32_t> positions(int head) const { return policy_.positions(head); }
  Span<const float> scores(int head) const { return policy_.scores(head); }
  /// As stored, keys rotated: [kv_heads, rows, head_dim].
  View<const T> keys() const { return store_.keys(); }
  View<const T> values() const { return store_.values(); }
  /// Bytes allocated, all of them.
  std::size_t bytes() const {
    return store_.bytes() + policy_.bytes() + attention_.bytes() + (mass_.size() + angles_.size()) * sizeof(float);
  }

  /// As newly made: what follows is bit for bit what a new cache would do.
  void reset() {
    policy_.reset();
    store_.reset();
    observed_ = true;
    turned_ = 0;
  }

 private:
  View<float> mass() { return {mass_.data(), 1, mass_.empty() ? 0 : shape_.kv_heads, rows(), 0, capacity()}; }

  /// Has angles_ hold the rotations of positions [first, first + tokens).
  void turn_to(int first, int tokens) {
    if (rotation_.dims() == 0 || (first == turned_from_ && tokens == turned_)) return;
    for (int t = 0; t < tokens; ++t)
      rotation_.angles(first + t, angles_.data() + static_cast<std::ptrdiff_t>(t) * rotation_.dims());
    turned_from_ = first;
    turned_ = tokens;
  }

  Shape shape_;
  Rotation rotation_;
  Policy policy_;
  Store<T> store_;
  Attention attention_;
  std::vector<float> mass_;    // [kv_heads, capacity], the last attend's column sums
  std::vector<float> angles_;  // [max_chunk, rotation.dims()]
  int turned_from_ = 0, turned_ = 0;
  bool observed_ = true;
};

}  // namespace buzz
