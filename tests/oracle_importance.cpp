#include "oracle_importance.h"

#include <algorithm>
#include <cmath>

namespace oracle {

namespace {

/// What the last queries gave to each row and its neighbours among rows [begin, end).
std::vector<double> recent(const std::vector<Row>& head, int begin, int end, const Options& o) {
  std::vector<double> sums, result;
  for (const Row& row : head) {
    sums.push_back(0);
    for (std::size_t i = 0; i < row.received.size(); ++i)
      if (i + static_cast<std::size_t>(o.queries) >= row.received.size()) sums.back() += row.received[i];
  }
  for (int r = 0; r < static_cast<int>(head.size()); ++r) {
    double sum = 0, most = 0;
    for (int other = r - o.kernel / 2; other <= r + o.kernel / 2; ++other) {
      if (other < begin || other >= end) continue;
      sum += sums[static_cast<std::size_t>(other)];
      most = std::max(most, sums[static_cast<std::size_t>(other)]);
    }
    result.push_back(o.average ? sum / o.kernel : most);
  }
  return result;
}

bool all_finite(const Vector& x) {
  return std::all_of(x.begin(), x.end(), [](double e) { return std::isfinite(e); });
}

Vector mean_of(const std::vector<Vector>& all, std::size_t dim) {
  Vector mean(dim, 0.0);
  for (const Vector& x : all)
    for (std::size_t d = 0; d < dim; ++d) mean[d] += x[d] / static_cast<double>(all.size());
  return mean;
}

/// The mean of a vector turned to each of some positions.
Vector turned(const Vector& x, const std::vector<double>& positions, const Turning& turning) {
  std::vector<Vector> all;
  for (double p : positions) all.push_back(turning.to(x, p));
  return mean_of(all, x.size());
}

/// The lengths of the pairs, and of the elements that are in none.
Vector lengths_of(const Vector& x, const Turning& turning) {
  Vector squares = x;
  for (double& e : squares) e *= e;
  for (const auto& pair : turning.pairs) {
    squares[pair.first] += squares[pair.second];
    squares[pair.second] = 0;
  }
  for (double& e : squares) e = std::sqrt(e);
  return squares;
}

/// Each row's x' (ridge I + X'X)^-1 x. It comes to 1 - r_ii, where r = ridge (ridge I + XX')^-1: with fewer rows than
/// dimensions that is the smaller matrix.
std::vector<double> hat(const std::vector<Vector>& x, double ridge) {
  const std::size_t n = x.size(), dim = x.empty() ? 0 : x[0].size(), size = std::min(n, dim);
  Matrix a(size, Vector(size, 0.0));
  for (std::size_t r = 0; r < size; ++r)
    for (std::size_t c = 0; c < size; ++c) {
      a[r][c] = r == c ? ridge : 0;
      if (n < dim) a[r][c] += dot(x[r], x[c]);
      for (std::size_t i = 0; n >= dim && i < n; ++i) a[r][c] += x[i][r] * x[i][c];
    }
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i) {
    Vector unit(n, 0.0);
    unit[i] = ridge;
    result.push_back(n < dim ? 1 - solved(a, unit)[i] : dot(x[i], solved(a, x[i])));
  }
  return result;
}

/// Each row's w v' (I + sum of w v v')^-1 v, of finite rows.
std::vector<double> capacity(const std::vector<Vector>& keys, const std::vector<Vector>& values, const Vector& query,
                             double sharpness) {
  std::vector<Vector> x;
  std::vector<std::size_t> of;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    if (!all_finite(keys[r]) || !all_finite(values[r])) continue;
    const double both = std::sqrt(dot(keys[r], keys[r]) * dot(query, query));
    x.push_back(values[r]);
    for (double& e : x.back()) e *= std::exp(sharpness * (both == 0 ? 0 : dot(keys[r], query) / both) / 2);
    of.push_back(r);
  }
  std::vector<double> result(keys.size(), std::nan(""));
  const std::vector<double> hats = hat(x, 1);
  for (std::size_t i = 0; i < x.size(); ++i) result[of[i]] = hats[i];
  return result;
}

}  // namespace

bool looks_at_unrotated_keys(const Options& o) { return o.score == Score::leverage || o.score == Score::calibrated; }

std::vector<double> normal(std::vector<double> x, int begin, int end) {
  double mean = 0, variance = 0;
  for (int r = begin; r < end; ++r) mean += x[static_cast<std::size_t>(r)] / (end - begin);
  for (int r = begin; r < end; ++r) variance += std::pow(x[static_cast<std::size_t>(r)] - mean, 2) / (end - begin);
  // What double arithmetic leaves of equal numbers' deviation is none.
  for (double& e : x) e = std::sqrt(variance) <= 1e-12 * std::fabs(mean) ? 0 : (e - mean) / std::sqrt(variance);
  return x;
}

