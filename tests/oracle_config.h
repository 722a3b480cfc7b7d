#pragma once

// Random configurations, each drawn from one number, as the oracle and as the library take them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "oracle.h"
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

inline bool takes_top_k(Kind k) {
  return k == Kind::heavy_hitter || k == Kind::tova || k == Kind::key_diff || k == Kind::snap_kv ||
         k == Kind::key_outliers || k == Kind::leverage || k == Kind::lag_kv || k == Kind::calibrated || expects(k);
}
/// Scores of keys and values are rounded, and some are negative.
inline bool looks_at_rows(Kind k) {
  return k == Kind::diverse || k == Kind::key_diff || k == Kind::key_value || k == Kind::key_outliers ||
         k == Kind::leverage || k == Kind::lag_kv || k == Kind::calibrated || expects(k);
}

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

inline std::string describe(const Config& c) {
  const Options& o = c.oracle;
  std::ostringstream s;
  s << "seed " << c.seed << " kind " << static_cast<int>(c.kind) << " heads " << o.query_heads << "/" << o.kv_heads
    << " dim " << o.head_dim << " sink " << o.sink << " window " << o.window << " threshold " << o.threshold
    << " stride " << o.stride << " keep " << o.keep << " chunk " << o.chunk << " hive_stride " << c.hive_stride
    << " hive " << static_cast<int>(o.hive) << " single " << o.single_pass << " heavy " << o.heavy << " attention "
    << static_cast<int>(o.attention) << " decay " << o.decay << " unlike " << static_cast<int>(o.unlike)
    << (o.mean_over_middle ? " middle" : "") << " weight " << o.weight << " fade " << o.fade << " ridge " << o.ridge
    << (o.of_values ? " of values" : "") << " lag " << o.lag << " horizon " << o.horizon
    << (o.times_value ? "" : " alone") << " reach " << o.reach << " sharpness " << o.sharpness << " queries "
    << o.queries << " kernel " << o.kernel << (o.average ? " average" : "") << " rope " << o.rope_base << "/"
    << o.rope_dims << " from " << o.rope_first << (o.rope_halves ? " halves" : "") << (o.rope_compact ? " compact" : "")
    << (o.raw_keys ? " raw" : "") << " scale " << o.scale << " log_base " << o.log_base << " attention window "
    << o.attention_window << " value_dim " << o.value_dim << (o.values_in_keys ? " in keys" : "") << " soft_cap "
    << o.soft_cap << (o.sinks.empty() ? "" : " sinks")
    << (o.slopes.empty()    ? ""
        : o.slopes_by_place ? " slopes by place"
                            : " slopes")
    << " calls";
  for (int n : c.calls) s << " " << n;
  return s.str();
}

/// What makes the policies of this kind what they are.
inline void set_kind(Config* c) {
  Options& o = c->oracle;
  const Kind k = c->kind;
  if (k == Kind::streaming) o.select = Select::nothing;
  if (k == Kind::full) o.select = Select::everything;
  if (takes_top_k(k)) o.select = Select::heaviest;
  if (k == Kind::streaming || k == Kind::full || k == Kind::strided) o.score = Score::none;
  if (k == Kind::diverse || k == Kind::key_diff || k == Kind::key_outliers) o.score = Score::key_diversity;
  if (k == Kind::key_value) o.score = Score::key_value;
  if (k == Kind::snap_kv) o.score = Score::recent;
  if (k == Kind::leverage) o.score = Score::leverage;
  if (k == Kind::lag_kv) o.score = Score::lag;
  if (k == Kind::calibrated) o.score = Score::calibrated;
  if (k == Kind::expected_attention) o.score = Score::expected;
  if (k == Kind::tri_attention) o.score = Score::tri;
  if (k == Kind::cap_kv) o.score = Score::cap;
  if (k == Kind::given) o.score = Score::given;
  o.shared = k == Kind::tova || k == Kind::key_outliers;
  if (k == Kind::tova) o.attention = AttentionKind::newest;
  if (k == Kind::key_diff) o.unlike = Unlike::direction;
  if (k == Kind::calibrated) o.trail = o.fade == 0 ? 0 : o.window / 4.;
  if (k != Kind::key_outliers) o.fade = 0;
}

