// Running text to read: of files, or made up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "evaluate/common.h"
#include "tiny_llama/documents.h"

namespace evaluate {

/// Tokens without a beginning of sequence.
struct Text {
  std::string name;
  Tokens tokens;
};

/// Errors: a file that cannot be read or is not UTF-8.
inline std::vector<Text> read_texts(const Common& common, const std::vector<std::string>& files) {
  std::vector<Text> texts;
  for (const std::string& file : files)
    texts.push_back({file, common.tokenizer().encode_more(tiny_llama::read_text(file))});
  return texts;
}

/// Sets of ten documents, end to end.
inline Text made_up_text(const Common& common, std::size_t tokens) {
  Text text{"made-up documents", {}};
  tiny_llama::Random random(common.options().seed * 1000003 + 500009);
  while (text.tokens.size() < tokens) {
    const Tokens more = common.tokenizer().encode_more(tiny_llama::make_documents(random).text);
    text.tokens.insert(text.tokens.end(), more.begin(), more.end());
  }
  text.tokens.resize(tokens);
  return text;
}

/// Those of the files, or `tokens` tokens of made-up documents where there are none.
inline std::vector<Text> texts_or_made_up(const Common& common, const std::vector<std::string>& files, int tokens) {
  if (!files.empty()) return read_texts(common, files);
  return {made_up_text(common, static_cast<std::size_t>(tokens))};
}

/// `tokens` of a text from `begin` on, the beginning of sequence among them if the model has one.
inline Tokens piece_of(const Common& common, const Text& text, std::size_t begin, std::size_t tokens) {
  Tokens out;
  const tiny_llama::Vocabulary& v = common.tokenizer().vocabulary();
  if (v.add_bos) out.push_back(v.bos);
  const std::size_t end = (std::min)(text.tokens.size(), begin + tokens - out.size());
  out.insert(out.end(), text.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
             text.tokens.begin() + static_cast<std::ptrdiff_t>(end));
  return out;
}

/// `pieces` pieces of each text, evenly spread. Errors: a text that is shorter than one.
inline std::vector<Tokens> pieces_of(const Common& common, const std::vector<Text>& texts, int pieces, int tokens) {
  std::vector<Tokens> out;
  for (const Text& t : texts) {
    const auto length = static_cast<std::size_t>(tokens);
    if (t.tokens.size() < length)
      fail<buzz::FileError>("tokens of " + printable(t.name), static_cast<long long>(t.tokens.size()),
                            ">= " + std::to_string(tokens));
    const std::size_t room = t.tokens.size() - length + 1;
    for (int p = 0; p < pieces; ++p)
      out.push_back(piece_of(common, t, room * static_cast<std::size_t>(p) / static_cast<std::size_t>(pieces), length));
  }
  return out;
}

/// Tokens as part of a key.
inline std::string hash_of(const Tokens& tokens) {
  return hex(hash({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(tokens[0])}));
}

}  // namespace evaluate
