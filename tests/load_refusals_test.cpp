// What a load refuses, and that the cache is then as it was.

#include <gtest/gtest.h>

#include <functional>

#include "buzz/rope_scaling.h"
#include "oracle_twin.h"
#include "typed.h"

namespace {

using buzz::Rope;
using oracle::bytes_of;
using oracle::Config;
using oracle::Kind;
using oracle::small;
using oracle::Text;

/// The field of the FileError that f() is refused with: all that is refused here is the file's fault.
template <class F>
std::string refused(F&& f) {
  return oracle::refused<buzz::FileError>(f);
}

template <class T, class P>
typed::Cache<T, P> cache_of(const Config& c, const Rope& rope = {}, const buzz::AttentionOptions& attention = {}) {
  return typed::Cache<T, P>(library_shape(c), oracle::library_options<P>(c), rope, attention);
}

template <class C>
void load(C& cache, const std::string& file) {
  std::istringstream in(file);
  cache.load(in);
}

/// Saves after each of some lengths, and goes on from the file as if nothing had happened. `dirty` held something else.
// Damage.

/// 5,000 truncations and 5,000 times one to three flipped bits: all refused, and the cache is as it was and usable.
template <class C>
void refuses_damage(C& cache, const std::string& file, const std::function<std::vector<float>(C&)>& use) {
  const std::string before = bytes_of(cache);
  C twin = cache.fork();
  oracle::Random random(4);
  for (int i = 0; i < 10000; ++i) {
    std::string damaged = file;
    if (i % 2 == 0)
      damaged.resize(static_cast<std::size_t>(random.in(0, static_cast<int>(file.size()) - 1)));
    else
      for (int flips = random.in(1, 3); flips > 0; --flips)
        damaged[static_cast<std::size_t>(random.in(0, static_cast<int>(file.size()) - 1))] ^=
            static_cast<char>(1 << random.in(0, 7));
    if (damaged == file) continue;  // two flips of one bit
    ASSERT_NE(refused([&] { load(cache, damaged); }), "nothing") << i;
    ASSERT_EQ(bytes_of(cache), before) << i;
  }
  EXPECT_EQ(use(cache), use(twin));
  EXPECT_EQ(bytes_of(cache), bytes_of(twin));
  load(cache, file);
  EXPECT_EQ(bytes_of(cache), file) << "and the file was good";
}

TEST(Load, RefusesTenThousandDamagedFiles) {
  auto saved = cache_of<float, typed::Beehive>(small(Kind::beehive), Rope{10000.0}), cache = saved.fork();
  saved.pin(3, 2);
  saved.pin(300, 1);
  while (saved.next_position() < 80) feed(saved, Text(1), 5);
  while (cache.next_position() < 40) feed(cache, Text(2), 5);
  refuses_damage<decltype(cache)>(cache, bytes_of(saved), [](auto& c) { return feed(c, Text(3), 8); });
}

TEST(Load, RefusesEveryFlippedBitOfASmallFile) {
  Config c = small(Kind::beehive);
  c.oracle.kv_heads = c.oracle.query_heads = 1;
  c.oracle.head_dim = 2;
  auto cache = cache_of<float, typed::Beehive>(c);
  feed(cache, Text(), 3);
  cache.pin(1, 1);
  std::string file = bytes_of(cache);
  const std::string before = file;
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    const char mask = static_cast<char>(1 << bit % 8);
    file[bit / 8] ^= mask;
    ASSERT_NE(refused([&] { load(cache, file); }), "nothing") << "bit " << bit;
    file[bit / 8] ^= mask;
  }
  EXPECT_EQ(bytes_of(cache), before);
}

// Files of other caches.

template <class T, class P>
std::string file_of(const Config& c, const Rope& rope = {}, const buzz::AttentionOptions& attention = {}) {
  auto cache = cache_of<T, P>(c, rope, attention);
  feed(cache, Text(), 7);
  return bytes_of(cache);
}

/// What a beehive of floats refuses a file for.
std::string refuses(const std::string& file, const Rope& rope = {}) {
  auto cache = cache_of<float, typed::Beehive>(small(Kind::beehive), rope);
  feed(cache, Text(2), 5);
  const std::string before = bytes_of(cache);
  const std::string field = refused([&] { load(cache, file); });
  EXPECT_TRUE(field == "nothing" || bytes_of(cache) == before);
  return field;
}

