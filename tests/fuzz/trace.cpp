// Any bytes as a trace. What the parser accepts is within its limits, and the library can replay it.

#include "trace.h"

#include <sstream>

#include "fuzz.h"

namespace {

using fuzz::require;

bool small(const trace::Trace& t) {
  int tokens = 0;
  for (int n : t.calls) tokens = std::min(1000, tokens + n);
  return t.heads * tokens <= 600 && t.heads * (t.sink + t.window + t.threshold + t.heavy) <= 2000;
}

void check(const trace::Trace& t) {
  require(t.heads >= 1 && t.heads <= 256, "heads");
  require(t.sink >= 0 && t.window >= 0 && t.threshold >= 0 && t.stride >= 0 && t.heavy >= 0, "a negative size");
  require(!t.calls.empty() && t.final_length >= 1, "no calls");
  for (int n : t.calls) require(n >= 1, "a call of no tokens");
}

/// It parses to the same again.
std::string text(const trace::Trace& t) {
  std::string s = "policy " + t.policy + "\nseed " + std::to_string(t.seed) + "\nheads " + std::to_string(t.heads) +
                  "\nwindow " + std::to_string(t.window) + "\nfinal_length " + std::to_string(t.final_length);
  if (t.buzz())
    s += "\nsink " + std::to_string(t.sink) + "\nthreshold " + std::to_string(t.threshold) + "\nstride " +
         std::to_string(t.stride);
  else
    s += t.policy == "h2o" ? "\nheavy " + std::to_string(t.heavy) : "\nsink " + std::to_string(t.sink);
  s += "\ncalls";
  for (std::size_t i = 0; i < t.calls.size();) {
    std::size_t end = i;
    while (end < t.calls.size() && t.calls[end] == t.calls[i]) ++end;
    s += " " + std::to_string(t.calls[i]) + "x" + std::to_string(end - i);
    i = end;
  }
  for (const std::string& line : t.lines) s += "\n" + line;
  return s;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  trace::Trace t;
  try {
    t = trace::parse(in);
  } catch (const trace::FormatError& e) {
    require(e.line() >= 1, "the line of an error");
    return 0;
  }
  check(t);
  std::istringstream again(text(t));
  require(text(trace::parse(again)) == text(t), "a trace is another when it is read again");
  // Where the library refuses, it says so; the parser does not know what a policy allows.
  if (small(t)) fuzz::refuses([&] { require(trace::replay(t).final_length >= 0, "rows"); });
  return 0;
}
