#include "buzz/unrotated_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/policy_list.h"
#include "oracle_twin.h"

namespace {

using buzz::Rope;
using buzz::ShownRows;
using oracle::Element;
using oracle::refused;
using Floats = std::vector<float>;

/// Asks for un-rotated keys and keeps what it saw of the head that was asked last.
class Watching final : public buzz::Score {
 public:
  explicit Watching(std::vector<Floats>* seen) : seen_(seen) {}
  buzz::Needs needs() const override {
    buzz::Needs needs;
    needs.unrotated_keys = true;
    return needs;
  }
  void importance(const buzz::Candidates& c, double* out) override {
    seen_->assign(static_cast<std::size_t>(c.unrotated_keys->rows()), {});
    for (int d = 0; d < c.unrotated_keys->dim(); d += buzz::max_dims) {
      const int n = std::min(buzz::max_dims, c.unrotated_keys->dim() - d);
      buzz::for_each_row(*c.unrotated_keys, c.head, 0, c.unrotated_keys->rows(), d, n, [&](int r, const float* key) {
        Floats& row = (*seen_)[static_cast<std::size_t>(r)];
        row.insert(row.end(), key, key + n);
      });
    }
    for (int i = 0; i < c.count; ++i) out[i] = static_cast<double>((c.positions[c.first + i] * 7) % 10);
  }

