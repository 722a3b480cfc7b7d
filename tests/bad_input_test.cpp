// What is refused: the exception's type, its text (field, value, allowed range), and that nothing has changed after it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "buzz.h"
#include "call.h"
#include "typed.h"

namespace {

using buzz::AttentionOptions;
template <class T, class P = typed::Beehive>
using BuzzCache = typed::Cache<T, P>;
using buzz::HiveRule;
using buzz::Passes;
using buzz::Positions;
using buzz::Rope;
using buzz::Shape;
using buzz::View;
using Values = std::vector<float>;
using Cache = BuzzCache<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kMost = std::numeric_limits<int>::max();

/// f() has to be refused with that family's error about `field`, its text naming the value and what is allowed.
template <class Family = buzz::InvalidArgument>
void expect_refused(Call f, std::string_view field, std::string_view value, std::string_view allowed) {
  try {
    f();
    ADD_FAILURE() << field << " = " << value << " was not refused";
  } catch (const Family& e) {
    const std::string text = e.what(),
                      start = "buzz: " + std::string(field) + " = " + std::string(value) + ", allowed: ";
    EXPECT_EQ(e.field(), field) << text;
    EXPECT_EQ(text.substr(0, start.size()), start);
    EXPECT_NE(text.find(allowed, std::min(start.size(), text.size())), std::string::npos)
        << text << "\ndoes not say: " << allowed;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another type of exception: " << e.what();
  }
}

// ---- Options and shapes: the constructor refuses.

template <class P>
void expect_refused_options(CallWith<typename P::Options&> change, std::string_view field, std::string_view value,
                            std::string_view allowed) {
  typename P::Options o;
  change(o);
  expect_refused([&] { P policy(o, 1); }, field, value, allowed);
  expect_refused([&] { BuzzCache<float, P> cache(Shape{}, o); }, field, value, allowed);
}

TEST(BadOptions, NegativeSink) {
  expect_refused_options<typed::Beehive>([](auto& o) { o.sink = -1; }, "sink", "-1", ">= 0");
  expect_refused_options<typed::Streaming>([](auto& o) { o.sink = -7; }, "sink", "-7", ">= 0");
  expect_refused_options<typed::HeavyHitter>([](auto& o) { o.sink = -1; }, "sink", "-1", ">= 0");
}

TEST(BadOptions, NegativeWindow) {
  expect_refused_options<typed::Beehive>([](auto& o) { o.window = -1; }, "window", "-1", ">= 0");
  expect_refused_options<typed::Streaming>([](auto& o) { o.window = -1; }, "window", "-1", ">= 0");
}

TEST(BadOptions, ThresholdBelowOne) {
  expect_refused_options<typed::Beehive>([](auto& o) { o.threshold = 0; }, "threshold", "0", ">= 1");
  expect_refused_options<typed::Beehive>([](auto& o) { o.threshold = -400; }, "threshold", "-400", ">= 1");
  expect_refused_options<typed::Streaming>([](auto& o) { o.threshold = -1; }, "threshold", "-1", ">= 0");
}

TEST(BadOptions, StrideBelowOne) {
  expect_refused_options<typed::Beehive>([](auto& o) { o.stride = 0; }, "stride", "0", ">= 1");
  expect_refused_options<typed::Beehive>([](auto& o) { o.stride = -5; }, "stride", "-5", ">= 1");
}

TEST(BadOptions, StrideThatCanNeverShrink) {
  const auto together = [](typed::Options& o) {
    o.stride = 1;
    o.hive = HiveRule::together;
  };
  expect_refused_options<typed::Beehive>(together, "stride", "1", ">= 2");
  const auto single = [](typed::Options& o) {
    o.stride = 1;
    o.passes = Passes::single;
  };
  expect_refused_options<typed::Beehive>(single, "stride", "1", ">= 2");
}

TEST(BadOptions, HiveStrideThatCanNeverShrink) {
  expect_refused_options<typed::Beehive>([](auto& o) { o.hive_stride = 1; }, "hive_stride", "1", ">= 2");
  expect_refused_options<typed::Beehive>([](auto& o) { o.hive_stride = -1; }, "hive_stride", "-1", ">= 2");
}

TEST(BadOptions, HiveStrideThatWouldNotBeHonoured) {
  const auto together = [](typed::Options& o) {
    o.hive = HiveRule::together;
    o.hive_stride = 3;
  };
  expect_refused_options<typed::Beehive>(together, "hive_stride", "3", "0");
}

TEST(BadOptions, KeepBelowOne) {
  expect_refused_options<typed::Beehive>([](auto& o) { o.keep = 0; }, "keep", "0", ">= 1");
}

TEST(BadOptions, ChunksThatAreNone) {
  const auto chunk = [](int keep, int rows, HiveRule hive, Passes passes, int threshold = 400) {
    return [=](auto& o) {
      o.stride = 0;
      o.keep = keep;
      o.chunk = rows;
      o.hive = hive;
      o.passes = passes;
      o.threshold = threshold;
    };
  };
  expect_refused_options<typed::Beehive>([](auto& o) { o.chunk = 8; }, "stride", "5", "0");
  expect_refused_options<typed::Beehive>(chunk(4, 3, HiveRule::first, Passes::until_bounded), "chunk", "3", ">= 4");
  expect_refused_options<typed::Beehive>(chunk(1, -1, HiveRule::first, Passes::until_bounded), "chunk", "-1", ">= 1");
  expect_refused_options<typed::Beehive>(chunk(4, 4, HiveRule::together, Passes::until_bounded), "chunk", "4", ">= 5");
  expect_refused_options<typed::Beehive>(chunk(4, 7, HiveRule::first, Passes::single), "chunk", "7", ">= 8");
  expect_refused_options<typed::Beehive>(chunk(7, 8, HiveRule::together, Passes::until_bounded, 6), "threshold", "6",
                                         ">= 7");
  typed::Options o;
  expect_refused([&] { o.leave(0, 5); }, "left", "0", "1 to 5");
  expect_refused([&] { o.leave(6, 5); }, "left", "6", "1 to 5");
  expect_refused([&] { o.leave(1, 0); }, "unfiltered", "0", ">= 1");
  expect_refused([&] { o.leave(1, 5, 0); }, "least_chunk", "0", ">= 1");
}

TEST(BadOptions, HeavyOutOfRange) {
  expect_refused_options<typed::HeavyHitter>([](auto& o) { o.heavy = -1; }, "heavy", "-1", ">= 0");
  const auto above = [](typed::HeavyHitter::Options& o) {
    o.heavy = 10;
    o.threshold = 9;
  };
  expect_refused_options<typed::HeavyHitter>(above, "threshold", "9", ">= 10");
}

TEST(BadOptions, DecayOutOfRange) {
  for (float decay : {0.f, 1.f, -0.5f, kNan})
    expect_refused_options<typed::HeavyHitter>([&](auto& o) { o.decay = decay; }, "decay", std::to_string(decay),
                                               "above 0 and below 1");
}

TEST(BadOptions, WeightThatIsNotFinite) {
  for (float weight : {kNan, kInf})
    expect_refused_options<typed::KeyValueBeehive>([&](auto& o) { o.weight = weight; }, "weight",
                                                   std::to_string(weight), "finite");
}

TEST(BadOptions, ObservationWindowsAndKernels) {
  expect_refused_options<typed::SnapKv>([](auto& o) { o.queries = 0; }, "queries", "0", ">= 1");
  expect_refused_options<typed::SnapKv>([](auto& o) { o.kernel = 0; }, "kernel", "0", ">= 1");
  expect_refused_options<typed::SnapKv>([](auto& o) { o.kernel = -7; }, "kernel", "-7", ">= 1");
  expect_refused_options<typed::SnapKv>([](auto& o) { o.kernel = 4; }, "kernel", "4", "odd");
}

TEST(BadOptions, BudgetsThatAreTooSmall) {
  expect_refused([] { typed::Options::for_rows(5); }, "rows", "5", "6 to 1073741823");
  expect_refused([] { typed::Options::for_rows(36, 32); }, "rows", "36", "37 to 1073741823");
  expect_refused([] { typed::Options::for_rows(-1, 1, 0.25); }, "rows", "-1", "6 to");
  expect_refused([] { typed::Tova::Options::for_rows(8, 8); }, "rows", "8", "9 to");
  expect_refused([] { typed::Options::for_rows(kMost); }, "rows", std::to_string(kMost), "6 to 1073741823");
  expect_refused([] { typed::Options::for_rows(100, 0); }, "max_chunk", "0", "1 to");
  expect_refused([] { typed::KeyOutliers::Options::for_rows(5); }, "rows", "5", "6 to");
}

TEST(BadOptions, SharesThatAreNone) {
  for (double share : {-0.1, 1.1, double(kNan), double(kInf)})
    expect_refused([&] { typed::Options::for_rows(100, 1, share); }, "window_share", std::to_string(share), "0 to 1");
}

TEST(BadOptions, CapacityBelowOne) {
  expect_refused_options<typed::Full>([](auto& o) { o.capacity = 0; }, "capacity", "0", ">= 1");
}

TEST(BadOptions, SizesThatOverflowTogether) {
  typed::Options o;
  o.sink = o.window = o.threshold = kMost;
  EXPECT_THROW(typed::Beehive(o, 1), buzz::InvalidArgument);
  o = {};
  EXPECT_THROW(typed::Beehive(o, 1, kMost), buzz::InvalidArgument);
}

TEST(BadShape, QueryHeadsThatAreNoMultiple) {
  expect_refused([] { Cache(Shape{3, 2, 4}); }, "query_heads", "3", "a multiple of kv_heads = 2");
  expect_refused([] { Cache(Shape{1, 2, 4}); }, "query_heads", "1", "a multiple of kv_heads = 2");
}

TEST(BadShape, ExtentsBelowOne) {
  expect_refused([] { Cache(Shape{0, 1, 4}); }, "query_heads", "0", ">= 1");
  expect_refused([] { Cache(Shape{4, 0, 4}); }, "kv_heads", "0", ">= 1");
  expect_refused([] { Cache(Shape{4, 2, 0}); }, "head_dim", "0", ">= 1");
  expect_refused([] { Cache(Shape{4, 2, 4, 0}); }, "max_chunk", "0", ">= 1");
  expect_refused([] { typed::Beehive({}, 0); }, "kv_heads", "0", ">= 1");
  expect_refused([] { typed::Beehive({}, 1, 0); }, "max_chunk", "0", ">= 1");
}

void expect_refused_rope(CallWith<Rope&> change, int head_dim, std::string_view field, std::string_view value,
                         std::string_view allowed) {
  Rope r{10000.0};
  change(r);
  expect_refused([&] { Cache(Shape{2, 1, head_dim}, typed::Options(), r); }, field, value, allowed);
}

TEST(BadRope, OddOrOutOfRangeSizes) {
  expect_refused_rope([](Rope& r) { r.dims = 3; }, 8, "rope.dims", "3", "2 to head_dim = 8");
  expect_refused_rope([](Rope& r) { r.dims = 10; }, 8, "rope.dims", "10", "2 to head_dim = 8");
  expect_refused_rope([](Rope& r) { r.dims = -2; }, 8, "rope.dims", "-2", "2 to head_dim = 8");
}

TEST(BadRope, FirstElementsThatLeaveNoPair) {
  for (int first : {-1, 7, 8})
    expect_refused_rope([&](Rope& r) { r.first = first; }, 8, "rope.first", std::to_string(first), "0 to 6");
  const auto at = [](int first, int dims) {
    return [=](Rope& r) {
      r.first = first;
      r.dims = dims;
    };
  };
  expect_refused_rope(at(4, 6), 8, "rope.dims", "6", "2 to head_dim - rope.first = 4");
  expect_refused_rope(at(3, 0), 8, "rope.dims (head_dim)", "5", "2 to head_dim - rope.first = 5");
  const auto unused = [](Rope& r) {
    r.base = 0;
    r.first = 4;
  };
  expect_refused_rope(unused, 8, "rope.first", "4", "0");
}

TEST(BadRope, WholeHeadsOfOddSize) {
  const auto whole = [](int head_dim) { Cache(Shape{2, 1, head_dim}, typed::Options(), Rope{10000.0}); };
  EXPECT_THROW(whole(1), buzz::InvalidArgument);
  EXPECT_THROW(whole(7), buzz::InvalidArgument);
  EXPECT_NO_THROW(whole(2));
}

TEST(BadRope, SizesThatWouldNotBeHonoured) {
  const auto unused = [](Rope& r) {
    r.base = 0;
    r.dims = 4;
  };
  expect_refused_rope(unused, 8, "rope.dims", "4", "0");
}

TEST(BadRope, Bases) {
  for (double base : {1.0, 0.5, -10000.0, double(kInf), -double(kInf), double(kNan)}) {
    Rope r;
    r.base = base;
    EXPECT_THROW(Cache(Shape{2, 1, 8}, typed::Options(), r), buzz::InvalidArgument) << base;
  }
  expect_refused_rope([](Rope& r) { r.base = -3; }, 8, "rope.base", std::to_string(-3.0), "> 1");
}

TEST(BadRope, CompactPositionsOfKeysThatTheCacheCannotRotate) {
  const auto compact = [](Rope& r) {
    r.base = 0;
    r.positions = Positions::compact;
  };
  expect_refused_rope(compact, 8, "rope.positions", "compact", "logical");
}

TEST(BadRope, PositionsBelowOne) {
  expect_refused_rope([](Rope& r) { r.max_position = 0; }, 8, "rope.max_position", "0", ">= 1");
}

TEST(BadRope, MoreCompactPlacesThanPositions) {
  const auto compact = [](Rope& r) {
    r.positions = Positions::compact;
    r.max_position = 564;
  };
  expect_refused_rope(compact, 8, "capacity", "565", "564");
}

void expect_refused_attention(CallWith<AttentionOptions&> change, std::string_view field) {
  AttentionOptions a;
  change(a);
  try {
    Cache(Shape{}, typed::Options(), Rope{}, a);
    ADD_FAILURE() << field << " was not refused";
  } catch (const buzz::InvalidArgument& e) {
    EXPECT_EQ(e.field(), field);
  }
}

TEST(BadAttention, Scales) {
  for (double scale : {-1.0, double(kNan), double(kInf)})
    expect_refused_attention([&](AttentionOptions& a) { a.scale = scale; }, "scale");
}

TEST(BadAttention, LogBases) {
  for (double base : {1.0, 0.5, -512.0, double(kNan), double(kInf)})
    expect_refused_attention([&](AttentionOptions& a) { a.log_base = base; }, "log_base");
}

TEST(BadAttention, Threads) {
  expect_refused_attention([](AttentionOptions& a) { a.threads = 0; }, "threads");
  expect_refused_attention([](AttentionOptions& a) { a.threads = -1; }, "threads");
}

// ---- Views.

TEST(BadView, CountThatDisagreesWithTheShape) {
  Values v(23);
  expect_refused([&] { buzz::view(v, 2, 3, 4); }, "view.count", "23", "24");
}

TEST(BadView, ShapeAndStrides) {
  Values v(24);
  expect_refused([&] { View<float>(v.data(), 2, -3, 4); }, "view.shape[1]", "-3", ">= 0");
  expect_refused([&] { View<float>(v.data(), 2, 3, 4, 12, 3); }, "view.stride[1]", "3", ">= 4");
  expect_refused([&] { View<float>(v.data(), 2, 3, 4, -12, 4); }, "view.stride[0]", "-12", ">= 4");
  expect_refused([&] { View<float>(nullptr, 2, 3, 4); }, "view.data", "null", "");
}

// ---- Calls: refused, and the cache is as it was.

const Shape kShape{4, 2, 6, 3};

typed::Options small() {
  typed::Options o;
  o.sink = 1;
  o.window = 2;
  o.threshold = 4;
  o.stride = 2;
  return o;
}

template <class T>
std::vector<float> numbers(const View<const T>& rows) {
  std::vector<float> all;
  for (int h = 0; h < rows.shape(0); ++h)
    for (int r = 0; r < rows.shape(1); ++r) all.insert(all.end(), rows.row(h, r), rows.row(h, r) + rows.shape(2));
  return all;
}

/// All that can be seen of a policy.
template <class P>
std::vector<std::vector<float>> policy_state(const P& p) {
  const buzz::Regions r = p.regions();
  std::vector<std::vector<float>> state(1);
  for (int n : {p.rows(), p.next_position(), r.sink, r.hive, r.unfiltered, r.window, int(p.should_evict())})
    state[0].push_back(static_cast<float>(n));
  for (int h = 0; h < p.kv_heads(); ++h) {
    state.emplace_back(p.positions(h).begin(), p.positions(h).end());
    state.emplace_back(p.scores(h).begin(), p.scores(h).end());
  }
  return state;
}

template <class C>
std::vector<std::vector<float>> state(const C& cache) {
  auto all = policy_state(cache.evictor());
  all.push_back(numbers(cache.keys()));
  all.push_back(numbers(cache.values()));
  return all;
}

Values values(int count, float from = 0) {
  Values v(static_cast<std::size_t>(count));
  for (float& x : v) x = std::sin(from++);
  return v;
}

/// Two caches that were given the same; one of them is then asked what it has to refuse.
template <class C>
class Twins {
 public:
  explicit Twins(const typename C::Options& options, const Rope& rope = {})
      : asked(kShape, options, rope), spared(kShape, options, rope) {}

