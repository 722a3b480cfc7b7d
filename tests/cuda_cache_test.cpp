#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "buzz/buzz_cache.h"
#include "buzz/policy_list.h"
#include "call.h"
#include "cuda_twin.h"
#include "oracle_config.h"
#include "sanitizers.h"

namespace {

using emulated::Floats;
using oracle::Random;

Floats draw(Random& random, int size) {
  Floats x(static_cast<std::size_t>(size));
  for (float& f : x) f = random.real() * 2;
  return x;
}

/// A policy's options, drawn.
void set(buzz::Protect& protect, Random& random) {
  protect.sink = random.in(0, 4);
  protect.window = random.in(1, 9);
}
void set_select(buzz::Segments::Options& o, Random& random) {
  o.threshold = random.in(2, 30);
  o.hive = random.of({buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together});
  o.passes = random.one_in(4) ? buzz::Passes::single : buzz::Passes::until_bounded;
  o.stride = random.in(2, 5);
  o.keep = random.in(1, 3);
}
void set_select(buzz::TopK::Options& o, Random& random) {
  o.heavy = random.in(2, 12);
  o.threshold = o.heavy + random.in(0, 6);
}
void set_select(buzz::KeepNone::Options& o, Random& random) { o.threshold = random.in(0, 5); }
void set_score(buzz::NoScoreOptions&, Random&) {}
void set_score(buzz::AttentionSumOptions& o, Random& random) {
  o.attention = random.of({buzz::AttentionKind::accumulated, buzz::AttentionKind::mean, buzz::AttentionKind::latest,
                           buzz::AttentionKind::newest, buzz::AttentionKind::largest, buzz::AttentionKind::decayed});
}
void set_score(buzz::DiversityOptions& o, Random& random) {
  if (o.mean_over == buzz::MeanOver::all && o.unlike == buzz::Unlike::cosine)
    o.unlike = random.of({buzz::Unlike::cosine, buzz::Unlike::direction, buzz::Unlike::distance});
}

/// Makes a policy of options of its own type, drawn.
using Draw = std::function<buzz::Policy(Random&)>;
template <class Options>
Draw of(buzz::Policy (*make)(const Options&)) {
  return [make](Random& random) {
    Options o;
    set(o, random);
    set_select(o, random);
    set_score(o, random);
    if constexpr (std::is_base_of<buzz::FadingOptions, Options>::value) o.fade = random.of({0.f, 0.06f, 1.f});
    return make(o);
  };
}

std::string said(Call f) {
  try {
    f();
  } catch (const buzz::InvalidArgument& e) {
    return e.what();
  }
  return "nothing";
}

struct Ran {
  int evictions = 0;
};

/// The emulated device against the host's cache, one a sequence, over many calls and evictions: the same positions,
/// row for row, the same scores and outputs to float arithmetic.
template <class T>
Ran expect_hosts_cache(std::uint64_t seed, double tolerance, const Draw& draw_policy, bool modified) {
  Random random(seed);
  buzz::Shape shape;
  shape.kv_heads = random.in(1, 3);
  shape.query_heads = shape.kv_heads * random.in(1, sizeof(T) == 2 ? 16 : 4);
  shape.head_dim = random.of({16, 64, 80});
  shape.max_chunk = random.of({1, 4, 20});
  if (modified && random.one_in(2)) shape.value_dim = random.of({8, 48, 80, 144});
  const buzz::Policy policy = draw_policy(random);
  buzz::Rope rope;
  if (random.one_in(2)) {
    rope.base = 10000;
    rope.pairs = random.of({buzz::Pairs::interleaved, buzz::Pairs::halves});
    if (modified && random.one_in(2)) {
      rope.dims = random.of({2, 8, 14});
      rope.first = shape.head_dim - rope.dims;
    }
    if (policy.moves_are_few(shape.max_chunk) && random.one_in(2)) {
      rope.positions = buzz::Positions::compact;
      rope.keys = buzz::KeyStorage::rotated;
    }
  }
  buzz::cuda::Batch batch;
  batch.sequences = random.in(1, 3);
  batch.splits = random.of({0, 1, 3});
  buzz::AttentionOptions attention;
  if (modified) {
    batch.kept_logits = random.in(0, std::min(shape.max_chunk, 16));
    attention = emulated::draw_modifiers(random, shape.query_heads);
  }
  emulated::Twin<T> twin(shape, batch, policy, rope, attention);
  std::vector<buzz::BuzzCache<T>> hosts;
  for (int s = 0; s < batch.sequences; ++s) hosts.emplace_back(shape, policy, rope, attention);
  EXPECT_EQ(twin.cache.capacity(), hosts[0].capacity());

  Ran ran;
  for (int step = 0; step < 40; ++step) {
    buzz::cuda::Call call;
    call.tokens = random.one_in(2) ? 1 : random.in(1, shape.max_chunk);
    call.first = random.in(0, batch.sequences - 1);
    call.count = random.in(1, batch.sequences - call.first);
    const int dim = shape.head_dim, value_dim = shape.value_size(), all = call.count * call.tokens;
    const Floats q = draw(random, all * dim * shape.query_heads), k = draw(random, all * dim * shape.kv_heads),
                 v = draw(random, all * value_dim * shape.kv_heads);
    const Floats out = twin.attend(q, k, v, call);
    for (int s = 0; s < call.count; ++s) {
      auto& host = hosts[static_cast<std::size_t>(call.first + s)];
      const auto its = [&](const Floats& x, int row) {
        const auto begin = x.begin() + s * call.tokens * row;
        return emulated::Twin<T>::typed(Floats(begin, begin + call.tokens * row));
      };
      const auto tq = its(q, shape.query_heads * dim), tk = its(k, shape.kv_heads * dim),
                 tv = its(v, shape.kv_heads * value_dim);
      Floats expected(static_cast<std::size_t>(call.tokens * shape.query_heads * value_dim));
      const int before = host.rows() + call.tokens;
      host.attend(buzz::view(tq, call.tokens, shape.query_heads, shape.head_dim),
                  buzz::view(tk, call.tokens, shape.kv_heads, shape.head_dim),
                  buzz::view(tv, call.tokens, shape.kv_heads, value_dim),
                  buzz::view(expected, call.tokens, shape.query_heads, value_dim));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const float got = out[static_cast<std::size_t>(s) * expected.size() + i];
        EXPECT_NEAR(static_cast<double>(got), static_cast<double>(expected[i]), tolerance);
        if (testing::Test::HasFailure()) return ran;
      }
      EXPECT_EQ(twin.cache.rows(call.first + s), host.rows());
      EXPECT_EQ(twin.cache.lengths(call.first + s).regions(policy.protect), host.regions());
      EXPECT_EQ(twin.cache.lengths(call.first + s).next, host.next_position());
      ran.evictions += host.rows() < before;
      for (int h = 0; h < shape.kv_heads; ++h)
        for (int r = 0; r < host.rows(); ++r) {
          EXPECT_EQ(twin.position(call.first + s, h, r), host.positions(h)[r]) << "row " << r << ", call " << step;
          if (policy.needs().attention) {
            const double score = static_cast<double>(host.scores(h)[r]);
            EXPECT_NEAR(static_cast<double>(twin.score(call.first + s, h, r)), score, 2e-5 * (1 + score));
          }
          for (int d = 0; d < dim; ++d)
            EXPECT_NEAR(static_cast<double>(static_cast<float>(twin.cache.keys(call.first + s).row(0, h, r)[d])),
                        static_cast<double>(static_cast<float>(host.keys().row(h, r)[d])), tolerance);
          for (int d = 0; d < value_dim; ++d)
            EXPECT_EQ(static_cast<float>(twin.cache.values(call.first + s).row(0, h, r)[d]),
                      static_cast<float>(host.values().row(h, r)[d]));
          if (testing::Test::HasFailure()) return ran;
        }
    }
  }
  return ran;
}

