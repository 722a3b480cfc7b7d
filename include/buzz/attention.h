#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "buzz/executor.h"
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

  /// q, out: [tokens, query_heads, head_dim]; keys, values: [kv_heads, rows, head_dim], tokens <= rows <= capacity.
  /// Queries are rotated by `angles`, [tokens, rotation.dims()], where dims() is not 0. mass: [1, kv_heads, rows] is
  /// set to the probabilities' column sums over the call's queries and each group's heads; an empty view: not wanted. A
  /// query whose probabilities are not finite (a NaN in it, in a key) gives no mass and gets what arithmetic gives.
  /// The caller has checked the shapes. O(tokens * query_heads * rows * head_dim).
  template <class Q, class T, class O>
  void operator()(const View<const Q>& q, const Rotation& rotation, const float* angles, const View<const T>& keys,
                  const View<const T>& values, const View<O>& out, const View<float>& mass, Executor run = {}) {
    const int pieces = options_.threads;
    run(pieces, [&](int piece_index) {
      float* scratch = scratch_.data() + static_cast<std::size_t>(piece_index) * piece();
      for (int h = piece_index; h < shape_.kv_heads; h += pieces) {
        float* head_mass = mass.empty() ? nullptr : mass.row(0, h);
        if (head_mass != nullptr) std::fill_n(head_mass, keys.shape(1), 0.f);
        for (int t = 0; t < q.shape(0); t += block_)
          attend(q, rotation, angles, keys, values, out, head_mass, h, t, std::min(block_, q.shape(0) - t), scratch);
      }
    });
  }

  std::size_t bytes() const { return scratch_.size() * sizeof(float); }

 private:
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using MatrixMap = Eigen::Map<Matrix>;
  // Query rows handled together, and cached rows a tile: products of these sizes stay in cache, and Eigen blocks
  // them on the stack.
  static constexpr int block_rows = 64, tile_rows = 64;

  std::size_t piece() const {
    const std::size_t m = static_cast<std::size_t>(block_) * static_cast<std::size_t>(shape_.group());
    const std::size_t d = static_cast<std::size_t>(shape_.head_dim);
    return m * (2 * d + static_cast<std::size_t>(capacity_)) + tile_rows * d;
  }

  /// Queries [first, first + tokens) of one KV head's group.
  template <class Q, class T, class O>
  void attend(const View<const Q>& q, const Rotation& rotation, const float* angles, const View<const T>& keys,
              const View<const T>& values, const View<O>& out, float* mass, int head, int first, int tokens,
              float* scratch) const {
    const int group = shape_.group(), d = shape_.head_dim, m = tokens * group;
    const int behind = keys.shape(1) - q.shape(0) + 1;  // rows that the call's first query sees
    const int rows = behind + first + tokens - 1;       // that the block's last query sees
    MatrixMap queries(scratch, m, d), result(queries.data() + queries.size(), m, d);
    MatrixMap p(result.data() + result.size(), m, rows);
    float* tile = p.data() + p.size();

    for (int i = 0; i < m; ++i) {  // row i: token first + i / group, query head head * group + i % group
      const int t = first + i / group;
      float* row = queries.row(i).data();
      convert_row(q.row(t, head * group + i % group), d, row);
      if (rotation.dims() != 0) rotation.rotate(angles + static_cast<std::ptrdiff_t>(t) * rotation.dims(), row);
      queries.row(i) *= static_cast<float>(logit_scale(behind + t));
    }
    for_each_tile(keys, head, rows, tile, [&](int begin, const Eigen::Map<const Matrix>& k) {
      p.middleCols(begin, k.rows()).noalias() = queries * k.transpose();
    });
    for (int i = 0; i < m; ++i) softmax(p.row(i).data(), behind + first + i / group, rows, mass);
    result.setZero();
    for_each_tile(values, head, rows, tile, [&](int begin, const Eigen::Map<const Matrix>& v) {
      result.noalias() += p.middleCols(begin, v.rows()) * v;
    });
    for (int i = 0; i < m; ++i)
      convert_row(result.row(i).data(), d, out.row(first + i / group, head * group + i % group));
  }

  double logit_scale(int seen) const {
    return options_.log_base == 0 ? options_.scale
                                  : options_.scale * std::log(static_cast<double>(seen)) / std::log(options_.log_base);
  }

  /// Logits [rows] become probabilities over the first `seen` and 0 after; adds them to mass, [rows], if wanted.
  static void softmax(float* row, int seen, int rows, float* mass) {
    Eigen::Map<Eigen::ArrayXf> p(row, seen);
    p = (p - p.maxCoeff()).exp();
    p *= 1 / p.sum();
    std::fill(row + seen, row + rows, 0.f);
    // One NaN makes them all NaN.
    if (mass != nullptr && std::isfinite(p[0])) Eigen::Map<Eigen::ArrayXf>(mass, seen) += p;
  }

  /// Calls f(begin, rows as float [<= tile_rows, head_dim]) for the first `rows` rows of a head.
  template <class T, class F>
  static void for_each_tile(const View<const T>& cached, int head, int rows, float* tile, F&& f) {
    const int d = cached.shape(2);
    for (int begin = 0; begin < rows; begin += tile_rows) {
      const int n = std::min(tile_rows, rows - begin);
      for (int r = 0; r < n; ++r)
        convert_row(cached.row(head, begin + r), d, tile + static_cast<std::ptrdiff_t>(r) * d);
      f(begin, Eigen::Map<const Matrix>(tile, n, d));
    }
  }

  Shape shape_;
  AttentionOptions options_;
  int block_;     // tokens handled together
  int capacity_;  // rows
  std::vector<float> scratch_;
};

}  // namespace buzz
