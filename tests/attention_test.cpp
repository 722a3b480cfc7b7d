#include "buzz/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "typed.h"

namespace {

using buzz::AttentionOptions;
using buzz::Shape;
using buzz::View;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Values random_values(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values v(static_cast<std::size_t>(count));
  for (float& x : v) x = uniform(random);
  return v;
}

/// A cache that evicts nothing and whose scores show the column sums.
template <class T>
struct Layer {
  Layer(const Shape& s, int capacity, const AttentionOptions& o = {})
      : shape(s), cache(with_chunk(s, capacity), everything(), {}, o) {}

  static Shape with_chunk(Shape s, int capacity) {
    s.max_chunk = capacity;
    return s;
  }
  static typed::Options everything() {
    typed::Options o;
    o.window = 1000;
    return o;
  }

  void append(const Values& k, const Values& v) {
    const int tokens = static_cast<int>(k.size()) / (shape.kv_heads * shape.head_dim);
    cache.append(buzz::view(k, tokens, shape.kv_heads, shape.head_dim),
                 buzz::view(v, tokens, shape.kv_heads, shape.head_dim));
  }
  void append_random(int tokens, unsigned seed) {
    const int count = tokens * shape.kv_heads * shape.head_dim;
    append(random_values(count, 1000 + seed), random_values(count, 2000 + seed));
  }
  Values random_queries(int tokens, unsigned seed) const {
    return random_values(tokens * shape.query_heads * shape.head_dim, 3000 + seed);
  }

  /// Attends with the newest rows' queries and adds the column sums to the scores.
  Values attend(const Values& q, buzz::Executor run = {}) {
    const int tokens = static_cast<int>(q.size()) / (shape.query_heads * shape.head_dim);
    Values out(q.size());
    cache.attend(buzz::view(q, tokens, shape.query_heads, shape.head_dim),
                 buzz::view(out, tokens, shape.query_heads, shape.head_dim), run);
    cache.observe();
    return out;
  }

  Values sums(int head) const { return Values(cache.scores(head).begin(), cache.scores(head).end()); }

