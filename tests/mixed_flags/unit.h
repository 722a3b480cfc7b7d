#pragma once

#include <string>
#include <tuple>

#include "../typed.h"

/// What a translation unit does with caches, its own or another's: each is a call into code that was compiled with the
/// unit's flags, as far as the linker has not taken another unit's for it.
template <class Cache>
struct Calls {
  Cache* (*make)();
  /// One call of `tokens` tokens; returns by how much the output misses arithmetic in double.
  double (*attend)(Cache&, int tokens, unsigned seed);
  void (*evict)(Cache&);
  std::string (*save)(const Cache&);
  void (*load)(Cache&, const std::string&);
  Cache* (*fork)(const Cache&);
  void (*assign)(Cache& to, Cache& from);  ///< moves
  void (*free)(Cache*);
};

template <class T>
using Bees = typed::Cache<T>;
using Diverse = typed::Cache<float, typed::DiverseBeehive>;
using Recent = typed::Cache<float, typed::Policy<typed::RecentAttention, buzz::Segments>>;

/// Every stored type that has packets, and every score that computes with them.
struct Unit {
  const char* flags;
  std::tuple<Calls<Bees<float>>, Calls<Bees<Eigen::half>>, Calls<Bees<std::int8_t>>, Calls<Diverse>, Calls<Recent>>
      calls;
};

Unit unit_plain();
Unit unit_avx2();
Unit unit_avx512();
