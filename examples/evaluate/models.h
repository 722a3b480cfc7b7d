// models: policies on several models, task by task, on one page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/data_questions.h"
#include "evaluate/facts.h"
#include "evaluate/heat_maps.h"
#include "evaluate/perplexity.h"
#include "evaluate/questions.h"
#include "evaluate/summaries.h"

namespace evaluate {

struct ModelsOptions {
  std::vector<std::string> models, calibrations;  // files, of the same models in the same order; "none": it has none
  std::vector<std::string> tasks = {"once", "stream", "pairs", "needle", "perplexity"};
  FactsOptions facts;
  std::vector<int> tokens = {1700};  // of a set of facts: of each model, or of all
  int sets = 7;                      // of facts, and of pairs
  int pieces = 4;                    // of the text, for perplexity
  std::string documents, summaries;  // files, without which there are no tasks of these names
  int most = 150;                    // lines of each
  std::string out = "models.html";
};

/// The library's policies as each does best at recall, that none is beaten for its window alone, and the reference.
inline std::vector<std::string> models_policies() {
  std::vector<std::string> policies = {"calibrated", "streaming",    "heavy_hitter",       "snap_kv",
                                       "tova",       "key_outliers", "beehive:window=0.2", "key_diff"};
  for (const char* name : {"tri_attention", "expected_attention", "leverage", "lag_kv", "cap_kv"})
    policies.push_back(name + std::string(":window=0.1"));
  policies.push_back("replay");
  return policies;
}

class Models {
 public:
  /// common: of all models but `model`. built: as Common has it. Errors: lists that do not go together; no such task.
  Models(CommonOptions common, std::string built, ModelsOptions options)
      : common_(std::move(common)),
        built_(std::move(built)),
        o_(std::move(options)),
        page_("What a bounded KV cache costs, model by model") {
    if (o_.models.empty()) fail("models", "none", "at least one");
    if (o_.calibrations.empty()) o_.calibrations.assign(o_.models.size(), "none");
    if (o_.tokens.size() == 1) o_.tokens.assign(o_.models.size(), o_.tokens[0]);
    require_one_each("calibrations", o_.calibrations.size());
    require_one_each("tokens", o_.tokens.size());
    if (o_.tasks.empty()) fail("tasks", "none", "at least one");
    for (const std::string& t : o_.tasks) find(t);
    add_task("documents", o_.documents);
    add_task("summaries", o_.summaries);
  }

  /// Measures; the tables of all models, as the page has them behind what they come to.
  std::vector<Table> run() {
    // Whatever is misspelt is told before hours of work.
    for (std::size_t m = 0; m < o_.models.size(); ++m) of(m, find(o_.tasks[0]));
    introduction();
    for (const std::string& t : o_.tasks) measure(find(t));
    return tables_;
  }
  /// What they come to: policies down, models and budgets across.
  const std::vector<Table>& summaries() const { return summaries_; }
  std::string html() const { return page_.text(); }

 private:
  struct Task {
    const char *name, *text;
    bool once;
    std::vector<Column> shown;  // columns of its table that are put together
    Table (Models::*run)(const Common&, std::size_t model) const;
  };

  static const Task& find(const std::string& name) {
    static const std::vector<Column> answers = {{"kept of full's right", 2}, {"log-likelihood - full", 2}};
    static const std::vector<Task> all = {
        {"once", "Facts, after the prompt was read whole and cut once", true, answers, &Models::facts},
        {"stream", "Facts, in a stream that never holds more rows", false, answers, &Models::facts},
        {"pairs", "Keys and values, after the prompt was read whole and cut once", true, answers, &Models::pairs},
        {"needle", "One fact at every depth, read whole and cut once", true, {}, &Models::needle},
        {"perplexity", "Running text, in a stream", false, {{"rise over full %", 2}}, &Models::perplexity},
        {"documents",
         "Questions of documents, after they were read whole and cut once",
         true,
         {{"F1 - full", 3}, {"log-likelihood - full", 2}},
         &Models::documents},
        {"summaries",
         "Summaries of documents that were read whole and cut once",
         true,
         {{"ROUGE-1", 3}, {"ROUGE-2", 3}, {"ROUGE-L", 3}, {"nats/token - full", 2}},
         &Models::summed_up},
    };
    std::string known;
    for (const Task& t : all) {
      buzz::add_name(&known, t.name);
      if (t.name == name) return t;
    }
    fail("task", printable(name), known);
  }

