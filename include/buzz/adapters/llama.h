#pragma once

#include <algorithm>
#include <cstdint>
#include <istream>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "buzz/adapters/llama_cells.h"
#include "buzz/adapters/llama_context.h"
#include "buzz/adapters/llama_graph.h"
#include "buzz/adapters/llama_sequence.h"
#include "buzz/policies.h"

namespace buzz {

/// Evicts from a running llama.cpp context through its public API. There a row is a cell, one token over all layers and
/// heads, so that a sequence has one list of rows, whatever its policy's sharing:
///
///     buzz::LlamaEviction<llama_context> eviction(buzz::key_outliers(), 64);  // calls of at most 64 tokens
///     eviction.attach(params);                                    // llama_context_params, before the context is made
///     eviction.begin(llama_init_from_model(model, params));       // the context stays its owner's
///     eviction.decode(batch);                                     // in place of llama_decode(context, batch)
///
/// decode() evicts first where it has to, so that a context of capacity() cells goes on for ever. A batch may hold
/// tokens of several sequences, each with a policy and a bound of its own, at the next positions of theirs.
///
/// A policy that looks at keys and values reads them out of the cache when an eviction should be, of any type and with
/// flash attention as it is. One that looks at attention needs flash attention off, and reads every call's: it costs
/// what flash attention gains, and up to 4% more. A model's window layers (Gemma 3) keep their newest rows themselves.
///
/// Context is llama_context; its functions are found by their arguments. Neither copied nor moved: the callback knows
/// it.
template <class Context>
class LlamaEviction {
 public:
  /// max_chunk >= 1: the most tokens of a call, of each sequence. policies: sequence i has the i-th. Errors: what a
  /// policy refuses; see LlamaSequence.
  LlamaEviction(const std::vector<Policy>& policies, int max_chunk, LlamaPositions positions = LlamaPositions::kept)
      : policies_(policies),
        max_chunk_(max_chunk),
        closes_((require_enum("positions", positions, LlamaPositions::closed), positions == LlamaPositions::closed)) {
    require_range("sequences", static_cast<long long>(policies.size()), 1, most_heads);
    sequences_ = newly_made();
    for (const LlamaSequence& s : sequences_) {
      needs_ = needs_ | s.needs();
      if (s.needs().attention) apart_ = (std::max)(apart_, s.evictor().queries_apart());
    }
  }
  /// Of one sequence, 0.
  LlamaEviction(const Policy& policy, int max_chunk, LlamaPositions positions = LlamaPositions::kept)
      : LlamaEviction(std::vector<Policy>{policy}, max_chunk, positions) {}
  LlamaEviction(const LlamaEviction&) = delete;
  LlamaEviction& operator=(const LlamaEviction&) = delete;

  /// Sets what the context has to have: the eval callback, window layers of their own size, and where a policy looks at
  /// attention flash attention off. Errors, and nothing is set: another number of sequences; where a policy needs it,
  /// an eval callback of yours, or a quantised V cache without flash attention.
  template <class Params>
  void attach(Params& params) {
    require_equal("n_seq_max", params.n_seq_max, sequences(), "as many as there are policies");
    if (params.cb_eval != nullptr) {
      if (!sees()) return;
      fail("cb_eval", "a callback", "none, since this policy reads through it");
    }
    if (needs_.attention) {
      if (ggml_is_quantized(params.type_v))
        fail("type_v", ggml_type_name(params.type_v),
             "a type without quants: this policy looks at attention, so that flash attention has to be off");
      params.flash_attn_type = static_cast<decltype(params.flash_attn_type)>(0);  // ..._DISABLED
    }
    params.cb_eval = [](auto* node, bool ask, void* self) { return LlamaGraph::callback(node, ask, self); };
    params.cb_eval_user_data = &graph_;
    params.swa_full = false;
    attached_ = true;
  }

  /// Takes an empty context; where attach() set the callback, decodes one token to see the layers, and removes it.
  /// Errors, which leave the adapter as it was: those of require_llama_context(); where a policy looks at something,
  /// layers whose rows cannot be shown to it. Allocates. O(n_ctx * max_chunk).
  void begin(Context* context) {
    std::vector<LlamaSequence> made = newly_made();
    require_llama_context(context, made, max_chunk_, closes_);
    RestoreLlamaGraph restore{graph_, graph_};
    if (sees() && !attached_) fail("cb_eval", "none", "the one that attach() sets, before the context is made");
    if (attached_) graph_.look(context, sees());
    for (LlamaSequence& s : made) s.begin(graph_.layers(), closes_, most_slices());
    LlamaRows rows(graph_.layers(), needs_.rows() ? most_rows() : 0, needs_);
    graph_.reserve(sequences(), max_chunk_, sees(), needs_.attention, apart_);
    cells_ = LlamaCells(graph_.streams(), sees() ? graph_.cells() : 0);
    restore.done = true;
    rows_ = std::move(rows);
    sequences_ = std::move(made);
    context_ = context;
    forget();
  }

