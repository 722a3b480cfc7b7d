// The kernels with a thread for each of a block's, all blocks of a launch at once. They are fibers (fibers.h), which
// take turns in a random order and only where they wait: a barrier too few shows in the bits. What the emulation in
// phases and one order cannot see, two blocks at the same bytes, ThreadSanitizer does (.ci/run, threads).

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "buzz/policy_list.h"
#include "cuda_attention.h"
#include "cuda_twin.h"
#include "fibers.h"
#include "oracle_config.h"

namespace {

using emulated::Floats;

/// What the threads of a block have in common.
struct Team {
  Team(Fibers& fibers, int threads) : all(fibers, threads), exchange(static_cast<std::size_t>(threads)) {
    for (int t = 0; t < threads; t += 32) warps.push_back(std::make_unique<Fibers::Barrier>(fibers, 32));
  }
  Fibers::Barrier all;
  std::vector<std::unique_ptr<Fibers::Barrier>> warps;
  std::vector<std::vector<double>> exchange;
};

class Block {
 public:
  template <class V>
  class Private {
   public:
    explicit Private(const Block&) { std::memset(static_cast<void*>(&value_), 0xff, sizeof value_); }
    V& operator[](int) { return value_; }

   private:
    V value_;
  };

  Block(Team& team, int x, int y, int z, int thread) : team_(team), x_(x), y_(y), z_(z), thread_(thread) {}
  int x() const { return x_; }
  int y() const { return y_; }
  int z() const { return z_; }
  template <class F>
  void phase(F&& f) {
    f(thread_);
    team_.all.wait();
  }
  template <class F>
  void alone(F&& f) {
    f(thread_);
  }
  template <int lanes, class V, class W, class X, int n>
  void add_lanes(Private<V>& threads, X (W::*values)[n]) {
    X(&x)[n] = threads[0].*values;
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      exchange(x, n, n, [&](int i) { x[i] += static_cast<X>(its(thread_ ^ offset)[static_cast<std::size_t>(i)]); });
  }
  template <int count, int offset, class V, class W, class X, int n>
  void swap(Private<V>& threads, X (W::*values)[n]) {
    X(&x)[n] = threads[0].*values;
    exchange(x, count, count,
             [&](int i) { x[i] = static_cast<X>(its(thread_ ^ offset)[static_cast<std::size_t>(i)]); });
  }
  template <int lanes, class V, class W, class X, int n>
  void share(Private<V>& threads, X (W::*values)[n]) {
    constexpr int own = std::max(1, n / lanes);
    X(&x)[n] = threads[0].*values;
    const int first = thread_ / lanes * lanes;
    exchange(x, own, n,
             [&](int i) { x[i] = static_cast<X>(its(first + i * lanes / n)[static_cast<std::size_t>(i % own)]); });
  }
  template <class V, class W, class U, class X, int n, int m, class F>
  void pick(Private<V>& threads, X (W::*from)[n], X (U::*to)[m], F&& lane) {
    V& own = threads[0];
    exchange(own.*from, n, m, [&](int k) {
      (own.*to)[k] = static_cast<X>(its(thread_ / 32 * 32 + lane(thread_, k))[static_cast<std::size_t>(k * n / m)]);
    });
  }
  template <class T, class A, class B, class C>
  void multiply(A&& a, B&& b, C&& c) {
    const buzz::cuda::Bits own_a = a(thread_);
    const buzz::cuda::Pair own_b = b(thread_);
    std::uint32_t own[6];
    std::copy_n(own_a.words, 4, own);
    std::copy_n(own_b.words, 2, own + 4);
    const auto word = [&](int lane, std::size_t i) {
      return static_cast<std::uint32_t>(its(thread_ / 32 * 32 + lane)[i]);
    };
    exchange(own, 6, 1, [&](int) {
      buzz::cuda::Bits all_a[32];
      buzz::cuda::Pair all_b[32];
      for (int lane = 0; lane < 32; ++lane) {
        for (std::size_t i = 0; i < 4; ++i) all_a[lane].words[i] = word(lane, i);
        for (std::size_t i = 0; i < 2; ++i) all_b[lane].words[i] = word(lane, 4 + i);
      }
      emulated::Product<T>(all_a, all_b).add_to(thread_ % 32, c(thread_));
    });
  }
  /// At once: a thread that still reads what was there sees it.
  void copy(buzz::cuda::Bits& to, const void* from) { std::memcpy(&to, from, sizeof to); }
  void arrive() { team_.all.wait(); }
  template <class F>
  bool any(F&& f) {
    its(thread_).assign(1, f(thread_) ? 1 : 0);
    team_.all.wait();
    const bool result =
        std::any_of(team_.exchange.begin(), team_.exchange.end(), [](const auto& x) { return x[0] != 0; });
    team_.all.wait();
    return result;
  }
  void add(int* counter, int n) { __atomic_fetch_add(counter, n, __ATOMIC_RELAXED); }

