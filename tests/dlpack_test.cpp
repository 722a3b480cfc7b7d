#include "buzz/adapters/dlpack.h"

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "typed.h"

namespace {

/// A DLTensor of [2, 3, 4] floats 0, 1, 2, ..., as somebody else would make it.
struct Theirs {
  Theirs() {
    std::iota(values.begin(), values.end(), 0.f);
    tensor.data = values.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 3;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape;
    tensor.strides = nullptr;
    tensor.byte_offset = 0;
  }
  std::vector<float> values = std::vector<float>(24);
  std::int64_t shape[4] = {2, 3, 4, 0}, strides[4] = {12, 4, 1, 0};
  DLTensor tensor{};
};

/// from_dlpack has to refuse it for that field.
template <class T = float>
void expect_refused(const std::string& field, const DLTensor& tensor, buzz::DlpackDevice device = {}) {
  try {
    buzz::from_dlpack<T>(tensor, device);
    ADD_FAILURE() << field << " was accepted";
  } catch (const buzz::InvalidArgument& error) {
    EXPECT_EQ(error.field(), field) << error.what();
  }
}

TEST(FromDlpack, OfNullStridesIsCompact) {
  Theirs t;
  const buzz::View<float> v = buzz::from_dlpack<float>(t.tensor);
  EXPECT_EQ(v.data(), t.values.data());
  EXPECT_EQ(v.shape(0), 2);
  EXPECT_EQ(v.shape(1), 3);
  EXPECT_EQ(v.shape(2), 4);
  EXPECT_EQ(v.row(1, 2)[3], 23);
}

TEST(FromDlpack, HonoursStrides) {
  Theirs t;  // [rows 3, heads 2, dim 4] seen as [heads, rows, dim]
  std::int64_t strides[3] = {4, 8, 1};
  t.tensor.strides = strides;
  const buzz::View<const float> v = buzz::from_dlpack<const float>(t.tensor);
  EXPECT_EQ(v.row(1, 0)[0], 4);
  EXPECT_EQ(v.row(0, 2)[3], 19);
}

TEST(FromDlpack, HonoursTheByteOffset) {
  Theirs t;
  t.shape[0] = 1;
  t.tensor.byte_offset = 12 * sizeof(float);
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor).row(0, 0)[0], 12);
}

TEST(FromDlpack, GivesFewerDimensionsLeadingOnesAndTakesThemAway) {
  Theirs t;
  t.tensor.ndim = 2;
  t.tensor.shape = t.shape + 1;
  t.tensor.strides = t.strides + 1;
  const buzz::View<float> two = buzz::from_dlpack<float>(t.tensor);
  EXPECT_EQ(two.shape(0), 1);
  EXPECT_EQ(two.row(0, 2)[3], 11);

  std::int64_t shape[4] = {1, 2, 3, 4}, strides[4] = {24, 12, 4, 1};
  t.tensor.ndim = 4;
  t.tensor.shape = shape;
  t.tensor.strides = strides;
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor).row(1, 2)[3], 23);
  shape[0] = 2;
  expect_refused("shape", t.tensor);
}

TEST(FromDlpack, DoesNotReadTheStrideOfOneElement) {
  Theirs t;
  t.shape[0] = 1;
  t.tensor.strides = t.strides;
  t.strides[0] = -7;
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor).row(0, 2)[3], 11);
  t.shape[2] = 1;
  t.strides[2] = 9;
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor).row(0, 2)[0], 8);
}

TEST(FromDlpack, TakesPinnedMemoryAsTheCpus) {
  Theirs t;
  t.tensor.device = {kDLCUDAHost, 1};
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor).data(), t.values.data());
}

TEST(FromDlpack, RefusesAnotherDevice) {
  Theirs t;
  t.tensor.device = {kDLCUDA, 1};
  expect_refused("device.device_type", t.tensor);
  expect_refused("device.device_id", t.tensor, {kDLCUDA, 0});
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor, {kDLCUDA, 1}).data(), t.values.data());  // not touched
  t.tensor.device = {kDLCPU, 0};
  expect_refused("device.device_type", t.tensor, {kDLCUDA, 0});
}

TEST(FromDlpack, RefusesAnotherType) {
  Theirs t;
  expect_refused<std::int8_t>("dtype.code", t.tensor);
  expect_refused<Eigen::bfloat16>("dtype.code", t.tensor);
  expect_refused<Eigen::half>("dtype.bits", t.tensor);
  t.tensor.dtype.lanes = 4;
  expect_refused("dtype.lanes", t.tensor);
  t.tensor.dtype = {kDLBfloat, 16, 1};
  EXPECT_EQ(buzz::from_dlpack<Eigen::bfloat16>(t.tensor).shape(2), 4);
}

