#include "host.h"

#include <buzz.h>

#include <algorithm>
#include <vector>

namespace host {
namespace {

class EvictorChooser : public Chooser {
 public:
  EvictorChooser(const buzz::Shape& shape, const buzz::Policy& policy)
      : shape_(shape),
        evictor_(policy, shape.kv_heads, shape.max_chunk),
        keys_(static_cast<std::size_t>(shape.kv_heads * evictor_.capacity() * shape.head_dim)) {}
  void append(const float* k, int tokens) override {
    const int first = evictor_.rows();
    evictor_.append(tokens);
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < shape_.kv_heads; ++h)
        std::copy_n(k + (t * shape_.kv_heads + h) * shape_.head_dim, shape_.head_dim, keys().row(h, first + t));
  }
  void observe(const float* p, int tokens) override {
    evictor_.observe(buzz::View<const float>(p, shape_.query_heads, tokens, evictor_.rows()));
  }
  void evict() override {
    const buzz::View<float> before = keys();
    buzz::compact(evictor_.select(before, before), before);
  }
  int rows() const override { return evictor_.rows(); }
  const int* positions(int head) const override { return evictor_.positions(head).data; }

 private:
  buzz::View<float> keys() {
    return {keys_.data(),   shape_.kv_heads, evictor_.rows(), shape_.head_dim, evictor_.capacity() * shape_.head_dim,
            shape_.head_dim};
  }

  buzz::Shape shape_;
  buzz::Evictor evictor_;
  std::vector<float> keys_;  // [kv_heads, capacity, head_dim]
};

template <class T>
class CacheAttention : public Attention {
 public:
  CacheAttention(const buzz::Shape& shape, const buzz::Policy& policy, const buzz::Rope& rope,
                 const buzz::AttentionOptions& options)
      : cache_(shape, policy, rope, options) {}
  void attend(const float* q, const float* k, const float* v, int tokens, float* out) override {
    const buzz::Shape& s = cache_.shape();
    cache_.attend(buzz::View<const float>(q, tokens, s.query_heads, s.head_dim),
                  buzz::View<const float>(k, tokens, s.kv_heads, s.head_dim),
                  buzz::View<const float>(v, tokens, s.kv_heads, s.value_size()),
                  buzz::View<float>(out, tokens, s.query_heads, s.value_size()));
  }
  double score(int head, int row) const override { return cache_.scores(head)[row]; }

 private:
  buzz::BuzzCache<T> cache_;
};

}  // namespace

std::unique_ptr<Chooser> make_chooser(const buzz::Shape& shape, const buzz::Policy& policy) {
  return std::make_unique<EvictorChooser>(shape, policy);
}

std::unique_ptr<Attention> make_attention(Type type, const buzz::Shape& shape, const buzz::Policy& policy,
                                          const buzz::Rope& rope, const buzz::AttentionOptions& options) {
  if (type == Type::half) return std::make_unique<CacheAttention<Eigen::half>>(shape, policy, rope, options);
  if (type == Type::bfloat16) return std::make_unique<CacheAttention<Eigen::bfloat16>>(shape, policy, rope, options);
  return std::make_unique<CacheAttention<float>>(shape, policy, rope, options);
}

}  // namespace host
