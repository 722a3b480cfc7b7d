// Rows that the caller hands over: of another shape, or with scales that are missing or no scales, they are refused by
// name, and the policy is as it was.

#include <gtest/gtest.h>

#include "buzz/attention.h"
#include "oracle_twin.h"
#include "typed.h"

namespace {

using oracle::refused;

constexpr int kHeads = 2, kRows = 6, kDim = 4;
constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

/// [kHeads, kRows, kDim] codes with a scale each.
struct Quantised {
  std::vector<std::int8_t> codes = std::vector<std::int8_t>(kHeads * kRows * kDim, 3);
  std::vector<float> scales = std::vector<float>(kHeads * kRows, 0.5f);
  buzz::View<const std::int8_t> rows() const { return {codes.data(), kHeads, kRows, kDim}; }
  buzz::RowsView<std::int8_t> view() const { return {rows(), {scales.data(), 1, kHeads, kRows}}; }
  buzz::RowsView<std::int8_t> view(int a, int b, int c) const { return {rows(), {scales.data(), a, b, c}}; }
};

template <class Policy>
class Asked {
 public:
  Asked() : policy_(options(), kHeads, kRows) { policy_.append(kRows); }

  template <class T>
  std::string refusal(const buzz::RowsView<T>& keys, const buzz::RowsView<T>& values) {
    const std::string field = refused([&] { policy_.select(keys, values); });
    EXPECT_EQ(policy_.rows(), field == "nothing" ? 3 : kRows);
    return field;
  }
  Policy& policy() { return policy_; }

