#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "typed.h"

namespace {

template <class T, class P = typed::Beehive>
using BuzzCache = typed::Cache<T, P>;
using buzz::HiveRule;
using buzz::Pairs;
using buzz::Positions;
using buzz::Regions;
using buzz::Rope;
using buzz::Shape;
using buzz::View;
using Rows = std::vector<int>;
using Values = std::vector<float>;
using Cache = BuzzCache<float>;

static_assert(!std::is_copy_constructible<Cache>::value && !std::is_copy_assignable<Cache>::value, "a copy costs");
static_assert(std::is_nothrow_move_constructible<Cache>::value && std::is_move_assignable<Cache>::value,
              "a vector of caches may grow");
static_assert(!std::is_convertible<Shape, Cache>::value, "an allocation is written out");
static_assert(std::is_same<Cache::Policy, typed::Beehive>::value, "the beehive is the default");

const Shape kShape{4, 2, 6, 5};

typed::Options small() {
  typed::Options o;
  o.sink = 2;
  o.window = 3;
  o.threshold = 6;
  o.stride = 3;
  return o;
}

Rope rope(Positions positions, Pairs pairs = Pairs::interleaved) {
  Rope r{10000.0};
  r.positions = positions;
  r.pairs = pairs;
  return r;
}

/// Random tokens: what a model would hand the cache.
struct Tokens {
  Values q, k, v;
  int count;

  View<const float> queries(const Shape& s) const { return buzz::view(q, count, s.query_heads, s.head_dim); }
  View<const float> keys(const Shape& s) const { return buzz::view(k, count, s.kv_heads, s.head_dim); }
  View<const float> values(const Shape& s) const { return buzz::view(v, count, s.kv_heads, s.head_dim); }
};

class Source {
 public:
  explicit Source(unsigned seed, const Shape& shape = kShape) : shape_(shape), random_(seed) {}
  Tokens operator()(int count) {
    Tokens t{{}, {}, {}, count};
    fill(t.q, count * shape_.query_heads);
    fill(t.k, count * shape_.kv_heads);
    fill(t.v, count * shape_.kv_heads);
    return t;
  }
  /// A chunk of 1 to max_chunk tokens.
  Tokens chunk() { return (*this)(1 + static_cast<int>(random_() % static_cast<unsigned>(shape_.max_chunk))); }

 private:
  void fill(Values& v, int rows) {
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (int i = 0; i < rows * shape_.head_dim; ++i) v.push_back(uniform(random_));
  }
  Shape shape_;
  std::mt19937 random_;
};

template <class C>
Values attend(C& cache, const Tokens& t) {
  const Shape& s = cache.shape();
  Values out(t.q.size());
  cache.attend(t.queries(s), t.keys(s), t.values(s), buzz::view(out, t.count, s.query_heads, s.head_dim));
  return out;
}

template <class T>
std::vector<double> numbers(const View<const T>& rows) {
  std::vector<double> all;
  for (int h = 0; h < rows.shape(0); ++h)
    for (int r = 0; r < rows.shape(1); ++r)
      for (int d = 0; d < rows.shape(2); ++d) all.push_back(double(static_cast<float>(rows.row(h, r)[d])));
  return all;
}

/// Everything that can be seen of a cache.
template <class C>
auto state(const C& cache) {
  std::vector<std::vector<double>> s = {{double(cache.rows()), double(cache.regions().sink),
                                         double(cache.regions().hive), double(cache.regions().unfiltered),
                                         double(cache.next_position())}};
  for (int h = 0; h < cache.shape().kv_heads; ++h) {
    s.emplace_back(cache.positions(h).begin(), cache.positions(h).end());
    s.emplace_back(cache.scores(h).begin(), cache.scores(h).end());
  }
  s.push_back(numbers(cache.keys()));
  s.push_back(numbers(cache.values()));
  return s;
}

/// A row of `dim` floats, rotated to `position` in double.
std::vector<double> rotated(const float* row, int dim, const Rope& r, int position) {
  std::vector<double> out(row, row + dim);
  if (r.base == 0) return out;
  const int dims = r.dims == 0 ? dim : r.dims;
  for (int i = 0; i < dims / 2; ++i) {
    const double angle = position * std::pow(r.base, -2.0 * i / dims);
    const int a = r.pairs == Pairs::interleaved ? 2 * i : i;
    const int b = r.pairs == Pairs::interleaved ? 2 * i + 1 : i + dims / 2;
    out[static_cast<std::size_t>(a)] = double(row[a]) * std::cos(angle) - double(row[b]) * std::sin(angle);
    out[static_cast<std::size_t>(b)] = double(row[a]) * std::sin(angle) + double(row[b]) * std::cos(angle);
  }
  return out;
}

/// All tokens of a sequence as they were given, and attention over the rows that a cache says it has.
struct History {
  void add(const Tokens& t) {
    k.insert(k.end(), t.k.begin(), t.k.end());
    v.insert(v.end(), t.v.begin(), t.v.end());
  }
  const float* key(const Shape& s, int position, int head) const {
    return k.data() + (position * s.kv_heads + head) * s.head_dim;
  }

