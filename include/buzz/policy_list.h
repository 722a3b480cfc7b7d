#pragma once

#include <cerrno>
#include <cstdlib>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "buzz/policies.h"

namespace buzz {

/// A policy of the list.
struct PolicyInfo {
  const char* name;                             ///< in programs and tables
  const char* text;                             ///< one sentence
  Policy (*make)();                             ///< with its own options
  Policy (*for_rows)(int rows, int max_chunk);  ///< with the sizes that take all of a budget
  /// The same with that share of the spare rows as window, 0 to 1.
  Policy (*for_rows_and_window)(int rows, int max_chunk, double window_share);
};

/// A line of the list: the policy that Make makes.
template <class Options, Policy (*Make)(const Options&)>
PolicyInfo policy_info(const char* name, const char* text) {
  return {name, text, [] { return Make(Options()); },
          [](int rows, int max_chunk) { return Make(Options::for_rows(rows, max_chunk)); },
          [](int rows, int max_chunk, double share) { return Make(Options::for_rows(rows, max_chunk, share)); }};
}

/// All named policies. What each needs, where it may run and its options are the made policy's: needs(),
/// keeps_one_list(), options_of().
inline const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> all = {
      policy_info<BeehiveOptions, beehive>("beehive", "BUZZ: summed attention, the heaviest row of each chunk"),
      policy_info<StridedOptions, strided>("strided", "BUZZ without scores: the first row of each chunk"),
      policy_info<DiverseBeehiveOptions, diverse_beehive>("diverse_beehive",
                                                          "of each chunk the key least like the others"),
      policy_info<KeyValueBeehiveOptions, key_value_beehive>("key_value_beehive",
                                                             "of each chunk the least alike key and the longest value"),
      policy_info<HeavyHitterOptions, heavy_hitter>("heavy_hitter", "H2O: summed attention, the heaviest rows of all"),
      policy_info<KeyDiffOptions, key_diff>("key_diff", "KeyDiff: of all rows the keys least like the others"),
      policy_info<KeyOutliersOptions, key_outliers>("key_outliers",
                                                    "a long window, and before it the keys least like the others"),
      policy_info<LeverageOptions, leverage>("leverage",
                                             "a long window, and before it the keys that the others make up for least"),
      policy_info<LagKvOptions, lag_kv>("lag_kv", "LagKV: a long window, and before it the rows that spread most"),
      policy_info<CalibratedOptions, calibrated>(
          "calibrated",
          "a short window, and before it the rows that the model's weights, a file, tell to keep in all layers"),
      policy_info<ExpectedAttentionOptions, expected_attention>(
          "expected_attention", "a long window, and before it what the mean query will look at most, by its value"),
      policy_info<TriAttentionOptions, tri_attention>(
          "tri_attention",
          "TriAttention: a long window, and before it the keys that suit queries at distances to come"),
      policy_info<CapKvOptions, cap_kv>(
          "cap_kv", "CapKV: a long window, and before it the values that add most, by what queries will look at"),
      policy_info<TovaOptions, tova>("tova", "TOVA: of all rows those that the newest query looks at most"),
      policy_info<SnapKvOptions, snap_kv>("snap_kv", "SnapKV: the last queries' attention, pooled over neighbours"),
      policy_info<UserScoresBeehiveOptions, user_scores>("user_scores",
                                                         "of each chunk the row that the user's own scores put first"),
      policy_info<StreamingOptions, streaming>("streaming", "StreamingLLM: sink and window alone"),
      policy_info<FullOptions, full>("full", "no eviction, up to a capacity"),
  };
  return all;
}

/// What a policy is for: a name that text may have in the place of the policy's.
struct Purpose {
  const char* name;    ///< its function's too
  const char* policy;  ///< of policies()
  const char* text;    ///< one sentence
};

/// All of them.
inline const std::vector<Purpose>& purposes() {
  static const std::vector<Purpose> all = {
      {"recall", "calibrated", "answers about what was read, where the model has weights"},
      {"fluency", "expected_attention", "running text, with any model"},
  };
  return all;
}

/// The name of the policy that a purpose, or a policy itself, names.
inline std::string policy_name(const std::string& name) {
  for (const Purpose& p : purposes())
    if (name == p.name) return p.policy;
  return name;
}

/// Adds a name to a list of them, "a, b".
inline void add_name(std::string* list, const char* name) { *list += (list->empty() ? "" : ", ") + std::string(name); }

/// An option as a table shows it.
struct OptionInfo {
  std::string name;   ///< as in text
  std::string value;  ///< now
  std::string range;  ///< what is allowed
  std::string text;   ///< what it does
};

