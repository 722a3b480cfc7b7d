#include "host.h"

#include <buzz.h>

#include <vector>

namespace host {
namespace {

buzz::Shape shape(const Sizes& s) { return {s.query_heads, s.kv_heads, s.head_dim, s.max_chunk}; }

template <class Policy>
typename Policy::Options options(const Sizes& s) {
  typename Policy::Options o;
  o.sink = s.sink;
  o.window = s.window;
  o.threshold = s.threshold;
  if constexpr (!std::is_same<Policy, buzz::Beehive>::value) o.heavy = s.threshold / 2;
  if constexpr (std::is_same<Policy, buzz::Beehive>::value) o.hive = buzz::HiveRule::heaviest;
  return o;
}

template <class Policy>
class PolicyChooser : public Chooser {
 public:
  explicit PolicyChooser(const Sizes& s)
      : query_heads_(s.query_heads), policy_(options<Policy>(s), s.kv_heads, s.max_chunk) {}
  void append(const float*, const float*, int tokens) override { policy_.append(tokens); }
  void observe(const float* p, int tokens) override {
    policy_.observe(buzz::View<const float>(p, query_heads_, tokens, policy_.rows()));
  }
  void evict() override { policy_.select(); }
  int rows() const override { return policy_.rows(); }
  const int* positions(int head) const override { return policy_.positions(head).data; }

 private:
  int query_heads_;
  Policy policy_;
};

class CacheChooser : public Chooser {
 public:
  explicit CacheChooser(const Sizes& s) : s_(s), cache_(shape(s), options<buzz::KeyOutliers>(s)) {}
  void append(const float* k, const float* v, int tokens) override {
    cache_.append(buzz::View<const float>(k, tokens, s_.kv_heads, s_.head_dim),
                  buzz::View<const float>(v, tokens, s_.kv_heads, s_.head_dim));
  }
  void observe(const float*, int) override {}
  void evict() override { cache_.evict(); }
  int rows() const override { return cache_.rows(); }
  const int* positions(int head) const override { return cache_.positions(head).data; }

 private:
  Sizes s_;
  buzz::BuzzCache<float, buzz::KeyOutliers> cache_;
};

template <class T>
class CacheAttention : public Attention {
 public:
  explicit CacheAttention(const Sizes& s) : s_(s), cache_(shape(s), options<buzz::Beehive>(s), rope(s)) {}
  void attend(const float* q, const float* k, const float* v, int tokens, float* out) override {
    cache_.attend(buzz::View<const float>(q, tokens, s_.query_heads, s_.head_dim),
                  buzz::View<const float>(k, tokens, s_.kv_heads, s_.head_dim),
                  buzz::View<const float>(v, tokens, s_.kv_heads, s_.head_dim),
                  buzz::View<float>(out, tokens, s_.query_heads, s_.head_dim));
  }
  double score(int head, int row) const override { return cache_.scores(head)[row]; }

 private:
  static buzz::Rope rope(const Sizes& s) {
    buzz::Rope r;
    r.base = s.rope_base;
    return r;
  }
  Sizes s_;
  buzz::BuzzCache<T> cache_;
};

}  // namespace

std::unique_ptr<Chooser> make_chooser(Kind kind, const Sizes& s) {
  if (kind == Kind::beehive) return std::make_unique<PolicyChooser<buzz::Beehive>>(s);
  if (kind == Kind::heavy_hitter) return std::make_unique<PolicyChooser<buzz::HeavyHitter>>(s);
  return std::make_unique<CacheChooser>(s);
}

std::unique_ptr<Attention> make_attention(Type type, const Sizes& s) {
  if (type == Type::half) return std::make_unique<CacheAttention<Eigen::half>>(s);
  if (type == Type::bfloat16) return std::make_unique<CacheAttention<Eigen::bfloat16>>(s);
  return std::make_unique<CacheAttention<float>>(s);
}

}  // namespace host
