#include "buzz/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "buzz/buzz_cache.h"
#include "cuda_twin.h"
#include "typed.h"

namespace {

using buzz::Footprint;
using buzz::View;
using Values = std::vector<float>;

constexpr int kTokens = 3, kHeads = 4, kKvHeads = 2, kDim = 16;

Values random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values v(count);
  for (float& x : v) x = uniform(random);
  return v;
}

/// By trying every byte.
bool have_in_common(const Footprint& a, const Footprint& b) {
  const auto bytes = [](const Footprint& f) {
    std::set<std::uintptr_t> all;
    for (int i = 0; i < f.size[0]; ++i)
      for (int j = 0; j < f.size[1]; ++j)
        for (int k = 0; k < f.size[2]; ++k)
          for (int r = 0; r < f.row; ++r)
            all.insert(f.begin + static_cast<std::uintptr_t>(i * f.step(0) + j * f.step(1) + k * f.step(2) + r));
    return all;
  };
  const std::set<std::uintptr_t> of_a = bytes(a);
  for (std::uintptr_t byte : bytes(b))
    if (of_a.count(byte) != 0) return true;
  return false;
}

TEST(Overlap, IsNeverMissed) {
  std::mt19937 random(1);
  const auto in = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int apart = 0;
  for (int round = 0; round < 200000; ++round) {
    Footprint f[2];
    for (Footprint& one : f) {
      one.begin = static_cast<std::uintptr_t>(1000 + in(0, 40));
      one.row = in(0, 4);
      for (int axis = 0; axis < 3; ++axis) {
        one.size[axis] = in(round % 50 == 0 ? 0 : 1, 3);
        one.stride[axis] = round % 2 == 0 || &one == f ? in(0, 24) : f[0].stride[axis];
      }
    }
    const bool said = buzz::apart(f[0], f[1]);
    apart += said;
    ASSERT_EQ(said, buzz::apart(f[1], f[0])) << "in either order";
    ASSERT_FALSE(said && have_in_common(f[0], f[1])) << "round " << round;
  }
  EXPECT_GT(apart, 20000);
}

TEST(Overlap, OfSomethingWithItselfAndOfNothing) {
  Values x(32);
  const View<float> all(x.data(), 2, 2, 8);
  EXPECT_FALSE(buzz::apart(buzz::footprint(all), buzz::footprint(all)));
  EXPECT_TRUE(buzz::same(buzz::footprint(all), buzz::footprint(all)));
  const View<float> none(x.data(), 0, 2, 8);
  EXPECT_TRUE(buzz::apart(buzz::footprint(all), buzz::footprint(none)));
  EXPECT_TRUE(buzz::apart(buzz::footprint(all), buzz::footprint(x.data() + 32, 8)));
  EXPECT_FALSE(buzz::apart(buzz::footprint(all), buzz::footprint(x.data() + 31, 8)));
}

/// Parts of one tensor have nothing in common, however they lie in it.
TEST(Overlap, PartsOfOneTensorHaveNone) {
  Values x(10000);
  const auto at = [&](int offset, int heads, int token, int head) {
    return buzz::footprint(View<float>(x.data() + offset, kTokens, heads, kDim, token, head));
  };
  const int q = kHeads * kDim, k = kKvHeads * kDim, token = q + 2 * k + q + 5;
  std::vector<std::vector<Footprint>> layouts = {
      // [tokens, q | k | v | out], with room behind each token
      {at(0, kHeads, token, kDim), at(q, kKvHeads, token, kDim), at(q + k, kKvHeads, token, kDim),
       at(q + 2 * k, kHeads, token, kDim)},
      // [tokens, heads, q | k | out], with and without room
      {at(0, kHeads, 3 * q, 3 * kDim), at(kDim, kHeads, 3 * q, 3 * kDim), at(2 * kDim, kHeads, 3 * q, 3 * kDim)},
      {at(0, kHeads, 3 * q + 7, 3 * kDim), at(kDim, kHeads, 3 * q + 7, 3 * kDim)},
      // one key head of all
      {at(0, kHeads, q + 2 * kDim, kDim), at(q, 1, q + 2 * kDim, kDim), at(q + kDim, 1, q + 2 * kDim, kDim)},
      // [heads, tokens, q | out], heads behind each other
      {at(0, kHeads, 2 * kDim, 2 * kTokens * kDim), at(kDim, kHeads, 2 * kDim, 2 * kTokens * kDim)},
      // columns of a head: halves of a row
      {at(0, kHeads, 2 * q, 2 * kDim), at(kDim, kHeads, 2 * q, 2 * kDim)},
  };
  for (const auto& parts : layouts)
    for (const Footprint& a : parts)
      for (const Footprint& b : parts) EXPECT_EQ(buzz::apart(a, b), &a != &b);
}

