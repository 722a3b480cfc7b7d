#pragma once

// What BUZZ does, said slowly: plain vectors, doubles, one loop a rule. It shares no line with the library and includes
// none of it; read it beside the paper (arXiv 2410.23079) to see what the library is tested against.

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "oracle_importance.h"

namespace oracle {

/// Rotates each pair of rope_dims elements of `x`, from rope_first on, by position * base^(-2i / dims) radians.
Vector rotate(Vector x, double position, const Options& o);

/// The `count` best of the rows by `scores`, ascending: `count` times the best that is left, the lowest where equal.
std::vector<int> best(const std::vector<double>& scores, const std::vector<int>& rows, int count);

/// Chunks of `size` rows leave their `keep` best; the last, of r rows, its ceil(r * keep / size) best.
std::vector<int> best_of_chunks(const std::vector<double>& scores, const std::vector<int>& rows, int size, int keep);

/// One layer of one sequence.
class Cache {
 public:
  explicit Cache(const Options& options);
  /// For a caller that rotates queries and keys itself: this is how.
  void turns(const Turning& turning) { turning_ = turning; }

  int rows() const { return static_cast<int>(heads_[0].size()); }
  int next_position() const { return next_position_; }
  const std::vector<Row>& head(int h) const { return heads_[static_cast<std::size_t>(h)]; }
  std::vector<Row>& head(int h) { return heads_[static_cast<std::size_t>(h)]; }

  Regions regions() const;

  /// keys, values: [tokens][kv_heads][head_dim]; values that are in the keys are not read.
  void append(const Tokens& keys, const Tokens& values);

  /// For tests: row r of head h is stored like this, since another implementation rounds otherwise.
  void replace_row(int h, int r, const Vector& key, const Vector& value);

  /// Evictions leave the row of this position alone from now on, whether it is there or still to come.
  void pin(int position);

  /// The first row that a query sees which is the newest of `visible`.
  int first_seen(int visible) const;
  /// The logits of such a query of head q, rotated, from the first row that it sees on.
  std::vector<double> logits(const Vector& query, int q, int visible) const;

  /// The queries are those of the newest rows. Returns [tokens][query_heads][value_dim]; keeps the probabilities.
  Tokens attend(const Tokens& queries);

  /// Column sums of each query over the query heads of the group, one query after the other. What a query gives to a
  /// later row does not count, nor does what is not finite.
  void observe(const Probabilities& p);
  void observe() { observe(probabilities_); }
  /// The newest rows' queries before any rotation; those of the sink's tokens do not count.
  void observe_queries(const Tokens& queries);

  bool should_evict() const;

  /// What the policy compares, [rows]; between sink and window alone it is of meaning.
  std::vector<double> importance(int h) const;

  struct Choice {
    std::vector<int> kept;       // rows, ascending
    std::vector<int> forgotten;  // those of them whose scores become 0
    int passes = 0;
  };
  /// The rows of head h that an eviction by these scores leaves.
  Choice choose(int h, const std::vector<double>& scores) const;

  /// Leaves the chosen rows, one choice a head.
  void evict(const std::vector<Choice>& choices);

  /// One call's end: evicts by its own scores where it should. Returns whether it did.
  bool evict();

 private:
  /// One pass of the beehive.
  std::vector<int> segments(const std::vector<double>& scores, const std::vector<int>& hive,
                            const std::vector<int>& unfiltered) const;

  /// The authors' code sets the scores of the sink and of the thinned hive to 0.
  bool forgets() const;

  const Vector& read_key(const Row& row) const { return o_.raw_keys ? row.rotated_key : row.key; }

  /// What a query of head q, the newest of the first `visible` rows, gives to each row; 0 to those that it does not
  /// see.
  std::vector<double> softmax(const Vector& query, int q, int visible) const;

  /// The key of a row at this place, as the cache stores it.
  void place_key(Row& row, int place) const;

  std::vector<double> own_importance(int h) const;

  /// Each row's number, of when it was first asked about: mixed with the number of the row before it.
  std::vector<double> foretold(const std::vector<Row>& rows, int h) const;

  Options o_;
  std::vector<std::vector<Row>> heads_;                  // [kv_heads][rows]
  mutable std::vector<std::map<int, double>> foretold_;  // [kv_heads]: by position
  int hive_ = 0, next_position_ = 0;
  std::set<int> pins_;
  Probabilities probabilities_;
  Turning turning_;
  std::vector<std::vector<Vector>> asked_;  // [query_heads][queries]
};

}  // namespace oracle
