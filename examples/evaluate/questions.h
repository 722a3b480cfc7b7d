// questions: made-up documents are read, evicted, and asked about.
#pragma once

#include <algorithm>
#include <cstddef>
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

struct QuestionsOptions {
  tiny_llama::DocumentOptions documents = few_documents();
  int sets = 10;                // sets of documents
  int questions = 10;           // of each set
  int answers = 1;              // facts that make one answer
  std::string asked = "after";  // the eviction, or before
  bool whole = false;           // the documents are read in one call, and evicted once
  std::string filler;           // a text file whose sentences stand between the facts; empty: templates
};

class Questions {
 public:
  Questions(const Common& common, QuestionsOptions options) : common_(common), o_(std::move(options)) {
    buzz::require_range("sets", o_.sets, 1, 1 << 16);
    buzz::require_range("questions", o_.questions, 1, 1 << 16);
    buzz::require_range("answers", o_.answers, 1, 64);
    if (o_.asked != "after" && o_.asked != "before") fail("asked", printable(o_.asked), "after or before");
    if (!o_.filler.empty()) {
      const auto lines = std::make_shared<const std::vector<std::string>>(sentences(tiny_llama::read_text(o_.filler)));
      o_.documents.other_filler = [lines](tiny_llama::Random& random) { return random.of(*lines); };
    }
    o_.documents.questions = o_.questions * o_.answers;
    for (int s = 0; s < o_.sets; ++s) sets_.push_back(make(s));
  }

  std::vector<Table> run() const {
    const std::size_t n = sets_.size();
    const auto& contenders = common_.contenders();
    const std::vector<json> results = common_.results(
        contenders.size() * n,
        [&](std::size_t i) -> json {
          const Set& set = sets_[i % n];
          return {{"task", "questions"}, {"policy", contenders[i / n].policy},
                  {"rows", budget(i)},   {"text", set.text},
                  {"groups", set.key},   {"asked", o_.asked},
                  {"whole", o_.whole}};
        },
        [&](std::size_t i) { return cost(sets_[i % n]); },
        [&](std::size_t i) { return asked_before() ? before(i) : after(i); });
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
    std::string text;
    Tokens tokens;
    std::vector<Group> groups;
    json key;  // the groups, as text
  };

  Set make(int index) const {
    tiny_llama::Random random(common_.options().seed * 1000003 + static_cast<std::uint64_t>(index));
    const tiny_llama::Documents made = tiny_llama::make_documents(random, o_.documents);
    Set set;
    set.text = made.text;
    set.tokens = common_.tokenizer().encode(made.text);
    for (std::size_t q = 0; q + static_cast<std::size_t>(o_.answers) <= made.questions.size();
         q += static_cast<std::size_t>(o_.answers)) {
      const auto begin = made.questions.begin() + static_cast<std::ptrdiff_t>(q);
      set.groups.emplace_back(begin, begin + o_.answers);
      for (const Question& question : set.groups.back()) set.key.push_back(question.text + question.answer);
    }
    if (set.groups.empty()) fail("answers", o_.answers, "at most the facts of a set of documents");
    const auto room = static_cast<long long>(set.tokens.size()) + o_.answers * 48LL;  // question, answer, and twice
    buzz::require_range("tokens of the documents and an answer", room, 1, common_.config().context);
    return set;
  }

  bool asked_before() const { return o_.asked == "before"; }
  std::size_t cost(const Set& set) const {
    const std::size_t answers = set.groups.size() * static_cast<std::size_t>(o_.answers) * 30;
    return answers + set.tokens.size() * (asked_before() ? set.groups.size() : 1);
  }
  int budget(std::size_t i) const {
    return common_.contenders()[i / sets_.size()].budget.of(static_cast<int>(sets_[i % sets_.size()].tokens.size()));
  }
  /// `tokens`: of one call.
  Sequence sequence(std::size_t i, std::size_t tokens) const {
    Sizes sizes;
    sizes.budget = budget(i);
    sizes.counted = common_.options().chunk;
    sizes.max_chunk = static_cast<int>(tokens);
    sizes.tokens = common_.config().context;
    return common_.sequence(common_.contenders()[i / sets_.size()], sizes);
  }

  /// Documents are read and evicted; then each question goes on from a copy.
  json after(std::size_t i) const {
    const Set& set = sets_[i % sets_.size()];
    Sequence s = sequence(i, o_.whole ? set.tokens.size() : static_cast<std::size_t>(common_.options().chunk));
    s.read(set.tokens);
    json answers = json::array();
    for (const Group& group : set.groups) answers.push_back(to_json(ask(s, common_.tokenizer(), group, false)));
    return {{"answers", answers}, {"held_rows", s.rows()}, {"cost", cost_of(s)}};
  }

  /// Documents and question are one prompt, read in one call and then evicted: the answer's first token comes of what
  /// was there before the eviction. Where an answer has several facts, all its questions are in the prompt.
  json before(std::size_t i) const {
    const Set& set = sets_[i % sets_.size()];
    json answers = json::array(), cost;
    double held = 0;
    for (const Group& group : set.groups) {
      std::string questions;
      for (std::size_t q = 1; q < group.size(); ++q)
        questions += group[q].text.substr(0, group[q].text.size() - std::string(" Answer:").size()) + "\n";
      questions += group[0].text;
      Tokens prompt = set.tokens;
      const Tokens more = common_.tokenizer().encode_more(questions);
      prompt.insert(prompt.end(), more.begin(), more.end());
      Sequence s = sequence(i, prompt.size());
      s.read(prompt);
      held += s.rows() / static_cast<double>(set.groups.size());
      answers.push_back(to_json(ask(s, common_.tokenizer(), group, true)));
      cost = cost_of(s);
    }
    return {{"answers", answers}, {"held_rows", held}, {"cost", cost}};
  }

  std::string title() const {
    std::size_t tokens = 0;
    for (const Set& set : sets_) tokens += set.tokens.size();
    return "Questions asked " + o_.asked + " eviction, " + std::to_string(o_.sets) + " sets of " +
           std::to_string(o_.documents.documents) + " documents (" + std::to_string(tokens / sets_.size()) +
           " tokens), facts an answer: " + std::to_string(o_.answers) +
           ", filler: " + (o_.filler.empty() ? "templates" : o_.filler) +
           (asked_before() || o_.whole ? ", prompt in one call"
                                       : ", chunks of " + std::to_string(common_.options().chunk));
  }

  const Common& common_;
  QuestionsOptions o_;
  std::vector<Set> sets_;
};

}  // namespace evaluate
