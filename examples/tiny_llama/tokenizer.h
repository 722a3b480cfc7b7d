// Text to tokens and back, by whichever tokenizer the vocabulary is of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tiny_llama/bpe.h"
#include "tiny_llama/sentencepiece.h"
#include "tiny_llama/vocabulary.h"

namespace tiny_llama {

/// What "<s>" in a text is: characters as others are, or the control token of that name, as in a chat's template.
enum class ControlTokens { text, parsed };

class Tokenizer {
 public:
  /// Errors: see check(Vocabulary) and Bpe.
  explicit Tokenizer(Vocabulary vocabulary);

  int size() const { return static_cast<int>(vocabulary_->tokens.size()); }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

  /// The tokens of a text from its beginning.
  std::vector<std::int32_t> encode(std::string_view text, ControlTokens control = ControlTokens::text) const;

  /// The tokens of a text that goes on where another one ended.
  std::vector<std::int32_t> encode_more(std::string_view text, ControlTokens control = ControlTokens::text) const;

  /// What one token adds to the text: bytes, which need not be whole characters.
  std::string piece(std::int32_t id) const;

  /// The text of the tokens. Where they begin with the begin-of-sequence token, the space put before the text goes.
  std::string decode(const std::vector<std::int32_t>& ids) const;

 private:
  using Pieces = std::variant<SentencePiece, Bpe>;

  const std::string& token(std::int32_t id) const { return vocabulary_->tokens[static_cast<std::size_t>(id)]; }
  bool is(std::int32_t id, std::int32_t type) const { return vocabulary_->types[static_cast<std::size_t>(id)] == type; }

  /// A stretch of the text, or a token that was found whole in it.
  struct Part {
    std::string_view text;
    std::int32_t id;  // -1: text
  };

  /// Cuts the tokens that are found whole out of the text, the longest first, as llama.cpp does.
  std::vector<Part> parts_of(std::string_view text, ControlTokens control) const;
  void append(std::string_view text, ControlTokens control, bool begins, std::vector<std::int32_t>& ids) const;

  std::unique_ptr<const Vocabulary> vocabulary_;  // where it stays when the tokenizer moves: pieces_ points into it
  Pieces pieces_;
  std::vector<std::int32_t> whole_;  // tokens that are never merged of pieces, the longest first
};

}  // namespace tiny_llama
