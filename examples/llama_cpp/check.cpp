// buzz-llama-cpp-check: llama.cpp under eviction against itself without it, and against our own engine, which keeps the
// same positions by other means. Ends with 1 where the logits are further apart than they may be.
#include <llama.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buzz/adapters/llama.h"
#include "llama_cpp/context.h"
#include "tiny_llama/llama.h"
#include "tiny_llama/program.h"
#include "tiny_llama/text_file.h"

namespace {

constexpr int chunk = 32;

struct Arguments {
  std::string model, text, positions = "kept";
  int tokens = 10000, cells = 512, compact_every = 0, threads = 0;
  double tolerance = 1e-2;
  bool half_cache = false;
};

/// Rotates by position as llama.cpp does: in float, an angle from the one before it. Past some thousand positions that
/// is another angle than Rope's by what logits show in the second digit after the point.
class FloatRope {
 public:
  explicit FloatRope(const tiny_llama::Config& c)
      : rotation_(tiny_llama::rope_of(c, buzz::Positions::logical), c.head_dim),
        step_(std::pow(c.rope_base, -2.0f / static_cast<float>(c.rope_dims))),
        cos_sin_(static_cast<std::size_t>(c.rope_dims)) {}

  /// in, [tokens, heads, head_dim], at positions from `first` on; valid until the next call.
  buzz::View<const float> operator()(buzz::View<const float> in, int first) {
    rows_.clear();
    for (int i = 0; i < in.shape(0); ++i) {
      angles(static_cast<float>(first + i));
      for (int h = 0; h < in.shape(1); ++h) {
        rows_.insert(rows_.end(), in.row(i, h), in.row(i, h) + in.shape(2));
        rotation_.rotate(cos_sin_.data(), rows_.data() + rows_.size() - in.shape(2));
      }
    }
    return buzz::view(std::as_const(rows_), in.shape(0), in.shape(1), in.shape(2));
  }

 private:
  /// In Rotation's order: all cosines, then all sines.
  void angles(float angle) {
    const std::size_t half = cos_sin_.size() / 2;
    for (std::size_t d = 0; d < half; ++d, angle *= step_) {
      cos_sin_[d] = std::cos(angle);
      cos_sin_[half + d] = std::sin(angle);
    }
  }

  buzz::Rotation rotation_;
  float step_;
  std::vector<float> cos_sin_, rows_;
};

/// A cache that keeps the rows that it is told to, the same in all layers and heads. Closed positions are Rope's; kept
/// ones, which have no end, llama.cpp's.
class ToldCache final : public tiny_llama::Cache {
 public:
  ToldCache(const tiny_llama::Config& c, bool closed, int kept, int threshold)
      : closed_(closed), kept_(kept), rotated_q_(c), rotated_k_(c) {
    const buzz::Policy given = buzz::policy(buzz::user_score(), buzz::TopK::Options{kept, threshold}, {0, 0});
    const buzz::Rope rope = closed ? tiny_llama::rope_of(c, buzz::Positions::compact) : buzz::Rope{};
    for (int i = 0; i < c.layers; ++i)
      layers_.emplace_back(buzz::Shape{c.query_heads, c.kv_heads, c.head_dim, chunk}, given, rope);
  }

  std::unique_ptr<Cache> fork() const override { buzz::fail("fork", "asked for", "not to be had"); }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    auto& cache = layers_[static_cast<std::size_t>(layer)];
    const int first = cache.next_position();
    cache.append(closed_ ? k : rotated_k_(k, first), v);
    cache.attend(closed_ ? q : rotated_q_(q, first), out, run);
  }
  int max_chunk() const override { return chunk; }
  int layers() const override { return static_cast<int>(layers_.size()); }
  int rows(int layer) const override { return layers_[static_cast<std::size_t>(layer)].rows(); }
  int capacity(int layer) const override { return layers_[static_cast<std::size_t>(layer)].capacity(); }
  std::size_t bytes(int layer) const override { return layers_[static_cast<std::size_t>(layer)].bytes(); }

  /// Keeps the rows of these tokens, ascending, and no others.
  void keep(const buzz::Span<const std::int32_t>& tokens) {
    buzz::require_equal("rows kept", tokens.size, kept_, "the same at each eviction");
    for (auto& cache : layers_) {
      std::vector<float> scores;
      for (int h = 0; h < cache.shape().kv_heads; ++h)
        for (std::int32_t p : cache.positions(h))
          scores.push_back(std::binary_search(tokens.begin(), tokens.end(), p) ? 1.f : 0.f);
      cache.give(buzz::View<const float>(scores.data(), 1, cache.shape().kv_heads, cache.rows()));
      if (!cache.evict() || !std::equal(tokens.begin(), tokens.end(), cache.positions(0).begin()))
        buzz::fail("rows kept", "others", "those that were told");
    }
  }

 private:
  bool closed_;
  int kept_;
  FloatRope rotated_q_, rotated_k_;
  std::vector<buzz::BuzzCache<float>> layers_;
};

