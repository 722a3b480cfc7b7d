// Faults that users met in other KV caches, as the kind of input that shows each. README.md has the whole list; here
// are those that no other file's test is about.

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "buzz/model_cache.h"
#include "oracle_twin.h"

namespace {

using buzz::BuzzCache;
using buzz::HiveRule;
using buzz::Shape;
using oracle::bytes_of;
using oracle::Config;
using oracle::feed;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Text;

using Given = buzz::Policy<buzz::Given, buzz::Segments>;

// 1: a keep-count that rounds down to 0 empties the cache, and NaN follows.

/// Prompts of 1 to 8 tokens, then three tokens more: how few rows a call leaves. Outputs have to be finite.
template <class P>
int fewest_rows(const typename P::Options& options) {
  int fewest = 8;
  for (int length = 1; length <= 8; ++length) {
    BuzzCache<float, P> cache({1, 1, 2, 8}, options);
    for (int n : {length, 1, 1, 1}) {
      for (float x : feed(cache, Text(), n)) EXPECT_TRUE(std::isfinite(x));
      fewest = std::min(fewest, cache.rows());
    }
  }
  return fewest;
}

TEST(Pitfall1, SomeRowStaysOfAnyLengthWithAnyBudget) {
  buzz::Beehive::Options bees;
  for (bees.sink = 0; bees.sink <= 1; ++bees.sink)
    for (bees.window = 0; bees.window <= 2; ++bees.window)
      for (bees.threshold = 1; bees.threshold <= 4; ++bees.threshold)
        for (bees.stride = 2; bees.stride <= 9; ++bees.stride)
          for (HiveRule rule : {HiveRule::first, HiveRule::heaviest, HiveRule::together}) {
            bees.hive = rule;
            ASSERT_GE(fewest_rows<buzz::Beehive>(bees), 1) << "threshold " << bees.threshold;
          }
  for (int sink : {0, 1})
    for (int window : {0, 1, 2})
      for (int heavy : {0, 1, 2}) {
        buzz::HeavyHitter::Options hitters;
        hitters.sink = sink;
        hitters.window = window;
        hitters.heavy = heavy;
        // Where nothing is to stay, nothing does; the next token then sees itself.
        EXPECT_EQ(fewest_rows<buzz::HeavyHitter>(hitters), std::min(1, sink + window + heavy));
        buzz::Streaming::Options streaming;
        streaming.sink = sink;
        streaming.window = window;
        EXPECT_EQ(fewest_rows<buzz::Streaming>(streaming), std::min(1, sink + window));
      }
}

// 3: two reductions, one after the other, are composed wrongly.

TEST(Pitfall3, HalvingsComposeAndRemoveWhatTheySay) {
  Given::Options repeated;
  repeated.sink = repeated.window = 0;
  repeated.stride = repeated.hive_stride = 2;
  repeated.hive = HiveRule::heaviest;
  Given::Options single = repeated;
  single.passes = buzz::Passes::single;
  oracle::Random random(3);
  for (int halvings = 1; halvings <= 5; ++halvings) {
    repeated.threshold = single.threshold = 64 >> halvings;
    Given at_once(repeated, 1, 64), one_by_one(single, 1, 64);
    std::vector<float> scores(64), rows(64), twin(64);
    for (float& s : scores) s = static_cast<float>(random.in(0, 1000));
    for (int i = 0; i < 64; ++i)
      rows[static_cast<std::size_t>(i)] = twin[static_cast<std::size_t>(i)] = scores[63 - static_cast<std::size_t>(i)];
    for (Given* policy : {&at_once, &one_by_one}) {
      policy->append(64);
      policy->give(buzz::view(scores, 1, 1, 64));
    }
    const buzz::Keep& keep = at_once.select();
    EXPECT_EQ(keep.size() << halvings, keep.from()) << halvings << " halvings";
    buzz::compact(keep, buzz::view(rows, 1, 64, 1));
    int times = 0;
    for (; one_by_one.due(); ++times) buzz::compact(one_by_one.select(), buzz::view(twin, 1, 64, 1));
    EXPECT_EQ(times, halvings);
    ASSERT_EQ(at_once.rows(), one_by_one.rows());
    for (int i = 0; i < at_once.rows(); ++i) {
      EXPECT_EQ(at_once.positions(0)[i], one_by_one.positions(0)[i]) << halvings << " halvings";
      EXPECT_EQ(rows[static_cast<std::size_t>(i)], twin[static_cast<std::size_t>(i)]);
      EXPECT_EQ(rows[static_cast<std::size_t>(i)], scores[63 - static_cast<std::size_t>(at_once.positions(0)[i])]);
    }
  }
}

// 7: the newest rows are evicted.

TEST(Pitfall7, EvictedRowsAreOlderThanTheWindowAndYoungerThanTheSink) {
  oracle::with_every_policy([](auto policy, Kind kind) {
    using P = typename decltype(policy)::type;
    const Config c = small(kind);
    BuzzCache<float, P> cache(library_shape(c), oracle::library_options<P>(c));
    std::set<int> before[2];
    int evicted = 0;
    for (int turn = 0; turn < 60; ++turn) {
      feed(cache, Text(7, 3), 1 + turn % 8);
      for (int h : {0, 1}) {
        for (int p : before[h]) {
          const auto now = cache.positions(h);
          if (std::binary_search(now.begin(), now.end(), p)) continue;
          ++evicted;
          EXPECT_GE(p, c.oracle.sink);
          EXPECT_LT(p, cache.next_position() - c.oracle.window);
        }
        before[h] = std::set<int>(cache.positions(h).begin(), cache.positions(h).end());
      }
    }
    EXPECT_EQ(evicted > 100, kind != Kind::full);
  });
}

// 12: a new row starts at score 0, so that the kept rows freeze on the prompt.

/// All attention goes to the rows whose position says so, as much to each; what is left of the middle in the end.
template <class P, class Heeded>
std::vector<int> middle_after(const typename P::Options& options, int tokens, Heeded&& heeded) {
  P policy(options, 1, 1);
  for (int t = 0; t < tokens; ++t) {
    policy.append(1);
    std::vector<float> p;
    for (std::int32_t position : policy.positions(0)) p.push_back(heeded(t, position) ? 0.125f : 0);
    policy.observe(buzz::view(p, 1, 1, policy.rows()));
    if (policy.due()) policy.select();
  }
  const auto positions = policy.positions(0);
  const buzz::Regions r = policy.regions();
  return {positions.begin() + r.sink, positions.begin() + r.sink + r.middle()};
}

TEST(Pitfall12, ABeehiveDoesNotFreezeOnThePrompt) {
  for (HiveRule rule : {HiveRule::first, HiveRule::heaviest, HiveRule::together}) {
    buzz::Beehive::Options o;
    o.sink = 2;
    o.window = 4;
    o.threshold = 24;
    o.stride = 4;
    o.hive = rule;
    const std::vector<int> middle =
        middle_after<buzz::Beehive>(o, 1000, [](int, int position) { return position < 40; });
    const auto of_prompt = std::count_if(middle.begin(), middle.end(), [](int p) { return p < 40; });
    EXPECT_LE(of_prompt, 1) << "its heaviest row may stay";
    EXPECT_GT(static_cast<int>(middle.size()) - of_prompt, 8);
  }
}

TEST(Pitfall12, MeanAndLatestMassFollowTheAttention) {
  for (buzz::MassKind mass : {buzz::MassKind::mean, buzz::MassKind::latest}) {
    buzz::HeavyHitter::Options o;
    o.window = 2;
    o.heavy = 10;
    o.mass = mass;
    const std::vector<int> middle =
        middle_after<buzz::HeavyHitter>(o, 200, [](int now, int position) { return (now < 100) == (position < 100); });
    ASSERT_EQ(middle.size(), 10u);
    EXPECT_GE(middle.front(), 100) << "what was heeded long ago is no longer worth its place";
  }
}

// 24: an empty part gives NaN where it should give nothing.

TEST(Pitfall24, AQueryThatSawNothingGivesNothing) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  BuzzCache<float> cache({2, 1, 4, 4});
  feed(cache, Text(), 4);
  const std::string before = bytes_of(cache);
  const std::vector<float> q = Text().queries(2, 2, 2, 4), no_part = {-inf, nan, -inf, -inf};
  cache.observe(buzz::view(q, 2, 2, 4), buzz::view(no_part, 1, 2, 2));
  EXPECT_EQ(bytes_of(cache), before);
  std::vector<float> none;
  cache.attend(buzz::view(none, 0, 2, 4), buzz::view(none, 0, 2, 4));
  EXPECT_EQ(feed(cache, Text(), 0), none);
  cache.observe();
  EXPECT_EQ(bytes_of(cache), before);
}

