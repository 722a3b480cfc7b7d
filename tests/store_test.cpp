#include "buzz/store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

using buzz::KeptRows;
using buzz::Rope;
using buzz::Rotation;
using buzz::Shape;
using buzz::Store;
using buzz::View;
using Values = std::vector<float>;

constexpr int kHeads = 2, kDim = 4, kCapacity = 6;
const Shape kShape{2, kHeads, kDim};

/// [tokens, heads, dim]: 100 * token + 10 * head + place, plus `add`.
Values tokens(int count, float add = 0) {
  Values v;
  for (int t = 0; t < count; ++t)
    for (int h = 0; h < kHeads; ++h)
      for (int d = 0; d < kDim; ++d) v.push_back(static_cast<float>(100 * t + 10 * h + d) + add);
  return v;
}

View<const float> view(const Values& v) {
  return {v.data(), static_cast<int>(v.size()) / (kHeads * kDim), kHeads, kDim};
}

/// Appends behind `rows` rows, without rotation.
template <class T>
void append(Store<T>& store, int rows, const Values& k, const Values& v) {
  store.append(rows, view(k), view(v), Rotation(Rope{}, kDim), nullptr);
}

template <class T>
View<const T> keys(const Store<T>& store) {
  return store.keys(kCapacity).values;
}
template <class T>
View<const T> values(const Store<T>& store) {
  return store.values(kCapacity).values;
}

template <class T>
Values row(const View<const T>& rows, int head, int r) {
  Values v;
  for (int d = 0; d < rows.shape(2); ++d) v.push_back(static_cast<float>(rows.row(head, r)[d]));
  return v;
}

/// Keeps the given rows of both heads.
KeptRows keeping(int from, const std::vector<int>& head0, const std::vector<int>& head1) {
  KeptRows keep(kHeads, from);
  keep.begin(from, static_cast<int>(head0.size()));
  for (std::size_t i = 0; i < head0.size(); ++i) {
    keep.list(0)[i] = head0[i];
    keep.list(1)[i] = head1[i];
  }
  return keep;
}

/// [tokens, dims] angles of positions 0, 1, ...
Values angles(const Rotation& rotation, int count) {
  Values a(static_cast<std::size_t>(count * rotation.dims()));
  for (int t = 0; t < count; ++t) rotation.angles(t, a.data() + t * rotation.dims());
  return a;
}

TEST(ConvertRow, RoundsToTheNearestHalf) {
  const float from[] = {1, 0.1f, 70000, -2048.5f};
  Eigen::half to[4];
  buzz::convert_row(from, 4, to);
  EXPECT_EQ(static_cast<float>(to[0]), 1);
  EXPECT_EQ(static_cast<float>(to[1]), 0.0999755859375f);
  EXPECT_EQ(static_cast<float>(to[2]), 65504) << "the largest";
  EXPECT_EQ(static_cast<float>(to[3]), -2048);
  float back[4];
  buzz::convert_row(to, 4, back);
  EXPECT_EQ(back[1], 0.0999755859375f);
}

TEST(Store, ShowsAsManyRowsAsItIsAskedFor) {
  const Store<float> store(kShape, kCapacity);
  for (int rows : {0, 1, kCapacity})
    for (const View<const float>& all : {store.keys(rows).values, store.values(rows).values}) {
      EXPECT_EQ(all.shape(0), kHeads);
      EXPECT_EQ(all.shape(1), rows);
      EXPECT_EQ(all.shape(2), kDim);
    }
}

TEST(Store, PutsTokenMajorRowsInTheirHeads) {
  Store<float> store(kShape, kCapacity);
  append(store, 0, tokens(2), tokens(2, 0.5f));
  append(store, 2, tokens(1, 1000), tokens(1, 2000));
  EXPECT_EQ(row(keys(store), 0, 0), (Values{0, 1, 2, 3}));
  EXPECT_EQ(row(keys(store), 1, 0), (Values{10, 11, 12, 13}));
  EXPECT_EQ(row(keys(store), 1, 1), (Values{110, 111, 112, 113}));
  EXPECT_EQ(row(keys(store), 0, 2), (Values{1000, 1001, 1002, 1003}));
  EXPECT_EQ(row(values(store), 1, 1), (Values{110.5f, 111.5f, 112.5f, 113.5f}));
  EXPECT_EQ(row(values(store), 0, 2), (Values{2000, 2001, 2002, 2003}));
}

TEST(Store, ReadsStridedTokens) {
  // An engine's fused [tokens, q | k | v]: 3 * heads * dim floats a token.
  constexpr int token = 3 * kHeads * kDim;
  Values fused(2 * token, -1.f);
  for (int t = 0; t < 2; ++t)
    for (int i = 0; i < kHeads * kDim; ++i) {
      fused[static_cast<std::size_t>(t * token + kHeads * kDim + i)] = tokens(2)[static_cast<std::size_t>(t * 8 + i)];
      fused[static_cast<std::size_t>(t * token + 2 * kHeads * kDim + i)] = 7;
    }
  Store<float> store(kShape, kCapacity);
  store.append(0, View<const float>(fused.data() + kHeads * kDim, 2, kHeads, kDim, token, kDim),
               View<const float>(fused.data() + 2 * kHeads * kDim, 2, kHeads, kDim, token, kDim),
               Rotation(Rope{}, kDim), nullptr);
  EXPECT_EQ(row(keys(store), 1, 1), (Values{110, 111, 112, 113}));
  EXPECT_EQ(row(values(store), 0, 1), (Values{7, 7, 7, 7}));
}

