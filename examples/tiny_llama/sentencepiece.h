// The sentencepiece-style BPE that GGUF calls "llama": pieces are merged by score, unknown characters fall to bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tiny_llama/merging.h"
#include "tiny_llama/utf8.h"
#include "tiny_llama/vocabulary.h"

namespace tiny_llama {

class SentencePiece {
 public:
  /// A checked vocabulary, which must outlive it.
  explicit SentencePiece(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    bytes_.fill(vocabulary_.unk);
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      const std::string_view token = vocabulary_.tokens[id];
      const std::int32_t type = vocabulary_.types[id];
      if (type == Vocabulary::byte) bytes_[byte_of(token)] = static_cast<std::int32_t>(id);
      // Only these come of text: "<s>" in a prompt is four characters, not the begin-of-sequence token.
      if (type == Vocabulary::normal || type == Vocabulary::unused) ids_.emplace(token, static_cast<std::int32_t>(id));
    }
  }

  /// The tokens of a text that is not empty.
  void append(std::string_view text, std::vector<std::int32_t>& ids) const {
    const std::string marked = replace_all(text, " ", space_mark);
    std::vector<Symbol> symbols;
    for (std::size_t at = 0, length; at < marked.size(); at += length) {
      length = utf8_length(marked[at]);
      symbols.push_back({at, length, id_of(std::string_view(marked).substr(at, length))});
    }
    merge(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Made> {
      const std::int32_t id = id_of(std::string_view(marked).substr(left.begin, left.length + right.length));
      if (id < 0) return std::nullopt;
      return Made{vocabulary_.scores[static_cast<std::size_t>(id)], id};
    });
    for (const Symbol& s : symbols) {
      if (s.length != 0 && s.id >= 0) ids.push_back(s.id);
      for (std::size_t i = 0; i < s.length && s.id < 0; ++i)
        ids.push_back(bytes_[static_cast<unsigned char>(marked[s.begin + i])]);
    }
  }

  /// What a token that comes of text adds to it.
  std::string text_of(std::int32_t id) const {
    const std::string& token = vocabulary_.tokens[static_cast<std::size_t>(id)];
    return vocabulary_.types[static_cast<std::size_t>(id)] == Vocabulary::byte
               ? std::string(1, static_cast<char>(byte_of(token)))
               : replace_all(token, space_mark, " ");
  }

 private:
  static constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581

  std::int32_t id_of(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
  }

  static std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    std::size_t at = 0;
    for (std::size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
      out.append(text.substr(at, found - at)).append(to);
    }
    return out.append(text.substr(at));
  }

  const Vocabulary& vocabulary_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::array<std::int32_t, 256> bytes_{};  // the token of each byte; the unknown token where there is none
};

}  // namespace tiny_llama
