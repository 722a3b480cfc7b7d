#pragma once

#include "buzz/rows.h"

namespace buzz {
namespace value {

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

/// Those of one type.
template <class T>
class FloatRowsOf final : public FloatRows {
 public:
  /// The rows outlive it.
  explicit FloatRowsOf(const RowsView<T>& rows) : rows_(rows) {}
  int rows() const override { return rows_.values.shape(1); }
  int dim() const override { return rows_.values.shape(2); }
  Block read(int head, int first, int rows, int dim, int dims, float* room) const override {
    const bool scaled = !rows_.scales.empty();
    if constexpr (std::is_same<T, float>::value)
      if (!scaled) return {rows_.values.row(head, first) + dim, rows_.values.stride(1)};
    for (int r = 0; r < rows; ++r) {
      float* out = room + static_cast<std::ptrdiff_t>(r) * dims;
      kernels::convert(rows_.values.row(head, first + r) + dim, dims, out);
      if (!scaled) continue;
      const float scale = rows_.scales.row(0, head)[first + r];
      for (int i = 0; i < dims; ++i) out[i] *= scale;
    }
    return {room, dims};
  }

 private:
  const RowsView<T>& rows_;
};

/// Calls f(row, values [dims]) for rows [first, end) of a head, dimensions [dim, dim + dims), dims <= max_dims.
constexpr int max_dims = 256;
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

}  // namespace value
}  // namespace buzz
