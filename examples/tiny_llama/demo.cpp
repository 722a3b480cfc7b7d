// buzz-demo: reads four times the model's context in a bounded cache, beside the full one as far as that holds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tiny_llama/demo_run.h"
#include "tiny_llama/program.h"
#include "tiny_llama/report.h"
#include "tiny_llama/text_file.h"

namespace {

using namespace tiny_llama;

struct Arguments {
  std::string model = BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf", text, policy = demo_policy;
  int tokens = 8192;
  std::uint64_t seed = 1;
  bool json = false;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("model", a.model, "A GGUF file of the llama or gemma3 architecture")->capture_default_str();
  app.add_option("--text", a.text, "Read this file, and documents after it, in place of documents alone");
  app.add_option("--policy", a.policy, "A name, with options or without: beehive is BUZZ at the paper's sizes")
      ->capture_default_str();
  app.add_option("--tokens", a.tokens, "Tokens to read, or a few more")
      ->check(CLI::Range(8000, 1 << 22))
      ->capture_default_str();
  app.add_option("--seed", a.seed, "Of the documents")->capture_default_str();
  app.add_flag("--json", a.json, "Print everything measured, as JSON");
}

void print_intro(const Model& model, std::size_t tokens, const std::string& text, const buzz::Policy& policy) {
  std::printf("A model of %s parameters, trained on texts of %s tokens, reads %s tokens of %s.\n",
              grouped(model.parameters).c_str(), grouped(model.config.context).c_str(), grouped(tokens).c_str(),
              text.empty() ? "made-up documents" : (text + " and documents after it").c_str());
  std::printf("The full cache holds %s rows, buzz at most %s of them: %s. MiB: K and V of the rows held.\n\n",
              grouped(model.config.context).c_str(), grouped(policy.most_rows(static_cast<int>(demo_chunk))).c_str(),
              buzz::to_text(policy).c_str());
}

/// Shows how far the reading is, and a line every 1,024 tokens.
class Watcher {
 public:
  Watcher(std::size_t all, std::size_t held, bool wanted) : all_(all), held_(held), wanted_(wanted), bar_(wanted) {
    if (!wanted_) return;
    std::printf("             full cache                          buzz\n");
    std::printf("  tokens   rows    MiB  tokens/s  nats/token   rows    MiB  tokens/s  nats/token\n");
  }

  void operator()(const Side& full, const Side& buzz) {
    const auto read = static_cast<std::size_t>(buzz.reader.account().tokens);
    if (read >= printed_ + 1024 || read == all_ || read == held_) {
      bar_.clear();
      if (wanted_)
        std::printf("%8s%s%s\n", grouped(read).c_str(),
                    read > held_ ? right("-", 35).c_str() : text(full, full_before_).c_str(),
                    text(buzz, buzz_before_).c_str());
      full_before_ = full.reader.account();
      buzz_before_ = buzz.reader.account();
      printed_ = read;
      if (wanted_) std::fflush(stdout);
    }
    if (read < all_) bar_.show(read, all_);
  }

 private:
  /// Rows and their K and V now; speed and likelihood since the last line.
  static std::string text(const Side& side, const Account& before) {
    const Account stretch = side.reader.account() - before;
    return right(grouped(side.rows()), 7) +
           right(mebibytes(side.row_bytes() * static_cast<std::size_t>(side.rows())), 7) +
           right(grouped(std::lround(stretch.rate())), 10) + right(fixed(stretch.mean_nll(), 3), 12);
  }

