// Faults that users met in other KV caches, as the kind of input that shows each. README.md has the whole list; here
// are those that no other file's test is about.

#include <gtest/gtest.h>

#include <set>

#include "oracle_twin.h"
#include "typed.h"

namespace {

template <class T, class P = typed::Beehive>
using BuzzCache = typed::Cache<T, P>;
using buzz::HiveRule;
using oracle::Config;
using oracle::feed;
using oracle::Kind;
using oracle::small;
using oracle::Text;

using UserScores = typed::Policy<typed::UserScores, buzz::Segments>;

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
  typed::Beehive::Options bees;
  for (bees.sink = 0; bees.sink <= 1; ++bees.sink)
    for (bees.window = 0; bees.window <= 2; ++bees.window)
      for (bees.threshold = 1; bees.threshold <= 4; ++bees.threshold)
        for (bees.stride = 2; bees.stride <= 9; ++bees.stride)
          for (HiveRule rule : {HiveRule::first, HiveRule::heaviest, HiveRule::together}) {
            bees.hive = rule;
            ASSERT_GE(fewest_rows<typed::Beehive>(bees), 1) << "threshold " << bees.threshold;
          }
  for (int sink : {0, 1})
    for (int window : {0, 1, 2})
      for (int heavy : {0, 1, 2}) {
        typed::HeavyHitter::Options hitters;
        hitters.sink = sink;
        hitters.window = window;
        hitters.heavy = heavy;
        // Where nothing is to stay, nothing does; the next token then sees itself.
        EXPECT_EQ(fewest_rows<typed::HeavyHitter>(hitters), std::min(1, sink + window + heavy));
        typed::Streaming::Options streaming;
        streaming.sink = sink;
        streaming.window = window;
        EXPECT_EQ(fewest_rows<typed::Streaming>(streaming), std::min(1, sink + window));
      }
}

// 3: two reductions, one after the other, are composed wrongly.

TEST(Pitfall3, HalvingsComposeAndRemoveWhatTheySay) {
  UserScores::Options repeated;
  repeated.sink = repeated.window = 0;
  repeated.stride = repeated.hive_stride = 2;
  repeated.hive = HiveRule::heaviest;
  UserScores::Options single = repeated;
  single.passes = buzz::Passes::single;
  oracle::Random random(3);
  for (int halvings = 1; halvings <= 5; ++halvings) {
    repeated.threshold = single.threshold = 64 >> halvings;
    UserScores at_once(repeated, 1, 64), one_by_one(single, 1, 64);
    std::vector<float> scores(64), rows(64), twin(64);
    for (float& s : scores) s = static_cast<float>(random.in(0, 1000));
    for (int i = 0; i < 64; ++i)
      rows[static_cast<std::size_t>(i)] = twin[static_cast<std::size_t>(i)] = scores[63 - static_cast<std::size_t>(i)];
    for (UserScores* policy : {&at_once, &one_by_one}) {
      policy->append(64);
      policy->give(buzz::view(scores, 1, 1, 64));
    }
    const buzz::KeptRows& keep = at_once.select();
    EXPECT_EQ(keep.size() << halvings, keep.from()) << halvings << " halvings";
    buzz::compact(keep, buzz::view(rows, 1, 64, 1));
    int times = 0;
    for (; one_by_one.should_evict(); ++times) buzz::compact(one_by_one.select(), buzz::view(twin, 1, 64, 1));
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
  oracle::with_every_kind([](Kind kind) {
    const Config c = small(kind);
    const oracle::CachePtr made = make_cache(oracle::Element::float32, c);
    oracle::AnyCache& cache = *made;
    std::set<int> before[2];
    int evicted = 0;
    for (int turn = 0; turn < 60; ++turn) {
      const int tokens = 1 + turn % 8;
      for (int i = 0; i < tokens; ++i)
        for (std::set<int>& rows : before) rows.insert(cache.next_position() + i);
      feed(cache, Text(7, 3), tokens);
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
    if (policy.should_evict()) policy.select();
  }
  const auto positions = policy.positions(0);
  const buzz::Regions r = policy.regions();
  return {positions.begin() + r.sink, positions.begin() + r.sink + r.middle()};
}

TEST(Pitfall12, ABeehiveDoesNotFreezeOnThePrompt) {
  for (HiveRule rule : {HiveRule::first, HiveRule::heaviest, HiveRule::together}) {
    typed::Beehive::Options o;
    o.sink = 2;
    o.window = 4;
    o.threshold = 24;
    o.stride = 4;
    o.hive = rule;
    const std::vector<int> middle =
        middle_after<typed::Beehive>(o, 1000, [](int, int position) { return position < 40; });
    const auto of_prompt = std::count_if(middle.begin(), middle.end(), [](int p) { return p < 40; });
    EXPECT_LE(of_prompt, 1) << "its heaviest row may stay";
    EXPECT_GT(static_cast<int>(middle.size()) - of_prompt, 8);
  }
}

TEST(Pitfall12, MeanAndLatestAttentionFollowTheAttention) {
  for (buzz::AttentionKind attention : {buzz::AttentionKind::mean, buzz::AttentionKind::latest}) {
    typed::HeavyHitter::Options o;
    o.window = 2;
    o.heavy = 10;
    o.attention = attention;
    const std::vector<int> middle =
        middle_after<typed::HeavyHitter>(o, 200, [](int now, int position) { return (now < 100) == (position < 100); });
    ASSERT_EQ(middle.size(), 10u);
    EXPECT_GE(middle.front(), 100) << "what was heeded long ago no longer keeps its place";
  }
}

}  // namespace
