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
#include "evaluate/once.h"
#include "evaluate/results_cache.h"
#include "evaluate/sequences.h"
#include "evaluate/sized_policy.h"
#include "evaluate/table.h"
#include "tiny_llama/policies.h"
#include "tiny_llama/text_file.h"

namespace evaluate {

using nlohmann::json;

/// A policy's cache, by its text. Errors: what sized_policy() refuses, or the cache; replay.
inline std::unique_ptr<Cache> make_policy(const Config& config, const std::string& spec, const Sizes& sizes) {
  if (is_replay(spec))
    fail("policy", printable(spec), "another where no prompt is read --once, since replay reads it again");
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
  int chunk = 32;     // tokens read at a time
  bool once = false;  // prompts are read whole by a full cache, and then cut
  std::uint64_t seed = 1;
  int threads = 2;
  std::string json, csv, cache;  // a file, a file, a folder; empty: none
  std::string program;           // in the cache's keys; empty: when the program was built
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

/// Contenders by their numbers.
using Members = std::vector<std::size_t>;

/// A policy at a budget. The first is the full cache, which the others are compared with.
struct Contender {
  std::string policy;
  Budget budget;
  std::string key;  // the policy, and what is in the file that it names
  bool is_full() const { return policy == "full"; }
};

class Common {
 public:
  /// built: when the program was; what another one measured is not taken for its results.
  Common(const CommonOptions& options, const std::string& built)
      : o_(options),
        model_(std::make_shared<const Model>(tiny_llama::read_model(options.model))),
        model_hash_(hex(hash(tiny_llama::read_text(options.model)))),
        program_(o_.program.empty() ? built : o_.program),
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
  /// An empty sequence of each of those contenders, by their numbers.
  template <class SizesOf>
  Sequences sequences(const Members& members, const SizesOf& sizes_of) const {
    Batch::Members caches;
    for (std::size_t c : members)
      caches.push_back(make_policy(config(), contenders_[c].policy, sizes_of(contenders_[c])));
    return Sequences(*model_, std::move(caches));
  }
  Sequences sequences(const Members& members, int whole, int tokens,
                      buzz::Positions positions = buzz::Positions::logical) const {
    return sequences(members, [&](const Contender& c) { return sizes(c, whole, tokens, positions); });
  }

  /// As tables say it.
  std::string how_read() const {
    return o_.once ? "read whole and cut once" : "read in chunks of " + std::to_string(o_.chunk) + " and evicted";
  }
  /// Sequences of those contenders that have read a prompt, after which `more` tokens will come at most; budgets are
  /// shares of the prompt.
  Sequences read(const Members& members, const Tokens& prompt, int more) const {
    const int whole = static_cast<int>(prompt.size());
    if (o_.once) return read_once(members, prompt, more);
    Sequences s = sequences(members, whole, whole + more);
    s.read(prompt);
    return s;
  }

  /// As many sequences as are read together: all that one prompt serves; or else more would not make the product with
  /// the weights any cheaper.
  std::size_t together() const {
    return o_.once ? contenders_.size() : static_cast<std::size_t>((std::max)(1, 256 / o_.chunk));
  }

  /// Does the work of each contender on each of `units`, or takes what an earlier run gave; [contender][unit], flat.
  /// key(contender, unit): all that a result depends on, beside the model, the program and the chunk. cost(unit): in
  /// tokens. make(unit, members): the results of those contenders, at most `most`.
  template <class Key, class Cost, class Make>
  std::vector<json> results(std::size_t contenders, std::size_t units, const Key& key, const Cost& cost,
                            const Make& make, std::size_t most) const {
    struct Job {
      std::size_t unit;
      Members members;
    };
    std::vector<Job> jobs;
    std::vector<json> made(contenders * units);
    const auto whole_key = [&](std::size_t c, std::size_t u) -> json {
      return {{"model", model_hash_}, {"program", program_}, {"chunk", o_.chunk}, {"work", key(c, u)}};
    };
    std::size_t all = 0, remembered = 0;
    for (std::size_t u = 0; u < units; ++u) {
      bool open = false;  // is the last job one that has room?
      for (std::size_t c = 0; c < contenders; ++c) {
        all += cost(u);
        json& result = made[c * units + u];
        result = cache_.find(whole_key(c, u));
        if (!result.is_null()) {
          remembered += cost(u);
          continue;
        }
        if (!open || jobs.back().members.size() == most) jobs.push_back({u, {}});
        jobs.back().members.push_back(c);
        open = true;
      }
    }
    Progress progress(all, remembered);
    run_jobs(jobs.size(), o_.threads, [&](std::size_t j) {
      const Job& job = jobs[j];
      std::vector<json> results = make(job.unit, job.members);
      for (std::size_t m = 0; m < job.members.size(); ++m) {
        cache_.put(whole_key(job.members[m], job.unit), results[m]);
        made[job.members[m] * units + job.unit] = std::move(results[m]);
      }
      progress.add(cost(job.unit) * job.members.size());
    });
    return made;
  }

 private:
  Sequences read_once(const Members& members, const Tokens& prompt, int more) const {
    const int whole = static_cast<int>(prompt.size());
    const auto sizes_of = [&](const Contender& c) {
      Sizes sizes = this->sizes(c, whole, whole + more);
      sizes.counted = 1;
      sizes.max_chunk = c.is_full() ? o_.chunk : whole;  // so that there is room for all of it
      return sizes;
    };
    const auto follower = [&](const buzz::Policy& policy, const Sizes& sizes) {
      return std::make_unique<Follower>(config(), policy, sizes.positions, sizes.max_chunk);
    };
    Led::Followers followers;
    std::vector<std::pair<Follower*, Replayed>> replayed;
    std::vector<int> rows;
    for (std::size_t c : members) {
      const Contender& one = contenders_[c];
      const Sizes sizes = sizes_of(one);
      if (is_replay(one.policy)) {
        const Replayed scores(one.policy, sizes);
        followers.push_back(follower(scores.policy, sizes));
        replayed.emplace_back(followers.back().get(), scores);
      } else {
        followers.push_back(follower(sized_policy(one.policy, sizes), sizes));
      }
      rows.push_back(one.budget.of(whole));
    }
    const Sizes all_rows = sizes_of(contenders_[0]);
    auto led = std::make_unique<Led>(config(), follower(sized_policy(contenders_[0].policy, all_rows), all_rows),
                                     std::move(followers));
    Led& all = *led;
    Batch::Members one;
    one.push_back(std::move(led));
    Sequences reading(*model_, std::move(one));
    reading.read(prompt);
    if (!replayed.empty()) {
      const calibrate::Replay again = read_again(model(), prompt);
      for (const auto& [to, scores] : replayed) to->give(scores, again);
    }
    return Sequences(reading, all.cut(rows));
  }

  /// A cache of few rows: a misspelt policy, or weights of another model, are told before hours of work.
  void try_out(const std::string& policy) const {
    Sizes sizes;
    sizes.budget = o_.chunk + 1000;
    sizes.counted = sizes.max_chunk = o_.chunk;
    sizes.tokens = 1;
    if (is_replay(policy) && o_.once)
      Replayed(policy, sizes);
    else
      make_policy(config(), policy, sizes);
  }

  void contend() {
    contenders_.assign(1, {"full", {"100%", 1, 0}, "full"});
    for (const std::string& budget : o_.budgets)
      for (const std::string& policy : o_.policies)
        if (policy != "full") contenders_.push_back({policy, parse_budget(budget), with_file(policy)});
  }

  static std::string with_file(const std::string& policy) {
    const std::string option = "weights=";
    const std::size_t at = policy.find(option);
    if (at == std::string::npos) return policy;
    const std::size_t begin = at + option.size();
    return policy + " " + hex(hash(tiny_llama::read_text(policy.substr(begin, policy.find(',', begin) - begin))));
  }

  CommonOptions o_;
  std::shared_ptr<const Model> model_;
  std::string model_hash_, program_;
  ResultsCache cache_;
  std::vector<Contender> contenders_;
};

/// What every row of every table says of memory.
inline json cost_of(const Sequences& s, int i) {
  return {{"peak_rows", s.peak_rows(i)}, {"peak_bytes", s.peak_bytes(i)}, {"allocated_bytes", s.allocated_bytes(i)}};
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