 private:
  static typename Policy::Options options() {
    typename Policy::Options o;
    o.sink = o.window = 0;
    o.heavy = 3;
    return o;
  }
  Policy policy_;
};

using ByValue = typed::Policy<typed::ValueNorm, buzz::TopK>;
using ByKey = typed::Policy<typed::KeyDiversity, buzz::TopK>;

template <class Policy>
void refuses_scales() {
  const Quantised q;
  const auto keys = [&](const buzz::RowsView<std::int8_t>& bad) { return Asked<Policy>().refusal(bad, q.view()); };
  const auto values = [&](const buzz::RowsView<std::int8_t>& bad) { return Asked<Policy>().refusal(q.view(), bad); };
  EXPECT_EQ(keys(q.view()), "nothing");
  EXPECT_EQ(keys(q.view(1, 1, kRows)), "keys.scales.shape[1]");
  EXPECT_EQ(keys(q.view(1, kHeads, kRows - 1)), "keys.scales.shape[2]");
  EXPECT_EQ(keys(q.view(kHeads, 1, kRows)), "keys.scales.shape[0]");
  EXPECT_EQ(keys(q.view(1, kHeads, 0)), "keys.scales.shape[2]");
  EXPECT_EQ(keys(q.view(0, 0, 0)), "keys.scales.shape[0]");
  EXPECT_EQ(keys(q.rows()), "keys.scales.shape[0]") << "without any";
  EXPECT_EQ(values(q.view(1, 1, kRows)), "values.scales.shape[1]");
  EXPECT_EQ(values(q.view(1, kHeads, kRows - 1)), "values.scales.shape[2]");
  EXPECT_EQ(values(q.rows()), "values.scales.shape[0]");
  for (float bad : {kNan, kInf, -kInf, -0.5f}) {
    Quantised wrong;
    wrong.scales[kRows + 2] = bad;
    EXPECT_EQ(keys(wrong.view()), "keys.scales[0, 1, 2]") << bad;
    EXPECT_EQ(values(wrong.view()), "values.scales[0, 1, 2]") << bad;
  }
  Quantised zero;
  zero.scales[1] = 0;
  EXPECT_EQ(keys(zero.view()), "nothing") << "a row of zeros has scale 0";
}

TEST(GivenRows, WithOtherScalesAreRefused) {
  refuses_scales<ByValue>();
  refuses_scales<ByKey>();
}

TEST(GivenRows, OfFloatsMayHaveScalesButNoOthers) {
  const std::vector<float> rows(kHeads * kRows * kDim, 1.f), scales(kHeads * kRows, 1.f);
  const buzz::View<const float> v(rows.data(), kHeads, kRows, kDim);
  EXPECT_EQ(Asked<ByValue>().refusal<float>(v, v), "nothing");
  EXPECT_EQ(Asked<ByValue>().refusal<float>(v, {v, {scales.data(), 1, kHeads, kRows}}), "nothing");
  EXPECT_EQ(Asked<ByValue>().refusal<float>(v, {v, {scales.data(), 1, 1, kRows}}), "values.scales.shape[1]");
  EXPECT_EQ(Asked<ByKey>().refusal<float>({v, {scales.data(), 1, kHeads, kRows - 2}}, v), "keys.scales.shape[2]");
}

TEST(GivenRows, OfAnotherShapeAreRefused) {
  const std::vector<float> rows(kHeads * kRows * kDim, 1.f);
  const buzz::View<const float> v(rows.data(), kHeads, kRows, kDim);
  EXPECT_EQ(Asked<ByKey>().refusal<float>(buzz::View<const float>(rows.data(), 1, kRows, kDim), v), "keys.shape[0]");
  EXPECT_EQ(Asked<ByKey>().refusal<float>(v, buzz::View<const float>(rows.data(), kHeads, kRows - 1, kDim)),
            "values.shape[1]");
}

TEST(GivenRows, ThatWereNotFiniteWhenQuantisedAreSelectedFrom) {
  Quantised q;
  std::vector<float> row(kDim, 1.f);
  row[1] = kNan;
  q.scales[2] = buzz::quantise_row(row.data(), kDim, q.codes.data() + 2 * kDim);
  EXPECT_EQ(Asked<ByValue>().refusal(q.view(), q.view()), "keys.scales[0, 0, 2]");
  Asked<ByValue> asked;
  const buzz::KeptRows& keep = asked.policy().select_quantised(q.view(), q.view());
  EXPECT_EQ(keep.size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_NE(keep.list(0)[i], 2) << "NaN loses";
  EXPECT_EQ(refused([&] { Asked<ByValue>().policy().select_quantised(q.view(0, 0, 0), q.view()); }),
            "keys.scales.shape[0]");
}

TEST(GivenRows, OfAnAttentionAreOfItsShape) {
  const buzz::Shape shape{4, kHeads, kDim, 8};
  const Quantised k;
  std::vector<float> numbers(100, 1.f), out(100);
  const buzz::View<const float> q(numbers.data(), 2, 4, kDim), none(nullptr, 0, 0, 0);
  const buzz::View<float> unwanted(nullptr, 0, 0, 0), to(out.data(), 2, 4, kDim);
  buzz::Attention attention(shape, {}, kRows);
  const auto attends = [&](const buzz::View<const float>& queries, const buzz::RowsView<std::int8_t>& keys,
                           const buzz::RowsView<std::int8_t>& values, const buzz::View<float>& result,
                           const buzz::View<float>& wanted) {
    return refused([&] { attention(queries, {}, keys, values, result, wanted); });
  };
  EXPECT_EQ(attends(q, k.view(), k.view(), to, unwanted), "nothing");
  EXPECT_EQ(attends(q, k.rows(), k.view(), to, unwanted), "keys.scales.shape[0]");
  EXPECT_EQ(attends(q, k.view(), k.view(1, kHeads, 2), to, unwanted), "values.scales.shape[2]");
  EXPECT_EQ(attends(q, k.view(), {{k.codes.data(), kHeads, 5, kDim}, {k.scales.data(), 1, kHeads, 5}}, to, unwanted),
            "values.shape[1]");
  EXPECT_EQ(attends({numbers.data(), 7, 2, kDim}, k.view(), k.view(), to, unwanted), "q.shape[0]");
  EXPECT_EQ(attends({numbers.data(), 2, 2, kDim}, k.view(), k.view(), to, unwanted), "q.shape[1]");
  EXPECT_EQ(attends(q, k.view(), k.view(), {out.data(), 1, 4, kDim}, unwanted), "out.shape[0]");
  EXPECT_EQ(attends(q, k.view(), k.view(), to, {out.data(), 1, kHeads, 2}), "sums.shape[2]");
  buzz::Attention small(shape, {}, kRows - 1);
  EXPECT_EQ(refused([&] { small(q, {}, k.view(), k.view(), to, unwanted); }), "keys.shape[1]");
  EXPECT_EQ(refused([&] { attention.column_sums(q, {}, k.view(), none, unwanted); }), "lse.shape[0]");
}

}  // namespace
