#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "buzz/finite.h"
#include "buzz/packet.h"

namespace buzz {

/// The two products of attention for few queries: each cached row is loaded once for up to four of them. A sum's order
/// depends on neither the number of queries nor that of rows, so that results are the same bits however work is cut.
namespace kernels {
inline namespace BUZZ_ISA {

/// Packets of rows that are under way together with Q queries: for more there are no registers. One query's converted
/// rows leave some, and wait for each other less.
template <int Q, class T>
constexpr int at_once = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32 || (Q < 3 && !std::is_same<T, float>::value) ? 4
                                                                                                                  : 2;

/// Asks for the cache lines of rows before they are read. Rows that lie one after the other are asked for in that
/// order, whatever the order that they are read in: processors' own prefetchers stop at page ends and lose track of
/// rows that are read side by side or by columns (bench/README.md has the ratios).
struct Ahead {
  template <class T>
  static constexpr int in_line = 64 / static_cast<int>(sizeof(T));  ///< values of a cache line

  /// Of rows of `dim` values, `stride` apart, `count` of which are read together: from row `first` on, which need not
  /// be there.
  template <class T>
  Ahead(const T* rows, std::ptrdiff_t stride, int first, int count, int dim)
      : at(reinterpret_cast<std::uintptr_t>(rows) + bytes<T>(stride * first)),
        row_step(stride == dim ? 64 : bytes<T>(stride)),
        line_step(stride == dim ? 64 * static_cast<std::uintptr_t>(count) : 64) {}
  /// Of what is there anyway.
  explicit Ahead(const float* read) : at(reinterpret_cast<std::uintptr_t>(read)) {}

  /// Asks for a line while line `line` of row `row` is read.
  EIGEN_ALWAYS_INLINE void ask(int row, int line) const {
    const std::uintptr_t r = static_cast<std::uintptr_t>(row), l = static_cast<std::uintptr_t>(line);
    const void* const x = reinterpret_cast<const void*>(at + r * row_step + l * line_step);  // NOLINT: past the array
#if defined(__GNUC__)
    __builtin_prefetch(x);  // gcc leaves out calls of functions that do nothing else, as Eigen's
#else
    Eigen::internal::prefetch(static_cast<const float*>(x));
#endif
  }

  /// Of so many values.
  template <class T>
  static std::uintptr_t bytes(std::ptrdiff_t values) {
    return static_cast<std::uintptr_t>(values) * sizeof(T);
  }
  /// The address that it begins at, and what a row and a line add to it: bytes.
  /// @{
  std::uintptr_t at, row_step = 0, line_step = 0;
  /// @}
};

/// Keeps x in a register: gcc else has each instruction that takes it load it anew, and loads are what these loops are
/// short of.
EIGEN_ALWAYS_INLINE void keep(Packet& x) {
#if defined(__GNUC__) && defined(EIGEN_VECTORIZE_AVX512)
  __asm__("" : "+v"(x));
#elif defined(__GNUC__) && defined(EIGEN_VECTORIZE_SSE)
  __asm__("" : "+x"(x));
#else
  static_cast<void>(x);
#endif
}

/// sum[q][r] += the products of n elements of a[q] and b[r] from i on, a packet or less. Inlined for certain: called,
/// it would hold the sums in memory, and every step would store them.
template <int Q, int R, class T>
EIGEN_ALWAYS_INLINE void add_products(const float* a, std::ptrdiff_t a_stride, const T* b, std::ptrdiff_t b_stride,
                                      int i, int n, const Ahead& ahead, Packet (&sum)[Q * R]) {
  constexpr int line = Ahead::in_line<T>;
  if (i % line == 0) unroll<R>([&](auto r) BUZZ_INLINED { ahead.ask(r, i / line); });
  Packet row[R];
  unroll<R>([&](auto r) BUZZ_INLINED {
    row[r] = load_up_to(b + r * b_stride + i, n);
    keep(row[r]);
  });
  unroll<Q>([&](auto q) BUZZ_INLINED {
    Packet query = load_up_to(a + q * a_stride + i, n);
    keep(query);
    unroll<R>([&](auto r) BUZZ_INLINED { sum[q * R + r] = Eigen::internal::pmadd(query, row[r], sum[q * R + r]); });
  });
}

/// out[q][r] = dot(a[q], b[r]) over dim elements, for Q x R rows. Inlined, since a call takes as long as a short row.
template <int Q, int R, class T>
EIGEN_ALWAYS_INLINE void dots(const float* a, std::ptrdiff_t a_stride, const T* b, std::ptrdiff_t b_stride, int dim,
                              float* out, std::ptrdiff_t out_stride, const Ahead& ahead) {
  Packet sum[Q * R];
  unroll<Q * R>([&](auto k) BUZZ_INLINED { sum[k] = Eigen::internal::pset1<Packet>(0.f); });
  int i = 0;
  for (; i + packet_size <= dim; i += packet_size)
    add_products<Q, R>(a, a_stride, b, b_stride, i, packet_size, ahead, sum);
  if (i < dim) add_products<Q, R>(a, a_stride, b, b_stride, i, dim - i, ahead, sum);
  float sums[Q * R];
  lane_sums<Q * R>(sum, sums);
  unroll<Q>([&](auto q) BUZZ_INLINED { std::memcpy(out + q * out_stride, sums + q * R, R * sizeof *out); });
}

/// The same for any number of rows. asks: for what comes 4 KiB behind them.
template <int Q, class T>
inline void dots(const float* a, std::ptrdiff_t a_stride, const T* b, std::ptrdiff_t b_stride, int rows, int dim,
                 float* out, std::ptrdiff_t out_stride, bool asks) {
  constexpr int R = at_once<Q, T>;
  const int lead = (std::max)(+R, 4096 / (dim * static_cast<int>(sizeof(T))));
  const auto rows_from = [&](int r, auto count) BUZZ_INLINED {
    const T* const first = b + r * b_stride;
    dots<Q, count()>(a, a_stride, first, b_stride, dim, out + r, out_stride,
                     asks ? Ahead(first, b_stride, lead, count(), dim) : Ahead(a));
  };
  int r = 0;
  for (; r + R <= rows; r += R) rows_from(r, std::integral_constant<int, R>());
  for (; r < rows; ++r) rows_from(r, std::integral_constant<int, 1>());
}

/// out[q][0..N packets) += sum over rows of weight[q][r] * b[r][...], which are the dimensions from i on.
template <int Q, int N, class T>
EIGEN_ALWAYS_INLINE void add(const float* weight, std::ptrdiff_t w_stride, const T* b, std::ptrdiff_t b_stride,
                             int rows, int i, float* out, std::ptrdiff_t out_stride, const Ahead& ahead) {
  constexpr int line = Ahead::in_line<T>;
  Packet sum[Q][N];
  unroll<Q>([&](auto q) BUZZ_INLINED {
    unroll<N>([&](auto n) BUZZ_INLINED { sum[q][n] = load(out + q * out_stride + i + n * packet_size); });
  });
  const bool asks = i % line == 0;
  for (int r = 0; r < rows; ++r) {
    Packet row[N];
    unroll<N>([&](auto n) BUZZ_INLINED {
      if (n * packet_size % line == 0 && asks) ahead.ask(r, i / line + n * packet_size / line);
      row[n] = load(b + r * b_stride + i + n * packet_size);
      if constexpr (Q > 1) keep(row[n]);
    });
    unroll<Q>([&](auto q) BUZZ_INLINED {
      Packet w = Eigen::internal::pset1<Packet>(weight[q * w_stride + r]);
      keep(w);
      unroll<N>([&](auto n) BUZZ_INLINED { sum[q][n] = Eigen::internal::pmadd(w, row[n], sum[q][n]); });
    });
  }
  unroll<Q>([&](auto q) BUZZ_INLINED {
    unroll<N>([&](auto n)
                  BUZZ_INLINED { Eigen::internal::pstoreu(out + q * out_stride + i + n * packet_size, sum[q][n]); });
  });
}

/// The same for the dimensions from i on, N packets at a time, then fewer.
template <int Q, int N, class T>
inline void add_from(const float* weight, std::ptrdiff_t w_stride, const T* b, std::ptrdiff_t b_stride, int rows, int i,
                     int dim, float* out, std::ptrdiff_t out_stride, const Ahead& ahead) {
  for (; i + N * packet_size <= dim; i += N * packet_size)
    add<Q, N>(weight, w_stride, b, b_stride, rows, i, out, out_stride, ahead);
  if constexpr (N > 1) {
    add_from<Q, N / 2>(weight, w_stride, b, b_stride, rows, i, dim, out, out_stride, ahead);
  } else {
    for (; i < dim; ++i)
      for (int q = 0; q < Q; ++q)
        for (int r = 0; r < rows; ++r)
          out[q * out_stride + i] += weight[q * w_stride + r] * to_float(b[r * b_stride + i]);
  }
}

/// The same for any number of dimensions. `asks`: for the next rows while these are read.
template <int Q, class T>
inline void add(const float* weight, std::ptrdiff_t w_stride, const T* b, std::ptrdiff_t b_stride, int rows, int dim,
                float* out, std::ptrdiff_t out_stride, bool asks) {
  // So few rows at a time that they and the next ones stay in the first-level cache.
  constexpr int most_bytes = 16384;
  const int tile = (std::max)(8, most_bytes / (dim * static_cast<int>(sizeof(T))));
  for (int r = 0; r < rows; r += tile) {
    const T* const first = b + r * b_stride;
    const int count = (std::min)(tile, rows - r);
    const Ahead ahead = asks ? Ahead(first, b_stride, count, count, dim) : Ahead(weight);
    add_from<Q, at_once<Q, T>>(weight + r, w_stride, first, b_stride, count, 0, dim, out, out_stride, ahead);
  }
}

/// Calls f(first, number of queries as a compile-time constant) for queries in fours, then for the rest.
template <class F>
inline void by_fours(int queries, F&& f) {
  int q = 0;
  for (; q + 4 <= queries; q += 4) f(q, std::integral_constant<int, 4>());
  if (queries - q == 3) f(q, std::integral_constant<int, 3>());
  if (queries - q == 2) f(q, std::integral_constant<int, 2>());
  if (queries - q == 1) f(q, std::integral_constant<int, 1>());
}

/// out [queries, rows] = a [queries, dim] times b [rows, dim] transposed. O(queries * rows * dim).
template <class T>
inline void dots(const float* a, std::ptrdiff_t a_stride, int queries, const T* b, std::ptrdiff_t b_stride, int rows,
                 int dim, float* out, std::ptrdiff_t out_stride) {
  by_fours(queries, [&](int q, auto count) {
    dots<count()>(a + q * a_stride, a_stride, b, b_stride, rows, dim, out + q * out_stride, out_stride, q == 0);
  });
}

/// out [queries, dim] += weight [queries, rows] times b [rows, dim]. O(queries * rows * dim).
template <class T>
inline void add(const float* weight, std::ptrdiff_t w_stride, int queries, const T* b, std::ptrdiff_t b_stride,
                int rows, int dim, float* out, std::ptrdiff_t out_stride) {
  by_fours(queries, [&](int q, auto count) {
    add<count()>(weight + q * w_stride, w_stride, b, b_stride, rows, dim, out + q * out_stride, out_stride, q == 0);
  });
}

/// exp(x), and 0 where that is no longer a normal number: Eigen's own stops at 3e-39, which is not 0 and slow to
/// multiply.
inline Packet exp_or_zero(Packet x) {
  using Eigen::internal::pset1;
  return Eigen::internal::pandnot(Eigen::internal::pexp(x), Eigen::internal::pcmp_lt(x, pset1<Packet>(-87.3f)));
}

/// exp_and_sum() where a NaN is among the values, or the shift is not finite.
BUZZ_NOINLINE inline float exp_of_nan(float* p, int count, float shift) {
  float sum;
  put_nan(&sum);
  for (int i = 0; i < count; ++i)
    if (!is_nan(p[i])) p[i] = is_finite(shift) ? std::exp(p[i] - shift) : sum;
  return sum;
}

/// p[i] = exp(p[i] - shift) for i in [0, count); returns their sum. Every value goes through the same packet code, so
/// that bits do not depend on where p lies, as they do with Eigen's own loops. NaN gives NaN.
inline float exp_and_sum(float* p, int count, float shift) {
  if constexpr (BUZZ_FINITE_MATH)  // packets' comparisons pass NaN over there
    if (!is_finite(shift) || std::any_of(p, p + count, [](const float& x) { return is_nan(x); }))
      return exp_of_nan(p, count, shift);
  const Packet by = Eigen::internal::pset1<Packet>(shift);
  Packet sum = Eigen::internal::pset1<Packet>(0.f);
  int i = 0;
  for (; i + packet_size <= count; i += packet_size) {
    const Packet e = exp_or_zero(Eigen::internal::psub(load(p + i), by));
    Eigen::internal::pstoreu(p + i, e);
    sum = Eigen::internal::padd(sum, e);
  }
  float total = Eigen::internal::predux(sum);
  if (i < count) {
    float rest[packet_size];
    Eigen::internal::pstoreu(rest, exp_or_zero(Eigen::internal::psub(load_up_to(p + i, count - i), by)));
    for (int j = 0; i + j < count; ++j) total += p[i + j] = rest[j];
  }
  return total;
}

/// out[i] (+)= the sum of weight[q] * x[q][i] over Q queries, for i in [0, count); `set`: =.
template <int Q>
inline void weighted_sum(const float* weight, const float* x, std::ptrdiff_t stride, int count, bool set, float* out) {
  Packet w[Q];
  unroll<Q>([&](auto q) BUZZ_INLINED { w[q] = Eigen::internal::pset1<Packet>(weight[q]); });
  int i = 0;
  for (; i + packet_size <= count; i += packet_size) {
    Packet sum = set ? Eigen::internal::pset1<Packet>(0.f) : load(out + i);
    unroll<Q>([&](auto q) BUZZ_INLINED { sum = Eigen::internal::pmadd(w[q], load(x + q * stride + i), sum); });
    Eigen::internal::pstoreu(out + i, sum);
  }
  for (; i < count; ++i) {
    float sum = set ? 0.f : out[i];
    for (int q = 0; q < Q; ++q) sum += weight[q] * x[q * stride + i];
    out[i] = sum;
  }
}

/// The same over `queries`.
inline void weighted_sum(const float* weight, const float* x, std::ptrdiff_t stride, int queries, int count, bool set,
                         float* out) {
  if (queries == 0 && set) std::fill_n(out, count, 0.f);
  by_fours(queries,
           [&](int q, auto n) { weighted_sum<n()>(weight + q, x + q * stride, stride, count, set && q == 0, out); });
}

/// out[i] = x[i] * y[i] for i in [0, count); out may be x.
inline void multiply(const float* x, const float* y, int count, float* out) {
  int i = 0;
  for (; i + packet_size <= count; i += packet_size)
    Eigen::internal::pstoreu(out + i, Eigen::internal::pmul(load(x + i), load(y + i)));
  for (; i < count; ++i) out[i] = x[i] * y[i];
}

/// x[i] *= by for i in [0, count).
inline void scale(float* x, int count, float by) {
  const Packet factor = Eigen::internal::pset1<Packet>(by);
  int i = 0;
  for (; i + packet_size <= count; i += packet_size)
    Eigen::internal::pstoreu(x + i, Eigen::internal::pmul(load(x + i), factor));
  for (; i < count; ++i) x[i] *= by;
}

/// The largest of x[0..count), count >= 1; any, where one is NaN.
inline float largest(const float* x, int count) {
  float most = x[0];
  int i = 0;
  if (count >= packet_size) {
    Packet lanes = load(x);
    for (i = packet_size; i + packet_size <= count; i += packet_size) lanes = Eigen::internal::pmax(lanes, load(x + i));
    most = Eigen::internal::predux_max(lanes);
  }
  for (; i < count; ++i) most = (std::max)(most, x[i]);
  return most;
}

/// The first half of a softmax: logits p[0..count) become exp(p - *top), *top the largest, and their sum is returned;
/// count >= 1. A NaN, or an infinite logit, makes the sum NaN.
inline float softmax_terms(float* p, int count, float* top) {
  *top = largest(p, count);
  return exp_and_sum(p, count, *top);
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // of packets as template arguments: alignment, which stays
#endif
/// out [dim, columns] = the rows b [rows, dim] transposed, zeros where there is no row; columns: a multiple of
/// packet_size, >= rows.
inline void transpose(const float* b, std::ptrdiff_t b_stride, int rows, int dim, float* out, int columns) {
  for (int r = 0; r < columns; r += packet_size)
    for (int i = 0; i < dim; i += packet_size) {
      const int n = (std::min)(packet_size, dim - i);
      Eigen::internal::PacketBlock<Packet, packet_size> square;
      unroll<packet_size>([&](auto k) BUZZ_INLINED {
        square.packet[k] =
            r + k < rows ? load_up_to(b + (r + k) * b_stride + i, n) : Eigen::internal::pset1<Packet>(0.f);
      });
      Eigen::internal::ptranspose(square);
      unroll<packet_size>([&](auto k) BUZZ_INLINED {
        if (k < n) Eigen::internal::pstoreu(out + (i + k) * columns + r, square.packet[k]);
      });
    }
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace BUZZ_ISA
}  // namespace kernels
}  // namespace buzz
