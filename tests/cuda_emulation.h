#pragma once

// The kernels of include/buzz/cuda on the host: their bodies are the device's, word for word. A phase runs for all
// threads of a block in an order drawn anew each time, before the next phase begins. Or each thread is a fiber
// (fibers.h), of all blocks of a launch at once: they take turns in a random order, and only where they wait.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "buzz/cuda/block.cuh"
#include "cuda_fragments.h"
#include "fibers.h"

namespace emulated {

/// What the threads of a block have in common: where they wait, if they are fibers, and what they give each other.
class Team {
 public:
  explicit Team(int threads, Fibers* fibers = nullptr) : threads_(threads), given_(number(threads) * kMost) {
    if (fibers == nullptr) return;
    all_ = std::make_unique<Fibers::Barrier>(*fibers, threads);
    for (int t = 0; t < threads; t += 32) warps_.push_back(std::make_unique<Fibers::Barrier>(*fibers, 32));
  }
  int threads() const { return threads_; }
  bool of_fibers() const { return all_ != nullptr; }
  void wait() {
    if (of_fibers()) all_->wait();
  }
  void wait_for_warp(int thread) {
    if (of_fibers()) warps_[number(thread / 32)]->wait();
  }
  template <class X>
  void give(int thread, const X* values, int n) {
    if (sizeof(X) * number(n) > kMost * sizeof given_[0]) std::abort();
    std::memcpy(&given_[number(thread) * kMost], values, sizeof(X) * number(n));
  }
  template <class X>
  const X* given(int thread) const {
    return reinterpret_cast<const X*>(&given_[number(thread) * kMost]);
  }

 private:
  static constexpr std::size_t kMost = 32;
  static std::size_t number(int i) { return static_cast<std::size_t>(i); }

  int threads_;
  std::vector<double> given_;  // aligned for all that it may be
  std::unique_ptr<Fibers::Barrier> all_;
  std::vector<std::unique_ptr<Fibers::Barrier>> warps_;
};

/// The threads of a block, or one that is a fiber.
class Block {
 public:
  template <class V>
  class Private {
   public:
    explicit Private(const Block& block) : values_(block.order_.size()), first_(block.first_) {
      // Registers hold anything at first.
      std::memset(static_cast<void*>(values_.data()), 0xff, values_.size() * sizeof(V));
    }
    V& operator[](int thread) { return values_[static_cast<std::size_t>(thread - first_)]; }

   private:
    std::vector<V> values_;
    int first_;
  };

  /// Of `count` threads from `first` on: all of the team's, or one.
  Block(Team& team, int x, int y, int z, int first, int count, unsigned seed)
      : team_(team),
        x_(x),
        y_(y),
        z_(z),
        first_(first),
        end_(first + count),
        order_(static_cast<std::size_t>(count)),
        random_(seed) {
    std::iota(order_.begin(), order_.end(), first);
  }
  int x() const { return x_; }
  int y() const { return y_; }
  int z() const { return z_; }

  template <class F>
  void phase(F&& f) {
    for (const int t : order()) f(t);
    team_.wait();
  }
  template <class F>
  void alone(F&& f) {
    for (const int t : order()) f(t);
  }
  template <int lanes, class V, class W, class X, int n>
  void add_lanes(Private<V>& threads, X (W::*values)[n]) {
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      exchange<X>([&](int t) { return threads[t].*values; }, n,
                  [&](int t) {
                    const X* its = team_.given<X>(t ^ offset);
                    for (int i = 0; i < n; ++i) (threads[t].*values)[i] += its[i];
                  });
  }
  template <int count, int offset, class V, class W, class X, int n>
  void swap(Private<V>& threads, X (W::*values)[n]) {
    exchange<X>([&](int t) { return threads[t].*values; }, count,
                [&](int t) { std::copy_n(team_.given<X>(t ^ offset), count, threads[t].*values); });
  }
  template <int lanes, class V, class W, class X, int n>
  void share(Private<V>& threads, X (W::*values)[n]) {
    constexpr int own = std::max(1, n / lanes);
    exchange<X>([&](int t) { return threads[t].*values; }, own,
                [&](int t) {
                  for (int i = 0; i < n; ++i)
                    (threads[t].*values)[i] = team_.given<X>(t / lanes * lanes + i * lanes / n)[i % own];
                });
  }
  template <class V, class W, class U, class X, int n, int m, class F>
  void pick(Private<V>& threads, X (W::*from)[n], X (U::*to)[m], F&& lane) {
    exchange<X>([&](int t) { return threads[t].*from; }, n,
                [&](int t) {
                  for (int k = 0; k < m; ++k) (threads[t].*to)[k] = team_.given<X>(t / 32 * 32 + lane(t, k))[k * n / m];
                });
  }
  template <class T, class A, class B, class C>
  void multiply(A&& a, B&& b, C&& c) {
    struct Given {
      buzz::cuda::Bits a;
      buzz::cuda::Pair b;
    };
    Given given;
    std::unique_ptr<Product<T>> product;  // of the warp that is under way
    exchange<Given>(
        [&](int t) {
          given = {a(t), b(t)};
          return &given;
        },
        1,
        [&](int t) {
          if (t == first_ || t % 32 == 0) {
            buzz::cuda::Bits its_a[32];
            buzz::cuda::Pair its_b[32];
            for (int lane = 0; lane < 32; ++lane) {
              const Given& its = *team_.given<Given>(t / 32 * 32 + lane);
              its_a[lane] = its.a;
              its_b[lane] = its.b;
            }
            product = std::make_unique<Product<T>>(its_a, its_b);
          }
          product->add_to(t % 32, c(t));
        });
  }
  /// In phases, as late as can be. A fiber's, at once: a thread that still reads what was there sees it.
  void copy(buzz::cuda::Bits& to, const void* from) {
    copies_.emplace_back(&to, from);
    if (team_.of_fibers()) copy_all();
  }
  void arrive() {
    copy_all();
    team_.wait();
  }
  template <class F>
  bool any(F&& f) {
    for (const int t : order()) {
      const bool its = f(t);
      team_.give(t, &its, 1);
    }
    team_.wait();
    bool result = false;
    for (int t = 0; t < team_.threads(); ++t) result |= *team_.given<bool>(t);
    team_.wait();
    return result;
  }
  void add(int* counter, int n) { __atomic_fetch_add(counter, n, __ATOMIC_RELAXED); }

