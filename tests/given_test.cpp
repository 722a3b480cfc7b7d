#include "buzz/score/given.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "buzz/policies.h"

namespace {

using ByGiven = buzz::Policy<buzz::Given, buzz::Segments>;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(!ByGiven::needs_mass && !ByGiven::needs_rows, "the user's scores are all it asks for");

/// Chunks of three, of everything once there are more than five rows.
ByGiven policy(int kv_heads = 1) {
  ByGiven::Options o;
  o.sink = o.window = 0;
  o.threshold = 5;
  o.stride = 3;
  return ByGiven(o, kv_heads, 8);
}

Values scores(const ByGiven& p, int head = 0) { return Values(p.scores(head).begin(), p.scores(head).end()); }
std::vector<int> positions(const ByGiven& p, int head = 0) {
  return std::vector<int>(p.positions(head).begin(), p.positions(head).end());
}
void give(ByGiven& p, const Values& values) { p.give(buzz::view(values, 1, p.kv_heads(), p.rows())); }

TEST(Given, IsZeroUntilItIsGiven) {
  ByGiven p = policy();
  p.append(3);
  EXPECT_EQ(scores(p), (Values{0, 0, 0}));
}

TEST(Given, ReplacesWhatWasGivenBefore) {
  ByGiven p = policy();
  p.append(3);
  give(p, {1, 2, 3});
  give(p, {5, 4, 3});
  EXPECT_EQ(scores(p), (Values{5, 4, 3}));
}

TEST(Given, StaysWhenRowsAreAppended) {
  ByGiven p = policy();
  p.append(2);
  give(p, {1, 2});
  p.append(2);
  EXPECT_EQ(scores(p), (Values{1, 2, 0, 0}));
}

TEST(Given, DecidesWhatIsKept) {
  ByGiven p = policy();
  p.append(6);
  give(p, {-3, -1, -2, /**/ 4, 5, 6});
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{1, 5}));
}

TEST(Given, NanLosesAgainstEveryNumber) {
  ByGiven p = policy();
  p.append(6);
  give(p, {kNan, kNan, -9, /**/ kNan, kNan, kNan});
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{2, 3}));
}

TEST(Given, HeadsHaveTheirOwn) {
  ByGiven p = policy(2);
  p.append(6);
  give(p, {9, 0, 0, 0, 0, 9, /**/ 0, 9, 0, 9, 0, 0});
  p.select();
  EXPECT_EQ(positions(p, 0), (std::vector<int>{0, 5}));
  EXPECT_EQ(positions(p, 1), (std::vector<int>{1, 3}));
}

TEST(Given, FollowsItsRowAndIsNeverForgotten) {
  ByGiven p = policy();
  p.append(6);
  give(p, {1, 7, 2, /**/ 4, 5, 6});
  p.select();
  EXPECT_EQ(scores(p), (Values{7, 6}));
  p.append(4);
  p.select();  // thins the hive without reading it, and still keeps its scores
  EXPECT_EQ(positions(p), (std::vector<int>{1, 6, 9}));
  EXPECT_EQ(scores(p), (Values{7, 0, 0}));
}

TEST(Given, ReadsAStridedView) {
  ByGiven p = policy(2);
  p.append(2);
  const Values padded = {1, 2, 99, 3, 4, 99};
  p.give(buzz::View<const float>(padded.data(), 1, 2, 2, 6, 3));
  EXPECT_EQ(scores(p, 0), (Values{1, 2}));
  EXPECT_EQ(scores(p, 1), (Values{3, 4}));
}

TEST(Given, IsZeroAgainAfterReset) {
  ByGiven p = policy();
  p.append(2);
  give(p, {1, 2});
  p.reset();
  p.append(2);
  EXPECT_EQ(scores(p), (Values{0, 0}));
}

}  // namespace
