// The command line of each task.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "evaluate/agreement.h"
#include "evaluate/facts.h"
#include "evaluate/html_report.h"
#include "evaluate/models.h"
#include "evaluate/needle.h"
#include "evaluate/perplexity.h"
#include "evaluate/questions.h"
#include "evaluate/summaries.h"

namespace evaluate {

inline void declare_common(CLI::App& task, CommonOptions& o) {
  if (task.get_option_no_throw("--models") == nullptr)
    task.add_option("--model", o.model, "A GGUF file, of the llama or gemma3 architecture")->capture_default_str();
  task.add_option(
      "--policies", o.policies,
      "Beside full; each a name, or name:option=value,option=value:" + tiny_llama::lines_of(tiny_llama::policies()) +
          "\n  replay: with --once alone, and calibrated's options but weights: what reading the prompt again tells to "
          "keep");
  task.add_option("--budgets", o.budgets, "Rows, as 256, or shares of the full cache's, as 40%")->capture_default_str();
  task.add_option("--chunk", o.chunk, "Tokens read at a time")->capture_default_str();
  task.add_flag("--once", o.once,
                "Read each prompt whole with a full cache, and cut it once; perplexity has no prompt");
  task.add_option("--seed", o.seed, "Of all that is drawn")->capture_default_str();
  task.add_option("--threads", o.threads, "Results do not depend on it")->capture_default_str();
  task.add_option("--json", o.json, "Write the tables to this file");
  task.add_option("--csv", o.csv, "Write the tables to this file");
  task.add_option("--cache", o.cache, "A folder where results are kept, so that an interrupted run goes on");
  task.add_option(
      "--program", o.program,
      "The program's name in --cache, in place of when it was built: results of another build with the same "
      "name are taken for this one's");
}

inline CLI::App* declare(CLI::App& app, PerplexityOptions& o) {
  CLI::App* task = app.add_subcommand("perplexity", "Running text, within the context and far past it");
  task->add_option("--text", o.texts, "Text files")->required();
  task->add_option("--length", o.length, "Tokens of a piece within the context; 0: the context")->capture_default_str();
  task->add_option("--pieces", o.pieces, "Pieces of each text; 0: none")->capture_default_str();
  task->add_option("--stream", o.stream, "Tokens read in one go, past the context; 0: none")->capture_default_str();
  task->add_option("--buckets", o.buckets, "Columns of the tables by position")->capture_default_str();
  return task;
}

inline void declare_sets(CLI::App& task, QuestionsOptions& o) {
  task.add_option("--sets", o.sets, "Sets of documents")->capture_default_str();
}

inline CLI::App* declare(CLI::App& app, QuestionsOptions& o, MadeUpOptions& made_up, DataOptions& data) {
  CLI::App* task = app.add_subcommand("questions", "Documents are read, evicted and asked about");
  declare_sets(*task, o);
  task->add_option("--questions", o.questions, "Asked of each set")->capture_default_str();
  task->add_option("--answers", o.answers, "Facts that make one answer")->capture_default_str();
  task->add_option("--asked", o.asked, "after the eviction, or before")->capture_default_str();
  tiny_llama::DocumentOptions& d = made_up.documents;
  task->add_option("--documents", d.documents, "Of a set")->capture_default_str();
  task->add_option("--fewest-facts", d.fewest_facts, "Of a document")->capture_default_str();
  task->add_option("--most-facts", d.most_facts, "Of a document")->capture_default_str();
  task->add_option("--fewest-fillers", d.fewest_fillers, "Sentences that tell nothing")->capture_default_str();
  task->add_option("--most-fillers", d.most_fillers, "Sentences that tell nothing")->capture_default_str();
  task->add_option("--filler", made_up.filler, "A text file whose sentences stand between the facts");
  task->add_option("--data", data.file, "In place of made-up documents: JSON lines of question, answers, ctxs");
  task->add_option("--most", data.most, "Lines of the data read")->capture_default_str();
  task->add_option("--answer-tokens", data.tokens, "Of an answer to the data, at most")->capture_default_str();
  return task;
}

inline void declare_facts(CLI::App& task, FactsOptions& facts) {
  task.add_option("--text", facts.text, "A text file whose sentences stand between the facts; none: templates");
  task.add_option("--from", facts.from, "The part of the file that is used: from this share of it")
      ->capture_default_str();
  task.add_option("--to", facts.to, "to this one")->capture_default_str();
  task.add_option("--facts", facts.facts, "Told in each set, and asked for")->capture_default_str();
}

inline CLI::App* declare(CLI::App& app, QuestionsOptions& o, FactsOptions& facts) {
  CLI::App* task = app.add_subcommand("facts", "Made-up facts told in a text, and asked for by their beginnings");
  o.sets = 7;
  declare_sets(*task, o);
  declare_facts(*task, facts);
  task->add_option("--tokens", facts.tokens, "Of a set, about")->capture_default_str();
  return task;
}

inline CLI::App* declare(CLI::App& app, QuestionsOptions& o, PairsOptions& pairs) {
  CLI::App* task = app.add_subcommand("pairs", "Lines of a key and a value, asked for by keys");
  o.sets = 7;
  declare_sets(*task, o);
  task->add_option("--pairs", pairs.pairs, "Lines of a set")->capture_default_str();
  task->add_option("--questions", pairs.questions, "Asked of each set")->capture_default_str();
  return task;
}

inline CLI::App* declare(CLI::App& app, NeedleOptions& o) {
  CLI::App* task = app.add_subcommand("needle", "One fact in a long document, at every depth");
  task->add_option("--lengths", o.lengths, "Tokens of the document")->capture_default_str();
  task->add_option("--depths", o.depths, "Of the fact, in %")->capture_default_str();
  task->add_option("--trials", o.trials, "Documents of each length and depth")->capture_default_str();
  task->add_option("--filler", o.filler, "A text file whose sentences are the hay");
  return task;
}

inline CLI::App* declare(CLI::App& app, AgreementOptions& o) {
  CLI::App* task = app.add_subcommand("agreement", "Does the model say what it says with the full cache?");
  task->add_option("--text", o.texts, "Text files; none: made-up documents");
  task->add_option("--pieces", o.pieces, "Of each text")->capture_default_str();
  task->add_option("--prompt", o.prompt, "Tokens of a piece, read in chunks")->capture_default_str();
  task->add_option("--tokens", o.tokens, "Then the full cache's likeliest tokens, one by one")->capture_default_str();
  return task;
}

inline CLI::App* declare_summaries(CLI::App& app, DataOptions& o) {
  CLI::App* task = app.add_subcommand("summaries", "Documents are read, evicted and summed up");
  task->add_option("--data", o.file, "JSON lines of document, summary")->required();
  task->add_option("--most", o.most, "Lines of the data read")->capture_default_str();
  task->add_option("--summary-tokens", o.tokens, "Of a summary")->capture_default_str();
  return task;
}

inline CLI::App* declare(CLI::App& app, ReportOptions& o) {
  CLI::App* task = app.add_subcommand("report", "All of it on one page, with plots");
  task->add_flag("--short", o.quick, "Fewer texts and questions: minutes");
  task->add_option("--out", o.out, "The HTML file")->capture_default_str();
  task->add_option("--text", o.texts,
                   "Text files to read too, in place of made-up documents where running text is read");
  return task;
}

inline CLI::App* declare(CLI::App& app, ModelsOptions& o) {
  CLI::App* task = app.add_subcommand("models", "Several models, task by task, on one page with plots");
  task->add_option("--models", o.models, "GGUF files, of the llama or gemma3 architecture")->required();
  task->add_option("--calibrations", o.calibrations,
                   "What buzz-calibrate made of each, for calibrated; none: that model goes without");
  task->add_option("--tasks", o.tasks,
                   "Of once, stream (facts), pairs, needle, perplexity; with files documents, summaries")
      ->capture_default_str();
  task->add_option("--sets", o.sets, "Sets of facts, and of pairs")->capture_default_str();
  declare_facts(*task, o.facts);
  task->get_option("--text")->required();
  task->add_option("--tokens", o.tokens, "Of a set of facts, about: of all models, or of each")->capture_default_str();
  task->add_option("--pieces", o.pieces, "Of the text, for perplexity")->capture_default_str();
  task->add_option("--documents", o.documents, "JSON lines of question, answers, ctxs: as questions has --data");
  task->add_option("--summaries", o.summaries, "JSON lines of document, summary: as summaries has --data");
  task->add_option("--most", o.most, "Lines of each of these files read")->capture_default_str();
  task->add_option("--out", o.out, "The HTML file")->capture_default_str();
  return task;
}

}  // namespace evaluate
