#pragma once

#include <algorithm>
#include <vector>

#include "buzz/rope.h"
#include "buzz/rows.h"
#include "buzz/shape.h"

namespace buzz {

/// The K and V rows of one layer, of which the first rows() of every head are in use. Allocates in the constructor
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

  /// Appends tokens rows of k and v, [tokens, kv_heads, head_dim] and value_size(), or no v where values are in the
  /// keys; keys are rotated by `angles`, [tokens, rotation.dims()], unless that is null. The caller has checked shapes
  /// and room. O(tokens * kv_heads * head_dim).
  template <class K>
  void append(const View<const K>& k, const View<const K>& v, const Rotation& rotation, const float* angles) {
    for (int t = 0; t < k.shape(0); ++t, ++rows_) {
      for (int h = 0; h < heads_; ++h) {
        if (angles == nullptr) {
          keys_.put(h, rows_, k.row(t, h), row_.data());
        } else {
          convert_row(k.row(t, h), dim_, row_.data());
          rotation.rotate(angles + static_cast<std::ptrdiff_t>(t) * rotation.dims(), row_.data());
          keys_.put(h, rows_, static_cast<const float*>(row_.data()), row_.data());
        }
        if (!in_keys_) values_.put(h, rows_, v.row(t, h), row_.data());
      }
    }
  }

  /// Keeps the rows that `kept` names. O(moved rows * head_dim).
  void compact(const KeptRows& kept) {
    keys_.compact(kept);
    if (!in_keys_) values_.compact(kept);
    rows_ = kept.size();
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

  void rollback(int tokens) { rows_ -= tokens; }  ///< drops the newest rows

  /// Writes or reads K and V of the first rows() rows.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a) {
    for (int h = 0; h < self.heads_; ++h) {
      Rows<T>::archive(self.keys_, h, self.rows_, a);
      if (!self.in_keys_) Rows<T>::archive(self.values_, h, self.rows_, a);
    }
  }
  /// For loading: the rows that archive() is to fill.
  void resize(int rows) { rows_ = rows; }

  /// Does somebody else's memory reach into that of K or V?
  bool overlaps(const Footprint& other) const { return keys_.overlaps(other) || values_.overlaps(other); }

  int rows() const { return rows_; }  ///< in use
  /// As stored: [kv_heads, rows, head_dim].
  RowsView<T> keys() const { return keys_.view(rows_, dim_); }
  /// The same for values, of value_size().
  RowsView<T> values() const { return (in_keys_ ? keys_ : values_).view(rows_, value_dim_); }
  std::size_t bytes() const { return keys_.bytes() + values_.bytes() + row_.size() * sizeof(float); }  ///< allocated

 private:
  int heads_, dim_, value_dim_;
  bool in_keys_;
  int rows_ = 0;
  Rows<T> keys_, values_;
  std::vector<float> row_;  // [max(head_dim, value_size())]
};

}  // namespace buzz
