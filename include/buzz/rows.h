#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/aligned.h"
#include "buzz/finite.h"
#include "buzz/float_rows.h"
#include "buzz/kept_rows.h"
#include "buzz/overlap.h"
#include "buzz/packet.h"

namespace buzz {

/// The stored types: float, Eigen::half, Eigen::bfloat16, or std::int8_t with one scale a row (symmetric: a value is
/// scale * code, scale = the row's largest magnitude / 127). The number names the type in saved files.
template <class T>
constexpr int type_code = 0;
template <>
inline constexpr int type_code<float> = 1;  ///< binary32
template <>
inline constexpr int type_code<Eigen::half> = 2;
template <>
inline constexpr int type_code<Eigen::bfloat16> = 3;
template <>
inline constexpr int type_code<std::int8_t> = 4;

/// Are rows of T stored with a scale each?
template <class T>
constexpr bool has_scale = std::is_same<T, std::int8_t>::value;

/// Cached rows to read, [kv_heads, rows, head_dim], with each row's scale where the type has one.
template <class T>
struct RowsView {
  /// Rows without scales.
  RowsView(const View<const T>& rows) : values(rows) {}  // NOLINT: rows without scales are rows
  /// Rows with a scale each, [1, kv_heads, rows].
  RowsView(const View<const T>& rows, const View<const float>& row_scales) : values(rows), scales(row_scales) {}

  View<const T> values;                        ///< codes, where there are scales
  View<const float> scales{nullptr, 0, 0, 0};  ///< [1, kv_heads, rows], empty where T has none
};

/// Refuses rows that are not [heads, rows, any], or whose scales, where T or the view has them, are not [1, heads,
/// rows]; `name` says which they are. O(1).
template <class T>
void require_rows(const char* name, const RowsView<T>& v, int heads, int rows) {
  require_shape(name, v.values, heads, rows, v.values.shape(2));
  if (has_scale<T> || !v.scales.empty())
    require_shape((std::string(name) + ".scales").c_str(), v.scales, 1, heads, rows);
}

/// Refuses scales that are not finite or are < 0. O(heads * rows).
template <class T>
void require_scales(const char* name, const RowsView<T>& v) {
  for (int h = 0; h < v.scales.shape(1); ++h)
    for (int r = 0; r < v.scales.shape(2); ++r) {
      const float& scale = v.scales.row(0, h)[r];
      if (!is_finite(scale) || scale < 0)
        fail(std::string(name) + ".scales[0, " + std::to_string(h) + ", " + std::to_string(r) + "]",
             std::to_string(scale), "finite, >= 0");
    }
}

/// A row, [count], as another type, rounded at most once. A number past To's largest, 65504 for half, becomes that with
/// its sign; infinity and NaN stay what they are.
template <class From, class To>
inline void convert_row(const From* from, int count, To* to) {
  if constexpr (std::is_same<To, From>::value)
    std::copy_n(from, count, to);
  else if constexpr (std::is_same<To, float>::value)
    kernels::convert(from, count, to);
  else if constexpr (std::is_same<From, float>::value)
    kernels::convert_back(from, count, to);
  else
    for (int i = 0; i < count; ++i) {
      const float value = kernels::to_float(from[i]);
      kernels::convert_back(&value, 1, to + i);
    }
}

/// The cached rows of one type, as floats.
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

/// Quantises a row of floats to codes -127 to 127 and returns its scale s = largest / 127. The error of a value is at
/// most 0.50002 s: half a code, and 127 * 2^-23 codes since the division is a product with a rounded 1 / s. So a logit
/// is off by at most e = |scale| * sum|q| * 0.50002 s of its key, and an output by (exp(2 e) - 1) * the largest |v| +
/// 0.50002 s of the values, with the largest s of all rows (tests/int8_test.cpp). Requantising after a re-rotation adds
/// the same again. A row of zeros has scale 0; one that is not finite has scale NaN, so that it reads as NaN. O(count).
inline float quantise_row(const float* from, int count, std::int8_t* to) {
  Eigen::Map<const Eigen::ArrayXf> row(from, count);
  const float largest = row.abs().maxCoeff();
  float scale = row.sum();
  if (!is_finite(scale) && !std::all_of(from, from + count, [](const float& x) { return is_finite(x); })) {
    std::fill_n(to, count, std::int8_t{1});
    put_nan(&scale);
    return scale;
  }
  constexpr float most = 0x1.020406p+121f;  // 127 times it is a float
  scale = (std::min)(most, largest / 127);
  // A subnormal scale has too few bits to divide by; such a row is as good as zero.
  if (scale < (std::numeric_limits<float>::min)()) {
    std::fill_n(to, count, std::int8_t{0});
    return 0;
  }
  const float inverse = 1 / scale;
  for (int i = 0; i < count; ++i)
    to[i] = static_cast<std::int8_t>((std::min)(127.f, (std::max)(-127.f, std::nearbyint(from[i] * inverse))));
  return scale;
}

/// The keys, or the values, of one layer: [kv_heads, capacity, head_dim] of T, and [kv_heads, capacity] scales where T
/// has them. It does not know how many rows are in use. Allocates in the constructor alone.
template <class T>
class Rows {
 public:
  /// capacity rows of `dim` values for each head.
  Rows(int heads, int capacity, int dim)
      : heads_(heads),
        capacity_(capacity),
        dim_(dim),
        values_(count_of<T>("kv_heads * capacity * head_dim", {heads, capacity, dim})),
        scales_(has_scale<T> ? count_of<float>("kv_heads * capacity", {heads, capacity}) : 0) {}

