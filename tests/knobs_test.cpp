// include/buzz/KNOBS.md says what memory the options take: these are its formulas.
#include <buzz.h>
#include <gtest/gtest.h>

#include <memory>

#include "typed.h"

namespace {

constexpr int max_chunk = 3;

std::size_t rows(const buzz::Policy& policy) { return static_cast<std::size_t>(policy.most_rows(max_chunk)); }
/// The evictor's bytes less those that every policy takes. On the heap, since gcc 12 reads the bytes of one that is not
/// after its end.
std::size_t of_the_score(const buzz::Policy& policy, std::size_t kv_heads, int max_rollback = 0) {
  const auto evictor = std::make_unique<buzz::Evictor>(policy, static_cast<int>(kv_heads), max_chunk, max_rollback,
                                                       buzz::ShownRows{64, 48, buzz::Rope{10000.0}, 16});
  return evictor->bytes() - (8 * kv_heads + 16) * rows(policy);
}

TEST(Knobs, PoliciesTakeTheMemoryThatThePageSays) {
  using namespace buzz;
  EXPECT_EQ(of_the_score(streaming(), 8), 0u);
  EXPECT_EQ(of_the_score(full(), 8), 0u);
  EXPECT_EQ(of_the_score(strided(), 8), 0u);
  EXPECT_EQ(of_the_score(beehive(), 8), 12 * 8 * rows(beehive()));
  EXPECT_EQ(of_the_score(heavy_hitter(), 2), 12 * 2 * rows(heavy_hitter()));
  EXPECT_EQ(of_the_score(tova(), 8), (12 * 8 + 16) * rows(tova()));
  EXPECT_EQ(of_the_score(snap_kv(), 8), (4 * 8 * 33 + 4) * rows(snap_kv()));
  EXPECT_EQ(of_the_score(user_scores(), 8), 8 * 8 * rows(user_scores()));
  EXPECT_EQ(of_the_score(key_diff(), 8), 16 * rows(key_diff()));
  EXPECT_EQ(of_the_score(key_outliers(), 8), (16 + 16) * rows(key_outliers()));
  EXPECT_EQ(of_the_score(leverage(), 8), 4u * 64 * (64 + 16) + 256 * 64 + 16 * 64 + 4 * 64 + 4 * 64);
  EXPECT_EQ(of_the_score(policy("leverage:of=values"), 8), 4u * 48 * (48 + 16) + 256 * 48 + 16 * 48);
  const auto shared = [](const std::string& options) {
    const Policy p = policy("strided:" + options);
    return of_the_score(p, 9) / rows(p);
  };
  EXPECT_EQ(shared("sharing=layer"), 16u);
  EXPECT_EQ(shared("sharing=model,reduce=mean"), 16u);
  EXPECT_EQ(shared("sharing=model,reduce=maximum"), 16u);
  EXPECT_EQ(shared("sharing=model,reduce=top,part=0.125"), 8u * (1 + 2));
  EXPECT_EQ(of_the_score(lag_kv(), 8), 16u * 128);
  EXPECT_EQ(of_the_score(policy("lag_kv:lag=100000"), 8), 16 * rows(lag_kv()));
  auto weights = std::make_shared<Calibration>(CalibratedModel{"", 1, 8, 64, 48});
  weights->set(0, std::vector<float>(8 * 113));
  CalibratedOptions o;
  o.weights = weights;
  EXPECT_EQ(of_the_score(calibrated(o), 8), (4 * 8 + 16) * rows(calibrated(o)) + 4 * 64 + 4 * 64);
  EXPECT_EQ(of_the_score(calibrated(o), 8, 10), of_the_score(calibrated(o), 8)) << "rollback copies nothing";
  const std::size_t queries = (64 + 1) * 16 * 20 + 4, lengths = 64 * 16 * 20;  // two query heads a group
  EXPECT_EQ(of_the_score(expected_attention(), 8), queries + 8 * 2 * (64 + rows(expected_attention())));
  EXPECT_EQ(of_the_score(tri_attention(), 8), queries + lengths + 8 * 2 * (2 * 64 + rows(tri_attention())) + 8 * 64);
  EXPECT_EQ(of_the_score(cap_kv(), 8),
            queries + 8 * 2 * 64 + 4u * 48 * (48 + 16) + 256 * 48 + 8 * (64 + rows(cap_kv())));
  EXPECT_EQ(of_the_score(key_value_beehive(), 8), (16 + 8) * rows(key_value_beehive()));
}

TEST(Knobs, RollbackTakesTheMemoryThatThePageSays) {
  const auto copies = [](const buzz::Policy& policy) { return of_the_score(policy, 8, 10) - of_the_score(policy, 8); };
  EXPECT_EQ(copies(buzz::beehive()), 10 * (8 * 8 * rows(buzz::beehive()) + 4));
  EXPECT_EQ(copies(buzz::snap_kv()), 10 * (4 * 8 * rows(buzz::snap_kv()) + 4));
  EXPECT_EQ(copies(buzz::streaming()), 0u);
  EXPECT_EQ(copies(buzz::tri_attention()), 10 * ((2 * 64 + 1) * 16 * 4 + 4));
}

TEST(Knobs, RollbackTakesTheScratchThatThePageSays) {
  const auto scratch = [](int max_rollback) {
    return buzz::BuzzCache<float>({8, 2, 64, max_chunk, max_rollback}, buzz::beehive()).memory().scratch;
  };
  EXPECT_EQ(scratch(1) - scratch(0), 4 * 2 * rows(buzz::beehive()));
  EXPECT_EQ(scratch(2) - scratch(0), 2 * 4 * 2 * rows(buzz::beehive()));
  EXPECT_EQ(scratch(100), scratch(2));
}

TEST(Knobs, KeysAndValuesTakeTheMemoryThatThePageSays) {
  const buzz::Shape shape{8, 2, 64, max_chunk};
  const buzz::BuzzCache<Eigen::half> half(shape, buzz::beehive());
  const buzz::BuzzCache<std::int8_t> int8(shape, buzz::beehive());
  const std::size_t bytes = 2 * 2 * 64 * rows(buzz::beehive());
  // A row that is being put in takes head_dim floats more.
  EXPECT_EQ(half.memory().keys_and_values - bytes * 2, 64 * sizeof(float));
  EXPECT_EQ(int8.memory().keys_and_values - bytes - 2 * 2 * 4 * rows(buzz::beehive()), 64 * sizeof(float));

  buzz::Shape other = shape;
  other.value_dim = 80;
  const buzz::BuzzCache<Eigen::half> longer(other, buzz::beehive());
  EXPECT_EQ(longer.memory().keys_and_values, 2 * (64 + 80) * 2 * rows(buzz::beehive()) + 80 * sizeof(float));
  other.value_dim = 48;
  other.values_in_keys = true;
  const buzz::BuzzCache<std::int8_t> in_keys(other, buzz::beehive());
  EXPECT_EQ(in_keys.memory().keys_and_values, 2 * (64 + 4) * rows(buzz::beehive()) + 64 * sizeof(float));
}

}  // namespace
