// One list of rows for a model: ModelCache and ModelEvictor against an oracle in double that shares no code with them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "buzz/policy_list.h"
#include "oracle.h"
#include "sanitizers.h"
#include "typed.h"

namespace {

using buzz::Reduction;
using buzz::Sharing;
using Floats = std::vector<float>;
using Rows = std::vector<int>;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int in(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return in(1, n) == 1; }
  Floats numbers(int count) {
    std::normal_distribution<float> normal;
    Floats result(static_cast<std::size_t>(count));
    for (float& x : result) x = normal(engine_);
    return result;
  }

 private:
  std::mt19937 engine_;
};

enum class Of { values, attention, user };

/// What the model of a test is.
struct Setup {
  std::vector<buzz::Layer> layers;
  Of of = Of::values;
  oracle::Options list;  // of the one list: a head of one dimension
  Reduction reduce = Reduction::sum;
  double part = 0.125;
  int max_chunk = 1;
};

Setup setup_of(Random& random) {
  Setup s;
  s.of = static_cast<Of>(random.in(0, 2));
  s.reduce = static_cast<Reduction>(random.in(0, 3));
  const double parts[] = {0.01, 0.125, 0.3, 0.5, 1};
  s.part = parts[random.in(0, 4)];
  s.max_chunk = random.in(1, 5);
  buzz::Protect protect;
  protect.sink = s.list.sink = random.in(0, 3);
  protect.window = s.list.window = random.in(0, 6);
  s.list.kv_heads = s.list.head_dim = 1;
  s.list.score = oracle::Score::given;
  std::unique_ptr<buzz::Selection> select;
  if (random.one_in(2)) {
    buzz::TopK::Options o;
    o.heavy = random.in(1, 12);
    o.threshold = random.one_in(2) ? 0 : o.heavy + random.in(0, 5);
    s.list.select = oracle::Select::heaviest;
    s.list.heavy = o.heavy;
    s.list.threshold = o.threshold == 0 ? o.heavy : o.threshold;
    select.reset(new buzz::Selection(o));
  } else {
    buzz::Segments::Options o;
    o.threshold = s.list.threshold = random.in(4, 14);
    o.keep = s.list.keep = random.in(1, 2);
    o.stride = s.list.stride = random.in(2, 4);
    o.hive_stride = s.list.hive_stride = random.in(2, 3);
    o.hive = random.one_in(2) ? buzz::HiveRule::first : buzz::HiveRule::heaviest;
    s.list.hive = o.hive == buzz::HiveRule::first ? oracle::Hive::first : oracle::Hive::heaviest;
    select.reset(new buzz::Selection(o));
  }
  const buzz::ScoreSpec score = s.of == Of::values      ? buzz::value_norm()
                                : s.of == Of::attention ? buzz::attention_sum()
                                                        : buzz::user_score();
  const buzz::Policy policy = buzz::policy(score, *select, protect, Sharing::model, {s.reduce, s.part});
  buzz::Rope rope;
  if (random.one_in(2)) rope.base = 10000;
  if (rope.base != 0 && random.one_in(2)) rope.positions = buzz::Positions::compact;
  const int layers = random.in(1, 5), global = random.in(0, layers - 1);
  for (int i = 0; i < layers; ++i) {
    buzz::Shape shape;
    shape.kv_heads = random.in(1, 3);
    shape.query_heads = shape.kv_heads * random.in(1, 2);
    shape.head_dim = 2 * random.in(1, 3);
    shape.max_chunk = s.max_chunk;
    shape.max_rollback = 4;
    if (i != global && random.one_in(3))
      s.layers.push_back(buzz::sliding_layer(shape, random.in(1, 9), buzz::Rope{10000.0}));
    else
      s.layers.push_back({shape, policy, rope});
  }
  return s;
}

/// The one list, said slowly; before each pass, a copy for rollbacks.
struct Slow {
  explicit Slow(const Setup& s) : setup(s), list(s.list) {}

  void append(int tokens) {
    before.push_back(list);
    passes.push_back(tokens);
    list.append(oracle::Tokens(static_cast<std::size_t>(tokens), {{0.}}),
                oracle::Tokens(static_cast<std::size_t>(tokens), {{0.}}));
  }
  Rows rows() const {
    Rows result;
    oracle::Cache copy = list;
    for (const oracle::Row& row : copy.head(0)) result.push_back(row.position);
    return result;
  }
  void evict(const oracle::Cache::Choice& choice) {
    list.evict({choice});
    before.clear();
    passes.clear();
  }

