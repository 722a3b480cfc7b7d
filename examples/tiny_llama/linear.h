// A matrix of weights in whatever format the file has it, and the product with it.
#pragma once

#include <Eigen/Core>
#include <algorithm>
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
    quant::to_float(type_, row(first), std::int64_t{count} * columns_, out);
  }

  /// The rows that make one piece of work of a product with so many rows of x: the same whoever runs it.
  static int piece_rows(Eigen::Index tokens) { return tokens == 1 ? 32 : 64; }

  /// Piece number `piece` of y = x * its transpose. x: [n, columns]; y: [n, rows].
  void multiply(const Eigen::Ref<const Matrix>& x, Eigen::Ref<Matrix> y, int piece) const {
    const int most = piece_rows(x.rows()), first = piece * most, count = (std::min)(most, rows_ - first);
    if (x.rows() == 1) {
      quant::with_format(type_, [&](auto format) {
        multiply_one<decltype(format)>(row(first), count, columns_, x.data(), y.data() + first);
      });
    } else {
      Eigen::Map<Matrix> weights(buffer(std::ptrdiff_t{count} * columns_), count, columns_);
      read(first, count, weights.data());
      y.middleCols(first, count).noalias() = x * weights.transpose();
    }
  }

 private:
  const char* row(int i) const {
    return bytes_.data() + bytes_.size() / static_cast<std::size_t>(rows_) * static_cast<std::size_t>(i);
  }

  /// y[i] = x * row i, of `count` rows. x: [columns].
  template <class F>
  static void multiply_one(const char* rows, int count, int columns, const float* x, float* y) {
    const std::ptrdiff_t blocks = columns / F::numbers, row_bytes = blocks * F::bytes;
    if constexpr (F::numbers == 1) {  // a row at a time, which stays in the first-level cache
      Eigen::Map<Vector> row(buffer(columns), columns);
      for (int i = 0; i < count; ++i) {
        quant::to_float(F::type, rows + row_bytes * i, columns, row.data());
        y[i] = row.dot(Eigen::Map<const Vector>(x, columns));
      }
    } else {
      const int parts = columns / F::part;
      Eigen::Map<Vector> sums(buffer(parts), parts);
      for (int p = 0; p < parts; ++p)
        sums[p] = Eigen::Map<const Eigen::Array<float, F::part, 1>>(x + p * F::part).sum();
      for (int i = 0; i < count; ++i) y[i] = quant::dot_blocks<F>(rows + row_bytes * i, blocks, x, sums.data());
    }
  }

  static float* buffer(std::ptrdiff_t size) {
    static thread_local Vector floats;
    if (floats.size() < size) floats.resize(size);
    return floats.data();
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
inline void multiply(const Eigen::Ref<const Matrix>& x, std::initializer_list<Product> products,
                     buzz::Executor run = {}) {
  const int rows = Linear::piece_rows(x.rows());
  const auto pieces = [&](const Product& p) { return (p.weights.rows() + rows - 1) / rows; };
  int all = 0;
  for (const Product& p : products) all += pieces(p);
  run(all, [&](int piece) {
    const Product* p = products.begin();
    for (; piece >= pieces(*p); ++p) piece -= pieces(*p);
    p->weights.multiply(x, p->y, piece);
  });
}

}  // namespace tiny_llama
