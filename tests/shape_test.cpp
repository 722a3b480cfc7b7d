#include "buzz/shape.h"

#include <gtest/gtest.h>

namespace {

using buzz::Shape;

std::string refused(const Shape& shape) {
  try {
    buzz::check(shape);
  } catch (const buzz::InvalidArgument& e) {
    return e.what();
  }
  return "nothing";
}

TEST(Shape, ByDefaultIsTheSmallest) {
  const Shape s;
  EXPECT_EQ(s.query_heads, 1);
  EXPECT_EQ(s.kv_heads, 1);
  EXPECT_EQ(s.head_dim, 1);
  EXPECT_EQ(s.max_chunk, 1);
  EXPECT_EQ(refused(s), "nothing");
}

TEST(Shape, GroupIsTheQueryHeadsOfAKvHead) {
  EXPECT_EQ((Shape{32, 8, 128, 512}.group()), 4);
  EXPECT_EQ((Shape{8, 8, 64}.group()), 1);
  EXPECT_EQ((Shape{6, 1, 64}.group()), 6);
}

TEST(Shape, AllowsEveryMultiple) {
  for (int kv_heads = 1; kv_heads <= 8; ++kv_heads)
    for (int group = 1; group <= 8; ++group) EXPECT_EQ(refused(Shape{group * kv_heads, kv_heads, 1}), "nothing");
}

TEST(Shape, RefusesQueryHeadsThatAreNoMultiple) {
  EXPECT_EQ(refused(Shape{3, 2, 4}), "buzz: query_heads = 3, allowed: a multiple of kv_heads = 2");
  EXPECT_EQ(refused(Shape{1, 2, 4}), "buzz: query_heads = 1, allowed: a multiple of kv_heads = 2");
}

TEST(Shape, RefusesExtentsBelowOne) {
  EXPECT_EQ(refused(Shape{0, 1, 4}), "buzz: query_heads = 0, allowed: >= 1");
  EXPECT_EQ(refused(Shape{1, 0, 4}), "buzz: kv_heads = 0, allowed: >= 1");
  EXPECT_EQ(refused(Shape{2, -2, 4}), "buzz: kv_heads = -2, allowed: >= 1");
  EXPECT_EQ(refused(Shape{1, 1, 0}), "buzz: head_dim = 0, allowed: >= 1");
  EXPECT_EQ(refused(Shape{1, 1, 4, 0}), "buzz: max_chunk = 0, allowed: >= 1");
}

}  // namespace