  Shape shape;
  typed::Cache<T> cache;
};

struct Plain {
  std::vector<double> out;                // [tokens, query_heads, head_dim]
  std::vector<std::vector<double>> sums;  // [kv_heads][rows]
};

/// Attention over the stored rows, one sum after the other, in double.
template <class T>
Plain plain(const Layer<T>& layer, const Values& q, double scale, double log_base = 0) {
  const Shape& s = layer.shape;
  const auto keys = layer.cache.keys(), values = layer.cache.values();
  const int rows = layer.cache.rows(), n = static_cast<int>(q.size()) / (s.query_heads * s.head_dim);
  Plain result;
  result.sums.assign(static_cast<std::size_t>(s.kv_heads), std::vector<double>(static_cast<std::size_t>(rows)));
  for (int t = 0; t < n; ++t)
    for (int head = 0; head < s.query_heads; ++head) {
      const float* query = q.data() + (t * s.query_heads + head) * s.head_dim;
      const int kv = head / (s.query_heads / s.kv_heads), seen = rows - n + t + 1;
      std::vector<double> p;
      double sum = 0;
      for (int r = 0; r < seen; ++r) {
        double logit = 0;
        for (int d = 0; d < s.head_dim; ++d) logit += double(query[d]) * double(static_cast<float>(keys.row(kv, r)[d]));
        logit *= scale;
        if (log_base != 0) logit *= std::log(double(seen)) / std::log(log_base);
        p.push_back(std::exp(logit));
        sum += p.back();
      }
      for (int r = 0; r < seen; ++r)
        result.sums[static_cast<std::size_t>(kv)][static_cast<std::size_t>(r)] += p[static_cast<std::size_t>(r)] / sum;
      for (int d = 0; d < s.head_dim; ++d) {
        double mixed = 0;
        for (int r = 0; r < seen; ++r)
          mixed += p[static_cast<std::size_t>(r)] / sum * double(static_cast<float>(values.row(kv, r)[d]));
        result.out.push_back(mixed);
      }
    }
  return result;
}

void expect_near(const Values& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(double(got[i]), expected[i], tolerance) << "at " << i;
}

/// One call of `newest` queries behind `before` rows agrees with doubles, output and column sums.
template <class T>
void agrees(const Shape& shape, int before, int newest, AttentionOptions options = {}) {
  Layer<T> layer(shape, before + newest, options);
  layer.append_random(before, 1);
  layer.append_random(newest, 2);
  const Values q = layer.random_queries(newest, 3);
  const Values out = layer.attend(q);
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(double(shape.head_dim));
  const Plain expected = plain(layer, q, scale, options.log_base);
  expect_near(out, expected.out, 2e-6);
  for (int h = 0; h < shape.kv_heads; ++h)
    expect_near(layer.sums(h), expected.sums[static_cast<std::size_t>(h)], 1e-6 * newest * shape.group());
}

template <class T>
class AttentionOf : public testing::Test {};
using Types = testing::Types<float, Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(AttentionOf, Types);

TYPED_TEST(AttentionOf, OneQueryAgreesWithDoubles) {
  agrees<TypeParam>({1, 1, 1}, 0, 1);
  agrees<TypeParam>({1, 1, 7}, 12, 1);
  agrees<TypeParam>({3, 1, 5}, 64, 1);
  agrees<TypeParam>({8, 2, 33}, 129, 1);
}

TYPED_TEST(AttentionOf, AChunkAgreesWithDoubles) {
  agrees<TypeParam>({1, 1, 3}, 0, 2);
  agrees<TypeParam>({4, 4, 17}, 3, 9);
  agrees<TypeParam>({6, 2, 8}, 70, 65);
  agrees<TypeParam>({5, 1, 31}, 1, 100);
  agrees<TypeParam>({96, 1, 4}, 2, 3);
}

TEST(Attention, EverySmallSizeAgreesWithDoubles) {
  for (int dim = 1; dim <= 20; ++dim)
    for (int group = 1; group <= 6; ++group) agrees<float>({2 * group, 2, dim}, dim + group, group);
}

TEST(Attention, ScaleIsTheCallers) {
  AttentionOptions o;
  o.scale = 0.3;
  agrees<float>({2, 1, 6}, 10, 4, o);
}

TEST(Attention, LogNScalesByTheRowsThatAQuerySees) {
  AttentionOptions o;
  o.log_base = 512;
  agrees<float>({2, 1, 6}, 0, 20, o);
  o.log_base = 2;
  agrees<float>({2, 1, 6}, 300, 3, o);
}

TEST(Attention, OverOneRowIsItsValue) {
  Layer<float> layer({2, 1, 3}, 1);
  layer.append({5, 6, 7}, {1, 2, 3});
  EXPECT_EQ(layer.attend({1, 1, 1, /**/ -9, 0, 9}), (Values{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(layer.sums(0), (Values{2}));
}

TEST(Attention, GivesEachQueryOneUnitOfAttention) {
  Layer<float> layer({8, 2, 16}, 60);
  layer.append_random(60, 1);
  layer.attend(layer.random_queries(10, 2));
  for (int h : {0, 1}) {
    double sum = 0;
    for (float m : layer.sums(h)) sum += double(m);
    EXPECT_NEAR(sum, 10 * 4, 1e-4);
  }
}

TEST(Attention, IsCausal) {
  // The first of two queries must not see the second row, whose key is far the best match.
  Layer<float> layer({1, 1, 2}, 2);
  layer.append({0, 0, /**/ 150, 0}, {1, 2, /**/ 3, 4});
  EXPECT_EQ(layer.attend({1, 0, /**/ 1, 0}), (Values{1, 2, /**/ 3, 4}));
  EXPECT_EQ(layer.sums(0), (Values{1, 1}));
}

TEST(Attention, LargeLogitsDoNotOverflow) {
  Layer<float> layer({1, 1, 1}, 3);
  layer.append({-1e4f, 1e4f, 0}, {1, 2, 3});
  EXPECT_EQ(layer.attend({1e4f}), (Values{2}));
  expect_near(layer.sums(0), {0, 1, 0}, 1e-37);
}

TEST(Attention, AQueryOfNanGivesNoAttentionAndSparesTheOthers) {
  Layer<float> layer({4, 2, 5}, 32), clean({4, 2, 5}, 32);
  for (Layer<float>* l : {&layer, &clean}) l->append_random(32, 1);
  Values q = layer.random_queries(2, 2);
  const Values expected = clean.attend(q);
  q[5] = kNan;  // token 0, query head 1
  const Values out = layer.attend(q);
  EXPECT_EQ(Values(out.begin(), out.begin() + 5), Values(expected.begin(), expected.begin() + 5));
  EXPECT_EQ(Values(out.begin() + 10, out.end()), Values(expected.begin() + 10, expected.end()));
  EXPECT_EQ(layer.sums(1), clean.sums(1)) << "another head's";
  double sum = 0;
  for (float m : layer.sums(0)) sum += double(m);
  EXPECT_NEAR(sum, 3, 1e-5) << "three of four queries";
}

TEST(Attention, OverAKeyOfNanGivesNoAttention) {
  for (int rows : {1, 2, 3, 4, 5, 8, 9, 17, 64, 65}) {
    Layer<float> layer({1, 1, 3}, rows);
    Values k = random_values(rows * 3, 1);
    k[static_cast<std::size_t>(rows / 2 * 3)] = kNan;
    layer.append(k, k);
    layer.attend(layer.random_queries(1, 2));
    EXPECT_EQ(layer.sums(0), Values(static_cast<std::size_t>(rows), 0.f)) << rows;
  }
}

TEST(Attention, NeverReadsUnusedRows) {
  Layer<float> used({4, 2, 7}, 92), fresh({4, 2, 7}, 92);
  used.append(Values(92 * 2 * 7, kNan), Values(92 * 2 * 7, kNan));
  used.attend(used.random_queries(92, 1));
  used.cache.reset();
  for (Layer<float>* l : {&used, &fresh}) l->append_random(5, 2);
  const Values q = fresh.random_queries(5, 3);
  EXPECT_EQ(used.attend(q), fresh.attend(q));
  EXPECT_EQ(used.sums(0), fresh.sums(0));
  EXPECT_EQ(used.sums(1), fresh.sums(1));
}

TEST(Attention, ALaterRowOfNanDoesNotReachAnEarlierQuery) {
  for (int newest : {2, 20}) {  // few queries and many
    Layer<float> layer({1, 1, 2}, newest);
    Values k = random_values(2 * newest, 1), v = random_values(2 * newest, 2);
    k.back() = v.back() = kNan;
    layer.append(k, v);
    const Values out = layer.attend(layer.random_queries(newest, 3));
    for (std::size_t i = 0; i + 2 < out.size(); ++i) EXPECT_TRUE(buzz::is_finite(out[i])) << newest << ", at " << i;
    EXPECT_FALSE(buzz::is_finite(out.back()));
  }
}

/// Rows before the window hold NaN, which must reach nobody; the calls are small, large and split over threads.
TEST(Attention, OfAWindowIsThatOverItsRowsAlone) {
  const Shape shape{4, 2, 24};
  for (int window : {1, 2, 31, 32, 33, 70, 600})
    for (int newest : {1, 3, 40})
      for (int threads : {1, 5}) {
        AttentionOptions o;
        o.window = window;
        o.threads = threads;
        const int rows = 700, oldest = rows - newest - window + 1;  // that the first query sees
        Layer<float> layer(shape, rows, o);
        Values k = random_values(rows * 48, 1), v = random_values(rows * 48, 2);
        std::fill_n(k.begin(), (oldest)*48, kNan);
        std::fill_n(v.begin(), (oldest)*48, kNan);
        layer.append(k, v);
        const Values q = layer.random_queries(newest, 3), out = layer.attend(q);
        std::vector<double> sums(static_cast<std::size_t>(2 * rows));
        for (int t = 0; t < newest; ++t) {  // each token beside a cache of the rows that it sees
          const auto part = [](const Values& all, int first, int count, int size) {
            return Values(all.begin() + first * size, all.begin() + (first + count) * size);
          };
          Layer<float> one(shape, window);
          one.append(part(k, oldest + t, window, 48), part(v, oldest + t, window, 48));
          const Values token = part(q, t, 1, 96), expected = one.attend(token), got = part(out, t, 1, 96);
          expect_near(got, std::vector<double>(expected.begin(), expected.end()), 1e-6);
          for (int h : {0, 1})
            for (int r = 0; r < window; ++r)
              sums[static_cast<std::size_t>(h * rows + oldest + t + r)] +=
                  double(one.sums(h)[static_cast<std::size_t>(r)]);
        }
        for (int h : {0, 1})
          expect_near(layer.sums(h), std::vector<double>(sums.begin() + h * rows, sums.begin() + (h + 1) * rows), 1e-5);
      }
}

TEST(SoftCap, OfLargeLogitsIsTheCap) {
  buzz::AttentionOptions o;
  o.scale = 1;
  o.soft_cap = 2;
  buzz::BuzzCache<float> cache({2, 1, 2, 4}, buzz::heavy_hitter(buzz::HeavyHitterOptions::for_rows(100, 4)), {}, o);
  const std::vector<float> k = {100, 0, /**/ 0, 0, /**/ -1e30f, 0}, v = {1, 0, /**/ 0, 1, /**/ 0, 0},
                           q = {3, 0, /**/ 1e30f, 0};
  cache.append(buzz::view(k, 3, 1, 2), buzz::view(v, 3, 1, 2));
  std::vector<float> out(4);
  cache.attend(buzz::view(q, 1, 2, 2), buzz::view(out, 1, 2, 2));
  const double all = std::exp(2.) + 1 + std::exp(-2.);  // logits 300 and 1e32, 0, -3e30 and -inf
  for (int head : {0, 1}) {
    EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(2 * head)]), std::exp(2.) / all, 1e-6) << head;
    EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(2 * head + 1)]), 1 / all, 1e-6) << head;
  }
}

