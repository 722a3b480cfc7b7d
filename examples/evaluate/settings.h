// A policy as text: "diverse:window=0.2,keep=4".
#pragma once

#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "tiny_llama/gguf.h"

namespace evaluate {

using buzz::fail;
using tiny_llama::printable;

/// Named values, each of which has to be asked for: a word that nobody knows is refused.
class Settings {
 public:
  /// "key=value,key=value"; later ones win. Errors: what is not of that form.
  void add(const std::string& text) {
    for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
      end = (std::min)(text.find(',', at), text.size());
      const std::string item = text.substr(at, end - at);
      const std::size_t sign = item.find('=');
      if (sign == 0 || sign == std::string::npos || sign + 1 == item.size())
        fail("policy option", printable(item), "key=value");
      values_[item.substr(0, sign)] = item.substr(sign + 1);
    }
  }

  bool has(const std::string& key) {
    asked_.insert(key);
    return values_.count(key) != 0;
  }
  double number(const std::string& key, double otherwise, double low, double high) {
    if (!has(key)) return otherwise;
    const std::string& text = values_[key];
    std::size_t used = 0;
    double value = 0;
    try {
      value = std::stod(text, &used);
    } catch (const std::exception&) {
    }
    if (used != text.size() || !buzz::is_finite(value) || value < low || value > high)
      fail(key, printable(text), "a number from " + shortest(low) + " to " + shortest(high));
    return value;
  }
  int integer(const std::string& key, int otherwise, int low) {
    const double value = number(key, otherwise, low, 1 << 24);
    if (value != std::floor(value)) fail(key, printable(values_[key]), "an integer");
    return static_cast<int>(value);
  }
  /// The value that a word stands for.
  template <class Value>
  Value word(const std::string& key, Value otherwise, const std::vector<std::pair<std::string, Value>>& words) {
    if (!has(key)) return otherwise;
    std::string known;
    for (const auto& [name, value] : words) {
      if (values_[key] == name) return value;
      known += (known.empty() ? "" : ", ") + name;
    }
    fail(key, printable(values_[key]), known);
  }

  /// Errors: a value that nobody asked for.
  void refuse_others(const std::string& policy) const {
    for (const auto& [key, value] : values_) {
      if (asked_.count(key) != 0) continue;
      std::string known;
      for (const std::string& name : asked_) known += (known.empty() ? "" : ", ") + name;
      fail("option of policy " + printable(policy), printable(key), known.empty() ? "none" : known);
    }
  }

 private:
  static std::string shortest(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    return text;
  }

  std::map<std::string, std::string> values_;
  std::set<std::string> asked_;
};

}  // namespace evaluate