  /// Gives both the same tokens. Returns whether they gave the same back, bit for bit.
  bool attend(int tokens, float seed) {
    const Values q = values(tokens * 24, seed), k = values(tokens * 12, seed + 1), v = values(tokens * 12, seed + 2);
    Values out[2] = {Values(q.size()), Values(q.size())};
    for (int i : {0, 1})
      (i == 0 ? asked : spared)
          .attend(buzz::view(q, tokens, 4, 6), buzz::view(k, tokens, 2, 6), buzz::view(v, tokens, 2, 6),
                  buzz::view(out[i], tokens, 4, 6));
    return out[0] == out[1] && state(asked) == state(spared);
  }

  /// The call has to be refused, to change nothing, and to leave no trace in what follows.
  template <class Family = buzz::InvalidArgument>
  void expect_unchanged(CallWith<C&> call, std::string_view field, std::string_view value, std::string_view allowed) {
    const auto before = state(asked);
    expect_refused<Family>([&] { call(asked); }, field, value, allowed);
    EXPECT_EQ(state(asked), before) << field;
  }

  C asked, spared;
};

class BadCall : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(twins.attend(2, static_cast<float>(i)));
    ASSERT_GT(twins.asked.regions().hive, 0) << "an eviction is behind it";
  }
  void TearDown() override {
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(twins.attend(1 + i % 3, static_cast<float>(10 + i)));
  }

  /// The one call with tensors of these shapes.
  void expect_refused(const std::vector<int>& q, const std::vector<int>& k, const std::vector<int>& v,
                      const std::vector<int>& out, std::string_view field, std::string_view value,
                      std::string_view allowed) {
    Values room(1000), result(1000, -5.f);
    const auto as = [](Values& data, const std::vector<int>& s) { return View<float>(data.data(), s[0], s[1], s[2]); };
    twins.expect_unchanged([&](Cache& c) { c.attend(as(room, q), as(room, k), as(room, v), as(result, out)); }, field,
                           value, allowed);
    EXPECT_EQ(result, Values(1000, -5.f)) << "nothing is written";
  }

  Twins<Cache> twins{small(), Rope{10000.0}};
};

