#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/attention_block.h"
#include "buzz/attention_options.h"
#include "buzz/executor.h"
#include "buzz/kernels.h"
#include "buzz/logit_kernels.h"
#include "buzz/store.h"

namespace buzz {

/// Softmax attention of a call's queries over the cached rows, with the sum of the probabilities that each row
/// received, in one go. Causal: the queries are the newest rows, and none sees a later row. Scratch is allocated in the
/// constructor.
class Attention {
 public:
  /// capacity: most rows. Errors: an option out of its range.
  Attention(const Shape& shape, const AttentionOptions& options, int capacity)
      : shape_(shape),
        options_((check(options, shape), options)),
        capacity_(capacity),
        pieces_((options.threads - 1) / shape.kv_heads + 1),
        heads_at_once_((std::min)(options.threads, shape.kv_heads)),
        block_(shape, options.window, capacity, heads_at_once_, pieces_),
        mismatch_(static_cast<std::size_t>(heads_at_once_)) {
    if (options.scale == 0) options_.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    changes_logits_ = !is_zero(options.soft_cap) || !options.alibi_slopes.empty();
  }

  const AttentionOptions& options() const { return options_; }  ///< with the scale that is used

  /// q: [tokens, query_heads, head_dim]; keys: [kv_heads, rows, head_dim], tokens <= rows <= capacity; out and values
  /// the same, but rows of value_size(). sums: [slices, kv_heads, rows] is set to the probabilities' column sums over
  /// each group's heads: the last slices are the newest tokens', the first is the sum of all earlier ones; an empty
  /// view: not wanted. A query whose probabilities are not finite (a NaN in it, in a key) adds to no sum and gets what
  /// arithmetic gives. Errors: another shape. O(tokens * query_heads * rows * head_dim).
  template <class Q, class T, class O>
  void operator()(const View<const Q>& q, const RopeAngles& angles, const RowsView<T>& keys, const RowsView<T>& values,
                  const View<O>& out, const View<float>& sums, Executor run = {}) {
    const int tokens = q.shape(0), rows = keys.values.shape(1);
    require_call(q, angles, keys, sums);
    require_rows("values", values, shape_.kv_heads, rows);
    require_equal("values.shape[2]", values.values.shape(2), shape_.value_size(), "value_size()");
    require_shape("out", out, tokens, shape_.query_heads, shape_.value_size());
    for_each_head(run, [&](int head, int slot) {
      // Its first block sets what it sees, if that is all rows up to its own.
      clear(sums, head, tokens == 0 || options_.window != 0 ? 0 : rows - tokens + (std::min)(block_.tokens(), tokens),
            rows);
      for (int t = 0; pieces_ == 1 && t < tokens; t += block_.tokens()) {
        const Block b = block_(head, t, tokens, rows, slot, 0);
        load_queries(q, angles, b);
        logits(keys, angles, b, b.first_row, b.rows, b.p + b.first_row);
        softmax(b);
        weigh(values, b, out, sums, 0, shape_.value_size());
      }
    });
    for (int t = 0; pieces_ > 1 && t < tokens; t += block_.tokens()) split(q, angles, keys, values, out, sums, t, run);
  }

  /// The same for rows without scales.
  template <class Q, class T, class O>
  void operator()(const View<const Q>& q, const RopeAngles& angles, const View<const T>& keys,
                  const View<const T>& values, const View<O>& out, const View<float>& sums, Executor run = {}) {
    (*this)(q, angles, RowsView<T>(keys), RowsView<T>(values), out, sums, run);
  }

