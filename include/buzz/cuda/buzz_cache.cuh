#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "buzz/attention_options.h"
#include "buzz/cuda/append.cuh"
#include "buzz/cuda/buffers.cuh"
#include "buzz/cuda/compact.cuh"
#include "buzz/cuda/dispatch.cuh"
#include "buzz/cuda/key_diversity.cuh"
#include "buzz/cuda/policy.cuh"
#include "buzz/cuda/select.cuh"
#include "buzz/cuda/start.cuh"
#include "buzz/rope.h"

namespace buzz {
namespace cuda {

/// The host's, checked as there; threads and lse_tolerance are the host's alone.
using AttentionOptions = buzz::AttentionOptions;

/// A call: `tokens` new tokens of each of the sequences [first, first + count).
struct Call {
  int tokens = 1;  ///< of each sequence; 1 to max_chunk
  int first = 0;   ///< of the sequences; >= 0
  int count = 1;   ///< of them; >= 1
};

/// buzz::BuzzCache on the device: the KV cache of one attention layer of several sequences, each with its own lengths,
/// in device memory that the caller owns.
///
///     BuzzCache<__half> cache(shape, batch, beehive(), rope, memory, workspace);  // bytes(...) of them
///     cache.reset(stream);
///     cache.attend(q, k, v, out, call, stream);  // append, attend over all rows, observe, evict where it should
///
/// A step is append, attend or observe, evict; evict ends it, whether it has to evict or not. After the constructor
/// nothing allocates and nothing synchronises: lengths are known to the host, and kept on the device too, where the
/// kernels read them, and the grids are made for the capacity; so a captured step can be replayed, across evictions
/// (see replayed()). Not copyable, since two would share the device's memory; a moved-from cache may only be destroyed
/// or assigned to. Results are an error of the arguments, with nothing launched, or what the launches give. Where a
/// launch of append(), attend(), observe() or evict() fails (itself: CUDA's error is not an earlier call's), the step
/// is as it was before, and the same can be asked again.
template <class T, class Launcher_>
class BasicCache {
 public:
  using Launcher = Launcher_;                ///< of kernels: CUDA's, or a test's
  using Stream = typename Launcher::Stream;  ///< where launches wait for each other
  using Result = typename Launcher::Result;  ///< Launcher::success, or an error

  /// Device memory of such a cache, nothing of which is allocated; where Batch::splits is 0, one on the current device,
  /// or on another of its kind. Errors: as the constructor. O(head_dim + sequences + capacity).
  static Bytes bytes(const Shape& shape, const Batch& batch, const Policy& policy, const Rope& rope = {}) {
    return BasicCache(shape, batch, policy, rope, nullptr, nullptr).buffers_.bytes;
  }

