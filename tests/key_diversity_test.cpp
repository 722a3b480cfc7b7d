#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "typed.h"

namespace {

using buzz::View;
using Diverse = typed::Policy<typed::KeyDiversity, buzz::TopK>;
using Values = std::vector<float>;
using Rows = std::vector<int>;

static_assert(Diverse::needs_kv && !Diverse::needs_attention, "diversity asks for K and V, not for probabilities");

/// The `heavy` rows of a head that are kept of `rows`, where nothing is protected. keys: [heads, rows, dim].
template <class T>
std::vector<Rows> kept(const std::vector<T>& keys, int heads, int rows, int heavy) {
  Diverse::Options o;
  o.sink = o.window = 0;
  o.heavy = heavy;
  Diverse policy(o, heads, rows);
  policy.append(rows);
  const auto view = buzz::view(keys, heads, rows, static_cast<int>(keys.size()) / (heads * rows));
  const buzz::KeptRows& keep = policy.select(view, view);
  std::vector<Rows> result;
  for (int h = 0; h < heads; ++h) result.emplace_back(keep.rows(h).begin(), keep.rows(h).end());
  return result;
}

Rows kept(const Values& keys, int rows, int heavy) { return kept<float>(keys, 1, rows, heavy)[0]; }

Values random_keys(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values keys(static_cast<std::size_t>(count));
  for (float& k : keys) k = uniform(random) + 0.2f;
  return keys;
}

/// Minus the cosine of each row with the mean row, in double.
template <class T>
std::vector<double> diversity(const T* keys, int rows, int dim) {
  std::vector<double> mean(static_cast<std::size_t>(dim)), result;
  const auto at = [&](int r, std::size_t d) { return double(static_cast<float>(keys[r * dim + static_cast<int>(d)])); };
  for (int r = 0; r < rows; ++r)
    for (std::size_t d = 0; d < mean.size(); ++d) mean[d] += at(r, d) / rows;
  for (int r = 0; r < rows; ++r) {
    double dot = 0, norm = 0, mean_norm = 0;
    for (std::size_t d = 0; d < mean.size(); ++d) {
      dot += at(r, d) * mean[d];
      norm += at(r, d) * at(r, d);
      mean_norm += mean[d] * mean[d];
    }
    result.push_back(-dot / std::sqrt(norm * mean_norm));
  }
  return result;
}

/// The `count` highest, ascending; `gap`: how clear the choice was.
Rows highest(const std::vector<double>& importance, int count, double* gap) {
  Rows order(importance.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int r) { return importance[static_cast<std::size_t>(r)]; };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return at(a) > at(b); });
  *gap = at(order[static_cast<std::size_t>(count) - 1]) - at(order[static_cast<std::size_t>(count)]);
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

/// Random keys of type T against the double computation, for heads of many sizes.
template <class T>
void agrees_with_doubles() {
  int clear = 0;
  for (int dim : {1, 2, 15, 16, 17, 33, 64}) {
    constexpr int heads = 2, rows = 12, heavy = 5;
    std::vector<T> keys;
    for (float k : random_keys(heads * rows * dim, static_cast<unsigned>(dim))) keys.push_back(static_cast<T>(k));
    const std::vector<Rows> chosen = kept(keys, heads, rows, heavy);
    for (int h = 0; h < heads; ++h) {
      double gap = 0;
      const Rows expected = highest(diversity(keys.data() + h * rows * dim, rows, dim), heavy, &gap);
      if (gap < 1e-5) continue;  // not even a cosine of one dimension
      ++clear;
      EXPECT_EQ(chosen[static_cast<std::size_t>(h)], expected) << "dim " << dim;
    }
  }
  EXPECT_GE(clear, 12);
}

TEST(KeyDiversity, KeepsTheKeyThatIsLeastLikeTheOthers) {
  EXPECT_EQ(kept({1, 0, /**/ 1, 0.1f, /**/ 0, 1, /**/ 1, -0.1f}, 4, 1), (Rows{2}));
  EXPECT_EQ(kept({1, 0, /**/ 1, 0.1f, /**/ -1, 0, /**/ 1, 0, /**/ 0.3f, 1}, 5, 2), (Rows{2, 4}));
}

