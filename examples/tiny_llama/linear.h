// A matrix of weights in whatever format the file has it, and the product with it.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "buzz/executor.h"
#include "tiny_llama/gguf.h"

namespace tiny_llama {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::Matrix<float, 1, Eigen::Dynamic>;

/// [rows, columns], as the file's bytes: a few rows at a time become floats, in a thread's own buffer, and Eigen does
/// the product with those. One row of x is multiplied a block at a time.
class Linear {
 public:
  Linear() = default;
  /// A copy of a tensor of two axes. Errors: see check_finite().
  explicit Linear(const Tensor& tensor);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  bool empty() const { return bytes_.empty(); }
  std::size_t bytes() const { return bytes_.size(); }

  /// Rows first to first + count - 1 as floats, [count, columns].
  void read(int first, int count, float* out) const;

  /// The rows that make one piece of work of a product with so many rows of x: the same whoever runs it.
  static int piece_rows(Eigen::Index tokens) { return tokens == 1 ? 32 : 64; }

  /// Piece number `piece` of y = x * its transpose. x: [n, columns]; y: [n, rows].
  void multiply(const Eigen::Ref<const Matrix>& x, Eigen::Ref<Matrix> y, int piece) const;

 private:
  const char* row(int i) const {
    return bytes_.data() + bytes_.size() / static_cast<std::size_t>(rows_) * static_cast<std::size_t>(i);
  }

  TensorType type_ = TensorType::f32;
  int rows_ = 0, columns_ = 0;
  std::vector<char> bytes_;
};

/// A matrix, and where the product with it goes: [n, rows].
struct Product {
  const Linear& weights;
  Eigen::Ref<Matrix> y;
};

/// y = x * the transpose of its weights, of each product, all of them cut into the same pieces whoever runs them: the
/// results are the same bits. x: [n, columns].
void multiply(const Eigen::Ref<const Matrix>& x, std::initializer_list<Product> products, buzz::Executor run = {});

}  // namespace tiny_llama
