// Rotary positions through evictions: keys stay where they belong, queries and keys agree, in both modes.

#include <gtest/gtest.h>

#include <map>

#include "buzz/rope_scaling.h"
#include "oracle_twin.h"

namespace {

using buzz::KeyStorage;
using buzz::Pairs;
using buzz::Positions;
using buzz::Rope;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::refused;
using oracle::small;
using oracle::Twin;

constexpr int kDim = 16;

Config wide(Kind kind, std::uint64_t seed = 1) {
  Config c = small(kind, seed);
  c.oracle.head_dim = kDim;
  c.oracle.scale = 0.25;
  return c;
}

/// A base, and every scaling of it.
std::map<std::string, Rope> ropes(double base) {
  namespace scaling = buzz::rope_scaling;
  std::map<std::string, Rope> all;
  all["plain"] = Rope{base};
  all["linear"] = scaling::linear(Rope{base}, kDim, 4);
  all["ntk"] = scaling::ntk(Rope{base}, kDim, 4);
  all["llama3"] = scaling::llama3(Rope{base}, kDim, 8, 1, 4, 64);
  all["yarn"] = scaling::yarn(Rope{base}, kDim, 4, 64, 32, 1);
  all["table"].frequencies = {3, 1, 0.7, 0.1, 0, -0.2, 1e-3, 1e-6};
  all["partial"] = Rope{base};
  all["partial"].dims = 6;
  all["end"] = Rope{base};
  all["end"].first = 4;
  all["middle"] = Rope{base};
  all["middle"].first = 3;
  all["middle"].dims = 2;
  return all;
}

Rope compact(Rope rope, KeyStorage keys = KeyStorage::automatic) {
  rope.positions = Positions::compact;
  rope.keys = keys;
  return rope;
}

/// Follows the rows of a cache, and says how often each has moved.
class Moves {
 public:
  /// positions: of all rows, now.
  void update(buzz::Span<const std::int32_t> positions) {
    std::vector<Row> now;
    std::size_t was = 0;
    for (int i = 0; i < positions.size; ++i) {
      while (was < rows_.size() && rows_[was].position < positions[i]) ++was;
      const bool known = was < rows_.size() && rows_[was].position == positions[i];
      now.push_back({positions[i], known ? rows_[was].moves + (static_cast<int>(was) != i) : 0});
      most_ = std::max(most_, now.back().moves);
    }
    rows_ = now;
  }
  int of(int row) const { return rows_[static_cast<std::size_t>(row)].moves; }
  int most() const { return most_; }

