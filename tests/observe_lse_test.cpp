// Scores where a flash kernel attended and gives no probabilities, only each query's log-sum-exp: the column sums made
// again are the direct ones.

#include <gtest/gtest.h>

#include "buzz/rope_scaling.h"
#include "oracle_twin.h"

namespace {

using buzz::Rope;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::Life;
using oracle::refused;
using oracle::small;
using oracle::Text;
using oracle::Tokens;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

Rope compact(Rope rope, buzz::KeyStorage keys = buzz::KeyStorage::automatic) {
  rope.positions = buzz::Positions::compact;
  rope.keys = keys;
  return rope;
}

/// A cache whose scores come from log-sum-exps, and the oracle, which has the probabilities.
class Flash {
 public:
  Flash(const Config& c, const Rope& rope, double log_base = 0, float amplitude = 1, int max_rollback = 0,
        Element element = Element::float32)
      : c_(with(c, log_base)),
        cache_(make_cache(element, c_, rope, max_rollback, library_attention(c_))),
        rotation_(oracle::rotation_of(rope, c.oracle.head_dim, cache_->has_raw_keys())),
        life_(stored_as(element, c_.oracle), rotation_, max_rollback > 0),
        text_(c.seed, amplitude) {}

  oracle::AnyCache& cache() { return *cache_; }
  Life& life() { return life_; }

  /// Appends, and the engine's kernel attends: what it has from keys() and values() is the log-sum-exp of each query.
  std::vector<float> attend(int n) {
    const int first = cache_->next_position(), heads = c_.oracle.kv_heads, dim = c_.oracle.head_dim;
    const std::vector<float> k = text_.keys(first, n, heads, dim),
                             v = text_.values(first, n, heads, c_.oracle.values());
    queries_ = text_.queries(first, n, c_.oracle.query_heads, dim);
    cache_->append(buzz::view(k, n, heads, dim), oracle::value_view(v, n, cache_->shape()));
    life_.append(oracle::tokens_of(k, heads, dim), oracle::tokens_of(v, heads, c_.oracle.values()));
    if (!rotation_.raw)
      for (int h = 0; h < heads; ++h) {
        const oracle::AnyCache::Rows stored = cache_->keys(h);
        for (std::size_t r = 0; r < stored.size(); ++r) life_.head(h)[r].key = stored[r].values;
      }
    const Tokens q = oracle::tokens_of(queries_, c_.oracle.query_heads, dim);
    life_.attend(q);
    std::vector<float> lse;
    for (const std::vector<double>& token : life_.log_sum_exp(q)) lse.insert(lse.end(), token.begin(), token.end());
    return lse;
  }

  void observe(const std::vector<float>& lse) {
    const int n = static_cast<int>(lse.size()) / c_.oracle.query_heads;
    const buzz::View<const float> view(lse.data(), 1, n, c_.oracle.query_heads);
    cache_->observe(buzz::view(queries_, n, c_.oracle.query_heads, c_.oracle.head_dim), view);
  }

  /// The whole call, compared.
  void call(int n) {
    observe(attend(n));
    life_.observe();
    compare();
    if (cache_->evict()) {
      // Follow the library's choice: this is about sums.
      std::vector<oracle::Cache::Choice> choices;
      for (int h = 0; h < c_.oracle.kv_heads; ++h) {
        choices.push_back(life_.choose(h, life_.importance(h)));
        choices.back().kept.clear();
        const auto& before = life_.head(h);
        for (std::size_t r = 0; r < before.size(); ++r)
          if (std::binary_search(cache_->positions(h).begin(), cache_->positions(h).end(), before[r].position))
            choices.back().kept.push_back(static_cast<int>(r));
      }
      life_.evict(choices);
    }
  }

  void compare() {
    for (int h = 0; h < c_.oracle.kv_heads; ++h)
      for (int r = 0; r < cache_->rows(); ++r) {
        const double expected = life_.head(h)[static_cast<std::size_t>(r)].score;
        ASSERT_NEAR(static_cast<double>(cache_->scores(h)[r]), expected, 1e-5 * std::max(1.0, expected)) << r;
      }
  }

 private:
  static Config with(Config c, double log_base) {
    c.oracle.log_base = log_base;
    return c;
  }

