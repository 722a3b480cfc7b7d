// What all tasks have in common: the model, the policies, the budgets, and how work is run and remembered.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/jobs.h"
#include "evaluate/results_cache.h"
#include "evaluate/sequence.h"
#include "evaluate/sized_policy.h"
#include "evaluate/table.h"
#include "tiny_llama/policies.h"
#include "tiny_llama/text_file.h"

namespace evaluate {

using nlohmann::json;

/// A policy's cache, by its text. Errors: what sized_policy() refuses, or the cache.
inline std::unique_ptr<Cache> make_policy(const Config& config, const std::string& spec, const Sizes& sizes) {
  return std::make_unique<tiny_llama::CacheOf<float>>(config, sized_policy(spec, sizes), sizes.positions,
                                                      sizes.max_chunk);
}

/// All that need no file.
inline std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const buzz::PolicyInfo& p : tiny_llama::policies())
    if (p.make().score.kind != buzz::ScoreKind::calibrated) names.push_back(p.name);
  return names;
}

struct CommonOptions {
  std::string model = BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf";
  std::vector<std::string> policies = policy_names();
  std::vector<std::string> budgets = {"40%", "20%"};
  int chunk = 32;  // tokens read at a time
  std::uint64_t seed = 1;
  int threads = 2;
  std::string json, csv, cache;  // a file, a file, a folder; empty: none
};

/// Rows, or a share of the rows that a full cache would have.
struct Budget {
  std::string text;
  double share = 0;  // where it is not 0
  int rows = 0;

  int of(int tokens) const { return share != 0 ? static_cast<int>(std::lround(share * tokens)) : rows; }
};

inline Budget parse_budget(const std::string& text) {
  const char* const allowed = "rows, as 256, or a share of the full cache's, as 40%";
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const bool percent = used + 1 == text.size() && text.back() == '%';
  if (!buzz::is_finite(value) || value <= 0 || (!percent && (used != text.size() || value != std::floor(value))) ||
      value > (1 << 24) || (percent && value > 100))
    fail("budget", printable(text), allowed);
  return {text, percent ? value / 100 : 0, percent ? 0 : static_cast<int>(value)};
}

/// A policy at a budget. The first is the full cache, which the others are compared with.
struct Contender {
  std::string policy;
  Budget budget;
  bool is_full() const { return policy == "full"; }
};

class Common {
 public:
  /// stamp: of the program; what another one measured is not taken for its results.
  Common(const CommonOptions& options, const std::string& stamp)
      : o_(options),
        model_(std::make_shared<const Model>(tiny_llama::read_model(options.model))),
        model_hash_(hex(hash(tiny_llama::read_text(options.model)))),
        stamp_(stamp),
        cache_(options.cache) {
    buzz::require_at_least("chunk", o_.chunk, 1);
    buzz::require_range("threads", o_.threads, 1, 256);
    if (o_.policies.empty()) fail("policies", "none", "at least one");
    if (o_.budgets.empty()) fail("budgets", "none", "at least one");
    contend();
    for (const std::string& policy : o_.policies) try_out(policy);
  }

  /// The same with other budgets.
  Common with_budgets(const std::vector<std::string>& budgets) const {
    Common other = *this;
    other.o_.budgets = budgets;
    other.contend();
    return other;
  }

  const CommonOptions& options() const { return o_; }
  const Model& model() const { return *model_; }
  const Config& config() const { return model_->config; }
  const std::string& model_hash() const { return model_hash_; }
  const tiny_llama::Tokenizer& tokenizer() const { return model_->tokenizer; }
  const std::vector<Contender>& contenders() const { return contenders_; }

  /// For a sequence of `tokens` tokens read in chunks; the budget's share is of `whole` rows.
  Sizes sizes(const Contender& c, int whole, int tokens, buzz::Positions positions = buzz::Positions::logical) const {
    Sizes sizes;
    sizes.budget = c.budget.of(whole);
    sizes.counted = o_.chunk;
    sizes.max_chunk = o_.chunk;
    sizes.tokens = tokens;
    sizes.positions = positions;
    return sizes;
  }
  /// An empty sequence of a contender.
  Sequence sequence(const Contender& c, int whole, int tokens,
                    buzz::Positions positions = buzz::Positions::logical) const {
    return sequence(c, sizes(c, whole, tokens, positions));
  }
  Sequence sequence(const Contender& c, const Sizes& sizes) const {
    return Sequence(*model_, make_policy(config(), c.policy, sizes));
  }

  /// Does `count` independent pieces of work, or takes their results from an earlier run; in order.
  /// key(i): all that the result depends on, beside the model, the program and the chunk. cost(i): in tokens.
  std::vector<json> results(std::size_t count, const std::function<json(std::size_t)>& key,
                            const std::function<std::size_t(std::size_t)>& cost,
                            const std::function<json(std::size_t)>& make) const {
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; ++i) all += cost(i);
    std::vector<json> made(count);
    Progress progress(true, all);
    run_jobs(count, o_.threads, [&](std::size_t i) {
      const json whole = {{"model", model_hash_}, {"program", stamp_}, {"chunk", o_.chunk}, {"work", key(i)}};
      bool remembered = true;
      made[i] = cache_.get(whole, [&] {
        remembered = false;
        return make(i);
      });
      progress.add(cost(i), remembered);
    });
    return made;
  }

 private:
  /// A cache of few rows: a misspelt policy, or weights of another model, are told before hours of work.
  void try_out(const std::string& policy) const {
    Sizes sizes;
    sizes.budget = o_.chunk + 1000;
    sizes.counted = sizes.max_chunk = o_.chunk;
    sizes.tokens = 1;
    make_policy(config(), policy, sizes);
  }

  void contend() {
    contenders_.assign(1, {"full", {"100%", 1, 0}});
    for (const std::string& budget : o_.budgets)
      for (const std::string& policy : o_.policies)
        if (policy != "full") contenders_.push_back({policy, parse_budget(budget)});
  }

  CommonOptions o_;
  std::shared_ptr<const Model> model_;
  std::string model_hash_, stamp_;
  ResultsCache cache_;
  std::vector<Contender> contenders_;
};

/// What every row of every table says of memory.
inline json cost_of(const Sequence& s) {
  return {{"peak_rows", s.peak_rows()}, {"peak_bytes", s.peak_bytes()}, {"allocated_bytes", s.allocated_bytes()}};
}
inline const std::vector<Column>& cost_columns() {
  static const std::vector<Column> columns = {{"policy"}, {"budget"}, {"peak rows"}, {"KV KiB"}, {"allocated KiB"}};
  return columns;
}
/// The means over several results.
inline std::vector<Cell> cost_cells(const Contender& c, const std::vector<const json*>& results) {
  double rows = 0, bytes = 0, allocated = 0;
  for (const json* r : results) {
    rows += r->at("cost").at("peak_rows").get<double>();
    bytes += r->at("cost").at("peak_bytes").get<double>();
    allocated += r->at("cost").at("allocated_bytes").get<double>();
  }
  const double n = static_cast<double>(results.size());
  return {c.policy, c.budget.text, rows / n, bytes / n / 1024, allocated / n / 1024};
}

inline std::vector<Column> with_costs(std::vector<Column> columns) {
  columns.insert(columns.begin(), cost_columns().begin(), cost_columns().end());
  return columns;
}

}  // namespace evaluate