TEST(FromDlpack, RefusesWhatIsNoView) {
  Theirs t;
  t.tensor.ndim = 0;
  expect_refused("ndim", t.tensor);
  t.tensor.ndim = 3;
  t.shape[1] = -1;
  expect_refused("shape", t.tensor);
  t.shape[1] = 1LL << 32;
  expect_refused("shape", t.tensor);
  t.shape[1] = 3;
  t.tensor.strides = t.strides;
  t.strides[2] = 2;
  expect_refused("strides", t.tensor);
  t.strides[2] = 1;
  t.strides[1] = 2;
  expect_refused("view.stride[1]", t.tensor);
  t.strides[1] = -4;
  expect_refused("view.stride[1]", t.tensor);
  t.strides[1] = 4;
  t.tensor.byte_offset = 2;
  expect_refused("byte_offset", t.tensor);
  t.tensor.byte_offset = 0;
  t.tensor.data = nullptr;
  expect_refused("view.data", t.tensor);
  t.shape[1] = 0;
  EXPECT_TRUE(buzz::from_dlpack<float>(t.tensor).empty());
}

TEST(FromDlpack, RefusesPlanesThatOverlap) {
  Theirs t;
  t.tensor.strides = t.strides;
  for (std::int64_t planes : {0, 4, 8, 11}) {
    t.strides[0] = planes;
    expect_refused("view.stride[0]", t.tensor);
    expect_refused<const float>("view.stride[0]", t.tensor);
  }
  t.strides[0] = -12;
  expect_refused("view.stride[0]", t.tensor);
  t.strides[0] = 12;
  t.strides[2] = -1;
  expect_refused("strides", t.tensor);
}

