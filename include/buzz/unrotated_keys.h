#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "buzz/float_rows.h"
#include "buzz/rope.h"
#include "buzz/sizes.h"
#include "buzz/view.h"

namespace buzz {

/// The rows that an Evictor's owner shows to select(), and the queries of observe_queries(): what some scores have to
/// know of them beforehand.
struct ShownRows {
  int head_dim = 0;     ///< of keys; 0: not said
  int value_dim = 0;    ///< of values; 0: as head_dim, or not said
  Rope rope = {};       ///< how they are rotated when they are shown; {}, or with KeyStorage::raw: as they came
  int query_heads = 0;  ///< of queries; 0: not said
  double scale = 0;     ///< of logits; 0: 1 / sqrt(head_dim)
};

/// Keys that are rotated as they are read, from or to their positions, in float, so that each number is off by some
/// 2^-23 of its pair's length beside what their storage has rounded.
class TurnedKeys final : public FloatRows {
 public:
  /// What writes the angles of a position: Rotation::back or Rotation::angles.
  using Way = void (Rotation::*)(double position, float* cos_sin) const;

  /// All of it outlives this. positions: of the rows, [1, kv_heads, rows]; not read where positions are compact, and
  /// a row's is its place. room: [head_dim + rotation.dims()].
  TurnedKeys(const FloatRows& keys, const Rotation& rotation, Way way, const View<const std::int32_t>& positions,
             float* room)
      : keys_(keys), rotation_(rotation), way_(way), positions_(positions), room_(room) {}
  int rows() const override { return keys_.rows(); }
  int dim() const override { return keys_.dim(); }
  /// O(rows * head_dim), the angles of each row among them.
  Block read(int head, int first, int rows, int dim, int dims, float* room) const override {
    const int begin = rotation_.rope().first, whole = keys_.dim();
    if (dim >= begin + rotation_.dims() || dim + dims <= begin) return keys_.read(head, first, rows, dim, dims, room);
    float* angles = room_ + whole;
    for (int r = 0; r < rows; ++r) {
      const Block key = keys_.read(head, first + r, 1, 0, whole, room_);
      if (key.data != room_) std::copy_n(key.data, whole, room_);
      (rotation_.*way_)(rotation_.compact() ? first + r : positions_.row(0, head)[first + r], angles);
      rotation_.rotate(angles, room_);
      std::copy_n(room_ + dim, dims, room + static_cast<std::ptrdiff_t>(r) * dims);
    }
    return {room, dims};
  }

 private:
  const FloatRows& keys_;
  const Rotation& rotation_;
  Way way_;
  View<const std::int32_t> positions_;
  float* room_;
};

/// The way to keys as they came, and as attention sees them, where a score wants them, with its room.
class Unrotation {
 public:
  /// came, seen: are such keys wanted? Errors: sizes out of 0 to 65536, or a value's alone; where some are wanted no
  /// size, a Rope that is none, or keys of several positions a token.
  Unrotation(const ShownRows& shown, bool came, bool seen)
      : head_dim_(shown.head_dim),
        value_dim_(shown.value_dim == 0 ? shown.head_dim : shown.value_dim),
        came_(came),
        seen_(seen),
        raw_(shown.rope.keys == KeyStorage::raw) {
    require_range("head_dim", head_dim_, came || seen ? 1 : 0, most_head_dim);
    require_range("value_dim", shown.value_dim, 0, head_dim_ == 0 ? 0 : most_head_dim);
    if (!came && !seen) return;
    if (shown.rope.multi_axis) fail("rope.multi_axis", "true", "false: the policy looks at keys before their rotation");
    std::unique_ptr<Rotation> rotation(new Rotation(shown.rope, head_dim_));
    if (rotation->dims() == 0) return;
    if (raw_ ? seen : came)
      key_.resize(static_cast<std::size_t>(head_dim_) + static_cast<std::size_t>(rotation->dims()));
    rotation_ = std::move(rotation);
  }

  /// f(the keys as they came, as attention sees them), each null where nobody wants it. Errors: rows of other sizes
  /// than were said.
  template <class F>
  decltype(auto) operator()(const FloatRows& keys, const FloatRows& values, const View<const std::int32_t>& positions,
                            F&& f) {
    if (head_dim_ != 0) {
      require_equal("keys.shape[2]", keys.dim(), head_dim_, "head_dim of ShownRows");
      require_equal("values.shape[2]", values.dim(), value_dim_, "value_dim of ShownRows");
    }
    const FloatRows *came = came_ ? &keys : nullptr, *seen = seen_ ? &keys : nullptr;
    if (key_.empty()) return f(came, seen);
    const TurnedKeys turned(keys, *rotation_, raw_ ? &Rotation::angles : &Rotation::back, positions, key_.data());
    const FloatRows* made = &turned;
    return raw_ ? f(came, made) : f(made, seen);
  }
  int head_dim() const { return head_dim_; }                         ///< of a key; 0: not said
  int value_dim() const { return value_dim_; }                       ///< of a value; 0: not said
  std::size_t bytes() const { return key_.size() * sizeof(float); }  ///< allocated
  /// How attention rotates keys; null: nobody wants to know, or it does not.
  const std::shared_ptr<const Rotation>& rotation() const { return rotation_; }

 private:
  int head_dim_, value_dim_;
  bool came_, seen_, raw_;
  std::shared_ptr<const Rotation> rotation_;  // forks have the same
  std::vector<float> key_;  // [head_dim + rotation.dims()]: a key, and its angles; where one is turned
};

}  // namespace buzz
