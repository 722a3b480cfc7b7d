// Prompts of any length, in calls of any size.
//
// A call of n tokens appends them all, attends (token i sees what came before it, and no later token), and evicts at
// its end if the middle is over the threshold. So it is n calls of one token but for this: where those would have
// evicted within the call, its later tokens still see the rows that were to go, and the eviction chooses from more.
//   The same in any chunking: sink, window, next_position, the bound; up to the first eviction everything; after it
//   everything too, if the calls that evict end at the same tokens.
//   Not the same: which rows of the middle stay, and how many, where the calls that evict end at other tokens.

#include <gtest/gtest.h>

#include <deque>

#include "oracle_twin.h"

namespace {

using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Kind;
using oracle::small;
using oracle::Twin;

Config sized(int chunk, int tokens = 400, Kind kind = Kind::beehive) {
  Config c = small(kind, 3, tokens);
  c.max_chunk = chunk;
  c.oracle.sink = 4;
  c.oracle.window = 12;
  c.oracle.threshold = 40;
  if (takes_top_k(kind)) c.top_threshold = 40;
  c.oracle.query_heads = 2;
  c.oracle.kv_heads = 1;
  c.oracle.head_dim = 4;
  c.oracle.scale = 0.5;
  return c;
}

/// Prefills `tokens` tokens in chunks, then decodes 60, beside the oracle; returns the most rows there were in a call.
int peak(const Config& c, int tokens, int decoded) {
  Twin twin(c, buzz::Rope{10000.0});
  int most = 0;
  const auto call = [&](int n) {
    most = std::max(most, twin.cache().rows() + n);
    twin.call(n);
  };
  for (int left = tokens; left > 0; left -= std::min(left, c.max_chunk)) call(std::min(left, c.max_chunk));
  for (int i = 0; i < decoded; ++i) call(1);
  EXPECT_EQ(twin.cache().next_position(), tokens + decoded);
  EXPECT_LE(twin.near_ties() * 1000, 1000 + twin.evictions());
  return most;
}

TEST(Prefill, OfEveryLengthInEveryChunkIsTheOracles) {
  const int window = 12, full = 4 + 12 + 40;
  for (int tokens : {1, window - 1, window, window + 1, full - 1, full, full + 1, 3 * full})
    for (int chunk : {1, 7, 64, 512}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens in chunks of " + std::to_string(chunk));
      int most = 0;
      ASSERT_NO_THROW(most = peak(sized(chunk), tokens, 60));
      EXPECT_LE(most, full + chunk);
      EXPECT_GE(most, std::min(tokens + 60, full + 1)) << "no row goes before it has to";
    }
}

TEST(Prefill, OfEveryPolicyIsTheOracles) {
  oracle::with_every_kind([](Kind kind) {
    for (int chunk : {1, 7, 64, 512}) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " chunk " + std::to_string(chunk));
      int most = 0;
      ASSERT_NO_THROW(most = peak(sized(chunk, 230, kind), 200, 30));
      EXPECT_EQ(most <= 4 + 12 + 40 + chunk, kind != Kind::full || chunk == 512);
    }
  });
}

/// With one head of two numbers, so that the oracle is done in time.
Config tiny(int chunk) {
  Config c = sized(chunk);
  c.oracle.query_heads = 1;
  c.oracle.head_dim = 2;
  return c;
}

TEST(LongPrefill, OneByOneIsTheOracles) { EXPECT_EQ(peak(tiny(1), 100000, 0), 56 + 1); }
TEST(LongPrefill, BySevensIsTheOracles) { EXPECT_EQ(peak(tiny(7), 100000, 0), 56 + 7); }
TEST(LongPrefill, BySixtyFoursIsTheOracles) { EXPECT_LE(peak(tiny(64), 100000, 0), 56 + 64); }
TEST(LongPrefill, By512sIsTheOracles) { EXPECT_LE(peak(tiny(512), 100000, 0), 56 + 512); }

CachePtr cache_of(const Config& c, int max_rollback = 0) {
  return make_cache(oracle::Element::float32, c, buzz::Rope{10000.0}, max_rollback);
}

