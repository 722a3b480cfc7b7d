// buzz-llama: a chat with any model that llama.cpp reads, for ever, in memory that is bounded from the start.
#include "buzz/adapters/llama.h"

#include <llama.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "buzz/file.h"
#include "buzz/policy_list.h"
#include "llama_cpp/chat.h"
#include "llama_cpp/context.h"
#include "tiny_llama/policies.h"
#include "tiny_llama/program.h"
#include "tiny_llama/report.h"
#include "tiny_llama/text_file.h"

namespace {

volatile std::sig_atomic_t interrupted = 0;

struct Arguments {
  std::string model, prompt_file, weights, policy, memory, cache = "f16", positions = "kept";
  int rows = 0, chunk = 64, answer = 512, threads = 0, every = 0, tokens = 0;
  double temperature = 0;
  bool raw = false;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("model", a.model, "A GGUF file")->required();
  auto* rows = app.add_option("--rows", a.rows, "Most rows (tokens held); 1024 where nothing is said")
                   ->check(CLI::Range(64, 1 << 24));
  app.add_option("--memory", a.memory, "Most bytes of K and V, as 200M or 2G, in place of --rows")->excludes(rows);
  app.add_option("--policy", a.policy,
                 "Which rows stay, as name or name:option=value,option=value:" +
                     tiny_llama::lines_of(tiny_llama::policies(/*shows_queries*/ false)));
  app.add_option("--weights", a.weights, "The model's weights of buzz-calibrate: the best policy, calibrated");
  app.add_option("--prompt-file", a.prompt_file, "A text to read first");
  app.add_option("--prompt-tokens", a.tokens, "Most tokens of it; again from its beginning where it is shorter")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--answer", a.answer, "Most tokens of an answer")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--temperature", a.temperature, "0: always the likeliest token")->check(CLI::Range(0., 100.));
  app.add_option("--cache-type", a.cache, "Of K and V")->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q4_0"}));
  app.add_option("--positions", a.positions, "kept, or closed: a row's place in the cache")
      ->check(CLI::IsMember({"kept", "closed"}));
  app.add_option("--chunk", a.chunk, "Tokens of a call")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--threads", a.threads, "Threads; 0: as many as there are cores")->check(CLI::Range(0, 1024));
  app.add_option("--status-every", a.every, "Tokens between status lines while the prompt file is read; 0: none")
      ->check(CLI::Range(0, 1 << 30));
}

long long bytes_of(const std::string& text) {
  std::size_t end = 0;
  double number = -1;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(std::min(end, text.size()));
  const double scale = unit.empty() ? 1 : unit == "K" ? 1 << 10 : unit == "M" ? 1 << 20 : unit == "G" ? 1 << 30 : 0;
  if (!(number > 0) || scale == 0 || number * scale > 1e15)
    buzz::fail("memory", "'" + text + "'", "a number of bytes above 0, or of K, M or G");
  return static_cast<long long>(number * scale);
}

ggml_type type_of(const std::string& name) {
  for (ggml_type t : {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0})
    if (name == ggml_type_name(t)) return t;
  return GGML_TYPE_F16;
}

/// The policy of so many rows: what the text says of sizes stays. A model's window is the least that the policy's may
/// be.
buzz::Policy policy_of(const Arguments& a, int rows, int model_window) {
  std::string text = !a.policy.empty() ? a.policy : a.weights.empty() ? "key_outliers" : "calibrated";
  const auto add = [&](const std::string& option) {
    text += (text.find(':') == std::string::npos ? ":" : ",") + option;
  };
  if (!a.weights.empty()) add("weights=" + a.weights);
  buzz::Policy policy = llama_cpp::policy(text, rows, a.chunk);
  const int spare = rows - policy.protect.sink - a.chunk;
  if (policy.protect.window < model_window && model_window < spare && text.find("window=") == std::string::npos) {
    add("window_share=" + std::to_string((model_window + 1.) / spare));
    policy = llama_cpp::policy(text, rows, a.chunk);
  }
  buzz::require_at_least("rows", rows, policy.most_rows(a.chunk));
  return policy;
}

