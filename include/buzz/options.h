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
template <class Score, class Select>
struct PolicyOptions : Protect, Score::Options, Select::Options {
  PolicyOptions() : Protect(Select::protect()) {}

  /// The options whose regions take all of a budget: at most `rows` rows at once, those of a call of max_chunk tokens
  /// included, so that Policy::capacity(options, max_chunk) == rows. The sink is the policy's own; `window_share` of
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

  /// Most rows that there can be with calls of max_chunk tokens. Errors: an option, or the sum, out of its range.
  int most_rows(int max_chunk) const {
    require_at_least("sink", this->sink, 0);
    require_at_least("window", this->window, 0);
    Score::check(*this);
    Select::check(*this);
    require_at_least("max_chunk", max_chunk, 1);
    const long long rows = Select::bound(*this, max_chunk) + this->sink + this->window;
    require_range("sink + window + threshold + max_chunk", rows, 1, (std::numeric_limits<int>::max)() / 2);
    return static_cast<int>(rows);
  }

  /// Is a row moved at most few_moves times before it is dropped, with calls of max_chunk tokens and nothing pinned? So
  /// few that keys may be rotated anew at each move. The options have been checked. O(1).
  bool moves_are_few(int max_chunk) const { return Select::most_moves(*this, this->window, max_chunk) <= few_moves; }

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