  /// memory, workspace: bytes() on the device, aligned to 256, which have to outlive the cache. Errors, as exceptions
  /// that name the field: what Shape, Batch, Policy, Rope, AttentionOptions do not allow; a score that on_device()
  /// refuses; values_in_keys, which the device does not have; head_dim or a value_dim that is no multiple of 16 bytes
  /// or over 256; more than 65535 KV heads; keys that would have to be stored raw; compact positions past max_position;
  /// max_rollback where the score is attention, of which the device keeps no copies. The pointers are not checked.
  BasicCache(const Shape& shape, const Batch& batch, const Policy& policy, const Rope& rope, void* memory,
             void* workspace, const AttentionOptions& attention = {})
      : shape_((buzz::check(shape), cuda::check<T>(shape, batch), shape)),
        batch_(batch),
        policy_(policy),
        rotation_(rope, shape.head_dim),
        capacity_(policy.most_rows(shape.max_chunk)),
        attention_((buzz::check(attention, shape), attention)),
        device_(on_device(policy, capacity_)),
        buffers_(memory, workspace, shape, batch, splits(shape, batch, capacity_), capacity_, rotation_.dims(),
                 device_.needs),
        lengths_(static_cast<std::size_t>(batch.sequences)),
        floors_(lengths_.size()) {
    if (device_.needs.attention && shape.max_rollback > 0)
      fail("max_rollback", shape.max_rollback, "0 where the score is attention: the device keeps no copies of it");
    if (rotation_.compact()) {
      require_range("capacity", capacity_, 1, rope.max_position);
      if (rope.keys == KeyStorage::raw || !policy.moves_are_few(shape.max_chunk))
        fail("rope.positions", "compact", "logical: the device does not store raw keys");
    }
    device_rotation_.dims = rotation_.dims();
    device_rotation_.first = rope.first;
    device_rotation_.interleaved = rope.pairs == Pairs::interleaved;
    device_rotation_.compact = rotation_.compact();
    device_rotation_.factor = rope.attention_factor;
    device_rotation_.frequencies = buffers_.frequencies;
    scale_.scale = attention.scale != 0 ? attention.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
    scale_.log_base = attention.log_base;
    if (attention.soft_cap != 0) scale_.scale /= attention.soft_cap;
    modifiers_.value_dim = shape.value_size();
    modifiers_.window = attention.window;
    modifiers_.soft_cap = static_cast<float>(attention.soft_cap);
    if (!attention.sinks.empty()) modifiers_.sinks = buffers_.of_heads;
    if (!attention.alibi_slopes.empty()) modifiers_.slopes = buffers_.of_heads + shape.query_heads;
    modifiers_.by_place = attention.alibi_positions == Positions::compact;
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
    Start start{buffers_.states + first, count, buffers_.frequencies, device_rotation_.dims / 2, {}};
    for (int i = 0; i < device_rotation_.dims / 2; ++i)
      start.given[i] = rotation_.frequencies()[static_cast<std::size_t>(i)];
    Result result = Launcher::launch(start, {1, 1, 1}, stream);
    if (result == Launcher::success) result = give<Launcher>(attention_.sinks, buffers_.of_heads, stream);
    if (result == Launcher::success)
      result = give<Launcher>(attention_.alibi_slopes, buffers_.of_heads + shape_.query_heads, stream);
    if (result != Launcher::success) return result;
    for (int s = first; s < end; ++s) own(s) = {}, floor(s) = 0;
    if (of_step) open_.tokens = 0;
    return result;
  }

  /// One step. q: [count, tokens, query_heads, head_dim]; k: [count, tokens, kv_heads, head_dim], unrotated where there
  /// is a Rope; out and v the same, but rows of Shape::value_size(). Errors: tokens out of 1 to max_chunk, sequences
  /// out of range, a full cache, a position past the Rope's, a step that has not ended, tensors that are no views
  /// (is_view()), an out in memory of another's: it may be q, k or v (the same data and strides; q only where nothing
  /// is read twice: the score does not see attention, or tokens <= Batch::kept_logits), else it has nothing in common
  /// with them or the cache; nothing is launched then. Where a launch fails, the step is open from the part on that
  /// failed. O(tokens * query_heads * rows * head_dim) a sequence.
  Result attend(Tensor<const T> q, Tensor<const T> k, Tensor<const T> v, Tensor<T> out, Call call, Stream stream) {
    if (!can_append(call) || !are_queries(q, call) || !are_rows(k, v, call)) return Launcher::invalid;
    if (!are_queries(out, call, shape_.value_size())) return Launcher::invalid;
    const Footprint to = of_queries(out, call, shape_.value_size());
    for (const Footprint& from : {of_rows(k, call, shape_.head_dim), of_rows(v, call, shape_.value_size())})
      if (!apart(to, from) && !same(to, from)) return Launcher::invalid;
    if (!can_write(out, q, call)) return Launcher::invalid;
    Result result = append(k, v, call, stream);
    if (result == Launcher::success) result = attend(q, out, stream);
    if (result == Launcher::success) result = evict(stream);
    return result;
  }

  /// Step 1: appends rows k, v, as above; begins the step.
  /// Errors: as above. O(tokens * kv_heads * head_dim) a sequence.
  Result append(Tensor<const T> k, Tensor<const T> v, Call call, Stream stream) {
    if (!can_append(call) || !are_rows(k, v, call)) return Launcher::invalid;
    const Append<T> kernel{step(call), k, v};
    const Result result = Launcher::launch(kernel, {call.tokens, shape_.kv_heads, call.count}, stream);
    if (result != Launcher::success) return result;
    open_ = call;
    observed_ = false;
    for (int s = call.first; s < call.first + call.count; ++s) own(s) = appended(lengths(s), call.tokens);
    return result;
  }

