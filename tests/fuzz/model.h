#pragma once

// What a policy's rows are after any sequence of operations, as plain vectors: the rules of the oracle (tests/oracle.h)
// for rows without K and V, with the operations of a cache's life around them.

#include <deque>
#include <limits>
#include <set>
#include <vector>

#include "oracle_config.h"

namespace fuzz {

using oracle::Config;
using oracle::Kind;

struct Row {
  int position;
  double score;
};
using Rows = std::vector<Row>;  // of one head

/// The slice of an observation that one query made, or several.
struct Slice {
  int position;                          // of the newest query in it
  std::vector<std::vector<float>> sums;  // [kv_heads][rows]; empty where somebody else keeps the scores
};

class Model {
 public:
  Model(const Config& c, int max_rollback) : c_(c), max_rollback_(max_rollback) { heads_.resize(heads()); }

  int rows() const { return static_cast<int>(heads_[0].size()); }
  int next() const { return next_; }
  int capacity() const { return oracle::most_rows(c_); }
  const Rows& head(int h) const { return heads_[static_cast<std::size_t>(h)]; }
  Rows& head(int h) { return heads_[static_cast<std::size_t>(h)]; }
  const std::set<int>& pins() const { return pins_; }

  buzz::Regions regions() const {
    buzz::Regions r;
    r.sink = std::min(rows(), o().sink);
    r.hive = hive_;
    r.unfiltered = std::max(0, rows() - r.sink - r.hive - o().window);
    r.window = rows() - r.sink - r.hive - r.unfiltered;
    return r;
  }

  bool can_append(int tokens) const { return tokens >= 0 && tokens <= c_.max_chunk && rows() + tokens <= capacity(); }
  void append(int tokens) {
    events_.push_back({tokens, {}, false});
    add_rows(tokens);
    next_ += tokens;
  }

  /// One call's attention. The first slice may stand for earlier queries too.
  void observe(const std::vector<Slice>& slices) {
    for (const Slice& slice : slices) note(slice.position);
    events_.push_back({0, slices, false});
    add_sums(slices);
  }
  void give(const Slice& scores) {
    note(scores.position);
    events_.push_back({0, {scores}, true});
    set_scores(scores);
  }

  bool should_evict() const { return o().select != oracle::Select::everything && regions().middle() > o().threshold; }

  /// The rows of a head that an eviction leaves, ascending.
  struct Choice {
    std::vector<int> kept, forgotten;
  };
  Choice choose(int h) const {
    const buzz::Regions r = regions();
    std::vector<int> hive, unfiltered, pinned, pinned_hive;
    for (int i = r.sink; i < r.sink + r.middle(); ++i) {
      const bool old = i < r.sink + r.hive;
      if (pins_.count(at(h, i).position) == 0) {
        (old ? hive : unfiltered).push_back(i);
      } else {
        pinned.push_back(i);
        if (old) pinned_hive.push_back(i);
      }
    }
    Choice choice;
    const int held = static_cast<int>(pinned.size());
    const bool forgets = o().select == oracle::Select::segments && o().score == oracle::Score::attention &&
                         o().hive == oracle::Hive::first;
    if (o().select == oracle::Select::segments) {
      const std::vector<double> importance = importances(h);
      for (bool first = true; first || (!o().single_pass && static_cast<int>(hive.size()) + held > o().threshold);
           first = false) {
        const std::vector<int> thinned = every(hive);
        if (forgets) choice.forgotten = join(thinned, first ? pinned_hive : pinned);
        if (o().hive == oracle::Hive::together) {
          hive = oracle::best_of_chunks(importance, join(hive, unfiltered), o().chunk_rows(), o().keep);
        } else {
          const bool blind = o().hive == oracle::Hive::first;
          hive = join(blind ? thinned : oracle::best_of_chunks(importance, hive, o().keep * o().hive_stride, o().keep),
                      oracle::best_of_chunks(importance, unfiltered, o().chunk_rows(), o().keep));
        }
        unfiltered.clear();
      }
    } else if (o().select == oracle::Select::heaviest) {
      hive = join(hive, unfiltered);
      hive = oracle::best(importances(h), hive, std::min(o().heavy - held, static_cast<int>(hive.size())));
    } else {
      hive.clear();
    }
    choice.kept = join(join(range(0, r.sink), join(hive, pinned)), range(r.sink + r.middle(), r.window));
    if (forgets) choice.forgotten = join(range(0, r.sink), choice.forgotten);
    return choice;
  }

  void evict(const std::vector<Choice>& choices) {
    const buzz::Regions r = regions();
    for (int h = 0; h < o().kv_heads; ++h) {
      const Choice& choice = choices[static_cast<std::size_t>(h)];
      for (int i : choice.forgotten) at(h, i).score = 0;
      Rows left;
      for (int i : choice.kept) left.push_back(at(h, i));
      head(h) = left;
    }
    hive_ = rows() - r.sink - r.window;
    settle();
  }

  /// Is every position in a row of every head, or still to come, and is there room for the pins?
  bool can_pin(int first, int count) const {
    constexpr int most = std::numeric_limits<int>::max();
    if (first < 0 || count < 0 || count > most - first) return false;
    if (count > o().sink + room()) return false;
    std::set<int> all = pins_;
    for (int p = first; p < first + count; ++p) {
      for (int h = 0; h < o().kv_heads; ++h)
        if (p < next_ && !holds(h, p)) return false;
      all.insert(p);
    }
    return std::distance(all.lower_bound(o().sink), all.end()) <= room();
  }
  void pin(int first, int count) {
    for (int p = first; p < first + count; ++p) pins_.insert(p);
  }
  void unpin(int first, int count) { pins_.erase(pins_.lower_bound(first), pins_.lower_bound(first + count)); }

