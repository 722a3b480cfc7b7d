// Exactly so many rows: Evictor::select(to), evict_to() of caches.

#include "buzz/select/leave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "buzz/model_cache.h"
#include "buzz/policy_list.h"
#include "oracle.h"

namespace {

using Floats = std::vector<float>;
using Rows = std::vector<int>;

/// The field that f() is refused with.
template <class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const buzz::InvalidArgument& e) {
    return e.field();
  }
  return "nothing";
}

/// A policy of the user's scores that never evicts by itself, but for its selection's sizes.
buzz::Policy of(const std::string& text, buzz::ScoreSpec score = buzz::user_score()) {
  buzz::Policy p = buzz::policy(text);
  p.score = score;
  return p;
}

template <class C>
Rows held(const C& c, int head = 0) {
  return Rows(c.positions(head).begin(), c.positions(head).end());
}

/// What is left of `to` of ten rows with these scores of the middle, rows 1 to 8.
Rows left(const buzz::Policy& policy, int to, const Floats& middle, int pin = -1) {
  buzz::Evictor e(policy, 1, 10);
  e.append(10);
  Floats scores(10);
  std::copy(middle.begin(), middle.end(), scores.begin() + 1);
  if (policy.score.kind == buzz::ScoreKind::user) e.give(buzz::view(scores, 1, 1, 10));
  if (pin >= 0) e.pin(pin, 1);
  e.select(to);
  return held(e);
}

const Floats kMiddle = {5, 1, 4, 8, 2, 7, 6, 3};

