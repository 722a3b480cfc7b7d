#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "buzz/executor.h"
#include "buzz/kernels.h"
#include "buzz/store.h"

namespace buzz {

struct AttentionOptions {
  /// Logits are multiplied by it; 0: 1 / sqrt(head_dim).
  double scale = 0;
  /// Logits are multiplied by log(n) / log(log_base) too, n the rows that the query sees (the journal version's "BUZZ
  /// with log n", whose base is 512); 0: not.
  double log_base = 0;
  /// Into how many pieces a call's work is cut for the executor; each has scratch of its own.
  int threads = 1;
};

/// What turns queries and raw keys to their positions: [tokens, dims] and [rows, dims] of Rotation::angles(). A null
/// pointer: they are as they shall be used.
struct Turn {
  const Rotation* rotation = nullptr;
  const float* queries = nullptr;
  const float* keys = nullptr;
};

/// Softmax attention of a call's queries over the cached rows, with the probability mass that each row received, in
/// one go. Causal: the queries are the newest rows, and none sees a later row. Scratch is allocated in the constructor.
class Attention {
 public:
  /// capacity: most rows. Errors: scale or log_base not finite or out of range, threads < 1.
  Attention(const Shape& shape, const AttentionOptions& options, int capacity)
      : shape_(shape),
        options_(options),
        block_(std::max(1, std::min(shape.max_chunk, block_rows / shape.group()))),
        capacity_(capacity) {
    if (!(options.scale >= 0 && options.scale <= std::numeric_limits<float>::max()))
      fail("scale", std::to_string(options.scale), "0, or finite and > 0");
    if (options.log_base != 0 && !(options.log_base > 1 && options.log_base <= std::numeric_limits<float>::max()))
      fail("log_base", std::to_string(options.log_base), "0, or finite and > 1");
    require_range("threads", options.threads, 1, 1 << 16);
    options_.threads = std::min(options.threads, shape.kv_heads);
    if (options.scale == 0) options_.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    scratch_.resize(static_cast<std::size_t>(options_.threads) * piece());
  }

  const AttentionOptions& options() const { return options_; }

  /// q, out: [tokens, query_heads, head_dim]; keys, values: [kv_heads, rows, head_dim], tokens <= rows <= capacity.
  /// mass: [parts, kv_heads, rows] is set to the probabilities' column sums over each group's heads: the last parts are
  /// the newest tokens', the first is the sum of all earlier ones; an empty view: not wanted. A query whose
  /// probabilities are not finite (a NaN in it, in a key) gives no mass and gets what arithmetic gives. The caller has
  /// checked the shapes. O(tokens * query_heads * rows * head_dim).
  template <class Q, class T, class O>
  void operator()(const View<const Q>& q, const Turn& turn, const RowsView<T>& keys, const RowsView<T>& values,
                  const View<O>& out, const View<float>& mass, Executor run = {}) {
    for_each_block(q.shape(0), keys.values.shape(1), run, [&](Block& b) {
      if (b.first == 0) clear(mass, b.head);
      load_queries(q, turn, b);
      logits(keys, turn, b, 0, b.rows, b.p);
      for (int i = 0; i < b.m; ++i) softmax(b, i);
      add_mass(b, mass);
      weigh(values, b);
      for (int i = 0; i < b.m; ++i)
        convert_row(b.result + i * dim(), shape_.head_dim, out.row(b.token(i), b.query_head(i)));
    });
  }

  /// The same column sums where some other kernel has attended and gives each query's log-sum-exp of its logits, lse:
  /// [1, tokens, query_heads]; -inf or NaN: that query gives nothing. Never holds more than a tile of probabilities.
  template <class Q, class T>
  void column_sums(const View<const Q>& q, const Turn& turn, const RowsView<T>& keys, const View<const float>& lse,
                   const View<float>& mass, Executor run = {}) {
    for_each_block(q.shape(0), keys.values.shape(1), run, [&](Block& b) {
      if (b.first == 0) clear(mass, b.head);
      load_queries(q, turn, b);
      for (int begin = 0; begin < b.rows; begin += tile_rows) {
        const int end = std::min(b.rows, begin + tile_rows);
        logits(keys, turn, b, begin, end, b.p);
        for (int i = 0; i < b.m; ++i) {
          const float norm = lse.row(0, b.token(i))[b.query_head(i)];
          const int seen = std::min(end, b.seen(i)) - begin;
          if (seen <= 0 || !std::isfinite(norm)) continue;
          Eigen::Map<Eigen::ArrayXf> p(b.p + static_cast<std::ptrdiff_t>(i) * b.stride, seen);
          p = (p - norm).exp();
          Eigen::Map<Eigen::ArrayXf>(mass.row(b.part(i, mass.shape(0)), b.head) + begin, seen) +=
              p.isFinite().select(p, 0.f);
        }
      }
    });
  }

