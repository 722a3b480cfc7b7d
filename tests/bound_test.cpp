// Rows never exceed sink + window + threshold + max_chunk, however long the sequence; that number is reached; and an
// eviction leaves no more than sink + window + threshold.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "buzz/buzz_cache.h"

namespace {

constexpr int kTokens = 200000;

struct Course {
  int peak = 0;       // most rows there ever were
  int evictions = 0;  // calls that shortened the cache
  int most_left = 0;  // rows after a call, at most
};

/// Feeds tokens to a policy in calls of the given sizes, in turn, with scores that differ from call to call.
template <class P>
Course feed(P& policy, const std::vector<int>& calls, int tokens) {
  std::vector<float> mass(static_cast<std::size_t>(policy.kv_heads() * policy.capacity() + 1009));
  for (std::size_t i = 0; i < mass.size(); ++i) mass[i] = static_cast<float>((i * 7919) % 1009);
  const int window = policy.options().window;
  Course run;
  for (int t = 0, call = 0; t < tokens; ++call) {
    const int n = std::min(calls[static_cast<std::size_t>(call) % calls.size()], tokens - t);
    policy.append(n);
    t += n;
    run.peak = std::max(run.peak, policy.rows());
    if constexpr (P::needs_mass)
      policy.observe_mass(buzz::View<const float>(mass.data() + call % 1009, 1, policy.kv_heads(), policy.rows()));
    const int before = policy.rows();
    if (policy.due()) policy.select();
    run.evictions += policy.rows() < before;
    run.most_left = std::max(run.most_left, policy.rows());
    // The newest rows stay, and rows and regions agree.
    const auto positions = policy.positions(policy.kv_heads() - 1);
    const int newest = std::min(window, policy.rows());
    EXPECT_EQ(policy.regions().rows(), policy.rows());
    for (int i = 1; i <= newest; ++i)
      if (positions[positions.size - i] != t - i) {
        ADD_FAILURE() << "token " << t - i << " left the window early";
        return run;
      }
    EXPECT_TRUE(policy.options().sink == 0 || positions[0] == 0);
  }
  EXPECT_EQ(policy.next_position(), tokens);
  return run;
}

TEST(Bound, ThePapersSizesWhileDecoding) {
  buzz::Beehive policy({}, 2);
  EXPECT_EQ(policy.capacity(), 4 + 160 + 400 + 1);
  const Course run = feed(policy, {1}, kTokens);
  EXPECT_EQ(run.peak, 4 + 160 + 400 + 1);
  EXPECT_EQ(run.most_left, 4 + 160 + 400);
  // A steady hive of 93 rows or so leaves room for 308 tokens: one eviction in so many, and not one a token.
  EXPECT_NEAR(run.evictions, kTokens / 308, 15);
}

TEST(Bound, ChunkedPrefill) {
  for (const std::vector<int>& calls : std::vector<std::vector<int>>{{512}, {1, 512, 7}, {1, 1, 1, 512}, {100, 3}}) {
    const int max_chunk = *std::max_element(calls.begin(), calls.end());
    buzz::Beehive policy({}, 1, max_chunk);
    EXPECT_EQ(policy.capacity(), 4 + 160 + 400 + max_chunk);
    const Course run = feed(policy, calls, kTokens);
    EXPECT_LE(run.peak, 4 + 160 + 400 + max_chunk);
    EXPECT_LE(run.most_left, 4 + 160 + 400);
  }
}

/// The bound is not slack: a call of max_chunk tokens that finds the cache full to the threshold fills the capacity.
TEST(Bound, IsReachedByAChunkOnAFullCache) {
  buzz::Beehive policy({}, 1, 512);
  feed(policy, {141}, 564);  // 4 + 160 + 400
  EXPECT_FALSE(policy.due());
  policy.append(512);
  EXPECT_EQ(policy.rows(), policy.capacity());
  EXPECT_TRUE(policy.due());
  policy.select();
  EXPECT_LE(policy.rows(), 4 + 160 + 400);
}

struct Sizes {
  int sink, window, threshold, stride, keep;
  buzz::HiveRule hive;
};

TEST(Bound, AnyOptionsStrideOneAndTwoIncluded) {
  using Rule = buzz::HiveRule;
  for (const Sizes& s : std::vector<Sizes>{{4, 16, 40, 1, 1, Rule::first},
                                           {4, 16, 40, 2, 1, Rule::first},
                                           {4, 16, 40, 1, 1, Rule::heaviest},
                                           {4, 16, 40, 2, 3, Rule::heaviest},
                                           {4, 16, 40, 2, 1, Rule::together},
                                           {0, 0, 1, 1, 1, Rule::first},
                                           {0, 0, 1, 2, 1, Rule::together},
                                           {0, 1, 1, 5, 4, Rule::heaviest},
                                           {3, 0, 2, 9, 1, Rule::first},
                                           {0, 8, 7, 3, 2, Rule::together}}) {
    for (const std::vector<int>& calls : std::vector<std::vector<int>>{{1}, {9, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
      buzz::Beehive::Options o;
      o.sink = s.sink;
      o.window = s.window;
      o.threshold = s.threshold;
      o.stride = s.stride;
      o.keep = s.keep;
      o.hive = s.hive;
      buzz::Beehive policy(o, 1, calls[0]);
      const int bound = s.sink + s.window + s.threshold;
      EXPECT_EQ(policy.capacity(), bound + calls[0]);
      const Course run = feed(policy, calls, kTokens / 4);
      EXPECT_LE(run.peak, bound + calls[0]) << "stride " << s.stride << " threshold " << s.threshold;
      EXPECT_LE(run.most_left, bound) << "stride " << s.stride << " threshold " << s.threshold;
      EXPECT_TRUE(calls[0] > 1 || run.peak == bound + 1) << run.peak;
      EXPECT_GT(run.evictions, kTokens / 4 / (s.threshold + 10));
    }
  }
}

TEST(Bound, OtherPolicies) {
  buzz::HeavyHitter::Options h;
  h.sink = 2;
  h.window = 16;
  h.heavy = 24;
  h.threshold = 40;
  buzz::HeavyHitter heavy(h, 2, 8);
  Course run = feed(heavy, {8, 1, 1, 1}, kTokens / 4);
  EXPECT_EQ(heavy.capacity(), 2 + 16 + 40 + 8);
  EXPECT_LE(run.peak, heavy.capacity());
  EXPECT_LE(run.most_left, 2 + 16 + 40);

  buzz::Streaming streaming({}, 2, 8);
  run = feed(streaming, {8, 1, 1, 1}, kTokens / 4);
  EXPECT_EQ(streaming.capacity(), 4 + 160 + 8);
  EXPECT_EQ(run.peak, 4 + 160 + 8);
  EXPECT_EQ(run.most_left, 4 + 160);
}

/// One pass an eviction is the authors' code: the bound is then the fixed point of rows / 2 + 1 + max_chunk where that
/// is more than the threshold's.
TEST(Bound, OnePassHasABoundOfItsOwn) {
  buzz::Beehive::Options o;
  o.sink = 4;
  o.window = 16;
  o.threshold = 20;
  o.passes = buzz::Passes::single;
  for (int stride : {2, 3, 5}) {
    o.stride = stride;
    buzz::Beehive policy(o, 1, 100);
    EXPECT_EQ(policy.capacity(), 4 + 16 + 2 * (100 + 1));
    const Course run = feed(policy, {100}, kTokens);
    EXPECT_LE(run.peak, policy.capacity());
    EXPECT_GT(run.peak, 4 + 16 + 20 + 100) << "so the threshold's bound would not do";
    EXPECT_TRUE(stride > 2 || run.peak >= policy.capacity() - 4) << run.peak;
    buzz::Beehive decoding(o, 1, 1);
    EXPECT_EQ(decoding.capacity(), 4 + 16 + 20 + 1);
    EXPECT_EQ(feed(decoding, {1}, kTokens / 4).peak, decoding.capacity());
  }
}

TEST(Bound, ACacheOfTheLibrarysOwn) {
  buzz::BuzzCache<float> cache({2, 1, 4, 16});
  EXPECT_EQ(cache.capacity(), 4 + 160 + 400 + 16);
  const std::size_t bytes = cache.bytes();
  std::vector<float> q(16 * 2 * 4), kv(16 * 4), out(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>((i * 37) % 101) / 50 - 1;
  int peak = 0, most_left = 0;
  for (int t = 0, call = 0; t < kTokens; ++call) {
    const int n = std::min(call % 3 == 0 ? 16 : call % 3, kTokens - t);
    for (std::size_t i = 0; i < kv.size(); ++i)
      kv[i] = static_cast<float>((static_cast<std::size_t>(t) * 13 + i * 29) % 101) / 50 - 1;
    const buzz::View<const float> rows(kv.data(), n, 1, 4);
    cache.append(rows, rows);
    t += n;
    peak = std::max(peak, cache.rows());
    cache.attend(buzz::View<const float>(q.data(), n, 2, 4), buzz::View<float>(out.data(), n, 2, 4));
    cache.observe();
    cache.evict();
    most_left = std::max(most_left, cache.rows());
  }
  EXPECT_LE(peak, cache.capacity());
  EXPECT_GT(peak, cache.capacity() - 16);
  EXPECT_LE(most_left, 4 + 160 + 400);
  EXPECT_EQ(cache.next_position(), kTokens);
  EXPECT_EQ(cache.bytes(), bytes);
}

}  // namespace
