// The policies that are compared, by name: a new one is a line in policy_table(). For make_policy.cpp alone, since
// every policy takes seconds to compile.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "buzz/policies.h"
#include "evaluate/make_policy.h"
#include "evaluate/settings.h"

namespace evaluate {

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
std::unique_ptr<tiny_llama::Cache> make(const tiny_llama::Config& config, Settings& settings, const Sizes& sizes) {
  typename Policy::Options options;
  set_options(options, settings, sizes);
  return std::make_unique<tiny_llama::CacheOf<float, Policy>>(config, options, sizes.positions, sizes.max_chunk);
}

inline const std::vector<NamedPolicy>& policy_table() {
  static const std::vector<NamedPolicy> table = {
      {"full", make<buzz::Full>, "", "everything"},
      {"streaming", make<buzz::Streaming>, "window=1", "sink and window (StreamingLLM)"},
      {"local", make<buzz::Streaming>, "sink=0,window=1", "the newest rows"},
      {"h2o", make<buzz::HeavyHitter>, "sink=0,window=0.5", "attention, the heaviest of all (H2O)"},
      {"buzz", make<buzz::Beehive>, "window=0.2,stride=5", "attention, one of each chunk of 5 (BUZZ)"},
      {"strided", make<buzz::Strided>, "window=0.2,stride=5", "one in 5 by index"},
      {"diverse", make<buzz::DiverseBeehive>, "window=0.5,stride=2,keep=4,hive=together",
       "unlike keys, the best 4 of each chunk of 8"},
      {"diverse-global", make<buzz::Policy<buzz::KeyDiversity, buzz::TopK>>, "window=0.5",
       "unlike keys, the best of all"},
  };
  return table;
}

}  // namespace evaluate