TEST_F(BadCall, QueriesOfAnotherShape) {
  expect_refused({1, 4, 6}, {2, 2, 6}, {2, 2, 6}, {2, 4, 6}, "q.shape[0]", "1", "2");
  expect_refused({2, 2, 6}, {2, 2, 6}, {2, 2, 6}, {2, 4, 6}, "q.shape[1]", "2", "4");
  expect_refused({2, 4, 5}, {2, 2, 6}, {2, 2, 6}, {2, 4, 6}, "q.shape[2]", "5", "6");
}

TEST_F(BadCall, KeysOfAnotherShape) {
  expect_refused({2, 4, 6}, {2, 4, 6}, {2, 2, 6}, {2, 4, 6}, "k.shape[1]", "4", "2");
  expect_refused({2, 4, 6}, {2, 2, 8}, {2, 2, 6}, {2, 4, 6}, "k.shape[2]", "8", "6");
}

TEST_F(BadCall, ValuesOfAnotherShape) {
  expect_refused({2, 4, 6}, {2, 2, 6}, {1, 2, 6}, {2, 4, 6}, "v.shape[0]", "1", "2");
  expect_refused({2, 4, 6}, {2, 2, 6}, {2, 1, 6}, {2, 4, 6}, "v.shape[1]", "1", "2");
  expect_refused({2, 4, 6}, {2, 2, 6}, {2, 2, 7}, {2, 4, 6}, "v.shape[2]", "7", "6");
}