/// A policy's options, in order.
inline std::vector<OptionInfo> options_of(const Policy& policy) {
  struct List final : OptionVisitor {
    std::vector<OptionInfo> all;
    void whole(const char* name, int& value, long long low, long long high, const char* text) override {
      const bool open = high == (std::numeric_limits<int>::max)();
      all.push_back({name, std::to_string(value),
                     open ? ">= " + std::to_string(low) : std::to_string(low) + " to " + std::to_string(high), text});
    }
    void number(const char* name, double& value, bool (*)(double), const char* range, const char* text) override {
      std::ostringstream s;
      s.precision(9);
      s << value;
      all.push_back({name, s.str(), range, text});
    }
    void one_of(const char* name, int& value, const char* const* names, int count, const char* text) override {
      std::string range;
      for (int i = 0; i < count; ++i) add_name(&range, names[i]);
      all.push_back({name, value >= 0 && value < count ? names[value] : std::to_string(value), range, text});
    }
    void path(const char* name, std::string& value, const char* text) override {
      all.push_back({name, value, "a path without commas", text});
    }
  } list;
  Policy copy = policy;
  copy.options(list);
  return list.all;
}

/// Is the text a finite number, in any locale? Then it is read.
inline bool is_number(const std::string& text, double* number) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  return in >> *number && in.eof() && is_finite(*number);
}

/// The whole number that a text is. Errors: it is none from low to high.
inline int whole_number(const std::string& field, const std::string& text, long long low, long long high) {
  char* end = nullptr;
  errno = 0;
  const long long x = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != 0 || errno != 0 || x < low || x > high)
    fail(field, text, std::to_string(low) + " to " + std::to_string(high));
  return static_cast<int>(x);
}

/// Sets one option by its name. Errors: no such option, which are named; a value out of its range; a file that cannot
/// be loaded (FileError).
inline void set_option(Policy& policy, const std::string& name, const std::string& value) {
  struct Set final : OptionVisitor {
    const std::string *name, *value;
    std::string known;
    bool found = false;
    bool is(const char* its) {
      add_name(&known, its);
      return found = found || *name == its, *name == its;
    }
    [[noreturn]] void refuse(const std::string& range) const { fail(*name, *value, range); }
    void whole(const char* its, int& to, long long low, long long high, const char*) override {
      if (is(its)) to = whole_number(*name, *value, low, high);
    }
    void number(const char* its, double& to, bool (*allowed)(double), const char* range, const char*) override {
      if (!is(its)) return;
      double x = 0;
      if (!is_number(*value, &x) || !allowed(x)) refuse(range);
      to = x;
    }
    void one_of(const char* its, int& to, const char* const* names, int count, const char*) override {
      if (!is(its)) return;
      std::string range;
      for (int i = 0; i < count; ++i) {
        if (*value == names[i]) return void(to = i);
        add_name(&range, names[i]);
      }
      refuse(range);
    }
    void path(const char* its, std::string& to, const char*) override {
      if (is(its)) to = *value;
    }
  } set;
  set.name = &name;
  set.value = &value;
  policy.options(set);
  if (!set.found) fail("policy option", name, set.known);
}

/// A policy from text: a name of policies() or purposes(), and options of it that differ from its own: "beehive",
/// "heavy_hitter:sink=2,heavy=64". `rows`, `max_chunk` and `window_share` among them: the sizes that take all of that
/// budget (see PolicyOptions::for_rows), before the other options. Errors: no such name or option, which are named; a
/// value out of its range.
inline Policy policy(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = policy_name(text.substr(0, colon));
  const PolicyInfo* info = nullptr;
  std::string known;
  for (const PolicyInfo& p : policies()) {
    add_name(&known, p.name);
    if (name == p.name) info = &p;
  }
  for (const Purpose& p : purposes()) add_name(&known, p.name);
  if (info == nullptr) fail("policy", name, known);
  Policy result = info->make();
  if (colon == std::string::npos) return result;
  std::vector<std::pair<std::string, std::string>> others;
  std::istringstream list(text.substr(colon + 1));
  std::string part;
  int rows = 0, max_chunk = 1;
  std::optional<double> window_share;
  while (std::getline(list, part, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) fail("policy", part, "option=value");
    const std::string option = part.substr(0, equals), value = part.substr(equals + 1);
    if (option == "window_share") {
      if (!is_number(value, &window_share.emplace())) fail(option, value, "0 to 1");
      continue;
    }
    if (option != "rows" && option != "max_chunk") {
      others.emplace_back(option, value);
      continue;
    }
    (option == "rows" ? rows : max_chunk) = whole_number(option, value, 1, (std::numeric_limits<int>::max)() / 4);
  }
  if (window_share && rows == 0) fail("window_share", std::to_string(*window_share), "none without rows");
  if (rows > 0)
    result = window_share ? info->for_rows_and_window(rows, max_chunk, *window_share) : info->for_rows(rows, max_chunk);
  for (const auto& o : others) set_option(result, o.first, o.second);
  result.most_rows(max_chunk);
  return result;
}

/// What policy() makes that policy of: its name and the options that are not its own.
inline std::string to_text(const Policy& policy) {
  std::vector<OptionInfo> usual;
  for (const PolicyInfo& p : policies())
    if (policy.name == p.name) usual = options_of(p.make());
  std::string text = policy.name;
  char before = ':';
  const std::vector<OptionInfo> options = options_of(policy);
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (i < usual.size() && usual[i].value == options[i].value) continue;
    text += before + options[i].name + "=" + options[i].value;
    before = ',';
  }
  return text;
}

}  // namespace buzz
