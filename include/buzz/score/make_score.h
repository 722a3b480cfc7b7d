#pragma once

#include "buzz/score/attention_sum.h"
#include "buzz/score/faded.h"
#include "buzz/score/key_diversity.h"
#include "buzz/score/no_score.h"
#include "buzz/score/recent_attention.h"
#include "buzz/score/spec.h"
#include "buzz/score/sum.h"
#include "buzz/score/user_scores.h"
#include "buzz/score/value_norm.h"

namespace buzz {

/// The score that a spec describes, before its reserve(). Errors: a sum of two that are stateful.
inline AnyScore make_score(const ScoreSpec& spec) {
  struct Make {
    AnyScore operator()(const NoScoreOptions&) const { return NoScore(); }
    AnyScore operator()(const AttentionSumOptions& o) const { return AttentionSum(o); }
    AnyScore operator()(const UserScoresOptions&) const { return UserScores(); }
    AnyScore operator()(const DiversityOptions& o) const { return KeyDiversity(o); }
    AnyScore operator()(const ValueNormOptions&) const { return ValueNorm(); }
    AnyScore operator()(const RecentAttentionOptions& o) const { return RecentAttention(o); }
    AnyScore operator()(const SumSpec& s) const { return Sum(make_score(s.of[0]), make_score(s.of[1]), s.weight); }
    AnyScore operator()(const FadedSpec& f) const { return Faded(make_score(f.of[0]), f.fading); }
    AnyScore operator()(const AnyScore& own) const { return own; }
  };
  return std::visit(Make(), spec.is);
}

}  // namespace buzz
