// How GGUF stores a tensor's numbers: one by one, or in blocks of a few bits a number with scales that they share.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "tiny_llama/bytes.h"

namespace tiny_llama {

enum class TensorType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_1 = 3,
  q5_0 = 6,
  q8_0 = 8,
  q4_k = 12,
  q6_k = 14,
  bf16 = 30
};

namespace quant {

inline float half(const char* bytes) { return static_cast<float>(from_bytes<Eigen::half>(bytes)); }

/// A block's bytes from `from` on, where the compiler sees that what is written does not change them.
template <int count>
struct Bytes {
  explicit Bytes(const char* from) { std::memcpy(b, from, sizeof b); }
  int operator[](int i) const { return b[i]; }
  int low(int i) const { return b[i] & 15; }   // the low half of byte i
  int high(int i) const { return b[i] >> 4; }  // the high half
  unsigned char b[count];
};

/// What all formats have: their name, how many numbers a block has and in how many bytes, how many of those are halves
/// that scale it and where the first is, and to_float(), which writes a block's numbers.
template <TensorType t, int numbers_, int bytes_, int scales_ = 0, int scales_at_ = 0>
struct Format {
  static constexpr TensorType type = t;
  static constexpr int numbers = numbers_, bytes = bytes_, scales = scales_, scales_at = scales_at_;
};

struct F32 : Format<TensorType::f32, 1, 4> {
  static constexpr const char* name = "F32";
  static void to_float(const char* b, float* out) { *out = from_bytes<float>(b); }
};

struct F16 : Format<TensorType::f16, 1, 2> {
  static constexpr const char* name = "F16";
  static void to_float(const char* b, float* out) { *out = half(b); }
};

struct BF16 : Format<TensorType::bf16, 1, 2> {
  static constexpr const char* name = "BF16";
  static void to_float(const char* b, float* out) { *out = static_cast<float>(from_bytes<Eigen::bfloat16>(b)); }
};

/// half d, half m, 16 bytes: number i is d q + m, q the low half of byte i, or from 16 on the high half of byte i - 16.
struct Q4_1 : Format<TensorType::q4_1, 32, 20, 2> {
  static constexpr const char* name = "Q4_1";
  static void to_float(const char* b, float* out) {
    const float d = half(b), m = half(b + 2);
    const Bytes<16> q(b + 4);
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(q.low(i)) + m;
    for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(q.high(i)) + m;
  }
};

/// half d, 32 bits, 16 bytes: number i is d (q - 16), q four bits as in Q4_1 and, as the fifth, bit i of the 32.
struct Q5_0 : Format<TensorType::q5_0, 32, 22, 1> {
  static constexpr const char* name = "Q5_0";
  static void to_float(const char* b, float* out) {
    const float d = half(b);
    const Bytes<4> h(b + 2);
    const Bytes<16> q(b + 6);
    int fifth[32];
    for (int i = 0; i < 32; ++i) fifth[i] = (h[i / 8] & (1 << i % 8)) != 0 ? 0 : -16;
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(q.low(i) + fifth[i]);
    for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(q.high(i) + fifth[16 + i]);
  }
};

/// half d, 32 signed bytes: number i is d q.
struct Q8_0 : Format<TensorType::q8_0, 32, 34, 1> {
  static constexpr const char* name = "Q8_0";
  static void to_float(const char* b, float* out) {
    const float d = half(b);
    const Bytes<32> q(b + 2);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<signed char>(q[i]));
  }
};

/// half d, half m, 12 bytes, 128 bytes: eight parts of 32 numbers, each with a scale s and a least value l of six bits
/// from the 12 bytes; number i is d s q - m l. Parts 2p and 2p + 1 are the low and the high halves of 32 bytes.
struct Q4_K : Format<TensorType::q4_k, 256, 144, 2> {
  static constexpr const char* name = "Q4_K";
  static void to_float(const char* b, float* out) {
    const float d = half(b), m = half(b + 2);
    const Bytes<12> six(b + 4);
    for (int part = 0; part < 8; ++part) {
      const int at = part % 4;  // parts 0 to 3 have six bits in one byte; the others' upper two are above those
      const int s = part < 4 ? six[at] & 63 : six.low(8 + at) | (six[at] >> 6) << 4;
      const int l = part < 4 ? six[4 + at] & 63 : six.high(8 + at) | (six[4 + at] >> 6) << 4;
      const float scale = d * static_cast<float>(s), least = m * static_cast<float>(l);
      const Bytes<32> q(b + 16 + 32 * (part / 2));
      const int shift = part % 2 * 4;
      for (int i = 0; i < 32; ++i) out[32 * part + i] = scale * static_cast<float>(q[i] >> shift & 15) - least;
    }
  }
};

/// 128 bytes, 64 bytes, 16 signed bytes, half d: each 16 numbers have one of the signed bytes, s; number i is
/// d s (q - 32). Of each 128 numbers, four parts of 32: their low four bits are the low halves of 64 bytes and then the
/// high halves, their upper two bits are bits 0 and 1, then 2 and 3, and so on, of 32 bytes.
struct Q6_K : Format<TensorType::q6_k, 256, 210, 1, 208> {
  static constexpr const char* name = "Q6_K";
  static void to_float(const char* b, float* out) {
    const float d = half(b + 208);
    const Bytes<16> scales(b + 192);
    for (int part = 0; part < 8; ++part) {
      const Bytes<32> four(b + 64 * (part / 4) + 32 * (part % 2)), two(b + 128 + 32 * (part / 4));
      const int four_at = part % 4 / 2 * 4, two_at = part % 4 * 2;
      for (int side = 0; side < 32; side += 16) {
        const float scale = d * static_cast<float>(static_cast<signed char>(scales[2 * part + side / 16]));
        for (int i = side; i < side + 16; ++i) {
          const int q = (four[i] >> four_at & 15) | (two[i] >> two_at & 3) << 4;
          out[32 * part + i] = scale * static_cast<float>(q - 32);
        }
      }
    }
  }
};

/// f(F) of each format's struct F, as long as it returns false; did one return true?
template <class F>
bool any_format(F&& f) {
  return f(F32{}) || f(F16{}) || f(Q4_1{}) || f(Q5_0{}) || f(Q8_0{}) || f(Q4_K{}) || f(Q6_K{}) || f(BF16{});
}

/// Calls f with the struct of that type; false where there is none.
template <class F>
bool with_format(TensorType type, F&& f) {
  return any_format([&](auto format) {
    if (format.type != type) return false;
    f(format);
    return true;
  });
}

/// "0 (F32), 1 (F16), ...": what there is.
inline std::string all_formats() {
  std::string text;
  any_format([&](auto format) {
    text +=
        (text.empty() ? "" : ", ") + std::to_string(static_cast<std::uint32_t>(format.type)) + " (" + format.name + ")";
    return false;
  });
  return text;
}

/// The floats that `count` numbers, whole blocks, stand for: exactly what the formulas above give in float.
inline void to_float(TensorType type, const char* bytes, std::int64_t count, float* out) {
  with_format(type, [&](auto format) {
    for (std::int64_t block = 0; block < count / format.numbers; ++block)
      format.to_float(bytes + format.bytes * block, out + format.numbers * block);
  });
}

}  // namespace quant
}  // namespace tiny_llama