TEST_F(BadCall, OutputsOfAnotherShape) {
  expect_refused({2, 4, 6}, {2, 2, 6}, {2, 2, 6}, {3, 4, 6}, "out.shape[0]", "3", "2");
  expect_refused({2, 4, 6}, {2, 2, 6}, {2, 2, 6}, {2, 2, 6}, "out.shape[1]", "2", "4");
  expect_refused({2, 4, 6}, {2, 2, 6}, {2, 2, 6}, {2, 4, 1}, "out.shape[2]", "1", "6");
}

TEST_F(BadCall, AChunkLargerThanMaxChunk) {
  expect_refused({4, 4, 6}, {4, 2, 6}, {4, 2, 6}, {4, 4, 6}, "tokens", "4", "3");
}

TEST_F(BadCall, StepsOfAnotherShape) {
  Values room(1000);
  const auto as = [&](int a, int b, int c) { return View<float>(room.data(), a, b, c); };
  twins.expect_unchanged([&](Cache& c) { c.append(as(2, 4, 6), as(2, 2, 6)); }, "k.shape[1]", "4", "2");
  twins.expect_unchanged([&](Cache& c) { c.append(as(2, 2, 6), as(3, 2, 6)); }, "v.shape[0]", "3", "2");
  twins.expect_unchanged([&](Cache& c) { c.append(as(4, 2, 6), as(4, 2, 6)); }, "tokens", "4", "3");
  twins.expect_unchanged([&](Cache& c) { c.attend(as(2, 2, 6), as(2, 4, 6)); }, "q.shape[1]", "2", "4");
  twins.expect_unchanged([&](Cache& c) { c.attend(as(2, 4, 6), as(1, 4, 6)); }, "out.shape[0]", "1", "2");
  twins.expect_unchanged([&](Cache& c) { c.attend(as(4, 4, 6), as(4, 4, 6)); }, "q.shape[0]", "4", "3");
}

