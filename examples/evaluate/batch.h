// Caches side by side, which the model reads as one: a product with its weights serves them all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tiny_llama/cache.h"

namespace evaluate {

using tiny_llama::Cache;
using tiny_llama::Config;

/// A call's token number i is token i / size() of member i % size(), so that the last tokens of all are side by side.
class Batch final : public Cache {
 public:
  using Members = std::vector<std::unique_ptr<Cache>>;

  /// At least one member.
  explicit Batch(Members members) : members_(std::move(members)) {}

  int size() const { return static_cast<int>(members_.size()); }
  const Cache& member(int i) const { return *members_[static_cast<std::size_t>(i)]; }

  std::unique_ptr<Cache> fork() const override {
    Members copies;
    for (const auto& m : members_) copies.push_back(m->fork());
    return std::make_unique<Batch>(std::move(copies));
  }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    for (int i = 0; i < size(); ++i)
      members_[static_cast<std::size_t>(i)]->attend(layer, part(q, i), part(k, i), part(v, i), part(out, i), run);
  }
  void check_room(int tokens) const override {
    for (const auto& m : members_) m->check_room(tokens / size());
  }
  int max_chunk() const override {
    int least = members_[0]->max_chunk();
    for (const auto& m : members_) least = (std::min)(least, m->max_chunk());
    return size() * least;
  }
  int layers() const override { return members_[0]->layers(); }
  int rows(int layer) const override { return sum(layer, &Cache::rows); }
  int capacity(int layer) const override { return sum(layer, &Cache::capacity); }
  std::size_t bytes(int layer) const override { return sum(layer, &Cache::bytes); }

 private:
  /// Every size()-th token, from number i on.
  template <class T>
  buzz::View<T> part(buzz::View<T> all, int i) const {
    return {all.row(i, 0), all.shape(0) / size(), all.shape(1), all.shape(2), all.stride(0) * size(), all.stride(1)};
  }
  template <class Number>
  Number sum(int layer, Number (Cache::*of)(int) const) const {
    Number all = 0;
    for (const auto& m : members_) all += ((*m).*of)(layer);
    return all;
  }

  Members members_;
};

}  // namespace evaluate
