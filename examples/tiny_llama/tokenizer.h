// The sentencepiece-style BPE that GGUF calls "llama": pieces are merged by score, unknown characters fall to bytes.
#pragma once

#include <array>
#include <cstdint>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/metadata.h"
#include "tiny_llama/utf8.h"

namespace tiny_llama {

struct Vocabulary {
  static constexpr std::int32_t normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6;

  std::vector<std::string> tokens;  // [vocab]; a space is U+2581
  std::vector<float> scores;        // [vocab]; the higher is merged first
  std::vector<std::int32_t> types;  // [vocab]; one of the above
  int bos = 1, eos = 2, unk = 0;
  bool add_bos = true, add_eos = false, add_space_prefix = true;
};

/// Errors: metadata that is missing, out of range, of another tokenizer, or not known.
inline Vocabulary read_vocabulary(const Gguf& file) {
  Metadata m(file, "tokenizer.");
  const std::string_view kind = m.text("ggml.model");
  if (kind != "llama") fail<FileError>("tokenizer.ggml.model", printable(kind), "'llama' (sentencepiece BPE)");
  m.expect("ggml.pre", "default");
  Vocabulary v;
  for (std::string_view token : m.texts("ggml.tokens")) v.tokens.emplace_back(token);
  v.scores = m.numbers<float>("ggml.scores");
  v.types = m.numbers<std::int32_t>("ggml.token_type");
  const int last = static_cast<int>(v.tokens.size()) - 1;
  v.bos = m.integer("ggml.bos_token_id", 0, last, v.bos);
  v.eos = m.integer("ggml.eos_token_id", 0, last, v.eos);
  v.unk = m.integer("ggml.unknown_token_id", 0, last, v.unk);
  v.add_bos = m.boolean("ggml.add_bos_token", v.add_bos);
  v.add_eos = m.boolean("ggml.add_eos_token", v.add_eos);
  v.add_space_prefix = m.boolean("ggml.add_space_prefix", v.add_space_prefix);
  m.expect("ggml.escape_whitespaces", 1);
  for (const char* off : {"ggml.remove_extra_whitespaces", "ggml.add_sep_token"}) m.expect(off, 0);
  m.expect("ggml.eot_token_id", v.eos);  // one token ends a text
  // Tokens that no text becomes, and what is put around a text before it comes here.
  m.describe({"ggml.padding_token_id", "ggml.seperator_token_id", "ggml.cls_token_id", "ggml.mask_token_id",
              "chat_template", "chat_templates", "huggingface.json"});
  m.refuse_others();
  return v;
}

class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(check(std::move(vocabulary))) {
    bytes_.fill(vocabulary_.unk);
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      const std::string_view token = vocabulary_.tokens[id];
      switch (vocabulary_.types[id]) {
        case Vocabulary::byte:
          bytes_[byte_of(token)] = static_cast<std::int32_t>(id);
          break;
        // Only these come of text: "<s>" in a prompt is four characters, not the begin-of-sequence token.
        case Vocabulary::normal:
        case Vocabulary::unused:
          ids_.emplace(token, id);
          break;
        default:
          break;
      }
    }
  }
  Tokenizer(Tokenizer&&) = default;  // ids_ points into the tokens, which do not move

  int size() const { return static_cast<int>(vocabulary_.tokens.size()); }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// The tokens of a text from its beginning.
  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    if (vocabulary_.add_bos) ids.push_back(vocabulary_.bos);
    append(text, vocabulary_.add_space_prefix, ids);
    if (vocabulary_.add_eos) ids.push_back(vocabulary_.eos);
    return ids;
  }

  /// The tokens of a text that goes on where another one ended.
  std::vector<std::int32_t> encode_more(std::string_view text) const {
    std::vector<std::int32_t> ids;
    append(text, false, ids);
    return ids;
  }

  /// What one token adds to the text: bytes, which need not be whole characters.
  std::string piece(std::int32_t id) const {
    if (id < 0 || id >= size()) fail("token id", id, "0 to " + std::to_string(size() - 1));
    const std::string& token = vocabulary_.tokens[static_cast<std::size_t>(id)];
    switch (vocabulary_.types[static_cast<std::size_t>(id)]) {
      case Vocabulary::byte:
        return std::string(1, static_cast<char>(byte_of(token)));
      case Vocabulary::normal:
      case Vocabulary::unused:
        return replace_all(token, space_mark, " ");
      default:
        return {};
    }
  }

  /// The text of the tokens. Where they begin with the begin-of-sequence token, the space put before the text goes.
  std::string decode(const std::vector<std::int32_t>& ids) const {
    std::string text;
    for (std::int32_t id : ids) text += piece(id);
    const bool from_the_beginning = !ids.empty() && ids[0] == vocabulary_.bos;
    if (from_the_beginning && vocabulary_.add_space_prefix && !text.empty() && text[0] == ' ') text.erase(0, 1);
    return text;
  }

 private:
  static constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581

  struct Symbol {  // a stretch of the text; length 0 once it is merged into its left neighbour
    std::size_t previous, next;
    std::size_t begin, length;
  };
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Merge {  // of a symbol and its right neighbour
    float score;
    std::size_t left, right;
    std::size_t length;  // of both; tells a merge that is out of date
    bool operator<(const Merge& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  static Vocabulary check(Vocabulary v) {
    const std::size_t size = v.tokens.size();
    const auto expect = [&](const char* field, std::size_t count) {
      if (count != size)
        fail<FileError>(field, std::to_string(count) + " elements", std::to_string(size) + ", one for each token");
    };
    if (size < 1 || size > (1u << 24))
      fail<FileError>("tokenizer.ggml.tokens", std::to_string(size) + " elements", "1 to 16777216");
    expect("tokenizer.ggml.scores", v.scores.size());
    expect("tokenizer.ggml.token_type", v.types.size());
    for (float score : v.scores) {
      if (!buzz::is_finite(score)) fail<FileError>("tokenizer.ggml.scores", std::to_string(score), "finite numbers");
    }
    for (std::size_t id = 0; id < size; ++id) {
      const std::int32_t type = v.types[id];
      if (type < 1 || type > 6 || type == Vocabulary::user_defined) {
        fail<FileError>("tokenizer.ggml.token_type", type, "1, 2, 3, 5 or 6 (user-defined tokens are not supported)");
      }
      if (type == Vocabulary::byte && byte_of(v.tokens[id]) > 255) {
        fail<FileError>("tokenizer.ggml.tokens", printable(v.tokens[id]),
                        "'<0x00>' to '<0xFF>' for a token of type 6 (byte)");
      }
    }
    for (int id : {v.bos, v.eos, v.unk})
      buzz::require_range<FileError>("token id of BOS, EOS, unknown", id, 0, static_cast<int>(size) - 1);
    return v;
  }

  /// 255 or less for "<0x00>" to "<0xFF>".
  static std::size_t byte_of(std::string_view token) {
    if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return 256;
    const std::string_view digits = "0123456789ABCDEF";
    const std::size_t high = digits.find(token[3]), low = digits.find(token[4]);
    return high < 16 && low < 16 ? 16 * high + low : 256;
  }

  static std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    std::size_t at = 0;
    for (std::size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
      out.append(text.substr(at, found - at)).append(to);
    }
    return out.append(text.substr(at));
  }

  void append(std::string_view text, bool space_before, std::vector<std::int32_t>& ids) const {
    if (text.empty()) fail("prompt", "empty", "at least one character");
    if (text.size() > (1u << 28)) fail("prompt", std::to_string(text.size()) + " bytes", "<= 268435456 bytes");
    const std::size_t good = valid_utf8_length(text);
    if (good != text.size()) fail("prompt", "not UTF-8 from byte " + std::to_string(good) + " on", "UTF-8 text");
    const std::string marked = replace_all((space_before ? " " : "") + std::string(text), " ", space_mark);
    for (const Symbol& symbol : merge(marked)) {
      const std::string_view piece = std::string_view(marked).substr(symbol.begin, symbol.length);
      if (piece.empty()) continue;
      if (const auto found = ids_.find(piece); found != ids_.end()) {
        ids.push_back(static_cast<std::int32_t>(found->second));
      } else {
        for (char c : piece) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
      }
    }
  }

  /// Begins with single characters, and merges the pair with the best score, the leftmost of equals, while there is
  /// one.
  std::vector<Symbol> merge(std::string_view text) const {
    std::vector<Symbol> symbols;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_length(text[at]), index = symbols.size();
      symbols.push_back({index == 0 ? none : index - 1, at + length < text.size() ? index + 1 : none, at, length});
      at += length;
    }
    std::priority_queue<Merge> queue;
    const auto propose = [&](std::size_t left, std::size_t right) {
      if (left == none || right == none) return;
      const std::size_t length = symbols[left].length + symbols[right].length;
      const auto found = ids_.find(text.substr(symbols[left].begin, length));
      if (found != ids_.end()) queue.push({vocabulary_.scores[found->second], left, right, length});
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) propose(i, i + 1);
    while (!queue.empty()) {
      const Merge best = queue.top();
      queue.pop();
      Symbol &left = symbols[best.left], &right = symbols[best.right];
      if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
      left.length = best.length;
      right.length = 0;
      left.next = right.next;
      if (right.next != none) symbols[right.next].previous = best.left;
      propose(left.previous, best.left);
      propose(best.left, left.next);
    }
    return symbols;
  }

  Vocabulary vocabulary_;
  std::unordered_map<std::string_view, std::size_t> ids_;
  std::array<std::int32_t, 256> bytes_{};  // the token of each byte; the unknown token where there is none
};

}  // namespace tiny_llama