// 25: flash attention gives no scores.

/// The log-sum-exp of each query's logits over the rows that it sees, in double, for keys that nothing rotates.
std::vector<float> log_sum_exp(const BuzzCache<float>& cache, const std::vector<float>& q, int tokens) {
  const Shape& s = cache.shape();
  std::vector<float> lse;
  for (int t = 0; t < tokens; ++t)
    for (int h = 0; h < s.query_heads; ++h) {
      double sum = 0;
      for (int r = 0; r <= cache.rows() - tokens + t; ++r) {
        double logit = 0;
        for (int d = 0; d < s.head_dim; ++d)
          logit += double{q[static_cast<std::size_t>((t * s.query_heads + h) * s.head_dim + d)]} *
                   double{cache.keys().row(h / s.group(), r)[d]};
        sum += std::exp(logit / std::sqrt(s.head_dim));
      }
      lse.push_back(static_cast<float>(std::log(sum)));
    }
  return lse;
}

TEST(Pitfall25, ColumnSumsComeFromLogSumExpToo) {
  for (int chunk : {1, 5, 40}) {
    const Shape shape{6, 2, 8, chunk};
    buzz::Options o;
    o.window = 20;
    o.threshold = 60;
    BuzzCache<float> direct(shape, o), flash(shape, o);
    int evictions = 0;
    for (int turn = 0; turn < 400 / chunk; ++turn) {
      const int first = direct.next_position();
      const std::vector<float> q = Text(5, 2).queries(first, chunk, 6, 8), k = Text(5, 2).keys(first, chunk, 2, 8);
      std::vector<float> out(q.size());
      const auto kv = buzz::view(k, chunk, 2, 8);
      const auto queries = buzz::view(q, chunk, 6, 8);
      direct.append(kv, kv);
      direct.attend(queries, buzz::view(out, chunk, 6, 8));
      direct.observe();
      flash.append(kv, kv);
      const std::vector<float> lse = log_sum_exp(flash, q, chunk);
      flash.observe(queries, buzz::view(lse, 1, chunk, 6));
      for (int h : {0, 1})
        for (int r = 0; r < direct.rows(); ++r)
          ASSERT_NEAR(flash.scores(h)[r], direct.scores(h)[r], 1e-5 * (1 + double{direct.scores(h)[r]}));
      // So that a near tie cannot part them, the second takes the first one's state where they evict.
      evictions += direct.evict();
      std::istringstream state(bytes_of(direct));
      flash.load(state);
    }
    EXPECT_GT(evictions, 3);
  }
}

