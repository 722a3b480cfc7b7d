#include "buzz/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace {

using buzz::Pairs;
using buzz::Positions;
using buzz::Rope;
using buzz::Rotation;
using Row = std::vector<float>;

static_assert(std::is_aggregate<Rope>::value, "Rope{10000.0} is written as it is read");

Row random_row(int dim, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Row row(static_cast<std::size_t>(dim));
  for (float& x : row) x = uniform(random);
  return row;
}

/// What the library makes of `row` at `position`.
Row rotated(Row row, const Rope& rope, int position) {
  const Rotation rotation(rope, static_cast<int>(row.size()));
  std::vector<float> angles(static_cast<std::size_t>(rotation.dims()));
  rotation.angles(position, angles.data());
  rotation.rotate(angles.data(), row.data());
  return row;
}

/// The formula, in double.
std::vector<double> by_formula(const Row& row, double base, int dims, Pairs pairs, double position) {
  std::vector<double> out(row.begin(), row.end());
  for (int i = 0; i < dims / 2; ++i) {
    const double angle = position * std::pow(base, -2.0 * i / dims);
    const std::size_t a = static_cast<std::size_t>(pairs == Pairs::interleaved ? 2 * i : i);
    const std::size_t b = static_cast<std::size_t>(pairs == Pairs::interleaved ? 2 * i + 1 : i + dims / 2);
    out[a] = double(row[a]) * std::cos(angle) - double(row[b]) * std::sin(angle);
    out[b] = double(row[a]) * std::sin(angle) + double(row[b]) * std::cos(angle);
  }
  return out;
}

double distance(const Row& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(double(a[i]) - b[i]));
  return most;
}

std::vector<double> widened(const Row& row) { return {row.begin(), row.end()}; }

Rope rope(double base, int dims, Pairs pairs) {
  Rope r{base};
  r.dims = dims;
  r.pairs = pairs;
  return r;
}

TEST(Rope, ByDefaultRotatesNothing) {
  const Rotation rotation(Rope{}, 7);
  EXPECT_FALSE(Rope{}.rotates());
  EXPECT_EQ(rotation.dims(), 0);
  EXPECT_FALSE(rotation.compact());
}

TEST(Rope, BaseAloneRotatesTheWholeHeadInterleavedAndLogical) {
  const Rope r{10000.0};
  EXPECT_EQ(r.pairs, Pairs::interleaved);
  EXPECT_EQ(r.positions, Positions::logical);
  EXPECT_EQ(Rotation(r, 8).dims(), 8);
}

TEST(Rope, InterleavedPairsAreNeighbours) {
  const Row out = rotated({1, 0, 0, 0}, Rope{10000.0}, 1);
  EXPECT_FLOAT_EQ(out[0], 0.5403023f);  // cos 1
  EXPECT_FLOAT_EQ(out[1], 0.8414710f);  // sin 1
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 0);
}

TEST(Rope, HalvesPairTheFirstHalfWithTheSecond) {
  const Row out = rotated({1, 0, 0, 0}, rope(10000, 0, Pairs::halves), 1);
  EXPECT_FLOAT_EQ(out[0], 0.5403023f);
  EXPECT_EQ(out[1], 0);
  EXPECT_FLOAT_EQ(out[2], 0.8414710f);
  EXPECT_EQ(out[3], 0);
}

TEST(Rope, OfAHeadsEndLeavesItsBeginning) {
  for (const Pairs pairs : {Pairs::interleaved, Pairs::halves}) {
    Rope end = rope(10000, 64, pairs);
    for (const int dim : {192, 576}) {  // DeepSeek's
      end.first = dim - 64;
      const Row row = random_row(dim, 6), out = rotated(row, end, 77);
      const Row tail = rotated(Row(row.end() - 64, row.end()), rope(10000, 0, pairs), 77);
      EXPECT_EQ(Row(out.begin(), out.end() - 64), Row(row.begin(), row.end() - 64));
      EXPECT_EQ(Row(out.end() - 64, out.end()), tail);
    }
  }
}

TEST(Rope, LaterPairsTurnSlower) {
  const Row out = rotated({0, 0, 1, 0}, Rope{10000.0}, 3);  // 3 * 10000^(-2/4) = 0.03 radians
  EXPECT_FLOAT_EQ(out[2], std::cos(0.03f));
  EXPECT_FLOAT_EQ(out[3], std::sin(0.03f));
}

TEST(Rope, FollowsTheFormulaForEveryBaseAndPairing) {
  for (double base : {10000.0, 500000.0, 1000000.0})
    for (Pairs pairs : {Pairs::interleaved, Pairs::halves})
      for (int position : {0, 1, 17, 4095, 131071}) {
        const Row row = random_row(64, 5);
        EXPECT_LT(distance(rotated(row, rope(base, 0, pairs), position), by_formula(row, base, 64, pairs, position)),
                  3e-7)
            << base << " " << position;
      }
}

