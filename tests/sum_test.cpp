#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "typed.h"

namespace {

using typed::KeyDiversity;
using typed::Sum;
using typed::ValueNorm;
using Values = std::vector<float>;
using Rows = std::vector<int>;
using KeyValue = Sum<KeyDiversity, ValueNorm>;
using AttentionAndValue = typed::Policy<Sum<typed::AttentionSum, ValueNorm>, buzz::TopK>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

static_assert(!KeyValue::needs_attention && KeyValue::needs_kv, "as its parts");
static_assert(AttentionAndValue::needs_attention && AttentionAndValue::needs_kv, "as its parts");
TEST(Sum, OfAnotherOrderIsAnotherScoreInAFile) {
  EXPECT_NE(KeyValue::spec({}).code(), (Sum<ValueNorm, KeyDiversity>::spec({}).code()));
}

Values standardised(const Values& x) {
  std::vector<double> y(x.begin(), x.end());
  buzz::standardise(y.data(), static_cast<int>(y.size()));
  return Values(y.begin(), y.end());
}

TEST(Standardise, GivesMeanZeroAndDeviationOne) {
  EXPECT_EQ(standardised({1, 3}), (Values{-1, 1}));
  EXPECT_EQ(standardised({10, 10, 10, 50}), standardised({1, 1, 1, 2})) << "units do not matter";
  const Values z = standardised({2, 4, 4, 4, 5, 5, 7, 9});  // mean 5, deviation 2
  EXPECT_EQ(z, (Values{-1.5f, -0.5f, -0.5f, -0.5f, 0, 0, 1, 2}));
}

TEST(Standardise, OfEqualValuesIsZero) {
  EXPECT_EQ(standardised({}), (Values{}));
  EXPECT_EQ(standardised({7}), (Values{0}));
  EXPECT_EQ(standardised(Values(31, 0.1f)), Values(31, 0.f));
}

TEST(Standardise, OfAValueThatIsNotFiniteIsNan) {
  for (float bad : {kNan, kInf, -kInf})
    for (float x : standardised({1, bad, 3})) EXPECT_TRUE(buzz::is_nan(x));
}

AttentionAndValue policy(float weight, int sink = 0) {
  AttentionAndValue::Options o;
  o.sink = sink;
  o.window = 0;
  o.heavy = 1;
  o.threshold = 3;
  o.weight = weight;
  return AttentionAndValue(o, 1, 8);
}

/// The row of four that is kept; sums and values [rows, 1].
Rows kept(AttentionAndValue p, const Values& sums, const Values& values) {
  const int rows = static_cast<int>(sums.size());
  p.append(rows);
  p.observe(buzz::view(sums, 1, 1, rows));
  const auto view = buzz::view(values, 1, rows, 1);
  const buzz::KeptRows& keep = p.select(view, view);
  return Rows(keep.rows(0).begin(), keep.rows(0).end());
}

TEST(Sum, IsOnePlusWeightTimesTheOther) {
  // Row 1 has the attention, row 2 the value; row 3 some of both.
  const Values sums = {0, 4, 0, 3}, values = {0, 0, 400, 300};
  EXPECT_EQ(kept(policy(1), sums, values), (Rows{3}));
  EXPECT_EQ(kept(policy(0), sums, values), (Rows{1}));
  EXPECT_EQ(kept(policy(9), sums, values), (Rows{2}));
  EXPECT_EQ(kept(policy(-1), sums, values), (Rows{1}));
}

TEST(Sum, IsOverTheMiddleAlone) {
  // The sink's attention would make those of rows 1 to 4 as good as equal.
  EXPECT_EQ(kept(policy(0.5f, 1), {1e9f, 1, 2, 0, 0}, {0, 2, 1, 0, 0}), (Rows{0, 2}));
}

TEST(Sum, OfEqualPartsIsTheOther) {
  EXPECT_EQ(kept(policy(1), {0, 0, 0, 0}, {1, 2, 4, 3}), (Rows{2}));
  EXPECT_EQ(kept(policy(1), {1, 4, 2, 3}, {5, 5, 5, 5}), (Rows{1}));
  EXPECT_EQ(kept(policy(1), {1, 1, 1, 1}, {5, 5, 5, 5}), (Rows{0}));
}

TEST(Sum, OfAValueThatIsNotFiniteKeepsTheOldestRow) {
  for (float bad : {kNan, kInf}) EXPECT_EQ(kept(policy(1), {1, 2, 9, 1}, {1, bad, 3, 4}), (Rows{0}));
}

TEST(Sum, HasTheStateOfItsPart) {
  AttentionAndValue p = policy(1);
  p.append(2);
  const Values sums = {0.25f, 0.75f};
  p.observe(buzz::view(sums, 1, 1, 2));
  p.observe_sums(buzz::view(sums, 1, 1, 2));
  EXPECT_EQ(Values(p.scores(0).begin(), p.scores(0).end()), (Values{0.5f, 1.5f}));
  EXPECT_EQ((typed::Policy<Sum<ValueNorm, typed::RecentAttention>, buzz::TopK>({}, 1)).queries_apart(), 32);
}

/// Says what it hears, and has nothing that the cache should save.
class Listener final : public buzz::Score {
 public:
  explicit Listener(std::string* heard) : heard_(heard) {}
  buzz::Needs needs() const override { return {true, false, false}; }
  void reserve(int, int) override { *heard_ += "reserve "; }
  void append(int, int) override { *heard_ += "append "; }
  void observe(const buzz::View<const float>&, bool first) override { *heard_ += first ? "first " : "later "; }
  void importance(const buzz::Candidates& c, double* out) override { std::fill_n(out, c.count, 0.); }
  void keep(const buzz::KeptRows&) override { *heard_ += "keep "; }
  void forget(int) override { *heard_ += "forget "; }
  int queries_apart() const override { return 2; }
  void step_back() override { *heard_ += "back "; }

 private:
  std::string* heard_;
};

TEST(Sum, TellsBothAllThatItIsTold) {
  for (const bool stateful_first : {true, false}) {
    std::string heard;
    buzz::ScoreSpec own = buzz::own_score(std::make_unique<Listener>(&heard)), attention = buzz::attention_sum();
    buzz::TopK::Options one;
    one.heavy = one.threshold = 1;
    buzz::Evictor evictor(
        buzz::policy(stateful_first ? buzz::sum(attention, own) : buzz::sum(own, attention), one, buzz::Protect{0, 0}),
        1, 2, 1);
    EXPECT_EQ(evictor.queries_apart(), 3) << "the listener's two, and the rollback's";
    evictor.append(2);
    const Values sums = {0.5f, 0, 0.25f, 0.25f};
    evictor.observe(buzz::view(sums, 1, 2, 2));
    evictor.rollback(1);
    evictor.append(1);
    evictor.select();
    EXPECT_EQ(heard, "reserve append first later back append keep ");
  }
}

}  // namespace
