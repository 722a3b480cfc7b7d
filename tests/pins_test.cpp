#include "buzz/pins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "oracle_twin.h"
#include "typed.h"

namespace {

using buzz::Pins;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Twin;

constexpr int kMax = std::numeric_limits<std::int32_t>::max();

std::vector<std::pair<int, int>> ranges(const Pins& pins) {
  std::vector<std::pair<int, int>> result;
  for (const Pins::Range& r : pins.ranges()) result.push_back({r.first, r.count});
  return result;
}

TEST(Pins, AreASetOfPositions) {
  oracle::Random random(1);
  Pins pins;
  std::set<int> expected;
  for (int step = 0; step < 2000; ++step) {
    const int first = random.in(0, 60), count = random.one_in(5) ? 0 : random.in(1, 12);
    const bool adds = random.one_in(2);
    pins = adds ? pins.with(first, count) : pins.without(first, count);
    for (int p = first; p < first + count; ++p) adds ? (void)expected.insert(p) : (void)expected.erase(p);
    for (int p = 0; p < 80; ++p) ASSERT_EQ(pins.contains(p), expected.count(p) == 1) << step << " " << p;
    const int from = random.in(0, 80);
    ASSERT_EQ(pins.count_from(from), std::distance(expected.lower_bound(from), expected.end()));
    ASSERT_EQ(pins.empty(), expected.empty());
    for (std::size_t i = 1; i < pins.ranges().size(); ++i)
      ASSERT_GT(pins.ranges()[i].first, pins.ranges()[i - 1].end()) << "apart and ascending";
  }
}

TEST(Pins, RangesThatTouchAreOne) {
  const Pins apart = Pins().with(3, 2).with(7, 1);
  EXPECT_EQ(ranges(apart), (std::vector<std::pair<int, int>>{{3, 2}, {7, 1}}));
  EXPECT_EQ(ranges(apart.with(5, 2)), (std::vector<std::pair<int, int>>{{3, 5}}));
  EXPECT_EQ(ranges(apart.with(3, 5).without(4, 2)), (std::vector<std::pair<int, int>>{{3, 1}, {6, 2}}));
}

TEST(Pins, ReachTheLastPosition) {
  const Pins pins = Pins().with(kMax - 2, 2);
  EXPECT_TRUE(pins.contains(kMax - 1));
  EXPECT_FALSE(pins.contains(kMax - 3));
  EXPECT_TRUE(pins.without(0, kMax).empty());
}

bool holds(const oracle::AnyCache& cache, int position) {
  for (int h = 0; h < cache.shape().kv_heads; ++h) {
    const auto p = cache.positions(h);
    if (!std::binary_search(p.begin(), p.end(), position)) return false;
  }
  return true;
}

/// A row between sink and window that all heads hold, or -1.
int common_middle(const oracle::AnyCache& cache) {
  const buzz::Regions r = cache.regions();
  for (int i = r.sink; i < r.sink + r.middle(); ++i)
    if (holds(cache, cache.positions(0)[i])) return cache.positions(0)[i];
  return -1;
}

/// Pins rows ahead, in the window and in the middle, and has the oracle watch 300 tokens.
void pinned_rows_stay(const Config& c) {
  Twin twin(c, {});
  oracle::Random random(c.seed);
  std::set<int> pinned;
  const auto pin = [&](int first, int count) {
    twin.pin(first, count);
    for (int p = first; p < first + count; ++p) pinned.insert(p);
  };
  pin(1, 3);
  for (int turn = 0; twin.cache().next_position() < 300; ++turn) {
    if (c.kind == Kind::given) twin.give();
    ASSERT_NO_THROW(twin.call(random.in(1, c.max_chunk)));
    if (turn == 5) pin(twin.cache().next_position() - 4, 2);
    if (turn >= 12 && pinned.size() == 5 && common_middle(twin.cache()) >= 0) pin(common_middle(twin.cache()), 1);
    for (int p : pinned)
      ASSERT_TRUE(p >= twin.cache().next_position() || holds(twin.cache(), p)) << p << " at turn " << turn;
  }
  EXPECT_EQ(twin.evictions() > 10, c.kind != Kind::full);
  EXPECT_LE(twin.near_ties(), 1);
}

TEST(PinnedRows, StayWhateverThePolicy) {
  oracle::with_every_kind([](Kind kind) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " seed " + std::to_string(seed));
      pinned_rows_stay(small(kind, seed));
    }
  });
}

TEST(PinnedRows, StayWhateverTheRuleOfTheHive) {
  for (auto hive : {oracle::Hive::first, oracle::Hive::heaviest, oracle::Hive::together})
    for (bool single : {false, true})
      for (int keep : {1, 3}) {
        Config c = small(Kind::beehive, 11);
        c.oracle.hive = hive;
        c.oracle.single_pass = single;
        c.oracle.keep = keep;
        SCOPED_TRACE(describe(c));
        pinned_rows_stay(c);
      }
}

CachePtr cache_of(const Config& c) { return make_cache(oracle::Element::float32, c); }

