#pragma once

// The trace format of tests/golden/README.md: a strict reader, and the scores that a trace stands for.
// None of this uses the library, so that programs which judge the library can read traces too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace trace {

/// A malformed trace: what() says why, line() where (1 is the first line).
class FormatError : public std::runtime_error {
 public:
  FormatError(int line, const std::string& reason) : std::runtime_error(reason), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

struct Trace {
  std::string policy;  // buzz, buzz_fast, buzz_no_max, h2o, streaming, local
  std::uint64_t seed = 0;
  int heads = 0;  // KV heads, one query head each
  int sink = 0, window = 0, threshold = 0, stride = 0, heavy = 0;
  std::vector<int> calls;  // tokens of each call
  int final_length = 0;
  std::vector<std::string> lines;  // the kept and score lines, as they stand in the file

  bool buzz() const { return policy.compare(0, 4, "buzz") == 0; }
  bool scored() const { return policy == "buzz" || policy == "h2o"; }
};

/// What a trace may ask of the machine. A file beyond it is refused before anything is allocated for it.
struct Limits {
  static constexpr std::uint64_t heads = 256;
  static constexpr std::uint64_t size = 1000000;          // sink, window, threshold, stride, heavy, all tokens
  static constexpr std::uint64_t state = 1u << 22;        // heads * (sink + window + threshold + heavy)
  static constexpr std::uint64_t call_scores = 1u << 24;  // heads * tokens of a call * rows it may see
};

namespace detail {

/// Takes one line apart at single spaces.
class Words {
 public:
  Words(int line, const std::string& text) : line_(line), text_(text) {}

  bool more() const { return at_ < text_.size(); }

  std::string word(const char* what) {
    if (!more()) fail(std::string(what) + " is missing");
    const std::size_t end = std::min(text_.find(' ', at_), text_.size());
    if (end == at_) fail("one space belongs between two words");
    const std::string result = text_.substr(at_, end - at_);
    if (end + 1 == text_.size()) fail("the line ends with a space");
    at_ = end + 1;
    return result;
  }

  /// Decimal digits only, low <= value <= high.
  std::uint64_t number(const char* what, std::uint64_t low, std::uint64_t high) {
    return parse(word(what), what, low, high);
  }
  int integer(const char* what, std::uint64_t low, std::uint64_t high) {
    return static_cast<int>(number(what, low, high));
  }

  std::uint64_t parse(const std::string& digits, const char* what, std::uint64_t low, std::uint64_t high) const {
    std::uint64_t value = 0;
    bool good = !digits.empty();
    for (char c : digits) {
      const std::uint64_t digit = static_cast<std::uint64_t>(c) - '0';
      good = good && c >= '0' && c <= '9' && value <= (std::numeric_limits<std::uint64_t>::max() - digit) / 10;
      if (!good) break;
      value = value * 10 + digit;
    }
    if (!good || value < low || value > high)
      fail(std::string(what) + " is '" + shown(digits) + "', allowed: " + std::to_string(low) + " to " +
           std::to_string(high));
    return value;
  }

  [[noreturn]] void fail(const std::string& reason) const { throw FormatError(line_, reason); }

  void end() const {
    if (more()) fail("unexpected '" + shown(text_.substr(at_)) + "'");
  }

  /// Short, and printable whatever the file holds.
  static std::string shown(const std::string& text) {
    std::string result = text.substr(0, 40);
    for (char& c : result)
      if (c < ' ' || c > '~') c = '?';
    return text.size() > 40 ? result + "..." : result;
  }

 private:
  int line_;
  const std::string& text_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::istream& in) : in_(in) {}

  Trace read() {
    std::string text;
    while (std::getline(in_, text)) {
      ++line_;
      Words words(line_, text);
      const std::string name = words.word("a name");
      if (name == "kept" || name == "score") {
        if (t_.lines.empty()) check_header();
        name == "kept" ? read_kept(words) : read_score(words);
        t_.lines.push_back(text);
      } else {
        read_header(name, words);
      }
      words.end();
    }
    if (t_.lines.empty()) {
      ++line_;
      check_header();
    }
    return t_;
  }

 private:
  void read_header(const std::string& name, Words& words) {
    if (!t_.lines.empty()) words.fail("'" + Words::shown(name) + "' after the first kept or score line");
    for (const std::string& other : seen_)
      if (other == name) words.fail("a second '" + name + "'");
    if (name == "policy") {
      t_.policy = words.word("policy");
    } else if (name == "seed") {
      t_.seed = words.number("seed", 0, std::numeric_limits<std::uint64_t>::max());
    } else if (name == "heads") {
      t_.heads = words.integer("heads", 1, Limits::heads);
    } else if (name == "sink") {
      t_.sink = words.integer("sink", 0, Limits::size);
    } else if (name == "window") {
      t_.window = words.integer("window", 0, Limits::size);
    } else if (name == "threshold") {
      t_.threshold = words.integer("threshold", 1, Limits::size);
    } else if (name == "stride") {
      t_.stride = words.integer("stride", 3, Limits::size);  // the authors' hive never shrinks at 1 and 2; ours does
    } else if (name == "heavy") {
      t_.heavy = words.integer("heavy", 1, Limits::size);
    } else if (name == "calls") {
      read_calls(words);
    } else if (name == "final_length") {
      t_.final_length = words.integer("final_length", 1, Limits::size);
    } else {
      words.fail("unknown name '" + Words::shown(name) + "'");
    }
    seen_.push_back(name);
  }

