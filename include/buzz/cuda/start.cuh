#pragma once

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

}  // namespace cuda
}  // namespace buzz