/// A context and who evicts from it.
class Session {
 public:
  Session(const llama_cpp::Model& model, const Arguments& a)
      : model_(model), vocab_(llama_model_get_vocab(model.get())), batch_(a.chunk), chunk_(a.chunk) {
    start(a, a.memory.empty() ? (a.rows > 0 ? a.rows : 1024) : rows_of(a));
    sampler_ = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (a.temperature > 0) {
      llama_sampler_chain_add(sampler_, llama_sampler_init_temp(static_cast<float>(a.temperature)));
      llama_sampler_chain_add(sampler_, llama_sampler_init_dist(LLAMA_DEFAULT_SEED));
    } else {
      llama_sampler_chain_add(sampler_, llama_sampler_init_greedy());
    }
  }
  ~Session() { llama_sampler_free(sampler_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::vector<llama_token> tokens(const std::string& text, bool special) const {
    std::vector<llama_token> ids(text.size() + 8);
    const int count = llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), ids.data(),
                                     static_cast<std::int32_t>(ids.size()), eviction_->rows() == 0, special);
    buzz::require_at_least("tokens of the text", count, 0);
    ids.resize(static_cast<std::size_t>(count));
    return ids;
  }
  /// Reads tokens; false: interrupted.
  bool read(
      const std::vector<llama_token>& ids, const std::function<void()>& after_each = [] {}) {
    for (std::size_t at = 0; at < ids.size() && interrupted == 0; at += static_cast<std::size_t>(chunk_)) {
      const int n = static_cast<int>(std::min(ids.size() - at, static_cast<std::size_t>(chunk_)));
      llama_cpp::read(*eviction_, batch_, ids.data() + at, n);
      buzz::require_range("rows held", eviction_->rows(), n, eviction_->capacity());
      after_each();
    }
    return interrupted == 0;
  }
  /// Streams an answer of at most so many tokens, and returns it.
  std::string answer(int most) {
    std::string all;
    for (int i = 0; i < most && interrupted == 0; ++i) {
      const llama_token token = llama_sampler_sample(sampler_, context_.get(), -1);
      if (llama_vocab_is_eog(vocab_, token)) break;
      char piece[256];
      const int size = llama_token_to_piece(vocab_, token, piece, sizeof piece, 0, true);
      all.append(piece, static_cast<std::size_t>(std::max(0, size)));
      std::fwrite(piece, 1, static_cast<std::size_t>(std::max(0, size)), stdout);
      std::fflush(stdout);
      read({token});
    }
    std::printf("\n");
    return all;
  }
  std::string status() const {
    const buzz::LlamaReport& r = eviction_->report();
    return std::to_string(r.tokens) + " tokens read, " + std::to_string(eviction_->rows()) + " of " +
           std::to_string(eviction_->capacity()) + " rows held, " + tiny_llama::mebibytes(eviction_->cache_bytes()) +
           " MiB of K and V, " + std::to_string(r.evictions) + " evictions";
  }
  std::string bound() const {
    return "at most " + std::to_string(eviction_->capacity()) + " rows in " +
           std::to_string(llama_n_ctx(context_.get())) + " cells, " + tiny_llama::mebibytes(eviction_->cache_bytes()) +
           " MiB of K and V and " + tiny_llama::mebibytes(eviction_->bytes()) + " MiB to choose them; " +
           to_text(eviction_->sequence().policy());
  }
  /// What the context holds, and where the conversation stands.
  /// @{
  void save(const std::string& path, const llama_cpp::Chat& chat) {
    buzz::save_file(Saved{*eviction_, chat.begun()}, path);
  }
  void load(const std::string& path, llama_cpp::Chat& chat) {
    Saved saved{*eviction_, false};
    buzz::load_file(saved, path);
    chat.resume(saved.begun);
  }
  /// @}
  long long tokens_read() const { return eviction_->report().tokens; }

 private:
  using Eviction = buzz::LlamaEviction<llama_context>;
  struct Saved {
    Eviction& eviction;
    bool begun;
    void save(std::ostream& out) const {
      eviction.save(out);
      out.put(begun ? 1 : 0);
    }
    void load(std::istream& in) {
      eviction.load(in);
      begun = in.get() == 1;
    }
  };

