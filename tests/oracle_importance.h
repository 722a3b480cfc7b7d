#pragma once

// How important a row is, said as slowly as the rest of the oracle (oracle.h).

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace oracle {

using Vector = std::vector<double>;               // [head_dim]
using Tokens = std::vector<std::vector<Vector>>;  // [tokens][heads][head_dim]
using Matrix = std::vector<std::vector<double>>;  // [queries][rows]
using Probabilities = std::vector<Matrix>;        // [query_heads][queries][rows]

enum class Score {
  attention,
  key_diversity,
  given,
  none,
  key_value,
  recent,
  leverage,
  lag,
  calibrated,
  expected,
  tri,
  cap
};
enum class AttentionKind { accumulated, mean, latest, newest, largest, decayed };
enum class Unlike { cosine, direction, distance };
enum class Select { segments, heaviest, nothing, everything };
enum class Hive { first, heaviest, together };

struct Options {
  int query_heads = 1, kv_heads = 1, head_dim = 1;
  int value_dim = 0;            // 0: head_dim
  bool values_in_keys = false;  // a value is the first value_dim elements of its stored key

  Score score = Score::attention;
  AttentionKind attention = AttentionKind::accumulated;
  double decay = 0;                // AttentionKind::decayed
  Unlike unlike = Unlike::cosine;  // Score::key_diversity, key_value
  bool mean_over_middle = false;   // Score::key_diversity, key_value
  double weight = 1;               // Score::key_value, of the value's norm
  double fade = 0;                 // Score::key_diversity: what a row loses with each token
  int queries = 1, kernel = 1;     // Score::recent
  bool average = false;            // Score::recent
  bool of_values = false;          // Score::leverage
  double ridge = 0;                // Score::leverage
  int lag = 1;                     // Score::lag
  int horizon = 1;                 // Score::expected, cap
  double sharpness = 0;            // Score::cap
  bool times_value = true;         // Score::expected
  int reach = 1;                   // Score::tri
  double trail = 0;                // Score::calibrated
  bool shared = false;             // a row is as important as it is to all heads together
  Select select = Select::segments;
  int sink = 4, window = 160, threshold = 400;
  int stride = 5, keep = 1, hive_stride = 3;  // Select::segments
  int chunk = 0;                              // Select::segments; 0: keep * stride
  Hive hive = Hive::first;                    // Select::segments
  bool single_pass = false;                   // Select::segments
  int heavy = 0;                              // Select::heaviest

  int chunk_rows() const { return chunk != 0 ? chunk : keep * stride; }
  /// Rows that may be pinned between sink and window so that repeated passes still shorten what is over the threshold:
  /// n rows over chunks leave fewer if n * (chunk - keep) >= chunk.
  int segments_room() const {
    int n = 2;
    while (hive == Hive::together && n * (chunk_rows() - keep) < chunk_rows()) ++n;
    return threshold + 1 - n;
  }

  double rope_base = 0;  // 0: no rotation
  int rope_dims = 0;
  int rope_first = 0;         // the first of the rotated elements
  bool rope_halves = false;   // pairs (i, i + dims / 2), else (2i, 2i + 1)
  bool rope_compact = false;  // positions are places in the cache
  bool raw_keys = false;      // keys are stored unrotated, and rotated when read

  double scale = 1;     // logits are multiplied by it
  double log_base = 0;  // 0: off

  int attention_window = 0;      // the newest rows that a query sees; 0: all
  double soft_cap = 0;           // of a logit; 0: off
  Vector sinks;                  // [query_heads], logits of nothing; empty: none
  Vector slopes;                 // [query_heads], ALiBi; empty: off
  bool slopes_by_place = false;  // distances are those of places in the cache

  int values() const { return value_dim == 0 ? head_dim : value_dim; }  // of a row

  std::function<double(double)> stored = [](double x) { return x; };  // what the cache's element type makes of a number
};

bool looks_at_unrotated_keys(const Options& o);

struct Row {
  int position;          // the token's index in its sequence
  Vector raw_key;        // as it was given
  Vector key;            // as it is stored: rotated unless raw_keys, then rounded to the element type
  Vector rotated_key;    // with raw_keys: the stored key, rotated
  Vector value;          // as it is stored
  double score = 0;      // the attention it got, or the given score
  Vector received = {};  // of each query since the row's own, oldest first
  int moves = 0;         // evictions that gave it another place
  bool pinned = false;
};

struct Regions {
  int sink, hive, unfiltered, window;
};

inline double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// x minus the mean of x[begin..end), over their deviation.
std::vector<double> normal(std::vector<double> x, int begin, int end);

/// How unlike the mean key each key is; a cosine is 0 where there is no direction.
std::vector<double> diversity(const std::vector<Row>& head, int begin, int end, const Options& o);

/// The solution of A x = b, by Gauss's elimination with the largest pivots.
Vector solved(Matrix a, Vector b);

/// Each row's x' (X'X + lambda I)^-1 x, of rows less the mean of those that are finite. It comes to 1 - r_ii, where r =
/// (I + XX' / lambda)^-1: with fewer rows than dimensions that is the smaller matrix.
std::vector<double> leverage(const std::vector<Vector>& rows, double ridge);

/// LagKV's part of the keys or of the values: blocks of `lag` from row `begin` on, each scaled by the rows after it.
std::vector<double> lagging(const std::vector<Vector>& rows, int begin, int lag);

/// Score::calibrated: a made-up weight of a head, `i` of its key, then of its value, then its bias.
double made_up_weight(int head, std::size_t i);
double calibrated(const Row& row, int head);

/// Is it a score of the queries so far?
inline bool expects(Score s) { return s == Score::expected || s == Score::tri || s == Score::cap; }

/// How a layer turns vectors to positions, and which elements it turns together.
struct Turning {
  std::function<Vector(const Vector&, double)> to = [](const Vector& x, double) { return x; };
  std::vector<std::pair<std::size_t, std::size_t>> pairs = {};
  bool compact = false;  // positions are places
};

/// What the queries so far, [heads of the group][queries], make expect of keys as attention sees them; the next query
/// is turned to `next`.
std::vector<double> expecting(const std::vector<Vector>& keys, const std::vector<Vector>& values,
                              const std::vector<std::vector<Vector>>& queries, int next, int begin, int end,
                              const Turning& turning, const Options& o);

/// How important each row of a head is to it, [rows]; rows [begin, end) are those that an eviction may take.
std::vector<double> importance(const std::vector<Row>& head, int begin, int end, int next_position, const Options& o);

}  // namespace oracle