 private:
  /// All of a warp have left their first `given` values before any calls take(i) for i < taken, and all have before any
  /// goes on.
  template <class X, class Take>
  void exchange(const X* x, int given, int taken, Take&& take) {
    Fibers::Barrier& warp = *team_.warps[static_cast<std::size_t>(thread_ / 32)];
    its(thread_).assign(x, x + given);
    warp.wait();
    for (int i = 0; i < taken; ++i) take(i);
    warp.wait();
  }
  std::vector<double>& its(int thread) { return team_.exchange[static_cast<std::size_t>(thread)]; }

  Team& team_;
  int x_, y_, z_, thread_;
};

struct Launcher {
  using Stream = int;
  using Result = int;
  static constexpr Result success = 0, invalid = 1;

  template <class Kernel>
  static int most_at_once() {
    return emulated::Launcher::most_at_once<Kernel>();
  }
  template <class Kernel>
  static Result launch(const Kernel& kernel, buzz::cuda::Grid grid, Stream) {
    struct Running {
      explicit Running(Fibers& fibers) : team(fibers, Kernel::threads) {
        std::memset(static_cast<void*>(&shared), 0xff, sizeof shared);
      }
      Team team;
      typename Kernel::Shared shared;
    };
    Fibers fibers;
    std::vector<std::unique_ptr<Running>> blocks;
    for (int b = 0; b < std::max(0, grid.x) * grid.y * grid.z; ++b) {
      blocks.push_back(std::make_unique<Running>(fibers));
      Running& running = *blocks.back();
      for (int t = 0; t < Kernel::threads; ++t)
        fibers.add([=, &kernel, &running] {
          Block block(running.team, b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y, t);
          kernel(block, running.shared);
        });
    }
    fibers.run();
    return success;
  }
};

/// A few steps with evictions, on threads and emulated in phases: the same bits.
void expect_the_same(const buzz::Policy& policy, const buzz::Rope& rope, int kept_logits,
                     const buzz::AttentionOptions& attention = {}) {
  const buzz::Shape shape{2, 1, 16, 4};
  buzz::cuda::Batch batch;
  batch.kept_logits = kept_logits;
  batch.splits = 2;
  emulated::Twin<float> twin(shape, batch, policy, rope, attention);
  using Cache = buzz::cuda::BasicCache<float, Launcher>;
  const buzz::cuda::Bytes bytes = Cache::bytes(shape, batch, policy, rope);
  emulated::Memory memory(bytes.cache), workspace(bytes.workspace);
  Cache cache(shape, batch, policy, rope, memory.data(), workspace.data(), attention);
  ASSERT_EQ(cache.reset(0), 0);
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
    ASSERT_EQ(cache.attend(view(q, 2), view(k, 1), view(v, 1), buzz::cuda::dense(out.data(), tokens, 2, 16), call, 0),
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
  phases.template run<emulated::Launcher>(1);
  threads.template run<Launcher>(1);
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
  Launcher::launch(kernel, {kernel.blocks(), 1, 1}, 0);
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(values, expected);
  EXPECT_EQ(state.then.rows, 700);
}

}  // namespace