TEST(FromDlpack, RefusesNullDimensionsAndTheirNumber) {
  Theirs t;
  t.tensor.shape = nullptr;
  expect_refused("shape", t.tensor);
  t.tensor.ndim = 0;
  expect_refused("ndim", t.tensor);
  for (int ndim : {-1, 9, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    t.tensor.ndim = ndim;
    expect_refused("ndim", t.tensor);
  }
}

TEST(FromDlpack, RefusesWhatLeavesTheAddresses) {
  Theirs t;
  t.tensor.byte_offset = std::numeric_limits<std::uint64_t>::max() - 3;
  expect_refused("byte_offset", t.tensor);
  t.tensor.byte_offset = std::numeric_limits<std::uint64_t>::max() - reinterpret_cast<std::uintptr_t>(t.tensor.data);
  expect_refused("byte_offset", t.tensor);
  t.tensor.byte_offset -= 3;  // aligned, and the very last value
  expect_refused("shape", t.tensor);
  t.tensor.byte_offset = 0;
  t.shape[0] = t.shape[1] = t.shape[2] = std::numeric_limits<int>::max();
  expect_refused("shape", t.tensor);
  t.shape[0] = 1;
  expect_refused("shape", t.tensor);  // 2^62 values of 4 bytes
  t.shape[0] = 2;
  t.shape[1] = 3;
  t.shape[2] = 4;
  t.tensor.strides = t.strides;
  for (std::int64_t far : {std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 61}) {
    t.strides[0] = far;
    expect_refused("strides", t.tensor);
    t.strides[0] = 12;
    t.strides[1] = far;
    expect_refused("strides", t.tensor);
    t.strides[1] = 4;
  }
}

TEST(FromDlpack, RefusesDataThatIsNotAligned) {
  Theirs t;
  t.tensor.data = reinterpret_cast<char*>(t.values.data()) + 2;
  expect_refused("data", t.tensor);
  t.tensor.byte_offset = 4;
  expect_refused("data", t.tensor);
  t.shape[0] = 1;
  t.tensor.byte_offset = 2;
  EXPECT_EQ(buzz::from_dlpack<float>(t.tensor).row(0, 0)[0], 1) << "only where it begins counts";
}

TEST(FromDlpack, DoesNotReadTheStridesOfNothing) {
  Theirs t;
  t.tensor.strides = t.strides;
  t.tensor.data = nullptr;
  for (int axis = 0; axis < 3; ++axis) {
    t.shape[0] = t.shape[1] = t.shape[2] = std::numeric_limits<int>::max();
    t.shape[axis] = 0;
    t.strides[0] = -7;
    t.strides[1] = 0;
    t.strides[2] = std::numeric_limits<std::int64_t>::min();
    EXPECT_TRUE(buzz::from_dlpack<float>(t.tensor).empty()) << axis;
  }
}

/// DLManagedTensorVersioned as DLPack 1.0 has it; older headers do not.
struct Versioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(Versioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

TEST(FromDlpack, OfAManagedTensorLooksAtItsVersionAndFlags) {
  Theirs t;
  const auto field = [](const auto& managed, auto type) {
    try {
      buzz::from_dlpack<std::remove_pointer_t<decltype(type)>>(managed);
    } catch (const buzz::InvalidArgument& e) {
      return e.field();
    }
    return std::string("nothing");
  };
  float* to_write = nullptr;
  const float* to_read = nullptr;
  Versioned v{{1, 7}, nullptr, nullptr, 0, t.tensor};
  EXPECT_EQ(buzz::from_dlpack<float>(v).data(), t.values.data());
  v.flags = 2;  // a copy
  EXPECT_EQ(field(v, to_write), "nothing");
  v.flags = 3;  // and read-only
  EXPECT_EQ(field(v, to_write), "flags");
  EXPECT_EQ(field(v, to_read), "nothing");
  for (std::uint32_t major : {0u, 2u, ~0u}) {
    v.version.major = major;
    EXPECT_EQ(field(v, to_read), "version.major");
  }
  v.version.major = 1;
  v.dl_tensor.ndim = 0;
  EXPECT_EQ(field(v, to_read), "ndim");
  const DLManagedTensor unversioned{t.tensor, nullptr, nullptr};
  EXPECT_EQ(buzz::from_dlpack<float>(unversioned).data(), t.values.data());
}

TEST(FromDlpack, IsEvictedInPlace) {
  Theirs t;
  t.shape[0] = 1;
  t.shape[1] = 6;
  buzz::KeptRows keep(1, 6);
  keep.begin(6, 2);
  keep.list(0)[0] = 1;
  keep.list(0)[1] = 4;
  buzz::compact(keep, 0, buzz::from_dlpack<float>(t.tensor));
  EXPECT_EQ(t.values[0], 4);
  EXPECT_EQ(t.values[4], 16);
}

TEST(DlpackTensor, SaysWhatTheViewIs) {
  std::vector<Eigen::half> values(2 * 5 * 8);
  const buzz::View<Eigen::half> view(values.data(), 2, 3, 8, 40, 8);
  const buzz::DlpackTensor<DLTensor> out(view);
  const DLTensor& t = out.tensor();
  EXPECT_EQ(t.data, values.data());
  EXPECT_EQ(t.device.device_type, kDLCPU);
  EXPECT_EQ(t.ndim, 3);
  EXPECT_EQ(t.dtype.code, kDLFloat);
  EXPECT_EQ(t.dtype.bits, 16);
  EXPECT_EQ(t.dtype.lanes, 1);
  EXPECT_EQ(t.shape[1], 3);
  EXPECT_EQ(t.strides[0], 40);
  EXPECT_EQ(t.byte_offset, 0u);
  const buzz::View<Eigen::half> back = buzz::from_dlpack<Eigen::half>(t);
  EXPECT_EQ(back.row(1, 2), view.row(1, 2));
}

TEST(DlpackTensor, SaysOnWhichDevice) {
  float value = 0;
  const buzz::DlpackTensor<DLTensor> out(buzz::View<float>(&value, 1, 1, 1), {kDLCUDA, 3});
  EXPECT_EQ(out.tensor().device.device_type, kDLCUDA);
  EXPECT_EQ(out.tensor().device.device_id, 3);
}

TEST(LendDlpack, KeepsTheOwnerUntilTheDeleter) {
  auto owner = std::make_shared<std::vector<float>>(12, 2.f);
  const std::weak_ptr<std::vector<float>> watched = owner;
  DLManagedTensor* lent = buzz::lend_dlpack<DLManagedTensor>(buzz::view(*owner, 1, 3, 4), owner);
  owner.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(buzz::from_dlpack<float>(lent->dl_tensor).row(0, 2)[3], 2);
  lent->deleter(lent);
  EXPECT_TRUE(watched.expired());
}

TEST(LendDlpack, SaysTheVersionWhereThereIsOne) {
  auto owner = std::make_shared<std::vector<float>>(12, 2.f);
  const std::weak_ptr<std::vector<float>> watched = owner;
  Versioned* lent = buzz::lend_dlpack<Versioned>(buzz::view(*owner, 1, 3, 4), owner);
  owner.reset();
  EXPECT_EQ(lent->version.major, 1u);
  EXPECT_EQ(lent->version.minor, 0u);
  EXPECT_EQ(lent->flags, 0u);
  EXPECT_EQ(buzz::from_dlpack<float>(*lent).row(0, 2)[3], 2);
  lent->deleter(lent);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
