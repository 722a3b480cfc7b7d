#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "buzz/aligned.h"
#include "buzz/shape.h"

namespace buzz {

/// Some tokens' queries of one KV head, handled together, and where their numbers lie. Row i of m: token first + i /
/// group, query head head * group + i % group. D is the shape's head_dim, V its value_size().
struct AttentionBlock {
  /// Query rows that are handled together, and cached rows, which stay in the first-level cache. From many_queries on
  /// it pays to turn a tile, so that a packet holds one dimension of several rows and no lanes are left to add up.
  /// @{
  static constexpr int most_queries = 64, tile_rows = 32, many_queries = 16;
  /// @}

  int head;               ///< the KV head
  int group;              ///< query heads of a KV head
  int first;              ///< its first token, of the call's
  int tokens;             ///< how many tokens it has
  int total;              ///< how many the call has
  int m;                  ///< query rows
  int rows;               ///< one past the last row that the last of them sees
  int window;             ///< how many rows each sees at most
  int first_row;          ///< a tile's first, that the first of them sees
  std::ptrdiff_t stride;  ///< of p
  float* queries;         ///< [m, max(D, tile_rows)]
  float* result;          ///< [m, V]
  float* p;               ///< [m, rows]
  float* tile;            ///< [tile_rows, max(D, V)]
  float* turned;          ///< [D, tile_rows] where m may be many
  float* norms;           ///< [m]: what a query's terms in p are to be multiplied by

  int token(int i) const { return first + i / group; }                                       ///< of row i
  int query_head(int i) const { return head * group + i % group; }                           ///< of row i
  int seen(int i) const { return rows - (first + tokens - 1 - token(i)); }                   ///< one past its last row
  int from(int i) const { return (std::max)(0, seen(i) - window); }                          ///< its first row
  int slice(int i, int slices) const { return (std::max)(0, token(i) - (total - slices)); }  ///< that it adds to

  /// Of the rows [r, r + count), query i sees [from_of(), end_of()), counted from r.
  /// @{
  int end_of(int i, int r, int count) const { return (std::max)(0, (std::min)(count, seen(i) - r)); }
  int from_of(int i, int r, int end) const { return (std::min)(end, (std::max)(0, from(i) - r)); }
  /// @}
};

/// A call's queries in blocks, and their scratch: of heads_at_once heads, each in `pieces` tasks. Allocated in the
/// constructor.
class AttentionBlocks {
 public:
  /// window: 0: none. capacity: most rows.
  AttentionBlocks(const Shape& shape, int window, int capacity, int heads_at_once, int pieces)
      : group_(shape.group()),
        tokens_((std::max)(1, (std::min)(shape.max_chunk, AttentionBlock::most_queries / shape.group()))),
        window_(window == 0 ? (std::numeric_limits<int>::max)() : window),
        capacity_(capacity),
        heads_at_once_(heads_at_once),
        pieces_(pieces),
        dim_(shape.head_dim),
        value_dim_(shape.value_size()),
        scratch_(size(heads_at_once, of_head(tokens_ * group_, capacity)) +
                 size(heads_at_once * pieces, of_task(tokens_ * group_))) {}

  int tokens() const { return tokens_; }  ///< of a block, at most

  /// The block of a head that begins at token `first` of `total`, with the scratch of a slot and of one of its pieces.
  AttentionBlock operator()(int head, int first, int total, int rows, int slot, int piece) {
    AttentionBlock b;
    b.head = head;
    b.group = group_;
    b.first = first;
    b.tokens = (std::min)(tokens_, total - first);
    b.total = total;
    b.m = b.tokens * b.group;
    b.rows = rows - total + first + b.tokens;
    b.window = window_;
    b.first_row = b.from(0) / tile_rows * tile_rows;
    b.stride = p_stride(b.rows);
    const int m = tokens_ * group_;
    b.result = scratch_.data() + size(slot, of_head(m, capacity_));
    b.norms = b.result + whole(b.m * value_dim_);
    b.p = b.norms + whole(b.m);
    b.queries =
        scratch_.data() + size(heads_at_once_, of_head(m, capacity_)) + size(slot * pieces_ + piece, of_task(m));
    b.tile = b.queries + of_queries(b.m);
    b.turned = b.tile + whole(tile_rows * (std::max)(dim_, value_dim_));
    return b;
  }

  /// As many floats, or up to a cache line's more: what follows them is aligned as they are.
  static std::ptrdiff_t whole(std::ptrdiff_t floats) { return (floats + 15) / 16 * 16; }
  std::size_t bytes() const { return scratch_.size() * sizeof(float); }  ///< allocated

 private:
  using Block = AttentionBlock;
  static constexpr int tile_rows = Block::tile_rows;

  template <class... N>
  static std::size_t size(N... n) {
    return (static_cast<std::size_t>(n) * ...);
  }
  static std::ptrdiff_t p_stride(int rows) { return whole((std::max)(rows, +tile_rows)); }
  std::ptrdiff_t of_head(int m, int rows) const { return whole(m * value_dim_) + whole(m) + m * p_stride(rows); }
  std::ptrdiff_t of_queries(int m) const { return whole(m * (std::max)(dim_, std::ptrdiff_t{tile_rows})); }
  std::ptrdiff_t of_task(int m) const {
    return of_queries(m) + whole(tile_rows * (std::max)(dim_, value_dim_)) +
           (m < Block::many_queries ? 0 : whole(tile_rows * dim_));
  }

  int group_, tokens_, window_, capacity_, heads_at_once_, pieces_;
  std::ptrdiff_t dim_, value_dim_;
  AlignedVector<float> scratch_;
};

}  // namespace buzz
