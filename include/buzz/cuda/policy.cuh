#pragma once

#include <string>

#include "buzz/cuda/rule.cuh"
#include "buzz/cuda/score.cuh"
#include "buzz/policy.h"

namespace buzz {
namespace cuda {

/// What the device makes of a policy.
struct DevicePolicy {
  Needs needs;                 ///< what its score has to see: attention, keys, or nothing
  Fold fold;                   ///< how attention is added up, where it sees that
  DiversityOptions diversity;  ///< how keys are compared, and with which, where it sees those
  float fade = 0;              ///< what a row loses with each token of its age
  bool one_list = false;       ///< do all heads keep the same rows?
  Rule rule;                   ///< which rows stay, and when
};

/// The rule of a selection, whose options have been checked.
inline Rule rule_of(const Selection& select) {
  Rule rule;
  if (const auto* segments = select.as<Segments::Options>()) {
    rule.kind = Rule::Kind::chunks;
    rule.thin = Segments::thin(*segments);
    rule.threshold = segments->threshold;
  } else if (const auto* best = select.as<TopK::Options>()) {
    rule.heavy = best->heavy;
    rule.threshold = best->threshold != 0 ? best->threshold : best->heavy;
  } else if (const auto* nothing = select.as<KeepNone::Options>()) {
    rule.threshold = nothing->threshold;
  }
  return rule;
}

/// A score, in words.
inline std::string in_words(const ScoreSpec& score) {
  if (const auto* f = score.as<FadedSpec>()) return "faded " + in_words(f->of[0]);
  if (score.as<NoScoreOptions>()) return "no score";
  if (score.as<AttentionSumOptions>()) return "attention sum";
  if (score.as<DiversityOptions>()) return "key diversity";
  if (score.as<UserScoresOptions>()) return "user scores";
  if (score.as<ValueNormOptions>()) return "value norm";
  if (score.as<RecentAttentionOptions>()) return "recent attention";
  return score.as<SumSpec>() ? "sum" : "a score of one's own";
}

/// Of a policy that has been checked, with room for so many rows. Errors: a score that the device does not have.
inline DevicePolicy on_device(const Policy& policy, int capacity) {
  DevicePolicy d;
  const auto* faded = policy.score.as<FadedSpec>();
  const ScoreSpec& score = faded != nullptr ? faded->of[0] : policy.score;
  if (const auto* attention = score.as<AttentionSumOptions>())
    d.fold = {attention->attention, attention->decay};
  else if (const auto* diversity = score.as<DiversityOptions>())
    d.diversity = *diversity;
  else if (!policy.score.as<NoScoreOptions>())
    fail("policy", (policy.name.empty() ? "" : policy.name + ": ") + in_words(policy.score),
         "attention sum or key diversity, faded or not, or no score: the device has no other");
  if (faded != nullptr) d.fade = faded->fading.fade / static_cast<float>(capacity);
  d.needs = score.needs();
  d.one_list = policy.keeps_one_list();
  d.rule = rule_of(policy.select);
  return d;
}

}  // namespace cuda
}  // namespace buzz