/// A beehive's file, whose configuration `change` has changed.
template <class F>
std::string file_with(F&& change) {
  Config c = small(Kind::beehive);
  change(c);
  return file_of<float, typed::Beehive>(c);
}

TEST(Load, NamesWhatIsOtherInShapeAndType) {
  EXPECT_EQ(refuses(file_with([](Config&) {})), "nothing");
  EXPECT_EQ(refuses(file_of<Eigen::half, typed::Beehive>(small(Kind::beehive))), "type");
  EXPECT_EQ(refuses(file_of<Eigen::bfloat16, typed::Beehive>(small(Kind::beehive))), "type");
  EXPECT_EQ(refuses(file_of<std::int8_t, typed::Beehive>(small(Kind::beehive))), "type");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.query_heads = 2; })), "query_heads");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.kv_heads = 4; })), "kv_heads");
  EXPECT_EQ(refuses(file_with([](Config& c) {
              c.oracle.head_dim = 16;
              c.oracle.scale = 0.25;
            })),
            "head_dim");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.max_chunk = 9; })), "max_chunk");
}

TEST(Load, NamesWhatIsOtherInThePolicy) {
  EXPECT_EQ(refuses(file_of<float, typed::Strided>(small(Kind::strided))), "score");
  EXPECT_EQ(refuses(file_of<float, typed::DiverseBeehive>(small(Kind::diverse))), "score");
  EXPECT_EQ(refuses(file_of<float, typed::HeavyHitter>(small(Kind::heavy_hitter))), "select");
  EXPECT_EQ(refuses(file_of<float, typed::Full>(small(Kind::full))), "score");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.sink = 3; })), "sink");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.window = 7; })), "window");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.attention = oracle::AttentionKind::mean; })), "attention");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.threshold = 19; })), "threshold");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.stride = 5; })), "stride");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.keep = 2; })), "keep");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.hive_stride = 3; })), "hive_stride");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.hive = oracle::Hive::heaviest; })), "hive");
  EXPECT_EQ(refuses(file_with([](Config& c) { c.oracle.single_pass = true; })), "passes");
}

template <class P>
std::string refuses_other(Kind kind, const std::function<void(Config&)>& change) {
  Config c = small(kind);
  auto cache = cache_of<float, P>(c);
  change(c);
  const std::string file = file_of<float, P>(c);
  return refused([&] { load(cache, file); });
}

TEST(Load, NamesWhatIsOtherInOtherPolicies) {
  EXPECT_EQ(refuses_other<typed::DiverseBeehive>(Kind::diverse,
                                                 [](Config& c) { c.oracle.unlike = oracle::Unlike::distance; }),
            "unlike");
  EXPECT_EQ(refuses_other<typed::DiverseBeehive>(Kind::diverse, [](Config& c) { c.oracle.mean_over_middle = true; }),
            "mean_over");
  EXPECT_EQ(refuses_other<typed::KeyValueBeehive>(Kind::key_value, [](Config& c) { c.oracle.weight = 2; }), "weight");
  EXPECT_EQ(refuses_other<typed::KeyOutliers>(Kind::key_outliers, [](Config& c) { c.oracle.fade = 1; }), "fade");
  EXPECT_EQ(refuses_other<typed::SnapKv>(Kind::snap_kv, [](Config& c) { c.oracle.queries = 4; }), "queries");
  EXPECT_EQ(refuses_other<typed::SnapKv>(Kind::snap_kv, [](Config& c) { c.oracle.kernel = 5; }), "kernel");
  EXPECT_EQ(refuses_other<typed::SnapKv>(Kind::snap_kv, [](Config& c) { c.oracle.average = true; }), "pooling");
  EXPECT_EQ(
      refuses_other<typed::Tova>(Kind::tova, [](Config& c) { c.oracle.attention = oracle::AttentionKind::latest; }),
      "attention");
  EXPECT_EQ(refuses_other<typed::HeavyHitter>(Kind::heavy_hitter, [](Config& c) { c.oracle.heavy = 11; }), "heavy");
  EXPECT_EQ(refuses_other<typed::HeavyHitter>(Kind::heavy_hitter, [](Config& c) { c.top_threshold = 19; }),
            "threshold");
  EXPECT_EQ(refuses_other<typed::Streaming>(Kind::streaming, [](Config& c) { c.oracle.threshold = 19; }), "threshold");
  EXPECT_EQ(refuses_other<typed::Full>(Kind::full, [](Config& c) { c.calls = {401}; }), "capacity");
}

