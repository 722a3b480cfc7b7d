#include "buzz/score/outer_products.h"

#include <gtest/gtest.h>

#include <vector>

#include "oracle_twin.h"

namespace {

TEST(OuterProducts, MakeTheInverseOfTheirSum) {
  // A = 2 (1, 1)(1, 1)' + (0, 3)(0, 3)' = (2 2; 2 11); with 1 more on its diagonal the inverse is (12 -2; -2 3) / 32.
  buzz::OuterProducts a;
  a.reserve(2);
  const double ones[] = {1, 1}, three[] = {0, 3};
  a.add(ones, 2);
  a.add(three, 1);
  EXPECT_EQ(a.trace(), 13);
  a.factorise(1);
  double x[] = {1, 2};
  EXPECT_NEAR(a.solve(x), (12 - 8 + 12) / 32., 1e-15);
  a.clear();
  EXPECT_EQ(a.trace(), 0);
  a.factorise(4);
  double y[] = {2, 4};
  EXPECT_NEAR(a.solve(y), 5, 1e-15);
}

TEST(OuterProducts, AreTheOraclesInAnyShape) {
  oracle::Random random(11);
  for (int i = 0; i < 200; ++i) {
    const int dim = random.in(1, 30), rows = random.in(0, 40);
    const std::size_t n = static_cast<std::size_t>(dim);
    const double lambda = random.of({1., 0.01, 100.});
    buzz::OuterProducts a;
    a.reserve(dim);
    oracle::Matrix exact(n, std::vector<double>(n));
    for (std::size_t d = 0; d < n; ++d) exact[d][d] = lambda;
    const auto row = [&] {
      oracle::Vector x;
      for (std::size_t d = 0; d < n; ++d) x.push_back(random.one_in(5) ? 0 : static_cast<double>(random.real()));
      return x;
    };
    for (int r = 0; r < rows; ++r) {
      const oracle::Vector x = row();
      const double weight = random.in(1, 9);
      a.add(x.data(), weight);
      for (std::size_t c = 0; c < n; ++c)
        for (std::size_t d = 0; d < n; ++d) exact[c][d] += weight * x[c] * x[d];
    }
    a.factorise(lambda);
    oracle::Vector x = row();
    const double expected = oracle::dot(x, oracle::solved(exact, x));
    ASSERT_NEAR(a.solve(x.data()), expected, 1e-9 * (1 + expected)) << i;
  }
}

TEST(OuterProducts, ReadARowOfAnyLengthAndSayWhetherItIsFinite) {
  std::vector<float> rows(600, 1);
  rows[599] = -2;
  const buzz::RowsView<float> view(buzz::View<const float>(rows.data(), 1, 2, 300));
  const buzz::FloatRowsOf<float> floats(view);
  std::vector<double> to(300);
  EXPECT_TRUE(buzz::read_row(floats, 0, 1, to.data()));
  EXPECT_EQ(to[299], -2);
  rows[299] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(buzz::read_row(floats, 0, 0, to.data()));
}

}  // namespace