TEST(PinnedRows, LeaveSizesIndependentOfScores) {
  oracle::with_every_kind([](Kind kind) {
    const CachePtr one = cache_of(small(kind)), other = cache_of(small(kind));
    one->pin(0, 5);
    other->pin(0, 5);
    for (int turn = 0; turn < 60; ++turn) {
      feed(*one, oracle::Text(1), 1 + turn % 5);
      feed(*other, oracle::Text(2), 1 + turn % 5);
      ASSERT_EQ(one->regions(), other->regions());
    }
  });
}

/// How many rows, the sink's apart, may be pinned; single: one pass an eviction.
int room(Kind kind, bool single = false) {
  if (takes_top_k(kind)) return 12;                 // heavy
  if (kind == Kind::streaming) return 18;           // threshold
  if (kind == Kind::full) return 400 - 2;           // capacity, the sink's apart
  return single ? (18 + 8) - 2 * (8 + 1) : 18 - 1;  // what halving leaves of the bound; threshold - 1
}

void takes_as_many_as_there_is_room_for(const Config& c, int most) {
  Twin twin(c, {});
  twin.pin(0, c.oracle.sink + most);
  const std::string before = bytes_of(twin.cache());
  EXPECT_EQ(refused<buzz::CacheFull>([&] { twin.cache().pin(1000, 1); }), "pinned rows");
  EXPECT_EQ(bytes_of(twin.cache()), before);
  twin.pin(0, c.oracle.sink + most);  // once more is no more
  for (int turn = 0; twin.cache().next_position() < 200; ++turn) ASSERT_NO_THROW(twin.call(1 + turn * 3 % c.max_chunk));
  for (int p = 0; p < std::min(200, c.oracle.sink + most); ++p) ASSERT_TRUE(holds(twin.cache(), p)) << p;
}

TEST(PinnedRows, FillTheRoomAndNoMore) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    takes_as_many_as_there_is_room_for(small(kind), room(kind));
  });
  for (auto hive : {oracle::Hive::first, oracle::Hive::heaviest, oracle::Hive::together}) {
    Config c = small(Kind::beehive);
    c.oracle.hive = hive;
    SCOPED_TRACE(describe(c));
    takes_as_many_as_there_is_room_for(c, room(Kind::beehive));
    c.oracle.single_pass = true;
    takes_as_many_as_there_is_room_for(c, room(Kind::beehive, true));
  }
}

TEST(PinnedRows, OfTheSinkTakeNoRoom) {
  Config c = small(Kind::streaming);
  c.oracle.threshold = 0;
  const CachePtr cache = cache_of(c);
  cache->pin(0, 2);
  EXPECT_EQ(refused<buzz::InvalidArgument>([&] { cache->pin(2, 1); }), "pinned rows");
}

TEST(PinnedRows, OutweighHeavierOnes) {
  // Position 3 gets no attention at all; the other rows of its chunk do.
  typed::Beehive::Options o;
  o.sink = 1;
  o.window = 1;
  o.threshold = 4;
  o.stride = 4;
  typed::Beehive policy(o, 1, 8);
  policy.pin(3, 1);
  policy.append(7);
  const std::vector<float> sums = {1, 5, 1, 0, 4, 3, 1};
  policy.observe_sums(buzz::view(sums, 1, 1, 7));
  policy.select();
  const auto p = policy.positions(0);
  EXPECT_EQ(std::vector<int>(p.begin(), p.end()), (std::vector<int>{0, 1, 3, 6})) << "1 is the heaviest that is free";
}

TEST(Pin, OfAnEvictedPositionIsRefused) {
  const CachePtr cache = cache_of(small(Kind::beehive));
  while (cache->next_position() < 60) feed(*cache, oracle::Text(), 5);
  int gone = 2;
  while (holds(*cache, gone)) ++gone;
  const std::string before = bytes_of(*cache);
  EXPECT_EQ(refused<buzz::InvalidArgument>([&] { cache->pin(gone, 1); }), "pin");
  EXPECT_EQ(refused([&] { cache->pin(gone - 1, 3); }), "pin") << "one of three";
  EXPECT_EQ(bytes_of(*cache), before);
}

TEST(Pin, OfAPositionThatOneHeadHasEvictedIsRefused) {
  const CachePtr cache = cache_of(small(Kind::beehive));
  int one = -1;
  while (one < 0) {
    feed(*cache, oracle::Text(), 5);
    for (std::int32_t p : cache->positions(0))
      if (!holds(*cache, p)) one = p;
  }
  EXPECT_EQ(refused([&] { cache->pin(one, 1); }), "pin");
}

TEST(Pin, MayReachAhead) {
  const CachePtr cache = cache_of(small(Kind::beehive));
  feed(*cache, oracle::Text(), 5);
  cache->pin(4, 3);  // the newest, and two to come
  cache->pin(100, 2);
  while (cache->next_position() < 300) feed(*cache, oracle::Text(), 7);
  for (int p : {4, 5, 6, 100, 101}) EXPECT_TRUE(holds(*cache, p)) << p;
}

