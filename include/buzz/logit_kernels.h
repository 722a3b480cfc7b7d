#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "buzz/finite.h"
#include "buzz/packet.h"

namespace buzz {

namespace kernels {
inline namespace BUZZ_ISA {

/// tanh(x); NaN stays NaN, which Eigen's own may clamp.
inline Packet tanh_or_nan(const Packet& x) {
  using namespace Eigen::internal;
  return pselect(pcmp_eq(x, x), ptanh(x), x);
}

/// p[i] = cap * tanh(p[i]) for i in [0, count). Every value goes through the same packet code, so that bits do not
/// depend on where p lies.
inline void soft_cap(float* p, int count, float cap) {
  if constexpr (BUZZ_FINITE_MATH)  // packets' comparisons pass NaN over there
    if (std::any_of(p, p + count, [](const float& x) { return is_nan(x); })) {
      for (int i = 0; i < count; ++i)
        if (!is_nan(p[i])) p[i] = cap * std::tanh(p[i]);
      return;
    }
  const Packet by = Eigen::internal::pset1<Packet>(cap);
  int i = 0;
  for (; i + packet_size <= count; i += packet_size)
    Eigen::internal::pstoreu(p + i, Eigen::internal::pmul(by, tanh_or_nan(load(p + i))));
  if (i < count) {
    float rest[packet_size];
    Eigen::internal::pstoreu(rest, Eigen::internal::pmul(by, tanh_or_nan(load_up_to(p + i, count - i))));
    std::copy_n(rest, count - i, p + i);
  }
}

/// p[i] -= slope * (newest - positions[i]) for i in [0, count); null: positions 0, 1, ...
inline void subtract_distances(float* p, int count, float slope, const std::int32_t* positions, int newest) {
  if (positions == nullptr)
    for (int i = 0; i < count; ++i) p[i] -= slope * static_cast<float>(newest - i);
  else
    for (int i = 0; i < count; ++i) p[i] -= slope * static_cast<float>(newest - positions[i]);
}

/// A logit's term beside those of a softmax whose largest logit is `top`, not above exp(80), beside which all other
/// probabilities are as good as 0.
inline float term_beside(float logit, float top) { return std::exp((std::min)(logit - top, 80.f)); }

}  // namespace BUZZ_ISA
}  // namespace kernels
}  // namespace buzz