  /// The rows that fit --memory: window layers take the same whatever there are.
  int rows_of(const Arguments& a) {
    const long long memory = bytes_of(a.memory);
    start(a, 2 * llama_model_n_swa(model_.get()) + 2048);
    long long row = 0, windows = 0;
    for (const buzz::LlamaLayer& l : eviction_->layers()) {
      if (l.slides)
        windows += static_cast<long long>(l.keys.bytes + l.values.bytes);
      else
        row += static_cast<long long>(l.keys.row_bytes + l.values.row_bytes);
    }
    eviction_.reset();
    context_.reset();
    const long long rows = (memory - windows) / std::max(1LL, row) / 256 * 256;
    if (rows < 256)
      buzz::fail("memory", a.memory,
                 ">= " + std::to_string((windows + 256 * row + (1 << 20) - 1) >> 20) + "M for this model");
    return static_cast<int>(std::min<long long>(rows, 1 << 24));
  }
  void start(const Arguments& a, int rows) {
    eviction_ =
        std::make_unique<Eviction>(policy_of(a, rows, llama_model_n_swa(model_.get())), a.chunk,
                                   a.positions == "closed" ? buzz::LlamaPositions::closed : buzz::LlamaPositions::kept);
    llama_context_params p = llama_cpp::params(static_cast<int>(eviction_->capacity()), a.chunk, a.threads);
    p.type_k = p.type_v = type_of(a.cache);
    eviction_->attach(p);
    context_ = llama_cpp::make(model_, p);
    eviction_->begin(context_.get());
  }

  const llama_cpp::Model& model_;
  const llama_vocab* vocab_;
  std::unique_ptr<Eviction> eviction_;
  llama_cpp::Context context_;
  llama_cpp::Batch batch_;
  llama_sampler* sampler_ = nullptr;
  int chunk_;
};

void read_prompt(Session& session, const std::string& text, const Arguments& a) {
  std::vector<llama_token> ids = session.tokens(text, false);
  buzz::require_at_least("tokens of the prompt file", static_cast<long long>(ids.size()), 1);
  const std::size_t whole = ids.size();
  for (std::size_t i = whole; i < static_cast<std::size_t>(a.tokens); ++i) ids.push_back(ids[i % whole]);
  if (a.tokens > 0) ids.resize(static_cast<std::size_t>(a.tokens));
  long long next = a.every;
  session.read(ids, [&] {
    if (a.every == 0 || session.tokens_read() < next) return;
    std::fprintf(stderr, "[%s; process %s MiB]\n", session.status().c_str(),
                 tiny_llama::mebibytes(llama_cpp::resident_bytes()).c_str());
    next += a.every;
  });
  interrupted = 0;
}

/// A command of the chat; false: it was /quit.
bool obey(const std::string& line, Session& session, llama_cpp::Chat& chat) {
  if (line == "/quit") return false;
  const auto path = [&] { return line.size() > 6 ? line.substr(6) : std::string(); };
  try {
    if (line == "/stats")
      std::printf("%s\n", session.status().c_str());
    else if (line.compare(0, 6, "/save ") == 0)
      session.save(path(), chat);
    else if (line.compare(0, 6, "/load ") == 0)
      session.load(path(), chat);
    else
      buzz::fail("command", "'" + line + "'", "/stats, /save FILE, /load FILE, /quit");
  } catch (const buzz::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return true;
}

void run(const Arguments& a) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const std::string prompt = a.prompt_file.empty() ? "" : tiny_llama::read_text(a.prompt_file);
  const llama_cpp::Model model = llama_cpp::load(a.model);
  llama_cpp::Chat chat(model.get());
  Session session(model, a);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::fprintf(stderr, "%s\n", session.bound().c_str());
  if (!chat.has_template()) std::fprintf(stderr, "the model has no chat template: it goes on with your text\n");
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  if (!a.prompt_file.empty()) read_prompt(session, prompt, a);
  for (std::string line;;) {
    if (terminal) std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line)) {
      if (interrupted == 0 || !terminal) break;
      interrupted = 0;  // Ctrl-C where nothing is answered
      std::cin.clear();
      std::clearerr(stdin);
      std::fprintf(stderr, "\n/quit ends\n");
      continue;
    }
    if (line.empty()) continue;
    if (line[0] == '/') {
      if (!obey(line, session, chat)) break;
      continue;
    }
    interrupted = 0;
    if (session.read(session.tokens(chat.before_answer(line), true))) chat.answered(session.answer(a.answer));
    if (terminal) std::fprintf(stderr, "[%s]\n", session.status().c_str());
    interrupted = 0;
  }
  if (!terminal) std::fprintf(stderr, "%s\n", session.status().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A chat with any model that llama.cpp reads, for ever, in memory that is bounded from the start.",
               "buzz-llama");
  Arguments arguments;
  declare(app, arguments);
  return tiny_llama::run_program(app, argc, argv, [&] { run(arguments); });
}
