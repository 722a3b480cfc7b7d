// What today's models have beside softmax(q k) v, alone and together, beside the oracle: outputs, scores, evictions,
// rollback, saved files.

#include <gtest/gtest.h>

#include <thread>

#include "oracle_twin.h"
#include "sanitizers.h"

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
  constexpr unsigned count = sanitized::draws(60) * oracle::kKinds;
  for (Element element : kElements) {
    Statistics s;
    const std::uint64_t first = 400000 + 100000 * static_cast<std::uint64_t>(element);
    int failures = 0;
    for (std::uint64_t seed = first; seed < first + count && failures < 3; ++seed) {
      const Config c = oracle::draw_today(seed);
      try {
        oracle::Comparison(element, c, &s).run();
      } catch (const std::exception& e) {
        ++failures;
        ADD_FAILURE() << e.what() << "\n" << static_cast<int>(element) << " " << describe(c);
      }
    }
    if (sanitized::few) continue;
    EXPECT_GT(s.evictions, 6 * static_cast<int>(count));
    EXPECT_LT(s.near_ties * 1000, s.evictions);
  }
}

/// Evictions, pins and rollback, in logical and compact positions.
TEST(Mechanisms, LiveAsTheOracleDoes) {
  int evictions = 0;
  oracle::with_every_kind([&](Kind kind) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed)
      for (Element element : {Element::float32, Element::half, Element::bfloat16}) {
        Config c = small_today(kind, seed);
        if (seed % 3 != 0) c.oracle.values_in_keys = false;  // they would be rotated
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

TEST(Mechanisms, AreTheSameBitsOnAnyNumberOfThreads) {
  const auto thread_each = [](int count, buzz::Task task) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([task, i] { task(i); });
    for (std::thread& t : threads) t.join();
  };
  for (Element element : kElements)
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      Config c = small_today(Kind::beehive, seed);
      c.max_chunk = 40;
      const CachePtr one = cache_of(element, c);
      std::vector<CachePtr> many;
      for (int threads : {2, 3, 7}) {
        buzz::AttentionOptions options = library_attention(c);
        options.threads = threads;
        many.push_back(make_cache(element, c, {}, 0, options));
      }
      for (int n : {1, 40, 1, 3, 1, 17, 1}) {
        const std::vector<float> expected = feed(*one, Text(), n);
        for (const CachePtr& cache : many) {
          ASSERT_EQ(feed(*cache, Text(), n, thread_each), expected) << describe(c);
          ASSERT_EQ(bytes_of(*cache), bytes_of(*one)) << describe(c);
        }
      }
    }
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
  EXPECT_EQ(refuses([](Config& c) { c.oracle.value_dim = 7; }), "value_dim");
  EXPECT_EQ(refuses([](Config& c) { c.oracle.value_dim = 8; }), "nothing") << "as head_dim";
  EXPECT_EQ(refuses([](Config& c) { c.oracle.values_in_keys = true; }), "values_in_keys");
  EXPECT_EQ(refuses([](Config& c) { c.oracle.soft_cap = 50; }), "soft_cap");
  EXPECT_EQ(refuses([](Config& c) { c.oracle.sinks = {0, 1, 2, 3}; }), "sinks");
  EXPECT_EQ(refuses([](Config& c) { c.oracle.slopes = {0, 1, 2, 3}; }), "alibi_slopes");
}