TEST(KeyDiversity, IsAboutDirectionNotLength) {
  EXPECT_EQ(kept({1, 0, /**/ 50, 0, /**/ 0.01f, 0.01f, /**/ 1, 0}, 4, 1), (Rows{2}));
}

TEST(KeyDiversity, HoldsForKeysOfAnyFiniteLength) {
  for (float s : {1e-20f, 1.f, 1e20f, 1e30f})
    EXPECT_EQ(kept({s, 0, /**/ s, 0.1f * s, /**/ 0, s, /**/ s, -0.1f * s}, 4, 1), (Rows{2})) << s;
}

TEST(KeyDiversity, AgreesWithDoubles) { agrees_with_doubles<float>(); }
TEST(KeyDiversity, AgreesWithDoublesForHalves) { agrees_with_doubles<Eigen::half>(); }
TEST(KeyDiversity, AgreesWithDoublesForBfloat16) { agrees_with_doubles<Eigen::bfloat16>(); }

TEST(KeyDiversity, OfAZeroKeyIsZero) {
  // Cosines with the mean (1, 1) / 4: 0.7, 0.7, none, 1. The zero key, at 0, is the least alike.
  EXPECT_EQ(kept({1, 0, /**/ 0, 1, /**/ 0, 0, /**/ 1, 1}, 4, 1), (Rows{2}));
  // With one against the mean, that one wins, and the zero key comes second.
  EXPECT_EQ(kept({3, 0, /**/ -1, 0, /**/ 0, 0, /**/ 1, 0}, 4, 1), (Rows{1}));
  EXPECT_EQ(kept({3, 0, /**/ -1, 0, /**/ 0, 0, /**/ 1, 0}, 4, 2), (Rows{1, 2}));
}

TEST(KeyDiversity, WithAZeroMeanIsZeroForAll) {
  EXPECT_EQ(kept({1, 0, /**/ -1, 0, /**/ 0, 1, /**/ 0, -1}, 4, 2), (Rows{0, 1}));
  EXPECT_EQ(kept({0, 0, /**/ 0, 0, /**/ 0, 0}, 3, 1), (Rows{0}));
}

TEST(KeyDiversity, TiesGoToTheLowestRow) { EXPECT_EQ(kept({1, 1, /**/ 2, 2, /**/ 3, 3}, 3, 2), (Rows{0, 1})); }

TEST(KeyDiversity, HeadsHaveTheirOwnMean) {
  const Values keys = {1, 0, /**/ 1, 0, /**/ 0, 1,   // head 0: row 2 stands out
                       0, 1, /**/ 1, 0, /**/ 0, 1};  // head 1: row 1
  EXPECT_EQ(kept<float>(keys, 2, 3, 1), (std::vector<Rows>{{2}, {1}}));
}

TEST(KeyDiversity, MeansOverProtectedRowsToo) {
  Diverse::Options o;
  o.sink = 3;
  o.window = 1;
  o.heavy = 1;
  Diverse policy(o, 1, 8);
  policy.append(6);
  // The middle holds (1, 0) and (0, 1); sink and window make the mean lie along (0, 1).
  const Values keys = {0, 1, /**/ 0, 1, /**/ 0, 1, /**/ 0, 1, /**/ 1, 0, /**/ 0, 1};
  const auto view = buzz::view(keys, 1, 6, 2);
  const buzz::KeptRows& keep = policy.select(view, view);
  EXPECT_EQ(Rows(keep.rows(0).begin(), keep.rows(0).end()), (Rows{0, 1, 2, 4, 5}));
}

TEST(KeyDiversity, ReadsAStridedView) {
  Diverse::Options o;
  o.window = 0;
  o.heavy = 1;
  Diverse policy(o, 2, 3);
  policy.append(3);
  // Token-major, [rows 3, heads 2, dim 1 of 2].
  const Values keys = {1, 99, -5, 99, /**/ 1, 99, 5, 99, /**/ -1, 99, 5, 99};
  const View<const float> view(keys.data(), 2, 3, 1, 2, 4);
  const buzz::KeptRows& keep = policy.select(view, view);
  EXPECT_EQ(keep.rows(0)[0], 2);
  EXPECT_EQ(keep.rows(1)[0], 0);
}

