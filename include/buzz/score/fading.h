#pragma once

#include <cstdint>

#include "buzz/score/kinds.h"

namespace buzz {

/// Score: another's, of which a row loses `fade` with each `capacity` tokens of its age. What was worth keeping once is
/// not so for ever: kept rows of a text long gone cost more than they give (examples/evaluate/README.md).
template <class Score>
class Fading : public Score {
  static_assert(Score::code >= 0 && Score::code < 100, "it goes inside of Shared and of Mixed");

 public:
  /// Score's, and how fast it fades.
  struct Options : Score::Options, FadingOptions {};
  /// @{
  /// As in Mass.
  static constexpr int code = 2000000 + Score::code;  // in saved files

  static void check(const Options& o) {
    Score::check(o);
    buzz::check(static_cast<const FadingOptions&>(o));
  }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    Score::archive(a, o);
    a.same("fade", o.fade);
  }
  /// capacity: most rows of a head, and the unit of age.
  Fading(const Options& o, int heads, int capacity)
      : Score(o, heads, capacity), fade_(o.fade / static_cast<float>(capacity)) {}

  /// O(count), and what Score takes.
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t* positions, int next, const Rows& rows, Real* out) {
    Score::worth(head, begin, count, positions, next, rows, out);
    for (int i = 0; i < count; ++i)
      out[i] -= static_cast<Real>(fade_) * static_cast<Real>(next - 1 - positions[begin + i]);
  }
  /// @}

 private:
  float fade_;  // a token
};

}  // namespace buzz