  /// What the heads' scores, [heads][rows], come to; rows of the middle are of meaning alone.
  std::vector<double> reduced(std::vector<std::vector<double>> heads) const {
    const oracle::Regions r = list.regions();
    const std::size_t first = static_cast<std::size_t>(r.sink),
                      end = first + static_cast<std::size_t>(r.hive + r.unfiltered);
    for (auto& head : heads) {
      if (setup.reduce == Reduction::sum) continue;
      const long double n = static_cast<long double>(end - first);
      long double mean = 0, variance = 0;
      for (std::size_t i = first; i < end; ++i) mean += head[i] / n;
      for (std::size_t i = first; i < end; ++i) variance += (head[i] - mean) * (head[i] - mean) / n;
      for (std::size_t i = first; i < end; ++i)
        head[i] = variance < 1e-20L ? 0 : static_cast<double>((head[i] - mean) / std::sqrt(variance));
    }
    std::size_t of = 1;
    while (static_cast<double>(of) < setup.part * static_cast<double>(heads.size()) - 1e-9) ++of;
    std::vector<double> result(heads[0].size());
    for (std::size_t i = first; i < end; ++i) {
      std::vector<double> row;
      for (const auto& head : heads) row.push_back(head[i]);
      std::sort(row.rbegin(), row.rend());
      const std::size_t count = setup.reduce == Reduction::maximum ? 1
                                : setup.reduce == Reduction::top   ? of
                                                                   : row.size();
      for (std::size_t k = 0; k < count; ++k) result[i] += row[k] / static_cast<double>(count);
    }
    return result;
  }
  /// Are two rows of the middle so near that rounding says which is first?
  bool near_tie(const std::vector<double>& scores) const {
    const oracle::Regions r = list.regions();
    std::vector<double> sorted(scores.begin() + r.sink, scores.begin() + r.sink + r.hive + r.unfiltered);
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i] - sorted[i - 1] < 1e-5) return true;
    return false;
  }
  /// Exactly `to` rows: the best of the middle, or of each chunk as the page says.
  oracle::Cache::Choice cut(int to, const std::vector<double>& scores) const {
    const oracle::Regions r = list.regions();
    oracle::Cache::Choice choice;
    oracle::Cache copy = list;
    Rows free;
    int pinned = 0;
    for (int i = 0; i < copy.rows(); ++i) {
      const bool middle = i >= r.sink && i < r.sink + r.hive + r.unfiltered;
      const bool pin = copy.head(0)[static_cast<std::size_t>(i)].pinned;
      pinned += middle && pin;
      if (!middle || pin)
        choice.kept.push_back(i);
      else
        free.push_back(i);
    }
    const int left = to - r.sink - r.window - pinned, count = static_cast<int>(free.size());
    Rows best;
    if (setup.list.select == oracle::Select::segments && left > 0) {
      // The shortest chunk, from its own on, of which a whole number of rows makes the number.
      int chunk = std::min(setup.list.chunk_rows(), count), keep = 0;
      for (;; ++chunk) {
        keep = static_cast<int>(1LL * left * chunk / count);
        if (keep > 0 && (static_cast<long long>(count) * keep + chunk - 1) / chunk == left) break;
      }
      best = oracle::best_of_chunks(scores, free, chunk, keep);
    } else {
      best = oracle::best(scores, free, left);
    }
    choice.kept.insert(choice.kept.end(), best.begin(), best.end());
    std::sort(choice.kept.begin(), choice.kept.end());
    return choice;
  }

  const Setup& setup;
  oracle::Cache list;
  std::vector<oracle::Cache> before;  // each pass since the last eviction
  std::vector<int> passes;
};

/// A cache of the model, and what its rows have to be.
template <class T>
struct Life {
  explicit Life(const Setup& s) : setup(s), cache(new buzz::ModelCache<T>(s.layers)), slow(s) {}

  bool global(int i) const { return !setup.layers[static_cast<std::size_t>(i)].sliding; }

