#pragma once

// Runs one configuration through the library and through the oracle side by side and throws Mismatch at the first
// difference. The oracle attends over the very keys that the library stored, after each of them was compared with its
// own; so scores and outputs differ by float arithmetic alone, whatever the element type.

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle_config.h"

namespace oracle {

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool good, const char* what) {
  if (!good) throw Mismatch(what);
}

/// What a run of configurations met, so that a test can say that it tested something.
struct Statistics {
  int configurations = 0, evictions = 0, repeated_passes = 0, near_ties = 0;
  int evictions_of[kKinds] = {};
};

constexpr double kTolerance = 3e-5;  // of float arithmetic, relative; ten times what was measured

/// The spacing of T's numbers next to 1. (Eigen 3.4's numeric_limits are wrong for half.)
template <class T>
double epsilon() {
  if (std::is_same<T, Eigen::half>::value) return std::ldexp(1, -10);
  if (std::is_same<T, Eigen::bfloat16>::value) return std::ldexp(1, -7);
  return std::ldexp(1, -23);
}

template <class T>
double number(T x) {
  return static_cast<double>(static_cast<float>(x));
}

/// The choice must be the oracle's. Where it is not, float rounding may have turned a near tie: then giving the rows
/// that the library kept as much more must make the oracle choose them too.
inline bool same_choice(const Cache& cache, int h, const Config& c, const std::vector<double>& worth,
                        const std::vector<int>& kept, Cache::Choice* choice) {
  if (choice->kept == kept) return true;
  expect(c.kind != Kind::given && c.kind != Kind::strided, "kept rows, where scores are exact");
  std::vector<double> nudged = worth;
  for (int row : kept) {
    double& score = nudged[static_cast<std::size_t>(row)];
    score += looks_at_rows(c.kind) ? kTolerance : kTolerance * score;
  }
  *choice = cache.choose(h, nudged);
  expect(choice->kept == kept, "kept rows");
  return false;
}

template <class T, class P>
class Comparison {
 public:
  static constexpr bool kScaled = std::is_same<T, std::int8_t>::value;  // rows of whole numbers and a scale each
  using In = std::conditional_t<kScaled, float, T>;                     // what rows come as

  Comparison(const Config& c, Statistics* statistics)
      : c_(c),
        o_(with_rounding(c)),
        random_(c.seed + 1),
        statistics_(statistics),
        oracle_(o_),
        steps_(library_shape(c), library_options<P>(c), library_rope(c), library_attention(c)),
        whole_(library_shape(c), library_options<P>(c), library_rope(c), library_attention(c)) {}

  void run() {
    ++statistics_->configurations;
    expect(steps_.capacity() == most_rows(c_), "capacity");
    for (int n : c_.calls) {
      // The types of queries, keys and outputs are the caller's choice, call by call.
      const int types = random_.in(0, 2);
      if (types == 0) call<float, float, float>(n);
      if (types == 1) call<In, In, In>(n);
      if (types == 2) call<In, float, float>(n);
    }
    compare_rows(0);
  }

 private:
  static Options with_rounding(const Config& c) {
    Options o = c.oracle;
    o.stored = [](double x) { return number(In(static_cast<float>(x))); };
    return o;
  }

  template <class Q, class K, class O>
  void call(int n) {
    const std::vector<Q> q = values<Q>(n, o_.query_heads, c_.amplitude);
    const std::vector<K> k = values<K>(n, o_.kv_heads, c_.amplitude), v = values<K>(n, o_.kv_heads, 1);
    std::vector<O> out(q.size()), whole_out(q.size());
    const auto qv = buzz::view(q, n, o_.query_heads, o_.head_dim);
    const auto kv = buzz::view(k, n, o_.kv_heads, o_.head_dim), vv = buzz::view(v, n, o_.kv_heads, o_.head_dim);
    give();

    whole_.attend(qv, kv, vv, buzz::view(whole_out, n, o_.query_heads, o_.head_dim));
    steps_.append(kv, vv);
    oracle_.append(tokens(k, n, o_.kv_heads), tokens(v, n, o_.kv_heads));
    compare_rows(oracle_.rows() - n);

    steps_.attend(qv, buzz::view(out, n, o_.query_heads, o_.head_dim));
    compare_outputs(oracle_.attend(tokens(q, n, o_.query_heads)), out);

    steps_.observe();
    if ((o_.score == Score::mass || o_.score == Score::recent) && n > 0) oracle_.observe();
    compare_scores();

    compare_rows(evict() ? 0 : oracle_.rows());
    compare_scores();
    compare_twins(out, whole_out);
  }

  template <class X>
  std::vector<X> values(int n, int heads, float amplitude) {
    std::vector<X> result(static_cast<std::size_t>(n * heads * o_.head_dim));
    for (X& x : result) x = X(amplitude * random_.real());
    return result;
  }

