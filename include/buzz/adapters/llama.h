#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "buzz/adapters/llama_probabilities.h"
#include "buzz/evictor.h"
#include "buzz/policies.h"

namespace buzz {

/// What becomes of the positions of rows that stay. kept: as they are, with holes between them. closed: the place in
/// the cache, so that a sequence never leaves the model's context; llama.cpp rotates the moved keys again, which drifts
/// with each eviction where keys are F16 (0.04 in the logits after 200), so evict rarely.
enum class LlamaPositions { kept, closed };

/// What a LlamaEviction has done so far.
struct LlamaReport {
  long long tokens = 0;       ///< decoded
  long long failed = 0;       ///< calls of llama_decode() that were
  long long evictions = 0;    ///< each of them:
  long long rows = 0;         ///<   rows evicted
  long long removals = 0;     ///<   ranges of positions that held them
  long long shifts = 0;       ///<   runs of rows whose positions were closed
  long long compactions = 0;  ///< state round trips
};

/// Evicts from a running llama.cpp context through its public API. There a row is a cell, one token over all layers and
/// heads, so that the policy has one list of rows and the probabilities are summed over layers and heads:
///
///     buzz::LlamaEviction<llama_context> eviction(buzz::heavy_hitter(), 64);  // calls of at most 64 tokens
///     eviction.attach(params);                                    // llama_context_params, before the context is made
///     eviction.begin(llama_init_from_model(model, params));       // the context stays its owner's
///     eviction.decode(batch);                                     // in place of llama_decode(context, batch)
///
/// A call of decode() evicts first where it has to, so that the call fits a context of policy capacity cells, for ever.
/// One sequence, 0, of a context of its own. Tokens sit at the next position, as llama_batch_get_one() has them.
///
/// Context is llama_context. Its functions are found by their arguments: llama.h is not included here. A policy
/// without probabilities (streaming) needs no callback and leaves flash attention as it is; one that looks at keys is
/// not to be had. Neither copied nor moved, since the callback points to it.
template <class Context>
class LlamaEviction {
 public:
  /// max_chunk >= 1: the most tokens of a call. Errors: what the policy refuses; one that looks at keys or values.
  LlamaEviction(const Policy& policy, int max_chunk, LlamaPositions positions = LlamaPositions::kept)
      : evictor_((require_blind(policy), policy), 1, max_chunk),
        closes_((require_enum("positions", positions, LlamaPositions::closed), positions == LlamaPositions::closed)),
        positions_(static_cast<std::size_t>(evictor_.capacity())),
        cells_(positions_.size()) {}
  LlamaEviction(const LlamaEviction&) = delete;
  LlamaEviction& operator=(const LlamaEviction&) = delete;

  /// Sets what the context has to have, in its llama_context_params: where the policy needs probabilities flash
  /// attention off and the eval callback. Errors: several sequences, an eval callback of yours, a quantised V cache
  /// without flash attention. None of it is set then.
  template <class Params>
  void attach(Params& params) {
    require_equal("n_seq_max", params.n_seq_max, 1, "one sequence a context");
    if (sees()) {
      if (params.cb_eval != nullptr) fail("cb_eval", "a callback", "none, since this policy reads through it");
      if (ggml_is_quantized(params.type_v))
        fail("type_v", ggml_type_name(params.type_v), "a type without quants: flash attention has to be off");
      params.flash_attn_type = static_cast<decltype(params.flash_attn_type)>(0);  // LLAMA_FLASH_ATTN_TYPE_DISABLED
      params.cb_eval = [](auto* node, bool ask, void* self) { return LlamaProbabilities::callback(node, ask, self); };
      params.cb_eval_user_data = &seen_;
    }
  }

