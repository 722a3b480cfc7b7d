#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "typed.h"

namespace {

using buzz::Pooling;
using typed::SnapKv;
using Values = std::vector<float>;
using Rows = std::vector<int>;

SnapKv::Options options(int queries, int kernel, Pooling pooling = Pooling::max) {
  SnapKv::Options o;
  o.window = 0;
  o.heavy = 1;
  o.threshold = 4;
  o.queries = queries;
  o.kernel = kernel;
  o.pooling = pooling;
  return o;
}

/// The importance of rows whose queries' column sums are given, [queries][rows], with `begin` rows before them.
Values importance(const SnapKv::Options& o, const std::vector<Values>& sums, int begin = 0) {
  const int rows = static_cast<int>(sums[0].size());
  buzz::RecentAttention score(o);
  score.reserve(1, rows);
  score.append(0, rows);
  for (const Values& s : sums) score.observe(buzz::View<const float>(s.data(), 1, 1, rows), true);
  std::vector<double> result(static_cast<std::size_t>(rows - begin));
  score.importance({0, begin, rows - begin, nullptr, rows, nullptr, nullptr}, result.data());
  return Values(result.begin(), result.end());
}

TEST(RecentAttention, IsTheSumOverTheLastQueries) {
  const std::vector<Values> sums = {{100, 0, 0}, {1, 2, 3}, {10, 20, 40}};
  EXPECT_EQ(importance(options(2, 1), sums), (Values{11, 22, 43}));
  EXPECT_EQ(importance(options(3, 1), sums), (Values{111, 22, 43}));
  EXPECT_EQ(importance(options(1, 1), sums), (Values{10, 20, 40}));
  EXPECT_EQ(importance(options(9, 1), sums), (Values{111, 22, 43})) << "there were no more";
}

TEST(RecentAttention, TakesTheLargestOfNeighbours) {
  EXPECT_EQ(importance(options(1, 3), {{0, 9, 1, 2, 5}}), (Values{9, 9, 9, 5, 5}));
  EXPECT_EQ(importance(options(1, 5), {{7, 0, 1, 2, 5}}), (Values{7, 7, 7, 5, 5}));
  EXPECT_EQ(importance(options(1, 99), {{7, 0, 8, 2, 5}}), (Values{8, 8, 8, 8, 8}));
}

TEST(RecentAttention, OrTheirAverageWithZerosAround) {
  EXPECT_EQ(importance(options(1, 3, Pooling::average), {{3, 9, 0, 6}}), (Values{4, 4, 5, 2}));
}

TEST(RecentAttention, DoesNotPoolOverTheSink) {
  EXPECT_EQ(importance(options(1, 3), {{99, 1, 2, 0}}, 1), (Values{2, 2, 2}));
  EXPECT_EQ(importance(options(1, 3, Pooling::average), {{99, 3, 6, 0}}, 1), (Values{3, 3, 2}));
}

TEST(RecentAttention, OfTheSizesOfThePaper) {
  const SnapKv::Options o;
  EXPECT_EQ(o.queries, 32);
  EXPECT_EQ(o.kernel, 7);
  EXPECT_EQ(o.window, 32) << "the observation window stays";
  EXPECT_EQ(o.sink, 0);
  EXPECT_EQ(SnapKv::Options::for_rows(500, 4).window, 32);
}

TEST(RecentAttention, FollowsItsRowThroughAnEviction) {
  SnapKv p(options(2, 1), 1, 8);
  p.append(5);
  const Values first = {1, 9, 3, 4, 5}, none(5);
  p.observe(buzz::view(none, 1, 1, 5));
  p.observe(buzz::view(first, 1, 1, 5));
  p.select();  // leaves position 1
  p.append(4);
  const Values second = {0, 8, 0, 0, 7};
  p.observe(buzz::view(second, 1, 1, 5));  // 9 + 0, 8, 0, 0, 7
  p.select();
  EXPECT_EQ(p.positions(0)[0], 1);
  p.append(4);
  p.observe(buzz::view(second, 1, 1, 5));  // the 9 has left the observation window
  p.select();
  EXPECT_EQ(p.positions(0)[0], 9) << "the row after it";
}

TEST(RecentAttention, OfEachQueryFollowsItsRow) {
  SnapKv p(options(2, 1), 1, 8);
  for (int round = 0; round < 2; ++round) {  // at either turn of the ring
    p.append(5 - p.rows());
    const Values one = {0, 3, 2, 0, 0}, other = {0, 3, 5, 0, 0};
    p.observe(buzz::view(one, 1, 1, 5));
    p.observe(buzz::view(other, 1, 1, 5));
    p.select();
    const int kept = p.positions(0)[0];
    p.append(4);
    const Values none(5, 0.f), some = {1, 0, 6, 0, 0};
    p.observe(buzz::view(some, 1, 1, 5));  // row 0 has 5 + 1 now, and comes before row 2
    p.select();
    EXPECT_EQ(p.positions(0)[0], kept);
    p.append(4);
    p.observe(buzz::view(none, 1, 1, 5));  // 1 + 0
    p.select();
    EXPECT_EQ(p.positions(0)[0], kept);
    const Values odd = {0};
    p.observe(buzz::view(odd, 1, 1, 1));
  }
}

std::string state(const SnapKv& policy) {
  std::ostringstream out;
  buzz::Writer writer(out);
  SnapKv::archive(policy, writer);
  return out.str();
}

TEST(RecentAttention, IsSavedByAgeWhateverCameBefore) {
  SnapKv two(options(2, 1), 1, 8), three(options(2, 1), 1, 8);
  const Values first = {1, 2}, second = {3, 4};
  two.append(2);
  three.append(2);
  three.observe(buzz::view(second, 1, 1, 2));
  for (SnapKv* policy : {&two, &three}) {
    policy->observe(buzz::view(first, 1, 1, 2));
    policy->observe(buzz::view(second, 1, 1, 2));
  }
  EXPECT_EQ(state(two), state(three));
}

TEST(RecentAttention, IsTakenBackPastAFullTurn) {
  SnapKv p(options(2, 1), 1, 8, 6), twin(options(2, 1), 1, 8, 6);
  const auto step = [](SnapKv& policy, const Values& p1) {
    policy.append(1);
    const Values row(p1.begin(), p1.begin() + policy.rows());
    policy.observe(buzz::view(row, 1, 1, policy.rows()));
  };
  for (SnapKv* policy : {&p, &twin}) {
    step(*policy, {1});
    step(*policy, {5, 6});
  }
  const std::string before = state(p);
  for (int i = 0; i < 2; ++i) step(p, {7, 8, 9, 1, 2, 3});
  p.rollback(2);
  EXPECT_EQ(state(p), before);
  for (SnapKv* policy : {&p, &twin}) step(*policy, {2, 4, 9});
  EXPECT_EQ(state(p), state(twin));
}

}  // namespace
