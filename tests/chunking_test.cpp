// Which ways of cutting a text into calls give the same bits as one token a call: include/buzz/KNOBS.md has the table.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "typed.h"

namespace {

constexpr int kTokens = 70;
const buzz::Rope kRope{10000.0};

template <class X>
bool same_bits(const std::vector<X>& a, const std::vector<X>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(X)) == 0);
}

template <class T>
struct End {
  std::vector<T> keys, values;
  std::vector<float> scores, out;
  std::vector<int> positions;
  bool stores_as(const End& o) const {
    return same_bits(keys, o.keys) && same_bits(values, o.values) && positions == o.positions;
  }
};

/// The same text in calls of `tokens` tokens.
template <class T, class Policy>
End<T> read(buzz::Shape shape, const typename Policy::Options& options, int tokens) {
  shape.max_chunk = tokens;
  typed::Cache<T, Policy> cache(shape, options, kRope);
  const int dim = shape.head_dim, query = shape.query_heads * dim, row = shape.kv_heads * dim;
  std::vector<float> q(static_cast<std::size_t>(kTokens * query)), k(static_cast<std::size_t>(kTokens * row)), v(k);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = 2 * std::sin(1.7f * static_cast<float>(i));
  for (std::size_t i = 0; i < k.size(); ++i) {
    k[i] = std::cos(2.3f * static_cast<float>(i));
    v[i] = std::sin(0.7f * static_cast<float>(i));
  }
  End<T> end;
  end.out.resize(q.size());
  for (int t = 0; t < kTokens; t += tokens) {
    const int n = std::min(tokens, kTokens - t);
    cache.attend(buzz::View<const float>(q.data() + t * query, n, shape.query_heads, dim),
                 buzz::View<const float>(k.data() + t * row, n, shape.kv_heads, dim),
                 buzz::View<const float>(v.data() + t * row, n, shape.kv_heads, dim),
                 buzz::View<float>(end.out.data() + t * query, n, shape.query_heads, dim));
  }
  for (int h = 0; h < shape.kv_heads; ++h) {
    end.positions.insert(end.positions.end(), cache.positions(h).begin(), cache.positions(h).end());
    end.scores.insert(end.scores.end(), cache.scores(h).begin(), cache.scores(h).end());
    for (int r = 0; r < cache.rows(); ++r) {
      end.keys.insert(end.keys.end(), cache.keys().row(h, r), cache.keys().row(h, r) + dim);
      end.values.insert(end.values.end(), cache.values().row(h, r), cache.values().row(h, r) + dim);
    }
  }
  return end;
}

/// Nothing is evicted. scores: they are promised to be the same bits where outputs are.
template <class T, class Policy>
void expect_same_bits(const typename Policy::Options& options, bool scores) {
  for (const buzz::Shape& shape : {buzz::Shape{8, 2, 16}, buzz::Shape{2, 2, 20}}) {
    const End<T> one = read<T, Policy>(shape, options, 1);
    ASSERT_EQ(one.positions.size(), static_cast<std::size_t>(2 * kTokens));
    for (int tokens : {3, 7, 15, kTokens}) {
      const End<T> end = read<T, Policy>(shape, options, tokens);
      EXPECT_TRUE(end.stores_as(one)) << tokens;
      if (tokens >= 16 * shape.kv_heads / shape.query_heads) continue;
      EXPECT_TRUE(same_bits(end.out, one.out)) << tokens;
      EXPECT_TRUE(!scores || same_bits(end.scores, one.scores)) << tokens;
    }
  }
}

template <class T>
struct Chunking : testing::Test {};
using Types = testing::Types<float, Eigen::half, Eigen::bfloat16, std::int8_t>;
TYPED_TEST_SUITE(Chunking, Types);

TYPED_TEST(Chunking, OfFewQueryRowsIsBitEqualWhileNothingIsEvicted) {
  using buzz::AttentionKind;
  typed::Options o;
  for (auto attention : {AttentionKind::accumulated, AttentionKind::mean, AttentionKind::latest, AttentionKind::newest,
                         AttentionKind::largest, AttentionKind::decayed}) {
    o.attention = attention;
    expect_same_bits<TypeParam, typed::Beehive>(o, attention == AttentionKind::newest ||
                                                       attention == AttentionKind::largest ||
                                                       attention == AttentionKind::decayed);
  }
  expect_same_bits<TypeParam, typed::SnapKv>({}, true);
}

TYPED_TEST(Chunking, LeavesStreamingTheSameRows) {
  typed::Streaming::Options o;
  o.sink = 2;
  o.window = 20;
  const End<TypeParam> one = read<TypeParam, typed::Streaming>({8, 2, 16}, o, 1);
  ASSERT_EQ(one.positions.size(), 2u * 22);
  for (int tokens : {3, 16, kTokens})
    EXPECT_TRUE((read<TypeParam, typed::Streaming>({8, 2, 16}, o, tokens).stores_as(one))) << tokens;
}

TEST(ChunkingWithEvictions, KeepsOtherRowsSinceTheyComeAtTheEndOfCalls) {
  typed::Strided::Options o;
  o.sink = 2;
  o.window = 5;
  o.threshold = 10;
  EXPECT_NE((read<float, typed::Strided>({8, 2, 16}, o, 1).positions),
            (read<float, typed::Strided>({8, 2, 16}, o, 7).positions));
}

}  // namespace
