#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/cuda/policy.cuh"
#include "buzz/cuda/select.cuh"
#include "cuda_emulation.h"
#include "oracle_config.h"

namespace {

using oracle::Random;

/// Scores in which there is much to get wrong: ties, both zeros, infinities, NaN.
float score(Random& random) {
  switch (random.in(0, 9)) {
    case 0:
      return std::numeric_limits<float>::quiet_NaN();
    case 1:
      return random.one_in(2) ? 0.f : -0.f;
    case 2:
      return random.one_in(2) ? INFINITY : -INFINITY;
    case 3:
    case 4:
    case 5:
      return static_cast<float>(random.in(-2, 2));
    default:
      return random.real();
  }
}

/// Lengths as they come about, and what the host says that an eviction makes of them.
buzz::cuda::Lengths lengths(Random& random, const buzz::Protect& protect, int most) {
  buzz::cuda::Lengths l;
  l.rows = random.in(0, most);
  l.hive = random.in(0, std::max(0, l.rows - protect.sink - protect.window));
  l.next = l.rows + random.in(0, 100);
  return l;
}

/// The rule on the emulated device against the selection's own passes, as buzz::Evictor makes them.
template <class Select>
void expect_same_rows(Random& random, const typename Select::Options& options) {
  const buzz::cuda::Rule rule = buzz::cuda::rule_of(options);
  const buzz::Protect protect{random.in(0, 5), random.in(0, 9)};
  const int capacity = random.one_in(4) ? 1300 : 400;  // up to three rows a thread
  const int heads = random.in(1, 3), sequences = random.in(1, 3);
  const int lists = random.one_in(3) ? 1 : heads;
  std::vector<buzz::cuda::State> states(static_cast<std::size_t>(sequences));
  for (auto& state : states) state.now = lengths(random, protect, random.one_in(4) ? 3 : capacity);
  const std::size_t size = static_cast<std::size_t>(sequences * heads * capacity);
  std::vector<double> scores(size), importance(2 * size, static_cast<double>(NAN));
  std::vector<std::int32_t> kept(size, -7), picks(2 * size, -7);
  for (double& x : scores) x = score(random);
  buzz::cuda::Select kernel;
  kernel.scores = scores.data();
  kernel.importance = importance.data();
  kernel.picks = picks.data();
  kernel.sequences = sequences;
  kernel.step.kept = kept.data();
  kernel.step.states = states.data();
  kernel.step.protect = protect;
  kernel.step.rule = rule;
  kernel.step.kv_heads = heads;
  kernel.step.lists = lists;
  kernel.step.capacity = capacity;
  emulated::Launcher::launch(kernel, {1, lists, sequences}, random.in(0, 1 << 20));

  const Select select(options);
  for (int s = 0; s < sequences; ++s)
    for (int list = 0; list < lists; ++list) {
      const buzz::cuda::Lengths now = states[static_cast<std::size_t>(s)].now;
      const buzz::Regions r = now.regions(protect);
      const std::int32_t* got = kept.data() + (s * lists + list) * capacity;
      const buzz::cuda::Lengths then = evicted(now, protect, rule);
      if (!select.should_evict(r)) {
        ASSERT_EQ(got[0], -7) << "no eviction";
        ASSERT_EQ(then.rows, now.rows);
        continue;
      }
      std::vector<double> its(static_cast<std::size_t>(r.middle()), 0.);
      for (int i = 0; i < r.middle(); ++i)
        for (int h = lists == 1 ? 0 : list; h < (lists == 1 ? heads : list + 1); ++h) {
          const double x = scores[static_cast<std::size_t>((s * heads + h) * capacity + r.sink + i)];
          its[static_cast<std::size_t>(i)] = lists == heads ? x : its[static_cast<std::size_t>(i)] + x;
        }
      std::vector<std::int32_t> middle(its.size()), picked(its.size());
      int forgotten = select.forgotten(r.hive);
      int count = select.pass(its.data(), r.hive, r.unfiltered, 0, middle.data());
      std::vector<double> left(its.size());
      while (select.again(count)) {
        for (int i = 0; i < count; ++i)
          left[static_cast<std::size_t>(i)] = its[static_cast<std::size_t>(middle[static_cast<std::size_t>(i)])];
        forgotten = select.forgotten(count);
        count = select.pass(left.data(), count, 0, 0, picked.data());
        for (int i = 0; i < count; ++i)
          middle[static_cast<std::size_t>(i)] = middle[static_cast<std::size_t>(picked[static_cast<std::size_t>(i)])];
      }
      ASSERT_EQ(then.hive, count);
      ASSERT_EQ(then.rows, r.sink + count + r.window);
      ASSERT_EQ(then.next, now.next);
      ASSERT_EQ(rule.forgotten(r.hive, r.unfiltered), forgotten);
      for (int i = 0; i < then.rows; ++i) {
        const int want = i < r.sink           ? i
                         : i < r.sink + count ? r.sink + middle[static_cast<std::size_t>(i - r.sink)]
                                              : now.rows - (then.rows - i);
        ASSERT_EQ(got[i], want) << "row " << i << " of " << then.rows << ", from " << now.rows;
      }
    }
}

TEST(CudaSelect, SegmentsKeepTheHostsRows) {
  Random random(1);
  for (int run = 0; run < 400; ++run) {
    buzz::Segments::Options o;
    o.threshold = random.in(1, 40);
    o.hive = random.of({buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together});
    o.passes = random.one_in(4) ? buzz::Passes::single : buzz::Passes::until_bounded;
    o.stride = random.in(o.hive == buzz::HiveRule::together || o.passes == buzz::Passes::single ? 2 : 1, 7);
    o.keep = random.in(1, 4);
    if (random.one_in(3)) {
      o.stride = 0;
      o.chunk = o.keep * 2 + random.in(0, 5);
      o.threshold = std::max(o.threshold, 20);
    }
    if (o.hive != buzz::HiveRule::together && random.one_in(2)) o.hive_stride = random.in(2, 5);
    buzz::Segments::check(o);
    expect_same_rows<buzz::Segments>(random, o);
    ASSERT_FALSE(HasFatalFailure()) << "run " << run;
  }
}

TEST(CudaSelect, TopKKeepsTheHostsRows) {
  Random random(2);
  for (int run = 0; run < 300; ++run) {
    buzz::TopK::Options o;
    o.heavy = random.in(0, random.one_in(2) ? 3 : 200);
    o.threshold = random.one_in(2) ? 0 : o.heavy + random.in(o.heavy == 0 ? 1 : 0, 40);
    expect_same_rows<buzz::TopK>(random, o);
    ASSERT_FALSE(HasFatalFailure()) << "run " << run;
  }
}

TEST(CudaSelect, StreamingKeepsSinkAndWindow) {
  Random random(3);
  for (int run = 0; run < 50; ++run) {
    buzz::KeepNone::Options o;
    o.threshold = random.in(0, 9);
    expect_same_rows<buzz::KeepNone>(random, o);
    ASSERT_FALSE(HasFatalFailure()) << "run " << run;
  }
}

/// Of one head's scores and positions the `heavy` best rows.
std::vector<std::int32_t> best(int heavy, const std::vector<double>& scores, const std::vector<std::int32_t>& positions,
                               buzz::AttentionKind kind = buzz::AttentionKind::accumulated, float fade = 0) {
  const int rows = static_cast<int>(scores.size());
  std::vector<double> importance(2 * scores.size());
  std::vector<std::int32_t> at = positions, kept(scores.size()), picks(2 * scores.size());
  buzz::cuda::State state;
  state.now = {rows, 0, positions.empty() ? rows : positions.back() + 1};
  buzz::cuda::Select kernel;
  kernel.scores = scores.data();
  kernel.fade = fade;
  kernel.importance = importance.data();
  kernel.picks = picks.data();
  kernel.step.positions = at.data();
  kernel.step.kept = kept.data();
  kernel.step.states = &state;
  kernel.step.fold.kind = kind;
  kernel.step.protect = {0, 0};
  kernel.step.rule.heavy = kernel.step.rule.threshold = heavy;
  kernel.step.capacity = rows;
  emulated::Launcher::launch(kernel, {1, 1, 1}, 1);
  kept.resize(static_cast<std::size_t>(heavy));
  return kept;
}
using Rows = std::vector<std::int32_t>;

TEST(CudaSelect, EqualRowsStayFromTheFirst) {
  EXPECT_EQ(best(5, std::vector<double>(300, 1.), {}), (Rows{0, 1, 2, 3, 4}));
}

TEST(CudaSelect, TellsSumsApartThatAreOneFloat) { EXPECT_EQ(best(1, {0x1p30, 0x1p30 + 0.25, 0x1p30}, {}), (Rows{1})); }

TEST(CudaSelect, OrderIsThatOfBeats) {
  Random random(4);
  for (int run = 0; run < 20000; ++run) {
    const double a = score(random), b = score(random);
    ASSERT_EQ(buzz::beats(a, b), buzz::cuda::order(a) > buzz::cuda::order(b)) << a << " and " << b;
  }
}

TEST(CudaSelect, MeanDividesByTheTokensSinceTheRow) {
  // Over 6, 5, ... 1 tokens: 1, 1.1, 1, 1.17, 1, 1.
  EXPECT_EQ(best(2, {6, 5.5, 4, 3.5, 2, 1}, {4, 5, 6, 7, 8, 9}, buzz::AttentionKind::mean), (Rows{1, 3}));
}

TEST(CudaSelect, AFadedMeanLosesWithItsAge) {
  // The means less 0.06 for each token after the row's: 0.7, 0.86, 0.82, 1.05, 0.94, 1.
  EXPECT_EQ(best(2, {6, 5.5, 4, 3.5, 2, 1}, {4, 5, 6, 7, 8, 9}, buzz::AttentionKind::mean, 0.06f), (Rows{3, 5}));
}

}  // namespace
