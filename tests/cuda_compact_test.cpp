#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "buzz/cuda/compact.cuh"
#include "buzz/kept_rows.h"
#include "cuda_emulation.h"
#include "oracle_config.h"

namespace {

using oracle::Random;

/// Bits, since there are NaNs among them.
template <class V>
bool same_bits(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

/// K, V, scores and positions of several sequences, strided, against buzz::compact: every byte, those of the rows that
/// nobody uses and of the gaps between rows included.
template <class T>
void expect_hosts_compaction(std::uint64_t seed) {
  Random random(seed);
  const int heads = random.in(1, 3), sequences = random.in(1, 2), dim = random.of({16, 64, 80, 96, 128, 256});
  const int capacity = random.of({8, 70, 300, 1200}), lists = random.one_in(2) ? 1 : heads;
  const buzz::Protect protect{random.in(0, 3), random.in(0, 6)};
  buzz::cuda::Rule rule;
  rule.heavy = random.in(0, capacity - 1);
  rule.threshold = rule.heavy;
  const long long row = dim + (random.one_in(2) ? 32 : 0), head = capacity * row + 64, sequence = heads * head;
  std::vector<T> keys(static_cast<std::size_t>(sequences * sequence + 16), static_cast<T>(NAN));
  for (T& x : keys)
    if (!random.one_in(50)) x = static_cast<T>(random.real());
  std::vector<T> values = keys;
  std::reverse(values.begin(), values.end());
  const auto aligned = [](std::vector<T>& x) {
    return reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(x.data()) + 15) / 16 * 16);
  };
  const std::size_t per_row = static_cast<std::size_t>(sequences * heads * capacity);
  std::vector<double> scores(per_row);
  std::vector<std::int32_t> positions(per_row), kept(static_cast<std::size_t>(sequences * lists * capacity), 1 << 30);
  for (std::size_t i = 0; i < per_row; ++i) {
    scores[i] = random.one_in(9) ? static_cast<double>(NAN) : static_cast<double>(random.real());
    positions[i] = static_cast<std::int32_t>(i);
  }
  std::vector<buzz::cuda::State> states(static_cast<std::size_t>(sequences));
  std::vector<T> expected_keys = keys, expected_values = values;
  std::vector<double> expected_scores = scores;
  std::vector<std::int32_t> expected_positions = positions;
  const std::ptrdiff_t key_begin = aligned(keys) - keys.data(), value_begin = aligned(values) - values.data();
  for (int s = 0; s < sequences; ++s) {
    buzz::cuda::State& state = states[static_cast<std::size_t>(s)];
    state.now = {random.in(0, capacity), 0, 2 * capacity};
    const buzz::Regions r = state.now.regions(protect);
    if (!rule.should_evict(r.middle())) continue;
    buzz::KeptRows keep(heads, capacity);
    const int middle = rule.left(r.hive, r.unfiltered);
    keep.begin(state.now.rows, r.sink + middle + r.window);
    for (int h = 0; h < heads; ++h) {
      if (lists == 1 && h > 0) {
        std::copy_n(keep.list(0), keep.size(), keep.list(h));
        continue;
      }
      int at = 0, wanted = middle;
      for (int i = 0; i < state.now.rows; ++i) {
        const int left = r.sink + r.middle() - i;  // rows of the middle still to come
        const bool in_middle = i >= r.sink && i < r.sink + r.middle();
        const bool stays = !in_middle || wanted == left || (wanted > 0 && random.one_in(2));
        if (stays) keep.list(h)[at++] = i;
        if (in_middle && stays) --wanted;
      }
      ASSERT_EQ(at, keep.size());
      std::copy_n(keep.list(h), at, kept.data() + (s * lists + h) * capacity);
    }
    const auto move = [&](auto* data, long long head_stride, long long row_stride, int width) {
      buzz::compact(keep, buzz::View<std::remove_pointer_t<decltype(data)>>(data, heads, state.now.rows, width,
                                                                            head_stride, row_stride));
    };
    move(expected_keys.data() + key_begin + s * sequence, head, row, dim);
    move(expected_values.data() + value_begin + s * sequence, head, row, dim);
    move(expected_scores.data() + s * heads * capacity, capacity, 1, 1);
    move(expected_positions.data() + s * heads * capacity, capacity, 1, 1);
  }
  buzz::cuda::Compact<T> kernel;
  kernel.step.keys = {keys.data() + key_begin, sequence, head, row};
  kernel.step.values = {values.data() + value_begin, sequence, head, row};
  kernel.step.scores = scores.data();
  kernel.step.positions = positions.data();
  kernel.step.kept = kept.data();
  kernel.step.states = states.data();
  kernel.step.protect = protect;
  kernel.step.rule = rule;
  kernel.step.kv_heads = heads;
  kernel.step.lists = lists;
  kernel.step.head_dim = kernel.step.modifiers.value_dim = dim;
  kernel.step.capacity = capacity;
  emulated::Launcher::launch(kernel, {kernel.blocks(), heads, sequences}, random.in(0, 1000));
  EXPECT_TRUE(same_bits(keys, expected_keys));
  EXPECT_TRUE(same_bits(values, expected_values));
  EXPECT_TRUE(same_bits(scores, expected_scores));
  EXPECT_EQ(positions, expected_positions);
  for (const buzz::cuda::State& state : states) EXPECT_EQ(state.then.rows, evicted(state.now, protect, rule).rows);
}

