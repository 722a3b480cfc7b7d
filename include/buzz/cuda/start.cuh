#pragma once

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/lengths.cuh"

namespace buzz {
namespace cuda {

/// Sets the states of sequences to nothing appended, and the frequencies of the rotation, which come along as an
/// argument so that no copy from the host is needed. One block.
struct Start {
  static constexpr int threads = 128, most = 128;
  struct Shared {};

  State* states;
  int sequences;
  double* frequencies;  // [count]
  int count;
  double given[most];

  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    block.alone([&](int t) {
      for (int s = t; s < sequences; s += threads) states[s] = State();
      if (t < count) frequencies[t] = given[t];
    });
  }
};

}  // namespace cuda
}  // namespace buzz
