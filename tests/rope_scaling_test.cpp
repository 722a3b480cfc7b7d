// Each scaling against its published formula, written as its authors write it.

#include "buzz/rope_scaling.h"

#include <gtest/gtest.h>

#include <vector>

#include "oracle_twin.h"

namespace {

namespace scaling = buzz::rope_scaling;
using buzz::Rope;
using oracle::refused;
using Frequencies = std::vector<double>;

constexpr double kPi = 3.14159265358979323846;

double plain(double base, int dims, int i) { return 1 / std::pow(buzz::as_written(base), (2.0 * i) / dims); }

void expect_near(const Rope& rope, const Frequencies& expected) {
  ASSERT_EQ(rope.frequencies.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(rope.frequencies[i], expected[i], 1e-13 * expected[i]) << "pair " << i;
}

/// Calls f(base, dims, factor) for what models use, and beyond.
template <class F>
void for_all(F&& f) {
  for (double base : {10000.0, 500000.0, 1000000.0, 50.0})
    for (int dims : {4, 6, 64, 128, 256})
      for (double factor : {0.5, 1.0, 2.0, 8.0, 40.0, 1e6}) f(base, dims, factor);
}

TEST(LinearScaling, InterpolatesPositions) {
  for_all([](double base, int dims, double factor) {
    Frequencies expected;
    for (int i = 0; i < dims / 2; ++i) expected.push_back(plain(base, dims, i) / factor);
    expect_near(scaling::linear(Rope{base}, dims, factor), expected);
  });
}

TEST(LinearScaling, PutsPositionPWherePositionPOverFactorWas) {
  const Rope rope = scaling::linear(Rope{10000.0}, 8, 4);
  std::vector<float> a(8), b(8);
  buzz::Rotation(rope, 8).angles(20, a.data());
  buzz::Rotation(Rope{10000.0}, 8).angles(5, b.data());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(a[i], b[i]);
}

TEST(NtkScaling, KeepsTheHighestAndDividesTheLowest) {
  for_all([](double base, int dims, double factor) {
    const Rope rope = scaling::ntk(Rope{base}, dims, factor);
    ASSERT_EQ(rope.frequencies.size(), static_cast<std::size_t>(dims / 2));
    EXPECT_DOUBLE_EQ(rope.frequencies.front(), 1);
    const double lowest = plain(base, dims, dims / 2 - 1) / factor;
    EXPECT_NEAR(rope.frequencies.back(), lowest, 1e-12 * lowest);
    for (std::size_t i = 2; i < rope.frequencies.size(); ++i) {  // one base: a geometric series
      const double here = rope.frequencies[i] / rope.frequencies[i - 1];
      EXPECT_NEAR(here, rope.frequencies[1], 1e-12);
    }
  });
}

/// Meta's apply_scaling (llama-models, models/llama3/reference_impl/model.py).
double meta(double frequency, double scale_factor, double low_freq_factor, double high_freq_factor,
            double old_context) {
  const double low_freq_wavelen = old_context / low_freq_factor;
  const double high_freq_wavelen = old_context / high_freq_factor;
  const double wavelen = 2 * kPi / frequency;
  if (wavelen < high_freq_wavelen) return frequency;
  if (wavelen > low_freq_wavelen) return frequency / scale_factor;
  const double smooth = (old_context / wavelen - low_freq_factor) / (high_freq_factor - low_freq_factor);
  return (1 - smooth) * frequency / scale_factor + smooth * frequency;
}

TEST(Llama3Scaling, IsMetas) {
  for (double context : {1.0, 100.0, 8192.0, 1e9})
    for (double high : {1.5, 4.0, 32.0})
      for_all([=](double base, int dims, double factor) {
        Frequencies expected;
        for (int i = 0; i < dims / 2; ++i) expected.push_back(meta(plain(base, dims, i), factor, 1, high, context));
        expect_near(scaling::llama3(Rope{base}, dims, factor, 1, high, context), expected);
      });
}

TEST(Llama3Scaling, OfLlama31) {
  const Rope rope = scaling::llama3(Rope{500000.0}, 128, 8, 1, 4, 8192);
  std::size_t same = 0, divided = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double ratio = plain(500000, 128, static_cast<int>(i)) / rope.frequencies[i];
    same += std::fabs(ratio - 1) < 1e-12;
    divided += std::fabs(ratio - 8) < 1e-12;
    EXPECT_GE(ratio, 1 - 1e-12);
    EXPECT_LE(ratio, 8 + 1e-12);
  }
  EXPECT_EQ(same, 29u) << "2 pi 500000^(2i/128) < 8192 / 4 up to i = 28";
  EXPECT_EQ(divided, 29u) << "and > 8192 from i = 35";
  EXPECT_EQ(rope.attention_factor, 1);
}

/// The YaRN authors' code (jquesnelle/yarn, LlamaYaRNScaledRotaryEmbedding).
Frequencies authors_yarn(double base, int dims, double scale, double original, double fast, double slow) {
  const auto find_correction_dim = [=](double rotations) {
    return (dims * std::log(original / (rotations * 2 * kPi))) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(find_correction_dim(fast)), 0.0);
  double high = std::min(std::ceil(find_correction_dim(slow)), dims - 1.0);
  if (low > high) return {};  // every pair turns more than `fast` times; their ramp is then upside down
  if (low == high) high += 0.001;
  Frequencies result;
  for (int i = 0; i < dims / 2; ++i) {
    const double ramp = std::min(1.0, std::max(0.0, (i - low) / buzz::as_written(high - low)));
    const double mask = buzz::as_written(1 - ramp);
    result.push_back(plain(base, dims, i) / scale * buzz::as_written(1 - mask) + plain(base, dims, i) * mask);
  }
  return result;
}

TEST(YarnScaling, IsItsAuthors) {
  int compared = 0;
  for (double context : {64.0, 4096.0, 32768.0, 1e9})
    for (double slow : {1.0, 2.0})
      for_all([&](double base, int dims, double factor) {
        SCOPED_TRACE(std::to_string(base) + " " + std::to_string(dims) + " " + std::to_string(factor));
        Frequencies expected = authors_yarn(base, dims, factor, context, 32, slow);
        compared += !expected.empty();
        for (int i = 0; i < dims / 2 && static_cast<int>(expected.size()) <= i; ++i)
          expected.push_back(plain(base, dims, i));
        expect_near(scaling::yarn(Rope{base}, dims, factor, context, 32, slow), expected);
      });
  EXPECT_GT(compared, 800) << "of 960";
}

/// A saved cache has to agree on them with the one that loads it, of another build.
TEST(Scaling, TablesAreTheSameBitsUnderEveryCompilerFlag) {
  std::uint64_t sum = 14695981039346656037u;  // FNV-1a
  for (double factor : {1.5, 3.0, 40.0})
    for (int dims : {32, 80, 128}) {
      const Rope rope{500000.0};
      for (const Rope& r : {scaling::linear(rope, dims, factor), scaling::ntk(rope, dims, factor)})
        for (const double& f : r.frequencies) sum = (sum ^ buzz::bits_of(f)) * 1099511628211u;
    }
  EXPECT_EQ(sum, 12579451128695464733u);
}

TEST(YarnScaling, OfAContextThatNoPairTurnsIn) {
  const Rope rope = scaling::yarn(Rope{10000.0}, 8, 4, 1);
  for (int i = 1; i < 4; ++i)
    EXPECT_DOUBLE_EQ(rope.frequencies[static_cast<std::size_t>(i)], plain(10000, 8, i) / 4) << i;
}

TEST(YarnScaling, OfAModelThatWasTrainedWith32768) {
  const Rope rope = scaling::yarn(Rope{1000000.0}, 128, 4, 32768);
  // Pair 23 is the last that turns 32 times, pair 40 the first that turns less than once.
  for (int i = 0; i <= 23; ++i)
    EXPECT_DOUBLE_EQ(rope.frequencies[static_cast<std::size_t>(i)], plain(1000000, 128, i)) << i;
  for (int i = 40; i < 64; ++i)
    EXPECT_DOUBLE_EQ(rope.frequencies[static_cast<std::size_t>(i)], plain(1000000, 128, i) / 4) << i;
  EXPECT_NEAR(rope.frequencies[30], plain(1000000, 128, 30) * (1 - 7.0 / 17 * 0.75), 1e-12);
  EXPECT_NEAR(rope.attention_factor, 1.1386294361119891, 1e-15) << "0.1 ln 4 + 1";
}

/// Values of 40 digits, made with Python's decimal from the formula of transformers' _compute_yarn_parameters.
TEST(YarnScaling, OfModelsThatDoNotTruncate) {
  // The ramp is from 2.62 to 5.63, where truncation makes it 2 to 6.
  expect_near(scaling::yarn(Rope{10000.0}, 16, 4, 4096, 32, 1, 0, false),
              {1, 0.31622776601683794, 0.10000000000000001, 0.028613608811988895, 0.0065569715211294347,
               0.001285632030726688, 0.00025000000000000001, 7.9056941504209485e-05});
  // Sizes of gpt-oss: from 8.09 to 17.40, where truncation makes it 8 to 18.
  const Rope rope = scaling::yarn(Rope{150000.0}, 64, 32, 4096, 32, 1, 0, false);
  const std::size_t pairs[] = {0, 8, 9, 12, 16, 17, 18, 31};
  const Frequencies expected = {1,
                                0.050813274815461475,
                                0.031705696184663769,
                                0.006794959489732218,
                                0.00045648391922324016,
                                0.00012931870124506273,
                                3.8308812373753384e-05,
                                3.0235114281192144e-07};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(rope.frequencies[pairs[i]], expected[i], 1e-13 * expected[i]) << i;
}

TEST(YarnScaling, TruncatesUnlessItIsToldNotTo) {
  const Rope rope = scaling::yarn(Rope{10000.0}, 16, 4, 4096);
  EXPECT_EQ(rope.frequencies, scaling::yarn(Rope{10000.0}, 16, 4, 4096, 32, 1, 0, true).frequencies);
  EXPECT_NE(rope.frequencies, scaling::yarn(Rope{10000.0}, 16, 4, 4096, 32, 1, 0, false).frequencies);
}

TEST(YarnScaling, OfARampWithoutWidthIsAStep) {
  for (const bool truncate : {false, true}) {
    const Rope rope = scaling::yarn(Rope{10000.0}, 16, 4, 4096, 8, 8, 0, truncate);
    for (int i = 0; i < 8; ++i) {
      const double ratio = plain(10000, 16, i) / rope.frequencies[static_cast<std::size_t>(i)];
      if (i < 3 || i > 5) {
        EXPECT_NEAR(ratio, i < 3 ? 1 : 4, 1e-12) << i;
      }
    }
  }
}

TEST(YarnScaling, AttentionFactorIsTheCallersOrTheAuthors) {
  EXPECT_EQ(scaling::yarn(Rope{10000.0}, 64, 1, 4096).attention_factor, 1);
  EXPECT_EQ(scaling::yarn(Rope{10000.0}, 64, 0.5, 4096).attention_factor, 1);
  EXPECT_DOUBLE_EQ(scaling::yarn(Rope{10000.0}, 64, 40, 4096).attention_factor, 0.1 * std::log(40.0) + 1);
  EXPECT_EQ(scaling::yarn(Rope{10000.0}, 64, 40, 4096, 32, 1, 0.75).attention_factor, 0.75);
}

TEST(YarnScaling, MultipliesQueriesAndKeys) {
  const Rope rope = scaling::yarn(Rope{10000.0}, 8, 4, 4096);
  std::vector<float> angles(8);
  buzz::Rotation(rope, 8).angles(3, angles.data());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(angles[i], rope.attention_factor * std::cos(3 * rope.frequencies[i]), 1e-6);
    EXPECT_NEAR(angles[4 + i], rope.attention_factor * std::sin(3 * rope.frequencies[i]), 1e-6);
  }
  buzz::Rotation(rope, 8).move(-3, angles.data());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(angles[i], std::cos(3 * rope.frequencies[i]), 1e-6) << "but once";
}

