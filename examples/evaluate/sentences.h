// The sentences of a text, to put between the facts of made-up documents.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "buzz/error.h"

namespace evaluate {

/// Sentences of 20 to 160 characters, without quotation marks or line ends. Errors: a text that has none.
inline std::vector<std::string> sentences(const std::string& text) {
  std::vector<std::string> found;
  std::string sentence;
  const auto end = [&] {
    const bool fits = sentence.size() >= 20 && sentence.size() <= 160 && sentence[0] >= 'A' && sentence[0] <= 'Z';
    if (fits && sentence.find('"') == std::string::npos && sentence.find('_') == std::string::npos)
      found.push_back(sentence);
    sentence.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool blank = text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t';
    const bool paragraph = text[i] == '\n' && i + 1 < text.size() && (text[i + 1] == '\n' || text[i + 1] == '\r');
    if (paragraph) sentence.clear();  // a heading, or what has no full stop
    if (blank) {
      if (!sentence.empty() && sentence.back() != ' ') sentence += ' ';
      continue;
    }
    sentence += text[i];
    const bool ends = i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\n' || text[i + 1] == '\r';
    const bool title = sentence.size() >= 3 &&
                       (sentence.substr(sentence.size() - 3) == "Mr." ||
                        sentence.substr(sentence.size() - 3) == "Dr." || sentence.substr(sentence.size() - 3) == "rs.");
    if (text[i] == '.' && ends && !title) end();
  }
  if (found.empty())
    buzz::fail<buzz::FileError>("filler", "a text without sentences", "a text with sentences of 20 to 160 characters");
  return found;
}

}  // namespace evaluate
