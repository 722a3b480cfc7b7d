// The library against the oracle, on random configurations. A failure prints its configuration; its seed alone draws
// it again.

#include <gtest/gtest.h>

#include "oracle_compare.h"
#include "sanitizers.h"

namespace {

using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::Random;
using oracle::Statistics;

/// Calls one(seed) for `count` seeds; a mismatch fails the test and names the configuration; the third ends it.
template <class F>
void for_each_seed(std::uint64_t first, int count, F&& one) {
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(count) && failures < 3; ++seed) {
    try {
      one(seed);
    } catch (const std::exception& e) {
      ++failures;
      ADD_FAILURE() << e.what() << "\n" << describe(oracle::draw(seed));
    }
  }
}

constexpr int kConfigurations = static_cast<int>(sanitized::draws(250)) * oracle::kKinds;  // of each element type

/// Kept rows, sizes, regions, positions, scores, stored rows and attention output of BuzzCache<T, every policy>.
void agrees_with_the_oracle(Element element, std::uint64_t first_seed) {
  Statistics s;
  for_each_seed(first_seed, kConfigurations,
                [&](std::uint64_t seed) { oracle::Comparison(element, oracle::draw(seed), &s).run(); });
  EXPECT_EQ(s.configurations, kConfigurations);
  if (testing::Test::HasFailure() || sanitized::few) return;
  // What was tested was tested often.
  EXPECT_GT(s.evictions, 6 * kConfigurations);
  EXPECT_GT(s.repeated_passes, kConfigurations / 6);
  for (int kind = 0; kind < oracle::kKinds; ++kind) {
    const bool evicts = kind != static_cast<int>(Kind::full);
    EXPECT_GT(s.evictions_of[kind], evicts ? 4 * kConfigurations / oracle::kKinds : -1) << kind;
  }
  // Float rounding may turn a near tie now and then, and no more.
  EXPECT_LT(s.near_ties * 1000, s.evictions);
}

TEST(Properties, FloatAgreesWithTheOracle) { agrees_with_the_oracle(Element::float32, 1); }
TEST(Properties, HalfAgreesWithTheOracle) { agrees_with_the_oracle(Element::half, 100001); }
TEST(Properties, Bfloat16AgreesWithTheOracle) { agrees_with_the_oracle(Element::bfloat16, 200001); }
TEST(Properties, Int8AgreesWithTheOracle) { agrees_with_the_oracle(Element::int8, 300001); }

/// A policy alone, on scores that are exact in float32 and tie often: kept rows and scores must be the oracle's to the
/// last bit. One twin is given probabilities, the other their column sums.
template <class P>
class Exact {
 public:
  explicit Exact(const Config& c)
      : c_(c),
        random_(c.seed + 1),
        oracle_(without_keys(exact(&c_).oracle)),
        policy_(oracle::library_options<P>(c_), c.oracle.kv_heads, c.max_chunk),
        twin_(policy_.options(), c.oracle.kv_heads, c.max_chunk) {}

  void run(int* evictions, int* pins) {
    for (int n : c_.calls) {
      const oracle::Tokens tokens(static_cast<std::size_t>(n),
                                  std::vector<oracle::Vector>(static_cast<std::size_t>(heads()), oracle::Vector{0}));
      if (c_.seed % 4 == 0) pin();
      oracle_.append(tokens, tokens);
      policy_.append(n);
      twin_.append(n);
      if (n > 0) score(n);
      compare();
      oracle::expect(policy_.should_evict() == oracle_.should_evict() && twin_.should_evict() == oracle_.should_evict(),
                     "whether it should evict");
      *evictions += policy_.should_evict();
      select();
      compare();
    }
    *pins += pins_;
  }

 private:
  /// A decayed sum has too many digits.
  static const Config& exact(Config* c) {
    if (c->oracle.attention == oracle::AttentionKind::decayed) c->oracle.attention = oracle::AttentionKind::largest;
    if (c->oracle.average) c->oracle.kernel = 1;
    return *c;
  }
  static oracle::Options without_keys(oracle::Options o) {
    o.rope_base = 0;
    return o;
  }
  int heads() const { return c_.oracle.kv_heads; }

  /// Now and then pins a position that is still in the window or yet to come, while there is room for it.
  void pin() {
    const oracle::Options& o = c_.oracle;
    int room = o.segments_room();
    if (o.select == oracle::Select::heaviest) room = o.heavy;
    if (o.select == oracle::Select::nothing) room = o.threshold;
    if (o.single_pass) room = std::max(0, o.threshold + c_.max_chunk - 2 * (c_.max_chunk + 1));
    const int next = oracle_.next_position(), window = oracle_.regions().window;
    const int position = random_.in(std::max(o.sink, next - window), next + 20);
    if (o.select == oracle::Select::everything || pins_ >= room || !random_.one_in(4)) return;
    policy_.pin(position, 1);
    twin_.pin(position, 1);
    oracle_.pin(position);
    ++pins_;
  }

  void score(int n) {
    if constexpr (P::needs_attention) {
      observe(n);
    } else if constexpr (std::is_same<P, typed::Policy<typed::UserScores, buzz::Segments>>::value) {
      std::vector<float> scores;
      for (int h = 0; h < heads(); ++h)
        for (oracle::Row& row : oracle_.head(h)) {
          scores.push_back(quarters());
          row.score = static_cast<double>(scores.back());
        }
      policy_.give(buzz::view(scores, 1, heads(), policy_.rows()));
      twin_.give(buzz::view(scores, 1, heads(), policy_.rows()));
    }
  }

