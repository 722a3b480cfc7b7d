#pragma once

// buzz::cuda::BuzzCache on the emulated device, in poisoned memory: what nobody wrote is NaN.

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "buzz/cuda/buzz_cache.cuh"
#include "buzz/policies.h"
#include "cuda_emulation.h"
#include "oracle_config.h"

namespace emulated {

using Floats = std::vector<float>;

/// A window and what becomes of logits before the softmax, drawn; each may be missing.
inline buzz::AttentionOptions draw_modifiers(oracle::Random& random, int query_heads) {
  oracle::Config config;
  config.oracle.query_heads = query_heads;
  oracle::draw_mechanisms(random, &config);
  buzz::AttentionOptions a = oracle::library_attention(config);
  a.scale = 0;
  return a;
}

/// 256-byte aligned bytes, all ones: NaN in every type, -1 in integers.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes + 256, static_cast<char>(0xff)) {}
  void* data() {
    void* begin = bytes_.data();
    std::size_t space = bytes_.size();
    return std::align(256, space - 256, begin, space);
  }

 private:
  std::vector<char> bytes_;
};

template <class T>
struct Twin {
  using Cache = buzz::cuda::BasicCache<T, Launcher>;

  Twin(const buzz::Shape& shape, const buzz::cuda::Batch& batch, const buzz::Policy& policy,
       const buzz::Rope& rope = {}, const buzz::cuda::AttentionOptions& attention = {})
      : memory(Cache::bytes(shape, batch, policy, rope).cache),
        workspace(Cache::bytes(shape, batch, policy, rope).workspace),
        cache(shape, batch, policy, rope, memory.data(), workspace.data(), attention) {
    if (cache.reset(seed()) != Launcher::success) throw 1;
  }
  int seed() { return static_cast<int>(random() % 100000); }

  /// One step of sequences [first, first + count): q [count, tokens, query_heads, head_dim], k and v [count, tokens,
  /// kv_heads, head_dim or value_size()]; returns the outputs.
  Floats attend(const Floats& q, const Floats& k, const Floats& v, buzz::cuda::Call call) {
    const std::vector<T> tq = typed(q), tk = typed(k), tv = typed(v);
    const buzz::Shape& s = cache.shape();
    const int dim = s.head_dim, value_dim = s.value_size();
    std::vector<T> out =
        typed(Floats(q.size() / static_cast<std::size_t>(dim) * static_cast<std::size_t>(value_dim), NAN));
    const auto view = [&](auto* data, int heads, int of) { return buzz::cuda::dense(data, call.tokens, heads, of); };
    const T *its_q = tq.data(), *its_k = tk.data(), *its_v = tv.data();
    if (cache.attend(view(its_q, s.query_heads, dim), view(its_k, s.kv_heads, dim), view(its_v, s.kv_heads, value_dim),
                     view(out.data(), s.query_heads, value_dim), call, seed()) != Launcher::success)
      throw 2;
    Floats result;
    for (const T& x : out) result.push_back(static_cast<float>(x));
    return result;
  }
  static std::vector<T> typed(const Floats& x) {
    std::vector<T> result;
    for (const float f : x) result.push_back(static_cast<T>(f));
    return result;
  }
  double score(int sequence, int head, int row) const {
    return cache.scores(sequence)[static_cast<std::ptrdiff_t>(head) * cache.capacity() + row];
  }
  int position(int sequence, int head, int row) const {
    return cache.positions(sequence)[static_cast<std::ptrdiff_t>(head) * cache.capacity() + row];
  }

  std::minstd_rand random{7};
  Memory memory, workspace;
  Cache cache;
};

}  // namespace emulated
