#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/regions.h"

namespace buzz {

/// A policy's options: what it protects, its score's and its selection's.
template <class Select, class... Score>
struct PolicyOptions : Protect, Score..., Select::Options {
  PolicyOptions() : Protect(Select::protect()) {}

  /// The options whose regions take all of a budget: at most `rows` rows at once, those of a call of max_chunk tokens
  /// included, so that the policy's most_rows(max_chunk) == rows. The sink is the policy's own; `window_share` of
  /// what sink and call leave is the window, to the nearest row (without it as the paper has it, or half), and the
  /// middle gets the rest, one row at least where a selection needs it. Options other than sizes may be set afterwards.
  /// Errors: max_chunk < 1; rows out of sink + max_chunk + 1 to half the largest int; window_share out of 0 to 1. O(1).
  static PolicyOptions for_rows(int rows, int max_chunk = 1) {
    return sized(rows, max_chunk, [](int spare) { return Select::usual_window(spare); });
  }
  /// The same with that share of the spare rows as window.
  static PolicyOptions for_rows(int rows, int max_chunk, double window_share) {
    if (!is_finite(window_share) || window_share < 0 || window_share > 1)
      fail("window_share", std::to_string(window_share), "0 to 1");
    return sized(rows, max_chunk, [&](int spare) { return static_cast<int>(std::lround(window_share * spare)); });
  }

  /// BUZZ's sizes as published, for beehives.
  template <class S = Select>
  static PolicyOptions paper() {
    PolicyOptions o;
    S::as_published(o);
    return o;
  }

 private:
  template <class Window>
  static PolicyOptions sized(int rows, int max_chunk, Window&& window) {
    PolicyOptions o;
    require_range("max_chunk", max_chunk, 1, (std::numeric_limits<int>::max)() / 4);
    require_range("rows", rows, o.sink + max_chunk + 1LL, (std::numeric_limits<int>::max)() / 2);
    const int spare = rows - o.sink - max_chunk;
    o.window = (std::min)(window(spare), spare - Select::least_middle);
    Select::fit(o, spare - o.window, max_chunk);
    return o;
  }
};

}  // namespace buzz
