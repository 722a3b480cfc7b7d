// Part of a call, or whole calls, taken back: the scores are those of a cache that was never given them. Scores of the
// newest queries need those apart that are the newest once others are gone.

#include <gtest/gtest.h>

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

constexpr int kLongest = 12;

/// After `past` tokens a call of n, of which the newest r are taken back, is a call of n - r. `exact`: the sums of a
/// long call's first queries are not the sums of a shorter one's in their last bits.
int takes_back(const Config& c, int max_rollback, bool exact) {
  int done = 0;
  for (int past : {0, 9, 30})
    for (int n = 1; n <= kLongest; ++n)
      for (int r = 1; r <= std::min(n, max_rollback); ++r) {
        if (!exact && n > max_rollback + 1) continue;
        const CachePtr one = make_cache(Element::float32, c, buzz::Rope{10000.0}, max_rollback);
        const CachePtr two = make_cache(Element::float32, c, buzz::Rope{10000.0}, max_rollback);
        const Text text(c.seed);
        for (const CachePtr* cache : {&one, &two})
          while ((*cache)->next_position() < past) feed(**cache, text, 1);
        feed(*one, text, n);
        if (!one->can_rollback(r)) continue;  // it evicted
        ++done;
        one->rollback(r);
        feed(*two, text, n - r);
        EXPECT_TRUE(bytes_of(*one) == bytes_of(*two)) << past << " and " << n << " less " << r;
        for (int more : {2, 1, 5, 1, 9}) EXPECT_EQ(feed(*one, text, more), feed(*two, text, more));
        EXPECT_TRUE(bytes_of(*one) == bytes_of(*two)) << past << " and " << n << " less " << r << " and more";
        if (::testing::Test::HasFailure()) return done;
      }
  return done;
}

Config with(Kind kind, oracle::AttentionKind attention = oracle::AttentionKind::accumulated) {
  Config c = small(kind, 3);
  c.oracle.query_heads = c.oracle.kv_heads;  // from 16 queries of a KV head on, attention sums in another order
  c.max_chunk = kLongest;
  if (kind == Kind::beehive || kind == Kind::heavy_hitter) c.oracle.attention = attention;
  return c;
}

TEST(RollbackOfCalls, LeavesScoresOfTheNewestQueriesAsTheyWere) {
  for (int most : {1, 2, 3, 8}) {
    SCOPED_TRACE(most);
    EXPECT_GT(takes_back(with(Kind::beehive, oracle::AttentionKind::newest), most, true), 10);
    EXPECT_GT(takes_back(with(Kind::heavy_hitter, oracle::AttentionKind::newest), most, true), 10);
  }
}

TEST(RollbackOfCalls, LeavesTovasScoresAsTheyWere) {
  for (int most : {1, 2, 3, 8}) EXPECT_GT(takes_back(with(Kind::tova), most, true), 10) << most;
}

TEST(RollbackOfCalls, LeavesSnapKvsScoresAsTheyWere) {
  for (int queries : {1, 2, 5, 9})
    for (int most : {1, 3, 8}) {
      Config c = with(Kind::snap_kv);
      c.oracle.queries = queries;
      EXPECT_GT(takes_back(c, most, true), 10) << queries << " " << most;
    }
}

TEST(RollbackOfCalls, LeavesScoresOfEachQueryAsTheyWere) {
  for (oracle::AttentionKind attention : {oracle::AttentionKind::largest, oracle::AttentionKind::decayed})
    for (int most : {1, 3, 8}) EXPECT_GT(takes_back(with(Kind::beehive, attention), most, true), 10) << most;
}

TEST(RollbackOfCalls, LeavesSumsAsTheyWereUpToOneTokenMoreThanItMayTakeBack) {
  for (oracle::AttentionKind attention :
       {oracle::AttentionKind::accumulated, oracle::AttentionKind::mean, oracle::AttentionKind::latest})
    for (int most : {1, 3, 8}) EXPECT_GT(takes_back(with(Kind::beehive, attention), most, false), 3) << most;
}

