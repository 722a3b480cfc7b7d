#pragma once

#include <cmath>
#include <cstdint>

#include "buzz/cuda/lengths.cuh"
#include "buzz/cuda/rotate.cuh"
#include "buzz/cuda/rule.cuh"
#include "buzz/cuda/score.cuh"

namespace buzz {
namespace cuda {

/// A step as all of its kernels take it: what the layer holds beside K and V, from the step's first sequence on, what
/// the policy says, and the sizes.
struct Step {
  double* scores = nullptr;           ///< [count, kv_heads, capacity]
  std::int32_t* positions = nullptr;  ///< the same
  std::int32_t* kept = nullptr;  ///< [count, lists, capacity], the rows that an eviction keeps, ascending: Select's
  float* angles = nullptr;       ///< [count, max_chunk, rotation.dims], the call's rotations: Append's
  State* states = nullptr;       ///< [count]
  DeviceRotation rotation;       ///< of keys and queries
  LogitScale scale;              ///< of the logits
  Modifiers modifiers;           ///< of them too
  Fold fold;                     ///< what a probability does to a score
  Queries queries;               ///< of one KV head
  Protect protect;               ///< sink and window
  Rule rule;                     ///< which rows between them stay, and when
  /// Sizes of the above; lists: kv_heads, or 1 that all heads share; count: sequences.
  /// @{
  int kv_heads = 1, lists = 1, head_dim = 0, capacity = 0, max_chunk = 1, count = 1;
  /// @}

  /// Most blocks of a launch over rows, but for one a head: as many as keep a card busy. Grids are those of the
  /// capacity, which a captured step keeps, and a large one would launch blocks by the million that find no row.
  static constexpr int most_blocks = 4096;
  /// How many blocks a KV head's rows are shared by, which a block takes `at_once` at a time: block x those from x *
  /// at_once on, then those as many blocks on, as long as there are any.
  BUZZ_HOST_DEVICE int row_blocks(long long at_once) const {
    const long long heads = static_cast<long long>(kv_heads) * count, wanted = (capacity - 1) / at_once + 1;
    const long long most = heads < most_blocks ? most_blocks / heads : 1;
    return static_cast<int>(wanted < most ? wanted : most);
  }

  BUZZ_HOST_DEVICE int value_dim() const { return modifiers.value_dim; }  ///< elements of a value, and of an output

  /// Where a head's rows begin in scores and positions.
  BUZZ_HOST_DEVICE long long begin(int s, int head) const {
    return (static_cast<long long>(s) * kv_heads + head) * capacity;
  }
  /// Where a list begins in `kept`.
  BUZZ_HOST_DEVICE long long begin_of_list(int s, int list) const {
    return (static_cast<long long>(s) * lists + list) * capacity;
  }
  /// The rows that an eviction keeps of a head.
  BUZZ_HOST_DEVICE const std::int32_t* kept_of(int s, int head) const {
    return kept + begin_of_list(s, lists == 1 ? 0 : head);
  }
  /// A token's rotation: cosines, then sines.
  BUZZ_HOST_DEVICE float* angles_of(int s, int token) const {
    return angles + (static_cast<long long>(s) * max_chunk + token) * rotation.dims;
  }
  /// Where query row i of a KV head is in what is [count, query_heads, tokens].
  BUZZ_HOST_DEVICE long long query_at(int s, int kv_head, int i) const {
    const long long head = static_cast<long long>(s) * kv_heads * queries.group + queries.head(kv_head, i);
    return head * queries.tokens + queries.token(i);
  }
  /// The same where it is [count, tokens, query_heads].
  BUZZ_HOST_DEVICE long long lse_at(int s, int kv_head, int i) const {
    const long long token = static_cast<long long>(s) * queries.tokens + queries.token(i);
    return token * kv_heads * queries.group + queries.head(kv_head, i);
  }

  /// The first row that a query sees, of those in front of row `seen`, the end of what it sees.
  template <bool modified>
  BUZZ_HOST_DEVICE int window_begin(int seen) const {
    return !modified || modifiers.window == 0 || seen <= modifiers.window ? 0 : seen - modifiers.window;
  }
  /// The first row that query row i sees, of `rows`; see Queries::seen() for their end.
  template <bool modified>
  BUZZ_HOST_DEVICE int first_seen(int i, int rows) const {
    return window_begin<modified>(queries.seen(i, rows));
  }
  /// What query row i is multiplied by.
  template <bool modified>
  BUZZ_DEVICE float sharpness(int i, int rows) const {
    return scale.of(queries.seen(i, rows) - first_seen<modified>(i, rows));
  }
  /// ALiBi's slope of query row i; 0 without one.
  BUZZ_DEVICE float slope(int kv_head, int i) const {
    return modifiers.slopes == nullptr ? 0 : modifiers.slopes[queries.head(kv_head, i)];
  }
  /// The logit of a row and of a query whose newest row is `newest`, from their product.
  BUZZ_DEVICE float modified(float product, int s, int kv_head, float slope, int newest, int row) const {
    float logit = modifiers.soft_cap == 0 ? product : modifiers.soft_cap * ::tanhf(product);
    if (modifiers.slopes != nullptr) {
      const std::int32_t* at = positions + begin(s, kv_head);
      const int distance = modifiers.by_place ? newest - row : at[newest] - at[row];
      logit -= slope * static_cast<float>(distance);
    }
    return logit;
  }
  /// The term of query row i's sink beside those of a softmax whose largest logit is `top`, as kernels::term_beside()
  /// has it; 0 without one.
  BUZZ_DEVICE float sink_term(int kv_head, int i, float top) const {
    if (modifiers.sinks == nullptr) return 0;
    const float x = modifiers.sinks[queries.head(kv_head, i)] - top;
    return ::expf(x < 80 ? x : 80);
  }
};

/// The same with K and V.
template <class T>
struct StepOf : Step {
  Tensor<T> keys;    ///< [count, kv_heads, capacity, head_dim], rotated where there is a Rope
  Tensor<T> values;  ///< [count, kv_heads, capacity, value_dim]
};

}  // namespace cuda
}  // namespace buzz
