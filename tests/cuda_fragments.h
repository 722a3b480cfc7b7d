#pragma once

// What a warp's mma.m16n8k16 leaves in its lanes, from the tables of the PTX ISA ("Matrix fragments for mma.m16n8k16
// with floating point type") as they are there, apart from what the library makes of them.

#include "buzz/cuda/mma.cuh"

namespace emulated {

/// The product of the fragments of a warp's 32 lanes, in float. Of Eigen::half and Eigen::bfloat16.
template <class T>
class Product {
 public:
  Product(const buzz::cuda::Bits (&a)[32], const buzz::cuda::Pair (&b)[32]);

  /// Adds what is a lane's of it.
  void add_to(int lane, float (&c)[4]) const;

 private:
  float product_[16][8];
};

}  // namespace emulated
