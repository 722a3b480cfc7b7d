// The angles that the layers of a model share are those that each would make itself.

#include "buzz/rope_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "typed.h"

namespace {

using buzz::Rope;
using buzz::RopeTable;

std::vector<float> of_rotation(const Rope& rope, int head_dim, int first, int tokens) {
  const buzz::Rotation rotation(rope, head_dim);
  std::vector<float> angles(static_cast<std::size_t>(tokens * rotation.dims()));
  for (int t = 0; t < tokens; ++t) rotation.angles(first + t, angles.data() + t * rotation.dims());
  return angles;
}

std::vector<float> of_table(RopeTable& table, int first, int tokens) {
  std::vector<float> angles(static_cast<std::size_t>(tokens * table.rotation().dims()));
  table.angles(first, tokens, angles.data());
  return angles;
}

Rope raw() {
  Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  rope.keys = buzz::KeyStorage::raw;
  return rope;
}

TEST(RopeTable, GivesARotationsAnglesInAnyOrderOfCalls) {
  const Rope rope{500000.0};
  RopeTable shared(rope, 8), alone(rope, 8);
  shared.reserve_calls(3);
  for (const auto& [first, tokens] : std::vector<std::pair<int, int>>{
           {0, 3}, {0, 3}, {3, 1}, {3, 1}, {3, 2}, {4, 1}, {0, 1}, {0, 0}, {0, 2}, {100000, 3}, {7, 5}, {100000, 3}}) {
    EXPECT_EQ(of_table(shared, first, tokens), of_rotation(rope, 8, first, tokens)) << first << ", " << tokens;
    EXPECT_EQ(of_table(alone, first, tokens), of_rotation(rope, 8, first, tokens)) << first << ", " << tokens;
  }
}

TEST(RopeTable, HasThePlacesOfTheLargestLayer) {
  RopeTable table(raw(), 6);
  for (int rows : {4, 9, 2}) table.reserve_places(rows);
  const std::vector<float> expected = of_rotation(raw(), 6, 0, 9);
  EXPECT_EQ(std::vector<float>(table.places(), table.places() + 9 * 6), expected);
  EXPECT_EQ(table.bytes(), 9 * 6 * sizeof(float));
}

TEST(RopeTable, ThatIsCopiedIsAnother) {
  RopeTable table(raw(), 6);
  table.reserve_calls(2);
  table.reserve_places(5);
  of_table(table, 7, 2);
  RopeTable copy(table);
  EXPECT_EQ(copy.bytes(), table.bytes());
  EXPECT_NE(copy.places(), table.places());
  EXPECT_EQ(of_table(copy, 7, 2), of_rotation(raw(), 6, 7, 2));
  EXPECT_EQ(of_table(copy, 0, 2), of_rotation(raw(), 6, 0, 2));
  EXPECT_EQ(of_table(table, 7, 2), of_rotation(raw(), 6, 7, 2));
}

TEST(RopeTable, OfALayerThatRotatesNothingIsEmpty) {
  RopeTable table(Rope{}, 7);
  table.reserve_calls(5);
  EXPECT_EQ(of_table(table, 3, 5), std::vector<float>());
  EXPECT_EQ(table.bytes(), 0u);
}

const buzz::Shape kShape{2, 1, 8, 4, 2};

buzz::ModelCache<float> model(const Rope& rope, int layers) {
  return {kShape, std::vector<buzz::Policy>(static_cast<std::size_t>(layers), buzz::beehive()), rope};
}

TEST(SharedTable, IsCountedOnceInAModel) {
  const buzz::ModelCache<float> rotated = model(Rope{10000.0}, 3), with_raw = model(raw(), 3), single = model(raw(), 1);
  const std::size_t call = 4 * 8 * sizeof(float),
                    places = static_cast<std::size_t>(single.layer(0).capacity()) * 8 * sizeof(float);
  const buzz::ModelCache<float> without = model(Rope{}, 3);
  EXPECT_EQ(rotated.bytes() - without.bytes(), 3 * call + call) << "a layer keeps its own call's, the table the newest";
  EXPECT_EQ(with_raw.bytes() - without.bytes(), call + places);
  EXPECT_EQ(single.bytes(), single.layer(0).bytes());
  EXPECT_EQ(single.bytes() - model(Rope{}, 1).bytes(), places) << "nobody to share a call's with";
}

TEST(SharedTable, IsTheForksOwn) {
  const buzz::ModelCache<float> original = model(raw(), 3);
  EXPECT_EQ(original.fork().bytes(), original.bytes());
  EXPECT_EQ(original.layer(1).fork().bytes(), original.layer(1).bytes());
}

TEST(SharedTable, IsThatOfALayerWhichIsLoadedToo) {
  buzz::ModelCache<float> m = model(raw(), 3);
  const std::size_t bytes = m.bytes();
  std::stringstream file, all;
  m.layer(1).save(file);
  m.layer(1).load(file);
  EXPECT_EQ(m.bytes(), bytes);
  m.save(all);
  m.load(all);
  EXPECT_EQ(m.bytes(), bytes);
}

}  // namespace