TEST(Scaling, OfFactorOneChangesNoFrequency) {
  for (int dims : {4, 64}) {
    Frequencies expected;
    for (int i = 0; i < dims / 2; ++i) expected.push_back(plain(10000, dims, i));
    expect_near(scaling::linear(Rope{10000.0}, dims, 1), expected);
    expect_near(scaling::ntk(Rope{10000.0}, dims, 1), expected);
    expect_near(scaling::llama3(Rope{10000.0}, dims, 1, 1, 4, 8192), expected);
    expect_near(scaling::yarn(Rope{10000.0}, dims, 1, 4096), expected);
  }
}

TEST(Scaling, OfTheSmallestHeads) {
  expect_near(scaling::linear(Rope{10000.0}, 2, 4), {0.25});
  expect_near(scaling::ntk(Rope{10000.0}, 4, 4), {1, 0.01 / 4});
  expect_near(scaling::llama3(Rope{10000.0}, 2, 8, 1, 4, 8192), {1});
  expect_near(scaling::yarn(Rope{10000.0}, 2, 8, 4096), {1});
}

TEST(Scaling, KeepsTheRestOfTheRope) {
  Rope rope{10000.0};
  rope.pairs = buzz::Pairs::halves;
  rope.positions = buzz::Positions::compact;
  rope.max_position = 5000;
  for (const Rope& r : {scaling::linear(rope, 4, 2), scaling::ntk(rope, 4, 2), scaling::llama3(rope, 4, 2, 1, 4, 64),
                        scaling::yarn(rope, 4, 2, 64)}) {
    EXPECT_EQ(r.pairs, buzz::Pairs::halves);
    EXPECT_EQ(r.positions, buzz::Positions::compact);
    EXPECT_EQ(r.max_position, 5000);
    EXPECT_EQ(r.dims, 4) << "partial in a head of 8";
    EXPECT_EQ(buzz::Rotation(r, 8).dims(), 4);
    EXPECT_TRUE(r.can_compact());
  }
}

