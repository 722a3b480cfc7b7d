// A policy as a value does what the template of the same name does: rows kept, scores, saved bytes.

#include <gtest/gtest.h>

#include <sstream>

#include "buzz/value/evictor.h"
#include "buzz/value/policy_text.h"
#include "oracle_config.h"
#include "oracle_twin.h"

namespace {

namespace value = buzz::value;
using oracle::Random;

constexpr int kHeads = 2, kDim = 6;

template <class C>
std::string bytes_of(const C& c) {
  std::ostringstream out;
  buzz::Writer w(out);
  C::archive(c, w);
  w.finish();
  return out.str();
}

template <class Old>
void is_the_old(const typename Old::Options& options, const value::Policy& policy, std::uint64_t seed) {
  Random r(seed);
  const int max_chunk = r.in(1, 5), max_rollback = r.in(0, 4);
  Old old(options, kHeads, max_chunk, max_rollback);
  value::Evictor made(policy, kHeads, max_chunk, max_rollback);
  ASSERT_EQ(made.capacity(), old.capacity());
  EXPECT_EQ(made.needs().attention, Old::needs_mass);
  EXPECT_EQ(made.needs().keys || made.needs().values, Old::needs_rows);
  EXPECT_EQ(policy.moves_are_few(max_chunk), options.moves_are_few(max_chunk));
  std::vector<float> keys, values;  // [rows, heads, dim], then as [heads, rows, dim]
  int evictions = 0;
  std::vector<std::vector<float>> k(kHeads), v(kHeads);
  for (int call = 0; call < 120; ++call) {
    if (old.rows() + max_chunk > old.capacity()) break;  // Full
    const int n = r.in(1, max_chunk);
    old.append(n);
    made.append(n);
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < n * kDim; ++i) {
        k[static_cast<std::size_t>(h)].push_back(r.real());
        v[static_cast<std::size_t>(h)].push_back(r.real());
      }
    const int rows = old.rows();
    if constexpr (Old::needs_mass) {
      ASSERT_EQ(made.queries_apart(), old.queries_apart());
      std::vector<float> p;
      for (int i = 0; i < 2 * kHeads * n * rows; ++i) p.push_back(std::fabs(r.real()));
      if (r.one_in(2)) {
        const buzz::View<const float> view(p.data(), 2 * kHeads, n, rows);
        old.observe(view);
        made.observe(view);
      } else {
        const buzz::View<const float> view(p.data(), std::min(n, 1 + r.in(0, n)), kHeads, rows);
        old.observe_mass(view);
        made.observe_mass(view);
      }
    }
    if constexpr (std::is_base_of<buzz::Given, typename Old::Score_>::value) {
      std::vector<float> s;
      for (int i = 0; i < kHeads * rows; ++i) s.push_back(r.real());
      old.give(buzz::View<const float>(s.data(), 1, kHeads, rows));
      made.give(buzz::View<const float>(s.data(), 1, kHeads, rows));
    }
    const int back = r.in(0, 4);
    ASSERT_EQ(made.can_rollback(back), old.can_rollback(back));
    if (r.one_in(3) && old.can_rollback(back)) {
      old.rollback(back);
      made.rollback(back);
      for (int h = 0; h < kHeads; ++h) {
        k[static_cast<std::size_t>(h)].resize(static_cast<std::size_t>(old.rows() * kDim));
        v[static_cast<std::size_t>(h)].resize(static_cast<std::size_t>(old.rows() * kDim));
      }
    }
    if (r.one_in(10)) {
      const int at = r.in(0, old.next_position());
      ASSERT_EQ(oracle::refused([&] { made.pin(at, 1); }), oracle::refused([&] { old.pin(at, 1); }));
    }
    if (r.one_in(10)) {
      old.unpin(0, 1000);
      made.unpin(0, 1000);
    }
    ASSERT_TRUE(bytes_of(made) == bytes_of(old)) << call;
    ASSERT_EQ(made.due(), old.due());
    if (!old.due()) continue;
    ++evictions;
    const int now = old.rows();
    std::vector<float> ks, vs;
    for (int h = 0; h < kHeads; ++h) {
      ks.insert(ks.end(), k[static_cast<std::size_t>(h)].begin(), k[static_cast<std::size_t>(h)].end());
      vs.insert(vs.end(), v[static_cast<std::size_t>(h)].begin(), v[static_cast<std::size_t>(h)].end());
    }
    const buzz::View<const float> kv(ks.data(), kHeads, now, kDim), vv(vs.data(), kHeads, now, kDim);
    const buzz::Keep* a;
    const buzz::Keep* b;
    if constexpr (Old::needs_rows) {
      a = &old.select(kv, vv);
      b = &made.select(kv, vv);
    } else {
      a = &old.select();
      b = &made.select();
    }
    ASSERT_EQ(a->size(), b->size());
    for (int h = 0; h < kHeads; ++h) {
      ASSERT_TRUE(std::equal(a->list(h), a->list(h) + a->size(), b->list(h))) << call << " head " << h;
      for (auto* rows_of : {&k, &v}) {
        auto& flat = (*rows_of)[static_cast<std::size_t>(h)];
        buzz::compact(*a, h, buzz::View<float>(flat.data(), 1, now, kDim));
        flat.resize(static_cast<std::size_t>(a->size() * kDim));
      }
    }
    ASSERT_TRUE(bytes_of(made) == bytes_of(old)) << call;
  }
  if (policy.name != "full") EXPECT_GT(evictions, 5) << policy.name;
}

template <class Old>
struct OldPolicy : Old {
  using Old::Old;
};

}  // namespace

