#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "buzz/cuda/append.cuh"
#include "buzz/cuda/buffers.cuh"
#include "buzz/cuda/compact.cuh"
#include "buzz/cuda/dispatch.cuh"
#include "buzz/cuda/key_diversity.cuh"
#include "buzz/cuda/policies.cuh"
#include "buzz/cuda/select.cuh"
#include "buzz/cuda/start.cuh"
#include "buzz/rope.h"

namespace buzz {
namespace cuda {

/// As buzz::AttentionOptions, and refused as there.
struct AttentionOptions {
  double scale = 0;     ///< logits are multiplied by it, finite and > 0; 0: 1 / sqrt(head_dim)
  double log_base = 0;  ///< and by log(rows seen) / log(log_base), finite and > 1; 0: not
};

/// A call: `tokens` new tokens of each of the sequences [first, first + count).
struct Call {
  int tokens = 1;  ///< of each sequence; 1 to max_chunk
  int first = 0;   ///< of the sequences; >= 0
  int count = 1;   ///< of them; >= 1
};

/// buzz::BuzzCache on the device: the KV cache of one attention layer of several sequences, each with its own lengths,
/// in device memory that the caller owns.
///
///     BuzzCache<__half> cache(shape, batch, options, rope, memory, workspace);  // bytes(...) of them
///     cache.reset(stream);
///     cache.attend(q, k, v, out, call, stream);  // append, attend over all rows, observe, evict when due
///
/// A step is append, attend or observe, evict; evict ends it, due or not. After the constructor nothing allocates and
/// nothing synchronises: lengths are known to the host, and kept on the device too, where the kernels read them, and
/// the grids are of the capacity's size; so a captured step can be replayed, across evictions (see replayed()).
/// Not copyable, since two would share the device's memory; a moved-from cache may only be destroyed or assigned to.
/// Results are an error of the arguments, with nothing launched, or what the launches give. Where a launch of append(),
/// attend(), observe() or evict() fails (itself: CUDA's error is not an earlier call's), the step is as it was before,
/// and the same can be asked again.
template <class T, class Policy_, class Launcher_>
class BasicCache {
 public:
  using Policy = Policy_;                    ///< what decides
  using Options = typename Policy::Options;  ///< its options
  using Launcher = Launcher_;                ///< of kernels: CUDA's, or a test's
  using Stream = typename Launcher::Stream;  ///< where launches wait for each other
  using Result = typename Launcher::Result;  ///< Launcher::success, or an error
  using Score = typename Policy::Score;      ///< what a row is worth
  using Rule = typename Policy::Rule;        ///< which rows stay

  /// Device memory of such a cache, nothing of which is allocated. Errors: as the constructor. O(head_dim + sequences).
  static Bytes bytes(const Shape& shape, const Batch& batch, const Options& options, const Rope& rope = {}) {
    return BasicCache(shape, batch, options, rope, nullptr, nullptr).buffers_.bytes;
  }

  /// memory, workspace: bytes() on the device, aligned to 256, which have to outlive the cache. Errors, as exceptions
  /// that name the field: what Shape, Batch, Options, Rope, AttentionOptions do not allow; head_dim that is no multiple
  /// of 16 bytes or over 256; more than 65535 KV heads; keys that would have to be stored raw; compact positions past
  /// max_position; max_rollback, which the device does not have. The pointers are not checked.
  BasicCache(const Shape& shape, const Batch& batch, const Options& options, const Rope& rope, void* memory,
             void* workspace, const AttentionOptions& attention = {})
      : shape_((buzz::check(shape), check(shape, batch), shape)),
        batch_(batch),
        options_(options),
        rotation_(rope, shape.head_dim),
        capacity_(options.most_rows(shape.max_chunk)),
        rule_(rule_of(options)),
        buffers_(memory, workspace, shape, batch, capacity_, rotation_.dims(), Score::needs_mass, Score::needs_rows),
        lengths_(static_cast<std::size_t>(batch.sequences)) {
    if (rotation_.compact()) {
      require_range("capacity", capacity_, 1, rope.max_position);
      if (rope.keys == KeyStorage::raw || !options.moves_are_few(shape.max_chunk))
        fail("rope.positions", "compact", "logical: the device does not store raw keys");
    }
    check_logits(attention.scale, attention.log_base);
    scale_.scale = attention.scale != 0 ? attention.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
    scale_.log_base = attention.log_base;
    turning_.dims = rotation_.dims();
    turning_.interleaved = rope.pairs == Pairs::interleaved;
    turning_.compact = rotation_.compact();
    turning_.factor = rope.attention_factor;
    turning_.frequencies = buffers_.frequencies;
  }