  /// A file of data is wanted by its task, and asks for it.
  void add_task(const char* name, const std::string& file) {
    const bool named = std::find(o_.tasks.begin(), o_.tasks.end(), name) != o_.tasks.end();
    if (named && file.empty()) fail<buzz::FileError>(name, "none", "a file of JSON lines");
    if (file.empty()) return;
    read_jsonl(file, static_cast<std::size_t>(o_.most));  // what is wrong with it is told before hours of work
    if (!named) o_.tasks.push_back(name);
  }
  void require_one_each(const char* what, std::size_t count) const {
    if (count != o_.models.size())
      fail(what, static_cast<long long>(count), std::to_string(o_.models.size()) + ", one a model");
  }
  static std::string name_of(const std::string& model) { return std::filesystem::path(model).stem().string(); }

  /// The policies that take part, by their numbers: one without its weights does not, nor replay in a stream.
  std::vector<std::size_t> entered(std::size_t model, const Task& task) const {
    std::vector<std::size_t> some;
    for (std::size_t p = 0; p < common_.policies.size(); ++p) {
      const std::string& policy = common_.policies[p];
      if (policy == "full" || (is_replay(policy) && !task.once)) continue;
      if (needs_weights(policy) && o_.calibrations[model] == "none") continue;
      some.push_back(p);
    }
    return some;
  }
  static bool needs_weights(const std::string& policy) {
    return buzz::policy_name(policy.substr(0, policy.find(':'))) == "calibrated" &&
           policy.find("weights=") == std::string::npos;
  }

  Common of(std::size_t model, const Task& task) const {
    CommonOptions o = common_;
    o.model = o_.models[model];
    o.once = task.once;
    o.policies.clear();
    for (std::size_t p : entered(model, task)) {
      std::string policy = common_.policies[p];
      if (needs_weights(policy))
        policy += (policy.find(':') == std::string::npos ? ":" : ",") + ("weights=" + o_.calibrations[model]);
      o.policies.push_back(policy);
    }
    return Common(o, built_);
  }

  void introduction() {
    std::string of_what = "Models:";
    for (const std::string& m : o_.models) of_what += " " + name_of(m);
    page_.paragraph(of_what + ". Text: " + std::filesystem::path(o_.facts.text).filename().string() + ", seed " +
                    std::to_string(common_.seed) + ". Budgets are shares of the rows that a full cache holds.");
    page_.paragraph(
        "kept of full's right: of the answers that the full cache gets right, the share that is right with fewer rows. "
        "log-likelihood - full: what the right answers lose. [95%]");
  }

  void measure(const Task& task) {
    page_.heading(task.text);
    std::vector<Table> tables;
    for (std::size_t m = 0; m < o_.models.size(); ++m) {
      std::fprintf(stderr, "%s: %s (%zu of %zu)\n", task.text, printable(name_of(o_.models[m])).c_str(), m + 1,
                   o_.models.size());
      const Common common = of(m, task);
      tables.push_back((this->*task.run)(common, m));
      tables.back().title = name_of(o_.models[m]) + ": " + tables.back().title;
    }
    for (const Column& column : task.shown) {
      summaries_.push_back(together(task, tables, column));
      page_.table(summaries_.back());
      page_.begin_row();
      for (std::size_t m = 0; m < tables.size(); ++m) plot(task, m, tables[m], column);
      page_.end_row();
    }
    for (const Table& t : tables) {
      if (t.column("length") < t.columns.size()) show_heat_maps(page_, t);
      page_.table(t);
      tables_.push_back(t);
    }
  }

