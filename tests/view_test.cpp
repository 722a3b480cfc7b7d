#include "buzz/view.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numeric>
#include <vector>

namespace {

using buzz::InvalidArgument;
using buzz::View;

static_assert(std::is_convertible<View<float>, View<const float>>::value, "reading is always allowed");
static_assert(!std::is_convertible<View<const float>, View<float>>::value, "writing is not");
static_assert(!std::is_convertible<View<float>, View<const double>>::value, "nothing is converted");
static_assert(std::is_trivially_copyable<View<float>>::value, "a view is passed in registers");

std::vector<float> counted(int n) {
  std::vector<float> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), 0.f);
  return v;
}

template <class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.field();
  }
  return "nothing";
}

TEST(View, ContiguousStridesFollowFromTheShape) {
  std::vector<float> v = counted(24);
  const View<float> view(v.data(), 2, 3, 4);
  EXPECT_EQ(view.shape(0), 2);
  EXPECT_EQ(view.shape(1), 3);
  EXPECT_EQ(view.shape(2), 4);
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_EQ(view.stride(1), 4);
  EXPECT_EQ(view.data(), v.data());
}

TEST(View, RowIsWhereTheStridesSay) {
  std::vector<float> v = counted(60);
  const View<float> view(v.data(), 2, 3, 4, 30, 10);
  EXPECT_EQ(view.stride(0), 30);
  EXPECT_EQ(view.stride(1), 10);
  EXPECT_EQ(view.row(1, 2)[3], 53);
}

TEST(View, TokenMajorRowsCanBeSeenHeadMajor) {
  std::vector<float> v = counted(2 * 3 * 4);                   // [rows 2, heads 3, dim 4]
  const View<float> heads_first(v.data(), 3, 2, 4, 4, 3 * 4);  // [heads, rows, dim]
  EXPECT_EQ(heads_first.row(0, 1), v.data() + 12);
  EXPECT_EQ(heads_first.row(2, 0), v.data() + 8);
  EXPECT_EQ(heads_first.row(2, 1)[3], 23);
}

TEST(View, WritesThrough) {
  std::vector<float> v = counted(8);
  View<float>(v.data(), 2, 2, 2).row(1, 0)[1] = 77;
  EXPECT_EQ(v[5], 77);
}

TEST(View, ForReadingKeepsShapeAndStrides) {
  std::vector<float> v = counted(60);
  const View<const float> view = View<float>(v.data(), 2, 3, 4, 30, 10);
  EXPECT_EQ(view.shape(1), 3);
  EXPECT_EQ(view.stride(0), 30);
  EXPECT_EQ(view.row(1, 1), v.data() + 40);
}

TEST(View, OfNothingNeedsNoData) {
  EXPECT_TRUE(View<float>(nullptr, 0, 3, 4).empty());
  EXPECT_TRUE(View<float>(nullptr, 2, 0, 4).empty());
  EXPECT_TRUE(View<float>(nullptr, 2, 3, 0).empty());
  float one = 1;
  EXPECT_FALSE(View<float>(&one, 1, 1, 1).empty());
}

TEST(View, RefusesNegativeExtents) {
  float one = 1;
  EXPECT_EQ(refused([&] { View<float>(&one, -1, 1, 1); }), "view.shape[0]");
  EXPECT_EQ(refused([&] { View<float>(&one, 1, -1, 1); }), "view.shape[1]");
  EXPECT_EQ(refused([&] { View<float>(&one, 1, 1, -1); }), "view.shape[2]");
}

TEST(View, RefusesNullInPlaceOfValues) {
  EXPECT_EQ(refused([] { View<float>(nullptr, 1, 1, 1); }), "view.data");
}

TEST(View, RefusesStridesThatOverlap) {
  std::vector<float> v = counted(24);
  EXPECT_EQ(refused([&] { View<float>(v.data(), 2, 3, 4, 12, 3); }), "view.stride[1]");
  EXPECT_EQ(refused([&] { View<float>(v.data(), 2, 3, 4, 3, 4); }), "view.stride[0]");
  EXPECT_EQ(refused([&] { View<float>(v.data(), 2, 3, 4, 12, -4); }), "view.stride[1]");
  EXPECT_EQ(refused([&] { View<float>(v.data(), 2, 3, 4, -12, 4); }), "view.stride[0]");
}

