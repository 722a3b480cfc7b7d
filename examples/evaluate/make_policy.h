// A policy's cache by its name, or by name and settings: "diverse:window=0.2,keep=4".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "buzz/rope.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/model.h"

namespace evaluate {

class Settings;

/// What a cache is made for.
struct Sizes {
  int budget = 0;      // rows
  int counted = 32;    // of these, for the tokens of one call
  int max_chunk = 32;  // tokens of one call; more than `counted` where a prompt is read at once and then evicted
  int tokens = 0;      // that there will be in all
  buzz::Positions positions = buzz::Positions::logical;
};

struct NamedPolicy {
  std::string name;
  std::unique_ptr<tiny_llama::Cache> (*make)(const tiny_llama::Config&, Settings&, const Sizes&);
  std::string settings;  // where they are not the policy's own
  std::string about;
};

/// All of them; policies.h has the list.
const std::vector<NamedPolicy>& policies();

/// spec: a name, and settings in place of its own after a colon. Errors: an unknown name or setting, a budget with too
/// little room, what the policy refuses.
std::unique_ptr<tiny_llama::Cache> make_policy(const tiny_llama::Config& config, const std::string& spec,
                                               const Sizes& sizes);

/// When the policies were compiled: what another library measured is not taken for this one's.
std::string policies_stamp();

}  // namespace evaluate
