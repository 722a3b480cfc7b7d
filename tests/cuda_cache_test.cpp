#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "buzz/buzz_cache.h"
#include "cuda_twin.h"
#include "oracle_config.h"

namespace {

using emulated::Floats;
using oracle::Random;

Floats draw(Random& random, int size) {
  Floats x(static_cast<std::size_t>(size));
  for (float& f : x) f = random.real() * 2;
  return x;
}

/// The same sizes for the host's policy and the device's.
void set(buzz::Protect& protect, Random& random) {
  protect.sink = random.in(0, 4);
  protect.window = random.in(1, 9);
}
void set(buzz::Segments::Options& o, Random& random) {
  o.threshold = random.in(2, 30);
  o.hive = random.of({buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together});
  o.passes = random.one_in(4) ? buzz::Passes::single : buzz::Passes::until_bounded;
  o.stride = random.in(2, 5);
  o.keep = random.in(1, 3);
}
void set(buzz::TopK::Options& o, Random& random) {
  o.heavy = random.in(2, 12);
  o.threshold = o.heavy + random.in(0, 6);
}
void set(buzz::Nothing::Options& o, Random& random) { o.threshold = random.in(0, 5); }
void set(buzz::MassOptions& o, Random& random) {
  o.mass = random.of({buzz::MassKind::accumulated, buzz::MassKind::mean, buzz::MassKind::latest, buzz::MassKind::newest,
                      buzz::MassKind::largest, buzz::MassKind::decayed});
}
void set(buzz::DiversityOptions& o, Random& random) {
  if (o.mean_over == buzz::MeanOver::all && o.unlike == buzz::Unlike::cosine)
    o.unlike = random.of({buzz::Unlike::cosine, buzz::Unlike::direction, buzz::Unlike::distance});
}

template <class Score>
constexpr bool is_mass = std::is_base_of<buzz::MassOptions, Score>::value;

struct Ran {
  int evictions = 0, captures = 0;
};

/// The emulated device against the host's cache, one a sequence, over many calls and evictions: the same positions,
/// row for row, the same scores and outputs to float arithmetic.
template <class T, class HostPolicy, class DevicePolicy>
Ran expect_hosts_cache(std::uint64_t seed, double tolerance) {
  Random random(seed);
  buzz::Shape shape;
  shape.kv_heads = random.in(1, 3);
  shape.query_heads = shape.kv_heads * random.in(1, 4);
  shape.head_dim = random.of({16, 64, 80});
  shape.max_chunk = random.of({1, 4, 20});
  typename DevicePolicy::Options options;
  set(static_cast<buzz::Protect&>(options), random);
  set(static_cast<typename DevicePolicy::Select::Options&>(options), random);
  typename HostPolicy::Options host_options;
  static_cast<buzz::Protect&>(host_options) = options;
  static_cast<typename DevicePolicy::Select::Options&>(host_options) = options;
  if constexpr (DevicePolicy::Score::needs_mass) {
    set(static_cast<buzz::MassOptions&>(options), random);
    static_cast<buzz::MassOptions&>(host_options) = options;
  }
  if constexpr (DevicePolicy::Score::needs_rows) {
    set(static_cast<buzz::DiversityOptions&>(options), random);
    static_cast<buzz::DiversityOptions&>(host_options) = options;
  }
  buzz::Rope rope;
  if (random.one_in(2)) {
    rope.base = 10000;
    rope.pairs = random.of({buzz::Pairs::interleaved, buzz::Pairs::halves});
    if (HostPolicy::moves_are_few && random.one_in(2)) {
      rope.positions = buzz::Positions::compact;
      rope.keys = buzz::KeyStorage::rotated;
    }
  }
  buzz::cuda::Batch batch;
  batch.sequences = random.in(1, 3);
  batch.splits = random.of({0, 1, 3});
  emulated::Twin<T, DevicePolicy> twin(shape, batch, options, rope);
  std::vector<buzz::BuzzCache<T, HostPolicy>> hosts;
  for (int s = 0; s < batch.sequences; ++s) hosts.emplace_back(shape, host_options, rope);
  EXPECT_EQ(twin.cache.capacity(), hosts[0].capacity());

  Ran ran;
  for (int step = 0; step < 40; ++step) {
    buzz::cuda::Call call;
    call.tokens = random.one_in(2) ? 1 : random.in(1, shape.max_chunk);
    call.first = random.in(0, batch.sequences - 1);
    call.count = random.in(1, batch.sequences - call.first);
    const int size = call.count * call.tokens * shape.head_dim;
    const Floats q = draw(random, size * shape.query_heads), k = draw(random, size * shape.kv_heads),
                 v = draw(random, size * shape.kv_heads);
    const Floats out = twin.attend(q, k, v, call);
    for (int s = 0; s < call.count; ++s) {
      auto& host = hosts[static_cast<std::size_t>(call.first + s)];
      const auto its = [&](const Floats& x, int heads) {
        const auto begin = x.begin() + s * call.tokens * heads * shape.head_dim;
        return emulated::Twin<T, DevicePolicy>::typed(Floats(begin, begin + call.tokens * heads * shape.head_dim));
      };
      const auto tq = its(q, shape.query_heads), tk = its(k, shape.kv_heads), tv = its(v, shape.kv_heads);
      Floats expected(tq.size());
      const int before = host.rows() + call.tokens;
      host.attend(buzz::view(tq, call.tokens, shape.query_heads, shape.head_dim),
                  buzz::view(tk, call.tokens, shape.kv_heads, shape.head_dim),
                  buzz::view(tv, call.tokens, shape.kv_heads, shape.head_dim),
                  buzz::view(expected, call.tokens, shape.query_heads, shape.head_dim));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const float got = out[static_cast<std::size_t>(s) * expected.size() + i];
        EXPECT_NEAR(static_cast<double>(got), static_cast<double>(expected[i]), tolerance);
        if (testing::Test::HasFailure()) return ran;
      }
      EXPECT_EQ(twin.cache.rows(call.first + s), host.rows());
      EXPECT_EQ(twin.cache.lengths(call.first + s).regions(options), host.regions());
      EXPECT_EQ(twin.cache.lengths(call.first + s).next, host.next_position());
      ran.evictions += host.rows() < before;
      for (int h = 0; h < shape.kv_heads; ++h)
        for (int r = 0; r < host.rows(); ++r) {
          EXPECT_EQ(twin.position(call.first + s, h, r), host.positions(h)[r]) << "row " << r << ", call " << step;
          if constexpr (DevicePolicy::Score::needs_mass) {
            const double score = static_cast<double>(host.scores(h)[r]);
            EXPECT_NEAR(static_cast<double>(twin.score(call.first + s, h, r)), score, 2e-5 * (1 + score));
          }
          for (int d = 0; d < shape.head_dim; ++d) {
            EXPECT_NEAR(static_cast<double>(static_cast<float>(twin.cache.keys(call.first + s).row(0, h, r)[d])),
                        static_cast<double>(static_cast<float>(host.keys().row(h, r)[d])), tolerance);
            EXPECT_EQ(static_cast<float>(twin.cache.values(call.first + s).row(0, h, r)[d]),
                      static_cast<float>(host.values().row(h, r)[d]));
          }
          if (testing::Test::HasFailure()) return ran;
        }
    }
  }
  return ran;
}