/// What two caches hold is the same but for float rounding.
void expect_near(const oracle::AnyCache& a, const oracle::AnyCache& b) {
  ASSERT_EQ(a.regions(), b.regions());
  ASSERT_TRUE(a.same_rows(b));
  for (int i = 0; i < a.rows(); ++i) {
    ASSERT_EQ(a.positions(0)[i], b.positions(0)[i]);
    ASSERT_NEAR(a.scores(0)[i], b.scores(0)[i], 1e-5f * a.scores(0)[i]);
  }
}

TEST(Chunking, IsOfNoMatterUntilAnEviction) {
  const oracle::Text text;
  const CachePtr whole = cache_of(sized(64)), single = cache_of(sized(64)), sevens = cache_of(sized(64));
  const std::vector<float> a = feed(*whole, text, 56);  // all that fits without an eviction
  std::vector<float> b, c;
  for (int i = 0; i < 56; ++i)
    for (float x : feed(*single, text, 1)) b.push_back(x);
  for (int i = 0; i < 8; ++i)
    for (float x : feed(*sevens, text, 7)) c.push_back(x);
  EXPECT_EQ(whole->rows(), 56);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-5);
    ASSERT_NEAR(a[i], c[i], 1e-5);
  }
  expect_near(*whole, *single);
  expect_near(*whole, *sevens);
}

TEST(Chunking, IsOfNoMatterWhereEvictionsComeAtTheSameTokens) {
  const oracle::Text text;
  const CachePtr whole = cache_of(sized(64)), single = cache_of(sized(64));
  feed(*whole, text, 57);
  for (int i = 0; i < 57; ++i) feed(*single, text, 1);
  EXPECT_EQ(whole->regions().unfiltered, 0) << "one token more, and there is an eviction";
  expect_near(*whole, *single);
}

TEST(Chunking, MattersWhereEvictionsComeAtOtherTokens) {
  const oracle::Text text;
  const CachePtr whole = cache_of(sized(64)), single = cache_of(sized(64));
  feed(*whole, text, 64);
  for (int i = 0; i < 64; ++i) feed(*single, text, 1);
  EXPECT_EQ(whole->regions(), (buzz::Regions{4, 12, 0, 12})) << "48 unfiltered rows, one in four";
  EXPECT_EQ(single->regions(), (buzz::Regions{4, 11, 7, 12})) << "41 rows, one in four, and the seven tokens since";
  for (const oracle::AnyCache* c : {whole.get(), single.get()}) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(c->positions(0)[i], i) << "the sink is the same";
    for (int i = 1; i <= 12; ++i) EXPECT_EQ(c->positions(0)[c->rows() - i], 64 - i) << "and the window";
    EXPECT_EQ(c->next_position(), 64);
  }
}

TEST(Chunking, GivesTheSameBitsWhereEachTokenIsASlice) {
  const oracle::Text text;
  const CachePtr whole = cache_of(sized(8), 7), single = cache_of(sized(8), 7);
  for (int i = 0; i < 7; ++i) {
    const std::vector<float> a = feed(*whole, text, 7);
    std::vector<float> b;
    for (int j = 0; j < 7; ++j)
      for (float x : feed(*single, text, 1)) b.push_back(x);
    ASSERT_EQ(a, b);
    ASSERT_EQ(bytes_of(*whole), bytes_of(*single));
  }
}

TEST(Chunk, DoesNotSeeItsLaterTokens) {
  // The same prompt past many evictions, then a chunk whose last token differs.
  const Config c = sized(8);
  const CachePtr one = cache_of(c);
  while (one->next_position() < 200) feed(*one, oracle::Text(1), 8);
  const CachePtr other = one->fork();
  const oracle::Text text(1), another(2);
  std::vector<float> q = text.queries(200, 8, 2, 4), k = text.keys(200, 8, 1, 4), v = text.values(200, 8, 1, 4);
  std::vector<float> out(q.size()), other_out(q.size());
  const auto attend = [&](const CachePtr& cache, std::vector<float>& result) {
    cache->attend(buzz::view(q, 8, 2, 4), buzz::view(k, 8, 1, 4), buzz::view(v, 8, 1, 4), buzz::view(result, 8, 2, 4));
  };
  attend(one, out);
  for (std::size_t d = 28; d < 32; ++d) k[d] = 9 * (v[d] = -7);
  attend(other, other_out);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 7 * 8, other_out.begin()));
  EXPECT_FALSE(std::equal(out.begin() + 7 * 8, out.end(), other_out.begin() + 7 * 8));
}

