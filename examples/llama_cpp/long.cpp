// buzz-llama-cpp-long: a long text through few cells of llama.cpp, checked at every call, beside llama.cpp alone.
#include <llama.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "buzz/adapters/llama.h"
#include "evaluate/svg.h"
#include "llama_cpp/context.h"
#include "tiny_llama/policies.h"
#include "tiny_llama/program.h"
#include "tiny_llama/report.h"
#include "tiny_llama/text_file.h"

namespace {

struct Arguments {
  std::string model, text, policy = "key_outliers", svg;
  int tokens = 100000, without = 8192, rows = 512, chunk = 64, every = 1000, threads = 1;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("model", a.model, "A GGUF file")->required();
  app.add_option("text", a.text, "A text file, read again from its beginning where it ends")->required();
  app.add_option("--tokens", a.tokens, "Tokens read with eviction")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("--without", a.without, "Tokens read without, which takes more time the more there are")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--rows", a.rows, "Most rows with eviction")->check(CLI::Range(64, 1 << 24))->capture_default_str();
  app.add_option("--policy", a.policy,
                 "A policy, as name or name:option=value,option=value:" +
                     tiny_llama::lines_of(tiny_llama::policies(/*shows_queries*/ false)))
      ->capture_default_str();
  app.add_option("--chunk", a.chunk, "Tokens of a call")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--every", a.every, "Tokens between two lines")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  app.add_option("--threads", a.threads, "Threads of llama.cpp")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--svg", a.svg, "A file for the picture");
}

/// What was seen, of each way to read a point each a.every tokens.
struct Seen {
  std::vector<evaluate::Series> mebibytes, milliseconds;  // of K and V in use; of processor time a token
};

/// Reads `count` tokens of the text. decode(ids, n, at) reads a call's, which are the at-th and those after it, and
/// returns the rows held then; bytes() is K and V.
template <class Decode, class Bytes>
void read(const std::string& name, const std::vector<llama_token>& ids, int count, const Arguments& a, Seen& seen,
          Decode&& decode, Bytes&& bytes) {
  seen.mebibytes.push_back({name, {}});
  seen.milliseconds.push_back({name, {}});
  std::vector<llama_token> some;
  std::clock_t begin = std::clock();
  int from = 0;
  for (int at = 0, n = 0; at < count; at += n) {
    n = std::min(a.chunk, count - at);
    some.clear();
    for (int i = at; i < at + n; ++i) some.push_back(ids[static_cast<std::size_t>(i) % ids.size()]);
    const int rows = decode(some.data(), n, at);
    const int done = at + n;
    if (done - from < a.every && done < count) continue;
    const double ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / (done - from);
    const std::size_t held = bytes();
    std::printf("%-14s %8d %8d %10s %10s %9.2f\n", name.c_str(), done, rows, tiny_llama::mebibytes(held).c_str(),
                tiny_llama::mebibytes(llama_cpp::resident_bytes()).c_str(), ms);
    std::fflush(stdout);
    seen.mebibytes.back().points.emplace_back(done, static_cast<double>(held) / (1 << 20));
    seen.milliseconds.back().points.emplace_back(done, ms);
    from = done;
    begin = std::clock();
  }
}

void evicting(const llama_cpp::Model& model, const std::vector<llama_token>& ids, const Arguments& a, Seen& seen) {
  buzz::LlamaEviction<llama_context> eviction(llama_cpp::policy(a.policy, a.rows, a.chunk), a.chunk);
  llama_context_params params = llama_cpp::params(static_cast<int>(eviction.capacity()), a.chunk, a.threads);
  eviction.attach(params);
  const llama_cpp::Context context = llama_cpp::make(model, params);
  eviction.begin(context.get());
  llama_cpp::Batch batch(a.chunk);
  const auto decode = [&](const llama_token* some, int n, int) {
    llama_cpp::read(eviction, batch, some, n);
    buzz::require_range("rows held", eviction.rows(), n, a.rows);
    return eviction.rows();
  };
  read(a.policy.substr(0, a.policy.find(':')), ids, a.tokens, a, seen, decode,
       [&] { return llama_state_seq_get_size(context.get(), 0); });
}

void plain(const llama_cpp::Model& model, const std::vector<llama_token>& ids, const Arguments& a, Seen& seen) {
  const llama_cpp::Context context = llama_cpp::make(model, llama_cpp::params(a.without, a.chunk, a.threads));
  llama_cpp::Batch batch(a.chunk);
  const auto decode = [&](const llama_token* some, int n, int at) {
    buzz::require_equal("llama_decode", llama_decode(context.get(), batch.of(some, n, at, false)), 0, "success");
    return at + n;
  };
  read("without", ids, a.without, a, seen, decode, [&] { return llama_state_seq_get_size(context.get(), 0); });
}

void run(const Arguments& a) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const llama_cpp::Model model = llama_cpp::load(a.model);
  const std::vector<llama_token> ids =
      llama_cpp::tokens(model, tiny_llama::read_text(a.text), std::max(a.tokens, a.without));
  std::printf("%-14s %8s %8s %10s %10s %9s\n", "eviction", "tokens", "rows", "MiB of KV", "process", "ms/token");
  Seen seen;
  evicting(model, ids, a, seen);
  if (a.without > 0) plain(model, ids, a, seen);
  if (a.svg.empty()) return;
  const std::vector<std::string> plots = {
      evaluate::line_plot("Memory", "tokens read", "MiB of K and V", seen.mebibytes),
      evaluate::line_plot("Speed", "tokens read", "ms of processor time a token", seen.milliseconds)};
  tiny_llama::write_text("svg", a.svg, evaluate::standalone(plots, seen.mebibytes));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reads a long text with llama.cpp in bounded memory, and a part of it without eviction.",
               "buzz-llama-cpp-long");
  Arguments arguments;
  declare(app, arguments);
  return tiny_llama::run_program(app, argc, argv, [&] { run(arguments); });
}
