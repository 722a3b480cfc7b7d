// How like two texts are, as the question-answering and summarisation literature measures it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace evaluate {

using Strings = std::vector<std::string>;

inline bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
}
inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// SQuAD's normalised words (Rajpurkar et al. 2016): lower case, no punctuation, no articles. Letters of ASCII only
/// are made lower case.
inline Strings normalised_words(std::string_view text) {
  Strings words;
  std::string word;
  const auto end = [&] {
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(word);
    word.clear();
  };
  for (char c : text) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
      end();
    else if (is_word_byte(lower(c)))
      word += lower(c);  // punctuation goes, and what it parted is one word
  }
  end();
  return words;
}

/// Words for ROUGE and BLEU: runs of letters and digits, lower case, as ROUGE-1.5.5 cuts them. No stemming.
inline Strings words_of(std::string_view text) {
  Strings words;
  std::string word;
  for (char c : text) {
    if (is_word_byte(lower(c))) {
      word += lower(c);
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

using Counts = std::map<Strings, int>;

inline Counts ngrams(const Strings& words, std::size_t n) {
  Counts counts;
  for (std::size_t i = 0; i + n <= words.size(); ++i)
    ++counts[Strings(words.begin() + static_cast<std::ptrdiff_t>(i),
                     words.begin() + static_cast<std::ptrdiff_t>(i + n))];
  return counts;
}
/// How many of a's n-grams are in b too, each as often as it is in both.
inline int overlap(const Counts& a, const Counts& b) {
  int sum = 0;
  for (const auto& [gram, count] : a)
    if (const auto at = b.find(gram); at != b.end()) sum += (std::min)(count, at->second);
  return sum;
}
inline int total(const Counts& counts) {
  int sum = 0;
  for (const auto& [gram, count] : counts) sum += count;
  return sum;
}
/// The harmonic mean of common / a and common / b.
inline double f_score(double common, double a, double b) { return common == 0 ? 0 : 2 * common / (a + b); }

/// Is the answer one of the right ones, both normalised?
inline bool exact_match(std::string_view answer, const Strings& right) {
  return std::any_of(right.begin(), right.end(),
                     [&](const std::string& r) { return normalised_words(answer) == normalised_words(r); });
}
/// The best F1 of normalised words over the right answers; of two without words 1.
inline double answer_f1(std::string_view answer, const Strings& right) {
  double best = 0;
  const Counts mine = ngrams(normalised_words(answer), 1);
  for (const std::string& r : right) {
    const Counts theirs = ngrams(normalised_words(r), 1);
    const double f = mine.empty() && theirs.empty() ? 1 : f_score(overlap(mine, theirs), total(mine), total(theirs));
    best = (std::max)(best, f);
  }
  return best;
}

/// ROUGE-n's F1 against one reference (Lin 2004).
inline double rouge_n(std::string_view text, std::string_view reference, std::size_t n) {
  const Counts mine = ngrams(words_of(text), n), theirs = ngrams(words_of(reference), n);
  return f_score(overlap(mine, theirs), total(mine), total(theirs));
}

/// ROUGE-L's F1: the longest common subsequence of words of the whole texts (Lin 2004, section 3.1, beta = 1).
inline double rouge_l(std::string_view text, std::string_view reference) {
  const Strings a = words_of(text), b = words_of(reference);
  std::vector<int> row(b.size() + 1);  // row[j]: of a's words so far and b's first j
  for (const std::string& word : a) {
    int diagonal = 0;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : (std::max)(row[j], row[j - 1]);
      diagonal = above;
    }
  }
  return f_score(row[b.size()], static_cast<double>(a.size()), static_cast<double>(b.size()));
}

/// BLEU's modified precision (Papineni et al. 2002, section 2.1): each n-gram counts as often as one reference has it.
struct Precision {
  int common = 0, all = 0;
};
inline Precision modified_precision(const Strings& words, const std::vector<Strings>& references, std::size_t n) {
  const Counts mine = ngrams(words, n);
  Counts most;
  for (const Strings& r : references)
    for (const auto& [gram, count] : ngrams(r, n)) most[gram] = (std::max)(most[gram], count);
  return {overlap(mine, most), total(mine)};
}

/// BLEU-4 of one text (Papineni et al. 2002, section 2.3), with the closest reference's length in the brevity penalty,
/// the shorter of equals. A text of few words has few 4-grams: where none of an order is found, half a one is taken
/// (Chen and Cherry 2014, smoothing 1), and a text of less than four words stops at its length.
inline double bleu(const Strings& words, const std::vector<Strings>& references) {
  if (words.empty() || references.empty()) return 0;
  const std::size_t most = (std::min)(std::size_t{4}, words.size());
  double logs = 0;
  for (std::size_t n = 1; n <= most; ++n) {
    const Precision p = modified_precision(words, references, n);
    if (n == 1 && p.common == 0) return 0;
    logs += std::log((p.common == 0 ? 0.5 : p.common) / p.all);
  }
  const auto distance = [&](const Strings& r) {
    return std::abs(static_cast<double>(r.size()) - static_cast<double>(words.size()));
  };
  std::size_t closest = references[0].size();
  double best = distance(references[0]);
  for (const Strings& r : references) {
    if (distance(r) > best || (distance(r) == best && r.size() >= closest)) continue;
    best = distance(r);
    closest = r.size();
  }
  const double c = static_cast<double>(words.size()), r = static_cast<double>(closest);
  return (c > r ? 1 : std::exp(1 - r / c)) * std::exp(logs / static_cast<double>(most));
}

/// Self-BLEU (Zhu et al. 2018): the mean BLEU of each text with all others as references; the lower, the less the texts
/// repeat each other. 0 of fewer than two.
inline double self_bleu(const Strings& texts) {
  if (texts.size() < 2) return 0;
  std::vector<Strings> all;
  for (const std::string& t : texts) all.push_back(words_of(t));
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<Strings> others = all;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    sum += bleu(all[i], others);
  }
  return sum / static_cast<double>(all.size());
}

}  // namespace evaluate
