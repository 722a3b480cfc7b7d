#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "buzz/sizes.h"
#include "buzz/view.h"

namespace buzz {

/// Which rows an eviction keeps: for each KV head the same number of rows, ascending. Policies write it; the store, the
/// GPU and engine adapters read it. Kept row i of a head moves to row i; since i <= row(i), moving in ascending order
/// is safe in place.
class KeptRows {
 public:
  KeptRows() = default;
  /// Room for `heads` lists of up to `capacity` rows; the only allocation.
  KeptRows(int heads, int capacity)
      : heads_(heads), capacity_(capacity), rows_(count_of<std::int32_t>("kv_heads * capacity", {heads, capacity})) {}

  int heads() const { return heads_; }  ///< lists of rows
  /// Rows a head had before.
  int from() const { return from_; }
  int size() const { return size_; }  ///< rows a head keeps
  /// The kept rows of a head, ascending, [size]. `head` is checked nowhere in here.
  Span<const std::int32_t> rows(int head) const { return {list(head), size_}; }

  /// Calls f(from, to, count) for each run of neighbouring kept rows: rows [from, from + count) move to `to`.
  /// O(kept rows).
  template <class F>
  void for_each_run(int head, F&& f) const {
    const std::int32_t* kept = list(head);
    for (int i = 0; i < size_;) {
      int end = i + 1;
      while (end < size_ && kept[end] == kept[i] + (end - i)) ++end;
      f(static_cast<int>(kept[i]), i, end - i);
      i = end;
    }
  }

  /// Calls f(begin, end) for each range of rows that is dropped, ascending. O(kept rows).
  template <class F>
  void for_each_gap(int head, F&& f) const {
    int next = 0;
    for_each_run(head, [&](int from, int, int count) {
      if (from > next) f(next, from);
      next = from + count;
    });
    if (from_ > next) f(next, from_);
  }

  /// For policies: starts a new choice over `from` rows that keeps `size`; list(head) is then to be filled.
  void begin(int from, int size) {
    from_ = from;
    size_ = size;
  }
  /// For policies: the list to fill, [size].
  std::int32_t* list(int head) { return rows_.data() + static_cast<std::ptrdiff_t>(head) * capacity_; }
  /// To read.
  const std::int32_t* list(int head) const { return rows_.data() + static_cast<std::ptrdiff_t>(head) * capacity_; }
  std::size_t bytes() const { return rows_.size() * sizeof(std::int32_t); }  ///< allocated

 private:
  int heads_ = 0, capacity_ = 0, from_ = 0, size_ = 0;
  std::vector<std::int32_t> rows_;  // [heads, capacity]
};

/// Moves the kept rows of one head to the front, in place; rows past kept.size() are left as they are, and so are rows
/// that stay where they are. rows: [1, >= kept.from(), dim] of that head. Never allocates. Errors: no such
/// head, another shape. O(moved bytes).
template <class T>
void compact(const KeptRows& kept, int head, View<T> rows) {
  static_assert(std::is_trivially_copyable<T>::value, "rows are moved as bytes");
  require_range("head", head, 0, kept.heads() - 1);
  require_equal("rows.shape[0]", rows.shape(0), 1, "one head");
  require_at_least("rows.shape[1]", rows.shape(1), kept.from());
  if (rows.empty()) return;
  constexpr std::size_t line = 64;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(rows.shape(2));
  const auto at = [&](int row) { return reinterpret_cast<char*>(rows.row(0, row)); };
  // Neighbours together: short rows, for which a loop takes as long as a call, and long ones, which memmove() is best
  // at.
  if (rows.stride(1) == rows.shape(2) && (bytes < line || bytes >= 8 * line)) {
    kept.for_each_run(head, [&](int from, int to, int count) {
      if (from != to) std::memmove(at(to), at(from), bytes * static_cast<std::size_t>(count));
    });
    return;
  }
  const std::int32_t* list = kept.list(head);
  for (int i = 0; i < kept.size(); ++i) {
    if (list[i] == i) continue;
    const char* from = at(list[i]);
    char* to = at(i);
    std::size_t done = 0;  // line by line: a call for each row, or finding runs, takes as long as moving it
    for (; done + line <= bytes; done += line) std::memcpy(to + done, from + done, line);
    if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
  }
}

/// The same for all heads: rows [kept.heads(), >= kept.from(), dim]. Errors: another shape.
template <class T>
void compact(const KeptRows& kept, View<T> rows) {
  require_equal("rows.shape[0]", rows.shape(0), kept.heads(), "the policy's KV heads");
  for (int h = 0; h < kept.heads(); ++h)
    compact(kept, h, View<T>(rows.row(h, 0), 1, rows.shape(1), rows.shape(2), 0, rows.stride(1)));
}

}  // namespace buzz
