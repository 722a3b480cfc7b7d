// Between attend() and observe() a call's probabilities wait: whatever is done then keeps them bit for bit, says that
// it drops them, or is refused.

#include <gtest/gtest.h>

#include "oracle_twin.h"
#include "typed.h"

namespace {

using oracle::append_and_attend;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Text;

constexpr int kMost = 4;

CachePtr fed(int tokens, const Config& c = small(Kind::beehive), int max_rollback = kMost) {
  CachePtr cache = make_cache(Element::float32, c, buzz::Rope{10000.0}, max_rollback);
  for (int i = 0; i < tokens; ++i) feed(*cache, Text(), 1);
  return cache;
}

/// Kinds whose scores have a memory of attention.
constexpr Kind kSeeing[] = {Kind::beehive, Kind::heavy_hitter, Kind::tova, Kind::snap_kv};

TEST(Pending, IsCountedUntilItIsObservedOrDropped) {
  for (Kind kind : kSeeing) {
    const CachePtr cache = fed(5, small(kind));
    EXPECT_EQ(cache->unobserved(), 0);
    append_and_attend(*cache, 3);
    EXPECT_EQ(cache->unobserved(), 3);
    cache->observe();
    EXPECT_EQ(cache->unobserved(), 0);
    append_and_attend(*cache, 2);
    cache->discard();
    EXPECT_EQ(cache->unobserved(), 0);
    const std::string before = bytes_of(*cache);
    cache->observe();
    EXPECT_TRUE(bytes_of(*cache) == before) << "nothing was left";
  }
}

TEST(Pending, IsNothingWherePoliciesHaveNoUseForIt) {
  for (Kind kind : {Kind::streaming, Kind::strided, Kind::key_diff, Kind::key_outliers, Kind::given, Kind::full}) {
    const CachePtr cache = fed(5, small(kind));
    append_and_attend(*cache, 3);
    EXPECT_EQ(cache->unobserved(), 0);
    EXPECT_NO_THROW(bytes_of(*cache));
    EXPECT_NO_THROW(cache->evict());
  }
}

TEST(Pending, IsForkedAndObservedOnBothSides) {
  for (Kind kind : kSeeing) {
    const CachePtr cache = fed(5, small(kind)), twin = fed(5, small(kind));
    for (const CachePtr* c : {&cache, &twin}) append_and_attend(**c, 3);
    const CachePtr fork = cache->fork();
    EXPECT_EQ(fork->unobserved(), 3);
    for (const CachePtr* c : {&cache, &fork, &twin}) (*c)->observe();
    EXPECT_TRUE(bytes_of(*fork) == bytes_of(*twin));
    EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));
  }
}

TEST(Pending, MovesWithItsCache) {
  typed::Cache<float> cache({4, 2, 8, 8}), twin({4, 2, 8, 8});
  for (typed::Cache<float>* c : {&cache, &twin}) {
    feed(*c, Text(), 5);
    append_and_attend(*c, 3);
    if (c == &cache) {
      typed::Cache<float> moved(std::move(cache));
      cache = std::move(moved);
    }
    EXPECT_EQ(c->unobserved(), 3);
    c->observe();
  }
  EXPECT_TRUE(bytes_of(cache) == bytes_of(twin));
}

TEST(Pending, StaysWhereNothingIsTakenBack) {
  for (Kind kind : kSeeing) {
    const CachePtr cache = fed(5, small(kind)), twin = fed(5, small(kind));
    for (const CachePtr* c : {&cache, &twin}) append_and_attend(**c, 3);
    cache->rollback(0);
    EXPECT_EQ(cache->unobserved(), 3);
    for (const CachePtr* c : {&cache, &twin}) (*c)->observe();
    EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));
  }
}