TEST(Scaling, ReplacesAnEarlierTable) {
  Rope rope = scaling::linear(Rope{10000.0}, 4, 2);
  expect_near(scaling::linear(rope, 4, 3), {1.0 / 3, 0.01 / 3});
}

TEST(Scaling, RefusesFactorsBasesAndSizes) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {0.0, -1.0, nan, inf}) {
    EXPECT_EQ(refused([=] { scaling::linear(Rope{10000.0}, 8, bad); }), "factor");
    EXPECT_EQ(refused([=] { scaling::ntk(Rope{10000.0}, 8, bad); }), "factor");
    EXPECT_EQ(refused([=] { scaling::llama3(Rope{10000.0}, 8, bad, 1, 4, 64); }), "factor");
    EXPECT_EQ(refused([=] { scaling::yarn(Rope{10000.0}, 8, bad, 64); }), "factor");
  }
  for (double bad : {0.0, 1.0, -10000.0, nan, inf})
    EXPECT_EQ(refused([=] { scaling::linear(Rope{bad}, 8, 2); }), "rope.base");
  EXPECT_EQ(refused([] { scaling::linear(Rope{10000.0}, 0, 2); }), "dims");
  EXPECT_EQ(refused([] { scaling::linear(Rope{10000.0}, 1 << 30, 2); }), "dims");
  EXPECT_EQ(refused([] { scaling::ntk(Rope{10000.0}, 8, 1e300); }), "rope.base") << "its base would be infinite";
  EXPECT_EQ(refused([] { scaling::ntk(Rope{10000.0}, 2, 2); }), "dims") << "its exponent would be infinite";
}

