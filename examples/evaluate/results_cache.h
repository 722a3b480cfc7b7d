// Results on disk, so that an interrupted run goes on where it was.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "tiny_llama/gguf.h"

namespace evaluate {

/// FNV-1a, 64 bits: the same on every machine.
inline std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = 14695981039346656037u;
  for (char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}
inline std::string hex(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

/// A folder with one file a result; without a folder nothing is remembered. Different keys may be used from different
/// threads at once.
class ResultsCache {
 public:
  /// Errors: a folder that cannot be made.
  explicit ResultsCache(std::string folder = {}) : folder_(std::move(folder)) {
    if (folder_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (!std::filesystem::is_directory(folder_, error))
      tiny_llama::fail<buzz::FileError>("cache", tiny_llama::printable(folder_), "a folder that can be made");
  }

  /// What was put under this key before; null: nothing, or it is damaged.
  nlohmann::json find(const nlohmann::json& key) const {
    if (folder_.empty()) return {};
    std::ifstream in(file(key), std::ios::binary);
    if (!in) return {};
    const nlohmann::json stored = nlohmann::json::parse(in, nullptr, false);
    // The whole key is in the file: two keys of one hash do not meet.
    if (!stored.is_object() || !stored.contains("result") || stored.value("key", nlohmann::json()) != key) return {};
    return stored["result"];
  }

  void put(const nlohmann::json& key, const nlohmann::json& result) const {
    if (folder_.empty()) return;
    // Under another name first: who is interrupted leaves no half a result.
    const std::string path = file(key), half = path + ".part";
    {
      std::ofstream out(half, std::ios::binary);
      out << nlohmann::json{{"key", key}, {"result", result}}.dump(-1, ' ', false,
                                                                   nlohmann::json::error_handler_t::replace);
      if (!out.flush())
        tiny_llama::fail<buzz::FileError>("cache", tiny_llama::printable(half), "a file that can be written");
    }
    std::filesystem::rename(half, path);
  }

 private:
  std::string file(const nlohmann::json& key) const {
    return (std::filesystem::path(folder_) / (hex(hash(key.dump())) + ".json")).string();
  }
  std::string folder_;
};

}  // namespace evaluate
