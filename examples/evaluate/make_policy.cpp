#include "evaluate/make_policy.h"

#include <algorithm>

#include "evaluate/policies.h"

namespace evaluate {

const std::vector<NamedPolicy>& policies() { return policy_table(); }

std::unique_ptr<tiny_llama::Cache> make_policy(const tiny_llama::Config& config, const std::string& spec,
                                               const Sizes& sizes) {
  const std::size_t colon = (std::min)(spec.find(':'), spec.size());
  std::string known;
  for (const NamedPolicy& p : policies()) {
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

std::string policies_stamp() { return __DATE__ " " __TIME__; }

}  // namespace evaluate