  /// Step 2: attends q over all rows and, where the policy's score is attention, adds the probabilities to the scores.
  /// q, out: as above, the queries of the appended rows. Errors: no step has begun; the
  /// score is attention, and this step's attend() or observe() has been: it would count twice; tensors that are no
  /// views; an out in memory of another's, as above. O(tokens * query_heads * rows * head_dim) a sequence.
  Result attend(Tensor<const T> q, Tensor<T> out, Stream stream) {
    if (!can_observe() || !are_queries(q, open_) || !are_queries(out, open_, shape_.value_size()) ||
        !can_write(out, q, open_))
      return Launcher::invalid;
    Partial partial = buffers_.partial;
    if (open_.tokens > Buffers<T>::few_tokens) partial.splits = 1;
    if (open_.tokens > batch_.kept_logits) partial.logits = nullptr;
    const bool again = reads_twice(open_);
    const StepOf<T> s = step(open_);
    const Result result = cuda::attend<Launcher>(s, q, out, partial, again ? buffers_.lse : nullptr, stream);
    const bool observes = result == Launcher::success && again;
    return observed(observes ? cuda::observe<Launcher>(s, q, buffers_.lse, stream) : result);
  }

  /// Step 2 where a kernel of the engine's attended over keys() and values(): its probabilities, [count, query_heads,
  /// tokens, rows], go to the scores. Errors: as attend(); the policy's score does not use them. O(tokens * query_heads
  /// * rows) a sequence.
  Result observe(Tensor<const float> probabilities, Stream stream) {
    if (!device_.needs.attention || !can_observe() ||
        !is_view(probabilities, open_.count, shape_.query_heads, open_.tokens, lengths(open_.first).rows))
      return Launcher::invalid;
    return observed(cuda::observe<Launcher>(step(open_), probabilities, stream));
  }
  /// The same where it gives each query's log-sum-exp alone: q as in attend(), lse [count, tokens, query_heads], -inf
  /// or NaN: that query gives nothing. They have to be of the same logits, a head's sink among them: nothing here could
  /// say otherwise without waiting for the device. O(tokens * query_heads * rows * head_dim) a sequence.
  Result observe(Tensor<const T> q, const float* lse, Stream stream) {
    if (!device_.needs.attention || !can_observe() || !are_queries(q, open_) || lse == nullptr)
      return Launcher::invalid;
    return observed(cuda::observe<Launcher>(step(open_), q, lse, stream));
  }

  /// Step 3: evicts where it should, and ends the step. Errors: no step has begun. In compact positions the launch that
  /// rotates the moved keys comes last, when the step has ended: where it alone fails, reset() is what remains.
  /// O(rows * kv_heads * head_dim) a sequence that evicts.
  Result evict(Stream stream) {
    if (open_.tokens == 0) return Launcher::invalid;
    const StepOf<T> s = step(open_);
    const bool selects = s.rule.threshold != Rule::never;
    Result result = Launcher::success;
    if (device_.needs.keys && selects) {
      const KeyDiversity<T> diversity{s, device_.diversity, buffers_.diversity, buffers_.norms};
      result = Launcher::launch(diversity, {1, s.kv_heads, s.count}, stream);
    }
    if (result == Launcher::success && selects) {
      Select select;
      select.step = s;
      select.scores = device_.needs.keys ? buffers_.diversity : device_.needs.attention ? s.scores : nullptr;
      select.fade = device_.fade;
      select.importance = buffers_.importance;
      select.picks = buffers_.picks;
      select.sequences = batch_.sequences;
      result = Launcher::launch(select, {1, s.lists, s.count}, stream);
    }
    if (result == Launcher::success) {
      const Compact<T> compact{s};
      result = Launcher::launch(compact, {compact.blocks(), s.kv_heads, s.count}, stream);
    }
    if (result != Launcher::success) return result;
    for (int i = open_.first; i < open_.first + s.count; ++i) end_step(i, lengths(i));
    open_.tokens = 0;
    if (device_rotation_.compact && selects) {
      const Rerotate<T> rerotate{s};
      result = Launcher::launch(rerotate, {rerotate.blocks(), s.kv_heads, s.count}, stream);
    }
    return result;
  }

  /// A graph of a captured step has been launched once more: the host counts on. The capture itself, in which the host
  /// has counted but nothing ran, is the graph's first launch. `call` is the captured one. Errors: as attend(); the
  /// host has not counted then. O(count).
  Result replayed(Call call) {
    if (!can_append(call)) return Launcher::invalid;
    for (int s = call.first; s < call.first + call.count; ++s) end_step(s, appended(lengths(s), call.tokens));
    return Launcher::success;
  }