  /// Takes an empty context. Errors, which leave the adapter as it was: a null or used context; a model that is
  /// recurrent or hybrid (it accepts removals and does nothing) or has sliding windows (cells of their own); fewer
  /// cells than the policy's capacity; batches shorter than max_chunk; closed positions that the memory cannot shift
  /// to. Allocates. O(n_ctx * max_chunk).
  void begin(Context* context) {
    if (context == nullptr) fail("context", "null", "a llama_context");
    const auto* model = llama_get_model(context);
    if (llama_model_is_recurrent(model)) fail("model", "recurrent", "attention in every layer");
    if (llama_model_is_hybrid(model)) fail("model", "hybrid", "attention in every layer");
    require_range("model's sliding window", llama_model_n_swa(model), 0, 0);
    auto* memory = llama_get_memory(context);
    if (memory == nullptr) fail("context's memory", "null", "a KV cache");
    require_equal("n_seq_max", llama_n_seq_max(context), 1, "one sequence a context");
    require_range("n_ctx", llama_n_ctx(context), evictor_.capacity(), (std::numeric_limits<int>::max)());
    require_at_least("n_batch", llama_n_batch(context), evictor_.max_chunk());
    if (closes_ && !llama_memory_can_shift(memory)) fail("positions", "closed", "kept: this memory cannot shift");
    require_equal("tokens in the context", llama_memory_seq_pos_max(memory, 0) + 1LL, 0, "an empty one");
    const int cells = static_cast<int>(llama_n_ctx(context));
    if (sees()) {
      seen_ = LlamaProbabilities(cells, evictor_.max_chunk(), evictor_.queries_apart());
      sums_.resize(
          count_of<float>("queries apart * capacity", {seen_.slices(evictor_.max_chunk()), evictor_.capacity()}));
      held_.assign(static_cast<std::size_t>(cells), 0);
    }
    context_ = context;
    forget();
  }

  /// before_decode(), llama_decode() and after_decode(), with their errors; returns what llama_decode() did.
  template <class Batch>
  int decode(const Batch& batch) {
    before_decode(batch.n_tokens);
    const int result = llama_decode(context_, batch);
    after_decode(result);
    return result;
  }

  /// Evicts if it should, so that a call of `tokens` tokens fits. Errors: no begin(); tokens out of 1 to max_chunk;
  /// a sequence that somebody else has changed; CacheFull: with Full, no room for them. No call is begun then.
  void before_decode(int tokens) {
    require_begun();
    require_range("tokens", tokens, 1, evictor_.max_chunk());
    require_equal("last position", llama_memory_seq_pos_max(memory(), 0), next_position() - 1LL, "the adapter's");
    tokens_ = 0;  // a call that was begun and never made
    evict();
    evictor_.check_append(tokens);
    tokens_ = tokens;
    if (sees()) seen_.begin(tokens);
  }

  /// `result` is what llama_decode() returned. If it is 0, the policy learns of the tokens and of what they attended
  /// to. If not, what the call may have stored is removed, and all is as before it. Errors, with the call's tokens
  /// removed too: a node that the graph does not have, tokens at other positions than the next, a cell that is taken.
  /// O(slices * n_ctx).
  void after_decode(int result) {
    const int tokens = tokens_;
    tokens_ = 0;
    if (result != 0) {
      if (tokens > 0) take_back(0);
      ++report_.failed;
      return;
    }
    require_at_least("tokens", tokens, 1);
    if (sees()) {
      take_in(tokens);
      evictor_.append(tokens);
      const int stride = evictor_.capacity(), slices = seen_.slices(tokens);
      evictor_.observe_sums({sums_.data(), slices, 1, evictor_.rows(), stride, stride});
    } else {
      for (int i = 0, next = next_position(); i < tokens; ++i) positions_[index(rows() + i)] = next + i;
      evictor_.append(tokens);
    }
    report_.tokens += tokens;
    shifting_ = false;
  }