TEST(Mechanisms, OfOtherNumbersAreRefusedByName) {
  Config c = small(Kind::beehive), other = c;
  c.oracle.sinks = c.oracle.slopes = {0, 1, 2, 3};
  const auto loads = [&](const std::function<void(Config&)>& change) {
    other = c;
    change(other);
    std::istringstream file(bytes_of(*cache_of(Element::float32, c)));
    const CachePtr cache = cache_of(Element::float32, other);
    return refused<buzz::FileError>([&] { cache->load(file); });
  };
  EXPECT_EQ(loads([](Config&) {}), "nothing");
  EXPECT_EQ(loads([](Config& o) { o.oracle.sinks[2] = 2.5; }), "sinks");
  EXPECT_EQ(loads([](Config& o) { o.oracle.slopes[3] = 2.5; }), "alibi_slopes");
  EXPECT_EQ(loads([](Config& o) { o.oracle.slopes_by_place = true; }), "alibi_positions");
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
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {-1., 1e-4, 1e31, inf, nan})
    EXPECT_EQ(refuses_option([bad](auto& o) { o.soft_cap = bad; }), "soft_cap") << bad;
  for (double good : {0., 1e-3, 30., 50., 1e30})
    EXPECT_EQ(refuses_option([good](auto& o) { o.soft_cap = good; }), "nothing") << good;
  for (std::size_t count : {1u, 2u, 3u, 5u}) {  // of 4 query heads
    EXPECT_EQ(refuses_option([count](auto& o) { o.sinks.resize(count); }), "sinks");
    EXPECT_EQ(refuses_option([count](auto& o) { o.alibi_slopes.resize(count); }), "alibi_slopes");
  }
  for (double bad : {inf, -inf, nan}) {
    EXPECT_EQ(refuses_option([bad](auto& o) { o.sinks = {0, 1, static_cast<float>(bad), 3}; }), "sinks");
    EXPECT_EQ(refuses_option([bad](auto& o) { o.alibi_slopes = {0, 1, static_cast<float>(bad), 3}; }), "alibi_slopes");
  }
  EXPECT_EQ(refuses_option([](auto& o) { o.alibi_slopes = {0, 1, -0.25f, 3}; }), "alibi_slopes");
  EXPECT_EQ(refuses_option([](auto& o) { o.sinks = {-1e30f, 1, -0.25f, 1e30f}; }), "nothing");
  EXPECT_EQ(refuses_option([](auto& o) { o.alibi_positions = static_cast<buzz::Positions>(2); }), "alibi_positions");
}

/// A cache that keeps all, of 2 query heads on one KV head of 2 dimensions, to work out by hand.
buzz::BuzzCache<float> by_hand(const buzz::AttentionOptions& options) {
  return buzz::BuzzCache<float>({2, 1, 2, 4}, buzz::heavy_hitter(buzz::HeavyHitterOptions::for_rows(100, 4)), {},
                                options);
}

TEST(Sinks, TakeProbabilityAndGiveNoValue) {
  buzz::AttentionOptions o;
  o.sinks = {std::log(3.f), -1e30f};
  auto cache = by_hand(o);
  const std::vector<float> k(4, 0.f), v = {1, 2, /**/ 3, 4}, q(4, 1.f);  // two rows, logits 0
  cache.append(buzz::view(k, 2, 1, 2), buzz::view(v, 2, 1, 2));
  std::vector<float> out(4);
  cache.attend(buzz::view(q, 1, 2, 2), buzz::view(out, 1, 2, 2));
  cache.observe();
  const std::vector<float> expected = {4 / 5.f, 6 / 5.f, /**/ 2, 3};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], 1e-6f) << i;
  for (int r : {0, 1}) EXPECT_NEAR(cache.scores(0)[r], 1 / 5. + 1 / 2., 1e-6);
}

TEST(Sinks, FarAboveAllLogitsTakeAll) {
  buzz::AttentionOptions o;
  o.sinks = {200, 1e30f};
  auto cache = by_hand(o);
  const std::vector<float> k(4, 0.f), v = {1, 2, /**/ 3, 4}, q(4, 1.f);
  cache.append(buzz::view(k, 2, 1, 2), buzz::view(v, 2, 1, 2));
  std::vector<float> out(4, 9.f);
  cache.attend(buzz::view(q, 1, 2, 2), buzz::view(out, 1, 2, 2));
  for (float x : out) EXPECT_NEAR(x, 0, 1e-30f);
  cache.observe();
  EXPECT_NEAR(cache.scores(0)[0], 0, 1e-30);
}