  std::size_t bytes() const { return scratch_.size() * sizeof(float); }

 private:
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using MatrixMap = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;
  using ConstMatrixMap = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  // Query rows handled together, and cached rows a tile. A tile stays in the first-level cache, and Eigen blocks
  // products of these sizes on the stack. From gemm_rows query rows on Eigen's product is the faster.
  static constexpr int block_rows = 64, tile_rows = 32, gemm_rows = 16;

  /// Some tokens' queries of one KV head. Row i of m: token first + i / group, query head head * group + i % group.
  struct Block {
    int head, group, first, tokens, total;  // total: the call's tokens
    int m, rows;                            // rows that the last of them sees
    std::ptrdiff_t stride;                  // of p
    float *queries, *result, *p, *tile;     // [m, dim], [m, dim], [m, rows], [tile_rows, dim]

    int token(int i) const { return first + i / group; }
    int query_head(int i) const { return head * group + i % group; }
    int seen(int i) const { return rows - (first + tokens - 1 - token(i)); }
    int part(int i, int parts) const { return std::max(0, token(i) - (total - parts)); }
  };

  std::ptrdiff_t dim() const { return shape_.head_dim; }
  std::size_t piece() const {
    const std::size_t m = static_cast<std::size_t>(block_) * static_cast<std::size_t>(shape_.group());
    const std::size_t d = static_cast<std::size_t>(shape_.head_dim);
    return m * (2 * d + static_cast<std::size_t>(std::max(capacity_, +tile_rows))) + tile_rows * d;
  }

  template <class F>
  void for_each_block(int tokens, int rows, Executor run, F&& f) {
    const int pieces = options_.threads;
    run(pieces, [&](int index) {
      float* scratch = scratch_.data() + static_cast<std::size_t>(index) * piece();
      for (int h = index; h < shape_.kv_heads; h += pieces)
        for (int t = 0; t < tokens; t += block_) {
          Block b{h,       shape_.group(), t,      std::min(block_, tokens - t), tokens, 0, 0, 0, nullptr,
                  nullptr, nullptr,        nullptr};
          b.m = b.tokens * b.group;
          b.rows = rows - tokens + t + b.tokens;
          b.stride = std::max(b.rows, +tile_rows);
          b.queries = scratch;
          b.result = b.queries + b.m * dim();
          b.p = b.result + b.m * dim();
          b.tile = b.p + b.m * b.stride;
          f(b);
        }
    });
  }

  template <class Q>
  void load_queries(const View<const Q>& q, const Turn& turn, const Block& b) const {
    for (int i = 0; i < b.m; ++i) {
      float* row = b.queries + i * dim();
      convert_row(q.row(b.token(i), b.query_head(i)), shape_.head_dim, row);
      if (turn.queries != nullptr)
        turn.rotation->rotate(turn.queries + static_cast<std::ptrdiff_t>(b.token(i)) * turn.rotation->dims(), row);
      Eigen::Map<Eigen::ArrayXf>(row, shape_.head_dim) *= static_cast<float>(logit_scale(b.seen(i)));
    }
  }

  double logit_scale(int seen) const {
    return options_.log_base == 0 ? options_.scale
                                  : options_.scale * std::log(static_cast<double>(seen)) / std::log(options_.log_base);
  }

  /// out [m, b.stride]: the block's logits for rows [begin, end).
  template <class T>
  void logits(const RowsView<T>& keys, const Turn& turn, const Block& b, int begin, int end, float* out) const {
    for (int r = begin; r < end; r += tile_rows, out += tile_rows) {
      const int count = std::min(tile_rows, end - r);
      const auto product = [&](const auto* k, std::ptrdiff_t stride) {
        if constexpr (std::is_same<decltype(k), const float*>::value)
          if (b.m >= gemm_rows) {
            map(out, b.m, count, b.stride).noalias() =
                map(b.queries, b.m, dim(), dim()) * map(k, count, dim(), stride).transpose();
            return;
          }
        kernels::dots(b.queries, dim(), b.m, k, stride, count, shape_.head_dim, out, b.stride);
      };
      if (reads_in_place<T>(b) && turn.keys == nullptr) {
        if constexpr (kernels::loads_packets<T>) product(keys.values.row(b.head, r), keys.values.stride(1));
      } else {
        fill_tile(keys.values, b, r, count);
        if (turn.keys != nullptr)
          for (int i = 0; i < count; ++i)
            turn.rotation->rotate(turn.keys + static_cast<std::ptrdiff_t>(r + i) * turn.rotation->dims(),
                                  b.tile + i * dim());
        product(static_cast<const float*>(b.tile), dim());
      }
      for (int i = 0; has_scale<T> && i < b.m; ++i)
        Eigen::Map<Eigen::ArrayXf>(out + i * b.stride, count) *=
            Eigen::Map<const Eigen::ArrayXf>(keys.scales.row(0, b.head) + r, count);
    }
  }