  /// At most max_rollback tokens, none before an eviction, and none before what the newest max_rollback slices of
  /// observations say.
  bool can_rollback(int n) const { return n >= 0 && n <= max_rollback_ && next_ - n >= floor_; }
  /// The newest n tokens never came, nor their slices in what was observed.
  void rollback(int n) {
    const int now = next_ - n;
    unpin(now, n);
    observed_ = std::min(observed_, now);
    while (!undo_.empty() && undo_.back() >= now) undo_.pop_back();
    const std::deque<Event> events = events_;
    heads_ = settled_;
    next_ = settled_next_;
    events_.clear();
    for (Event e : events) {
      e.tokens = std::min(e.tokens, now - next_);
      while (!e.slices.empty() && e.slices.back().position >= now) e.slices.pop_back();
      add_rows(e.tokens);
      next_ += e.tokens;
      if (e.given && !e.slices.empty()) set_scores(e.slices[0]);
      if (!e.given) add_sums(e.slices);
      events_.push_back(e);
    }
  }

  void reset() { *this = Model(c_, max_rollback_); }
  /// After a load nothing before it can be taken back.
  void loaded() {
    observed_ = next_;
    settle();
  }

 private:
  /// What happened since settle(), to be done again without the tokens that are taken back.
  struct Event {
    int tokens;
    std::vector<Slice> slices;
    bool given;
  };

  const oracle::Options& o() const { return c_.oracle; }
  std::size_t heads() const { return static_cast<std::size_t>(c_.oracle.kv_heads); }
  const Row& at(int h, int row) const { return head(h)[static_cast<std::size_t>(row)]; }
  Row& at(int h, int row) { return head(h)[static_cast<std::size_t>(row)]; }

  /// Pins that there may be, the sink's apart.
  int room() const {
    if (o().select == oracle::Select::heaviest) return o().heavy;
    if (o().select == oracle::Select::nothing) return o().threshold;
    if (o().select == oracle::Select::everything) return std::max(0, capacity() - o().sink);
    const int middle = capacity() - o().sink - o().window;
    return o().single_pass ? middle - 2 * (c_.max_chunk + 1) : o().segments_room();
  }

  bool holds(int h, int position) const {
    for (const Row& row : head(h))
      if (row.position == position) return true;
    return false;
  }

  void add_rows(int tokens) {
    for (Rows& rows : heads_)
      for (int i = 0; i < tokens; ++i) rows.push_back({next_ + i, 0});
  }
  void add_sums(const std::vector<Slice>& slices) {
    for (const Slice& slice : slices)
      for (int h = 0; h < o().kv_heads; ++h)
        for (int i = 0; i < rows(); ++i) {
          double& score = at(h, i).score;
          if (o().attention == oracle::AttentionKind::latest && &slice == &slices[0]) score = 0;
          if (o().attention == oracle::AttentionKind::newest) score = 0;
          score = o().attention == oracle::AttentionKind::largest ? std::max(score, sum(slice, h, i))
                                                                  : score + sum(slice, h, i);
        }
  }
  void set_scores(const Slice& slice) {
    for (int h = 0; h < o().kv_heads; ++h)
      for (int i = 0; i < rows(); ++i) at(h, i).score = sum(slice, h, i);
  }
  static double sum(const Slice& slice, int h, int i) {
    return slice.sums.empty() ? 0 : slice.sums[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)];
  }

  /// A slice that stands for tokens before its own cannot be split again, nor can what was observed once more.
  void note(int position) {
    if (position > observed_) floor_ = std::max(floor_, position + 1);
    if (position + 1 < observed_) floor_ = std::max(floor_, observed_);
    observed_ = position + 1;
    undo_.push_back(position);
    if (static_cast<int>(undo_.size()) <= max_rollback_) return;
    floor_ = std::max(floor_, undo_.front() + 1);
    undo_.pop_front();
  }
  /// From here on there is a way back; not past it.
  void settle() {
    settled_ = heads_;
    floor_ = settled_next_ = next_;
    undo_.clear();
    events_.clear();
  }

  std::vector<double> importances(int h) const {
    std::vector<double> result;
    for (const Row& row : head(h)) {
      const bool mean = o().score == oracle::Score::attention && o().attention == oracle::AttentionKind::mean;
      const double importance = mean ? row.score / static_cast<double>(next_ - row.position) : row.score;
      result.push_back(o().score == oracle::Score::none ? 0 : importance);
    }
    return result;
  }

  static std::vector<int> range(int first, int count) {
    std::vector<int> rows;
    for (int i = 0; i < count; ++i) rows.push_back(first + i);
    return rows;
  }
  static std::vector<int> join(std::vector<int> a, const std::vector<int>& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    return a;
  }
  std::vector<int> every(const std::vector<int>& rows) const {
    std::vector<int> result;
    for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(o().hive_stride)) result.push_back(rows[i]);
    return result;
  }

  Config c_;
  int max_rollback_;
  std::vector<Rows> heads_, settled_ = std::vector<Rows>(heads());
  int hive_ = 0, next_ = 0, settled_next_ = 0;
  int observed_ = 0, floor_ = 0;
  std::deque<int> undo_;  // positions of the slices that can be taken back
  std::set<int> pins_;
  std::deque<Event> events_;
};

}  // namespace fuzz
