// needle: one fact in a long document, at every depth of documents of several lengths.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/answers.h"
#include "evaluate/facts.h"

namespace evaluate {

struct NeedleOptions {
  std::vector<int> lengths = {256, 512, 1024, 1900};  // tokens of the document
  std::vector<double> depths = {0, 25, 50, 75, 100};  // of the fact, in %
  int trials = 10;                                    // documents of each length and depth
  std::string filler;                                 // a text file whose sentences are the hay; empty: templates
};

class Needle {
 public:
  Needle(const Common& common, const NeedleOptions& options) : common_(common), o_(options) {
    buzz::require_range("trials", o_.trials, 1, 1 << 16);
    for (int length : o_.lengths) buzz::require_range("length", length, 64, common.config().context - 64);
    for (double d : o_.depths)
      if (!buzz::is_finite(d) || d < 0 || d > 100) fail("depth", std::to_string(d), "0 to 100");
    if (o_.lengths.empty() || o_.depths.empty()) fail("lengths and depths", "none", "at least one of each");
    if (!o_.filler.empty()) hay_ = sentences(tiny_llama::read_text(o_.filler));
    for (int length : o_.lengths)
      for (double depth : o_.depths) cells_.push_back({length, depth});
  }

  std::vector<Table> run() const {
    const std::size_t n = cells_.size();
    const auto& contenders = common_.contenders();
    const std::vector<json> results = common_.results(
        contenders.size(), n,
        [&](std::size_t c, std::size_t i) -> json {
          const Place& place = cells_[i];
          return {{"task", "needle"},
                  {"policy", contenders[c].key},
                  {"budget", contenders[c].budget.text},
                  {"length", place.length},
                  {"depth", place.depth},
                  {"trials", o_.trials},
                  {"seed", common_.options().seed},
                  {"once", common_.options().once},
                  {"hay", hay_.empty() ? "" : hex(hash(json(hay_).dump()))}};
        },
        [&](std::size_t i) { return static_cast<std::size_t>(cells_[i].length * o_.trials); },
        [&](std::size_t i, const Members& members) { return measure(members, cells_[i]); }, common_.together());
    return {table(results, "exact", "Needle: share of right answers by length (a row) and depth in % (a column)", 2),
            table(results, "log_likelihood", "Needle: mean log-likelihood of the right answer", 3)};
  }

 private:
  struct Place {
    int length;
    double depth;
  };
  struct Hay {
    std::string text;
    Question question;
  };

  /// Filler up to the length, and the fact between two of its sentences.
  Hay make(const Place& place, int trial) const {
    // The same documents for every depth and every policy.
    tiny_llama::Random random(common_.options().seed * 1000003 + 700001 + static_cast<std::uint64_t>(trial));
    std::string head, fact;
    Hay hay;
    if (hay_.empty()) {
      tiny_llama::DocumentOptions one;
      one.documents = one.fewest_facts = one.most_facts = 1;
      one.fewest_fillers = one.most_fillers = 0;
      const tiny_llama::Documents made = tiny_llama::make_documents(random, one);
      const std::size_t line = made.text.find('\n') + 1;
      head = made.text.substr(0, line);
      fact = made.text.substr(line, made.text.size() - line - 1);
      hay.question = made.questions[0];
    } else {
      const Fact drawn = draw_facts(random, 1)[0];
      fact = drawn.sentence;
      hay.question = drawn.question;
    }
    std::size_t tokens = common_.tokenizer().encode(head + fact).size();
    std::vector<std::string> lines;
    while (tokens < static_cast<std::size_t>(place.length)) {
      lines.push_back(hay_.empty() ? tiny_llama::join(tiny_llama::filler(random)) : random.of(hay_));
      tokens += common_.tokenizer().encode_more(" " + lines.back()).size();
    }
    const auto at = std::lround(place.depth / 100 * static_cast<double>(lines.size()));
    lines.insert(lines.begin() + at, fact);
    hay.text = head;
    for (std::size_t i = 0; i < lines.size(); ++i) hay.text += (i == 0 ? "" : " ") + lines[i];
    hay.text += "\n";
    return hay;
  }

  std::vector<json> measure(const Members& members, const Place& place) const {
    std::vector<json> results(members.size(), {{"exact", 0.0}, {"log_likelihood", 0.0}});
    for (int t = 0; t < o_.trials; ++t) {
      const Hay hay = make(place, t);
      const Sequences s = common_.read(members, common_.tokenizer().encode(hay.text), 64);
      const std::vector<Answer> answers = ask(s, common_.tokenizer(), {hay.question}, false);
      for (std::size_t m = 0; m < members.size(); ++m) {
        results[m]["exact"].get_ref<double&>() += (answers[m].exact ? 1.0 : 0.0) / o_.trials;
        results[m]["log_likelihood"].get_ref<double&>() += answers[m].log_likelihood / o_.trials;
        results[m]["cost"] = cost_of(s, static_cast<int>(m));
      }
    }
    return results;
  }

  Table table(const std::vector<json>& results, const char* field, const std::string& title, int decimals) const {
    Table t{
        title, std::to_string(o_.trials) + " documents a cell; budgets are shares of the document's length", {}, {}};
    t.columns = with_costs({{"length"}});
    for (double d : o_.depths) t.columns.push_back({tiny_llama::fixed(d, 0) + "%", decimals});
    const std::size_t depths = o_.depths.size();
    for (std::size_t c = 0; c < common_.contenders().size(); ++c)
      for (std::size_t l = 0; l < o_.lengths.size(); ++l) {
        std::vector<const json*> mine;
        for (std::size_t d = 0; d < depths; ++d) mine.push_back(&results[c * cells_.size() + l * depths + d]);
        std::vector<Cell> row = cost_cells(common_.contenders()[c], mine);
        row.push_back(o_.lengths[l]);
        for (const json* r : mine) row.push_back(r->at(field).get<double>());
        t.rows.push_back(row);
      }
    return t;
  }

  const Common& common_;
  NeedleOptions o_;
  std::vector<std::string> hay_;
  std::vector<Place> cells_;
};

}  // namespace evaluate