TEST(CudaCompact, EveryByteIsAsTheHostLeavesIt) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    expect_hosts_compaction<float>(seed);
    expect_hosts_compaction<Eigen::half>(seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(CudaCompact, MoreMovedKeysAreRotatedThanThereAreThreads) {
  const int capacity = 400, left = 350, dim = 256, half = dim / 2;
  Random random(1);
  std::vector<float> keys(static_cast<std::size_t>(capacity * dim));
  for (float& x : keys) x = random.real();
  std::vector<double> frequencies;
  for (int i = 0; i < half; ++i) frequencies.push_back(std::pow(10000., -i / static_cast<double>(half)));
  std::vector<std::int32_t> kept;
  for (int i = 0; i < left; ++i) kept.push_back(i < 20 ? i : i + 50 * (i % 2 == 0) + i / 20);
  std::vector<float> expected = keys;
  for (int r = 0; r < left; ++r)
    for (int i = 0; i < half; ++i) {
      const double angle = (r - kept[static_cast<std::size_t>(r)]) * frequencies[static_cast<std::size_t>(i)];
      float &a = expected[static_cast<std::size_t>(r * dim + i)],
            &b = expected[static_cast<std::size_t>(r * dim + half + i)];
      const double x = static_cast<double>(a), y = static_cast<double>(b);
      a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
      b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
    }
  buzz::cuda::State state;
  state.now = {capacity, 0, capacity};
  buzz::cuda::Rerotate<float> kernel;
  kernel.step.keys = buzz::cuda::dense(keys.data(), 1, capacity, dim);
  kernel.step.kept = kept.data();
  kernel.step.states = &state;
  kernel.step.rotation.dims = dim;
  kernel.step.rotation.interleaved = false;
  kernel.step.rotation.frequencies = frequencies.data();
  kernel.step.rule.heavy = kernel.step.rule.threshold = left;
  kernel.step.protect = {0, 0};
  kernel.step.head_dim = kernel.step.modifiers.value_dim = dim;
  kernel.step.capacity = capacity;
  kernel.step.count = 64;  // of which the first is there
  ASSERT_LT(kernel.blocks() * kernel.threads, left * half);
  emulated::Launcher::launch(kernel, {kernel.blocks(), 1, 1}, 1);
  for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_NEAR(keys[i], expected[i], 1e-5f) << i;
}

}  // namespace