inline void draw_policy(Random& r, Config* c) {
  Options& o = c->oracle;
  o.sink = r.in(0, 6);
  o.window = r.in(0, 8);
  o.threshold = r.one_in(4) ? r.in(1, 3) : r.in(1, 24);
  o.attention = r.of({AttentionKind::accumulated, AttentionKind::mean, AttentionKind::latest, AttentionKind::newest,
                      AttentionKind::largest, AttentionKind::decayed});
  o.decay = r.of({0.5, 0.875});
  o.unlike = r.of({Unlike::cosine, Unlike::direction, Unlike::distance});
  o.mean_over_middle = r.one_in(2);
  o.weight = r.of({0.75, 0.5, -2.0});
  o.fade = r.of({0.0, 1. / 1024, 1. / 64});
  o.queries = r.in(1, 9);
  o.kernel = r.of({1, 3, 7});
  o.average = r.one_in(2);
  set_kind(c);
  // Two rows are equally far from their mean, so that rounding alone would choose between them.
  if (looks_at_rows(c->kind)) o.threshold = std::max(o.threshold, 2);
  if (o.select == Select::heaviest) {
    o.heavy = r.in(looks_at_rows(c->kind) ? 2 : 0, 12);
    if (o.sink + o.window == 0) o.heavy = std::max(o.heavy, 1);  // some row has to stay
    c->top_threshold = r.one_in(2) ? 0 : o.heavy + r.in(o.heavy == 0 ? 1 : 0, 6);
    o.threshold = c->top_threshold == 0 ? o.heavy : c->top_threshold;
  } else if (c->kind == Kind::streaming) {
    o.threshold = r.one_in(2) ? 0 : r.in(1, 6);
    if (o.sink == 0) o.window = std::max(o.window, 1);
  } else if (c->kind != Kind::full) {
    o.hive = r.of({Hive::first, Hive::heaviest, Hive::together});
    o.single_pass = r.one_in(4);
    o.stride = r.in(o.hive == Hive::together || o.single_pass ? 2 : 1, 7);
    o.keep = r.one_in(2) ? 1 : r.in(2, 4);
    if (r.one_in(3)) {
      o.stride = 0;
      o.chunk =
          o.single_pass ? r.in(2 * o.keep, 4 * o.keep) : r.in(o.keep + (o.hive == Hive::together), 3 * o.keep + 3);
      if (o.hive == Hive::together && !o.single_pass) o.threshold = std::max(o.threshold, o.chunk - 1);
    }
    c->hive_stride = o.hive == Hive::together || r.one_in(2) ? 0 : r.in(2, 5);
    o.hive_stride =
        c->hive_stride != 0 ? c->hive_stride : std::max(2, (o.chunk_rows() + 2 * o.keep - 1) / (2 * o.keep));
  }
}

inline void draw_attention(Random& r, Config* c) {
  Options& o = c->oracle;
  o.kv_heads = r.in(1, 8);
  o.query_heads = o.kv_heads * r.in(1, 8 / o.kv_heads);
  const int size = r.in(1, 100);
  o.head_dim = size <= 70 ? r.in(1, 16) : size <= 95 ? r.in(17, 64) : r.in(65, 128);
  // All keys of one dimension are parallel, so that their cosines differ by rounding alone.
  if (looks_at_rows(c->kind)) o.head_dim = std::max(o.head_dim, 2);
  if (o.head_dim >= 2 && r.in(1, 3) > 1) {
    const bool partial = o.head_dim % 2 != 0 || r.one_in(3);
    o.rope_base = r.of({10000.0, 500000.0, 1000000.0, 50.0});
    o.rope_dims = partial ? 2 * r.in(1, o.head_dim / 2) : o.head_dim;
    o.rope_halves = r.one_in(2);
    o.rope_compact = r.one_in(2);
    // In compact positions keys may be stored raw, and are where the policy moves rows at every call.
    const bool drifts = takes_top_k(c->kind) || c->kind == Kind::streaming;
    if (o.rope_compact) {
      c->keys = r.of({buzz::KeyStorage::automatic, drifts ? buzz::KeyStorage::raw : buzz::KeyStorage::rotated,
                      buzz::KeyStorage::raw});
      o.raw_keys = c->keys == buzz::KeyStorage::raw || (c->keys == buzz::KeyStorage::automatic && drifts);
    }
  }
  o.scale = (r.one_in(3) ? r.in(1, 6) * 0.25 : 1) / std::sqrt(static_cast<double>(o.head_dim));
  o.log_base = r.one_in(3) ? r.of({512.0, 10.0, 4.0}) : 0;
  c->amplitude = r.of({0.25f, 1.f, 2.f});
}