  /// The same column sums where some other kernel has attended and gives each query's log-sum-exp of its logits, its
  /// head's sink among them, lse: [1, tokens, query_heads]; -inf or NaN: that query gives nothing. Never holds more
  /// than a tile of probabilities. lse_mismatch() is then how far from 1 a query's, and its sink's, add up.
  template <class Q, class T>
  void column_sums(const View<const Q>& q, const RopeAngles& angles, const RowsView<T>& keys,
                   const View<const float>& lse, const View<float>& sums, Executor run = {}) {
    require_call(q, angles, keys, sums);
    require_shape("lse", lse, 1, q.shape(0), shape_.query_heads);
    std::fill(mismatch_.begin(), mismatch_.end(), 0.f);
    for_each_head(run, [&](int head, int slot) {
      const std::size_t at = static_cast<std::size_t>(slot);
      clear(sums, head, 0, sums.shape(2));
      for (int t = 0; t < q.shape(0); t += block_.tokens()) {
        const Block b = block_(head, t, q.shape(0), keys.values.shape(1), slot, 0);
        load_queries(q, angles, b);
        std::fill_n(b.norms, b.m, 0.f);
        for (int begin = b.first_row; begin < b.rows; begin += tile_rows) {
          const int end = (std::min)(b.rows, begin + tile_rows);
          logits(keys, angles, b, begin, end, b.p);
          add_from_logits(b, begin, end, lse, sums);
        }
        for (int i = 0; i < b.m; ++i) {
          const float& norm = lse.row(0, b.token(i))[b.query_head(i)];
          if (!is_finite(norm)) continue;
          if (!options_.sinks.empty()) b.norms[i] += kernels::term_beside(sink(b, i), norm);
          mismatch_[at] = (std::max)(mismatch_[at], std::abs(b.norms[i] - 1));
        }
      }
    });
  }

  /// The largest of the last column_sums(): |sum of a query's probabilities - 1|.
  double lse_mismatch() const { return static_cast<double>(*std::max_element(mismatch_.begin(), mismatch_.end())); }
  /// Errors: the last column_sums() got log-sum-exps of other logits.
  void check_lse() const {
    if (lse_mismatch() > options_.lse_tolerance)
      fail("lse", "one whose probabilities add up to 1 within " + std::to_string(lse_mismatch()) + " only",
           "the log-sum-exp of the same logits: within lse_tolerance = " + std::to_string(options_.lse_tolerance));
  }

  /// The same for rows without scales.
  template <class Q, class T>
  void column_sums(const View<const Q>& q, const RopeAngles& angles, const View<const T>& keys,
                   const View<const float>& lse, const View<float>& sums, Executor run = {}) {
    column_sums(q, angles, RowsView<T>(keys), lse, sums, run);
  }

  std::size_t bytes() const { return block_.bytes() + mismatch_.size() * sizeof(float); }  ///< allocated

 private:
  template <class Q, class T>
  void require_call(const View<const Q>& q, const RopeAngles& angles, const RowsView<T>& keys,
                    const View<float>& sums) const {
    const int rows = keys.values.shape(1);
    require_range("keys.shape[1]", rows, 0, capacity_);
    require_rows("keys", keys, shape_.kv_heads, rows);
    require_equal("keys.shape[2]", keys.values.shape(2), shape_.head_dim, "head_dim");
    require_range("q.shape[0]", q.shape(0), 0, rows);
    require_shape("q", q, q.shape(0), shape_.query_heads, shape_.head_dim);
    if (!sums.empty()) require_shape("sums", sums, sums.shape(0), shape_.kv_heads, rows);
    if (!angles.positions.empty()) require_shape("positions", angles.positions, 1, shape_.kv_heads, rows);
  }

  using Block = AttentionBlock;

  static constexpr int tile_rows = Block::tile_rows;
  static constexpr int sum_rows = 512;   // whose probabilities are added to the sums together, in the first-level cache
  static constexpr int dims_grain = 64;  // a part of a row's dimensions is whole packets and cache lines

  std::ptrdiff_t dim() const { return shape_.head_dim; }
  std::ptrdiff_t value_dim() const { return shape_.value_size(); }
  /// Calls f(head, slot) for each KV head; those of one slot come one after the other.
  template <class F>
  void for_each_head(Executor run, F&& f) const {
    run(heads_at_once_, [&](int slot) {
      for (int h = slot; h < shape_.kv_heads; h += heads_at_once_) f(h, slot);
    });
  }

