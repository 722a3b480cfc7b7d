// Rows taken back, as speculative decoding does: the cache is then, bit for bit, what it was before them.

#include <gtest/gtest.h>

#include "oracle_twin.h"
#include "typed.h"

namespace {

using buzz::Rope;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Text;
using oracle::Twin;

constexpr int kMost = 8;  // two more than the window

CachePtr cache_of(const Config& c, const Rope& rope = {}, Element element = Element::float32) {
  return make_cache(element, c, rope, kMost);
}
CachePtr small_beehive() { return cache_of(small(Kind::beehive)); }

Rope compact() {
  Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  return rope;
}

/// Decodes tokens one by one, and at each takes back 1 to kMost of them and does them again. Says how often it could.
int takes_back_and_redoes(const Config& c, const Rope& rope, Element element = Element::float32) {
  const CachePtr made = cache_of(c, rope, element);
  oracle::AnyCache& cache = *made;
  const Text text(c.seed);
  std::vector<std::string> before = {bytes_of(cache)};  // at each next_position
  std::vector<std::vector<float>> outputs;
  int evicted_at = 0, done = 0;
  while (cache.next_position() < 80) {
    const int rows = cache.rows();
    outputs.push_back(feed(cache, text, 1));
    before.push_back(bytes_of(cache));
    const int now = cache.next_position();
    if (cache.rows() <= rows) evicted_at = now;
    for (int n = 1; n <= kMost + 1; ++n) {
      const bool can = n <= kMost && now - n >= evicted_at;
      if (cache.can_rollback(n) != can) ADD_FAILURE() << "can_rollback(" << n << ") at " << now;
      if (!can) {
        EXPECT_EQ(refused([&] { cache.rollback(n); }), "rollback");
        EXPECT_EQ(bytes_of(cache), before.back());
        continue;
      }
      ++done;
      cache.rollback(n);
      EXPECT_EQ(bytes_of(cache), before[static_cast<std::size_t>(now - n)]) << n << " taken back at " << now;
      for (int p = now - n; p < now; ++p) {
        EXPECT_EQ(feed(cache, text, 1), outputs[static_cast<std::size_t>(p)]) << "token " << p;
        EXPECT_EQ(bytes_of(cache), before[static_cast<std::size_t>(p + 1)]) << "after token " << p;
      }
    }
    if (::testing::Test::HasFailure()) return done;
  }
  return done;
}

TEST(Rollback, AndRedoIsBitEqualInEveryPolicyAndMode) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    for (const Rope& rope : {Rope{}, Rope{10000.0}, compact()})
      EXPECT_GT(takes_back_and_redoes(small(kind), rope), 100);
  });
}

TEST(Rollback, AndRedoIsBitEqualInEveryType) {
  for (const Rope& rope : {Rope{10000.0}, compact()}) {
    for (Element element : oracle::kElements)
      EXPECT_GT(takes_back_and_redoes(small(Kind::beehive), rope, element), 100);
  }
}

TEST(Rollback, AndRedoIsBitEqualInEveryAttentionAndHive) {
  for (auto attention :
       {oracle::AttentionKind::accumulated, oracle::AttentionKind::mean, oracle::AttentionKind::latest})
    for (auto hive : {oracle::Hive::first, oracle::Hive::heaviest, oracle::Hive::together}) {
      Config c = small(Kind::beehive);
      c.oracle.attention = attention;
      c.oracle.hive = hive;
      SCOPED_TRACE(describe(c));
      EXPECT_GT(takes_back_and_redoes(c, compact()), 100);
    }
}

