#pragma once

// Policies and caches whose options have types of their own: what tests that go over options, kinds of scores and
// selections are written in.

#include <utility>

#include "buzz/model_cache.h"
#include "buzz/policies.h"

namespace typed {

// A score as tests name it: its options, and the value that they make.
struct AttentionSum {
  static constexpr bool needs_attention = true, needs_kv = false;
  using Options = buzz::AttentionSumOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::attention_sum(o); }
};
struct NewestAttention {
  static constexpr bool needs_attention = true, needs_kv = false;
  using Options = buzz::NewestOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::attention_sum(o); }
};
struct RecentAttention {
  static constexpr bool needs_attention = true, needs_kv = false;
  using Options = buzz::RecentAttentionOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::recent_attention(o); }
};
struct KeyDiversity {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::DiversityOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::key_diversity(o); }
};
struct DirectionDiversity {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::DirectionOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::key_diversity(o); }
};
struct MiddleDiversity {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::MiddleDiversityOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::key_diversity(o); }
};
struct ValueNorm {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::ValueNormOptions;
  static buzz::ScoreSpec spec(const Options&) { return buzz::value_norm(); }
};
struct RidgeLeverage {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::RidgeOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::leverage_score(o); }
};
struct Lag {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::LagOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::lag_score(o); }
};
struct Weights {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::WeightsOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::calibrated_score(o); }
};
struct Expected {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::ExpectedOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::expected_score(o); }
};
struct Tri {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::TriOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::tri_score(o); }
};
struct Cap {
  static constexpr bool needs_attention = false, needs_kv = true;
  using Options = buzz::CapOptions;
  static buzz::ScoreSpec spec(const Options& o) { return buzz::cap_score(o); }
};
struct UserScores {
  static constexpr bool needs_attention = false, needs_kv = false;
  using Options = buzz::UserScoresOptions;
  static buzz::ScoreSpec spec(const Options&) { return buzz::user_score(); }
};
struct NoScore {
  static constexpr bool needs_attention = false, needs_kv = false;
  using Options = buzz::NoScoreOptions;
  static buzz::ScoreSpec spec(const Options&) { return buzz::no_score(); }
};
template <class A, class B>
struct Sum {
  static constexpr bool needs_attention = A::needs_attention || B::needs_attention,
                        needs_kv = A::needs_kv || B::needs_kv;
  struct Options : A::Options, B::Options {
    float weight = 1;
  };
  static buzz::ScoreSpec spec(const Options& o) { return buzz::sum(A::spec(o), B::spec(o), o.weight); }
};
template <class Score>
struct Faded {
  static constexpr bool needs_attention = Score::needs_attention, needs_kv = Score::needs_kv;
  struct Options : Score::Options, buzz::FadingOptions {};
  static buzz::ScoreSpec spec(const Options& o) { return buzz::faded(Score::spec(o), o); }
};
template <class Score>
struct Shared : Score {};
template <class Score>
constexpr buzz::Sharing sharing_of = buzz::Sharing::head;
template <class Score>
constexpr buzz::Sharing sharing_of<Shared<Score>> = buzz::Sharing::layer;

/// An evictor of a score and a selection.
template <class Score, class Select>
class Policy : public buzz::Evictor {
 public:
  static constexpr bool needs_attention = Score::needs_attention, needs_kv = Score::needs_kv;
  struct Options : buzz::PolicyOptions<Select, typename Score::Options> {
    using Base = buzz::PolicyOptions<Select, typename Score::Options>;
    Options() = default;
    Options(const Base& o) : Base(o) {}  // NOLINT: the same
    template <class... More>
    static Options for_rows(More... more) {
      return Base::for_rows(more...);
    }
    template <class S = Select>
    static Options paper() {
      return Base::template paper<S>();
    }
    bool moves_are_few(int max_chunk) const { return make(*this).moves_are_few(max_chunk); }
    int most_rows(int max_chunk) const { return make(*this).most_rows(max_chunk); }
  };
  static buzz::Policy make(const Options& o) {
    return buzz::policy(Score::spec(o), typename Select::Options(o), o, sharing_of<Score>);
  }
  using buzz::Evictor::capacity;
  static int capacity(const Options& o, int max_chunk) { return make(o).most_rows(max_chunk); }

  explicit Policy(const Options& o, int kv_heads, int max_chunk = 1, int max_rollback = 0,
                  const buzz::ShownRows& shown = {})
      : Evictor(make(o), kv_heads, max_chunk, max_rollback, shown), options_(o) {}
  Policy fork() const { return Policy(*this); }
  const Options& options() const { return options_; }

 private:
  Options options_;
};

using Beehive = Policy<AttentionSum, buzz::Segments>;
using Strided = Policy<NoScore, buzz::Segments>;
using DiverseBeehive = Policy<KeyDiversity, buzz::Segments>;
using KeyValueBeehive = Policy<Sum<KeyDiversity, ValueNorm>, buzz::Segments>;
using HeavyHitter = Policy<AttentionSum, buzz::TopK>;
using KeyDiff = Policy<DirectionDiversity, buzz::TopKOfAll>;
using KeyOutliers = Policy<Shared<Faded<MiddleDiversity>>, buzz::TopKOfHistory>;
using Leverage = Policy<RidgeLeverage, buzz::TopKSeldom>;
using LagKv = Policy<Lag, buzz::TopKSeldom>;
using Calibrated = Policy<Weights, buzz::TopKOfText>;
using ExpectedAttention = Policy<Expected, buzz::TopKSeldom>;
using TriAttention = Policy<Tri, buzz::TopKSeldom>;
using CapKv = Policy<Cap, buzz::TopKSeldom>;
using Tova = Policy<Shared<NewestAttention>, buzz::TopKOfAll>;
using SnapKv = Policy<RecentAttention, buzz::TopKOfPrefix>;
using Streaming = Policy<NoScore, buzz::KeepNone>;
using Full = Policy<NoScore, buzz::KeepAll>;
using Options = Beehive::Options;

/// A cache of such a policy.
template <class T, class P = Beehive>
class Cache : public buzz::BuzzCache<T> {
 public:
  using Policy = P;
  using Options = typename P::Options;
  explicit Cache(const buzz::Shape& shape, const Options& o = {}, const buzz::Rope& rope = {},
                 const buzz::AttentionOptions& attention = {})
      : buzz::BuzzCache<T>(shape, P::make(o), rope, attention), options_(o) {}
  Cache fork() const { return Cache(buzz::BuzzCache<T>::fork(), options_); }
  const buzz::Evictor& policy() const { return this->evictor(); }
  const Options& options() const { return options_; }

 private:
  Cache(buzz::BuzzCache<T> cache, const Options& o) : buzz::BuzzCache<T>(std::move(cache)), options_(o) {}
  Options options_;
};

/// A model's caches of such a policy.
template <class T, class P = Beehive>
class Model : public buzz::ModelCache<T> {
 public:
  using Options = typename P::Options;
  template <class... More>
  Model(const buzz::Shape& shape, const std::vector<Options>& options, const More&... more)
      : buzz::ModelCache<T>(shape, made(options), more...) {}
  Model fork() const { return Model(buzz::ModelCache<T>::fork()); }

 private:
  explicit Model(buzz::ModelCache<T> model) : buzz::ModelCache<T>(std::move(model)) {}
  static std::vector<buzz::Policy> made(const std::vector<Options>& options) {
    std::vector<buzz::Policy> all;
    for (const Options& o : options) all.push_back(P::make(o));
    return all;
  }
};

}  // namespace typed
