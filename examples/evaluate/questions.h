// questions: made-up documents are read, evicted, and asked about.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/answers.h"
#include "evaluate/sentences.h"

namespace evaluate {

/// Few people and much filler: our model seldom knows who of ten it was, whatever the cache.
inline tiny_llama::DocumentOptions few_documents() {
  tiny_llama::DocumentOptions o;
  o.documents = 3;
  o.fewest_fillers = 16;
  o.most_fillers = 24;
  return o;
}

/// Where the sets of documents come from.
struct Source {
  std::string name;
  std::function<tiny_llama::Documents(tiny_llama::Random&)> make;
};

struct MadeUpOptions {
  tiny_llama::DocumentOptions documents = few_documents();
  std::string filler;  // a text file whose sentences stand between the facts; empty: templates
};

/// Short biographies.
inline Source made_up(const MadeUpOptions& options) {
  tiny_llama::DocumentOptions documents = options.documents;
  if (!options.filler.empty()) {
    const auto lines =
        std::make_shared<const std::vector<std::string>>(sentences(tiny_llama::read_text(options.filler)));
    documents.other_filler = [lines](tiny_llama::Random& random) { return random.of(*lines); };
  }
  documents.questions = (std::numeric_limits<int>::max)();  // all that there are
  return {std::to_string(documents.documents) +
              " made-up documents, filler: " + (options.filler.empty() ? "templates" : options.filler),
          [documents](tiny_llama::Random& random) { return tiny_llama::make_documents(random, documents); }};
}

struct QuestionsOptions {
  int sets = 10;                // sets of documents
  int questions = 10;           // of each set, at most
  int answers = 1;              // facts that make one answer
  std::string asked = "after";  // the eviction, or before
};

class Questions {
 public:
  Questions(const Common& common, const QuestionsOptions& options, Source source)
      : common_(common), o_(options), source_(std::move(source)) {
    buzz::require_range("sets", o_.sets, 1, 1 << 16);
    buzz::require_range("questions", o_.questions, 1, 1 << 16);
    buzz::require_range("answers", o_.answers, 1, 64);
    if (o_.asked != "after" && o_.asked != "before") fail("asked", printable(o_.asked), "after or before");
    for (int s = 0; s < o_.sets; ++s) sets_.push_back(make(s));
  }

  std::vector<Table> run() const {
    const std::size_t n = sets_.size();
    const auto& contenders = common_.contenders();
    const std::vector<json> results = common_.results(
        contenders.size(), n,
        [&](std::size_t c, std::size_t s) -> json {
          const Set& set = sets_[s];
          return {{"task", "questions"},           {"policy", contenders[c].key}, {"rows", budget(c, set)},
                  {"text", hash_of(set.tokens)},   {"groups", set.key},           {"asked", o_.asked},
                  {"once", common_.options().once}};
        },
        [&](std::size_t s) { return cost(sets_[s]); },
        [&](std::size_t s, const Members& members) {
          return asked_before() ? before(sets_[s], members) : after(sets_[s], members);
        },
        common_.together());
    Table table{title(), mark_note(), mark_columns(), {}};
    std::vector<Marks> marks(contenders.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      marks[i / n].results.push_back(&results[i]);
      marks[i / n].each.emplace_back();
      for (const json& a : results[i].at("answers")) marks[i / n].each.back().push_back(&a);
    }
    for (std::size_t c = 0; c < contenders.size(); ++c)
      table.rows.push_back(mark_cells(contenders[c], marks[c], marks[0]));
    return {table};
  }

 private:
  struct Set {
    Tokens tokens;
    std::vector<Group> groups;
    json key;  // the groups, as text
  };

