#include <gtest/gtest.h>

#include <Eigen/Core>
#include <random>
#include <type_traits>
#include <vector>

#include "typed.h"

namespace {

using buzz::AttentionKind;
using buzz::HiveRule;
using buzz::Regions;
using typed::Beehive;
using Rows = std::vector<int>;
using Values = std::vector<float>;

static_assert(std::is_same<typed::Options, Beehive::Options>::value, "the library is about the beehive");
static_assert(std::is_nothrow_move_constructible<Beehive>::value, "a vector of policies may grow");

template <class P>
Rows positions(const P& p, int head = 0) {
  return Rows(p.positions(head).begin(), p.positions(head).end());
}
template <class P>
Values scores(const P& p, int head = 0) {
  return Values(p.scores(head).begin(), p.scores(head).end());
}

Beehive::Options small() {
  Beehive::Options o;
  o.sink = 2;
  o.window = 3;
  o.threshold = 6;
  o.stride = 3;
  return o;
}

/// Probabilities of `heads` heads for one query over `rows` rows.
Values random_row(int heads, int rows, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0, 1);
  Values p(static_cast<std::size_t>(heads * rows));
  for (float& x : p) x = uniform(random);
  return p;
}

/// Appends `tokens` and observes the newest one's probabilities; evicts if it should.
void step(Beehive& p, int tokens, std::mt19937& random) {
  p.append(tokens);
  const Values row = random_row(p.kv_heads(), p.rows(), random);
  p.observe(buzz::view(row, p.kv_heads(), 1, p.rows()));
  if (p.should_evict()) p.select();
}

TEST(Policy, StartsEmpty) {
  const Beehive p(small(), 2);
  EXPECT_EQ(p.rows(), 0);
  EXPECT_EQ(p.next_position(), 0);
  EXPECT_EQ(p.regions(), Regions{});
  EXPECT_FALSE(p.should_evict());
  EXPECT_EQ(p.positions(1).size, 0);
  EXPECT_EQ(p.scores(1).size, 0);
}

