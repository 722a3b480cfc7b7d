// A fork is a deep copy, whose cost is in its name; after it the two live apart.

#include <gtest/gtest.h>

#include <type_traits>

#include "oracle_twin.h"
#include "typed.h"

namespace {

using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::small;
using oracle::Text;
using oracle::Twin;

static_assert(!std::is_copy_constructible<typed::Cache<float>>::value, "copying is called fork");
static_assert(!std::is_copy_assignable<typed::Cache<float>>::value, "");
static_assert(!std::is_copy_constructible<typed::Model<float>>::value, "");
static_assert(std::is_nothrow_move_constructible<typed::Cache<float>>::value, "a vector of sequences may grow");

buzz::Rope compact() {
  buzz::Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  return rope;
}

CachePtr cache_of(const Config& c, Element element = Element::float32) { return make_cache(element, c, compact(), 4); }
CachePtr small_beehive() { return cache_of(small(Kind::beehive)); }

/// Forks at `tokens`; both go on, one token of this, one of that, through evictions of their own.
void lives_apart(const Config& c, int tokens, Element element = Element::float32) {
  const CachePtr original = cache_of(c, element), alone = cache_of(c, element), other_alone = cache_of(c, element);
  original->pin(3, 2);
  alone->pin(3, 2);
  other_alone->pin(3, 2);
  const Text text(1), other(2);
  for (const CachePtr* cache : {&original, &alone, &other_alone})
    while ((*cache)->next_position() < tokens) feed(**cache, text, 1);
  const CachePtr fork = original->fork();
  EXPECT_EQ(fork->bytes(), original->bytes());
  ASSERT_EQ(bytes_of(*fork), bytes_of(*original));
  fork->unpin(3, 1);
  other_alone->unpin(3, 1);
  for (int turn = 0; turn < 30; ++turn) {
    const int n = 1 + turn % 4;
    const std::vector<float> expected = feed(*alone, text, n), other_expected = feed(*other_alone, other, n);
    ASSERT_EQ(feed(*original, text, n), expected) << turn;
    ASSERT_EQ(feed(*fork, other, n), other_expected) << turn;
    ASSERT_EQ(bytes_of(*original), bytes_of(*alone)) << turn;
    ASSERT_EQ(bytes_of(*fork), bytes_of(*other_alone)) << turn;
  }
}

TEST(Fork, AndItsOriginalLiveApartInEveryPolicy) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    for (int tokens : {0, 10, 26, 27, 90}) lives_apart(small(kind), tokens);
  });
}

TEST(Fork, AndItsOriginalLiveApartInEveryType) {
  for (Element element : oracle::kElements) lives_apart(small(Kind::beehive), 60, element);
}

TEST(Fork, OutlivesItsOriginal) {
  CachePtr original = small_beehive();
  const CachePtr alone = small_beehive();
  feed(*original, Text(), 8);
  feed(*alone, Text(), 8);
  const CachePtr fork = original->fork();
  original = nullptr;
  for (int i = 0; i < 30; ++i) ASSERT_EQ(feed(*fork, Text(), 3), feed(*alone, Text(), 3));
  EXPECT_EQ(bytes_of(*fork), bytes_of(*alone));
}

TEST(Fork, OfAForkOfAFork) {
  std::vector<CachePtr> branches;
  branches.push_back(small_beehive());
  for (std::uint64_t i = 1; i < 10; ++i) {
    feed(*branches.back(), Text(i), 8);
    branches.push_back(branches.back()->fork());
  }
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const CachePtr alone = small_beehive();
    for (std::uint64_t j = 1; j <= std::min<std::size_t>(i + 1, 9); ++j) feed(*alone, Text(j), 8);
    EXPECT_EQ(bytes_of(*branches[i]), bytes_of(*alone)) << i;
  }
}

TEST(Fork, TakesBackWhatItsOriginalCouldTakeBack) {
  const CachePtr original = small_beehive();
  feed(*original, Text(), 5);
  const std::string before = bytes_of(*original);
  feed(*original, Text(), 3);
  const CachePtr fork = original->fork();
  fork->rollback(3);
  EXPECT_EQ(bytes_of(*fork), before);
  EXPECT_EQ(original->rows(), 8);
  original->rollback(3);
  EXPECT_EQ(bytes_of(*original), before);
}

