#pragma once

#include <Eigen/Core>
#include <cmath>
#include <type_traits>
#include <vector>

#include "buzz/view.h"

namespace bench {

/// The attention of one token as one writes it in Eigen: for each KV head the product with the keys, softmax, the
/// product with the values. Rows that are not float are cast into a float copy first.
/// q, out: [query_heads, head_dim]; keys, values: [kv_heads, rows, head_dim].
template <class T>
void plain_attention(const float* q, const buzz::View<const T>& keys, const buzz::View<const T>& values,
                     int query_heads, float* out) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Rows = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
  const int rows = keys.shape(1), dim = keys.shape(2), group = query_heads / keys.shape(0);
  const float scale = 1 / std::sqrt(static_cast<float>(dim));

  const auto head = [&](const auto& k, const auto& v, int h) {
    Eigen::Map<const Matrix> queries(q + h * group * dim, group, dim);
    Matrix p = scale * (queries * k.transpose());
    for (int i = 0; i < group; ++i) {
      p.row(i) = (p.row(i).array() - p.row(i).maxCoeff()).exp();
      p.row(i) /= p.row(i).sum();
    }
    Eigen::Map<Matrix>(out + h * group * dim, group, dim).noalias() = p * v;
  };
  for (int h = 0; h < keys.shape(0); ++h) {
    const Rows k(keys.row(h, 0), rows, dim), v(values.row(h, 0), rows, dim);
    if constexpr (std::is_same_v<T, float>)
      head(k, v, h);
    else
      head(Matrix(k.template cast<float>()), Matrix(v.template cast<float>()), h);
  }
}

}  // namespace bench
