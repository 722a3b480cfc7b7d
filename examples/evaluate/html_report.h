// report: all measurements that need no file, on one page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/agreement.h"
#include "evaluate/heat_maps.h"
#include "evaluate/perplexity.h"
#include "evaluate/questions.h"

namespace evaluate {

struct ReportOptions {
  bool quick = false;  // a sixth of the work
  std::string out = "report.html";
  std::vector<std::string> texts;  // more running text, and filler, than what is made up
};

class Report {
 public:
  Report(const Common& common, ReportOptions options)
      : common_(common), o_(std::move(options)), page_("What a bounded KV cache costs in accuracy") {}

  /// Measures; then the tables are the same as the page's.
  std::vector<Table> run() {
    introduction();
    questions();
    perplexity();
    needle();
    agreement();
    rows_over_time();
    return tables_;
  }
  std::string html() const { return page_.text(); }

 private:
  int of(int quick, int thorough) const { return o_.quick ? quick : thorough; }

  void show(const std::vector<Table>& tables) {
    for (const Table& t : tables) {
      page_.table(t);
      tables_.push_back(t);
    }
  }

  void introduction() {
    const Config& c = common_.config();
    page_.paragraph("Model " + std::filesystem::path(common_.options().model).filename().string() + " (hash " +
                    common_.model_hash() + "): " + tiny_llama::grouped(common_.model().parameters) +
                    " parameters, context " + std::to_string(c.context) + ". Chunks of " +
                    std::to_string(common_.options().chunk) + " tokens, seed " +
                    std::to_string(common_.options().seed) +
                    ". Policies are compared at equal peak bytes: a budget bounds sink, window, middle and the tokens "
                    "of a call together. peak rows: the most that there were in a layer; KV: their keys and values in "
                    "all layers; allocated: with scores, positions and scratch.");
    page_.code("Policies:" + tiny_llama::lines_of(tiny_llama::policies()) + "\n");
  }

  /// The value of a named column against KV KiB, one series a policy; the full cache's is 0.
  std::vector<Series> against_memory(const Table& t, const std::string& name) const {
    const std::size_t x = t.column("KV KiB"), y = t.column(name);
    std::vector<Series> series;
    for (const auto& row : t.rows) {
      if (row[0].text == "full") continue;
      std::size_t s = 0;
      while (s < series.size() && series[s].name != row[0].text) ++s;
      if (s == series.size()) series.push_back({row[0].text, {}});
      series[s].points.push_back({row[x].number.value, row[y].number.value});
    }
    for (Series& s : series) std::sort(s.points.begin(), s.points.end());
    return series;
  }

  void questions() {
    const Common common = common_.with_budgets(o_.quick ? std::vector<std::string>{"40%", "20%"}
                                                        : std::vector<std::string>{"60%", "40%", "30%", "20%", "10%"});
    page_.heading("Questions");
    page_.paragraph("Documents are read in chunks and evicted; only then each question is asked.");
    QuestionsOptions o;
    o.sets = 20;
    MadeUpOptions documents;
    std::vector<std::string> fillers = {""};
    fillers.insert(fillers.end(), o_.texts.begin(), o_.texts.end());
    for (const std::string& filler : fillers) {
      documents.filler = filler;
      const std::vector<Table> tables = Questions(common, o, made_up(documents)).run();
      const std::string caption = "Log-likelihood of the right answer, less the full cache's, against KV KiB";
      page_.plot(caption, line_plot(caption, "KV KiB", "log-likelihood - full",
                                    against_memory(tables[0], "log-likelihood - full")));
      show(tables);
    }
    if (!o_.quick) show(Questions(common_.with_budgets({"40%", "20%"}), o, made_up({{}, ""})).run());
    page_.paragraph("The questions are part of the prompt that is evicted, three facts an answer.");
    QuestionsOptions before;
    before.asked = "before";
    before.answers = 3;
    before.sets = of(3, 20);
    before.questions = 3;
    show(Questions(common_.with_budgets({"40%"}), before, made_up({})).run());
  }

  void perplexity() {
    page_.heading("Perplexity");
    if (o_.texts.empty())
      page_.paragraph(
          "The text is made-up documents, end to end: each word is known from the last few or from none, so that "
          "forgetting costs little and may even help. Give running text with --text.");
    PerplexityOptions o;
    o.pieces = of(2, 8);
    o.stream = of(4, 20) * 1024;
    show(Perplexity(common_.with_budgets({"40%", "16%"}), o, texts_or_made_up(common_, o_.texts, o.stream)).run());
  }

