#pragma once

// A cache of any element type and any policy behind one interface. Tests of all of them go through it: they are
// compiled once and not a cache each, and BuzzCache<T, P> of them all is compiled once for all tests, in any_cache.cpp.

#include <cmath>
#include <iosfwd>
#include <memory>

#include "oracle_config.h"

namespace oracle {

/// What rows are stored as.
enum class Element { float32, half, bfloat16, int8 };
constexpr Element kElements[] = {Element::float32, Element::half, Element::bfloat16, Element::int8};

/// What a call's tensors are: all float, all what the element's rows come as (int8's as float), or queries alone so.
enum class Types { floats, elements, mixed };

/// The spacing of the element's numbers next to 1. (Eigen 3.4's numeric_limits are wrong for half.)
inline double epsilon(Element e) { return std::ldexp(1, e == Element::half ? -10 : e == Element::bfloat16 ? -7 : -23); }

/// x as a row of it is given: rounded to it, int8 to float.
inline double rounded(Element e, double x) {
  const float f = static_cast<float>(x);
  if (e == Element::half) return static_cast<double>(static_cast<float>(Eigen::half(f)));
  if (e == Element::bfloat16) return static_cast<double>(static_cast<float>(Eigen::bfloat16(f)));
  return static_cast<double>(f);
}

/// The members of BuzzCache, by its names.
class AnyCache {
 public:
  virtual ~AnyCache() = default;
  virtual std::unique_ptr<AnyCache> fork() const = 0;

  virtual void attend(buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
                      buzz::View<float> out, buzz::Executor run = {}, Types types = Types::floats) = 0;
  virtual void append(buzz::View<const float> k, buzz::View<const float> v, Types types = Types::floats) = 0;
  virtual void attend(buzz::View<const float> q, buzz::View<float> out, Types types = Types::floats) = 0;
  virtual void observe() = 0;
  virtual int unobserved() const = 0;
  virtual void discard() = 0;
  virtual void observe(buzz::View<const float> q, buzz::View<const float> lse, buzz::Executor run = {}) = 0;
  virtual double lse_mismatch() const = 0;
  virtual void give(buzz::View<const float> scores) = 0;
  virtual bool evict() = 0;
  virtual void pin(int first, int count) = 0;
  virtual void unpin(int first, int count) = 0;
  virtual bool can_rollback(int tokens) const = 0;
  virtual void rollback(int tokens) = 0;
  virtual void reset() = 0;
  virtual void save(std::ostream& out) const = 0;
  virtual void load(std::istream& in) = 0;

  virtual const buzz::Shape& shape() const = 0;
  virtual int rows() const = 0;
  virtual int capacity() const = 0;
  virtual buzz::Regions regions() const = 0;
  virtual int next_position() const = 0;
  virtual int next_rotary_position() const = 0;
  virtual buzz::Span<const std::int32_t> positions(int head) const = 0;
  virtual buzz::Span<const double> scores(int head) const = 0;
  virtual const buzz::Pins& pins() const = 0;
  virtual bool has_raw_keys() const = 0;
  virtual std::size_t bytes() const = 0;

  /// A stored key or value as it is read, and its scale; 1 where it has none.
  struct Stored {
    Vector values;
    double scale;
  };
  using Rows = std::vector<Stored>;
  /// Of the rows from `first` to rows(); std::logic_error where as many are not stored.
  virtual Rows keys(int head, int first = 0) const = 0;
  virtual Rows values(int head, int first = 0) const = 0;  // the same
  /// Are keys and values of all rows bit for bit those of a cache of the same element and kind?
  virtual bool same_rows(const AnyCache& other) const = 0;
};

using CachePtr = std::unique_ptr<AnyCache>;

/// BuzzCache of the element and of the configuration's policy, library_policy()'s.
CachePtr make_cache(Element element, const Config& c, const buzz::Rope& rope = {}, int max_rollback = 0,
                    const buzz::AttentionOptions& attention = {});

}  // namespace oracle