std::vector<double> diversity(const std::vector<Row>& head, int begin, int end, const Options& o) {
  Vector mean(head.empty() ? 0 : head[0].key.size(), 0.0);
  const int first = o.mean_over_middle ? begin : 0, last = o.mean_over_middle ? end : static_cast<int>(head.size());
  for (int r = first; r < last; ++r) {
    const Vector& key = head[static_cast<std::size_t>(r)].key;
    const double length = o.unlike == Unlike::direction ? std::sqrt(dot(key, key)) : 1;
    for (std::size_t d = 0; d < mean.size(); ++d) mean[d] += length == 0 ? 0 : key[d] / length / (last - first);
  }
  std::vector<double> result;
  for (const Row& row : head) {
    Vector difference = row.key;
    for (std::size_t d = 0; d < mean.size(); ++d) difference[d] -= mean[d];
    const double norms = std::sqrt(dot(row.key, row.key)) * std::sqrt(dot(mean, mean));
    const double cosine = norms == 0 ? 0 : dot(row.key, mean) / norms;
    result.push_back(o.unlike == Unlike::distance ? std::sqrt(dot(difference, difference)) : -cosine);
  }
  return result;
}

Vector solved(Matrix a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t most = i;
    for (std::size_t r = i; r < n; ++r)
      if (std::fabs(a[r][i]) > std::fabs(a[most][i])) most = r;
    std::swap(a[i], a[most]);
    std::swap(b[i], b[most]);
    for (std::size_t r = i + 1; r < n; ++r) {
      const double factor = a[r][i] / a[i][i];
      for (std::size_t c = i; c < n; ++c) a[r][c] -= factor * a[i][c];
      b[r] -= factor * b[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t c = i + 1; c < n; ++c) b[i] -= a[i][c] * b[c];
    b[i] /= a[i][i];
  }
  return b;
}

std::vector<double> leverage(const std::vector<Vector>& rows, double ridge) {
  std::vector<Vector> x;
  std::vector<std::size_t> of;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (!all_finite(rows[r])) continue;
    x.push_back(rows[r]);
    of.push_back(r);
  }
  const std::size_t dim = rows.empty() ? 0 : rows[0].size();
  const Vector mean = mean_of(x, dim);
  double squares = 0;
  for (Vector& row : x)
    for (std::size_t d = 0; d < dim; ++d) squares += std::pow(row[d] -= mean[d], 2);
  const double lambda = ridge * squares / static_cast<double>(dim);
  std::vector<double> result(rows.size(), std::nan(""));
  const std::vector<double> hats = lambda == 0 ? std::vector<double>(x.size(), 0.0) : hat(x, lambda);
  for (std::size_t i = 0; i < x.size(); ++i) result[of[i]] = hats[i];
  return result;
}

std::vector<double> lagging(const std::vector<Vector>& rows, int begin, int lag) {
  const int n = static_cast<int>(rows.size());
  const auto at = [&](int r) -> const Vector& { return rows[static_cast<std::size_t>(r)]; };
  std::vector<double> deviations(rows.size(), 0.0), result(rows.size(), 0.0);
  for (int r = begin; r < n; ++r) {
    int next = begin;  // the first row after r's block
    while (next <= r) next += std::min(lag, n);
    if (next > n - lag) next = std::max(0, n - lag);
    Vector scaled;
    for (std::size_t d = 0; d < at(r).size(); ++d) {
      double low = HUGE_VAL, high = -HUGE_VAL;
      for (int other = next; other < std::min(n, next + lag); ++other)
        if (std::isfinite(at(other)[d])) {
          low = std::min(low, at(other)[d]);
          high = std::max(high, at(other)[d]);
        }
      scaled.push_back(low < high ? (at(r)[d] - low) / (high - low) : 0);
    }
    double mean = 0, squares = 0;
    for (double e : scaled) mean += e / static_cast<double>(scaled.size());
    for (double e : scaled) squares += std::pow(e - mean, 2) / static_cast<double>(scaled.size());
    deviations[static_cast<std::size_t>(r)] = all_finite(at(r)) ? std::sqrt(squares) : std::nan("");
  }
  for (int first = begin; first < n; first += std::min(lag, n)) {
    const int end = std::min(n, first + std::min(lag, n));
    double most = 0, total = 0;
    for (int r = first; r < end; ++r) most = std::fmax(most, deviations[static_cast<std::size_t>(r)]);
    for (int pass = 0; pass < 2; ++pass)
      for (int r = first; r < end; ++r) {
        const double e = std::exp(deviations[static_cast<std::size_t>(r)] - most);
        if (pass == 0 && !std::isnan(e)) total += e;
        if (pass == 1) result[static_cast<std::size_t>(r)] = e / total;
      }
  }
  return result;
}

