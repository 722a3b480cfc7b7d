#pragma once

// Replays a trace (trace_file.h) through the library: the whole of the program buzz-trace but its main().

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "buzz/evictor.h"
#include "buzz/policies.h"
#include "trace_file.h"

namespace trace {

struct Replay {
  std::vector<std::string> lines;  // kept and score lines, as in the file
  int final_length = 0;
};

/// The library's policy of a trace.
inline buzz::Policy policy_of(const Trace& t) {
  if (t.buzz()) {
    buzz::Segments::Options o;
    o.threshold = t.threshold;
    o.stride = t.stride;
    o.passes = buzz::Passes::single;
    buzz::AttentionSumOptions attention;
    if (t.policy == "buzz_fast") attention.attention = buzz::AttentionKind::latest;
    return buzz::policy(t.policy == "buzz_no_max" ? buzz::no_score() : buzz::attention_sum(attention), o,
                        {t.sink, t.window});
  }
  if (t.policy == "h2o") return buzz::policy(buzz::attention_sum(), buzz::TopK::Options{t.heavy, 0}, {0, t.window});
  return buzz::policy(buzz::no_score(), buzz::KeepNone::Options(), {t.sink, t.window});
}

/// What the library's policy keeps on this trace, for an engine that owns its rows. Here a row is only its token's
/// number, so that the lines show what moved where.
inline Replay replay(const Trace& t) {
  const int max_chunk = t.calls.empty() ? 1 : *std::max_element(t.calls.begin(), t.calls.end());
  buzz::Evictor evictor(policy_of(t), t.heads, max_chunk);
  std::vector<std::int32_t> storage(static_cast<std::size_t>(t.heads) * static_cast<std::size_t>(evictor.capacity()));
  const auto tokens = buzz::view(storage, t.heads, evictor.capacity(), 1);
  Replay result;
  int next = 0;
  for (std::size_t c = 0; c < t.calls.size(); ++c) {
    const int n = t.calls[c];
    for (int h = 0; h < t.heads; ++h)
      for (int i = 0; i < n; ++i) *tokens.row(h, evictor.rows() + i) = next + i;
    next += n;
    evictor.append(n);
    if (evictor.needs().attention) {
      const std::vector<float> p = scores(t, static_cast<int>(c), n, evictor.rows());
      evictor.observe(buzz::view(p, t.heads, n, evictor.rows()));
    }
    const int before = evictor.rows();
    if (evictor.should_evict()) buzz::compact(evictor.select(), tokens);
    for (int h = 0; h < t.heads && evictor.rows() < before; ++h) {
      std::string line = "kept " + std::to_string(c) + " " + std::to_string(h);
      for (int r = 0; r < evictor.rows(); ++r) line += " " + std::to_string(*tokens.row(h, r));
      result.lines.push_back(line);
    }
  }
  for (int h = 0; h < t.heads && t.scored(); ++h) {
    std::string line = "score " + std::to_string(h);
    for (double score : evictor.scores(h)) line += " " + std::to_string(std::llround(score * 16384));
    result.lines.push_back(line);
  }
  result.final_length = evictor.rows();
  return result;
}

/// The program. Returns its exit status: 0; 1 where the library leaves another number of rows than the file says; 2 for
/// a file that cannot be read or is malformed.
inline int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  if (arguments.size() != 1) {
    err << "usage: buzz-trace FILE\n";
    return 2;
  }
  const std::string& file = arguments[0];
  std::ifstream in(file, std::ios::binary);
  if (!in || in.peek() == std::ifstream::traits_type::eof()) {
    err << "buzz-trace: " << file << ": cannot be read, or is empty\n";
    return 2;
  }
  try {
    const Trace t = parse(in);
    const Replay r = replay(t);
    for (const std::string& line : r.lines) out << line << "\n";
    if (r.final_length == t.final_length) return 0;
    err << "buzz-trace: " << file << ": final_length is " << t.final_length << ", the library leaves " << r.final_length
        << "\n";
    return 1;
  } catch (const FormatError& e) {
    err << "buzz-trace: " << file << ":" << e.line() << ": " << e.what() << "\n";
  } catch (const std::exception& e) {
    err << "buzz-trace: " << file << ": " << e.what() << "\n";
  }
  return 2;
}

}  // namespace trace