  /// What the newest token's queries get from rows `positions[head]`, each key at its position or its place.
  std::vector<double> attend(const Shape& s, const Rope& r, const std::vector<Rows>& positions, const Tokens& t) const {
    std::vector<double> out;
    for (int q = 0; q < s.query_heads; ++q) {
      const int head = q / (s.query_heads / s.kv_heads);
      const Rows& rows = positions[static_cast<std::size_t>(head)];
      const bool compact = r.positions == Positions::compact;
      const int at = compact ? static_cast<int>(rows.size()) - 1 : rows.back();
      const float* raw = t.q.data() + ((t.count - 1) * s.query_heads + q) * s.head_dim;
      const std::vector<double> query = rotated(raw, s.head_dim, r, at);
      std::vector<double> mixed(static_cast<std::size_t>(s.head_dim));
      double sum = 0;
      for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
        const int position = rows[static_cast<std::size_t>(i)];
        const std::vector<double> row = rotated(key(s, position, head), s.head_dim, r, compact ? i : position);
        double logit = 0;
        for (std::size_t d = 0; d < row.size(); ++d) logit += query[d] * row[d];
        const double p = std::exp(logit / std::sqrt(double(s.head_dim)));
        sum += p;
        for (std::size_t d = 0; d < row.size(); ++d)
          mixed[d] += p * double(v[static_cast<std::size_t>((position * s.kv_heads + head) * s.head_dim) + d]);
      }
      for (double m : mixed) out.push_back(m / sum);
    }
    return out;
  }

  Values k, v;  // [tokens, kv_heads, head_dim]
};

template <class C>
std::vector<Rows> positions(const C& cache) {
  std::vector<Rows> all;
  for (int h = 0; h < cache.shape().kv_heads; ++h)
    all.emplace_back(cache.positions(h).begin(), cache.positions(h).end());
  return all;
}

TEST(BuzzCache, StartsEmptyAtItsFullSize) {
  const Cache cache(kShape, small());
  EXPECT_EQ(cache.rows(), 0);
  EXPECT_EQ(cache.next_position(), 0);
  EXPECT_EQ(cache.regions(), Regions{});
  EXPECT_EQ(cache.capacity(), 2 + 3 + 6 + 5);
  EXPECT_EQ(cache.keys().shape(1), 0);
  // At least K and V.
  EXPECT_GE(cache.bytes(), 2u * 2 * 16 * 6 * sizeof(float));
}

TEST(BuzzCache, StepsAreTheOneCall) {
  Cache one(kShape, small(), rope(Positions::logical)), steps(kShape, small(), rope(Positions::logical));
  Source source(1);
  for (int i = 0; i < 60; ++i) {
    const Tokens t = source.chunk();
    Values out(t.q.size());
    steps.append(t.keys(kShape), t.values(kShape));
    steps.attend(t.queries(kShape), buzz::view(out, t.count, 4, 6));
    steps.observe();
    const int rows = steps.rows();
    const bool evicted = steps.evict();
    EXPECT_EQ(evicted, steps.rows() < rows);
    ASSERT_EQ(attend(one, t), out);
    ASSERT_EQ(state(one), state(steps));
  }
}

TEST(BuzzCache, AnEvictionActsFromTheNextCall) {
  Cache cache(kShape, small());
  typed::Full::Options whole;
  BuzzCache<float, typed::Full> full(kShape, whole);
  Source source(2);
  for (int i = 0; i < 11; ++i) {
    const Tokens t = source(1);
    attend(cache, t);
    attend(full, t);
  }
  EXPECT_EQ(cache.rows(), 11);
  const Tokens trigger = source(1), next = source(1);
  const Values out = attend(cache, trigger), all = attend(full, trigger);
  EXPECT_EQ(cache.regions(), (Regions{2, 3, 0, 3}));
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], all[i], 1e-6) << "the call that evicts sees all";
  EXPECT_NE(attend(cache, next), attend(full, next));
}

