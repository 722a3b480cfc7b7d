#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "buzz/finite.h"
#include "buzz/rope.h"
#include "buzz/shape.h"
#include "buzz/view.h"

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
  /// A logit x becomes soft_cap * tanh(x / soft_cap) (Gemma 2, Grok); finite, >= 0.001; 0: it stays.
  double soft_cap = 0;
  /// [query_heads] logits of nothing (gpt-oss): one takes its probability beside the rows that a query sees, and gives
  /// no value, so that a query's probabilities add up to less than 1. Neither scaled nor capped; finite; empty: none.
  std::vector<float> sinks = {};
  /// [query_heads] slopes of ALiBi (arXiv 2108.12409): from a logit, once it is capped, slope * distance is taken, the
  /// distance being the query's position less the row's; finite, >= 0; empty: none.
  std::vector<float> alibi_slopes = {};
  /// Whose distances: those of tokens, which evictions leave as they are; or of places in the cache, which evictions
  /// close up, as in the paper's positions.
  Positions alibi_positions = Positions::logical;

  /// Writes what a loaded cache has to agree with, or checks it. Errors: it does not.
  template <class Archive>
  void archive(Archive& a) const {
    a.same("scale", scale);
    a.same("log_base", log_base);
    a.same_since(3, "attention.window", window, 0);
    a.same_since(3, "soft_cap", soft_cap, 0.);
    a.same_since(3, "sinks", static_cast<int>(sinks.size()), 0);
    for (const float& sink : sinks) a.same("sinks", sink);
    a.same_since(3, "alibi_slopes", static_cast<int>(alibi_slopes.size()), 0);
    for (const float& slope : alibi_slopes) a.same("alibi_slopes", slope);
    if (!alibi_slopes.empty()) a.same("alibi_positions", static_cast<int>(alibi_positions));
  }
};

/// The angles that rotate queries and raw keys to their positions: [tokens, dims] and [rows, dims] of
/// Rotation::angles(). A null pointer: they are as they shall be used.
struct RopeAngles {
  const Rotation* rotation = nullptr;  ///< of the angles; null: no row is rotated
  const float* queries = nullptr;      ///< angles of the queries
  const float* keys = nullptr;         ///< angles of the keys, where those are raw
  /// Positions of rows for ALiBi, [1, kv_heads, rows]; empty: rows are at their places.
  View<const std::int32_t> positions{nullptr, 0, 0, 0};
};

/// Refuses what is neither empty nor one finite number a query head, none below `least`.
inline void check_of_heads(const char* field, const std::vector<float>& values, int query_heads, float least) {
  if (values.empty()) return;
  require_equal(field, static_cast<long long>(values.size()), query_heads, "query_heads, or none");
  for (const float& x : values)
    if (!is_finite(x) || x < least)
      fail(field, std::to_string(x), least < 0 ? "finite" : "finite, >= " + std::to_string(static_cast<int>(least)));
}

/// Errors: scale, log_base or soft_cap not finite or out of range, threads < 1, lse_tolerance not finite or < 0,
/// window < 0, sinks or slopes of another number than query_heads, or that are not finite, slopes below 0.
inline void check(const AttentionOptions& o, const Shape& shape) {
  check_logits(o.scale, o.log_base);
  require_range("threads", o.threads, 1, 1 << 16);
  if (!is_finite(o.lse_tolerance) || o.lse_tolerance < 0)
    fail("lse_tolerance", std::to_string(o.lse_tolerance), "finite, >= 0");
  require_at_least("attention.window", o.window, 0);
  if (!is_zero(o.soft_cap) && (!is_finite(o.soft_cap) || o.soft_cap < 1e-3 || o.soft_cap > 1e30))
    fail("soft_cap", std::to_string(o.soft_cap), "0, or finite and >= 0.001");
  check_of_heads("sinks", o.sinks, shape.query_heads, std::numeric_limits<float>::lowest());
  check_of_heads("alibi_slopes", o.alibi_slopes, shape.query_heads, 0);
  require_enum("alibi_positions", o.alibi_positions, Positions::compact);
}

}  // namespace buzz