  Config c_;
  CachePtr cache_;
  oracle::Rotation rotation_;
  Life life_;
  Text text_;
  std::vector<float> queries_;
};

/// More rows than a tile of the attention has, and calls of one, of a few and of many tokens.
Config roomy(Kind kind = Kind::beehive) {
  Config c = small(kind);
  c.max_chunk = 150;
  c.oracle.window = 100;
  c.oracle.threshold = 80;
  if (takes_top_k(kind)) c.top_threshold = 80;
  return c;
}

void sums_are_the_direct_ones(const Config& c, const Rope& rope, double log_base = 0, float amplitude = 1,
                              Element element = Element::float32) {
  Flash flash(c, rope, log_base, amplitude, 0, element);
  for (int n : {1, 7, 1, 64, 1, 1, 33, 150, 3, 1}) {
    ASSERT_NO_FATAL_FAILURE(flash.call(n)) << n;
    for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(flash.call(1)) << n;
  }
  EXPECT_GT(flash.cache().regions().hive, 0);
}

TEST(ObserveLse, IsTheDirectSumsInEveryModeOfPositions) {
  const Rope yarn = buzz::rope_scaling::yarn(Rope{10000.0}, 8, 4, 64);
  for (const Rope& rope :
       {Rope{}, Rope{10000.0}, yarn, compact(Rope{500000.0}), compact(yarn), compact(yarn, buzz::KeyStorage::raw)}) {
    SCOPED_TRACE(std::to_string(rope.base) + " compact " + std::to_string(static_cast<int>(rope.positions)));
    sums_are_the_direct_ones(roomy(), rope);
    sums_are_the_direct_ones(roomy(), rope, 512);
    sums_are_the_direct_ones(roomy(), rope, 4, 2);
  }
  sums_are_the_direct_ones(roomy(Kind::heavy_hitter), compact(yarn));
}

TEST(ObserveLse, IsTheDirectSumsInEveryType) {
  for (const Rope& rope : {Rope{10000.0}, compact(Rope{10000.0})}) {
    for (Element element : {Element::half, Element::bfloat16}) sums_are_the_direct_ones(roomy(), rope, 0, 1, element);
  }
}

TEST(ObserveLse, IsTheDirectSumsForEveryGroup) {
  for (int kv_heads : {1, 2, 4, 8}) {
    Config c = roomy();
    c.oracle.query_heads = 8;
    c.oracle.kv_heads = kv_heads;
    sums_are_the_direct_ones(c, Rope{10000.0});
  }
}

TEST(ObserveLse, IsTheDirectSumsForLatestAttention) {
  Config c = roomy();
  c.oracle.attention = oracle::AttentionKind::latest;
  sums_are_the_direct_ones(c, Rope{10000.0});
}

TEST(ObserveLse, IsTheDirectSumsOfEveryMechanism) {
  for (Element element : oracle::kElements)
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      Config c = roomy();
      oracle::Random random(seed);
      oracle::draw_mechanisms(random, &c);
      if (seed % 2 != 0) c.oracle.values_in_keys = false;  // they would be rotated
      SCOPED_TRACE(describe(c));
      sums_are_the_direct_ones(c, seed % 2 == 0 ? Rope{} : Rope{10000.0}, 0, 1, element);
    }
}

TEST(ObserveLse, IsWhatAttendWouldHaveObserved) {
  // The library's own attention beside its recomputation: sharp logits, where a wrong norm would show.
  const Config c = roomy();
  Flash flash(c, Rope{10000.0}, 0, 4);
  const CachePtr direct = make_cache(Element::float32, c, Rope{10000.0});
  const Text text(c.seed, 4);
  for (int n : {20, 1, 1, 50, 1, 100}) {
    feed(*direct, text, n);
    flash.observe(flash.attend(n));
    flash.cache().evict();
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < std::min(direct->rows(), flash.cache().rows()); ++r)
        ASSERT_NEAR(flash.cache().scores(h)[r], direct->scores(h)[r], 1e-5 * std::max(1., direct->scores(h)[r]));
  }
}

TEST(ObserveLse, OfAQueryThatSawNothingGivesNothing) {
  const Config c = small(Kind::beehive);
  for (float nothing : {-kInf, kInf, kNan}) {
    Flash flash(c, {}), spared(c, {});
    std::vector<float> lse = flash.attend(5);
    spared.attend(5);
    // Query head 1 of token 2 gives nothing; all others do as they would.
    std::vector<float> without = lse;
    without[2 * 4 + 1] = nothing;
    flash.observe(lse);
    spared.observe(without);
    double missing = 0;
    for (int r = 0; r < 5; ++r) {
      EXPECT_EQ(spared.cache().scores(1)[r], flash.cache().scores(1)[r]) << "the other KV head";
      EXPECT_TRUE(std::isfinite(spared.cache().scores(0)[r]));
      missing += flash.cache().scores(0)[r] - spared.cache().scores(0)[r];
    }
    EXPECT_NEAR(missing, 1, 1e-5) << "one query's whole attention";
  }
}