TEST(Scaling, RefusesContextsAndBands) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {0.0, -64.0, nan, inf, -inf}) {
    EXPECT_EQ(refused([=] { scaling::llama3(Rope{10000.0}, 8, 2, bad, 4, 64); }), "low");
    EXPECT_EQ(refused([=] { scaling::llama3(Rope{10000.0}, 8, 2, 1, bad, 64); }), "high");
    EXPECT_EQ(refused([=] { scaling::yarn(Rope{10000.0}, 8, 2, 64, bad); }), "beta_fast");
    EXPECT_EQ(refused([=] { scaling::yarn(Rope{10000.0}, 8, 2, 64, 32, bad); }), "beta_slow");
    EXPECT_EQ(refused([=] { scaling::llama3(Rope{10000.0}, 8, 2, 1, 4, bad); }), "original_context");
    EXPECT_EQ(refused([=] { scaling::yarn(Rope{10000.0}, 8, 2, bad); }), "original_context");
  }
  EXPECT_EQ(refused([] { scaling::llama3(Rope{10000.0}, 8, 2, 4, 4, 64); }), "low");
  EXPECT_EQ(refused([] { scaling::llama3(Rope{10000.0}, 8, 2, 0, 4, 64); }), "low");
  EXPECT_EQ(refused([=] { scaling::llama3(Rope{10000.0}, 8, 2, nan, 4, 64); }), "low");
  EXPECT_EQ(refused([] { scaling::yarn(Rope{10000.0}, 8, 2, 64, 1, 32); }), "beta_slow");
  EXPECT_EQ(refused([] { scaling::yarn(Rope{10000.0}, 8, 2, 64, 32, 0); }), "beta_slow");
}