  void pass(Random& random, int tokens) {
    slow.append(tokens);
    for (int i = 0; i < cache->layers(); ++i) {
      const buzz::Shape& shape = cache->layer(i).shape();
      const Floats q = random.numbers(tokens * shape.query_heads * shape.head_dim),
                   k = random.numbers(tokens * shape.kv_heads * shape.head_dim),
                   v = random.numbers(tokens * shape.kv_heads * shape.head_dim);
      Floats out(q.size());
      auto& layer = cache->layer(i);
      layer.attend(buzz::view(q, tokens, shape.query_heads, shape.head_dim),
                   buzz::view(k, tokens, shape.kv_heads, shape.head_dim),
                   buzz::view(v, tokens, shape.kv_heads, shape.head_dim),
                   buzz::view(out, tokens, shape.query_heads, shape.head_dim));
      if (!global(i)) continue;
      if (setup.of == Of::user) {
        const Floats scores = random.numbers(shape.kv_heads * layer.rows());
        layer.give(buzz::view(scores, 1, shape.kv_heads, layer.rows()));
      }
      ASSERT_EQ(layer.rows(), slow.list.rows()) << "a layer evicts nothing by itself";
      for (int h = 0; h < shape.kv_heads; ++h)
        for (int r = layer.rows() - tokens; r < layer.rows(); ++r)
          stored[{i, h, layer.positions(h)[r]}] = value(i, h, r);
    }
  }

  /// As floats, whatever the type is.
  std::vector<double> value(int i, int h, int r) const {
    const auto& layer = cache->layer(i);
    std::vector<double> result;
    for (int d = 0; d < layer.shape().head_dim; ++d) {
      double x = static_cast<double>(static_cast<float>(layer.values().row(h, r)[d]));
      if (!layer.value_scales().empty()) x *= static_cast<double>(layer.value_scales().row(0, h)[r]);
      result.push_back(x);
    }
    return result;
  }

  /// Each head's scores of each global layer.
  std::vector<std::vector<double>> scores() const {
    std::vector<std::vector<double>> all;
    for (int i = 0; i < cache->layers(); ++i) {
      const auto& layer = cache->layer(i);
      for (int h = 0; global(i) && h < layer.shape().kv_heads; ++h) {
        all.emplace_back();
        for (int r = 0; r < layer.rows(); ++r) {
          if (setup.of != Of::values) {
            all.back().push_back(layer.scores(h)[r]);
            continue;
          }
          double squares = 0;
          for (double x : stored.at({i, h, layer.positions(h)[r]})) squares += x * x;
          all.back().push_back(std::sqrt(squares));
        }
      }
    }
    return all;
  }

  /// Evicts both, to so many rows where to >= 0. Returns whether it could be compared.
  bool evict(int to = -1) {
    const bool evicts = to < 0 ? slow.list.should_evict() : to < slow.list.rows();
    if (!evicts) {
      EXPECT_FALSE(to < 0 ? cache->evict() : cache->evict_to(to));
      return true;
    }
    const std::vector<double> common = slow.reduced(scores());
    const bool tie = slow.near_tie(common);
    oracle::Cache::Choice choice = to < 0 ? slow.list.choose(0, common) : slow.cut(to, common);
    const Rows before = slow.rows();
    EXPECT_TRUE(to < 0 ? cache->evict() : cache->evict_to(to));
    if (tie) {  // takes the library's word for it
      choice.kept.clear();
      const auto positions = cache->layer(first()).positions(0);
      for (std::size_t i = 0; i < before.size(); ++i)
        if (std::find(positions.begin(), positions.end(), before[i]) != positions.end())
          choice.kept.push_back(static_cast<int>(i));
    }
    slow.evict(choice);
    return !tie;
  }
  int first() const {
    int i = 0;
    while (!global(i)) ++i;
    return i;
  }

  /// All global layers' heads hold the list's rows, with their values.
  void check() {
    const Rows expected = slow.rows();
    const oracle::Regions r = slow.list.regions();
    for (int i = 0; i < cache->layers(); ++i) {
      const auto& layer = cache->layer(i);
      ASSERT_EQ(layer.next_position(), slow.list.next_position());
      for (int h = 0; global(i) && h < layer.shape().kv_heads; ++h) {
        ASSERT_EQ(Rows(layer.positions(h).begin(), layer.positions(h).end()), expected) << "layer " << i;
        ASSERT_EQ(layer.regions(), (buzz::Regions{r.sink, r.hive, r.unfiltered, r.window}));
        for (int row = 0; row < layer.rows(); ++row)
          ASSERT_EQ(value(i, h, row), (stored.at({i, h, layer.positions(h)[row]})));
      }
      if (!global(i)) {
        ASSERT_LE(layer.rows(), layer.capacity());
        for (int row = 1; row < layer.rows(); ++row)
          ASSERT_EQ(layer.positions(0)[row], layer.positions(0)[row - 1] + 1) << "sliding layers drop the oldest alone";
      }
    }
  }

