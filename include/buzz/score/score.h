#pragma once

#include <cstdint>

#include "buzz/float_rows.h"
#include "buzz/kept_rows.h"
#include "buzz/score/column_sums.h"
#include "buzz/score/needs.h"

namespace buzz {

class QueryMoments;

/// The rows of one head that an eviction may take.
struct Candidates {
  int head;                                   ///< the KV head
  int first;                                  ///< the first of them, a row of the cache
  int count;                                  ///< how many, side by side
  const std::int32_t* positions;              ///< of the cache's rows, not of the candidates alone: [rows], ascending
  int next_position;                          ///< the next token's
  const FloatRows* keys;                      ///< of all rows; null: the score did not ask for them
  const FloatRows* values;                    ///< the same
  const FloatRows* unrotated_keys = nullptr;  ///< the keys before their rotation; null: the score did not ask for them
  const FloatRows* rotated_keys = nullptr;    ///< the keys after it; null: the same
  const QueryMoments* queries = nullptr;      ///< the sums of all queries so far; null: the same

  /// Tokens since candidate i's, its own included: >= 1.
  int age(int i) const { return next_position - positions[first + i]; }
};

/// One number a row of a head, of a score's state: double, or float. The evictor saves it and brings it back.
struct RowNumbers {
  void* data = nullptr;    ///< [capacity] of them
  std::size_t size = 0;    ///< bytes of one
  bool are_sums = true;    ///< of probabilities, where the score looks at attention; else any numbers
  RowNumbers() = default;  ///< none
  /// Doubles.
  RowNumbers(double* d) : data(d), size(sizeof(double)) {}  // NOLINT: what it is of
  /// Floats.
  RowNumbers(float* d) : data(d), size(sizeof(float)) {}  // NOLINT: the same
  /// Writes or reads those of so many rows.
  template <class Archive>
  void archive(Archive& a, std::size_t rows) const {
    if (size == sizeof(double))
      a.sums(static_cast<double*>(data), rows);
    else
      a.array(static_cast<float*>(data), rows);
  }
  /// Floats that are no sums.
  static RowNumbers any(float* d) {
    RowNumbers numbers(d);
    numbers.are_sums = false;
    return numbers;
  }
  /// Refuses loaded ones that no sums of probabilities are: not finite, or below 0.
  void require_attention_sums(const char* field, int rows) const {
    if (!are_sums) return;
    if (size == sizeof(float))
      return void(buzz::require_attention_sums<FileError>(field, static_cast<const float*>(data), rows));
    const double* values = static_cast<const double*>(data);
    for (int r = 0; r < rows; ++r)
      if (!is_finite(values[r]) || values[r] < 0) fail<FileError>(field, std::to_string(values[r]), "finite and >= 0");
  }
};

/// How important a row is. A score is a description, with its options, until reserve() makes it one sequence's; what it
/// allocates, it allocates there. One of your own is derived from this, can be copied, and has needs() and
/// importance(), and the others where it is stateful. Calls are a call's, never a row's.
class Score {
 public:
  virtual ~Score() = default;
  /// What it has to see.
  virtual Needs needs() const = 0;
  /// Makes room for `capacity` rows of `kv_heads` heads, and forgets all.
  virtual void reserve(int kv_heads, int capacity) {
    (void)kv_heads;
    (void)capacity;
  }
  /// Makes room for keys and values of so many dimensions. 0: the cache's owner has not said how many (ShownRows).
  virtual void reserve_dims(int key_dim, int value_dim) {
    (void)key_dim;
    (void)value_dim;
  }
  /// Makes room for the sums of so many query heads, where it looks at queries.
  virtual void reserve_queries(int query_heads) { (void)query_heads; }
  /// `tokens` rows were added behind `rows`; nothing is known of them yet.
  virtual void append(int rows, int tokens) {
    (void)rows;
    (void)tokens;
  }
  /// Some queries' probabilities, summed over them and over the query heads of each KV head: [1, kv_heads, rows].
  /// `first`: they are the oldest of a call.
  virtual void observe(const View<const float>& sums, bool first) {
    (void)sums;
    (void)first;
  }
  /// Writes how important each candidate is, [count]: the highest stay, ties fall to the oldest, NaN loses. Heads are
  /// asked in order.
  virtual void importance(const Candidates& candidates, double* out) = 0;
  /// These rows stay, moved together.
  virtual void keep(const KeptRows& kept) { (void)kept; }
  /// Rows [0, end) will stay unread for ever.
  virtual void forget(int end) { (void)end; }

  /// The newest queries of a call that it has to see one by one.
  virtual int queries_apart() const { return 0; }

  /// Its state: `states()` numbers a row, none by default; each of them, and the one that the next observe()
  /// changes, for rollback. step_back() takes the last observe() back once that is as it was.
  /// @{
  virtual int states() const { return 0; }
  virtual RowNumbers state(int i, int head) {
    (void)i;
    (void)head;
    return {};
  }
  virtual RowNumbers changes(int head) { return state(0, head); }
  virtual void step_back() {}
  /// @}
  /// To show, one a row: null: none.
  virtual const double* scores(int head) const {
    (void)head;
    return nullptr;
  }
  /// Allocated.
  virtual std::size_t bytes() const { return 0; }
};

}  // namespace buzz
