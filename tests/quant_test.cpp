#include "tiny_llama/quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "model/gguf_builder.h"
#include "model/refused.h"
#include "model/small_model.h"
#include "thread_pool.h"
#include "tiny_llama/linear.h"

namespace {

using model::bytes;
using tiny_llama::Linear;
using tiny_llama::Matrix;
using tiny_llama::TensorType;

// The formats said once more: each number by itself and in double, its bits picked one by one.

int bit(const std::string& block, std::size_t byte, std::size_t which) {
  return static_cast<unsigned char>(block[byte]) >> which & 1;
}
/// `count` bits from a byte's bit `from` on.
int bits(const std::string& block, std::size_t byte, std::size_t from, std::size_t count) {
  int value = 0;
  for (std::size_t i = 0; i < count; ++i) value |= bit(block, byte, from + i) << i;
  return value;
}
int signed_byte(const std::string& block, std::size_t byte) {
  return bits(block, byte, 0, 8) - 256 * bit(block, byte, 7);
}
double half(const std::string& block, std::size_t at) {
  const int exponent = bits(block, at + 1, 2, 5), fraction = bits(block, at, 0, 8) | bits(block, at + 1, 0, 2) << 8;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bit(block, at + 1, 7) != 0 ? -size : size;
}

double slow_q4_1(const std::string& b, std::size_t i) {
  return half(b, 0) * bits(b, 4 + i % 16, i / 16 * 4, 4) + half(b, 2);
}
double slow_q5_0(const std::string& b, std::size_t i) {
  return half(b, 0) * (bits(b, 6 + i % 16, i / 16 * 4, 4) + 16 * bit(b, 2 + i / 8, i % 8) - 16);
}
double slow_q8_0(const std::string& b, std::size_t i) { return half(b, 0) * signed_byte(b, 2 + i); }
double slow_q4_k(const std::string& b, std::size_t i) {
  const std::size_t part = i / 32, r = part % 4;
  const int scale = part < 4 ? bits(b, 4 + r, 0, 6) : bits(b, 12 + r, 0, 4) + 16 * bits(b, 4 + r, 6, 2);
  const int least = part < 4 ? bits(b, 8 + r, 0, 6) : bits(b, 12 + r, 4, 4) + 16 * bits(b, 8 + r, 6, 2);
  return half(b, 0) * scale * bits(b, 16 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4) - half(b, 2) * least;
}
double slow_q6_k(const std::string& b, std::size_t i) {
  const std::size_t side = i / 128, in_side = i % 128;
  const int low = bits(b, 64 * side + in_side % 64, in_side / 64 * 4, 4);
  const int high = bits(b, 128 + 32 * side + in_side % 32, in_side / 32 * 2, 2);
  return half(b, 208) * signed_byte(b, 192 + i / 16) * (low + 16 * high - 32);
}

struct Format {
  const char* name;
  TensorType type;
  std::size_t numbers, bytes;
  double (*slow)(const std::string&, std::size_t);
  std::vector<std::size_t> scales;  // where its halves are
};
const Format formats[] = {{"Q4_1", TensorType::q4_1, 32, 20, slow_q4_1, {0, 2}},
                          {"Q5_0", TensorType::q5_0, 32, 22, slow_q5_0, {0}},
                          {"Q8_0", TensorType::q8_0, 32, 34, slow_q8_0, {0}},
                          {"Q4_K", TensorType::q4_k, 256, 144, slow_q4_k, {0, 2}},
                          {"Q6_K", TensorType::q6_k, 256, 210, slow_q6_k, {208}}};

TEST(Quant, GivesTheNumbersOfEveryBlockFormat) {
  for (const Format& f : formats) {
    SCOPED_TRACE(f.name);
    const std::string data = model::random_blocks(static_cast<std::uint32_t>(f.type), 100 * f.numbers, 1);
    ASSERT_EQ(data.size(), 100 * f.bytes);
    std::vector<float> fast(100 * f.numbers);
    tiny_llama::quant::to_float(f.type, data.data(), static_cast<std::int64_t>(fast.size()), fast.data());
    for (std::size_t i = 0; i < fast.size(); ++i) {
      const double slow = f.slow(data.substr(i / f.numbers * f.bytes, f.bytes), i % f.numbers);
      ASSERT_NEAR(static_cast<double>(fast[i]), slow, 1e-6) << i;
      ASSERT_LT(std::abs(slow), 2) << "the numbers of the test are small";
    }
  }
}

TEST(Quant, ReadsABlockOfQ4_1ByHand) {
  std::string block = bytes<std::uint16_t>(0x3800) + bytes<std::uint16_t>(0xBC00) + std::string(16, '\x21');  // 0.5, -1
  block[4] = '\xF0';
  std::vector<float> x(32);
  tiny_llama::quant::to_float(TensorType::q4_1, block.data(), 32, x.data());
  EXPECT_EQ(x[0], -1.0f);
  EXPECT_EQ(x[16], 6.5f);
  EXPECT_EQ(x[1], -0.5f);
  EXPECT_EQ(x[17], 0.0f);
}

TEST(Quant, ReadsABlockOfQ6_KByHand) {
  std::string block(210, '\0');
  block.replace(208, 2, bytes<std::uint16_t>(0x3C00));  // 1
  block[0] = '\x0F';                                    // number 0: 15 and no upper bits
  block[128] = '\x03';                                  // its upper bits: 48 more
  block[192] = '\xFE';                                  // -2
  block[193] = 1;
  std::vector<float> x(256);
  tiny_llama::quant::to_float(TensorType::q6_k, block.data(), 256, x.data());
  EXPECT_EQ(x[0], -62.0f);
  EXPECT_EQ(x[1], 64.0f);
  EXPECT_EQ(x[16], -32.0f);
  EXPECT_EQ(x[32], 0.0f);
}

TEST(Quant, WidensBF16Exactly) {
  const std::string data = bytes<std::uint16_t>(0x3F80) + bytes<std::uint16_t>(0xC049);
  std::vector<float> x(2);
  tiny_llama::quant::to_float(TensorType::bf16, data.data(), 2, x.data());
  EXPECT_EQ(x, (std::vector<float>{1.0f, -3.140625f}));
}

tiny_llama::Tensor tensor(TensorType type, std::int64_t rows, std::int64_t columns, const std::string& data) {
  return {"w", type, {rows, columns}, rows * columns, data};
}

TEST(QuantRefuses, ScalesThatAreNotFinite) {
  for (const Format& f : formats) {
    for (std::size_t at : f.scales) {
      std::string data = model::random_blocks(static_cast<std::uint32_t>(f.type), 2 * f.numbers, 1);
      EXPECT_NO_THROW(Linear(tensor(f.type, 2, static_cast<std::int64_t>(f.numbers), data)));
      data.replace(f.bytes + at, 2, bytes<std::uint16_t>(0x7C00));
      EXPECT_REFUSED("'w' = scale of block 1, which is not finite, allowed: finite ones",
                     Linear(tensor(f.type, 2, static_cast<std::int64_t>(f.numbers), data)))
          << f.name << " " << at;
    }
  }
}

Matrix random_matrix(int rows, int columns) {
  std::mt19937 random(5);
  Matrix x(rows, columns);
  for (int i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(static_cast<int>(random() % 201) - 100) / 100;
  return x;
}

TEST(Linear, IsTheProductWithTheFloatsOfEveryFormat) {
  examples::ThreadPool pool(3);
  constexpr int rows = 150, columns = 512;
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::q4_1, TensorType::q5_0, TensorType::q8_0,
                          TensorType::q4_k, TensorType::q6_k}) {
    SCOPED_TRACE(static_cast<int>(type));
    const std::string data = type == TensorType::f32 ? model::random_f32(rows * columns, 3)
                             : type == TensorType::f16
                                 ? model::random_f16(rows * columns, 3)
                                 : model::random_blocks(static_cast<std::uint32_t>(type), rows * columns, 3);
    const Linear linear(tensor(type, rows, columns, data));
    Matrix w(rows, columns);
    tiny_llama::quant::to_float(type, data.data(), w.size(), w.data());
    for (int tokens : {1, 2, 70}) {
      const Matrix x = random_matrix(tokens, columns);
      Matrix y(tokens, rows), threaded(tokens, rows), again(tokens, rows);
      tiny_llama::multiply(x, {{linear, y}});
      tiny_llama::multiply(x, {{linear, threaded}, {linear, again}}, pool);
      EXPECT_EQ(y, threaded) << tokens;
      EXPECT_EQ(y, again) << tokens;
      EXPECT_LT((y.cast<double>() - x.cast<double>() * w.cast<double>().transpose()).cwiseAbs().maxCoeff(), 1e-3)
          << tokens;
    }
    Matrix some(2, columns);
    linear.read(140, 2, some.data());
    EXPECT_EQ(some, w.middleRows(140, 2));
  }
}

}  // namespace
