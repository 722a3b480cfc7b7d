// What extremes_test does to the options of the cache on the CPU, done to those of the cache on the device.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_twin.h"
#include "extremes.h"

namespace {

using namespace extremes;

TEST(CudaExtremes, OfProbabilities) {
  using Twin = emulated::Twin<float>;
  Twin twin(buzz::Shape{2, 1, 64}, {}, buzz::beehive());
  const std::vector<float> zeros(64);
  const auto row = buzz::cuda::dense(zeros.data(), 1, 1, 64);
  for (const double bad : {kNan, kInf, -kInf, -1.0, 3e38}) {
    ASSERT_EQ(twin.cache.reset(1), 0);
    ASSERT_EQ(twin.cache.append(row, row, {1, 0, 1}, 1), 0);
    const std::vector<float> p = {static_cast<float>(bad), static_cast<float>(bad)};
    ASSERT_EQ(twin.cache.observe(buzz::cuda::dense(p.data(), 2, 1, 1), 1), 0);
    EXPECT_EQ(twin.score(0, 0, 0), 0) << bad << " adds nothing";
  }
}

TEST(CudaExtremes, OfSizes) {
  using Cache = emulated::Twin<float>::Cache;
  int buzz::Shape::*const fields[] = {&buzz::Shape::query_heads, &buzz::Shape::kv_heads,     &buzz::Shape::head_dim,
                                      &buzz::Shape::max_chunk,   &buzz::Shape::max_rollback, &buzz::Shape::value_dim};
  int buzz::cuda::Batch::*const batches[] = {&buzz::cuda::Batch::sequences, &buzz::cuda::Batch::kept_logits,
                                             &buzz::cuda::Batch::splits};
  const char* const names[] = {"query_heads", "kv_heads",  "head_dim",    "max_chunk", "max_rollback",
                               "value_dim",   "sequences", "kept_logits", "splits"};
  for (int i = 0; i < 9; ++i)
    for (const int value : kInts) {
      buzz::Shape s{8, 2, 64, 4};
      buzz::cuda::Batch batch;
      if (i < 6)
        s.*fields[i] = value;
      else
        batch.*batches[i - 6] = value;
      if (i == 1) s.query_heads = value;
      const std::string became = fate([&] { Cache::bytes(s, batch, buzz::beehive()); });
      EXPECT_TRUE(became == "works" || became.find(names[i]) != std::string::npos ||
                  (i == 1 && became == "query_heads"))
          << names[i] << " = " << value << ": " << became;
    }
  buzz::BeehiveOptions o;
  o.window = 1 << 29;
  buzz::cuda::Batch batch;
  batch.sequences = 65535;
  EXPECT_EQ(fate([&] {
              Cache::bytes(buzz::Shape{65535, 65535, 256}, batch, buzz::beehive(o));
            }),
            "sequences * kv_heads * capacity * head_dim");
}

TEST(CudaExtremes, OfNames) {
  const auto made = [](auto options, const auto& policy, const auto& set) {
    set(options);
    return fate([&] { emulated::Twin<float>::Cache::bytes(buzz::Shape{2, 1, 64}, {}, policy(options)); });
  };
  using namespace buzz;
  EXPECT_EQ(made(BeehiveOptions(), beehive, [](auto& o) { o.attention = static_cast<AttentionKind>(99); }),
            "attention");
  EXPECT_EQ(made(BeehiveOptions(), beehive, [](auto& o) { o.hive = static_cast<HiveRule>(99); }), "hive");
  EXPECT_EQ(made(BeehiveOptions(), beehive, [](auto& o) { o.passes = static_cast<Passes>(-1); }), "passes");
  EXPECT_EQ(made(KeyDiffOptions(), key_diff, [](auto& o) { o.unlike = static_cast<Unlike>(99); }), "unlike");
  EXPECT_EQ(made(KeyOutliersOptions(), key_outliers, [](auto& o) { o.mean_over = static_cast<MeanOver>(99); }),
            "mean_over");
}

TEST(CudaExtremes, OfStreams) {
  // Compact positions have no last one, but a token's index has.
  buzz::Shape s{1, 1, 64, 1 << 20};
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  emulated::Twin<float>::Cache cache(s, {}, buzz::beehive(), rope, nullptr, nullptr);
  int calls = 0;
  while (calls < 3000 && cache.replayed({1 << 20, 0, 1}) == 0) ++calls;
  EXPECT_EQ(calls, 2047) << "as many as positions below 2^31 - 1 allow";
}

}  // namespace