  /// One block of every head, each head's rows and then its dimensions split in pieces: the sums' order stays.
  template <class Q, class T, class O>
  void split(const View<const Q>& q, const RopeAngles& angles, const RowsView<T>& keys, const RowsView<T>& values,
             const View<O>& out, const View<float>& sums, int first, Executor run) {
    const auto at = [&](int task) {
      return block_(task / pieces_, first, q.shape(0), keys.values.shape(1), task / pieces_, task % pieces_);
    };
    const int heads = shape_.kv_heads;  // all at once: there are more threads
    run(heads * pieces_, [&](int task) {
      const Block b = at(task);
      load_queries(q, angles, b);
      const int grain = ((b.rows - b.first_row - 1) / tile_rows / pieces_ + 1) * tile_rows;
      const int begin = b.first_row + task % pieces_ * grain;
      if (begin < b.rows) logits(keys, angles, b, begin, (std::min)(b.rows, begin + grain), b.p + begin);
    });
    run(heads, [&](int head) { softmax(at(head * pieces_)); });
    run(heads * pieces_, [&](int task) {
      const int dims = shape_.value_size();
      const int grain = ((dims - 1) / dims_grain / pieces_ + 1) * dims_grain, begin = task % pieces_ * grain;
      if (begin < dims) weigh(values, at(task), out, sums, begin, (std::min)(dims, begin + grain));
    });
  }

  template <class Q>
  void load_queries(const View<const Q>& q, const RopeAngles& angles, const Block& b) const {
    for (int i = 0; i < b.m; ++i) {
      float* row = b.queries + i * dim();
      convert_row(q.row(b.token(i), b.query_head(i)), shape_.head_dim, row);
      if (angles.queries != nullptr)
        angles.rotation->rotate(angles.queries + static_cast<std::ptrdiff_t>(b.token(i)) * angles.rotation->dims(),
                                row);
      kernels::scale(row, shape_.head_dim, logit_scale(b.seen(i) - b.from(i)));
    }
  }

  /// What a query is multiplied by; soft_cap() wants logits over the cap.
  float logit_scale(int seen) const {
    double scale = options_.scale;
    if (options_.log_base != 0) scale = scale * std::log(static_cast<double>(seen)) / std::log(options_.log_base);
    return static_cast<float>(options_.soft_cap == 0 ? scale : scale / options_.soft_cap);
  }

  /// out [m, b.stride]: the block's logits for rows [begin, end).
  template <class T>
  void logits(const RowsView<T>& keys, const RopeAngles& angles, const Block& b, int begin, int end, float* out) const {
    for (int r = begin; r < end; r += tile_rows, out += tile_rows) {
      const int count = (std::min)(tile_rows, end - r);
      const auto product = [&](const auto* k, std::ptrdiff_t stride) {
        if constexpr (std::is_same<decltype(k), const float*>::value)
          if (b.m >= Block::many_queries) {
            const int columns = static_cast<int>(AttentionBlocks::whole(count));  // out has room for them
            kernels::transpose(k, stride, count, shape_.head_dim, b.turned, columns);
            for (int i = 0; i < b.m; ++i) std::fill_n(out + i * b.stride, columns, 0.f);
            kernels::add(b.queries, dim(), b.m, static_cast<const float*>(b.turned), columns, shape_.head_dim, columns,
                         out, b.stride);
            return;
          }
        kernels::dots(b.queries, dim(), b.m, k, stride, count, shape_.head_dim, out, b.stride);
      };
      if (reads_in_place<T>(b) && angles.keys == nullptr) {
        if constexpr (kernels::loads_packets<T>) product(keys.values.row(b.head, r), keys.values.stride(1));
      } else {
        fill_tile(keys.values, b, r, count, 0, shape_.head_dim);
        if (angles.keys != nullptr)
          for (int i = 0; i < count; ++i)
            angles.rotation->rotate(angles.keys + static_cast<std::ptrdiff_t>(r + i) * angles.rotation->dims(),
                                    b.tile + i * dim());
        product(static_cast<const float*>(b.tile), dim());
      }
      for (int i = 0; has_scale<T> && i < b.m; ++i)
        kernels::multiply(out + i * b.stride, keys.scales.row(0, b.head) + r, count, out + i * b.stride);
      if (changes_logits_) change_logits(angles, b, r, count, out);
    }
  }

