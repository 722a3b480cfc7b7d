#pragma once

#include <algorithm>
#include <vector>

#include "buzz/rope.h"
#include "buzz/rows.h"
#include "buzz/shape.h"

namespace buzz {

/// The K and V rows of one layer. How many of every head are in use the Evictor knows. Allocates in the constructor
/// alone.
template <class T>
class Store {
 public:
  /// Room for `capacity` rows of every head.
  Store(const Shape& shape, int capacity)
      : heads_(shape.kv_heads),
        dim_(shape.head_dim),
        value_dim_(shape.value_size()),
        in_keys_(shape.values_in_keys),
        keys_(heads_, capacity, dim_),
        values_(heads_, in_keys_ ? 0 : capacity, value_dim_),
        row_(static_cast<std::size_t>((std::max)(dim_, in_keys_ ? 0 : value_dim_))) {}

  /// Writes k and v, [tokens, kv_heads, head_dim] and value_size(), or no v where values are in the keys, into the rows
  /// from `first` on; keys are rotated by `angles`, [tokens, rotation.dims()], unless that is null. The caller has
  /// checked shapes and room. O(tokens * kv_heads * head_dim).
  template <class K>
  void append(int first, const View<const K>& k, const View<const K>& v, const Rotation& rotation,
              const float* angles) {
    for (int t = 0; t < k.shape(0); ++t) {
      const int row = first + t;
      for (int h = 0; h < heads_; ++h) {
        if (angles == nullptr) {
          keys_.put(h, row, k.row(t, h), row_.data());
        } else {
          convert_row(k.row(t, h), dim_, row_.data());
          rotation.rotate(angles + static_cast<std::ptrdiff_t>(t) * rotation.dims(), row_.data());
          keys_.put(h, row, static_cast<const float*>(row_.data()), row_.data());
        }
        if (!in_keys_) values_.put(h, row, v.row(t, h), row_.data());
      }
    }
  }

  /// Keeps the rows that `kept` names. O(moved rows * head_dim).
  void compact(const KeptRows& kept) {
    keys_.compact(kept);
    if (!in_keys_) values_.compact(kept);
  }

  /// After compact(): rotates each key that moved by the distance of its move, from its last place, in float, rounded
  /// once (int8: quantised anew). `angles` is room for rotation.dims() floats. O(moved rows * head_dim).
  void rotate_moved(const KeptRows& kept, const Rotation& rotation, float* angles) {
    for (int h = 0; h < heads_; ++h) {
      kept.for_each_run(h, [&](int from, int to, int count) {
        if (from == to) return;
        rotation.move(to - from, angles);  // one move for all rows of a run
        for (int r = to; r < to + count; ++r) {
          keys_.get(h, r, row_.data());
          rotation.rotate(angles, row_.data());
          keys_.put(h, r, static_cast<const float*>(row_.data()), row_.data());
        }
      });
    }
  }

  /// Writes or reads K and V of the first `rows` rows.
  template <class Self, class Archive>
  static void archive(Self& self, int rows, Archive& a) {
    for (int h = 0; h < self.heads_; ++h) {
      Rows<T>::archive(self.keys_, h, rows, a);
      if (!self.in_keys_) Rows<T>::archive(self.values_, h, rows, a);
    }
  }

  /// Does somebody else's memory reach into that of K or V?
  bool overlaps(const Footprint& other) const { return keys_.overlaps(other) || values_.overlaps(other); }

  /// The first `rows` rows as stored: [kv_heads, rows, head_dim].
  RowsView<T> keys(int rows) const { return keys_.view(rows, dim_); }
  /// The same for values, of value_size().
  RowsView<T> values(int rows) const { return (in_keys_ ? keys_ : values_).view(rows, value_dim_); }
  std::size_t bytes() const { return keys_.bytes() + values_.bytes() + row_.size() * sizeof(float); }  ///< allocated

 private:
  int heads_, dim_, value_dim_;
  bool in_keys_;
  Rows<T> keys_, values_;
  std::vector<float> row_;  // [max(head_dim, value_size())]
};

}  // namespace buzz
