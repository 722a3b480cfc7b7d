// How GGUF stores a tensor's numbers: one by one, or in blocks of a few bits a number with scales that they share.
#pragma once

#include <Eigen/Core>
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

/// Eight bytes at once, in any order of theirs: nothing here carries from one byte to the next.
struct Eight {
  explicit Eight(const void* from) { std::memcpy(&b, from, sizeof b); }
  explicit Eight(std::uint64_t bytes) : b(bytes) {}
  static Eight each(unsigned char byte) { return Eight(0x0101010101010101u * byte); }
  Eight low(int shift) const { return Eight(b >> shift & each(15).b); }  // four bits of each byte from bit `shift` on
  Eight two(int shift) const { return Eight((b >> shift & each(3).b) << 4); }  // two bits of each, as bits 4 and 5
  Eight operator|(Eight other) const { return Eight(b | other.b); }
  void store(signed char* to) const { std::memcpy(to, &b, sizeof b); }
  std::uint64_t b;
};

/// Of each byte, 16 for a bit that is set and 0 for one that is not.
struct Sixteens {
  constexpr Sixteens() {
    for (int byte = 0; byte < 256; ++byte)
      for (int i = 0; i < 8; ++i) of[byte][i] = static_cast<unsigned char>((byte >> i & 1) * 16);
  }
  unsigned char of[256][8] = {};
};
inline constexpr Sixteens sixteens{};

/// Formats of single numbers have to_float(), which writes one.
template <TensorType t, int bytes_>
struct Plain {
  static constexpr TensorType type = t;
  static constexpr int numbers = 1, bytes = bytes_, halves = 0, halves_at = 0;
};

struct F32 : Plain<TensorType::f32, 4> {
  static constexpr const char* name = "F32";
  static float to_float(const char* b) { return from_bytes<float>(b); }
};

struct F16 : Plain<TensorType::f16, 2> {
  static constexpr const char* name = "F16";
  static float to_float(const char* b) { return half(b); }
};

struct BF16 : Plain<TensorType::bf16, 2> {
  static constexpr const char* name = "BF16";
  static float to_float(const char* b) { return static_cast<float>(from_bytes<Eigen::bfloat16>(b)); }
};

/// Blocks: `numbers` numbers in `bytes` bytes. Each part of a block has a scale and an offset, and number i is
/// scale q + offset, q a small integer: unpack() writes the q of a block, scales() the others of part p. `halves` of
/// the bytes, from byte `halves_at` on, are halves by which all scales and offsets are multiplied.
template <TensorType t, int numbers_, int part_, int bytes_, int halves_, int halves_at_ = 0>
struct Blocks {
  static constexpr TensorType type = t;
  static constexpr int numbers = numbers_, part = part_, bytes = bytes_, halves = halves_, halves_at = halves_at_;
};
struct Scales {
  float scale, offset;
};

/// half d, half m, 16 bytes: number i is d q + m, q the low half of byte i, or from 16 on the high half of byte i - 16.
struct Q4_1 : Blocks<TensorType::q4_1, 32, 32, 20, 2> {
  static constexpr const char* name = "Q4_1";
  static void unpack(const char* b, signed char* q) {
    for (int i = 0; i < 16; i += 8) {
      const Eight four(b + 4 + i);
      four.low(0).store(q + i);
      four.low(4).store(q + 16 + i);
    }
  }
  static Scales scales(const char* b, int) { return {half(b), half(b + 2)}; }
};

/// half d, 32 bits, 16 bytes: number i is d (q - 16), q four bits as in Q4_1 and, as the fifth, bit i of the 32.
struct Q5_0 : Blocks<TensorType::q5_0, 32, 32, 22, 1> {
  static constexpr const char* name = "Q5_0";
  static void unpack(const char* b, signed char* q) {
    const auto fifth = [&](int i) { return Eight(sixteens.of[static_cast<unsigned char>(b[2 + i / 8])]); };
    for (int i = 0; i < 16; i += 8) {
      const Eight four(b + 6 + i);
      (four.low(0) | fifth(i)).store(q + i);
      (four.low(4) | fifth(16 + i)).store(q + 16 + i);
    }
  }
  static Scales scales(const char* b, int) { return {half(b), -16 * half(b)}; }
};

/// half d, 32 signed bytes: number i is d q.
struct Q8_0 : Blocks<TensorType::q8_0, 32, 32, 34, 1> {
  static constexpr const char* name = "Q8_0";
  static void unpack(const char* b, signed char* q) { std::memcpy(q, b + 2, 32); }
  static Scales scales(const char* b, int) { return {half(b), 0}; }
};

