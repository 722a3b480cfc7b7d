#pragma once

#include <limits>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/sizes.h"

namespace buzz {

/// One attention layer. Query head q attends with KV head q / (query_heads / kv_heads).
struct Shape {
  int query_heads = 1;   ///< a multiple of kv_heads; 1 to 65536
  int kv_heads = 1;      ///< 1 to 65536
  int head_dim = 1;      ///< values of a row of a head; 1 to 65536
  int max_chunk = 1;     ///< most tokens in one call
  int max_rollback = 0;  ///< most tokens that rollback() may take back
  int value_dim = 0;     ///< values of a row of a head's values, where that is not head_dim; 0 to 65536, 0: head_dim
  /// A row's value is the first value_size() elements of its key as stored (multi-head latent attention, absorbed): no
  /// values are given, and none stored.
  bool values_in_keys = false;

  int value_size() const { return value_dim == 0 ? head_dim : value_dim; }  ///< of a value, and of an output
  int group() const { return query_heads / kv_heads; }                      ///< query heads that share a KV head
};

/// Errors: an extent < 1, heads or head_dim > 65536, query_heads that is not a multiple of kv_heads, max_rollback out
/// of 0 to 2^20, value_dim out of 0 to 65536, or past head_dim with values_in_keys.
inline void check(const Shape& shape) {
  require_size("kv_heads", shape.kv_heads, most_heads);
  require_size("query_heads", shape.query_heads, most_heads);
  if (shape.query_heads % shape.kv_heads != 0)
    fail("query_heads", shape.query_heads, "a multiple of kv_heads = " + std::to_string(shape.kv_heads));
  require_size("head_dim", shape.head_dim, most_head_dim);
  require_at_least("max_chunk", shape.max_chunk, 1);
  require_range("max_rollback", shape.max_rollback, 0, 1 << 20);
  require_range("value_dim", shape.value_dim, 0, shape.values_in_keys ? shape.head_dim : most_head_dim);
}

/// What AttentionOptions, the host's and the device's, say of the logits. Errors: a scale that is not 0, or finite as a
/// float and > 0; a log_base that is not 0, or finite as a float and > 1.
inline void check_logits(double scale, double log_base) {
  constexpr double most = (std::numeric_limits<float>::max)();
  if (!is_finite(scale) || scale < 0 || scale > most) fail("scale", std::to_string(scale), "0, or finite and > 0");
  if (!is_zero(log_base) && (!is_finite(log_base) || log_base <= 1 || log_base > most))
    fail("log_base", std::to_string(log_base), "0, or finite and > 1");
}

}  // namespace buzz
