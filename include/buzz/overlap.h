#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "buzz/view.h"

namespace buzz {

/// The bytes of a strided tensor: `row` of them side by side at begin + i * stride[0] + j * stride[1] + k * stride[2].
struct Footprint {
  std::uintptr_t begin = 0;         ///< the first one's address
  long long size[3] = {1, 1, 1};    ///< rows along each axis
  long long stride[3] = {0, 0, 0};  ///< bytes from row to row, >= 0
  long long row = 0;                ///< bytes of a row

  /// No bytes at all?
  bool empty() const { return row == 0 || size[0] == 0 || size[1] == 0 || size[2] == 0; }
  /// Bytes between rows along an axis; 0: there is but one.
  long long step(int axis) const { return size[axis] > 1 ? stride[axis] : 0; }
  /// Bytes from the first to behind the last, along so many of the axes alone.
  long long span(const int* axes, int count) const {
    long long bytes = row;
    for (int i = 0; i < count; ++i) bytes += (size[axes[i]] - 1) * step(axes[i]);
    return bytes;
  }
};

/// Of a view, and of so many bytes.
/// @{
template <class T>
Footprint footprint(const View<T>& view) {
  constexpr long long bytes = sizeof(T);
  return {reinterpret_cast<std::uintptr_t>(view.data()),
          {1, view.shape(0), view.shape(1)},
          {0, view.stride(0) * bytes, view.stride(1) * bytes},
          view.shape(2) * bytes};
}
inline Footprint footprint(const void* begin, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(begin), {1, 1, 1}, {0, 0, 0}, static_cast<long long>(bytes)};
}
/// @}

/// Are the two the same rows, one by one?
inline bool same(const Footprint& a, const Footprint& b) {
  bool same = a.begin == b.begin && a.row == b.row;
  for (int i = 0; i < 3; ++i) same = same && a.size[i] == b.size[i] && a.step(i) == b.step(i);
  return same;
}

/// As below, with b's first row `offset` bytes after a's, along the first `count` of those axes, the slowest first.
inline bool apart(const Footprint& a, const Footprint& b, const int* axes, int count, long long offset) {
  if (offset >= a.span(axes, count) || -offset >= b.span(axes, count)) return true;
  if (count == 0) return false;
  // Modulo what both step by, b's rows lie in one place; where neither's reach farther, two of a's are near it.
  const long long period = std::gcd(a.step(axes[0]), b.step(axes[0]));
  if (period == 0) return apart(a, b, axes + 1, count - 1, offset);
  if (a.span(axes + 1, count - 1) > period || b.span(axes + 1, count - 1) > period) return false;
  const long long after = (offset % period + period) % period;
  return apart(a, b, axes + 1, count - 1, after) && apart(a, b, axes + 1, count - 1, after - period);
}

/// Have the two no byte in common? Of rows that lie between each other's, as q, k and v of one fused tensor do, it says
/// so where both step alike; of others, whose strides have nothing to do with each other, it may say that they have
/// where they have not. O(1).
inline bool apart(const Footprint& a, const Footprint& b) {
  if (a.empty() || b.empty()) return true;
  int axes[3] = {0, 1, 2};
  const auto slowness = [&](int axis) { return (std::max)(a.step(axis), b.step(axis)); };
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2 - i; ++j)
      if (slowness(axes[j]) < slowness(axes[j + 1])) std::swap(axes[j], axes[j + 1]);
  if (apart(a, b, axes, 3, static_cast<long long>(b.begin - a.begin))) return true;
  // Rows alone, wherever they are: modulo all steps.
  long long period = 0;
  for (int axis = 0; axis < 3; ++axis) period = std::gcd(period, std::gcd(a.step(axis), b.step(axis)));
  if (period == 0 || a.row > period || b.row > period) return false;
  const long long offset = static_cast<long long>(b.begin - a.begin), after = (offset % period + period) % period;
  return after >= a.row && after + b.row <= period;
}

/// Refuses a view to write that has memory in common with one to read, unless they are the same, value by value: then
/// each is read before it is written to.
template <class O, class In>
void require_apart(const char* name, const View<O>& out, const char* other, const View<In>& in) {
  const Footprint a = footprint(out), b = footprint(in);
  if (!apart(a, b) && !same(a, b))
    fail(name, std::string("in a part of the memory of ") + other,
         std::string("all of ") + other + " with its strides, or none of it");
}

}  // namespace buzz
