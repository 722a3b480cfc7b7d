#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "buzz/buzz_cache.h"
#include "cuda_attention.h"
#include "cuda_twin.h"
#include "oracle_config.h"

namespace {

using emulated::Floats;
using oracle::Random;
using Twin = emulated::Twin<float>;

Floats draw(Random& random, int size) {
  Floats x(static_cast<std::size_t>(size));
  for (float& f : x) f = random.real() * 2;
  return x;
}

/// A device twin and the host's cache with the same rows and no scores yet: the newest `tokens` are to be observed.
struct Pair {
  Pair(Random& random, int group, buzz::AttentionKind kind, const buzz::AttentionOptions& attention = any_lse())
      : shape{2 * group, 2, 64, 24},
        twin(shape, {}, policy(kind), {}, attention),
        host(shape, policy(kind), {}, attention) {
    tokens = random.in(1, 24);
    if (random.one_in(2)) add(random, 24, false);
    add(random, tokens, true);
  }
  static buzz::Policy policy(buzz::AttentionKind kind) {
    buzz::BeehiveOptions o;
    o.attention = kind;
    return buzz::beehive(o);
  }
  /// The tests draw log-sum-exps that are no logits'.
  static buzz::AttentionOptions any_lse() {
    buzz::AttentionOptions o;
    o.lse_tolerance = 1e9;
    return o;
  }
  void add(Random& random, int n, bool open) {
    const Floats k = draw(random, n * 2 * 64), v = draw(random, n * 2 * 64);
    host.append(buzz::view(k, n, 2, 64), buzz::view(v, n, 2, 64));
    const auto device = [&](const Floats& x) { return buzz::cuda::dense(x.data(), n, 2, 64); };
    EXPECT_EQ(twin.cache.append(device(k), device(v), {n, 0, 1}, 1), 0);
    if (!open) {
      EXPECT_EQ(twin.cache.evict(1), 0);
    }
  }
  void expect_the_same_scores() {
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < host.rows(); ++r)
        ASSERT_NEAR(static_cast<double>(twin.score(0, h, r)), static_cast<double>(host.scores(h)[r]), 2e-5)
            << "row " << r << " of " << host.rows() << ", " << tokens << " tokens";
  }

  buzz::Shape shape;
  int tokens;
  Twin twin;
  buzz::BuzzCache<float> host;
};

constexpr buzz::AttentionKind kinds[] = {buzz::AttentionKind::accumulated, buzz::AttentionKind::latest,
                                         buzz::AttentionKind::newest,      buzz::AttentionKind::largest,
                                         buzz::AttentionKind::decayed,     buzz::AttentionKind::mean};

TEST(CudaObserve, GivenProbabilitiesAreTheHosts) {
  Random random(1);
  for (int run = 0; run < 60; ++run) {
    Pair pair(random, random.in(1, 3), kinds[run % 6]);
    const int rows = pair.host.rows(), heads = pair.shape.query_heads;
    Floats p(static_cast<std::size_t>(heads * pair.tokens * rows));
    for (float& x : p) x = random.one_in(20) ? NAN : random.one_in(30) ? INFINITY : random.real() + 1;
    buzz::Evictor policy(pair.host.policy(), 2, 24);
    policy.append(rows > 24 ? 24 : pair.tokens);
    if (rows > 24) policy.append(pair.tokens);
    policy.observe(buzz::View<const float>(p.data(), heads, pair.tokens, rows));
    ASSERT_EQ(
        pair.twin.cache.observe(buzz::cuda::dense(static_cast<const float*>(p.data()), heads, pair.tokens, rows), run),
        0);
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < rows; ++r)
        ASSERT_FLOAT_EQ(static_cast<float>(pair.twin.score(0, h, r)), static_cast<float>(policy.scores(h)[r]))
            << "run " << run;
  }
}

