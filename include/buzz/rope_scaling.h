#pragma once

#include <algorithm>

#include "buzz/rope.h"

namespace buzz {

/// Rope whose frequencies are scaled for a context longer than the model was trained with. Each takes a Rope with a
/// base, and the number of rotated elements `dims` (head_dim where all are). Errors: as the function says; the rest is
/// checked when a cache is made of the result. -ffast-math and its like change no bit.
namespace rope_scaling {

constexpr double two_pi = 6.283185307179586476925286766559;  ///< a turn in radians

/// Refuses what is not finite or not above 0.
inline void require_positive(const char* field, double value) {
  if (!is_finite(value) || value <= 0) fail(field, std::to_string(value), "finite and > 0");
}

/// `rope` with the base's own frequencies in its table. Errors, and so of all below: factor not finite or <= 0, dims
/// out of 2 to 65536, a base not finite or <= 1.
inline Rope tabulated(Rope rope, int dims, double factor) {
  require_positive("factor", factor);
  require_range("dims", dims, 2, 1 << 16);
  if (!is_finite(rope.base) || rope.base <= 1) fail("rope.base", std::to_string(rope.base), "finite and > 1");
  rope.dims = dims;
  rope.frequencies.clear();
  for (int i = 0; i < dims / 2; ++i) rope.frequencies.push_back(frequency(rope.base, i, dims));
  return rope;
}

/// Position interpolation (arXiv 2306.15595): every frequency is divided by factor.
inline Rope linear(const Rope& rope, int dims, double factor) {
  Rope result = tabulated(rope, dims, factor);
  for (double& f : result.frequencies) f /= as_written(factor);
  return result;
}

/// NTK-aware: the base is multiplied by factor^(dims / (dims - 2)), so that the highest frequency stays and the lowest
/// is divided by factor. Errors: dims < 4.
inline Rope ntk(Rope rope, int dims, double factor) {
  require_at_least("dims", dims, 4);
  rope = tabulated(rope, dims, factor);
  rope.base *= std::pow(factor, static_cast<double>(dims) / (dims - 2));
  return tabulated(rope, dims, factor);
}

/// Llama 3.1's bands: wavelengths under original_context / high stay, those over original_context / low are divided by
/// factor, between them it is mixed. Errors: one of the three not finite or <= 0, low >= high.
inline Rope llama3(const Rope& rope, int dims, double factor, double low, double high, double original_context) {
  Rope result = tabulated(rope, dims, factor);
  require_positive("original_context", original_context);
  require_positive("low", low);
  require_positive("high", high);
  if (low >= high) fail("low", std::to_string(low), "> 0 and < high");
  for (double& f : result.frequencies) {
    const double turns = as_written(as_written(original_context * f) / as_written(two_pi));
    const double keep = (std::min)(1.0, (std::max)(0.0, as_written((turns - low) / as_written(high - low))));
    f = as_written(keep * f) + as_written(as_written(as_written(1 - keep) * f) / as_written(factor));
  }
  return result;
}

/// YaRN (arXiv 2309.00071, section 3): frequencies that turn more than beta_fast times in the original context stay,
/// those that turn less than beta_slow times are divided by factor, and between them a ramp over the dimensions.
/// Queries and keys are multiplied by attention_factor; 0: 0.1 * ln(factor) + 1, 1 where factor < 1. truncate: the
/// ramp's ends are rounded to whole pairs, outwards, as in the authors' code; models whose configuration says
/// `truncate: false` were trained without. Errors: original_context, beta_fast or beta_slow not finite or <= 0,
/// beta_slow > beta_fast.
inline Rope yarn(const Rope& rope, int dims, double factor, double original_context, double beta_fast = 32,
                 double beta_slow = 1, double attention_factor = 0, bool truncate = true) {
  Rope result = tabulated(rope, dims, factor);
  require_positive("original_context", original_context);
  require_positive("beta_fast", beta_fast);
  require_positive("beta_slow", beta_slow);
  if (beta_slow > beta_fast) fail("beta_slow", std::to_string(beta_slow), "> 0 and <= beta_fast");
  const auto dimension = [&](double turns) {  // the pair that turns so often
    return dims * std::log(original_context / (turns * two_pi)) / (2 * std::log(rope.base));
  };
  const double fast = dimension(beta_fast), slow = dimension(beta_slow);
  const double low = (std::max)(0.0, truncate ? std::floor(fast) : fast);
  const double high = (std::min)(dims - 1.0, truncate ? std::ceil(slow) : slow);
  const double width = high > low ? high - low : 0.001;
  for (int i = 0; i < dims / 2; ++i) {
    double& f = result.frequencies[static_cast<std::size_t>(i)];
    const double scaled = (std::min)(1.0, (std::max)(0.0, as_written((i - low) / as_written(width))));
    f = as_written(as_written(scaled * f) / as_written(factor)) + as_written(as_written(1 - scaled) * f);
  }
  result.attention_factor = attention_factor != 0 ? attention_factor : factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
  return result;
}

}  // namespace rope_scaling
}  // namespace buzz