  const Setup& setup;
  std::unique_ptr<buzz::ModelCache<T>> cache;
  Slow slow;
  std::map<std::tuple<int, int, int>, std::vector<double>> stored;  // by layer, head, position
};

template <class T>
std::string bytes_of(const buzz::ModelCache<T>& cache) {
  std::ostringstream out;
  cache.save(out);
  return out.str();
}

/// A life of passes, evictions, pins, rollbacks, forks, saved files and cuts.
template <class T>
void lives(unsigned seed, int* compared, int* ties) {
  Random random(seed);
  const Setup setup = setup_of(random);
  Life<T> life(setup);
  std::set<int> pins;
  for (int step = 0; step < 40; ++step) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
    life.pass(random, random.in(1, setup.max_chunk));
    if (::testing::Test::HasFatalFailure()) return;
    if (random.one_in(4) && life.slow.passes.size() > 0) {
      const int tokens = life.slow.passes.back();
      const int next = life.slow.list.next_position();
      const auto pin = pins.lower_bound(next - tokens);  // one that goes is no matter of this test
      const bool pinned = pin != pins.end() && *pin < next;
      if (tokens <= 4 && !pinned && life.cache->can_rollback(tokens)) {
        life.cache->rollback(tokens);
        life.slow.list = life.slow.before.back();
        life.slow.before.pop_back();
        life.slow.passes.pop_back();
        life.check();
        continue;
      }
    }
    if (random.one_in(6)) {
      const int least = life.cache->layer(life.first()).evictor().least_rows();
      ++*(life.evict(random.in(least, life.slow.list.rows() + 2)) ? compared : ties);
      life.check();
      if (::testing::Test::HasFatalFailure()) return;
    }
    const bool compares = life.evict();
    ++*(compares ? compared : ties);
    life.check();
    if (::testing::Test::HasFatalFailure()) return;
    if (random.one_in(8)) {
      const Rows rows = life.slow.rows();
      const int at = rows.empty() || random.one_in(3)
                         ? life.slow.list.next_position() + random.in(0, 3)
                         : rows[static_cast<std::size_t>(random.in(0, static_cast<int>(rows.size()) - 1))];
      bool pinned = true;
      try {
        life.cache->pin(at, 1);
      } catch (const buzz::CacheFull&) {
        pinned = false;
      } catch (const buzz::InvalidArgument&) {
        pinned = false;
      }
      if (pinned && pins.insert(at).second) {
        life.slow.list.pin(at);
        for (auto& before : life.slow.before) before.pin(at);
      }
    }
    if (random.one_in(7)) {
      auto fork = std::unique_ptr<buzz::ModelCache<T>>(new buzz::ModelCache<T>(life.cache->fork()));
      life.cache.swap(fork);
      fork->reset();
      life.check();
    }
    if (random.one_in(7)) {
      std::stringstream file(bytes_of(*life.cache));
      std::unique_ptr<buzz::ModelCache<T>> loaded(new buzz::ModelCache<T>(setup.layers));
      loaded->load(file);
      ASSERT_EQ(bytes_of(*loaded), bytes_of(*life.cache));
      life.cache = std::move(loaded);
      life.slow.before.clear();
      life.slow.passes.clear();
    }
  }
}