  /// Quarters from 0 to 3/4, so that sums are exact; now and then one that is not finite.
  float quarters() {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    return random_.one_in(16) ? random_.of({nan, inf, -inf}) : 0.25f * static_cast<float>(random_.in(0, 3));
  }

  void observe(int n) {
    const int query_heads = c_.oracle.query_heads, rows = policy_.rows();
    const int parts = std::min(n, policy_.queries_apart() == 0 ? 1 : n);
    std::vector<float> flat, sums(static_cast<std::size_t>(parts * heads() * rows), 0.f);
    oracle::Probabilities p(static_cast<std::size_t>(query_heads));
    for (int q = 0; q < query_heads; ++q) {
      for (int i = 0; i < n; ++i) {
        p[static_cast<std::size_t>(q)].emplace_back();
        for (int r = 0; r < rows; ++r) {
          // Behind the causal mask there is rubbish, which must not count.
          const bool seen = r <= rows - n + i;
          flat.push_back(seen ? quarters() : 99.f);
          p[static_cast<std::size_t>(q)].back().push_back(static_cast<double>(flat.back()));
          const int head = q / (query_heads / heads());
          if (seen && std::isfinite(flat.back()))
            sums[static_cast<std::size_t>((std::min(i, parts - 1) * heads() + head) * rows + r)] += flat.back();
        }
      }
    }
    oracle_.observe(p);
    policy_.observe(buzz::view(flat, query_heads, n, rows));
    twin_.observe_sums(buzz::view(sums, parts, heads(), rows));
  }

  void select() {
    std::vector<std::vector<int>> chosen;
    for (int h = 0; h < heads(); ++h) {
      const bool evicts = oracle_.should_evict();
      chosen.push_back(evicts ? oracle_.choose(h, oracle_.importance(h)).kept : std::vector<int>());
      for (int r = 0; r < oracle_.rows() && !evicts; ++r) chosen.back().push_back(r);
    }
    const int before = policy_.rows();
    const buzz::KeptRows& keep = policy_.select();
    oracle::expect(keep.heads() == heads() && keep.from() == before, "KeptRows");
    for (int h = 0; h < heads(); ++h) {
      const auto rows = keep.rows(h);
      oracle::expect(std::vector<int>(rows.begin(), rows.end()) == chosen[static_cast<std::size_t>(h)], "kept rows");
    }
    twin_.select();
    oracle_.evict();
  }

  void compare() const {
    const oracle::Regions r = oracle_.regions();
    for (const P* policy : {&policy_, &twin_}) {
      oracle::expect(policy->rows() == oracle_.rows(), "rows");
      oracle::expect(policy->regions() == (buzz::Regions{r.sink, r.hive, r.unfiltered, r.window}), "regions");
      for (int h = 0; h < heads(); ++h) {
        const auto scores = policy->scores(h);
        // Scores in the hive are never read again; what becomes of pinned rows' is not promised.
        const int first_score = pins_ > 0 && c_.oracle.hive == oracle::Hive::first ? r.sink + r.hive : 0;
        for (int i = 0; i < oracle_.rows(); ++i) {
          const oracle::Row& row = oracle_.head(h)[static_cast<std::size_t>(i)];
          oracle::expect(policy->positions(h)[i] == row.position, "position");
          const double score = scores.size == 0 || i < first_score ? row.score : static_cast<double>(scores[i]);
          oracle::expect(score == row.score || (std::isnan(score) && std::isnan(row.score)), "score");
        }
      }
    }
  }

  Config c_;
  Random random_;
  oracle::Cache oracle_;
  P policy_, twin_;
  int pins_ = 0;
};

TEST(Properties, PoliciesAreExactOnExactScores) {
  const int of_each = static_cast<int>(sanitized::draws(1000)), count = oracle::kKinds * of_each;
  int runs = 0, exact = 0, evictions = 0, pins = 0;
  for_each_seed(1, count, [&](std::uint64_t seed) {
    const Config c = oracle::draw(seed);
    ++runs;
    exact += !looks_at_rows(c.kind);
    if (c.kind == Kind::beehive) Exact<typed::Beehive>(c).run(&evictions, &pins);
    if (c.kind == Kind::heavy_hitter) Exact<typed::HeavyHitter>(c).run(&evictions, &pins);
    if (c.kind == Kind::streaming) Exact<typed::Streaming>(c).run(&evictions, &pins);
    if (c.kind == Kind::full) Exact<typed::Full>(c).run(&evictions, &pins);
    if (c.kind == Kind::strided) Exact<typed::Strided>(c).run(&evictions, &pins);
    if (c.kind == Kind::given) Exact<typed::Policy<typed::UserScores, buzz::Segments>>(c).run(&evictions, &pins);
    if (c.kind == Kind::tova) Exact<typed::Tova>(c).run(&evictions, &pins);
    if (c.kind == Kind::snap_kv) Exact<typed::SnapKv>(c).run(&evictions, &pins);
    // Those that look at rows have no exact scores: a cosine is rounded.
  });
  EXPECT_EQ(runs, count);
  EXPECT_EQ(exact, 8 * of_each);
  if (HasFailure() || sanitized::few) return;
  EXPECT_GT(evictions, 7 * exact);
  EXPECT_GT(pins, 3 * exact / 8);
}

}  // namespace
