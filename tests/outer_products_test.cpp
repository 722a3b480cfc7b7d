#include "buzz/score/outer_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "oracle_twin.h"

namespace {

void add(buzz::OuterProducts* a, const std::vector<double>& x, double weight) {
  std::copy(x.begin(), x.end(), a->row());
  a->add(weight);
}
/// What the inverse makes of each of some rows, times 3.
std::vector<double> solved(buzz::OuterProducts* a, const std::vector<std::vector<double>>& rows) {
  std::vector<double> out(rows.size(), 3);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), a->row());
    a->multiply(&out[i]);
  }
  a->solve();
  return out;
}

TEST(OuterProducts, MakeTheInverseOfTheirSum) {
  // A = 2 (1, 1)(1, 1)' + (0, 3)(0, 3)' = (2 2; 2 11); with 1 more on its diagonal the inverse is (12 -2; -2 3) / 32.
  buzz::OuterProducts a;
  a.reserve(2);
  add(&a, {1, 1}, 2);
  add(&a, {0, 3}, 1);
  EXPECT_EQ(a.trace(), 13);
  a.factorise(1);
  EXPECT_NEAR(solved(&a, {{1, 2}})[0], 3 * (12 - 8 + 12) / 32., 1e-15);
  add(&a, {5, 5}, 7);
  a.clear();
  EXPECT_EQ(a.trace(), 0) << "what was waiting is forgotten too";
  a.factorise(4);
  EXPECT_NEAR(solved(&a, {{2, 4}})[0], 3 * 5, 1e-15);
}

/// Rows are taken 16 at a time and lines four: dimensions and counts are on either side of these.
TEST(OuterProducts, AreTheOraclesInAnyShape) {
  oracle::Random random(11);
  for (int i = 0; i < 300; ++i) {
    const int dim = random.in(1, 40), rows = random.in(0, 50), asked = random.in(0, 40);
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
    double trace = 0;
    for (int r = 0; r < rows; ++r) {
      const oracle::Vector x = row();
      const double weight = random.in(1, 9);
      add(&a, x, weight);
      for (std::size_t c = 0; c < n; ++c)
        for (std::size_t d = 0; d < n; ++d) exact[c][d] += weight * x[c] * x[d];
      trace += weight * oracle::dot(x, x);
    }
    ASSERT_NEAR(a.trace(), trace, 1e-9 * (1 + trace)) << i;
    a.factorise(lambda);
    std::vector<oracle::Vector> xs;
    for (int r = 0; r < asked; ++r) xs.push_back(row());
    const std::vector<double> got = solved(&a, xs);
    for (std::size_t r = 0; r < xs.size(); ++r) {
      const double expected = 3 * oracle::dot(xs[r], oracle::solved(exact, xs[r]));
      ASSERT_NEAR(got[r], expected, 1e-9 * (1 + expected)) << i << " " << r;
    }
  }
}

/// What a row that did not count has left behind is no part of what is added together with it.
TEST(OuterProducts, RowsThatWereNotAddedSayNothing) {
  buzz::OuterProducts a;
  a.reserve(3);
  add(&a, {1, 2, 3}, 1);
  std::fill_n(a.row(), 3, std::numeric_limits<double>::infinity());
  EXPECT_EQ(a.trace(), 14);
  add(&a, {1, 0, 0}, 1);
  a.factorise(1);
  EXPECT_NEAR(solved(&a, {{0, 1, 0}})[0] / 3, oracle::solved({{3, 2, 3}, {2, 5, 6}, {3, 6, 10}}, {0, 1, 0})[1], 1e-14);
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