/// What attending once gives, q, k and v anywhere.
struct Call {
  typed::Cache<float> cache{buzz::Shape{kHeads, kKvHeads, kDim, kTokens}};
  Values q = random_values(kTokens * kHeads * kDim, 1), k = random_values(kTokens * kKvHeads * kDim, 2);
  Values v = random_values(kTokens * kKvHeads * kDim, 3), out = Values(q.size());
  View<const float> queries() const { return {q.data(), kTokens, kHeads, kDim}; }
  View<const float> keys() const { return {k.data(), kTokens, kKvHeads, kDim}; }
  View<const float> values() const { return {v.data(), kTokens, kKvHeads, kDim}; }
  const Values& expected() {
    typed::Cache<float> twin = cache.fork();
    twin.attend(queries(), keys(), values(), View<float>(out.data(), kTokens, kHeads, kDim));
    return out;
  }
};

template <class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const buzz::InvalidArgument& error) {
    return error.field() + ": " + error.what();
  }
  return "nothing";
}

TEST(Out, MayBeTheQueries) {
  Call c;
  const Values expected = c.expected();
  c.cache.attend(View<float>(c.q.data(), kTokens, kHeads, kDim), c.keys(), c.values(),
                 View<float>(c.q.data(), kTokens, kHeads, kDim));
  EXPECT_EQ(c.q, expected);
}

TEST(Out, MayBeTheKeysWhereThereAreAsMany) {
  const buzz::Shape shape{kKvHeads, kKvHeads, kDim, kTokens};
  typed::Cache<float> apart(shape), in_place(shape);
  const Values q = random_values(kTokens * kKvHeads * kDim, 4);
  Values k = random_values(q.size(), 5), v = random_values(q.size(), 6), out(q.size());
  const auto view = [](auto& x) { return buzz::view(x, kTokens, kKvHeads, kDim); };
  apart.attend(view(q), view(k), view(v), view(out));
  in_place.attend(view(q), view(k), view(v), view(k));
  EXPECT_EQ(k, out);
}

TEST(Out, ThatIsTheQueriesShiftedIsRefusedByNameAndChangesNothing) {
  for (int shift : {1, kDim, kDim * kHeads, 2 * kDim * kHeads + 5}) {
    for (bool before : {false, true}) {
      Call c;
      Values x(c.q.size() + static_cast<std::size_t>(shift));
      float *q = x.data() + (before ? shift : 0), *out = x.data() + (before ? 0 : shift);
      std::copy(c.q.begin(), c.q.end(), q);
      const Values was = x;
      const View<const float> queries(q, kTokens, kHeads, kDim);
      const View<float> outputs(out, kTokens, kHeads, kDim);
      EXPECT_EQ(refused([&] { c.cache.attend(queries, c.keys(), c.values(), outputs); }).substr(0, 45),
                "out: buzz: out = in a part of the memory of q")
          << shift;
      EXPECT_EQ(x, was);
      EXPECT_EQ(c.cache.rows(), 0);
      c.cache.append(c.keys(), c.values());
      EXPECT_EQ(refused([&] { c.cache.attend(queries, outputs); }).substr(0, 4), "out:");
      EXPECT_EQ(x, was);
      EXPECT_EQ(c.cache.unobserved(), 0);
    }
  }
}

TEST(Out, ThatReachesIntoKeysOrValuesIsRefused) {
  Call c;
  Values x(c.q.size() + c.k.size());
  const View<float> out(x.data(), kTokens, kHeads, kDim);
  const View<const float> in(x.data() + c.q.size() - 1, kTokens, kKvHeads, kDim);
  EXPECT_NE(refused([&] { c.cache.attend(c.queries(), in, c.values(), out); }).find("memory of k"), std::string::npos);
  EXPECT_NE(refused([&] { c.cache.attend(c.queries(), c.keys(), in, out); }).find("memory of v"), std::string::npos);
  EXPECT_EQ(c.cache.rows(), 0);
}

TEST(Out, InTheCachesOwnMemoryIsRefused) {
  Call c;
  c.cache.append(c.keys(), c.values());
  for (const float* own : {c.cache.keys().data(), c.cache.values().row(1, 0)}) {
    const View<float> out(const_cast<float*>(own), kTokens, kHeads, kDim);
    EXPECT_NE(refused([&] { c.cache.attend(c.queries(), out); }).find("the cache's own memory"), std::string::npos);
    EXPECT_NE(refused([&] { c.cache.attend(c.queries(), c.keys(), c.values(), out); }).find("own"), std::string::npos);
  }
  EXPECT_EQ(c.cache.rows(), kTokens);
  EXPECT_EQ(*c.cache.keys().row(0, 0), c.k[0]);
}