  BasicCache(BasicCache&&) = default;             ///< the source may only be destroyed or assigned to
  BasicCache& operator=(BasicCache&&) = default;  ///< the same

  /// All sequences as newly made; a step that has not ended is over. Needed before the first step, not to be captured
  /// with one.
  Result reset(Stream stream) { return reset(0, batch_.sequences, stream); }
  /// The same for sequences [first, first + count). Errors: sequences out of range; some but not all of a step's that
  /// has not ended. O(count).
  Result reset(int first, int count, Stream stream) {
    if (!in_range(first, count)) return Launcher::invalid;
    const int end = first + count, open_end = open_.first + open_.count;
    const bool of_step = open_.tokens != 0 && first < open_end && open_.first < end;
    if (of_step && (first > open_.first || end < open_end)) return Launcher::invalid;
    Start start{buffers_.states + first, count, buffers_.frequencies, turning_.dims / 2, {}};
    for (int i = 0; i < turning_.dims / 2; ++i) start.given[i] = rotation_.frequencies()[static_cast<std::size_t>(i)];
    const Result result = Launcher::launch(start, {1, 1, 1}, stream);
    if (result != Launcher::success) return result;
    for (int s = first; s < end; ++s) own(s) = {};
    if (of_step) open_.tokens = 0;
    return result;
  }

  /// One step. q, out: [count, tokens, query_heads, head_dim]; k, v: [count, tokens, kv_heads, head_dim], unrotated
  /// where there is a Rope. Errors: tokens out of 1 to max_chunk, sequences out of range, a full cache, a position past
  /// the Rope's, a step that has not ended, tensors that are no views (is_view()), an out in memory of another's: it
  /// may be q, k or v (the same data and strides; q only where nothing is read twice: the score is not mass, or tokens
  /// <= Batch::kept_logits), else it has nothing in common with them or the cache; nothing is launched then. Where a
  /// launch fails, the step is open from the part on that failed. O(tokens * query_heads * rows * head_dim) a sequence.
  Result attend(Tensor<const T> q, Tensor<const T> k, Tensor<const T> v, Tensor<T> out, Call call, Stream stream) {
    if (!can_append(call) || !are_queries(q, call) || !are_queries(out, call)) return Launcher::invalid;
    if (!are_rows(k, call) || !are_rows(v, call)) return Launcher::invalid;
    const Footprint to = queries(out, call);
    for (const Footprint& from : {rows(k, call), rows(v, call)})
      if (!apart(to, from) && !same(to, from)) return Launcher::invalid;
    if (!can_write(out, q, call)) return Launcher::invalid;
    Result result = append(k, v, call, stream);
    if (result == Launcher::success) result = attend(q, out, stream);
    if (result == Launcher::success) result = evict(stream);
    return result;
  }

  /// Step 1: appends rows k, v: [count, tokens, kv_heads, head_dim], unrotated where there is a Rope; begins the step.
  /// Errors: as above. O(tokens * kv_heads * head_dim) a sequence.
  Result append(Tensor<const T> k, Tensor<const T> v, Call call, Stream stream) {
    if (!can_append(call) || !are_rows(k, call) || !are_rows(v, call)) return Launcher::invalid;
    const long long row = row_of(call.first);
    const Result result =
        Launcher::launch(Append<T>{k, v, keys(call.first), values(call.first), buffers_.positions + row,
                                   buffers_.scores + row, buffers_.angles, buffers_.states + call.first, turning_,
                                   shape_.kv_heads, shape_.head_dim, capacity_, shape_.max_chunk, call.tokens},
                         {call.tokens, shape_.kv_heads, call.count}, stream);
    if (result != Launcher::success) return result;
    open_ = call;
    observed_ = false;
    for (int s = call.first; s < call.first + call.count; ++s) own(s) = appended(lengths(s), call.tokens);
    return result;
  }