 private:
  struct Row {
    int position, moves;
  };
  std::vector<Row> rows_;
  int most_ = 0;
};

/// A call but for its eviction.
void append_attend_and_observe(oracle::AnyCache& cache, const oracle::Text& text, int n) {
  append_and_attend(cache, n, text);
  cache.observe();
}

/// 1,000 evictions, and after every third all keys against new rotations of the raw ones. Returns the most moves of a
/// row.
int does_not_drift(Element element, const Rope& rope, double most_allowed) {
  Config c = wide(Kind::beehive);
  c.oracle.kv_heads = c.oracle.query_heads = 1;
  c.oracle.stride = 2;
  const CachePtr cache = make_cache(element, c, rope);
  const oracle::Text text;
  const oracle::Rotation rotation = oracle::rotation_of(rope, kDim, false);
  Moves moves;
  for (int evictions = 0; evictions < 1000;) {
    append_attend_and_observe(*cache, text, c.max_chunk);
    moves.update(cache->positions(0));  // a row of this call may move at its end
    if (!cache->evict()) continue;
    moves.update(cache->positions(0));
    if (++evictions % 3 != 1) continue;  // a row lives longer than that
    const oracle::AnyCache::Rows keys = cache->keys(0);
    for (int i = 0; i < cache->rows(); ++i) {
      const int position = cache->positions(0)[i], m = moves.of(i);
      const std::vector<float> raw = text.keys(position, 1, 1, kDim);
      const oracle::Vector exact = rotated_to(oracle::Vector(raw.begin(), raw.end()), i, rotation);
      const double norm = std::sqrt(oracle::dot(exact, exact)),
                   error = oracle::apart(keys[static_cast<std::size_t>(i)].values, exact);
      EXPECT_LE(error, oracle::key_bound(element, m, kDim) * norm + oracle::key_bound_small(element, m, kDim)) << m;
      EXPECT_LE(error, most_allowed * norm);
      if (error > most_allowed * norm) return moves.most();
    }
  }
  return moves.most();
}

void does_not_drift_on_any_rope(Element element) {
  // In float 1e-5, in the others their bound for the five moves that there are.
  const double most = element == Element::float32 ? 1e-5 : oracle::key_bound(element, 5, kDim) + 1e-6;
  bool halves = false;
  for (double base : {10000.0, 500000.0, 1000000.0}) {
    for (const auto& [name, plain] : ropes(base)) {
      Rope rope = plain;
      rope.pairs = halves ? Pairs::halves : Pairs::interleaved;
      halves = !halves;  // seven ropes a base: each has both
      SCOPED_TRACE(name + " base " + std::to_string(base));
      EXPECT_EQ(does_not_drift(element, compact(rope), most), 5);
    }
  }
}

TEST(CompactPositions, DoNotDriftInFloat) { does_not_drift_on_any_rope(Element::float32); }
TEST(CompactPositions, DoNotDriftInHalf) { does_not_drift_on_any_rope(Element::half); }
TEST(CompactPositions, DoNotDriftInBfloat16) { does_not_drift_on_any_rope(Element::bfloat16); }
TEST(CompactPositions, DoNotDriftInInt8) { does_not_drift_on_any_rope(Element::int8); }

/// The most that a row moves in `tokens` tokens of random scores, one a call.
int most_moves(const typed::Options& o, int tokens) {
  typed::Beehive policy(o, 1);
  Moves moves;
  oracle::Random random(7);
  std::vector<float> sums;
  for (int t = 0; t < tokens; ++t) {
    policy.append(1);
    sums.resize(static_cast<std::size_t>(policy.rows()));
    for (float& x : sums) x = random.real() + 1;
    policy.observe_sums(buzz::view(sums, 1, 1, policy.rows()));
    if (!policy.should_evict()) continue;
    moves.update(policy.positions(0));
    policy.select();
    moves.update(policy.positions(0));
  }
  return moves.most();
}

/// What a row can move, one token a call. It moves at most once an eviction: at each that happens while it is in the
/// window, once into the hive, and then each time that its place in the hive, at most `hive`, shrinks by hive_stride
/// (`keep` more where the best of wider chunks stay). Evictions are at least `every` tokens apart.
double may_move(const typed::Options& o) {
  const int hive_stride = o.hive_stride != 0 ? o.hive_stride : buzz::default_hive_stride(o.stride);
  int hive = 0, every = o.threshold + 1;
  for (int i = 0; i < 200; ++i) {  // until it is steady
    const int unfiltered = o.threshold + 1 - hive;
    int kept = o.hive == buzz::HiveRule::together
                   ? buzz::chunks(hive + unfiltered, o.stride)
                   : buzz::chunks(hive, hive_stride) + buzz::chunks(unfiltered, o.stride);
    while (kept > o.threshold) kept = buzz::chunks(kept, o.hive == buzz::HiveRule::together ? o.stride : hive_stride);
    hive = kept;
    every = std::min(every, o.threshold + 1 - hive);
  }
  const int shrinks_by = o.hive == buzz::HiveRule::together ? o.stride : hive_stride;
  return std::ceil(static_cast<double>(o.window) / every) + 1 +
         std::floor(std::log(std::max(2, hive)) / std::log(shrinks_by)) + 1 + (o.keep - 1);
}

TEST(CompactPositions, ARowMovesAsOftenAsIsStated) {
  for (auto hive : {buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together})
    for (int window : {0, 1, 16, 160})
      for (int threshold : {4, 30, 400})
        for (int stride : {2, 3, 5})
          for (int keep : {1, 3}) {
            typed::Options o;
            o.window = window;
            o.threshold = threshold;
            o.stride = stride;
            o.keep = keep;
            o.hive = hive;
            const int most = most_moves(o, 6 * (threshold + window) + 200);
            EXPECT_LE(most, may_move(o)) << "window " << window << " threshold " << threshold << " stride " << stride
                                         << " keep " << keep << " hive " << static_cast<int>(hive);
          }
}

TEST(CompactPositions, ARowOfThePapersOptionsMovesFiveTimes) {
  const typed::Options paper;
  EXPECT_EQ(most_moves(paper, 20000), 5);
  EXPECT_LE(may_move(paper), std::log2(paper.threshold) + 2);
}

TEST(CompactPositions, ARowOfAWideWindowMovesAtEveryEviction) {
  // log2(threshold) + 2 holds where an eviction frees more rows than the window has; here it frees four of 160.
  typed::Options o;
  o.threshold = 8;
  o.stride = 2;
  EXPECT_GT(most_moves(o, 2000), 160 / 5);
  EXPECT_GT(160 / 5, std::log2(o.threshold) + 2);
}

/// Keys, positions, scores and attention output are the oracle's, through `tokens` tokens in calls of any size.
void agrees(Kind kind, const Rope& rope, int tokens, int evictions, Element element = Element::float32) {
  Twin twin(element, wide(kind), rope);
  oracle::Random random(5);
  while (twin.cache().next_position() < tokens) ASSERT_NO_THROW(twin.call(random.one_in(2) ? 1 : random.in(2, 8)));
  EXPECT_GE(twin.evictions(), evictions);
}

TEST(QueriesAndKeys, AgreeOnEveryRopeInBothModes) {
  for (double base : {10000.0, 500000.0, 1000000.0})
    for (const auto& [name, plain] : ropes(base))
      for (Pairs pairs : {Pairs::interleaved, Pairs::halves}) {
        SCOPED_TRACE(name + " base " + std::to_string(base));
        Rope rope = plain;
        rope.pairs = pairs;
        agrees(Kind::beehive, rope, 150, 8);
        agrees(Kind::beehive, compact(rope), 150, 8);
        agrees(Kind::beehive, compact(rope, KeyStorage::raw), 150, 8);
      }
}

TEST(QueriesAndKeys, AgreeInHalfAndBfloat16) {
  for (const auto& [name, rope] : ropes(500000)) {
    SCOPED_TRACE(name);
    for (Element element : {Element::half, Element::bfloat16})
      for (const Rope& mode : {rope, compact(rope), compact(rope, KeyStorage::raw)})
        agrees(Kind::beehive, mode, 150, 8, element);
  }
}

TEST(QueriesAndKeys, AgreeInEveryPolicy) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    const Rope yarn = buzz::rope_scaling::yarn(Rope{10000.0}, kDim, 4, 64);
    const int evictions = kind == Kind::full ? 0 : 8;
    agrees(kind, yarn, 200, evictions);
    agrees(kind, compact(yarn), 200, evictions);
  });
}

