// Rows 1 to 5, 13 and 16 of the table: attention.
#pragma once

#include <benchmark/benchmark.h>

#include <cmath>
#include <stdexcept>

#include "plain_attention.h"
#include "problem.h"
#include "ratio.h"

namespace bench {

inline std::string at(const Layer& layer, int rows) { return layer.name() + ", " + std::to_string(rows) + " rows"; }

/// A plain vectorised sum over the bytes of a cache's K and V.
template <class T>
void sum_bytes(const buzz::BuzzCache<T>& cache) {
  for (const auto& rows : {cache.keys(), cache.values()})
    for (int h = 0; h < rows.shape(0); ++h) {
      const auto floats = static_cast<Eigen::Index>(count(1, rows.shape(1), rows.shape(2)) * sizeof(T) / sizeof(float));
      benchmark::DoNotOptimize(
          Eigen::Map<const Eigen::ArrayXf>(reinterpret_cast<const float*>(rows.row(h, 0)), floats).sum());
    }
}

template <class T>
void against_plain(const Layer& layer, int rows, double goal, const char* type, std::vector<Ratio>& table) {
  Decode<T> ours(layer, rows);
  std::vector<float> out(ours.q().size());
  const auto plain = [&] {
    plain_attention<T>(ours.q().data(), ours.cache().keys(), ours.cache().values(), layer.query_heads, out.data());
    benchmark::DoNotOptimize(out.data());
  };
  ours.attend();
  plain();
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!(std::abs(out[i] - ours.out()[i]) < 1e-2f)) throw std::runtime_error("ours and the plain attention differ");
  table.push_back(compare("5 attend / plain Eigen, " + std::string(type) + ", " + at(layer, rows), Goal::at_most(goal),
                          repeated([&] { ours.attend(); }), repeated(plain)));
}

/// The same attention over the same rows, with its column sums and a policy that adds them to the scores, and without.
inline void observing(const Decode<float>& decode, const Layer& layer, int rows, std::vector<Ratio>& table) {
  buzz::Attention attention(buzz::Shape{layer.query_heads, layer.kv_heads, layer.head_dim}, {}, rows);
  buzz::Evictor evictor(roomy_beehive(rows), layer.kv_heads, rows);
  evictor.append(rows);
  std::vector<float> out(decode.q().size()), room(count(1, layer.kv_heads, rows));
  const buzz::View<float> sums(room.data(), 1, layer.kv_heads, rows), none(nullptr, 0, 0, 0);
  const auto attend = [&](const buzz::View<float>& wanted) {
    attention(buzz::View<const float>(decode.q().data(), 1, layer.query_heads, layer.head_dim), {},
              decode.cache().keys(), decode.cache().values(),
              buzz::View<float>(out.data(), 1, layer.query_heads, layer.head_dim), wanted);
  };
  const Side with = repeated([&] {
    attend(sums);
    evictor.observe_sums(buzz::View<const float>(sums));
  });
  table.push_back(compare("4 attend with observing / without, " + at(layer, rows), Goal::at_most(1.03), with,
                          repeated([&] { attend(none); })));
}

/// Random rows.
struct Rows {
  Rows(const buzz::Shape& shape, int rows)
      : k(random_values<float>(count(shape.kv_heads, rows, shape.head_dim), 1)),
        v(random_values<float>(shape.values_in_keys ? 0 : count(shape.kv_heads, rows, shape.value_size()), 2)) {}
  std::vector<float> k, v;  // [kv_heads, rows, head_dim or value_size()]
};

/// One token's attention over rows, which have to outlive it.
class Token {
 public:
  Token(const buzz::Shape& shape, const buzz::AttentionOptions& options, int rows, const Rows& of)
      : shape_(shape),
        rows_(rows),
        attention_(shape, options, rows),
        of_(of),
        q_(random_values<float>(count(1, shape.query_heads, shape.head_dim), 3)),
        out_(count(1, shape.query_heads, shape.value_size())),
        sums_(count(1, shape.kv_heads, rows)) {}

  void attend() {
    const int heads = shape_.kv_heads, dim = shape_.head_dim, values = shape_.value_size();
    const std::ptrdiff_t stride = shape_.values_in_keys ? dim : values;
    attention_(buzz::View<const float>(q_.data(), 1, shape_.query_heads, dim), {},
               buzz::View<const float>(of_.k.data(), heads, rows_, dim),
               buzz::View<const float>(shape_.values_in_keys ? of_.k.data() : of_.v.data(), heads, rows_, values,
                                       stride * rows_, stride),
               buzz::View<float>(out_.data(), 1, shape_.query_heads, values),
               buzz::View<float>(sums_.data(), 1, heads, rows_));
    benchmark::DoNotOptimize(out_.data());
  }
  /// Of keys and of values that one attend() reads, from wherever they are.
  double bytes() const {
    return sizeof(float) * static_cast<double>(count(shape_.kv_heads, rows_, shape_.head_dim + shape_.value_size()));
  }

 private:
  buzz::Shape shape_;
  int rows_;
  buzz::Attention attention_;
  const Rows& of_;
  std::vector<float> q_, out_, sums_;
};