/// A stream of 10^9 tokens: what a float would not take up is added all the same, on the ways of every call.
TEST(CudaObserve, GrowsOnPastWhatAFloatTakesUp) {
  const buzz::Shape shape{1, 1, 64, 1};
  for (const int kept_logits : {0, 1}) {
    buzz::cuda::Batch batch;
    batch.kept_logits = kept_logits;
    Twin twin(shape, batch, buzz::beehive());
    const Floats zeros(64);
    const auto row = buzz::cuda::dense(zeros.data(), 1, 1, 64);
    const float sum = 0x1p30f, quarter = 0.25f;
    const auto step = [&](auto&& observe) {
      ASSERT_EQ(twin.cache.append(row, row, {1, 0, 1}, 1), 0);
      observe();
      ASSERT_EQ(twin.cache.evict(1), 0);
    };
    step([&] { ASSERT_EQ(twin.cache.observe(buzz::cuda::dense(&sum, 1, 1, 1), 1), 0); });
    ASSERT_EQ(twin.score(0, 0, 0), 0x1p30);
    const Floats quarters = {quarter, 0};
    step([&] { ASSERT_EQ(twin.cache.observe(buzz::cuda::dense(quarters.data(), 1, 1, 2), 1), 0); });
    EXPECT_EQ(twin.score(0, 0, 0), 0x1p30 + 0.25) << "given probabilities";
    Floats out(64);
    step([&] { ASSERT_EQ(twin.cache.attend(row, buzz::cuda::dense(out.data(), 1, 1, 64), 1), 0); });
    EXPECT_NEAR(twin.score(0, 0, 0), 0x1p30 + 0.25 + 1 / 3., 1e-6) << "attention";
    const float lse = std::log(4.f);
    step([&] { ASSERT_EQ(twin.cache.observe(row, &lse, 1), 0); });
    EXPECT_NEAR(twin.score(0, 0, 0), 0x1p30 + 0.5 + 1 / 3., 1e-6) << "log-sum-exps";
  }
}

/// Log-sum-exps around `mean`, some of them none, give both the same scores.
void expect_the_same_of_lse(Random& random, Pair& pair, float mean, int run) {
  const int heads = pair.shape.query_heads;
  const Floats q = draw(random, pair.tokens * heads * 64);
  Floats lse = draw(random, pair.tokens * heads);
  for (float& x : lse) x = random.one_in(9) ? (random.one_in(2) ? NAN : -INFINITY) : x + mean;
  pair.host.observe(buzz::view(q, pair.tokens, heads, 64), buzz::View<const float>(lse.data(), 1, pair.tokens, heads));
  ASSERT_EQ(pair.twin.cache.observe(buzz::cuda::dense(q.data(), pair.tokens, heads, 64), lse.data(), run), 0);
  pair.expect_the_same_scores();
}

TEST(CudaObserve, LogSumExpsGiveTheHostsScores) {
  Random random(2);
  for (int run = 0; run < 60; ++run) {
    Pair pair(random, random.in(1, 5), kinds[run % 6]);
    expect_the_same_of_lse(random, pair, 3, run);
    ASSERT_FALSE(HasFatalFailure()) << "run " << run;
  }
}

/// The same where logits are modified, whatever the log-sum-exps are.
TEST(CudaObserve, LogSumExpsOfModifiedLogitsGiveTheHostsScores) {
  Random random(5);
  for (int run = 0; run < 60; ++run) {
    const int group = random.in(1, 5), heads = 2 * group;
    buzz::AttentionOptions attention = emulated::draw_modifiers(random, heads);
    attention.lse_tolerance = Pair::any_lse().lse_tolerance;
    Pair pair(random, group, kinds[run % 6], attention);
    expect_the_same_of_lse(random, pair, 6, run);
    ASSERT_FALSE(HasFatalFailure()) << "run " << run;
  }
}

/// A sink so large that it takes all, and one beside which the rows are as without it: finite, in every split once.
TEST(CudaObserve, ASinkTakesItsProbabilityOnceHoweverLarge) {
  const buzz::Shape shape{4, 2, 64, 4};
  for (const float sink : {-3e38f, -100.f, 0.f, 100.f, 3e38f})
    for (const int splits : {1, 3})
      for (const int kept_logits : {0, 4}) {
        buzz::AttentionOptions attention;
        attention.sinks = {sink, 0, sink, 1};
        buzz::cuda::Batch batch;
        batch.splits = splits;
        batch.kept_logits = kept_logits;
        Twin twin(shape, batch, buzz::beehive(), {}, attention);
        buzz::BuzzCache<float> host(shape, buzz::beehive(), {}, attention);
        Random random(6);
        for (int step = 0; step < 12; ++step) {
          const Floats q = draw(random, 4 * 4 * 64), k = draw(random, 4 * 2 * 64), v = draw(random, 4 * 2 * 64);
          Floats expected(q.size());
          host.attend(buzz::view(q, 4, 4, 64), buzz::view(k, 4, 2, 64), buzz::view(v, 4, 2, 64),
                      buzz::view(expected, 4, 4, 64));
          const Floats out = twin.attend(q, k, v, {4, 0, 1});
          for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-5) << sink;
        }
        for (int h = 0; h < 2; ++h)
          for (int r = 0; r < host.rows(); ++r) ASSERT_NEAR(twin.score(0, h, r), host.scores(h)[r], 2e-5) << sink;
      }
}

