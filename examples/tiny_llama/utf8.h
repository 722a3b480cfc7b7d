// UTF-8: its characters, and what of a text is well-formed.
#pragma once

#include <cstddef>
#include <string_view>

namespace tiny_llama {

/// Bytes of the character that begins with `lead`; 1 for a byte that begins none.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF8 ? 4 : 1;
}

/// The character that begins at byte `at` of a well-formed text.
inline char32_t utf8_character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const std::size_t length = utf8_length(text[at]);
  char32_t c = length == 1 ? byte(0) : byte(0) & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3F);
  return c;
}

/// Bytes up to the first character that is cut off, overlong, a surrogate or past U+10FFFF: all of a good text.
inline std::size_t valid_utf8_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text[at]);
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || length > text.size() - at) return at;
    // Only the second byte's range depends on the lead byte.
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (std::size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + i]);
      if (byte < low || byte > high) return at;
      low = 0x80;
      high = 0xBF;
    }
    at += length;
  }
  return at;
}

}  // namespace tiny_llama