/// A call of six tokens, of which four are taken back, is a call of two.
void takes_part_of_a_call_back(const Config& c, const Rope& rope, Element element = Element::float32) {
  int done = 0;
  for (int past : {0, 3, 7, 19, 40, 43}) {
    const CachePtr one = cache_of(c, rope, element), two = cache_of(c, rope, element);
    const Text text(c.seed);
    for (const CachePtr* cache : {&one, &two})
      while ((*cache)->next_position() < past) feed(**cache, text, 1);
    feed(*one, text, 6);
    if (!one->can_rollback(4)) continue;  // it evicted
    ++done;
    one->rollback(4);
    feed(*two, text, 2);
    EXPECT_EQ(bytes_of(*one), bytes_of(*two)) << past;
    EXPECT_EQ(feed(*one, text, 4), feed(*two, text, 4)) << "and they go on alike";
    EXPECT_EQ(bytes_of(*one), bytes_of(*two)) << past;
  }
  EXPECT_GE(done, 3);
}

TEST(Rollback, OfPartOfACallIsBitEqualToAShorterCall) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    takes_part_of_a_call_back(small(kind), compact());
  });
  for (Element element : oracle::kElements) takes_part_of_a_call_back(small(Kind::beehive), Rope{10000.0}, element);
  Config latest = small(Kind::beehive);
  latest.oracle.attention = oracle::AttentionKind::latest;
  takes_part_of_a_call_back(latest, Rope{10000.0});
}

/// Draft tokens come in calls, some are taken back, other tokens follow: as the oracle has it.
void speculates(const Config& c, const Rope& rope) {
  Twin twin(c, rope, kMost);
  oracle::Random random(c.seed);
  int taken_back = 0;
  for (int turn = 0; twin.cache().next_position() < 200; ++turn) {
    if (c.kind == Kind::given && random.one_in(2)) twin.give();
    twin.say(static_cast<std::uint64_t>(turn));
    ASSERT_NO_THROW(twin.call(random.in(1, c.max_chunk)));
    const int n = random.in(0, kMost);
    if (!twin.cache().can_rollback(n)) continue;
    ASSERT_NO_THROW(twin.rollback(n));
    taken_back += n;
  }
  EXPECT_GT(taken_back, 30);
  EXPECT_GE(twin.evictions(), c.kind == Kind::full ? 0 : 8);
}

TEST(Rollback, FollowedByOtherTokensIsTheOracles) {
  oracle::with_every_kind([](Kind kind) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Config c = small(kind, seed);
      c.oracle.attention = seed == 1   ? oracle::AttentionKind::accumulated
                           : seed == 2 ? oracle::AttentionKind::mean
                                       : oracle::AttentionKind::latest;
      SCOPED_TRACE(describe(c));
      speculates(c, seed == 1 ? compact() : Rope{10000.0});
    }
  });
}

TEST(Rollback, OfNothingIsNothing) {
  const CachePtr cache = small_beehive();
  feed(*cache, Text(), 5);
  const std::string before = bytes_of(*cache);
  cache->rollback(0);
  EXPECT_EQ(bytes_of(*cache), before);
}

TEST(Rollback, OfAllIsEmpty) {
  const CachePtr cache = small_beehive(), empty = cache->fork();
  feed(*cache, Text(), 8);
  cache->rollback(8);
  EXPECT_EQ(bytes_of(*cache), bytes_of(*empty));
}

TEST(Rollback, OfMoreThanThereIsOrNegativeIsRefused) {
  const CachePtr cache = small_beehive();
  feed(*cache, Text(), 5);
  const std::string before = bytes_of(*cache);
  for (int n : {-1, -1000000, 6, 9, 1000000}) {
    EXPECT_FALSE(cache->can_rollback(n));
    EXPECT_EQ(refused([&] { cache->rollback(n); }), "rollback") << n;
  }
  EXPECT_EQ(bytes_of(*cache), before);
}

TEST(Rollback, PastAnEvictionIsRefused) {
  const CachePtr cache = small_beehive();
  while (cache->regions().hive == 0) feed(*cache, Text(), 1);
  EXPECT_TRUE(cache->can_rollback(0));
  EXPECT_FALSE(cache->can_rollback(1)) << "the newest token's call evicted";
  feed(*cache, Text(), 3);
  EXPECT_TRUE(cache->can_rollback(3));
  const std::string before = bytes_of(*cache);
  EXPECT_EQ(refused([&] { cache->rollback(4); }), "rollback");
  EXPECT_EQ(bytes_of(*cache), before);
}

