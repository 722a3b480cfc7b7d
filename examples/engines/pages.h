// Paged storage: rows in pages of a fixed size, which sequences take from a pool and give back after an eviction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "buzz/error.h"
#include "buzz/kept_rows.h"

namespace engines {

/// Pages of [kv_heads, page_rows, head_dim] floats each, shared by all sequences.
class PagePool {
 public:
  PagePool(int pages, int heads, int rows, int dim) : kv_heads(heads), page_rows(rows), head_dim(dim) {
    floats_.resize(static_cast<std::size_t>(pages) * page_floats());
    for (int page = pages - 1; page >= 0; --page) give_back(page);
  }

  /// Errors: no page is free (CacheFull).
  int take() {
    buzz::require_at_least<buzz::CacheFull>("free pages", free(), 1);
    const int page = free_.back();
    free_.pop_back();
    return page;
  }
  /// What a page held is lost with it: it is overwritten, so that who reads it still is found out.
  void give_back(int page) {
    for (std::size_t i = 0; i < page_floats(); ++i)
      floats_[static_cast<std::size_t>(page) * page_floats() + i] = std::numeric_limits<float>::quiet_NaN();
    free_.push_back(page);
  }
  int free() const { return static_cast<int>(free_.size()); }

  /// The head_dim values of a row of a page.
  float* row(int page, int head, int slot) {
    const std::ptrdiff_t at = (static_cast<std::ptrdiff_t>(page) * kv_heads + head) * page_rows + slot;
    return floats_.data() + at * head_dim;
  }

  const int kv_heads, page_rows, head_dim;

 private:
  std::size_t page_floats() const {
    return static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(page_rows) *
           static_cast<std::size_t>(head_dim);
  }
  std::vector<float> floats_;  // [pages, kv_heads, page_rows, head_dim]
  std::vector<int> free_;
};

/// The rows of one sequence, K or V: row r is in slot r % page_rows of the page table's entry r / page_rows. Pages that
/// two sequences share have to be copied before one of them evicts.
class PagedRows {
 public:
  explicit PagedRows(PagePool& pool) : pool_(pool) {}
  ~PagedRows() { resize(0); }
  PagedRows(const PagedRows&) = delete;
  PagedRows& operator=(const PagedRows&) = delete;

  int rows() const { return rows_; }
  int pages() const { return static_cast<int>(table_.size()); }
  float* row(int head, int r) {
    return pool_.row(table_[static_cast<std::size_t>(r / pool_.page_rows)], head, r % pool_.page_rows);
  }

  /// Takes the pages that so many rows need, or gives back those that they do not.
  void resize(int rows) {
    const int needed = (rows + pool_.page_rows - 1) / pool_.page_rows;
    while (pages() < needed) table_.push_back(pool_.take());
    for (; pages() > needed; table_.pop_back()) pool_.give_back(table_.back());
    rows_ = rows;
  }

  /// Moves what is kept to the front, over the borders of pages, and then gives the emptied pages back: not before, as
  /// rows come out of them. Ascending, so that no row is overwritten before it has moved.
  void compact(const buzz::KeptRows& kept) {
    for (int h = 0; h < kept.heads(); ++h)
      kept.for_each_run(h, [&](int from, int to, int count) {
        for (int i = 0; from != to && i < count; ++i) {
          const float* source = row(h, from + i);
          std::copy(source, source + pool_.head_dim, row(h, to + i));
        }
      });
    resize(kept.size());
  }

 private:
  PagePool& pool_;
  std::vector<int> table_;
  int rows_ = 0;
};

}  // namespace engines