TEST(Store, TakesItsOwnTypeAsItIs) {
  std::vector<Eigen::bfloat16> k;
  for (float x : tokens(1, 0.25f)) k.push_back(static_cast<Eigen::bfloat16>(x));
  Store<Eigen::bfloat16> store(kShape, kCapacity);
  const View<const Eigen::bfloat16> rows(k.data(), 1, kHeads, kDim);
  store.append(0, rows, rows, Rotation(Rope{}, kDim), nullptr);
  for (int d = 0; d < kDim; ++d) {
    EXPECT_EQ(keys(store).row(1, 0)[d], k[static_cast<std::size_t>(kDim + d)]);
    EXPECT_EQ(values(store).row(0, 0)[d], k[static_cast<std::size_t>(d)]);
  }
}

TEST(Store, RotatesKeysAndNotValues) {
  const Rotation rotation(Rope{10000.0}, kDim);
  Store<float> store(kShape, kCapacity);
  const Values k = {1, 0, 1, 0, /**/ 0, 1, 0, 1};
  Values two = k;
  two.insert(two.end(), k.begin(), k.end());
  store.append(0, view(two), view(two), rotation, angles(rotation, 2).data());
  EXPECT_EQ(row(keys(store), 0, 0), (Values{1, 0, 1, 0})) << "position 0";
  const Values rotated = row(keys(store), 0, 1), other = row(keys(store), 1, 1);
  EXPECT_FLOAT_EQ(rotated[0], std::cos(1.f));
  EXPECT_FLOAT_EQ(rotated[1], std::sin(1.f));
  EXPECT_FLOAT_EQ(rotated[2], std::cos(0.01f));
  EXPECT_FLOAT_EQ(other[0], -std::sin(1.f));
  EXPECT_EQ(row(values(store), 0, 1), (Values{1, 0, 1, 0}));
}

TEST(Store, RoundsARotatedHalfOnce) {
  const Rotation rotation(Rope{10000.0}, kDim);
  Store<Eigen::half> store(kShape, kCapacity);
  const Values k = {0.1f, 0.7f, 0.3f, -0.9f, 0, 0, 0, 0};
  Values two = k;
  two.insert(two.end(), k.begin(), k.end());
  store.append(0, view(two), view(two), rotation, angles(rotation, 2).data());
  const double expected = double(0.1f) * std::cos(1.0) - double(0.7f) * std::sin(1.0);
  EXPECT_EQ(keys(store).row(0, 1)[0], Eigen::half(static_cast<float>(expected)));
}

TEST(Store, CompactsKeysAndValuesTogether) {
  Store<float> store(kShape, kCapacity);
  append(store, 0, tokens(5), tokens(5, 0.5f));
  store.compact(keeping(5, {0, 3, 4}, {1, 2, 4}));
  EXPECT_EQ(row(keys(store), 0, 1), (Values{300, 301, 302, 303}));
  EXPECT_EQ(row(values(store), 0, 1), (Values{300.5f, 301.5f, 302.5f, 303.5f}));
  EXPECT_EQ(row(keys(store), 1, 0), (Values{110, 111, 112, 113}));
  EXPECT_EQ(row(values(store), 1, 2), (Values{410.5f, 411.5f, 412.5f, 413.5f}));
}

TEST(Store, AppendsBehindWhatWasKept) {
  Store<float> store(kShape, kCapacity);
  append(store, 0, tokens(6), tokens(6));
  store.compact(keeping(6, {5}, {0}));
  append(store, 1, tokens(1, 7000), tokens(1, 8000));
  EXPECT_EQ(row(keys(store), 0, 0)[0], 500);
  EXPECT_EQ(row(keys(store), 0, 1)[0], 7000);
  EXPECT_EQ(row(values(store), 1, 1)[0], 8010);
}

TEST(Store, RotatesMovedKeysByTheirMoves) {
  const Rotation rotation(Rope{10000.0}, kDim);
  Store<float> store(kShape, kCapacity);
  const Values k(5 * kHeads * kDim, 1.f);
  store.append(0, view(k), view(k), rotation, angles(rotation, 5).data());
  const KeptRows keep = keeping(5, {0, 2, 3}, {1, 3, 4});
  store.compact(keep);
  Values room(kDim);
  store.rotate_moved(keep, rotation, room.data());
  // All raw keys are the same, so that those in the same place have to be the same again.
  const Values expected = angles(rotation, 3);
  for (int h = 0; h < kHeads; ++h)
    for (int r = 0; r < 3; ++r) {
      Values fresh(kDim, 1.f);
      rotation.rotate(expected.data() + r * kDim, fresh.data());
      for (int d = 0; d < kDim; ++d)
        EXPECT_NEAR(keys(store).row(h, r)[d], fresh[static_cast<std::size_t>(d)], 3e-7) << h << " " << r;
    }
  EXPECT_EQ(row(values(store), 1, 2), (Values{1, 1, 1, 1}));
}

TEST(Store, BytesAreWhatIsAllocated) {
  const std::size_t numbers = 2 * kHeads * kCapacity * kDim;
  EXPECT_EQ(Store<float>(kShape, kCapacity).bytes(), numbers * 4 + kDim * 4);
  EXPECT_EQ(Store<Eigen::half>(kShape, kCapacity).bytes(), numbers * 2 + kDim * 4);
}

}  // namespace