TEST(ModelSharing, KeepsTheOraclesRowsThroughAnyLife) {
  int compared = 0, ties = 0;
  for (unsigned seed = 0; seed < sanitized::draws(100); ++seed) {
    lives<float>(seed, &compared, &ties);
    lives<Eigen::half>(1000 + seed, &compared, &ties);
    lives<std::int8_t>(2000 + seed, &compared, &ties);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(compared, 10 * ties) << "ties are few, or nothing is tested";
  EXPECT_GT(compared, static_cast<int>(sanitized::draws(3000)));
}

// By hand: user scores, whose rows are easily said.

/// One head of one dimension; sink 1, window 1, the two best of the middle.
buzz::Policy two_best(const std::string& more = ",reduce=mean") {
  buzz::Policy p = buzz::policy("leverage:sink=1,window=1,heavy=2,threshold=2,sharing=model" + more);
  p.name = "";
  p.score = buzz::user_score();
  return p;
}
const buzz::Shape kOne{1, 1, 1, 8, 8};

template <class C>
void pass(C& layer, int tokens, const Floats& scores) {
  const Floats x(static_cast<std::size_t>(tokens), 1);
  Floats out(x.size());
  layer.attend(buzz::view(x, tokens, 1, 1), buzz::view(x, tokens, 1, 1), buzz::view(x, tokens, 1, 1),
               buzz::view(out, tokens, 1, 1));
  if (!scores.empty()) layer.give(buzz::view(scores, 1, 1, layer.rows()));
}
template <class C>
Rows held(const C& layer) {
  return Rows(layer.positions(0).begin(), layer.positions(0).end());
}
/// The field that f() is refused with.
template <class Family = buzz::InvalidArgument, class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const Family& e) {
    return e.field();
  }
  return "nothing";
}

using Model = buzz::ModelCache<float>;
Model model_of(const std::string& more) { return Model(kOne, {two_best(more), two_best(more), two_best(more)}); }

/// Passes of six rows: each layer wants one of rows 1, 2 and 4 most, layer 1 in other units, and 3 a little.
void six(Model& model) {
  pass(model.layer(0), 6, {0, 10, 0, 4, 0, 0});
  pass(model.layer(1), 6, {0, 0, 90, 40, 0, 0});
  pass(model.layer(2), 6, {0, 0, 0, 4, 8, 0});
}

TEST(ModelSharing, KeepsOneListByHand) {
  const std::pair<const char*, Rows> all[] = {{",reduce=sum", {0, 2, 3, 5}},
                                              {",reduce=mean", {0, 1, 3, 5}},
                                              {",reduce=maximum", {0, 1, 2, 5}},
                                              {",reduce=top,part=0.6", {0, 1, 2, 5}},
                                              {",reduce=top,part=0.7", {0, 1, 3, 5}}};
  for (const auto& [reduce, expected] : all) {
    Model model = model_of(reduce);
    six(model);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(model.rows(i), 6) << "no layer evicts by itself";
    EXPECT_FALSE(model.layer(0).evict()) << "not even when it is asked";
    EXPECT_TRUE(model.evict());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(held(model.layer(i)), expected) << reduce << ", layer " << i;
    EXPECT_FALSE(model.evict());
  }
}

TEST(ModelSharing, OfALayerAloneIsItsOwn) {
  buzz::BuzzCache<float> model(kOne, two_best()), layer(kOne, two_best(",sharing=layer"));
  for (auto* cache : {&model, &layer}) {
    pass(*cache, 6, {});
    EXPECT_EQ(held(*cache), (Rows{0, 1, 2, 5})) << "attend() evicts";
  }
}

TEST(ModelSharing, WhoForgetsToEvictIsRefused) {
  Model model = model_of("");
  six(model);
  EXPECT_EQ(refused<buzz::CacheFull>([&] { pass(model.layer(0), 8, {}); }), "rows");
  EXPECT_EQ(model.rows(0), 6);
}

TEST(ModelSharing, LayersThatAreNotAtTheSamePlaceAreRefusedByName) {
  Model model = model_of("");
  six(model);
  pass(model.layer(2), 1, {});
  EXPECT_EQ(refused([&] { model.evict(); }), "layer[2].next_position");
  model.layer(2).rollback(1);
  model.layer(1).pin(2, 1);
  EXPECT_EQ(refused([&] { model.evict(); }), "layer[1].pins");
  model.layer(1).unpin(2, 1);
  model.layer(0).append(buzz::View<const float>(nullptr, 0, 1, 1), buzz::View<const float>(nullptr, 0, 1, 1));
  EXPECT_TRUE(model.evict());
  Model other = model_of("");
  six(other);
  other.layer(0) = buzz::BuzzCache<float>(kOne, two_best());
  pass(other.layer(0), 6, {});
  EXPECT_EQ(refused([&] { other.evict(); }), "layer[1].rows") << "a cache that was put there has evicted by itself";
}

