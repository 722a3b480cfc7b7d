#pragma once

#include <string>

#include "buzz/finite.h"
#include "buzz/rope.h"
#include "buzz/shape.h"

namespace buzz {

/// How a layer attends, whatever is cached.
struct AttentionOptions {
  /// Logits are multiplied by it; 0: 1 / sqrt(head_dim).
  double scale = 0;
  /// Logits are multiplied by log(n) / log(log_base) too, n the rows that the query sees (the journal version's "BUZZ
  /// with log n", whose base is 512); 0: not.
  double log_base = 0;
  /// Into how many pieces a call's work is cut for the executor, each with scratch of its own: whole heads, or, where
  /// there are more threads than KV heads, pieces of their rows and of their dimensions. The results are the same bits.
  int threads = 1;
  /// How far from 1 the probabilities that a log-sum-exp makes may add up; finite, >= 0. Kernels of 8 bits stay below
  /// 0.1, logits of another base, cap or scale do not.
  double lse_tolerance = 0.1;
  /// A query sees the newest `window` rows up to its own (a sliding layer's); 0: all. The rows before them get
  /// probability 0, even where they hold NaN, until the policy evicts them.
  int window = 0;

  /// Writes what a loaded cache has to agree with, or checks it. Errors: it does not.
  template <class Archive>
  void archive(Archive& a) const {
    a.same("scale", scale);
    a.same("log_base", log_base);
    a.same_since(3, "attention.window", window, 0);
  }
};

/// The angles that rotate queries and raw keys to their positions: [tokens, dims] and [rows, dims] of
/// Rotation::angles(). A null pointer: they are as they shall be used.
struct RopeAngles {
  const Rotation* rotation = nullptr;  ///< of the angles; null: no row is rotated
  const float* queries = nullptr;      ///< angles of the queries
  const float* keys = nullptr;         ///< angles of the keys, where those are raw
};

/// Errors: scale or log_base not finite or out of range, threads < 1, lse_tolerance not finite or < 0, window < 0.
inline void check(const AttentionOptions& o) {
  check_logits(o.scale, o.log_base);
  require_range("threads", o.threads, 1, 1 << 16);
  if (!is_finite(o.lse_tolerance) || o.lse_tolerance < 0)
    fail("lse_tolerance", std::to_string(o.lse_tolerance), "finite, >= 0");
  require_at_least("attention.window", o.window, 0);
}

}  // namespace buzz