/// Calls of many tokens at first, or of one, or of any number; seldom of none.
inline void draw_calls(Random& r, Config* c) {
  c->max_chunk = r.one_in(3) ? 1 : r.in(2, 24);
  const int work = c->oracle.query_heads * c->oracle.head_dim;
  const int most = c->kind == Kind::full || work > 384 ? 24 : work > 96 ? 48 : 80;
  int left = r.one_in(20) ? r.in(0, 1) : r.in(2, most);
  const bool decode = r.one_in(3);
  if (decode && left > 0) c->calls.push_back(std::min(left, c->max_chunk));
  if (decode && left > 0) left -= c->calls[0];
  while (left > 0) {
    c->calls.push_back(decode ? 1 : r.one_in(30) ? 0 : std::min(left, r.in(1, c->max_chunk)));
    left -= c->calls.back();
  }
}

/// What today's models have beside softmax(q k) v: see AttentionOptions.
inline void draw_mechanisms(Random& r, Config* c) {
  Options& o = c->oracle;
  if (r.one_in(2)) o.attention_window = r.in(1, 40);
  if (r.one_in(2)) {
    const int unrotated = o.rope_base == 0 || o.raw_keys ? o.head_dim : o.rope_first;
    o.values_in_keys = unrotated > 0 && r.one_in(2);
    o.value_dim = o.values_in_keys ? r.in(1, unrotated) : r.one_in(4) ? r.in(60, 80) : r.in(1, 20);
  }
  if (r.one_in(2)) o.soft_cap = r.of({50., 2., 0.5});
  const bool sinks = r.one_in(2), slopes = r.one_in(2);
  for (int q = 0; q < o.query_heads; ++q) {
    if (sinks) o.sinks.push_back(r.one_in(8) ? r.of({-20., 9.}) : 2 * static_cast<double>(r.real()));
    if (slopes) o.slopes.push_back(r.one_in(8) ? 0 : std::ldexp(1, -r.in(0, 8)));
  }
  o.slopes_by_place = r.one_in(2);
}

inline Config draw(std::uint64_t seed) {
  Random r(seed);
  Config c;
  c.seed = seed;
  c.kind = static_cast<Kind>(seed % kKinds);
  draw_policy(r, &c);
  draw_attention(r, &c);
  draw_calls(r, &c);
  // From numbers of its own, so that a seed's other parts are what they were before.
  Random end(~seed);
  c.oracle.of_values = end.one_in(3);
  c.oracle.ridge = end.of({0.015625, 1.0, 0.0009765625});
  c.oracle.lag = end.one_in(4) ? 128 : end.in(1, 9);
  c.oracle.horizon = end.of({1, 7, 40});
  c.oracle.times_value = !end.one_in(3);
  c.oracle.reach = end.of({1, 100, 10000});
  c.oracle.sharpness = end.of({0., 0.5, 2.});
  if (c.oracle.rope_dims > 0 && end.one_in(2)) c.oracle.rope_first = end.in(0, c.oracle.head_dim - c.oracle.rope_dims);
  return c;
}

/// The same with some of today's mechanisms.
inline Config draw_today(std::uint64_t seed) {
  Random r(seed + 1000003);
  Config c = draw(seed);
  draw_mechanisms(r, &c);
  return c;
}

/// To name a type.
template <class P>
struct Type {
  using type = P;
};

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
inline std::shared_ptr<const buzz::Calibration> made_up_calibration(int kv_heads, int key_dim, int value_dim) {
  auto calibration = std::make_shared<buzz::Calibration>(buzz::CalibratedModel{"", 1, kv_heads, key_dim, value_dim});
  std::vector<float> weights;
  for (int h = 0; h < kv_heads; ++h)
    for (int i = 0; i < calibration->head_size(); ++i)
      weights.push_back(static_cast<float>(made_up_weight(h, static_cast<std::size_t>(i))));
  calibration->set(0, weights);
  return calibration;
}