  /// Evicts if it should; returns whether it did. All removals come first, neighbours as one range, then one bounded
  /// shift for each run of rows that moves. Errors: the memory cannot give up part of a sequence; a call is under way,
  /// from before_decode() to after_decode(). O(n_ctx) for each of them, in llama.cpp.
  bool evict() {
    require_no_call();
    if (!evictor_.should_evict()) return false;
    const KeptRows& kept = evictor_.select();
    kept.for_each_gap(0, [&](int begin, int end) {
      if (!llama_memory_seq_rm(memory(), 0, positions_[index(begin)], positions_[index(end - 1)] + 1))
        fail("llama_memory_seq_rm", "false", "true: this memory cannot give up part of a sequence");
      for (int r = begin; r < end; ++r) release(r);
      ++report_.removals;
      report_.rows += end - begin;
    });
    kept.for_each_run(0, [&](int from, int to, int count) {
      const std::int32_t first = positions_[index(from)], end = positions_[index(from + count - 1)] + 1;
      const std::int32_t shift = closes_ ? to - first : 0;
      if (shift != 0) {
        llama_memory_seq_add(memory(), 0, first, end, shift);
        shifting_ = true;
        ++report_.shifts;
      }
      for (int i = 0; i < count; ++i) {
        positions_[index(to + i)] = positions_[index(from + i)] + shift;
        cells_[index(to + i)] = cells_[index(from + i)];
      }
    });
    ++report_.evictions;
    return true;
  }

  /// Moves the rows into the first cells, by a round trip of the sequence's state: the columns that a decode computes
  /// end at the highest used cell. Errors: a call is under way; an eviction closed positions, and no decode has rotated
  /// the keys since;
  /// llama.cpp does not take its state back (the context is then empty, and reset() is what remains).
  /// Allocates the state's bytes at the first time. O(state).
  void compact() {
    require_no_call();
    if (shifting_) fail("compact", "after closing positions", "after the decode that rotates the keys");
    if (rows() == 0) return;
    state_.resize(llama_state_seq_get_size(context_, 0));
    const std::size_t size = llama_state_seq_get_data(context_, state_.data(), state_.size(), 0);
    if (size == 0) fail("llama_state_seq_get_data", "0", "the state's bytes");
    llama_memory_clear(memory(), false);  // not seq_rm, after which the search for cells goes on where it was
    if (llama_state_seq_set_data(context_, state_.data(), size, 0) == 0)
      fail("llama_state_seq_set_data", "0", "the state's bytes");
    ++report_.compactions;
    if (sees()) renumber();
  }

  /// Empties context and policy. Errors: no begin().
  void reset() {
    require_begun();
    llama_memory_clear(memory(), false);
    forget();
  }

  /// The policy at work, to pin rows and to give scores, by the tokens' index whatever their positions in the context
  /// are; what is appended, observed and selected is the adapter's.
  Evictor& evictor() { return evictor_; }
  const Evictor& evictor() const { return evictor_; }    ///< to read
  const LlamaReport& report() const { return report_; }  ///< what it did since begin()
  int rows() const { return evictor_.rows(); }           ///< now
  /// The position that the next token has to have: the newest row's + 1.
  int next_position() const { return rows() == 0 ? 0 : positions_[index(rows() - 1)] + 1; }
  /// Each row's position in the context, [rows].
  Span<const std::int32_t> positions() const { return {positions_.data(), rows()}; }
  /// Each row's cell where the policy needs probabilities, [rows]; else empty.
  Span<const std::int32_t> cells() const { return {cells_.data(), sees() ? rows() : 0}; }
  /// Bytes allocated by the adapter.
  std::size_t bytes() const {
    return evictor_.bytes() + seen_.bytes() + sums_.size() * sizeof(float) + held_.size() + state_.size() +
           (positions_.size() + cells_.size()) * sizeof(std::int32_t);
  }

 private:
  static void require_blind(const Policy& policy) {
    if (policy.needs().rows()) fail("policy", policy.name, "one of probabilities, or of none: llama.cpp shows no keys");
  }
  bool sees() const { return evictor_.needs().attention; }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  auto* memory() const { return llama_get_memory(context_); }
  void require_begun() const {
    if (context_ == nullptr) fail("context", "none", "one given to begin()");
  }

