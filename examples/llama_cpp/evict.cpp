// buzz-llama-cpp: reads a text with llama.cpp, with and without eviction, and says what either costs.
#include <llama.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "buzz/adapters/llama.h"
#include "buzz/policy_list.h"
#include "llama_cpp/context.h"
#include "tiny_llama/policies.h"
#include "tiny_llama/program.h"
#include "tiny_llama/report.h"
#include "tiny_llama/text_file.h"

namespace {

struct Arguments {
  std::string model, text, policy = "heavy_hitter", positions = "kept";
  int tokens = 4000, rows = 440, chunk = 32, compact_every = 0, threads = 0, measured = 0;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("model", a.model, "A GGUF file")->required();
  app.add_option("text", a.text, "A text file")->required();
  app.add_option("--tokens", a.tokens, "Tokens of the text")->check(CLI::Range(2, 1 << 20))->capture_default_str();
  app.add_option("--rows", a.rows, "Most rows with eviction")->check(CLI::Range(8, 1 << 20))->capture_default_str();
  app.add_option("--chunk", a.chunk, "Tokens of a call")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--policy", a.policy,
                 "A policy, as name or name:option=value,option=value:" +
                     tiny_llama::lines_of(tiny_llama::policies(/*shows_queries*/ false)))
      ->capture_default_str();
  app.add_option("--positions", a.positions, "kept, or closed: a row's place in the cache")
      ->check(CLI::IsMember({"kept", "closed"}))
      ->capture_default_str();
  app.add_option("--compact-every", a.compact_every, "Calls between round trips of the state; 0: none")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--cost", a.measured, "Measure instead what so many tokens cost in a full context of --rows")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", a.threads, "Threads of llama.cpp; 0: as many as there are cores");
}

struct Line {
  const char* name;
  int tokens, rows, cells;
  std::size_t bytes;  // of K and V in use
  double nll = 0;
};

/// decode(batch) reads each chunk in turn; position() is where it begins.
template <class Position, class Decode>
double mean_nll(const llama_cpp::Model& model, llama_context* context, const std::vector<llama_token>& ids, int chunk,
                Position&& position, Decode&& decode) {
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get())), count = static_cast<int>(ids.size());
  llama_cpp::Batch batch(chunk);
  double sum = 0;
  for (int at = 0; at < count; at += chunk) {
    const int n = std::min(chunk, count - at);
    buzz::require_equal("llama_decode", decode(batch.of(ids.data() + at, n, position())), 0, "success");
    for (int i = 0; i < n && at + i + 1 < count; ++i)
      sum += llama_cpp::negative_log_likelihood(llama_get_logits_ith(context, i), vocab,
                                                ids[static_cast<std::size_t>(at + i + 1)]);
  }
  return sum / (count - 1);
}

Line plain(const llama_cpp::Model& model, const std::vector<llama_token>& ids, const Arguments& a) {
  const int count = static_cast<int>(ids.size());
  const llama_cpp::Context context = llama_cpp::make(model, llama_cpp::params(count, a.chunk, a.threads));
  Line line{"without", count, count, static_cast<int>(llama_n_ctx(context.get())), 0};
  int position = 0;
  line.nll = mean_nll(
      model, context.get(), ids, a.chunk, [&] { return position; },
      [&](const llama_batch& batch) {
        position += batch.n_tokens;
        return llama_decode(context.get(), batch);
      });
  line.bytes = llama_state_seq_get_size(context.get(), 0);
  return line;
}

Line evicting(const llama_cpp::Model& model, const std::vector<llama_token>& ids, const Arguments& a) {
  const auto positions = a.positions == "closed" ? buzz::LlamaPositions::closed : buzz::LlamaPositions::kept;
  buzz::LlamaEviction<llama_context> eviction(llama_cpp::policy(a.policy, a.rows, a.chunk), a.chunk, positions);
  llama_context_params params = llama_cpp::params(a.rows, a.chunk, a.threads);
  eviction.attach(params);
  const llama_cpp::Context context = llama_cpp::make(model, params);
  eviction.begin(context.get());
  Line line{a.policy.c_str(), static_cast<int>(ids.size()), 0, static_cast<int>(llama_n_ctx(context.get())), 0};
  int calls = 0;
  line.nll = mean_nll(
      model, context.get(), ids, a.chunk,
      [&] {
        if (a.compact_every > 0 && ++calls % a.compact_every == 0) eviction.compact();
        eviction.evict();
        return eviction.next_position();
      },
      [&](const llama_batch& batch) {
        const int result = eviction.decode(batch);
        line.rows = std::max(line.rows, eviction.rows());
        line.bytes = std::max(line.bytes, llama_state_seq_get_size(context.get(), 0));
        return result;
      });
  const buzz::LlamaReport& r = eviction.report();
  std::printf("%lld evictions took %lld rows in %lld ranges; %lld runs were shifted, %lld times compacted\n",
              r.evictions, r.rows, r.removals, r.shifts, r.compactions);
  return line;
}