  /// Step 2: attends q over all rows and, where the policy's score is mass, adds the probabilities to the scores. q,
  /// out: [count, tokens, query_heads, head_dim], the queries of the appended rows. Errors: no step has begun; the
  /// score is mass, and this step's attend() or observe() has been: it would count twice; tensors that are no views; an
  /// out in memory of another's, as above. O(tokens * query_heads * rows * head_dim) a sequence.
  Result attend(Tensor<const T> q, Tensor<T> out, Stream stream) {
    if (!can_observe() || !are_queries(q, open_) || !are_queries(out, open_) || !can_write(out, q, open_))
      return Launcher::invalid;
    Partial partial = buffers_.partial;
    if (open_.tokens > Buffers<T>::few_tokens) partial.splits = 1;
    if (open_.tokens > batch_.kept_logits) partial.logits = nullptr;
    const bool again = reads_twice(open_);
    const Work<T> w = work();
    const Result result = cuda::attend<Launcher>(w, q, out, partial, again ? buffers_.lse : nullptr, stream);
    const bool observes = result == Launcher::success && again;
    return observed(observes ? cuda::observe<Launcher>(w, q, buffers_.lse, stream) : result);
  }

  /// Step 2 where a kernel of the engine's attended over keys() and values(): its probabilities, [count, query_heads,
  /// tokens, rows], go to the scores. Errors: as attend(). O(tokens * query_heads * rows) a sequence.
  Result observe(Tensor<const float> probabilities, Stream stream) {
    static_assert(Score::needs_mass, "this policy's score does not use attention probabilities");
    if (!can_observe() ||
        !is_view(probabilities, open_.count, shape_.query_heads, open_.tokens, lengths(open_.first).rows))
      return Launcher::invalid;
    return observed(cuda::observe<Launcher>(work(), probabilities, stream));
  }
  /// The same where it gives each query's log-sum-exp alone: q as in attend(), lse [count, tokens, query_heads], -inf
  /// or NaN: that query gives nothing. They have to be of the same logits: nothing here could say otherwise without
  /// waiting for the device. O(tokens * query_heads * rows * head_dim) a sequence.
  Result observe(Tensor<const T> q, const float* lse, Stream stream) {
    static_assert(Score::needs_mass, "this policy's score does not use attention probabilities");
    if (!can_observe() || !are_queries(q, open_) || lse == nullptr) return Launcher::invalid;
    return observed(cuda::observe<Launcher>(work(), q, lse, stream));
  }

  /// Step 3: evicts what is due, and ends the step. Errors: no step has begun. In compact positions the launch that
  /// rotates the moved keys comes last, when the step has ended: where it alone fails, reset() is what remains.
  /// O(rows * kv_heads * head_dim) a sequence where an eviction is due.
  Result evict(Stream stream) {
    if (open_.tokens == 0) return Launcher::invalid;
    const Work<T> w = work();
    const int first = open_.first, lists = this->lists();
    std::int32_t *positions = buffers_.positions + row_of(first), *kept = buffers_.kept + kept_at(first);
    Result result = Launcher::success;
    if constexpr (Score::needs_rows)
      result = Launcher::launch(KeyDiversity<T, Rule>{w.keys, buffers_.diversity, buffers_.norms, w.states, options_,
                                                      options_, rule_, w.kv_heads, w.head_dim, capacity_},
                                {1, w.kv_heads, w.count}, stream);
    if (result == Launcher::success && selects) {
      const double* worth = Score::needs_rows ? buffers_.diversity : Score::needs_mass ? w.scores : nullptr;
      result = Launcher::launch(Select<Rule>{worth, positions, is_mean(), fade(), kept, buffers_.worth, buffers_.picks,
                                             w.states, options_, rule_, w.kv_heads, lists, capacity_, batch_.sequences},
                                {1, lists, w.count}, stream);
    }
    if (result == Launcher::success) {
      const Compact<T, Rule> compact{
          keys(first), values(first), w.scores,   positions, kept,       buffers_.states + first,
          options_,    rule_,         w.kv_heads, lists,     w.head_dim, capacity_};
      result = Launcher::launch(compact, {2 * compact.slices() + 1, w.kv_heads, w.count}, stream);
    }
    if (result != Launcher::success) return result;
    for (int s = first; s < first + w.count; ++s) own(s) = evicted(lengths(s), options_, rule_);
    open_.tokens = 0;
    if (turning_.compact && selects) {
      const Rerotate<T, Rule> rerotate{keys(first), kept, w.states, turning_, options_, rule_, lists, capacity_};
      result = Launcher::launch(rerotate, {rerotate.blocks(), w.kv_heads, w.count}, stream);
    }
    return result;
  }