  std::size_t all_, held_, printed_ = 0;
  bool wanted_;
  ProgressBar bar_;
  Account full_before_, buzz_before_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// What the table and the JSON say, made of the measurements.
struct Summary {
  Summary(const Measured& m, std::size_t tokens)
      : full_bytes_at_end(static_cast<double>(m.full_bytes) / m.full.tokens * static_cast<double>(tokens)),
        full_step(median(m.full_steps)),
        buzz_step(median(m.buzz_steps)) {
    for (const Answers& a : m.answers) {
      kept += a.full == a.question.answer && a.buzz == a.question.answer;
    }
  }
  double full_bytes_at_end;  // computed: a full cache of the model's context in proportion
  double full_step, buzz_step;
  int kept = 0;  // of the full cache's right answers
};

void print_answers(const Measured& m) {
  std::printf(
      "\nA new full cache reads the last %s tokens of documents; of %d questions about them it answers %d right.\n",
      grouped(m.full_documents_tokens).c_str(), m.full_asked, m.full_right);
  std::printf("buzz, which has read everything, is asked three of them, right ones first:\n");
  for (const Answers& a : m.answers) {
    std::printf("  %s (document %d)\n    right:%s   full cache:%s   buzz:%s\n", a.question.text.c_str(),
                a.question.document, a.question.answer.c_str(), a.full.c_str(), a.buzz.c_str());
  }
}

void print_row(const std::string& what, const std::string& full, const std::string& buzz, const std::string& verdict) {
  std::printf("%s%s%s   %s\n", left(what, 46).c_str(), right(full, 12).c_str(), right(buzz, 12).c_str(),
              verdict.c_str());
}

void print_table(const Measured& m, const Summary& s, std::size_t tokens) {
  const auto times = [](double ratio, const char* more, const char* less) {
    return ratio >= 1 ? fixed(ratio, 2) + " times " + more : fixed(1 / ratio, 2) + " times " + less;
  };
  const std::string held = grouped(m.full.tokens), all = grouped(tokens);
  const double buzz_bytes = static_cast<double>(m.buzz_bytes), loss = m.buzz_after.mean_nll() - m.full_after.mean_nll();
  print_row("", "full cache", "buzz", "");
  print_row("MiB allocated, for " + held + " tokens", mebibytes(m.full_bytes), mebibytes(m.buzz_bytes),
            times(static_cast<double>(m.full_bytes) / buzz_bytes, "less", "more"));
  print_row("MiB allocated, for " + all + " tokens", mebibytes(static_cast<std::size_t>(s.full_bytes_at_end)) + "*",
            mebibytes(m.buzz_bytes), times(s.full_bytes_at_end / buzz_bytes, "less", "more"));
  print_row("ms a decode step after " + held + " tokens", fixed(1e3 * s.full_step, 2), fixed(1e3 * s.buzz_step, 2),
            times(s.full_step / s.buzz_step, "faster", "slower"));
  print_row("tokens/s reading the first " + held, fixed(m.full.rate(), 0), fixed(m.buzz.rate(), 0),
            times(m.buzz.rate() / m.full.rate(), "faster", "slower"));
  print_row("nats/token, " + grouped(m.full_after.scored) + " tokens after an eviction",
            fixed(m.full_after.mean_nll(), 4), fixed(m.buzz_after.mean_nll(), 4),
            "perplexity times " + fixed(std::exp(loss), 3) + (loss > 0 ? " (worse)" : " (no worse)"));
  if (m.buzz_beyond.scored > 0)
    print_row("nats/token, the other " + grouped(m.buzz_beyond.scored) + " tokens", "-",
              fixed(m.buzz_beyond.mean_nll(), 4), "the full cache holds no more");
  print_row("right answers of the full cache, kept by buzz", std::to_string(m.full_right), std::to_string(s.kept),
            std::to_string(m.full_right - s.kept) + " lost");
  std::printf(
      "* computed from the line above it; all else is measured. A decode step is the median of %zu, of both in turn.\n",
      m.full_steps.size());
}

nlohmann::json to_json(const Measured& m, const Summary& s, std::size_t tokens) {
  const auto account = [](const Account& a) -> nlohmann::json {
    return {{"tokens", a.tokens}, {"tokens_per_second", a.rate()}, {"mean_nll", a.mean_nll()}};
  };
  nlohmann::json answers = nlohmann::json::array();
  for (const Answers& a : m.answers) {
    answers.push_back({{"question", a.question.text},
                       {"document", a.question.document},
                       {"answer", a.question.answer},
                       {"full", a.full},
                       {"buzz", a.buzz}});
  }
  return {{"tokens", tokens},
          {"full",
           {{"rows", m.full_rows},
            {"bytes", m.full_bytes},
            {"bytes_for_all_tokens_computed", s.full_bytes_at_end},
            {"held", account(m.full)},
            {"after_first_eviction", account(m.full_after)},
            {"decode_step_seconds", s.full_step}}},
          {"buzz",
           {{"rows", m.buzz_rows},
            {"bytes", m.buzz_bytes},
            {"held", account(m.buzz)},
            {"after_first_eviction", account(m.buzz_after)},
            {"beyond", account(m.buzz_beyond)},
            {"decode_step_seconds", s.buzz_step}}},
          {"questions", {{"asked_of_full", m.full_asked}, {"right_by_full", m.full_right}, {"kept_by_buzz", s.kept}}},
          {"answers", answers}};
}

void run(const Arguments& a) {
  const Model model = read_model(a.model);
  const std::string text = a.text.empty() ? "" : read_text(a.text);
  Random random(a.seed);
  const Reading reading =
      make_reading(model.tokenizer, random, static_cast<std::size_t>(a.tokens), a.text.empty() ? nullptr : &text);
  const std::size_t tokens = reading.tokens.size();
  const buzz::Policy policy = buzz::policy(a.policy);
  Demo demo(model, reading, policy);
  if (!a.json) print_intro(model, tokens, a.text, policy);
  Watcher watcher(tokens, demo.held(), !a.json);
  const Measured m = demo.run([&](const Side& full, const Side& buzz) { watcher(full, buzz); });
  const Summary summary(m, tokens);
  if (a.json) {
    std::cout << to_json(m, summary, tokens).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  print_answers(m);
  std::printf("\n");
  print_table(m, summary, tokens);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reads four times the model's context in a bounded cache, beside the full one as far as that holds.",
               "buzz-demo");
  Arguments arguments;
  declare(app, arguments);
  return run_program(app, argc, argv, [&] { run(arguments); });
}
