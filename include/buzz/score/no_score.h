#pragma once

#include <algorithm>

#include "buzz/score/kinds.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: every row is as important as any other, so that a choice falls on the oldest: for policies that go by index.
class NoScore final : public Score {
 public:
  Needs needs() const override { return needs_of(NoScoreOptions()); }
  void importance(const Candidates& c, double* out) override { std::fill_n(out, c.count, 0.); }
};

}  // namespace buzz