  template <class X>
  Tokens tokens(const std::vector<X>& flat, int n, int heads) const {
    Tokens result(static_cast<std::size_t>(n));
    auto next = flat.begin();
    for (std::vector<Vector>& token : result) {
      for (int h = 0; h < heads; ++h) {
        token.emplace_back();
        for (int d = 0; d < o_.head_dim; ++d) token.back().push_back(number(*next++));
      }
    }
    return result;
  }

  /// The user's own scores: few values, so that many tie, and some that are not finite.
  void give() {
    if constexpr (std::is_same<P, buzz::Policy<buzz::Given, buzz::Segments>>::value) {
      const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> scores;
      for (int h = 0; h < o_.kv_heads; ++h) {
        for (Row& row : oracle_.head(h)) {
          const float few = static_cast<float>(random_.in(-2, 2));
          scores.push_back(random_.one_in(8) ? random_.of({nan, inf, -inf}) : few);
          row.score = static_cast<double>(scores.back());
        }
      }
      steps_.give(buzz::view(scores, 1, o_.kv_heads, steps_.rows()));
      whole_.give(buzz::view(scores, 1, o_.kv_heads, whole_.rows()));
    }
  }

  /// Sizes, regions, positions, and the stored rows from `first` on; then the oracle takes the stored keys.
  void compare_rows(int first) {
    const Regions r = oracle_.regions();
    expect(steps_.rows() == oracle_.rows(), "rows");
    expect(steps_.rows() <= steps_.capacity(), "rows past the capacity");
    expect(steps_.regions() == (buzz::Regions{r.sink, r.hive, r.fresh, r.window}), "regions");
    expect(steps_.next_position() == oracle_.next_position(), "next_position");
    const auto keys = steps_.keys(), values = steps_.values();
    const auto key_scales = steps_.key_scales(), value_scales = steps_.value_scales();
    for (int h = 0; h < o_.kv_heads; ++h) {
      const auto positions = steps_.positions(h);
      expect(positions.size == oracle_.rows(), "count of positions");
      for (int i = first; i < oracle_.rows(); ++i) {
        const Row& row = oracle_.head(h)[static_cast<std::size_t>(i)];
        expect(positions[i] == row.position, "position");
        const double key_scale = kScaled ? number(key_scales.row(0, h)[i]) : 1;
        const double value_scale = kScaled ? number(value_scales.row(0, h)[i]) : 1;
        const Vector key = vector(keys.row(h, i), key_scale), value = vector(values.row(h, i), value_scale);
        compare_key(key, key_scale, row);
        compare_value(value, value_scale, row);
        oracle_.replace_row(h, i, key, value);
      }
    }
  }

  Vector vector(const T* row, double scale) const {
    Vector result;
    result.reserve(static_cast<std::size_t>(o_.head_dim));
    for (int d = 0; d < o_.head_dim; ++d) result.push_back(scale * number(row[d]));
    return result;
  }

  void compare_key(const Vector& key, double scale, const Row& row) const {
    const bool turned = o_.rope_base != 0 && !o_.raw_keys;
    // Rounding is relative to an element's size, and a rotation mixes two; each move of a compact key rounds once more.
    const double roundings = 1 + (o_.rope_compact && turned ? row.moves : 0), most = largest(row.raw_key);
    double tolerance = turned ? 2.5 * roundings * epsilon<T>() * most : 0;
    if (kScaled) {
      expect(scale <= 1.5 * most / 127, "a scale that wastes bits");
      tolerance = roundings * (turned ? 1 : 0.501) * scale;
    }
    for (std::size_t d = 0; d < key.size(); ++d) expect(std::fabs(key[d] - row.key[d]) <= tolerance, "key");
  }

  void compare_value(const Vector& value, double scale, const Row& row) const {
    const double tolerance = kScaled ? 0.501 * scale : 0;
    expect(!kScaled || scale <= 1.01 * largest(row.value) / 127, "a scale that wastes bits");
    for (std::size_t d = 0; d < value.size(); ++d) expect(std::fabs(value[d] - row.value[d]) <= tolerance, "value");
  }

  static double largest(const Vector& x) {
    double result = 0;
    for (double e : x) result = std::max(result, std::fabs(e));
    return result;
  }

  template <class O>
  void compare_outputs(const Tokens& expected, const std::vector<O>& out) const {
    auto next = out.begin();
    for (const std::vector<Vector>& token : expected)
      for (const Vector& head : token)
        for (double x : head) {
          const double got = number(*next++);
          expect(std::fabs(got - x) <= kTolerance + epsilon<O>() * std::fabs(x), "attention output");
        }
  }

