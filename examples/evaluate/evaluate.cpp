// buzz-evaluate: what a bounded cache costs in accuracy, policy by policy, at equal peak bytes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "evaluate/common.h"
#include "evaluate/perplexity.h"
#include "evaluate/questions.h"

namespace {

using namespace evaluate;

/// Prints the tables, and writes them where they are wanted.
void publish(const CommonOptions& o, const std::vector<Table>& tables) {
  json all = json::array();
  std::string csv;
  for (const Table& t : tables) {
    std::printf("%s\n", t.as_text().c_str());
    all.push_back(t.as_json());
    csv += (csv.empty() ? "" : "\n") + t.title + "\n" + t.as_csv();
  }
  const auto write = [](const char* what, const std::string& path, const std::string& text) {
    if (path.empty()) return;
    std::ofstream out(path, std::ios::binary);
    out << text;
    if (!out.flush()) fail(what, printable(path), "a file that can be written");
  };
  const json whole = {{"model", o.model}, {"chunk", o.chunk}, {"seed", o.seed}, {"tables", all}};
  write("json", o.json, whole.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  write("csv", o.csv, csv);
}

void declare_common(CLI::App& app, CommonOptions& o) {
  app.add_option("--model", o.model, "A GGUF file (llama architecture; F32, F16 or Q8_0)")->capture_default_str();
  std::string names;
  for (const NamedPolicy& p : policies())
    names += "\n  " + p.name + ": " + p.about + (p.settings.empty() ? "" : " (" + p.settings + ")");
  app.add_option("--policies", o.policies, "Beside full; each a name, or name:key=value,key=value" + names);
  app.add_option("--budgets", o.budgets, "Rows, as 256, or shares of the full cache's, as 40%")->capture_default_str();
  app.add_option("--chunk", o.chunk, "Tokens read at a time")->capture_default_str();
  app.add_option("--seed", o.seed, "Of all that is drawn")->capture_default_str();
  app.add_option("--threads", o.threads, "Results do not depend on it")->capture_default_str();
  app.add_option("--json", o.json, "Write the tables to this file");
  app.add_option("--csv", o.csv, "Write the tables to this file");
  app.add_option("--cache", o.cache, "A folder where results are kept, so that an interrupted run goes on");
}

CLI::App* declare_perplexity(CLI::App& app, PerplexityOptions& o) {
  CLI::App* task = app.add_subcommand("perplexity", "Running text, within the context and far past it");
  task->add_option("--text", o.texts, "Text files")->required();
  task->add_option("--length", o.length, "Tokens of a piece within the context; 0: the context")->capture_default_str();
  task->add_option("--pieces", o.pieces, "Pieces of each text; 0: none")->capture_default_str();
  task->add_option("--stream", o.stream, "Tokens read in one go, past the context; 0: none")->capture_default_str();
  task->add_option("--buckets", o.buckets, "Columns of the tables by position")->capture_default_str();
  return task;
}

CLI::App* declare_questions(CLI::App& app, QuestionsOptions& o) {
  CLI::App* task = app.add_subcommand("questions", "Made-up documents, read, evicted and asked about");
  task->add_option("--sets", o.sets, "Sets of documents")->capture_default_str();
  task->add_option("--questions", o.questions, "Asked of each set")->capture_default_str();
  task->add_option("--answers", o.answers, "Facts that make one answer")->capture_default_str();
  task->add_option("--asked", o.asked, "after the eviction, or before")->capture_default_str();
  task->add_flag("--whole", o.whole, "Read the documents in one call, and evict once");
  task->add_option("--documents", o.documents.documents, "Of a set")->capture_default_str();
  task->add_option("--fewest-facts", o.documents.fewest_facts, "Of a document")->capture_default_str();
  task->add_option("--most-facts", o.documents.most_facts, "Of a document")->capture_default_str();
  task->add_option("--fewest-fillers", o.documents.fewest_fillers, "Sentences that tell nothing")
      ->capture_default_str();
  task->add_option("--most-fillers", o.documents.most_fillers, "Sentences that tell nothing")->capture_default_str();
  task->add_option("--filler", o.filler, "A text file whose sentences stand between the facts");
  return task;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What a bounded cache costs in accuracy, policy by policy, at equal peak bytes.", "buzz-evaluate");
  app.require_subcommand(1);
  CommonOptions common;
  PerplexityOptions perplexity;
  QuestionsOptions questions;
  const std::vector<std::pair<CLI::App*, std::function<std::vector<Table>(const Common&)>>> tasks = {
      {declare_perplexity(app, perplexity),
       [&](const Common& c) { return Perplexity(c, perplexity, read_texts(c, perplexity.texts)).run(); }},
      {declare_questions(app, questions), [&](const Common& c) { return Questions(c, questions).run(); }},
  };
  for (const auto& [task, run] : tasks) declare_common(*task, common);
  try {
    app.parse(argc, argv);
    for (const auto& [task, run] : tasks)
      if (task->parsed()) publish(common, run(Common(common, __DATE__ " " __TIME__)));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const buzz::InvalidArgument& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "buzz-evaluate: " << error.what() << "\n";
    return 2;
  }
}
