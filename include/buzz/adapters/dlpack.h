#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "buzz/eigen.h"
#include "buzz/view.h"

namespace buzz {

/// Where a tensor lies: DLPack's device type (1 is the CPU, 2 CUDA) and device id.
struct DlpackDevice {
  int type = 1;  ///< 1: CPU, 2: CUDA
  int id = 0;    ///< of several devices of a type
};

/// DLPack's code and bits of an element.
struct DlpackType {
  int code;  ///< as in DLDataType: 0 whole, 2 real, 4 bfloat16
  int bits;  ///< of one element
};
/// The code and bits of T: float, half, bfloat16, int8 or int32.
template <class T>
constexpr DlpackType dlpack_type() {
  using E = std::remove_const_t<T>;
  static_assert(std::is_same<E, float>::value || std::is_same<E, Eigen::half>::value ||
                    std::is_same<E, Eigen::bfloat16>::value || std::is_same<E, std::int8_t>::value ||
                    std::is_same<E, std::int32_t>::value,
                "float, half, bfloat16, int8 or int32");
  constexpr int bits = 8 * static_cast<int>(sizeof(E));
  if (std::is_same<E, Eigen::bfloat16>::value) return {4, bits};
  return {std::is_integral<E>::value ? 0 : 2, bits};
}

/// Is it a managed tensor, and of those that say their version?
/// @{
template <class Managed, class = void>
struct IsDlpackManaged : std::false_type {};
template <class Managed>
struct IsDlpackManaged<Managed, std::void_t<decltype(Managed::dl_tensor)>> : std::true_type {};
template <class Managed, class = void>
struct IsDlpackVersioned : std::false_type {};
template <class Managed>
struct IsDlpackVersioned<Managed, std::void_t<decltype(Managed::version), decltype(Managed::flags)>> : std::true_type {
};
/// @}

/// A DLTensor of T as a view [a, b, c]; fewer dimensions get leading ones, more of them have to be 1. It owns nothing:
/// the tensor's owner keeps the memory until the last use of the view, and then calls the deleter of a DLManagedTensor.
/// `device` is where the caller will use it; memory of another device is not touched here. Tensor is DLTensor, of any
/// version of DLPack, since its header is not included here; or DLManagedTensor or DLManagedTensorVersioned, whose
/// version and flags are then looked at, which nobody can do who has its dl_tensor alone.
///
/// Errors, by the tensor's field: another major version than 1, memory to read where T can be written to; another
/// device (pinned host memory is the CPU's too), another type, more than one lane, dimensions that are no view or null,
/// strides that overlap or go back, values of a row that do not lie side by side, data or a byte offset that leave T
/// unaligned, more bytes than there are addresses. Strides of a tensor without elements mean nothing. O(1). Source: the
/// DLPack specification, DLTensor and DLManagedTensorVersioned.
template <class T, class Tensor>
View<T> from_dlpack(const Tensor& tensor, DlpackDevice device = {}) {
  if constexpr (IsDlpackManaged<Tensor>::value) {
    if constexpr (IsDlpackVersioned<Tensor>::value) {
      const auto& [layout, features] = tensor.version;  // major and minor, which <sys/sysmacros.h> defines
      require_equal("version.major", layout, 1, "another one may lay out the rest otherwise");
      if (!std::is_const<T>::value && (tensor.flags & 1) != 0)
        fail("flags", static_cast<long long>(tensor.flags), "not read-only (1), or a view to read");
    }
    return from_dlpack<T>(tensor.dl_tensor, device);
  } else {
    const int on = static_cast<int>(tensor.device.device_type);
    const bool pinned = device.type == 1 && (on == 3 || on == 11);
    if (!pinned) require_equal("device.device_type", on, device.type, "where the view is used");
    if (on != 1 && !pinned)
      require_equal("device.device_id", tensor.device.device_id, device.id, "where the view is used");
    require_equal("dtype.code", tensor.dtype.code, dlpack_type<T>().code, "the view's type");
    require_equal("dtype.bits", tensor.dtype.bits, dlpack_type<T>().bits, "the view's type");
    require_equal("dtype.lanes", tensor.dtype.lanes, 1, "one value an element");
    require_range("ndim", tensor.ndim, 1, 8);
    if (tensor.shape == nullptr) fail("shape", "null", std::to_string(tensor.ndim) + " dimensions");

    long long shape[3] = {1, 1, 1}, stride[3];
    for (int i = 0; i < tensor.ndim; ++i) {
      const int axis = i + 3 - tensor.ndim;
      if (axis < 0)
        require_equal("shape", tensor.shape[i], 1, "leading dimensions beyond three");
      else
        require_range("shape", shape[axis] = tensor.shape[i], 0, (std::numeric_limits<int>::max)());
    }
    const bool empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0;
    const bool strided = tensor.strides != nullptr && !empty;
    stride[2] = 1;
    stride[1] = shape[2];
    stride[0] = empty ? 0 : shape[1] * shape[2];
    if (strided)
      for (int axis = (std::max)(0, 3 - tensor.ndim); axis < 3; ++axis)
        if (shape[axis] > 1) stride[axis] = tensor.strides[axis - 3 + tensor.ndim];  // that of one means nothing
    require_equal("strides", stride[2], 1, "the last: a row's values lie side by side");

    // As bytes: no stride and no extent of what fits between the data and the last address is too large for a View.
    const auto start = reinterpret_cast<std::uintptr_t>(tensor.data);
    constexpr auto last = (std::numeric_limits<std::uintptr_t>::max)();
    if (start != 0 && tensor.byte_offset > last - start)
      fail("byte_offset", std::to_string(tensor.byte_offset), "<= " + std::to_string(last - start) + ", from data on");
    const std::uintptr_t first = start == 0 ? 0 : start + static_cast<std::uintptr_t>(tensor.byte_offset);
    if (first % alignof(T) != 0)
      fail(tensor.byte_offset % alignof(T) != 0 ? "byte_offset" : "data",
           std::to_string(first % alignof(T)) + " bytes past a value", "one that aligns data to the type");
    long long room = static_cast<long long>((std::min)((last - first) / sizeof(T), last / 2 / sizeof(T)));
    if (!empty)
      for (int axis = 2; axis >= 0; --axis) {
        if (stride[axis] > 0 && shape[axis] - 1 > room / stride[axis])
          fail(strided ? "strides" : "shape", strided ? stride[axis] : shape[axis], "what ends within all addresses");
        if (stride[axis] > 0) room -= (shape[axis] - 1) * stride[axis];
      }
    return View<T>(reinterpret_cast<T*>(first), static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                   static_cast<int>(shape[2]), static_cast<std::ptrdiff_t>(stride[0]),
                   static_cast<std::ptrdiff_t>(stride[1]));
  }
}

/// A view as a DLTensor of three dimensions, which it owns, but not the memory: both have to live as long as anybody
/// uses tensor(). Neither copied nor moved, since the tensor points into it.
template <class Tensor>
class DlpackTensor {
 public:
  /// Errors: none; a View has been checked.
  template <class T>
  explicit DlpackTensor(View<T> view, DlpackDevice device = {}) {
    static_assert(!std::is_const<T>::value, "a DLTensor can be written to");
    for (int axis = 0; axis < 3; ++axis) {
      shape_[axis] = view.shape(axis);
      strides_[axis] = axis < 2 ? view.stride(axis) : 1;
    }
    tensor_.data = view.data();
    tensor_.device.device_type = static_cast<decltype(tensor_.device.device_type)>(device.type);
    tensor_.device.device_id = device.id;
    tensor_.ndim = 3;
    tensor_.dtype.code = static_cast<std::uint8_t>(dlpack_type<T>().code);
    tensor_.dtype.bits = static_cast<std::uint8_t>(dlpack_type<T>().bits);
    tensor_.dtype.lanes = 1;
    tensor_.shape = shape_;
    tensor_.strides = strides_;
    tensor_.byte_offset = 0;
  }
  DlpackTensor(const DlpackTensor&) = delete;
  DlpackTensor& operator=(const DlpackTensor&) = delete;