double made_up_weight(int head, std::size_t i) {
  return static_cast<double>((static_cast<std::size_t>(head) * 7919 + i * 104729 + 13) % 511) / 256 - 1;
}

double calibrated(const Row& row, int head) {
  Vector features = row.key;
  features.insert(features.end(), row.value.begin(), row.value.end());
  features.push_back(1);
  double sum = 0;
  for (std::size_t i = 0; i < features.size(); ++i) sum += features[i] * made_up_weight(head, i);
  return std::isfinite(sum) ? sum : std::nan("");
}

std::vector<double> expecting(const std::vector<Vector>& keys, const std::vector<Vector>& values,
                              const std::vector<std::vector<Vector>>& queries, int next, int begin, int end,
                              const Turning& turning, const Options& o) {
  const std::size_t dim = keys[0].size();
  std::vector<double> result(keys.size(), o.score == Score::tri ? -HUGE_VAL : 0.0), positions;
  if (o.score != Score::tri)
    for (int i = 0; i < o.horizon; ++i) positions.push_back(next + i);
  else
    for (int i = 0; i <= 16; ++i) positions.push_back(next - 1 + std::pow(o.reach, i / 16.));
  if (o.score == Score::cap) {
    Vector query(dim, 0.0);
    for (const std::vector<Vector>& of_head : queries) {
      const Vector one = turned(mean_of(of_head, dim), positions, turning);
      for (std::size_t d = 0; d < dim; ++d) query[d] += one[d];
    }
    return capacity(keys, values, query, o.sharpness);
  }
  for (const std::vector<Vector>& of_head : queries) {
    const Vector expected = turned(mean_of(of_head, dim), positions, turning);
    Vector spread(dim, 0.0);  // of a query where it is turned by nothing
    for (const Vector& q : of_head) {
      const Vector lengths = lengths_of(turning.to(q, 0), turning);
      for (std::size_t d = 0; d < dim; ++d) spread[d] += lengths[d] / static_cast<double>(of_head.size());
    }
    const Vector of_mean = lengths_of(turning.to(mean_of(of_head, dim), 0), turning);
    for (std::size_t d = 0; d < dim; ++d) spread[d] -= of_mean[d];
    std::vector<double> logits;
    for (const Vector& key : keys) logits.push_back(dot(key, expected) * (o.score == Score::expected ? o.scale : 1));
    if (o.score == Score::tri) {
      for (std::size_t r = 0; r < keys.size(); ++r) logits[r] += dot(lengths_of(keys[r], turning), spread);
      logits = normal(logits, begin, end);
      for (std::size_t r = 0; r < keys.size(); ++r) result[r] = std::max(result[r], logits[r]);
      continue;
    }
    double most = -HUGE_VAL, total = 0;
    for (int r = begin; r < end; ++r) most = std::max(most, logits[static_cast<std::size_t>(r)]);
    for (int r = begin; r < end; ++r) total += std::exp(logits[static_cast<std::size_t>(r)] - most);
    for (std::size_t r = 0; r < keys.size(); ++r)
      result[r] += std::exp(logits[r] - most) / total / static_cast<double>(queries.size()) *
                   (o.times_value ? std::sqrt(dot(values[r], values[r])) : 1);
  }
  return result;
}

std::vector<double> importance(const std::vector<Row>& head, int begin, int end, int next_position, const Options& o) {
  const auto all = [&](Vector Row::*of) {
    std::vector<Vector> vectors;
    for (const Row& row : head) vectors.push_back(row.*of);
    return vectors;
  };
  if (o.score == Score::leverage) return leverage(all(o.of_values ? &Row::value : &Row::key), o.ridge);
  if (o.score == Score::lag) {
    std::vector<double> sums = lagging(all(&Row::key), begin, o.lag), more = lagging(all(&Row::value), begin, o.lag);
    for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += more[r];
    return sums;
  }
  if (o.score == Score::recent) return recent(head, begin, end, o);
  std::vector<double> result;
  if (o.score == Score::key_diversity) {
    result = diversity(head, begin, end, o);
    for (std::size_t r = 0; r < result.size(); ++r) result[r] -= o.fade * (next_position - 1 - head[r].position);
    return result;
  }
  for (const Row& row : head) {
    if (o.score == Score::none)
      result.push_back(0);
    else if (o.score == Score::key_value)
      result.push_back(std::sqrt(dot(row.value, row.value)));
    else if (o.score == Score::attention && o.attention == AttentionKind::mean)
      result.push_back(row.score / (next_position - row.position));
    else
      result.push_back(row.score);
  }
  if (o.score != Score::key_value) return result;
  const std::vector<double> unlike = normal(diversity(head, begin, end, o), begin, end);
  result = normal(result, begin, end);
  for (std::size_t r = 0; r < result.size(); ++r) result[r] = unlike[r] + o.weight * result[r];
  return result;
}

}  // namespace oracle
