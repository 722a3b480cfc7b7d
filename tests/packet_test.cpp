#include "buzz/packet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace {

/// What 16 bits mean: a sign, an exponent of `exponent_bits`, the fraction.
double meaning(unsigned bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
  double size = std::ldexp(exponent == 0 ? fraction : 1 + fraction, (exponent == 0 ? 1 : exponent) - bias);
  if (exponent == (1 << exponent_bits) - 1)
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return bits >> 15 == 0 ? size : -size;
}

/// A value that is stored as these bits, which does not ask what Eigen's half is made of.
template <class T>
T stored(std::uint16_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof bits);
  return value;
}
template <class T>
std::uint16_t bits_of(const T& value) {
  std::uint16_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <class T>
std::vector<T> all_values() {
  std::vector<T> all;
  for (unsigned bits = 0; bits < 1 << 16; ++bits) all.push_back(stored<T>(static_cast<std::uint16_t>(bits)));
  return all;
}

/// Each of a type's values becomes the float that its bits mean, one by one and in a row, and comes back as it was.
template <class T>
void are_what_their_bits_mean(int exponent_bits) {
  const std::vector<T> all = all_values<T>();
  std::vector<float> floats(all.size());
  buzz::kernels::convert(all.data(), static_cast<std::ptrdiff_t>(all.size()), floats.data());
  std::vector<T> back(all.size());
  buzz::kernels::convert_back(floats.data(), static_cast<std::ptrdiff_t>(all.size()), back.data());
  for (std::size_t bits = 0; bits < all.size(); ++bits) {
    const double expected = meaning(static_cast<unsigned>(bits), exponent_bits);
    const double alone = static_cast<double>(buzz::kernels::to_float(all[bits]));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(floats[bits])) << bits;
      ASSERT_TRUE(std::isnan(alone)) << bits;
      ASSERT_TRUE(std::isnan(meaning(bits_of(back[bits]), exponent_bits))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(floats[bits]), expected) << bits;
      ASSERT_EQ(alone, expected) << bits;
      ASSERT_EQ(bits_of(back[bits]), bits);
    }
  }
}

TEST(Half, IsWhatItsBitsMean) { are_what_their_bits_mean<Eigen::half>(5); }
TEST(Bfloat16, IsWhatItsBitsMean) { are_what_their_bits_mean<Eigen::bfloat16>(8); }

TEST(Int8, IsSignedWhateverCharIs) {
  std::vector<std::int8_t> all;
  for (int i = -128; i < 128; ++i) all.push_back(static_cast<std::int8_t>(i));
  std::vector<float> floats(all.size());
  buzz::kernels::convert(all.data(), 256, floats.data());
  for (int i = -128; i < 128; ++i) {
    EXPECT_EQ(floats[static_cast<std::size_t>(i + 128)], static_cast<float>(i));
    EXPECT_EQ(buzz::kernels::to_float(static_cast<std::int8_t>(i)), static_cast<float>(i));
  }
}

/// load_up_to() of every length is the values one by one, then zeros.
template <class T>
void loads_up_to_a_packet() {
  if constexpr (buzz::kernels::loads_packets<T>) {
    using buzz::kernels::packet_size;
    std::vector<T> values;
    for (int i = 0; i < packet_size; ++i) values.push_back(static_cast<T>(static_cast<float>(i - 5)));
    for (int n = 0; n <= packet_size; ++n) {
      float out[packet_size];
      Eigen::internal::pstoreu(out, buzz::kernels::load_up_to(values.data(), n));
      for (int i = 0; i < packet_size; ++i) EXPECT_EQ(out[i], i < n ? static_cast<float>(i - 5) : 0.f);
    }
  }
}

TEST(LoadUpTo, IsTheValuesThenZeros) {
  loads_up_to_a_packet<float>();
  loads_up_to_a_packet<Eigen::half>();
  loads_up_to_a_packet<Eigen::bfloat16>();
  loads_up_to_a_packet<std::int8_t>();
}

// Each packet's own, by any number of them: the same bits.
template <int N>
void sums_lanes() {
  using buzz::kernels::packet_size;
  buzz::kernels::Packet x[N];
  float expected[N] = {}, odd[N];
  for (int p = 0; p < N; ++p) {
    float lanes[packet_size];
    for (int i = 0; i < packet_size; ++i) expected[p] += lanes[i] = static_cast<float>(p * 100 + i);
    x[p] = buzz::kernels::load(static_cast<const float*>(lanes));
  }
  float sums[N + 1];
  sums[N] = -1;
  buzz::kernels::lane_sums<N>(x, sums);
  for (int p = 0; p < N; ++p) EXPECT_EQ(sums[p], expected[p]) << p << " of " << N;
  EXPECT_EQ(sums[N], -1.f) << N;

  for (int p = 0; p < N; ++p) {
    float lanes[packet_size];
    for (int i = 0; i < packet_size; ++i) lanes[i] = 1.f / static_cast<float>(3 + i);
    x[p] = buzz::kernels::load(static_cast<const float*>(lanes));
  }
  float alone;
  buzz::kernels::lane_sums<1>(x, &alone);
  buzz::kernels::lane_sums<N>(x, odd);
  for (float sum : odd) EXPECT_EQ(sum, alone) << N;
}

TEST(LaneSums, AreEachPacketsOwn) {
  sums_lanes<1>();
  sums_lanes<2>();
  sums_lanes<3>();
  sums_lanes<4>();
  sums_lanes<6>();
  sums_lanes<8>();
  sums_lanes<12>();
  sums_lanes<16>();
}

}  // namespace
