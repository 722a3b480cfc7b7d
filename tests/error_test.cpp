#include "buzz/error.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace {

template <class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const buzz::Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

const char* const kNothing = "nothing was refused";

TEST(Error, NamesFieldValueAndRange) {
  EXPECT_EQ(text_of([] { buzz::fail("color", "blue", "red or green"); }), "buzz: color = blue, allowed: red or green");
  EXPECT_EQ(text_of([] { buzz::fail("stride", 0, ">= 1"); }), "buzz: stride = 0, allowed: >= 1");
}

TEST(Error, GivesTheFieldAlone) {
  try {
    buzz::fail("stride", 0, ">= 1");
  } catch (const buzz::Error& e) {
    EXPECT_EQ(e.field(), "stride");
    const buzz::Error copy = e;
    EXPECT_EQ(copy.field(), "stride");
    EXPECT_STREQ(copy.what(), e.what());
  }
}

/// f() throws this family, and so none of the others.
template <class Family, class F>
void throws(F&& f) {
  static_assert(std::is_base_of<buzz::Error, Family>::value, "caught as the base, with its field()");
  static_assert(std::is_base_of<std::exception, Family>::value, "a standard exception");
  const auto in = [&](auto family) {
    try {
      f();
    } catch (const typename decltype(family)::type&) {
      return true;
    } catch (const buzz::Error&) {
    }
    return false;
  };
  EXPECT_TRUE(in(std::common_type<Family>()));
  EXPECT_EQ(in(std::common_type<buzz::InvalidArgument>()) + in(std::common_type<buzz::CacheFull>()) +
                in(std::common_type<buzz::FileError>()),
            1);
}

TEST(Error, IsOfOneFamily) {
  throws<buzz::InvalidArgument>([] { buzz::fail("a", 1, "0"); });
  throws<buzz::CacheFull>([] { buzz::fail<buzz::CacheFull>("a", 1, "0"); });
  throws<buzz::FileError>([] { buzz::fail<buzz::FileError>("a", "b", "c"); });
  throws<buzz::FileError>([] { buzz::require_range<buzz::FileError>("a", 1, 2, 3); });
  throws<buzz::CacheFull>([] { buzz::require_at_least<buzz::CacheFull>("a", 1, 2); });
}

TEST(RequireRange, AllowsBothEnds) {
  EXPECT_EQ(text_of([] { buzz::require_range("head", 0, 0, 7); }), kNothing);
  EXPECT_EQ(text_of([] { buzz::require_range("head", 7, 0, 7); }), kNothing);
  EXPECT_EQ(text_of([] { buzz::require_range("head", -1, 0, 7); }), "buzz: head = -1, allowed: 0 to 7");
  EXPECT_EQ(text_of([] { buzz::require_range("head", 8, 0, 7); }), "buzz: head = 8, allowed: 0 to 7");
}

TEST(RequireAtLeast, AllowsTheLeast) {
  EXPECT_EQ(text_of([] { buzz::require_at_least("sink", 0, 0); }), kNothing);
  EXPECT_EQ(text_of([] { buzz::require_at_least("sink", -1, 0); }), "buzz: sink = -1, allowed: >= 0");
}

TEST(RequireEqual, SaysWhatItHasToAgreeWith) {
  EXPECT_EQ(text_of([] { buzz::require_equal("sums.shape[2]", 5, 5, "rows"); }), kNothing);
  EXPECT_EQ(text_of([] { buzz::require_equal("sums.shape[2]", 4, 5, "rows"); }),
            "buzz: sums.shape[2] = 4, allowed: 5 (rows)");
}

TEST(RequireRoom, IsFullOnlyForWhatAnEmptyCacheWouldTake) {
  EXPECT_EQ(text_of([] { buzz::require_room("rows", 8, 3, 8); }), kNothing);
  throws<buzz::CacheFull>([] { buzz::require_room("rows", 9, 3, 8); });
  throws<buzz::CacheFull>([] { buzz::require_room("rows", 16, 8, 8); });
  throws<buzz::InvalidArgument>([] { buzz::require_room("rows", 10, 9, 8); });
  EXPECT_EQ(text_of([] { buzz::require_room("rows", 9, 3, 8); }), "buzz: rows = 9, allowed: 0 to 8");
}

TEST(Require, KnowsNumbersPastInt) {
  EXPECT_EQ(text_of([] { buzz::require_at_least("rows", -3000000000, 0); }), "buzz: rows = -3000000000, allowed: >= 0");
}

}  // namespace