// 27: heads that keep different rows free no memory, or are counted wrongly.

template <class T>
void counts_its_bytes(std::size_t per_row) {
  const Shape shape{4, 2, 8, 5};
  buzz::Options o;
  o.sink = 1;
  o.window = 3;
  o.threshold = 9;
  BuzzCache<T> cache(shape, o);
  const std::size_t rows = 1 + 3 + 9 + 5, bytes = cache.bytes();
  EXPECT_EQ(cache.memory().keys_and_values, 2 * 2 * rows * per_row + 8 * sizeof(float))
      << "K and V, and a row to convert";
  EXPECT_EQ(cache.memory().total(), bytes);
  bool differ = false;
  for (int turn = 0; turn < 40; ++turn) {
    feed(cache, Text(1, 3), 5);
    EXPECT_EQ(cache.bytes(), bytes);
    EXPECT_EQ(cache.positions(0).size, cache.positions(1).size);
    differ = differ || !std::equal(cache.positions(0).begin(), cache.positions(0).end(), cache.positions(1).begin());
  }
  EXPECT_TRUE(differ);
}

TEST(Pitfall27, BytesAreThoseOfAllRowsThatThereCanBe) {
  counts_its_bytes<float>(8 * 4);
  counts_its_bytes<Eigen::half>(8 * 2);
  counts_its_bytes<Eigen::bfloat16>(8 * 2);
  counts_its_bytes<std::int8_t>(8 + 4);
}

