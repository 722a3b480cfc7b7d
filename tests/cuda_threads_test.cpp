// The kernels with a fiber for each thread of a block, all blocks of a launch at once: a barrier too few shows in the
// bits. What the emulation in phases and one order cannot see, two blocks at the same bytes, ThreadSanitizer does
// (.ci/run, threads).

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "buzz/policy_list.h"
#include "cuda_attention.h"
#include "cuda_twin.h"
#include "oracle_config.h"

namespace {

using emulated::Floats;
using emulated::Launcher;
using emulated::Stream;

/// A few steps with evictions, on threads and emulated in phases: the same bits.
void expect_the_same(const buzz::Policy& policy, const buzz::Rope& rope, int kept_logits,
                     const buzz::AttentionOptions& attention = {}) {
  const buzz::Shape shape{2, 1, 16, 4};
  buzz::cuda::Batch batch;
  batch.kept_logits = kept_logits;
  batch.splits = 2;
  emulated::Twin<float> twin(shape, batch, policy, rope, attention);
  using Cache = emulated::Twin<float>::Cache;
  const buzz::cuda::Bytes bytes = Cache::bytes(shape, batch, policy, rope);
  emulated::Memory memory(bytes.cache), workspace(bytes.workspace);
  Cache cache(shape, batch, policy, rope, memory.data(), workspace.data(), attention);
  const Stream fibers = Stream::of_fibers();
  ASSERT_EQ(cache.reset(fibers), 0);
  oracle::Random random(1);
  int evictions = 0;
  for (int step = 0; step < 5; ++step) {
    const int tokens = step % 2 == 0 ? 4 : 1;
    const auto draw = [&](int heads) {
      Floats x(static_cast<std::size_t>(tokens * heads * 16));
      for (float& f : x) f = random.real() * 2;
      return x;
    };
    const Floats q = draw(2), k = draw(1), v = draw(1);
    Floats out(q.size(), NAN);
    const buzz::cuda::Call call{tokens, 0, 1};
    const auto view = [&](const Floats& x, int heads) { return buzz::cuda::dense(x.data(), tokens, heads, 16); };
    const int before = cache.rows(0) + tokens;
    ASSERT_EQ(
        cache.attend(view(q, 2), view(k, 1), view(v, 1), buzz::cuda::dense(out.data(), tokens, 2, 16), call, fibers),
        0);
    ASSERT_EQ(out, twin.attend(q, k, v, call));
    ASSERT_EQ(cache.rows(0), twin.cache.rows(0));
    for (int r = 0; r < cache.rows(0); ++r) {
      ASSERT_EQ(cache.positions(0)[r], twin.position(0, 0, r));
      ASSERT_EQ(cache.scores(0)[r], twin.score(0, 0, r));
      for (int d = 0; d < 16; ++d) {
        ASSERT_EQ(cache.keys(0).row(0, 0, r)[d], twin.cache.keys(0).row(0, 0, r)[d]);
        ASSERT_EQ(cache.values(0).row(0, 0, r)[d], twin.cache.values(0).row(0, 0, r)[d]);
      }
    }
    evictions += cache.rows(0) < before;
  }
  EXPECT_GE(evictions, 2);
}

TEST(CudaThreads, Beehive) {
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  expect_the_same(buzz::policy("beehive:sink=1,window=3,threshold=2,stride=3,keep=2,hive=first"), rope, 1);
}

TEST(CudaThreads, HeavyHitter) { expect_the_same(buzz::policy("heavy_hitter:window=3,heavy=3"), {}, 4); }

TEST(CudaThreads, KeyDiff) { expect_the_same(buzz::policy("key_diff:heavy=6"), {}, 0); }

TEST(CudaThreads, ModifiedLogits) {
  buzz::AttentionOptions attention;
  attention.window = 6;
  attention.soft_cap = 2;
  attention.sinks = {0.5f, -1};
  attention.alibi_slopes = {0.5f, 0.25f};
  expect_the_same(buzz::policy("heavy_hitter:window=3,heavy=3"), {}, 1, attention);
}

template <class T>
void expect_the_same(const emulated::CallSizes& sizes, bool poisoned = false) {
  oracle::Random random(1), again(1);
  emulated::AttentionCall<T> phases(sizes, random), threads(sizes, again);
  if (poisoned) phases.value(0, sizes.rows - 1)[0] = threads.value(0, sizes.rows - 1)[0] = static_cast<T>(NAN);
  phases.template run<Launcher>(1);
  threads.template run<Launcher>(Stream::of_fibers());
  ASSERT_EQ(threads.out.size(), phases.out.size());
  EXPECT_EQ(std::memcmp(threads.out.data(), phases.out.data(), phases.out.size() * sizeof(T)), 0);
  EXPECT_EQ(threads.lse, phases.lse);
  EXPECT_EQ(threads.scores, phases.scores);
}

TEST(CudaThreads, AttentionInSeveralSteps) {
  for (const int group : {1, 3, 8}) {
    emulated::CallSizes sizes;
    sizes.rows = 105;
    sizes.tokens = 2;
    sizes.group = group;
    expect_the_same<float>(sizes);
  }
}

TEST(CudaThreads, AttentionByTensorCores) {
  for (const int group : {1, 3, 12}) {
    emulated::CallSizes sizes;
    sizes.rows = 277;
    sizes.tokens = 2;
    sizes.group = group;
    expect_the_same<Eigen::half>(sizes);
  }
}

TEST(CudaThreads, AttentionOfManyQueries) {
  emulated::CallSizes sizes;
  sizes.rows = 277;
  sizes.tokens = 70;
  sizes.dim = sizes.value_dim = 64;
  sizes.keeps_logits = false;
  expect_the_same<Eigen::half>(sizes);
  expect_the_same<Eigen::half>(sizes, true);
}

TEST(CudaThreads, CompactionInSeveralTiles) {
  const int capacity = 1300, dim = 16;
  std::vector<float> keys(capacity * dim), values, expected;
  std::vector<double> scores(capacity);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<float>(i);
  values = keys;
  std::vector<std::int32_t> positions(capacity), kept;
  for (int r = 0; r < capacity && kept.size() < 700; ++r)
    if (r % 7 != 0 || r > 500) kept.push_back(r);
  buzz::cuda::State state;
  state.now = {capacity, 0, capacity};
  expected = keys;
  for (std::size_t i = 0; i < kept.size(); ++i)
    std::copy_n(keys.begin() + kept[i] * dim, dim, expected.begin() + static_cast<std::ptrdiff_t>(i) * dim);
  buzz::cuda::Compact<float> kernel;
  kernel.step.keys = buzz::cuda::dense(keys.data(), 1, capacity, dim);
  kernel.step.values = buzz::cuda::dense(values.data(), 1, capacity, dim);
  kernel.step.scores = scores.data();
  kernel.step.positions = positions.data();
  kernel.step.kept = kept.data();
  kernel.step.states = &state;
  kernel.step.rule.heavy = 700;
  kernel.step.rule.threshold = 1200;
  kernel.step.protect = {0, 0};
  kernel.step.head_dim = kernel.step.modifiers.value_dim = dim;
  kernel.step.capacity = capacity;
  Launcher::launch(kernel, {kernel.blocks(), 1, 1}, Stream::of_fibers());
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(values, expected);
  EXPECT_EQ(state.then.rows, 700);
}

}  // namespace