TEST_F(BadCall, HeadsThatAreNotThere) {
  twins.expect_unchanged([](Cache& c) { c.positions(2); }, "head", "2", "0 to 1");
  twins.expect_unchanged([](Cache& c) { c.positions(-1); }, "head", "-1", "0 to 1");
  twins.expect_unchanged([](Cache& c) { c.scores(2); }, "head", "2", "0 to 1");
}

TEST(BadCallOfAnEmptyCache, MoreQueriesThanRows) {
  Cache cache(kShape, small());
  Values room(100);
  const View<float> q(room.data(), 1, 4, 6);
  expect_refused([&] { cache.attend(q, q); }, "q.shape[0]", "1", "0");
}

TEST(BadPosition, PastWhatTheCallerAllowed) {
  Rope r{10000.0};
  r.max_position = 10;
  Twins<Cache> twins(small(), r);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(twins.attend(2, static_cast<float>(i)));
  const Values kv = values(36);
  const auto three = buzz::view(kv, 3, 2, 6);
  twins.expect_unchanged<buzz::CacheFull>([&](Cache& c) { c.append(three, three); }, "position", "11", "10");
  EXPECT_TRUE(twins.attend(2, 5)) << "positions 8 and 9 are allowed";
  const View<const float> one(kv.data(), 1, 2, 6);
  twins.expect_unchanged<buzz::CacheFull>([&](Cache& c) { c.append(one, one); }, "position", "11", "10");
}

