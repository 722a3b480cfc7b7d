// Two caches that get the same queries, keys and values: what the second gives is compared with what the first gives.
#pragma once

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tiny_llama/cache.h"

namespace evaluate {

using tiny_llama::Cache;
using tiny_llama::Config;

/// The model goes on with the first cache's outputs, so that each layer's error is its own.
class Twin final : public Cache {
 public:
  Twin(const Config& c, std::unique_ptr<Cache> first, std::unique_ptr<Cache> second)
      : first_(std::move(first)),
        second_(std::move(second)),
        room_(static_cast<std::size_t>(first_->max_chunk() * c.query_heads * c.head_dim)),
        sums_(static_cast<std::size_t>(c.layers)) {}

  std::unique_ptr<Cache> fork() const override { return std::unique_ptr<Cache>(new Twin(*this)); }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    first_->attend(layer, q, k, v, out, run);
    const int tokens = out.shape(0), heads = out.shape(1), dim = out.shape(2);
    const buzz::View<float> other(room_.data(), tokens, heads, dim);
    second_->attend(layer, q, k, v, other, run);
    Sums& s = sums_[static_cast<std::size_t>(layer)];
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < heads; ++h)
        for (int d = 0; d < dim; ++d) {
          const double right = static_cast<double>(out.row(t, h)[d]),
                       error = static_cast<double>(other.row(t, h)[d]) - right;
          s.error += error * error;
          s.all += right * right;
        }
  }
  bool evict_to(int to) override {
    const bool first = first_->evict_to(to), second = second_->evict_to(to);
    return first || second;
  }
  void check_room(int tokens) const override {
    first_->check_room(tokens);
    second_->check_room(tokens);
  }
  int max_chunk() const override { return first_->max_chunk(); }
  int layers() const override { return first_->layers(); }
  int rows(int layer) const override { return first_->rows(layer); }
  int capacity(int layer) const override { return first_->capacity(layer); }
  std::size_t bytes(int layer) const override { return first_->bytes(layer); }

  /// |second - first| / |first| of all outputs of a layer since begin().
  double relative_error(int layer) const {
    const Sums& s = sums_[static_cast<std::size_t>(layer)];
    return s.all == 0 ? 0 : std::sqrt(s.error / s.all);
  }
  void begin() { sums_.assign(sums_.size(), {}); }

 private:
  struct Sums {
    double error = 0, all = 0;
  };
  Twin(const Twin& other)
      : first_(other.first_->fork()), second_(other.second_->fork()), room_(other.room_), sums_(other.sums_) {}

  std::unique_ptr<Cache> first_, second_;
  std::vector<float> room_;  // [max_chunk, query_heads, head_dim]
  std::vector<Sums> sums_;   // [layers]
};

}  // namespace evaluate
