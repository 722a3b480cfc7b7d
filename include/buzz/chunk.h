#pragma once

#include <cstdint>

#include "buzz/finite.h"
#include "buzz/regions.h"

namespace buzz {

/// Does a row of importance `a` beat an earlier row of importance `b`? Equal importance never does, so that ties go to
/// the lowest row; NaN loses against every number.
template <class Real>
BUZZ_HOST_DEVICE constexpr bool beats(const Real& a, const Real& b) {
  return !is_nan(a) && (is_nan(b) || a > b);
}

/// The heavy hitter of a chunk: the index in [0, count) of the highest of importance[0..count), count >= 1. O(count).
template <class Real>
BUZZ_HOST_DEVICE constexpr int heaviest(const Real* importance, int count) {
  int best = 0;
  for (int i = 1; i < count; ++i)
    if (beats(importance[i], importance[best])) best = i;
  return best;
}

/// Would row i be among the `keep` heaviest of importance[0..count)? Its rank is the number of rows that come before
/// it: those it does not beat among the earlier, those that beat it among the later. O(count).
template <class Real>
BUZZ_HOST_DEVICE constexpr bool among_heaviest(const Real* importance, int count, int keep, int i) {
  int rank = 0;
  for (int j = 0; j < i; ++j) rank += !beats(importance[i], importance[j]);
  for (int j = i + 1; j < count; ++j) rank += beats(importance[j], importance[i]);
  return rank < keep;
}

/// Writes the `keep` heaviest indices of one chunk importance[0..count), ascending, each plus `offset`; returns how
/// many. O(count) for keep = 1, else O(count^2), made for chunks of tens of rows.
template <class Real>
BUZZ_HOST_DEVICE constexpr int pick(const Real* importance, int count, int keep, int offset, std::int32_t* out) {
  if (keep == 1) {
    out[0] = offset + heaviest(importance, count);
    return 1;
  }
  int written = 0;
  for (int i = 0; i < count && written < keep; ++i)
    if (among_heaviest(importance, count, keep, i)) out[written++] = offset + i;
  return written;
}

/// Rows that `count` rows leave: ceil(count * keep / chunk).
BUZZ_HOST_DEVICE constexpr int left_of_chunks(int count, long long chunk, int keep) {
  return chunks(static_cast<long long>(count) * keep, chunk);
}

/// Chunk c of pick_of_chunks(), which writes it at out + c * keep: chunks can be picked in any order.
template <class Real>
BUZZ_HOST_DEVICE constexpr int pick_chunk(const Real* importance, int count, long long chunk, int keep, int c,
                                          int offset, std::int32_t* out) {
  const int begin = static_cast<int>(c * chunk);
  const int length = count - begin < chunk ? count - begin : static_cast<int>(chunk);
  return pick(importance + begin, length, left_of_chunks(length, chunk, keep), offset + begin, out);
}

/// Cuts importance[0..count) into chunks of `chunk` rows and writes the `keep` heaviest of each, ascending; the last,
/// of r rows, leaves its ceil(r * keep / chunk) heaviest; 1 <= keep <= chunk. Returns ceil(count * keep / chunk),
/// whatever the scores are. keep = 1 is the paper's sampling of unfiltered rows (section 3.2). O(count * chunk),
/// O(count) where one row of each chunk stays.
template <class Real>
BUZZ_HOST_DEVICE constexpr int pick_of_chunks(const Real* importance, int count, long long chunk, int keep,
                                              std::int32_t* out) {
  int written = 0;
  for (int c = 0; c < chunks(count, chunk); ++c)
    written += pick_chunk(importance, count, chunk, keep, c, 0, out + written);
  return written;
}

/// Writes every stride-th index of [0, count), from the first: the paper's thinning of the hive. Returns
/// ceil(count / stride). O(count / stride).
BUZZ_HOST_DEVICE constexpr int pick_every(int count, int stride, std::int32_t* out) {
  int written = 0;
  for (int i = 0; i < count; i += stride) {
    out[written++] = i;
    if (stride >= count - i) break;  // i + stride could overflow
  }
  return written;
}

}  // namespace buzz
