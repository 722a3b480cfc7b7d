#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "typed.h"

namespace {

using typed::KeyDiversity;
using typed::Mixed;
using typed::ValueNorm;
using Values = std::vector<float>;
using Rows = std::vector<int>;
using KeyValue = Mixed<KeyDiversity, ValueNorm>;
using MassValue = typed::Policy<Mixed<typed::Mass, ValueNorm>, buzz::TopK>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

static_assert(!KeyValue::needs_mass && KeyValue::needs_rows, "as its parts");
static_assert(MassValue::needs_mass && MassValue::needs_rows, "as its parts");
TEST(Mixed, OfAnotherOrderIsAnotherScoreInAFile) {
  EXPECT_NE(KeyValue::spec({}).code(), (Mixed<ValueNorm, KeyDiversity>::spec({}).code()));
}

Values standardised(const Values& x) {
  std::vector<double> y(x.begin(), x.end());
  buzz::standardise(y.data(), static_cast<int>(y.size()));
  return Values(y.begin(), y.end());
}

TEST(Standardise, GivesMeanZeroAndDeviationOne) {
  EXPECT_EQ(standardised({1, 3}), (Values{-1, 1}));
  EXPECT_EQ(standardised({10, 10, 10, 50}), standardised({1, 1, 1, 2})) << "units do not matter";
  const Values z = standardised({2, 4, 4, 4, 5, 5, 7, 9});  // mean 5, deviation 2
  EXPECT_EQ(z, (Values{-1.5f, -0.5f, -0.5f, -0.5f, 0, 0, 1, 2}));
}

TEST(Standardise, OfEqualValuesIsZero) {
  EXPECT_EQ(standardised({}), (Values{}));
  EXPECT_EQ(standardised({7}), (Values{0}));
  EXPECT_EQ(standardised(Values(31, 0.1f)), Values(31, 0.f));
}

TEST(Standardise, OfAValueThatIsNotFiniteIsNan) {
  for (float bad : {kNan, kInf, -kInf})
    for (float x : standardised({1, bad, 3})) EXPECT_TRUE(buzz::is_nan(x));
}

MassValue policy(float weight, int sink = 0) {
  MassValue::Options o;
  o.sink = sink;
  o.window = 0;
  o.heavy = 1;
  o.threshold = 3;
  o.weight = weight;
  return MassValue(o, 1, 8);
}

/// The row of four that is kept; mass and values [rows, 1].
Rows kept(MassValue p, const Values& mass, const Values& values) {
  const int rows = static_cast<int>(mass.size());
  p.append(rows);
  p.observe(buzz::view(mass, 1, 1, rows));
  const auto view = buzz::view(values, 1, rows, 1);
  const buzz::Keep& keep = p.select(view, view);
  return Rows(keep.rows(0).begin(), keep.rows(0).end());
}

TEST(Mixed, IsOnePlusWeightTimesTheOther) {
  // Row 1 has the mass, row 2 the value; row 3 some of both.
  const Values mass = {0, 4, 0, 3}, values = {0, 0, 400, 300};
  EXPECT_EQ(kept(policy(1), mass, values), (Rows{3}));
  EXPECT_EQ(kept(policy(0), mass, values), (Rows{1}));
  EXPECT_EQ(kept(policy(9), mass, values), (Rows{2}));
  EXPECT_EQ(kept(policy(-1), mass, values), (Rows{1}));
}

TEST(Mixed, IsOverTheMiddleAlone) {
  // The sink's mass would make those of rows 1 to 4 as good as equal.
  EXPECT_EQ(kept(policy(0.5f, 1), {1e9f, 1, 2, 0, 0}, {0, 2, 1, 0, 0}), (Rows{0, 2}));
}

TEST(Mixed, OfEqualPartsIsTheOther) {
  EXPECT_EQ(kept(policy(1), {0, 0, 0, 0}, {1, 2, 4, 3}), (Rows{2}));
  EXPECT_EQ(kept(policy(1), {1, 4, 2, 3}, {5, 5, 5, 5}), (Rows{1}));
  EXPECT_EQ(kept(policy(1), {1, 1, 1, 1}, {5, 5, 5, 5}), (Rows{0}));
}

TEST(Mixed, OfAValueThatIsNotFiniteKeepsTheOldestRow) {
  for (float bad : {kNan, kInf}) EXPECT_EQ(kept(policy(1), {1, 2, 9, 1}, {1, bad, 3, 4}), (Rows{0}));
}

TEST(Mixed, HasTheMemoryOfItsPart) {
  MassValue p = policy(1);
  p.append(2);
  const Values mass = {0.25f, 0.75f};
  p.observe(buzz::view(mass, 1, 1, 2));
  p.observe_mass(buzz::view(mass, 1, 1, 2));
  EXPECT_EQ(Values(p.scores(0).begin(), p.scores(0).end()), (Values{0.5f, 1.5f}));
  EXPECT_EQ((typed::Policy<Mixed<ValueNorm, typed::RecentMass>, buzz::TopK>({}, 1)).queries_apart(), 32);
}

}  // namespace
