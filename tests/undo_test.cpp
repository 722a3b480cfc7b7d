#include "buzz/score/undo.h"

#include <gtest/gtest.h>

#include <vector>

#include "oracle_twin.h"
#include "typed.h"

namespace {

/// A log of floats.
struct UndoLog : buzz::UndoLog {
  UndoLog(int max_rollback, int heads, int capacity) : buzz::UndoLog(max_rollback, heads, capacity, sizeof(float)) {}
};
using oracle::refused;
using Values = std::vector<float>;

/// What a log asks of a score: rows of floats that it may read and write, and to be told of each step back.
struct Scores final : buzz::Score {
  std::vector<Values> heads;
  int steps_back = 0;
  Scores(std::initializer_list<Values> values) : heads(values) {}  // NOLINT
  buzz::Needs needs() const override { return {}; }
  void importance(const buzz::Candidates&, double*) override {}
  buzz::RowNumbers changes(int h) override { return heads[static_cast<std::size_t>(h)].data(); }
  void step_back() override { ++steps_back; }
};

TEST(UndoLog, BringsBackWhatWasThere) {
  UndoLog log(4, 2, 3);
  Scores s{{1, 2, 3}, {4, 5, 6}};
  log.push(2, s, 3);
  s.heads = {{7, 7, 7}, {7, 7, 7}};
  log.restore(2, s, 2);
  EXPECT_EQ(s.heads[0], (Values{1, 2, 7})) << "of the rows that are left";
  EXPECT_EQ(s.heads[1], (Values{4, 5, 7}));
}

TEST(UndoLog, GoesBackStepByStep) {
  UndoLog log(4, 1, 1);
  Scores s{{0}};
  for (int position = 0; position < 4; ++position) {
    log.push(position, s, 1);
    s.heads[0][0] = static_cast<float>(position + 1);
  }
  log.restore(3, s, 1);
  EXPECT_EQ(s.heads[0][0], 3) << "after positions 0 to 2";
  EXPECT_EQ(s.steps_back, 1);
  log.restore(3, s, 1);
  EXPECT_EQ(s.heads[0][0], 3) << "there is nothing left to take back";
  log.restore(1, s, 1);
  EXPECT_EQ(s.heads[0][0], 1);
  log.push(1, s, 1);
  s.heads[0][0] = 9;
  log.restore(0, s, 1);
  EXPECT_EQ(s.heads[0][0], 0);
}

TEST(UndoLog, KeepsAPositionThatIsObservedTwice) {
  UndoLog log(4, 1, 1);
  Scores s{{5}};
  log.push(0, s, 1);
  s.heads[0][0] = 6;
  log.push(0, s, 1);
  s.heads[0][0] = 7;
  log.restore(0, s, 1);
  EXPECT_EQ(s.heads[0][0], 5);
}

TEST(UndoLog, HoldsTheNewestAndSaysHowFarItGoes) {
  UndoLog log(3, 1, 1);
  Scores s{{0}};
  for (int position = 0; position < 5; ++position) {
    EXPECT_EQ(log.floor(), std::max(0, position - 3));
    log.push(position, s, 1);
    s.heads[0][0] = static_cast<float>(position + 1);
  }
  EXPECT_EQ(log.floor(), 2);
  log.restore(2, s, 1);
  EXPECT_EQ(s.heads[0][0], 2);
}

TEST(UndoLog, OfNoStepsGoesNowhere) {
  UndoLog log(0, 2, 8);
  Scores s{{1}, {1}};
  EXPECT_EQ(log.bytes(), 0u);
  EXPECT_EQ(log.floor(), 0);
  log.push(6, s, 1);
  EXPECT_EQ(log.floor(), 7);
}

TEST(UndoLog, ForgetsAllAtAnEviction) {
  UndoLog log(3, 1, 1);
  Scores s{{1}};
  log.push(0, s, 1);
  log.clear(5);
  EXPECT_EQ(log.floor(), 5);
  s.heads[0][0] = 2;
  log.restore(0, s, 1);
  EXPECT_EQ(s.heads[0][0], 2);
  log.clear(0);
  EXPECT_EQ(log.floor(), 0) << "a reset";
}

TEST(UndoLog, FloorsOnlyRise) {
  UndoLog log(3, 1, 1);
  log.raise_floor(4);
  log.raise_floor(2);
  EXPECT_EQ(log.floor(), 4);
}

TEST(UndoLog, BytesAreItsCopies) { EXPECT_EQ(UndoLog(3, 2, 5).bytes(), 3 * sizeof(int) + 3 * 2 * 5 * sizeof(float)); }

// The policy's use of it.

typed::Beehive::Options wide() {
  typed::Beehive::Options o;
  o.sink = 1;
  o.window = 100;
  o.threshold = 10;
  return o;
}

Values scores(const typed::Beehive& p) { return Values(p.scores(0).begin(), p.scores(0).end()); }

/// Appends one token and observes it, giving `sum` to every row.
void token(typed::Beehive& p, float sum) {
  p.append(1);
  const Values all(static_cast<std::size_t>(p.rows()), sum);
  p.observe_sums(buzz::view(all, 1, 1, p.rows()));
}

TEST(PolicyRollback, TakesScoresBackExactly) {
  typed::Beehive p(wide(), 1, 8, 4);
  token(p, 0.1f);
  token(p, 0.3f);
  const Values before = scores(p);
  token(p, 1e8f);  // so large that taking it away again would lose the bits before it
  token(p, 0.7f);
  p.rollback(2);
  EXPECT_EQ(scores(p), before);
  EXPECT_EQ(p.rows(), 2);
  EXPECT_EQ(p.next_position(), 2);
}

TEST(PolicyRollback, OfPartOfACallTakesItsLastPartsBack) {
  typed::Beehive p(wide(), 1, 8, 4);
  p.append(3);
  const Values slices = {1, 0, 0, /**/ 2, 3, 0, /**/ 4, 5, 6};
  p.observe_sums(buzz::view(slices, 3, 1, 3));
  p.rollback(1);
  EXPECT_EQ(scores(p), (Values{3, 3}));
  p.rollback(1);
  EXPECT_EQ(scores(p), (Values{1}));
  p.rollback(1);
  EXPECT_EQ(p.rows(), 0);
}

TEST(PolicyRollback, CannotSplitASlice) {
  typed::Beehive p(wide(), 1, 8, 4);
  p.append(4);
  const Values slices = {1, 1, 1, 1, /**/ 2, 2, 2, 2};  // three queries together, then the newest
  p.observe_sums(buzz::view(slices, 2, 1, 4));
  EXPECT_TRUE(p.can_rollback(1));
  EXPECT_FALSE(p.can_rollback(2));
  EXPECT_EQ(refused([&] { p.rollback(2); }), "rollback");
  p.rollback(1);
  EXPECT_EQ(scores(p), (Values{1, 1, 1}));
}

TEST(PolicyRollback, TakesBackTokensThatWereNeverObserved) {
  typed::Beehive p(wide(), 1, 8, 4);
  token(p, 1);
  p.append(3);
  p.rollback(3);
  EXPECT_EQ(scores(p), (Values{1}));
  token(p, 1);
  EXPECT_EQ(scores(p), (Values{2, 1}));
}

TEST(PolicyRollback, OfGivenScoresBringsTheEarlierOnesBack) {
  using Policy = typed::Policy<typed::UserScores, buzz::Segments>;
  Policy p(Policy::Options(), 1, 8, 4);
  p.append(2);
  const Values first = {1, 2}, second = {3, 4, 5};
  p.give(buzz::view(first, 1, 1, 2));
  p.append(1);
  p.give(buzz::view(second, 1, 1, 3));
  p.rollback(1);
  EXPECT_EQ(Values(p.scores(0).begin(), p.scores(0).end()), first);
}

TEST(PolicyRollback, ReachesAsFarAsIsPromised) {
  typed::Beehive p(wide(), 1, 8, 4);
  for (int i = 0; i < 9; ++i) {
    for (int n = -1; n <= 6; ++n) {
      const bool can = n >= 0 && n <= std::min(4, i);
      EXPECT_EQ(p.can_rollback(n), can) << i << " tokens, " << n;
      EXPECT_TRUE(can || refused([&] { p.rollback(n); }) == "rollback");
    }
    token(p, 1);
  }
}

TEST(PolicyRollback, RefusesANegativeMost) {
  EXPECT_EQ(refused([] { typed::Beehive(wide(), 1, 1, -1); }), "max_rollback");
}

}  // namespace
