#include "oracle_config.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace oracle {

namespace {

/// Calls of many tokens at first, or of one, or of any number; seldom of none.
void draw_calls(Random& r, Config* c) {
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

/// To name a type.
template <class P>
struct Type {
  using type = P;
};

}  // namespace

std::vector<float> Text::make(int kind, int first, int n, int heads, int dim) const {
  std::vector<float> all;
  for (int p = first; p < first + n; ++p) {
    Random random(seed_ * 1000003 + static_cast<std::uint64_t>(p) * 3 + static_cast<std::uint64_t>(kind));
    for (int i = 0; i < heads * dim; ++i) all.push_back((kind == 2 ? 1 : amplitude_) * random.real());
  }
  return all;
}

bool takes_top_k(Kind k) {
  return k == Kind::heavy_hitter || k == Kind::tova || k == Kind::key_diff || k == Kind::snap_kv ||
         k == Kind::key_outliers || k == Kind::leverage || k == Kind::lag_kv || k == Kind::calibrated || expects(k);
}

bool looks_at_rows(Kind k) {
  return k == Kind::diverse || k == Kind::key_diff || k == Kind::key_value || k == Kind::key_outliers ||
         k == Kind::leverage || k == Kind::lag_kv || k == Kind::calibrated || expects(k);
}

std::string describe(const Config& c) {
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

void set_kind(Config* c) {
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

void draw_policy(Random& r, Config* c) {
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

void draw_attention(Random& r, Config* c) {
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

void draw_mechanisms(Random& r, Config* c) {
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

Config draw(std::uint64_t seed) {
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

Config draw_today(std::uint64_t seed) {
  Random r(seed + 1000003);
  Config c = draw(seed);
  draw_mechanisms(r, &c);
  return c;
}

Config small(Kind kind, std::uint64_t seed, int tokens) {
  Config c;
  c.seed = seed;
  c.kind = kind;
  c.max_chunk = 8;
  c.calls = {tokens};
  Options& o = c.oracle;
  o.query_heads = 4;
  o.kv_heads = 2;
  o.head_dim = 8;
  o.scale = 1 / std::sqrt(8.0);
  o.sink = 2;
  o.window = 6;
  o.threshold = 18;
  o.stride = 4;
  o.hive_stride = 2;
  o.decay = 0.5;
  o.queries = 5;
  o.kernel = 3;
  o.ridge = 0.015625;
  o.lag = 4;
  o.horizon = 9;
  o.reach = 100;
  o.sharpness = 2;
  set_kind(&c);
  if (takes_top_k(kind)) {
    o.heavy = 12;
    c.top_threshold = o.threshold;
  }
  return c;
}

std::shared_ptr<const buzz::Calibration> made_up_calibration(int kv_heads, int key_dim, int value_dim) {
  auto calibration = std::make_shared<buzz::Calibration>(buzz::CalibratedModel{"", 1, kv_heads, key_dim, value_dim});
  std::vector<float> weights;
  for (int h = 0; h < kv_heads; ++h)
    for (int i = 0; i < calibration->head_size(); ++i)
      weights.push_back(static_cast<float>(made_up_weight(h, static_cast<std::size_t>(i))));
  calibration->set(0, weights);
  return calibration;
}

buzz::Policy library_policy(const Config& c) {
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

buzz::Shape library_shape(const Config& c) {
  buzz::Shape shape{c.oracle.query_heads, c.oracle.kv_heads, c.oracle.head_dim, c.max_chunk};
  shape.value_dim = c.oracle.value_dim;
  shape.values_in_keys = c.oracle.values_in_keys;
  return shape;
}

buzz::View<const float> value_view(const std::vector<float>& v, int n, const buzz::Shape& s) {
  if (s.values_in_keys) return {nullptr, 0, 0, 0};
  return buzz::view(v, n, s.kv_heads, s.value_size());
}

buzz::Rope library_rope(const Config& c) {
  buzz::Rope rope;
  rope.base = c.oracle.rope_base;
  rope.first = c.oracle.rope_first;
  rope.dims = c.oracle.rope_dims == c.oracle.head_dim - rope.first ? 0 : c.oracle.rope_dims;
  rope.pairs = c.oracle.rope_halves ? buzz::Pairs::halves : buzz::Pairs::interleaved;
  rope.positions = c.oracle.rope_compact ? buzz::Positions::compact : buzz::Positions::logical;
  rope.keys = c.keys;
  return rope;
}

Rotation rotation_of(const buzz::Rope& rope, int head_dim, bool raw) {
  Rotation t;
  const int dims = rope.dims != 0 ? rope.dims : head_dim - rope.first;
  t.first = static_cast<std::size_t>(rope.first);
  t.frequencies = rope.frequencies;
  for (int i = 0; rope.base != 0 && rope.frequencies.empty() && i < dims / 2; ++i)
    t.frequencies.push_back(std::pow(rope.base, -2.0 * i / dims));
  t.factor = rope.attention_factor;
  t.halves = rope.pairs == buzz::Pairs::halves;
  t.compact = rope.positions == buzz::Positions::compact;
  t.raw = raw;
  return t;
}

buzz::AttentionOptions library_attention(const Config& c) {
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

int most_rows(const Config& c) {
  const Options& o = c.oracle;
  int middle = o.threshold + c.max_chunk;
  if (o.select == Select::everything) return std::max(1, c.tokens());
  if (o.select == Select::segments && o.single_pass) middle = std::max(middle, 2 * (c.max_chunk + 1));
  return o.sink + o.window + middle;
}

}  // namespace oracle