TEST(Leave, TheBestOfAllUnderATopK) {
  const buzz::Policy p = of("heavy_hitter:sink=1,window=1,heavy=9");
  EXPECT_EQ(left(p, 10, kMiddle), (Rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(left(p, 6, kMiddle), (Rows{0, 1, 4, 6, 7, 9}));
  EXPECT_EQ(left(p, 3, kMiddle), (Rows{0, 4, 9}));
  EXPECT_EQ(left(p, 2, kMiddle), (Rows{0, 9}));
  EXPECT_EQ(left(p, 4, {1, 1, 1, 1, 1, 1, 1, 1}), (Rows{0, 1, 2, 9})) << "ties fall to the oldest";
}

TEST(Leave, IsBeyondTheSelectionsOwnSizes) {
  EXPECT_EQ(left(of("heavy_hitter:sink=1,window=1,heavy=3,threshold=9"), 8, kMiddle), (Rows{0, 1, 3, 4, 6, 7, 8, 9}))
      << "heavy does not count";
  EXPECT_EQ(left(of("full:capacity=10"), 3, kMiddle), (Rows{4, 6, 7})) << "no sink, no window";
}

TEST(Leave, TheBestOfEachChunkUnderABeehive) {
  const buzz::Policy p = of("beehive:sink=1,window=1,threshold=9,stride=4");
  EXPECT_EQ(left(p, 4, kMiddle), (Rows{0, 4, 6, 9})) << "of 5 1 4 8 and 2 7 6 3";
  EXPECT_EQ(left(p, 6, kMiddle), (Rows{0, 1, 4, 6, 7, 9})) << "two of each";
  EXPECT_EQ(left(p, 3, kMiddle), (Rows{0, 4, 9})) << "a chunk of eight";
  EXPECT_EQ(left(p, 2, kMiddle), (Rows{0, 9}));
  EXPECT_EQ(left(of("strided:sink=1,window=1,threshold=9,stride=4", buzz::no_score()), 4, {}), (Rows{0, 1, 5, 9}));
}

TEST(Leave, TheNewestWithoutAScore) {
  EXPECT_EQ(left(buzz::policy("streaming:sink=1,window=1,threshold=9"), 5, {}), (Rows{0, 6, 7, 8, 9}));
  EXPECT_EQ(left(buzz::policy("full:capacity=10"), 3, {}), (Rows{7, 8, 9}));
}

TEST(Leave, PinnedRowsStay) {
  const buzz::Policy p = of("heavy_hitter:sink=1,window=1,heavy=9");
  EXPECT_EQ(left(p, 4, kMiddle, 2), (Rows{0, 2, 4, 9}));
  EXPECT_EQ(left(p, 3, kMiddle, 2), (Rows{0, 2, 9}));
  EXPECT_EQ(refused([&] { left(p, 2, kMiddle, 2); }), "rows");
  EXPECT_EQ(left(p, 3, kMiddle, 0), (Rows{0, 4, 9})) << "one of the sink costs nothing";
  const buzz::Policy hive = of("beehive:sink=1,window=1,threshold=9,stride=4");
  EXPECT_EQ(left(hive, 3, kMiddle, 2), (Rows{0, 2, 9}));
  EXPECT_EQ(left(hive, 4, kMiddle, 2), (Rows{0, 2, 4, 9}));
}

TEST(Leave, FewerThanWhatIsProtectedIsRefused) {
  const buzz::Policy p = of("heavy_hitter:sink=2,window=3,heavy=9");
  buzz::Evictor e(p, 1, 10);
  EXPECT_EQ(e.least_rows(), 0);
  EXPECT_EQ(refused([&] { e.select(-1); }), "rows");
  EXPECT_EQ(e.select(0).size(), 0);
  e.append(1);
  EXPECT_EQ(e.least_rows(), 1);
  EXPECT_EQ(refused([&] { e.select(0); }), "rows");
  EXPECT_EQ(refused([&] { e.select(-7); }), "rows");
  EXPECT_EQ(e.select(1).size(), 1);
  e.append(9);
  e.pin(3, 2);
  e.pin(12, 1);
  EXPECT_EQ(e.least_rows(), 7);
  EXPECT_EQ(refused([&] { e.select(6); }), "rows");
  EXPECT_EQ(e.rows(), 10);
  EXPECT_TRUE(e.evicts(7));
  EXPECT_FALSE(e.evicts(10));
  EXPECT_FALSE(e.evicts({})) << "the policy wants none";
  EXPECT_EQ(e.select(7).size(), 7);
  EXPECT_EQ(held(e), (Rows{0, 1, 3, 4, 7, 8, 9}));
  EXPECT_EQ(e.least_rows(), 7);
}

TEST(Leave, WhatFollowsIsAsAfterAnEviction) {
  buzz::Evictor e(of("heavy_hitter:sink=1,window=1,heavy=3,threshold=9"), 1, 10, 10);
  e.append(10);
  e.select(5);
  EXPECT_EQ(e.regions(), (buzz::Regions{1, 3, 0, 1}));
  EXPECT_FALSE(e.can_rollback(1)) << "not past it";
  e.append(3);
  EXPECT_TRUE(e.can_rollback(3));
  EXPECT_EQ(e.regions(), (buzz::Regions{1, 3, 3, 1}));
  e.rollback(3);
  EXPECT_EQ(e.rows(), 5);
}

/// By head, by layer and by model, of random scores, beside the best by a sort.
TEST(Leave, IsTheBestByEverySharing) {
  std::mt19937 random(1);
  const auto in = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int i = 0; i < 600; ++i) {
    const int heads = in(1, 4), rows = in(0, 30), sink = in(0, 3), window = in(0, 5);
    buzz::Policy p = of("heavy_hitter:heavy=99,sink=" + std::to_string(sink) + ",window=" + std::to_string(window));
    p.sharing = static_cast<buzz::Sharing>(in(0, 2));
    buzz::Evictor e(p, heads, 30);
    e.append(rows);
    Floats scores(static_cast<std::size_t>(heads * rows));
    for (float& x : scores) x = static_cast<float>(in(0, 9));  // sums are exact, and ties many
    e.give(buzz::view(scores, 1, heads, rows));
    const int least = std::min(rows, sink + window), to = in(least, rows + 2);
    e.select(to);
    ASSERT_EQ(e.rows(), std::min(to, rows));
    for (int h = 0; h < heads; ++h) {
      Rows middle, expected;
      std::vector<double> of_row(static_cast<std::size_t>(rows));
      for (int r = 0; r < rows; ++r) {
        for (int other = 0; other < heads; ++other)
          if (other == h || p.sharing != buzz::Sharing::head)
            of_row[static_cast<std::size_t>(r)] +=
                static_cast<double>(scores[static_cast<std::size_t>(other * rows + r)]);
        (r >= sink && r < rows - window ? middle : expected).push_back(r);
      }
      const int left = std::min(static_cast<int>(middle.size()), to - static_cast<int>(expected.size()));
      for (int r : oracle::best(of_row, middle, left)) expected.push_back(r);
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(held(e, h), expected);
    }
  }
}

/// A beehive of random sizes leaves exactly so many, one at least of each stretch.
TEST(Leave, IsExactInEveryBeehive) {
  std::mt19937 random(2);
  const auto in = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int i = 0; i < 2000; ++i) {
    buzz::Segments::Options o;
    o.threshold = 99;
    o.keep = in(1, 4);
    o.stride = in(2, 6);
    buzz::Evictor e(buzz::policy(buzz::user_score(), o, {in(0, 3), in(0, 5)}), 1, 60);
    e.append(in(0, 60));
    if (e.rows() > 20 && in(0, 2) == 0) e.pin(in(0, 59), 1);
    const int to = in(e.least_rows(), 60), rows = e.rows();
    e.select(to);
    ASSERT_EQ(e.rows(), std::min(rows, to));
  }
}

