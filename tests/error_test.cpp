#include "buzz/error.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace {

static_assert(std::is_base_of<std::invalid_argument, buzz::InvalidArgument>::value, "a standard exception");

template <class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const buzz::InvalidArgument& e) {
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
  } catch (const buzz::InvalidArgument& e) {
    EXPECT_EQ(e.field(), "stride");
    const buzz::InvalidArgument copy = e;
    EXPECT_EQ(copy.field(), "stride");
    EXPECT_STREQ(copy.what(), e.what());
  }
}

TEST(Error, IsCaughtAsAStandardOne) { EXPECT_THROW(buzz::fail("a", 1, "0"), std::invalid_argument); }

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
  EXPECT_EQ(text_of([] { buzz::require_equal("mass.shape[2]", 5, 5, "rows"); }), kNothing);
  EXPECT_EQ(text_of([] { buzz::require_equal("mass.shape[2]", 4, 5, "rows"); }),
            "buzz: mass.shape[2] = 4, allowed: 5 (rows)");
}

TEST(Require, KnowsNumbersPastInt) {
  EXPECT_EQ(text_of([] { buzz::require_at_least("rows", -3000000000, 0); }), "buzz: rows = -3000000000, allowed: >= 0");
}

}  // namespace
