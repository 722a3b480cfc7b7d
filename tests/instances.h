#pragma once

// The caches of every element type, and what they are made of, compiled once for all tests and as optimised as the
// build is (instances.cpp): tests compile faster for it, and run fast though they are not optimised themselves.

#include "buzz.h"

#define BUZZ_TEST_CACHES(how, T) \
  how class buzz::Store<T>;      \
  how class buzz::BuzzCache<T>;  \
  how class buzz::ModelCache<T>;

// Over rows of T: new rows and queries of Q, outputs of O.
#define BUZZ_TEST_QUERIES(how, T, Q)                                                                                   \
  how void buzz::Store<T>::append(int, const buzz::View<const Q>&, const buzz::View<const Q>&, const buzz::Rotation&,  \
                                  const float*);                                                                       \
  how void buzz::Attention::column_sums(const buzz::View<const Q>&, const buzz::RopeAngles&, const buzz::RowsView<T>&, \
                                        const buzz::View<const float>&, const buzz::View<float>&, buzz::Executor);
#define BUZZ_TEST_OUTPUTS(how, T, Q, O)                                                                               \
  how void buzz::Attention::operator()(const buzz::View<const Q>&, const buzz::RopeAngles&, const buzz::RowsView<T>&, \
                                       const buzz::RowsView<T>&, const buzz::View<O>&, const buzz::View<float>&,      \
                                       buzz::Executor);
#define BUZZ_TEST_FLOATS(how, T)   \
  BUZZ_TEST_CACHES(how, T)         \
  BUZZ_TEST_QUERIES(how, T, float) \
  BUZZ_TEST_OUTPUTS(how, T, float, float)
#define BUZZ_TEST_HALVES(how, T)  \
  BUZZ_TEST_FLOATS(how, T)        \
  BUZZ_TEST_QUERIES(how, T, T)    \
  BUZZ_TEST_OUTPUTS(how, T, T, T) \
  BUZZ_TEST_OUTPUTS(how, T, T, float)
#define BUZZ_TEST_INSTANCES(how)     \
  BUZZ_TEST_FLOATS(how, float)       \
  BUZZ_TEST_FLOATS(how, std::int8_t) \
  BUZZ_TEST_HALVES(how, Eigen::half) \
  BUZZ_TEST_HALVES(how, Eigen::bfloat16)

#if !defined(BUZZ_TEST_NO_INSTANCES)
BUZZ_TEST_INSTANCES(extern template)
#endif
