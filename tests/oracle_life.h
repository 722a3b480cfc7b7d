#pragma once

// The oracle through a cache's whole life: pinned rows, rollback (by doing again what came before), forks (by copying
// it), any table of frequencies. Like the oracle it includes nothing of the library.

#include <set>

#include "oracle.h"

namespace oracle {

/// Rotary positions by a table of frequencies.
struct Rotation {
  std::vector<double> frequencies;  // [dims / 2], radians a position; empty: nothing is rotated
  std::size_t first = 0;            // the first of the rotated elements
  double factor = 1;                // what is rotated is multiplied by it
  bool halves = false;              // pairs (i, i + dims / 2), else (2i, 2i + 1)
  bool compact = false;             // positions are places in the cache
  bool raw = false;                 // keys are stored as they come, and rotated where they are used
};

Vector rotated_to(Vector x, double position, const Rotation& t);

class Life {
 public:
  /// It rotates by `rotation` alone; `keeps_history`: rollback() will be asked for.
  explicit Life(const Options& options, const Rotation& rotation = {}, bool keeps_history = false);

  int rows() const { return cache_.rows(); }
  int next_position() const { return cache_.next_position(); }
  Regions regions() const { return cache_.regions(); }
  std::vector<Row>& head(int h) { return cache_.head(h); }
  bool should_evict() const { return cache_.should_evict(); }
  std::vector<double> importance(int h) const;

  void append(const Tokens& keys, const Tokens& values);

  Tokens attend(const Tokens& queries);

  void observe();

  /// Of the newest queries' logits and sinks, [tokens][query_heads].
  Matrix log_sum_exp(const Tokens& queries);

  void pin(int first, int count);
  void unpin(int first, int count);
  const std::set<int>& pins() const { return pins_; }

  Cache::Choice choose(int h, const std::vector<double>& scores) const { return cache_.choose(h, scores); }

  void evict(const std::vector<Cache::Choice>& choices);

  /// The newest n tokens never came; pins on them are gone.
  void rollback(int n);

 private:
  struct Call {
    Cache before;
    Tokens keys, values, queries;
    bool observed;
  };

  static Options unrotated(Options o, const Rotation& rotation);
  static Tokens first_of(const Tokens& all, int count);
  void mark();

  /// Rotates the keys of rows from `first` on to where they are.
  void place(int first);

  Tokens rotated(Tokens queries) const;

  Options o_;
  Rotation rotation_;
  bool keeps_history_;
  Cache cache_;
  Tokens asked_;  // of the last attend()
  std::set<int> pins_;
  std::vector<Call> history_;  // since the last eviction
};

}  // namespace oracle
