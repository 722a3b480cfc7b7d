#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "buzz/adapters/llama_probabilities.h"
#include "buzz/adapters/llama_rows.h"
#include "buzz/evictor_archive.h"
#include "buzz/model_evictor.h"

namespace buzz {

/// What becomes of the positions of rows that stay. kept: as they are, with holes between them. closed: the place in
/// the cache, so that a sequence never leaves the model's context; llama.cpp rotates the moved keys again, which drifts
/// with each eviction where keys are F16 (0.04 in the logits after 200), so evict rarely.
enum class LlamaPositions { kept, closed };

/// One sequence of a llama.cpp context: its policy at work, and each row's position and cell there. A row is a cell,
/// one token over all layers and heads, so that there is one list of rows. A policy that looks at keys or values has an
/// Evictor for each layer that has no window, all of one list; any other has one Evictor, whose attention is summed
/// over all layers and heads.
class LlamaSequence {
 public:
  /// Errors: what the policy refuses; one that needs queries, or keys and attention at once; a reduction of summed
  /// attention that is no sum.
  LlamaSequence(const Policy& policy, int max_chunk)
      : policy_(policy),
        needs_(policy.needs()),
        capacity_(policy.most_rows(max_chunk)),
        max_chunk_(max_chunk),
        positions_(static_cast<std::size_t>(capacity_)),
        cells_(positions_.size()) {
    if (needs_.queries) fail("policy", policy.name, "one that needs no queries, which llama.cpp's cache does not hold");
    if (needs_.attention && needs_.rows())
      fail("policy", policy.name, "one that needs attention, or keys and values: not both");
    if (needs_.rows()) {
      policy_.sharing = Sharing::model;
      return;
    }
    if (needs_.attention && policy.sharing != Sharing::head && policy.reduction.reduce != Reduction::sum)
      fail("reduce", static_cast<int>(policy.reduction.reduce), "sum: attention is summed as it is read");
    evictors_.emplace_back(policy_, 1, max_chunk);
  }

  /// Makes the evictors of a policy that looks at rows. closes: positions are places. slices: of attention, most of a
  /// call. Errors, named by the layer: rows that cannot be read, rotations that cannot be undone where that is needed,
  /// what an Evictor refuses. Allocates.
  void begin(const std::vector<LlamaLayer>& layers, bool closes, int slices) {
    if (needs_.attention) sums_.resize(count_of<float>("queries apart * capacity", {slices, capacity_}));
    if (needs_.rows()) {
      std::vector<Evictor> made;
      made.reserve(layers.size());
      for (const LlamaLayer& l : layers)
        if (!l.slides)
          refusing_as(
              [&] { return "layer[" + std::to_string(l.index) + "]"; },
              [&] { made.emplace_back(policy_.for_layer(l.index), l.kv_heads, max_chunk_, 0, shown(l, closes)); });
      require_at_least("layers without a window", static_cast<long long>(made.size()), 1);
      model_ = ModelEvictor(made);
      evictors_ = std::move(made);
    }
    reset();
  }
  /// Becomes a copy of another sequence of the context, its policy and its bound too.
  void become(const LlamaSequence& other) {
    policy_ = other.policy_;
    needs_ = other.needs_;
    evictors_.clear();
    for (const Evictor& e : other.evictors_) evictors_.push_back(e.fork());
    model_ = other.model_;
    capacity_ = other.capacity_;
    positions_ = other.positions_;
    cells_ = other.cells_;
  }
  /// Empty.
  void reset() {
    for (Evictor& e : evictors_) e.reset();
    shifting_ = false;
  }

  const Policy& policy() const { return policy_; }  ///< as given; of rows: with Sharing::model
  const Needs& needs() const { return needs_; }     ///< of the policy
  int capacity() const { return capacity_; }        ///< most rows
  /// Rows now.
  int rows() const { return evictors_.empty() ? 0 : evictors_[0].rows(); }
  /// The position that its next token has to have: the newest row's + 1.
  int next_position() const { return rows() == 0 ? 0 : positions_[index(rows() - 1)] + 1; }
  Span<const std::int32_t> positions() const { return {positions_.data(), rows()}; }  ///< of each row, [rows]
  Span<const std::int32_t> cells() const { return {cells_.data(), rows()}; }          ///< the same
  /// Bytes allocated.
  std::size_t bytes() const {
    std::size_t sum =
        model_.bytes() + sums_.size() * sizeof(float) + (positions_.size() + cells_.size()) * sizeof(std::int32_t);
    for (const Evictor& e : evictors_) sum += e.bytes();
    return sum;
  }
  /// One of them, to read its scores and tokens. Errors: a policy of rows before begin().
  const Evictor& evictor() const {
    require_at_least("evictors", static_cast<long long>(evictors_.size()), 1);
    return evictors_[0];
  }
  /// f(evictor) of all of them, to pin or to give scores alike. Errors: the same, and f's, by the first.
  template <class F>
  void for_each(F&& f) {
    evictor();
    for (Evictor& e : evictors_) f(e);
  }

