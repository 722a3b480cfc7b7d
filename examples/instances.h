#pragma once

// The caches of every element type, and what they are made of, compiled once for all programs and tests and as
// optimised as the build is (instances.cpp): these compile faster for it, and run fast where they are not optimised.

#include "buzz.h"

#define BUZZ_CACHES(how, T)     \
  how class buzz::Store<T>;     \
  how class buzz::BuzzCache<T>; \
  how class buzz::ModelCache<T>;

// Over rows of T: new rows and queries of Q, outputs of O.
#define BUZZ_QUERIES(how, T, Q)                                                                                        \
  how void buzz::Store<T>::append(int, const buzz::View<const Q>&, const buzz::View<const Q>&, const buzz::Rotation&,  \
                                  const float*);                                                                       \
  how void buzz::Attention::column_sums(const buzz::View<const Q>&, const buzz::RopeAngles&, const buzz::RowsView<T>&, \
                                        const buzz::View<const float>&, const buzz::View<float>&, buzz::Executor);
#define BUZZ_OUTPUTS(how, T, Q, O)                                                                                    \
  how void buzz::Attention::operator()(const buzz::View<const Q>&, const buzz::RopeAngles&, const buzz::RowsView<T>&, \
                                       const buzz::RowsView<T>&, const buzz::View<O>&, const buzz::View<float>&,      \
                                       buzz::Executor);
#define BUZZ_FLOATS(how, T)   \
  BUZZ_CACHES(how, T)         \
  BUZZ_QUERIES(how, T, float) \
  BUZZ_OUTPUTS(how, T, float, float)
#define BUZZ_HALVES(how, T)  \
  BUZZ_FLOATS(how, T)        \
  BUZZ_QUERIES(how, T, T)    \
  BUZZ_OUTPUTS(how, T, T, T) \
  BUZZ_OUTPUTS(how, T, T, float)
#define BUZZ_INSTANCES(how)     \
  BUZZ_FLOATS(how, float)       \
  BUZZ_FLOATS(how, std::int8_t) \
  BUZZ_HALVES(how, Eigen::half) \
  BUZZ_HALVES(how, Eigen::bfloat16)

#if !defined(BUZZ_NO_INSTANCES)
BUZZ_INSTANCES(extern template)
#endif
