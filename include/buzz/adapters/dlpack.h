#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

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

/// A DLTensor of T as a view [a, b, c]; fewer dimensions get leading ones, more of them have to be 1. It owns nothing:
/// the tensor's owner keeps the memory until the last use of the view, and then calls the deleter of a DLManagedTensor.
/// `device` is where the caller will use it; memory of another device is not touched here. Tensor is DLTensor, of any
/// version of DLPack: its header is not included here.
///
/// Errors, by the tensor's field: another device (pinned host memory is the CPU's too), another type, more than one
/// lane, dimensions that are no view, strides that overlap or go back, values of a row that do not lie side by side,
/// a byte offset that leaves T unaligned. O(1). Source: the DLPack specification, DLTensor.
template <class T, class Tensor>
View<T> from_dlpack(const Tensor& tensor, DlpackDevice device = {}) {
  const int on = static_cast<int>(tensor.device.device_type);
  const bool pinned = device.type == 1 && (on == 3 || on == 11);
  if (!pinned) require_equal("device.device_type", on, device.type, "where the view is used");
  if (on != 1 && !pinned)
    require_equal("device.device_id", tensor.device.device_id, device.id, "where the view is used");
  require_equal("dtype.code", tensor.dtype.code, dlpack_type<T>().code, "the view's type");
  require_equal("dtype.bits", tensor.dtype.bits, dlpack_type<T>().bits, "the view's type");
  require_equal("dtype.lanes", tensor.dtype.lanes, 1, "one value an element");
  require_range("ndim", tensor.ndim, 1, 8);

  std::int64_t shape[3] = {1, 1, 1}, stride[3];
  for (int i = 0; i < tensor.ndim; ++i) {
    const int axis = i + 3 - tensor.ndim;
    if (axis < 0)
      require_equal("shape", tensor.shape[i], 1, "leading dimensions beyond three");
    else
      require_range("shape", shape[axis] = tensor.shape[i], 0, (std::numeric_limits<int>::max)());
  }
  stride[2] = 1;
  stride[1] = shape[2];
  stride[0] = shape[1] * shape[2];
  if (tensor.strides != nullptr)
    for (int axis = (std::max)(0, 3 - tensor.ndim); axis < 3; ++axis)
      if (shape[axis] > 1) stride[axis] = tensor.strides[axis - 3 + tensor.ndim];  // that of one element means nothing
  require_equal("strides", stride[2], 1, "the last: a row's values lie side by side");

  auto* bytes = static_cast<unsigned char*>(tensor.data);
  if (bytes != nullptr) bytes += tensor.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(bytes) % alignof(T) != 0)
    fail("byte_offset", static_cast<long long>(tensor.byte_offset), "one that aligns data to the type");
  return View<T>(reinterpret_cast<T*>(bytes), static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                 static_cast<int>(shape[2]), static_cast<std::ptrdiff_t>(stride[0]),
                 static_cast<std::ptrdiff_t>(stride[1]));
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

/// A view as a DLManagedTensor for somebody else, who calls its deleter once; `owner` keeps the memory until then.
/// Allocates. Managed is DLManagedTensor.
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
  loan->managed.manager_ctx = loan;
  loan->managed.deleter = [](Managed* self) { delete static_cast<Loan*>(self->manager_ctx); };
  return &loan->managed;
}

}  // namespace buzz
