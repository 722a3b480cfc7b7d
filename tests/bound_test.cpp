// Rows never exceed sink + window + threshold + max_chunk, however long the sequence; that number is reached; and an
// eviction leaves no more than sink + window + threshold. Every bound that the library promises, in all small options.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "buzz/buzz_cache.h"
#include "buzz/policies.h"
#include "sanitizers.h"

namespace {

constexpr int kTokens = 200000;

struct Course {
  int peak = 0;       // most rows there ever were
  int evictions = 0;  // calls that shortened the cache
  int most_left = 0;  // rows after a call, at most
};

/// Feeds tokens to an evictor in calls of the given sizes, in turn, with scores that differ from call to call.
Course feed(buzz::Evictor& evictor, const std::vector<int>& calls, int tokens) {
  std::vector<float> sums(static_cast<std::size_t>(evictor.kv_heads() * evictor.capacity() + 1009));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>((i * 7919) % 1009);
  const buzz::Protect protect = evictor.policy().protect;
  Course run;
  for (int t = 0, call = 0; t < tokens; ++call) {
    const int n = std::min(calls[static_cast<std::size_t>(call) % calls.size()], tokens - t);
    evictor.append(n);
    t += n;
    run.peak = std::max(run.peak, evictor.rows());
    if (evictor.needs().attention)
      evictor.observe_sums(buzz::View<const float>(sums.data() + call % 1009, 1, evictor.kv_heads(), evictor.rows()));
    const int before = evictor.rows();
    if (evictor.should_evict()) evictor.select();
    run.evictions += evictor.rows() < before;
    run.most_left = std::max(run.most_left, evictor.rows());
    // The newest rows stay, and rows and regions agree.
    const auto positions = evictor.positions(evictor.kv_heads() - 1);
    const int newest = std::min(protect.window, evictor.rows());
    EXPECT_EQ(evictor.regions().rows(), evictor.rows());
    for (int i = 1; i <= newest; ++i)
      if (positions[positions.size - i] != t - i) {
        ADD_FAILURE() << "token " << t - i << " left the window early";
        return run;
      }
    EXPECT_TRUE(protect.sink == 0 || positions[0] == 0);
  }
  EXPECT_EQ(evictor.next_position(), tokens);
  return run;
}

TEST(Bound, ThePapersSizesWhileDecoding) {
  buzz::Evictor evictor(buzz::beehive(), 2);
  EXPECT_EQ(evictor.capacity(), 4 + 160 + 400 + 1);
  const Course run = feed(evictor, {1}, kTokens);
  EXPECT_EQ(run.peak, 4 + 160 + 400 + 1);
  EXPECT_EQ(run.most_left, 4 + 160 + 400);
  // A steady hive of 93 rows or so leaves room for 308 tokens: one eviction in so many, and not one a token.
  EXPECT_NEAR(run.evictions, kTokens / 308, 15);
}

TEST(Bound, ChunkedPrefill) {
  for (const std::vector<int>& calls : std::vector<std::vector<int>>{{512}, {1, 512, 7}, {1, 1, 1, 512}, {100, 3}}) {
    const int max_chunk = *std::max_element(calls.begin(), calls.end());
    buzz::Evictor evictor(buzz::beehive(), 1, max_chunk);
    EXPECT_EQ(evictor.capacity(), 4 + 160 + 400 + max_chunk);
    const Course run = feed(evictor, calls, kTokens);
    EXPECT_LE(run.peak, 4 + 160 + 400 + max_chunk);
    EXPECT_LE(run.most_left, 4 + 160 + 400);
  }
}

/// The bound is not slack: a call of max_chunk tokens that finds the cache full to the threshold fills the capacity.
TEST(Bound, IsReachedByAChunkOnAFullCache) {
  buzz::Evictor evictor(buzz::beehive(), 1, 512);
  feed(evictor, {141}, 564);  // 4 + 160 + 400
  EXPECT_FALSE(evictor.should_evict());
  evictor.append(512);
  EXPECT_EQ(evictor.rows(), evictor.capacity());
  EXPECT_TRUE(evictor.should_evict());
  evictor.select();
  EXPECT_LE(evictor.rows(), 4 + 160 + 400);
}

struct Sizes {
  int sink, window, threshold, stride, keep;
  buzz::HiveRule hive;
};

TEST(Bound, AnyOptionsStrideOneAndTwoIncluded) {
  using Rule = buzz::HiveRule;
  for (const Sizes& s : std::vector<Sizes>{{4, 16, 40, 1, 1, Rule::first},
                                           {4, 16, 40, 2, 1, Rule::first},
                                           {4, 16, 40, 1, 1, Rule::heaviest},
                                           {4, 16, 40, 2, 3, Rule::heaviest},
                                           {4, 16, 40, 2, 1, Rule::together},
                                           {0, 0, 1, 1, 1, Rule::first},
                                           {0, 0, 1, 2, 1, Rule::together},
                                           {0, 1, 1, 5, 4, Rule::heaviest},
                                           {3, 0, 2, 9, 1, Rule::first},
                                           {0, 8, 7, 3, 2, Rule::together}}) {
    for (const std::vector<int>& calls : std::vector<std::vector<int>>{{1}, {9, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
      buzz::BeehiveOptions o;
      o.sink = s.sink;
      o.window = s.window;
      o.threshold = s.threshold;
      o.stride = s.stride;
      o.keep = s.keep;
      o.hive = s.hive;
      buzz::Evictor evictor(buzz::beehive(o), 1, calls[0]);
      const int bound = s.sink + s.window + s.threshold;
      EXPECT_EQ(evictor.capacity(), bound + calls[0]);
      const Course run = feed(evictor, calls, kTokens / 4);
      EXPECT_LE(run.peak, bound + calls[0]) << "stride " << s.stride << " threshold " << s.threshold;
      EXPECT_LE(run.most_left, bound) << "stride " << s.stride << " threshold " << s.threshold;
      EXPECT_TRUE(calls[0] > 1 || run.peak == bound + 1) << run.peak;
      EXPECT_GT(run.evictions, kTokens / 4 / (s.threshold + 10));
    }
  }
}

TEST(Bound, OtherPolicies) {
  buzz::HeavyHitterOptions h;
  h.sink = 2;
  h.window = 16;
  h.heavy = 24;
  h.threshold = 40;
  buzz::Evictor heavy(buzz::heavy_hitter(h), 2, 8);
  Course run = feed(heavy, {8, 1, 1, 1}, kTokens / 4);
  EXPECT_EQ(heavy.capacity(), 2 + 16 + 40 + 8);
  EXPECT_LE(run.peak, heavy.capacity());
  EXPECT_LE(run.most_left, 2 + 16 + 40);

  buzz::Evictor streaming(buzz::streaming(), 2, 8);
  run = feed(streaming, {8, 1, 1, 1}, kTokens / 4);
  EXPECT_EQ(streaming.capacity(), 4 + 160 + 8);
  EXPECT_EQ(run.peak, 4 + 160 + 8);
  EXPECT_EQ(run.most_left, 4 + 160);
}

/// One pass an eviction is the authors' code: the bound is then the fixed point of rows / 2 + 1 + max_chunk where that
/// is more than the threshold's.
TEST(Bound, OnePassHasABoundOfItsOwn) {
  buzz::BeehiveOptions o;
  o.sink = 4;
  o.window = 16;
  o.threshold = 20;
  o.passes = buzz::Passes::single;
  for (int stride : {2, 3, 5}) {
    o.stride = stride;
    buzz::Evictor evictor(buzz::beehive(o), 1, 100);
    EXPECT_EQ(evictor.capacity(), 4 + 16 + 2 * (100 + 1));
    const Course run = feed(evictor, {100}, kTokens);
    EXPECT_LE(run.peak, evictor.capacity());
    EXPECT_GT(run.peak, 4 + 16 + 20 + 100) << "so the threshold's bound would not do";
    EXPECT_TRUE(stride > 2 || run.peak >= evictor.capacity() - 4) << run.peak;
    buzz::Evictor decoding(buzz::beehive(o), 1, 1);
    EXPECT_EQ(decoding.capacity(), 4 + 16 + 20 + 1);
    EXPECT_EQ(feed(decoding, {1}, kTokens / 4).peak, decoding.capacity());
  }
}

TEST(Bound, ACacheOfTheLibrarysOwn) {
  buzz::BuzzCache<float> cache({2, 1, 4, 16}, buzz::beehive());
  EXPECT_EQ(cache.capacity(), 4 + 160 + 400 + 16);
  const std::size_t bytes = cache.bytes();
  std::vector<float> q(16 * 2 * 4), kv(16 * 4), out(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>((i * 37) % 101) / 50 - 1;
  int peak = 0, most_left = 0;
  for (int t = 0, call = 0; t < kTokens; ++call) {
    const int n = std::min(call % 3 == 0 ? 16 : call % 3, kTokens - t);
    for (std::size_t i = 0; i < kv.size(); ++i)
      kv[i] = static_cast<float>((static_cast<std::size_t>(t) * 13 + i * 29) % 101) / 50 - 1;
    const buzz::View<const float> rows(kv.data(), n, 1, 4);
    cache.append(rows, rows);
    t += n;
    peak = std::max(peak, cache.rows());
    cache.attend(buzz::View<const float>(q.data(), n, 2, 4), buzz::View<float>(out.data(), n, 2, 4));
    cache.observe();
    cache.evict();
    most_left = std::max(most_left, cache.rows());
  }
  EXPECT_LE(peak, cache.capacity());
  EXPECT_GT(peak, cache.capacity() - 16);
  EXPECT_LE(most_left, 4 + 160 + 400);
  EXPECT_EQ(cache.next_position(), kTokens);
  EXPECT_EQ(cache.bytes(), bytes);
}

// All small options, by enumeration.

int ceil_of(long long a, long long b) { return static_cast<int>((a + b - 1) / b); }

/// Of a policy by the user's own scores.
template <class Select>
using Small = buzz::PolicyOptions<Select, buzz::UserScoresOptions>;
template <class Select>
buzz::Policy policy_of(const Small<Select>& o) {
  return buzz::policy(buzz::user_score(), typename Select::Options(o), o);
}

/// What the pages say of a selection, said again. pinned: rows between sink and window.
struct Promise {
  int capacity = 0, threshold = 0, room = 0;
  bool single = false;
  int moves = buzz::unlimited_moves;  // of a row, where nothing is pinned
};

Promise promise_of(const Small<buzz::Segments>& o, int max_chunk) {
  Promise p;
  p.threshold = o.threshold;
  p.single = o.passes == buzz::Passes::single;
  const int middle = p.single ? std::max(o.threshold + max_chunk, 2 * (max_chunk + 1)) : o.threshold + max_chunk;
  p.capacity = o.sink + o.window + middle;
  const bool close = o.chunk != 0 && o.hive == buzz::HiveRule::together;
  p.room = p.single ? std::max(0, o.threshold - max_chunk - 2)
                    : o.threshold + 1 - (close ? ceil_of(o.chunk, o.chunk - o.keep) : 2);
  p.moves = buzz::Segments::most_moves(o, o.window, max_chunk);
  return p;
}
Promise promise_of(const Small<buzz::TopK>& o, int max_chunk) {
  Promise p;
  p.threshold = o.threshold != 0 ? o.threshold : o.heavy;
  p.capacity = o.sink + o.window + p.threshold + max_chunk;
  p.room = o.heavy;
  return p;
}
Promise promise_of(const Small<buzz::KeepNone>& o, int max_chunk) {
  Promise p;
  p.threshold = p.room = o.threshold;
  p.capacity = o.sink + o.window + o.threshold + max_chunk;
  return p;
}

/// Rows of the middle that an eviction leaves, of which `pinned` are: those pass by, and the budget counts them.
int left(const buzz::Segments::Options& o, const buzz::Regions& r, int pinned_hive, int pinned) {
  const long long chunk = o.chunk != 0 ? o.chunk : o.keep * o.stride;
  const int half = o.chunk != 0 ? ceil_of(o.chunk, 2 * o.keep) : ceil_of(o.stride, 2);
  const int hive_stride = o.hive_stride != 0 ? o.hive_stride : std::max(2, half);
  const auto once = [&](int hive, int unfiltered) {
    if (o.hive == buzz::HiveRule::together) return ceil_of(1LL * (hive + unfiltered) * o.keep, chunk);
    return ceil_of(hive, hive_stride) + ceil_of(1LL * unfiltered * o.keep, chunk);
  };
  int count = once(r.hive - pinned_hive, r.unfiltered - (pinned - pinned_hive));
  while (o.passes == buzz::Passes::until_bounded && count + pinned > o.threshold) count = once(count, 0);
  return count + pinned;
}
int left(const buzz::TopK::Options& o, const buzz::Regions& r, int, int) { return std::min(o.heavy, r.middle()); }
int left(const buzz::KeepNone::Options&, const buzz::Regions&, int, int pinned) { return pinned; }

/// Lives of small evictors; each says the first thing that is not as promised, or nothing.
template <class Select>
class Lives {
 public:
  using Options = Small<Select>;

  /// Every way of calling and pinning.
  void all(const Options& o) {
    for (int max_chunk : {1, 2, 5})
      for (int way = 0; way < (max_chunk == 1 ? 1 : 3); ++way)
        for (bool pins : {false, true}) {
          const std::string fault = life(o, max_chunk, way, pins);
          ++lives_;
          if (!fault.empty() && ++faults_ <= 5) ADD_FAILURE() << fault << describe(o, max_chunk, way, pins);
        }
  }
  long long lives() const { return lives_; }
  int most_moves() const { return most_moves_; }

 private:
  std::string life(const Options& o, int max_chunk, int way, bool pins) {
    const Promise promise = promise_of(o, max_chunk);
    buzz::Evictor evictor(policy_of(o), 1, max_chunk);
    if (evictor.capacity() != promise.capacity) return "capacity " + std::to_string(evictor.capacity());
    if (promise.room < 0) return "room for less than no pin";
    const std::size_t bytes = evictor.bytes();
    const int pinned = pins ? promise.room : 0, tokens = promise.capacity + 12;
    evictor.pin(o.sink, pinned);
    if (pins) {
      try {
        evictor.pin(o.sink, pinned + 1);
        return "a pin too many";
      } catch (const buzz::Error& e) {
        if (std::string(e.field()) != "pinned rows") return "field of a pin too many";
      }
    }
    moves_.assign(static_cast<std::size_t>(tokens), 0);
    int peak = 0;
    for (int t = 0; t < tokens;) {
      const int n = std::min(way == 0 ? 1 : way == 1 ? max_chunk : 1 + (t * 7 + 3) % max_chunk, tokens - t);
      evictor.append(n);  // never refused
      t += n;
      peak = std::max(peak, evictor.rows());
      give(evictor, t + way);
      const buzz::Regions r = evictor.regions();
      if (evictor.should_evict() != (r.middle() > promise.threshold)) return "should_evict";
      if (!evictor.should_evict()) continue;
      int pinned_now = 0, pinned_hive = 0;
      for (int i = r.sink; i < r.sink + r.middle(); ++i) {
        const int at = evictor.positions(0)[i];
        const bool is = at >= o.sink && at < o.sink + pinned;
        pinned_now += is;
        pinned_hive += is && i < r.sink + r.hive;
      }
      before_.assign(evictor.positions(0).begin(), evictor.positions(0).end());
      const buzz::KeptRows& keep = evictor.select();
      const int middle = evictor.regions().middle();
      if (evictor.regions().window != r.window || evictor.regions().sink != r.sink) return "sink or window";
      if (middle != left(o, r, pinned_hive, pinned_now)) return "rows after an eviction";
      if (!promise.single && evictor.should_evict()) return "an eviction that leaves another to be done";
      if (promise.single && middle - pinned_now > (r.middle() - pinned_now) / 2 + 1)
        return "a pass that does not halve";
      for (int i = 0; i < evictor.rows(); ++i)
        if (keep.rows(0)[i] != i)
          ++moves_[static_cast<std::size_t>(before_[static_cast<std::size_t>(keep.rows(0)[i])])];
      // Sink, window and pins are as they were.
      const auto held = evictor.positions(0);
      for (int i = 0; i < r.sink; ++i)
        if (held[i] != i) return "sink";
      for (int i = 1; i <= r.window; ++i)
        if (held[held.size - i] != t - i) return "window";
      for (int p = 0; p < std::min(pinned, t - o.sink); ++p)
        if (!std::binary_search(held.begin(), held.end(), o.sink + p)) return "a pin";
    }
    if (peak > promise.capacity) return "peak " + std::to_string(peak);
    if (!promise.single && max_chunk == 1 && peak != promise.capacity) return "a slack bound";
    if (evictor.bytes() != bytes) return "bytes";
    const int most = *std::max_element(moves_.begin(), moves_.end());
    if (!pins && promise.moves <= buzz::few_moves) {
      most_moves_ = std::max(most_moves_, most);
      if (most > promise.moves) return std::to_string(most) + " moves, promised " + std::to_string(promise.moves);
    }
    return "";
  }

  /// The newest, the oldest, or any row is the most important, in turn.
  void give(buzz::Evictor& evictor, int turn) {
    importance_.resize(static_cast<std::size_t>(evictor.rows()));
    for (int i = 0; i < evictor.rows(); ++i) {
      const int p = evictor.positions(0)[i], kind = seed_ % 3;
      importance_[static_cast<std::size_t>(i)] =
          static_cast<float>(kind == 0   ? p
                             : kind == 1 ? -p
                                         : ((p + seed_) * 7919 + turn * 104729) % 1009);
    }
    evictor.give(buzz::view(importance_, 1, 1, evictor.rows()));
    seed_ += turn % 5 == 0 && seed_ % 3 == 2;
  }

  static std::string describe(const Options& o, int max_chunk, int way, bool pins) {
    std::string s = ": sink " + std::to_string(o.sink) + " window " + std::to_string(o.window) + " threshold " +
                    std::to_string(o.threshold) + " max_chunk " + std::to_string(max_chunk) + " way " +
                    std::to_string(way) + (pins ? " pins" : "");
    if constexpr (std::is_same_v<Select, buzz::Segments>)
      s += " stride " + std::to_string(o.stride) + " keep " + std::to_string(o.keep) + " chunk " +
           std::to_string(o.chunk) + " hive_stride " + std::to_string(o.hive_stride) + " hive " +
           std::to_string(static_cast<int>(o.hive)) + " passes " + std::to_string(static_cast<int>(o.passes));
    if constexpr (std::is_same_v<Select, buzz::TopK>) s += " heavy " + std::to_string(o.heavy);
    return s;
  }

  std::vector<int> moves_, before_;
  std::vector<float> importance_;
  int seed_ = 0, faults_ = 0, most_moves_ = 0;
  long long lives_ = 0;
};

/// Calls f for each sink of 0 to 3 and window of 0 to 4.
template <class Options, class F>
void with_protected(Options o, F&& f) {
  for (o.sink = 0; o.sink <= 3; ++o.sink)
    for (o.window = 0; o.window <= 4; ++o.window) f(o);
}

/// Calls f for each small beehive, those too that are refused.
template <class F>
void with_segments(F&& f) {
  Small<buzz::Segments> o;
  const auto rules = [&] {
    for (auto hive : {buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together})
      for (auto passes : {buzz::Passes::until_bounded, buzz::Passes::single})
        for (int hive_stride : {0, 3})
          for (int threshold = 1; threshold <= 7; ++threshold) {
            o.hive = hive;
            o.passes = passes;
            o.hive_stride = hive_stride;
            o.threshold = threshold;
            f(o);
          }
  };
  for (o.keep = 1; o.keep <= 3; ++o.keep)
    for (o.stride = 1; o.stride <= 4; ++o.stride) rules();
  o.stride = 0;
  for (o.chunk = 1; o.chunk <= 6; ++o.chunk)
    for (o.keep = 1; o.keep <= o.chunk; ++o.keep) rules();
}

bool is_refused(const Small<buzz::Segments>& o) {
  try {
    policy_of(o).most_rows(1);
    return false;
  } catch (const buzz::InvalidArgument&) {
    return true;
  }
}

TEST(SmallOptions, OfBeehivesKeepEveryPromise) {
  Lives<buzz::Segments> lives;
  int i = 0;
  with_segments([&](const auto& o) {
    if (!is_refused(o))
      with_protected(o, [&](const auto& each) {
        if (i++ % sanitized::stride == 0) lives.all(each);
      });
  });
  EXPECT_GT(lives.lives(), 300000 / sanitized::stride);
  EXPECT_GE(lives.most_moves(), 8);
}

/// What is refused is what would not end, or is not read: a pass over any n rows past the threshold has to leave fewer.
TEST(SmallOptions, AreRefusedWhereAPassWouldNotShrink) {
  int refused = 0;
  with_segments([&](const auto& o) {
    const bool together = o.hive == buzz::HiveRule::together, single = o.passes == buzz::Passes::single;
    const int chunk = o.chunk != 0 ? o.chunk : o.keep * o.stride;
    bool sound = !together || o.hive_stride == 0;
    // The rows that the least thresholds leave: one pass has to halve, and one over all rows is the only one.
    if (single) sound = sound && chunk >= 2 * o.keep;
    if (together && !single)
      for (int n = o.threshold + 1; n < 100; ++n) sound = sound && ceil_of(n * o.keep, chunk) < n;
    EXPECT_EQ(is_refused(o), !sound) << "chunk " << chunk << " keep " << o.keep << " threshold " << o.threshold;
    refused += !sound;
  });
  EXPECT_GT(refused, 300);
}

TEST(SmallOptions, OfOtherPoliciesKeepEveryPromise) {
  Lives<buzz::TopK> top;
  Small<buzz::TopK> t;
  for (t.heavy = 0; t.heavy <= 5; ++t.heavy)
    for (int threshold : {0, t.heavy, t.heavy + 1, t.heavy + 4}) {
      t.threshold = threshold;
      with_protected(t, [&](const auto& o) { top.all(o); });
    }
  Lives<buzz::KeepNone> nothing;
  Small<buzz::KeepNone> n;
  for (n.threshold = 0; n.threshold <= 7; ++n.threshold) with_protected(n, [&](const auto& o) { nothing.all(o); });
  EXPECT_GT(top.lives() + nothing.lives(), 5000);
}

TEST(SmallOptions, OfFullHoldTheirCapacityWhateverSinkAndWindowAre) {
  buzz::FullOptions full;
  for (full.capacity = 1; full.capacity <= 9; ++full.capacity)
    with_protected(full, [](const auto& o) {
      for (int max_chunk : {1, 2, 5}) {
        buzz::Evictor evictor(buzz::full(o), 1, max_chunk);
        ASSERT_EQ(evictor.capacity(), o.capacity) << "sink " << o.sink << " window " << o.window;
        const int room = std::max(0, o.capacity - o.sink);
        EXPECT_THROW(evictor.pin(o.sink, room + 1), buzz::InvalidArgument);
        evictor.pin(0, o.sink + room);
        while (evictor.rows() + max_chunk <= o.capacity) evictor.append(max_chunk);
        while (evictor.rows() < o.capacity) evictor.append(1);
        EXPECT_FALSE(evictor.should_evict());
        EXPECT_THROW(evictor.append(1), buzz::CacheFull);
        EXPECT_EQ(evictor.rows(), o.capacity);
        EXPECT_EQ(evictor.regions().rows(), o.capacity);
      }
    });
}

/// Most evictions that moved one row of a stream of single tokens, the newest of which is always the most important.
int moves(const Small<buzz::Segments>& o, int tokens) {
  buzz::Evictor evictor(policy_of(o), 1);
  std::vector<int> of(static_cast<std::size_t>(tokens));
  for (int t = 0; t < tokens; ++t) {
    evictor.append(1);
    if (!evictor.should_evict()) continue;
    const std::vector<float> importance(evictor.positions(0).begin(), evictor.positions(0).end());
    evictor.give(buzz::view(importance, 1, 1, evictor.rows()));
    const buzz::KeptRows& keep = evictor.select();
    for (int i = 0; i < evictor.rows(); ++i)
      of[static_cast<std::size_t>(importance[static_cast<std::size_t>(keep.rows(0)[i])])] += keep.rows(0)[i] != i;
  }
  return *std::max_element(of.begin(), of.end());
}

/// Rows that are dropped one by one move one by one: a chunk of 100 that leaves 99 evicts every other token.
TEST(Moves, AreNotFewWhereNearlyAllOfAChunkStays) {
  Small<buzz::Segments> o;
  EXPECT_TRUE(policy_of(o).moves_are_few(1)) << "the paper's";
  EXPECT_TRUE(policy_of(o).moves_are_few(512));
  o.hive = buzz::HiveRule::together;
  EXPECT_TRUE(policy_of(o).moves_are_few(1));
  o.sink = o.window = 0;
  o.threshold = 200;
  o.stride = 0;
  o.chunk = 100;
  o.keep = 99;
  EXPECT_FALSE(policy_of(o).moves_are_few(1));
  const int most = moves(o, 2000);
  EXPECT_GT(most, 100);
  o.hive = buzz::HiveRule::heaviest;  // and the half of each 198 is a choice among as many
  EXPECT_FALSE(policy_of(o).moves_are_few(1));
  o.hive = buzz::HiveRule::first;
  EXPECT_TRUE(policy_of(o).moves_are_few(1));
  EXPECT_LE(moves(o, 2000), buzz::few_moves);
  // A window that is long beside the threshold sees many evictions.
  o = {};
  o.window = 400;
  EXPECT_TRUE(policy_of(o).moves_are_few(1));
  o.threshold = 8;
  EXPECT_FALSE(policy_of(o).moves_are_few(1));
  EXPECT_GT(moves(o, 2000), buzz::few_moves);
}

/// The same of larger sizes, where many are few and many are not.
TEST(Moves, AreNoMoreThanIsSaid) {
  Small<buzz::Segments> o;
  int few = 0, many = 0;
  for (auto hive : {buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together})
    for (int threshold : {10, 31, 80})
      for (int window : {0, 9, 60, 200})
        for (int stride : {2, 3, 5})
          for (int keep : {1, 3, 8, 40}) {
            o.hive = hive;
            o.threshold = threshold;
            o.window = window;
            o.stride = stride;
            o.keep = keep;
            const int most = buzz::Segments::most_moves(o, window, 1);
            (most <= buzz::few_moves ? few : many) += 1;
            if (most <= buzz::few_moves) {
              EXPECT_LE(moves(o, 700), most) << threshold << " " << window << " " << keep;
            }
          }
  EXPECT_GT(few, 100);
  EXPECT_GT(many, 80);
}

TEST(Moves, DecideHowKeysAreStored) {
  buzz::Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  const buzz::Shape shape{1, 1, 4};
  buzz::BeehiveOptions o;
  o.hive = buzz::HiveRule::together;
  EXPECT_FALSE(buzz::BuzzCache<float>(shape, buzz::beehive(o), rope).has_raw_keys());
  o.stride = 0;
  o.chunk = 100;
  o.keep = 99;
  EXPECT_TRUE(buzz::BuzzCache<float>(shape, buzz::beehive(o), rope).has_raw_keys());
  rope.keys = buzz::KeyStorage::rotated;
  EXPECT_THROW(buzz::BuzzCache<float>(shape, buzz::beehive(o), rope), buzz::InvalidArgument);
}

}  // namespace
