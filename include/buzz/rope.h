#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "buzz/archive.h"
#include "buzz/cos_sin.h"
#include "buzz/finite.h"

namespace buzz {

/// Which elements of a key form pair i: (2i, 2i + 1), as in GGUF's llama, or (i, i + dims / 2), as in GPT-NeoX.
enum class Pairs { interleaved, halves };

/// What a row's rotary position is. logical: its token's index in the sequence, for ever. compact: its place in the
/// cache, 0 to rows - 1, as in the paper, so that no position passes the cache's capacity.
enum class Positions { logical, compact };

/// How keys are stored. rotated: ready for attention; in compact positions a key is rotated on when it moves. raw: as
/// they come, and rotated at every read, for compact positions where rows move too often: re-rotation rounds each time.
/// automatic: raw where positions are compact and the policy may move a row more than few_moves times, else rotated.
enum class KeyStorage { automatic, rotated, raw };

/// Rotary position embedding (RoFormer, arXiv 2104.09864), applied by the cache to keys and queries.
struct Rope {
  /// Frequency i is base^(-2i / dims), radians a position. 0: the cache rotates nothing (keys come as they shall be
  /// used), unless `frequencies` are given.
  double base = 0;
  /// Elements of each head that are rotated, even, 2 to head_dim - first; 0: all from the first one on.
  int dims = 0;
  /// The first of them, side by side: 0 where a head's beginning is rotated, head_dim - dims where its end is
  /// (DeepSeek's MLA: the last 64).
  int first = 0;
  Pairs pairs = Pairs::interleaved;          ///< as the model has them
  Positions positions = Positions::logical;  ///< what a row's position is
  KeyStorage keys = KeyStorage::automatic;   ///< how keys are stored
  /// Rotary positions run from 0 to max_position - 1, as far as the model was trained, say. Past it append() refuses
  /// (logical), or the constructor does if the capacity is more (compact).
  int max_position = (std::numeric_limits<int>::max)();
  /// [dims / 2] radians a position, -65536 to 65536, in place of the base's, where context extension scales them: see
  /// rope_scaling.h.
  std::vector<double> frequencies = {};
  /// Queries and keys are multiplied by it when they are rotated (YaRN, arXiv 2309.00071, section 3.4).
  double attention_factor = 1;
  /// M-RoPE: a token has several positions (time, height, width), so that the engine has to rotate keys itself (base 0)
  /// and no position can be closed up.
  bool multi_axis = false;

  bool rotates() const { return !is_zero(base) || !frequencies.empty(); }  ///< does the cache rotate at all?
  /// Can positions be compact? Only where the cache rotates, by one position a token.
  bool can_compact() const { return rotates() && !multi_axis; }
};

/// Field by field: do they rotate alike?
inline bool operator==(const Rope& a, const Rope& b) {
  return a.base == b.base && a.dims == b.dims && a.first == b.first && a.pairs == b.pairs &&
         a.positions == b.positions && a.keys == b.keys && a.max_position == b.max_position &&
         a.frequencies == b.frequencies && a.attention_factor == b.attention_factor && a.multi_axis == b.multi_axis;
}
inline bool operator!=(const Rope& a, const Rope& b) { return !(a == b); }  ///< not that

/// The frequency of pair i of dims / 2, base^(-2i / dims): the same bits under any compiler flag, since saved caches
/// have to agree on it.
inline double frequency(double base, int i, int dims) {
  return std::pow(as_written(base), as_written(-2.0 * i / as_written(dims)));
}

/// A checked Rope for one head size: its angles, and the rotation of a row. Angles are made in double, rows are
/// rotated in float.
class Rotation {
 public:
  /// Errors: base, a frequency or attention_factor not finite or out of range, dims odd, dims or first out of range,
  /// a table of another size, max_position < 1, a combination that cannot be right.
  Rotation(const Rope& rope, int head_dim) : rope_(rope) {
    require_at_least("rope.max_position", rope.max_position, 1);
    require_enum("rope.pairs", rope.pairs, Pairs::halves);
    require_enum("rope.positions", rope.positions, Positions::compact);
    require_enum("rope.keys", rope.keys, KeyStorage::raw);
    if (!is_zero(rope.base)) check_real("rope.base", rope.base, 1);
    check_real("rope.attention_factor", rope.attention_factor, 0);
    if (rope.multi_axis && rope.rotates())
      fail("rope.base", std::to_string(rope.base), "0 with multi_axis: the cache knows one position a token");
    if (compact() && !rope.can_compact())
      fail("rope.positions", "compact", "logical where the cache does not rotate, or with multi_axis");
    if (rope.keys == KeyStorage::raw && !compact())
      fail("rope.keys", "raw", "rotated or automatic in logical positions, which never move");
    if (!rope.rotates()) {
      if (rope.dims != 0) fail("rope.dims", rope.dims, "0 where the cache does not rotate");
      if (rope.first != 0) fail("rope.first", rope.first, "0 where the cache does not rotate");
      return;
    }
    require_range("rope.first", rope.first, 0, (std::max)(0, head_dim - 2));
    const int rest = head_dim - rope.first;
    dims_ = rope.dims == 0 ? rest : rope.dims;
    if (dims_ < 2 || dims_ > rest || dims_ % 2 != 0)
      fail(rope.dims == 0 ? "rope.dims (head_dim)" : "rope.dims", dims_,
           std::string("an even number from 2 to head_dim ") + (rope.first == 0 ? "= " : "- rope.first = ") +
               std::to_string(rest));
    frequencies_ = rope.frequencies;
    for (int i = 0; rope.frequencies.empty() && i < dims_ / 2; ++i)
      frequencies_.push_back(frequency(rope.base, i, dims_));
    require_equal("rope.frequencies", static_cast<long long>(frequencies_.size()), dims_ / 2, "dims / 2");
    for (const double f : frequencies_)
      if (!is_finite(f) || std::abs(f) > 65536) fail("rope.frequencies", std::to_string(f), "-65536 to 65536");
  }

