// A prompt that is read whole by a full cache, once for all policies, each of which then cuts what it has seen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "evaluate/batch.h"
#include "evaluate/replayed.h"
#include "tiny_llama/cache.h"

namespace evaluate {

/// A policy's cache that sees each call of a leader's, and evicts when it is told to.
class Follower final : public tiny_llama::CacheOf<float> {
 public:
  using CacheOf::CacheOf;

  std::unique_ptr<Cache> fork() const override { return std::unique_ptr<Cache>(new Follower(*this)); }

  /// The leader's call: attention is made again only for a policy that looks at it. `out`: room of out's shape.
  void follow(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) {
    buzz::BuzzCache<float>& own = cache_.layer(layer);
    if (own.is_sliding()) return;
    own.append(k, v);
    if (own.evictor().needs().attention) {
      own.attend(q, out, run);
      own.observe();
    } else if (own.evictor().needs().queries) {
      own.observe(q);
    }
  }
  /// The user's scores of all rows, for a policy of such, which the prompt's second reading makes.
  void give(const Replayed& replayed, const calibrate::Replay& read) {
    for (int i = 0; i < layers(); ++i) {
      if (cache_.layer(i).is_sliding()) continue;
      const calibrate::Matrix scores = replayed.scores(read.attention[static_cast<std::size_t>(i)]);
      cache_.layer(i).give(
          buzz::View<const float>(scores.data(), 1, static_cast<int>(scores.rows()), static_cast<int>(scores.cols())));
    }
  }
  /// Takes the sliding layers, which are every policy's, from the leader, and evicts in the others, to `rows` rows.
  void cut(const Follower& leader, int rows) {
    for (int i = 0; i < layers(); ++i)
      if (cache_.layer(i).is_sliding()) cache_.layer(i) = leader.cache_.layer(i).fork();
    cache_.evict_to(rows);
  }
  const buzz::ModelCache<float>& cache() const { return cache_; }

 private:
  Follower(const Follower&) = default;
};

/// The leader's face to the model; the followers see what it sees.
class Led final : public Cache {
 public:
  using Followers = std::vector<std::unique_ptr<Follower>>;

  Led(const Config& c, std::unique_ptr<Follower> leader, Followers followers)
      : leader_(std::move(leader)),
        followers_(std::move(followers)),
        room_(static_cast<std::size_t>(leader_->max_chunk() * c.query_heads * c.head_dim)) {}

  /// Not to be had: it is read once.
  std::unique_ptr<Cache> fork() const override { buzz::fail("fork", "asked for", "none of a cache that leads others"); }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    leader_->attend(layer, q, k, v, out, run);
    const buzz::View<float> room(room_.data(), out.shape(0), out.shape(1), out.shape(2));
    for (const auto& f : followers_) f->follow(layer, q, k, v, room, run);
  }
  void check_room(int tokens) const override { leader_->check_room(tokens); }
  int max_chunk() const override { return leader_->max_chunk(); }
  int layers() const override { return leader_->layers(); }
  int rows(int layer) const override { return leader_->rows(layer); }
  int capacity(int layer) const override { return leader_->capacity(layer); }
  std::size_t bytes(int layer) const override { return leader_->bytes(layer); }

  /// Cuts the followers to so many rows each, and lets them go on their own.
  Batch::Members cut(const std::vector<int>& rows) {
    Batch::Members members;
    for (std::size_t i = 0; i < followers_.size(); ++i) {
      followers_[i]->cut(*leader_, rows[i]);
      members.push_back(std::move(followers_[i]));
    }
    return members;
  }

 private:
  std::unique_ptr<Follower> leader_;
  Followers followers_;
  std::vector<float> room_;  // [max_chunk, query_heads, head_dim]
};

}  // namespace evaluate