TEST(RollbackOfCalls, LeavesScoresWithoutMemoryAsTheyWere) {
  for (Kind kind : {Kind::strided, Kind::diverse, Kind::key_outliers, Kind::streaming, Kind::full, Kind::given})
    EXPECT_GT(takes_back(with(kind), 3, true), 10) << static_cast<int>(kind);
}

/// Calls of any length; each place between two of them can be gone back to.
TEST(RollbackOfCalls, GoesBackToEachPlaceBetweenThem) {
  oracle::with_every_kind([](Kind kind) {
    for (oracle::AttentionKind attention :
         {oracle::AttentionKind::accumulated, oracle::AttentionKind::mean, oracle::AttentionKind::newest}) {
      const Config c = with(kind, attention);
      SCOPED_TRACE(describe(c));
      const CachePtr made = make_cache(Element::float32, c, buzz::Rope{10000.0}, 8);
      oracle::AnyCache& cache = *made;
      std::vector<std::string> at(1000);
      oracle::Random random(7);
      int done = 0;
      for (int call = 0; call < 60; ++call) {
        at[static_cast<std::size_t>(cache.next_position())] = bytes_of(cache);
        feed(cache, Text(c.seed), random.in(1, 6));
        for (int r = 1; r <= 8; ++r) {
          const int to = cache.next_position() - r;
          if (!cache.can_rollback(r) || at[static_cast<std::size_t>(to)].empty()) continue;
          const CachePtr fork = cache.fork();
          fork->rollback(r);
          ++done;
          ASSERT_TRUE(bytes_of(*fork) == at[static_cast<std::size_t>(to)]) << r << " back to " << to;
        }
        if (cache.capacity() - cache.rows() < c.max_chunk) break;  // Full
      }
      EXPECT_GT(done, 20);
    }
  });
}

/// Column sums of 10 queries over 10 rows in two slices: nine queries', and the newest one's.
template <class Policy>
bool rolls_back_from_two_slices(Policy policy) {
  policy.append(10);
  const std::vector<float> sums(2 * 10, 1.f);
  policy.observe_sums(buzz::view(sums, 2, 1, 10));
  EXPECT_TRUE(policy.can_rollback(0));
  EXPECT_NO_THROW(policy.rollback(0));
  EXPECT_EQ(oracle::refused([&] { policy.rollback(4); }), "rollback");
  const bool can = policy.can_rollback(1);
  const std::vector<float> one(11, 1.f);
  policy.append(1);
  policy.observe_sums(buzz::view(one, 1, 1, 11));
  EXPECT_TRUE(policy.can_rollback(1)) << "a call of one token can be taken back";
  EXPECT_EQ(policy.can_rollback(2), can);
  return can;
}

TEST(RollbackOfCalls, IsRefusedWherePartsHoldTheQueriesThatItNeeds) {
  typed::Tova::Options tova;
  tova.heavy = tova.threshold = 20;
  EXPECT_EQ(typed::Tova(tova, 1, 10, 3).queries_apart(), 4) << "the newest, and three before it";
  EXPECT_FALSE(rolls_back_from_two_slices(typed::Tova(tova, 1, 10, 3)));
  typed::SnapKv::Options snap;
  snap.heavy = snap.threshold = 20;
  snap.queries = 2;
  EXPECT_EQ(typed::SnapKv(snap, 1, 10, 3).queries_apart(), 5);
  EXPECT_FALSE(rolls_back_from_two_slices(typed::SnapKv(snap, 1, 10, 3)));
  typed::Beehive::Options sums;
  EXPECT_EQ(typed::Beehive(sums, 1, 10, 3).queries_apart(), 3);
  EXPECT_TRUE(rolls_back_from_two_slices(typed::Beehive(sums, 1, 10, 3)));
  sums.attention = buzz::AttentionKind::largest;
  EXPECT_EQ(typed::Beehive(sums, 1, 10, 3).queries_apart(), std::numeric_limits<int>::max());
  EXPECT_FALSE(rolls_back_from_two_slices(typed::Beehive(sums, 1, 10, 3)));
}

}  // namespace