template <class T = float>
void expect_hosts_caches(int runs, const Draw& policy, bool modified = false, double tolerance = 1e-5) {
  int evictions = 0;
  runs = static_cast<int>(sanitized::draws(runs));
  for (int seed = 0; seed < runs; ++seed) {
    evictions += expect_hosts_cache<T>(static_cast<std::uint64_t>(seed), tolerance, policy, modified).evictions;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(evictions, 3 * runs);
}

TEST(CudaCache, BeehiveIsTheHosts) { expect_hosts_caches(30, of(buzz::beehive)); }
TEST(CudaCache, HeavyHitterIsTheHosts) { expect_hosts_caches(12, of(buzz::heavy_hitter)); }
TEST(CudaCache, StreamingIsTheHosts) { expect_hosts_caches(8, of(buzz::streaming)); }
TEST(CudaCache, StridedIsTheHosts) { expect_hosts_caches(8, of(buzz::strided)); }
TEST(CudaCache, DiverseBeehiveIsTheHosts) { expect_hosts_caches(12, of(buzz::diverse_beehive)); }
TEST(CudaCache, KeyDiffIsTheHosts) { expect_hosts_caches(8, of(buzz::key_diff)); }
TEST(CudaCache, KeyOutliersAreTheHosts) { expect_hosts_caches(12, of(buzz::key_outliers)); }
TEST(CudaCache, ModifiedLogitsAreTheHosts) {
  expect_hosts_caches(30, of(buzz::beehive), true);
  expect_hosts_caches(12, of(buzz::heavy_hitter), true);
  expect_hosts_caches(8, of(buzz::streaming), true);
}
// By tensor cores: a weight is rounded before it is multiplied by a value of up to 2.
TEST(CudaCache, HalvesAreTheHosts) {
  expect_hosts_caches<Eigen::half>(6, of(buzz::heavy_hitter), false, 2e-3);
  expect_hosts_caches<Eigen::half>(6, of(buzz::beehive), true, 2e-3);
}
TEST(CudaCache, Bfloat16IsTheHosts) { expect_hosts_caches<Eigen::bfloat16>(6, of(buzz::beehive), true, 1.6e-2); }
TEST(CudaCache, TovaIsTheHosts) { expect_hosts_caches(12, of(buzz::tova)); }

using FadedAttentionOptions = buzz::PolicyOptions<buzz::Segments, buzz::AttentionSumOptions, buzz::FadingOptions>;
buzz::Policy faded_attention(const FadedAttentionOptions& o) {
  return buzz::policy(buzz::faded(buzz::attention_sum(o), o), buzz::Segments::Options(o), o, buzz::Sharing::layer);
}
TEST(CudaCache, FadedAttentionOfALayerIsTheHosts) { expect_hosts_caches(12, of(faded_attention)); }

/// One token of every sequence: q, k, v and out where a captured step finds them.
struct Tokens {
  Tokens(const buzz::Shape& shape, int sequences)
      : q(static_cast<std::size_t>(sequences * shape.query_heads * shape.head_dim)),
        k(static_cast<std::size_t>(sequences * shape.kv_heads * shape.head_dim)),
        v(k),
        out(q) {}
  void draw(Random& random) {
    for (Floats* x : {&q, &k, &v})
      for (float& f : *x) f = random.real() * 2;
    std::fill(out.begin(), out.end(), NAN);
  }
  template <class Cache>
  int step(Cache& cache, buzz::cuda::Call call, emulated::Stream stream) {
    const buzz::Shape& s = cache.shape();
    const auto view = [&](auto* data, int heads) { return buzz::cuda::dense(data, call.tokens, heads, s.head_dim); };
    return cache.attend(
        view(static_cast<const float*>(q.data()), s.query_heads), view(static_cast<const float*>(k.data()), s.kv_heads),
        view(static_cast<const float*>(v.data()), s.kv_heads), view(out.data(), s.query_heads), call, stream);
  }
  /// The parts of a step of one token.
  template <class Cache, class Stream>
  int append(Cache& cache, buzz::cuda::Call call, Stream stream) {
    const buzz::Shape& s = cache.shape();
    return cache.append(buzz::cuda::dense<const float>(k.data(), 1, s.kv_heads, s.head_dim),
                        buzz::cuda::dense<const float>(v.data(), 1, s.kv_heads, s.head_dim), call, stream);
  }
  template <class Cache, class Stream>
  int attend(Cache& cache, Stream stream) {
    const buzz::Shape& s = cache.shape();
    return cache.attend(buzz::cuda::dense<const float>(q.data(), 1, s.query_heads, s.head_dim),
                        buzz::cuda::dense(out.data(), 1, s.query_heads, s.head_dim), stream);
  }
  Floats q, k, v, out;
};

TEST(CudaCache, ACapturedStepIsReplayedAcrossEvictions) {
  const buzz::Shape shape{4, 2, 64};
  buzz::BeehiveOptions options;
  options.sink = 2;
  options.window = 6;
  options.threshold = 9;
  options.hive = buzz::HiveRule::heaviest;
  buzz::cuda::Batch batch;
  batch.sequences = 2;
  for (const auto positions : {buzz::Positions::logical, buzz::Positions::compact}) {
    buzz::Rope rope;
    rope.base = 10000;
    rope.positions = positions;
    buzz::AttentionOptions attention;
    if (positions == buzz::Positions::compact) {  // both kinds of kernels
      attention.window = 12;
      attention.soft_cap = 2;
      attention.alibi_slopes = {0.5f, 0.25f, 0, 1};
    }
    using Twin = emulated::Twin<float>;
    Twin eager(shape, batch, buzz::beehive(options), rope, attention);
    Twin graph(shape, batch, buzz::beehive(options), rope, attention);
    Tokens a(shape, 2), b(shape, 2);
    Random same(5), again(5);
    for (int t = 0; t < 3; ++t) {  // the second sequence is longer
      a.draw(same), b.draw(again);
      ASSERT_EQ(a.step(eager.cache, {1, 1, 1}, 1), 0);
      ASSERT_EQ(b.step(graph.cache, {1, 1, 1}, 1), 0);
    }
    std::vector<std::function<void()>> kernels;
    ASSERT_EQ(b.step(graph.cache, {1, 0, 2}, emulated::Stream(&kernels)), 0);
    int evictions = 0;
    for (int t = 0; t < 60; ++t) {
      a.draw(same), b.draw(again);
      const int before = eager.cache.rows(0);
      ASSERT_EQ(a.step(eager.cache, {1, 0, 2}, t), 0);
      if (t > 0) {
        ASSERT_EQ(graph.cache.replayed({1, 0, 2}), 0);
      }
      for (const auto& kernel : kernels) kernel();
      ASSERT_EQ(a.out, b.out) << "token " << t;
      for (int s = 0; s < 2; ++s) {
        ASSERT_EQ(graph.cache.rows(s), eager.cache.rows(s));
        for (int h = 0; h < 2; ++h)
          for (int r = 0; r < eager.cache.rows(s); ++r) {
            ASSERT_EQ(graph.position(s, h, r), eager.position(s, h, r));
            ASSERT_EQ(graph.score(s, h, r), eager.score(s, h, r));
          }
      }
      evictions += eager.cache.rows(0) < before;
    }
    EXPECT_GT(evictions, 5);
  }
}

/// Drafts that are refused: the host's cache takes the same rows back, a sequence more than another.
void expect_rollback_is_the_hosts(const std::string& policy, std::uint64_t seed) {
  Random random(seed);
  buzz::Shape shape{4, 2, 16, 6};
  shape.max_rollback = 5;
  buzz::cuda::Batch batch;
  batch.sequences = 3;
  buzz::Rope rope;
  rope.base = 10000;
  emulated::Twin<float> twin(shape, batch, buzz::policy(policy), rope);
  std::vector<buzz::BuzzCache<float>> hosts;
  for (int s = 0; s < 3; ++s) hosts.emplace_back(shape, buzz::policy(policy), rope);
  int taken = 0, refused = 0;
  for (int step = 0; step < 60; ++step) {
    buzz::cuda::Call call;
    call.tokens = random.in(1, 6);
    call.first = random.in(0, 2);
    call.count = random.in(1, 3 - call.first);
    const int q_size = call.tokens * 4 * 16, k_size = call.tokens * 2 * 16;
    const Floats q = draw(random, call.count * q_size), k = draw(random, call.count * k_size),
                 v = draw(random, call.count * k_size);
    const Floats out = twin.attend(q, k, v, call);
    for (int s = 0; s < call.count; ++s) {
      auto& host = hosts[static_cast<std::size_t>(call.first + s)];
      Floats expected(static_cast<std::size_t>(q_size));
      host.attend(buzz::View<const float>(q.data() + s * q_size, call.tokens, 4, 16),
                  buzz::View<const float>(k.data() + s * k_size, call.tokens, 2, 16),
                  buzz::View<const float>(v.data() + s * k_size, call.tokens, 2, 16),
                  buzz::view(expected, call.tokens, 4, 16));
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(out[static_cast<std::size_t>(s) * expected.size() + i], expected[i], 1e-5);
    }
    const std::vector<int> tokens = {random.in(0, 6), random.in(0, 6), random.in(0, 6)};
    const int first = random.in(0, 2), count = random.in(1, 3 - first);
    bool all = true;
    for (int s = 0; s < 3; ++s) {
      const int n = tokens[static_cast<std::size_t>(s)];
      ASSERT_EQ(twin.cache.can_rollback(s, n), hosts[static_cast<std::size_t>(s)].can_rollback(n)) << n;
      if (s >= first && s < first + count) all = all && twin.cache.can_rollback(s, n);
    }
    const int result = twin.cache.rollback(first, count, tokens.data() + first, step);
    ASSERT_EQ(result == 0, all);
    (all ? taken : refused) += 1;
    for (int s = first; s < first + count && all; ++s)
      hosts[static_cast<std::size_t>(s)].rollback(tokens[static_cast<std::size_t>(s)]);
    for (int s = 0; s < 3; ++s) {
      const auto& host = hosts[static_cast<std::size_t>(s)];
      ASSERT_EQ(twin.cache.rows(s), host.rows());
      ASSERT_EQ(twin.cache.lengths(s).next, host.next_position());
      ASSERT_EQ(twin.cache.lengths(s).regions(host.policy().protect), host.regions());
      for (int h = 0; h < 2; ++h)
        for (int r = 0; r < host.rows(); ++r) ASSERT_EQ(twin.position(s, h, r), host.positions(h)[r]);
    }
  }
  EXPECT_GT(taken, 9);
  EXPECT_GT(refused, 3);
}

TEST(CudaCache, RowsThatAreTakenBackNeverCame) {
  for (const char* policy :
       {"key_outliers:sink=2,window=6,threshold=14,heavy=7", "strided:sink=1,window=7,threshold=12",
        "streaming:sink=3,window=9,threshold=5", "diverse_beehive:sink=1,window=7,threshold=12", "full:capacity=400"})
    for (std::uint64_t seed = 0; seed < sanitized::draws(4); ++seed) {
      expect_rollback_is_the_hosts(policy, seed);
      ASSERT_FALSE(HasFailure()) << policy << ", seed " << seed;
    }
}

/// Between launches of a captured step too.
TEST(CudaCache, ACapturedStepIsReplayedAcrossRollbacks) {
  const buzz::Shape shape{2, 1, 64, 1, 3};
  const buzz::Policy policy = buzz::policy("key_diff:sink=1,heavy=6,threshold=9,window=2");
  emulated::Twin<float> eager(shape, {}, policy), graph(shape, {}, policy);
  Tokens a(shape, 1), b(shape, 1);
  Random same(5), again(5);
  std::vector<std::function<void()>> kernels;
  ASSERT_EQ(b.step(graph.cache, {1, 0, 1}, emulated::Stream(&kernels)), 0);
  for (int t = 0; t < 60; ++t) {
    a.draw(same), b.draw(again);
    ASSERT_EQ(a.step(eager.cache, {1, 0, 1}, t), 0);
    if (t > 0) {
      ASSERT_EQ(graph.cache.replayed({1, 0, 1}), 0);
    }
    for (const auto& kernel : kernels) kernel();
    ASSERT_EQ(a.out, b.out) << "token " << t;
    for (int n = t % 5 == 0 ? 2 : 0; n > 0; --n) {
      ASSERT_EQ(graph.cache.can_rollback(0, n), eager.cache.can_rollback(0, n));
      if (!eager.cache.can_rollback(0, n)) continue;
      ASSERT_EQ(eager.cache.rollback(0, 1, &n, 1), 0);
      ASSERT_EQ(graph.cache.rollback(0, 1, &n, 1), 0);
      break;
    }
    ASSERT_EQ(graph.cache.rows(0), eager.cache.rows(0));
  }
}

TEST(CudaCache, RollbackOfManySequencesAndItsRefusals) {
  const buzz::Shape shape{1, 1, 4, 2, 2};
  buzz::cuda::Batch batch;
  batch.sequences = 600;
  emulated::Twin<float> twin(shape, batch, buzz::policy("full:capacity=4"));
  const Floats rows(600 * 2 * 4, 1);
  twin.attend(rows, rows, rows, {2, 0, 600});
  std::vector<int> tokens;
  for (int s = 0; s < 600; ++s) tokens.push_back(s % 3);
  std::vector<std::function<void()>> kernels;
  emulated::Stream stream(&kernels);
  EXPECT_NE(twin.cache.rollback(0, 601, tokens.data(), stream), 0);
  EXPECT_NE(twin.cache.rollback(-1, 2, tokens.data(), stream), 0);
  EXPECT_NE(twin.cache.rollback(0, 0, tokens.data(), stream), 0);
  for (const int n : {-1, 3}) {
    tokens[599] = n;
    EXPECT_NE(twin.cache.rollback(0, 600, tokens.data(), stream), 0) << n;
  }
  tokens[599] = 2;
  const auto row = buzz::cuda::dense(rows.data(), 1, 1, 4);
  ASSERT_EQ(twin.cache.append(row, row, {1, 0, 1}, 1), 0);
  EXPECT_NE(twin.cache.rollback(1, 1, tokens.data(), stream), 0) << "a step has not ended";
  ASSERT_EQ(twin.cache.evict(1), 0);
  EXPECT_TRUE(kernels.empty());
  tokens[0] = 1;
  ASSERT_EQ(twin.cache.rollback(0, 600, tokens.data(), 1), 0);
  for (int s = 0; s < 600; ++s) ASSERT_EQ(twin.cache.rows(s), s == 0 ? 2 : 2 - s % 3);
  twin.attend(Floats(600 * 4, 1), Floats(600 * 4, 1), Floats(600 * 4, 1), {1, 0, 600});
  for (int s = 1; s < 600; ++s) ASSERT_EQ(twin.position(s, 0, 2 - s % 3), 2 - s % 3) << "the device counts the same";
}

TEST(CudaCache, AStepReplayedPastTheCapacityWritesNoRow) {
  const buzz::Shape shape{2, 1, 64};
  emulated::Twin<float> twin(shape, {}, buzz::policy("full:capacity=3"));
  Tokens tokens(shape, 1);
  Random random(1);
  tokens.draw(random);
  std::vector<std::function<void()>> kernels;
  ASSERT_EQ(tokens.step(twin.cache, {1, 0, 1}, emulated::Stream(&kernels)), 0);
  const char* memory = static_cast<const char*>(twin.memory.data());
  const std::size_t bytes = emulated::Twin<float>::Cache::bytes(shape, {}, twin.cache.policy()).cache;
  for (int i = 0; i < 3; ++i)  // the host, which is not asked, counts one
    for (const auto& kernel : kernels) kernel();
  const std::vector<char> full(memory, memory + bytes);
  const Floats out = tokens.out;
  for (const auto& kernel : kernels) kernel();
  EXPECT_EQ(std::vector<char>(memory, memory + bytes), full);
  EXPECT_EQ(tokens.out, out);
}

TEST(CudaCache, RefusesAndLaunchesNothing) {
  buzz::Shape shape{2, 1, 64};
  shape.max_chunk = 4;
  emulated::Twin<float> twin(shape, {}, buzz::policy("full:capacity=3"));
  Tokens tokens(shape, 8);
  std::vector<std::function<void()>> kernels;
  emulated::Stream stream(&kernels);
  const auto refused = [&](buzz::cuda::Call call) { return tokens.step(twin.cache, call, stream) != 0; };
  EXPECT_TRUE(refused({0, 0, 1}));
  EXPECT_TRUE(refused({5, 0, 1}));
  EXPECT_TRUE(refused({1, 0, 2}));
  EXPECT_TRUE(refused({1, 1, 1}));
  EXPECT_TRUE(refused({1, -1, 1}));
  EXPECT_TRUE(refused({1, 0, 0}));
  EXPECT_TRUE(refused({4, 0, 1})) << "more rows than capacity";
  EXPECT_NE(twin.cache.evict(stream), 0) << "no step has begun";
  const auto row = buzz::cuda::dense(static_cast<const float*>(tokens.k.data()), 1, 1, 64);
  EXPECT_EQ(twin.cache.append(row, row, {1, 0, 1}, 1), 0);
  EXPECT_TRUE(refused({1, 0, 1})) << "a step has not ended";
  EXPECT_NE(twin.cache.replayed({1, 0, 1}), 0);
  EXPECT_TRUE(kernels.empty());
  EXPECT_EQ(twin.cache.evict(1), 0);
  EXPECT_EQ(twin.cache.rows(0), 1);
}

TEST(CudaCache, RefusesTensorsThatAreNoViewsAndLaunchesNothing) {
  const buzz::Shape shape{2, 1, 64, 2};
  emulated::Twin<float> twin(shape, {}, buzz::heavy_hitter());
  std::vector<float> read(2 * 2 * 64 + 1, 0.5f), write(2 * 2 * 64 + 1);
  const auto q = buzz::cuda::dense(static_cast<const float*>(read.data()), 2, 2, 64);
  const auto k = buzz::cuda::dense(static_cast<const float*>(read.data()), 2, 1, 64);
  const auto out = buzz::cuda::dense(write.data(), 2, 2, 64);
  using To = buzz::cuda::Tensor<float>;
  using From = buzz::cuda::Tensor<const float>;
  const From no_data{nullptr, q.sequence, q.outer, q.inner}, back{q.data, q.sequence, -64, q.inner};
  const From off{reinterpret_cast<const float*>(reinterpret_cast<const char*>(q.data) + 2), 256, 128, 64};
  const To none{nullptr, 256, 128, 64}, backwards{out.data, 256, 128, -64}, planes{out.data, 256, 64, 64},
      rows{out.data, 256, 128, 63}, same{out.data, 256, 0, 64};
  std::vector<std::function<void()>> kernels;
  emulated::Stream stream(&kernels);
  const buzz::cuda::Call call{2, 0, 1};
  for (const From& bad : {no_data, back, off}) {
    EXPECT_NE(twin.cache.append(bad, k, call, stream), 0);
    EXPECT_NE(twin.cache.append(k, bad, call, stream), 0);
    EXPECT_NE(twin.cache.attend(bad, k, k, out, call, stream), 0);
  }
  for (const To& bad : {none, backwards, planes, rows, same})
    EXPECT_NE(twin.cache.attend(q, k, k, bad, call, stream), 0);
  EXPECT_TRUE(kernels.empty());
  EXPECT_EQ(twin.cache.rows(0), 0);

  ASSERT_EQ(twin.cache.append(k, k, call, 1), 0);
  const float lse[4] = {};
  for (const From& bad : {no_data, back, off}) {
    EXPECT_NE(twin.cache.attend(bad, out, stream), 0);
    EXPECT_NE(twin.cache.observe(bad, lse, stream), 0);
  }
  EXPECT_NE(twin.cache.observe(q, nullptr, stream), 0);
  EXPECT_NE(twin.cache.observe(no_data, stream), 0);
  for (const To& bad : {none, backwards, planes, rows, same}) EXPECT_NE(twin.cache.attend(q, bad, stream), 0);
  EXPECT_TRUE(kernels.empty());
  const From broadcast{q.data, 0, 0, 64};  // one token's queries for both: to read is allowed
  EXPECT_EQ(twin.cache.attend(broadcast, To{out.data, 0, 64, 128}, 1), 0);
  EXPECT_EQ(twin.cache.evict(1), 0);
}

TEST(CudaCache, ConstructionNamesWhatItCannotDo) {
  using Cache = emulated::Twin<float>::Cache;
  const auto field = [](const buzz::Shape& shape, const buzz::cuda::Batch& batch, const buzz::Rope& rope) {
    try {
      Cache::bytes(shape, batch, buzz::heavy_hitter(), rope);
    } catch (const buzz::InvalidArgument& e) {
      return e.field();
    }
    return std::string();
  };
  buzz::cuda::Batch batch;
  EXPECT_EQ(field({2, 1, 64}, batch, {}), "");
  EXPECT_EQ(field({2, 1, 66}, batch, {}), "head_dim");
  EXPECT_EQ(field({2, 1, 260}, batch, {}), "head_dim");
  EXPECT_EQ(field({3, 2, 64}, batch, {}), "query_heads");
  EXPECT_EQ(field({2, 1, 64, 1, 1}, batch, {}), "max_rollback");
  buzz::Shape shape{2, 1, 64};
  for (int value_dim : {32, 256, 66, 260, 2}) {
    shape.value_dim = value_dim;
    EXPECT_EQ(field(shape, batch, {}), value_dim == 32 || value_dim == 256 ? "" : "value_dim");
  }
  shape.value_dim = 64;
  shape.values_in_keys = true;
  EXPECT_EQ(field(shape, batch, {}), "values_in_keys");
  batch.kept_logits = 2;
  EXPECT_EQ(field({2, 1, 64}, batch, {}), "kept_logits");
  batch = {};
  batch.sequences = 0;
  EXPECT_EQ(field({2, 1, 64}, batch, {}), "sequences");
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  EXPECT_EQ(field({2, 1, 64}, {}, rope), "rope.positions");
}

TEST(CudaCache, RefusesTheScoresThatTheDeviceDoesNotHaveByName) {
  const auto made = [](const buzz::Policy& policy) {
    return said([&] { emulated::Twin<float>::Cache::bytes({2, 1, 64}, {}, policy); });
  };
  std::string refused;
  for (const buzz::PolicyInfo& info : buzz::policies()) {
    const std::string what = made(info.make());
    if (what == "nothing") continue;
    refused += info.name + std::string(" ");
    EXPECT_EQ(what.find(std::string("buzz: policy = ") + info.name + ": "), 0u) << what;
  }
  EXPECT_EQ(
      refused,
      "key_value_beehive leverage lag_kv calibrated expected_attention tri_attention cap_kv snap_kv user_scores ");
  const std::string allowed =
      ", allowed: attention sum or key diversity, faded or not, or no score: the device has no other";
  const auto expect = [&](buzz::ScoreSpec score, const std::string& words) {
    EXPECT_EQ(made(buzz::policy(std::move(score), buzz::TopK::Options())), "buzz: policy = " + words + allowed);
  };
  EXPECT_EQ(made(buzz::snap_kv()), "buzz: policy = snap_kv: recent attention" + allowed);
  expect(buzz::value_norm(), "value norm");
  expect(buzz::user_score(), "user scores");
  expect(buzz::faded(buzz::leverage_score()), "faded leverage");
  expect(buzz::lag_score(), "lag of keys and values");
  expect(buzz::calibrated_score({}), "calibrated weights");
  expect(buzz::expected_score(), "expected attention");
  expect(buzz::tri_score(), "attention over distances to come");
  expect(buzz::cap_score(), "capacity of values");
  expect(buzz::sum(buzz::attention_sum(), buzz::key_diversity()), "sum");
  expect(buzz::faded(buzz::faded(buzz::key_diversity())), "faded faded key diversity");
  expect(buzz::faded(buzz::no_score()), "faded no score");
  struct Mine final : buzz::Score {
    buzz::Needs needs() const override { return {}; }
    void importance(const buzz::Candidates&, double*) override {}
  };
  expect(buzz::own_score(std::make_unique<Mine>()), "a score of one's own");
}

TEST(CudaCache, RefusesSharingsAndReductionsThatTheDeviceDoesNotHaveByName) {
  const auto made = [](const std::string& text) {
    return said([&] { emulated::Twin<float>::Cache::bytes({2, 1, 64}, {}, buzz::policy(text)); });
  };
  EXPECT_EQ(made("tova:sharing=model"),
            "buzz: sharing = model, allowed: head or layer: the device evicts each layer by itself");
  EXPECT_EQ(made("tova:reduce=mean"), "buzz: reduce = mean, maximum or top, allowed: sum: the device has no other");
  EXPECT_EQ(made("tova:sharing=head,reduce=mean"), "nothing") << "nothing is reduced";
  EXPECT_EQ(made("heavy_hitter:sharing=layer"), "nothing");
}

TEST(CudaCache, CompactPositionsAreRefusedWhereARowMovesOften) {
  using Cache = emulated::Twin<float>::Cache;
  buzz::BeehiveOptions options;
  options.hive = buzz::HiveRule::together;
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  EXPECT_NO_THROW(Cache::bytes({2, 1, 64}, {}, buzz::beehive(options), rope));
  options.stride = 0;
  options.chunk = 100;
  options.keep = 99;
  try {
    Cache::bytes({2, 1, 64}, {}, buzz::beehive(options), rope);
    ADD_FAILURE() << "keys would be rotated anew without end";
  } catch (const buzz::InvalidArgument& e) {
    EXPECT_EQ(e.field(), "rope.positions");
  }
}

TEST(CudaCache, FullHoldsItsCapacityWhateverSinkAndWindowAre) {
  buzz::FullOptions options;
  options.capacity = 20;
  options.sink = 3;
  options.window = 5;
  emulated::Twin<float> twin({2, 1, 64}, {}, buzz::full(options));
  EXPECT_EQ(twin.cache.capacity(), 20);
}

TEST(CudaCache, ResetMakesARerunBitEqual) {
  const buzz::Shape shape{4, 2, 64};
  buzz::BeehiveOptions options;
  options.window = 4;
  options.threshold = 6;
  buzz::cuda::Batch batch;
  batch.sequences = 2;
  emulated::Twin<float> twin(shape, batch, buzz::beehive(options));
  Floats outs[2];
  for (Floats& out : outs) {
    Random random(3);
    Tokens tokens(shape, 2);
    for (int t = 0; t < 40; ++t) {
      tokens.draw(random);
      ASSERT_EQ(tokens.step(twin.cache, {1, 1, 1}, t), 0);
      out.insert(out.end(), tokens.out.begin(), tokens.out.begin() + 4 * 64);
    }
    ASSERT_EQ(twin.cache.reset(1, 1, 1), 0);
    EXPECT_EQ(twin.cache.rows(1), 0);
  }
  EXPECT_EQ(outs[0], outs[1]);
}

TEST(CudaCache, RefusesTheAttentionOptionsThatTheHostRefusesInTheSameWords) {
  const buzz::Shape shape{2, 1, 64};
  const auto refused_as_host = [&](CallWith<buzz::cuda::AttentionOptions&> set) {
    buzz::cuda::AttentionOptions attention;
    set(attention);
    const std::string host = said([&] { buzz::BuzzCache<float>(shape, buzz::beehive(), {}, attention); });
    EXPECT_EQ(said([&] { emulated::Twin<float>(shape, {}, buzz::beehive(), {}, attention); }), host);
    return host != "nothing";
  };
  const double nan = static_cast<double>(NAN), infinity = static_cast<double>(INFINITY);
  for (const double x : {-1.0, nan, infinity, 1e39}) EXPECT_TRUE(refused_as_host([&](auto& a) { a.scale = x; })) << x;
  for (const double x : {1.0, 0.5, -512.0, nan, infinity, 1e39})
    EXPECT_TRUE(refused_as_host([&](auto& a) { a.log_base = x; })) << x;
  for (const double x : {-1.0, 1e-4, nan, infinity})
    EXPECT_TRUE(refused_as_host([&](auto& a) { a.soft_cap = x; })) << x;
  EXPECT_TRUE(refused_as_host([](auto& a) { a.window = -1; }));
  EXPECT_TRUE(refused_as_host([](auto& a) { a.sinks = {1}; }));
  EXPECT_TRUE(refused_as_host([](auto& a) { a.sinks = {1, NAN}; }));
  EXPECT_TRUE(refused_as_host([](auto& a) { a.alibi_slopes = {1, 1, 1}; }));
  EXPECT_TRUE(refused_as_host([](auto& a) { a.alibi_slopes = {1, -1}; }));
  EXPECT_FALSE(refused_as_host([](auto& a) {
    a.scale = 0.25, a.log_base = 512, a.soft_cap = 50, a.window = 3;
    a.sinks = {-1, 1}, a.alibi_slopes = {0, 1};
  }));
}

TEST(CudaCache, ResetEndsAStepOfItsSequences) {
  const buzz::Shape shape{2, 1, 64};
  buzz::cuda::Batch batch;
  batch.sequences = 3;
  emulated::Twin<float> twin(shape, batch, buzz::beehive()), fresh(shape, batch, buzz::beehive());
  Random random(6);
  Tokens tokens(shape, 3), again(shape, 3);
  tokens.draw(random);
  again.q = tokens.q, again.k = tokens.k, again.v = tokens.v;
  ASSERT_EQ(tokens.append(twin.cache, {1, 0, 2}, 1), 0);
  ASSERT_EQ(twin.cache.reset(1), 0);
  EXPECT_EQ(twin.cache.rows(0), 0);
  EXPECT_NE(twin.cache.evict(1), 0) << "no step has begun";
  ASSERT_EQ(tokens.step(twin.cache, {1, 0, 3}, 1), 0);
  ASSERT_EQ(again.step(fresh.cache, {1, 0, 3}, 1), 0);
  EXPECT_EQ(tokens.out, again.out);

  ASSERT_EQ(tokens.append(twin.cache, {1, 1, 2}, 1), 0);
  EXPECT_NE(twin.cache.reset(0, 2, 1), 0) << "half of the step's sequences";
  EXPECT_EQ(twin.cache.rows(0), 1);
  EXPECT_EQ(twin.cache.reset(0, 1, 1), 0) << "none of them";
  EXPECT_EQ(twin.cache.rows(0), 0);
  EXPECT_NE(tokens.append(twin.cache, {1, 0, 1}, 1), 0) << "the step goes on";
  EXPECT_EQ(twin.cache.reset(1, 2, 1), 0) << "all of them";
  EXPECT_EQ(tokens.append(twin.cache, {1, 0, 3}, 1), 0);
}

constexpr int refused = 2;

/// Refuses one launch, by its result or by an exception: `left` counts down to it.
emulated::Stream failing(int* left, bool throws) {
  return emulated::Stream([=](buzz::cuda::Grid&) {
    if (--*left != 0) return 0;
    if (throws) throw refused;
    return refused;
  });
}

/// A step whose launch number n fails is asked for again from the part that failed; then all is as if it had not.
void expect_steps_to_survive(const buzz::Policy& policy, int kept_logits) {
  const buzz::Shape shape{4, 2, 64};
  buzz::cuda::Batch batch;
  batch.sequences = 2;
  batch.kept_logits = kept_logits;
  int fails = 0;
  for (const bool throws : {false, true})
    for (int n = 1; n <= 6; ++n) {
      emulated::Twin<float> twin(shape, batch, policy), good(shape, batch, policy);
      Tokens tokens(shape, 2), same(shape, 2);
      Random random(9), again(9);
      int evictions = 0;
      for (int t = 0; t < 20; ++t) {
        tokens.draw(random), same.draw(again);
        int left = n;
        const auto insist = [&](auto&& part) {
          for (int once = 0; once < 2; ++once) {
            int result = refused;
            try {
              result = part();
            } catch (int thrown) {
              result = thrown;
            }
            if (result != refused) return result;
            ++fails;
          }
          return refused;
        };
        const emulated::Stream stream = failing(&left, throws);
        ASSERT_EQ(insist([&] { return tokens.append(twin.cache, {1, 0, 2}, stream); }), 0) << "launch " << n;
        ASSERT_EQ(insist([&] { return tokens.attend(twin.cache, stream); }), 0) << "launch " << n;
        const int before = twin.cache.rows(1);
        ASSERT_EQ(insist([&] { return twin.cache.evict(stream); }), 0) << "launch " << n;
        evictions += twin.cache.rows(1) < before;
        ASSERT_EQ(same.append(good.cache, {1, 0, 2}, 1), 0);
        ASSERT_EQ(same.attend(good.cache, 1), 0);
        ASSERT_EQ(good.cache.evict(1), 0);
        ASSERT_EQ(tokens.out, same.out) << "launch " << n << ", token " << t;
        for (int s = 0; s < 2; ++s) {
          ASSERT_EQ(twin.cache.rows(s), good.cache.rows(s)) << "launch " << n;
          for (int h = 0; h < 2; ++h)
            for (int r = 0; r < good.cache.rows(s); ++r) {
              ASSERT_EQ(twin.position(s, h, r), good.position(s, h, r)) << "launch " << n;
              ASSERT_EQ(twin.score(s, h, r), good.score(s, h, r)) << "launch " << n;
            }
        }
      }
      EXPECT_GT(evictions, 2);
    }
  EXPECT_GE(fails, 2 * 5 * 20);  // of the launches of a step
}

TEST(CudaCache, AStepIsAsItWasWhereALaunchFails) {
  expect_steps_to_survive(buzz::policy("beehive:sink=1,window=3,threshold=4"), 1);
  expect_steps_to_survive(buzz::policy("beehive:sink=1,window=3,threshold=4"), 0);
  expect_steps_to_survive(buzz::policy("diverse_beehive:sink=1,window=3,threshold=4"), 1);
}

TEST(CudaCache, AStepHasEndedWhereOnlyTheMovedKeysAreNotRotated) {
  const buzz::Shape shape{2, 1, 64};
  buzz::BeehiveOptions options;
  options.window = 3;
  options.threshold = 4;
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  emulated::Twin<float> twin(shape, {}, buzz::beehive(options), rope);
  Tokens tokens(shape, 1);
  Random random(4);
  for (int t = 0; t < 3; ++t) {
    tokens.draw(random);
    ASSERT_EQ(tokens.append(twin.cache, {1, 0, 1}, 1), 0);
    int left = 3;  // Select, Compact, Rerotate
    EXPECT_EQ(twin.cache.evict(failing(&left, false)), refused);
    EXPECT_NE(twin.cache.evict(1), 0) << "no step has begun";
  }
  ASSERT_EQ(twin.cache.reset(1), 0);
  EXPECT_EQ(twin.cache.rows(0), 0);
}

TEST(CudaCache, ProbabilitiesGoToTheScoresOnceAStep) {
  const buzz::Shape shape{2, 1, 64};
  emulated::Twin<float> twin(shape, {}, buzz::beehive()), full(shape, {}, buzz::full());
  buzz::BuzzCache<float> host(shape, buzz::beehive());
  Random random(8);
  Tokens tokens(shape, 1);
  for (int t = 0; t < 3; ++t) {
    tokens.draw(random);
    Floats expected(tokens.out.size());
    host.append(buzz::view(tokens.k, 1, 1, 64), buzz::view(tokens.v, 1, 1, 64));
    for (int twice = 0; twice < 2; ++twice) host.attend(buzz::view(tokens.q, 1, 2, 64), buzz::view(expected, 1, 2, 64));
    host.observe();
    ASSERT_EQ(tokens.append(twin.cache, {1, 0, 1}, 1), 0);
    const auto q = buzz::cuda::dense<const float>(tokens.q.data(), 1, 2, 64);
    const Floats p(static_cast<std::size_t>(2 * (t + 1)), 0.5f), lse(2);
    const auto given = buzz::cuda::dense(p.data(), 2, 1, t + 1);
    if (t < 2) {
      ASSERT_EQ(tokens.attend(twin.cache, 1), 0);
    } else {
      ASSERT_EQ(twin.cache.observe(given, 1), 0);
    }
    std::vector<std::function<void()>> kernels;
    emulated::Stream stream(&kernels);
    EXPECT_NE(tokens.attend(twin.cache, stream), 0);
    EXPECT_NE(twin.cache.observe(given, stream), 0);
    EXPECT_NE(twin.cache.observe(q, lse.data(), stream), 0);
    EXPECT_TRUE(kernels.empty());
    for (int r = 0; r <= t && t < 2; ++r) EXPECT_NEAR(twin.score(0, 0, r), host.scores(0)[r], 1e-5);
    ASSERT_EQ(twin.cache.evict(1), 0);
    // Where there are no scores, attention may be asked for again.
    ASSERT_EQ(tokens.append(full.cache, {1, 0, 1}, 1), 0);
    ASSERT_EQ(tokens.attend(full.cache, 1), 0);
    ASSERT_EQ(tokens.attend(full.cache, 1), 0);
    EXPECT_NE(full.cache.observe(given, stream), 0) << "its score does not use them";
    EXPECT_NE(full.cache.observe(q, lse.data(), stream), 0);
    EXPECT_TRUE(kernels.empty());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(tokens.out[i], expected[i], 1e-5);
    ASSERT_EQ(full.cache.evict(1), 0);
  }
}

TEST(CudaCache, IsMovedAndNotCopied) {
  using Twin = emulated::Twin<float>;
  EXPECT_FALSE(std::is_copy_constructible<Twin::Cache>::value);
  EXPECT_FALSE(std::is_copy_assignable<Twin::Cache>::value);
  const buzz::Shape shape{2, 1, 64};
  Twin one(shape, {}, buzz::beehive()), other(shape, {}, buzz::beehive());
  Tokens a(shape, 1), b(shape, 1);
  Random random(2), again(2);
  for (int t = 0; t < 5; ++t) {
    a.draw(random), b.draw(again);
    ASSERT_EQ(a.step(one.cache, {1, 0, 1}, 1), 0);
    Twin::Cache moved(std::move(one.cache));
    one.cache = std::move(moved);
    ASSERT_EQ(b.step(other.cache, {1, 0, 1}, 1), 0);
    EXPECT_EQ(a.out, b.out);
  }
}

/// By their definition: of all numbers of parts, the share of a whole number of waves that their blocks fill.
TEST(CudaBatch, SplitsAreTheFewestThatKeepTheCardBusy) {
  Random random(1);
  for (int run = 0; run < 300; ++run) {
    const int blocks = random.in(1, 700), at_once = random.in(1, 600), capacity = random.in(1, 5000);
    const int most = (capacity + 63) / 64;
    std::vector<double> busy = {0};
    for (int n = 1; n <= most; ++n) {
      int left = n * blocks, waves = 0;
      for (; left > 0; left -= at_once) ++waves;
      busy.push_back(static_cast<double>(n * blocks) / (waves * at_once));
    }
    const double enough = 0.85 * *std::max_element(busy.begin(), busy.end());
    const int splits = buzz::cuda::splits_for(blocks, at_once, capacity);
    ASSERT_GE(splits, 1);
    ASSERT_LE(splits, most);
    ASSERT_GE(busy[static_cast<std::size_t>(splits)], enough);
    for (int n = 1; n < splits; ++n) ASSERT_LT(busy[static_cast<std::size_t>(n)], enough) << blocks << " " << at_once;
  }
  EXPECT_EQ(buzz::cuda::splits_for(1, 1056, 2147483647), 871);
  EXPECT_EQ(buzz::cuda::splits_for(1LL << 32, 1, 2147483647), 1);
}

TEST(CudaBatch, AsksTheDeviceWhatItHoldsAtOnce) {
  const auto bytes = [](int at_once, int splits, int sequences = 1, int query_heads = 6) {
    buzz::cuda::Batch batch;
    batch.splits = splits;
    batch.sequences = sequences;
    const buzz::Policy policy = buzz::policy("full:capacity=6400");
    const int usual = std::exchange(emulated::Launcher::at_once, at_once);
    const std::size_t result = emulated::Twin<float>::Cache::bytes({query_heads, 2, 64}, batch, policy).workspace;
    emulated::Launcher::at_once = usual;
    return result;
  };
  EXPECT_EQ(bytes(8, 0), bytes(8, 4));
  EXPECT_EQ(bytes(100, 0), bytes(100, 43));
  EXPECT_EQ(bytes(8, 0, 2), bytes(8, 2, 2)) << "twice the blocks";
  EXPECT_EQ(bytes(8, 0, 1, 24), bytes(8, 2, 1, 24)) << "12 query heads take two blocks";
  EXPECT_EQ(bytes(0, 0), bytes(512, 0)) << "as usual where there is no device";
}

TEST(CudaBatch, SplitsRowsForAllOfTheCard) {
  const auto bytes = [](int kv_heads, int capacity, int splits) {
    buzz::cuda::Batch batch;
    batch.splits = splits;
    buzz::FullOptions options;
    options.capacity = capacity;
    return emulated::Twin<float>::Cache::bytes({kv_heads, kv_heads, 64}, batch, buzz::full(options)).workspace;
  };
  EXPECT_EQ(bytes(1, 64, 0), bytes(1, 64, 1));
  EXPECT_EQ(bytes(1, 65, 0), bytes(1, 65, 2));
  EXPECT_EQ(bytes(256, 640, 0), bytes(256, 640, 2));
  EXPECT_EQ(bytes(512, 640, 0), bytes(512, 640, 1));
}

}  // namespace
