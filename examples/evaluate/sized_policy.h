// A policy at a budget, by text: "diverse_beehive:window=0.2,keep=4".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "buzz/error.h"
#include "buzz/policy_list.h"
#include "buzz/rope.h"
#include "tiny_llama/gguf.h"

namespace evaluate {

using buzz::fail;
using tiny_llama::printable;

/// What a cache is made for.
struct Sizes {
  int budget = 0;      // rows
  int counted = 32;    // of these, for the tokens of one call
  int max_chunk = 32;  // tokens of one call; more than `counted` where a prompt is read at once and then evicted
  int tokens = 0;      // that there will be in all
  buzz::Positions positions = buzz::Positions::logical;
};

/// A top-k that leaves a share of the middle; with less than all of it it evicts seldomer.
inline void leave_share(buzz::Policy& policy, const std::string& text) {
  double share = 0;
  const auto* top = policy.select.as<buzz::TopK::Options>();
  if (top == nullptr) fail("heavy", printable(text), "no value, since policy " + policy.name + " has no heavy");
  if (!buzz::is_number(text, &share) || share < 0 || share > 1) fail("heavy", printable(text), "0 to 1");
  buzz::TopK::Options o = *top;
  o.threshold = (std::max)(o.threshold, o.heavy);
  o.heavy = static_cast<int>(std::lround(share * o.threshold));
  policy.select = o;
}

/// A beehive whose prompt of one call leaves all that the budget has room for, of chunks of so many rows or more; 0:
/// its own chunks.
inline void fill(buzz::Policy& policy, const std::string& text, const Sizes& sizes) {
  double least = 0;
  const auto* segments = policy.select.as<buzz::Segments::Options>();
  if (segments == nullptr) fail("fill", printable(text), "no value, since policy " + policy.name + " has no chunks");
  if (!buzz::is_number(text, &least) || least < 0 || least > (1 << 24) || least != std::floor(least))
    fail("fill", printable(text), "0 to " + std::to_string(1 << 24));
  const int unfiltered = sizes.max_chunk - policy.protect.sink - policy.protect.window;
  if (least == 0 || sizes.max_chunk <= sizes.counted || segments->threshold >= unfiltered) return;
  buzz::Segments::Options o = *segments;
  o.leave(o.threshold, unfiltered, static_cast<int>(least));
  policy.select = o;
}

/// spec: as buzz::policy()'s text, but that window and heavy are shares (of what sink and call leave, and of the
/// middle), a chunk goes before the policy's own stride, and `fill` is there. All policies have the same peak: sink,
/// window, middle and the tokens of a call are the budget, `full` apart. Errors: an unknown name or option; a budget
/// with too little room; options that go past it; what the policy refuses.
inline buzz::Policy sized_policy(const std::string& spec, const Sizes& sizes) {
  const std::size_t colon = (std::min)(spec.find(':'), spec.size());
  buzz::Policy own = buzz::policy(spec.substr(0, colon));
  if (own.score.kind == buzz::ScoreKind::user)
    fail("policy", own.name, "one without scores of the user's, which nobody gives here");
  if (own.select.as<buzz::KeepAll::Options>() != nullptr) {
    if (colon < spec.size()) fail("policy", printable(spec), own.name + ", which has no options here");
    return buzz::policy(own.name + ":capacity=" + std::to_string(sizes.tokens));
  }

  const int own_sink = own.protect.sink;
  std::string window, heavy, least, rest;
  for (std::size_t at = colon + 1, end; at < spec.size(); at = end + 1) {
    end = (std::min)(spec.find(',', at), spec.size());
    const std::string item = spec.substr(at, end - at), name = item.substr(0, item.find('='));
    const std::string value = item.substr((std::min)(name.size() + 1, item.size()));
    if (value.empty()) fail("policy option", printable(item), "option=value");
    if (name == "sink") {
      buzz::set_option(own, name, value);
    } else if (name == "window" || name == "heavy" || name == "fill") {
      (name == "window" ? window : name == "heavy" ? heavy : least) = value;
    } else {
      rest += (name == "chunk" ? ",stride=0," : ",") + item;
    }
  }
  const int sink = own.protect.sink, fewest = sink + sizes.counted + 1;
  if (sizes.budget < fewest)
    fail("budget", std::to_string(sizes.budget) + " rows",
         ">= " + std::to_string(fewest) + " (sink, the tokens of a call, and a row)");
  buzz::Policy policy =
      buzz::policy(own.name + ":rows=" + std::to_string(sizes.budget - sink + own_sink) +
                   ",max_chunk=" + std::to_string(sizes.counted) + (window.empty() ? "" : ",window_share=" + window) +
                   ",sink=" + std::to_string(sink) + rest);
  if (!heavy.empty()) leave_share(policy, heavy);
  if (!least.empty()) fill(policy, least, sizes);
  if (policy.most_rows(sizes.counted) > sizes.budget)
    fail("rows of " + printable(spec), policy.most_rows(sizes.counted),
         "<= " + std::to_string(sizes.budget) + ", the budget");
  return policy;
}

}  // namespace evaluate
