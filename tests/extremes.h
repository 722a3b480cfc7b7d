#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>

#include "buzz/error.h"
#include "call.h"

namespace extremes {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
inline constexpr float kTiny = std::numeric_limits<float>::denorm_min();

inline constexpr int kInts[] = {std::numeric_limits<int>::min(), -1, 0, 1, 2, 99, (1 << 16) + 1, 1 << 30,
                                std::numeric_limits<int>::max()};
inline constexpr double kReals[] = {kNan, kInf,   -kInf,   -1,    -0.0, 0,
                                    1,    5e-324, -5e-324, 1e-45, 3e38, std::numeric_limits<double>::max()};

/// What became of f(): "works", "memory", or the field that was refused.
inline std::string fate(Call f) {
  try {
    f();
    return "works";
  } catch (const std::bad_alloc&) {
    return "memory";
  } catch (const buzz::Error& e) {
    EXPECT_NE(std::string(e.what()).find("buzz: " + e.field() + " = "), std::string::npos) << e.what();
    return e.field();
  }
}

}  // namespace extremes
