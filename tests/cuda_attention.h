#pragma once

// One call of attention's kernels alone, over rows that are there already: K and V, q and all that is written are in
// poisoned memory.

#include <cmath>
#include <cstring>
#include <vector>

#include "buzz/cuda/dispatch.cuh"
#include "cuda_twin.h"

namespace emulated {

struct CallSizes {
  int rows = 1, tokens = 1, kv_heads = 1, group = 1, dim = 16, value_dim = 16, splits = 1, window = 0;
  bool keeps_logits = true;
};

template <class T>
struct AttentionCall {
  AttentionCall(const CallSizes& sizes, oracle::Random& random)
      : s(sizes),
        capacity(s.rows + 3),
        keys(poison(s.kv_heads * capacity * s.dim)),
        values(poison(s.kv_heads * capacity * s.value_dim)),
        q(poison(s.tokens * heads() * s.dim)),
        out(poison(s.tokens * heads() * s.value_dim)),
        lse(static_cast<std::size_t>(s.tokens * heads()), NAN),
        top(lse.size() * static_cast<std::size_t>(s.splits), NAN),
        sum(top),
        parts(top.size() * static_cast<std::size_t>(s.value_dim), NAN),
        logits(lse.size() * static_cast<std::size_t>(capacity), NAN),
        scores(static_cast<std::size_t>(s.kv_heads * capacity)) {
    const auto draw = [&](T* row, int dim) {
      for (int d = 0; d < dim; ++d) row[d] = static_cast<T>(random.real());
    };
    for (int h = 0; h < s.kv_heads; ++h)
      for (int r = 0; r < s.rows; ++r) draw(key(h, r), s.dim), draw(value(h, r), s.value_dim);
    draw(q.data(), s.tokens * heads() * s.dim);
  }
  int heads() const { return s.kv_heads * s.group; }
  T* key(int head, int row) { return keys.data() + (head * capacity + row) * s.dim; }
  T* value(int head, int row) { return values.data() + (head * capacity + row) * s.value_dim; }

  /// As a cache's, of `sequences`, of which this is the first and only one.
  buzz::cuda::StepOf<T> step(int sequences = 1) {
    buzz::cuda::StepOf<T> step;
    step.keys = buzz::cuda::dense(keys.data(), s.kv_heads, capacity, s.dim);
    step.values = buzz::cuda::dense(values.data(), s.kv_heads, capacity, s.value_dim);
    step.scores = scores.data();
    step.states = &state;
    step.scale.scale = 0.5;
    step.modifiers.window = s.window;
    step.modifiers.value_dim = s.value_dim;
    step.queries = {s.tokens, s.group};
    step.kv_heads = s.kv_heads;
    step.head_dim = s.dim;
    step.capacity = capacity;
    step.max_chunk = s.tokens;
    step.count = sequences;
    return step;
  }
  template <class Launcher>
  void run(typename Launcher::Stream stream, int sequences = 1) {
    const T* its = q.data();
    const buzz::cuda::Partial partial{parts.data(), top.data(), sum.data(), s.keeps_logits ? logits.data() : nullptr,
                                      s.splits};
    buzz::cuda::attend<Launcher>(step(sequences), buzz::cuda::dense(its, s.tokens, heads(), s.dim),
                                 buzz::cuda::dense(out.data(), s.tokens, heads(), s.value_dim), partial, lse.data(),
                                 stream);
  }

  CallSizes s;
  int capacity;
  buzz::cuda::State state{{s.rows, 0, s.rows}, {}};
  std::vector<T> keys, values, q, out;  ///< as the kernels have them
  Floats lse, top, sum, parts, logits;
  std::vector<double> scores;

 private:
  static std::vector<T> poison(int size) { return std::vector<T>(static_cast<std::size_t>(size), static_cast<T>(NAN)); }
};

}  // namespace emulated
