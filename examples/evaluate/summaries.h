// summaries --data: document and summary a line, or article and highlights; the document is read and evicted, then
// summed up.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/data_questions.h"

namespace evaluate {

constexpr int summary_tokens = 64;  // of a summary, at most, where nothing is said

class Summaries {
 public:
  Summaries(const Common& common, const DataOptions& options) : common_(common), o_(options) {
    buzz::require_at_least("most", o_.most, 1);
    buzz::require_range("summary tokens", o_.tokens, 1, common.config().context / 2);
    for (const json& line : read_jsonl(o_.file, static_cast<std::size_t>(o_.most))) add(line);
  }

  std::vector<Table> run() const {
    const std::size_t n = items_.size();
    const auto& contenders = common_.contenders();
    const std::vector<json> results = common_.results(
        contenders.size(), n,
        [&](std::size_t c, std::size_t i) -> json {
          const Item& item = items_[i];
          return {{"task", "summaries"},
                  {"policy", contenders[c].key},
                  {"rows", contenders[c].budget.of(static_cast<int>(item.document.size()))},
                  {"document", hash_of(item.document)},
                  {"summary", item.summary},
                  {"tokens", o_.tokens},
                  {"once", common_.options().once}};
        },
        [&](std::size_t i) { return items_[i].document.size() + static_cast<std::size_t>(o_.tokens); },
        [&](std::size_t i, const Members& members) { return sum_up(items_[i], members); }, common_.together());
    Table t{"Summaries of " + o_.file + ", documents " + common_.how_read(),
            std::to_string(cut_) + " documents cut to the model's context, " + std::to_string(o_.tokens) +
                " tokens a summary\n[95%: bootstrap over documents; the difference is paired] ROUGE: F1 against the "
                "reference, no stemming; self-BLEU: of all summaries of a row; nats/token: of the reference summary",
            with_costs({{"n"},
                        {"ROUGE-1", 3},
                        {"ROUGE-2", 3},
                        {"ROUGE-L", 3},
                        {"self-BLEU", 3},
                        {"nats/token", 3},
                        {"nats/token - full", 3}}),
            {}};
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      std::vector<const json*> mine;
      Strings texts;
      for (std::size_t i = 0; i < n; ++i) {
        mine.push_back(&results[c * n + i]);
        texts.push_back(results[c * n + i].at("text").get<std::string>());
      }
      const auto rouge = [&](const char* name) {
        std::vector<Unit> out;
        for (const json* r : mine) out.push_back({r->at(name).get<double>(), 1});
        return bootstrap(out);
      };
      const auto loss = [&](std::size_t of) {
        std::vector<Unit> out;
        for (std::size_t i = 0; i < n; ++i)
          out.push_back({results[of * n + i].at("nll").get<double>(), results[of * n + i].at("scored").get<double>()});
        return out;
      };
      std::vector<Cell> row = cost_cells(contenders[c], mine);
      row.insert(row.end(), {n, rouge("rouge1"), rouge("rouge2"), rouge("rougeL"), self_bleu(texts), bootstrap(loss(c)),
                             bootstrap(difference(loss(c), loss(0)))});
      t.rows.push_back(row);
    }
    return {t};
  }

 private:
  struct Item {
    Tokens document;
    std::string summary;
  };

  void add(const json& line) {
    const bool is_news = line.contains("article");  // CNN/DailyMail's names; XSUM's are the others
    Item item;
    item.summary = field<std::string>(o_.file, line, is_news ? "highlights" : "summary");
    item.document = common_.tokenizer().encode(field<std::string>(o_.file, line, is_news ? "article" : "document"));
    const int longest =
        (std::max)(o_.tokens, static_cast<int>(common_.tokenizer().encode_more(" " + item.summary).size()));
    const int room = common_.config().context - longest - 8;  // and the word that asks for it
    buzz::require_at_least("context left for the document", room, 1);
    if (static_cast<int>(item.document.size()) > room) {
      item.document.resize(static_cast<std::size_t>(room));
      ++cut_;
    }
    items_.push_back(std::move(item));
  }

  std::vector<json> sum_up(const Item& item, const Members& members) const {
    std::vector<json> results;
    for (const Said& said : say(common_, members, item.document, "\nSummary:", item.summary, o_.tokens, ""))
      results.push_back({{"text", said.text},
                         {"rouge1", rouge_n(said.text, item.summary, 1)},
                         {"rouge2", rouge_n(said.text, item.summary, 2)},
                         {"rougeL", rouge_l(said.text, item.summary)},
                         {"nll", -said.log_likelihood()},
                         {"scored", said.reference.size()},
                         {"cost", said.cost}});
    return results;
  }

  const Common& common_;
  DataOptions o_;
  std::vector<Item> items_;
  int cut_ = 0;
};

}  // namespace evaluate
