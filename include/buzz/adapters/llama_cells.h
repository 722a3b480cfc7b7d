#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buzz/view.h"

namespace buzz {

/// How many rows have each cell of llama.cpp's cache: one, or as many as there are sequences that share it. What it
/// does not expect was done by somebody else.
class LlamaCells {
 public:
  LlamaCells() = default;
  /// None has any. The only allocation.
  LlamaCells(int streams, int cells)
      : cells_(cells),
        rows_(static_cast<std::size_t>(streams) * static_cast<std::size_t>(cells)),
        order_(rows_.size()) {}

  /// A row more, or one less, of a stream's cell.
  /// @{
  void hold(int stream, std::int32_t cell) { ++rows_[index(stream, cell)]; }
  void release(int stream, std::int32_t cell) { --rows_[index(stream, cell)]; }
  /// @}
  /// Has no row that cell?
  bool is_free(int stream, std::int32_t cell) const { return rows_[index(stream, cell)] == 0; }
  /// No row has any.
  void clear() { std::fill(rows_.begin(), rows_.end(), std::uint16_t{0}); }
  /// What becomes of the cells where a loaded state fills them from the first on, in the order that they had:
  /// [streams * cells]. Valid until the next call.
  const std::int32_t* compact() {
    std::int32_t next = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) order_[i] = rows_[i] != 0 ? next++ : -1;
    std::fill(rows_.begin(), rows_.end(), std::uint16_t{0});
    std::fill_n(rows_.begin(), next, std::uint16_t{1});
    return order_.data();
  }
  /// Bytes allocated.
  std::size_t bytes() const { return rows_.size() * (sizeof(rows_[0]) + sizeof(order_[0])); }

 private:
  std::size_t index(int stream, std::int32_t cell) const {
    return static_cast<std::size_t>(stream) * static_cast<std::size_t>(cells_) + static_cast<std::size_t>(cell);
  }

  int cells_ = 0;                    // of a stream
  std::vector<std::uint16_t> rows_;  // [streams, cells]
  std::vector<std::int32_t> order_;  // the same
};

}  // namespace buzz
