#pragma once

#include <cstddef>

#include "buzz/evictor.h"
#include "buzz/layer.h"

namespace buzz {

/// How large the parts of a layer's cache are, whatever it stores. The layer has been checked.
namespace layer_sizes {

/// Its policy at work, told what it will be shown. Errors: an Evictor's.
inline Evictor evictor_of(const Layer& l) {
  ShownRows shown{l.shape.head_dim, l.shape.value_size(), l.rope, l.shape.query_heads, l.attention.scale};
  if (stores_raw_keys(l)) shown.rope.keys = KeyStorage::raw;
  return Evictor(l.policy, l.shape.kv_heads, l.shape.max_chunk, l.shape.max_rollback, shown,
                 l.sliding ? l.attention.window : 0);
}

/// Slices of a call's column sums: the newest queries have one each where the score or a rollback needs it, and one
/// more is all the others'.
inline int slices(int tokens, const Evictor& evictor) {
  const int apart = evictor.queries_apart();
  return tokens <= apart ? tokens : apart + 1;
}

/// Numbers of a call's column sums, of its queries, and of its angles. Errors: past all memory.
/// @{
inline std::size_t sums_of(const Layer& l, const Evictor& evictor) {
  if (!evictor.needs().attention) return 0;
  return count_of<float>("queries apart * kv_heads * capacity",
                         {slices(l.shape.max_chunk, evictor), l.shape.kv_heads, evictor.capacity()});
}
inline std::size_t queries_of(const Layer& l) {
  if (!l.policy.needs().queries) return 0;
  return count_of<float>("max_chunk * query_heads * head_dim",
                         {l.shape.max_chunk, l.shape.query_heads, l.shape.head_dim});
}
inline std::size_t angles_of(const Layer& l, const Rotation& rotation) {
  return count_of<float>("max_chunk * rope.dims", {l.shape.max_chunk, rotation.dims()});
}
/// @}

/// Rows whose places' angles the table has to have.
inline int places(const Layer& l) { return stores_raw_keys(l) ? l.most_rows() : 0; }

/// Refuses positions past the Rope's, and keys whose rotation would turn the values that lie in them.
inline void check_positions(const Layer& l, const Rotation& rotation) {
  if (rotation.compact()) require_range("capacity", l.most_rows(), 1, l.rope.max_position);
  if (l.shape.values_in_keys && rotation.dims() > 0 && !stores_raw_keys(l))
    require_range("rope.first", l.rope.first, l.shape.value_size(), l.shape.head_dim);
}

}  // namespace layer_sizes
}  // namespace buzz
