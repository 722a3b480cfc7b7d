#pragma once

// Random configurations, each drawn from one number, as the oracle and as the library take them.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "oracle_life.h"
#include "typed.h"

namespace oracle {

/// The same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  /// low to high, both included.
  int in(int low, int high) { return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1)); }
  bool one_in(int n) { return in(1, n) == 1; }
  /// In [-1, 1).
  float real() { return static_cast<float>(bits() >> 40) / 8388608.f - 1.f; }
  template <class X>
  X of(std::initializer_list<X> choices) {
    return choices.begin()[in(0, static_cast<int>(choices.size()) - 1)];
  }

 private:
  std::uint64_t state_;
};

/// A made-up sequence: the same numbers for the same token, whenever they are asked for.
class Text {
 public:
  explicit Text(std::uint64_t seed = 1, float amplitude = 1) : seed_(seed), amplitude_(amplitude) {}

  std::vector<float> queries(int first, int n, int heads, int dim) const { return make(0, first, n, heads, dim); }
  std::vector<float> keys(int first, int n, int heads, int dim) const { return make(1, first, n, heads, dim); }
  std::vector<float> values(int first, int n, int heads, int dim) const { return make(2, first, n, heads, dim); }

 private:
  std::vector<float> make(int kind, int first, int n, int heads, int dim) const;

  std::uint64_t seed_;
  float amplitude_;
};

enum class Kind {
  beehive,
  heavy_hitter,
  streaming,
  full,
  strided,
  diverse,
  given,
  tova,
  key_diff,
  key_value,
  snap_kv,
  key_outliers,
  leverage,
  lag_kv,
  calibrated,
  expected_attention,
  tri_attention,
  cap_kv
};
constexpr int kKinds = 18;

inline bool expects(Kind k) { return k == Kind::expected_attention || k == Kind::tri_attention || k == Kind::cap_kv; }

bool takes_top_k(Kind k);
/// Scores of keys and values are rounded, and some are negative.
bool looks_at_rows(Kind k);

struct Config {
  std::uint64_t seed = 0;
  Kind kind = Kind::beehive;
  Options oracle;
  int hive_stride = 0;    // as given to the library; 0: its default
  int top_threshold = 0;  // TopK's, as given to the library; 0: heavy
  int max_chunk = 1;
  std::vector<int> calls;  // tokens of each
  buzz::KeyStorage keys = buzz::KeyStorage::automatic;
  float amplitude = 1;  // of queries and keys

  int tokens() const {
    int sum = 0;
    for (int n : calls) sum += n;
    return sum;
  }
};

std::string describe(const Config& c);

/// What makes the policies of this kind what they are.
void set_kind(Config* c);

void draw_policy(Random& r, Config* c);
void draw_attention(Random& r, Config* c);
/// What today's models have beside softmax(q k) v: see AttentionOptions.
void draw_mechanisms(Random& r, Config* c);

Config draw(std::uint64_t seed);
/// The same with some of today's mechanisms.
Config draw_today(std::uint64_t seed);
/// A small configuration of each policy, which evicts every few tokens; Full has room for `tokens`.
Config small(Kind kind, std::uint64_t seed = 1, int tokens = 400);