TEST(Policy, AppendGivesTheNextPositionsToEveryHead) {
  Beehive p(small(), 2, 4);
  p.append(4);
  p.append(0);
  p.append(3);
  for (int h : {0, 1}) EXPECT_EQ(positions(p, h), (Rows{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(p.next_position(), 7);
  EXPECT_EQ(p.regions(), (Regions{2, 0, 2, 3}));
}

TEST(Policy, CapacityIsSinkAndWindowAndThresholdAndChunk) {
  EXPECT_EQ(Beehive({}, 1, 512).capacity(), 4 + 160 + 400 + 512);
  EXPECT_EQ(Beehive(small(), 1).capacity(), 2 + 3 + 6 + 1);
  EXPECT_EQ(Beehive::capacity(small(), 7), 2 + 3 + 6 + 7);
}

TEST(Policy, SelectKeepsAllWhereNothingIsDue) {
  Beehive p(small(), 1, 11);
  p.append(11);
  const buzz::KeptRows& keep = p.select();
  EXPECT_EQ(keep.from(), 11);
  EXPECT_EQ(keep.size(), 11);
  for (int r = 0; r < 11; ++r) EXPECT_EQ(keep.rows(0)[r], r);
  EXPECT_EQ(p.regions(), (Regions{2, 0, 6, 3})) << "unfiltered rows stay so";
}

TEST(Policy, TheKeepSaysWhichOldRowsAreLeft) {
  Beehive p(small(), 1, 12);
  p.append(12);
  const Values row = {0, 0, /**/ 1, 3, 2, /**/ 9, 8, 7, /**/ 5, /**/ 0, 0, 0};
  p.observe(buzz::view(row, 1, 1, 12));
  ASSERT_TRUE(p.should_evict());
  const buzz::KeptRows& keep = p.select();
  EXPECT_EQ(keep.from(), 12);
  EXPECT_EQ(Rows(keep.rows(0).begin(), keep.rows(0).end()), (Rows{0, 1, 3, 5, 8, 9, 10, 11}));
  EXPECT_EQ(positions(p), (Rows{0, 1, 3, 5, 8, 9, 10, 11}));
  EXPECT_EQ(p.regions(), (Regions{2, 3, 0, 3}));
  EXPECT_EQ(p.next_position(), 12) << "a position is no row";
}

TEST(Policy, ForgetsTheScoresOfSinkAndThinnedHive) {
  Beehive p(small(), 1, 12);
  p.append(12);
  const Values first = {1, 2, /**/ 3, 9, 3, /**/ 4, 8, 4, /**/ 7, /**/ 6, 5, 4};
  p.observe(buzz::view(first, 1, 1, 12));
  p.select();
  EXPECT_EQ(positions(p), (Rows{0, 1, 3, 6, 8, 9, 10, 11}));
  EXPECT_EQ(scores(p), (Values{0, 0, 9, 8, 7, 6, 5, 4})) << "the sink's are gone, those of the new hive are not";
  p.append(4);
  p.select();
  EXPECT_EQ(positions(p), (Rows{0, 1, 3, 8, 9, 12, 13, 14, 15}));
  EXPECT_EQ(scores(p), (Values{0, 0, 0, 0, 6, 0, 0, 0, 0})) << "position 9 was unfiltered, 3 and 8 were hive";
}

TEST(Policy, ForgetsNothingThatItWillReadAgain) {
  for (HiveRule rule : {HiveRule::heaviest, HiveRule::together}) {
    Beehive::Options o = small();
    o.hive = rule;
    Beehive p(o, 1, 12);
    p.append(12);
    const Values first = {1, 2, /**/ 3, 9, 3, /**/ 4, 8, 4, /**/ 7, /**/ 6, 5, 4};
    p.observe(buzz::view(first, 1, 1, 12));
    p.select();
    EXPECT_EQ(scores(p), (Values{1, 2, 9, 8, 7, 6, 5, 4}));
  }
}

TEST(Policy, AnEnginesRowsFollowTheKeep) {
  // The engine stores each row's position, [kv_heads, capacity, 1] for K and [capacity, kv_heads, 1] for V.
  constexpr int heads = 3;
  Beehive p(small(), heads, 5);
  const int capacity = p.capacity();
  Values k(static_cast<std::size_t>(heads * capacity), -1.f), v = k;
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const int tokens = 1 + static_cast<int>(random() % 5);
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < heads; ++h) {
        const float position = static_cast<float>(p.next_position() + t);
        k[static_cast<std::size_t>(h * capacity + p.rows() + t)] = position;
        v[static_cast<std::size_t>((p.rows() + t) * heads + h)] = position;
      }
    p.append(tokens);
    const Values row = random_row(2 * heads, p.rows(), random);
    p.observe(buzz::view(row, 2 * heads, 1, p.rows()));
    if (p.should_evict()) {
      const buzz::KeptRows& keep = p.select();
      buzz::compact(keep, buzz::view(k, heads, capacity, 1));
      for (int h = 0; h < heads; ++h) buzz::compact(keep, h, buzz::View<float>(v.data() + h, 1, capacity, 1, 0, heads));
    }
    for (int h = 0; h < heads; ++h)
      for (int r = 0; r < p.rows(); ++r) {
        const float position = static_cast<float>(p.positions(h)[r]);
        ASSERT_EQ(k[static_cast<std::size_t>(h * capacity + r)], position);
        ASSERT_EQ(v[static_cast<std::size_t>(r * heads + h)], position);
      }
  }
  EXPECT_NE(positions(p, 0), positions(p, 1)) << "heads keep different rows";
}

TEST(Policy, RowsNeverPassTheBoundHoweverTheyCome) {
  for (int chunk : {1, 7, 40}) {
    Beehive p(small(), 1, chunk);
    std::mt19937 random(6);
    for (int done = 0; done < 20000; done += chunk) {
      p.append(chunk);
      ASSERT_LE(p.rows(), 2 + 3 + 6 + chunk);
      if (p.should_evict()) p.select();
      ASSERT_LE(p.rows(), 2 + 3 + 6);
      ASSERT_EQ(p.positions(0)[0], 0) << "token 0 is the sink for ever";
      ASSERT_EQ(p.positions(0)[p.rows() > 1], p.rows() > 1);
    }
  }
}

TEST(Policy, ANewRowLivesAtLeastAsLongAsTheWindow) {
  Beehive p(small(), 2, 4);
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    step(p, 1 + static_cast<int>(random() % 4), random);
    for (int h : {0, 1})
      for (int back = 1; back <= std::min(3, p.rows()); ++back)
        ASSERT_EQ(p.positions(h)[p.rows() - back], p.next_position() - back);
  }
}

TEST(Policy, PositionsAscend) {
  Beehive p(small(), 2, 9);
  std::mt19937 random(8);
  for (int i = 0; i < 300; ++i) {
    step(p, 1 + static_cast<int>(random() % 9), random);
    for (int h : {0, 1})
      for (int r = 1; r < p.rows(); ++r) ASSERT_LT(p.positions(h)[r - 1], p.positions(h)[r]);
  }
}

