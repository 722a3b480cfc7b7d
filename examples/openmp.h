// An executor for buzz on OpenMP's threads; without OpenMP (-fopenmp) on the caller's.
#pragma once

#include "buzz/executor.h"

namespace examples {

struct OpenMp {
  void operator()(int count, buzz::Task task) const {
#if defined(_OPENMP)
#pragma omp parallel for schedule(static, 1)
#endif
    for (int i = 0; i < count; ++i) task(i);
  }
};

}  // namespace examples