TEST(BuzzCache, ObserveCountsAnAttendOnce) {
  Cache cache(kShape, small());
  Source source(3);
  const Tokens t = source(3);
  Values out(t.q.size());
  cache.append(t.keys(kShape), t.values(kShape));
  cache.observe();
  EXPECT_EQ(cache.scores(0)[0], 0) << "nothing was attended yet";
  cache.attend(t.queries(kShape), buzz::view(out, 3, 4, 6));
  cache.observe();
  const Values once(cache.scores(0).begin(), cache.scores(0).end());
  EXPECT_GT(once[0], 0);
  cache.observe();
  EXPECT_EQ(Values(cache.scores(0).begin(), cache.scores(0).end()), once);
}

TEST(BuzzCache, ObserveDoesNotTakeTheColumnsOfAnEarlierLength) {
  Cache cache(kShape, small());
  Source source(4);
  const Tokens t = source(2);
  Values out(t.q.size());
  cache.append(t.keys(kShape), t.values(kShape));
  cache.attend(t.queries(kShape), buzz::view(out, 2, 4, 6));
  cache.append(t.keys(kShape), t.values(kShape));
  cache.observe();
  EXPECT_EQ(Values(cache.scores(0).begin(), cache.scores(0).end()), (Values{0, 0, 0, 0}));
}

TEST(BuzzCache, EvictDoesNothingBeforeItIsDue) {
  Cache cache(kShape, small());
  Source source(5);
  attend(cache, source(5));
  const auto before = state(cache);
  EXPECT_FALSE(cache.evict());
  EXPECT_EQ(state(cache), before);
}

TEST(BuzzCache, ValuesAndPositionsStayTogether) {
  for (HiveRule rule : {HiveRule::first, HiveRule::heaviest, HiveRule::together}) {
    typed::Options o = small();
    o.hive = rule;
    Cache cache(kShape, o);
    Source source(6);
    for (int i = 0; i < 200; ++i) {
      Tokens t = source.chunk();
      for (std::size_t j = 0; j < t.v.size(); ++j)
        t.v[j] = static_cast<float>(cache.next_position() + static_cast<int>(j) / 12);
      attend(cache, t);
      for (int h : {0, 1})
        for (int r = 0; r < cache.rows(); ++r)
          ASSERT_EQ(cache.values().row(h, r)[3], static_cast<float>(cache.positions(h)[r]));
    }
    EXPECT_NE(positions(cache)[0], positions(cache)[1]) << "heads keep different rows";
  }
}

TEST(BuzzCache, PositionsAreThoseOfTheTokens) {
  Cache cache(kShape, small());
  Source source(7);
  int tokens = 0;
  for (int i = 0; i < 300; ++i) {
    const Tokens t = source.chunk();
    attend(cache, t);
    tokens += t.count;
    ASSERT_EQ(cache.next_position(), tokens);
    ASSERT_LE(cache.rows(), cache.capacity());
    for (const Rows& p : positions(cache)) {
      ASSERT_EQ(p.front(), 0);
      ASSERT_EQ(p.back(), tokens - 1);
      for (std::size_t r = 1; r < p.size(); ++r) ASSERT_LT(p[r - 1], p[r]);
    }
  }
  EXPECT_GT(tokens, 10 * cache.capacity());
}

/// After every call each stored key is its raw key, rotated to its token's position or its place, and the newest
/// token's output is attention over those rows.
template <class T, class P>
void rotates_as_it_says(const Rope& r, const typename P::Options& options, double tolerance, int calls) {
  BuzzCache<T, P> cache(kShape, options, r);
  Source source(8);
  History history;
  for (int i = 0; i < calls; ++i) {
    const Tokens t = source.chunk();
    history.add(t);
    std::vector<Rows> seen = positions(cache);
    for (Rows& rows : seen)
      for (int n = 0; n < t.count; ++n) rows.push_back(cache.next_position() + n);
    const Values out = attend(cache, t);
    const std::vector<double> expected = history.attend(kShape, r, seen, t);
    for (std::size_t d = 0; d < expected.size(); ++d)
      ASSERT_NEAR(double(out[out.size() - expected.size() + d]), expected[d], 4 * tolerance + 2e-6) << "call " << i;
    for (int h = 0; h < 2; ++h)
      for (int row = 0; row < cache.rows(); ++row) {
        const int position = cache.positions(h)[row];
        Rope stored = r;
        if (cache.has_raw_keys()) stored.base = 0;
        const std::vector<double> key =
            rotated(history.key(kShape, position, h), 6, stored, r.positions == Positions::compact ? row : position);
        for (int d = 0; d < 6; ++d)
          ASSERT_NEAR(double(static_cast<float>(cache.keys().row(h, row)[d])), key[static_cast<std::size_t>(d)],
                      tolerance)
              << "call " << i << ", head " << h << ", row " << row;
      }
  }
}

