// Row 14: the way of the authors' classes, written straight in C++: new tensors at every step.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

#include "problem.h"
#include "ratio.h"

namespace bench {

/// K, V and scores of one layer as tensors that are made anew: a token is concatenated; an eviction makes a mask and
/// gathers what it leaves.
class Tensors {
 public:
  explicit Tensors(const Layer& layer) : layer_(layer) {}

  void step(const std::vector<float>& token, const std::vector<float>& sums) {
    keys_ = concatenated(keys_, token);
    values_ = concatenated(values_, token);
    std::vector<float> scores(count(layer_.kv_heads, rows_ + 1, 1));
    for (int h = 0; h < layer_.kv_heads; ++h)
      for (int r = 0; r <= rows_; ++r) {
        const float before = r < rows_ ? scores_[count(h, rows_, 1) + static_cast<std::size_t>(r)] : 0.f;
        const std::size_t i = count(h, rows_ + 1, 1) + static_cast<std::size_t>(r);
        scores[i] = before + sums[i];
      }
    scores_ = scores;
    ++rows_;
    if (rows_ > paper_rows) evict();
  }
  int rows() const { return rows_; }

 private:
  std::vector<float> concatenated(const std::vector<float>& rows, const std::vector<float>& token) const {
    std::vector<float> result(count(layer_.kv_heads, rows_ + 1, layer_.head_dim));
    const std::size_t old = count(1, rows_, layer_.head_dim), dim = static_cast<std::size_t>(layer_.head_dim);
    for (std::size_t h = 0; h < static_cast<std::size_t>(layer_.kv_heads); ++h) {
      std::copy_n(rows.data() + h * old, old, result.data() + h * (old + dim));
      std::copy_n(token.data() + h * dim, dim, result.data() + h * (old + dim) + old);
    }
    return result;
  }

  void evict() {
    const int sink = 4, window = 160, stride = 5, hive_stride = 3;
    std::vector<char> mask(count(layer_.kv_heads, rows_, 1), 0);
    for (int h = 0; h < layer_.kv_heads; ++h) {
      char* keep = mask.data() + count(h, rows_, 1);
      const float* score = scores_.data() + count(h, rows_, 1);
      for (int r = 0; r < rows_; ++r) keep[r] = r < sink || r >= rows_ - window;
      for (int r = sink; r < sink + hive_; r += hive_stride) keep[r] = 1;
      for (int r = sink + hive_; r < rows_ - window; r += stride)
        keep[std::max_element(score + r, score + std::min(r + stride, rows_ - window)) - score] = 1;
    }
    const int kept = static_cast<int>(std::count(mask.begin(), mask.begin() + rows_, 1));
    keys_ = gathered(keys_, mask, layer_.head_dim, kept);
    values_ = gathered(values_, mask, layer_.head_dim, kept);
    scores_ = gathered(scores_, mask, 1, kept);
    hive_ = kept - sink - window;
    rows_ = kept;
  }

  std::vector<float> gathered(const std::vector<float>& rows, const std::vector<char>& mask, int dim, int kept) const {
    std::vector<float> result(count(layer_.kv_heads, kept, dim));
    auto out = result.begin();
    for (std::size_t i = 0; i < mask.size(); ++i)
      if (mask[i] != 0) out = std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i) * dim, dim, out);
    return result;
  }

  Layer layer_;
  int rows_ = 0, hive_ = 0;
  std::vector<float> keys_, values_, scores_;  // [kv_heads, rows, head_dim], [kv_heads, rows]
};

/// All but attention, a token, over the tokens between two evictions and the eviction.
inline void authors_way(std::vector<Ratio>& table) {
  const Layer layer = grouped;
  const auto token = random_values<float>(count(1, layer.kv_heads, layer.head_dim), 9);
  const auto sums = random_sums(count(1, layer.kv_heads, paper_rows + 1), 10);
  Tensors theirs(layer);
  buzz::Evictor evictor(buzz::beehive(), layer.kv_heads);
  buzz::Store<float> store(buzz::Shape{layer.query_heads, layer.kv_heads, layer.head_dim}, evictor.capacity());
  const buzz::Rotation none(buzz::Rope{}, layer.head_dim);
  const buzz::View<const float> kv(token.data(), 1, layer.kv_heads, layer.head_dim);
  const Side ours_step = [&] {
    return seconds([&] {
             for (int i = 0; i < 600; ++i) {
               evictor.append(1);
               store.append(evictor.rows() - 1, kv, kv, none, nullptr);
               evictor.observe_sums(buzz::View<const float>(sums.data(), 1, layer.kv_heads, evictor.rows()));
               if (evictor.should_evict()) store.compact(evictor.select());
             }
           }) /
           600;
  };
  const Side their_step = [&] {
    return seconds([&] {
             for (int i = 0; i < 600; ++i) theirs.step(token, sums);
           }) /
           600;
  };
  table.push_back(
      compare("14 authors' way / ours, a token without attention", Goal::at_least(10), their_step, ours_step, 1, 10));
}

}  // namespace bench
