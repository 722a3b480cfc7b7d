#pragma once

#include <memory>

#include "buzz/attention_options.h"
#include "buzz/policy.h"
#include "buzz/rope.h"
#include "buzz/shape.h"

// The library on the host, behind plain pointers: nvcc never sees Eigen, which is compiled in host.cpp.

namespace host {

enum class Type { float32, half, bfloat16 };

/// What stays, by given probabilities: an evictor, and the keys that it looks at.
class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual void append(const float* k, int tokens) = 0;               // [tokens, kv_heads, head_dim]
  virtual void observe(const float* probabilities, int tokens) = 0;  // [query_heads, tokens, rows]
  virtual void evict() = 0;
  virtual int rows() const = 0;
  virtual const int* positions(int head) const = 0;
};
std::unique_ptr<Chooser> make_chooser(const buzz::Shape&, const buzz::Policy&);

/// A cache of which nothing is evicted: outputs and scores. Inputs are numbers of the type.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual void attend(const float* q, const float* k, const float* v, int tokens, float* out) = 0;
  virtual double score(int head, int row) const = 0;
};
std::unique_ptr<Attention> make_attention(Type, const buzz::Shape&, const buzz::Policy&, const buzz::Rope&,
                                          const buzz::AttentionOptions&);

}  // namespace host