TEST(Leave, InACacheMovesItsRows) {
  for (const char* more : {"", ",sharing=layer", ",sharing=model,reduce=mean"}) {
    buzz::Policy policy = buzz::policy("key_value_beehive:sink=1,window=1,threshold=20" + std::string(more));
    policy.score = buzz::value_norm();
    policy.select = buzz::TopK::Options{20, 0};
    buzz::Rope compact{10000.0};
    compact.positions = buzz::Positions::compact;
    buzz::BuzzCache<float> cache({1, 1, 2, 10}, policy, compact);
    Floats k(20), v(20), out(20);
    for (int i = 0; i < 20; ++i) v[static_cast<std::size_t>(i)] = static_cast<float>(i / 2 * 7 % 10);
    cache.append(buzz::view(k, 10, 1, 2), buzz::view(v, 10, 1, 2));
    EXPECT_FALSE(cache.evict());
    EXPECT_FALSE(cache.evict_to(10));
    EXPECT_TRUE(cache.evict_to(4));
    EXPECT_EQ(held(cache), (Rows{0, 4, 7, 9})) << "values 0 7 4 1 8 5 2 9 6 3";
    for (int r = 0; r < 4; ++r)
      EXPECT_EQ(cache.values().row(0, r)[0], (Floats{0, 8, 9, 3}[static_cast<std::size_t>(r)]));
    EXPECT_EQ(cache.next_rotary_position(), 4);
    EXPECT_EQ(refused([&] { cache.evict_to(1); }), "rows");
  }
}

TEST(Leave, InAModelLeavesSlidingLayersAlone) {
  for (const char* sharing : {"head", "layer", "model"}) {
    const buzz::Shape shape{1, 1, 2, 10};
    const buzz::Policy policy = buzz::policy("leverage:sink=1,window=1,heavy=20,sharing=" + std::string(sharing));
    buzz::ModelCache<float> model({{shape, policy}, buzz::sliding_layer(shape, 4), {shape, policy}});
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 3; ++i) {
      Floats x(20), out(20);
      for (float& one : x) one = normal(random);
      model.layer(i).attend(buzz::view(x, 10, 1, 2), buzz::view(x, 10, 1, 2), buzz::view(x, 10, 1, 2),
                            buzz::view(out, 10, 1, 2));
    }
    const int slides = model.rows(1);
    EXPECT_EQ(refused([&] { model.evict_to(1); }), "layer[0].rows");
    EXPECT_EQ(model.rows(0), 10);
    EXPECT_TRUE(model.evict_to(5));
    EXPECT_EQ(model.rows(0), 5);
    EXPECT_EQ(model.rows(1), slides);
    EXPECT_EQ(model.rows(2), 5);
    EXPECT_EQ(held(model.layer(0)) == held(model.layer(2)), std::string(sharing) == "model")
        << "other keys, other rows";
    EXPECT_FALSE(model.evict_to(5));
    EXPECT_EQ(refused([&] { model.layer(0).evict_to(3); }), std::string(sharing) == "model" ? "sharing" : "nothing");
  }
}

}  // namespace