TEST(ModelSharing, UnobservedOnesAreRefusedAndNothingIsEvicted) {
  const buzz::Policy policy = buzz::policy("heavy_hitter:sink=0,window=1,heavy=1,threshold=1,sharing=model");
  Model model(kOne, {policy, policy});
  for (int i = 0; i < 2; ++i) {
    const Floats x(3, 1);
    Floats out(3);
    model.layer(i).append(buzz::view(x, 3, 1, 1), buzz::view(x, 3, 1, 1));
    model.layer(i).attend(buzz::view(x, 3, 1, 1), buzz::view(out, 3, 1, 1));
    if (i == 0) model.layer(i).observe();
  }
  EXPECT_EQ(refused([&] { model.evict(); }), "layer[1].unobserved");
  EXPECT_EQ(refused([&] { model.evict_to(2); }), "layer[1].unobserved");
  EXPECT_EQ(model.rows(0), 3);
  model.layer(1).observe();
  EXPECT_TRUE(model.evict());
  EXPECT_EQ(model.rows(0), 2);
  EXPECT_EQ(model.rows(1), 2);
}

TEST(ModelSharing, LayersThatDoNotGoTogetherAreRefusedByName) {
  const auto of = [](const buzz::Policy& other, buzz::Shape shape = kOne) {
    return refused([&] { Model({{kOne, two_best()}, buzz::sliding_layer(kOne, 3), {shape, other}}); });
  };
  EXPECT_EQ(of(two_best()), "nothing");
  EXPECT_EQ(of(two_best(",reduce=mean,sharing=layer")), "layer[2].sharing");
  EXPECT_EQ(of(buzz::streaming()), "layer[2].sharing");
  for (const char* more : {",sink=2", ",window=2", ",heavy=1", ",threshold=3", ",reduce=maximum", ",part=0.3"})
    EXPECT_EQ(of(two_best(std::string(",reduce=mean") + more)), "layer[2].policy") << more;
  buzz::Shape shape = kOne;
  shape.max_chunk = 7;
  EXPECT_EQ(of(two_best(), shape), "layer[2].max_chunk");
  buzz::Policy scored = two_best();
  scored.score = buzz::value_norm();
  EXPECT_EQ(of(scored), "nothing") << "scores may differ";
  buzz::Layer sliding = buzz::sliding_layer(kOne, 3);
  sliding.policy.sharing = Sharing::model;
  EXPECT_EQ(refused([&] { Model({{kOne, two_best()}, sliding}); }), "layer[1].sharing");
}

TEST(ModelSharing, IsMeasuredBeforeItIsMade) {
  std::vector<buzz::Layer> layers;
  for (int i = 0; i < 3; ++i)
    layers.push_back({{4, 2, 8, 4},
                      buzz::policy("leverage:rows=40,max_chunk=4,sharing=model,reduce=top,part=0.5"),
                      buzz::Rope{10000.0}});
  layers.push_back(buzz::sliding_layer({4, 2, 8, 4}, 6));
  const Model model(layers);
  const buzz::Memory memory = Model::memory_of(layers);
  EXPECT_EQ(model.memory().policy, memory.policy);
  EXPECT_EQ(model.bytes(), memory.total());
  std::size_t policy = 0;
  for (int i = 0; i < 4; ++i) policy += model.layer(i).memory().policy;
  EXPECT_EQ(model.memory().policy - policy, 8u * (1 + 3) * 40) << "of six heads";
  EXPECT_EQ(refused([&] { Model(layers, model.bytes() - 1); }), "bytes");
  EXPECT_EQ(refused([&] { Model(layers, model.bytes()); }), "nothing");
}

TEST(ModelSharing, AnotherSharingsFileIsRefusedByName) {
  const auto file = [](const std::string& more) {
    Model model(kOne, {two_best(more)});
    std::ostringstream out;
    model.save(out);
    return out.str();
  };
  const auto loads = [](const std::string& saved, const std::string& more) {
    return refused<buzz::FileError>([&] {
      std::istringstream in(saved);
      Model(kOne, {two_best(more)}).load(in);
    });
  };
  EXPECT_EQ(loads(file(""), ""), "nothing");
  for (const char* sharing : {",sharing=layer", ",sharing=head"}) {
    EXPECT_EQ(loads(file(sharing), ""), "layer[0].sharing");
    EXPECT_EQ(loads(file(""), sharing), "layer[0].sharing");
    EXPECT_EQ(loads(file(sharing), sharing), "nothing");
  }
  EXPECT_EQ(loads(file(",reduce=mean"), ""), "layer[0].reduce");
  EXPECT_EQ(loads(file(",reduce=top"), ",reduce=top,part=0.25"), "layer[0].part");
  EXPECT_EQ(loads(file(",reduce=mean,part=0.5"), ",reduce=mean"), "nothing") << "which has no part";
}

