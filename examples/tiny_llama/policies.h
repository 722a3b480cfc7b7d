// The library's policies, as programs offer them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "buzz/policy_list.h"

namespace tiny_llama {

/// Those that a program can run, which has no scores of its user's. shows_queries: do policies see queries?
inline std::vector<buzz::PolicyInfo> policies(bool shows_queries = true) {
  std::vector<buzz::PolicyInfo> list = buzz::policies();
  const auto cannot = [&](const buzz::PolicyInfo& p) {
    const buzz::Policy policy = p.make();
    return policy.score.kind == buzz::ScoreKind::user || (!shows_queries && policy.needs().queries);
  };
  list.erase(std::remove_if(list.begin(), list.end(), cannot), list.end());
  return list;
}

/// A line each, after a line break, and one for each purpose that one of them serves.
inline std::string lines_of(const std::vector<buzz::PolicyInfo>& list) {
  std::string text;
  for (const buzz::PolicyInfo& p : list) text += std::string("\n  ") + p.name + ": " + p.text;
  for (const buzz::Purpose& purpose : buzz::purposes())
    for (const buzz::PolicyInfo& p : list)
      if (p.name == std::string(purpose.policy))
        text += std::string("\n  ") + purpose.name + ": " + p.name + ", the best known for " + purpose.text;
  return text;
}

}  // namespace tiny_llama
