// A matrix of weights in whatever format the file has it, and the product with it.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <vector>

#include "buzz/executor.h"
#include "tiny_llama/gguf.h"

namespace tiny_llama {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::Matrix<float, 1, Eigen::Dynamic>;

/// [rows, columns], as the file's bytes: a few rows at a time become floats, in a thread's own buffer, and Eigen does
/// the product with those.
class Linear {
 public:
  Linear() = default;
  /// A copy of a tensor of two axes. Errors: see check_finite().
  explicit Linear(const Tensor& tensor)
      : type_(tensor.type),
        rows_(static_cast<int>(tensor.shape[0])),
        columns_(static_cast<int>(tensor.shape[1])),
        bytes_(tensor.bytes.begin(), tensor.bytes.end()) {
    check_finite(tensor);
  }

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  bool empty() const { return bytes_.empty(); }
  std::size_t bytes() const { return bytes_.size(); }

  /// Rows first to first + count - 1 as floats, [count, columns].
  void read(int first, int count, float* out) const {
    const std::size_t row_bytes = bytes_.size() / static_cast<std::size_t>(rows_);
    quant::to_float(type_, bytes_.data() + row_bytes * static_cast<std::size_t>(first), std::int64_t{count} * columns_,
                    out);
  }

  /// y = x * its transpose. x: [n, columns]; y: [n, rows]. The same bits whoever runs it.
  void multiply(const Eigen::Ref<const Matrix>& x, Eigen::Ref<Matrix> y, buzz::Executor run = {}) const {
    const int tile = x.rows() == 1 ? 32 : 64;  // rows a piece of work
    run((rows_ + tile - 1) / tile, [&](int piece) {
      const int first = piece * tile, count = (std::min)(tile, rows_ - first);
      x.rows() == 1 ? multiply_row(x, first, count, y) : multiply_rows(x, first, count, y);
    });
  }

 private:
  static float* buffer(std::ptrdiff_t size) {
    static thread_local Vector floats;
    if (floats.size() < size) floats.resize(size);
    return floats.data();
  }

  void multiply_rows(const Eigen::Ref<const Matrix>& x, int first, int count, Eigen::Ref<Matrix>& y) const {
    Eigen::Map<Matrix> weights(buffer(std::ptrdiff_t{count} * columns_), count, columns_);
    read(first, count, weights.data());
    y.middleCols(first, count).noalias() = x * weights.transpose();
  }
  /// A row of weights at a time, which stays in the first-level cache.
  void multiply_row(const Eigen::Ref<const Matrix>& x, int first, int count, Eigen::Ref<Matrix>& y) const {
    Eigen::Map<Vector> weights(buffer(columns_), columns_);
    for (int i = first; i < first + count; ++i) {
      read(i, 1, weights.data());
      y(0, i) = x.row(0).dot(weights);
    }
  }

  TensorType type_ = TensorType::f32;
  int rows_ = 0, columns_ = 0;
  std::vector<char> bytes_;
};

}  // namespace tiny_llama