TEST(LogicalPositions, KeysStayRotatedToTheirTokens) {
  for (Pairs pairs : {Pairs::interleaved, Pairs::halves})
    rotates_as_it_says<float, typed::Beehive>(rope(Positions::logical, pairs), small(), 3e-6, 150);
}

TEST(LogicalPositions, KeepAnyBaseAndPartialSizes) {
  for (double base : {500000.0, 1000000.0}) {
    Rope r = rope(Positions::logical);
    r.base = base;
    r.dims = 4;
    rotates_as_it_says<float, typed::Beehive>(r, small(), 3e-6, 60);
  }
}

TEST(LogicalPositions, HoldForHalves) {
  rotates_as_it_says<Eigen::half, typed::Beehive>(rope(Positions::logical), small(), 2e-3, 60);
}

TEST(CompactPositions, KeysAreRotatedToTheirPlaces) {
  for (Pairs pairs : {Pairs::interleaved, Pairs::halves})
    rotates_as_it_says<float, typed::Beehive>(rope(Positions::compact, pairs), small(), 3e-6, 150);
}

TEST(CompactPositions, DoNotDriftOverAThousandEvictions) {
  // About three tokens a call and five an eviction.
  rotates_as_it_says<float, typed::Beehive>(rope(Positions::compact), small(), 3e-6, 2000);
  rotates_as_it_says<Eigen::half, typed::Beehive>(rope(Positions::compact), small(), 1e-2, 2000);
}

TEST(CompactPositions, HoldWherePoliciesMoveRowsAtEveryCall) {
  typed::Streaming::Options streaming;
  streaming.sink = 2;
  streaming.window = 7;
  rotates_as_it_says<float, typed::Streaming>(rope(Positions::compact), streaming, 3e-6, 1000);
  typed::HeavyHitter::Options heavy;
  heavy.window = 4;
  heavy.heavy = 5;
  rotates_as_it_says<float, typed::HeavyHitter>(rope(Positions::compact), heavy, 3e-6, 1000);
}

TEST(NoRope, KeysAreStoredAsTheyCome) { rotates_as_it_says<float, typed::Beehive>(Rope{}, small(), 0, 60); }

TEST(BuzzCache, EvictingRowsOfNoProbabilityChangesNoOutput) {
  // One key matches all queries, the others lie opposite: e^-400 of the attention.
  const Shape shape{1, 1, 2};
  typed::Options o = small();
  o.sink = 0;
  o.window = 2;
  o.stride = 2;
  o.hive = HiveRule::heaviest;
  o.hive_stride = 2;
  o.threshold = 4;
  Cache cache(shape, o);
  typed::Full::Options whole;
  whole.capacity = 64;
  BuzzCache<float, typed::Full> full(shape, whole);
  Source source(9, shape);
  for (int i = 0; i < 10; ++i) {
    Tokens t = source(1);
    t.q = {300, 0};
    t.k = {i == 0 ? 1.f : -1.f, t.k[1]};
    const Values out = attend(cache, t), all = attend(full, t);
    EXPECT_EQ(out, all) << "token " << i;
  }
  EXPECT_LT(cache.rows(), full.rows());
}

TEST(BuzzCache, ResetIsAsNew) {
  Cache used(kShape, small(), rope(Positions::compact)), fresh(kShape, small(), rope(Positions::compact));
  Source before(10);
  for (int i = 0; i < 50; ++i) attend(used, before.chunk());
  used.reset();
  EXPECT_EQ(state(used), state(fresh));
  Source source(11);
  for (int i = 0; i < 50; ++i) {
    const Tokens t = source.chunk();
    ASSERT_EQ(attend(used, t), attend(fresh, t));
    ASSERT_EQ(state(used), state(fresh));
  }
}

TEST(BuzzCache, AMovedOneGoesOn) {
  Cache still(kShape, small()), first(kShape, small());
  Source source(12);
  for (int i = 0; i < 20; ++i) {
    const Tokens t = source.chunk();
    attend(still, t);
    attend(first, t);
  }
  Cache moved = std::move(first);
  Cache assigned(kShape, small());
  EXPECT_EQ(state(moved), state(still));
  assigned = std::move(moved);
  for (int i = 0; i < 20; ++i) {
    const Tokens t = source.chunk();
    ASSERT_EQ(attend(assigned, t), attend(still, t));
  }
  EXPECT_EQ(state(assigned), state(still));
}

