// Many sequences side by side, each a ModelCache: none disturbs another, and bytes() is what they take.

#include <gtest/gtest.h>

#include <limits>

#include "buzz/budget.h"
#include "oracle_twin.h"
#include "sanitizers.h"
#include "typed.h"

#if defined(BUZZ_TEST_ASAN) || defined(BUZZ_TEST_TSAN)
#include <sanitizer/allocator_interface.h>
#elif defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

using oracle::bytes_of;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Text;
using Model = typed::Model<float>;

typed::Options layer_options(int window, int threshold) {
  typed::Options o = oracle::library_options<typed::Beehive>(small(Kind::beehive));
  o.window = window;
  o.threshold = threshold;
  return o;
}

const std::vector<typed::Options> kLayers = {layer_options(6, 18), layer_options(3, 40), layer_options(9, 7)};
const buzz::Shape kShape{4, 2, 8, 8, 4};

Model model() {
  buzz::Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  return Model(kShape, kLayers, rope);
}

std::vector<float> feed_all(Model& m, const Text& text, int n) {
  std::vector<float> all;
  for (int i = 0; i < m.layers(); ++i)
    for (float x : feed(m.layer(i), text, n)) all.push_back(x);
  return all;
}

TEST(Sequences, InterleavedAreThoseRunApart) {
  oracle::Random random(1);
  std::vector<Model> together;
  std::vector<std::vector<int>> calls(5);
  std::vector<std::vector<std::vector<float>>> outputs(5);
  for (int i = 0; i < 5; ++i) together.push_back(model());  // they move as the vector grows
  for (int turn = 0; turn < 200; ++turn) {
    const std::size_t s = static_cast<std::size_t>(random.in(0, 4));
    calls[s].push_back(random.in(1, 8));
    outputs[s].push_back(feed_all(together[s], Text(s), calls[s].back()));
  }
  for (std::size_t s = 0; s < 5; ++s) {
    Model alone = model();
    for (std::size_t i = 0; i < calls[s].size(); ++i)
      ASSERT_EQ(feed_all(alone, Text(s), calls[s][i]), outputs[s][i]) << "sequence " << s << " call " << i;
    EXPECT_EQ(bytes_of(alone), bytes_of(together[s]));
    EXPECT_GT(alone.layer(2).next_position(), 100);
  }
}

TEST(Sequences, AreNotTouchedByWhatBefallsAnother) {
  std::vector<Model> sequences;
  for (std::uint64_t s = 0; s < 3; ++s) {
    sequences.push_back(model());
    for (int i = 0; i < 15; ++i) feed_all(sequences.back(), Text(s), 5);
  }
  const std::string first = bytes_of(sequences[0]), second = bytes_of(sequences[1]), third = bytes_of(sequences[2]);
  std::istringstream file(third), damaged(third.substr(0, third.size() / 2));
  sequences[1].load(file);
  EXPECT_EQ(bytes_of(sequences[1]), third);
  EXPECT_EQ(refused([&] { sequences[1].load(damaged); }), "stream");
  feed_all(sequences[1], Text(7), 2);
  sequences[1].pin(76, 1);
  if (sequences[1].can_rollback(2)) sequences[1].rollback(2);
  sequences[1].reset();
  EXPECT_EQ(bytes_of(sequences[0]), first);
  EXPECT_EQ(bytes_of(sequences[2]), third);
  EXPECT_NE(second, third);
  sequences.erase(sequences.begin() + 1);
  EXPECT_EQ(bytes_of(sequences[0]), first);
  EXPECT_EQ(bytes_of(sequences[1]), third);
}

TEST(Sequences, AfterAResetAreAsNew) {
  Model used = model(), fresh = model();
  for (int i = 0; i < 15; ++i) feed_all(used, Text(1), 5);
  used.reset();
  for (int i = 0; i < 30; ++i) ASSERT_EQ(feed_all(used, Text(2), 3), feed_all(fresh, Text(2), 3));
  EXPECT_EQ(bytes_of(used), bytes_of(fresh));
}

TEST(Layers, KeepWithinTheirOwnBounds) {
  Model m = model();
  for (int turn = 0; turn < 80; ++turn) {
    feed_all(m, Text(), 1 + turn % 8);
    for (int i = 0; i < 3; ++i) {
      const typed::Options& o = kLayers[static_cast<std::size_t>(i)];
      ASSERT_LE(m.rows(i), o.sink + o.window + o.threshold);
      ASSERT_EQ(m.layer(i).next_position(), m.layer(0).next_position());
    }
  }
  EXPECT_GT(m.rows(1), m.rows(0));
  EXPECT_GT(m.rows(0), m.rows(2));
}