TEST(Chunk, MayBeLongerThanWindowAndThreshold) {
  for (int chunk : {100, 513}) {
    Config c = sized(chunk);
    SCOPED_TRACE(chunk);
    ASSERT_NO_THROW(peak(c, 1000, 100));
  }
}

TEST(SlidingWindow, OfEveryPromptIsADeque) {
  for (int prompt = 1; prompt <= 24; ++prompt) {
    typed::Streaming::Options o;
    o.sink = 0;
    o.window = 12;
    typed::Cache<float, typed::Streaming> cache({1, 1, 2, 24}, o);
    std::deque<int> expected;
    const auto call = [&](int n) {
      for (int i = 0; i < n; ++i) expected.push_back(cache.next_position() + i);
      while (expected.size() > 12) expected.pop_front();
      feed(cache, oracle::Text(), n);
      const auto p = cache.positions(0);
      ASSERT_EQ(std::deque<int>(p.begin(), p.end()), expected) << "the newest token is one of the window's";
    };
    call(prompt);
    for (int i = 0; i < 15; ++i) call(1);
  }
}

/// Keys and values of a text in which few tokens matter: the others' logits are so low that their probability is 0.
/// Elements 0 and 1 may be rotated, and are 0; element 2 decides.
template <class P>
void fillers_do_not_matter(const typename P::Options& options, const buzz::Rope& rope, const std::vector<int>& matter) {
  const buzz::Shape shape{2, 1, 4, 8};
  typed::Cache<float, P> cache(shape, options, rope);
  typed::Full::Options room;
  room.capacity = 1000;
  typed::Cache<float, typed::Full> full(shape, room, rope);
  const oracle::Text text;
  for (int first = 0; first < 600;) {
    const int n = 1 + first % 8;
    std::vector<float> q(static_cast<std::size_t>(n) * 8), k(static_cast<std::size_t>(n) * 4);
    std::vector<float> v = text.values(first, n, 1, 4);
    for (int i = 0; i < n; ++i) {
      const bool one = std::count(matter.begin(), matter.end(), first + i) > 0;
      k[static_cast<std::size_t>(4 * i + 2)] = one ? text.keys(first + i, 1, 1, 1)[0] : -200;
      q[static_cast<std::size_t>(8 * i + 2)] = q[static_cast<std::size_t>(8 * i + 6)] = 1;
    }
    std::vector<float> out(q.size()), expected(q.size());
    const auto qv = buzz::view(q, n, 2, 4);
    const auto kv = buzz::view(k, n, 1, 4);
    cache.attend(qv, kv, buzz::view(v, n, 1, 4), buzz::view(out, n, 2, 4));
    full.attend(qv, kv, buzz::view(v, n, 1, 4), buzz::view(expected, n, 2, 4));
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-6) << "token " << first;
    first += n;
  }
  EXPECT_LT(cache.rows(), 100) << "and most of them were evicted";
}

TEST(RowsOfNoProbability, AreNotMissed) {
  buzz::Rope compact{10000.0};
  compact.dims = 2;
  compact.positions = buzz::Positions::compact;
  for (const buzz::Rope& rope : {buzz::Rope{}, compact}) {
    typed::Beehive::Options hive;
    hive.threshold = 40;
    hive.window = 12;
    fillers_do_not_matter<typed::Beehive>(hive, rope, {0, 2});  // the paper's hive keeps the sink for certain
    hive.hive = buzz::HiveRule::heaviest;
    fillers_do_not_matter<typed::Beehive>(hive, rope, {0, 2, 31});
    hive.hive = buzz::HiveRule::together;
    hive.keep = 4;
    fillers_do_not_matter<typed::Beehive>(hive, rope, {0, 2, 31, 32, 150, 333});
    typed::HeavyHitter::Options heavy;
    heavy.sink = 1;
    heavy.window = 12;
    heavy.heavy = 20;
    fillers_do_not_matter<typed::HeavyHitter>(heavy, rope, {0, 2, 31, 32, 150, 333, 334, 335, 500});
    typed::Streaming::Options streaming;
    streaming.window = 12;
    fillers_do_not_matter<typed::Streaming>(streaming, rope, {0, 2, 3});
  }
}

}  // namespace
