#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "buzz/error.h"

namespace buzz {

/// `size` values side by side, owned by somebody else.
template <class T>
struct Span {
  T* data = nullptr;  ///< [size]
  int size = 0;       ///< how many

  T* begin() const { return data; }               ///< for range loops
  T* end() const { return data + size; }          ///< one past the last
  T& operator[](int i) const { return data[i]; }  ///< not checked
};

/// The axis of a strided tensor whose neighbours overlap, or lie further apart than can be counted.
struct Misfit {
  int axis = -1;        ///< -1: none
  long long least = 0;  ///< its stride has to be this at least,
  long long most = 0;   ///< and this at most
};

/// Finds it among axes of those sizes and strides, >= 0, over `row` elements side by side. Each axis has to pass all
/// that the axes of smaller strides span, the later ones first where strides are equal. O(n^2).
template <int n>
Misfit misfit(const long long (&size)[n], const long long (&stride)[n], long long row) {
  constexpr long long farthest = (std::numeric_limits<std::ptrdiff_t>::max)();
  bool passed[n] = {};
  for (int i = 0; i < n; ++i)
    if (size[i] == 0) row = 0;
  if (row == 0) return {};
  long long span = row;
  for (int done = 0; done < n; ++done) {
    int axis = -1;
    for (int i = 0; i < n; ++i)
      if (!passed[i] && (axis < 0 || stride[i] <= stride[axis])) axis = i;
    passed[axis] = true;
    if (size[axis] == 1) continue;  // its stride leads nowhere
    const long long most = (farthest - span) / (size[axis] - 1);
    if (stride[axis] < span || stride[axis] > most) return {axis, span, most};
    span += (size[axis] - 1) * stride[axis];
  }
  return {};
}

/// Refuses what View refuses.
inline void check_view(const void* data, std::size_t alignment, int a, int b, int c, std::ptrdiff_t stride_a,
                       std::ptrdiff_t stride_b) {
  require_at_least("view.shape[0]", a, 0);
  require_at_least("view.shape[1]", b, 0);
  require_at_least("view.shape[2]", c, 0);
  require_at_least("view.stride[0]", stride_a, a > 1 && b > 0 ? c : 0);
  require_at_least("view.stride[1]", stride_b, b > 1 ? c : 0);
  const Misfit bad = misfit<2>({a, b}, {stride_a, stride_b}, c);
  if (bad.axis == 0) require_range("view.stride[0]", stride_a, bad.least, bad.most);
  if (bad.axis == 1) require_range("view.stride[1]", stride_b, bad.least, bad.most);
  const auto off = reinterpret_cast<std::uintptr_t>(data) % alignment;
  if (off != 0)
    fail("view.data", std::to_string(off) + " bytes past a value", "a multiple of " + std::to_string(alignment));
  if (data == nullptr && a > 0 && b > 0 && c > 0)
    fail("view.data", "null", "a pointer to shape[0] * shape[1] * shape[2] values");
}

/// A strided tensor [a, b, c] that somebody else owns, slowest dimension first; the c values of a row lie side by
/// side. Strides are counted in elements. It never copies and never allocates; a View<T> is also a View<const T>.
template <class T>
class View {
 public:
  /// Contiguous. Errors: a negative extent, a null pointer to something, one that is not aligned to T.
  View(T* data, int a, int b, int c) : View(data, a, b, c, std::ptrdiff_t(b) * c, c) {}

  /// Errors: also a negative stride, and values that lie in two places of the tensor, be it rows that overlap (stride_b
  /// < c where b > 1) or one plane's rows and another's (stride_a < (b - 1) * stride_b + c, or as much the other way
  /// round); more elements from the first to the last than can be counted. Views to read are no exception.
  View(T* data, int a, int b, int c, std::ptrdiff_t stride_a, std::ptrdiff_t stride_b)
      : data_(data), shape_{a, b, c}, stride_{stride_a, stride_b} {
    check_view(data, alignof(T), a, b, c, stride_a, stride_b);
  }

  /// Of the same memory, to read.
  template <class U, class = std::enable_if_t<std::is_same<T, const U>::value>>
  View(const View<U>& other)  // NOLINT: reading is always allowed
      : data_(other.data()),
        shape_{other.shape(0), other.shape(1), other.shape(2)},
        stride_{other.stride(0), other.stride(1)} {}

  T* data() const { return data_; }                   ///< the value at [0, 0, 0]
  int shape(int axis) const { return shape_[axis]; }  ///< 0 to 2; not checked
  /// Elements between neighbours along axis 0 or 1; along axis 2 it is 1.
  std::ptrdiff_t stride(int axis) const { return stride_[axis]; }
  bool empty() const { return shape_[0] == 0 || shape_[1] == 0 || shape_[2] == 0; }  ///< has it no values?

  /// The c values at [i, j]. Not checked.
  T* row(int i, int j) const { return data_ + i * stride_[0] + j * stride_[1]; }

 private:
  T* data_;
  int shape_[3];
  std::ptrdiff_t stride_[2];
};

/// A view of a container's values as [a, b, c]. Errors: a count that is not a * b * c.
template <class Container>
auto view(Container& values, int a, int b, int c) {
  const long long rows = 1LL * a * b, count = static_cast<long long>(values.size());
  if (c > 0 && rows > (std::numeric_limits<long long>::max)() / c)
    fail("view.count", count, "shape[0] * shape[1] * shape[2], which is more than can be counted");
  require_equal("view.count", count, rows * c, "shape[0] * shape[1] * shape[2]");
  return View<std::remove_pointer_t<decltype(values.data())>>(values.data(), a, b, c);
}

/// Refuses a view whose shape is not [a, b, c]; `name` says which one it is.
template <class T>
void require_shape(const char* name, const View<T>& v, int a, int b, int c) {
  const int expected[3] = {a, b, c};
  for (int axis = 0; axis < 3; ++axis)
    if (v.shape(axis) != expected[axis])
      fail(std::string(name) + ".shape[" + std::to_string(axis) + "]", v.shape(axis), std::to_string(expected[axis]));
}

}  // namespace buzz