TEST(Scaling, LeavesTheRestToTheCache) {
  EXPECT_EQ(refused([] { buzz::Rotation(scaling::linear(Rope{10000.0}, 16, 2), 8); }), "rope.dims");
  EXPECT_EQ(refused([] { buzz::Rotation(scaling::linear(Rope{10000.0}, 5, 2), 8); }), "rope.dims");
  EXPECT_EQ(refused([] { buzz::Rotation(scaling::yarn(Rope{10000.0}, 8, 2, 64, 32, 1, -1), 8); }),
            "rope.attention_factor");
}

TEST(FrequencyTable, IsTakenAsItIs) {
  Rope rope;
  rope.frequencies = {0.5, 0, -0.25, 3};  // of either sign
  std::vector<float> angles(8);
  buzz::Rotation(rope, 8).angles(2, angles.data());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(angles[i], static_cast<float>(std::cos(2 * rope.frequencies[i])));
    EXPECT_FLOAT_EQ(angles[4 + i], static_cast<float>(std::sin(2 * rope.frequencies[i])));
  }
  EXPECT_TRUE(rope.can_compact());
}

TEST(FrequencyTable, OfAnotherSizeOrOutOfRangeIsRefused) {
  Rope rope;
  rope.frequencies = {1, 0.5, 0.25};
  EXPECT_EQ(refused([&] { buzz::Rotation(rope, 8); }), "rope.frequencies");
  rope.frequencies.push_back(0);
  for (double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 65537.0, -65537.0}) {
    rope.frequencies[3] = bad;
    EXPECT_EQ(refused([&] { buzz::Rotation(rope, 8); }), "rope.frequencies");
  }
  rope.frequencies[3] = -65536;
  EXPECT_NO_THROW(buzz::Rotation(rope, 8));
}

}  // namespace
