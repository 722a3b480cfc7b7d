// buzz-generate: goes on from a prompt with the likeliest tokens, over any of buzz's caches.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "thread_pool.h"
#include "tiny_llama/cache_options.h"
#include "tiny_llama/llama.h"
#include "tiny_llama/model.h"
#include "tiny_llama/policies.h"
#include "tiny_llama/program.h"
#include "tiny_llama/reader.h"
#include "tiny_llama/text_file.h"

namespace {

using namespace tiny_llama;

struct Arguments {
  std::string model, prompt, file, logits;
  int tokens = 32;
  std::optional<int> prompt_tokens;
  int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  CacheOptions cache;
  bool control = false, unscored = false, json = false;
};

struct Result {
  std::vector<std::int32_t> prompt, greedy;
  std::vector<float> first_logits;  // [16], after the prompt
  std::vector<float> logits;        // [1 + greedy, vocab]: after the prompt and each token, where they are wanted
  Account reading, writing;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("model", a.model, "A GGUF file of the llama or gemma3 architecture")->required();
  auto* prompt = app.add_option("--prompt", a.prompt, "The text to go on from");
  app.add_option("--file", a.file, "A file with the text to go on from")->excludes(prompt);
  app.add_option("--prompt-tokens", a.prompt_tokens, "Read no more than so many tokens of it")
      ->check(CLI::Range(1, 1 << 24));
  app.add_flag("--control-tokens", a.control, "Control tokens that the text names, as <|im_start|>, are tokens");
  app.add_option("--tokens", a.tokens, "Tokens to add, fewer if the model ends the text")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--policy", a.cache.policy,
                 "A policy, as name or name:option=value,option=value:" + lines_of(policies()))
      ->capture_default_str();
  app.add_option("--sink", a.cache.sink, "The policy's option of that name");
  app.add_option("--window", a.cache.window, "The same");
  app.add_option("--threshold", a.cache.threshold, "The same");
  app.add_option("--stride", a.cache.stride, "The same");
  app.add_option("--heavy", a.cache.heavy, "The same");
  app.add_option("--positions", a.cache.positions, "logical, or compact: a row's place in the cache")
      ->capture_default_str();
  app.add_option("--type", a.cache.type, "What the cache stores: f32, f16 or bf16")->capture_default_str();
  app.add_option("--chunk", a.cache.max_chunk, "Tokens of the text read at once")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--threads", a.threads, "Threads to work on")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--logits", a.logits, "A file for the logits after the text and after each token added, float32");
  app.add_flag("--unscored", a.unscored, "No likelihood of the text, which is faster");
  app.add_flag("--json", a.json, "Print everything measured, as JSON");
}

Result generate(const Model& model, Llama& llama, std::vector<std::int32_t> prompt, int tokens, bool scored,
                bool logits) {
  Result r;
  Reader reader(llama, scored);
  const auto note = [&] {
    if (logits)
      r.logits.insert(r.logits.end(), reader.logits().data(), reader.logits().data() + reader.logits().size());
  };
  reader.read(prompt);
  r.prompt = std::move(prompt);
  r.reading = reader.account();
  const Eigen::Index shown = std::min<Eigen::Index>(16, reader.logits().size());
  r.first_logits.assign(reader.logits().data(), reader.logits().data() + shown);
  note();
  while (static_cast<int>(r.greedy.size()) < tokens) {
    const std::int32_t next = reader.likeliest();
    if (next == model.tokenizer.vocabulary().eos) break;
    r.greedy.push_back(next);
    reader.read({next});
    note();
  }
  r.writing = reader.account() - r.reading;
  return r;
}

nlohmann::json to_json(const Model& model, const Cache& cache, const Result& r) {
  const auto or_null = [](bool known, double number) { return known ? nlohmann::json(number) : nlohmann::json(); };
  nlohmann::json rows = nlohmann::json::array(), bytes = nlohmann::json::array();
  for (int i = 0; i < cache.layers(); ++i) {
    rows.push_back(cache.rows(i));
    bytes.push_back(cache.bytes(i));
  }
  return {{"ids", r.prompt},
          {"mean_nll", or_null(r.reading.scored > 0, r.reading.mean_nll())},
          {"last_logits_first_16", r.first_logits},
          {"greedy_ids", r.greedy},
          {"greedy_text", model.tokenizer.decode(r.greedy)},
          {"rows", rows},
          {"bytes", bytes},
          {"prompt_tokens_per_second", r.reading.rate()},
          {"tokens_per_second", or_null(r.writing.tokens > 0, r.writing.rate())}};
}

void run(Arguments a) {
  const Model model = read_model(a.model);
  const std::string text = a.file.empty() ? a.prompt : read_text(a.file);
  std::vector<std::int32_t> prompt =
      model.tokenizer.encode(text, a.control ? ControlTokens::parsed : ControlTokens::text);
  if (a.prompt_tokens.has_value() && *a.prompt_tokens < static_cast<int>(prompt.size()))
    prompt.resize(static_cast<std::size_t>(*a.prompt_tokens));
  const int most = static_cast<int>(prompt.size()) + a.tokens;
  a.cache.threads = a.threads;
  examples::ThreadPool pool(a.threads);
  Llama llama(model, make_cache(model.config, a.cache, most), pool);
  const Result r = generate(model, llama, std::move(prompt), a.tokens, a.json && !a.unscored, !a.logits.empty());
  if (!a.logits.empty())
    write_text("logits", a.logits,
               std::string(reinterpret_cast<const char*>(r.logits.data()), r.logits.size() * sizeof(float)));
  if (a.json) {
    // The text may end inside a character: what is not UTF-8 is printed as U+FFFD.
    std::cout << to_json(model, llama.cache(), r).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    std::cout << text << model.tokenizer.decode(r.greedy) << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Goes on from a prompt with the likeliest tokens.", "buzz-generate");
  Arguments arguments;
  declare(app, arguments);
  return run_program(app, argc, argv, [&] { run(arguments); });
}
