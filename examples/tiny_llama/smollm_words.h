// How SmolLM's tokenizer cuts a text into words, in which alone pieces are merged.
#pragma once

#include <cstddef>
#include <string_view>

#include "tiny_llama/unicode.h"
#include "tiny_llama/utf8.h"

namespace tiny_llama {

/// Cuts a stretch that has no number by GPT-2's expression,
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// where the last space of several belongs to the word behind it.
class Gpt2Words {
 public:
  explicit Gpt2Words(std::string_view text) : text_(text) {}

  /// The word that begins at byte `at`, which is in the text.
  std::string_view word(std::size_t at) const {
    if (const std::size_t n = contraction(at); n != 0) return text_.substr(at, n);
    const std::size_t begin = at + (text_[at] == ' ');
    if (const Kind kind = kind_at(begin); kind == Kind::letter || kind == Kind::other) {
      std::size_t end = begin;
      while (kind_at(end) == kind) end += length_at(end);
      return text_.substr(at, end - at);
    }
    std::size_t last = at, end = at;
    while (kind_at(end) == Kind::space) {
      last = end;
      end += length_at(end);
    }
    return text_.substr(at, (end < text_.size() && last > at ? last : end) - at);
  }

 private:
  enum class Kind { end, space, letter, other };

  std::size_t length_at(std::size_t at) const { return utf8_length(text_[at]); }
  Kind kind_at(std::size_t at) const {
    if (at >= text_.size()) return Kind::end;
    const char32_t c = utf8_character(text_, at);
    return unicode::is_space(c) ? Kind::space : unicode::is_letter(c) ? Kind::letter : Kind::other;
  }
  /// Bytes of 's and its like at that place; 0: none.
  std::size_t contraction(std::size_t at) const {
    for (std::string_view c : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
      if (text_.substr(at, c.size()) == c) return c.size();
    return 0;
  }

  std::string_view text_;
};

/// f(word) for each word of well-formed UTF-8, in order: each number's character is a word of its own, and what is
/// between them is cut as GPT-2 cuts it.
template <class F>
void for_each_smollm_word(std::string_view text, F&& f) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !unicode::is_number(utf8_character(text, end))) end += utf8_length(text[end]);
    const Gpt2Words words(text.substr(at, end - at));
    for (std::size_t i = 0; i < end - at;) {
      const std::string_view word = words.word(i);
      f(word);
      i += word.size();
    }
    at = end;
    if (at == text.size()) break;
    f(text.substr(at, utf8_length(text[at])));
    at += utf8_length(text[at]);
  }
}

}  // namespace tiny_llama