TEST(Fork, ResetsApart) {
  const CachePtr original = small_beehive();
  for (int i = 0; i < 20; ++i) feed(*original, Text(), 4);
  const CachePtr fork = original->fork();
  const std::string before = bytes_of(*original);
  fork->reset();
  EXPECT_EQ(bytes_of(*original), before);
  original->reset();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(feed(*original, Text(), 4), feed(*fork, Text(), 4)) << "both as new";
}

TEST(Fork, BetweenTheStepsOfACallGoesOnWithThem) {
  const CachePtr original = small_beehive(), alone = small_beehive();
  feed(*original, Text(), 5);
  feed(*alone, Text(), 5);
  const std::vector<float> q(32, 0.5f), k(16, 0.25f);
  std::vector<float> out(32);
  for (const CachePtr* cache : {&original, &alone}) {
    (*cache)->append(buzz::view(k, 1, 2, 8), buzz::view(k, 1, 2, 8));
    (*cache)->attend(buzz::view(q, 1, 4, 8), buzz::view(out, 1, 4, 8));
  }
  const CachePtr fork = original->fork(), unobserved = original->fork();
  original->observe();
  unobserved->discard();
  EXPECT_NE(bytes_of(*unobserved), bytes_of(*original));
  fork->observe();
  alone->observe();
  EXPECT_EQ(bytes_of(*fork), bytes_of(*original));
  EXPECT_EQ(bytes_of(*fork), bytes_of(*alone));
}

TEST(Fork, AndItsOriginalAreBothTheOracles) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Config c = small(Kind::beehive, seed);
    Twin one(c, compact(), 4);
    while (one.cache().next_position() < 60) one.call(5);
    Twin two = one.fork();
    two.say(seed + 100);
    for (int turn = 0; turn < 30; ++turn) {
      ASSERT_NO_THROW(one.call(1 + turn % 6));
      ASSERT_NO_THROW(two.call(1 + turn % 5));
    }
    EXPECT_GT(one.evictions(), 8);
    EXPECT_GT(two.evictions(), 8);
  }
}

TEST(ForkOfAPolicy, LivesApart) {
  typed::Beehive::Options o;
  o.window = 4;
  o.threshold = 8;
  typed::Beehive original(o, 1, 4);
  const std::vector<float> ones(40, 1.f);
  const auto step = [&](typed::Beehive& p, float weight) {
    p.append(4);
    std::vector<float> sums(ones.begin(), ones.begin() + p.rows());
    for (std::size_t i = 0; i < sums.size(); i += 3) sums[i] = weight;
    p.observe_sums(buzz::view(sums, 1, 1, p.rows()));
    p.select();
  };
  for (int i = 0; i < 5; ++i) step(original, 2);
  typed::Beehive fork = original.fork(), twin = original.fork();
  for (int i = 0; i < 9; ++i) {
    step(original, 3);
    step(fork, 0);
    step(twin, 3);
  }
  const auto positions = [](const typed::Beehive& p) {
    return std::vector<int>(p.positions(0).begin(), p.positions(0).end());
  };
  EXPECT_EQ(positions(original), positions(twin));
  EXPECT_NE(positions(original), positions(fork));
}

TEST(ForkOfAModel, LivesApart) {
  typed::Options wide, tight;
  tight.window = 6;
  tight.threshold = 9;
  wide.window = 20;
  typed::Model<float> original({2, 1, 4, 4}, {wide, tight}, compact());
  const auto step = [](typed::Model<float>& model, const Text& text) {
    for (int i = 0; i < model.layers(); ++i) feed(model.layer(i), text, 3);
  };
  for (int i = 0; i < 10; ++i) step(original, Text(1));
  typed::Model<float> fork = original.fork(), twin = original.fork();
  EXPECT_EQ(fork.bytes(), original.bytes());
  for (int i = 0; i < 20; ++i) {
    step(original, Text(1));
    step(fork, Text(2));
    step(twin, Text(1));
  }
  EXPECT_EQ(bytes_of(original), bytes_of(twin));
  EXPECT_NE(bytes_of(original), bytes_of(fork));
}

}  // namespace
