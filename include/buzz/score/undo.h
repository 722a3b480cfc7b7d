#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "buzz/score/score.h"
#include "buzz/sizes.h"

namespace buzz {

/// What a score's state was before each of the newest tokens was observed, so that rollback can bring it back bit for
/// bit. Holds max_rollback copies, [max_rollback, kv_heads, capacity].
class UndoLog {
 public:
  /// Copies of up to `capacity` numbers of `size` bytes for the newest max_rollback tokens; 0: none.
  UndoLog(int max_rollback, int heads, int capacity, std::size_t size)
      : heads_(heads),
        head_bytes_(static_cast<std::size_t>(capacity) * size),
        size_(size),
        labels_(static_cast<std::size_t>(size == 0 ? 0 : max_rollback)),
        copies_(count_of<unsigned char>(
            "max_rollback * kv_heads * capacity",
            {static_cast<long long>(labels_.size()), heads, capacity, static_cast<long long>(size)})) {}

  /// Rollback can go back to this next_position and no further.
  int floor() const { return floor_; }
  /// What was observed before `position` stays.
  void raise_floor(int position) { floor_ = (std::max)(floor_, position); }

  /// The token at `position` is about to be observed: keeps what that changes.
  void push(int position, Score& score, int rows) {
    if (labels_.empty()) return raise_floor(position + 1);
    const int slot = (first_ + used_) % most();
    if (used_ == most()) {
      raise_floor(labels_[static_cast<std::size_t>(slot)] + 1);
      first_ = (first_ + 1) % most();
    } else {
      ++used_;
    }
    labels_[static_cast<std::size_t>(slot)] = position;
    for (int h = 0; h < heads_; ++h) std::memcpy(copy(slot, h), score.changes(h).data, bytes_of(rows));
  }

  /// Takes back all that was observed at `position` and later; `rows` are the rows left.
  void restore(int position, Score& score, int rows) {
    while (used_ > 0) {
      const int slot = (first_ + used_ - 1) % most();
      if (labels_[static_cast<std::size_t>(slot)] < position) return;
      score.step_back();
      for (int h = 0; h < heads_; ++h) std::memcpy(score.changes(h).data, copy(slot, h), bytes_of(rows));
      --used_;
    }
  }

  /// An eviction or a reset: nothing before `position` can be brought back.
  void clear(int position) {
    first_ = used_ = 0;
    floor_ = position;
  }

  std::size_t bytes() const { return labels_.size() * sizeof(int) + copies_.size(); }  ///< allocated

 private:
  int most() const { return static_cast<int>(labels_.size()); }
  std::size_t bytes_of(int rows) const { return static_cast<std::size_t>(rows) * size_; }
  unsigned char* copy(int slot, int head) {
    return copies_.data() +
           (static_cast<std::size_t>(slot) * static_cast<std::size_t>(heads_) + static_cast<std::size_t>(head)) *
               head_bytes_;
  }

  int heads_;
  std::size_t head_bytes_, size_;
  int first_ = 0, used_ = 0, floor_ = 0;
  std::vector<int> labels_;            // [max_rollback], positions, ascending in ring order
  std::vector<unsigned char> copies_;  // [max_rollback, kv_heads, capacity] of `size` bytes
};

}  // namespace buzz