TEST(SoftCap, OfNanIsNan) {
  buzz::AttentionOptions o;
  o.soft_cap = 30;
  for (int rows : {1, 3, 4, 5, 8, 9, 16, 17, 33}) {
    auto cache =
        buzz::BuzzCache<float>({1, 1, 1, 40}, buzz::heavy_hitter(buzz::HeavyHitterOptions::for_rows(100, 40)), {}, o);
    std::vector<float> k(static_cast<std::size_t>(rows), 1.f), out(1);
    k[static_cast<std::size_t>(rows / 2)] = kNan;
    cache.append(buzz::view(k, rows, 1, 1), buzz::view(k, rows, 1, 1));
    const std::vector<float> q = {1};
    cache.attend(buzz::view(q, 1, 1, 1), buzz::view(out, 1, 1, 1));
    EXPECT_TRUE(buzz::is_nan(out[0])) << rows;
    cache.observe();
    for (int r = 0; r < rows; ++r) EXPECT_EQ(cache.scores(0)[r], 0) << "and gives nothing to any row";
  }
}

TEST(Attention, ReadsAndWritesStridedViews) {
  Layer<float> layer({2, 1, 3}, 8), dense({2, 1, 3}, 8);
  for (Layer<float>* l : {&layer, &dense}) l->append_random(8, 1);
  const Values q = layer.random_queries(2, 2), expected = dense.attend(q);
  Values wide(4 * 5, 7.f), out(4 * 4, -7.f);
  for (int i = 0; i < 4; ++i)
    for (int d = 0; d < 3; ++d) wide[static_cast<std::size_t>(i * 5 + d)] = q[static_cast<std::size_t>(i * 3 + d)];
  layer.cache.attend(View<float>(wide.data(), 2, 2, 3, 10, 5), View<float>(out.data(), 2, 2, 3, 8, 4));
  for (int i = 0; i < 4; ++i) {
    for (int d = 0; d < 3; ++d)
      EXPECT_EQ(out[static_cast<std::size_t>(i * 4 + d)], expected[static_cast<std::size_t>(i * 3 + d)]);
    EXPECT_EQ(out[static_cast<std::size_t>(i * 4 + 3)], -7) << "padding";
  }
}

