// The policies that are compared, by name: a new one is a line in policy_table(). For make_policy.cpp alone, since
// every policy takes seconds to compile.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "buzz/policies.h"
#include "evaluate/make_policy.h"
#include "evaluate/settings.h"

namespace evaluate {

/// Sets what is given and what the options have.
template <class Options>
void set_options(Options& options, Settings& settings, const Sizes& sizes) {
  const auto where = [&](auto set) {
    if constexpr (std::is_invocable_v<decltype(set), Options&>) set(options);
  };
  where([&](auto& o) -> decltype(void(o.stride)) {
    o.keep = settings.integer("keep", o.keep, 1);
    o.stride = settings.integer("stride", o.stride, 1);
    const int chunk = settings.integer("chunk", o.keep * o.stride, o.keep);
    o.stride = chunk % o.keep == 0 ? chunk / o.keep : 0;
    o.chunk = o.stride == 0 ? chunk : 0;
    // A prompt of one call leaves all that the budget has room for, of chunks of so many rows or more.
    const int fresh = sizes.max_chunk - o.sink - o.window, fill = settings.integer("fill", 0, 0);
    if (fill > 0 && sizes.max_chunk > sizes.counted && o.threshold < fresh) o.leave(o.threshold, fresh, fill);
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
                            {"mean", buzz::MassKind::mean},
                            {"newest", buzz::MassKind::newest},
                            {"largest", buzz::MassKind::largest},
                            {"decayed", buzz::MassKind::decayed}});
    o.decay = static_cast<float>(settings.number("decay", static_cast<double>(o.decay), 0, 1));
  });
  where([&](auto& o) -> decltype(void(o.unlike)) {
    o.unlike = settings.word("unlike", o.unlike,
                             {{"cosine", buzz::Unlike::cosine},
                              {"direction", buzz::Unlike::direction},
                              {"distance", buzz::Unlike::distance}});
    o.mean_over =
        settings.word("mean_over", o.mean_over, {{"all", buzz::MeanOver::all}, {"middle", buzz::MeanOver::middle}});
  });
  where([&](auto& o) -> decltype(void(o.queries)) {
    o.queries = settings.integer("queries", o.queries, 1);
    o.kernel = settings.integer("kernel", o.kernel, 1);
    o.pooling = settings.word("pooling", o.pooling, {{"max", buzz::Pooling::max}, {"average", buzz::Pooling::average}});
  });
  where([&](auto& o) -> decltype(void(o.weight)) {
    o.weight = static_cast<float>(settings.number("weight", static_cast<double>(o.weight), -1e6, 1e6));
  });
  where([&](auto& o) -> decltype(void(o.fade)) {
    o.fade = static_cast<float>(settings.number("fade", static_cast<double>(o.fade), 0, 1e6));
  });
  // With less than all of the middle a top-k evicts seldomer.
  where([&](auto& o) -> decltype(void(o.heavy)) {
    if (!settings.has("heavy")) return;
    o.threshold = (std::max)(o.threshold, o.heavy);
    o.heavy = static_cast<int>(std::lround(settings.number("heavy", 1, 0, 1) * o.threshold));
  });
}

/// All options have the same peak: sink, window, middle and the tokens of a call are the budget.
template <class Policy>
typename Policy::Options make_options(Settings& settings, const Sizes& sizes) {
  typename Policy::Options o;
  if constexpr (std::is_same_v<Policy, buzz::Full>) {
    o.capacity = sizes.tokens;
  } else {
    const int own = o.sink, sink = settings.integer("sink", own, 0);
    const int least = sink + sizes.counted + 1;
    if (sizes.budget < least)
      fail("budget", std::to_string(sizes.budget) + " rows",
           ">= " + std::to_string(least) + " (sink, the tokens of a call, and a row)");
    const int rows = sizes.budget - sink + own;
    o = settings.has("window") ? Policy::Options::for_rows(rows, sizes.counted, settings.number("window", 0, 0, 1))
                               : Policy::Options::for_rows(rows, sizes.counted);
    o.sink = sink;
    set_options(o, settings, sizes);
  }
  return o;
}

template <class Policy>
std::unique_ptr<tiny_llama::Cache> make(const tiny_llama::Config& config, Settings& settings, const Sizes& sizes) {
  return std::make_unique<tiny_llama::CacheOf<float, Policy>>(config, make_options<Policy>(settings, sizes),
                                                              sizes.positions, sizes.max_chunk);
}

template <class Score, class Select>
using Of = buzz::Policy<Score, Select>;

inline const std::vector<NamedPolicy>& policy_table() {
  static const std::string best_of_8 = "stride=2,keep=4,hive=together";
  static const std::vector<NamedPolicy> table = {
      {"full", make<buzz::Full>, "", "everything"},
      {"streaming", make<buzz::Streaming>, "", "sink and window (StreamingLLM)"},
      {"local", make<buzz::Streaming>, "sink=0", "the newest rows"},
      {"h2o", make<buzz::HeavyHitter>, "", "attention, the heaviest of all (H2O)"},
      {"tova", make<buzz::Tova>, "", "the newest query's attention, of all heads (TOVA)"},
      {"snapkv", make<buzz::SnapKv>, "", "the last 32 queries' attention, pooled (SnapKV)"},
      {"buzz", make<buzz::Beehive>, "window=0.2", "attention, the best of each 5 (BUZZ)"},
      {"strided", make<buzz::Strided>, "window=0.2", "the first of each 5"},
      {"keydiff", make<buzz::KeyDiff>, "", "unlike keys, the best of all (KeyDiff)"},
      {"diverse-global", make<Of<buzz::KeyDiversity, buzz::TopK>>, "", "unlike keys, the best of all but a window"},
      {"diverse", make<buzz::DiverseBeehive>, best_of_8, "unlike keys, the best 4 of each 8"},
      {"outliers", make<buzz::KeyOutliers>, "", "unlike keys, the best of all behind a long window, for all heads"},
      {"key-value", make<buzz::KeyValueBeehive>, best_of_8, "unlike keys and long values, the best 4 of each 8"},
      {"value", make<Of<buzz::ValueNorm, buzz::Segments>>, best_of_8, "long values, the best 4 of each 8"},
      {"mass", make<buzz::Beehive>, best_of_8, "attention, the best 4 of each 8"},
  };
  return table;
}

}  // namespace evaluate
