// A stream of 10^9 tokens: sums of attention so large that a float would not take up what one more query gives.

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "buzz.h"

namespace {

using buzz::MassKind;

/// Stands for a saved policy whose rows have these positions, and in every head the same sum.
class State : public buzz::Reader {
 public:
  State(std::istream& version, std::vector<std::int32_t> positions, int next, double sum)
      : Reader(version), positions_(std::move(positions)), next_(next), sum_(sum) {}
  template <class T>
  void same(const char*, T) {}
  void number(const char* field, int& value, long long, long long) {
    if (field == std::string("rows")) value = static_cast<int>(positions_.size());
    if (field == std::string("next_position")) value = next_;
  }
  void array(std::int32_t* values, std::size_t count) { std::copy_n(positions_.data(), count, values); }
  void array(float* values, std::size_t count) { std::fill_n(values, count, static_cast<float>(sum_)); }
  void sums(double* values, std::size_t count) { std::fill_n(values, count, sum_); }

 private:
  std::vector<std::int32_t> positions_;
  int next_;
  double sum_;
};

/// Two rows of the same sum, after `next` tokens.
template <class P>
P after(int next, double sum, const typename P::Options& options, int kv_heads = 1) {
  std::stringstream version;
  buzz::Writer writer(version);
  State state(version, {next - 2, next - 1}, next, sum);
  P policy(options, kv_heads, 1);
  P::archive(policy, state);
  return policy;
}

/// One heavy row stays of three.
template <class P>
typename P::Options one_of_three() {
  typename P::Options o;
  o.sink = o.window = 0;
  o.heavy = 1;
  o.threshold = 2;
  return o;
}

/// Eight more queries of which each gives a quarter to the second row of every head.
template <class P>
void observe_the_second(P& policy) {
  const int heads = policy.kv_heads();
  std::vector<float> mass;
  for (int h = 0; h < heads; ++h) mass.insert(mass.end(), {0, 0.25f});
  for (int i = 0; i < 8; ++i) policy.observe_mass(buzz::View<const float>(mass.data(), 1, heads, 2));
}

/// Does the second row stay?
template <class P>
bool keeps_the_second(P& policy) {
  policy.append(1);
  const std::vector<float> rows(static_cast<std::size_t>(3 * policy.kv_heads()), 1.f);
  const buzz::View<const float> view(rows.data(), policy.kv_heads(), 3, 1);
  if constexpr (P::needs_rows)
    policy.select(view, view);
  else
    policy.select();
  return policy.rows() == 1 && policy.positions(0)[0] == policy.next_position() - 2;
}

constexpr double kSums[] = {1 << 23, 1 << 24, 1 << 28, 1 << 30};
constexpr int kTokens[] = {1 << 24, 1000000000, 2147483000};

TEST(LongStream, AccumulatedMassGrowsOn) {
  for (const double sum : kSums)
    for (const int tokens : kTokens) {
      auto policy = after<buzz::HeavyHitter>(tokens, sum, one_of_three<buzz::HeavyHitter>());
      observe_the_second(policy);
      EXPECT_EQ(static_cast<double>(policy.scores(0)[1]), sum + 2);
      EXPECT_TRUE(keeps_the_second(policy)) << sum << " after " << tokens;
    }
}

TEST(LongStream, SoDoesItsMean) {
  auto options = one_of_three<buzz::HeavyHitter>();
  options.mass = MassKind::mean;
  std::stringstream version;
  buzz::Writer writer(version);
  for (const double sum : kSums) {
    version.seekg(0);
    // So old that one token more is not seen in a float.
    State state(version, {0, 1}, 1 << 30, sum);
    buzz::HeavyHitter policy(options, 1, 1);
    buzz::HeavyHitter::archive(policy, state);
    // The first gives its seniority back, and the second gets as much again.
    for (const std::vector<float>& mass : {std::vector<float>{0.25f, 0}, std::vector<float>{0, 0.25f}})
      for (int i = 0; i < 8; ++i) policy.observe_mass(buzz::View<const float>(mass.data(), 1, 1, 2));
    policy.append(1);
    policy.select();
    EXPECT_EQ(policy.positions(0)[0], 1) << sum << ": the same sum over a token less";
  }
}

TEST(LongStream, SoDoMassesOfOneListForAllHeads) {
  using Policy = buzz::Policy<buzz::Shared<buzz::Mass>, buzz::TopK>;
  for (const double sum : kSums) {
    auto policy = after<Policy>(1 << 30, sum, one_of_three<Policy>(), 8);
    observe_the_second(policy);
    EXPECT_TRUE(keeps_the_second(policy)) << sum;
  }
}

TEST(LongStream, SoDoMassesMixedWithOtherScores) {
  using Policy = buzz::Policy<buzz::Mixed<buzz::Mass, buzz::ValueNorm>, buzz::TopK>;
  for (const double sum : kSums) {
    auto policy = after<Policy>(1 << 30, sum, one_of_three<Policy>());
    observe_the_second(policy);
    EXPECT_TRUE(keeps_the_second(policy)) << sum;
  }
}

TEST(LongStream, SoDoesMassThatFades) {
  using Policy = buzz::Policy<buzz::Fading<buzz::Mass>, buzz::TopK>;
  for (const double sum : kSums) {
    auto options = one_of_three<Policy>();
    options.fade = 0.01f;
    auto policy = after<Policy>(1 << 30, sum, options);
    observe_the_second(policy);
    EXPECT_TRUE(keeps_the_second(policy)) << sum;
  }
}

TEST(LongStream, DecayedMassThatHardlyDecays) {
  auto options = one_of_three<buzz::HeavyHitter>();
  options.mass = MassKind::decayed;
  options.decay = 1 - 0x1p-24f;
  auto policy = after<buzz::HeavyHitter>(1 << 30, 1 << 24, options);
  observe_the_second(policy);
  EXPECT_TRUE(keeps_the_second(policy));
}

TEST(LongStream, RollbackBringsEveryBitBack) {
  auto options = one_of_three<buzz::HeavyHitter>();
  options.threshold = 9;
  buzz::HeavyHitter policy(options, 1, 1, 4);
  policy.append(1);
  const float large = 0x1p30f, small = 0.25f;
  policy.observe_mass(buzz::View<const float>(&large, 1, 1, 1));
  for (int i = 0; i < 3; ++i) policy.observe_mass(buzz::View<const float>(&small, 1, 1, 1));
  const std::vector<float> two = {0.25f, 0};
  policy.append(1);
  policy.observe_mass(buzz::View<const float>(two.data(), 1, 1, 2));
  EXPECT_EQ(static_cast<double>(policy.scores(0)[0]), 0x1p30 + 1);
  policy.rollback(1);
  EXPECT_EQ(static_cast<double>(policy.scores(0)[0]), 0x1p30 + 0.75);
}

TEST(LongStream, EndsBeforeItsPositionsOverflow) {
  const int most = std::numeric_limits<std::int32_t>::max();
  auto policy = after<buzz::HeavyHitter>(most - 1, 1, one_of_three<buzz::HeavyHitter>());
  policy.append(1);
  policy.select();
  EXPECT_EQ(policy.next_position(), most);
  EXPECT_THROW(policy.append(1), buzz::CacheFull);
  EXPECT_EQ(policy.next_position(), most);
}

}  // namespace
