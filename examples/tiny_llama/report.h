// Numbers as people read them, and a progress bar where somebody is watching.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

#if defined(_WIN32)
#include <io.h>
#else
#include <unistd.h>
#endif

namespace tiny_llama {

/// 12345 as "12,345".
template <class Integer>
std::string grouped(Integer number) {
  std::string digits = std::to_string(number);
  const std::size_t sign = digits[0] == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3; digits.insert(at, ",")) at -= 3;
  return digits;
}

inline std::string fixed(double number, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, number);
  return text;
}

inline std::string mebibytes(std::size_t bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 2); }

/// At least `width` characters, blanks on the left or on the right.
inline std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}
inline std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

/// A bar on standard output, or error, if that is a terminal; nothing in a pipe or a file.
class ProgressBar {
 public:
  explicit ProgressBar(bool wanted, std::FILE* out = stdout) : out_(out), shown_(wanted && is_terminal(out)) {}

  bool shown() const { return shown_; }
  void show(std::size_t done, std::size_t all, const std::string& what = "tokens") const {
    if (!shown_) return;
    constexpr std::size_t width = 40;
    const std::size_t full = all == 0 ? width : width * done / all;
    const std::string bar = std::string(full, '#') + std::string(width - full, '.');
    std::fprintf(out_, "\r[%s] %s of %s %s ", bar.c_str(), grouped(done).c_str(), grouped(all).c_str(), what.c_str());
    std::fflush(out_);
  }
  /// Takes the bar away, so that a line can be printed in its place.
  void clear() const {
    if (shown_) std::fprintf(out_, "\r%80s\r", "");
  }

 private:
  static bool is_terminal(std::FILE* out) {
#if defined(_WIN32)
    return _isatty(_fileno(out)) != 0;
#else
    return isatty(fileno(out)) != 0;
#endif
  }
  std::FILE* out_;
  bool shown_;
};

}  // namespace tiny_llama
