// buzz-llama-cpp-slots: three sequences of one context, each with its own policy and bound, beside each alone.
#include <llama.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "buzz/adapters/llama.h"
#include "llama_cpp/context.h"
#include "tiny_llama/program.h"
#include "tiny_llama/text_file.h"

namespace {

constexpr int chunk = 16;

struct Arguments {
  std::string model, text;
  int tokens = 200, threads = 1;
  bool unified = false, exact = false, full = false;
};

/// Slots that read a text each, a prompt in chunks and the rest token by token, prompts of some beside tokens of
/// others. Returns each slot's logits, [tokens, vocab].
std::vector<std::vector<float>> run_slots(const llama_cpp::Model& model, const Arguments& a,
                                          const std::vector<buzz::Policy>& policies,
                                          const std::vector<std::vector<llama_token>>& prompts) {
  const int count = static_cast<int>(policies.size()), vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  buzz::LlamaEviction<llama_context> eviction(policies, chunk);
  int largest = 0;
  for (int s = 0; s < count; ++s) largest = std::max(largest, eviction.sequence(s).capacity());
  llama_context_params p = llama_cpp::params(count * ((largest + 255) / 256 * 256), chunk * count, a.threads);
  p.n_seq_max = static_cast<std::uint32_t>(count);
  p.kv_unified = a.unified;
  if (a.exact) {
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  }
  eviction.attach(p);
  const llama_cpp::Context context = llama_cpp::make(model, p);
  eviction.begin(context.get());
  std::vector<std::size_t> read(prompts.size());
  std::vector<std::vector<float>> all(prompts.size());
  llama_batch batch = llama_batch_init(chunk * count, 0, 1);
  for (bool any = true; any;) {
    batch.n_tokens = 0;
    std::vector<std::vector<int>> placed(prompts.size());  // where each slot's tokens are in the batch
    eviction.evict();
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      const auto add = [&](llama_token token, int place) {
        const int i = batch.n_tokens++;
        batch.token[i] = token;
        batch.pos[i] = eviction.next_position(static_cast<int>(s)) + place;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = static_cast<int>(s);
        batch.logits[i] = 1;
        placed[s].push_back(i);
      };
      const std::size_t left = prompts[s].size() - read[s], answered = static_cast<std::size_t>(a.tokens);
      const std::size_t n =
          left > answered ? std::min<std::size_t>(chunk, left - answered) : std::min<std::size_t>(left, 1);
      for (std::size_t i = 0; i < n; ++i) add(prompts[s][read[s] + i], static_cast<int>(i));
      read[s] += n;
    }
    any = batch.n_tokens > 0;
    if (!any) break;
    buzz::require_equal("llama_decode", eviction.decode(batch), 0, "success");
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      buzz::require_range("rows held", eviction.rows(static_cast<int>(s)), 0,
                          eviction.sequence(static_cast<int>(s)).capacity());
      for (int i : placed[s]) {
        const float* logits = llama_get_logits_ith(context.get(), i);
        all[s].insert(all[s].end(), logits, logits + vocab);
      }
    }
  }
  llama_batch_free(batch);
  return all;
}

bool run(const Arguments& a) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const llama_cpp::Model model = llama_cpp::load(a.model);
  const std::vector<llama_token> ids = llama_cpp::tokens(model, tiny_llama::read_text(a.text), 3000);
  buzz::require_at_least("tokens of the text", static_cast<long long>(ids.size()), 1200);
  std::vector<buzz::Policy> policies = {llama_cpp::policy("key_outliers", 150, chunk),
                                        llama_cpp::policy("leverage", 110, chunk),
                                        llama_cpp::policy("streaming", 90, chunk)};
  if (a.full) std::fill(policies.begin(), policies.end(), llama_cpp::policy("full", 280 + a.tokens + chunk, chunk));
  std::vector<std::vector<llama_token>> prompts;
  for (int s = 0; s < 3; ++s)
    prompts.emplace_back(ids.begin() + 400 * s, ids.begin() + 400 * s + 100 + 90 * s + a.tokens);
  const auto together = run_slots(model, a, policies, prompts);
  bool same = true;
  for (std::size_t s = 0; s < 3; ++s) {
    const auto alone = run_slots(model, a, {policies[s]}, {prompts[s]});
    const auto vocab = static_cast<std::ptrdiff_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
    float farthest = 0;
    std::size_t likeliest = 0;
    for (std::size_t i = 0; i < prompts[s].size(); ++i) {
      const float *one = alone[0].data() + static_cast<std::ptrdiff_t>(i) * vocab,
                  *other = together[s].data() + static_cast<std::ptrdiff_t>(i) * vocab;
      likeliest += std::max_element(one, one + vocab) - one == std::max_element(other, other + vocab) - other;
      for (std::ptrdiff_t j = 0; j < vocab; ++j) farthest = std::max(farthest, std::abs(one[j] - other[j]));
    }
    // Where cells are shared, sums are in another order, and weights that have quants make much of that.
    same = same && (a.unified ? likeliest * 10 >= prompts[s].size() * 9 : farthest == 0);
    std::printf("%s: of %zu tokens the next one is the same after %zu; logits are %.2g apart at most\n",
                policies[s].name.c_str(), prompts[s].size(), likeliest, static_cast<double>(farthest));
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Three sequences of one llama.cpp context, each with its own policy and bound, beside each alone.",
               "buzz-llama-cpp-slots");
  Arguments a;
  app.add_option("model", a.model, "A GGUF file")->required();
  app.add_option("text", a.text, "A text file of 1,200 tokens or more")->required();
  app.add_option("--tokens", a.tokens, "Tokens of each that come one by one")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--threads", a.threads, "Threads of llama.cpp");
  app.add_flag("--exact", a.exact, "K and V in F32, without flash attention, which rounds by the order of cells");
  app.add_flag("--full", a.full, "No eviction: what llama.cpp's rounding alone does");
  app.add_flag("--unified", a.unified, "Sequences share their cells");
  bool same = false;
  const int result = tiny_llama::run_program(app, argc, argv, [&] { same = run(a); });
  return result != 0 ? result : same ? 0 : 1;
}
