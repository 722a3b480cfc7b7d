// buzz-evaluate: what a bounded cache costs in accuracy, policy by policy, at equal peak bytes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/declare.h"
#include "tiny_llama/program.h"
#include "tiny_llama/text_file.h"

namespace {

using namespace evaluate;

void write(const char* what, const std::string& path, const std::string& text) {
  if (!path.empty()) tiny_llama::write_text(what, path, text);
}

/// Prints the tables, and writes them where they are wanted.
void publish(const CommonOptions& o, const std::vector<Table>& tables) {
  json all = json::array();
  std::string csv;
  for (const Table& t : tables) {
    std::printf("%s\n", t.as_text().c_str());
    all.push_back(t.as_json());
    csv += (csv.empty() ? "" : "\n") + t.title + "\n" + t.as_csv();
  }
  const json whole = {{"model", o.model}, {"chunk", o.chunk}, {"seed", o.seed}, {"tables", all}};
  write("json", o.json, whole.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  write("csv", o.csv, csv);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What a bounded cache costs in accuracy, policy by policy, at equal peak bytes.", "buzz-evaluate");
  app.require_subcommand(1);
  CommonOptions common;
  PerplexityOptions perplexity;
  QuestionsOptions questions, facts, pairs;
  MadeUpOptions made_up_documents;
  FactsOptions facts_told;
  PairsOptions pairs_told;
  DataOptions data, summaries;
  summaries.tokens = summary_tokens;
  NeedleOptions needle;
  AgreementOptions agreement;
  ReportOptions report;
  ModelsOptions models;
  using Run = std::function<std::vector<Table>(const Common&)>;
  const std::vector<std::pair<CLI::App*, Run>> tasks = {
      {declare(app, perplexity),
       [&](const Common& c) { return Perplexity(c, perplexity, read_texts(c, perplexity.texts)).run(); }},
      {declare(app, questions, made_up_documents, data),
       [&](const Common& c) {
         return data.file.empty() ? Questions(c, questions, made_up(made_up_documents)).run()
                                  : DataQuestions(c, data).run();
       }},
      {declare(app, facts, facts_told),
       [&](const Common& c) {
         const Facts source(c.tokenizer(), facts_told);
         facts.questions = facts_told.facts;
         return Questions(c, facts, {source.name(), source}).run();
       }},
      {declare(app, pairs, pairs_told),
       [&](const Common& c) {
         const Pairs source(pairs_told);
         pairs.questions = pairs_told.questions;
         return Questions(c, pairs, {source.name(), source}).run();
       }},
      {declare(app, needle), [&](const Common& c) { return Needle(c, needle).run(); }},
      {declare(app, agreement),
       [&](const Common& c) {
         return Agreement(c, agreement, texts_or_made_up(c, agreement.texts, 4 * agreement.prompt)).run();
       }},
      {declare_summaries(app, summaries), [&](const Common& c) { return Summaries(c, summaries).run(); }},
      {declare(app, report),
       [&](const Common& c) {
         Report page(c, report);
         std::vector<Table> tables = page.run();
         write("out", report.out, page.html());
         return tables;
       }},
  };
  for (const auto& [task, run] : tasks) declare_common(*task, common);
  CLI::App* const several = declare(app, models);
  declare_common(*several, common);
  return tiny_llama::run_program(app, argc, argv, [&] {
    const std::string built = __DATE__ " " __TIME__;
    for (const auto& [task, run] : tasks)
      if (task->parsed()) publish(common, run(Common(common, built)));
    if (!several->parsed()) return;
    if (several->count("--policies") == 0) common.policies = models_policies();
    if (several->count("--budgets") == 0) common.budgets = {"40%", "20%", "10%"};
    Models page(common, built, models);
    publish(common, page.run());
    for (const Table& t : page.summaries()) std::printf("%s\n", t.as_text().c_str());
    write("out", models.out, page.html());
  });
}