TEST(QueriesAndKeys, AgreeWhereACallEvictsAsManyRowsAsItBrings) {
  // Eight rows of hive and eight unfiltered ones leave eight: the next call is at the places of the last.
  Config c = wide(Kind::beehive);
  c.oracle.threshold = 10;
  c.oracle.stride = 2;
  Twin twin(c, compact(Rope{10000.0}));
  for (int i = 0; i < 20; ++i) ASSERT_NO_THROW(twin.call(8));
  EXPECT_EQ(twin.cache().regions(), (buzz::Regions{2, 8, 0, 6}));
  EXPECT_GT(twin.evictions(), 15);
}

TEST(LogicalPositions, AreAsExactAtTheMillionthToken) {
  Config c = wide(Kind::strided);
  c.max_chunk = 512;
  c.oracle.kv_heads = c.oracle.query_heads = 1;
  const CachePtr cache = make_cache(Element::float32, c, Rope{500000.0});
  const oracle::Text text;
  const std::vector<float> filler(512 * kDim, 0.5f);
  while (cache->next_position() < 1000000 - 512) {
    cache->append(buzz::view(filler, 512, 1, kDim), buzz::view(filler, 512, 1, kDim));
    cache->evict();
  }
  const int first = cache->next_position();
  for (int i = 0; i < 40; ++i) feed(*cache, text, 1);
  const std::vector<float> out = feed(*cache, text, 1);
  // The same again, in double, from what was given.
  const oracle::Rotation rotation = oracle::rotation_of(Rope{500000.0}, kDim, false);
  const int now = cache->next_position() - 1;
  const auto given = [&](std::vector<float> x) { return oracle::Vector(x.begin(), x.end()); };
  const oracle::Vector q = rotated_to(given(text.queries(now, 1, 1, kDim)), now, rotation);
  ASSERT_EQ(cache->positions(0)[cache->rows() - 1], now);
  double total = 0;
  oracle::Vector expected(kDim);
  for (std::int32_t p : cache->positions(0)) {
    const bool mine = p >= first;
    const oracle::Vector key =
        rotated_to(given(mine ? text.keys(p, 1, 1, kDim) : std::vector<float>(kDim, 0.5f)), p, rotation);
    const oracle::Vector value = given(mine ? text.values(p, 1, 1, kDim) : std::vector<float>(kDim, 0.5f));
    const double weight = std::exp(oracle::dot(q, key) * 0.25);
    total += weight;
    for (std::size_t d = 0; d < value.size(); ++d) expected[d] += weight * value[d];
  }
  for (std::size_t d = 0; d < expected.size(); ++d) EXPECT_NEAR(out[d], expected[d] / total, 1e-5);
}