  /// Refuses what append(tokens) would refuse, CacheFull among it, and changes nothing.
  void check_append(int tokens) const { evictor().check_append(tokens); }
  /// Where its next token, or the i-th of some, is.
  void put(int i, std::int32_t position, std::int32_t cell) {
    positions_[index(rows() + i)] = position;
    cells_[index(rows() + i)] = cell;
  }
  /// Takes in tokens that were put().
  void append(int tokens) {
    for (Evictor& e : evictors_) e.append(tokens);
  }
  /// Reads what attention gave to the rows' cells, `tokens` tokens among them that were put(), and leaves zeros there.
  /// Returns a cell that got some and is no row's; -1: none.
  int gather(LlamaProbabilities& attention, int sequence, int tokens) {
    for (int slice = 0; slice < attention.slices(tokens); ++slice) {
      float* received = attention.sums(sequence, slice);
      float* sums = sums_.data() + static_cast<std::ptrdiff_t>(slice) * capacity_;
      for (int r = 0; r < rows() + tokens; ++r) {
        sums[r] = received[cells_[index(r)]];
        received[cells_[index(r)]] = 0;
      }
      const float* lost = std::find_if(received, received + attention.width(), [](float p) { return p != 0; });
      if (lost != received + attention.width()) return static_cast<int>(lost - received);
    }
    return -1;
  }
  /// Takes in what was gathered, after append().
  void observe(const LlamaProbabilities& attention, int tokens) {
    const int slices = attention.slices(tokens);
    evictors_[0].observe_sums({sums_.data(), slices, 1, rows(), capacity_, capacity_});
  }

  /// Does the budget call for an eviction? O(1).
  bool should_evict() const { return !evictors_.empty() && evictors_[0].should_evict(); }
  /// Chooses the rows to keep. Errors: pins that layers do not share.
  const KeptRows& select(const std::vector<LlamaLayer>& layers, int stream, LlamaRows& rows) {
    if (!needs_.rows()) return evictors_[0].select();
    auto layer = layers.begin();
    model_.select(evictors_, [&](int) {
      while (layer->slides) ++layer;
      return rows.read(*layer++, stream, cells());
    });
    return evictors_[0].kept();
  }
  /// Moves positions and cells as the rows moved; `closes`: a row's position is its place. f(first, end, shift) is told
  /// of each run of positions that changed.
  template <class F>
  void move(const KeptRows& kept, bool closes, F&& f) {
    kept.for_each_run(0, [&](int from, int to, int count) {
      const std::int32_t first = positions_[index(from)], end = positions_[index(from + count - 1)] + 1;
      const std::int32_t shift = closes ? to - first : 0;
      if (shift != 0) {
        f(first, end, shift);
        shifting_ = true;
      }
      for (int i = 0; i < count; ++i) {
        positions_[index(to + i)] = positions_[index(from + i)] + shift;
        cells_[index(to + i)] = cells_[index(from + i)];
      }
    });
  }
  /// All keys are rotated to their positions: a call of llama_decode() has done that.
  void rotated() { shifting_ = false; }
  /// Are positions closed, and keys not rotated to them yet?
  bool shifting() const { return shifting_; }
  /// Writes or reads it, its cells the first ones in some order, and llama.cpp's state. Errors: a Reader's.
  template <class Self, class Archive>
  static void archive(Self& self, Archive& a, std::vector<std::uint8_t>& state) {
    a.same("evictors", static_cast<long long>(self.evictors_.size()));
    for (auto& e : self.evictors_) Evictor::archive(e, a);
    const int rows = self.rows();
    a.array(self.positions_.data(), static_cast<std::size_t>(rows));
    a.array(self.cells_.data(), static_cast<std::size_t>(rows));
    int bytes = static_cast<int>((std::min)(state.size(), static_cast<std::size_t>((std::numeric_limits<int>::max)())));
    require_equal("state's bytes", static_cast<long long>(state.size()), bytes, "what a file has room for");
    a.number("state's bytes", bytes, 0, (std::numeric_limits<int>::max)());
    state.resize(static_cast<std::size_t>(bytes));
    a.array(state.data(), state.size());
    for (int r = 0; r < rows; ++r) {
      require_range<FileError>(
          "cells", self.cells_[index(r)], 0,
          self.needs_.attention || self.needs_.rows() ? rows - 1 : (std::numeric_limits<int>::max)());
      require_at_least<FileError>("positions", self.positions_[index(r)],
                                  r == 0 ? 0 : self.positions_[index(r - 1)] + 1LL);
    }
  }
  /// Gives each row's cell another number.
  template <class F>
  void renumber(F&& number) {
    for (int r = 0; r < rows(); ++r) cells_[index(r)] = number(cells_[index(r)]);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  /// What a layer's Evictor has to know of the rows that it is shown.
  ShownRows shown(const LlamaLayer& l, bool closes) const {
    if (!l.keys.readable() || l.kv_heads == 0) fail("keys", "of a kind that cannot be read", "rows of KV heads");
    if (needs_.values && (l.values.tensor == nullptr || !l.values.readable()))
      fail("values", "of a kind that cannot be read, or none", "rows of KV heads");
    if (l.unknown != nullptr && (needs_.unrotated_keys || l.keys.mixed < 0 || l.values.mixed < 0))
      fail("keys", l.unknown, "keys whose rotation can be undone, for this policy");
    if (needs_.unrotated_keys && !closes && policy_.protect.window == 0)
      fail("window", 0, ">= 1 for this policy: the newest row stays, so that positions count tokens");
    if (l.values.tensor == nullptr) return {};
    ShownRows rows;
    rows.head_dim = l.key_dim();
    rows.value_dim = l.value_dim();
    rows.rope = l.rope;
    if (closes && rows.rope.rotates()) {
      rows.rope.positions = Positions::compact;
      rows.rope.keys = KeyStorage::rotated;
    }
    return rows;
  }

  Policy policy_;
  Needs needs_;
  std::vector<Evictor> evictors_;  // of the layers without a window, or one
  ModelEvictor model_;             // of those
  int capacity_, max_chunk_;
  bool shifting_ = false;
  std::vector<std::int32_t> positions_, cells_;  // [capacity], of each row in the context
  std::vector<float> sums_;                      // [slices(max_chunk), capacity], of the last call
};

}  // namespace buzz