TEST(ModelSharing, AFileWhoseLayersHoldOtherRowsIsRefused) {
  Model apart = model_of(""), model = model_of("");
  six(apart);
  pass(apart.layer(1), 1, {});
  std::stringstream file;
  apart.save(file);
  EXPECT_EQ(refused<buzz::FileError>([&] { model.load(file); }), "layer[1].next_position");
  EXPECT_EQ(model.rows(0), 0);
}

// Engines that own K and V.

TEST(ModelEvictor, KeepsWhatAModelCacheKeeps) {
  for (const char* reduce : {",reduce=sum", ",reduce=mean", ",reduce=maximum", ",reduce=top,part=0.6"}) {
    Model model = model_of(reduce);
    std::vector<buzz::Evictor> evictors;
    for (int i = 0; i < 3; ++i) evictors.emplace_back(two_best(reduce), 1, 8, 8);
    evictors.emplace_back(buzz::policy("streaming:sink=0,window=3"), 1, 8);  // one that slides
    buzz::ModelEvictor all(evictors);
    EXPECT_FALSE(all.empty());
    EXPECT_FALSE(all.should_evict(evictors)) << "nothing is there yet";
    Random random(7);
    for (int p = 0; p < 40; ++p) {
      const int tokens = random.in(1, 3);
      for (int i = 0; i < 3; ++i) {
        const Floats scores = random.numbers(model.rows(i) + tokens);
        pass(model.layer(i), tokens, scores);
        evictors[static_cast<std::size_t>(i)].append(tokens);
        evictors[static_cast<std::size_t>(i)].give(buzz::view(scores, 1, 1, model.rows(i)));
      }
      evictors[3].append(tokens);
      if (p % 7 == 3) {
        EXPECT_EQ(all.evicts(evictors, 3), model.evict_to(3));
        all.select(evictors, 3);
      } else {
        EXPECT_EQ(all.should_evict(evictors), model.evict());
        all.select(evictors);
      }
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(held(evictors[i]), held(model.layer(static_cast<int>(i)))) << reduce;
        EXPECT_EQ(evictors[i].kept().size(), evictors[i].rows());
      }
      evictors[3].select();
    }
    EXPECT_EQ(evictors[3].rows(), 3);
  }
}

TEST(ModelEvictor, SeesKeysAndValues) {
  buzz::Policy policy = two_best(",reduce=maximum");
  policy.score = buzz::value_norm();
  std::vector<buzz::Evictor> evictors;
  evictors.emplace_back(policy, 1, 8);
  evictors.emplace_back(policy, 2, 8);  // layers need not have as many heads
  for (buzz::Evictor& e : evictors) e.append(6);
  const Floats one = {0, 1, 1, 1, 9, 0}, two = {0, 1, 9, 1, 1, 0, /**/ 0, 2, 2, 2, 2, 0};
  buzz::ModelEvictor all(evictors);
  EXPECT_EQ(refused([&] { all.select(evictors); }), "layer[0].policy") << "it has to see values";
  const auto rows = [&](int layer) {
    const buzz::RowsView<float> v(layer == 0 ? buzz::view(one, 1, 6, 1) : buzz::view(two, 2, 6, 1));
    return std::make_pair(v, v);
  };
  EXPECT_EQ(refused([&] { all.select(evictors, [&](int) { return rows(0); }); }), "layer[1].keys.shape[0]");
  EXPECT_EQ(evictors[0].rows(), 6) << "and nothing has changed";
  all.select(evictors, rows);
  for (const buzz::Evictor& e : evictors) EXPECT_EQ(held(e), (Rows{0, 2, 4, 5}));
  EXPECT_EQ(Rows(evictors[1].kept().rows(1).begin(), evictors[1].kept().rows(1).end()), (Rows{0, 2, 4, 5}));
}

TEST(ModelEvictor, OfOtherSharingsIsEmpty) {
  std::vector<buzz::Evictor> evictors;
  EXPECT_TRUE(buzz::ModelEvictor(evictors).empty());
  evictors.emplace_back(buzz::streaming(), 1);
  buzz::ModelEvictor none(evictors);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_FALSE(none.should_evict(evictors));
  none.select(evictors);
}

}  // namespace