  /// before_decode(), llama_decode() and after_decode(), with their errors; returns what llama_decode() did.
  template <class Batch>
  int decode(const Batch& batch) {
    before_decode(batch);
    const int result = llama_decode(context_, batch);
    after_decode(result);
    return result;
  }

  /// Evicts from the batch's sequences where it should, so that it fits. Errors: no begin(); no tokens, or more of a
  /// sequence than max_chunk; a token of several sequences; a sequence that somebody else has changed (a context shift,
  /// say); other positions than the next; CacheFull: with Full, no room for them. No call is begun then.
  template <class Batch>
  void before_decode(const Batch& batch) {
    require_begun();
    calls_ = false;
    graph_.begin();
    LlamaTokens& tokens = graph_.tokens();
    require_at_least("tokens", batch.n_tokens, 1);
    for (int i = 0; i < batch.n_tokens; ++i) {
      if (batch.n_seq_id != nullptr) require_equal("n_seq_id", batch.n_seq_id[i], 1, "one sequence a token");
      tokens.add(batch.seq_id != nullptr ? batch.seq_id[i][0] : 0);
    }
    graph_.tokens().for_each_sequence([&](int s, int) {
      require_equal("last position", llama_memory_seq_pos_max(memory(), s), next_position(s) - 1LL,
                    "the adapter's: nobody else may change the sequence");
    });
    graph_.tokens().for_each_sequence([&](int s, int) { evict(s); });
    graph_.tokens().for_each_sequence([&](int s, int count) { at(s).check_append(count); });
    if (batch.pos != nullptr) {
      int i = 0;
      tokens.for_each([&](int s, int place) {
        require_equal("position", batch.pos[i++], next_position(s) + 1LL * place, "the sequence's next");
      });
    }
    calls_ = true;
  }

  /// `result` is what llama_decode() returned. If it is 0, the policies learn of the tokens and of what they attended
  /// to; if not, what the call may have stored is removed, and all is as before it. Errors, with its tokens removed
  /// too: CacheFull: llama.cpp had no cells left (1), since somebody else has some; a node that is not as expected,
  /// tokens at other positions than the next, a cell that is taken. O(slices * n_ctx).
  void after_decode(int result) {
    if (result == 0) require_equal("calls begun", calls_ ? 1 : 0, 1, "by before_decode()");
    const bool called = calls_;
    calls_ = false;
    if (result != 0) {
      if (called) take_back(0);
      ++report_.failed;
      if (called && result == 1)
        fail<CacheFull>("cells", graph_.tokens().size(),
                        "as many as llama.cpp has left, which others than the adapter use");
      return;
    }
    if (sees()) {
      note();
    } else {
      graph_.tokens().for_each_sequence([&](int s, int count) {
        for (int i = 0; i < count; ++i) at(s).put(i, next_position(s) + i, 0);
      });
    }
    graph_.tokens().for_each_sequence([&](int s, int count) {
      at(s).append(count);
      if (at(s).needs().attention) at(s).observe(graph_.attention(), count);
    });
    for (LlamaSequence& s : sequences_) s.rotated();
    report_.tokens += graph_.tokens().size();
  }

  /// Evicts from all sequences where it should; returns whether it did. Removals come first, neighbours as one range,
  /// then one bounded shift for each run of rows that moves. Errors: the memory cannot give up part of a sequence; a
  /// call is under way. O(n_ctx) for each of them, in llama.cpp.
  bool evict() {
    require_no_call();
    bool any = false;
    for (int s = 0; s < sequences(); ++s) any = evict(s) || any;
    return any;
  }

  /// Sequence `to`, which has to be empty, begins with all that `from` has, its policy and its bound too. Where
  /// sequences share their cells, no memory is copied, and evicting from one leaves the other's. Errors: a call is
  /// under way; no such sequence; rows in `to`; a larger capacity than its own; closed positions where cells are
  /// shared.
  void copy(int from, int to) {
    require_no_call();
    require_begun();
    const int capacity = sequence(from).capacity();
    require_equal("rows of the sequence", sequence(to).rows(), 0, "an empty one");
    require_range("capacity", capacity, 1, newly_made(to).capacity());
    if (llama_shares_cells(context_) && closes_) fail("positions", "closed", "kept where sequences share their cells");
    evict(from);
    llama_memory_seq_cp(memory(), from, to, -1, -1);
    at(to).become(sequence(from));
    if (!sees()) return;
    for (std::int32_t cell : at(to).cells()) cells_.hold(stream_of(to), cell);
  }