TEST(RawKeys, GiveTheSameAttentionAsRotatedOnes) {
  for (const auto& [name, rope] : ropes(10000)) {
    SCOPED_TRACE(name);
    const Config c = wide(Kind::strided);  // the same rows, whatever the scores' last bits
    const CachePtr raw = make_cache(Element::float32, c, compact(rope, KeyStorage::raw));
    const CachePtr rotated = make_cache(Element::float32, c, compact(rope, KeyStorage::rotated));
    ASSERT_TRUE(raw->has_raw_keys());
    ASSERT_FALSE(rotated->has_raw_keys());
    const oracle::Text text;
    for (int turn = 0; turn < 100; ++turn) {
      const std::vector<float> a = feed(*raw, text, 1 + turn % 8), b = feed(*rotated, text, 1 + turn % 8);
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5);
    }
    const oracle::AnyCache::Rows keys = raw->keys(0);
    for (int i = 0; i < raw->rows(); ++i) {
      const std::vector<float> given = text.keys(raw->positions(0)[i], 1, c.oracle.kv_heads, kDim);
      ASSERT_EQ(keys[static_cast<std::size_t>(i)].values, oracle::Vector(given.begin(), given.begin() + kDim))
          << "as they came";
    }
  }
}

bool stores_raw(const Rope& rope, const Config& c) { return make_cache(Element::float32, c, rope)->has_raw_keys(); }

TEST(KeyStorage, IsRawWherePoliciesMoveRowsWithoutEnd) {
  oracle::with_every_kind([](Kind kind) {
    const Config c = wide(kind);
    const bool without_end = kind == Kind::streaming || takes_top_k(kind);
    const Rope rope{10000.0};
    EXPECT_FALSE(stores_raw(rope, c));
    EXPECT_EQ(stores_raw(compact(rope), c), without_end);
    EXPECT_TRUE(stores_raw(compact(rope, KeyStorage::raw), c));
    EXPECT_EQ(refused([&] { stores_raw(compact(rope, KeyStorage::rotated), c); }),
              without_end ? "rope.keys" : "nothing");
    Rope logical = rope;
    logical.keys = KeyStorage::raw;
    EXPECT_EQ(refused([&] { stores_raw(logical, c); }), "rope.keys") << "a logical position never moves";
    logical.keys = KeyStorage::rotated;
    EXPECT_FALSE(stores_raw(logical, c));
  });
}

TEST(CanCompact, SaysWhereTheCacheRotatesByOnePosition) {
  EXPECT_TRUE(Rope{10000.0}.can_compact());
  EXPECT_FALSE(Rope{}.can_compact()) << "keys come rotated by the engine";
  Rope m_rope;
  m_rope.multi_axis = true;
  EXPECT_FALSE(m_rope.can_compact());
}

TEST(MultiAxisRope, IsTheEngines) {
  Rope rope;
  rope.multi_axis = true;
  Twin twin(wide(Kind::beehive), rope);
  while (twin.cache().next_position() < 150) ASSERT_NO_THROW(twin.call(5)) << "logical, and not rotated here";
  EXPECT_EQ(refused([&] { buzz::Rotation(compact(rope), kDim); }), "rope.positions");
  rope.base = 10000;
  EXPECT_EQ(refused([&] { buzz::Rotation(rope, kDim); }), "rope.base") << "the cache knows one position a token";
  rope.base = 0;
  rope.frequencies.resize(kDim / 2);
  EXPECT_EQ(refused([&] { buzz::Rotation(rope, kDim); }), "rope.base");
}

TEST(MaxPosition, IsWhereLogicalPositionsEnd) {
  Rope rope{10000.0};
  rope.max_position = 100;
  Twin twin(wide(Kind::beehive), rope);
  while (twin.cache().next_position() < 96) twin.call(4);
  const std::string before = bytes_of(twin.cache());
  EXPECT_EQ(refused<buzz::CacheFull>([&] { feed(twin.cache(), oracle::Text(), 5); }), "position");
  EXPECT_EQ(bytes_of(twin.cache()), before);
  twin.call(4);
  EXPECT_EQ(refused<buzz::CacheFull>([&] { feed(twin.cache(), oracle::Text(), 1); }), "position");
}

TEST(MaxPosition, IsNeverReachedByCompactOnes) {
  const Config c = wide(Kind::beehive);
  Rope rope = compact(Rope{10000.0});
  rope.max_position = oracle::most_rows(c);
  Twin twin(c, rope);
  while (twin.cache().next_position() < 300) ASSERT_NO_THROW(twin.call(7));
  EXPECT_LE(twin.cache().next_rotary_position(), rope.max_position);
  --rope.max_position;
  EXPECT_EQ(refused([&] { make_cache(Element::float32, c, rope); }), "capacity");
}

TEST(NextRotaryPosition, IsTheTokensOrThePlace) {
  const Config c = wide(Kind::beehive);
  Twin logical(c, Rope{10000.0}), compacted(c, compact(Rope{10000.0}));
  for (int turn = 0; turn < 40; ++turn) {
    logical.call(3);
    compacted.call(3);
    EXPECT_EQ(logical.cache().next_rotary_position(), 3 * (turn + 1));
    EXPECT_EQ(compacted.cache().next_rotary_position(), compacted.cache().rows());
    EXPECT_EQ(compacted.cache().next_position(), 3 * (turn + 1)) << "the token's index is not lost";
  }
}

}  // namespace