 private:
  std::vector<Floats>* seen_;
};

buzz::Policy watching(std::vector<Floats>* seen) {
  buzz::TopK::Options o;
  o.heavy = 9;
  return buzz::policy(std::make_unique<Watching>(seen), o, {1, 3});
}

/// A cache of this Rope shows each key as it came, in whatever way it stores it, through evictions.
template <class T>
void shows_what_came(const Rope& rope, int dim, float tolerance) {
  std::vector<Floats> seen;
  buzz::BuzzCache<T> cache({1, 1, dim, 3}, watching(&seen), rope);
  const oracle::Text text;
  int evictions = 0;
  for (int call = 0; call < 30; ++call) {
    const int n = 1 + call % 3, first = cache.next_position();
    const Floats k = text.keys(first, n, 1, dim);
    const buzz::View<const float> rows(k.data(), n, 1, dim);
    cache.append(rows, rows);
    const std::vector<std::int32_t> positions(cache.positions(0).begin(), cache.positions(0).end());
    if (!cache.evict()) continue;
    ++evictions;
    ASSERT_EQ(seen.size(), positions.size());
    for (std::size_t r = 0; r < seen.size(); ++r) {
      const Floats came = text.keys(positions[r], 1, 1, dim);
      for (std::size_t d = 0; d < came.size(); ++d) ASSERT_NEAR(seen[r][d], came[d], tolerance) << positions[r];
    }
  }
  EXPECT_GT(evictions, 20);
}

Rope with(void (*set)(Rope&)) {
  Rope rope{10000.0};
  set(rope);
  return rope;
}

TEST(UnrotatedKeys, AreThoseThatCameInEveryRope) {
  shows_what_came<float>(Rope(), 8, 0);
  shows_what_came<float>(Rope{10000.0}, 8, 1e-6f);
  shows_what_came<float>(with([](Rope& r) { r.pairs = buzz::Pairs::halves; }), 8, 1e-6f);
  shows_what_came<float>(with([](Rope& r) { r.dims = 4; }), 10, 1e-6f);
  shows_what_came<float>(with([](Rope& r) { r.first = 3, r.dims = 4, r.pairs = buzz::Pairs::halves; }), 10, 1e-6f);
  shows_what_came<float>(with([](Rope& r) { r.attention_factor = 1.25; }), 8, 1e-6f);
  shows_what_came<float>(with([](Rope& r) { r.attention_factor = 0.5; }), 8, 1e-6f);
  shows_what_came<float>(with([](Rope& r) { r.positions = buzz::Positions::compact; }), 8, 0);  // stored as they came
}

TEST(UnrotatedKeys, OfMoreDimensionsThanABlock) {
  for (buzz::Pairs pairs : {buzz::Pairs::interleaved, buzz::Pairs::halves}) {
    Rope rope{10000.0};
    rope.pairs = pairs;
    shows_what_came<float>(rope, 600, 1e-6f);
    rope.first = 255;
    rope.dims = 64;
    shows_what_came<float>(rope, 600, 1e-6f);
  }
}

TEST(UnrotatedKeys, OfEveryType) {
  shows_what_came<Eigen::half>(Rope{10000.0}, 8, 2e-3f);
  shows_what_came<Eigen::bfloat16>(Rope{10000.0}, 8, 2e-2f);
  shows_what_came<std::int8_t>(Rope{10000.0}, 8, 2e-2f);
}

TEST(UnrotatedKeys, OfCompactPositionsAreRotatedBackFromTheirPlaces) {
  // A beehive moves rows so seldom that its keys are stored rotated.
  std::vector<Floats> seen;
  buzz::Segments::Options o;
  o.threshold = 20;
  Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  buzz::BuzzCache<float> cache({1, 1, 8}, buzz::policy(std::make_unique<Watching>(&seen), o, {2, 5}), rope);
  ASSERT_FALSE(cache.has_raw_keys());
  const oracle::Text text;
  int evictions = 0;
  while (cache.next_position() < 200) {
    const Floats k = text.keys(cache.next_position(), 1, 1, 8);
    const buzz::View<const float> row(k.data(), 1, 1, 8);
    cache.append(row, row);
    const std::vector<std::int32_t> positions(cache.positions(0).begin(), cache.positions(0).end());
    if (!cache.evict()) continue;
    ++evictions;
    for (std::size_t r = 0; r < seen.size(); ++r) {
      const Floats came = text.keys(positions[r], 1, 1, 8);
      for (std::size_t d = 0; d < came.size(); ++d) ASSERT_NEAR(seen[r][d], came[d], 3e-6f) << positions[r];
    }
  }
  EXPECT_GT(evictions, 5);
}

TEST(UnrotatedKeys, OfAnEngineAreThoseThatItsRopeRotated) {
  // An engine's evictor, told of the rows once, keeps what a cache keeps.
  Rope rope{10000.0};
  rope.attention_factor = 1.5;
  const buzz::Policy policy = buzz::policy("leverage:rows=24,max_chunk=1,window=4,heavy=12,threshold=15");
  buzz::BuzzCache<float> cache({2, 2, 8}, policy, rope);
  buzz::Evictor evictor(policy, 2, 1, 0, ShownRows{8, 0, rope});
  const oracle::Text text;
  for (int t = 0; t < 100; ++t) {
    const Floats k = text.keys(t, 1, 2, 8), v = text.values(t, 1, 2, 8);
    cache.append(buzz::View<const float>(k.data(), 1, 2, 8), buzz::View<const float>(v.data(), 1, 2, 8));
    evictor.append(1);
    ASSERT_EQ(evictor.rows(), cache.rows());
    const buzz::View<const float> keys = cache.keys(), values = cache.values();
    if (evictor.should_evict()) evictor.select(keys, values);
    cache.evict();
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < cache.rows(); ++r) ASSERT_EQ(evictor.positions(h)[r], cache.positions(h)[r]);
  }
  EXPECT_LT(cache.rows(), 25);
}

TEST(UnrotatedKeys, AreRefusedWhereNobodySaidHowTheyAreRotated) {
  std::vector<Floats> seen;
  EXPECT_EQ(refused([&] { buzz::Evictor(watching(&seen), 1); }), "head_dim");
  EXPECT_EQ(refused([] { buzz::Evictor(buzz::leverage(), 1); }), "head_dim");
  EXPECT_EQ(refused([] { buzz::Evictor(buzz::policy("leverage:of=values"), 1); }), "head_dim");
  EXPECT_EQ(refused([] { buzz::Evictor(buzz::leverage(), 1, 1, 0, ShownRows{8, -1}); }), "value_dim");
  EXPECT_EQ(refused([] { buzz::Evictor(buzz::leverage(), 1, 1, 0, ShownRows{1 << 17}); }), "head_dim");
  EXPECT_EQ(refused([] { buzz::Evictor(buzz::beehive(), 1, 1, 0, ShownRows{0, 8}); }), "value_dim");
  EXPECT_EQ(refused([] {
              buzz::Evictor(buzz::leverage(), 1, 1, 0, ShownRows{7, 0, Rope{10000.0}});
            }),
            "rope.dims (head_dim)");
  Rope several;
  several.multi_axis = true;
  EXPECT_EQ(refused([&] { buzz::Evictor(buzz::leverage(), 1, 1, 0, ShownRows{8, 0, several}); }), "rope.multi_axis");
  EXPECT_EQ(refused([&] { buzz::BuzzCache<float>({1, 1, 8}, buzz::leverage(), several); }), "rope.multi_axis");
  EXPECT_NO_THROW(buzz::BuzzCache<float>({1, 1, 8}, buzz::policy("leverage:of=values"), several));
}

