// The BPE of bytes that GGUF calls "gpt2": a text is cut into words, and in each the pairs of the lowest rank are
// merged.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tiny_llama/merging.h"
#include "tiny_llama/smollm_words.h"
#include "tiny_llama/utf8.h"
#include "tiny_llama/vocabulary.h"

namespace tiny_llama {

/// The byte that a character of a token stands for: printable ones of Latin-1 for themselves, and U+0100 and those
/// after it for the others in turn. -1: for none.
inline int byte_of_character(char32_t c) {
  const auto itself = [](char32_t b) { return (b > 32 && b < 127) || (b > 160 && b < 173) || (b > 173 && b < 256); };
  if (c < 256) return itself(c) ? static_cast<int>(c) : -1;
  char32_t next = 256;
  for (char32_t b = 0; b < 256; ++b) {
    if (!itself(b) && next++ == c) return static_cast<int>(b);
  }
  return -1;
}

class Bpe {
 public:
  /// A checked vocabulary, which must outlive it. Errors: tokens of other characters, merges that make no token.
  explicit Bpe(const Vocabulary& vocabulary) : raw_(vocabulary.tokens.size()) {
    std::unordered_map<std::string_view, std::int32_t> ids;
    for (std::size_t i = 0; i < raw_.size(); ++i) {
      const std::int32_t id = static_cast<std::int32_t>(i), type = vocabulary.types[i];
      if (type != Vocabulary::normal && type != Vocabulary::unused) continue;
      raw_[i] = bytes_of(vocabulary.tokens[i]);
      ids.emplace(vocabulary.tokens[i], id);
      if (raw_[i].size() == 1) bytes_[static_cast<unsigned char>(raw_[i][0])] = id;
    }
    const auto id_of = [&](std::string_view token, const std::string& merge) {
      const auto found = ids.find(token);
      if (found == ids.end())
        fail<FileError>("tokenizer.ggml.merges", printable(merge), "two tokens that make a token");
      return found->second;
    };
    for (const std::string& m : vocabulary.merges) {
      const std::size_t space = m.find(' ', 1);
      const std::string_view left = std::string_view(m).substr(0, space),
                             right = space == m.npos ? "" : std::string_view(m).substr(space + 1);
      const Made made{-static_cast<float>(merges_.size()), id_of(std::string(left) + std::string(right), m)};
      merges_.emplace(key(id_of(left, m), id_of(right, m)), made);
    }
  }

  /// The tokens of a text. A byte that is no token is passed over, as llama.cpp and HF's tokenizers do.
  void append(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<Symbol> symbols;
    for_each_smollm_word(text, [&](std::string_view word) {
      symbols.clear();
      for (std::size_t i = 0; i < word.size(); ++i)
        symbols.push_back({i, 1, bytes_[static_cast<unsigned char>(word[i])]});
      merge(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Made> {
        const auto found = merges_.find(key(left.id, right.id));
        return found == merges_.end() ? std::nullopt : std::optional<Made>(found->second);
      });
      for (const Symbol& s : symbols)
        if (s.length != 0 && s.id >= 0) ids.push_back(s.id);
    });
  }

  /// What a token that comes of text adds to it.
  const std::string& text_of(std::int32_t id) const { return raw_[static_cast<std::size_t>(id)]; }

 private:
  static std::string bytes_of(const std::string& token) {
    std::string raw;
    bool good = valid_utf8_length(token) == token.size();
    for (std::size_t at = 0; good && at < token.size(); at += utf8_length(token[at])) {
      const int byte = byte_of_character(utf8_character(token, at));
      good = byte >= 0;
      raw += static_cast<char>(byte);
    }
    if (!good) fail<FileError>("tokenizer.ggml.tokens", printable(token), "GPT-2's characters for bytes");
    return raw;
  }

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  std::vector<std::string> raw_;  // [vocab]; bytes; empty for those that come of no text
  std::array<std::int32_t, 256> bytes_ = none();
  std::unordered_map<std::uint64_t, Made> merges_;

  static std::array<std::int32_t, 256> none() {
    std::array<std::int32_t, 256> all;
    all.fill(-1);
    return all;
  }
};

}  // namespace tiny_llama
