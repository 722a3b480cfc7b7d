#include "buzz/score/query_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/policy_list.h"
#include "oracle_twin.h"

namespace {

using buzz::QueryMoments;
using buzz::ShownRows;
using oracle::append_and_attend;
using oracle::refused;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();

ShownRows shown(int query_heads, int dim, const buzz::Rope& rope = {}) {
  ShownRows s;
  s.head_dim = dim;
  s.query_heads = query_heads;
  s.rope = rope;
  return s;
}
QueryMoments of(const ShownRows& s, int first = 0, int max_rollback = 0) {
  return {s, buzz::Unrotation(s, false, true).rotation(), 1, first, max_rollback, /*lengths*/ true};
}
/// Shows [tokens, query_heads, head_dim].
void show(QueryMoments* m, int position, const Floats& q) {
  const int tokens = static_cast<int>(q.size()) / m->query_heads() / m->head_dim();
  const buzz::RowsView<float> rows(buzz::View<const float>(q.data(), tokens, m->query_heads(), m->head_dim()));
  m->observe(position, tokens, buzz::FloatRowsOf<float>(rows));
  m->add_up();
}
Doubles numbers(const double* from, int count) { return {from, from + count}; }

TEST(QueryMoments, AreTheSumsOfEachHead) {
  QueryMoments m = of(shown(2, 2));
  show(&m, 0, {1, -2, 3, 4, /**/ 5, 6, -7, 8});
  EXPECT_EQ(m.count(0), 2);
  EXPECT_EQ(numbers(m.values(0), 2), (Doubles{6, 4}));
  EXPECT_EQ(numbers(m.lengths(0), 2), (Doubles{6, 8})) << "elements alone are pairs of their own";
  EXPECT_EQ(numbers(m.values(1), 2), (Doubles{-4, 12}));
}

TEST(QueryMoments, HaveTheLengthsOfThePairsThatTurnTogether) {
  buzz::Rope rope{10000.0};
  QueryMoments m = of(shown(1, 4, rope));
  show(&m, 0, {3, 4, 5, 12, /**/ -3, -4, 0, 0});
  EXPECT_EQ(numbers(m.lengths(0), 4), (Doubles{10, 0, 13, 0}));
  rope.pairs = buzz::Pairs::halves;
  rope.first = 1;
  rope.dims = 4;
  m = of(shown(1, 6, rope));
  show(&m, 0, {-2, 3, 5, 4, 12, -7});
  EXPECT_EQ(numbers(m.lengths(0), 6), (Doubles{2, 5, 13, 0, 0, 7}));
}

TEST(QueryMoments, HaveLengthsWhereTheyAreWanted) {
  const ShownRows s = shown(2, 2);
  const QueryMoments with = of(s);
  QueryMoments without(s, nullptr, 1, 0, 0, /*lengths*/ false);
  show(&without, 0, {1, -2, 3, 4, /**/ 5, 6, -7, 8});
  EXPECT_EQ(numbers(without.values(1), 2), (Doubles{-4, 12}));
  EXPECT_EQ(without.count(1), 2);
  EXPECT_EQ(without.lengths(1), nullptr);
  EXPECT_LT(without.bytes(), with.bytes());
  EXPECT_TRUE(buzz::policy("tri_attention:rows=64").needs().query_lengths);
  EXPECT_FALSE(buzz::policy("fluency:rows=64").needs().query_lengths);
}

TEST(QueryMoments, OfNoTokensAreNothing) {
  QueryMoments m = of(shown(1, 2));
  show(&m, 0, {});
  EXPECT_EQ(m.count(0), 0);
  EXPECT_EQ(numbers(m.values(0), 2), (Doubles{0, 0}));
  QueryMoments().add_up();
}

TEST(QueryMoments, LeaveOutTheSinkWhatWasSeenAndWhatIsNotFinite) {
  QueryMoments m = of(shown(1, 1), /*first*/ 2);
  show(&m, 0, {100, 100, 1});
  EXPECT_EQ(m.values(0)[0], 1);
  show(&m, 1, {100, 7, 2});  // positions 1 and 2 again
  EXPECT_EQ(m.values(0)[0], 3);
  show(&m, 4, {kNan, kInf, -kInf, 4});
  EXPECT_EQ(m.values(0)[0], 7);
  EXPECT_EQ(m.count(0), 3);
  QueryMoments two = of(shown(2, 2, buzz::Rope{10000.0}));
  show(&two, 0, {kNan, 1, kMost, kMost});
  EXPECT_EQ(two.count(0), 0);
  EXPECT_EQ(two.count(1), 1) << "the other head's";
  EXPECT_EQ(two.lengths(1)[0], static_cast<double>(kMost));
}

TEST(QueryMoments, AreTheSameBitsHoweverTheyComeAndGo) {
  oracle::Random random(7);
  for (int i = 0; i < 200; ++i) {
    const int heads = random.in(1, 3), dim = random.in(1, 9), most = random.in(0, 5), tokens = random.in(0, 30);
    buzz::Rope rope;
    if (dim > 1 && random.one_in(2)) rope = {10000.0, dim / 2 * 2};
    QueryMoments one = of(shown(heads, dim, rope), 1, most), other = of(shown(heads, dim, rope), 1);
    const oracle::Text text(random.bits());
    for (int t = 0; t < tokens; ++t) show(&other, t, text.queries(t, 1, heads, dim));
    for (int t = 0; t < tokens;) {
      const int n = random.in(0, tokens - t), back = random.in(0, std::min(n, most));
      show(&one, t, text.queries(t, n, heads, dim));
      one.take_back(t + n - back);
      t += n - back;
    }
    one.add_up();
    for (int q = 0; q < heads; ++q) {
      ASSERT_EQ(one.count(q), other.count(q));
      ASSERT_EQ(numbers(one.values(q), dim), numbers(other.values(q), dim));
      ASSERT_EQ(numbers(one.lengths(q), dim), numbers(other.lengths(q), dim));
    }
    one.clear();
    one.add_up();
    ASSERT_EQ(one.count(0), 0);
    show(&one, 1, text.queries(0, 1, heads, dim));
    ASSERT_EQ(one.count(0), 1) << "a new sequence";
  }
}

constexpr int kTokens = 60;
const char* const kNames[] = {"expected_attention", "tri_attention", "cap_kv"};
const buzz::Shape kShape{4, 2, 8, 8, 4};
const buzz::Rope kRope{10000.0};
buzz::Policy named(const std::string& name) { return buzz::policy(name + ":rows=32,max_chunk=8"); }

template <class F>
void with_each(F&& f) {
  for (const char* name : kNames) f(named(name));
}

TEST(Queries, ThatWaitAreCountedDroppedForkedAndTakenBack) {
  with_each([](const buzz::Policy& policy) {
    buzz::BuzzCache<float> cache(kShape, policy, kRope), twin(kShape, policy, kRope);
    feed(cache, oracle::Text(), 5);
    feed(twin, oracle::Text(), 5);
    append_and_attend(cache, 3);
    EXPECT_EQ(cache.unobserved(), 3);
    EXPECT_EQ(refused([&] { oracle::bytes_of(cache); }), "unobserved");
    const buzz::BuzzCache<float> waiting = cache.fork();
    EXPECT_EQ(waiting.unobserved(), 3);
    cache.rollback(1);
    EXPECT_EQ(cache.unobserved(), 2);
    cache.observe();
    append_and_attend(twin, 2);
    twin.observe();
    EXPECT_TRUE(oracle::bytes_of(cache) == oracle::bytes_of(twin));
    append_and_attend(cache, 2);
    cache.discard();
    cache.observe();
    append_and_attend(twin, 2);
    EXPECT_FALSE(oracle::bytes_of(cache).empty());
    twin.observe();
    EXPECT_FALSE(oracle::bytes_of(cache) == oracle::bytes_of(twin)) << "those that were dropped do not count";
  });
}

TEST(Queries, AreTheOnesThatCameWhereTheOutputIsInTheirPlace) {
  with_each([](const buzz::Policy& policy) {
    buzz::BuzzCache<float> cache(kShape, policy, kRope), twin(kShape, policy, kRope);
    for (int i = 0; i < 10; ++i) {
      feed(twin, oracle::Text(), 4);
      oracle::NextTokens next(cache, oracle::Text(), 4);
      const auto q = buzz::view(next.queries, 4, 4, 8);
      cache.attend(q, next.k(), next.v(), q);
      ASSERT_TRUE(oracle::bytes_of(cache) == oracle::bytes_of(twin));
    }
  });
}

TEST(Queries, CutIntoCallsInAnyWayAreTheSameBits) {
  with_each([](buzz::Policy policy) {
    std::string one;
    for (const int n : {1, 2, 5, 8}) {
      buzz::BuzzCache<float> cache(kShape, policy, kRope);
      while (cache.next_position() < 20) {
        const int count = std::min(n, 20 - cache.next_position());
        append_and_attend(cache, count);
        cache.observe();  // and no eviction, which comes at the end of calls
      }
      if (one.empty()) one = oracle::bytes_of(cache);
      ASSERT_TRUE(oracle::bytes_of(cache) == one) << policy.name << " " << n;
    }
  });
}

/// A flash kernel attends: the cache is given queries alone.
TEST(Queries, AloneAreEnoughBesideAFlashKernel) {
  with_each([](const buzz::Policy& policy) {
    buzz::BuzzCache<Eigen::half> cache(kShape, policy, kRope), twin(kShape, policy, kRope);
    const oracle::Text text;
    for (int i = 0; i < 20; ++i) {
      oracle::NextTokens next(cache, text, 3);
      cache.append(next.k(), next.v());
      cache.observe(next.q());
      if (i % 5 == 0) cache.observe(next.q());  // a token's queries count once
      cache.evict();
      feed(twin, text, 3);
      ASSERT_TRUE(oracle::bytes_of(cache) == oracle::bytes_of(twin)) << i;
    }
    EXPECT_LT(cache.rows(), 33);
    const Floats lse(4);
    EXPECT_EQ(refused([&] {
                cache.observe(buzz::View<const float>(lse.data(), 0, 4, 8),
                              buzz::View<const float>(lse.data(), 1, 0, 4));
              }),
              "policy");
  });
}

/// A score of attention and one of queries.
buzz::Policy of_both() {
  buzz::TopK::Options o;
  o.heavy = 10;
  return buzz::policy(buzz::sum(buzz::attention_sum(), buzz::faded(buzz::tri_score()), 0.5f), o, {2, 6});
}

TEST(Queries, AndLogSumExpsServeASumOfBoth) {
  EXPECT_TRUE(of_both().needs().attention);
  EXPECT_TRUE(of_both().needs().queries);
  buzz::BuzzCache<float> cache(kShape, of_both(), kRope);
  feed(cache, oracle::Text(), 6);
  oracle::NextTokens next(cache, oracle::Text(), 2);
  EXPECT_EQ(refused([&] { cache.observe(next.q()); }), "lse");
  const std::string before = oracle::bytes_of(cache);
  cache.append(next.k(), next.v());
  cache.attend(next.q(), next.out());
  EXPECT_EQ(cache.unobserved(), 2);
  EXPECT_EQ(refused([&] { cache.observe(next.q(), buzz::View<const float>(next.q().data(), 1, 2, 4)); }), "unobserved");
  cache.observe();
  EXPECT_FALSE(oracle::bytes_of(cache) == before);
  cache.rollback(2);
  EXPECT_TRUE(oracle::bytes_of(cache) == before);
  int evictions = 0;
  for (int i = 0; i < kTokens; ++i) {
    const int rows = cache.rows();
    feed(cache, oracle::Text(), 1);
    evictions += cache.rows() <= rows;
  }
  EXPECT_GT(evictions, 20);
}

TEST(Queries, OfAnEngineKeepWhatACacheKeeps) {
  for (const bool compact : {false, true})
    with_each([compact](const buzz::Policy& policy) {
      buzz::Rope rope = kRope;
      rope.attention_factor = 1.25;
      if (compact) rope.positions = buzz::Positions::compact;
      buzz::AttentionOptions attention;
      attention.scale = 0.5;
      buzz::BuzzCache<float> cache(kShape, policy, rope, attention);
      ASSERT_EQ(cache.has_raw_keys(), compact);
      ShownRows rows{8, 0, rope, 4, 0.5};
      if (compact) rows.rope.keys = buzz::KeyStorage::raw;
      buzz::Evictor evictor(policy, 2, 8, 4, rows);
      for (int i = 0; i < 40; ++i) {
        oracle::NextTokens next(cache, oracle::Text(), 1 + i % 3);
        cache.append(next.k(), next.v());
        cache.observe(next.q());
        evictor.append(next.n);
        evictor.observe_queries(next.q());
        const buzz::View<const float> keys = cache.keys(), values = cache.values();
        if (evictor.should_evict()) evictor.select(keys, values);
        cache.evict();
        ASSERT_EQ(evictor.rows(), cache.rows());
        for (int h = 0; h < 2; ++h)
          for (int r = 0; r < cache.rows(); ++r) ASSERT_EQ(evictor.positions(h)[r], cache.positions(h)[r]);
      }
      EXPECT_GT(cache.next_position(), cache.rows() + 30);
    });
}

TEST(Queries, AreRefusedByName) {
  with_each([](const buzz::Policy& policy) {
    const auto made = [&](const ShownRows& rows) { return refused([&] { buzz::Evictor(policy, 2, 1, 0, rows); }); };
    EXPECT_EQ(made({}), "head_dim");
    EXPECT_EQ(made({8}), "query_heads");
    EXPECT_EQ(made({8, 0, {}, 3}), "query_heads");
    EXPECT_EQ(made({8, 0, {}, -2}), "query_heads");
    EXPECT_EQ(made({8, 0, {}, 1 << 18}), "query_heads");
    EXPECT_EQ(made({8, 0, {}, 4, -1.0}), "scale");
    EXPECT_EQ(made({8, 0, {}, 4, static_cast<double>(kNan)}), "scale");
    EXPECT_EQ(made({8, 0, {}, 4}), "nothing");
    buzz::Rope several;
    several.multi_axis = true;
    EXPECT_EQ(made({8, 0, several, 4}), "rope.multi_axis");
    buzz::Evictor evictor(policy, 2, 4, 0, {8, 0, {}, 4});
    evictor.append(2);
    const Floats q(3 * 4 * 9, 1.f);
    const auto given = [&](int tokens, int heads, int dim) {
      return refused([&] { evictor.observe_queries(buzz::View<const float>(q.data(), tokens, heads, dim)); });
    };
    EXPECT_EQ(given(3, 4, 8), "queries.shape[0]");
    EXPECT_EQ(given(2, 2, 8), "queries.shape[1]");
    EXPECT_EQ(given(2, 4, 9), "queries.shape[2]");
    EXPECT_EQ(given(2, 4, 8), "nothing");
    EXPECT_EQ(given(0, 4, 8), "nothing");
    EXPECT_EQ(refused([&] { evictor.select(); }), "policy");
  });
  buzz::Evictor blind(buzz::streaming(), 1);
  EXPECT_EQ(refused([&] { blind.observe_queries(buzz::View<const float>(nullptr, 0, 1, 1)); }), "policy");
  buzz::BuzzCache<float> cache(kShape, buzz::streaming());
  EXPECT_EQ(refused([&] { cache.observe(buzz::View<const float>(nullptr, 0, 4, 8)); }), "policy");
}

TEST(Queries, ThatWereNeverShownLeaveTheLongestValuesAndTheOldestRows) {
  buzz::TopK::Options o;
  o.heavy = 2;
  const Floats zeros(5), values = {1, 5, 2, 7, 3};
  const auto kept = [&](const buzz::ScoreSpec& score) {
    buzz::BuzzCache<float> cache({1, 1, 1, 5}, buzz::policy(score, o, {0, 0}));
    cache.append(buzz::view(values, 5, 1, 1), buzz::view(values, 5, 1, 1));
    cache.evict();
    return std::vector<int>(cache.positions(0).begin(), cache.positions(0).end());
  };
  EXPECT_EQ(kept(buzz::expected_score()), (std::vector<int>{1, 3}));
  EXPECT_EQ(kept(buzz::tri_score()), (std::vector<int>{0, 1}));
}

TEST(Queries, AreSavedWithThoseThatCouldBeTakenBack) {
  with_each([](const buzz::Policy& policy) {
    buzz::BuzzCache<float> cache(kShape, policy, kRope), other(kShape, policy, kRope);
    feed(cache, oracle::Text(), 7);
    std::istringstream in(oracle::bytes_of(cache));
    other.load(in);
    for (int i = 0; i < 12; ++i) {
      ASSERT_TRUE(oracle::bytes_of(other) == oracle::bytes_of(cache)) << i;
      feed(cache, oracle::Text(), 5);
      feed(other, oracle::Text(), 5);
    }
  });
}

TEST(Queries, InADamagedFileAreRefused) {
  buzz::BuzzCache<float> cache({1, 1, 2, 6}, named("tri_attention"));
  feed(cache, oracle::Text(), 6);
  // The sums are the last numbers before keys, values and the checksum: 5 doubles behind `queries seen`.
  const std::string good = oracle::bytes_of(cache);
  const std::size_t rows = 8 + 2 * 6 * 2 * sizeof(float);
  const auto with = [&](std::size_t number, double value) {
    std::string bad = good;
    std::memcpy(&bad[good.size() - rows - 8 * (6 - number)], &value, sizeof value);
    std::istringstream in(bad);
    return refused<buzz::FileError>([&] { cache.load(in); });
  };
  EXPECT_EQ(with(1, -1), "queries") << "a count";
  EXPECT_EQ(with(1, 7), "queries") << "more than tokens";
  EXPECT_EQ(with(2, static_cast<double>(kNan)), "queries");
  EXPECT_EQ(with(5, -0.5), "queries") << "a length";
  EXPECT_EQ(with(3, -0.5), "checksum");
  EXPECT_EQ(oracle::bytes_of(cache), good);
}

}  // namespace