TEST(BadPosition, IsNoMatterWherePlacesAreThePositions) {
  Rope r{10000.0};
  r.positions = Positions::compact;
  r.max_position = 10;
  Twins<Cache> twins(small(), r);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(twins.attend(2, static_cast<float>(i)));
}

TEST(FullCache, RefusesMoreThanItsCapacity) {
  typed::Full::Options o;
  o.capacity = 5;
  Twins<BuzzCache<float, typed::Full>> twins(o);
  ASSERT_TRUE(twins.attend(3, 1));
  const Values kv = values(36);
  const auto three = buzz::view(kv, 3, 2, 6);
  twins.expect_unchanged<buzz::CacheFull>([&](auto& c) { c.append(three, three); }, "rows", "6", "5");
  EXPECT_TRUE(twins.attend(2, 2)) << "two rows fit";
}

TEST(FullCache, IsToldFromWhatNoCacheOfThatSizeHolds) {
  const Values kv = values(36);
  const auto three = buzz::view(kv, 3, 2, 6);
  typed::Full::Options o;
  o.capacity = 2;
  Twins<BuzzCache<float, typed::Full>> small_one(o);
  small_one.expect_unchanged([&](auto& c) { c.append(three, three); }, "rows", "3", "2");
  Rope r{10000.0};
  r.max_position = 2;
  Twins<Cache> short_one(small(), r);
  short_one.expect_unchanged([&](auto& c) { c.append(three, three); }, "position", "3", "2");
  short_one.expect_unchanged([](auto& c) { c.pin(0, 99); }, "pinned rows", "98", "0 to 3");
}

