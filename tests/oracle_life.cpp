#include "oracle_life.h"

#include <algorithm>
#include <cmath>

namespace oracle {

Vector rotated_to(Vector x, double position, const Rotation& t) {
  const std::size_t half = t.frequencies.size();
  for (std::size_t i = 0; i < half; ++i) {
    const double cosine = t.factor * std::cos(position * t.frequencies[i]);
    const double sine = t.factor * std::sin(position * t.frequencies[i]);
    double& a = x[t.first + (t.halves ? i : 2 * i)];
    double& b = x[t.first + (t.halves ? i + half : 2 * i + 1)];
    const double old_a = a, old_b = b;
    a = old_a * cosine - old_b * sine;
    b = old_a * sine + old_b * cosine;
  }
  return x;
}

Life::Life(const Options& options, const Rotation& rotation, bool keeps_history)
    : o_(unrotated(options, rotation)), rotation_(rotation), keeps_history_(keeps_history), cache_(o_) {
  Turning turning;
  turning.to = [rotation](const Vector& x, double position) { return rotated_to(x, position, rotation); };
  turning.compact = rotation.compact;
  const std::size_t half = rotation.frequencies.size();
  for (std::size_t i = 0; i < half; ++i)
    turning.pairs.emplace_back(rotation.first + (rotation.halves ? i : 2 * i),
                               rotation.first + (rotation.halves ? i + half : 2 * i + 1));
  cache_.turns(turning);
}

std::vector<double> Life::importance(int h) const {
  if (!looks_at_unrotated_keys(o_) || rotation_.raw) return cache_.importance(h);
  Cache came = cache_;
  Rotation back = rotation_;
  back.factor = 1 / back.factor;
  for (int head = 0; head < o_.kv_heads; ++head)
    for (int i = 0; i < rows(); ++i) {
      Row& row = came.head(head)[static_cast<std::size_t>(i)];
      row.key = rotated_to(row.key, back.compact ? -i : -row.position, back);
    }
  return came.importance(h);
}

void Life::append(const Tokens& keys, const Tokens& values) {
  if (keeps_history_) history_.push_back({cache_, keys, values, {}, false});
  const int first = rows();
  cache_.append(keys, values);
  place(first);
  mark();
}

Tokens Life::attend(const Tokens& queries) {
  if (keeps_history_) history_.back().queries = queries;
  asked_ = queries;
  return cache_.attend(rotated(queries));
}

void Life::observe() {
  if (keeps_history_) history_.back().observed = true;
  cache_.observe();
  cache_.observe_queries(asked_);
}

Matrix Life::log_sum_exp(const Tokens& queries) {
  const int n = static_cast<int>(queries.size());
  const Tokens all = rotated(queries);
  Matrix result(queries.size());
  for (int i = 0; i < n; ++i)
    for (int q = 0; q < o_.query_heads; ++q) {
      double sum = o_.sinks.empty() ? 0 : std::exp(o_.sinks[static_cast<std::size_t>(q)]);
      const Vector& query = all[static_cast<std::size_t>(i)][static_cast<std::size_t>(q)];
      for (double x : cache_.logits(query, q, rows() - n + i + 1)) sum += std::exp(x);
      result[static_cast<std::size_t>(i)].push_back(std::log(sum));
    }
  return result;
}

void Life::pin(int first, int count) {
  for (int p = first; p < first + count; ++p) pins_.insert(p);
  mark();
}

void Life::unpin(int first, int count) {
  for (int p = first; p < first + count; ++p) pins_.erase(p);
  mark();
}

void Life::evict(const std::vector<Cache::Choice>& choices) {
  cache_.evict(choices);
  if (rotation_.compact) place(0);
  history_.clear();
}

void Life::rollback(int n) {
  unpin(next_position() - n, n);
  for (; n > 0; mark()) {
    const Call last = history_.back();
    history_.pop_back();
    cache_ = last.before;
    const int stay = static_cast<int>(last.keys.size()) - n;
    n = std::max(0, -stay);
    if (stay <= 0) continue;
    append(first_of(last.keys, stay), first_of(last.values, stay));
    if (!last.queries.empty()) attend(first_of(last.queries, stay));
    if (last.observed) observe();
  }
}

Options Life::unrotated(Options o, const Rotation& rotation) {
  o.rope_base = 0;
  o.rope_compact = false;
  o.raw_keys = rotation.raw && !rotation.frequencies.empty();
  return o;
}

Tokens Life::first_of(const Tokens& all, int count) {
  return all.empty() ? all : Tokens(all.begin(), all.begin() + count);  // values may be in the keys
}

void Life::mark() {
  for (int h = 0; h < o_.kv_heads; ++h)
    for (Row& row : head(h)) row.pinned = pins_.count(row.position) > 0;
}

void Life::place(int first) {
  if (rotation_.frequencies.empty()) return;
  for (int h = 0; h < o_.kv_heads; ++h) {
    for (int i = first; i < rows(); ++i) {
      Row& row = head(h)[static_cast<std::size_t>(i)];
      const int position = rotation_.compact ? i : row.position;
      row.key = rotation_.raw ? row.raw_key : rotated_to(row.raw_key, position, rotation_);
      for (double& x : row.key) x = o_.stored(x);
      if (rotation_.raw) row.rotated_key = rotated_to(row.key, position, rotation_);
    }
  }
}

Tokens Life::rotated(Tokens queries) const {
  const int first = (rotation_.compact ? rows() : next_position()) - static_cast<int>(queries.size());
  for (std::size_t i = 0; i < queries.size(); ++i)
    for (Vector& q : queries[i]) q = rotated_to(q, first + static_cast<int>(i), rotation_);
  return queries;
}

}  // namespace oracle