  /// Empties a sequence, which has its own policy again. Errors: no begin(); no such one; a call is under way.
  void remove(int s) {
    require_no_call();
    require_begun();
    release(s, 0, rows(s));
    llama_memory_seq_rm(memory(), s, -1, -1);
    LlamaSequence made = newly_made(s);
    made.begin(graph_.layers(), closes_, most_slices());
    at(s) = std::move(made);
  }

  /// Moves the rows into the first cells, by a round trip of the sequence's state: a decode computes as many columns as
  /// the highest used cell. Errors: several sequences; a call is under way; positions are closed, and no decode has
  /// rotated the keys since; llama.cpp does not take its state back: then reset(). Allocates at first. O(state).
  void compact() {
    require_alone();
    if (at(0).shifting()) fail("compact", "after closing positions", "after the decode that rotates the keys");
    if (rows() == 0) return;
    get_llama_state(context_, state_);
    set_llama_state(context_, state_);
    ++report_.compactions;
    if (!sees()) return;
    const std::int32_t* order = cells_.compact();
    at(0).renumber([&](std::int32_t cell) { return order[cell]; });
  }

  /// Writes a sequence that is alone: its state and its policy's. It is compacted. Errors: no begin(), compact()'s, the
  /// stream's. O(state).
  void save(std::ostream& out) {
    require_begun();
    compact();
    if (rows() == 0) state_.clear();
    Writer writer(out, "BUZL");
    LlamaSequence::archive(at(0), writer, state_);
    writer.finish();
  }
  /// Goes on as the one that was saved, with the same model and policy. Errors: no begin(), several sequences;
  /// FileError: another policy or size, damage. All is then as it was, but where llama.cpp does not take the state.
  void load(std::istream& in) {
    require_begun();
    require_alone();
    Reader reader(in, "BUZL");
    LlamaSequence loaded = at(0);
    LlamaSequence::archive(loaded, reader, state_);
    reader.finish();
    reset();
    set_llama_state(context_, state_);
    at(0) = std::move(loaded);
    for (std::int32_t cell : cells()) cells_.hold(0, cell);
  }

  /// Empties context and policies. Errors: no begin().
  void reset() {
    require_begun();
    llama_memory_clear(memory(), false);
    forget();
  }

  /// As of Evictor, for one sequence, of tokens by their index whatever their positions in the context are; none before
  /// begin() where the policy looks at rows.
  /// @{
  void pin(int first, int count, int s = 0) {
    sequence(s).evictor().check_pin(first, count);
    at(s).for_each([&](Evictor& e) { e.pin(first, count); });
  }
  void unpin(int first, int count, int s = 0) {
    at(s).for_each([&](Evictor& e) { e.unpin(first, count); });
  }
  void give(View<const float> scores, int s = 0) {
    at(s).for_each([&](Evictor& e) { e.give(scores); });
  }
  /// @}

