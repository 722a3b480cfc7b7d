#pragma once

#include <algorithm>
#include <vector>

#include "buzz/keep.h"
#include "buzz/sizes.h"

namespace buzz {

/// The scores as they were before each of the newest tokens was observed, so that rollback can bring them back bit for
/// bit. Holds max_rollback copies, [max_rollback, kv_heads, capacity].
template <class Value>
class UndoLog {
 public:
  /// Copies of up to `capacity` rows for the newest max_rollback tokens; 0: none.
  UndoLog(int max_rollback, int heads, int capacity)
      : heads_(heads),
        capacity_(capacity),
        labels_(static_cast<std::size_t>(max_rollback)),
        copies_(count_of<Value>("max_rollback * kv_heads * capacity", {max_rollback, heads, capacity})) {}

  int max_rollback() const { return static_cast<int>(labels_.size()); }  ///< tokens that can be taken back at most
  /// Rollback can go back to this next_position and no further.
  int floor() const { return floor_; }
  /// What was observed before `position` stays.
  void raise_floor(int position) { floor_ = (std::max)(floor_, position); }

  /// The token at `position` is about to be observed: keeps what that changes, score.target() of every head.
  template <class Score>
  void push(int position, Score& score, int rows) {
    if (labels_.empty()) return raise_floor(position + 1);
    const int slot = (first_ + used_) % max_rollback();
    if (used_ == max_rollback()) {
      raise_floor(labels_[static_cast<std::size_t>(slot)] + 1);
      first_ = (first_ + 1) % max_rollback();
    } else {
      ++used_;
    }
    labels_[static_cast<std::size_t>(slot)] = position;
    for (int h = 0; h < heads_; ++h) std::copy_n(score.target(h), rows, copy(slot, h));
  }

  /// Takes back all that was observed at `position` and later; `rows` are the rows left.
  template <class Score>
  void restore(int position, Score& score, int rows) {
    while (used_ > 0) {
      const int slot = (first_ + used_ - 1) % max_rollback();
      if (labels_[static_cast<std::size_t>(slot)] < position) return;
      score.step_back();
      for (int h = 0; h < heads_; ++h) std::copy_n(copy(slot, h), rows, score.target(h));
      --used_;
    }
  }

  /// An eviction or a reset: nothing before `position` can be brought back.
  void clear(int position) {
    first_ = used_ = 0;
    floor_ = position;
  }

  std::size_t bytes() const { return labels_.size() * sizeof(int) + copies_.size() * sizeof(Value); }  ///< allocated

 private:
  Value* copy(int slot, int head) {
    return copies_.data() + (static_cast<std::ptrdiff_t>(slot) * heads_ + head) * capacity_;
  }

  int heads_, capacity_;
  int first_ = 0, used_ = 0, floor_ = 0;
  std::vector<int> labels_;    // [max_rollback], positions, ascending in ring order
  std::vector<Value> copies_;  // [max_rollback, kv_heads, capacity]
};

}  // namespace buzz