  /// Can a sequence's newest `tokens` rows be taken back? Between steps, up to max_rollback and not past the last
  /// eviction. The sequence is not checked. O(1).
  bool can_rollback(int sequence, int tokens) const {
    const int floor = floors_[static_cast<std::size_t>(sequence)];
    return open_.tokens == 0 && tokens >= 0 && tokens <= shape_.max_rollback &&
           (tokens == 0 || lengths(sequence).next - tokens >= floor);
  }
  /// Takes back the newest tokens[i] rows of sequence first + i, i < count, as if they had never come: drafts that were
  /// refused. tokens: [count], on the host; not to be captured with a step. Errors: sequences out of range;
  /// can_rollback() says no to one of them; nothing is launched then. Where a launch fails, 512 sequences or more
  /// before it may have been taken back. O(count).
  Result rollback(int first, int count, const int* tokens, Stream stream) {
    if (!in_range(first, count)) return Launcher::invalid;
    for (int i = 0; i < count; ++i)
      if (!can_rollback(first + i, tokens[i])) return Launcher::invalid;
    for (int done = 0; done < count; done += Rollback::most) {
      Rollback kernel{buffers_.states + first + done, (std::min)(count - done, int{Rollback::most}), {}};
      std::copy_n(tokens + done, kernel.count, kernel.tokens);
      const Result result = Launcher::launch(kernel, {1, 1, 1}, stream);
      if (result != Launcher::success) return result;
      for (int i = done; i < done + kernel.count; ++i) own(first + i) = appended(lengths(first + i), -tokens[i]);
    }
    return Launcher::success;
  }

  const Shape& shape() const { return shape_; }     ///< as given
  const Policy& policy() const { return policy_; }  ///< as given
  int capacity() const { return capacity_; }        ///< most rows of a sequence that there can ever be
  /// The lengths of a sequence once the stream has done what was asked. The sequence is not checked, here and below.
  const Lengths& lengths(int sequence) const { return lengths_[static_cast<std::size_t>(sequence)]; }
  int rows(int sequence) const { return lengths(sequence).rows; }  ///< of each head

  /// On the device, from a sequence on: keys, rotated where there is a Rope, [.., kv_heads, capacity, head_dim], values
  /// the same, but rows of value_size(), scores and positions [.., kv_heads, capacity], the rows that the last eviction
  /// kept [.., lists(), capacity]. Of each capacity rows(sequence) are in use.
  /// @{
  Tensor<T> keys(int sequence) const { return cached(buffers_.keys, sequence, shape_.head_dim); }
  Tensor<T> values(int sequence) const { return cached(buffers_.values, sequence, shape_.value_size()); }
  const double* scores(int sequence) const { return buffers_.scores + row_of(sequence); }
  const std::int32_t* positions(int sequence) const { return buffers_.positions + row_of(sequence); }
  const std::int32_t* kept(int sequence) const { return buffers_.kept + kept_at(sequence); }
  /// @}
  /// Lists of kept rows a sequence: one a KV head, or one that all heads share.
  int lists() const { return device_.one_list ? 1 : shape_.kv_heads; }

