#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "buzz/adapters/llama_sequence.h"

#if defined(LLAMA_H) && !defined(LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
#error \
    "buzz: this llama.h is too old: the adapter takes llama.cpp from b10573 (August 2026) to 0.5.0 (llama-cpp-python 0.3.36)"
#endif

namespace buzz {

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

/// Do the sequences of a context share its cells (kv_unified)? Else each has as many of its own.
template <class Context>
bool llama_shares_cells(const Context* context) {
  return llama_n_ctx_seq(context) == llama_n_ctx(context);
}

/// Refuses a context that cannot serve those sequences: null or used; a model that is recurrent or hybrid, which
/// accepts removals and does nothing, or that has windows longer than a policy's; fewer cells than the capacities;
/// calls shorter than max_chunk; positions to close that the memory cannot shift.
template <class Context>
void require_llama_context(Context* context, const std::vector<LlamaSequence>& sequences, int max_chunk, bool closes) {
  if (context == nullptr) fail("context", "null", "a llama_context");
  const auto* model = llama_get_model(context);
  if (llama_model_is_recurrent(model)) fail("model", "recurrent", "attention in every layer");
  if (llama_model_is_hybrid(model)) fail("model", "hybrid", "attention in every layer");
  auto* memory = llama_get_memory(context);
  if (memory == nullptr) fail("context's memory", "null", "a KV cache");
  const auto count = static_cast<long long>(sequences.size());
  require_equal("n_seq_max", llama_n_seq_max(context), count, "as many as there are policies");
  long long all = 0, most = 0;
  for (const LlamaSequence& s : sequences) {
    all += s.capacity();
    most = (std::max<long long>)(most, s.capacity());
    if (s.policy().select.template as<KeepAll::Options>() == nullptr)
      require_at_least("window", s.policy().protect.window, llama_model_n_swa(model));
  }
  require_range(llama_shares_cells(context) ? "n_ctx" : "n_ctx of a sequence", llama_n_ctx_seq(context),
                llama_shares_cells(context) ? all : most, (std::numeric_limits<int>::max)());
  require_at_least("n_batch", llama_n_batch(context), max_chunk);
  if (closes && !llama_memory_can_shift(memory)) fail("positions", "closed", "kept: this memory cannot shift");
  for (int s = 0; s < count; ++s)
    require_equal("tokens in the context", llama_memory_seq_pos_max(memory, s) + 1LL, 0, "an empty one");
}

/// A sequence's part of llama.cpp's cache: as bytes, and out of them, into the first cells of an empty cache, in the
/// order that they had. Errors: llama.cpp gives or takes none.
/// @{
template <class Context>
void get_llama_state(Context* context, std::vector<std::uint8_t>& state) {
  state.resize(llama_state_seq_get_size(context, 0));
  const std::size_t size = llama_state_seq_get_data(context, state.data(), state.size(), 0);
  if (size == 0) fail("llama_state_seq_get_data", "0", "the state's bytes");
  state.resize(size);
}
template <class Context>
void set_llama_state(Context* context, const std::vector<std::uint8_t>& state) {
  llama_memory_clear(llama_get_memory(context), false);  // not seq_rm, after which the search for cells goes on
  if (!state.empty() && llama_state_seq_set_data(context, state.data(), state.size(), 0) == 0)
    fail("llama_state_seq_set_data", "0", "the state's bytes");
}
/// @}

}  // namespace buzz
