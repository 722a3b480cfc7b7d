#pragma once

#include <cstddef>

namespace buzz {

/// Cached rows of any type as floats, a block at a time: what a score reads, and is not compiled for each type.
class FloatRows {
 public:
  /// Floats side by side in each of some rows.
  struct Block {
    const float* data;      ///< [rows, stride]
    std::ptrdiff_t stride;  ///< >= the dimensions asked for
    /// Of the i-th.
    const float* row(int i) const { return data + i * stride; }
  };
  virtual ~FloatRows() = default;
  virtual int rows() const = 0;  ///< of each head
  virtual int dim() const = 0;   ///< of each row
  /// Dimensions [dim, dim + dims) of rows [first, first + rows) of a head, where they are or in `room`, [rows, dims].
  virtual Block read(int head, int first, int rows, int dim, int dims, float* room) const = 0;
};

constexpr int max_dims = 256;  ///< dimensions that for_each_row() reads at a time, at most
/// Calls f(row, values [dims]) for rows [first, end) of a head, dimensions [dim, dim + dims), dims <= max_dims.
template <class F>
void for_each_row(const FloatRows& rows, int head, int first, int end, int dim, int dims, F&& f) {
  constexpr int at_once = 8;
  float room[at_once * max_dims];
  for (int r = first; r < end; r += at_once) {
    const int count = end - r < at_once ? end - r : at_once;
    const FloatRows::Block block = rows.read(head, r, count, dim, dims, room);
    for (int i = 0; i < count; ++i) f(r + i, block.row(i));
  }
}

}  // namespace buzz