  const Rope& rope() const { return rope_; }  ///< as given
  /// Elements of a head that are rotated; 0: none.
  int dims() const { return dims_; }
  /// Is a row's position its place in the cache?
  bool compact() const { return rope_.positions == Positions::compact; }
  /// [dims / 2], radians a position.
  const std::vector<double>& frequencies() const { return frequencies_; }

  /// Writes the rotation to `position`, attention_factor included: dims / 2 cosines, then dims / 2 sines. O(dims).
  void angles(double position, float* cos_sin) const { write(position, rope_.attention_factor, cos_sin); }
  /// Writes the rotation, [dims] too, that takes a rotated key `distance` positions on (negative: back).
  void move(double distance, float* cos_sin) const { write(distance, 1, cos_sin); }

  /// Writes what takes a key rotated to `position` back to what it was, attention_factor included.
  void back(double position, float* cos_sin) const {
    write(-position, (std::min)(1 / rope_.attention_factor, 1. * (std::numeric_limits<float>::max)()), cos_sin);
  }

  /// Calls f(i, a, b) for each frequency i and the elements a and b of a row that it rotates together.
  template <class F>
  void for_each_pair(F&& f) const {
    const int half = dims_ / 2, first = rope_.first;
    const bool side_by_side = rope_.pairs == Pairs::interleaved;
    for (int i = 0; i < half; ++i)
      f(i, first + (side_by_side ? 2 * i : i), first + (side_by_side ? 2 * i + 1 : half + i));
  }

  /// Rotates one row of head_dim floats in place. O(dims).
  void rotate(const float* cos_sin, float* row) const {
    row += rope_.first;
    const int half = dims_ / 2;
    const float *cos = cos_sin, *sin = cos_sin + half;
    if (rope_.pairs == Pairs::interleaved)
      for (int i = 0; i < half; ++i) rotate_pair(cos[i], sin[i], row[2 * i], row[2 * i + 1]);
    else
      for (int i = 0; i < half; ++i) rotate_pair(cos[i], sin[i], row[i], row[half + i]);
  }

  /// Writes what a loaded cache has to agree with, or checks it. Errors: it does not.
  template <class Archive>
  void archive(Archive& a) const {
    a.same("rope.base", rope_.base);
    a.same("rope.dims", dims_);
    a.same_since(3, "rope.first", rope_.first, 0);
    a.same("rope.pairs", static_cast<int>(rope_.pairs));
    a.same("rope.positions", static_cast<int>(rope_.positions));
    a.same("rope.attention_factor", rope_.attention_factor);
    for (const double f : frequencies_) a.same("rope.frequencies", f);
  }

 private:
  static void check_real(const char* field, double value, double above) {
    if (!is_finite(value) || value <= above || value > (std::numeric_limits<float>::max)())
      fail(field, std::to_string(value), "finite and > " + std::to_string(static_cast<int>(above)));
  }

  static void rotate_pair(float cos, float sin, float& first, float& second) {
    const float a = first, b = second;
    first = a * cos - b * sin;
    second = a * sin + b * cos;
  }

  void write(double position, double factor, float* cos_sin) const {
    const int half = dims_ / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = position * frequencies_[static_cast<std::size_t>(i)];
      double cos, sin;
      buzz::cos_sin(angle, &cos, &sin);
      cos_sin[i] = static_cast<float>(factor * cos);
      cos_sin[half + i] = static_cast<float>(factor * sin);
    }
  }

  Rope rope_;
  int dims_ = 0;
  std::vector<double> frequencies_;  // [dims / 2], radians a position
};

}  // namespace buzz
