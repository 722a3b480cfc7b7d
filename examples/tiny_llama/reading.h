// What the demo reads: documents end to end, or a text and documents after it, and questions about the last ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tiny_llama/documents.h"
#include "tiny_llama/tokenizer.h"

namespace tiny_llama {

struct Reading {
  std::vector<std::int32_t> tokens;    // all of it
  std::vector<std::string> documents;  // of the last set, one text each
  std::vector<Question> questions;     // about the last set
};

/// A set of documents, cut into its documents. Each ends in a newline, which is a token of its own, so that their
/// tokens side by side are the tokens of the whole.
inline std::vector<std::string> cut(const std::string& set) {
  std::vector<std::string> documents;
  for (std::size_t at = 0, next; at < set.size(); at = next) {
    const std::size_t found = set.find("\nDocument ", at);
    next = found == std::string::npos ? set.size() : found + 1;
    documents.push_back(set.substr(at, next - at));
  }
  return documents;
}

/// Goes on until there are at least `tokens` tokens: with a text, up to that many of it and one set of documents.
inline Reading make_reading(const Tokenizer& tokenizer, Random& random, std::size_t tokens, const std::string* text) {
  Reading reading;
  DocumentOptions options;
  options.questions = 20;
  const auto append = [&](const std::string& more) {
    const std::vector<std::int32_t> ids = reading.tokens.empty() ? tokenizer.encode(more) : tokenizer.encode_more(more);
    reading.tokens.insert(reading.tokens.end(), ids.begin(), ids.end());
  };
  if (text != nullptr) {
    append(*text);
    if (reading.tokens.size() > tokens) reading.tokens.resize(tokens);
    append("\n");
    tokens = 0;
  }
  do {
    Documents set = make_documents(random, options);
    reading.documents = cut(set.text);
    reading.questions = std::move(set.questions);
    for (const std::string& document : reading.documents) append(document);
  } while (reading.tokens.size() < tokens);
  return reading;
}

/// The tokens of as many of the last documents as make no more than `most` tokens.
inline std::vector<std::int32_t> last_documents(const Tokenizer& tokenizer, const std::vector<std::string>& documents,
                                                std::size_t most) {
  std::vector<std::int32_t> best;
  std::string text;
  for (auto document = documents.rbegin(); document != documents.rend(); ++document) {
    text = *document + text;
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (ids.size() > most) break;
    best = std::move(ids);
  }
  return best;
}

}  // namespace tiny_llama
