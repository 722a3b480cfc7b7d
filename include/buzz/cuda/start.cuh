#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/lengths.cuh"

namespace buzz {
namespace cuda {

/// Sets the states of sequences to nothing appended, and the frequencies of the rotation, which come along as an
/// argument so that no copy from the host is needed. One block: grid (1, 1, 1).
struct Start {
  static constexpr int threads = 128;  ///< of the block
  static constexpr int most = 128;     ///< most frequencies
  /// None.
  struct Shared {};

  State* states;        ///< [sequences], to write
  int sequences;        ///< how many
  double* frequencies;  ///< [count], to write
  int count;            ///< how many, up to `most`
  double given[most];   ///< [count], radians a position

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    block.alone([&](int t) {
      for (int s = t; s < sequences; s += threads) states[s] = State();
      if (t < count) frequencies[t] = given[t];
    });
  }
};

/// Writes numbers that come along as an argument, as Start's do. One block: grid (1, 1, 1).
struct Give {
  static constexpr int threads = 128;  ///< of the block
  static constexpr int most = 512;     ///< most numbers
  /// None.
  struct Shared {};

  float* to;          ///< [count], to write
  int count;          ///< how many, up to `most`
  float given[most];  ///< [count]

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    block.alone([&](int t) {
      for (int i = t; i < count; i += threads) to[i] = given[i];
    });
  }
};

/// Launches as many of them as `numbers` take. Errors: what the launches give.
template <class Launcher>
typename Launcher::Result give(const std::vector<float>& numbers, float* to, typename Launcher::Stream stream) {
  Give kernel{to, 0, {}};
  typename Launcher::Result result = Launcher::success;
  for (std::size_t i = 0; i < numbers.size() && result == Launcher::success; i += Give::most) {
    kernel.to = to + i;
    kernel.count = static_cast<int>((std::min)(numbers.size() - i, std::size_t{Give::most}));
    std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(i), kernel.count, kernel.given);
    result = Launcher::launch(kernel, {1, 1, 1}, stream);
  }
  return result;
}

/// Between steps: the newest rows of sequences never came. One block: grid (1, 1, 1).
struct Rollback {
  static constexpr int threads = 128;  ///< of the block
  static constexpr int most = 512;     ///< most sequences
  /// None.
  struct Shared {};

  State* states;     ///< [count], whose `then` becomes shorter
  int count;         ///< how many, up to `most`
  int tokens[most];  ///< [count], the rows of each

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    block.alone([&](int t) {
      for (int s = t; s < count; s += threads) states[s].then = appended(states[s].then, -tokens[s]);
    });
  }
};

}  // namespace cuda
}  // namespace buzz