TEST(Policy, ResetIsAsNew) {
  Beehive used(small(), 2, 9), fresh(small(), 2, 9);
  std::mt19937 random(9);
  for (int i = 0; i < 50; ++i) step(used, 9, random);
  used.reset();
  EXPECT_EQ(used.rows(), 0);
  EXPECT_EQ(used.next_position(), 0);
  std::mt19937 one(10), two(10);
  for (int i = 0; i < 50; ++i) {
    step(used, 1 + i % 9, one);
    step(fresh, 1 + i % 9, two);
    for (int h : {0, 1}) {
      ASSERT_EQ(positions(used, h), positions(fresh, h));
      ASSERT_EQ(scores(used, h), scores(fresh, h));
    }
  }
}

TEST(Policy, SequencesDoNotDisturbEachOther) {
  Beehive a(small(), 1, 5), b(small(), 1, 5), alone(small(), 1, 5);
  std::mt19937 of_a(11), of_b(12), of_alone(11);
  for (int i = 0; i < 100; ++i) {
    step(a, 1 + i % 5, of_a);
    step(b, 5 - i % 5, of_b);
  }
  for (int i = 0; i < 100; ++i) step(alone, 1 + i % 5, of_alone);
  EXPECT_EQ(positions(a), positions(alone));
  EXPECT_EQ(scores(a), scores(alone));
  EXPECT_NE(positions(b), positions(a));
}

TEST(Policy, AMovedOneGoesOn) {
  Beehive p(small(), 1, 12);
  std::mt19937 random(13);
  step(p, 12, random);
  const Rows before = positions(p);
  Beehive moved = std::move(p);
  EXPECT_EQ(positions(moved), before);
  moved.append(1);
  EXPECT_EQ(moved.next_position(), 13);
}

TEST(Policy, MoreRowsTakeMoreBytes) {
  // At least a position and a score a row and head.
  const std::size_t bytes = Beehive({}, 8, 1).bytes(), more = Beehive({}, 8, 1001).bytes();
  EXPECT_GE(bytes, 565u * 8 * 8);
  EXPECT_GE(more - bytes, 1000u * 8 * 8);
}

TEST(Policy, RefusesWhatIsNotThere) {
  Beehive p(small(), 2);
  EXPECT_THROW(p.positions(2), buzz::InvalidArgument);
  EXPECT_THROW(p.positions(-1), buzz::InvalidArgument);
  EXPECT_THROW(p.scores(2), buzz::InvalidArgument);
}

/// Has an Options type a member of that name?
#define BUZZ_TEST_HAS(name)               \
  template <class O, class = void>        \
  struct has_##name : std::false_type {}; \
  template <class O>                      \
  struct has_##name<O, std::void_t<decltype(std::declval<O&>().name)>> : std::true_type {}
BUZZ_TEST_HAS(stride);
BUZZ_TEST_HAS(threshold);
BUZZ_TEST_HAS(heavy);
BUZZ_TEST_HAS(attention);
BUZZ_TEST_HAS(hive);
BUZZ_TEST_HAS(capacity);
#undef BUZZ_TEST_HAS

TEST(Options, HoldWhatIsHonouredAndNothingElse) {
  using Heavy = typed::HeavyHitter::Options;
  using Stream = typed::Streaming::Options;
  using Whole = typed::Full::Options;
  using Diverse = typed::Policy<typed::KeyDiversity, buzz::Segments>::Options;
  EXPECT_TRUE(has_stride<typed::Options>::value && has_attention<typed::Options>::value &&
              has_hive<typed::Options>::value);
  EXPECT_FALSE(has_heavy<typed::Options>::value || has_capacity<typed::Options>::value);
  EXPECT_TRUE(has_heavy<Heavy>::value && has_attention<Heavy>::value && has_threshold<Heavy>::value);
  EXPECT_FALSE(has_stride<Heavy>::value || has_hive<Heavy>::value);
  EXPECT_TRUE(has_threshold<Stream>::value);
  EXPECT_FALSE(has_stride<Stream>::value || has_attention<Stream>::value || has_heavy<Stream>::value);
  EXPECT_TRUE(has_capacity<Whole>::value);
  EXPECT_FALSE(has_stride<Whole>::value || has_threshold<Whole>::value || has_attention<Whole>::value);
  EXPECT_TRUE(has_stride<Diverse>::value && !has_attention<Diverse>::value);
}

}  // namespace