TEST(View, RefusesPlanesThatOverlap) {
  std::vector<float> v = counted(64);
  const auto field = [&](std::ptrdiff_t a, std::ptrdiff_t b) {
    return refused([&] { View<float>(v.data(), 2, 3, 4, a, b); });
  };
  EXPECT_EQ(field(4, 4), "view.stride[0]");
  EXPECT_EQ(field(8, 4), "view.stride[0]");
  EXPECT_EQ(field(11, 4), "view.stride[0]");
  EXPECT_EQ(field(12, 4), "nothing");
  EXPECT_EQ(field(17, 7), "view.stride[0]") << "the last row ends where 2 * 7 + 4 do";
  EXPECT_EQ(field(18, 7), "nothing");
  EXPECT_EQ(field(4, 7), "view.stride[1]");
  EXPECT_EQ(field(4, 8), "nothing");
  EXPECT_EQ(field(0, 4), "view.stride[0]");
  EXPECT_EQ(refused([&] { View<const float>(v.data(), 2, 3, 4, 8, 4); }), "view.stride[0]") << "reading, too";
  EXPECT_EQ(refused([&] { View<float>(v.data(), 2, 3, 4, 8, 4); }), "view.stride[0]");
  EXPECT_EQ(refused([&] { View<float>(v.data(), 2, 1, 4, 4, 0); }), "nothing");
  EXPECT_EQ(refused([&] { View<float>(nullptr, 2, 3, 0, 0, 0); }), "nothing") << "nothing overlaps nothing";
  try {
    View<float>(v.data(), 2, 3, 4, 8, 4);
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "buzz: view.stride[0] = 8, allowed: 12 to 9223372036854775795");
  }
}

/// Every place of small tensors, counted.
TEST(View, TakesWhatHasNothingTwiceAndNothingElse) {
  std::vector<float> v(256);
  int taken = 0, interleaved = 0;
  for (int a = 1; a <= 3; ++a)
    for (int b = 1; b <= 3; ++b)
      for (int c = 1; c <= 3; ++c)
        for (int sa = 0; sa < 14; ++sa)
          for (int sb = 0; sb < 14; ++sb) {
            std::vector<int> used(v.size());
            bool twice = false;
            for (int i = 0; i < a; ++i)
              for (int j = 0; j < b; ++j)
                for (int d = 0; d < c; ++d) twice |= used[static_cast<std::size_t>(i * sa + j * sb + d)]++ > 0;
            const bool nested = a == 1 || b == 1 || sa >= (b - 1) * sb + c || sb >= (a - 1) * sa + c;
            const bool good = refused([&] { View<float>(v.data(), a, b, c, sa, sb); }) == "nothing";
            ASSERT_TRUE(!good || !twice) << a << b << c << " " << sa << " " << sb;
            ASSERT_EQ(good, !twice && nested) << a << b << c << " " << sa << " " << sb;
            taken += good;
            interleaved += !twice && !nested;
          }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(interleaved, 0) << "planes between each other's rows, which the docs say are refused";
}

TEST(View, RefusesExtentsThatCannotBeCounted) {
  float one = 1;
  constexpr auto far = std::numeric_limits<std::ptrdiff_t>::max();
  constexpr int most = std::numeric_limits<int>::max();
  EXPECT_EQ(refused([&] { View<float>(&one, 1, 3, 1, 0, far); }), "view.stride[1]");
  EXPECT_EQ(refused([&] { View<float>(&one, 2, 2, 1, far, 1); }), "view.stride[0]");
  EXPECT_EQ(refused([&] { View<float>(&one, most, most, most); }), "view.stride[0]");
  EXPECT_EQ(refused([&] { View<float>(&one, 1, 2, 1, 0, far - 1); }), "nothing");
}