  /// A graph of a captured step has been launched once more: the host counts on. The capture itself, in which the host
  /// has counted but nothing ran, is the graph's first launch. `call` is the captured one. Errors: as attend(); the
  /// host has not counted then. O(count).
  Result replayed(Call call) {
    if (!can_append(call)) return Launcher::invalid;
    for (int s = call.first; s < call.first + call.count; ++s)
      own(s) = evicted(appended(lengths(s), call.tokens), options_, rule_);
    return Launcher::success;
  }

  const Shape& shape() const { return shape_; }        ///< as given
  const Options& options() const { return options_; }  ///< as given
  int capacity() const { return capacity_; }           ///< most rows of a sequence that there can ever be
  /// The lengths of a sequence once the stream has done what was asked. The sequence is not checked, here and below.
  const Lengths& lengths(int sequence) const { return lengths_[static_cast<std::size_t>(sequence)]; }
  int rows(int sequence) const { return lengths(sequence).rows; }  ///< of each head

  /// On the device, from a sequence on: keys, rotated where there is a Rope, and values [.., kv_heads, capacity,
  /// head_dim], scores and positions [.., kv_heads, capacity], the rows that the last eviction kept [.., lists(),
  /// capacity]. Of each capacity rows(sequence) are in use.
  /// @{
  Tensor<T> keys(int sequence) const { return cached(buffers_.keys, sequence); }
  Tensor<T> values(int sequence) const { return cached(buffers_.values, sequence); }
  const double* scores(int sequence) const { return buffers_.scores + row_of(sequence); }
  const std::int32_t* positions(int sequence) const { return buffers_.positions + row_of(sequence); }
  const std::int32_t* kept(int sequence) const { return buffers_.kept + kept_at(sequence); }
  /// @}
  /// Lists of kept rows a sequence: one a KV head, or one that all heads share.
  int lists() const { return Score::shared ? 1 : shape_.kv_heads; }

 private:
  static constexpr bool selects = !std::is_same<Rule, EverythingRule>::value;

  static void check(const Shape& shape, const Batch& batch) {
    require_range("max_rollback", shape.max_rollback, 0, 0);
    require_range("head_dim", shape.head_dim, Pack<T>::size, 256);
    if (shape.head_dim % Pack<T>::size != 0) fail("head_dim", shape.head_dim, "whole packs of 16 bytes");
    // Queries times splits are blocks of a launch.
    require_range("max_chunk * query_heads / kv_heads", 1LL * shape.max_chunk * shape.group(), 1, 1 << 20);
    require_range("sequences", batch.sequences, 1, 65535);
    require_range("kv_heads", shape.kv_heads, 1, 65535);
    require_range("kept_logits", batch.kept_logits, 0, Buffers<T>::few(shape));
    require_range("splits", batch.splits, 0, 1024);
  }
  bool is_mean() const {
    if constexpr (Score::needs_mass) return options_.mass == MassKind::mean;
    return false;
  }
  float fade() const {
    if constexpr (Score::fades) return options_.fade / static_cast<float>(capacity_);
    return 0;
  }
  Fold fold() const {
    if constexpr (Score::needs_mass) return {options_.mass, options_.decay};
    return {};
  }