TEST(FullCache, OfPinsTakesThemAgainOnceOthersAreGone) {
  Twins<Cache> twins(small());
  twins.asked.pin(10, 3);
  twins.spared.pin(10, 3);
  twins.expect_unchanged<buzz::CacheFull>([](Cache& c) { c.pin(20, 2); }, "pinned rows", "5", "0 to 3");
  twins.asked.unpin(10, 3);
  twins.asked.pin(20, 2);
}

TEST(FullCache, OfALayerIsWhatTheModelSays) {
  std::vector<typed::Full::Options> layers(2);
  for (auto& o : layers) {
    o.capacity = 2;
    o.sink = 0;
  }
  typed::Model<float, typed::Full> model(kShape, layers);
  const Values kv = values(24);
  const auto two = buzz::view(kv, 2, 2, 6);
  for (int i : {0, 1}) model.layer(i).append(two, two);
  const auto before = state(model.layer(1));
  expect_refused<buzz::CacheFull>([&] { model.layer(1).append(two, two); }, "rows", "4", "2");
  EXPECT_EQ(state(model.layer(1)), before);
  model.pin(0, 1);
  expect_refused<buzz::CacheFull>([&] { model.pin(2, 2); }, "pinned rows", "3", "0 to 2");
  for (int i : {0, 1}) EXPECT_EQ(model.layer(i).evictor().pins().ranges().size(), 1u);
}

// ---- Scores.

class BadScores : public testing::Test {
 protected:
  void SetUp() override {
    policy.append(3);
    const Values p = {0.5f, 0.25f, 0.25f, /**/ 0.125f, 0.125f, 0.75f};
    policy.observe(buzz::view(p, 2, 1, 3));
    before = policy_state(policy);
  }
  template <class Family = buzz::InvalidArgument>
  void expect_unchanged(Call call, std::string_view field, std::string_view value, std::string_view allowed) {
    expect_refused<Family>(call, field, value, allowed);
    EXPECT_EQ(policy_state(policy), before);
  }

  typed::Beehive policy{small(), 2, 3};
  std::vector<std::vector<float>> before;
  Values room = Values(100, 0.5f);
  int below_zero = -1;  // no constant, or compilers warn of what append(-1) would do
};

TEST_F(BadScores, ProbabilitiesOfTheWrongSize) {
  const auto as = [&](int a, int b, int c) { return View<const float>(room.data(), a, b, c); };
  expect_unchanged([&] { policy.observe(as(3, 1, 3)); }, "probabilities.shape[0]", "3", "a multiple of kv_heads = 2");
  expect_unchanged([&] { policy.observe(as(1, 1, 3)); }, "probabilities.shape[0]", "1", "a multiple of kv_heads = 2");
  expect_unchanged([&] { policy.observe(as(0, 1, 3)); }, "probabilities.shape[0]", "0", "a multiple of kv_heads = 2");
  expect_unchanged([&] { policy.observe(as(2, 4, 3)); }, "probabilities.shape[1]", "4", "3");
  expect_unchanged([&] { policy.observe(as(2, 1, 2)); }, "probabilities.shape[2]", "2", "3");
  expect_unchanged([&] { policy.observe(as(2, 1, 4)); }, "probabilities.shape[2]", "4", "3");
}

TEST_F(BadScores, SumsOfTheWrongSize) {
  const auto as = [&](int a, int b, int c) { return View<const float>(room.data(), a, b, c); };
  expect_unchanged([&] { policy.observe_sums(as(1, 1, 3)); }, "sums.shape[1]", "1", "2");
  expect_unchanged([&] { policy.observe_sums(as(1, 2, 4)); }, "sums.shape[2]", "4", "3");
}

