#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "typed.h"

namespace {

using Values = std::vector<float>;
using Rows = std::vector<int>;
using FadedNorm = typed::Policy<typed::Faded<typed::ValueNorm>, buzz::TopK>;

FadedNorm::Options options(float fade) {
  FadedNorm::Options o;
  o.sink = 0;
  o.window = 0;
  o.heavy = 1;
  o.threshold = 3;  // with chunks of 5 the capacity is 8
  o.fade = fade;
  return o;
}

/// The row of four that is kept; values [rows, 1].
int kept(float fade, const Values& values) {
  FadedNorm policy(options(fade), 1, 5);
  EXPECT_EQ(policy.capacity(), 8);
  policy.append(4);
  const auto view = buzz::view(values, 1, 4, 1);
  return policy.select(view, view).rows(0)[0];
}

TEST(Faded, TakesSoMuchWithEachCapacityOfTokens) {
  const Values values = {3, 0, 0, 0};
  EXPECT_EQ(kept(0, values), 0);
  EXPECT_EQ(kept(7.9f, values), 0);
  EXPECT_EQ(kept(8, values), 0) << "0, -2, -1, 0: ties go to the oldest";
  EXPECT_EQ(kept(8.1f, values), 3);
}

TEST(Faded, RefusesWhatIsNoRate) {
  for (const float bad : {-1.f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    try {
      FadedNorm(options(bad), 1);
      ADD_FAILURE() << bad;
    } catch (const buzz::InvalidArgument& e) {
      EXPECT_NE(std::string(e.what()).find("fade"), std::string::npos) << e.what();
    }
  }
}

TEST(Faded, IsAnotherScoreInAFile) {
  EXPECT_NE(typed::Faded<typed::ValueNorm>::spec({}).code(), typed::ValueNorm::spec({}).code());
}

}  // namespace
