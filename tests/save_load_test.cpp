#include <gtest/gtest.h>

#include "buzz/rope_scaling.h"
#include "oracle_twin.h"
#include "typed.h"

namespace {

using buzz::Rope;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Text;

CachePtr small_beehive() { return make_cache(Element::float32, small(Kind::beehive)); }

Rope compact() {
  Rope rope = buzz::rope_scaling::yarn(Rope{10000.0}, 8, 4, 64);
  rope.positions = buzz::Positions::compact;
  return rope;
}

template <class C>
void load(C& cache, const std::string& file) {
  std::istringstream in(file);
  cache.load(in);
}

/// Saves after each of some lengths, and goes on from the file as if nothing had happened. `dirty` held something else.
void goes_on(const Config& c, const Rope& rope, Element element = Element::float32) {
  const Text text(c.seed);
  for (int tokens : {0, 5, 26, 27, 60, 150}) {  // 27 is the first that evicts
    SCOPED_TRACE("saved after " + std::to_string(tokens));
    const CachePtr original = make_cache(element, c, rope), loaded = make_cache(element, c, rope);
    const CachePtr dirty = make_cache(element, c, rope);
    while (dirty->next_position() < 90) feed(*dirty, Text(9), 5);
    dirty->pin(88, 1);
    original->pin(1, 4);  // and far ahead, where there is room for it
    while (original->next_position() < tokens) feed(*original, text, 1);
    original->pin(200, 2);
    const std::string file = bytes_of(*original);
    load(*loaded, file);
    load(*dirty, file);
    ASSERT_EQ(bytes_of(*loaded), file);
    ASSERT_EQ(bytes_of(*dirty), file);
    const CachePtr fork = loaded->fork();
    for (int turn = 0; original->next_position() < tokens + 80; ++turn) {
      const int n = 1 + turn % 5;
      const std::vector<float> expected = feed(*original, text, n);
      ASSERT_EQ(feed(*loaded, text, n), expected);
      ASSERT_EQ(feed(*dirty, text, n), expected);
      ASSERT_EQ(feed(*fork, text, n), expected);
      ASSERT_EQ(bytes_of(*loaded), bytes_of(*original));
      ASSERT_EQ(bytes_of(*dirty), bytes_of(*original));
      ASSERT_EQ(bytes_of(*fork), bytes_of(*original));
    }
  }
}

TEST(Load, GoesOnBitForBitInEveryPolicyAndMode) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    for (const Rope& rope : {Rope{}, Rope{10000.0}, compact()}) goes_on(small(kind), rope);
  });
}

TEST(Load, GoesOnBitForBitInEveryType) {
  for (const Rope& rope : {Rope{10000.0}, compact()}) {
    goes_on(small(Kind::beehive), rope, Element::half);
    goes_on(small(Kind::heavy_hitter), rope, Element::bfloat16);
    goes_on(small(Kind::beehive), rope, Element::int8);
  }
}

TEST(Load, BringsBackWhatIsNotFinite) {
  const CachePtr cache = small_beehive(), loaded = cache->fork();
  const std::vector<float> nan(16, std::numeric_limits<float>::quiet_NaN());
  cache->append(buzz::view(nan, 1, 2, 8), buzz::view(nan, 1, 2, 8));
  load(*loaded, bytes_of(*cache));
  EXPECT_EQ(bytes_of(*loaded), bytes_of(*cache));
}

TEST(Load, TakesCachesThatFollowEachOtherInAStream) {
  const CachePtr one = small_beehive(), two = small_beehive();
  while (one->next_position() < 50) feed(*one, Text(1), 5);
  while (two->next_position() < 70) feed(*two, Text(2), 7);
  std::stringstream stream;
  one->save(stream);
  two->save(stream);
  const CachePtr first = small_beehive(), second = small_beehive();
  first->load(stream);
  second->load(stream);
  EXPECT_EQ(bytes_of(*first), bytes_of(*one));
  EXPECT_EQ(bytes_of(*second), bytes_of(*two));
}

TEST(Load, IsOfNoMatterToTheForksOfACache) {
  const CachePtr cache = small_beehive();
  const std::string empty = bytes_of(*cache);
  while (cache->next_position() < 50) feed(*cache, Text(1), 5);
  const CachePtr fork = cache->fork();
  const std::string before = bytes_of(*fork);
  load(*cache, empty);
  EXPECT_EQ(cache->rows(), 0);
  EXPECT_EQ(bytes_of(*fork), before);
}

TEST(Load, LeavesThreadsAndRollbackToTheCache) {
  const CachePtr cache = small_beehive();
  while (cache->next_position() < 50) feed(*cache, Text(), 5);
  buzz::AttentionOptions attention;
  attention.threads = 2;
  const CachePtr other = make_cache(Element::float32, small(Kind::beehive), {}, 4, attention);
  load(*other, bytes_of(*cache));
  EXPECT_EQ(bytes_of(*other), bytes_of(*cache));
  feed(*other, Text(), 2);
  EXPECT_TRUE(other->can_rollback(2));
}

TEST(Save, SaysThatAStreamRefuses) {
  const CachePtr cache = small_beehive();
  std::ostringstream out;
  out.setstate(std::ios::failbit);
  EXPECT_EQ(refused([&] { cache->save(out); }), "stream");
}

// All layers of a model.

using Model = typed::Model<float>;

Model model_of(int layers, int last_threshold = 18) {
  Config c = small(Kind::beehive);
  std::vector<typed::Options> options(static_cast<std::size_t>(layers), oracle::library_options<typed::Beehive>(c));
  options.back().threshold = last_threshold;
  return Model(library_shape(c), options, Rope{10000.0});
}
std::vector<float> feed_all(Model& model, const Text& text, int n) {
  std::vector<float> all;
  for (int i = 0; i < model.layers(); ++i)
    for (float x : feed(model.layer(i), text, n)) all.push_back(x);
  return all;
}

TEST(LoadOfAModel, GoesOnBitForBit) {
  for (int tokens : {0, 10, 100}) {
    Model original = model_of(3, 25), loaded = model_of(3, 25);
    original.pin(2, 3);
    feed_all(loaded, Text(9), 8);
    while (original.layer(0).next_position() < tokens) feed_all(original, Text(), 5);
    load(loaded, bytes_of(original));
    for (int i = 0; i < 30; ++i) ASSERT_EQ(feed_all(loaded, Text(), 4), feed_all(original, Text(), 4));
    EXPECT_EQ(bytes_of(loaded), bytes_of(original));
  }
}

TEST(LoadOfAModel, IsAllLayersOrNone) {
  Model model = model_of(3), saved = model_of(3);
  feed_all(model, Text(1), 8);
  for (int i = 0; i < 10; ++i) feed_all(saved, Text(2), 8);
  const std::string before = bytes_of(model), file = bytes_of(saved);
  for (std::size_t size = 0; size < file.size(); size += 61) {
    ASSERT_EQ(refused([&] { load(model, file.substr(0, size)); }), "stream");
    ASSERT_EQ(bytes_of(model), before);
  }
  EXPECT_EQ(refused([&] { load(model, bytes_of(model_of(3, 19))); }), "layer[2].threshold");
  EXPECT_EQ(refused([&] { load(model, bytes_of(model_of(2))); }), "layers");
  EXPECT_EQ(bytes_of(model), before);
  load(model, file);
  EXPECT_EQ(bytes_of(model), file);
}

}  // namespace
