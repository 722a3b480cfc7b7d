// A cache chosen when the program runs, by text.
#pragma once

#include <Eigen/Core>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "buzz/error.h"
#include "buzz/policy_list.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/config.h"

namespace tiny_llama {

/// What is not given is the policy's own default. What is given and not among the policy's options is refused.
struct CacheOptions {
  std::string policy = "beehive";     // of buzz::policies(), with options or without
  std::string positions = "logical";  // logical | compact
  std::string type = "f32";           // f32 | f16 | bf16
  std::optional<int> sink, window, threshold, stride, heavy;
  int max_chunk = 32;
  int threads = 1;  // pieces that attention is cut into
};

/// The policy that the options ask for; `full` holds `tokens` tokens.
inline buzz::Policy policy_of(const CacheOptions& o, int tokens) {
  buzz::Policy policy = buzz::policy(o.policy == "full" ? "full:capacity=" + std::to_string(tokens) : o.policy);
  const std::pair<const char*, std::optional<int>> given[] = {
      {"sink", o.sink}, {"window", o.window}, {"threshold", o.threshold}, {"stride", o.stride}, {"heavy", o.heavy}};
  for (const auto& [name, value] : given)
    if (value.has_value()) buzz::set_option(policy, name, std::to_string(*value));
  return policy;
}

inline buzz::Positions positions_of(const Config& c, const CacheOptions& o, int tokens) {
  if (o.positions == "compact") return buzz::Positions::compact;
  if (o.positions != "logical") fail("positions", printable(o.positions), "logical or compact");
  // The cache would refuse the first token past the context; who knows the length is told before the work.
  if (tokens > c.context)
    fail("tokens", tokens, "<= " + std::to_string(c.context) + ", the model's context, with positions logical");
  return buzz::Positions::logical;
}

/// The cache that the options ask for, for a sequence of at most `tokens` tokens. Errors: what the policy refuses, an
/// option that it does not have, positions past the model's context.
inline std::unique_ptr<Cache> make_cache(const Config& config, const CacheOptions& o, int tokens) {
  const buzz::Policy policy = policy_of(o, tokens);
  const buzz::Positions positions = positions_of(config, o, tokens);
  if (o.type == "f32") return std::make_unique<CacheOf<float>>(config, policy, positions, o.max_chunk, o.threads);
  if (o.type == "f16") return std::make_unique<CacheOf<Eigen::half>>(config, policy, positions, o.max_chunk, o.threads);
  if (o.type == "bf16")
    return std::make_unique<CacheOf<Eigen::bfloat16>>(config, policy, positions, o.max_chunk, o.threads);
  fail("type", printable(o.type), "f32, f16 or bf16");
}

}  // namespace tiny_llama
