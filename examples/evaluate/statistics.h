// Means, and how far to trust them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tiny_llama/documents.h"

namespace evaluate {

/// A figure and its 95% interval.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

/// A share of yes among all, with Wilson's score interval, which stays inside 0 to 1 and is right for few.
inline Estimate share(std::size_t yes, std::size_t all) {
  if (all == 0) return {0, 0, 1};
  constexpr double z = 1.959963984540054;  // 97.5% of the normal distribution
  const double n = static_cast<double>(all), p = static_cast<double>(yes) / n, zz = z * z / n;
  const double middle = (p + zz / 2) / (1 + zz), half = z / (1 + zz) * std::sqrt(p * (1 - p) / n + zz / (4 * n));
  return {p, (std::max)(0.0, middle - half), (std::min)(1.0, middle + half)};
}

/// What is drawn with replacement as a whole: a set of documents, a block of text. Numbers of one unit hang together,
/// those of different units do not.
struct Unit {
  double sum = 0, weight = 0;
};

/// Sum over weight of all units, with the percentile bootstrap over them; `map` is applied to each mean.
inline Estimate bootstrap(
    const std::vector<Unit>& units, const std::function<double(double)>& map = [](double mean) { return mean; },
    int draws = 2000) {
  const auto mean = [&](auto draw) {
    Unit all;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const Unit& u = units[draw(i)];
      all.sum += u.sum;
      all.weight += u.weight;
    }
    return map(all.weight == 0 ? 0 : all.sum / all.weight);
  };
  Estimate e;
  e.value = e.low = e.high = mean([](std::size_t i) { return i; });
  if (units.size() < 2) return e;
  tiny_llama::Random random(units.size());  // the same draws for every policy, so that rows can be compared
  std::vector<double> means(static_cast<std::size_t>(draws));
  for (double& m : means) m = mean([&](std::size_t) { return random.below(units.size()); });
  std::sort(means.begin(), means.end());
  const auto at = [&](double part) { return means[static_cast<std::size_t>(std::lround(part * (draws - 1)))]; };
  e.low = at(0.025);
  e.high = at(0.975);
  return e;
}

/// a - b, unit by unit.
inline std::vector<Unit> difference(std::vector<Unit> a, const std::vector<Unit>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i].sum -= b[i].sum;
  return a;
}

}  // namespace evaluate
