// What today's models have beside softmax(q k) v, alone and together, beside the oracle: outputs, scores, evictions,
// rollback, saved files.

#include <gtest/gtest.h>

#include "oracle_twin.h"

namespace {

using oracle::AnyCache;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::kElements;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Statistics;
using oracle::Text;

/// A configuration of each kind, with some of the mechanisms.
Config small_today(Kind kind, std::uint64_t seed) {
  Config c = small(kind, seed);
  oracle::Random r(seed * 31 + static_cast<std::uint64_t>(kind));
  oracle::draw_mechanisms(r, &c);
  return c;
}

CachePtr cache_of(Element element, const Config& c, const buzz::Rope& rope = {}, int max_rollback = 0) {
  return make_cache(element, c, rope, max_rollback, library_attention(c));
}

/// Outputs, scores, kept rows and stored rows, in calls of any size, whatever is evicted.
TEST(Mechanisms, AgreeWithTheOracleInEveryTypeAndPolicy) {
  for (Element element : kElements) {
    Statistics s;
    const std::uint64_t first = 400000 + 100000 * static_cast<std::uint64_t>(element);
    int failures = 0;
    for (std::uint64_t seed = first; seed < first + 100 * oracle::kKinds && failures < 3; ++seed) {
      const Config c = oracle::draw_today(seed);
      try {
        oracle::Comparison(element, c, &s).run();
      } catch (const std::exception& e) {
        ++failures;
        ADD_FAILURE() << e.what() << "\n" << static_cast<int>(element) << " " << describe(c);
      }
    }
    EXPECT_GT(s.evictions, 600 * oracle::kKinds);
    EXPECT_LT(s.near_ties * 1000, s.evictions);
  }
}

/// Evictions, pins and rollback, in logical and compact positions.
TEST(Mechanisms, LiveAsTheOracleDoes) {
  int evictions = 0;
  oracle::with_every_kind([&](Kind kind) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed)
      for (Element element : {Element::float32, Element::half, Element::bfloat16}) {
        const Config c = small_today(kind, seed);
        SCOPED_TRACE(describe(c));
        buzz::Rope rope{seed % 3 == 0 ? 0. : 10000.};
        if (seed % 3 == 1) rope.positions = buzz::Positions::compact;
        oracle::Twin twin(element, c, rope, 8);
        oracle::Random random(seed);
        for (int call = 0; call < 40; ++call) {
          if (kind == Kind::given) twin.give();
          ASSERT_NO_THROW(twin.call(random.one_in(3) ? random.in(1, 8) : 1)) << call;
          const int back = random.in(0, 8);
          if (random.one_in(4) && twin.cache().can_rollback(back)) {
            ASSERT_NO_THROW(twin.rollback(back)) << call;
          }
        }
        evictions += twin.evictions();
      }
  });
  EXPECT_GT(evictions, 1000);
}

TEST(Mechanisms, AreTakenBackBitForBit) {
  oracle::with_every_kind([](Kind kind) {
    for (Element element : kElements) {
      const Config c = small_today(kind, 9);
      const CachePtr cache = cache_of(element, c, {}, 8);
      for (int i = 0; i < 30; ++i) feed(*cache, Text(), 1 + i % 3);
      while (!cache->can_rollback(1)) feed(*cache, Text(), 1);
      const std::string before = bytes_of(*cache);
      const int rows = cache->rows();
      const std::vector<float> first = feed(*cache, Text(2), 1);
      if (cache->rows() <= rows) continue;  // it evicted
      cache->rollback(1);
      EXPECT_EQ(bytes_of(*cache), before);
      EXPECT_EQ(feed(*cache, Text(2), 1), first);
    }
  });
}

/// What is loaded goes on bit for bit.
TEST(Mechanisms, AreSavedAndLoaded) {
  oracle::with_every_kind([](Kind kind) {
    for (Element element : kElements) {
      const Config c = small_today(kind, 5);
      const CachePtr saved = cache_of(element, c), loaded = cache_of(element, c);
      for (int i = 0; i < 30; ++i) feed(*saved, Text(), 1 + i % 8);
      feed(*loaded, Text(2), 5);
      std::istringstream file(bytes_of(*saved));
      loaded->load(file);
      for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(feed(*saved, Text(), 1 + i % 4), feed(*loaded, Text(), 1 + i % 4));
        ASSERT_EQ(bytes_of(*saved), bytes_of(*loaded));
      }
    }
  });
}

/// What a cache of `change` refuses a plain cache's file for, and the other way round.
std::string refuses(const std::function<void(Config&)>& change) {
  Config c = small(Kind::beehive);
  const CachePtr plain = cache_of(Element::float32, c);
  change(c);
  const CachePtr changed = cache_of(Element::float32, c);
  feed(*plain, Text(), 5);
  feed(*changed, Text(), 7);
  const std::string a = bytes_of(*plain), b = bytes_of(*changed);
  std::istringstream of_a(a), of_b(b);
  const std::string field = refused<buzz::FileError>([&] { changed->load(of_a); });
  EXPECT_EQ(refused<buzz::FileError>([&] { plain->load(of_b); }), field);
  if (field == "nothing") return field;
  EXPECT_EQ(bytes_of(*plain), a) << "and is as it was";
  EXPECT_EQ(bytes_of(*changed), b);
  return field;
}

TEST(Mechanisms, OfAnotherFileAreRefusedByName) {
  EXPECT_EQ(refuses([](Config&) {}), "nothing");
  EXPECT_EQ(refuses([](Config& c) { c.oracle.attention_window = 7; }), "attention.window");
}

/// The field that options are refused for.
template <class F>
std::string refuses_option(F&& change) {
  buzz::AttentionOptions options;
  change(options);
  return refused<buzz::InvalidArgument>([&] { make_cache(Element::float32, small(Kind::beehive), {}, 0, options); });
}

TEST(Mechanisms, OutOfRangeAreRefusedByName) {
  EXPECT_EQ(refuses_option([](auto& o) { o.window = -1; }), "attention.window");
  EXPECT_EQ(refuses_option([](auto& o) { o.window = 0x7fffffff; }), "nothing");
}

}  // namespace
