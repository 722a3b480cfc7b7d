#pragma once

#include "buzz/policies.h"
#include "buzz/value/policy.h"
#include "buzz/value/score/attention_sum.h"
#include "buzz/value/score/by_row.h"
#include "buzz/value/score/combined.h"
#include "buzz/value/score/key_diversity.h"
#include "buzz/value/score/recent_attention.h"

namespace buzz {
namespace value {

/// A score of one's own, or any other, with a selection: a class derived from Score that can be copied.
template <class S>
Policy policy(std::unique_ptr<S> score, const Selection& select, const Protect& protect = {},
              Sharing sharing = Sharing::head) {
  return {"", AnyScore(std::move(score)), select, protect, sharing};
}

/// The named policies, each of its options.
/// @{
namespace named {
template <class Score, class Select>
Policy make(const char* name, AnyScore score, const PolicyOptions<Score, Select>& o, Sharing sharing = Sharing::head) {
  return {name, std::move(score), Selection(static_cast<const typename Select::Options&>(o)),
          static_cast<const Protect&>(o), sharing};
}
using BeehiveOptions = PolicyOptions<Mass, Segments>;
using StridedOptions = PolicyOptions<buzz::NoScore, Segments>;
using DiverseOptions = PolicyOptions<buzz::KeyDiversity, Segments>;
using KeyValueOptions = PolicyOptions<Mixed<buzz::KeyDiversity, buzz::ValueNorm>, Segments>;
using HeavyHitterOptions = PolicyOptions<Mass, TopK>;
using KeyDiffOptions = PolicyOptions<DirectionDiversity, TopKOfAll>;
using KeyOutliersOptions = PolicyOptions<Shared<Fading<MiddleDiversity>>, TopKOfHistory>;
using TovaOptions = PolicyOptions<Shared<NewestMass>, TopKOfAll>;
using SnapKvOptions = PolicyOptions<RecentMass, TopKOfPrefix>;
using UserOptions = PolicyOptions<buzz::Given, Segments>;
using StreamingOptions = PolicyOptions<buzz::NoScore, Nothing>;
using FullOptions = PolicyOptions<buzz::NoScore, Everything>;
}  // namespace named

/// BUZZ (arXiv 2410.23079): summed attention, the heaviest row of each chunk.
inline Policy beehive(const named::BeehiveOptions& o = {}) { return named::make("beehive", AttentionSum(o), o); }
/// BUZZ without scores: the first row of each chunk (the authors' `no max`).
inline Policy strided(const named::StridedOptions& o = {}) { return named::make("strided", NoScore(), o); }
/// The beehive's even choice, of the keys that are least like the others.
inline Policy diverse_beehive(const named::DiverseOptions& o = {}) {
  return named::make("diverse_beehive", KeyDiversity(o), o);
}
/// The same where a row's value counts as much as its key.
inline Policy key_value_beehive(const named::KeyValueOptions& o = {}) {
  return named::make("key_value_beehive", Sum(KeyDiversity(o), ValueNorm(), o.weight), o);
}
/// H2O (arXiv 2306.14048): summed attention, the heaviest rows of all.
inline Policy heavy_hitter(const named::HeavyHitterOptions& o = {}) {
  return named::make("heavy_hitter", AttentionSum(o), o);
}
/// KeyDiff (arXiv 2504.15364): of all rows the keys that are least like the others.
inline Policy key_diff(const named::KeyDiffOptions& o = {}) { return named::make("key_diff", KeyDiversity(o), o); }
/// A long window, and behind it the keys least like the others there, the older the less, one list for all heads.
inline Policy key_outliers(const named::KeyOutliersOptions& o = {}) {
  return named::make("key_outliers", Faded(KeyDiversity(o), o), o, Sharing::layer);
}
/// TOVA (arXiv 2401.06104): those to which the newest query gave most, summed over all heads.
inline Policy tova(const named::TovaOptions& o = {}) { return named::make("tova", AttentionSum(o), o, Sharing::layer); }
/// SnapKV (arXiv 2404.14469): the last queries' attention, pooled; the heaviest rows before their window.
inline Policy snap_kv(const named::SnapKvOptions& o = {}) { return named::make("snap_kv", RecentAttention(o), o); }
/// The beehive's even choice by the user's own scores.
inline Policy user_scores(const named::UserOptions& o = {}) { return named::make("user_scores", UserScores(), o); }
/// StreamingLLM (arXiv 2309.17453): sink and window; with sink 0 a sliding window.
inline Policy streaming(const named::StreamingOptions& o = {}) { return named::make("streaming", NoScore(), o); }
/// No eviction, up to a capacity.
inline Policy full(const named::FullOptions& o = {}) { return named::make("full", NoScore(), o); }
/// @}

/// A policy of the list, by its name.
struct PolicyInfo {
  const char* name;                             ///< in programs and tables
  const char* text;                             ///< one sentence
  Policy (*make)();                             ///< with its own options
  Policy (*for_rows)(int rows, int max_chunk);  ///< with the sizes that take all of a budget
};

/// All named policies. What each needs, where it may run and its options are the made policy's: needs(),
/// keeps_one_list(), options().
inline const std::vector<PolicyInfo>& policies() {
  using namespace named;
#define BUZZ_POLICY(name, Options, text)                                                                              \
  {                                                                                                                   \
#name, text, [] { return name(); },                                                                               \
                                     [](int rows, int max_chunk) { return name(Options::for_rows(rows, max_chunk)); } \
  }
  static const std::vector<PolicyInfo> all = {
      BUZZ_POLICY(beehive, BeehiveOptions, "BUZZ: summed attention, the heaviest row of each chunk"),
      BUZZ_POLICY(strided, StridedOptions, "BUZZ without scores: the first row of each chunk"),
      BUZZ_POLICY(diverse_beehive, DiverseOptions, "of each chunk the key least like the others"),
      BUZZ_POLICY(key_value_beehive, KeyValueOptions, "of each chunk the least alike key and the longest value"),
      BUZZ_POLICY(heavy_hitter, HeavyHitterOptions, "H2O: summed attention, the heaviest rows of all"),
      BUZZ_POLICY(key_diff, KeyDiffOptions, "KeyDiff: of all rows the keys least like the others"),
      BUZZ_POLICY(key_outliers, KeyOutliersOptions, "a long window, and the keys least like the others before it"),
      BUZZ_POLICY(tova, TovaOptions, "TOVA: of all rows those that the newest query looks at most"),
      BUZZ_POLICY(snap_kv, SnapKvOptions, "SnapKV: the last queries' attention, pooled over neighbours"),
      BUZZ_POLICY(user_scores, UserOptions, "of each chunk the row that the user's own scores put first"),
      BUZZ_POLICY(streaming, StreamingOptions, "StreamingLLM: sink and window alone"),
      BUZZ_POLICY(full, FullOptions, "no eviction, up to a capacity"),
  };
#undef BUZZ_POLICY
  return all;
}

}  // namespace value
}  // namespace buzz