TEST(Rope, PartialSizeLeavesTheRestAlone) {
  for (Pairs pairs : {Pairs::interleaved, Pairs::halves}) {
    const Row row = random_row(10, 6), out = rotated(row, rope(10000, 6, pairs), 29);
    EXPECT_LT(distance(out, by_formula(row, 10000, 6, pairs, 29)), 3e-7);
    EXPECT_EQ(Row(out.begin() + 6, out.end()), Row(row.begin() + 6, row.end()));
  }
}

TEST(Rope, PositionZeroIsTheRowItself) {
  const Row row = random_row(16, 7);
  EXPECT_EQ(rotated(row, Rope{10000.0}, 0), row);
  EXPECT_EQ(rotated(row, rope(10000, 0, Pairs::halves), 0), row);
}

TEST(Rope, FarPositionsAreAsExactAsNearOnes) {
  const Row row = random_row(32, 8);
  for (int position : {1000000, 1000000000})
    EXPECT_LT(distance(rotated(row, Rope{10000.0}, position), by_formula(row, 10000, 32, Pairs::interleaved, position)),
              3e-7);
}

TEST(Rope, AnglesAreTheStandardLibrarysAtAnyDistance) {
  std::mt19937_64 random(12);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int exponent = -30; exponent <= 46; ++exponent)
    for (int i = 0; i < 1000; ++i) {
      const double angle = std::ldexp(uniform(random), exponent);
      double cos, sin;
      buzz::cos_sin(angle, &cos, &sin);
      const double last_bit = std::ldexp(std::fabs(angle), -52);
      ASSERT_NEAR(cos, std::cos(angle), 1e-13 + last_bit) << angle;
      ASSERT_NEAR(sin, std::sin(angle), 1e-13 + last_bit) << angle;
    }
  for (int quarters = -1000; quarters <= 1000; ++quarters) {  // where one of the two is nothing
    double cos, sin;
    buzz::cos_sin(quarters * 1.5707963267948966, &cos, &sin);
    ASSERT_NEAR(cos, std::cos(quarters * 1.5707963267948966), 1e-13) << quarters;
    ASSERT_NEAR(sin, std::sin(quarters * 1.5707963267948966), 1e-13) << quarters;
  }
}

TEST(Rope, AnglesAreTheSameBitsUnderEveryCompilerFlag) {
  std::uint64_t sum = 14695981039346656037u;  // FNV-1a
  for (double base : {10000.0, 500000.0}) {
    const Rotation rotation(Rope{base}, 80);
    Row angles(80);
    for (int position = 0; position < 4096; ++position) {
      rotation.angles(position, angles.data());
      for (const float& x : angles) sum = (sum ^ buzz::bits_of(x)) * 1099511628211u;
    }
  }
  EXPECT_EQ(sum, 14533737024970330713u);
}

TEST(Rope, TwoMovesAreTheirSum) {
  const Row row = random_row(32, 9);
  const Row twice = rotated(rotated(row, Rope{500000.0}, 1000), Rope{500000.0}, -377);
  EXPECT_LT(distance(twice, by_formula(row, 500000, 32, Pairs::interleaved, 623)), 5e-7);
}

TEST(Rope, BackIsTheInverse) {
  const Row row = random_row(32, 10);
  EXPECT_LT(distance(rotated(rotated(row, Rope{10000.0}, 123), Rope{10000.0}, -123), widened(row)), 5e-7);
}

TEST(Rope, AThousandMovesDriftLittle) {
  const Row row = random_row(32, 11);
  Row moved = rotated(row, Rope{10000.0}, 5000);
  for (int i = 0; i < 1000; ++i) moved = rotated(moved, Rope{10000.0}, -4);
  EXPECT_LT(distance(moved, by_formula(row, 10000, 32, Pairs::interleaved, 1000)), 1e-4);
}

TEST(Rope, DotProductsDependOnTheDistanceAlone) {
  const Row q = random_row(64, 12), k = random_row(64, 13);
  const auto dot = [&](int query_position, int key_position) {
    const Row a = rotated(q, Rope{10000.0}, query_position), b = rotated(k, Rope{10000.0}, key_position);
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * double(b[i]);
    return sum;
  };
  EXPECT_NEAR(dot(107, 100), dot(7, 0), 1e-5);
  EXPECT_NEAR(dot(20007, 20000), dot(7, 0), 1e-5);
  EXPECT_GT(std::fabs(dot(8, 0) - dot(7, 0)), 1e-3);
}

TEST(Rope, RemembersWhatItWasMadeOf) {
  Rope r = rope(500000, 4, Pairs::halves);
  r.positions = Positions::compact;
  const Rotation rotation(r, 8);
  EXPECT_TRUE(rotation.compact());
  EXPECT_EQ(rotation.dims(), 4);
  EXPECT_EQ(rotation.rope().base, 500000);
  EXPECT_EQ(rotation.rope().pairs, Pairs::halves);
}

}  // namespace
