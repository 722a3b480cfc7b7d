// Short made-up biographies, and questions about them: no answer can be known without reading.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "tiny_llama/words.h"

namespace tiny_llama {

/// Draws that are the same on every platform, which std::uniform_int_distribution does not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// One of 0 .. count - 1, each as likely.
  std::size_t below(std::size_t count) {
    const std::uint64_t n = count, fair = UINT64_MAX - UINT64_MAX % n;  // a multiple of n; draws past it are redone
    std::uint64_t drawn;
    do drawn = engine_();
    while (drawn >= fair);
    return static_cast<std::size_t>(drawn % n);
  }
  int between(int low, int high) { return low + static_cast<int>(below(static_cast<std::size_t>(high - low) + 1)); }

  template <class U>
  const U& of(const std::vector<U>& list) {
    return list[below(list.size())];
  }

  /// `count` elements of the list, each at most once, in random order.
  template <class U>
  std::vector<U> sample(std::vector<U> list, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) std::swap(list[i], list[i + below(list.size() - i)]);
    list.resize(count);
    return list;
  }

 private:
  std::mt19937_64 engine_;
};

/// "A {x} day" with every {x} replaced.
inline std::string fill(std::string text, const std::vector<std::pair<std::string_view, std::string>>& fields) {
  for (const auto& [mark, word] : fields) {
    for (std::size_t at; (at = text.find(mark)) != std::string::npos;) text.replace(at, mark.size(), word);
  }
  return text;
}

/// Closes up the space that the templates keep before . , ? and makes "a empty" "an empty".
inline std::string join(const std::string& text) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::string closed;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == ' ' && (next == '.' || next == ',' || next == '?')) continue;
    closed += text[i];
  }
  std::string out;
  for (std::size_t i = 0; i < closed.size(); ++i) {
    out += closed[i];
    const bool article = (closed[i] == 'a' || closed[i] == 'A') && (i == 0 || !is_word(closed[i - 1]));
    const bool vowel = i + 2 < closed.size() && std::string_view("aeiou").find(closed[i + 2]) != std::string_view::npos;
    if (article && vowel && closed[i + 1] == ' ') out += 'n';
  }
  return out;
}

/// A sentence that tells nothing about anybody.
inline std::string filler(Random& random) {
  const Words& w = words();
  const std::string& text = random.of(w.fillers);
  return fill(text, {{"{w}", random.of(w.times)},
                     {"{a}", random.of(w.adjectives)},
                     {"{b}", random.of(w.adjectives)},
                     {"{o}", random.of(w.nouns)},
                     {"{p}", random.of(w.nouns)},
                     {"{r}", random.of(w.verbs)}});
}

struct DocumentOptions {
  int documents = 10;
  int fewest_facts = 2, most_facts = 4;      // in a document
  int fewest_fillers = 2, most_fillers = 6;  // in a document
  int questions = 1;                         // as many as there are facts at most
  std::function<std::string(Random&)> other_filler = filler;
};

struct Question {
  std::string text;    // "Question: ... ? Answer:"
  std::string answer;  // " Rome"
  int document;        // from 1
};

struct Documents {
  std::string text;  // ends in a newline
  std::vector<Question> questions;
};

inline void check(const DocumentOptions& o) {
  const int names = static_cast<int>(words().first_names.size() * words().last_names.size());
  buzz::require_range("documents", o.documents, 1, names / 2);  // above that, drawing names not yet taken gets slow
  buzz::require_range("most_facts", o.most_facts, 0, static_cast<int>(words().attributes.size()));
  buzz::require_range("fewest_facts", o.fewest_facts, 0, o.most_facts);
  buzz::require_range("most_fillers", o.most_fillers, 0, 1000);
  buzz::require_range("fewest_fillers", o.fewest_fillers, 0, o.most_fillers);
  buzz::require_at_least("questions", o.questions, 0);
}

/// `count` different full names, in random order.
inline std::vector<std::string> draw_names(Random& random, int count) {
  std::vector<std::string> names;
  for (std::set<std::string> taken; names.size() < static_cast<std::size_t>(count);) {
    const std::string first = random.of(words().first_names);
    const std::string name = first + " " + random.of(words().last_names);
    if (taken.insert(name).second) names.push_back(name);
  }
  return names;
}

inline Documents make_documents(Random& random, const DocumentOptions& options = {}) {
  check(options);
  Documents made;
  std::vector<Question> known;
  int number = 0;
  for (const std::string& name : draw_names(random, options.documents)) {
    ++number;
    std::vector<std::string> lines;
    const int facts = random.between(options.fewest_facts, options.most_facts);
    for (const Attribute& fact : random.sample(words().attributes, static_cast<std::size_t>(facts))) {
      const std::string value = random.of(fact.values);
      lines.push_back(fill(random.of(fact.statements), {{"{n}", name}, {"{v}", value}}));
      const std::string question = join(fill(random.of(fact.questions), {{"{n}", name}}));
      known.push_back({"Question: " + question + " Answer:", " " + value, number});
    }
    for (int left = random.between(options.fewest_fillers, options.most_fillers); left > 0; --left) {
      const auto place = static_cast<std::ptrdiff_t>(random.below(lines.size() + 1));
      lines.insert(lines.begin() + place, options.other_filler(random));
    }
    std::string body;
    for (const std::string& line : lines) body += (body.empty() ? "" : " ") + line;
    made.text += "Document " + std::to_string(number) + ": " + name + "\n" + join(body) + "\n";
  }
  const std::size_t asked = std::min(known.size(), static_cast<std::size_t>(options.questions));
  made.questions = random.sample(std::move(known), asked);
  return made;
}

}  // namespace tiny_llama
