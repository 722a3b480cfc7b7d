// What a GGUF file says of its tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/metadata.h"

namespace tiny_llama {

/// As GGUF calls them: "llama" is sentencepiece's BPE, whose pieces are merged by score; "gpt2" the BPE of bytes, whose
/// pairs are merged by rank.
enum class TokenizerKind { llama, gpt2 };

struct Vocabulary {
  static constexpr std::int32_t normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6;

  TokenizerKind kind = TokenizerKind::llama;
  std::vector<std::string> tokens;  // [vocab]; llama: a space is U+2581; gpt2: a byte is a character
  std::vector<float> scores;        // llama: [vocab]; the higher is merged first
  std::vector<std::string> merges;  // gpt2: two tokens with a space between them, the first to be merged first
  std::vector<std::int32_t> types;  // [vocab]; one of the above
  int bos = 1, eos = 2, unk = 0;
  bool add_bos = true, add_eos = false, add_space_prefix = true;
};

inline TokenizerKind read_kind(Metadata& m) {
  const std::string_view kind = m.text("ggml.model");
  if (kind != "llama" && kind != "gpt2")
    fail<FileError>("tokenizer.ggml.model", printable(kind), "'llama' (sentencepiece BPE) or 'gpt2' (BPE of bytes)");
  return kind == "llama" ? TokenizerKind::llama : TokenizerKind::gpt2;
}

/// Errors: metadata that is missing, out of range, of another tokenizer, or not known.
inline Vocabulary read_vocabulary(const Gguf& file) {
  Metadata m(file, "tokenizer.");
  Vocabulary v;
  v.kind = read_kind(m);
  for (std::string_view token : m.texts("ggml.tokens")) v.tokens.emplace_back(token);
  if (v.kind == TokenizerKind::llama) {
    m.expect("ggml.pre", "default");
    v.scores = m.numbers<float>("ggml.scores");
  } else {
    m.require("ggml.pre", "smollm");  // how a text is cut into words
    for (std::string_view merge : m.texts("ggml.merges")) v.merges.emplace_back(merge);
    v.add_bos = v.add_space_prefix = false;
    m.describe({"ggml.scores"});
  }
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

/// 255 or less for "<0x00>" to "<0xFF>".
inline std::size_t byte_of(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return 256;
  const std::string_view digits = "0123456789ABCDEF";
  const std::size_t high = digits.find(token[3]), low = digits.find(token[4]);
  return high < 16 && low < 16 ? 16 * high + low : 256;
}

/// Errors: lists of different lengths, scores that are not finite, types that are none, tokens out of range.
inline void check(const Vocabulary& v) {
  const std::size_t size = v.tokens.size();
  const auto expect = [&](const char* field, std::size_t count) {
    if (count != size)
      fail<FileError>(field, std::to_string(count) + " elements", std::to_string(size) + ", one for each token");
  };
  if (size < 1 || size > (1u << 24))
    fail<FileError>("tokenizer.ggml.tokens", std::to_string(size) + " elements", "1 to 16777216");
  if (v.merges.size() > (1u << 24))  // so that a rank is a float
    fail<FileError>("tokenizer.ggml.merges", std::to_string(v.merges.size()) + " elements", "<= 16777216");
  const bool pieces = v.kind == TokenizerKind::llama;
  if (pieces) expect("tokenizer.ggml.scores", v.scores.size());
  expect("tokenizer.ggml.token_type", v.types.size());
  for (float score : v.scores) {
    if (!buzz::is_finite(score)) fail<FileError>("tokenizer.ggml.scores", std::to_string(score), "finite numbers");
  }
  const std::int32_t last_type = pieces ? Vocabulary::byte : Vocabulary::unused;
  for (std::size_t id = 0; id < size; ++id) {
    const std::int32_t type = v.types[id];
    if (type < 1 || type > last_type)
      fail<FileError>("tokenizer.ggml.token_type", type, "1 to " + std::to_string(last_type));
    if (type == Vocabulary::byte && byte_of(v.tokens[id]) > 255) {
      fail<FileError>("tokenizer.ggml.tokens", printable(v.tokens[id]),
                      "'<0x00>' to '<0xFF>' for a token of type 6 (byte)");
    }
  }
  for (int id : {v.bos, v.eos, v.unk})
    buzz::require_range<FileError>("token id of BOS, EOS, unknown", id, 0, static_cast<int>(size) - 1);
}

}  // namespace tiny_llama