TEST(Attention, OfNoQueriesDoesNothing) {
  Layer<float> layer({2, 1, 3}, 5);
  layer.append_random(5, 1);
  EXPECT_EQ(layer.attend({}), Values{});
  EXPECT_EQ(layer.sums(0), Values(5, 0.f));
}

TEST(Attention, SetsAllOfTheSumsWhateverWasThere) {
  const Shape shape{6, 2, 4, 80};
  for (int tokens : {0, 1, 2, 7, 30, 80})
    for (int rows : {tokens, tokens + 1, 511, 512, 513, 1100})
      for (int slices : {1, 3})
        for (int threads : {1, 3}) {
          if (rows < 1 || (slices > 1 && tokens < slices)) continue;
          AttentionOptions o;
          o.threads = threads;
          buzz::Attention attention(shape, o, rows);
          const auto size = [](int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); };
          const Values q(size(tokens, 24), 0.5f), cached(size(rows, 8), 0.25f);
          Values out(q.size()), sums(size(slices, 2 * rows), std::numeric_limits<float>::quiet_NaN());
          const View<const float> rows_of(cached.data(), 2, rows, 4);
          attention(View<const float>(q.data(), tokens, 6, 4), {}, rows_of, rows_of,
                    View<float>(out.data(), tokens, 6, 4), View<float>(sums.data(), slices, 2, rows));
          for (int slice = 0; slice < slices; ++slice)  // equal keys: each query gives equally to the rows that it sees
            for (int r = 0; r < 2 * rows; ++r) {
              double expected = 0;
              for (int t = 0; t < tokens; ++t) {
                const int seen = rows - tokens + t + 1;
                if (std::max(0, t - (tokens - slices)) == slice && r % rows < seen) expected += 3. / seen;
              }
              ASSERT_NEAR(double(sums[size(slice, 2 * rows) + static_cast<std::size_t>(r)]), expected, 1e-5)
                  << tokens << " tokens, " << rows << " rows, slice " << slice << " of " << slices << ", row " << r;
            }
        }
}