/// half d, half m, 12 bytes, 128 bytes: eight parts, each with a scale s and a least value l of six bits from the 12
/// bytes; number i is d s q - m l. Parts 2p and 2p + 1 are the low and the high halves of 32 bytes.
struct Q4_K : Blocks<TensorType::q4_k, 256, 32, 144, 2> {
  static constexpr const char* name = "Q4_K";
  static void unpack(const char* b, signed char* q) {
    for (int i = 0; i < 128; i += 8) {
      const Eight four(b + 16 + i);
      four.low(0).store(q + i / 32 * 64 + i % 32);
      four.low(4).store(q + i / 32 * 64 + 32 + i % 32);
    }
  }
  static Scales scales(const char* b, int p) {
    const auto six = [&](int i) { return int{static_cast<unsigned char>(b[4 + i])}; };
    const int at = p % 4;  // parts 0 to 3 have six bits in one byte; the others' upper two are above those
    const int s = p < 4 ? six(at) & 63 : (six(8 + at) & 15) | six(at) >> 6 << 4;
    const int l = p < 4 ? six(4 + at) & 63 : six(8 + at) >> 4 | six(4 + at) >> 6 << 4;
    return {half(b) * static_cast<float>(s), -half(b + 2) * static_cast<float>(l)};
  }
};

/// 128 bytes, 64 bytes, 16 signed bytes, half d: each part has one of the signed bytes, s; number i is d s (q - 32).
/// Of each 128 numbers, four times 32: their low four bits are the low halves of 64 bytes and then the high halves,
/// their upper two bits are bits 0 and 1, then 2 and 3, and so on, of 32 bytes.
struct Q6_K : Blocks<TensorType::q6_k, 256, 16, 210, 1, 208> {
  static constexpr const char* name = "Q6_K";
  static void unpack(const char* b, signed char* q) {
    for (int side = 0; side < 2; ++side)
      for (int i = 0; i < 32; i += 8) {
        const Eight first(b + 64 * side + i), second(b + 64 * side + 32 + i), upper(b + 128 + 32 * side + i);
        signed char* to = q + 128 * side + i;
        (first.low(0) | upper.two(0)).store(to);
        (second.low(0) | upper.two(2)).store(to + 32);
        (first.low(4) | upper.two(4)).store(to + 64);
        (second.low(4) | upper.two(6)).store(to + 96);
      }
  }
  static Scales scales(const char* b, int p) {
    const float scale = half(b + 208) * static_cast<float>(static_cast<signed char>(b[192 + p]));
    return {scale, -32 * scale};
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

/// Blocks that are 256 numbers together.
template <class F>
constexpr int at_once = 256 / F::numbers;

/// The integers of at most at_once<F> blocks, as floats: first all bytes, since a load of bytes that have just been
/// stored in parts would wait.
template <class F>
void read_integers(const char* bytes, int blocks, float* out) {
  signed char q[256];
  for (int b = 0; b < blocks; ++b) F::unpack(bytes + b * F::bytes, q + b * F::numbers);
  for (int b = 0; b < blocks; ++b)
    for (int i = 0; i < F::numbers; ++i) out[b * F::numbers + i] = static_cast<float>(q[b * F::numbers + i]);
}

/// `count` blocks as floats.
template <class F>
void read_blocks(const char* bytes, std::int64_t count, float* out) {
  constexpr int parts = F::numbers / F::part;
  for (; count > 0; count -= at_once<F>, bytes += at_once<F> * F::bytes, out += 256) {
    const int blocks = count < at_once<F> ? static_cast<int>(count) : at_once<F>;
    read_integers<F>(bytes, blocks, out);
    for (int p = 0; p < blocks * parts; ++p) {
      const Scales s = F::scales(bytes + p / parts * F::bytes, p % parts);
      Eigen::Map<Eigen::Array<float, F::part, 1>> part(out + p * F::part);
      part = part * s.scale + s.offset;
    }
  }
}

/// x times `count` blocks: a part's integers are multiplied first, and the sum of them by the scale. sums: those of x
/// over each part.
template <class F>
float dot_blocks(const char* bytes, std::int64_t count, const float* x, const float* sums) {
  constexpr int parts = F::numbers / F::part, lanes = 8;
  using Lanes = Eigen::Array<float, lanes, 1>;
  Lanes all = Lanes::Zero();
  float offsets = 0;
  for (; count > 0; count -= at_once<F>, bytes += at_once<F> * F::bytes) {
    const int blocks = count < at_once<F> ? static_cast<int>(count) : at_once<F>;
    float q[256];
    read_integers<F>(bytes, blocks, q);
    for (int p = 0; p < blocks * parts; ++p, x += F::part) {
      Lanes part = Lanes::Zero();
      for (int i = 0; i < F::part; i += lanes)
        part += Eigen::Map<const Lanes>(q + p * F::part + i) * Eigen::Map<const Lanes>(x + i);
      const Scales s = F::scales(bytes + p / parts * F::bytes, p % parts);
      all += part * s.scale;
      offsets += s.offset * *sums++;
    }
  }
  return all.sum() + offsets;
}

/// The floats that `count` numbers, whole blocks, stand for: exactly what the formulas above give in float.
inline void to_float(TensorType type, const char* bytes, std::int64_t count, float* out) {
  with_format(type, [&](auto format) {
    if constexpr (format.numbers == 1)
      for (std::int64_t i = 0; i < count; ++i) out[i] = format.to_float(bytes + format.bytes * i);
    else
      read_blocks<decltype(format)>(bytes, count / format.numbers, out);
  });
}

}  // namespace quant
}  // namespace tiny_llama
