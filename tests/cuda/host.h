#pragma once

#include <memory>

// The library on the host, behind plain pointers: nvcc never sees Eigen, which is compiled in host.cpp.

namespace host {

struct Sizes {
  int query_heads, kv_heads, head_dim, max_chunk;
  int sink, window, threshold;  // threshold: heavy too
  double rope_base;
};

enum class Kind { beehive, heavy_hitter, key_outliers };
enum class Type { float32, half, bfloat16 };

/// A policy alone (beehive, heavy_hitter), or a cache that holds keys.
class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual void append(const float* k, const float* v, int tokens) = 0;  // [tokens, kv_heads, head_dim]
  virtual void observe(const float* probabilities, int tokens) = 0;     // [query_heads, tokens, rows]
  virtual void evict() = 0;
  virtual int rows() const = 0;
  virtual const int* positions(int head) const = 0;
};
std::unique_ptr<Chooser> make_chooser(Kind, const Sizes&);

/// A cache of which nothing is evicted: outputs and scores. Inputs are numbers of the type.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual void attend(const float* q, const float* k, const float* v, int tokens, float* out) = 0;
  virtual double score(int head, int row) const = 0;
};
std::unique_ptr<Attention> make_attention(Type, const Sizes&);

}  // namespace host