  /// Caps the logits of rows [r, r + count), out [m, b.stride], and takes the distances from them.
  void change_logits(const RopeAngles& angles, const Block& b, int r, int count, float* out) const {
    const std::int32_t* positions = angles.positions.empty() ? nullptr : angles.positions.row(0, b.head);
    for (int i = 0; i < b.m; ++i, out += b.stride) {
      if (options_.soft_cap != 0) kernels::soft_cap(out, count, static_cast<float>(options_.soft_cap));
      if (options_.alibi_slopes.empty()) continue;
      const int newest = b.seen(i) - 1;
      kernels::subtract_distances(out, count, options_.alibi_slopes[static_cast<std::size_t>(b.query_head(i))],
                                  positions == nullptr ? nullptr : positions + r,
                                  positions == nullptr ? newest - r : positions[newest]);
    }
  }

  /// The block's logits become the terms of a softmax over the rows that each query sees, and norms their factors.
  void softmax(const Block& b) const {
    for (int i = 0; i < b.m; ++i) {
      float top, sum = kernels::softmax_terms(b.p + i * b.stride + b.from(i), b.seen(i) - b.from(i), &top);
      if (!options_.sinks.empty()) sum += kernels::term_beside(sink(b, i), top);
      b.norms[i] = 1 / sum;
    }
  }
  float sink(const Block& b, int i) const { return options_.sinks[static_cast<std::size_t>(b.query_head(i))]; }

  /// Adds the probabilities of rows [r, r + count) to sums; who is the first to add to a slice sets it.
  void add_sums(const Block& b, int r, int count, const View<float>& sums) const {
    for (int i = 0; i < b.m; i += b.group) {
      const int slice = b.slice(i, sums.shape(0)), end_row = b.end_of(i, r, count), from = b.from_of(i, r, end_row);
      const float *norms = b.norms + i, *p = b.p + i * b.stride + r + from;
      float* out = sums.row(slice, b.head) + r;
      bool set = options_.window == 0 && (slice > 0 || b.token(i) == 0);
      if (set) std::fill(out + end_row, out + count, 0.f);
      for (int q = 0; q < b.group; set = false) {
        int end = q;  // a query of NaN gives nothing
        while (end < b.group && is_finite(norms[end])) ++end;
        kernels::weighted_sum(norms + q, p + q * b.stride, b.stride, end - q, end_row - from, set, out + from);
        q = end + 1;
      }
    }
  }