  void require_no_call() const {
    require_equal("tokens", tokens_, 0, "none of a call under way: after_decode() first");
  }

  void forget() {
    evictor_.reset();
    report_ = {};
    tokens_ = 0;
    shifting_ = false;
    std::fill(held_.begin(), held_.end(), char{0});
  }

  void release(int row) {
    if (sees()) held_[index(cells_[index(row)])] = 0;
  }

  /// Removes the tokens of a call that failed, of which `noted` are in the map.
  void take_back(int noted) {
    for (int r = rows(); r < rows() + noted; ++r) release(r);
    llama_memory_seq_rm(memory(), 0, next_position(), -1);
  }

  /// Notes the call's cells and positions behind the rows, and gathers what every row received.
  void take_in(int tokens) {
    const int next = next_position();
    const auto refuse = [&](int noted, const char* field, const std::string& value, const std::string& allowed) {
      take_back(noted);
      fail(field, value, allowed);
    };
    if (const char* node = seen_.error())
      refuse(0, node, "missing or of another kind", "the node of llama.cpp's graph (attach() before it is made)");
    for (int i = 0; i < tokens; ++i) {
      const std::int64_t cell = seen_.cells()[i];
      const std::int32_t position = seen_.positions()[i];
      if (position != next + i) refuse(i, "position", std::to_string(position), std::to_string(next + i));
      if (cell < 0 || cell >= seen_.width() || held_[static_cast<std::size_t>(cell)] != 0)
        refuse(i, "cell", std::to_string(cell), "one that no row of the adapter's has");
      held_[static_cast<std::size_t>(cell)] = 1;
      positions_[index(rows() + i)] = position;
      cells_[index(rows() + i)] = static_cast<std::int32_t>(cell);
    }
    for (int slice = 0; slice < seen_.slices(tokens); ++slice) {
      float* received = seen_.sums(slice);
      float* sums = sums_.data() + static_cast<std::ptrdiff_t>(slice) * evictor_.capacity();
      for (int r = 0; r < rows() + tokens; ++r) {
        sums[r] = received[cells_[index(r)]];
        received[cells_[index(r)]] = 0;
      }
      // An empty cell gets exactly 0: what is left says that the map is wrong.
      const float* lost = std::find_if(received, received + seen_.width(), [](float p) { return p != 0; });
      if (lost != received + seen_.width())
        refuse(tokens, "cell", std::to_string(lost - received),
               "no attention to it, since no row of the adapter's has it");
    }
  }

  /// A loaded state fills the cells from the first on, in the order that they had.
  void renumber() {
    std::fill(held_.begin(), held_.end(), char{0});
    for (int r = 0; r < rows(); ++r) held_[index(cells_[index(r)])] = 1;
    state_order_.resize(held_.size());
    int next = 0;
    for (std::size_t cell = 0; cell < held_.size(); ++cell)
      if (held_[cell] != 0) state_order_[cell] = next++;
    std::fill(held_.begin(), held_.end(), char{0});
    for (int r = 0; r < rows(); ++r) {
      cells_[index(r)] = state_order_[index(cells_[index(r)])];
      held_[index(cells_[index(r)])] = 1;
    }
  }

  Evictor evictor_;
  bool closes_;
  Context* context_ = nullptr;
  LlamaProbabilities seen_;
  LlamaReport report_;
  int tokens_ = 0;                               // of the call between before_decode() and after_decode()
  bool shifting_ = false;                        // positions were closed; the keys are rotated at the next decode
  std::vector<std::int32_t> positions_, cells_;  // [capacity], of each row in the context
  std::vector<char> held_;                       // [n_ctx], whether a row has the cell
  std::vector<float> sums_;                      // [slices(max_chunk), capacity], of the last call
  std::vector<std::uint8_t> state_;              // of compact()
  std::vector<std::int32_t> state_order_;        // [n_ctx], each held cell's place in the state
};

}  // namespace buzz