TEST(KeyDiversity, WithAKeyThatIsNotFiniteKeepsTheOldestRows) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_EQ(kept({1, 0, /**/ 1, 0, /**/ bad, 1, /**/ 0, 1}, 4, 2), (Rows{0, 1}));
}

/// The rows kept by other options than the usual.
Rows kept_by(buzz::Unlike unlike, buzz::MeanOver over, const Values& keys, int rows, int heavy, int sink = 0) {
  Diverse::Options o;
  o.sink = sink;
  o.window = 0;
  o.heavy = heavy;
  o.unlike = unlike;
  o.mean_over = over;
  Diverse policy(o, 1, rows);
  policy.append(rows);
  const auto view = buzz::view(keys, 1, rows, static_cast<int>(keys.size()) / rows);
  const buzz::KeptRows& keep = policy.select(view, view);
  return Rows(keep.rows(0).begin(), keep.rows(0).end());
}

TEST(KeyDiversity, OfDirectionsDoesNotHearLongKeysLouder) {
  // The long key (0, 50) pulls the mean key along; of directions, three of four are (1, 0).
  const Values keys = {1, 0, /**/ 1, 0, /**/ 0, 50, /**/ 1, 0};
  EXPECT_EQ(kept_by(buzz::Unlike::cosine, buzz::MeanOver::all, keys, 4, 1), (Rows{0}));
  EXPECT_EQ(kept_by(buzz::Unlike::direction, buzz::MeanOver::all, keys, 4, 1), (Rows{2}));
}

TEST(KeyDiversity, ByDistanceIsAboutLengthToo) {
  const Values keys = {1, 0, /**/ 1.5f, 0, /**/ 9, 0, /**/ 0, 1};
  EXPECT_EQ(kept_by(buzz::Unlike::distance, buzz::MeanOver::all, keys, 4, 1), (Rows{2}));
  EXPECT_EQ(kept_by(buzz::Unlike::cosine, buzz::MeanOver::all, keys, 4, 1), (Rows{3}));
  EXPECT_EQ(kept_by(buzz::Unlike::distance, buzz::MeanOver::all, {0, 0, 0}, 3, 1), (Rows{0}));
}

TEST(KeyDiversity, MayMeanOverTheMiddleAlone) {
  // The sink is three times (0, 1), the middle three times (1, 0) and one (0, 1).
  const Values keys = {0, 1, /**/ 0, 1, /**/ 0, 1, /**/ 0, 1, /**/ 1, 0, /**/ 1, 0, /**/ 1, 0};
  for (buzz::Unlike unlike : {buzz::Unlike::cosine, buzz::Unlike::direction, buzz::Unlike::distance}) {
    EXPECT_EQ(kept_by(unlike, buzz::MeanOver::all, keys, 7, 1, 3), (Rows{0, 1, 2, 4}));
    EXPECT_EQ(kept_by(unlike, buzz::MeanOver::middle, keys, 7, 1, 3), (Rows{0, 1, 2, 3}));
  }
}

TEST(KeyDiversity, OverTheMiddleDoesNotSeeABadKeyOfTheSink) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Values keys = {nan, nan, /**/ 1, 0, /**/ 1, 0, /**/ 0, 1};
  EXPECT_EQ(kept_by(buzz::Unlike::cosine, buzz::MeanOver::all, keys, 4, 1, 1), (Rows{0, 1}));
  EXPECT_EQ(kept_by(buzz::Unlike::cosine, buzz::MeanOver::middle, keys, 4, 1, 1), (Rows{0, 3}));
}

TEST(KeyDiversity, OfHeadsWiderThanABlockOfValues) {
  for (buzz::Unlike unlike : {buzz::Unlike::cosine, buzz::Unlike::direction, buzz::Unlike::distance}) {
    Values keys(4 * 600, 0.f);
    for (std::size_t r = 0; r < 4; ++r) keys[r * 600] = 1;
    keys[2 * 600 + 599] = 1;  // what makes row 2 differ is far behind
    EXPECT_EQ(kept_by(unlike, buzz::MeanOver::all, keys, 4, 1), (Rows{2}));
  }
}

TEST(KeyDiversity, HasNoScoresToShow) {
  Diverse policy({}, 1, 8);
  policy.append(3);
  EXPECT_EQ(policy.scores(0).size, 0);
}

}  // namespace