  /// 300x1 1x60: one call of 300 tokens, then 60 of one token.
  void read_calls(Words& words) {
    do {
      const std::string call = words.word("a call");
      const std::size_t x = std::min(call.find('x'), call.size());
      if (x == call.size()) words.fail("a call is '" + Words::shown(call) + "', allowed: TOKENSxTIMES");
      const std::uint64_t tokens = words.parse(call.substr(0, x), "a call's tokens", 1, Limits::size);
      const std::uint64_t times = words.parse(call.substr(x + 1), "a call's times", 1, Limits::size);
      if (tokens * times > Limits::size - total_) words.fail("more than " + std::to_string(Limits::size) + " tokens");
      for (std::uint64_t i = 0; i < times; ++i) {
        total_ += tokens;
        t_.calls.push_back(static_cast<int>(tokens));
        tokens_after_.push_back(static_cast<int>(total_));
      }
    } while (words.more());
  }

  [[noreturn]] void fail(const std::string& reason) const { throw FormatError(line_, reason); }

  /// Every name that the policy knows, and no other; and nothing larger than the limits.
  void check_header() const {
    std::vector<std::string> names = {"policy", "seed", "heads", "window", "calls", "final_length"};
    if (t_.policy == "buzz" || t_.policy == "buzz_fast" || t_.policy == "buzz_no_max") {
      names.insert(names.end(), {"sink", "threshold", "stride"});
    } else if (t_.policy == "h2o") {
      names.push_back("heavy");
    } else if (t_.policy == "streaming" || t_.policy == "local") {
      names.push_back("sink");
    } else if (has(seen_, "policy")) {
      fail("policy is '" + Words::shown(t_.policy) + "', allowed: buzz, buzz_fast, buzz_no_max, h2o, streaming, local");
    }
    for (const std::string& name : names)
      if (!has(seen_, name)) fail("no '" + name + "' line before this");
    for (const std::string& name : seen_)
      if (!has(names, name)) fail("policy " + t_.policy + " has no '" + name + "'");
    if (t_.policy == "local" && t_.sink != 0) fail("policy local has sink 0");
    check_limits();
  }

  void check_limits() const {
    const std::uint64_t heads = static_cast<std::uint64_t>(t_.heads);
    const std::uint64_t sizes = static_cast<std::uint64_t>(t_.sink) + static_cast<std::uint64_t>(t_.window) +
                                static_cast<std::uint64_t>(t_.threshold) + static_cast<std::uint64_t>(t_.heavy);
    if (heads * sizes > Limits::state) fail("heads times the policy's sizes is over " + std::to_string(Limits::state));
    for (std::size_t c = 0; c < t_.calls.size(); ++c)
      if (heads * static_cast<std::uint64_t>(t_.calls[c]) * static_cast<std::uint64_t>(tokens_after_[c]) >
          Limits::call_scores)
        fail("call " + std::to_string(c) + " has more than " + std::to_string(Limits::call_scores) + " scores");
  }

  /// kept CALL HEAD ids...: in the order of calls and heads, ids ascending.
  void read_kept(Words& words) {
    if (score_heads_ > 0) words.fail("a kept line after a score line");
    const int call = words.integer("the call", 0, t_.calls.size() - 1);
    const int head = words.integer("the head", 0, static_cast<std::uint64_t>(t_.heads) - 1);
    const long long place = 1LL * call * t_.heads + head;
    if (place <= last_kept_) words.fail("kept lines are not in the order of calls and heads");
    last_kept_ = place;
    const std::uint64_t tokens = static_cast<std::uint64_t>(tokens_after_[static_cast<std::size_t>(call)]);
    std::uint64_t lowest = 0;
    while (words.more()) lowest = words.number("a kept token", lowest, tokens - 1) + 1;
  }

  /// score HEAD values...: one value a row.
  void read_score(Words& words) {
    if (!t_.scored()) words.fail("policy " + t_.policy + " has no score lines");
    score_heads_ =
        words.integer("the head", static_cast<std::uint64_t>(score_heads_), static_cast<std::uint64_t>(t_.heads) - 1) +
        1;
    for (int i = 0; i < t_.final_length; ++i) words.number("a score", 0, std::numeric_limits<std::uint64_t>::max());
  }

  static bool has(const std::vector<std::string>& names, const std::string& name) {
    for (const std::string& other : names)
      if (other == name) return true;
    return false;
  }

  std::istream& in_;
  int line_ = 0;
  Trace t_;
  std::vector<std::string> seen_;
  std::vector<int> tokens_after_;  // tokens appended by the end of each call
  std::uint64_t total_ = 0;
  long long last_kept_ = -1;
  int score_heads_ = 0;  // score lines begin at this head
};

/// splitmix64's finaliser, as the format defines it.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace detail

/// Errors: FormatError.
inline Trace parse(std::istream& in) { return detail::Reader(in).read(); }

/// The scores of one call, [heads, queries, columns], contiguous: multiples of 2^-14, 0 where the mask is causal.
inline std::vector<float> scores(const Trace& t, int call, int queries, int columns) {
  const auto fold = [](std::uint64_t state, int value) {
    return detail::mix(state ^ static_cast<std::uint64_t>(value));
  };
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(t.heads) * static_cast<std::size_t>(queries) *
                 static_cast<std::size_t>(columns));
  const std::uint64_t of_call = fold(detail::mix(t.seed), call);
  for (int h = 0; h < t.heads; ++h) {
    const std::uint64_t of_head = fold(of_call, h);
    for (int i = 0; i < queries; ++i) {
      const std::uint64_t of_query = fold(of_head, i);
      for (int j = 0; j < columns; ++j) {
        const bool masked = j > columns - queries + i;
        result.push_back(masked ? 0 : static_cast<float>(fold(of_query, j) >> 50) / 16384);
      }
    }
  }
  return result;
}

}  // namespace trace