  bool in_range(int first, int count) const { return first >= 0 && count >= 1 && first <= batch_.sequences - count; }
  bool can_append(Call call) const {
    if (open_.tokens != 0 || !in_range(call.first, call.count) || call.tokens < 1 || call.tokens > shape_.max_chunk)
      return false;
    for (int s = call.first; s < call.first + call.count; ++s) {
      const Lengths& l = lengths(s);
      const int most = turning_.compact ? (std::numeric_limits<int>::max)() : rotation_.rope().max_position;
      if (l.rows > capacity_ - call.tokens || l.next > most - call.tokens) return false;
    }
    return true;
  }
  template <class U>
  bool are_queries(const Tensor<U>& tensor, Call call) const {
    return is_view(tensor, call.count, call.tokens, shape_.query_heads, shape_.head_dim);
  }
  bool are_rows(const Tensor<const T>& tensor, Call call) const {
    return is_view(tensor, call.count, call.tokens, shape_.kv_heads, shape_.head_dim);
  }
  template <class U>
  Footprint queries(const Tensor<U>& tensor, Call call) const {
    return footprint(tensor, call.count, call.tokens, shape_.query_heads, shape_.head_dim);
  }
  Footprint rows(const Tensor<const T>& tensor, Call call) const {
    return footprint(tensor, call.count, call.tokens, shape_.kv_heads, shape_.head_dim);
  }
  /// Without the logits kept, the probabilities are made again from q, once the output has been written.
  bool reads_twice(Call call) const { return Score::needs_mass && call.tokens > batch_.kept_logits; }
  bool can_write(const Tensor<T>& out, const Tensor<const T>& q, Call call) const {
    const Footprint to = queries(out, call), from = queries(q, call);
    return (apart(to, from) || (same(to, from) && !reads_twice(call))) &&
           apart(to, buzz::footprint(buffers_.keys, buffers_.bytes.cache)) &&
           apart(to, buzz::footprint(buffers_.worth, buffers_.bytes.workspace));
  }
  bool can_observe() const { return open_.tokens != 0 && !(Score::needs_mass && observed_); }
  Result observed(Result result) {
    observed_ = result == Launcher::success;
    return result;
  }

  Lengths& own(int sequence) { return lengths_[static_cast<std::size_t>(sequence)]; }
  long long row_of(int sequence) const { return static_cast<long long>(sequence) * shape_.kv_heads * capacity_; }
  long long kept_at(int sequence) const { return static_cast<long long>(sequence) * lists() * capacity_; }
  Tensor<T> cached(T* rows, int sequence) const {
    Tensor<T> tensor = dense(rows, shape_.kv_heads, capacity_, shape_.head_dim);
    tensor.data += sequence * tensor.sequence;
    return tensor;
  }

  /// Of the open step.
  Work<T> work() const {
    const int first = open_.first;
    return {keys(first),
            values(first),
            buffers_.scores + row_of(first),
            buffers_.angles,
            buffers_.states + first,
            turning_,
            scale_,
            fold(),
            {open_.tokens, shape_.group()},
            shape_.kv_heads,
            shape_.head_dim,
            capacity_,
            shape_.max_chunk,
            open_.count};
  }

  Shape shape_;
  Batch batch_;
  Options options_;
  Rotation rotation_;
  int capacity_;
  Rule rule_;
  Buffers<T> buffers_;
  Turning turning_;
  LogitScale scale_;
  std::vector<Lengths> lengths_;  // [sequences]
  Call open_{0, 0, 0};            // the step that has not ended; of 0 tokens: none
  bool observed_ = false;         // its probabilities are in the scores, where those are mass
};

#if defined(__CUDACC__)
/// On a stream of CUDA's; T: float, __half or __nv_bfloat16.
template <class T, class Policy = Beehive>
using BuzzCache = BasicCache<T, Policy, Launcher>;
#endif

}  // namespace cuda
}  // namespace buzz
