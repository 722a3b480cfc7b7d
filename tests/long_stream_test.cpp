// A stream of 10^9 tokens: sums of attention so large that a float would not take up what one more query gives.

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "buzz.h"
#include "typed.h"

namespace {

using buzz::AttentionKind;
using buzz::Evictor;

/// Stands for a saved evictor whose rows have these positions, and in every head the same sum.
class State : public buzz::Reader {
 public:
  State(std::istream& version, std::vector<std::int32_t> positions, int next, double sum)
      : Reader(version), positions_(std::move(positions)), next_(next), sum_(sum) {}
  template <class T>
  void same(const char*, T) {}
  template <class T>
  void same_since(int, const char*, T, T) {}
  void number(const char* field, int& value, long long, long long) {
    if (field == std::string("rows")) value = static_cast<int>(positions_.size());
    if (field == std::string("next_position")) value = next_;
  }
  void array(std::int32_t* values, std::size_t count) { std::copy_n(positions_.data(), count, values); }
  void array(float* values, std::size_t count) { std::fill_n(values, count, static_cast<float>(sum_)); }
  void array(double* values, std::size_t count) { std::fill_n(values, count, 0.); }  // of queries: none were seen
  void sums(double* values, std::size_t count) { std::fill_n(values, count, sum_); }

 private:
  std::vector<std::int32_t> positions_;
  int next_;
  double sum_;
};

/// Two rows of the same sum, after `next` tokens.
Evictor after(int next, double sum, const buzz::Policy& policy, int kv_heads = 1) {
  std::stringstream version;
  buzz::Writer writer(version);
  State state(version, {next - 2, next - 1}, next, sum);
  Evictor evictor(policy, kv_heads, 1);
  Evictor::archive(evictor, state);
  return evictor;
}

/// One row stays of three, the heaviest by that score.
buzz::Policy one_of_three(buzz::ScoreSpec score, buzz::Sharing sharing = buzz::Sharing::head, int threshold = 2) {
  return buzz::policy(std::move(score), buzz::TopK::Options{1, threshold}, buzz::Protect{0, 0}, sharing);
}
buzz::Policy one_of_three(AttentionKind kind = AttentionKind::accumulated, float decay = 0.5f) {
  return one_of_three(buzz::attention_sum({kind, decay}));
}

/// Eight more queries of which each gives a quarter to the second row of every head.
void observe_the_second(Evictor& evictor) {
  const int heads = evictor.kv_heads();
  std::vector<float> sums;
  for (int h = 0; h < heads; ++h) sums.insert(sums.end(), {0, 0.25f});
  for (int i = 0; i < 8; ++i) evictor.observe_sums(buzz::View<const float>(sums.data(), 1, heads, 2));
}

/// Does the second row stay?
bool keeps_the_second(Evictor& evictor) {
  evictor.append(1);
  const std::vector<float> rows(static_cast<std::size_t>(3 * evictor.kv_heads()), 1.f);
  const buzz::View<const float> view(rows.data(), evictor.kv_heads(), 3, 1);
  evictor.select(view, view);
  return evictor.rows() == 1 && evictor.positions(0)[0] == evictor.next_position() - 2;
}

constexpr double kSums[] = {1 << 23, 1 << 24, 1 << 28, 1 << 30};
constexpr int kTokens[] = {1 << 24, 1000000000, 2147483000};

TEST(LongStream, AccumulatedAttentionGrowsOn) {
  for (const double sum : kSums)
    for (const int tokens : kTokens) {
      Evictor evictor = after(tokens, sum, one_of_three());
      observe_the_second(evictor);
      EXPECT_EQ(static_cast<double>(evictor.scores(0)[1]), sum + 2);
      EXPECT_TRUE(keeps_the_second(evictor)) << sum << " after " << tokens;
    }
}

TEST(LongStream, SoDoesItsMean) {
  std::stringstream version;
  buzz::Writer writer(version);
  for (const double sum : kSums) {
    version.seekg(0);
    // So old that one token more is not seen in a float.
    State state(version, {0, 1}, 1 << 30, sum);
    Evictor evictor(one_of_three(AttentionKind::mean), 1, 1);
    Evictor::archive(evictor, state);
    // The first gives its seniority back, and the second gets as much again.
    for (const std::vector<float>& sums : {std::vector<float>{0.25f, 0}, std::vector<float>{0, 0.25f}})
      for (int i = 0; i < 8; ++i) evictor.observe_sums(buzz::View<const float>(sums.data(), 1, 1, 2));
    evictor.append(1);
    evictor.select();
    EXPECT_EQ(evictor.positions(0)[0], 1) << sum << ": the same sum over a token less";
  }
}

TEST(LongStream, SoDoSumsOfOneListForAllHeads) {
  for (const double sum : kSums) {
    Evictor evictor = after(1 << 30, sum, one_of_three(buzz::attention_sum(), buzz::Sharing::layer), 8);
    observe_the_second(evictor);
    EXPECT_TRUE(keeps_the_second(evictor)) << sum;
  }
}

TEST(LongStream, SoDoSumsWithOtherScores) {
  for (const double sum : kSums) {
    Evictor evictor = after(1 << 30, sum, one_of_three(buzz::sum(buzz::attention_sum(), buzz::value_norm())));
    observe_the_second(evictor);
    EXPECT_TRUE(keeps_the_second(evictor)) << sum;
  }
}

TEST(LongStream, SoDoesAttentionThatFades) {
  for (const double sum : kSums) {
    Evictor evictor = after(1 << 30, sum, one_of_three(buzz::faded(buzz::attention_sum(), {0.01f})));
    observe_the_second(evictor);
    EXPECT_TRUE(keeps_the_second(evictor)) << sum;
  }
}

TEST(LongStream, DecayedAttentionThatHardlyDecays) {
  Evictor evictor = after(1 << 30, 1 << 24, one_of_three(AttentionKind::decayed, 1 - 0x1p-24f));
  observe_the_second(evictor);
  EXPECT_TRUE(keeps_the_second(evictor));
}

TEST(LongStream, RollbackBringsEveryBitBack) {
  Evictor evictor(one_of_three(buzz::attention_sum(), buzz::Sharing::head, 9), 1, 1, 4);
  evictor.append(1);
  const float large = 0x1p30f, small = 0.25f;
  evictor.observe_sums(buzz::View<const float>(&large, 1, 1, 1));
  for (int i = 0; i < 3; ++i) evictor.observe_sums(buzz::View<const float>(&small, 1, 1, 1));
  const std::vector<float> two = {0.25f, 0};
  evictor.append(1);
  evictor.observe_sums(buzz::View<const float>(two.data(), 1, 1, 2));
  EXPECT_EQ(static_cast<double>(evictor.scores(0)[0]), 0x1p30 + 1);
  evictor.rollback(1);
  EXPECT_EQ(static_cast<double>(evictor.scores(0)[0]), 0x1p30 + 0.75);
}

TEST(LongStream, EndsBeforeItsPositionsOverflow) {
  const int most = std::numeric_limits<std::int32_t>::max();
  Evictor evictor = after(most - 1, 1, one_of_three());
  evictor.append(1);
  evictor.select();
  EXPECT_EQ(evictor.next_position(), most);
  EXPECT_THROW(evictor.append(1), buzz::CacheFull);
  EXPECT_EQ(evictor.next_position(), most);
}

}  // namespace
