// The policies that are compared, by name: a new one is a line in policy_table().
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "buzz/policies.h"
#include "evaluate/settings.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/model.h"

namespace evaluate {

/// What a cache is made for.
struct Sizes {
  int budget = 0;      // rows
  int counted = 32;    // of these, for the tokens of one call
  int max_chunk = 32;  // tokens of one call; more than `counted` where a prompt is read at once and then evicted
  int tokens = 0;      // that there will be in all
  buzz::Positions positions = buzz::Positions::logical;
};

/// Sets what the options have. Of the budget, a share or a number of rows is the window, and sink, window, threshold
/// and the tokens of a call are all of it: all policies have the same peak.
template <class Options>
void set_options(Options& options, Settings& settings, const Sizes& sizes) {
  const auto where = [&](auto set) {
    if constexpr (std::is_invocable_v<decltype(set), Options&>) set(options);
  };
  where([&](auto& o) -> decltype(void(o.capacity)) { o.capacity = sizes.tokens; });
  where([&](auto& o) -> decltype(void(o.keep)) { o.keep = settings.integer("keep", o.keep, 1); });
  where([&](auto& o) -> decltype(void(o.stride)) {
    o.stride = settings.integer("stride", o.stride, 1);
    // A chunk is keep * stride rows.
    const int chunk = settings.integer("chunk", o.keep * o.stride, 1);
    if (chunk % o.keep != 0) fail("chunk", chunk, "a multiple of keep = " + std::to_string(o.keep));
    o.stride = chunk / o.keep;
  });
  where([&](auto& o) -> decltype(void(o.hive_stride)) {
    o.hive_stride = settings.integer("hive_stride", o.hive_stride, 0);
    o.hive = settings.word("hive", o.hive,
                           {{"first", buzz::HiveRule::first},
                            {"heaviest", buzz::HiveRule::heaviest},
                            {"together", buzz::HiveRule::together}});
  });
  where([&](auto& o) -> decltype(void(o.mass)) {
    o.mass = settings.word("mass", o.mass,
                           {{"accumulated", buzz::MassKind::accumulated},
                            {"latest", buzz::MassKind::latest},
                            {"mean", buzz::MassKind::mean}});
  });
  where([&](auto& o) -> decltype(void(o.threshold)) {
    o.sink = settings.integer("sink", 4, 0);
    constexpr bool needs_middle = !std::is_same_v<Options, buzz::Streaming::Options>;
    const int room = sizes.budget - o.sink - sizes.counted - (needs_middle ? 1 : 0);
    if (room < 1)
      fail("budget", std::to_string(sizes.budget) + " rows",
           ">= " + std::to_string(sizes.budget - room + 1) + " (sink, the tokens of a call, window and middle)");
    const double window = settings.number("window", 0.25, 0, 1 << 24);
    o.window = (std::min)(room, static_cast<int>(std::lround(window <= 1 ? window * sizes.budget : window)));
    o.threshold = sizes.budget - o.sink - o.window - sizes.counted;
  });
  // A top-k leaves a share of the middle; with 1, each call evicts.
  where([&](auto& o) -> decltype(void(o.heavy)) {
    o.heavy = static_cast<int>(std::lround(settings.number("heavy", 1, 0, 1) * o.threshold));
  });
}

template <class Policy>
std::unique_ptr<tiny_llama::Cache> make_policy(const tiny_llama::Config& config, Settings& settings,
                                               const Sizes& sizes) {
  typename Policy::Options options;
  set_options(options, settings, sizes);
  return std::make_unique<tiny_llama::CacheOf<float, Policy>>(config, options, sizes.positions, sizes.max_chunk);
}

struct NamedPolicy {
  std::string name;
  std::unique_ptr<tiny_llama::Cache> (*make)(const tiny_llama::Config&, Settings&, const Sizes&);
  std::string settings;  // where they are not the policy's own
  std::string about;
};

inline const std::vector<NamedPolicy>& policy_table() {
  static const std::vector<NamedPolicy> table = {
      {"full", make_policy<buzz::Full>, "", "everything"},
      {"streaming", make_policy<buzz::Streaming>, "window=1", "sink and window (StreamingLLM)"},
      {"local", make_policy<buzz::Streaming>, "sink=0,window=1", "the newest rows"},
      {"h2o", make_policy<buzz::HeavyHitter>, "sink=0,window=0.5", "attention, the heaviest of all (H2O)"},
      {"buzz", make_policy<buzz::Beehive>, "window=0.2,stride=5", "attention, one of each chunk of 5 (BUZZ)"},
      {"strided", make_policy<buzz::Strided>, "window=0.2,stride=5", "one in 5 by index"},
      {"diverse", make_policy<buzz::DiverseBeehive>, "window=0.5,keep=4,chunk=8,hive=together",
       "unlike keys, the best 4 of each chunk of 8"},
      {"diverse-global", make_policy<buzz::Policy<buzz::KeyDiversity, buzz::TopK>>, "window=0.5",
       "unlike keys, the best of all"},
  };
  return table;
}

inline std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const NamedPolicy& p : policy_table()) names.push_back(p.name);
  return names;
}

/// spec: a name of the table, and settings in place of its own after a colon. Errors: an unknown name or setting, a
/// budget with too little room, what the policy refuses.
inline std::unique_ptr<tiny_llama::Cache> make_policy_cache(const tiny_llama::Config& config, const std::string& spec,
                                                            const Sizes& sizes) {
  const std::size_t colon = (std::min)(spec.find(':'), spec.size());
  std::string known;
  for (const NamedPolicy& p : policy_table()) {
    known += (known.empty() ? "" : ", ") + p.name;
    if (p.name != spec.substr(0, colon)) continue;
    Settings settings;
    settings.add(p.settings);
    if (colon < spec.size()) settings.add(spec.substr(colon + 1));
    std::unique_ptr<tiny_llama::Cache> cache = p.make(config, settings, sizes);
    settings.refuse_others(spec);
    return cache;
  }
  fail("policy", printable(spec), known);
}

}  // namespace evaluate