/// The library's options of the same policy; each part of P::Options takes what it knows.
template <class P>
typename P::Options library_options(const Config& c) {
  using O = typename P::Options;
  const Options& o = c.oracle;
  O result;
  result.sink = o.sink;
  result.window = o.window;
  if constexpr (std::is_base_of<typed::AttentionSum::Options, O>::value) {
    result.attention = o.attention == AttentionKind::accumulated ? buzz::AttentionKind::accumulated
                       : o.attention == AttentionKind::mean      ? buzz::AttentionKind::mean
                       : o.attention == AttentionKind::latest    ? buzz::AttentionKind::latest
                       : o.attention == AttentionKind::newest    ? buzz::AttentionKind::newest
                       : o.attention == AttentionKind::largest   ? buzz::AttentionKind::largest
                                                                 : buzz::AttentionKind::decayed;
    if (o.attention == AttentionKind::decayed) result.decay = static_cast<float>(o.decay);
  }
  if constexpr (std::is_base_of<typed::KeyDiversity::Options, O>::value) {
    result.unlike = o.unlike == Unlike::cosine      ? buzz::Unlike::cosine
                    : o.unlike == Unlike::direction ? buzz::Unlike::direction
                                                    : buzz::Unlike::distance;
    result.mean_over = o.mean_over_middle ? buzz::MeanOver::middle : buzz::MeanOver::all;
  }
  if constexpr (std::is_same<typed::KeyValueBeehive::Options, O>::value) result.weight = static_cast<float>(o.weight);
  if constexpr (std::is_base_of<typed::RecentAttention::Options, O>::value) {
    result.queries = o.queries;
    result.kernel = o.kernel;
    result.pooling = o.average ? buzz::Pooling::average : buzz::Pooling::max;
  }
  if constexpr (std::is_base_of<buzz::RidgeOptions, O>::value) {
    result.of = o.of_values ? buzz::LeverageOf::values : buzz::LeverageOf::keys;
    result.ridge = static_cast<float>(o.ridge);
  }
  if constexpr (std::is_base_of<buzz::LagOptions, O>::value) result.lag = o.lag;
  if constexpr (std::is_base_of<buzz::ExpectedOptions, O>::value) {
    result.horizon = o.horizon;
    result.times = o.times_value ? buzz::ExpectedTimes::value : buzz::ExpectedTimes::nothing;
  }
  if constexpr (std::is_base_of<buzz::CapOptions, O>::value) {
    result.horizon = o.horizon;
    result.sharpness = static_cast<float>(o.sharpness);
  }
  if constexpr (std::is_base_of<buzz::TriOptions, O>::value) result.reach = o.reach;
  if constexpr (std::is_base_of<buzz::WeightsOptions, O>::value) result.trail = static_cast<float>(o.trail);
  if constexpr (std::is_base_of<buzz::Segments::Options, O>::value) {
    result.threshold = o.threshold;
    result.stride = o.stride;
    result.keep = o.keep;
    result.chunk = o.chunk;
    result.hive_stride = c.hive_stride;
    result.hive = o.hive == Hive::first      ? buzz::HiveRule::first
                  : o.hive == Hive::heaviest ? buzz::HiveRule::heaviest
                                             : buzz::HiveRule::together;
    result.passes = o.single_pass ? buzz::Passes::single : buzz::Passes::until_bounded;
  }
  if constexpr (std::is_base_of<buzz::TopK::Options, O>::value) {
    result.heavy = o.heavy;
    result.threshold = c.top_threshold;
  }
  if constexpr (std::is_base_of<buzz::KeepNone::Options, O>::value) result.threshold = o.threshold;
  if constexpr (std::is_base_of<buzz::KeepAll::Options, O>::value) result.capacity = std::max(1, c.tokens());
  if constexpr (std::is_same<typed::KeyOutliers::Options, O>::value)
    result.fade = static_cast<float>(o.fade * result.most_rows(c.max_chunk));
  return result;
}

/// Of a model of one layer, with the oracle's weights.
std::shared_ptr<const buzz::Calibration> made_up_calibration(int kv_heads, int key_dim, int value_dim);

/// The library's policy of the configuration's kind.
buzz::Policy library_policy(const Config& c);
buzz::Shape library_shape(const Config& c);
/// The values of n tokens as such a cache takes them.
buzz::View<const float> value_view(const std::vector<float>& v, int n, const buzz::Shape& s);
buzz::Rope library_rope(const Config& c);
Rotation rotation_of(const buzz::Rope& rope, int head_dim, bool raw);
buzz::AttentionOptions library_attention(const Config& c);

/// Most rows there may be, from the formula; for one pass, the fixed point of rows / 2 + 1 + max_chunk too;
/// Full has no others than its capacity.
int most_rows(const Config& c);

}  // namespace oracle
