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
  } else if (const auto* none = select.as<KeepNone::Options>()) {
    rule.threshold = none->threshold;
  }
  return rule;
}

/// A score, in words.
inline std::string in_words(const ScoreSpec& score) {
  switch (score.kind) {
    case ScoreKind::none:
      return "no score";
    case ScoreKind::attention_sum:
      return "attention sum";
    case ScoreKind::user:
      return "user scores";
    case ScoreKind::key_diversity:
      return "key diversity";
    case ScoreKind::value_norm:
      return "value norm";
    case ScoreKind::recent_attention:
      return "recent attention";
    case ScoreKind::leverage:
      return "leverage";
    case ScoreKind::lag_kv:
      return "lag of keys and values";
    case ScoreKind::calibrated:
      return "calibrated weights";
    case ScoreKind::expected_attention:
      return "expected attention";
    case ScoreKind::tri_attention:
      return "attention over distances to come";
    case ScoreKind::cap_kv:
      return "capacity of values";
    case ScoreKind::sum:
      return "sum";
    case ScoreKind::faded:
      return "faded " + in_words(score.of[0]);
    case ScoreKind::own:
      break;
  }
  return "a score of one's own";
}

/// Of a policy that has been checked, with room for so many rows. Errors: a score, a sharing or a reduction that the
/// device does not have.
inline DevicePolicy on_device(const Policy& policy, int capacity) {
  DevicePolicy d;
  const bool faded = policy.score.kind == ScoreKind::faded;
  const ScoreSpec& score = faded ? policy.score.of[0] : policy.score;
  if (score.kind == ScoreKind::attention_sum)
    d.fold = {score.attention.attention, score.attention.decay};
  else if (score.kind == ScoreKind::key_diversity)
    d.diversity = score.diversity;
  else if (policy.score.kind != ScoreKind::none)
    fail("policy", (policy.name.empty() ? "" : policy.name + ": ") + in_words(policy.score),
         "attention sum or key diversity, faded or not, or no score: the device has no other");
  if (policy.sharing == Sharing::model)
    fail("sharing", "model", "head or layer: the device evicts each layer by itself");
  if (policy.sharing == Sharing::layer && policy.reduction.reduce != Reduction::sum)
    fail("reduce", "mean, maximum or top", "sum: the device has no other");
  if (faded) d.fade = policy.score.fading.fade / static_cast<float>(capacity);
  d.needs = score.needs();
  d.one_list = policy.keeps_one_list();
  d.rule = rule_of(policy.select);
  return d;
}

}  // namespace cuda
}  // namespace buzz
