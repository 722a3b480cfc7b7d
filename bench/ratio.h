#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Seconds that one call of what is measured takes. Each side of a ratio is one such function and does its own timing,
/// so that it can prepare untimed.
using Side = std::function<double()>;

template <class F>
double seconds(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A side that calls f as often as fills a millisecond and divides, since a clock's steps are not far below one call.
template <class F>
Side repeated(F f) {
  int calls = 0;
  return [f, calls]() mutable {
    const auto run = [&f](int n) {
      return seconds([&] {
        for (int i = 0; i < n; ++i) f();
      });
    };
    if (calls == 0)
      for (calls = 1; run(calls) < 1e-3; calls *= 2) {
      }
    return run(calls) / calls;
  };
}

/// A side that runs twice and times the second, in which the threads that it uses are awake.
inline Side awake(Side side) {
  return [side] {
    side();
    return side();
  };
}

/// What a ratio should be; none() asks for nothing.
class Goal {
 public:
  static Goal none() { return {' ', 0}; }
  static Goal at_most(double bound) { return {'<', bound}; }
  static Goal at_least(double bound) { return {'>', bound}; }

  std::string text() const {
    if (sense_ == ' ') return "-";
    std::string digits = std::to_string(bound_);
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return std::string(1, sense_) + "= " + digits;
  }
  std::string verdict(double ratio) const {
    if (sense_ == ' ') return "-";
    return (sense_ == '<' ? ratio <= bound_ : ratio >= bound_) ? "ok" : "short";
  }

 private:
  Goal(char sense, double bound) : sense_(sense), bound_(bound) {}
  char sense_;
  double bound_;
};

/// One row of the table.
struct Ratio {
  std::string name;
  double ratio;   // the median of the rounds
  double spread;  // the distance between their quartiles
  Goal goal;
};

/// The value below which a share of the values lies, between neighbours by a straight line. values: not empty.
inline double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
}

/// Seconds that a ratio's rounds may take, if they are 8 at least; 0: one round.
inline double most_seconds = 2;

/// scale * a / b, from `rounds` times two pairs that stand beside each other in time, fewer where they take too long. a
/// goes first in one pair and b in the other, and a round's ratio is of both: what a side finds in the processor's
/// caches is its own once, and once the other's.
inline Ratio compare(std::string name, Goal goal, const Side& a, const Side& b, double scale = 1, int rounds = 100) {
  a(), b();  // warms up, and finds repeated()'s number of calls
  std::vector<double> ratios;
  double spent = 0;
  const int least = most_seconds > 0 ? 8 : 1;
  for (int i = 0; i < rounds && (i < least || spent < most_seconds); ++i) {
    double of_a = 0, of_b = 0;
    spent += seconds([&] {
      of_a += a();
      of_b += b();
      of_b += b();
      of_a += a();
    });
    ratios.push_back(scale * of_a / of_b);
  }
  return {std::move(name), quantile(ratios, 0.5), quantile(ratios, 0.75) - quantile(ratios, 0.25), goal};
}

}  // namespace bench