struct Farthest {
  double difference = 0;
  int token = 0;
  void see(const float* a, const float* b, int vocab, int at) {
    for (int i = 0; i < vocab; ++i) {
      const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      if (buzz::is_nan(d) || d > difference) difference = d, token = at;
    }
  }
};

bool run(const Arguments& a) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const llama_cpp::Model model = llama_cpp::load(a.model);
  const tiny_llama::Model own = tiny_llama::read_model(a.model);
  const std::vector<llama_token> ids = llama_cpp::tokens(model, tiny_llama::read_text(a.text), a.tokens);
  const bool closed = a.positions == "closed";

  buzz::HeavyHitterOptions o = buzz::HeavyHitterOptions::for_rows(a.cells, chunk);
  o.threshold = o.heavy;
  o.heavy /= 2;  // evicts in blocks, and as many rows each time
  buzz::LlamaEviction<llama_context> eviction(buzz::heavy_hitter(o), chunk,
                                              closed ? buzz::LlamaPositions::closed : buzz::LlamaPositions::kept);
  llama_context_params p = llama_cpp::params(a.cells, chunk, a.threads);
  if (!a.half_cache) p.type_k = p.type_v = GGML_TYPE_F32;
  eviction.attach(p);
  const llama_cpp::Context evicting = llama_cpp::make(model, p);
  eviction.begin(evicting.get());
  p.cb_eval = nullptr;
  const llama_cpp::Context alone = llama_cpp::make(model, p);

  auto told =
      std::make_unique<ToldCache>(own.config, closed, o.sink + o.heavy + o.window, o.sink + o.threshold + o.window);
  ToldCache& cache = *told;
  tiny_llama::Llama engine(own, std::move(told));

  Farthest untouched, before, after;
  llama_cpp::Batch batch(chunk);
  const int count = static_cast<int>(ids.size()), vocab = own.config.vocab;
  for (int at = 0, calls = 1; at < count; at += chunk, ++calls) {
    const int n = std::min(chunk, count - at);
    if (eviction.evict()) cache.keep(eviction.evictor().positions(0));
    const llama_batch& b = batch.of(ids.data() + at, n, eviction.next_position());
    buzz::require_equal("llama_decode", eviction.decode(b), 0, "success");
    if (a.compact_every > 0 && calls % a.compact_every == 0) eviction.compact();
    const bool evicted = eviction.report().evictions > 0;
    if (!evicted) buzz::require_equal("llama_decode without us", llama_decode(alone.get(), b), 0, "success");
    const auto logits = engine.forward({ids.begin() + at, ids.begin() + at + n}, n);
    for (int i = 0; i < n; ++i) {
      const float* seen = llama_get_logits_ith(evicting.get(), i);
      if (!evicted) untouched.see(seen, llama_get_logits_ith(alone.get(), i), vocab, at + i);
      (evicted ? after : before).see(seen, logits.row(i).data(), vocab, at + i);
    }
  }
  const buzz::LlamaReport& r = eviction.report();
  std::printf(
      "%lld tokens through %u cells, positions %s: %lld failed, %lld evictions, %lld rows, %lld ranges, %lld "
      "shifts, %lld compactions\n",
      r.tokens, llama_n_ctx(evicting.get()), a.positions.c_str(), r.failed, r.evictions, r.rows, r.removals, r.shifts,
      r.compactions);
  std::printf("logits, farthest apart: %.2g from a run without us, before the first eviction\n", untouched.difference);
  std::printf("                        %.2g from our engine before it, %.2g after it (token %d)\n", before.difference,
              after.difference, after.token);
  return r.failed == 0 && r.evictions > 0 && untouched.difference <= 1e-4 && after.difference <= a.tolerance;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares llama.cpp under eviction with a run without it and with our engine.", "buzz-llama-cpp-check");
  Arguments a;
  app.add_option("model", a.model, "A GGUF file in F32 or F16 that our engine reads")->required();
  app.add_option("text", a.text, "A text file")->required();
  app.add_option("--tokens", a.tokens, "Tokens of the text")->capture_default_str();
  app.add_option("--cells", a.cells, "Cells of the context")->capture_default_str();
  app.add_option("--positions", a.positions, "kept or closed")->check(CLI::IsMember({"kept", "closed"}));
  app.add_option("--compact-every", a.compact_every, "Calls between round trips of the state; 0: none");
  app.add_option("--threads", a.threads, "Threads of llama.cpp; 0: as many as there are cores");
  app.add_option("--tolerance", a.tolerance, "Farthest that logits may be from our engine's after an eviction")
      ->capture_default_str();
  app.add_flag("--half-cache", a.half_cache, "K and V in F16, as llama.cpp has them by default");
  bool near = false;
  const int result = tiny_llama::run_program(app, argc, argv, [&] { near = run(a); });
  return result != 0 ? result : near ? 0 : 1;
}