TEST(Pin, OfNothingIsNothing) {
  const CachePtr cache = cache_of(small(Kind::beehive));
  cache->pin(7, 0);
  cache->unpin(7, 0);
  EXPECT_TRUE(cache->pins().empty());
  cache->pin(5, 4);
  cache->pin(7, 0);
  cache->unpin(7, 0);
  EXPECT_EQ(ranges(cache->pins()), (std::vector<std::pair<int, int>>{{5, 4}}));
}

TEST(Pin, RefusesWhatIsNoRange) {
  const CachePtr cache = cache_of(small(Kind::beehive));
  EXPECT_EQ(refused([&] { cache->pin(-1, 2); }), "first");
  EXPECT_EQ(refused([&] { cache->pin(1, -1); }), "count");
  EXPECT_EQ(refused([&] { cache->pin(kMax - 1, 2); }), "count");
  EXPECT_EQ(refused([&] { cache->unpin(-1, 2); }), "first");
  EXPECT_EQ(refused([&] { cache->unpin(1, -1); }), "count");
  EXPECT_TRUE(cache->pins().empty());
  cache->pin(kMax - 1, 1);
  EXPECT_TRUE(cache->pins().contains(kMax - 1));
}

TEST(Unpin, LetsRowsGo) {
  Twin twin(small(Kind::streaming), {});
  twin.pin(4, 4);
  for (int i = 0; i < 20; ++i) twin.call(7);
  twin.unpin(5, 2);
  twin.unpin(50, 3);  // were not pinned
  for (int i = 0; i < 20; ++i) twin.call(7);
  EXPECT_TRUE(holds(twin.cache(), 4));
  EXPECT_FALSE(holds(twin.cache(), 5));
  EXPECT_FALSE(holds(twin.cache(), 6));
  EXPECT_TRUE(holds(twin.cache(), 7));
  EXPECT_EQ(ranges(twin.cache().pins()), (std::vector<std::pair<int, int>>{{4, 1}, {7, 1}}));
}

TEST(Pins, AreForgottenByReset) {
  const CachePtr cache = cache_of(small(Kind::beehive)), fresh = cache_of(small(Kind::beehive));
  cache->pin(4, 4);
  cache->reset();
  EXPECT_TRUE(cache->pins().empty());
  for (int i = 0; i < 40; ++i) feed(*cache, oracle::Text(), 5), feed(*fresh, oracle::Text(), 5);
  EXPECT_EQ(bytes_of(*cache), bytes_of(*fresh));
}

TEST(Pins, AreSavedAndLoaded) {
  const CachePtr cache = cache_of(small(Kind::beehive)), other = cache_of(small(Kind::beehive));
  cache->pin(4, 4);
  cache->pin(200, 1);
  other->pin(0, 9);
  while (cache->next_position() < 100) feed(*cache, oracle::Text(), 5);
  std::istringstream file(bytes_of(*cache));
  other->load(file);
  EXPECT_EQ(ranges(other->pins()), (std::vector<std::pair<int, int>>{{4, 4}, {200, 1}}));
  while (other->next_position() < 300) feed(*other, oracle::Text(), 5);
  for (int p : {4, 5, 6, 7, 200}) EXPECT_TRUE(holds(*other, p)) << p;
}

TEST(Pins, OnRowsThatAreTakenBackAreGone) {
  Config c = small(Kind::beehive);
  Twin twin(c, {}, 8);
  twin.call(8);
  twin.pin(3, 3);
  twin.pin(20, 2);
  twin.rollback(4);
  EXPECT_EQ(ranges(twin.cache().pins()), (std::vector<std::pair<int, int>>{{3, 1}, {20, 2}}))
      << "those ahead of them stay";
  twin.rollback(0);
  EXPECT_EQ(ranges(twin.cache().pins()), (std::vector<std::pair<int, int>>{{3, 1}, {20, 2}}));
  while (twin.cache().next_position() < 200) twin.call(7);
  EXPECT_TRUE(holds(twin.cache(), 3));
  EXPECT_FALSE(holds(twin.cache(), 4));
  EXPECT_TRUE(holds(twin.cache(), 20));
}

TEST(PinsOfAModel, AreInAllLayersOrInNone) {
  typed::Options roomy, tight;
  tight.threshold = 3;
  typed::Model<float> model({1, 1, 4, 1}, {roomy, tight});
  EXPECT_EQ(refused([&] { model.pin(10, 3); }), "layer[1].pinned rows");
  EXPECT_TRUE(model.layer(0).evictor().pins().empty());
  model.pin(10, 2);
  EXPECT_TRUE(model.layer(0).evictor().pins().contains(11));
  EXPECT_TRUE(model.layer(1).evictor().pins().contains(11));
  model.unpin(11, 1);
  EXPECT_FALSE(model.layer(0).evictor().pins().contains(11));
  EXPECT_FALSE(model.layer(1).evictor().pins().contains(11));
}

}  // namespace