// 28: a budget is only where memory starts to grow from.

TEST(Pitfall28, BytesOfAModelHaveACeiling) {
  const Shape shape{2, 1, 4, 16};
  const std::vector<buzz::Options> layers(3);
  const std::size_t bytes = buzz::ModelCache<float>(shape, layers).bytes();
  buzz::ModelCache<float> fits(shape, layers, {}, {}, bytes);
  EXPECT_EQ(refused([&] { buzz::ModelCache<float>(shape, layers, {}, {}, bytes - 1); }), "bytes");
  for (int turn = 0; turn < 60; ++turn)
    for (int i = 0; i < 3; ++i) feed(fits.layer(i), Text(), 16);
  EXPECT_EQ(fits.bytes(), bytes);
}

// 30: quantised caches skip the eviction, or do it wrongly.

/// Rows are evicted by scores that are given, the same for every type; attention then has to be near that over floats.
template <class T>
void evicts_as_floats_do(double tolerance) {
  const Config c = small(Kind::given);
  const auto options = oracle::library_options<Given>(c);
  buzz::Rope compact{10000.0};
  compact.positions = buzz::Positions::compact;
  for (const buzz::Rope& rope : {buzz::Rope{}, compact}) {
    BuzzCache<float, Given> floats(library_shape(c), options, rope);
    BuzzCache<T, Given> stored(library_shape(c), options, rope);
    oracle::Random random(30);
    for (int turn = 0; turn < 60; ++turn) {
      std::vector<float> scores(static_cast<std::size_t>(2 * floats.rows()));
      for (float& s : scores) s = random.real();
      floats.give(buzz::view(scores, 1, 2, floats.rows()));
      stored.give(buzz::view(scores, 1, 2, floats.rows()));
      const std::vector<float> expected = feed(floats, Text(), 5), out = feed(stored, Text(), 5);
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], tolerance);
      ASSERT_EQ(stored.regions(), floats.regions());
      for (int h : {0, 1})
        ASSERT_TRUE(std::equal(stored.positions(h).begin(), stored.positions(h).end(), floats.positions(h).begin()));
    }
    EXPECT_GT(floats.next_position(), 5 * floats.capacity());
  }
}

TEST(Pitfall30, SmallTypesEvictAsFloatsDo) {
  evicts_as_floats_do<Eigen::half>(2e-3);
  evicts_as_floats_do<Eigen::bfloat16>(2e-2);
  evicts_as_floats_do<std::int8_t>(3e-2);
}

// 33: what two caches share is released twice when one of them evicts.

TEST(Pitfall33, AForkAndItsOriginalEvictApart) {
  const Config c = small(Kind::beehive);
  using Cache = BuzzCache<float>;
  const auto alone = [&](std::uint64_t seed) {
    Cache cache(library_shape(c), oracle::library_options<buzz::Beehive>(c), buzz::Rope{10000.0});
    while (cache.next_position() < 40) feed(cache, Text(1), 5);
    while (cache.next_position() < 120) feed(cache, Text(seed), 5);
    return bytes_of(cache);
  };
  for (bool original_goes_first : {true, false}) {
    auto original =
        std::make_unique<Cache>(library_shape(c), oracle::library_options<buzz::Beehive>(c), buzz::Rope{10000.0});
    while (original->next_position() < 40) feed(*original, Text(1), 5);
    auto fork = std::make_unique<Cache>(original->fork());
    while (fork->next_position() < 80) {  // in turns, past an eviction of each
      feed(*original, Text(2), 5);
      feed(*fork, Text(3), 5);
    }
    auto& first = original_goes_first ? original : fork;
    auto& last = original_goes_first ? fork : original;
    first.reset();
    while (last->next_position() < 120) feed(*last, Text(original_goes_first ? 3 : 2), 5);
    EXPECT_EQ(bytes_of(*last), alone(original_goes_first ? 3 : 2));
  }
}

}  // namespace