TEST(View, RefusesDataThatIsNotAligned) {
  alignas(8) char bytes[64] = {};
  for (int off = 1; off < 4; ++off)
    EXPECT_EQ(refused([&] { View<float>(reinterpret_cast<float*>(bytes + off), 1, 1, 2); }), "view.data") << off;
  EXPECT_EQ(refused([&] { View<float>(reinterpret_cast<float*>(bytes + 4), 1, 1, 2); }), "nothing");
  EXPECT_EQ(refused([&] { View<signed char>(reinterpret_cast<signed char*>(bytes + 1), 1, 1, 2); }), "nothing");
}

TEST(View, AStrideThatIsNotUsedMayBeZero) {
  float row[4] = {1, 2, 3, 4};
  EXPECT_EQ(refused([&] { View<float>(row, 1, 1, 4, 0, 0); }), "nothing");
}

TEST(View, StridesMayPassInt) {
  float row[1] = {1};
  const std::ptrdiff_t far = std::ptrdiff_t(1) << 40;
  EXPECT_EQ(View<float>(row, 2, 2, 1, far, 1).stride(0), far);
  constexpr int most = std::numeric_limits<int>::max();
  EXPECT_EQ(View<float>(row, 1, most, most).stride(0), std::ptrdiff_t(most) * most);
}

TEST(ViewOfContainer, TakesItsShape) {
  std::vector<float> v = counted(24);
  EXPECT_EQ(buzz::view(v, 2, 3, 4).row(1, 2), v.data() + 20);
  std::array<double, 6> a{};
  EXPECT_EQ(buzz::view(a, 1, 2, 3).stride(1), 3);
}

TEST(ViewOfContainer, OfAConstantIsForReading) {
  const std::vector<float> v = counted(24);
  static_assert(std::is_same<decltype(buzz::view(v, 2, 3, 4)), View<const float>>::value, "");
  EXPECT_EQ(buzz::view(v, 2, 3, 4).row(0, 1)[0], 4);
}

TEST(ViewOfContainer, RefusesAnotherCount) {
  std::vector<float> v = counted(23);
  try {
    buzz::view(v, 2, 3, 4);
    FAIL() << "23 values are not [2, 3, 4]";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "buzz: view.count = 23, allowed: 24 (shape[0] * shape[1] * shape[2])");
  }
}

TEST(ViewOfContainer, RefusesACountThatWouldWrapAround) {
  std::vector<float> v;
  v.reserve(1);
  EXPECT_EQ(refused([&] { buzz::view(v, 1 << 30, 1 << 30, 16); }), "view.count") << "2^64 is not 0";
  constexpr int most = std::numeric_limits<int>::max();
  EXPECT_EQ(refused([&] { buzz::view(v, most, most, most); }), "view.count");
}

TEST(ViewOfContainer, RefusesNegativeExtentsWhoseProductIsRight) {
  std::vector<float> v = counted(24);
  EXPECT_EQ(refused([&] { buzz::view(v, -2, -3, 4); }), "view.shape[0]");
}

TEST(RequireShape, NamesTheAxisThatDisagrees) {
  std::vector<float> v = counted(24);
  const auto view = buzz::view(v, 2, 3, 4);
  EXPECT_EQ(refused([&] { buzz::require_shape("q", view, 2, 3, 4); }), "nothing");
  EXPECT_EQ(refused([&] { buzz::require_shape("q", view, 1, 3, 4); }), "q.shape[0]");
  EXPECT_EQ(refused([&] { buzz::require_shape("q", view, 2, 2, 4); }), "q.shape[1]");
  EXPECT_EQ(refused([&] { buzz::require_shape("q", view, 2, 3, 5); }), "q.shape[2]");
}

TEST(Span, IsWalkedLikeAContainer) {
  int values[] = {1, 2, 3};
  const buzz::Span<int> span{values, 3};
  int sum = 0;
  for (int v : span) sum += v;
  EXPECT_EQ(sum, 6);
  span[1] = 9;
  EXPECT_EQ(values[1], 9);
  const buzz::Span<int> nothing;
  EXPECT_EQ(nothing.begin(), nothing.end());
}

}  // namespace
