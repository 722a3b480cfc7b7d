#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"

namespace buzz {

/// Splits `total` rows (or bytes) over layers in proportion to `weights`, at least `minimum` each, to the last one: the
/// parts' sum is exactly total. What rounding leaves over goes to the largest remainders, then to the first layers.
/// Errors: no layer, a weight that is negative or not finite, weights of sum 0, minimum < 0, total < layers * minimum.
/// O(layers log layers).
inline std::vector<long long> split_budget(long long total, const std::vector<double>& weights, long long minimum) {
  require_at_least("layers", static_cast<long long>(weights.size()), 1);
  require_at_least("minimum", minimum, 0);
  double sum = 0;
  for (const double w : weights) {
    if (!is_finite(w) || w < 0) fail("weights", std::to_string(w), "finite and >= 0");
    sum += w;
  }
  if (!is_finite(sum) || sum <= 0) fail("weights", std::to_string(sum), "a finite sum > 0");
  const long long layers = static_cast<long long>(weights.size());
  if (minimum > 0 && total / minimum < layers)
    fail("total", total, ">= layers * minimum = " + std::to_string(layers) + " * " + std::to_string(minimum));
  require_at_least("total", total, 0);

  const long long spare = total - layers * minimum;
  std::vector<long long> parts(weights.size(), minimum);
  std::vector<double> remainder(weights.size());
  long long left = spare;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(spare) * (weights[i] / sum);
    const long long whole = (std::min)(left, static_cast<long long>(std::floor(share)));
    parts[i] += whole;
    left -= whole;
    remainder[i] = share - static_cast<double>(whole);
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++parts[order[i]];
  return parts;
}

}  // namespace buzz