TEST(Out, OfFusedRowsIsTaken) {
  Call c;
  const Values expected = c.expected();
  const int q = kHeads * kDim, k = kKvHeads * kDim, token = 2 * q + 2 * k;
  Values fused(static_cast<std::size_t>(kTokens * token));
  for (int t = 0; t < kTokens; ++t) {
    std::copy_n(c.q.data() + t * q, q, fused.data() + t * token);
    std::copy_n(c.k.data() + t * k, k, fused.data() + t * token + q);
    std::copy_n(c.v.data() + t * k, k, fused.data() + t * token + q + k);
  }
  const View<float> out(fused.data() + q + 2 * k, kTokens, kHeads, kDim, token, kDim);
  c.cache.attend(View<const float>(fused.data(), kTokens, kHeads, kDim, token, kDim),
                 View<const float>(fused.data() + q, kTokens, kKvHeads, kDim, token, kDim),
                 View<const float>(fused.data() + q + k, kTokens, kKvHeads, kDim, token, kDim), out);
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < q; ++i) ASSERT_EQ(out.row(t, 0)[i], expected[static_cast<std::size_t>(t * q + i)]);
}

TEST(Out, OnTheDeviceIsApartOrTheQueries) {
  const buzz::Shape shape{2, 2, 64, 4};
  const buzz::cuda::Call call{2, 0, 1};
  for (int kept_logits : {0, 4}) {
    buzz::cuda::Batch batch;
    batch.kept_logits = kept_logits;
    emulated::Twin<float> twin(shape, batch, buzz::beehive());
    Values x = random_values(1024, 8);
    const auto at = [&](std::size_t offset) { return buzz::cuda::dense(x.data() + offset, 2, 2, 64); };
    const auto from = [&](std::size_t offset) { return buzz::cuda::Tensor<const float>(at(offset)); };
    const auto q = from(0), k = from(256), v = from(512);
    for (std::size_t shifted : {64u, 128u, 192u, 320u, 576u}) {
      EXPECT_NE(twin.cache.attend(q, k, v, at(shifted), call, 1), 0) << shifted;
      EXPECT_EQ(twin.cache.rows(0), 0);
    }
    EXPECT_NE(twin.cache.attend(q, k, v, twin.cache.keys(0), call, 1), 0);
    ASSERT_EQ(twin.cache.append(k, v, call, 1), 0);
    EXPECT_NE(twin.cache.attend(q, at(64), 1), 0);
    // Where the logits are not kept, q is read again for the scores.
    const Values was = x;
    EXPECT_EQ(twin.cache.attend(q, at(0), 1) == 0, kept_logits == 4);
    EXPECT_EQ(x == was, kept_logits == 0);
    EXPECT_EQ(twin.cache.attend(q, at(768), 1) == 0, kept_logits == 0) << "once a step";
  }
}

/// Outputs of another size than queries are not the queries, but may be the values.
TEST(Out, OnTheDeviceOfAnotherSizeIsApartOrTheValues) {
  buzz::Shape shape{2, 2, 64, 4};
  shape.value_dim = 32;
  const buzz::cuda::Call call{2, 0, 1};
  buzz::cuda::Batch batch;
  batch.kept_logits = 4;
  emulated::Twin<float> twin(shape, batch, buzz::beehive());
  Values x = random_values(1024, 8);
  const buzz::cuda::Tensor<const float> q = buzz::cuda::dense(x.data(), 2, 2, 64),
                                        k = buzz::cuda::dense(x.data() + 256, 2, 2, 64),
                                        v = buzz::cuda::dense(x.data() + 512, 2, 2, 32);
  const buzz::cuda::Tensor<float> in_q{x.data(), q.sequence, q.outer, q.inner}, behind{x.data() + 608, 128, 64, 32},
      in_v{x.data() + 512, v.sequence, v.outer, v.inner};
  const Values was = x;
  EXPECT_NE(twin.cache.attend(q, k, v, in_q, call, 1), 0);
  EXPECT_NE(twin.cache.attend(q, k, v, behind, call, 1), 0) << "the values' last row";
  EXPECT_NE(twin.cache.attend(q, k, v, twin.cache.values(0), call, 1), 0);
  EXPECT_EQ(twin.cache.rows(0), 0);
  EXPECT_EQ(x, was);
  EXPECT_EQ(twin.cache.attend(q, k, v, in_v, call, 1), 0);
}

}  // namespace
