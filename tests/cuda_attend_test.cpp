#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "cuda_attention.h"
#include "cuda_twin.h"
#include "oracle_config.h"
#include "sanitizers.h"

namespace {

using emulated::Floats;
using oracle::Random;

/// [tokens][heads][head_dim] of a sequence.
oracle::Tokens tokens_of(const Floats& x, int sequence, int tokens, int heads, int dim) {
  oracle::Tokens result;
  std::size_t at = static_cast<std::size_t>(sequence * tokens * heads * dim);
  for (int t = 0; t < tokens; ++t) {
    result.emplace_back();
    for (int h = 0; h < heads; ++h) {
      oracle::Vector row;
      for (int d = 0; d < dim; ++d) row.push_back(static_cast<double>(x[at++]));
      result.back().push_back(row);
    }
  }
  return result;
}

template <class T>
Floats draw(Random& random, int size, float amplitude) {
  Floats x(static_cast<std::size_t>(size));
  for (float& f : x) f = static_cast<float>(static_cast<T>(random.real() * amplitude));
  return x;
}

/// Attention, its column sums and the rotation on the emulated device against the oracle, over a few calls of several
/// sequences of different lengths. No eviction: what stays is tested elsewhere.
template <class T>
void expect_oracles_attention(std::uint64_t seed, double tolerance, bool modified = false) {
  Random random(seed);
  buzz::Shape shape;
  shape.kv_heads = random.in(1, 3);
  shape.query_heads = shape.kv_heads * random.of({1, 2, 3, 4, 8, 16});
  shape.head_dim = random.of({64, 80, 96, 128, 256});
  shape.max_chunk = random.of({1, 5, 16, 24});
  if (modified && random.one_in(2)) shape.value_dim = random.of({16, 72, 128, 256});
  buzz::cuda::Batch batch;
  batch.sequences = random.in(1, 3);
  batch.kept_logits = random.in(0, std::min(shape.max_chunk, 16));
  batch.splits = random.of({0, 1, 2, 3, 7});
  buzz::BeehiveOptions options;
  const auto kind = random.of<std::pair<buzz::AttentionKind, oracle::AttentionKind>>({
      {buzz::AttentionKind::accumulated, oracle::AttentionKind::accumulated},
      {buzz::AttentionKind::latest, oracle::AttentionKind::latest},
      {buzz::AttentionKind::newest, oracle::AttentionKind::newest},
      {buzz::AttentionKind::largest, oracle::AttentionKind::largest},
      {buzz::AttentionKind::decayed, oracle::AttentionKind::decayed},
  });
  options.attention = kind.first;
  options.window = 4;
  options.threshold = 200;
  buzz::Rope rope;
  if (random.one_in(2)) {
    rope.base = 500000;
    rope.dims = random.one_in(2) ? 0 : 32;
    if (rope.dims != 0 && random.one_in(2)) rope.first = shape.head_dim - rope.dims;
    rope.pairs = random.of({buzz::Pairs::interleaved, buzz::Pairs::halves});
  }
  buzz::cuda::AttentionOptions attention;
  if (modified) attention = emulated::draw_modifiers(random, shape.query_heads);
  attention.scale = random.one_in(2) ? 0.3 : 0;
  attention.log_base = random.one_in(3) ? 512 : 0;
  emulated::Twin<T> twin(shape, batch, buzz::beehive(options), rope, attention);

  oracle::Options o;
  o.query_heads = shape.query_heads;
  o.kv_heads = shape.kv_heads;
  o.head_dim = shape.head_dim;
  o.value_dim = shape.value_dim;
  o.rope_base = rope.base;
  o.rope_dims = rope.base == 0 ? 0 : rope.dims == 0 ? shape.head_dim : rope.dims;
  o.rope_first = rope.first;
  o.rope_halves = rope.pairs == buzz::Pairs::halves;
  o.scale = attention.scale != 0 ? attention.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
  o.log_base = attention.log_base;
  o.attention_window = attention.window;
  o.soft_cap = attention.soft_cap;
  o.sinks.assign(attention.sinks.begin(), attention.sinks.end());
  o.slopes.assign(attention.alibi_slopes.begin(), attention.alibi_slopes.end());
  o.slopes_by_place = attention.alibi_positions == buzz::Positions::compact;
  o.attention = kind.second;
  o.decay = static_cast<double>(options.decay);
  o.threshold = 1000;
  std::vector<oracle::Cache> caches(static_cast<std::size_t>(batch.sequences), oracle::Cache(o));

  for (int step = 0; step < 6; ++step) {
    buzz::cuda::Call call;
    call.tokens = random.in(1, shape.max_chunk);
    call.first = random.in(0, batch.sequences - 1);
    call.count = random.in(1, batch.sequences - call.first);
    const int size = call.count * call.tokens * shape.head_dim;
    const Floats q = draw<T>(random, size * shape.query_heads, 2), k = draw<T>(random, size * shape.kv_heads, 2),
                 v = draw<T>(random, size / shape.head_dim * shape.value_size() * shape.kv_heads, 1);
    const Floats out = twin.attend(q, k, v, call);
    for (int s = 0; s < call.count; ++s) {
      oracle::Cache& cache = caches[static_cast<std::size_t>(call.first + s)];
      cache.append(tokens_of(k, s, call.tokens, shape.kv_heads, shape.head_dim),
                   tokens_of(v, s, call.tokens, shape.kv_heads, shape.value_size()));
      ASSERT_EQ(twin.cache.rows(call.first + s), cache.rows());
      // The oracle attends over the rows as stored, after each was compared with its own.
      for (int h = 0; h < shape.kv_heads; ++h)
        for (int r = 0; r < cache.rows(); ++r) {
          const T *key = twin.cache.keys(call.first + s).row(0, h, r),
                  *value = twin.cache.values(call.first + s).row(0, h, r);
          oracle::Vector stored_key, stored_value;
          for (int d = 0; d < shape.head_dim; ++d) {
            stored_key.push_back(static_cast<double>(static_cast<float>(key[d])));
            ASSERT_NEAR(stored_key.back(), cache.head(h)[static_cast<std::size_t>(r)].key[static_cast<std::size_t>(d)],
                        sizeof(T) == 4 ? 1e-5 : 1e-2);
          }
          for (int d = 0; d < shape.value_size(); ++d)
            stored_value.push_back(static_cast<double>(static_cast<float>(value[d])));
          cache.replace_row(h, r, stored_key, stored_value);
          ASSERT_EQ(twin.position(call.first + s, h, r), cache.head(h)[static_cast<std::size_t>(r)].position);
        }
      const oracle::Tokens expected = cache.attend(tokens_of(q, s, call.tokens, shape.query_heads, shape.head_dim));
      cache.observe();
      std::size_t at = static_cast<std::size_t>(s * call.tokens * shape.query_heads * shape.value_size());
      for (const oracle::Matrix& token : expected)
        for (const oracle::Vector& row : token)
          for (const double x : row) ASSERT_NEAR(static_cast<double>(out[at++]), x, tolerance) << "call " << step;
      for (int h = 0; h < shape.kv_heads; ++h)
        for (int r = 0; r < cache.rows(); ++r) {
          const double score = cache.head(h)[static_cast<std::size_t>(r)].score;
          ASSERT_NEAR(static_cast<double>(twin.score(call.first + s, h, r)), score, 1e-5 * (1 + score))
              << "row " << r << " of " << cache.rows() << ", call " << step << " of " << call.tokens << " tokens";
        }
    }
  }
}

TEST(CudaAttend, FloatsAreTheOracles) {
  for (std::uint64_t seed = 0; seed < sanitized::draws(40); ++seed) {
    expect_oracles_attention<float>(seed, 1e-5);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(CudaAttend, ModifiedLogitsAreTheOracles) {
  for (std::uint64_t seed = 300; seed < 300 + sanitized::draws(40); ++seed) {
    expect_oracles_attention<float>(seed, 1e-5, true);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(CudaAttend, ModifiedLogitsOfHalvesAreTheOracles) {
  for (std::uint64_t seed = 400; seed < 400 + sanitized::draws(10); ++seed) {
    expect_oracles_attention<Eigen::half>(seed, 1e-3, true);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(CudaAttend, HalvesAreTheOracles) {
  for (std::uint64_t seed = 100; seed < 100 + sanitized::draws(20); ++seed) {
    expect_oracles_attention<Eigen::half>(seed, 1e-3);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(CudaAttend, Bfloat16IsTheOracles) {
  for (std::uint64_t seed = 200; seed < 200 + sanitized::draws(5); ++seed) {
    expect_oracles_attention<Eigen::bfloat16>(seed, 8e-3);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

/// What is written against the definition in double; a row of NaN comes to those alone who see it.
template <class T>
void expect_definition(const emulated::CallSizes& s, Random& random, double tolerance) {
  emulated::AttentionCall<T> call(s, random);
  // A row that may be, the first that any query sees, or the last one's own.
  const int first = s.window == 0 ? 0 : std::max(0, s.rows - s.tokens + 1 - s.window);
  const int poisoned = random.of({random.in(0, 2 * s.rows), first, s.rows - 1});
  const int its_head = random.in(0, s.kv_heads - 1);
  const bool of_keys = random.one_in(2);
  if (poisoned < s.rows)
    (of_keys ? call.key(its_head, poisoned)
             : call.value(its_head, poisoned))[random.in(0, (of_keys ? s.dim : s.value_dim) - 1)] = static_cast<T>(NAN);
  call.template run<emulated::Launcher>(random.in(0, 1000));
  const auto number = [](T x) { return static_cast<double>(static_cast<float>(x)); };
  const auto expect_near = [](float x, double expected, double most, const char* what) {
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(x)) << what;
    else
      ASSERT_NEAR(static_cast<double>(x), expected, most * (1 + std::abs(expected))) << what;
  };
  for (int t = 0; t < s.tokens; ++t)
    for (int head = 0; head < call.heads(); ++head) {
      const int i = t * call.heads() + head, h = head / s.group, seen = s.rows - s.tokens + t + 1;
      const int from = s.window == 0 ? 0 : std::max(0, seen - s.window);
      std::vector<double> logits;
      double total = 0;
      for (int r = from; r < seen; ++r) {
        double dot = 0;
        for (int d = 0; d < s.dim; ++d)
          dot += number(call.q[static_cast<std::size_t>(i * s.dim + d)]) * number(call.key(h, r)[d]);
        logits.push_back(0.5 * dot);
        total += std::exp(logits.back());
        const int at = (head * s.tokens + t) * call.capacity + r;
        if (s.keeps_logits) expect_near(call.logits[static_cast<std::size_t>(at)], logits.back(), 1e-5, "logit");
      }
      expect_near(call.lse[static_cast<std::size_t>(i)], std::log(total), 1e-5, "log-sum-exp");
      for (int d = 0; d < s.value_dim; ++d) {
        double expected = 0;
        for (int r = from; r < seen; ++r)
          expected += std::exp(logits[static_cast<std::size_t>(r - from)]) / total * number(call.value(h, r)[d]);
        expect_near(static_cast<float>(call.out[static_cast<std::size_t>(i * s.value_dim + d)]), expected, tolerance,
                    "output");
      }
    }
}

/// All tails of a few steps, of 32 rows or fewer (halves: 128), with any sizes and both kinds of kernels.
template <class T>
void expect_definitions(std::uint64_t seed, double tolerance) {
  Random random(seed);
  const int most = sizeof(T) == 2 ? 150 : 100;
  for (int rows = 1; rows <= most; rows += sanitized::stride) {
    emulated::CallSizes s;
    s.rows = rows;
    s.tokens = std::min(rows, random.of({1, 1, 2, 9}));
    s.kv_heads = random.in(1, 2);
    s.group = random.in(1, 16);
    s.dim = random.one_in(2) ? random.of({64, 128, 256}) : 8 * random.in(1, 32);
    s.value_dim = random.one_in(3) ? 8 * random.in(1, 32) : s.dim;
    s.splits = random.of({1, 1, 2, 3});
    s.window = random.one_in(3) ? random.in(1, most - 10) : 0;
    expect_definition<T>(s, random, tolerance);
    ASSERT_FALSE(testing::Test::HasFatalFailure())
        << rows << " rows, " << s.tokens << " tokens, group " << s.group << ", dim " << s.dim << ", value_dim "
        << s.value_dim << ", splits " << s.splits << ", window " << s.window;
  }
}

/// Calls of so many queries that they are taken 64 at a time, over a few steps of 16, 32 or 64 rows.
template <class T>
void expect_definitions_of_many(std::uint64_t seed, double tolerance) {
  Random random(seed);
  for (unsigned i = 0; i < sanitized::draws(40); ++i) {
    emulated::CallSizes s;
    s.group = random.in(1, 16);
    s.tokens = 63 / s.group + random.in(1, 20);
    s.rows = s.tokens + random.of({0, 1, random.in(0, 150)});
    s.dim = random.one_in(2) ? random.of({64, 128}) : 8 * random.in(1, 16);
    s.value_dim = random.one_in(3) ? 8 * random.in(1, 16) : s.dim;
    s.window = random.one_in(3) ? random.in(1, 70) : 0;
    s.keeps_logits = false;
    expect_definition<T>(s, random, tolerance);
    ASSERT_FALSE(testing::Test::HasFatalFailure())
        << s.rows << " rows, " << s.tokens << " tokens, group " << s.group << ", dim " << s.dim << ", value_dim "
        << s.value_dim << ", window " << s.window;
  }
}

TEST(CudaAttend, TailsOfFloatsAreTheDefinitions) { expect_definitions<float>(1, 1e-5); }

// By tensor cores a weight is rounded before it is multiplied by a value: that, and the output's rounding, are each at
// most half a unit of T of the largest value, which is 1 here.
TEST(CudaAttend, TailsOfHalvesAreTheDefinitions) { expect_definitions<Eigen::half>(2, 1e-3); }
TEST(CudaAttend, TailsOfBfloat16AreTheDefinitions) { expect_definitions<Eigen::bfloat16>(3, 8e-3); }

TEST(CudaAttend, ManyHalvesAreTheDefinitions) { expect_definitions_of_many<Eigen::half>(4, 1e-3); }
TEST(CudaAttend, ManyBfloat16AreTheDefinitions) { expect_definitions_of_many<Eigen::bfloat16>(5, 8e-3); }

}  // namespace
