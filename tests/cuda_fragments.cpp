#include "cuda_fragments.h"

#include <Eigen/Core>
#include <cstdint>
#include <cstring>

namespace emulated {

namespace {

template <class T>
float element(const std::uint32_t* fragment, int i) {
  T value;
  std::memcpy(static_cast<void*>(&value), reinterpret_cast<const char*>(fragment) + i * static_cast<int>(sizeof value),
              sizeof value);
  return static_cast<float>(value);
}

}  // namespace

template <class T>
Product<T>::Product(const buzz::cuda::Bits (&a)[32], const buzz::cuda::Pair (&b)[32]) : product_() {
  float all_a[16][16], all_b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8, column = in_group * 2 + (i & 1);
      all_a[row][i < 4 ? column : column + 8] = element<T>(a[lane].words, i);
    }
    for (int i = 0; i < 4; ++i) {
      const int row = in_group * 2 + (i & 1);
      all_b[i < 2 ? row : row + 8][group] = element<T>(b[lane].words, i);
    }
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) product_[row][column] += all_a[row][k] * all_b[k][column];
}

template <class T>
void Product<T>::add_to(int lane, float (&c)[4]) const {
  for (int i = 0; i < 4; ++i) {
    const int group = lane >> 2, row = i < 2 ? group : group + 8, column = lane % 4 * 2 + (i & 1);
    c[i] += product_[row][column];
  }
}

template class Product<Eigen::half>;
template class Product<Eigen::bfloat16>;

}  // namespace emulated