  void needle() {
    page_.heading("Needle");
    page_.paragraph("One fact in a document of filler, asked for after the document was read and evicted to 20%.");
    NeedleOptions o;
    o.trials = of(3, 10);
    if (o_.quick) o.lengths = {256, 768};
    const std::vector<Table> tables = Needle(common_.with_budgets({"20%"}), o).run();
    show_heat_maps(page_, tables[0]);
    show(tables);
  }

  void agreement() {
    page_.heading("Agreement");
    AgreementOptions o;
    o.pieces = of(2, 4);
    o.tokens = of(100, 250);
    const std::vector<Text> texts = texts_or_made_up(common_, o_.texts, o.pieces * o.prompt);
    show(Agreement(common_.with_budgets({"40%"}), o, texts).run());
  }

  void rows_over_time() {
    page_.heading("Rows over time");
    const Common common = common_.with_budgets({"40%"});
    const int tokens = common.config().context;
    const Tokens text =
        piece_of(common, made_up_text(common, static_cast<std::size_t>(tokens)), 0, static_cast<std::size_t>(tokens));
    const auto& contenders = common.contenders();
    const std::vector<json> results = common.results(
        contenders.size(), 1,
        [&](std::size_t c, std::size_t) -> json {
          return {{"task", "rows"},
                  {"policy", contenders[c].key},
                  {"rows", contenders[c].budget.of(tokens)},
                  {"tokens", hash_of(text)}};
        },
        [&](std::size_t) { return text.size(); },
        [&](std::size_t, const Members& members) {
          Sequences s = common.sequences(members, tokens, tokens);
          std::vector<std::vector<double>> held(members.size());
          const auto chunk = static_cast<std::size_t>(common.options().chunk);
          for (std::size_t at = 0; at < text.size(); at += chunk) {
            const auto begin = text.begin() + static_cast<std::ptrdiff_t>(at);
            s.read(Tokens(begin, begin + static_cast<std::ptrdiff_t>((std::min)(chunk, text.size() - at))));
            for (std::size_t m = 0; m < members.size(); ++m) held[m].push_back(s.rows(static_cast<int>(m)));
          }
          std::vector<json> made;
          for (std::size_t m = 0; m < members.size(); ++m)
            made.push_back({{"held", held[m]}, {"cost", cost_of(s, static_cast<int>(m))}});
          return made;
        },
        common.together());
    std::vector<Series> series;
    Table t{"Rows held while " + std::to_string(tokens) + " tokens are read, at 40%",
            "held: after a call, once there was an eviction",
            with_costs({{"fewest held"}, {"mean held"}}),
            {}};
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      const auto held = results[c].at("held").get<std::vector<double>>();
      Series line{contenders[c].policy, {}};
      double fewest = held.back(), sum = 0, count = 0;
      bool evicted = false;
      for (std::size_t i = 0; i < held.size(); ++i) {
        const auto read =
            static_cast<double>((std::min)(text.size(), (i + 1) * static_cast<std::size_t>(common.options().chunk)));
        line.points.push_back({read, held[i]});
        evicted = evicted || held[i] < read;
        if (!evicted) continue;
        fewest = (std::min)(fewest, held[i]);
        sum += held[i];
        ++count;
      }
      if (c > 0) add(series, line);  // the full cache's is the diagonal, and would make the others flat
      std::vector<Cell> row = cost_cells(contenders[c], {&results[c]});
      row.insert(row.end(), {fewest, count == 0 ? held.back() : sum / count});
      t.rows.push_back(row);
    }
    page_.plot("Rows held, by tokens read (the full cache would hold them all)",
               line_plot("Rows held, by tokens read", "tokens read", "rows", series));
    show({t});
  }

  /// Policies of one budget often hold as many rows: they share a line.
  static void add(std::vector<Series>& series, const Series& line) {
    for (Series& s : series)
      if (s.points == line.points) {
        s.name += ", " + line.name;
        return;
      }
    series.push_back(line);
  }

  const Common& common_;
  ReportOptions o_;
  Page page_;
  std::vector<Table> tables_;
};

}  // namespace evaluate