TEST(MaxBytes, IsHeldToTheByte) {
  const std::size_t bytes = model().bytes();
  EXPECT_NO_THROW(Model(kShape, kLayers, buzz::Rope(), buzz::AttentionOptions(), Model(kShape, kLayers).bytes()));
  EXPECT_EQ(refused([&] {
              Model(kShape, kLayers, buzz::Rope(), buzz::AttentionOptions(), Model(kShape, kLayers).bytes() - 1);
            }),
            "bytes");
  EXPECT_EQ(refused([&] { Model(kShape, kLayers, buzz::Rope(), buzz::AttentionOptions(), std::size_t{1}); }), "bytes");
  EXPECT_GT(bytes, Model(kShape, kLayers).bytes()) << "a rope's table of angles counts";
}

TEST(MaxBytes, IsMetByABudgetThatIsSplit) {
  // What a row costs in all is measured, and the thresholds are made of what is left.
  const std::size_t most = 300000;
  const auto cost = [](int threshold) {
    return static_cast<long long>(typed::Cache<float>(kShape, layer_options(6, threshold)).bytes());
  };
  const long long row = cost(101) - cost(100), without = cost(1) - row;
  const std::vector<long long> thresholds =
      buzz::split_budget((static_cast<long long>(most) - 3 * without) / (row + 64), {1, 2, 3}, 1);
  std::vector<typed::Options> layers;
  for (long long t : thresholds) layers.push_back(layer_options(6, static_cast<int>(t)));
  const Model m(kShape, layers, buzz::Rope(), buzz::AttentionOptions(), most);
  EXPECT_LE(m.bytes(), most);
  EXPECT_GT(m.bytes(), most * 8 / 10);
}

TEST(Memory, IsThePartsTogether) {
  const Model m = model();
  buzz::Memory sum;
  for (int i = 0; i < 3; ++i) {
    const buzz::Memory part = m.layer(i).memory();
    const std::size_t rows = static_cast<std::size_t>(m.layer(i).capacity());
    EXPECT_EQ(part.keys_and_values, 2 * 2 * rows * 8 * sizeof(float) + 8 * sizeof(float)) << "K, V and room for a row";
    EXPECT_GE(part.policy, 2 * rows * (sizeof(float) + sizeof(std::int32_t)) * (1 + 4 / 2))
        << "scores, and to roll back";
    EXPECT_GT(part.scratch, 0u);
    EXPECT_EQ(part.total(), part.keys_and_values + part.policy + part.scratch);
    EXPECT_EQ(part.total(), m.layer(i).bytes());
    sum += part;
  }
  EXPECT_EQ(m.memory().keys_and_values, sum.keys_and_values);
  EXPECT_EQ(m.memory().policy, sum.policy);
  sum.scratch -= 2 * static_cast<std::size_t>(kShape.max_chunk * kShape.head_dim) * sizeof(float);
  EXPECT_EQ(m.memory().scratch, sum.scratch) << "the layers share a table of angles";
  EXPECT_EQ(m.bytes(), sum.total());
}

#if defined(BUZZ_TEST_ASAN) || defined(BUZZ_TEST_TSAN) || defined(__GLIBC__)
std::size_t allocated() {
#if defined(BUZZ_TEST_ASAN) || defined(BUZZ_TEST_TSAN)
  return __sanitizer_get_current_allocated_bytes();
#else
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

/// bytes() against what the allocator says: it rounds each of some thirty allocations up, large ones to pages, and
/// glibc counts small ones that wait to be used again as taken.
void expect_about(std::size_t taken, std::size_t bytes) {
  EXPECT_GE(taken + 4096, bytes);
  EXPECT_LE(taken, bytes + 30 * 4096);
  EXPECT_GT(bytes, 100u * 4096) << "so that this says something";
}

template <class T>
void takes_what_it_says(const buzz::Rope& rope) {
  typed::Options o;
  o.threshold = 1000;
  const std::size_t before = allocated();
  const typed::Cache<T> cache({8, 2, 64, 16, 3}, o, rope);
  const std::size_t with_one = allocated();
  expect_about(with_one - before, cache.bytes());
  const typed::Cache<T> fork = cache.fork();
  expect_about(allocated() - with_one, fork.bytes());
  EXPECT_EQ(fork.bytes(), cache.bytes());
}

TEST(Memory, IsWhatIsAllocated) {
  buzz::Rope raw{10000.0};
  raw.positions = buzz::Positions::compact;
  raw.keys = buzz::KeyStorage::raw;
  for (const buzz::Rope& rope : {buzz::Rope{}, buzz::Rope{10000.0}, raw}) {
    takes_what_it_says<float>(rope);
    takes_what_it_says<Eigen::half>(rope);
    takes_what_it_says<std::int8_t>(rope);
  }
}
#endif

}  // namespace
