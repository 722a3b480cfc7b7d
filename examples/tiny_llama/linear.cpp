#include "tiny_llama/linear.h"

#include <algorithm>

namespace tiny_llama {
namespace {

float* buffer(std::ptrdiff_t size) {
  static thread_local Vector floats;
  if (floats.size() < size) floats.resize(size);
  return floats.data();
}

/// y[i] = x * row i, of `count` rows. x: [columns].
template <class F>
void multiply_one(const char* rows, int count, int columns, const float* x, float* y) {
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
    for (int p = 0; p < parts; ++p) sums[p] = Eigen::Map<const Eigen::Array<float, F::part, 1>>(x + p * F::part).sum();
    for (int i = 0; i < count; ++i) y[i] = quant::dot_blocks<F>(rows + row_bytes * i, blocks, x, sums.data());
  }
}

}  // namespace

Linear::Linear(const Tensor& tensor)
    : type_(tensor.type),
      rows_(static_cast<int>(tensor.shape[0])),
      columns_(static_cast<int>(tensor.shape[1])),
      bytes_(tensor.bytes.begin(), tensor.bytes.end()) {
  check_finite(tensor);
}

void Linear::read(int first, int count, float* out) const {
  quant::to_float(type_, row(first), std::int64_t{count} * columns_, out);
}

void Linear::multiply(const Eigen::Ref<const Matrix>& x, Eigen::Ref<Matrix> y, int piece) const {
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

void multiply(const Eigen::Ref<const Matrix>& x, std::initializer_list<Product> products, buzz::Executor run) {
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
