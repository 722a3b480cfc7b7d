// Two files, neither of them optimised, so that no function is inlined: the first one's are plain, few, and what a
// linker takes; the second's, BUZZ_WIDE, are for the widest registers, and have to find their own.

#include <cmath>
#include <cstdio>

#include "buzz.h"
#include "processor.h"

#if !defined(BUZZ_WIDE)

bool wide();

int main() {
  if (!runs(BUZZ_WIDEST)) {
    std::printf("this processor has not all of %s and FMA: nothing was run\n", BUZZ_WIDEST);
    return 77;
  }
  float x[32] = {};
  buzz::kernels::load(x);
  buzz::kernels::load_doubles(x);
  buzz::kernels::to_float(Eigen::half(1.f));
  return wide() ? 0 : 1;
}

#else

bool wide() {
  float x[80], y[80], terms[80];
  double squares = 0, dot = 0, sum = 0;
  bool good = true;
  for (int at = 0; at < 4; ++at) {  // wherever a row begins
    squares = dot = sum = 0;
    for (int i = 0; i < 76; ++i) {
      x[at + i] = terms[at + i] = static_cast<float>(i % 9) / 8;
      y[at + i] = static_cast<float>(i % 7) / 4;
      squares += static_cast<double>(x[at + i] * x[at + i]);
      dot += static_cast<double>(x[at + i] * y[at + i]);
      sum += std::exp(static_cast<double>(x[at + i]) - 1);
    }
    float product = 0, top = 0;
    buzz::kernels::dots(x + at, 76, 1, y + at, 76, 1, 76, &product, 1);
    good = good && std::fabs(static_cast<double>(product) - dot) < 1e-4;
    good = good && std::fabs(static_cast<double>(buzz::kernels::softmax_terms(terms + at, 76, &top)) - sum) < 1e-4;
    buzz::kernels::soft_cap(y + at, 76, 2);
    for (int i = 0; i < 76; ++i)
      good = good && std::fabs(static_cast<double>(y[at + i]) - 2 * std::tanh(i % 7 / 4.)) < 1e-5;
    good = good && std::fabs(buzz::row_sums::squares(x + at, 76) - squares) < 1e-4;
    std::printf("%g and %g, %g and %g\n", static_cast<double>(product), dot, buzz::row_sums::squares(x + at, 76),
                squares);
  }
  return good;
}

#endif