  Tensor& tensor() { return tensor_; }              ///< valid as long as this
  const Tensor& tensor() const { return tensor_; }  ///< the same, to read

 private:
  Tensor tensor_{};
  std::int64_t shape_[3], strides_[3];
};

/// A view as a managed tensor for somebody else, who calls its deleter once; `owner` keeps the memory until then.
/// Allocates. Managed is DLManagedTensor, or DLManagedTensorVersioned, which says version 1.0 and can be written to:
/// each where the other one is expected would be read wrongly, so take what the reader asked for.
template <class Managed, class T>
Managed* lend_dlpack(View<T> view, std::shared_ptr<void> owner, DlpackDevice device = {}) {
  using Tensor = decltype(Managed::dl_tensor);
  struct Loan {
    Loan(View<T> lent, std::shared_ptr<void> by, DlpackDevice on) : tensor(lent, on), owner(std::move(by)) {}
    DlpackTensor<Tensor> tensor;
    std::shared_ptr<void> owner;
    Managed managed{};
  };
  auto* loan = new Loan(view, std::move(owner), device);
  loan->managed.dl_tensor = loan->tensor.tensor();
  if constexpr (IsDlpackVersioned<Managed>::value) {
    loan->managed.version = {1, 0};
    loan->managed.flags = 0;
  }
  loan->managed.manager_ctx = loan;
  loan->managed.deleter = [](Managed* self) { delete static_cast<Loan*>(self->manager_ctx); };
  return &loan->managed;
}

}  // namespace buzz