TEST(ObserveLse, OfNothingButNanGivesNothing) {
  Flash flash(small(Kind::beehive), {});
  const std::vector<float> lse = flash.attend(5);
  flash.observe(std::vector<float>(lse.size(), kNan));
  for (int r = 0; r < 5; ++r) EXPECT_EQ(flash.cache().scores(0)[r], 0);
}

TEST(ObserveLse, IsCausal) {
  Flash flash(small(Kind::beehive), {});
  std::vector<float> lse = flash.attend(5);
  for (std::size_t i = 4; i < lse.size(); ++i) lse[i] = -kInf;  // the first token's queries alone
  flash.observe(lse);
  EXPECT_NEAR(flash.cache().scores(0)[0], 2, 1e-5) << "two query heads, which saw one row";
  for (int r = 1; r < 5; ++r) EXPECT_EQ(flash.cache().scores(0)[r], 0);
}

TEST(ObserveLse, IsCountedOnce) {
  Flash flash(small(Kind::beehive), {});
  flash.observe(flash.attend(5));
  const std::string before = bytes_of(flash.cache());
  flash.cache().observe();
  EXPECT_EQ(bytes_of(flash.cache()), before);
}

TEST(ObserveLse, MayBeOfTheNewestQueriesAlone) {
  const Config c = small(Kind::beehive);
  const CachePtr cache = make_cache(Element::float32, c);
  const std::vector<float> k(6 * 16, 0.f), q(2 * 32, 1.f);
  cache->append(buzz::view(k, 6, 2, 8), buzz::view(k, 6, 2, 8));
  // All logits are 0: the last two queries see 5 and 6 rows.
  const std::vector<float> lse = {std::log(5.f), std::log(5.f), std::log(5.f), std::log(5.f),
                                  std::log(6.f), std::log(6.f), std::log(6.f), std::log(6.f)};
  cache->observe(buzz::view(q, 2, 4, 8), buzz::view(lse, 1, 2, 4));
  for (int r = 0; r < 5; ++r) EXPECT_NEAR(cache->scores(0)[r], 2 * (1 / 5.f + 1 / 6.f), 1e-6);
  EXPECT_NEAR(cache->scores(0)[5], 2 / 6.f, 1e-6);
}

TEST(ObserveLse, IsTakenBackBitForBit) {
  const Config c = small(Kind::beehive);
  Flash flash(c, Rope{10000.0}, 0, 1, 8);
  flash.observe(flash.attend(5));
  const std::string before = bytes_of(flash.cache());
  flash.observe(flash.attend(6));
  flash.cache().rollback(6);
  flash.life().rollback(6);
  EXPECT_EQ(bytes_of(flash.cache()), before);
}

/// What a call's log-sum-exps are refused for, once `wrong` has changed them; the cache stays as it was.
template <class F>
double mismatch_of(F&& wrong) {
  const Config c = roomy();
  Flash flash(c, Rope{10000.0}, 0, 2), twin(c, Rope{10000.0}, 0, 2);
  for (int n : {40, 1, 3}) {
    flash.observe(flash.attend(n));
    twin.observe(twin.attend(n));
    EXPECT_LT(flash.cache().lse_mismatch(), 1e-4);
  }
  std::vector<float> lse = flash.attend(5);
  const std::vector<float> right = twin.attend(5);
  const std::string before = bytes_of(flash.cache());
  for (float& x : lse) x = wrong(x);
  const std::string field = refused([&] { flash.observe(lse); });
  const double mismatch = flash.cache().lse_mismatch();
  EXPECT_EQ(field, mismatch > 0.1 ? "lse" : "nothing");
  if (field != "nothing") {
    EXPECT_EQ(bytes_of(flash.cache()), before);
    flash.observe(right);
    twin.observe(right);
    EXPECT_EQ(bytes_of(flash.cache()), bytes_of(twin.cache())) << "and the right ones count, once";
  }
  return mismatch;
}