  /// out, dimensions [begin, end) = norms times p times values; whose begin is 0 adds the probabilities to sums, if it
  /// is wanted. What a query does not see is not even multiplied by 0: there could be a NaN in it.
  template <class T, class O>
  void weigh(const RowsView<T>& values, const Block& b, const View<O>& out, const View<float>& sums, int begin,
             int end) const {
    const int width = end - begin;
    float* result = b.result + begin;
    for (int i = 0; i < b.m; ++i) std::fill_n(result + i * value_dim(), width, 0.f);
    for (int r = b.first_row; r < b.rows; r += tile_rows) {
      const int count = (std::min)(tile_rows, b.rows - r);
      if (begin == 0 && (r - b.first_row) % sum_rows == 0 && !sums.empty())
        add_sums(b, r, (std::min)(sum_rows, b.rows - r), sums);
      const float* weights = b.p + r;
      std::ptrdiff_t weights_stride = b.stride;
      if constexpr (has_scale<T>) {  // where the queries were, which have done
        weights = scaled(b, r, count, values.scales.row(0, b.head) + r);
        weights_stride = tile_rows;
      }
      const auto add = [&](const auto* v, std::ptrdiff_t stride, int i, int queries, int from, int to) {
        kernels::add(weights + i * weights_stride + from, weights_stride, queries, v + from * stride, stride, to - from,
                     width, result + i * value_dim(), value_dim());
      };
      const auto product = [&](const auto* v, std::ptrdiff_t stride) {
        if (r + count > b.seen(0) || r < b.from(b.m - 1)) {
          for (int i = 0; i < b.m; i += b.group) {
            const int to = b.end_of(i, r, count);
            add(v, stride, i, b.group, b.from_of(i, r, to), to);
          }
          return;
        }
        add(v, stride, 0, b.m, 0, count);
      };
      if (reads_in_place<T>(b)) {
        if constexpr (kernels::loads_packets<T>) product(values.values.row(b.head, r) + begin, values.values.stride(1));
      } else {
        fill_tile(values.values, b, r, count, begin, end);
        product(static_cast<const float*>(b.tile) + begin, value_dim());
      }
    }
    for (int i = 0; i < b.m; ++i) {
      kernels::scale(result + i * value_dim(), width, b.norms[i]);
      convert_row(result + i * value_dim(), width, out.row(b.token(i), b.query_head(i)) + begin);
    }
  }

  /// The terms of rows [r, r + count) times scales, [m, tile_rows].
  const float* scaled(const Block& b, int r, int count, const float* scales) const {
    for (int i = 0; i < b.m; ++i) kernels::multiply(b.p + i * b.stride + r, scales, count, b.queries + i * tile_rows);
    return b.queries;
  }

  /// Logits of rows [begin, end) and each query's log-sum-exp make probabilities, which are added to sums, and their
  /// sums to norms.
  void add_from_logits(const Block& b, int begin, int end, const View<const float>& lse,
                       const View<float>& sums) const {
    for (int i = 0; i < b.m; ++i) {
      const float& norm = lse.row(0, b.token(i))[b.query_head(i)];
      const int from = (std::max)(0, b.from(i) - begin), seen = (std::min)(end, b.seen(i)) - begin - from;
      if (seen <= 0 || !is_finite(norm)) continue;
      float* p = b.p + i * b.stride + from;
      float sum = kernels::exp_and_sum(p, seen, norm);
      if (!is_finite(sum)) {  // a NaN in a key
        sum = 0;
        for (int r = 0; r < seen; ++r) sum += p[r] = is_finite(p[r]) ? p[r] : 0;
      }
      b.norms[i] += sum;
      const float one = 1;
      kernels::weighted_sum<1>(&one, p, 0, seen, false, sums.row(b.slice(i, sums.shape(0)), b.head) + begin + from);
    }
  }

  static void clear(const View<float>& sums, int head, int begin, int end) {
    for (int slice = 0; slice < sums.shape(0); ++slice)
      std::fill(sums.row(slice, head) + begin, sums.row(slice, head) + end, 0.f);
  }

  /// Floats are read where they are; so are other types where each row is converted but once, in registers.
  template <class T>
  static bool reads_in_place(const Block& b) {
    return std::is_same<T, float>::value || (kernels::loads_packets<T> && b.m <= 4);
  }
  template <class T>
  void fill_tile(const View<const T>& cached, const Block& b, int r, int count, int begin, int end) const {
    for (int i = 0; i < count; ++i)
      kernels::convert(cached.row(b.head, r + i) + begin, end - begin,
                       b.tile + i * std::ptrdiff_t{cached.shape(2)} + begin);
  }

  Shape shape_;
  AttentionOptions options_;
  int capacity_;                 // rows
  int pieces_, heads_at_once_;   // tasks that a head is split into, and heads that have scratch
  bool changes_logits_ = false;  // before the softmax
  AttentionBlocks block_;
  std::vector<float> mismatch_;  // of each slot's queries: see lse_mismatch()
};

}  // namespace buzz