TEST(Load, NamesWhatIsOtherInRopeAndAttention) {
  const Config c = small(Kind::beehive);
  const auto with = [&](const Rope& rope) { return file_of<float, typed::Beehive>(c, rope); };
  const Rope plain{10000.0};
  EXPECT_EQ(refuses(with(plain), plain), "nothing");
  EXPECT_EQ(refuses(with(plain)), "rope.base");
  EXPECT_EQ(refuses(with(Rope{500000.0}), plain), "rope.base");
  Rope other = plain;
  other.dims = 4;
  EXPECT_EQ(refuses(with(other), plain), "rope.dims");
  Rope end = other;
  end.first = 4;
  EXPECT_EQ(refuses(with(other), end), "rope.first");
  EXPECT_EQ(refuses(with(end), other), "rope.first");
  other = plain;
  other.pairs = buzz::Pairs::halves;
  EXPECT_EQ(refuses(with(other), plain), "rope.pairs");
  other = plain;
  other.positions = buzz::Positions::compact;
  EXPECT_EQ(refuses(with(other), plain), "rope.positions");
  other.keys = buzz::KeyStorage::raw;
  EXPECT_EQ(refuses(with(other), plain), "raw_keys");
  other = plain;
  other.attention_factor = 1.5;
  EXPECT_EQ(refuses(with(other), plain), "rope.attention_factor");
  EXPECT_EQ(refuses(with(buzz::rope_scaling::linear(plain, 8, 2)), plain), "rope.frequencies");
  buzz::AttentionOptions attention;
  attention.scale = 0.5;
  EXPECT_EQ(refuses(file_of<float, typed::Beehive>(c, {}, attention)), "scale");
  attention = {};
  attention.log_base = 512;
  EXPECT_EQ(refuses(file_of<float, typed::Beehive>(c, {}, attention)), "log_base");
}

TEST(Load, RefusesAnotherVersionAndAnotherKindOfFile) {
  std::string file = file_with([](Config&) {});
  file[4] = static_cast<char>(buzz::archive_version + 1);
  EXPECT_EQ(refuses(file), "version");
  EXPECT_EQ(refuses("GGUF" + file.substr(4)), "magic");
  EXPECT_EQ(refuses(""), "stream");
}

// Files that are whole but say what cannot be: state is checked even where the checksum is right.

/// Where a beehive's file without Rope has the numbers of its state, in bytes; may change with archive_version alone.
constexpr std::size_t kRows = 4 + 8 * 33, kHive = kRows + 8, kNext = kHive + 8, kPositions = kNext + 8;

std::string signed_again(std::string file) {
  buzz::Checksum sum;
  sum.add(reinterpret_cast<const unsigned char*>(file.data()), file.size() - 8);
  const std::uint64_t value = sum.value();
  for (std::size_t i = 0; i < 8; ++i) file[file.size() - 8 + i] = static_cast<char>(value >> 8 * i);
  return file;
}
std::string with_number(std::string file, std::size_t at, std::int64_t value) {
  for (std::size_t i = 0; i < 8; ++i) file[at + i] = static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * i);
  return signed_again(file);
}
std::int64_t number_in(const std::string& file, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{static_cast<unsigned char>(file[at + i])} << 8 * i;
  return static_cast<std::int64_t>(value);
}

/// A beehive's file past evictions: 2 + hive + 6 rows and more, next position 100.
std::string evicted_file(int pinned = -1) {
  auto cache = cache_of<float, typed::Beehive>(small(Kind::beehive));
  while (cache.next_position() < 100) feed(cache, Text(), 5);
  if (pinned >= 0) cache.pin(pinned, 1);
  return bytes_of(cache);
}