TEST(Pending, OfTheTokensLeftIsAShorterCalls) {
  for (Kind kind : kSeeing)
    for (int n = 1; n <= 5; ++n)
      for (int r = 1; r <= kMost; ++r) {
        const CachePtr cache = fed(6, small(kind)), twin = fed(6 + (std::min)(0, n - r), small(kind));
        append_and_attend(*cache, n);
        if (n > r) append_and_attend(*twin, n - r);
        ASSERT_TRUE(cache->can_rollback(r));
        cache->rollback(r);
        EXPECT_EQ(cache->unobserved(), (std::max)(0, n - r));
        cache->observe();
        twin->observe();
        ASSERT_TRUE(bytes_of(*cache) == bytes_of(*twin)) << static_cast<int>(kind) << ": " << n << " less " << r;
        EXPECT_EQ(feed(*cache, Text(), 7), feed(*twin, Text(), 7));
        ASSERT_TRUE(bytes_of(*cache) == bytes_of(*twin)) << static_cast<int>(kind) << ": " << n << " less " << r;
      }
}

TEST(Pending, OfALongCallsTokensLeftIsAShorterCallsForScoresOfTheNewest) {
  for (Kind kind : {Kind::tova, Kind::snap_kv}) {
    Config c = small(kind);
    c.oracle.queries = 2;
    c.oracle.query_heads = c.oracle.kv_heads;  // from 16 queries of a KV head on, attention sums in another order
    const CachePtr cache = fed(6, c), twin = fed(6, c);
    append_and_attend(*cache, 8);
    cache->rollback(3);
    append_and_attend(*twin, 5);
    EXPECT_EQ(cache->unobserved(), 5);
    cache->observe();
    twin->observe();
    EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin)) << static_cast<int>(kind);
  }
}

TEST(Pending, IsNotSaved) {
  for (Kind kind : kSeeing) {
    const CachePtr cache = fed(5, small(kind)), twin = fed(5, small(kind));
    for (const CachePtr* c : {&cache, &twin}) append_and_attend(**c, 3);
    std::ostringstream out;
    EXPECT_EQ(refused([&] { cache->save(out); }), "unobserved");
    EXPECT_TRUE(out.str().empty());
    for (const CachePtr* c : {&cache, &twin}) (*c)->observe();
    EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin)) << "it is still there";
  }
}

TEST(Pending, StopsAnEvictionThatIsDue) {
  for (Kind kind : kSeeing) {
    const CachePtr cache = fed(0, small(kind)), twin = fed(0, small(kind));
    while (cache->rows() <= small(kind).oracle.sink + small(kind).oracle.window)
      for (const CachePtr* c : {&cache, &twin}) feed(**c, Text(), 1);
    std::string field = "nothing";
    for (int i = 0; i < 60 && field == "nothing"; ++i) {
      for (const CachePtr* c : {&cache, &twin}) append_and_attend(**c, 1);
      field = refused([&] { cache->evict(); });
      EXPECT_EQ(cache->rows(), twin->rows()) << "no eviction, or refused";
      for (const CachePtr* c : {&cache, &twin}) (*c)->observe();
      EXPECT_EQ(cache->evict(), twin->evict());
      EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));
    }
    EXPECT_EQ(field, "unobserved") << static_cast<int>(kind);
  }
}

TEST(Pending, IsNotOverwrittenByLogSumExps) {
  const CachePtr cache = fed(5), twin = fed(5);
  for (const CachePtr* c : {&cache, &twin}) append_and_attend(**c, 1);
  const std::vector<float> q(32, 0.f), lse(4, std::log(6.f));
  EXPECT_EQ(refused([&] { cache->observe(buzz::view(q, 1, 4, 8), buzz::view(lse, 1, 1, 4)); }), "unobserved");
  for (const CachePtr* c : {&cache, &twin}) (*c)->observe();
  EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));
}

TEST(Pending, IsDroppedByTheNextAppendAResetAndALoad) {
  const CachePtr cache = fed(5), twin = fed(5), empty = fed(0);
  std::istringstream file(bytes_of(*cache));
  append_and_attend(*cache, 2);
  cache->load(file);
  EXPECT_EQ(cache->unobserved(), 0);
  cache->observe();
  EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));

  append_and_attend(*cache, 2);
  append_and_attend(*cache, 1);
  append_and_attend(*twin, 2);
  twin->discard();
  append_and_attend(*twin, 1);
  EXPECT_EQ(cache->unobserved(), 1);
  for (const CachePtr* c : {&cache, &twin}) (*c)->observe();
  EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));

  append_and_attend(*cache, 2);
  cache->reset();
  EXPECT_EQ(cache->unobserved(), 0);
  cache->observe();
  EXPECT_TRUE(bytes_of(*cache) == bytes_of(*empty));
}

