// The tutorial's score: include/buzz/README.md prints these blocks, and pages_test holds it to them.
#include <buzz.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "oracle.h"

namespace {

class LongestValue final : public buzz::Score {
 public:
  buzz::Needs needs() const override { return {/*attention*/ false, /*keys*/ false, /*values*/ true}; }
  void importance(const buzz::Candidates& rows, double* out) override {
    const int dim = rows.values->dim(), end = rows.first + rows.count;
    buzz::for_each_row(*rows.values, rows.head, rows.first, end, 0, dim, [&](int row, const float* value) {
      out[row - rows.first] = std::inner_product(value, value + dim, value, 0.0);  // the square of its length
    });
  }
};

buzz::Policy longest_value(const buzz::PolicyOptions<buzz::TopK>& o = {}) {
  return {"longest_value", buzz::own_score(std::make_unique<LongestValue>()), buzz::TopK::Options(o), o};
}

buzz::Policy two_longest() {
  buzz::TopK::Options two;
  two.heavy = 2;
  return buzz::policy(std::make_unique<LongestValue>(), two, buzz::Protect{/*sink*/ 1, /*window*/ 1});
}

TEST(Tutorial, TheLongestValuesStay) {
  buzz::BuzzCache<float> cache({/*query_heads*/ 1, /*kv_heads*/ 1, /*head_dim*/ 1}, two_longest());
  for (float value : {1.f, 2.f, 9.f, 4.f, -7.f, 3.f}) {
    float x[] = {value}, out[1];
    const buzz::View<const float> token(x, 1, 1, 1);
    cache.attend(token, token, token, buzz::View<float>(out, 1, 1, 1));
  }
  const std::vector<int> held(cache.positions(0).begin(), cache.positions(0).end());
  EXPECT_EQ(held, (std::vector<int>{0, 2, 4, 5}));  // the sink's 1, then 9 and -7, and the window's 3
}

TEST(Tutorial, TheOracleKeepsTheSameRows) {
  oracle::Options o;
  o.head_dim = 2;
  o.select = oracle::Select::heaviest;
  o.sink = o.window = 1;
  o.heavy = o.threshold = 2;
  oracle::Cache slow(o);
  buzz::BuzzCache<float> cache({/*query_heads*/ 1, /*kv_heads*/ 1, /*head_dim*/ 2}, two_longest());
  for (int t = 0; t < 100; ++t) {
    const float x[] = {std::sin(7.0f * static_cast<float>(t)), std::cos(4.0f * static_cast<float>(t))};
    const buzz::View<const float> token(x, 1, 1, 2);
    float out[2];
    cache.attend(token, token, token, buzz::View<float>(out, 1, 1, 2));
    slow.append({{{x[0], x[1]}}}, {{{x[0], x[1]}}});
    std::vector<double> lengths;
    for (const oracle::Row& row : slow.head(0)) lengths.push_back(oracle::dot(row.value, row.value));
    if (slow.should_evict()) slow.evict({slow.choose(0, lengths)});
    ASSERT_EQ(cache.rows(), slow.rows());
    int r = 0;
    for (const oracle::Row& row : slow.head(0)) EXPECT_EQ(cache.positions(0)[r++], row.position);
  }
}

TEST(Tutorial, ALineOfTheListIsEnoughForPrograms) {
  const buzz::PolicyInfo line =
      buzz::policy_info<buzz::PolicyOptions<buzz::TopK>, longest_value>("longest_value", "the longest values");
  EXPECT_EQ(line.for_rows(100, 4).most_rows(4), 100);
  EXPECT_EQ(buzz::options_of(line.make()).size(), 7u) << "sink, window, heavy, threshold, and how heads share";
  EXPECT_TRUE(line.make().needs().values);
}

}  // namespace