  int sequences() const { return static_cast<int>(sequences_.size()); }  ///< that there may be
  /// One of them, to read. Errors: no such one.
  const LlamaSequence& sequence(int s = 0) const {
    return (require_range("sequence", s, 0, sequences() - 1), sequences_[index(s)]);
  }
  const LlamaReport& report() const { return report_; }                       ///< since begin()
  int rows(int s = 0) const { return sequence(s).rows(); }                    ///< now
  int next_position(int s = 0) const { return sequence(s).next_position(); }  ///< see LlamaSequence
  const Evictor& evictor(int s = 0) const { return sequence(s).evictor(); }   ///< the policy at work in a layer
  Span<const std::int32_t> positions(int s = 0) const { return sequence(s).positions(); }  ///< in the context, [rows]
  /// Each row's cell where a policy looks at something, [rows]; else empty.
  Span<const std::int32_t> cells(int s = 0) const { return {sequence(s).cells().data, sees() ? rows(s) : 0}; }
  /// Most cells that all sequences together ever hold.
  long long capacity() const {
    return std::accumulate(sequences_.begin(), sequences_.end(), 0LL,
                           [](long long sum, const LlamaSequence& s) { return sum + s.capacity(); });
  }
  const std::vector<LlamaLayer>& layers() const { return graph_.layers(); }  ///< none before begin(), or attach()
  std::size_t cache_bytes() const { return graph_.cache_bytes(); }           ///< of llama.cpp's cache, all those layers
  /// Bytes allocated by the adapter.
  std::size_t bytes() const {
    std::size_t sum = graph_.bytes() + rows_.bytes() + cells_.bytes() + state_.size();
    for (const LlamaSequence& s : sequences_) sum += s.bytes();
    return sum;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  bool sees() const { return needs_.attention || needs_.rows(); }
  auto* memory() const { return llama_get_memory(context_); }
  LlamaSequence& at(int s) { return const_cast<LlamaSequence&>(sequence(s)); }
  LlamaSequence newly_made(int s) const { return {policies_[index(s)], max_chunk_}; }
  std::vector<LlamaSequence> newly_made() const {
    std::vector<LlamaSequence> made;
    for (const Policy& policy : policies_) made.emplace_back(policy, max_chunk_);
    return made;
  }
  int most_slices() const { return (std::min)(max_chunk_, apart_ + 1); }
  int most_rows() const {
    int most = 0;
    for (const LlamaSequence& s : sequences_) most = (std::max)(most, s.capacity());
    return most;
  }
  void require_begun() const {
    if (context_ == nullptr) fail("context", "none", "one given to begin()");
  }
  void require_alone() const {
    require_no_call();
    require_equal("sequences", sequences(), 1, "one that is alone");
  }
  void require_no_call() const {
    require_equal("calls begun", calls_ ? 1 : 0, 0, "none under way: after_decode() first");
  }
  void forget() {
    for (LlamaSequence& s : sequences_) s.reset();
    report_ = {};
    calls_ = false;
    cells_.clear();
  }
  int stream_of(int s) const { return graph_.streams() > 1 ? s : 0; }
  /// Rows [begin, end) of a sequence have their cells no longer.
  void release(int s, int begin, int end) {
    if (!sees()) return;
    for (int r = begin; r < end; ++r) cells_.release(stream_of(s), sequence(s).cells().data[r]);
  }
  bool evict(int s) {
    LlamaSequence& sequence = at(s);
    if (!sequence.should_evict()) return false;
    const int before = sequence.rows();
    const KeptRows& kept = sequence.select(graph_.layers(), stream_of(s), rows_);
    kept.for_each_gap(0, [&](int begin, int end) {
      const std::int32_t* positions = sequence.positions().data;
      if (!llama_memory_seq_rm(memory(), s, positions[begin], positions[end - 1] + 1))
        fail("llama_memory_seq_rm", "false", "true: this memory cannot give up part of a sequence");
      release(s, begin, end);
      ++report_.removals;
    });
    sequence.move(kept, closes_, [&](std::int32_t first, std::int32_t end, std::int32_t shift) {
      llama_memory_seq_add(memory(), s, first, end, shift);
      ++report_.shifts;
    });
    report_.rows += before - kept.size();
    ++report_.evictions;
    return true;
  }

  /// Removes the tokens of a call, of which the first `noted` shown have their cells.
  void take_back(int noted) {
    for (int i = 0; i < noted; ++i) cells_.release(graph_.tokens().shown()[i].stream, graph_.tokens().shown()[i].cell);
    graph_.tokens().for_each_sequence([&](int s, int) { llama_memory_seq_rm(memory(), s, next_position(s), -1); });
  }

  /// Notes where the call's tokens are.
  void note() {
    int noted = 0;
    const auto refuse = [&](const char* field, const std::string& value, const std::string& allowed) {
      take_back(noted);
      fail(field, value, allowed);
    };
    if (const char* node = graph_.error()) refuse(node, "missing or of another kind", "the node of llama.cpp's graph");
    for (const LlamaToken& t : graph_.tokens().shown()) {
      const int next = next_position(t.sequence) + t.place;
      if (t.position >= 0 && t.position != next) refuse("position", std::to_string(t.position), std::to_string(next));
      if (!cells_.is_free(t.stream, t.cell))
        refuse("cell", std::to_string(t.cell), "one that no row of the adapter's has");
      cells_.hold(t.stream, t.cell);
      ++noted;
      at(t.sequence).put(t.place, next, t.cell);
    }
    // An empty cell gets exactly 0.
    graph_.tokens().for_each_sequence([&](int s, int count) {
      const int lost = at(s).needs().attention ? at(s).gather(graph_.attention(), s, count) : -1;
      if (lost >= 0) refuse("cell", std::to_string(lost), "no attention to it, since no row of the adapter's has it");
    });
  }

  std::vector<Policy> policies_;
  std::vector<LlamaSequence> sequences_;
  Needs needs_;  // of all of them
  int max_chunk_, apart_ = 0;
  bool closes_, attached_ = false;
  Context* context_ = nullptr;
  LlamaGraph graph_;
  LlamaRows rows_;
  LlamaCells cells_;
  LlamaReport report_;
  bool calls_ = false;               // from before_decode() to after_decode()
  std::vector<std::uint8_t> state_;  // of compact()
};

}  // namespace buzz