TEST(Sinks, AreOneOfTheLogitsOfALogSumExp) {
  for (const float sink : {-3.f, 0.f, 4.f}) {
    buzz::AttentionOptions o;
    o.sinks = {sink, sink};
    auto cache = by_hand(o);
    const std::vector<float> k(4, 0.f), q(4, 1.f);
    cache.append(buzz::view(k, 2, 1, 2), buzz::view(k, 2, 1, 2));
    const auto observe = [&](double lse) {
      const std::vector<float> both(2, static_cast<float>(lse));
      return refused([&] { cache.observe(buzz::view(q, 1, 2, 2), buzz::view(both, 1, 1, 2)); });
    };
    // Without the sink, probabilities would add up to 1, and the sink's on top is what is too much.
    EXPECT_EQ(observe(std::log(2.)), sink < -2 ? "nothing" : "lse") << sink;
    EXPECT_NEAR(cache.lse_mismatch(), std::exp(static_cast<double>(sink)) / 2,
                1e-5 * std::exp(static_cast<double>(sink)));
    cache.reset();
    cache.append(buzz::view(k, 2, 1, 2), buzz::view(k, 2, 1, 2));
    const double all = 2 + std::exp(static_cast<double>(sink));
    EXPECT_EQ(observe(std::log(all)), "nothing");
    EXPECT_LT(cache.lse_mismatch(), 1e-5);
    for (int r : {0, 1}) EXPECT_NEAR(cache.scores(0)[r], 2 / all, 1e-5) << "of two query heads";
  }
}

/// Rows 0, 2 and 3 of four tokens are left: by tokens the distances are 3, 1 and 0, by places 2, 1 and 0.
TEST(Alibi, DistancesAreThoseOfTokensOrOfPlaces) {
  for (const bool places : {false, true}) {
    buzz::AttentionOptions o;
    o.alibi_slopes = {0.5f, 0};
    if (places) o.alibi_positions = buzz::Positions::compact;
    buzz::StreamingOptions options;
    options.sink = 1;
    options.window = 1;
    buzz::BuzzCache<float> cache({2, 1, 1, 1}, buzz::streaming(options), {}, o);
    const std::vector<float> k = {0}, q = {1, 1};
    std::vector<float> out(2);
    const auto token = [&](float value) {
      const std::vector<float> x = {value};
      cache.attend(buzz::view(q, 1, 2, 1), buzz::view(k, 1, 1, 1), buzz::view(x, 1, 1, 1), buzz::view(out, 1, 2, 1));
    };
    for (float value : {1.f, 0.f, 0.f, 0.f}) token(value);  // rows 0 and 2, then its own
    const double first = std::exp(-0.5 * (places ? 2 : 3)), all = first + std::exp(-0.5) + 1;
    EXPECT_NEAR(static_cast<double>(out[0]), first / all, 1e-6) << places;
    EXPECT_NEAR(static_cast<double>(out[1]), 1 / 3., 1e-6) << "a slope of 0";
  }
}

/// The field that a shape, and what is appended to a cache of it, are refused for.
std::string refuses_shape(int value_dim, bool values_in_keys, int given_values, const buzz::Rope& rope = {}) {
  buzz::Shape s{2, 1, 4, 8};
  s.value_dim = value_dim;
  s.values_in_keys = values_in_keys;
  return refused<buzz::InvalidArgument>([&] {
    buzz::BuzzCache<float> cache(s, buzz::streaming(), rope);
    const std::vector<float> k(8), v(static_cast<std::size_t>(2 * given_values));
    try {
      cache.append(buzz::view(k, 2, 1, 4), buzz::view(v, 2, 1, given_values));
    } catch (const buzz::Error&) {
      EXPECT_EQ(cache.rows(), 0);
      throw;
    }
  });
}