TEST(BuzzCache, SequencesDoNotDisturbEachOther) {
  Cache a(kShape, small()), b(kShape, small()), alone(kShape, small());
  Source of_a(13), of_b(14), of_alone(13);
  std::vector<Values> outputs;
  for (int i = 0; i < 40; ++i) {
    outputs.push_back(attend(a, of_a.chunk()));
    attend(b, of_b.chunk());
  }
  for (int i = 0; i < 40; ++i) ASSERT_EQ(attend(alone, of_alone.chunk()), outputs[static_cast<std::size_t>(i)]);
  EXPECT_EQ(state(a), state(alone));
}

TEST(BuzzCache, BytesNeverChange) {
  Cache cache(kShape, small());
  const std::size_t bytes = cache.bytes();
  Source source(15);
  for (int i = 0; i < 50; ++i) attend(cache, source.chunk());
  EXPECT_EQ(cache.bytes(), bytes);
}

TEST(BuzzCache, RemembersWhatItWasMadeOf) {
  const Cache cache(kShape, small(), rope(Positions::compact));
  EXPECT_EQ(cache.shape().head_dim, 6);
  EXPECT_EQ(cache.options().window, 3);
  EXPECT_EQ(cache.rope().base, 10000);
  EXPECT_EQ(cache.policy().kv_heads(), 2);
}

template <class T>
class BuzzCacheOf : public testing::Test {};
using Halves = testing::Types<Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(BuzzCacheOf, Halves);

TYPED_TEST(BuzzCacheOf, TakesItsOwnTypeAndFloatsAlike) {
  using T = TypeParam;
  BuzzCache<T> floats(kShape, small()), typed(kShape, small());
  Source source(16);
  for (int i = 0; i < 20; ++i) {
    Tokens t = source.chunk();
    std::vector<T> q, k, v, out(t.q.size());
    for (float& x : t.q) x = static_cast<float>(q.emplace_back(static_cast<T>(x)));
    for (float& x : t.k) x = static_cast<float>(k.emplace_back(static_cast<T>(x)));
    for (float& x : t.v) x = static_cast<float>(v.emplace_back(static_cast<T>(x)));
    const Values expected = attend(floats, t);
    typed.attend(buzz::view(q, t.count, 4, 6), buzz::view(k, t.count, 2, 6), buzz::view(v, t.count, 2, 6),
                 buzz::view(out, t.count, 4, 6));
    for (std::size_t d = 0; d < out.size(); ++d) ASSERT_EQ(out[d], static_cast<T>(expected[d])) << "rounded once";
    ASSERT_EQ(state(typed), state(floats));
  }
}

TYPED_TEST(BuzzCacheOf, TakesHalfTheRoomForKAndV) {
  const Shape shape{8, 8, 128, 1};
  const std::size_t rows = 565, numbers = 2 * 8 * rows * 128;
  EXPECT_NEAR(double(Cache(shape).bytes() - BuzzCache<TypeParam>(shape).bytes()), double(numbers * 2), 1e-9);
}

TEST(BuzzCacheWithGivenScores, KeepsWhatTheUserSays) {
  using UserScores = BuzzCache<float, typed::Policy<typed::UserScores, buzz::Segments>>;
  UserScores::Options o;
  o.sink = o.window = 0;
  o.threshold = 5;
  o.stride = 3;
  UserScores cache({1, 1, 2, 6}, o);
  const Tokens t = Source(17, {1, 1, 2, 6})(6);
  cache.append(t.keys(cache.shape()), t.values(cache.shape()));
  const Values scores = {1, 3, 2, /**/ 4, 5, 6};
  cache.give(buzz::view(scores, 1, 1, 6));
  EXPECT_TRUE(cache.evict());
  EXPECT_EQ(positions(cache)[0], (Rows{1, 5}));
}

TEST(BuzzCacheWithKeyDiversity, KeepsTheKeysThatAreUnlikeTheOthers) {
  using Diverse = BuzzCache<float, typed::Policy<typed::KeyDiversity, buzz::Segments>>;
  Diverse::Options o;
  o.sink = o.window = 0;
  o.threshold = 5;
  o.stride = 3;
  Diverse cache({1, 1, 2, 6}, o);
  const Values k = {1, 0, 1, 0, 0, 1, /**/ -1, 0, 1, 0, 1, 0};
  cache.append(buzz::view(k, 6, 1, 2), buzz::view(k, 6, 1, 2));
  EXPECT_TRUE(cache.evict());
  EXPECT_EQ(positions(cache)[0], (Rows{2, 3}));
}

}  // namespace
