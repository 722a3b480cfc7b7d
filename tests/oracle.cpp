#include "oracle.h"

#include <algorithm>
#include <cmath>

namespace oracle {

namespace {

/// NaN loses against every number; equals do not beat each other, so the row looked at first wins.
bool beats(double a, double b) {
  if (std::isnan(a)) return false;
  if (std::isnan(b)) return true;
  return a > b;
}

std::vector<int> range(int first, int count) {
  std::vector<int> rows;
  for (int i = 0; i < count; ++i) rows.push_back(first + i);
  return rows;
}

std::vector<int> every(int stride, const std::vector<int>& rows) {
  std::vector<int> result;
  for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(stride)) result.push_back(rows[i]);
  return result;
}

void add(const std::vector<int>& more, std::vector<int>& rows) { rows.insert(rows.end(), more.begin(), more.end()); }

}  // namespace

Vector rotate(Vector x, double position, const Options& o) {
  if (o.rope_base == 0) return x;
  for (int i = 0; i < o.rope_dims / 2; ++i) {
    const double angle = position * std::pow(o.rope_base, -2.0 * i / o.rope_dims);
    double& a = x[static_cast<std::size_t>(o.rope_first + (o.rope_halves ? i : 2 * i))];
    double& b = x[static_cast<std::size_t>(o.rope_first + (o.rope_halves ? i + o.rope_dims / 2 : 2 * i + 1))];
    const double old_a = a, old_b = b;
    a = old_a * std::cos(angle) - old_b * std::sin(angle);
    b = old_a * std::sin(angle) + old_b * std::cos(angle);
  }
  return x;
}

std::vector<int> best(const std::vector<double>& scores, const std::vector<int>& rows, int count) {
  const auto score = [&](int row) { return scores[static_cast<std::size_t>(row)]; };
  std::vector<int> left = rows, chosen;
  for (int n = 0; n < count; ++n) {
    std::size_t winner = 0;
    for (std::size_t i = 1; i < left.size(); ++i)
      if (beats(score(left[i]), score(left[winner]))) winner = i;
    chosen.push_back(left[winner]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(winner));
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int> best_of_chunks(const std::vector<double>& scores, const std::vector<int>& rows, int size, int keep) {
  std::vector<int> chosen, chunk;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    chunk.push_back(rows[i]);
    if (static_cast<int>(chunk.size()) < size && i + 1 < rows.size()) continue;
    const int count = (static_cast<int>(chunk.size()) * keep + size - 1) / size;
    for (int row : best(scores, chunk, count)) chosen.push_back(row);
    chunk.clear();
  }
  return chosen;
}

Cache::Cache(const Options& options)
    : o_(options),
      heads_(static_cast<std::size_t>(options.kv_heads)),
      foretold_(static_cast<std::size_t>(options.kv_heads)),
      asked_(static_cast<std::size_t>(options.query_heads)) {
  turning_.to = [options](const Vector& x, double position) { return rotate(x, position, options); };
  turning_.compact = options.rope_compact;
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  for (int i = 0; options.rope_base != 0 && i < options.rope_dims / 2; ++i)
    turning_.pairs.emplace_back(
        index(options.rope_first + (options.rope_halves ? i : 2 * i)),
        index(options.rope_first + (options.rope_halves ? i + options.rope_dims / 2 : 2 * i + 1)));
}

Regions Cache::regions() const {
  Regions r;
  r.sink = std::min(rows(), o_.sink);
  r.hive = hive_;
  r.unfiltered = std::max(0, rows() - r.sink - r.hive - o_.window);
  r.window = rows() - r.sink - r.hive - r.unfiltered;
  return r;
}

void Cache::append(const Tokens& keys, const Tokens& values) {
  for (std::size_t t = 0; t < keys.size(); ++t, ++next_position_) {
    const int place = rows();
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      Row row{next_position_, keys[t][h], {}, {}, o_.values_in_keys ? Vector() : values[t][h]};
      row.pinned = pins_.count(row.position) > 0;
      place_key(row, place);
      if (o_.values_in_keys)
        row.value.assign(row.key.begin(), row.key.begin() + o_.values());
      else
        for (double& x : row.value) x = o_.stored(x);
      heads_[h].push_back(std::move(row));
    }
  }
}

void Cache::replace_row(int h, int r, const Vector& key, const Vector& value) {
  Row& row = head(h)[static_cast<std::size_t>(r)];
  row.key = key;
  row.value = value;
  if (o_.raw_keys) row.rotated_key = rotate(key, r, o_);
}

void Cache::pin(int position) {
  pins_.insert(position);
  for (std::vector<Row>& head : heads_)
    for (Row& row : head) row.pinned |= row.position == position;
}

int Cache::first_seen(int visible) const {
  return o_.attention_window == 0 ? 0 : std::max(0, visible - o_.attention_window);
}