/// Today's mechanisms, one at a time, over attention without: the time of a byte that is read. Where the shape is the
/// same both sides read the same rows: where memory lies makes more of a difference than a mechanism.
inline void mechanisms(int rows, std::vector<Ratio>& table) {
  const auto against = [&](const std::string& name, Token& ours, Token& plain) {
    table.push_back(compare("16 attend " + name + ", " + std::to_string(rows) + " rows", Goal::at_most(1.15),
                            repeated([&] { ours.attend(); }), repeated([&] { plain.attend(); }),
                            plain.bytes() / ours.bytes()));
  };
  {
    const buzz::Shape shape{grouped.query_heads, grouped.kv_heads, grouped.head_dim};
    buzz::AttentionOptions capped, sinks;
    capped.soft_cap = 50;
    sinks.sinks.assign(static_cast<std::size_t>(shape.query_heads), 0.5f);
    const Rows same(shape, rows);
    Token plain(shape, {}, rows, same), with_cap(shape, capped, rows, same), with_sinks(shape, sinks, rows, same);
    against("with a soft-cap / without, " + grouped.name(), with_cap, plain);
    against("with sinks / without, " + grouped.name(), with_sinks, plain);
  }
  const buzz::Shape shape{16, 1, 128};
  buzz::Shape latent{16, 1, 576};  // DeepSeek V2 Lite's, whose values are parts of the keys
  latent.value_dim = 512;
  latent.values_in_keys = true;
  const Rows plain_rows(shape, rows), latent_rows(latent, rows);
  Token plain(shape, {}, rows, plain_rows), values_in_keys(latent, {}, rows, latent_rows);
  against("16/1x576, values in keys / 16/1x128, a byte", values_in_keys, plain);
}

/// Rows 1 to 4 at one size.
inline void attention_at(const Layer& layer, int rows, std::vector<Ratio>& table) {
  Decode<float> single(layer, rows);
  const Side attend = repeated([&] { single.attend(); });
  const bool is_long = rows == long_rows;
  const Goal none = Goal::none();
  table.push_back(compare("1 plain sum / attend, float, " + at(layer, rows), is_long ? Goal::at_least(0.85) : none,
                          repeated([&] { sum_bytes(single.cache()); }), attend));
  observing(single, layer, rows, table);
  const Goal converted = is_long ? Goal::at_most(0.6) : rows == paper_rows ? Goal::at_most(1.15) : none;
  {
    Decode<Eigen::bfloat16> bfloat(layer, rows);
    table.push_back(compare("2 attend bfloat16 / float, " + at(layer, rows), converted,
                            repeated([&] { bfloat.attend(); }), attend));
  }
  Decode<Eigen::half> half(layer, rows);
  const Side attend_half = repeated([&] { half.attend(); });
  table.push_back(compare("2 attend half / float, " + at(layer, rows), converted, attend_half, attend));
  Decode<std::int8_t> bytes(layer, rows);
  table.push_back(compare("3 attend int8 / half, " + at(layer, rows), is_long ? Goal::at_most(0.7) : none,
                          repeated([&] { bytes.attend(); }), attend_half));
}

/// Floating-point operations a second of a prefill chunk, against Eigen's product of the same shapes.
inline void prefill(std::vector<Ratio>& table) {
  const Layer layer = grouped;
  const int rows = 1076, tokens = 512, group = layer.query_heads / layer.kv_heads;
  buzz::Attention attention(buzz::Shape{layer.query_heads, layer.kv_heads, layer.head_dim, tokens}, {}, rows);
  const auto k = random_values<float>(count(layer.kv_heads, rows, layer.head_dim), 1), v = k;
  const auto q = random_values<float>(count(tokens, layer.query_heads, layer.head_dim), 2);
  std::vector<float> out(q.size()), sums(count(1, layer.kv_heads, rows));
  const buzz::View<const float> keys(k.data(), layer.kv_heads, rows, layer.head_dim);
  const buzz::View<const float> values(v.data(), layer.kv_heads, rows, layer.head_dim);
  double ours = 0;  // what causal attention has to compute: two products, two operations a term
  for (int t = 0; t < tokens; ++t) ours += 4. * layer.query_heads * layer.head_dim * (rows - tokens + t + 1);

  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Matrix a = Matrix::Random(tokens * group, layer.head_dim), b = Matrix::Random(rows, layer.head_dim);
  Matrix c(tokens * group, rows), d(tokens * group, layer.head_dim);
  const double products = 4. * tokens * group * layer.head_dim * rows;
  const Side attend = repeated([&] {
    attention(buzz::View<const float>(q.data(), tokens, layer.query_heads, layer.head_dim), {}, keys, values,
              buzz::view(out, tokens, layer.query_heads, layer.head_dim), buzz::view(sums, 1, layer.kv_heads, rows));
  });
  const Side product = repeated([&] {
    c.noalias() = a * b.transpose();
    d.noalias() = c * b;
  });
  table.push_back(compare("13 prefill 512 on 1076 rows, rate / Eigen's product", Goal::at_least(0.7), product, attend,
                          ours / products, 20));
}

inline void attention_rows(std::vector<Ratio>& table) {
  for (const Layer& layer : {grouped, ungrouped, small_layer})
    for (int rows : {paper_rows, 4096, long_rows}) attention_at(layer, rows, table);
  against_plain<float>(grouped, paper_rows, 0.6, "float", table);
  against_plain<float>(grouped, long_rows, 0.7, "float", table);
  against_plain<Eigen::half>(grouped, paper_rows, 0.4, "half", table);
  against_plain<Eigen::half>(grouped, long_rows, 0.25, "half", table);
  prefill(table);
  for (int rows : {paper_rows, long_rows}) mechanisms(rows, table);
}

}  // namespace bench