TEST(Rollback, HasToBeAskedForAtFirst) {
  const Config c = small(Kind::beehive);
  const CachePtr cache = make_cache(Element::float32, c);
  feed(*cache, Text(), 5);
  EXPECT_TRUE(cache->can_rollback(0));
  EXPECT_FALSE(cache->can_rollback(1));
  EXPECT_EQ(refused([&] { cache->rollback(1); }), "rollback");
}

TEST(Rollback, DoesNotReachBehindALoad) {
  const CachePtr cache = small_beehive();
  feed(*cache, Text(), 5);
  std::istringstream file(bytes_of(*cache));
  cache->load(file);
  EXPECT_FALSE(cache->can_rollback(1));
  feed(*cache, Text(), 2);
  EXPECT_TRUE(cache->can_rollback(2));
  EXPECT_FALSE(cache->can_rollback(3));
}

TEST(Rollback, DoesNotReachBehindAReset) {
  const CachePtr cache = small_beehive();
  while (cache->next_position() < 60) feed(*cache, Text(), 1);
  cache->reset();
  EXPECT_FALSE(cache->can_rollback(1));
  feed(*cache, Text(), 4);
  EXPECT_TRUE(cache->can_rollback(4));
}

TEST(Rollback, ForgetsAnAttendThatWasNotObserved) {
  const Config c = small(Kind::beehive);
  const CachePtr cache = cache_of(c);
  feed(*cache, Text(), 5);
  const std::string before = bytes_of(*cache);
  const std::vector<float> q(2 * 32, 1.f), k(2 * 16, 1.f);
  std::vector<float> out(2 * 32);
  cache->append(buzz::view(k, 2, 2, 8), buzz::view(k, 2, 2, 8));
  cache->attend(buzz::view(q, 2, 4, 8), buzz::view(out, 2, 4, 8));
  cache->rollback(2);
  cache->observe();
  EXPECT_EQ(bytes_of(*cache), before);
}

TEST(Rollback, DoesNotReachBehindTokensObservedOnceMore) {
  // Their attention came twice, the second time after that of later tokens.
  const Config c = small(Kind::beehive);
  buzz::AttentionOptions any_lse;
  any_lse.lse_tolerance = 1e9;
  const CachePtr cache = make_cache(Element::float32, c, {}, kMost, any_lse);
  const Text text(1);
  feed(*cache, text, 4);
  const int heads = c.oracle.query_heads, dim = c.oracle.head_dim;
  const std::vector<float> q = text.queries(1, 3, heads, dim), lse(static_cast<std::size_t>(3 * heads), 1.f);
  cache->observe(buzz::view(q, 3, heads, dim), buzz::View<const float>(lse.data(), 1, 3, heads));
  EXPECT_FALSE(cache->can_rollback(1));
  const std::string before = bytes_of(*cache);
  feed(*cache, text, 1);
  ASSERT_TRUE(cache->can_rollback(1));
  EXPECT_FALSE(cache->can_rollback(2));
  cache->rollback(1);
  EXPECT_EQ(bytes_of(*cache), before);
}

TEST(RollbackOfAModel, IsInAllLayersOrInNone) {
  typed::Options roomy, tight;
  tight.threshold = 3;
  tight.window = 4;
  typed::Model<float> model({1, 1, 4, 1, 4}, {roomy, tight});
  const auto step = [&] {
    for (int i = 0; i < 2; ++i) feed(model.layer(i), Text(), 1);
  };
  while (model.layer(1).regions().hive == 0) step();
  EXPECT_TRUE(model.layer(0).can_rollback(1));
  EXPECT_FALSE(model.can_rollback(1)) << "the second layer has evicted";
  const std::string before = bytes_of(model);
  EXPECT_EQ(refused([&] { model.rollback(1); }), "layer[1].rollback");
  EXPECT_EQ(bytes_of(model), before);
  step();
  EXPECT_TRUE(model.can_rollback(1));
  model.rollback(1);
  EXPECT_EQ(bytes_of(model), before);
}

}  // namespace
