#pragma once

// What a warp's mma.m16n8k16 leaves in its lanes, from the tables of the PTX ISA ("Matrix fragments for mma.m16n8k16
// with floating point type") as they are there, apart from what the library makes of them.

#include <cstdint>
#include <cstring>

#include "buzz/cuda/mma.cuh"

namespace emulated {

/// A product's factors, of the fragments that a(lane), a Bits, and b(lane), a Pair, give for the 32 lanes of a warp.
template <class T>
class Factors {
 public:
  template <class A, class B>
  Factors(A&& a, B&& b) {
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane >> 2, in_group = lane % 4;
      const buzz::cuda::Bits its_a = a(lane);
      const buzz::cuda::Pair its_b = b(lane);
      for (int i = 0; i < 8; ++i) {
        const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8, column = in_group * 2 + (i & 1);
        a_[row][i < 4 ? column : column + 8] = element(its_a.words, i);
      }
      for (int i = 0; i < 4; ++i) {
        const int row = in_group * 2 + (i & 1);
        b_[i < 2 ? row : row + 8][group] = element(its_b.words, i);
      }
    }
  }

  /// Adds what is a lane's of the product, in float.
  void add_product(int lane, float (&c)[4]) const {
    for (int i = 0; i < 4; ++i) {
      const int group = lane >> 2, row = i < 2 ? group : group + 8, column = lane % 4 * 2 + (i & 1);
      for (int k = 0; k < 16; ++k) c[i] += a_[row][k] * b_[k][column];
    }
  }

 private:
  static float element(const std::uint32_t* fragment, int i) {
    T value;
    std::memcpy(static_cast<void*>(&value),
                reinterpret_cast<const char*>(fragment) + i * static_cast<int>(sizeof value), sizeof value);
    return static_cast<float>(value);
  }

  float a_[16][16], b_[16][8];
};

}  // namespace emulated