std::vector<double> Cache::logits(const Vector& query, int q, int visible) const {
  const std::vector<Row>& all = head(q / (o_.query_heads / o_.kv_heads));
  const int first = first_seen(visible);
  double sharpness = o_.scale;
  if (o_.log_base != 0) sharpness *= std::log(static_cast<double>(visible - first)) / std::log(o_.log_base);
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(visible - first));
  for (int r = first; r < visible; ++r) {
    const Row& row = all[static_cast<std::size_t>(r)];
    double x = dot(query, read_key(row)) * sharpness;
    if (o_.soft_cap != 0) x = o_.soft_cap * std::tanh(x / o_.soft_cap);
    if (!o_.slopes.empty()) {
      const int newest = all[static_cast<std::size_t>(visible - 1)].position;
      x -= o_.slopes[static_cast<std::size_t>(q)] * (o_.slopes_by_place ? visible - 1 - r : newest - row.position);
    }
    result.push_back(x);
  }
  return result;
}

Tokens Cache::attend(const Tokens& queries) {
  const int n = static_cast<int>(queries.size());
  Tokens out;
  probabilities_.assign(static_cast<std::size_t>(o_.query_heads), Matrix());
  for (int i = 0; i < n; ++i) {
    const int visible = rows() - n + i + 1;
    const int position = (o_.rope_compact ? rows() : next_position_) - n + i;
    out.emplace_back();
    for (int q = 0; q < o_.query_heads; ++q) {
      const std::vector<Row>& rows_seen = head(q / (o_.query_heads / o_.kv_heads));
      const Vector query = rotate(queries[static_cast<std::size_t>(i)][static_cast<std::size_t>(q)], position, o_);
      std::vector<double> p = softmax(query, q, visible);
      Vector mixed(static_cast<std::size_t>(o_.values()), 0.0);
      for (int r = first_seen(visible); r < visible; ++r)
        for (std::size_t d = 0; d < mixed.size(); ++d)
          mixed[d] += p[static_cast<std::size_t>(r)] * rows_seen[static_cast<std::size_t>(r)].value[d];
      out.back().push_back(std::move(mixed));
      probabilities_[static_cast<std::size_t>(q)].push_back(std::move(p));
    }
  }
  return out;
}

void Cache::observe(const Probabilities& p) {
  const std::size_t group = static_cast<std::size_t>(o_.query_heads / o_.kv_heads);
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    for (std::size_t r = 0; r < heads_[h].size(); ++r) {
      for (std::size_t i = 0; i < p[0].size(); ++i) {
        double sum = 0;
        for (std::size_t q = h * group; q < (h + 1) * group; ++q) {
          const bool seen = r + p[q].size() <= heads_[h].size() + i;
          if (seen && std::isfinite(p[q][i][r])) sum += p[q][i][r];
        }
        heads_[h][r].received.push_back(sum);
        double& score = heads_[h][r].score;
        if (o_.attention == AttentionKind::newest || (o_.attention == AttentionKind::latest && i == 0)) score = 0;
        if (o_.attention == AttentionKind::decayed) score *= o_.decay;
        score = o_.attention == AttentionKind::largest ? std::max(score, sum) : score + sum;
      }
    }
  }
}

void Cache::observe_queries(const Tokens& queries) {
  for (std::size_t i = 0; i < queries.size(); ++i)
    for (std::size_t q = 0; q < asked_.size(); ++q)
      if (next_position_ - static_cast<int>(queries.size() - i) >= o_.sink) asked_[q].push_back(queries[i][q]);
}

bool Cache::should_evict() const {
  const Regions r = regions();
  return o_.select != Select::everything && r.hive + r.unfiltered > o_.threshold;
}

std::vector<double> Cache::importance(int h) const {
  if (!o_.shared) return own_importance(h);
  std::vector<double> sums(heads_[0].size(), 0.0);
  for (int head = 0; head < o_.kv_heads; ++head) {
    const std::vector<double> own = own_importance(head);
    for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += own[r];
  }
  return sums;
}

Cache::Choice Cache::choose(int h, const std::vector<double>& scores) const {
  const Regions r = regions();
  std::vector<int> hive, unfiltered;
  Choice choice;
  choice.kept = range(0, r.sink);
  for (int row : range(r.sink, r.hive + r.unfiltered))
    (head(h)[static_cast<std::size_t>(row)].pinned ? choice.kept
     : row < r.sink + r.hive                       ? hive
                                                   : unfiltered)
        .push_back(row);
  const int pins = r.hive + r.unfiltered - static_cast<int>(hive.size() + unfiltered.size());
  if (o_.select == Select::segments) {
    do {
      const std::vector<int> thinned = every(o_.hive_stride, hive);
      hive = segments(scores, hive, unfiltered);
      ++choice.passes;
      unfiltered.clear();
      if (forgets()) choice.forgotten = thinned;
    } while (!o_.single_pass && static_cast<int>(hive.size()) + pins > o_.threshold);
  } else if (o_.select == Select::heaviest) {
    add(unfiltered, hive);
    hive = best(scores, hive, std::min(o_.heavy - pins, static_cast<int>(hive.size())));
  } else {
    hive.clear();
  }
  if (forgets()) add(range(0, r.sink), choice.forgotten);
  add(hive, choice.kept);
  add(range(rows() - r.window, r.window), choice.kept);
  std::sort(choice.kept.begin(), choice.kept.end());
  return choice;
}