  Set make(int index) const {
    tiny_llama::Random random(common_.options().seed * 1000003 + static_cast<std::uint64_t>(index));
    const tiny_llama::Documents made = source_.make(random);
    Set set;
    set.tokens = common_.tokenizer().encode(made.text);
    const std::size_t asked = (std::min)(made.questions.size(),
                                         static_cast<std::size_t>(o_.questions) * static_cast<std::size_t>(o_.answers));
    for (std::size_t q = 0; q + static_cast<std::size_t>(o_.answers) <= asked;
         q += static_cast<std::size_t>(o_.answers)) {
      const auto begin = made.questions.begin() + static_cast<std::ptrdiff_t>(q);
      set.groups.emplace_back(begin, begin + o_.answers);
      for (const Question& question : set.groups.back()) set.key.push_back(question.text + question.answer);
    }
    if (set.groups.empty()) fail("answers", o_.answers, "at most the facts of a set of documents");
    buzz::require_range("tokens of the documents and an answer", static_cast<long long>(set.tokens.size()) + room(), 1,
                        common_.config().context);
    return set;
  }

  bool asked_before() const { return o_.asked == "before"; }
  std::size_t cost(const Set& set) const {
    const std::size_t answers = set.groups.size() * static_cast<std::size_t>(o_.answers) * 15;
    return answers + set.tokens.size() * (asked_before() ? set.groups.size() : 1);
  }
  int budget(std::size_t contender, const Set& set) const {
    return common_.contenders()[contender].budget.of(static_cast<int>(set.tokens.size()));
  }
  int room() const { return o_.answers * 48; }  // tokens of questions and answers

  /// Documents are read and evicted; then each question goes on from a copy.
  std::vector<json> after(const Set& set, const Members& members) const {
    Sequences s = common_.read(members, set.tokens, room());
    std::vector<json> results;
    for (int m = 0; m < s.size(); ++m)
      results.push_back({{"answers", json::array()}, {"held_rows", s.rows(m)}, {"cost", cost_of(s, m)}});
    for (const Group& group : set.groups) add(ask(s, common_.tokenizer(), group, false), results);
    return results;
  }

  /// Documents and question are one prompt, read in one call and then evicted: the answer's first token comes of what
  /// was there before the eviction. Where an answer has several facts, all its questions are in the prompt.
  std::vector<json> before(const Set& set, const Members& members) const {
    std::vector<json> results(members.size(), {{"answers", json::array()}, {"held_rows", 0.0}});
    for (const Group& group : set.groups) {
      std::string questions;
      for (std::size_t q = 1; q < group.size(); ++q)
        questions += group[q].text.substr(0, group[q].text.size() - std::string(" Answer:").size()) + "\n";
      questions += group[0].text;
      Tokens prompt = set.tokens;
      const Tokens more = common_.tokenizer().encode_more(questions);
      prompt.insert(prompt.end(), more.begin(), more.end());
      Sequences s = common_.sequences(members, [&](const Contender& c) {
        Sizes sizes = common_.sizes(c, static_cast<int>(set.tokens.size()), static_cast<int>(prompt.size()) + room());
        sizes.max_chunk = static_cast<int>(prompt.size());
        return sizes;
      });
      s.read(prompt);
      for (std::size_t m = 0; m < members.size(); ++m) {
        const int i = static_cast<int>(m);
        double& held = results[m].at("held_rows").get_ref<double&>();
        held += s.rows(i) / static_cast<double>(set.groups.size());
        results[m]["cost"] = cost_of(s, i);
      }
      add(ask(s, common_.tokenizer(), group, true), results);
    }
    return results;
  }

  static void add(const std::vector<Answer>& answers, std::vector<json>& results) {
    for (std::size_t m = 0; m < answers.size(); ++m) results[m]["answers"].push_back(to_json(answers[m]));
  }

  std::string title() const {
    std::size_t tokens = 0;
    for (const Set& set : sets_) tokens += set.tokens.size();
    return "Questions asked " + o_.asked + " eviction, " + std::to_string(o_.sets) + " sets of " +
           std::to_string(tokens / sets_.size()) + " tokens: " + source_.name +
           ", facts an answer: " + std::to_string(o_.answers) + ", " +
           (asked_before() ? "prompt in one call" : common_.how_read());
  }

  const Common& common_;
  QuestionsOptions o_;
  Source source_;
  std::vector<Set> sets_;
};

}  // namespace evaluate