  /// Where a task's table has the policy's figure at a budget: behind the full cache's row they are in the order of
  /// budgets and, of each, policies.
  const Cell& figure(const Task& task, std::size_t model, const Table& t, const Column& column, std::size_t budget,
                     std::size_t policy) const {
    static const Cell nothing;
    const std::vector<std::size_t> some = entered(model, task);
    const auto at = static_cast<std::size_t>(std::find(some.begin(), some.end(), policy) - some.begin());
    return at == some.size() ? nothing : t.rows[1 + budget * some.size() + at][t.column(column.name)];
  }

  Table together(const Task& task, const std::vector<Table>& tables, const Column& column) const {
    Table all{std::string(task.text) + ": " + column.name, "", {{"policy"}}, {}};
    for (const std::string& model : o_.models)
      for (const std::string& budget : common_.budgets)
        all.columns.push_back({name_of(model) + " " + budget, column.decimals});
    for (std::size_t p = 0; p < common_.policies.size(); ++p) {
      std::vector<Cell> row = {common_.policies[p]};
      bool somewhere = false;
      for (std::size_t m = 0; m < o_.models.size(); ++m) {
        const std::vector<std::size_t> some = entered(m, task);
        somewhere = somewhere || std::find(some.begin(), some.end(), p) != some.end();
        for (std::size_t b = 0; b < common_.budgets.size(); ++b)
          row.push_back(figure(task, m, tables[m], column, b, p));
      }
      if (somewhere) all.rows.push_back(row);
    }
    return all;
  }

  void plot(const Task& task, std::size_t model, const Table& t, const Column& column) {
    std::vector<Series> series;
    for (std::size_t p : entered(model, task)) {
      series.push_back({common_.policies[p], {}});
      for (std::size_t b = 0; b < common_.budgets.size(); ++b) {
        const Cell& cell = figure(task, model, t, column, b, p);
        const Budget budget = parse_budget(common_.budgets[b]);
        if (cell.kind != Cell::Kind::text)
          series.back().points.emplace_back(budget.share != 0 ? 100 * budget.share : budget.rows, cell.number.value);
      }
      std::sort(series.back().points.begin(), series.back().points.end());
    }
    const std::string caption = name_of(o_.models[model]) + ": " + column.name;
    page_.plot(caption, line_plot(caption, "rows, in % of the full cache's", column.name, series, 560));
  }

  Table facts(const Common& common, std::size_t model) const {
    FactsOptions told = o_.facts;
    told.tokens = o_.tokens[model];
    const Facts source(common.tokenizer(), told);
    QuestionsOptions asked;
    asked.sets = o_.sets;
    asked.questions = told.facts;
    return Questions(common, asked, {source.name(), source}).run()[0];
  }
  Table pairs(const Common& common, std::size_t) const {
    const PairsOptions told;
    const Pairs source(told);
    QuestionsOptions asked;
    asked.sets = o_.sets;
    asked.questions = told.questions;
    return Questions(common, asked, {source.name(), source}).run()[0];
  }
  Table needle(const Common& common, std::size_t) const {
    NeedleOptions o;
    o.filler = o_.facts.text;
    o.lengths = {512, 1024, 1900};
    o.trials = (std::max)(1, o_.sets / 2);
    return Needle(common.with_budgets({"20%"}), o).run()[0];
  }
  Table perplexity(const Common& common, std::size_t) const {
    PerplexityOptions o;
    o.texts = {o_.facts.text};
    o.length = 1600;
    o.pieces = o_.pieces;
    o.stream = 0;
    return Perplexity(common, o, read_texts(common, o.texts)).run()[0];
  }

  Table documents(const Common& common, std::size_t) const {
    return DataQuestions(common, {o_.documents, o_.most, DataOptions().tokens}).run()[0];
  }
  Table summed_up(const Common& common, std::size_t) const {
    return Summaries(common, {o_.summaries, o_.most, summary_tokens}).run()[0];
  }

  CommonOptions common_;
  std::string built_;
  ModelsOptions o_;
  Page page_;
  std::vector<Table> tables_, summaries_;
};

}  // namespace evaluate
