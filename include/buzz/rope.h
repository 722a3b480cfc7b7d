#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/error.h"

namespace buzz {

/// Which elements of a key form pair i: (2i, 2i + 1), as in GGUF's llama, or (i, i + dims / 2), as in GPT-NeoX.
enum class Pairs { interleaved, halves };

/// What a row's rotary position is. logical: its token's index in the sequence, for ever. compact: its place in the
/// cache, 0 to rows - 1, as in the paper, so that no position passes the cache's capacity; keys are re-rotated when an
/// eviction moves them.
enum class Positions { logical, compact };

/// Rotary position embedding (RoFormer, arXiv 2104.09864), applied by the cache to keys and queries.
struct Rope {
  /// Frequency i is base^(-2i / dims). 0: the cache rotates nothing (keys come as they shall be used).
  double base = 0;
  /// Leading elements of each head that are rotated, even, 2 to head_dim; 0: all of them.
  int dims = 0;
  Pairs pairs = Pairs::interleaved;
  Positions positions = Positions::logical;
  /// Rotary positions run from 0 to max_position - 1, as far as the model was trained, say. Past it append() refuses
  /// (logical), or the constructor does if the capacity is more (compact).
  int max_position = std::numeric_limits<int>::max();

  bool rotates() const { return base != 0; }
};

/// A checked Rope for one head size: its angles, and the rotation of a row. Angles are made in double, rows are
/// rotated in float.
class Rotation {
 public:
  /// Errors: base not finite or in (0, 1], dims odd or out of range,
  /// max_position < 1.
  Rotation(const Rope& rope, int head_dim) : rope_(rope) {
    require_at_least("rope.max_position", rope.max_position, 1);
    if (!rope.rotates()) {
      if (rope.dims != 0) fail("rope.dims", rope.dims, "0 where rope.base is 0");
      if (rope.positions != Positions::logical) fail("rope.positions", "compact", "logical where rope.base is 0");
      return;
    }
    if (!(rope.base > 1) || rope.base > std::numeric_limits<double>::max())
      fail("rope.base", std::to_string(rope.base), "0, or finite and > 1");
    dims_ = rope.dims == 0 ? head_dim : rope.dims;
    if (dims_ < 2 || dims_ > head_dim || dims_ % 2 != 0)
      fail(rope.dims == 0 ? "rope.dims (head_dim)" : "rope.dims", dims_,
           "an even number from 2 to head_dim = " + std::to_string(head_dim));
    for (int i = 0; i < dims_ / 2; ++i) frequencies_.push_back(std::pow(rope.base, -2.0 * i / dims_));
  }

  const Rope& rope() const { return rope_; }
  /// Elements of a head that are rotated; 0: none.
  int dims() const { return dims_; }
  bool compact() const { return rope_.positions == Positions::compact; }

  /// Writes the rotation by `position` steps (negative: back) as dims / 2 cosines, then dims / 2 sines. O(dims).
  void angles(double position, float* cos_sin) const {
    const int half = dims_ / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = position * frequencies_[static_cast<std::size_t>(i)];
      cos_sin[i] = static_cast<float>(std::cos(angle));
      cos_sin[half + i] = static_cast<float>(std::sin(angle));
    }
  }

  /// Rotates one row of at least dims floats in place. O(dims).
  void rotate(const float* cos_sin, float* row) const {
    const int half = dims_ / 2;
    const int step = rope_.pairs == Pairs::interleaved ? 2 : 1;
    float* second = row + (rope_.pairs == Pairs::interleaved ? 1 : half);
    for (int i = 0; i < half; ++i) {
      const float a = row[i * step], b = second[i * step];
      row[i * step] = a * cos_sin[i] - b * cos_sin[half + i];
      second[i * step] = a * cos_sin[half + i] + b * cos_sin[i];
    }
  }

 private:
  Rope rope_;
  int dims_ = 0;
  std::vector<double> frequencies_;  // [dims / 2], radians a position
};

}  // namespace buzz