  /// Stores a row, [dim]; `room` is for dim floats.
  template <class In>
  void put(int head, int row, const In* in, float* room) {
    if constexpr (has_scale<T>) {
      convert_row(in, dim_, room);
      scales_[scale_index(head, row)] = quantise_row(room, dim_, at(head, row));
    } else {
      convert_row(in, dim_, at(head, row));
    }
  }
  /// Reads a row as floats, [dim].
  void get(int head, int row, float* out) const {
    convert_row(at(head, row), dim_, out);
    if constexpr (has_scale<T>) Eigen::Map<Eigen::ArrayXf>(out, dim_) *= scales_[scale_index(head, row)];
  }

  /// Keeps the rows that `kept` names. O(moved bytes).
  void compact(const KeptRows& kept) {
    buzz::compact(kept, View<T>(values_.data(), heads_, capacity_, dim_));
    if constexpr (has_scale<T>) buzz::compact(kept, View<float>(scales_.data(), heads_, capacity_, 1));
  }

  /// The first `rows` rows of every head, and of each the first `dims` values.
  RowsView<T> view(int rows, int dims) const {
    const std::ptrdiff_t stride = capacity_;
    const View<const T> values(values_.data(), heads_, rows, dims, stride * dim_, dim_);
    if constexpr (has_scale<T>) return {values, View<const float>(scales_.data(), 1, heads_, rows, 0, stride)};
    return values;
  }

  /// Does somebody else's memory reach into this?
  bool overlaps(const Footprint& other) const {
    return !apart(other, footprint(values_.data(), values_.size() * sizeof(T))) ||
           !apart(other, footprint(scales_.data(), scales_.size() * sizeof(float)));
  }

  /// Writes or reads the first `rows` rows of a head.
  template <class Self, class Archive>
  static void archive(Self& self, int head, int rows, Archive& a) {
    a.array(self.at(head, 0), static_cast<std::size_t>(rows) * static_cast<std::size_t>(self.dim_));
    if constexpr (has_scale<T>)
      a.array(self.scales_.data() + self.scale_index(head, 0), static_cast<std::size_t>(rows));
  }

  std::size_t bytes() const { return values_.size() * sizeof(T) + scales_.size() * sizeof(float); }  ///< allocated

 private:
  std::ptrdiff_t index(int head, int row) const {
    return (static_cast<std::ptrdiff_t>(head) * capacity_ + row) * static_cast<std::ptrdiff_t>(dim_);
  }
  std::size_t scale_index(int head, int row) const {
    return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(head) * capacity_ + row);
  }
  T* at(int head, int row) { return values_.data() + index(head, row); }
  const T* at(int head, int row) const { return values_.data() + index(head, row); }

  int heads_, capacity_, dim_;
  AlignedVector<T> values_;
  std::vector<float> scales_;
};

}  // namespace buzz