TEST_F(BadScores, ProbabilitiesThatAreNotFiniteAddNothing) {
  const Values p = {kNan, kInf, -kInf, /**/ kNan, 0.5f, kInf};
  policy.observe(buzz::view(p, 2, 1, 3));
  before[4][1] += 0.5f;  // the second score of head 1: all else adds nothing
  EXPECT_EQ(policy_state(policy), before);
}

TEST_F(BadScores, MoreTokensThanMaxChunk) {
  expect_unchanged([&] { policy.append(4); }, "tokens", "4", "3");
  expect_unchanged([&] { policy.append(below_zero); }, "tokens", "-1", "3");
}

TEST_F(BadScores, EvictionsThatWereForgotten) {
  for (int i = 0; i < 2; ++i) policy.append(3);
  before = policy_state(policy);
  EXPECT_TRUE(policy.should_evict());
  expect_unchanged<buzz::CacheFull>([&] { policy.append(3); }, "rows", "12", "10");
}

TEST(BadGiven, ScoresOfTheWrongSize) {
  typed::Policy<typed::UserScores, buzz::TopK> policy({}, 2, 3);
  policy.append(3);
  Values six = {1, 2, 3, 4, 5, 6};
  policy.give(buzz::view(six, 1, 2, 3));
  const auto before = policy_state(policy);
  expect_refused([&] { policy.give(buzz::view(six, 2, 1, 3)); }, "scores.shape[0]", "2", "1");
  expect_refused([&] { policy.give(buzz::view(six, 1, 3, 2)); }, "scores.shape[1]", "3", "2");
  expect_refused([&] { policy.give(View<const float>(six.data(), 1, 2, 2)); }, "scores.shape[2]", "2", "3");
  EXPECT_EQ(policy_state(policy), before);
}

TEST(BadRows, KeysOfTheWrongSizeToSelectBy) {
  typed::Policy<typed::KeyDiversity, buzz::TopK>::Options o;
  o.window = 0;
  o.heavy = 1;
  typed::Policy<typed::KeyDiversity, buzz::TopK> policy(o, 2, 3);
  policy.append(3);
  const auto before = policy_state(policy);
  Values room(100);
  const auto as = [&](int a, int b, int c) { return View<const float>(room.data(), a, b, c); };
  expect_refused([&] { policy.select(as(1, 3, 4), as(2, 3, 4)); }, "keys.shape[0]", "1", "2");
  expect_refused([&] { policy.select(as(2, 2, 4), as(2, 3, 4)); }, "keys.shape[1]", "2", "3");
  expect_refused([&] { policy.select(as(2, 3, 4), as(2, 4, 4)); }, "values.shape[1]", "4", "3");
  EXPECT_EQ(policy_state(policy), before);
}

TEST(BadRows, OfAnotherCacheToCompact) {
  typed::Policy<typed::NoScore, buzz::TopK>::Options o;
  o.window = 0;
  o.heavy = 1;
  typed::Policy<typed::NoScore, buzz::TopK> policy(o, 2, 3);
  policy.append(3);
  const buzz::KeptRows& keep = policy.select();
  Values rows = values(12);
  expect_refused([&] { buzz::compact(keep, buzz::view(rows, 1, 3, 4)); }, "rows.shape[0]", "1", "2");
  expect_refused([&] { buzz::compact(keep, buzz::view(rows, 2, 2, 3)); }, "rows.shape[1]", "2", "3");
  expect_refused([&] { buzz::compact(keep, 2, buzz::view(rows, 1, 3, 4)); }, "head", "2", "0 to 1");
  EXPECT_EQ(rows, values(12));
}

TEST(BadLayer, OutOfRange) {
  typed::Model<float> model(kShape, {small(), small()});
  expect_refused([&] { model.layer(2); }, "layer", "2", "0 to 1");
  expect_refused([&] { model.layer(-1); }, "layer", "-1", "0 to 1");
  expect_refused([] { typed::Model<float>(kShape, {}); }, "layers", "0", ">= 1");
}

TEST(BadLayer, OneOfMany) {
  std::vector<typed::Options> layers(3, small());
  layers[1].window = -1;
  expect_refused([&] { typed::Model<float>(kShape, layers); }, "layer[1].window", "-1", ">= 0");
}

}  // namespace
