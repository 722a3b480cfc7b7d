// A file with one JSON object a line.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "buzz/error.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/text_file.h"

namespace evaluate {

using buzz::fail;
using tiny_llama::printable;

/// At most `most` objects, blank lines passed over. Errors: a line that is no object, or has a field twice, with its
/// number; none at all.
inline std::vector<nlohmann::json> read_jsonl(const std::string& path, std::size_t most) {
  const std::string text = tiny_llama::read_text(path);
  std::vector<nlohmann::json> objects;
  std::size_t line = 0;
  for (std::size_t at = 0, end; at < text.size() && objects.size() < most; at = end + 1) {
    end = (std::min)(text.find('\n', at), text.size());
    ++line;
    const std::string part = text.substr(at, end - at);
    if (part.find_first_not_of(" \r\t") == std::string::npos) continue;
    const std::string where = path + ":" + std::to_string(line);
    std::vector<std::set<std::string>> seen;  // of each object that is open
    const auto check = [&](int, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
      if (event == nlohmann::json::parse_event_t::object_start) seen.emplace_back();
      if (event == nlohmann::json::parse_event_t::object_end) seen.pop_back();
      if (event == nlohmann::json::parse_event_t::key && !seen.back().insert(parsed.get<std::string>()).second)
        fail<buzz::FileError>(where, printable(parsed.get<std::string>()), "each field once");
      return true;
    };
    nlohmann::json object = nlohmann::json::parse(part, check, false);
    if (!object.is_object()) fail<buzz::FileError>(where, printable(part), "a JSON object");
    object["line"] = line;
    objects.push_back(std::move(object));
  }
  if (objects.empty()) fail<buzz::FileError>("data", printable(path), "a file with a JSON object a line");
  return objects;
}

/// A field that has to be a text, or a list of texts. Errors: it is missing or something else, by line and name.
template <class Value>
Value field(const std::string& path, const nlohmann::json& object, const char* name) {
  const std::string where = path + ":" + std::to_string(object.value("line", 0)) + " " + name;
  const char* const allowed = std::is_same_v<Value, std::string> ? "a text" : "a list of texts, one at least";
  if (!object.contains(name)) fail<buzz::FileError>(where, "missing", allowed);
  const nlohmann::json& value = object.at(name);
  bool good = value.is_string();
  if constexpr (!std::is_same_v<Value, std::string>) {
    good = value.is_array() && !value.empty();
    for (const nlohmann::json& part : value) good = good && part.is_string();
  }
  if (!good) fail<buzz::FileError>(where, printable(value.dump()), allowed);
  return value.get<Value>();
}

}  // namespace evaluate
