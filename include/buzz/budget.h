#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
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
  // Weights as whole numbers of 61 bits, so that shares and what rounding leaves of them are exact.
  int exponent;
  static_cast<void>(std::frexp(sum, &exponent));
  std::vector<std::uint64_t> whole, remainder;
  std::uint64_t all = 0;
  for (const double w : weights) {
    whole.push_back(static_cast<std::uint64_t>(std::ldexp(w, 61 - exponent)));
    all += whole.back();
  }
  std::vector<long long> parts(weights.size(), minimum);
  long long left = spare;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    long long share = 0;  // spare * whole / all, bit by bit: the product would have 124
    std::uint64_t rest = 0;
    for (int bit = 62; bit >= 0; --bit) {
      rest = 2 * rest + ((spare >> bit & 1) != 0 ? whole[i] : 0);
      share *= 2;
      for (; rest >= all; rest -= all) ++share;
    }
    parts[i] += share;
    left -= share;
    remainder.push_back(rest);
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++parts[order[i]];
  return parts;
}

}  // namespace buzz
