#pragma once

#include <cmath>

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/step.cuh"
#include "buzz/score/kinds.h"

namespace buzz {
namespace cuda {

/// How unlike the mean of its head's keys each middle row's key is, as buzz::KeyDiversity on the host: sums in double.
/// Does nothing where there is no eviction. A block a KV head: grid (1, kv_heads, sequences). O(rows * head_dim).
template <class T>
struct KeyDiversity {
  static constexpr int threads = 256;             ///< of a block
  static constexpr int lanes = 16;                ///< threads that read a row
  static constexpr int groups = threads / lanes;  ///< rows at once
  static constexpr int most_dims = 256;           ///< most elements of a head
  /// A block's.
  struct Shared {
    double mean[most_dims];  ///< of the keys
    double part[threads];    ///< the threads' parts of it
    double squares;          ///< of the mean
  };
  /// A thread's.
  struct Lane {
    double sums[2];  ///< of a row: its squares, and its dot with the mean or its squared distance from it
  };

  StepOf<T> step;                ///< keys as stored; read
  DiversityOptions options;      ///< how keys are compared, and with which
  double* importance = nullptr;  ///< [count, kv_heads, capacity]; the middle rows' are written
  double* norms = nullptr;       ///< the same: 1 / the length of a key, 0 where that is 0; for Unlike::direction

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int head = block.y(), s = block.z();
    const Lengths now = step.states[s].now;
    const Regions r = now.regions(step.protect);
    if (!step.rule.should_evict(r.middle())) return;
    const bool all = options.mean_over == MeanOver::all;
    const int first = all ? 0 : r.sink, end = all ? now.rows : r.sink + r.middle();
    const long long at = step.begin(s, head);
    typename Block::template Private<Lane> lane(block);

    if (options.unlike == Unlike::direction) {
      for (int begin = first; begin < end; begin += groups) {
        block.alone([&](int t) { measure(lane[t], shared, t % lanes, s, head, begin + t / lanes, end); });
        block.template add_lanes<lanes>(lane, &Lane::sums);
        block.phase([&](int t) {
          const double squares = lane[t].sums[0];
          if (t % lanes == 0 && begin + t / lanes < end)
            norms[at + begin + t / lanes] = squares == 0 ? 0 : 1 / ::sqrt(squares);
        });
      }
    }
    mean_key(block, shared, s, head, first, end, norms + at);
    for (int begin = r.sink; begin < r.sink + r.middle(); begin += groups) {
      const int stop = r.sink + r.middle();
      block.alone([&](int t) { measure(lane[t], shared, t % lanes, s, head, begin + t / lanes, stop); });
      block.template add_lanes<lanes>(lane, &Lane::sums);
      block.alone([&](int t) {
        if (t % lanes != 0 || begin + t / lanes >= stop) return;
        const double sum = lane[t].sums[1], length = ::sqrt(lane[t].sums[0]) * ::sqrt(shared.squares);
        const double unlike = options.unlike == Unlike::distance ? ::sqrt(sum) : length == 0 ? 0 : -sum / length;
        importance[at + begin + t / lanes] = static_cast<double>(static_cast<float>(unlike));
      });
    }
  }

 private:
  /// shared.mean: of rows [first, end), each by its norm where directions count.
  template <class Block>
  BUZZ_DEVICE void mean_key(Block& block, Shared& shared, int s, int head, int first, int end,
                            const double* norm) const {
    // As many threads a dimension as there are, each with rows of its own.
    const int width = step.head_dim < threads ? step.head_dim : threads, stride = threads / width;
    for (int d = 0; d < step.head_dim; d += width) {
      block.phase([&](int t) {
        double sum = 0;
        if (t < stride * width && d + t % width < step.head_dim)
          for (int row = first + t / width; row < end; row += stride) {
            const double x = static_cast<double>(to_float(step.keys.row(s, head, row)[d + t % width]));
            sum += options.unlike == Unlike::direction ? norm[row] * x : x;
          }
        shared.part[t] = sum;
      });
      block.phase([&](int t) {
        if (t >= width || d + t >= step.head_dim) return;
        double sum = 0;
        for (int i = 0; i < stride; ++i) sum += shared.part[i * width + t];
        shared.mean[d + t] = sum / (end - first);
      });
    }
    block.phase([&](int t) {
      if (t != 0) return;
      shared.squares = 0;
      for (int d = 0; d < step.head_dim; ++d) shared.squares += shared.mean[d] * shared.mean[d];
    });
  }

  BUZZ_DEVICE void measure(Lane& l, const Shared& shared, int lane, int s, int head, int row, int end) const {
    l.sums[0] = l.sums[1] = 0;
    if (row >= end) return;
    const T* key = step.keys.row(s, head, row);
    for (int d = lane; d < step.head_dim; d += lanes) {
      const double x = static_cast<double>(to_float(key[d])), mean = shared.mean[d];
      l.sums[0] += x * x;
      l.sums[1] += options.unlike == Unlike::distance ? (x - mean) * (x - mean) : x * mean;
    }
  }
};

}  // namespace cuda
}  // namespace buzz
