#pragma once

// The kernels of include/buzz/cuda on the host: their bodies are the device's, word for word. A phase runs for all
// threads of a block in an order drawn anew each time, before the next phase begins.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "buzz/cuda/block.cuh"
#include "cuda_fragments.h"
#include "sanitizers.h"

namespace emulated {

/// How often a test draws of `all` times. AddressSanitizer makes each take ten times as long, and what it looks for is
/// in every one.
constexpr unsigned draws(int all) {
#ifdef BUZZ_TEST_ASAN
  return static_cast<unsigned>(all + 5) / 6;
#else
  return static_cast<unsigned>(all);
#endif
}
/// And of sizes that are tried one after another: prime to all that the kernels take at once.
constexpr int stride = draws(2) == 2 ? 1 : 7;

class Block {
 public:
  template <class V>
  class Private {
   public:
    explicit Private(const Block& block) : values_(static_cast<std::size_t>(block.threads())) {
      // Registers hold anything at first.
      std::memset(static_cast<void*>(values_.data()), 0xff, values_.size() * sizeof(V));
    }
    V& operator[](int thread) { return values_[static_cast<std::size_t>(thread)]; }

   private:
    std::vector<V> values_;
  };

  Block(int x, int y, int z, int threads, unsigned seed)
      : x_(x), y_(y), z_(z), order_(static_cast<std::size_t>(threads)), random_(seed) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  int x() const { return x_; }
  int y() const { return y_; }
  int z() const { return z_; }
  int threads() const { return static_cast<int>(order_.size()); }

  template <class F>
  void phase(F&& f) {
    for (std::size_t left = order_.size(); left > 1; --left) {
      // Marsaglia's: <random> is slow where little is optimised.
      random_ ^= random_ << 13;
      random_ ^= random_ >> 17;
      random_ ^= random_ << 5;
      std::swap(order_[left - 1], order_[std::uint64_t{random_} * left >> 32]);
    }
    for (const int t : order_) f(t);
  }
  template <class F>
  void alone(F&& f) {
    phase(f);
  }
  template <int lanes, class V, class W, class X, int n>
  void add_lanes(Private<V>& threads, X (W::*values)[n]) {
    for (int first = 0; first < this->threads(); first += lanes)
      for (int i = 0; i < n; ++i)
        for (int offset = lanes / 2; offset > 0; offset /= 2) {
          X sums[lanes];
          for (int l = 0; l < lanes; ++l)
            sums[l] = (threads[first + l].*values)[i] + (threads[first + (l ^ offset)].*values)[i];
          for (int l = 0; l < lanes; ++l) (threads[first + l].*values)[i] = sums[l];
        }
  }
  template <int count, int offset, class V, class W, class X, int n>
  void swap(Private<V>& threads, X (W::*values)[n]) {
    for (int t = 0; t < this->threads(); ++t)
      if ((t & offset) == 0)
        std::swap_ranges(threads[t].*values, threads[t].*values + count, threads[t + offset].*values);
  }
  template <int lanes, class V, class W, class X, int n>
  void share(Private<V>& threads, X (W::*values)[n]) {
    constexpr int own = std::max(1, n / lanes);
    for (int first = 0; first < this->threads(); first += lanes) {
      X all[n];
      for (int i = 0; i < n; ++i) all[i] = (threads[first + i * lanes / n].*values)[i % own];
      for (int l = 0; l < lanes; ++l) std::copy_n(all, n, threads[first + l].*values);
    }
  }
  template <class V, class W, class U, class X, int n, int m, class F>
  void pick(Private<V>& threads, X (W::*from)[n], X (U::*to)[m], F&& lane) {
    for (int t = 0; t < this->threads(); ++t)
      for (int k = 0; k < m; ++k) (threads[t].*to)[k] = (threads[t / 32 * 32 + lane(t, k)].*from)[k * n / m];
  }
  template <class T, class A, class B, class C>
  void multiply(A&& a, B&& b, C&& c) {
    for (int first = 0; first < threads(); first += 32) {
      buzz::cuda::Bits its_a[32];
      buzz::cuda::Pair its_b[32];
      for (int lane = 0; lane < 32; ++lane) its_a[lane] = a(first + lane);
      for (int lane = 0; lane < 32; ++lane) its_b[lane] = b(first + lane);
      const Product<T> product(its_a, its_b);
      for (int lane = 0; lane < 32; ++lane) product.add_to(lane, c(first + lane));
    }
  }
  /// As late as can be.
  void copy(buzz::cuda::Bits& to, const void* from) { copies_.emplace_back(&to, from); }
  void arrive() {
    for (const auto& [to, from] : copies_) std::memcpy(to, from, sizeof *to);
    copies_.clear();
  }
  template <class F>
  bool any(F&& f) {
    bool result = false;
    phase([&](int t) { result |= f(t); });
    return result;
  }
  void add(int* counter, int n) { *counter += n; }

 private:
  int x_, y_, z_;
  std::vector<int> order_;
  std::uint32_t random_;  // never 0
  std::vector<std::pair<buzz::cuda::Bits*, const void*>> copies_;
};

/// Launches run at once, or, as in a capture, are kept for later with the arguments that they have now.
struct Stream {
  Stream(int s) : seed(s) {}  // NOLINT: of the orders
  explicit Stream(std::vector<std::function<void()>>* g) : graph(g) {}
  explicit Stream(std::function<int(buzz::cuda::Grid&)> b) : seed(1), before(std::move(b)) {}
  int seed = 0;
  std::vector<std::function<void()>>* graph = nullptr;
  std::function<int(buzz::cuda::Grid&)> before;  // sees a launch, and may change it; but 0 refuses it
};

/// Runs all blocks of a launch, in random order too.
struct Launcher {
  using Stream = emulated::Stream;
  using Result = int;
  static constexpr Result success = 0, invalid = 1;

  template <class Kernel>
  static int most_at_once() {
    return 512;
  }
  template <class Kernel>
  static Result launch(const Kernel& kernel, buzz::cuda::Grid grid, const Stream& stream) {
    const Result refused = stream.before ? stream.before(grid) : success;
    if (refused != success) return refused;
    if (stream.graph != nullptr) {
      stream.graph->push_back([=] { run(kernel, grid, 1); });
      return success;
    }
    run(kernel, grid, stream.seed);
    return success;
  }

 private:
  template <class Kernel>
  static void run(const Kernel& kernel, buzz::cuda::Grid grid, int seed) {
    std::minstd_rand random(static_cast<unsigned>(seed));
    std::vector<int> blocks(static_cast<std::size_t>(std::max(0, grid.x) * grid.y * grid.z));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const int b : blocks) {
      typename Kernel::Shared shared;
      std::memset(static_cast<void*>(&shared), 0xff, sizeof shared);
      Block block(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y, Kernel::threads,
                  static_cast<unsigned>(random()));
      kernel(block, shared);
    }
  }
};

}  // namespace emulated
