#pragma once

#include "buzz/regions.h"

namespace buzz {
namespace cuda {

/// How long a sequence's cache is. Lengths never depend on scores, so that the host has them too, without asking.
struct Lengths {
  int rows = 0;  ///< of every head
  int hive = 0;  ///< of them, what earlier evictions have left
  int next = 0;  ///< position of the next token

  /// Where the rows lie.
  BUZZ_HOST_DEVICE constexpr Regions regions(const Protect& protect) const { return divide(rows, hive, protect); }
};

/// After `tokens` more tokens; below 0: after so many less, none of which an eviction has seen.
BUZZ_HOST_DEVICE constexpr Lengths appended(Lengths l, int tokens) {
  l.rows += tokens;
  l.next += tokens;
  return l;
}

/// A sequence's lengths on the device, so that a captured graph can be replayed: kernels read them there. Append reads
/// `then` and writes `now`; all others read `now`, and the last of a step, the compaction, writes `then`. So no kernel
/// of a step reads what it writes, and none is needed for it alone.
struct State {
  Lengths now;   ///< in the step, the appended rows included
  Lengths then;  ///< after it
};

}  // namespace cuda
}  // namespace buzz
