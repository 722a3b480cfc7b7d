// Questions put to a sequence that has read: what it answers, and how likely it holds the right answer.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/common.h"
#include "tiny_llama/documents.h"

namespace evaluate {

using tiny_llama::Question;

/// One question, or several whose answers together are one answer.
using Group = std::vector<Question>;

struct Answer {
  double log_likelihood = 0;  // of the right answers, summed over their tokens
  bool exact = true;          // greedy decoding gives all of them
};

/// What each sequence answers. `s` has read the first question if first_is_read, else nothing of the group. Each right
/// answer is read whatever the model would have said: greedy decoding gives it if each of its tokens is the likeliest.
inline std::vector<Answer> ask(const Sequences& s, const tiny_llama::Tokenizer& tokenizer, const Group& group,
                               bool first_is_read) {
  std::vector<Answer> answers(static_cast<std::size_t>(s.size()));
  Sequences own = s.fork();
  for (std::size_t i = 0; i < group.size(); ++i) {
    Tokens tokens;
    if (i > 0 || !first_is_read) tokens = tokenizer.encode_more((i > 0 ? ".\n" : "") + group[i].text);
    const std::size_t first = tokens.size();
    const Tokens right = tokenizer.encode_more(group[i].answer);
    tokens.insert(tokens.end(), right.begin(), right.end());
    std::vector<std::vector<Foretold>> foretold;
    own.read(tokens, &foretold, first);
    for (std::size_t m = 0; m < answers.size(); ++m)
      for (const Foretold& f : foretold[m]) {
        answers[m].log_likelihood -= f.nll;
        answers[m].exact = answers[m].exact && f.is_likeliest;
      }
  }
  return answers;
}

inline json to_json(const Answer& a) { return {{"log_likelihood", a.log_likelihood}, {"exact", a.exact}}; }

/// What a contender answered, unit by unit (a set of documents), for the columns below.
struct Marks {
  std::vector<const json*> results;            // one a unit, with "cost" and "held_rows"
  std::vector<std::vector<const json*>> each;  // [unit][group], as to_json() makes them
};

inline std::vector<Column> mark_columns() {
  return with_costs({{"held rows"},
                     {"n"},
                     {"exact match", 2},
                     {"log-likelihood", 3},
                     {"kept of full's right", 2},
                     {"exact match - full", 2},
                     {"log-likelihood - full", 3}});
}
inline const char* mark_note() {
  return "[95%: exact match and kept by Wilson's score, the others by bootstrap over sets of documents; differences "
         "are paired]\nheld rows: when the answer begins";
}

inline std::vector<Cell> mark_cells(const Contender& c, const Marks& mine, const Marks& full) {
  std::size_t n = 0, right = 0, full_right = 0, kept = 0;
  std::vector<Unit> likelihood, likelihood_more, exact_more;
  double held = 0;
  for (std::size_t u = 0; u < mine.each.size(); ++u) {
    Unit sum, more, exact;
    for (std::size_t g = 0; g < mine.each[u].size(); ++g) {
      const json &a = *mine.each[u][g], &b = *full.each[u][g];
      const bool mine_exact = a.at("exact").get<bool>(), full_exact = b.at("exact").get<bool>();
      ++n;
      right += mine_exact;
      full_right += full_exact;
      kept += mine_exact && full_exact;
      sum.sum += a.at("log_likelihood").get<double>();
      more.sum += a.at("log_likelihood").get<double>() - b.at("log_likelihood").get<double>();
      exact.sum += mine_exact - full_exact;
    }
    sum.weight = more.weight = exact.weight = static_cast<double>(mine.each[u].size());
    likelihood.push_back(sum);
    likelihood_more.push_back(more);
    exact_more.push_back(exact);
    held += mine.results[u]->at("held_rows").get<double>();
  }
  std::vector<Cell> row = cost_cells(c, mine.results);
  row.insert(row.end(), {held / static_cast<double>(mine.results.size()), n, share(right, n), bootstrap(likelihood),
                         full_right == 0 ? Cell() : Cell(share(kept, full_right)), bootstrap(exact_more),
                         bootstrap(likelihood_more)});
  return row;
}

}  // namespace evaluate