/// More sinks and slopes than one launch has room for.
TEST(CudaObserve, SinksAndSlopesOfManyHeads) {
  const int heads = 1200;
  const buzz::Shape shape{heads, 2, 4, 1};
  Random random(8);
  buzz::AttentionOptions attention;
  for (int h = 0; h < heads; ++h) {
    attention.sinks.push_back(random.real());
    attention.alibi_slopes.push_back(1 + random.real());
  }
  Twin twin(shape, {}, buzz::beehive(), {}, attention);
  buzz::BuzzCache<float> host(shape, buzz::beehive(), {}, attention);
  for (int step = 0; step < 3; ++step) {
    const Floats q = draw(random, heads * 4), k = draw(random, 2 * 4), v = draw(random, 2 * 4);
    Floats expected(q.size());
    host.attend(buzz::view(q, 1, heads, 4), buzz::view(k, 1, 2, 4), buzz::view(v, 1, 2, 4),
                buzz::view(expected, 1, heads, 4));
    const Floats out = twin.attend(q, k, v, {1, 0, 1});
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-5) << i;
  }
}

/// What has left a query's window may be NaN: it reaches no output and no score.
TEST(CudaObserve, NaNBeforeTheWindowReachesNothing) {
  const buzz::Shape shape{4, 2, 64, 4};
  for (const int kept_logits : {0, 4}) {
    buzz::AttentionOptions attention;
    attention.window = 5;
    buzz::cuda::Batch batch;
    batch.splits = 3;
    batch.kept_logits = kept_logits;
    Twin twin(shape, batch, buzz::beehive(), {}, attention);
    Random random(7);
    for (int step = 0; step < 12; ++step) {
      Floats q = draw(random, 4 * 4 * 64), k = draw(random, 4 * 2 * 64), v = draw(random, 4 * 2 * 64);
      if (step == 0) k[3] = v[70] = NAN;  // row 0, its heads
      const Floats out = twin.attend(q, k, v, {4, 0, 1});
      for (std::size_t i = 0; i < out.size() && step > 1; ++i) ASSERT_TRUE(buzz::is_finite(out[i])) << "step " << step;
      double sum = 0;
      for (int r = 0; r < 4 * step + 4; ++r) sum += twin.score(0, 1, r);
      ASSERT_NEAR(sum, 2 * 4 * (step + 1), 1e-4) << "probabilities add up to 1";
    }
  }
}

/// A query of NaN gets NaN and gives no attention; the others of its call are as if it were not there.
TEST(CudaObserve, ANaNQueryGivesNoAttention) {
  for (const int kept_logits : {0, 4}) {
    const buzz::Shape shape{4, 2, 64, 4};
    buzz::cuda::Batch batch;
    batch.kept_logits = kept_logits;
    batch.splits = 3;
    Twin twin(shape, batch, buzz::beehive());
    buzz::BuzzCache<float> host(shape, buzz::beehive());
    Random random(3);
    Floats q = draw(random, 4 * 4 * 64);
    const Floats k = draw(random, 4 * 2 * 64), v = draw(random, 4 * 2 * 64);
    q[(2 * 4 + 1) * 64 + 5] = NAN;  // token 2, head 1
    Floats expected(q.size());
    host.attend(buzz::view(q, 4, 4, 64), buzz::view(k, 4, 2, 64), buzz::view(v, 4, 2, 64),
                buzz::view(expected, 4, 4, 64));
    const Floats out = twin.attend(q, k, v, {4, 0, 1});
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(buzz::is_nan(out[i]), i / 64 == 2 * 4 + 1) << i;
      ASSERT_EQ(buzz::is_nan(out[i]), buzz::is_nan(expected[i]));
    }
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < 4; ++r) ASSERT_NEAR(twin.score(0, h, r), host.scores(h)[r], 1e-5);
  }
}

