// include/buzz/KNOBS.md says what memory the options take: these are its formulas.
#include <buzz.h>
#include <gtest/gtest.h>

#include <memory>

namespace {

template <class Policy>
std::size_t rows() {
  return static_cast<std::size_t>(Policy::capacity(typename Policy::Options{}, 3));
}
/// The policy's bytes less those that every policy takes. On the heap, since gcc 12 reads the bytes of one that is not
/// after its end.
template <class Policy>
std::size_t of_the_score(std::size_t kv_heads, int max_rollback = 0) {
  const auto policy = std::make_unique<Policy>(typename Policy::Options{}, static_cast<int>(kv_heads), 3, max_rollback);
  return policy->bytes() - (8 * kv_heads + 16) * rows<Policy>();
}

TEST(Knobs, PoliciesTakeTheMemoryThatThePageSays) {
  EXPECT_EQ(of_the_score<buzz::Streaming>(8), 0u);
  EXPECT_EQ(of_the_score<buzz::Full>(8), 0u);
  EXPECT_EQ(of_the_score<buzz::Beehive>(8), (8 * 8 + 4) * rows<buzz::Beehive>());
  EXPECT_EQ(of_the_score<buzz::HeavyHitter>(2), (8 * 2 + 4) * rows<buzz::HeavyHitter>());
  EXPECT_EQ(of_the_score<buzz::Tova>(8), (8 * 8 + 4 + 16) * rows<buzz::Tova>());
  EXPECT_EQ(of_the_score<buzz::SnapKv>(8), (4 * 8 * 32 + 8) * rows<buzz::SnapKv>());
  EXPECT_EQ((of_the_score<buzz::Policy<buzz::Given, buzz::TopK>>(8)),
            8 * 8 * (rows<buzz::Policy<buzz::Given, buzz::TopK>>()));
  EXPECT_EQ(of_the_score<buzz::KeyDiff>(8), 16 * rows<buzz::KeyDiff>());
  EXPECT_EQ(of_the_score<buzz::KeyOutliers>(8), (16 + 16) * rows<buzz::KeyOutliers>());
}

TEST(Knobs, RollbackTakesTheMemoryThatThePageSays) {
  EXPECT_EQ(of_the_score<buzz::Beehive>(8, 10) - of_the_score<buzz::Beehive>(8),
            10 * (8 * 8 * rows<buzz::Beehive>() + 4));
  EXPECT_EQ(of_the_score<buzz::SnapKv>(8, 10) - of_the_score<buzz::SnapKv>(8), 10 * (4 * 8 * rows<buzz::SnapKv>() + 4));
  EXPECT_EQ(of_the_score<buzz::Streaming>(8, 10), 0u);
}

TEST(Knobs, RollbackTakesTheScratchThatThePageSays) {
  const auto scratch = [](int max_rollback) {
    return buzz::BuzzCache<float>({8, 2, 64, 3, max_rollback}).memory().scratch;
  };
  EXPECT_EQ(scratch(1) - scratch(0), 4 * 2 * rows<buzz::Beehive>());
  EXPECT_EQ(scratch(2) - scratch(0), 2 * 4 * 2 * rows<buzz::Beehive>());
  EXPECT_EQ(scratch(100), scratch(2));
}

TEST(Knobs, KeysAndValuesTakeTheMemoryThatThePageSays) {
  const buzz::Shape shape{8, 2, 64, 3};
  const buzz::BuzzCache<Eigen::half> half(shape);
  const buzz::BuzzCache<std::int8_t> int8(shape);
  const std::size_t bytes = 2 * 2 * 64 * rows<buzz::Beehive>();
  // A row that is being put in takes head_dim floats more.
  EXPECT_EQ(half.memory().keys_and_values - bytes * 2, 64 * sizeof(float));
  EXPECT_EQ(int8.memory().keys_and_values - bytes - 2 * 2 * 4 * rows<buzz::Beehive>(), 64 * sizeof(float));
}

}  // namespace