TEST(ValueDim, OutOfRangeOrNotAsGivenIsRefusedByName) {
  EXPECT_EQ(refuses_shape(0, false, 4), "nothing");
  EXPECT_EQ(refuses_shape(6, false, 6), "nothing");
  EXPECT_EQ(refuses_shape(6, false, 4), "v.shape[2]");
  EXPECT_EQ(refuses_shape(6, false, 0), "v.shape[2]");
  EXPECT_EQ(refuses_shape(-1, false, 4), "value_dim");
  EXPECT_EQ(refuses_shape(65537, false, 4), "value_dim");
  EXPECT_EQ(refuses_shape(3, true, 0), "nothing");
  EXPECT_EQ(refuses_shape(0, true, 0), "nothing");
  EXPECT_EQ(refuses_shape(3, true, 3), "v");
  EXPECT_EQ(refuses_shape(5, true, 0), "value_dim") << "more than a key has";
  buzz::Rope rope{10000.0};
  EXPECT_EQ(refuses_shape(2, true, 0, rope), "rope.first") << "the values would be rotated";
  rope.first = 2;
  EXPECT_EQ(refuses_shape(2, true, 0, rope), "nothing");
  EXPECT_EQ(refuses_shape(3, true, 0, rope), "rope.first");
}

TEST(ValueDim, OfAnOutputIsRefusedByName) {
  buzz::Shape s{2, 1, 4, 8};
  s.value_dim = 3;
  buzz::BuzzCache<float> cache(s, buzz::streaming());
  const std::vector<float> q(8), k(4), v(3);
  std::vector<float> out(8);
  const auto attend = [&](int dim) {
    return refused([&] {
      cache.attend(buzz::view(q, 1, 2, 4), buzz::view(k, 1, 1, 4), buzz::view(v, 1, 1, 3),
                   buzz::View<float>(out.data(), 1, 2, dim));
    });
  };
  EXPECT_EQ(attend(4), "out.shape[2]");
  EXPECT_EQ(cache.rows(), 0);
  EXPECT_EQ(attend(3), "nothing");
}

/// Multi-head latent attention: one KV head, whose values are the first elements of its keys, the last of which are
/// rotated. A cache of the values as given holds the same, but for int8, whose values have a scale of their own.
template <class T>
void values_in_keys_are_values() {
  buzz::Shape in_keys{8, 1, 36, 5}, given = in_keys;
  in_keys.value_dim = given.value_dim = 32;
  in_keys.values_in_keys = true;
  const buzz::Policy policy = buzz::beehive(buzz::BeehiveOptions::for_rows(24, 5));
  buzz::Rope rope{10000.0};
  rope.first = 32;
  buzz::BuzzCache<T> a(in_keys, policy, rope), b(given, policy, rope);
  for (int i = 0; i < 40; ++i) {
    const int n = 1 + i % 5;
    const Text text;
    const std::vector<float> q = text.queries(a.next_position(), n, 8, 36), k = text.keys(a.next_position(), n, 1, 36);
    std::vector<float> x(static_cast<std::size_t>(n * 8 * 32)), y(x.size());
    a.attend(buzz::view(q, n, 8, 36), buzz::view(k, n, 1, 36), buzz::View<const float>(nullptr, 0, 0, 0),
             buzz::view(x, n, 8, 32));
    b.attend(buzz::view(q, n, 8, 36), buzz::view(k, n, 1, 36), buzz::View<const float>(k.data(), n, 1, 32, 36, 36),
             buzz::view(y, n, 8, 32));
    ASSERT_EQ(x, y) << i;
    ASSERT_EQ(a.values().data(), a.keys().data());
  }
  const std::size_t values = static_cast<std::size_t>(a.capacity()) * 32 * sizeof(T);
  EXPECT_EQ(b.memory().keys_and_values - a.memory().keys_and_values, values) << "nothing is stored twice";
}

TEST(ValuesInKeys, AreValues) {
  values_in_keys_are_values<float>();
  values_in_keys_are_values<Eigen::half>();
  values_in_keys_are_values<Eigen::bfloat16>();
}

}  // namespace
