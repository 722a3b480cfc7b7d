// A cache chosen when the program runs: every policy and storage type is made here, and only here.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "buzz/error.h"
#include "buzz/policies.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/model.h"

namespace tiny_llama {

/// What is not given is the policy's own default. What is given and not among the policy's options is refused.
struct CacheOptions {
  std::string policy = "buzz";        // full | buzz | streaming | h2o | local
  std::string positions = "logical";  // logical | compact
  std::string type = "f32";           // f32 | f16 | bf16
  std::optional<int> sink, window, threshold, stride, heavy;
  int max_chunk = 32;
};

/// Makes the cache that the options ask for, for a sequence of at most `tokens` tokens.
class CacheMaker {
 public:
  CacheMaker(const Config& config, const CacheOptions& options, int tokens)
      : c_(config), o_(options), tokens_(tokens) {}

  std::unique_ptr<Cache> make() const {
    if (o_.policy == "full") {
      honour({});
      buzz::Full::Options full;
      full.capacity = tokens_;
      return stored<buzz::Full>(full);
    }
    if (o_.policy == "buzz") {
      honour({"sink", "window", "threshold", "stride"});
      buzz::Beehive::Options beehive;
      set(beehive);
      beehive.stride = o_.stride.value_or(beehive.stride);
      return stored<buzz::Beehive>(beehive);
    }
    if (o_.policy == "h2o") {
      honour({"sink", "window", "threshold", "heavy"});
      buzz::HeavyHitter::Options heavy;
      set(heavy);
      heavy.heavy = o_.heavy.value_or(heavy.heavy);
      return stored<buzz::HeavyHitter>(heavy);
    }
    buzz::Streaming::Options streaming;
    if (o_.policy == "streaming") {
      honour({"sink", "window", "threshold"});
    } else if (o_.policy == "local") {
      honour({"window", "threshold"});
      streaming.sink = 0;
    } else {
      fail("policy", printable(o_.policy), "full, buzz, streaming, h2o or local");
    }
    set(streaming);
    return stored<buzz::Streaming>(streaming);
  }

 private:
  void honour(std::initializer_list<std::string> names) const {
    const std::pair<const char*, std::optional<int>> all[] = {{"sink", o_.sink},
                                                              {"window", o_.window},
                                                              {"threshold", o_.threshold},
                                                              {"stride", o_.stride},
                                                              {"heavy", o_.heavy}};
    for (const auto& [name, value] : all) {
      if (value.has_value() && std::find(names.begin(), names.end(), name) == names.end()) {
        fail(name, *value, "no value, since policy '" + o_.policy + "' has no " + name);
      }
    }
  }

  template <class Options>
  void set(Options& options) const {
    options.sink = o_.sink.value_or(options.sink);
    options.window = o_.window.value_or(options.window);
    options.threshold = o_.threshold.value_or(options.threshold);
  }

  template <class Policy>
  std::unique_ptr<Cache> stored(const typename Policy::Options& options) const {
    if (o_.type == "f32") return made<float, Policy>(options);
    if (o_.type == "f16") return made<Eigen::half, Policy>(options);
    if (o_.type == "bf16") return made<Eigen::bfloat16, Policy>(options);
    fail("type", printable(o_.type), "f32, f16 or bf16");
  }

  template <class T, class Policy>
  std::unique_ptr<Cache> made(const typename Policy::Options& options) const {
    return std::make_unique<CacheOf<T, Policy>>(c_, options, positions(), o_.max_chunk);
  }

  buzz::Positions positions() const {
    if (o_.positions == "compact") return buzz::Positions::compact;
    if (o_.positions != "logical") fail("positions", printable(o_.positions), "logical or compact");
    // The cache would refuse the first token past the context; who knows the length is told before the work.
    if (tokens_ > c_.context) {
      fail("tokens", tokens_, "<= " + std::to_string(c_.context) + ", the model's context, with positions logical");
    }
    return buzz::Positions::logical;
  }

  const Config& c_;
  const CacheOptions& o_;
  int tokens_;
};

/// Errors: what the policy refuses, an option that it does not have, positions past the model's context.
inline std::unique_ptr<Cache> make_cache(const Config& config, const CacheOptions& options, int tokens) {
  return CacheMaker(config, options, tokens).make();
}

}  // namespace tiny_llama
