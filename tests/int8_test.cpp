// The error of int8 rows is within the bounds that rows.h derives: of a value, of attention, of re-rotation.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "typed.h"

namespace {

using Values = std::vector<float>;

constexpr double kHalfACode = 0.50002;
constexpr double kFloat = 1e-5;  // what sums of floats round, relative

Values random_values(std::size_t count, double largest, std::mt19937* random) {
  std::uniform_real_distribution<double> uniform(-largest, largest);
  Values v(count);
  for (float& x : v) x = static_cast<float>(uniform(*random));
  return v;
}

double scale_of(const float* row, int dim) {
  double largest = 0;
  for (int i = 0; i < dim; ++i) largest = std::max(largest, std::fabs(static_cast<double>(row[i])));
  return largest / 127;
}

TEST(Int8, AValueIsOffByHalfACode) {
  std::mt19937 random(1);
  double worst = 0;
  for (int round = 0; round < 20000; ++round) {
    const int dim = 1 + round % 200;
    const Values row = random_values(static_cast<std::size_t>(dim), std::ldexp(1, round % 60 - 30), &random);
    std::vector<std::int8_t> codes(row.size());
    const double scale = static_cast<double>(buzz::quantise_row(row.data(), dim, codes.data()));
    ASSERT_NEAR(scale, scale_of(row.data(), dim), 1e-7 * scale);
    for (std::size_t i = 0; i < row.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(row[i]) - scale * codes[i]) / scale);
  }
  EXPECT_LE(worst, kHalfACode);
  EXPECT_GT(worst, 0.4999) << "or these are not hard enough";
}

/// Attention of one token over exact rows, in double: [query_heads, head_dim].
std::vector<double> attention(const buzz::Shape& s, int rows, const Values& q, const Values& k, const Values& v) {
  const auto at = [&](const Values& x, int row, int head, int heads, int i) {
    return static_cast<double>(x[static_cast<std::size_t>((row * heads + head) * s.head_dim + i)]);
  };
  std::vector<double> out;
  for (int h = 0; h < s.query_heads; ++h) {
    const int kv = h / s.group();
    std::vector<double> p;
    double sum = 0;
    for (int r = 0; r < rows; ++r) {
      double logit = 0;
      for (int i = 0; i < s.head_dim; ++i) logit += at(q, 0, h, s.query_heads, i) * at(k, r, kv, s.kv_heads, i);
      p.push_back(std::exp(logit / std::sqrt(s.head_dim)));
      sum += p.back();
    }
    for (int i = 0; i < s.head_dim; ++i) {
      double x = 0;
      for (int r = 0; r < rows; ++r) x += p[static_cast<std::size_t>(r)] / sum * at(v, r, kv, s.kv_heads, i);
      out.push_back(x);
    }
  }
  return out;
}

TEST(Int8, AttentionIsWithinItsBound) {
  std::mt19937 random(2);
  double closest = 0;
  for (int round = 0; round < 400; ++round) {
    const int kv_heads = 1 + round % 3, dim = 1 + static_cast<int>(random() % 130),
              rows = 1 + static_cast<int>(random() % 90);
    const buzz::Shape s{kv_heads * (1 + round % 5), kv_heads, dim, rows};
    const auto count = [&](int n, int heads) { return static_cast<std::size_t>(n * heads * dim); };
    const Values k = random_values(count(rows, kv_heads), 1, &random), v = random_values(k.size(), 3, &random);
    const Values q = random_values(count(1, s.query_heads), 2, &random);
    typed::Cache<std::int8_t, typed::Full> cache(s, [&] {
      typed::Full::Options o;
      o.capacity = rows;
      return o;
    }());
    cache.append(buzz::view(k, rows, kv_heads, dim), buzz::view(v, rows, kv_heads, dim));
    Values out(q.size());
    cache.attend(buzz::view(q, 1, s.query_heads, dim), buzz::view(out, 1, s.query_heads, dim));

    double key_scale = 0, value_scale = 0, largest = 0;
    for (int r = 0; r < rows * kv_heads; ++r) {
      key_scale = std::max(key_scale, scale_of(k.data() + r * dim, dim));
      value_scale = std::max(value_scale, scale_of(v.data() + r * dim, dim));
    }
    for (float x : v) largest = std::max(largest, std::fabs(static_cast<double>(x)));
    const std::vector<double> exact = attention(s, rows, q, k, v);
    for (int h = 0; h < s.query_heads; ++h) {
      double sum = 0;
      for (int i = 0; i < dim; ++i) sum += std::fabs(static_cast<double>(q[static_cast<std::size_t>(h * dim + i)]));
      const double e = sum / std::sqrt(dim) * kHalfACode * key_scale;
      const double bound = std::expm1(2 * e) * largest + kHalfACode * value_scale + kFloat * largest;
      for (int i = 0; i < dim; ++i) {
        const auto at = static_cast<std::size_t>(h * dim + i);
        ASSERT_LE(std::fabs(static_cast<double>(out[at]) - exact[at]), bound) << "round " << round;
        closest = std::max(closest, std::fabs(static_cast<double>(out[at]) - exact[at]) / bound);
      }
    }
  }
  EXPECT_GT(closest, 0.3) << "a bound that far away says little";
}

TEST(Int8, AReRotationAddsHalfACodeAValue) {
  std::mt19937 random(3);
  const int dim = 64;
  const buzz::Rotation rotation(buzz::Rope{10000.0}, dim);
  for (int round = 0; round < 300; ++round) {
    Values row = random_values(dim, 1, &random), exact = row;
    buzz::Rows<std::int8_t> rows(1, 1, dim);
    Values room(dim), angles(dim);
    double bound = 0;
    for (int move = 0; move < 20; ++move) {
      rows.put(0, 0, row.data(), room.data());
      bound += std::sqrt(dim) * (kHalfACode * scale_of(row.data(), dim) + 1e-6);
      rows.get(0, 0, row.data());
      double error = 0;
      for (std::size_t i = 0; i < row.size(); ++i) error += std::pow(static_cast<double>(row[i] - exact[i]), 2);
      ASSERT_LE(std::sqrt(error), bound) << move << " moves";
      rotation.move(-1 - static_cast<int>(random() % 400), angles.data());
      rotation.rotate(angles.data(), row.data());
      rotation.rotate(angles.data(), exact.data());
    }
  }
}

TEST(Int8, TakesAQuarterOfFloatsMemoryAndTheScales) {
  const buzz::Shape s{8, 2, 64};
  typed::Cache<float> floats(s);
  typed::Cache<std::int8_t> codes(s);
  const std::size_t rows = static_cast<std::size_t>(floats.capacity()) * 2 * 2;  // K and V
  EXPECT_EQ(floats.bytes() - codes.bytes(), rows * (64 * 4 - 64 - 4));
}

}  // namespace
