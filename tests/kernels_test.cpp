#include "buzz/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace {

// Rows of T, `stride` apart, some queries, and their products the slow way, in double. Between rows and behind them is
// what must not be read as a value.
template <class T>
struct Problem {
  Problem(int query_rows, int row_count, int dims, int row_stride, unsigned seed)
      : queries(query_rows), rows(row_count), dim(dims), stride(row_stride) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-100, 100);
    const auto size = [](int count, int each) {
      return static_cast<std::size_t>(count) * static_cast<std::size_t>(each);
    };
    q.resize(size(queries, dim));
    weights.resize(size(queries, rows));
    out.assign(size(queries, dim), 0.5f);
    for (auto* all : {&q, &weights})
      for (float& x : *all) x = values(random) / 100;
    b.assign(size(rows, stride), static_cast<T>(99.f));
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < dim; ++i) b[static_cast<std::size_t>(r * stride + i)] = static_cast<T>(values(random));
  }
  double value(int r, int i) const {
    return static_cast<double>(static_cast<float>(b[static_cast<std::size_t>(r * stride + i)]));
  }

  int queries, rows, dim, stride;
  std::vector<float> q, weights, out;  // [queries, dim], [queries, rows], [queries, dim]
  std::vector<T> b;                    // [rows, stride]
};

template <class T>
void is_the_slow_product(int queries, int rows, int dim, int stride) {
  SCOPED_TRACE(testing::Message() << queries << " queries, " << rows << " rows of " << dim << ", " << stride
                                  << " apart");
  Problem<T> p(queries, rows, dim, stride, static_cast<unsigned>(queries * 1000 + rows * 10 + dim));
  std::vector<float> products(static_cast<std::size_t>(queries * rows) + 1, -1);
  buzz::kernels::dots(p.q.data(), dim, queries, p.b.data(), stride, rows, dim, products.data(), rows);
  buzz::kernels::add(p.weights.data(), rows, queries, p.b.data(), stride, rows, dim, p.out.data(), dim);
  EXPECT_EQ(products.back(), -1.f);
  for (int q = 0; q < queries; ++q) {
    for (int r = 0; r < rows; ++r) {
      double sum = 0, size = 0;
      for (int i = 0; i < dim; ++i) {
        const double term = static_cast<double>(p.q[static_cast<std::size_t>(q * dim + i)]) * p.value(r, i);
        sum += term, size += std::abs(term);
      }
      ASSERT_NEAR(products[static_cast<std::size_t>(q * rows + r)], sum, size * 1e-6) << "query " << q << ", row " << r;
      // The same bits as alone.
      float alone;
      buzz::kernels::dots(p.q.data() + q * dim, dim, 1, p.b.data() + r * stride, stride, 1, dim, &alone, 1);
      ASSERT_EQ(products[static_cast<std::size_t>(q * rows + r)], alone) << "query " << q << ", row " << r;
    }
    for (int i = 0; i < dim; ++i) {
      double sum = 0.5, size = 0.5;
      for (int r = 0; r < rows; ++r) {
        const double term = static_cast<double>(p.weights[static_cast<std::size_t>(q * rows + r)]) * p.value(r, i);
        sum += term, size += std::abs(term);
      }
      ASSERT_NEAR(p.out[static_cast<std::size_t>(q * dim + i)], sum, size * 3e-6)
          << "query " << q << ", dimension " << i;
    }
  }
}

template <class T>
void are_the_slow_products() {
  if constexpr (buzz::kernels::loads_packets<T>)
    for (int queries : {1, 2, 3, 4, 5, 9})
      for (int dim : {1, 3, 8, 17, 64, 100, 128, 200, 576}) {
        for (int rows : {0, 1, 2, 7, 33}) is_the_slow_product<T>(queries, rows, dim, dim);
        is_the_slow_product<T>(queries, 9, dim, dim + 5);       // with a gap
        is_the_slow_product<T>(queries, 11, dim, 3 * dim + 1);  // of another head's rows between
      }
}

TEST(Kernels, OfFloatsAreTheSlowProducts) { are_the_slow_products<float>(); }
TEST(Kernels, OfTypesThatComeAsPacketsAreTheSlowProducts) {
  are_the_slow_products<std::int8_t>();
  are_the_slow_products<Eigen::half>();
  are_the_slow_products<Eigen::bfloat16>();
}

}  // namespace