  void compare_scores() const {
    const bool kept = o_.score == Score::mass || o_.score == Score::given;
    for (int h = 0; h < o_.kv_heads; ++h) {
      const auto scores = steps_.scores(h);
      expect(scores.size == (kept ? oracle_.rows() : 0), "count of scores");
      for (int i = 0; i < scores.size; ++i) {
        const double x = oracle_.head(h)[static_cast<std::size_t>(i)].score, got = static_cast<double>(scores[i]);
        const bool same = std::isfinite(x) && o_.score == Score::mass ? std::fabs(got - x) <= kTolerance * x
                                                                      : got == x || (std::isnan(got) && std::isnan(x));
        expect(same, "score");
      }
    }
  }

  bool evict() {
    const bool due = oracle_.due();
    std::vector<std::vector<double>> worth;
    std::vector<Cache::Choice> choices;
    for (int h = 0; h < o_.kv_heads && due; ++h) {
      worth.push_back(oracle_.worth(h));
      choices.push_back(oracle_.choose(h, worth.back()));
    }
    expect(steps_.evict() == due, "whether an eviction is due");
    if (!due) return false;
    ++statistics_->evictions;
    ++statistics_->evictions_of[static_cast<int>(c_.kind)];
    statistics_->repeated_passes += choices[0].passes > 1;
    bool exact = true;
    for (int h = 0; h < o_.kv_heads; ++h)
      exact &= same_choice(oracle_, h, c_, worth[static_cast<std::size_t>(h)], kept_rows(h),
                           &choices[static_cast<std::size_t>(h)]);
    statistics_->near_ties += !exact;
    oracle_.evict(choices);
    return true;
  }

  /// The rows, as they were, that the library kept: known by their positions.
  std::vector<int> kept_rows(int h) const {
    std::vector<int> rows;
    const std::vector<Row>& before = oracle_.head(h);
    for (std::int32_t position : steps_.positions(h)) {
      std::size_t i = 0;
      while (i < before.size() && before[i].position != position) ++i;
      expect(i < before.size(), "a kept position that was not there");
      rows.push_back(static_cast<int>(i));
    }
    return rows;
  }

  /// One call and its four steps are the same bit for bit.
  template <class O>
  void compare_twins(const std::vector<O>& out, const std::vector<O>& whole_out) const {
    expect(out.empty() || std::memcmp(out.data(), whole_out.data(), out.size() * sizeof(O)) == 0, "output of one call");
    expect(steps_.rows() == whole_.rows() && steps_.regions() == whole_.regions(), "sizes after one call");
    for (int h = 0; h < o_.kv_heads; ++h) {
      expect(same_bits(steps_.positions(h), whole_.positions(h)), "positions after one call");
      expect(same_bits(steps_.scores(h), whole_.scores(h)), "scores after one call");
      for (int i = 0; i < steps_.rows(); ++i) {
        const std::size_t bytes = static_cast<std::size_t>(o_.head_dim) * sizeof(T);
        expect(std::memcmp(steps_.keys().row(h, i), whole_.keys().row(h, i), bytes) == 0, "keys after one call");
        expect(std::memcmp(steps_.values().row(h, i), whole_.values().row(h, i), bytes) == 0, "values after one call");
      }
    }
  }

  template <class X>
  static bool same_bits(buzz::Span<const X> a, buzz::Span<const X> b) {
    return a.size == b.size &&
           (a.size == 0 || std::memcmp(a.data, b.data, static_cast<std::size_t>(a.size) * sizeof(X)) == 0);
  }

  Config c_;
  Options o_;
  Random random_;
  Statistics* statistics_;
  Cache oracle_;
  buzz::BuzzCache<T, P> steps_, whole_;
};

template <class T>
void compare(const Config& c, Statistics* s) {
  switch (c.kind) {
    case Kind::beehive:
      return Comparison<T, buzz::Beehive>(c, s).run();
    case Kind::heavy_hitter:
      return Comparison<T, buzz::HeavyHitter>(c, s).run();
    case Kind::streaming:
      return Comparison<T, buzz::Streaming>(c, s).run();
    case Kind::full:
      return Comparison<T, buzz::Full>(c, s).run();
    case Kind::strided:
      return Comparison<T, buzz::Strided>(c, s).run();
    case Kind::diverse:
      return Comparison<T, buzz::DiverseBeehive>(c, s).run();
    case Kind::given:
      return Comparison<T, buzz::Policy<buzz::Given, buzz::Segments>>(c, s).run();
    case Kind::tova:
      return Comparison<T, buzz::Tova>(c, s).run();
    case Kind::key_diff:
      return Comparison<T, buzz::KeyDiff>(c, s).run();
    case Kind::key_value:
      return Comparison<T, buzz::KeyValueBeehive>(c, s).run();
    case Kind::snap_kv:
      return Comparison<T, buzz::SnapKv>(c, s).run();
  }
}

}  // namespace oracle
