#include "buzz/score/calibrated.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "buzz/model_cache.h"
#include "buzz/policy_list.h"
#include "oracle_twin.h"

namespace {

using buzz::CalibratedModel;
using buzz::Calibration;
using oracle::refused;
using Floats = std::vector<float>;
using Rows = std::vector<int>;
using Weights = std::shared_ptr<const Calibration>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// Of a model of so many layers, one head, keys and values of one dimension: weights 1, 10 and 100, times the sign.
Weights weights(int layers, int layer, float sign = 1) {
  auto c = std::make_shared<Calibration>(CalibratedModel{"made up", layers, 1, 1, 1});
  c->set(layer, {sign, 10 * sign, 100 * sign});
  return c;
}
buzz::WeightsOptions options(Weights w, int layer = -1) {
  buzz::WeightsOptions o;
  o.weights = std::move(w);
  o.layer = layer;
  return o;
}

/// What the score says of rows [first, first + count) of every head, one after the other; keys [heads, rows, key_dim].
/// positions: of rows, where the score has a trail.
Floats scored(buzz::Calibrated& score, const Floats& keys, int key_dim, const Floats& values, int value_dim, int heads,
              int first, int count, const Rows& positions = {}) {
  const int rows = static_cast<int>(keys.size()) / key_dim / heads;
  const buzz::RowsView<float> k(buzz::View<const float>(keys.data(), heads, rows, key_dim)),
      v(buzz::View<const float>(values.data(), heads, rows, value_dim));
  const buzz::FloatRowsOf<float> ks(k), vs(v);
  Floats all;
  for (int h = 0; h < heads; ++h) {
    std::vector<double> out(static_cast<std::size_t>(count));
    score.importance({h, first, count, positions.data(), rows, nullptr, &vs, &ks}, out.data());
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}
buzz::Calibrated made(const buzz::WeightsOptions& o, int heads, int capacity) {
  buzz::Calibrated score(o);
  score.reserve(heads, capacity);
  score.append(0, capacity);
  return score;
}

TEST(Calibrated, IsTheSumOfWeightedNumbersAndTheBias) {
  buzz::Calibrated score = made(options(weights(1, 0)), 1, 3);
  EXPECT_EQ(scored(score, {1, 2, 3}, 1, {5, 6, -7}, 1, 1, 0, 3), (Floats{151, 162, 33}));
  EXPECT_EQ(scored(score, {1, 2, 3}, 1, {5, 6, -7}, 1, 1, 2, 1), Floats{33});
  EXPECT_TRUE(scored(score, {1, 2, 3}, 1, {5, 6, -7}, 1, 1, 3, 0).empty());
}

TEST(Calibrated, IsMadeWhenARowIsFirstAskedAboutAndOnce) {
  buzz::Calibrated score = made(options(weights(1, 0)), 1, 3);
  EXPECT_EQ(scored(score, {1, 2, 3}, 1, {0, 0, 0}, 1, 1, 0, 2), (Floats{101, 102}));
  EXPECT_EQ(scored(score, {7, 8, 9}, 1, {0, 0, 0}, 1, 1, 0, 3), (Floats{101, 102, 109})) << "row 2 is new";
  score.append(1, 2);  // after a rollback
  EXPECT_EQ(scored(score, {7, 8, 9}, 1, {0, 0, 0}, 1, 1, 0, 3), (Floats{101, 108, 109}));
}

TEST(Calibrated, OfARowThatIsNotFiniteOrFarOutIsNan) {
  buzz::Calibrated score = made(options(weights(1, 0)), 1, 5);
  const Floats got = scored(score, {kNan, 1, kInf, 2, 3e38f}, 1, {0, -kInf, 0, 3, 3e38f}, 1, 1, 0, 5);
  for (std::size_t i : {0u, 1u, 2u, 4u}) EXPECT_TRUE(buzz::is_nan(got[i])) << i;
  EXPECT_EQ(got[3], 132);
}

TEST(Calibrated, IsTheOraclesInAnyShape) {
  oracle::Random random(29);
  for (int i = 0; i < 300; ++i) {
    const int heads = random.in(1, 4), n = random.in(1, 20), key_dim = i % 40 == 0 ? 300 : random.in(1, 20),
              value_dim = i % 40 == 1 ? 600 : random.in(1, 20), first = random.in(0, n),
              count = random.in(0, n - first);
    const float scale = random.of({1.f, 1e-20f, 1e20f});
    const auto numbers = [&](int dim) {
      Floats x(static_cast<std::size_t>(heads * n * dim));
      for (float& f : x) f = scale * random.real();
      if (random.one_in(4)) x[static_cast<std::size_t>(random.in(0, heads * n * dim - 1))] = random.of({kNan, -kInf});
      return x;
    };
    const Floats keys = numbers(key_dim), values = numbers(value_dim);
    buzz::Calibrated score = made(options(oracle::made_up_calibration(heads, key_dim, value_dim)), heads, n);
    const Floats got = scored(score, keys, key_dim, values, value_dim, heads, first, count);
    for (int h = 0; h < heads; ++h)
      for (int r = 0; r < count; ++r) {
        const auto row = [&](const Floats& x, int dim) {
          const auto at = x.begin() + static_cast<std::ptrdiff_t>(h * n + first + r) * dim;
          return oracle::Vector(at, at + dim);
        };
        oracle::Row one;
        one.key = row(keys, key_dim);
        one.value = row(values, value_dim);
        const double exact = oracle::calibrated(one, h),
                     x = static_cast<double>(got[static_cast<std::size_t>(h * count + r)]);
        if (!buzz::is_finite(exact))
          ASSERT_TRUE(buzz::is_nan(x)) << "case " << i;
        else
          ASSERT_NEAR(x, exact, 1e-6 * static_cast<double>(scale) * (key_dim + value_dim) + 1e-6) << "case " << i;
      }
  }
}

TEST(Calibrated, IsTheForetoldAttentionToAPower) {
  buzz::WeightsOptions o = options(weights(1, 0));
  const Floats keys = {0, -0.5f, -3, kNan}, values = {-10, -10.1f, -9.9f, 0};
  buzz::Calibrated plain = made(o, 1, 4);
  const Floats logs = scored(plain, keys, 1, values, 1, 1, 0, 4);
  for (float power : {0.25f, 1.f, 10.f}) {
    o.power = power;
    buzz::Calibrated raised = made(o, 1, 4);
    const Floats got = scored(raised, keys, 1, values, 1, 1, 0, 4);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_FLOAT_EQ(got[i], std::pow(std::exp(logs[i]), power)) << i << " " << power;
    EXPECT_TRUE(buzz::is_nan(got[3]));
  }
  for (float power : {-0.1f, 10.5f, kInf, kNan}) {
    o.power = power;
    EXPECT_EQ(refused([&] { check(o); }), "power");
  }
}

/// What the score says of a head's rows, asked about one after another, as they come: of one dimension, at `positions`.
Floats asked(const buzz::WeightsOptions& o, const Floats& keys, const Rows& positions) {
  const int n = static_cast<int>(keys.size());
  buzz::Calibrated score = made(o, 1, n);
  const auto of_rows = [&](int rows, int first, int count) {
    const Floats values(static_cast<std::size_t>(rows), -10);  // so that a row's number is its key
    return scored(score, Floats(keys.begin(), keys.begin() + rows), 1, values, 1, 1, first, count, positions);
  };
  for (int rows = 0; rows <= n; ++rows) {
    const int first = (std::min)(1, rows);  // there is a sink, and every second time a row more is protected
    of_rows(rows, first, (std::max)(0, rows - first - rows % 2));
  }
  return of_rows(n, 0, n);
}

// The slow way: every row's share in every later one, in the power mean, from the first or from the last that is none.
TEST(Calibrated, LeavesATrail) {
  oracle::Random random(31);
  for (int i = 0; i < 200; ++i) {
    const std::size_t n = static_cast<std::size_t>(random.in(0, 12));
    Floats keys(n);
    Rows positions;
    for (std::size_t r = 0; r < n; ++r) {
      keys[r] = random.one_in(6) ? kNan : random.real();
      positions.push_back((r == 0 ? 0 : positions.back()) + (random.one_in(3) ? random.in(1, 20) : 1));
    }
    buzz::WeightsOptions o = options(weights(1, 0));
    o.power = random.of({0.f, 0.1f, 1.f, 10.f});
    o.trail = random.of({0.5f, 2.f, 1000.f});
    const Floats got = asked(o, keys, positions);
    const double power = static_cast<double>(o.power);
    for (std::size_t r = 0; r < n; ++r) {
      if (buzz::is_nan(keys[r])) {
        EXPECT_TRUE(buzz::is_nan(got[r]));
        continue;
      }
      std::size_t first = r;
      while (first > 0 && !buzz::is_nan(keys[first - 1])) --first;
      double mean = 0;
      for (std::size_t s = first; s <= r; ++s) {
        const auto left = [&](std::size_t at) {
          return std::exp((positions[at] - positions[r]) / static_cast<double>(o.trail));
        };
        const double share = left(s) - (s == first ? 0 : left(s - 1)), x = static_cast<double>(keys[s]);
        mean += share * (power > 0 ? std::exp(power * x) : x);
      }
      EXPECT_NEAR(static_cast<double>(got[r]), mean, 1e-4 * std::abs(mean) + 1e-5) << i << " " << r;
    }
  }
  for (float trail : {-0.1f, 1000.5f, kInf, kNan}) {
    buzz::WeightsOptions o;
    o.trail = trail;
    EXPECT_EQ(refused([&] { check(o); }), "trail");
  }
}

/// The positions that a cache of that policy holds after tokens with these keys and values.
template <class Cache>
Rows kept(Cache& cache, const Floats& keys) {
  for (float key : keys) {
    const float x[] = {key};
    float out[1];
    const buzz::View<const float> token(x, 1, 1, 1);
    cache.attend(token, token, token, buzz::View<float>(out, 1, 1, 1));
  }
  return Rows(cache.positions(0).begin(), cache.positions(0).end());
}
buzz::Policy best_two(const buzz::WeightsOptions& o) {
  buzz::TopK::Options two;
  two.heavy = 2;
  return buzz::policy(buzz::calibrated_score(o), two, {1, 1});
}

TEST(Calibrated, KeepsTheRowsOfTheHighestEstimate) {
  buzz::BuzzCache<float> cache({1, 1, 1}, best_two(options(weights(1, 0))));
  EXPECT_EQ(kept(cache, {1, 2, 9, -4, 7, 3}), (Rows{0, 2, 4, 5}));
  buzz::BuzzCache<float> least({1, 1, 1}, best_two(options(weights(1, 0, -1))));
  EXPECT_EQ(kept(least, {1, 2, 9, -4, 7, 3}), (Rows{0, 1, 3, 5}));
}

TEST(Calibrated, OfAModelHasEachLayersOwnWeights) {
  auto c = std::make_shared<Calibration>(CalibratedModel{"made up", 3, 1, 1, 1});
  c->set(0, {1, 0, 0});
  c->set(2, {-1, 0, 0});
  const buzz::Policy policy = best_two(options(c));
  const buzz::Layer layer{{1, 1, 1}, policy}, sliding = buzz::sliding_layer({1, 1, 1}, 4);
  buzz::ModelCache<float> model({layer, sliding, layer});
  EXPECT_EQ(kept(model.layer(0), {1, 2, 9, -4, 7, 3}), (Rows{0, 2, 4, 5}));
  EXPECT_EQ(kept(model.layer(2), {1, 2, 9, -4, 7, 3}), (Rows{0, 1, 3, 5}));
  EXPECT_EQ(buzz::ModelCache<float>::memory_of({layer, sliding, layer}).total(), model.bytes());
  EXPECT_EQ(refused([&] { buzz::ModelCache<float>({layer, layer, layer}); }), "layer[1].layer");
  buzz::BuzzCache<float> alone({1, 1, 1}, buzz::policy(buzz::faded(policy.score), policy.select, {1, 1}).for_layer(2));
  EXPECT_EQ(kept(alone, {1, 2, 9, -4, 7, 3}), (Rows{0, 1, 3, 5}));
}

TEST(Calibrated, RefusesWeightsThatDoNotFitByName) {
  const auto cache = [](const buzz::WeightsOptions& o, const buzz::Shape& shape = {1, 1, 1}) {
    return refused([&] { buzz::BuzzCache<float>(shape, best_two(o)); });
  };
  EXPECT_EQ(cache(options(nullptr)), "weights");
  EXPECT_EQ(cache(options(weights(1, 0))), "nothing");
  EXPECT_EQ(cache(options(weights(1, 0), 0)), "nothing");
  EXPECT_EQ(cache(options(weights(1, 0), 1)), "layer");
  EXPECT_EQ(cache(options(weights(2, 0), 0)), "nothing");
  EXPECT_EQ(cache(options(weights(2, 0), 1)), "layer") << "it has none";
  EXPECT_EQ(cache(options(weights(2, 0))), "layer") << "it was not said";
  EXPECT_EQ(cache(options(weights(2, 0), -2)), "layer");
  EXPECT_EQ(cache(options(weights(1, 0)), {2, 2, 1}), "weights.kv_heads");
  EXPECT_EQ(cache(options(weights(1, 0)), {1, 1, 2}), "weights.key_dim");
  buzz::Shape shape{1, 1, 1};
  shape.value_dim = 2;
  EXPECT_EQ(cache(options(weights(1, 0)), shape), "weights.value_dim");
  buzz::Rope several;
  several.multi_axis = true;
  EXPECT_EQ(refused([&] {
              buzz::BuzzCache<float>({1, 1, 1}, best_two(options(weights(1, 0))), several);
            }),
            "rope.multi_axis");
  EXPECT_EQ(refused([&] { buzz::Evictor(best_two(options(weights(1, 0))), 1); }), "head_dim");
}

TEST(Calibrated, IsSavedWithWhichWeightsAndWhichLayer) {
  const auto cache = [](const buzz::WeightsOptions& o) { return buzz::BuzzCache<float>({1, 1, 1}, best_two(o)); };
  auto both = std::make_shared<Calibration>(CalibratedModel{"made up", 2, 1, 1, 1});
  for (int i : {0, 1}) both->set(i, {1, 10, 100});
  buzz::BuzzCache<float> saved = cache(options(both, 1));
  kept(saved, {1, 2, 9, -4, 7, 3});
  const std::string file = oracle::bytes_of(saved);
  const auto loads = [&](const buzz::WeightsOptions& o) {
    return refused<buzz::FileError>([&] {
      std::istringstream in(file);
      cache(o).load(in);
    });
  };
  EXPECT_EQ(loads(options(std::make_shared<Calibration>(*both), 1)), "nothing");
  EXPECT_EQ(loads(options(both, 0)), "layer");
  EXPECT_EQ(loads(options(weights(2, 1, -1), 1)), "weights");
}

TEST(Calibrated, TakesAFileByText) {
  const std::string path = testing::TempDir() + "calibrated_test.calibration";
  buzz::save_file(*weights(2, 1), path);
  const std::string text = "calibrated:weights=" + path + ",layer=1,heavy=3,threshold=3";
  const buzz::Policy policy = buzz::policy(text);
  EXPECT_EQ(policy.score.calibration()->checksum(), weights(2, 1)->checksum());
  EXPECT_EQ(buzz::to_text(policy), text);
  EXPECT_NO_THROW(buzz::BuzzCache<float>({1, 1, 1}, policy));
  std::remove(path.c_str());
  EXPECT_EQ(refused<buzz::FileError>([&] { buzz::policy(text); }), "path");
  EXPECT_EQ(refused([&] { buzz::policy("calibrated:weights="); }), "nothing");
  EXPECT_EQ(refused([&] { buzz::policy("calibrated:layer=-2"); }), "layer");
  EXPECT_EQ(refused([&] { buzz::policy("leverage:weights=" + path); }), "policy option");
  EXPECT_EQ(buzz::policy("calibrated").score.calibration(), nullptr);
}

TEST(Calibrated, IsAPolicyOfTheOptionsThatWereMeasured) {
  const buzz::Policy policy = buzz::policy("calibrated:rows=205");
  EXPECT_EQ(buzz::to_text(policy), "calibrated:window=10,heavy=159,threshold=190");
  EXPECT_EQ(policy.sharing, buzz::Sharing::model);
  EXPECT_EQ(policy.reduction.reduce, buzz::Reduction::sum);
  EXPECT_EQ(policy.score.calibrated.power, 0.2f);
  EXPECT_EQ(buzz::policy("calibrated:rows=216").protect.window, 11) << "to the nearest row";
  EXPECT_EQ(buzz::calibrated().most_rows(1), buzz::key_outliers().most_rows(1));
}

TEST(Calibrated, OfASumAndFadedIsFoundAndNumbered) {
  const buzz::ScoreSpec one = buzz::calibrated_score(options(weights(2, 1)));
  buzz::ScoreSpec spec = buzz::faded(buzz::sum(buzz::leverage_score(), one));
  spec.set_layer(1);
  EXPECT_EQ(spec.calibration(), one.calibration());
  EXPECT_EQ(spec.of[0].of[1].calibrated.layer, 1);
  EXPECT_EQ(spec.code(), 2000000 + 10000 + 600 + 8);
  EXPECT_EQ(buzz::leverage_score().calibration(), nullptr);
}

}  // namespace
