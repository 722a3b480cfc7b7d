#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "buzz/rope.h"
#include "buzz/sizes.h"

namespace buzz {

/// The angles of positions, made once for all layers of a model that rotate alike: those of the newest call and, where
/// keys are raw, those of every place in the cache. Layers may be on several threads: nobody waits, since who finds it
/// busy makes the angles itself, and they are the same bits. Nothing allocates but the constructor and what reserves.
class RopeTable {
 public:
  /// Of no layer yet. Errors: what Rotation does not allow.
  RopeTable(const Rope& rope, int head_dim) : rotation_(rope, head_dim) {}
  /// A copy that shares nothing; what it has of the newest call it makes anew.
  RopeTable(const RopeTable& other)
      : rotation_(other.rotation_), newest_(other.newest_.size()), places_(other.places_) {}
  RopeTable& operator=(const RopeTable&) = delete;  ///< layers hold on to it

  /// For a model, before any layer is at work: keeps the angles of calls of up to max_chunk tokens.
  void reserve_calls(int max_chunk) {
    const std::size_t size = count_of<float>("max_chunk * rope.dims", {max_chunk, rotation_.dims()});
    newest_.resize((std::max)(newest_.size(), size));
  }
  /// The same: makes the angles of places 0 to rows - 1.
  void reserve_places(int rows) {
    const std::size_t size = count_of<float>("capacity * rope.dims", {rows, rotation_.dims()}), made = places_.size();
    places_.resize((std::max)(made, size));
    for (std::size_t i = made; i < size; i += dims()) {
      const std::size_t place = i / dims();
      rotation_.angles(static_cast<double>(place), places_.data() + i);
    }
  }

  /// out [tokens, dims] = the angles of positions [first, first + tokens). O(tokens * dims).
  void angles(int first, int tokens, float* out) {
    const std::size_t size = static_cast<std::size_t>(tokens) * dims();
    if (size > newest_.size() || busy_.test_and_set(std::memory_order_acquire)) return make(first, tokens, out);
    if (first != first_ || tokens > count_) {
      make(first, tokens, newest_.data());
      first_ = first;
      count_ = tokens;
    }
    std::copy_n(newest_.data(), size, out);
    busy_.clear(std::memory_order_release);
  }
  /// The angles of every place of the layers with raw keys, [capacity, dims].
  const float* places() const { return places_.data(); }

  const Rotation& rotation() const { return rotation_; }  ///< as checked
  /// Bytes allocated.
  std::size_t bytes() const { return (newest_.size() + places_.size()) * sizeof(float); }

 private:
  std::size_t dims() const { return static_cast<std::size_t>(rotation_.dims()); }
  void make(int first, int tokens, float* out) const {
    for (int t = 0; t < tokens; ++t, out += dims()) rotation_.angles(first + t, out);
  }

  Rotation rotation_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  int first_ = 0, count_ = 0;  // the positions of newest_
  std::vector<float> newest_;  // [max_chunk, dims]; empty: of one layer, which keeps its own
  std::vector<float> places_;  // [capacity, dims]
};

}  // namespace buzz