TEST(UnrotatedKeys, OfOtherSizesThanWereSaidAreRefused) {
  buzz::TopK::Options o;
  o.heavy = 2;
  buzz::Evictor evictor(buzz::policy(buzz::leverage_score(), o, {0, 0}), 1, 4, 0, ShownRows{4, 3});
  evictor.append(4);
  const Floats numbers(16, 1.f);
  const auto rows = [&](int dim) { return buzz::View<const float>(numbers.data(), 1, 4, dim); };
  EXPECT_EQ(refused([&] { evictor.select(); }), "policy");
  EXPECT_EQ(refused([&] { evictor.select(rows(3), rows(3)); }), "keys.shape[2]");
  EXPECT_EQ(refused([&] { evictor.select(rows(4), rows(4)); }), "values.shape[2]");
  EXPECT_EQ(evictor.rows(), 4);
  evictor.select(rows(4), rows(3));
  EXPECT_EQ(evictor.rows(), 2);
}

TEST(UnrotatedKeys, AreNotShownToAScoreThatDoesNotAsk) {
  struct Plain final : buzz::Score {
    buzz::Needs needs() const override { return {false, true, false}; }
    void importance(const buzz::Candidates& c, double* out) override {
      EXPECT_EQ(c.unrotated_keys, nullptr);
      std::fill_n(out, c.count, 0.);
    }
  };
  buzz::TopK::Options o;
  o.heavy = 2;
  buzz::BuzzCache<float> cache({1, 1, 4, 4}, buzz::policy(std::make_unique<Plain>(), o, {0, 0}), Rope{10000.0});
  const Floats numbers(16, 1.f);
  cache.append(buzz::view(numbers, 4, 1, 4), buzz::view(numbers, 4, 1, 4));
  EXPECT_TRUE(cache.evict());
}

TEST(UnrotatedKeys, AreAskedForThroughScoresOfScores) {
  const buzz::ScoreSpec spec = buzz::faded(buzz::sum(buzz::leverage_score(), buzz::key_diversity()));
  EXPECT_TRUE(spec.needs().unrotated_keys);
  EXPECT_TRUE(spec.needs().keys);
  EXPECT_FALSE(spec.needs().values);
  // With nothing of the other score, and nothing that fades, the same rows stay.
  buzz::TopK::Options o;
  o.heavy = 5;
  for (const bool first : {true, false}) {
    const buzz::ScoreSpec one = buzz::leverage_score(), none = buzz::no_score();
    const buzz::ScoreSpec both = first ? buzz::sum(one, none) : buzz::sum(none, one);
    buzz::FadingOptions fading;
    fading.fade = 0;
    buzz::BuzzCache<float> cache({1, 1, 8}, buzz::policy(buzz::faded(both, fading), o, {0, 0}), Rope{10000.0});
    buzz::BuzzCache<float> alone({1, 1, 8}, buzz::policy(one, o, {0, 0}), Rope{10000.0});
    for (int t = 0; t < 40; ++t) {
      oracle::feed(cache, oracle::Text(), 1);
      oracle::feed(alone, oracle::Text(), 1);
      ASSERT_EQ(cache.rows(), alone.rows());
      for (int r = 0; r < cache.rows(); ++r) ASSERT_EQ(cache.positions(0)[r], alone.positions(0)[r]) << t;
    }
    EXPECT_EQ(cache.rows(), 5);
  }
}

}  // namespace