TEST(Pending, SurvivesARefusedLoad) {
  const CachePtr cache = fed(5), twin = fed(5);
  for (const CachePtr* c : {&cache, &twin}) append_and_attend(**c, 2);
  std::istringstream file("no cache");
  EXPECT_NE(refused([&] { cache->load(file); }), "nothing");
  EXPECT_EQ(cache->unobserved(), 2);
  for (const CachePtr* c : {&cache, &twin}) (*c)->observe();
  EXPECT_TRUE(bytes_of(*cache) == bytes_of(*twin));
}

typed::Model<float> model() { return {{4, 2, 8, 8, 4}, {typed::Options(), typed::Options(), typed::Options()}}; }

TEST(PendingModel, IsNotSavedAndSaysWhichLayer) {
  typed::Model<float> m = model();
  for (int i = 0; i < 3; ++i) feed(m.layer(i), Text(), 4);
  append_and_attend(m.layer(2), 1);
  std::ostringstream out;
  EXPECT_EQ(refused([&] { m.save(out); }), "layer[2].unobserved");
  EXPECT_TRUE(out.str().empty());
  m.layer(2).observe();
  EXPECT_NO_THROW(m.save(out));
}

TEST(PendingModel, IsForkedInTheMiddleOfAPass) {
  typed::Model<float> m = model(), twin = model();
  for (typed::Model<float>* c : {&m, &twin}) {
    for (int i = 0; i < 3; ++i) feed(c->layer(i), Text(), 4);
    feed(c->layer(0), Text(), 3);
    append_and_attend(c->layer(1), 3);
  }
  typed::Model<float> fork = m.fork();
  for (typed::Model<float>* c : {&m, &twin, &fork}) {
    c->layer(1).observe();
    c->layer(1).evict();
    feed(c->layer(2), Text(), 3);
  }
  EXPECT_TRUE(bytes_of(fork) == bytes_of(twin));
  EXPECT_TRUE(bytes_of(m) == bytes_of(twin));
}

TEST(PendingModel, IsSavedInTheMiddleOfAPassWhereNothingWaits) {
  typed::Model<float> m = model(), loaded = model();
  for (int i = 0; i < 3; ++i) feed(m.layer(i), Text(), 4);
  feed(m.layer(0), Text(), 3);
  std::istringstream file(bytes_of(m));
  loaded.load(file);
  for (typed::Model<float>* c : {&m, &loaded})
    for (int i = 1; i < 3; ++i) feed(c->layer(i), Text(), 3);
  EXPECT_TRUE(bytes_of(loaded) == bytes_of(m));
}

TEST(PendingModel, TakesNothingBackInTheMiddleOfAPass) {
  typed::Model<float> m = model();
  for (int i = 0; i < 3; ++i) feed(m.layer(i), Text(), 4);
  feed(m.layer(0), Text(), 2);
  const std::string before = bytes_of(m);
  EXPECT_TRUE(m.can_rollback(0));
  EXPECT_FALSE(m.can_rollback(2)) << "of layers 1 and 2 it would take two tokens of the last pass";
  EXPECT_EQ(refused([&] { m.rollback(2); }), "layer[1].next_position");
  EXPECT_NO_THROW(m.rollback(0));
  EXPECT_TRUE(bytes_of(m) == before);
  for (int i = 1; i < 3; ++i) feed(m.layer(i), Text(), 2);
  EXPECT_NO_THROW(m.rollback(2));
}

TEST(PendingModel, TakesBackWhatSomeLayersHaveNotObserved) {
  typed::Model<float> m = model();
  for (int i = 0; i < 3; ++i) feed(m.layer(i), Text(), 4);
  const std::string before = bytes_of(m);
  feed(m.layer(0), Text(), 2);
  for (int i = 1; i < 3; ++i) append_and_attend(m.layer(i), 2);
  m.rollback(2);
  EXPECT_TRUE(bytes_of(m) == before);
}

}  // namespace
