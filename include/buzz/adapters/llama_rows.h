#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "buzz/adapters/llama_layer.h"
#include "buzz/rows.h"
#include "buzz/score/score.h"
#include "buzz/sizes.h"

namespace buzz {

/// Rows of llama.cpp's cache as floats, one layer at a time: whatever their type, un-mixed, and with flash attention or
/// without. Keys come as attention sees them, rotated.
class LlamaRows {
 public:
  LlamaRows() = default;
  /// Room for `rows` rows of any of the layers, the only allocation. needs: what is ever read. Errors: a product of
  /// sizes past all memory.
  LlamaRows(const std::vector<LlamaLayer>& layers, int rows, const Needs& needs)
      : reads_keys_(needs.keys || needs.unrotated_keys || needs.rotated_keys), reads_values_(needs.values) {
    std::size_t keys = 0, values = 0, bytes = 0, column = 0;
    for (const LlamaLayer& l : layers) {
      if (l.slides) continue;
      keys = (std::max)(keys, count_of<float>("rows * keys", {rows, l.keys.row}));
      values = (std::max)(values, count_of<float>("rows * values", {rows, l.values.row}));
      bytes = (std::max)({bytes, room_of(l.keys, rows), room_of(l.values, rows)});
      if (l.values.transposed) column = (std::max)(column, static_cast<std::size_t>(l.values.cells));
    }
    column_.resize(column);
    keys_.resize(keys);
    values_.resize(values);
    bytes_.resize(bytes);
  }

  /// Keys and values of the rows in those cells of a stream, [rows], where they are ever read; else anything of that
  /// shape. Valid until the next call. O(rows * numbers of a row), transposed ones O(cells * numbers).
  std::pair<RowsView<float>, RowsView<float>> read(const LlamaLayer& layer, int stream,
                                                   const Span<const std::int32_t>& cells) {
    if (reads_keys_) fill(layer.keys, stream, cells, keys_.data());
    if (reads_values_) fill(layer.values, stream, cells, values_.data());
    return {view(keys_, layer.kv_heads, cells.size, layer.key_dim()),
            view(values_, layer.kv_heads, cells.size, layer.value_dim())};
  }

  /// Bytes allocated.
  std::size_t bytes() const { return (keys_.size() + values_.size() + column_.size()) * sizeof(float) + bytes_.size(); }

 private:
  static std::size_t room_of(const LlamaTensor& t, int rows) {
    if (t.tensor == nullptr) return 0;
    return t.transposed ? t.row_bytes / static_cast<std::size_t>(t.row) * static_cast<std::size_t>(t.cells)
                        : t.row_bytes * static_cast<std::size_t>(rows);
  }
  static View<const float> view(const std::vector<float>& data, int heads, int rows, int dim) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(heads) * dim;
    return {data.data(), heads, rows, dim, heads > 1 ? dim : row * rows, row};
  }

  void fill(const LlamaTensor& t, int stream, const Span<const std::int32_t>& cells, float* out) {
    const std::size_t first =
        t.bytes / static_cast<std::size_t>(t.streams) * static_cast<std::size_t>(stream);  // of the stream
    if (t.transposed)
      fill_columns(t, first, cells, out);
    else
      fill_runs(t, first, cells, out);
    if (t.mixed > 1)
      for (std::ptrdiff_t at = 0, end = static_cast<std::ptrdiff_t>(cells.size) * t.row; at < end; at += t.mixed)
        unmix(out + at, t.mixed);
  }

  /// Neighbouring cells at once.
  void fill_runs(const LlamaTensor& t, std::size_t first, const Span<const std::int32_t>& cells, float* out) {
    for (int r = 0; r < cells.size;) {
      int end = r + 1;
      while (end < cells.size && cells[end] == cells[r] + (end - r)) ++end;
      const auto count = static_cast<std::size_t>(end - r);
      float* to = out + static_cast<std::ptrdiff_t>(r) * t.row;
      void* room = t.to_floats == nullptr ? static_cast<void*>(to) : bytes_.data();
      t.read(t.tensor, room, first + static_cast<std::size_t>(cells[r]) * t.row_bytes, count * t.row_bytes);
      if (t.to_floats != nullptr) t.to_floats(room, to, static_cast<std::int64_t>(count) * t.row);
      r = end;
    }
  }

  /// One number of all cells at once.
  void fill_columns(const LlamaTensor& t, std::size_t first, const Span<const std::int32_t>& cells, float* out) {
    const std::size_t size = t.row_bytes / static_cast<std::size_t>(t.row) * static_cast<std::size_t>(t.cells);
    for (int j = 0; j < t.row; ++j) {
      void* room = t.to_floats == nullptr ? static_cast<void*>(column_.data()) : bytes_.data();
      t.read(t.tensor, room, first + static_cast<std::size_t>(j) * size, size);
      if (t.to_floats != nullptr) t.to_floats(room, column_.data(), t.cells);
      for (int r = 0; r < cells.size; ++r)
        out[static_cast<std::ptrdiff_t>(r) * t.row + j] = column_[static_cast<std::size_t>(cells[r])];
    }
  }

  /// The fast Walsh-Hadamard transform, which is its own inverse.
  static void unmix(float* x, int n) {
    for (int half = 1; half < n; half *= 2)
      for (int i = 0; i < n; i += 2 * half)
        for (int j = i; j < i + half; ++j) {
          const float a = x[j], b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
    const float scale = 1 / std::sqrt(static_cast<float>(n));
    for (int i = 0; i < n; ++i) x[i] *= scale;
  }

  bool reads_keys_ = false, reads_values_ = false;
  std::vector<float> keys_, values_;  // [rows, numbers of a row]
  std::vector<float> column_;         // [cells], where values are transposed
  std::vector<unsigned char> bytes_;  // as they are stored
};

}  // namespace buzz
