// buzz-generate: goes on from a prompt with the likeliest tokens, over any of buzz's caches.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  std::string model, prompt, file;
  int tokens = 32;
  CacheOptions cache;
  bool json = false;
};

struct Result {
  std::vector<std::int32_t> prompt, greedy;
  std::vector<float> first_logits;  // [16], after the prompt
  Account reading, writing;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("model", a.model, "A GGUF file (llama architecture; F32, F16 or Q8_0)")->required();
  auto* prompt = app.add_option("--prompt", a.prompt, "The text to go on from");
  app.add_option("--file", a.file, "A file with the text to go on from")->excludes(prompt);
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
  app.add_flag("--json", a.json, "Print everything measured, as JSON");
}

Result generate(const Model& model, Llama& llama, std::vector<std::int32_t> prompt, int tokens) {
  Result r;
  Reader reader(llama);
  reader.read(prompt);
  r.prompt = std::move(prompt);
  r.reading = reader.account();
  const Eigen::Index shown = std::min<Eigen::Index>(16, reader.logits().size());
  r.first_logits.assign(reader.logits().data(), reader.logits().data() + shown);
  while (static_cast<int>(r.greedy.size()) < tokens) {
    const std::int32_t next = reader.likeliest();
    if (next == model.tokenizer.vocabulary().eos) break;
    r.greedy.push_back(next);
    reader.read({next});
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

void run(const Arguments& a) {
  const Model model = read_model(a.model);
  const std::string text = a.file.empty() ? a.prompt : read_text(a.file);
  std::vector<std::int32_t> prompt = model.tokenizer.encode(text);
  const int most = static_cast<int>(prompt.size()) + a.tokens;
  Llama llama(model, make_cache(model.config, a.cache, most));
  const Result r = generate(model, llama, std::move(prompt), a.tokens);
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
