// questions --data: the lost-in-the-middle form (Liu et al., arXiv 2307.03172): question, answers, ctxs of title, text.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/common.h"
#include "evaluate/jsonl.h"
#include "evaluate/metrics.h"
#include "evaluate/texts.h"

namespace evaluate {

struct DataOptions {
  std::string file;
  int most = 1000;  // lines read
  int tokens = 32;  // of an answer, at most
};

/// What a contender that has read a text says after a prompt, and how likely it holds the reference there.
struct Said {
  std::string text;
  std::vector<Foretold> reference;  // its tokens
  json cost;

  double log_likelihood() const {
    double sum = 0;
    for (const Foretold& f : reference) sum -= f.nll;
    return sum;
  }
};
/// Of each of the contenders.
inline std::vector<Said> say(const Common& common, const Members& members, const Tokens& read,
                             const std::string& prompt, const std::string& reference, int tokens, const char* stop) {
  const Tokens asked = common.tokenizer().encode_more(prompt), right = common.tokenizer().encode_more(" " + reference);
  const int answer = (std::max)(tokens, static_cast<int>(right.size()));
  Sequences s = common.read(members, read, static_cast<int>(asked.size()) + answer);
  s.read(asked);
  std::vector<std::vector<Foretold>> foretold;
  Sequences own = s.fork();
  const std::vector<std::string> texts = own.texts(tokens, stop);
  s.read(right, &foretold);
  std::vector<Said> said;
  for (std::size_t m = 0; m < members.size(); ++m)
    said.push_back({texts[m], foretold[m], cost_of(own, static_cast<int>(m))});
  return said;
}

class DataQuestions {
 public:
  DataQuestions(const Common& common, const DataOptions& options) : common_(common), o_(options) {
    buzz::require_at_least("most", o_.most, 1);
    buzz::require_range("answer tokens", o_.tokens, 1, common.config().context / 2);
    for (const json& line : read_jsonl(o_.file, static_cast<std::size_t>(o_.most))) add(line);
    if (items_.empty()) fail<buzz::FileError>("data", "no prompt within the model's context", "one at least");
  }

  std::vector<Table> run() const {
    const std::size_t n = items_.size();
    const auto& contenders = common_.contenders();
    const std::vector<json> results = common_.results(
        contenders.size(), n,
        [&](std::size_t c, std::size_t i) -> json {
          const Item& item = items_[i];
          return {{"task", "data questions"},
                  {"policy", contenders[c].key},
                  {"rows", contenders[c].budget.of(static_cast<int>(item.documents.size()))},
                  {"documents", hash_of(item.documents)},
                  {"question", item.question},
                  {"answers", item.answers},
                  {"tokens", o_.tokens},
                  {"once", common_.options().once}};
        },
        [&](std::size_t i) { return items_[i].documents.size() + static_cast<std::size_t>(o_.tokens); },
        [&](std::size_t i, const Members& members) { return ask(items_[i], members); }, common_.together());
    Table t{"Questions of " + o_.file + ", documents " + common_.how_read() + ", then asked",
            std::to_string(left_out_) + " lines left out: longer than the model's context\n" +
                "[95%: bootstrap over questions; differences are paired] log-likelihood: of the first right answer",
            with_costs({{"n"},
                        {"exact match", 3},
                        {"F1", 3},
                        {"log-likelihood", 3},
                        {"F1 - full", 3},
                        {"log-likelihood - full", 3}}),
            {}};
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      std::vector<const json*> mine;
      const auto units = [&](const char* name, std::size_t of) {
        std::vector<Unit> out;
        for (std::size_t i = 0; i < n; ++i) out.push_back({results[of * n + i].at(name).get<double>(), 1});
        return out;
      };
      for (std::size_t i = 0; i < n; ++i) mine.push_back(&results[c * n + i]);
      std::vector<Cell> row = cost_cells(contenders[c], mine);
      row.insert(row.end(),
                 {n, bootstrap(units("exact", c)), bootstrap(units("f1", c)), bootstrap(units("log_likelihood", c)),
                  bootstrap(difference(units("f1", c), units("f1", 0))),
                  bootstrap(difference(units("log_likelihood", c), units("log_likelihood", 0)))});
      t.rows.push_back(row);
    }
    return {t};
  }

 private:
  struct Item {
    Tokens documents;
    std::string question;
    Strings answers;
  };

  void add(const json& line) {
    Item item;
    item.question = "Question: " + field<std::string>(o_.file, line, "question") + " Answer:";
    item.answers = field<Strings>(o_.file, line, "answers");
    const std::string where = o_.file + ":" + std::to_string(line.at("line").get<int>()) + " ctxs";
    if (!line.contains("ctxs") || !line.at("ctxs").is_array())
      fail<buzz::FileError>(where, "missing", "a list of title and text");
    std::string text;
    int number = 0;
    for (json document : line.at("ctxs")) {
      if (!document.is_object())
        fail<buzz::FileError>(where, printable(document.dump()), "an object of title and text");
      document["line"] = line.at("line");
      text += "Document " + std::to_string(++number) + ": " + field<std::string>(o_.file, document, "title") + "\n" +
              field<std::string>(o_.file, document, "text") + "\n";
    }
    if (text.empty()) fail<buzz::FileError>(where, "empty", "one document at least");
    item.documents = common_.tokenizer().encode(text);
    const std::size_t more =
        common_.tokenizer().encode_more(item.question).size() +
        (std::max)(static_cast<std::size_t>(o_.tokens), common_.tokenizer().encode_more(" " + item.answers[0]).size());
    if (item.documents.size() + more > static_cast<std::size_t>(common_.config().context))
      ++left_out_;
    else
      items_.push_back(std::move(item));
  }

  std::vector<json> ask(const Item& item, const Members& members) const {
    std::vector<json> results;
    for (const Said& said : say(common_, members, item.documents, item.question, item.answers[0], o_.tokens, "\n"))
      results.push_back({{"answer", said.text},
                         {"exact", exact_match(said.text, item.answers) ? 1 : 0},
                         {"f1", answer_f1(said.text, item.answers)},
                         {"log_likelihood", said.log_likelihood()},
                         {"cost", said.cost}});
    return results;
  }

  const Common& common_;
  DataOptions o_;
  std::vector<Item> items_;
  int left_out_ = 0;
};

}  // namespace evaluate