template <class HostPolicy, class DevicePolicy>
void expect_hosts_caches(int runs) {
  int evictions = 0;
  for (int seed = 0; seed < runs; ++seed) {
    evictions += expect_hosts_cache<float, HostPolicy, DevicePolicy>(static_cast<std::uint64_t>(seed), 1e-5).evictions;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(evictions, 20 * runs / 2);
}

TEST(CudaCache, BeehiveIsTheHosts) { expect_hosts_caches<buzz::Beehive, buzz::cuda::Beehive>(30); }
TEST(CudaCache, HeavyHitterIsTheHosts) { expect_hosts_caches<buzz::HeavyHitter, buzz::cuda::HeavyHitter>(12); }
TEST(CudaCache, StreamingIsTheHosts) { expect_hosts_caches<buzz::Streaming, buzz::cuda::Streaming>(8); }
TEST(CudaCache, StridedIsTheHosts) { expect_hosts_caches<buzz::Strided, buzz::cuda::Strided>(8); }
TEST(CudaCache, DiverseBeehiveIsTheHosts) { expect_hosts_caches<buzz::DiverseBeehive, buzz::cuda::DiverseBeehive>(12); }
TEST(CudaCache, KeyDiffIsTheHosts) { expect_hosts_caches<buzz::KeyDiff, buzz::cuda::KeyDiff>(8); }
TEST(CudaCache, KeyOutliersAreTheHosts) { expect_hosts_caches<buzz::KeyOutliers, buzz::cuda::KeyOutliers>(12); }

}  // namespace
