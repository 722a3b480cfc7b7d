#pragma once

#include <cmath>

#include "buzz/cuda/types.cuh"
#include "buzz/finite.h"
#include "buzz/score/kinds.h"

namespace buzz {
namespace cuda {

/// How what a query gives to a row becomes part of the row's score, as buzz::AttentionSum does on the host, in double
/// too.
struct Fold {
  AttentionKind kind = AttentionKind::accumulated;  ///< of mean the sum alone, which Select divides
  float decay = 1;                                  ///< of AttentionKind::decayed alone

  /// A row's score after one query's column sum; first: it is the first of a call.
  BUZZ_DEVICE double operator()(double score, float given, bool first) const {
    const double sum = static_cast<double>(given);
    if (kind == AttentionKind::newest || (kind == AttentionKind::latest && first)) return sum;
    if (kind == AttentionKind::largest) return score < sum ? sum : score;
    return kind == AttentionKind::decayed ? static_cast<double>(decay) * score + sum : score + sum;
  }
};

/// Query rows of one KV head, in the order of the scores: those of a token's group side by side.
struct Queries {
  int tokens = 1;  ///< of the call
  int group = 1;   ///< query heads a KV head

  BUZZ_HOST_DEVICE int count() const { return tokens * group; }  ///< rows
  BUZZ_HOST_DEVICE int token(int i) const { return i / group; }  ///< of row i
  /// The query head of row i.
  BUZZ_HOST_DEVICE int head(int kv_head, int i) const { return kv_head * group + i % group; }
  /// Rows that query i sees, of `rows`: the queries are the newest, and none sees a later row.
  BUZZ_HOST_DEVICE int seen(int i, int rows) const { return rows - tokens + token(i) + 1; }
};

/// What logits are multiplied by.
struct LogitScale {
  double scale = 1;     ///< AttentionOptions::scale, or 1 / sqrt(head_dim)
  double log_base = 0;  ///< 0: `scale` alone; else times log(rows seen) / log(log_base)

  /// For a query that sees so many rows, >= 1.
  BUZZ_DEVICE float of(int seen) const {
    return static_cast<float>(log_base == 0 ? scale : scale * log(static_cast<double>(seen)) / log(log_base));
  }
};

/// What else AttentionOptions do to logits, and Shape to values. Attention's kernels have a flag `modified`: without it
/// they look at none of this.
struct Modifiers {
  int window = 0;                 ///< rows that a query sees, up to its own; 0: all
  float soft_cap = 0;             ///< 0: none; else queries are scaled by 1 / soft_cap too
  const float* sinks = nullptr;   ///< [query_heads], on the device; null: none
  const float* slopes = nullptr;  ///< [query_heads], ALiBi's, on the device; null: none
  bool by_place = false;          ///< distances are those of places in the cache, not of positions
  int value_dim = 0;              ///< Shape::value_size()

  /// Does any concern logits?
  BUZZ_HOST_DEVICE bool any() const { return window != 0 || soft_cap != 0 || sinks != nullptr || slopes != nullptr; }
};

}  // namespace cuda
}  // namespace buzz
