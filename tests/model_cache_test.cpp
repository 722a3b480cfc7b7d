#include <gtest/gtest.h>

#include <random>
#include <type_traits>
#include <vector>

#include "typed.h"

namespace {

template <class T, class P = typed::Beehive>
using ModelCache = typed::Model<T, P>;
using buzz::Shape;
using Model = ModelCache<float>;
using Values = std::vector<float>;

static_assert(!std::is_copy_constructible<Model>::value && std::is_move_constructible<Model>::value, "a copy costs");

const Shape kShape{2, 1, 4, 3};

typed::Options sized(int sink, int window, int threshold, int stride) {
  typed::Options o;
  o.sink = sink;
  o.window = window;
  o.threshold = threshold;
  o.stride = stride;
  return o;
}

const std::vector<typed::Options> kLayers = {sized(1, 2, 3, 2), sized(0, 4, 6, 3), sized(2, 8, 40, 5)};

/// Gives a layer one token; returns what it attends.
Values attend(buzz::BuzzCache<float>& layer, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values q(8), k(4), v(4), out(8);
  for (Values* values : {&q, &k, &v})
    for (float& x : *values) x = uniform(random);
  layer.attend(buzz::view(q, 1, 2, 4), buzz::view(k, 1, 1, 4), buzz::view(v, 1, 1, 4), buzz::view(out, 1, 2, 4));
  return out;
}

TEST(ModelCache, HasALayerForEachOptions) {
  Model model(kShape, kLayers);
  EXPECT_EQ(model.layers(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(model.layer(i).policy().select.as<buzz::Segments::Options>()->threshold,
              kLayers[static_cast<std::size_t>(i)].threshold);
    EXPECT_EQ(model.rows(i), 0);
  }
  EXPECT_EQ(model.layer(0).capacity(), 1 + 2 + 3 + 3);
  EXPECT_EQ(model.layer(2).capacity(), 2 + 8 + 40 + 3);
}

TEST(ModelCache, ItsLayersAreCachesOfTheirOwn) {
  Model model(kShape, kLayers);
  std::vector<std::mt19937> of_model, of_alone;
  std::vector<typed::Cache<float>> alone;
  for (unsigned i = 0; i < 3; ++i) {
    of_model.emplace_back(i);
    of_alone.emplace_back(i);
    alone.emplace_back(kShape, kLayers[i]);
  }
  for (int token = 0; token < 60; ++token)
    for (int i = 0; i < 3; ++i) {
      const std::size_t l = static_cast<std::size_t>(i);
      ASSERT_EQ(attend(model.layer(i), of_model[l]), attend(alone[l], of_alone[l]));
      ASSERT_EQ(model.rows(i), alone[l].rows());
    }
  EXPECT_LT(model.rows(0), model.rows(1));
  EXPECT_LT(model.rows(1), model.rows(2));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model.layer(i).next_position(), 60);
}

TEST(ModelCache, BytesAreTheLayersTogether) {
  const Model model(kShape, kLayers);
  std::size_t sum = 0;
  for (int i = 0; i < 3; ++i) sum += model.layer(i).bytes();
  EXPECT_EQ(model.bytes(), sum);
  EXPECT_GT(sum, 0u);
}

TEST(ModelCache, HandsRopeAndAttentionToAllLayers) {
  buzz::Rope rope{500000.0};
  rope.positions = buzz::Positions::compact;
  Model model(kShape, kLayers, rope);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(model.layer(i).rope().base, 500000);
    EXPECT_EQ(model.layer(i).rope().positions, buzz::Positions::compact);
  }
  buzz::AttentionOptions attention;
  attention.scale = 1e-9;  // next to nothing: attention is even
  Model even(kShape, kLayers, buzz::Rope(), attention);
  std::mt19937 random(1);
  attend(even.layer(1), random);
  attend(even.layer(1), random);
  EXPECT_NEAR(even.layer(1).scores(0)[1], 1, 1e-6) << "half of the second token's attention, of two query heads";
}

TEST(ModelCache, ResetIsAsNew) {
  Model model(kShape, kLayers), fresh(kShape, kLayers);
  std::mt19937 before(2);
  for (int token = 0; token < 30; ++token)
    for (int i = 0; i < 3; ++i) attend(model.layer(i), before);
  model.reset();
  std::mt19937 one(3), two(3);
  for (int token = 0; token < 30; ++token)
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(model.rows(i), fresh.rows(i));
      ASSERT_EQ(attend(model.layer(i), one), attend(fresh.layer(i), two));
    }
}

TEST(ModelCache, AMovedOneGoesOn) {
  Model model(kShape, kLayers);
  std::mt19937 random(4);
  for (int token = 0; token < 30; ++token) attend(model.layer(0), random);
  const int rows = model.rows(0);
  Model moved = std::move(model);
  EXPECT_EQ(moved.layers(), 3);
  EXPECT_EQ(moved.rows(0), rows);
  attend(moved.layer(0), random);
  EXPECT_EQ(moved.layer(0).next_position(), 31);
}

TEST(ModelCache, TakesAnyPolicyAndType) {
  typed::Streaming::Options o;
  o.sink = 1;
  o.window = 2;
  ModelCache<Eigen::half, typed::Streaming> model(kShape, {o, o});
  Values q(8), kv(4), out(8);
  for (int i = 0; i < 9; ++i)
    model.layer(1).attend(buzz::view(q, 1, 2, 4), buzz::view(kv, 1, 1, 4), buzz::view(kv, 1, 1, 4),
                          buzz::view(out, 1, 2, 4));
  EXPECT_EQ(model.rows(0), 0);
  EXPECT_EQ(model.rows(1), 3);
}

TEST(ModelCache, RefusesLayersThatAreNotThere) {
  Model model(kShape, kLayers);
  EXPECT_THROW(model.layer(3), buzz::InvalidArgument);
  EXPECT_THROW(model.layer(-1), buzz::InvalidArgument);
  EXPECT_THROW(model.rows(3), buzz::InvalidArgument);
  EXPECT_THROW(Model(kShape, {}), buzz::InvalidArgument);
}

TEST(ModelCache, RefusesOneBadLayer) {
  std::vector<typed::Options> layers = kLayers;
  layers[1].stride = 0;
  EXPECT_THROW(Model(kShape, layers), buzz::InvalidArgument);
}

}  // namespace