 private:
  static int splits(const Shape& shape, const Batch& batch, int capacity) {
    return batch.splits != 0 ? batch.splits : usual_splits<Launcher, T>(shape, batch.sequences, capacity);
  }
  bool in_range(int first, int count) const { return first >= 0 && count >= 1 && first <= batch_.sequences - count; }
  bool can_append(Call call) const {
    if (open_.tokens != 0 || !in_range(call.first, call.count) || call.tokens < 1 || call.tokens > shape_.max_chunk)
      return false;
    for (int s = call.first; s < call.first + call.count; ++s) {
      const Lengths& l = lengths(s);
      const int most = device_rotation_.compact ? (std::numeric_limits<int>::max)() : rotation_.rope().max_position;
      if (l.rows > capacity_ - call.tokens || l.next > most - call.tokens) return false;
    }
    return true;
  }
  template <class U>
  bool are_queries(const Tensor<U>& tensor, Call call, int dim) const {
    return is_view(tensor, call.count, call.tokens, shape_.query_heads, dim);
  }
  bool are_queries(const Tensor<const T>& q, Call call) const { return are_queries(q, call, shape_.head_dim); }
  bool are_rows(const Tensor<const T>& k, const Tensor<const T>& v, Call call) const {
    return is_view(k, call.count, call.tokens, shape_.kv_heads, shape_.head_dim) &&
           is_view(v, call.count, call.tokens, shape_.kv_heads, shape_.value_size());
  }
  template <class U>
  Footprint of_queries(const Tensor<U>& tensor, Call call, int dim) const {
    return footprint(tensor, call.count, call.tokens, shape_.query_heads, dim);
  }
  Footprint of_rows(const Tensor<const T>& tensor, Call call, int dim) const {
    return footprint(tensor, call.count, call.tokens, shape_.kv_heads, dim);
  }
  /// Without the logits kept, the probabilities are made again from q, once the output has been written.
  bool reads_twice(Call call) const { return device_.needs.attention && call.tokens > batch_.kept_logits; }
  bool can_write(const Tensor<T>& out, const Tensor<const T>& q, Call call) const {
    const Footprint to = of_queries(out, call, shape_.value_size()), from = of_queries(q, call, shape_.head_dim);
    return (apart(to, from) || (same(to, from) && !reads_twice(call))) &&
           apart(to, buzz::footprint(buffers_.keys, buffers_.bytes.cache)) &&
           apart(to, buzz::footprint(buffers_.importance, buffers_.bytes.workspace));
  }
  bool can_observe() const { return open_.tokens != 0 && !(device_.needs.attention && observed_); }
  Result observed(Result result) {
    observed_ = result == Launcher::success;
    return result;
  }

  Lengths& own(int sequence) { return lengths_[static_cast<std::size_t>(sequence)]; }
  int& floor(int sequence) { return floors_[static_cast<std::size_t>(sequence)]; }
  /// With the step's rows, before its eviction.
  void end_step(int sequence, const Lengths& l) {
    if (device_.rule.should_evict(l.regions(policy_.protect).middle())) floor(sequence) = l.next;
    own(sequence) = evicted(l, policy_.protect, device_.rule);
  }
  long long row_of(int sequence) const { return static_cast<long long>(sequence) * shape_.kv_heads * capacity_; }
  long long kept_at(int sequence) const { return static_cast<long long>(sequence) * lists() * capacity_; }
  Tensor<T> cached(T* rows, int sequence, int dim) const {
    Tensor<T> tensor = dense(rows, shape_.kv_heads, capacity_, dim);
    tensor.data += sequence * tensor.sequence;
    return tensor;
  }

  StepOf<T> step(Call call) const {
    StepOf<T> s;
    s.keys = keys(call.first);
    s.values = values(call.first);
    s.scores = buffers_.scores + row_of(call.first);
    s.positions = buffers_.positions + row_of(call.first);
    s.kept = buffers_.kept + kept_at(call.first);
    s.angles = buffers_.angles;
    s.states = buffers_.states + call.first;
    s.rotation = device_rotation_;
    s.scale = scale_;
    s.modifiers = modifiers_;
    s.fold = device_.fold;
    s.queries.tokens = call.tokens;
    s.queries.group = shape_.group();
    s.protect = policy_.protect;
    s.rule = device_.rule;
    s.kv_heads = shape_.kv_heads;
    s.lists = lists();
    s.head_dim = shape_.head_dim;
    s.capacity = capacity_;
    s.max_chunk = shape_.max_chunk;
    s.count = call.count;
    return s;
  }

  Shape shape_;
  Batch batch_;
  Policy policy_;
  Rotation rotation_;
  int capacity_;
  AttentionOptions attention_;  // as given
  DevicePolicy device_;
  Buffers<T> buffers_;
  DeviceRotation device_rotation_;
  LogitScale scale_;
  Modifiers modifiers_;
  std::vector<Lengths> lengths_;  // [sequences]
  std::vector<int> floors_;       // [sequences], no rollback goes back past this position
  Call open_{0, 0, 0};            // the step that has not ended; of 0 tokens: none
  bool observed_ = false;         // its probabilities are in the scores, where those are attention
};

#if defined(__CUDACC__)
/// On a stream of CUDA's; T: float, __half or __nv_bfloat16.
template <class T>
using BuzzCache = BasicCache<T, Launcher>;
#endif

}  // namespace cuda
}  // namespace buzz