/// A value of NaN reaches those queries alone that see its row: it is not even multiplied by 0.
TEST(CudaObserve, ANaNValueReachesNoEarlierQuery) {
  const buzz::Shape shape{2, 1, 64, 4};
  Twin twin(shape, {}, buzz::beehive());
  Random random(4);
  const Floats q = draw(random, 4 * 2 * 64), k = draw(random, 4 * 64);
  Floats v = draw(random, 4 * 64);
  v[2 * 64 + 7] = NAN;
  const Floats out = twin.attend(q, k, v, {4, 0, 1});
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(buzz::is_nan(out[i]), i / 128 >= 2 && i % 64 == 7) << i;
}

constexpr int of_many = buzz::cuda::Step::most_blocks;

/// Launches the first sequence's blocks of a grid that is made for many; most_x: blocks of a head.
emulated::Stream first_of_many(int* most_x) {
  return emulated::Stream([most_x](buzz::cuda::Grid& grid) {
    EXPECT_EQ(grid.z, of_many);
    *most_x = std::max(*most_x, grid.x);
    grid.z = 1;
    return 0;
  });
}

/// Where heads are many, one block goes through all rows of each: the same bits as with a block for each few rows.
TEST(CudaObserve, FewBlocksTakeAllRows) {
  for (const int window : {0, 200}) {
    emulated::CallSizes sizes;
    sizes.rows = 700;
    sizes.tokens = 3;
    sizes.group = 2;
    sizes.window = window;
    Random random(1), again(1);
    emulated::AttentionCall<float> one(sizes, random), many(sizes, again);
    const auto expect_the_same = [&] {
      ASSERT_EQ(one.scores, many.scores);
      EXPECT_GT(one.scores[5], 0);
      EXPECT_GT(one.scores[699], 0);
    };
    int most_x = 0;
    const emulated::Stream stream = first_of_many(&most_x);
    one.run<emulated::Launcher>(1);
    many.run<emulated::Launcher>(stream, of_many);
    EXPECT_EQ(one.out, many.out);
    EXPECT_EQ(most_x, 1) << "splits or blocks a head";
    if (window == 0) expect_the_same();
    EXPECT_EQ(one.scores, many.scores);

    const auto q = buzz::cuda::dense<const float>(one.q.data(), 3, 2, 16);
    most_x = 0;
    EXPECT_EQ(buzz::cuda::observe<emulated::Launcher>(one.step(), q, one.lse.data(), 1), 0);
    EXPECT_EQ(buzz::cuda::observe<emulated::Launcher>(many.step(of_many), q, one.lse.data(), stream), 0);
    EXPECT_EQ(most_x, 1);
    EXPECT_EQ(one.scores, many.scores);

    Floats given(2 * 3 * 700);
    for (float& p : given) p = random.real() + 1;
    const auto probabilities = buzz::cuda::dense<const float>(given.data(), 2, 3, 700);
    most_x = 0;
    EXPECT_EQ(buzz::cuda::observe<emulated::Launcher>(one.step(), probabilities, 1), 0);
    EXPECT_EQ(buzz::cuda::observe<emulated::Launcher>(many.step(of_many), probabilities, stream), 0);
    EXPECT_EQ(most_x, 1);
    expect_the_same();
  }
}

TEST(CudaStep, BlocksAreNoMoreThanTheWorkNorThanACardTakes) {
  buzz::cuda::Step step;
  const auto blocks = [&](int capacity, int kv_heads, int count, int at_once) {
    step.capacity = capacity, step.kv_heads = kv_heads, step.count = count;
    return step.row_blocks(at_once);
  };
  EXPECT_EQ(blocks(1, 1, 1, 128), 1);
  EXPECT_EQ(blocks(128, 8, 2, 128), 1);
  EXPECT_EQ(blocks(129, 8, 2, 128), 2);
  EXPECT_EQ(blocks(2147483647, 1, 1, 1), 4096);
  EXPECT_EQ(blocks(2147483647, 8, 64, 128), 8);
  EXPECT_EQ(blocks(2147483647, 65535, 65535, 128), 1);
}

}  // namespace