  /// Logits of query row i become probabilities over the rows that it sees.
  void softmax(const Block& b, int i) const {
    Eigen::Map<Eigen::ArrayXf> p(b.p + i * b.stride, b.seen(i));
    p = (p - p.maxCoeff()).exp();
    p *= 1 / p.sum();
  }

  /// b.result [m, dim] = p times values; p is then scaled, where the values are. What a query does not see is not even
  /// multiplied by 0: there could be a NaN in it.
  template <class T>
  void weigh(const RowsView<T>& values, const Block& b) const {
    for (int i = 0; has_scale<T> && i < b.m; ++i)
      Eigen::Map<Eigen::ArrayXf>(b.p + i * b.stride, b.seen(i)) *=
          Eigen::Map<const Eigen::ArrayXf>(values.scales.row(0, b.head), b.seen(i));
    std::fill_n(b.result, b.m * dim(), 0.f);
    for (int r = 0; r < b.rows; r += tile_rows) {
      const int count = std::min(tile_rows, b.rows - r);
      const auto product = [&](const auto* v, std::ptrdiff_t stride) {
        const auto add = [&](int i, int queries, int seen) {
          kernels::add(b.p + i * b.stride + r, b.stride, queries, v, stride, seen, shape_.head_dim,
                       b.result + i * dim(), dim());
        };
        if (r + count > b.seen(0)) {
          for (int i = 0; i < b.m; i += b.group) add(i, b.group, std::max(0, std::min(count, b.seen(i) - r)));
          return;
        }
        if constexpr (std::is_same<decltype(v), const float*>::value)
          if (b.m >= gemm_rows) {
            map(b.result, b.m, dim(), dim()).noalias() +=
                map(b.p + r, b.m, count, b.stride) * map(v, count, dim(), stride);
            return;
          }
        add(0, b.m, count);
      };
      if (reads_in_place<T>(b)) {
        if constexpr (kernels::loads_packets<T>) product(values.values.row(b.head, r), values.values.stride(1));
      } else {
        fill_tile(values.values, b, r, count);
        product(static_cast<const float*>(b.tile), dim());
      }
    }
  }

  static void clear(const View<float>& mass, int head) {
    for (int part = 0; part < mass.shape(0); ++part) std::fill_n(mass.row(part, head), mass.shape(2), 0.f);
  }

  /// One NaN makes all of a query's probabilities NaN: it then gives nothing.
  static void add_mass(const Block& b, const View<float>& mass) {
    if (mass.empty()) return;
    for (int i = 0; i < b.m; ++i) {
      const float* p = b.p + i * b.stride;
      if (std::isfinite(p[0]))
        Eigen::Map<Eigen::ArrayXf>(mass.row(b.part(i, mass.shape(0)), b.head), b.seen(i)) +=
            Eigen::Map<const Eigen::ArrayXf>(p, b.seen(i));
    }
  }

  /// Floats are read where they are; so are other types where each row is converted but once, in registers.
  template <class T>
  static bool reads_in_place(const Block& b) {
    return std::is_same<T, float>::value || (kernels::loads_packets<T> && b.m <= 4);
  }
  template <class T>
  void fill_tile(const View<const T>& cached, const Block& b, int r, int count) const {
    for (int i = 0; i < count; ++i) kernels::convert(cached.row(b.head, r + i), shape_.head_dim, b.tile + i * dim());
  }

  static MatrixMap map(float* data, std::ptrdiff_t rows, std::ptrdiff_t columns, std::ptrdiff_t stride) {
    return MatrixMap(data, rows, columns, Eigen::OuterStride<>(stride));
  }
  static ConstMatrixMap map(const float* data, std::ptrdiff_t rows, std::ptrdiff_t columns, std::ptrdiff_t stride) {
    return ConstMatrixMap(data, rows, columns, Eigen::OuterStride<>(stride));
  }

  Shape shape_;
  AttentionOptions options_;
  int block_;     // tokens handled together
  int capacity_;  // rows
  std::vector<float> scratch_;
};

}  // namespace buzz