TEST(Load, RefusesNumbersThatCannotBe) {
  const std::string file = evicted_file();
  ASSERT_EQ(refuses(signed_again(file)), "nothing");
  ASSERT_EQ(number_in(file, kNext), 100) << "the places are right";
  const std::int64_t rows = number_in(file, kRows), hive = number_in(file, kHive);
  ASSERT_GT(hive, 0);
  for (std::int64_t bad : {std::int64_t{-1}, std::int64_t{2 + 6 + 18 + 8 + 1}, std::int64_t{1} << 40})
    EXPECT_EQ(refuses(with_number(file, kRows, bad)), "rows") << bad;
  for (std::int64_t bad : {std::int64_t{-1}, rows - 1, rows, std::int64_t{1} << 40})
    EXPECT_EQ(refuses(with_number(file, kHive, bad)), "hive") << bad;
  EXPECT_EQ(refuses(with_number(file, kHive, rows - 2 - 6 + 1)), "hive") << "it would reach into the window";
  for (std::int64_t bad : {std::int64_t{-1}, rows - 1, std::int64_t{1} << 31})
    EXPECT_EQ(refuses(with_number(file, kNext, bad)), "next_position") << bad;
}

TEST(Load, RefusesPositionsThatCannotBe) {
  const std::string file = evicted_file();
  std::string changed = file;
  std::swap(changed[kPositions + 4 * 3], changed[kPositions + 4 * 4]);
  EXPECT_EQ(refuses(signed_again(changed)), "positions") << "they ascend";
  changed = file;
  changed[kPositions + 4 * static_cast<std::size_t>(number_in(file, kRows) - 1)] = 101;
  EXPECT_EQ(refuses(signed_again(changed)), "positions") << "and none is to come";
  changed = file;
  changed[kPositions + 3] = static_cast<char>(-1);
  EXPECT_EQ(refuses(signed_again(changed)), "positions");
}

/// The pins come after positions and scores of all heads: a count, then first and count of each range.
std::size_t pins_at(const std::string& file) {
  return kPositions + 2 * 12 * static_cast<std::size_t>(number_in(file, kRows));
}

TEST(Load, RefusesPinsThatCannotBe) {
  const std::string file = evicted_file(97);
  const std::size_t at = pins_at(file);
  ASSERT_EQ(number_in(file, at), 1);
  ASSERT_EQ(number_in(file, at + 8), 97);
  EXPECT_EQ(refuses(with_number(file, at, -1)), "pins");
  EXPECT_EQ(refuses(with_number(file, at + 8, -1)), "pin.first");
  EXPECT_EQ(refuses(with_number(file, at + 16, 0)), "pin.count");
  EXPECT_EQ(refuses(with_number(file, at + 16, std::int64_t{1} << 31)), "pin.count");
  EXPECT_EQ(refuses(with_number(file, at + 16, 18)), "pinned rows") << "more than there is room for";
  EXPECT_EQ(refuses(with_number(file, at + 16, 17)), "nothing") << "as many as there is";
  EXPECT_NE(refuses(with_number(file, at, std::int64_t{1} << 29)), "nothing");
}

TEST(Load, RefusesPinsOfRowsThatAreGone) {
  auto cache = cache_of<float, typed::Beehive>(small(Kind::beehive));
  while (cache.next_position() < 100) feed(cache, Text(), 5);
  const auto p = cache.positions(0);
  int gone = 2;
  while (std::binary_search(p.begin(), p.end(), gone)) ++gone;
  const std::string file = evicted_file(97);
  EXPECT_EQ(refuses(with_number(file, pins_at(file) + 8, gone)), "pin");
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

TEST(LoadOfAModel, RefusesTenThousandDamagedFiles) {
  Model saved = model_of(2), model = model_of(2);
  for (int i = 0; i < 10; ++i) feed_all(saved, Text(2), 8);
  feed_all(model, Text(1), 8);
  refuses_damage<Model>(model, bytes_of(saved), [](Model& m) { return feed_all(m, Text(3), 8); });
}

TEST(LoadOfAModel, IsNotThatOfACache) {
  Model model = model_of(1);
  EXPECT_NE(refused([&] { load(model, bytes_of(model.layer(0))); }), "nothing");
  EXPECT_NE(refused([&] { load(model.layer(0), bytes_of(model)); }), "nothing");
}

}  // namespace