void Cache::evict(const std::vector<Choice>& choices) {
  const Regions r = regions();
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    for (int i : choices[h].forgotten) heads_[h][static_cast<std::size_t>(i)].score = 0;
    std::vector<Row> left;
    left.reserve(choices[h].kept.size());
    for (int i : choices[h].kept) {
      const int place = static_cast<int>(left.size());
      left.push_back(std::move(heads_[h][static_cast<std::size_t>(i)]));
      if (i != place) ++left.back().moves;
      if (o_.rope_compact) place_key(left.back(), place);
    }
    heads_[h].swap(left);
  }
  hive_ = rows() - r.sink - r.window;
}

bool Cache::evict() {
  if (!should_evict()) return false;
  std::vector<Choice> choices;
  for (int h = 0; h < o_.kv_heads; ++h) choices.push_back(choose(h, importance(h)));
  evict(choices);
  return true;
}

std::vector<int> Cache::segments(const std::vector<double>& scores, const std::vector<int>& hive,
                                 const std::vector<int>& unfiltered) const {
  if (o_.hive == Hive::together) {
    std::vector<int> both = hive;
    add(unfiltered, both);
    return best_of_chunks(scores, both, o_.chunk_rows(), o_.keep);
  }
  std::vector<int> kept = o_.hive == Hive::first ? every(o_.hive_stride, hive)
                                                 : best_of_chunks(scores, hive, o_.keep * o_.hive_stride, o_.keep);
  add(best_of_chunks(scores, unfiltered, o_.chunk_rows(), o_.keep), kept);
  return kept;
}

bool Cache::forgets() const {
  return o_.score == Score::attention && o_.select == Select::segments && o_.hive == Hive::first;
}

std::vector<double> Cache::softmax(const Vector& query, int q, int visible) const {
  const std::vector<double> x = logits(query, q, visible);
  double top = *std::max_element(x.begin(), x.end()), total = 0;
  if (!o_.sinks.empty()) {
    top = std::max(top, o_.sinks[static_cast<std::size_t>(q)]);
    total = std::exp(o_.sinks[static_cast<std::size_t>(q)] - top);
  }
  std::vector<double> p(static_cast<std::size_t>(rows()), 0.0);
  const int first = first_seen(visible);
  for (std::size_t r = 0; r < x.size(); ++r) total += p[static_cast<std::size_t>(first) + r] = std::exp(x[r] - top);
  for (double& e : p) e /= total;
  return p;
}

void Cache::place_key(Row& row, int place) const {
  const int position = o_.rope_compact ? place : row.position;
  row.key = o_.raw_keys ? row.raw_key : rotate(row.raw_key, position, o_);
  for (double& x : row.key) x = o_.stored(x);
  if (o_.raw_keys) row.rotated_key = rotate(row.key, position, o_);
}

std::vector<double> Cache::own_importance(int h) const {
  const Regions r = regions();
  const std::vector<Row>& rows = head(h);
  if (expects(o_.score)) {
    std::vector<Vector> keys, values;
    for (const Row& row : rows) keys.push_back(read_key(row));
    for (const Row& row : rows) values.push_back(row.value);
    const std::ptrdiff_t group = o_.query_heads / o_.kv_heads;
    const std::vector<std::vector<Vector>> queries(asked_.begin() + h * group, asked_.begin() + (h + 1) * group);
    return expecting(keys, values, queries, turning_.compact ? this->rows() : next_position_, r.sink,
                     r.sink + r.hive + r.unfiltered, turning_, o_);
  }
  if (!looks_at_unrotated_keys(o_))
    return oracle::importance(rows, r.sink, r.sink + r.hive + r.unfiltered, next_position_, o_);
  std::vector<Row> unrotated = rows;
  for (int i = 0; i < this->rows() && !o_.raw_keys; ++i) {
    Row& row = unrotated[static_cast<std::size_t>(i)];
    row.key = rotate(row.key, o_.rope_compact ? -i : -row.position, o_);
  }
  if (o_.score == Score::calibrated) return foretold(unrotated, h);
  return oracle::importance(unrotated, r.sink, r.sink + r.hive + r.unfiltered, next_position_, o_);
}

std::vector<double> Cache::foretold(const std::vector<Row>& rows, int h) const {
  std::map<int, double>& numbers = foretold_[static_cast<std::size_t>(h)];
  std::vector<double> result;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const int position = rows[r].position;
    if (numbers.count(position) == 0) {
      double number = calibrated(rows[r], h);
      const double before = r == 0 ? std::nan("") : result[r - 1];
      if (o_.trail > 0 && !std::isnan(before)) {
        const double share = std::exp((rows[r - 1].position - position) / o_.trail);
        number = share * before + (1 - share) * number;
      }
      if (!std::isnan(number)) numbers[position] = number;
      result.push_back(number);
    } else {
      result.push_back(numbers[position]);
    }
  }
  return result;
}

}  // namespace oracle
