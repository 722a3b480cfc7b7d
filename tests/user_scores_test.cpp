#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "typed.h"

namespace {

using ByUserScores = typed::Policy<typed::UserScores, buzz::Segments>;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(!ByUserScores::needs_attention && !ByUserScores::needs_kv, "the user's scores are all it asks for");

/// Chunks of three, of everything once there are more than five rows.
ByUserScores policy(int kv_heads = 1) {
  ByUserScores::Options o;
  o.sink = o.window = 0;
  o.threshold = 5;
  o.stride = 3;
  return ByUserScores(o, kv_heads, 8);
}

Values scores(const ByUserScores& p, int head = 0) { return Values(p.scores(head).begin(), p.scores(head).end()); }
std::vector<int> positions(const ByUserScores& p, int head = 0) {
  return std::vector<int>(p.positions(head).begin(), p.positions(head).end());
}
void give(ByUserScores& p, const Values& values) { p.give(buzz::view(values, 1, p.kv_heads(), p.rows())); }

TEST(UserScores, IsZeroUntilItIsGiven) {
  ByUserScores p = policy();
  p.append(3);
  EXPECT_EQ(scores(p), (Values{0, 0, 0}));
}

TEST(UserScores, ReplacesWhatWasGivenBefore) {
  ByUserScores p = policy();
  p.append(3);
  give(p, {1, 2, 3});
  give(p, {5, 4, 3});
  EXPECT_EQ(scores(p), (Values{5, 4, 3}));
}

TEST(UserScores, StaysWhenRowsAreAppended) {
  ByUserScores p = policy();
  p.append(2);
  give(p, {1, 2});
  p.append(2);
  EXPECT_EQ(scores(p), (Values{1, 2, 0, 0}));
}

TEST(UserScores, DecidesWhatIsKept) {
  ByUserScores p = policy();
  p.append(6);
  give(p, {-3, -1, -2, /**/ 4, 5, 6});
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{1, 5}));
}

TEST(UserScores, NanLosesAgainstEveryNumber) {
  ByUserScores p = policy();
  p.append(6);
  give(p, {kNan, kNan, -9, /**/ kNan, kNan, kNan});
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{2, 3}));
}

TEST(UserScores, HeadsHaveTheirOwn) {
  ByUserScores p = policy(2);
  p.append(6);
  give(p, {9, 0, 0, 0, 0, 9, /**/ 0, 9, 0, 9, 0, 0});
  p.select();
  EXPECT_EQ(positions(p, 0), (std::vector<int>{0, 5}));
  EXPECT_EQ(positions(p, 1), (std::vector<int>{1, 3}));
}

TEST(UserScores, FollowsItsRowAndIsNeverForgotten) {
  ByUserScores p = policy();
  p.append(6);
  give(p, {1, 7, 2, /**/ 4, 5, 6});
  p.select();
  EXPECT_EQ(scores(p), (Values{7, 6}));
  p.append(4);
  p.select();  // thins the hive without reading it, and still keeps its scores
  EXPECT_EQ(positions(p), (std::vector<int>{1, 6, 9}));
  EXPECT_EQ(scores(p), (Values{7, 0, 0}));
}

/// Sink, hive, window and pinned rows alike, whatever chooses; and a new row's 0 beats what is below it.
template <class Select>
void keeps_scores(typename typed::Policy<typed::UserScores, Select>::Options o) {
  o.sink = 2;
  o.window = 3;
  typed::Policy<typed::UserScores, Select> p(o, 1, 2);
  p.pin(4, 1);
  int evictions = 0;
  for (int turn = 0; turn < 40; ++turn) {
    const int before = p.next_position();
    p.append(2);
    EXPECT_EQ(p.scores(0)[p.rows() - 1], 0) << "until it is given one";
    Values given(static_cast<std::size_t>(p.rows()));
    for (int r = 0; r < p.rows(); ++r)  // not those of the last rows
      given[static_cast<std::size_t>(r)] = p.positions(0)[r] < before ? static_cast<float>(-1 - p.positions(0)[r]) : 0;
    p.give(buzz::view(given, 1, 1, p.rows()));
    if (p.should_evict()) {
      p.select();
      ++evictions;
    }
    for (int r = 0; r < p.rows(); ++r) {
      const int at = p.positions(0)[r];
      ASSERT_EQ(p.scores(0)[r], at < before ? static_cast<float>(-1 - at) : 0) << "position " << at;
    }
  }
  EXPECT_GT(evictions, 5);
}
TEST(UserScores, IsZeroedByNoEviction) {
  for (auto hive : {buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together}) {
    typed::Policy<typed::UserScores, buzz::Segments>::Options o;
    o.threshold = 7;
    o.hive = hive;
    keeps_scores<buzz::Segments>(o);
  }
  typed::Policy<typed::UserScores, buzz::TopK>::Options o;
  o.heavy = 4;
  keeps_scores<buzz::TopK>(o);
}

TEST(UserScores, ANewRowsZeroBeatsWhatIsBelowIt) {
  ByUserScores p = policy();
  p.append(2);
  give(p, {-1, -2});
  p.append(4);  // rows 2 and 3 to 5 have 0
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{2, 3}));
}

TEST(UserScores, ReadsAStridedView) {
  ByUserScores p = policy(2);
  p.append(2);
  const Values padded = {1, 2, 99, 3, 4, 99};
  p.give(buzz::View<const float>(padded.data(), 1, 2, 2, 6, 3));
  EXPECT_EQ(scores(p, 0), (Values{1, 2}));
  EXPECT_EQ(scores(p, 1), (Values{3, 4}));
}

TEST(UserScores, IsZeroAgainAfterReset) {
  ByUserScores p = policy();
  p.append(2);
  give(p, {1, 2});
  p.reset();
  p.append(2);
  EXPECT_EQ(scores(p), (Values{0, 0}));
}

}  // namespace