/// Milliseconds of processor time that f() takes.
template <class F>
double processor_ms(F&& f) {
  const std::clock_t begin = std::clock();
  f();
  return 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// What a token costs in a full context, beside one that is as full without us: token about token in one run. The other
/// removes its newest token again each time.
void measure(const llama_cpp::Model& model, const std::vector<llama_token>& ids, const Arguments& a) {
  buzz::LlamaEviction<llama_context> eviction(llama_cpp::policy(a.policy, a.rows, a.chunk), a.chunk);
  llama_context_params params = llama_cpp::params(a.rows, a.chunk, a.threads);
  const llama_cpp::Context alone = llama_cpp::make(model, params);
  eviction.attach(params);
  const llama_cpp::Context context = llama_cpp::make(model, params);
  eviction.begin(context.get());
  const int cells = static_cast<int>(llama_n_ctx(alone.get())), full = cells - 1;
  llama_cpp::Batch batch(a.chunk);
  const auto token = [&](int i) { return ids[static_cast<std::size_t>(i) % ids.size()]; };
  for (int at = 0; at < full; at += a.chunk) {
    std::vector<llama_token> some;
    for (int i = at; i < std::min(full, at + a.chunk); ++i) some.push_back(token(i));
    const int n = static_cast<int>(some.size());
    buzz::require_equal("llama_decode", llama_decode(alone.get(), batch.of(some.data(), n, at, false)), 0, "success");
    llama_cpp::read(eviction, batch, some.data(), n);
  }
  const long long evictions = eviction.report().evictions;
  double with = 0, without = 0, choosing = 0;
  for (int i = 0; i < a.measured; ++i) {
    const llama_token one = token(full + i);
    without += processor_ms([&] { llama_decode(alone.get(), batch.of(&one, 1, full, false)); });
    llama_memory_seq_rm(llama_get_memory(alone.get()), 0, full, -1);
    const double evicting = processor_ms([&] { eviction.evict(); });
    choosing += evicting;
    with += evicting + processor_ms([&] { eviction.decode(batch.of(&one, 1, eviction.next_position(), false)); });
  }
  const long long evicted = eviction.report().evictions - evictions;
  std::printf("%d tokens in %d cells: %.3f ms a token without, %.3f with (%+.2f%%); %lld evictions, %.1f ms each\n",
              a.measured, cells, without / a.measured, with / a.measured, 100 * (with / without - 1), evicted,
              evicted > 0 ? choosing / static_cast<double>(evicted) : 0.);
}

void run(const Arguments& a) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const llama_cpp::Model model = llama_cpp::load(a.model);
  const std::vector<llama_token> ids = llama_cpp::tokens(model, tiny_llama::read_text(a.text), a.tokens);
  if (a.measured > 0) return measure(model, ids, a);
  const Line with = evicting(model, ids, a), without = plain(model, ids, a);
  std::printf("%-14s %8s %8s %8s %10s %9s\n", "eviction", "tokens", "rows", "cells", "MiB used", "mean nll");
  for (const Line& line : {without, with})
    std::printf("%-14s %8d %8d %8d %10s %9.4f\n", line.name, line.tokens, line.rows, line.cells,
                tiny_llama::mebibytes(line.bytes).c_str(), line.nll);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reads a text with llama.cpp, with and without eviction.", "buzz-llama-cpp");
  Arguments arguments;
  declare(app, arguments);
  return tiny_llama::run_program(app, argc, argv, [&] { run(arguments); });
}