TEST(LseMismatch, OfAnotherBaseIsRefused) {
  EXPECT_GT(mismatch_of([](float x) { return x * 1.442695f; }), 0.5) << "log2";
  EXPECT_GT(mismatch_of([](float x) { return x * 0.4342945f; }), 0.5) << "log10";
}

TEST(LseMismatch, OfAnOffsetIsRefused) {
  EXPECT_GT(mismatch_of([](float x) { return x - 0.25f; }), 0.2);
  EXPECT_GT(mismatch_of([](float x) { return x + 0.25f; }), 0.2);
  EXPECT_GT(mismatch_of([](float x) { return x - 200; }), 0.9) << "exp of it is infinite";
  EXPECT_GT(mismatch_of([](float x) { return x + 200; }), 0.9) << "exp of it is 0";
}

TEST(LseMismatch, OfCappedLogitsIsRefused) {
  EXPECT_GT(mismatch_of([](float x) { return 2 * std::tanh(x / 2); }), 0.2);
}

TEST(LseMismatch, OfAKernelsRoundingIsNot) {
  const double mismatch = mismatch_of([](float x) { return x + 0.01f; });
  EXPECT_NEAR(mismatch, 0.01, 1e-3);
}

TEST(LseMismatch, IsTheLargestOfAllQueriesAndHeads) {
  for (int wrong : {0, 3, 4 * 4 + 1, 4 * 4 + 3}) {  // [5 tokens, 4 heads]
    int i = 0;
    EXPECT_GT(mismatch_of([&](float x) { return i++ == wrong ? x - 1 : x; }), 1) << wrong;
  }
}

TEST(LseMismatch, OfAQueryThatSaysNothingIsNone) {
  int i = 0;
  EXPECT_LT(mismatch_of([&](float x) { return ++i % 3 == 0 ? -kInf : i % 3 == 1 ? kNan : x; }), 1e-4);
}

TEST(LseMismatch, GoesAsFarAsItsToleranceSays) {
  const Config c = small(Kind::beehive);
  for (double tolerance : {0., 0.05, 0.5, 1e9}) {
    buzz::AttentionOptions options;
    options.lse_tolerance = tolerance;
    const CachePtr cache = make_cache(Element::float32, c, {}, 0, options);
    const std::vector<float> k(16, 0.f), q(32, 1.f);
    cache->append(buzz::view(k, 1, 2, 8), buzz::view(k, 1, 2, 8));
    for (float off : {0.1f, 1.f}) {  // the one logit is 0
      const std::vector<float> lse(4, -off);
      const std::string field = refused([&] { cache->observe(buzz::view(q, 1, 4, 8), buzz::view(lse, 1, 1, 4)); });
      EXPECT_EQ(field, std::expm1(off) > tolerance ? "lse" : "nothing") << tolerance << " " << off;
      EXPECT_NEAR(cache->lse_mismatch(), std::expm1(off), 1e-5);
    }
  }
}

TEST(LseMismatch, OfANegativeOrInfiniteToleranceIsRefused) {
  for (double bad : {-1e-9, double{kInf}, double{kNan}}) {
    buzz::AttentionOptions options;
    options.lse_tolerance = bad;
    EXPECT_EQ(refused([&] { make_cache(Element::float32, small(Kind::beehive), {}, 0, options); }), "lse_tolerance");
  }
}

TEST(ObserveLse, OfAnotherShapeIsRefused) {
  const Config c = small(Kind::beehive);
  const CachePtr cache = make_cache(Element::float32, c);
  feed(*cache, Text(), 5);
  const std::string before = bytes_of(*cache);
  const std::vector<float> q(6 * 4 * 8), lse(6 * 4);
  const auto tries = [&](int tokens, int lse_tokens, int heads) {
    return refused([&] {
      cache->observe(buzz::View<const float>(q.data(), tokens, 4, 8),
                     buzz::View<const float>(lse.data(), 1, lse_tokens, heads));
    });
  };
  EXPECT_EQ(tries(6, 6, 4), "q.shape[0]") << "more queries than rows";
  EXPECT_EQ(tries(3, 2, 4), "lse.shape[1]");
  EXPECT_EQ(tries(3, 3, 2), "lse.shape[2]");
  EXPECT_EQ(bytes_of(*cache), before);
  EXPECT_EQ(tries(0, 0, 4), "nothing");
  EXPECT_EQ(bytes_of(*cache), before);
}

}  // namespace