 private:
  const std::vector<int>& order() {
    for (std::size_t left = order_.size(); left > 1; --left) {
      // Marsaglia's: <random> is slow where little is optimised.
      random_ ^= random_ << 13;
      random_ ^= random_ >> 17;
      random_ ^= random_ << 5;
      std::swap(order_[left - 1], order_[std::uint64_t{random_} * left >> 32]);
    }
    return order_;
  }
  /// All of a warp give what of(thread) points to, then all take(thread), and then all go on.
  template <class X, class Of, class Take>
  void exchange(Of&& of, int n, Take&& take) {
    for (int t = first_; t < end_; ++t) team_.give<X>(t, of(t), n);
    team_.wait_for_warp(first_);
    for (int t = first_; t < end_; ++t) take(t);
    team_.wait_for_warp(first_);
  }
  void copy_all() {
    for (const auto& [to, from] : copies_) std::memcpy(to, from, sizeof *to);
    copies_.clear();
  }

  Team& team_;
  int x_, y_, z_, first_, end_;
  std::vector<int> order_;
  std::uint32_t random_;  // never 0
  std::vector<std::pair<buzz::cuda::Bits*, const void*>> copies_;
};

/// Launches run at once, or, as in a capture, are kept for later with the arguments that they have now.
struct Stream {
  Stream(int s) : seed(s) {}  // NOLINT: of the orders
  explicit Stream(std::vector<std::function<void()>>* g) : graph(g) {}
  explicit Stream(std::function<int(buzz::cuda::Grid&)> b) : seed(1), before(std::move(b)) {}
  /// Whose threads are fibers.
  static Stream of_fibers() {
    Stream result(0);
    result.fibers = true;
    return result;
  }
  int seed = 0;
  bool fibers = false;
  std::vector<std::function<void()>>* graph = nullptr;
  std::function<int(buzz::cuda::Grid&)> before;  // sees a launch, and may change it; but 0 refuses it
};

/// Runs all blocks of a launch, in random order too.
struct Launcher {
  using Stream = emulated::Stream;
  using Result = int;
  static constexpr Result success = 0, invalid = 1;

  /// How many blocks of any kernel the device holds; 0: there is nothing to ask.
  static inline int at_once = 512;
  template <class Kernel>
  static int most_at_once() {
    return at_once;
  }
  template <class Kernel>
  static Result launch(const Kernel& kernel, buzz::cuda::Grid grid, const Stream& stream) {
    static_assert(std::is_trivial<typename Kernel::Shared>::value, "");
    static_assert(alignof(typename Kernel::Shared) <= alignof(Piece), "");
    const Result refused = stream.before ? stream.before(grid) : success;
    if (refused != success) return refused;
    const auto body = [kernel](Block& block, void* shared) {
      kernel(block, *static_cast<typename Kernel::Shared*>(shared));
    };
    const Launch launch{body, grid, Kernel::threads, sizeof(typename Kernel::Shared)};
    if (stream.fibers) {
      launch.run_fibers();
    } else if (stream.graph != nullptr) {
      stream.graph->push_back([launch] { launch.run_phases(1); });
    } else {
      launch.run_phases(stream.seed);
    }
    return success;
  }

 private:
  struct alignas(std::max_align_t) Piece {
    char bytes[sizeof(std::max_align_t)];
  };
  /// A kernel's, whichever it is.
  struct Launch {
    std::function<void(Block&, void*)> body;
    buzz::cuda::Grid grid;
    int threads;
    std::size_t shared_bytes;

    void run_phases(int seed) const {
      std::minstd_rand random(static_cast<unsigned>(seed));
      std::vector<int> order(static_cast<std::size_t>(blocks()));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      Team team(threads);
      for (const int b : order) {
        std::vector<Piece> shared = this->shared();
        run(b, team, 0, threads, static_cast<unsigned>(random()), shared.data());
      }
    }
    void run_fibers() const {
      struct Running {
        Team team;
        std::vector<Piece> shared;
      };
      Fibers fibers;
      std::vector<std::unique_ptr<Running>> all;
      for (int b = 0; b < blocks(); ++b) {
        all.push_back(std::make_unique<Running>(Running{Team(threads, &fibers), shared()}));
        Running& its = *all.back();
        for (int t = 0; t < threads; ++t)
          fibers.add([this, &its, b, t] { run(b, its.team, t, 1, 1, its.shared.data()); });
      }
      fibers.run();
    }

   private:
    int blocks() const { return std::max(0, grid.x) * grid.y * grid.z; }
    /// It holds anything at first.
    std::vector<Piece> shared() const {
      std::vector<Piece> result((shared_bytes + sizeof(Piece) - 1) / sizeof(Piece));
      std::memset(static_cast<void*>(result.data()), 0xff, shared_bytes);
      return result;
    }
    void run(int b, Team& team, int first, int count, unsigned seed, void* shared) const {
      Block block(team, b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y, first, count, seed);
      body(block, shared);
    }
  };
};

}  // namespace emulated
