// A text file as a string, and back.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "tiny_llama/gguf.h"

namespace tiny_llama {

inline std::string read_text(const std::string& path) {
  std::error_code error;
  std::ifstream stream(path, std::ios::binary);
  if (std::filesystem::is_directory(path, error) || !stream)
    fail<FileError>("file", printable(path), "a text file that can be read");
  std::ostringstream text;
  text << stream.rdbuf();  // at once: letter by letter takes long where nothing is optimised
  return text.str();
}

/// Errors: `what`, the option that named the file.
inline void write_text(const char* what, const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) fail<FileError>(what, printable(path), "a file that can be written");
}

}  // namespace tiny_llama