namespace {
template <class Score, class Select>
struct Named : buzz::Policy<Score, Select> {
  using Score_ = Score;
  using buzz::Policy<Score, Select>::Policy;
};

template <class Score, class Select, class Make>
void all_seeds(Make&& make) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random r(seed + 1000);
    buzz::PolicyOptions<Score, Select> o;
    o.sink = r.in(0, 3);
    o.window = r.in(1, 8);
    if constexpr (std::is_base_of<buzz::Segments, Select>::value) {
      o.threshold = r.in(4, 20);
      o.stride = r.in(2, 5);
      o.keep = r.in(1, 3);
      o.hive = r.of({buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together});
      o.passes = r.one_in(4) ? buzz::Passes::single : buzz::Passes::until_bounded;
    } else if constexpr (std::is_base_of<buzz::TopK, Select>::value) {
      o.heavy = r.in(2, 9);
      o.threshold = r.one_in(2) ? 0 : o.heavy + r.in(0, 5);
    } else if constexpr (std::is_base_of<buzz::Nothing, Select>::value) {
      o.threshold = r.in(0, 4);
    } else {
      o.capacity = 100;
    }
    if constexpr (std::is_base_of<buzz::MassOptions, buzz::PolicyOptions<Score, Select>>::value) {
      if (!std::is_base_of<buzz::NewestMass, Score>::value) o.mass = static_cast<buzz::MassKind>(r.in(0, 5));
      o.decay = r.of({0.5f, 0.9f});
    }
    if constexpr (std::is_base_of<buzz::RecentMass, Score>::value) {
      o.queries = r.in(1, 7);
      o.kernel = r.of({1, 3, 7});
      o.pooling = r.one_in(2) ? buzz::Pooling::max : buzz::Pooling::average;
    }
    if constexpr (std::is_base_of<buzz::DiversityOptions, buzz::PolicyOptions<Score, Select>>::value) {
      o.unlike = static_cast<buzz::Unlike>(r.in(0, 2));
      o.mean_over = static_cast<buzz::MeanOver>(r.in(0, 1));
    }
    is_the_old<Named<Score, Select>>(o, make(o), seed);
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

TEST(ValueEvictor, IsTheTemplateOfEachName) {
  namespace n = value::named;
  using namespace buzz;
  all_seeds<Mass, Segments>([](const n::BeehiveOptions& o) { return value::beehive(o); });
  all_seeds<buzz::NoScore, Segments>([](const n::StridedOptions& o) { return value::strided(o); });
  all_seeds<buzz::KeyDiversity, Segments>([](const n::DiverseOptions& o) { return value::diverse_beehive(o); });
  all_seeds<Mixed<buzz::KeyDiversity, buzz::ValueNorm>, Segments>(
      [](const n::KeyValueOptions& o) { return value::key_value_beehive(o); });
  all_seeds<Mass, TopK>([](const n::HeavyHitterOptions& o) { return value::heavy_hitter(o); });
  all_seeds<DirectionDiversity, TopKOfAll>([](const n::KeyDiffOptions& o) { return value::key_diff(o); });
  all_seeds<Shared<Fading<MiddleDiversity>>, TopKOfHistory>(
      [](const n::KeyOutliersOptions& o) { return value::key_outliers(o); });
  all_seeds<Shared<NewestMass>, TopKOfAll>([](const n::TovaOptions& o) { return value::tova(o); });
  all_seeds<RecentMass, TopKOfPrefix>([](const n::SnapKvOptions& o) { return value::snap_kv(o); });
  all_seeds<Given, Segments>([](const n::UserOptions& o) { return value::user_scores(o); });
  all_seeds<buzz::NoScore, Nothing>([](const n::StreamingOptions& o) { return value::streaming(o); });
  all_seeds<buzz::NoScore, Everything>([](const n::FullOptions& o) { return value::full(o); });
}

TEST(PolicyText, NamesEveryPolicyAndItsOptions) {
  for (const value::PolicyInfo& info : value::policies()) {
    const value::Policy p = value::policy(info.name);
    EXPECT_EQ(value::to_text(p), info.name);
    for (const value::OptionInfo& o : value::options_of(p)) {
      EXPECT_FALSE(o.range.empty() || o.text.empty()) << info.name << " " << o.name;
      value::Policy copy = p;
      value::set_option(copy, o.name, o.value);
      EXPECT_EQ(value::to_text(copy), info.name) << o.name;
    }
  }
  value::Policy p = value::policy("heavy_hitter:sink=2,heavy=64,mass=newest");
  EXPECT_EQ(value::to_text(p), "heavy_hitter:sink=2,mass=newest,heavy=64");
  EXPECT_EQ(value::policy("key_outliers:rows=640,max_chunk=32").most_rows(32), 640);
  EXPECT_EQ(oracle::refused([] { value::policy("h2o"); }), "policy");
  EXPECT_EQ(oracle::refused([] { value::policy("streaming:heavy=3"); }), "policy option");
  EXPECT_EQ(oracle::refused([] { value::policy("streaming:sink=-3"); }), "sink");
  EXPECT_EQ(oracle::refused([] { value::policy("streaming:sink=3x"); }), "sink");
  EXPECT_EQ(oracle::refused([] { value::policy("beehive:mass=loudest"); }), "mass");
  EXPECT_EQ(oracle::refused([] { value::policy("beehive:mass=decayed,decay=1.5"); }), "decay");
  EXPECT_EQ(oracle::refused([] { value::policy("full:capacity"); }), "policy");
}

}  // namespace