/// The library's policy of the configuration's kind.
inline buzz::Policy library_policy(const Config& c) {
  const auto of = [&](auto tag) {
    using P = typename decltype(tag)::type;
    return P::make(library_options<P>(c));
  };
  switch (c.kind) {
    case Kind::beehive:
      return of(Type<typed::Beehive>());
    case Kind::heavy_hitter:
      return of(Type<typed::HeavyHitter>());
    case Kind::streaming:
      return of(Type<typed::Streaming>());
    case Kind::full:
      return of(Type<typed::Full>());
    case Kind::strided:
      return of(Type<typed::Strided>());
    case Kind::diverse:
      return of(Type<typed::DiverseBeehive>());
    case Kind::given:
      return of(Type<typed::Policy<typed::UserScores, buzz::Segments>>());
    case Kind::tova:
      return of(Type<typed::Tova>());
    case Kind::key_diff:
      return of(Type<typed::KeyDiff>());
    case Kind::key_value:
      return of(Type<typed::KeyValueBeehive>());
    case Kind::snap_kv:
      return of(Type<typed::SnapKv>());
    case Kind::key_outliers:
      return of(Type<typed::KeyOutliers>());
    case Kind::leverage:
      return of(Type<typed::Leverage>());
    case Kind::lag_kv:
      return of(Type<typed::LagKv>());
    case Kind::calibrated: {
      auto o = library_options<typed::Calibrated>(c);
      o.weights = made_up_calibration(c.oracle.kv_heads, c.oracle.head_dim, c.oracle.values());
      return typed::Calibrated::make(o);
    }
    case Kind::expected_attention:
      return of(Type<typed::ExpectedAttention>());
    case Kind::tri_attention:
      return of(Type<typed::TriAttention>());
    case Kind::cap_kv:
      return of(Type<typed::CapKv>());
  }
  throw std::logic_error("no such kind");
}

inline buzz::Shape library_shape(const Config& c) {
  buzz::Shape shape{c.oracle.query_heads, c.oracle.kv_heads, c.oracle.head_dim, c.max_chunk};
  shape.value_dim = c.oracle.value_dim;
  shape.values_in_keys = c.oracle.values_in_keys;
  return shape;
}

/// The values of n tokens as such a cache takes them.
inline buzz::View<const float> value_view(const std::vector<float>& v, int n, const buzz::Shape& s) {
  if (s.values_in_keys) return {nullptr, 0, 0, 0};
  return buzz::view(v, n, s.kv_heads, s.value_size());
}

inline buzz::Rope library_rope(const Config& c) {
  buzz::Rope rope;
  rope.base = c.oracle.rope_base;
  rope.first = c.oracle.rope_first;
  rope.dims = c.oracle.rope_dims == c.oracle.head_dim - rope.first ? 0 : c.oracle.rope_dims;
  rope.pairs = c.oracle.rope_halves ? buzz::Pairs::halves : buzz::Pairs::interleaved;
  rope.positions = c.oracle.rope_compact ? buzz::Positions::compact : buzz::Positions::logical;
  rope.keys = c.keys;
  return rope;
}

inline buzz::AttentionOptions library_attention(const Config& c) {
  buzz::AttentionOptions a;
  const double usual = 1 / std::sqrt(static_cast<double>(c.oracle.head_dim));
  a.scale = c.oracle.scale == usual ? 0 : c.oracle.scale;
  a.log_base = c.oracle.log_base;
  a.window = c.oracle.attention_window;
  a.soft_cap = c.oracle.soft_cap;
  a.sinks.assign(c.oracle.sinks.begin(), c.oracle.sinks.end());
  a.alibi_slopes.assign(c.oracle.slopes.begin(), c.oracle.slopes.end());
  if (c.oracle.slopes_by_place) a.alibi_positions = buzz::Positions::compact;
  return a;
}

/// Most rows there may be, from the formula; for one pass, the fixed point of rows / 2 + 1 + max_chunk too;
/// Full has no others than its capacity.
inline int most_rows(const Config& c) {
  const Options& o = c.oracle;
  int middle = o.threshold + c.max_chunk;
  if (o.select == Select::everything) return std::max(1, c.tokens());
  if (o.select == Select::segments && o.single_pass) middle = std::max(middle, 2 * (c.max_chunk + 1));
  return o.sink + o.window + middle;
}

}  // namespace oracle
