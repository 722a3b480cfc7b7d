#pragma once

#include "buzz/score/attention_sum.h"
#include "buzz/score/calibrated.h"
#include "buzz/score/cap_kv.h"
#include "buzz/score/expected_attention.h"
#include "buzz/score/faded.h"
#include "buzz/score/key_diversity.h"
#include "buzz/score/lag_kv.h"
#include "buzz/score/leverage.h"
#include "buzz/score/no_score.h"
#include "buzz/score/recent_attention.h"
#include "buzz/score/spec.h"
#include "buzz/score/sum.h"
#include "buzz/score/tri_attention.h"
#include "buzz/score/user_scores.h"
#include "buzz/score/value_norm.h"

namespace buzz {

/// The score that a spec describes, before its reserve(). Errors: a sum of two that are stateful.
inline AnyScore make_score(const ScoreSpec& spec) {
  switch (spec.kind) {
    case ScoreKind::none:
      return NoScore();
    case ScoreKind::attention_sum:
      return AttentionSum(spec.attention);
    case ScoreKind::user:
      return UserScores();
    case ScoreKind::key_diversity:
      return KeyDiversity(spec.diversity);
    case ScoreKind::value_norm:
      return ValueNorm();
    case ScoreKind::recent_attention:
      return RecentAttention(spec.recent);
    case ScoreKind::leverage:
      return Leverage(spec.leverage);
    case ScoreKind::lag_kv:
      return LagKv(spec.lag);
    case ScoreKind::calibrated:
      return Calibrated(spec.calibrated);
    case ScoreKind::expected_attention:
      return ExpectedAttention(spec.expected);
    case ScoreKind::tri_attention:
      return TriAttention(spec.tri);
    case ScoreKind::cap_kv:
      return CapKv(spec.cap);
    case ScoreKind::sum:
      return Sum(make_score(spec.of[0]), make_score(spec.of[1]), spec.weight);
    case ScoreKind::faded:
      return Faded(make_score(spec.of[0]), spec.fading);
    case ScoreKind::own:
      break;
  }
  return spec.score;
}

}  // namespace buzz
