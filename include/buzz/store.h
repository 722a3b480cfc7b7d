#pragma once

#include <Eigen/Core>
#include <vector>

#include "buzz/keep.h"
#include "buzz/rope.h"
#include "buzz/shape.h"

namespace buzz {

/// A float row as it is stored, and back; rounded once.
template <class To, class From>
inline void convert_row(const From* from, int count, To* to) {
  using FromRow = Eigen::Map<const Eigen::Array<From, Eigen::Dynamic, 1>>;
  Eigen::Map<Eigen::Array<To, Eigen::Dynamic, 1>>(to, count) = FromRow(from, count).template cast<To>();
}

/// The stored types' numbers in saved files.
template <class T>
constexpr int type_code = 0;
template <>
constexpr int type_code<float> = 1;
template <>
constexpr int type_code<Eigen::half> = 2;
template <>
constexpr int type_code<Eigen::bfloat16> = 3;

/// The K and V rows of one layer, [kv_heads, capacity, head_dim] each, of which the first rows() of every head are in
/// use. T: float, Eigen::half, Eigen::bfloat16. Allocates in the constructor alone.
template <class T>
class Store {
 public:
  Store(const Shape& shape, int capacity)
      : heads_(shape.kv_heads),
        dim_(shape.head_dim),
        capacity_(capacity),
        keys_(size()),
        values_(size()),
        row_(static_cast<std::size_t>(dim_)) {}

  /// Appends tokens rows of k and v, [tokens, kv_heads, head_dim]; keys are rotated by `angles`, [tokens,
  /// rotation.dims()], unless that is null. The caller has checked shapes and room. O(tokens * kv_heads * head_dim).
  template <class K>
  void append(const View<const K>& k, const View<const K>& v, const Rotation& rotation, const float* angles) {
    for (int t = 0; t < k.shape(0); ++t) {
      for (int h = 0; h < heads_; ++h) {
        if (angles == nullptr) {
          convert_row(k.row(t, h), dim_, key(h, rows_));
        } else {
          convert_row(k.row(t, h), dim_, row_.data());
          rotation.rotate(angles + static_cast<std::ptrdiff_t>(t) * rotation.dims(), row_.data());
          convert_row(row_.data(), dim_, key(h, rows_));
        }
        convert_row(v.row(t, h), dim_, value(h, rows_));
      }
      ++rows_;
    }
  }

  /// Keeps the rows that `keep` names. O(moved rows * head_dim).
  void compact(const Keep& keep) {
    buzz::compact(keep, View<T>(keys_.data(), heads_, capacity_, dim_));
    buzz::compact(keep, View<T>(values_.data(), heads_, capacity_, dim_));
    rows_ = keep.size();
  }

  /// After compact(): rotates each key that moved by the distance of its move, from its last place, in float, rounded
  /// once. `angles` is room for rotation.dims() floats. O(moved rows * dims).
  void rotate_moved(const Keep& keep, const Rotation& rotation, float* angles) {
    for (int h = 0; h < heads_; ++h) {
      keep.for_each_run(h, [&](int from, int to, int count) {
        if (from == to) return;
        rotation.move(to - from, angles);  // one move for all rows of a run
        for (int r = to; r < to + count; ++r) {
          convert_row(key(h, r), rotation.dims(), row_.data());
          rotation.rotate(angles, row_.data());
          convert_row(row_.data(), rotation.dims(), key(h, r));
        }
      });
    }
  }

  void rollback(int tokens) { rows_ -= tokens; }

  template <class Self, class Archive>
  static void archive(Self& self, Archive& a) {
    const std::size_t count = static_cast<std::size_t>(self.rows_) * static_cast<std::size_t>(self.dim_);
    for (int h = 0; h < self.heads_; ++h) {
      a.array(self.key(h, 0), count);
      a.array(self.value(h, 0), count);
    }
  }
  /// For loading: the rows that archive() is to fill.
  void resize(int rows) { rows_ = rows; }

  int rows() const { return rows_; }
  /// As stored: [kv_heads, rows, head_dim].
  View<const T> keys() const { return {keys_.data(), heads_, rows_, dim_, head_stride(), dim_}; }
  View<const T> values() const { return {values_.data(), heads_, rows_, dim_, head_stride(), dim_}; }
  std::size_t bytes() const { return (keys_.size() + values_.size()) * sizeof(T) + row_.size() * sizeof(float); }
  void reset() { rows_ = 0; }

 private:
  std::size_t size() const {
    return static_cast<std::size_t>(heads_) * static_cast<std::size_t>(capacity_) * static_cast<std::size_t>(dim_);
  }
  std::ptrdiff_t head_stride() const { return static_cast<std::ptrdiff_t>(capacity_) * dim_; }
  const T* key(int head, int row) const { return const_cast<Store*>(this)->key(head, row); }
  const T* value(int head, int row) const { return const_cast<Store*>(this)->value(head, row); }
  T* key(int head, int row) { return keys_.data() + head * head_stride() + static_cast<std::ptrdiff_t>(row) * dim_; }
  T* value(int head, int row) {
    return values_.data() + head * head_stride() + static_cast<std::ptrdiff_t>(row) * dim_;
  }

  int heads_, dim_, capacity_;
  int rows_ = 0;
  std::vector<T, Eigen::aligned_allocator<T>> keys_, values_;  // [kv_heads, capacity, head_dim]
  std::vector<float> row_;                                     // [head_dim]
};

}  // namespace buzz
