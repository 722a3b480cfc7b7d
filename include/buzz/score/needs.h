#pragma once

namespace buzz {

/// What a score has to see of the cache.
struct Needs {
  bool attention = false;       ///< the probabilities of each call
  bool keys = false;            ///< the stored keys, when it is asked
  bool values = false;          ///< the stored values, when it is asked
  bool unrotated_keys = false;  ///< the keys as they came, when it is asked: rotated back where they are stored rotated
  bool rotated_keys = false;   ///< the keys as attention sees them, when it is asked: rotated where they are stored raw
  bool queries = false;        ///< the queries of each call, before any rotation: their sums, when it is asked
  bool query_lengths = false;  ///< the sums of their pairs' lengths too, where it looks at queries
  /// Does it look at rows of K or V?
  constexpr bool rows() const { return keys || values || unrotated_keys || rotated_keys; }
};
/// What either needs.
constexpr Needs operator|(const Needs& a, const Needs& b) {
  return {a.attention || b.attention,
          a.keys || b.keys,
          a.values || b.values,
          a.unrotated_keys || b.unrotated_keys,
          a.rotated_keys || b.rotated_keys,
          a.queries || b.queries,
          a.query_lengths || b.query_lengths};
}

}  // namespace buzz