TEST(Attention, IsTheSameBitsOnAnyNumberOfThreads) {
  auto thread_each = [](int count, buzz::Task task) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([task, i] { task(i); });
    for (std::thread& t : threads) t.join();
  };
  const Shape shape{9, 3, 9};
  for (int queries : {1, 5, 30}) {
    Layer<float> one(shape, 171);
    one.append_random(171, 1);
    const Values q = one.random_queries(queries, 2), expected = one.attend(q);
    for (int threads : {2, 3, 4, 16})
      for (bool serial : {false, true}) {
        AttentionOptions o;
        o.threads = threads;
        Layer<float> many(shape, 171, o);
        many.append_random(171, 1);
        EXPECT_EQ(many.attend(q, serial ? buzz::Executor() : buzz::Executor(thread_each)), expected) << threads;
        for (int h = 0; h < 3; ++h) EXPECT_EQ(many.sums(h), one.sums(h)) << threads;
      }
  }
}

TEST(Attention, OfAChunkIsThatOfItsTokensOneByOne) {
  const Shape shape{4, 2, 8};
  Layer<float> chunk(shape, 22), stepwise(shape, 22);
  for (Layer<float>* l : {&chunk, &stepwise}) l->append_random(10, 1);
  const Values k = random_values(12 * 16, 2), v = random_values(12 * 16, 3), q = chunk.random_queries(12, 4);
  chunk.append(k, v);
  const Values expected = chunk.attend(q);
  const auto token = [](const Values& all, int t, int size) {
    return Values(all.begin() + t * size, all.begin() + (t + 1) * size);
  };
  for (int t = 0; t < 12; ++t) {
    stepwise.append(token(k, t, 16), token(v, t, 16));
    const Values out = stepwise.attend(token(q, t, 32)), part = token(expected, t, 32);
    expect_near(out, std::vector<double>(part.begin(), part.end()), 1e-6);
  }
  for (int h : {0, 1}) {
    const Values sums = chunk.sums(h);
    expect_near(stepwise.sums(h), std::vector<double>(sums.begin(), sums.end()), 1e-5);
  }
}

}  // namespace
