// A model of unlike layers: each is what it would be alone, and sliding ones attend to exactly their window.

#include "buzz/layer.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "oracle_twin.h"

namespace {

using buzz::Layer;
using buzz::ModelCache;
using buzz::Shape;
using oracle::bytes_of;
using oracle::Config;
using oracle::Kind;
using oracle::Random;
using oracle::refused;
using oracle::Text;
using oracle::Tokens;
using oracle::tokens_of;
using oracle::Vector;

/// A sliding layer said slowly: every token is held, and each query attends to the last `window` of them.
class Window {
 public:
  Window(const oracle::Options& o, const oracle::Rotation& rotation, int window)
      : o_(o), rotation_(rotation), window_(window) {}

  void append(const Tokens& keys, const Tokens& values) {
    for (const auto& token : keys) keys_.push_back(token);
    for (const auto& token : values) values_.push_back(token);
  }
  Tokens attend(const Tokens& queries) const {
    Tokens out;
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const std::size_t position = keys_.size() - queries.size() + i, end = position + 1;
      const std::size_t first = end - std::min(end, static_cast<std::size_t>(window_));
      out.emplace_back();
      for (std::size_t q = 0; q < queries[i].size(); ++q) {
        const std::size_t h = q / static_cast<std::size_t>(o_.query_heads / o_.kv_heads);
        const Vector query = rotated_to(queries[i][q], static_cast<double>(position), rotation_);
        double scale = o_.scale, total = 0;
        if (o_.log_base != 0) scale *= std::log(static_cast<double>(end - first)) / std::log(o_.log_base);
        Vector mixed(values_[0][h].size(), 0.0);
        for (std::size_t r = first; r < end; ++r) {
          const double p =
              std::exp(scale * oracle::dot(query, rotated_to(keys_[r][h], static_cast<double>(r), rotation_)));
          total += p;
          for (std::size_t d = 0; d < mixed.size(); ++d) mixed[d] += p * values_[r][h][d];
        }
        for (double& x : mixed) x /= total;
        out.back().push_back(mixed);
      }
    }
    return out;
  }
  void rollback(int n) {
    keys_.resize(keys_.size() - static_cast<std::size_t>(n));
    values_.resize(keys_.size());
  }

 private:
  oracle::Options o_;
  oracle::Rotation rotation_;
  int window_;
  Tokens keys_, values_;
};

/// One layer of a mix, as the library takes it and as the oracle does.
struct Part {
  Config config;
  Layer layer;
  std::unique_ptr<oracle::Life> life;  // of a global layer
  std::unique_ptr<Window> window;      // of a sliding one
  Text text;
};

Part draw_part(Random& r, int max_chunk, int max_rollback, bool sliding) {
  const Kind kinds[] = {Kind::beehive, Kind::heavy_hitter, Kind::streaming, Kind::full};
  const std::uint64_t kind = static_cast<std::uint64_t>(kinds[sliding ? 2 : r.in(0, 3)]);
  Config c;
  do c = oracle::draw(r.bits() / 4096 * oracle::kKinds + kind);
  while (c.oracle.head_dim > 16 || c.oracle.query_heads > 4);
  c.max_chunk = max_chunk;
  c.calls = {1000};  // a full layer's capacity
  c.oracle.threshold = std::max(c.oracle.threshold, c.oracle.single_pass ? max_chunk + 3 : 3);
  c.oracle.heavy = std::max(c.oracle.heavy, 2);
  while (c.oracle.segments_room() < 1) ++c.oracle.threshold;  // room for a pin
  if (c.oracle.select == oracle::Select::heaviest) {
    c.top_threshold = 0;
    c.oracle.threshold = c.oracle.heavy;
  }
  if (sliding || c.keys == buzz::KeyStorage::rotated) c.keys = buzz::KeyStorage::automatic;
  Shape shape = library_shape(c);
  shape.max_rollback = max_rollback;
  const buzz::Rope rope = library_rope(c);
  const buzz::AttentionOptions attention = library_attention(c);
  const int window = r.in(1, 12);
  Layer layer =
      sliding ? buzz::sliding_layer(shape, window, rope, attention) : Layer{shape, library_policy(c), rope, attention};
  const oracle::Rotation rotation =
      oracle::rotation_of(rope, shape.head_dim, buzz::BuzzCache<float>(layer).has_raw_keys());
  Part part{c, layer, nullptr, nullptr, Text(c.seed, c.amplitude)};
  if (sliding)
    part.window = std::make_unique<Window>(c.oracle, rotation, window);
  else
    part.life = std::make_unique<oracle::Life>(c.oracle, rotation, true);
  return part;
}

struct Mix {
  std::vector<Part> parts;
  std::vector<Layer> layers;
  int max_chunk, max_rollback;
};

Mix draw_mix(Random& r, bool sliding_alone) {
  Mix mix;
  mix.max_chunk = r.in(1, 9);
  mix.max_rollback = r.in(0, 5);
  Random again = r;
  for (int count = r.in(1, 3); count > 0; --count)
    mix.parts.push_back(draw_part(r, mix.max_chunk, mix.max_rollback, sliding_alone || r.one_in(2)));
  again.in(1, 3);
  mix.parts.push_back(
      draw_part(again, mix.max_chunk, mix.max_rollback, sliding_alone || again.one_in(2)));  // the first
  for (const Part& part : mix.parts) mix.layers.push_back(part.layer);
  return mix;
}

struct Counts {
  int evictions = 0, near_ties = 0, rollbacks = 0, past_evictions = 0;
};

/// A call of n tokens through one layer and its oracle.
void call(Part& part, buzz::BuzzCache<float>& cache, int n, Counts& counts, bool* slid, int* floor) {
  const Shape& s = cache.shape();
  const int first = cache.next_position();
  const std::vector<float> q = part.text.queries(first, n, s.query_heads, s.head_dim),
                           k = part.text.keys(first, n, s.kv_heads, s.head_dim),
                           v = part.text.values(first, n, s.kv_heads, s.head_dim);
  std::vector<float> out(q.size());
  cache.append(buzz::view(k, n, s.kv_heads, s.head_dim), buzz::view(v, n, s.kv_heads, s.head_dim));
  cache.attend(buzz::view(q, n, s.query_heads, s.head_dim), buzz::view(out, n, s.query_heads, s.head_dim));
  cache.observe();
  const Tokens keys = tokens_of(k, s.kv_heads, s.head_dim), values = tokens_of(v, s.kv_heads, s.head_dim),
               queries = tokens_of(q, s.query_heads, s.head_dim);
  Tokens expected;
  if (part.window) {
    part.window->append(keys, values);
    expected = part.window->attend(queries);
    if (cache.evict()) {
      *slid = true;
      *floor = std::max(*floor, cache.next_position() - s.max_rollback - 1);
    }
  } else {
    part.life->append(keys, values);
    expected = part.life->attend(queries);
    if (part.config.oracle.score == oracle::Score::attention) part.life->observe();
    ASSERT_EQ(cache.evict(), part.life->should_evict());
    if (part.life->should_evict()) {
      ++counts.evictions;
      std::vector<oracle::Cache::Choice> choices;
      for (int h = 0; h < s.kv_heads; ++h) choices.push_back(follow(cache, *part.life, h, false, &counts.near_ties));
      part.life->evict(choices);
    }
    ASSERT_EQ(cache.rows(), part.life->rows());
  }
  ASSERT_LE(cache.rows(), part.layer.most_rows());
  auto x = out.begin();
  for (const auto& token : expected)
    for (const Vector& head : token)
      for (double y : head) ASSERT_NEAR(static_cast<double>(*x++), y, oracle::kTolerance);
}

void live(std::uint64_t seed, bool sliding_alone, Counts& counts) {
  Random r(seed);
  Mix mix = draw_mix(r, sliding_alone);
  auto model = std::make_unique<ModelCache<float>>(mix.layers);
  int floor = 0, pinned = -1;  // how far back sliding layers go
  bool slid = false;           // since the last chance to roll back
  for (int turn = 0; turn < 60; ++turn) {
    const int n = r.one_in(2) ? 1 : r.in(1, mix.max_chunk);
    for (std::size_t i = 0; i < mix.parts.size(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " turn " + std::to_string(turn) + " layer " + std::to_string(i) +
                   " " + describe(mix.parts[i].config));
      call(mix.parts[i], model->layer(static_cast<int>(i)), n, counts, &slid, &floor);
      if (testing::Test::HasFatalFailure()) return;
    }
    const int back = r.in(1, 5);
    if (sliding_alone) {
      EXPECT_EQ(model->can_rollback(back), back <= mix.max_rollback && model->layer(0).next_position() - back >= floor);
    }
    if (r.one_in(3) && model->can_rollback(back)) {
      model->rollback(back);
      for (Part& part : mix.parts) part.life ? part.life->rollback(back) : part.window->rollback(back);
      ++counts.rollbacks;
      counts.past_evictions += slid;
      if (pinned >= model->layer(0).next_position()) pinned = -1;
    }
    slid = false;
    if (turn == 9) {
      pinned = model->layer(0).next_position();
      model->pin(pinned, 1);
      for (Part& part : mix.parts)
        if (part.life) part.life->pin(pinned, 1);
    }
    for (int i = 0; i < model->layers(); ++i)
      EXPECT_EQ(model->layer(i).evictor().pins().empty(), model->layer(i).is_sliding() || pinned < 0);
    if (turn == 40 && pinned >= 0) {
      model->unpin(pinned, 1);
      for (Part& part : mix.parts)
        if (part.life) part.life->unpin(pinned, 1);
      pinned = -1;
    }
    if (r.one_in(10)) {
      std::istringstream file(bytes_of(*model));
      auto loaded = std::make_unique<ModelCache<float>>(mix.layers);
      loaded->load(file);
      EXPECT_EQ(loaded->bytes(), model->bytes());
      model = std::move(loaded);
      floor = model->layer(0).next_position();
    } else if (r.one_in(10)) {
      model = std::make_unique<ModelCache<float>>(model->fork());
    }
  }
}

TEST(Mixes, AreTheOraclesThroughTheirWholeLife) {
  Counts counts;
  for (std::uint64_t seed = 1; seed <= 60 && !HasFatalFailure(); ++seed) live(seed, false, counts);
  EXPECT_GT(counts.evictions, 500);
  EXPECT_LT(counts.near_ties, counts.evictions / 20);
  EXPECT_GT(counts.rollbacks, 100);
}

TEST(Mixes, OfSlidingLayersAloneRollBackPastEvictions) {
  Counts counts;
  for (std::uint64_t seed = 1; seed <= 30 && !HasFatalFailure(); ++seed) live(seed, true, counts);
  EXPECT_GT(counts.past_evictions, 50);
}

const Shape kShape{4, 2, 8, 6, 3};

TEST(SlidingLayer, HoldsNoMoreThanItSays) {
  for (int window : {1, 2, 8, 9, 40}) {
    const Layer layer = buzz::sliding_layer(kShape, window);
    EXPECT_EQ(layer.most_rows(), window + 3 + (window + 7) / 8 + 6);
    buzz::BuzzCache<float> cache(layer);
    int most = 0;
    for (int turn = 0; turn < 100; ++turn) {
      feed(cache, Text(), 1 + turn % 6);
      most = std::max(most, cache.rows());
      ASSERT_LE(cache.rows(), window + 3 + (window + 7) / 8) << "after an eviction that was due";
    }
    EXPECT_GE(most, window + 3);
  }
}

TEST(SlidingLayer, IsNoOtherPolicysThanStreamingsWithoutASink) {
  const auto refuses = [](auto change) {
    Layer layer = buzz::sliding_layer(kShape, 10);
    change(layer);
    return refused<buzz::InvalidArgument>([&] { buzz::BuzzCache<float>{layer}; });
  };
  EXPECT_EQ(refuses([](Layer&) {}), "nothing");
  EXPECT_EQ(refuses([](Layer& l) { l.attention.window = 0; }), "attention.window");
  EXPECT_EQ(refuses([](Layer& l) { l.attention.window = 14; }), "attention.window");
  EXPECT_EQ(refuses([](Layer& l) { l.policy.protect.sink = 1; }), "policy");
  EXPECT_EQ(refuses([](Layer& l) { l.policy = buzz::beehive(); }), "policy");
  for (int window : {0, -1, (1 << 28) + 1}) EXPECT_EQ(refused([&] { buzz::sliding_layer(kShape, window); }), "window");
  EXPECT_EQ(refused([&] { buzz::sliding_layer({0, 1}, 4); }), "query_heads");
}

/// Two global layers of other shapes, and three sliding ones.
std::vector<Layer> gemma(const buzz::Policy& policy) {
  const buzz::Rope local{10000.0}, global{1000000.0};
  std::vector<Layer> layers(5, buzz::sliding_layer(kShape, 16, local));
  layers[1] = {{8, 2, 16, 6, 3}, policy, global};
  layers[4] = {kShape, policy, global};
  return layers;
}

TEST(ModelOfLayers, NamesTheLayerThatIsRefused) {
  const auto refuses = [](auto change) {
    std::vector<Layer> layers = gemma(buzz::beehive());
    change(layers[3]);
    const std::string in_advance = refused([&] { ModelCache<float>::memory_of(layers); });
    const std::string made = refused([&] { ModelCache<float>{layers}; });
    EXPECT_EQ(in_advance, made);
    return made;
  };
  EXPECT_EQ(refuses([](Layer&) {}), "nothing");
  EXPECT_EQ(refuses([](Layer& l) { l.shape.head_dim = 0; }), "layer[3].head_dim");
  EXPECT_EQ(refuses([](Layer& l) { l.rope.base = -1; }), "layer[3].rope.base");
  EXPECT_EQ(refuses([](Layer& l) { l.attention.threads = 0; }), "layer[3].threads");
  EXPECT_EQ(refuses([](Layer& l) {
              l.rope.positions = buzz::Positions::compact;
              l.rope.max_position = l.most_rows() - 1;
            }),
            "layer[3].capacity");
  EXPECT_EQ(refuses([](Layer& l) { l.attention.window = 99; }), "layer[3].attention.window");
  EXPECT_EQ(refused([] { ModelCache<float>(std::vector<Layer>()); }), "layers");
  std::vector<Layer> layers = gemma(buzz::beehive());
  layers[4].policy.protect.window = -1;
  EXPECT_EQ(refused([&] { ModelCache<float>{layers}; }), "layer[4].window");
  ModelCache<float> model(gemma(buzz::beehive())), other(gemma(buzz::heavy_hitter()));
  std::istringstream file(bytes_of(model));
  EXPECT_EQ(refused<buzz::FileError>([&] { other.load(file); }), "layer[1].select");
}

template <class T>
void takes_what_was_said(const std::vector<Layer>& layers) {
  const buzz::Memory said = ModelCache<T>::memory_of(layers);
  const ModelCache<T> model(layers);
  EXPECT_EQ(said.keys_and_values, model.memory().keys_and_values);
  EXPECT_EQ(said.policy, model.memory().policy);
  EXPECT_EQ(said.scratch, model.memory().scratch);
  for (const Layer& layer : layers)
    EXPECT_EQ(buzz::BuzzCache<T>::memory_of(layer).total(), buzz::BuzzCache<T>(layer).bytes());
  EXPECT_NO_THROW(ModelCache<T>(layers, said.total()));
  EXPECT_EQ(refused([&] { ModelCache<T>(layers, said.total() - 1); }), "bytes");
}

TEST(MemoryOfLayers, IsKnownInAdvanceToTheByte) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random r(seed);
    const Mix mix = draw_mix(r, false);
    SCOPED_TRACE(seed);
    takes_what_was_said<float>(mix.layers);
    takes_what_was_said<Eigen::half>(mix.layers);
    takes_what_was_said<std::int8_t>(mix.layers);
  }
  std::vector<Layer> layers = gemma(buzz::key_outliers());
  layers[0].attention.threads = 7;
  takes_what_was_said<float>(layers);
  takes_what_was_said<std::int8_t>(gemma(buzz::snap_kv()));
}

TEST(SplitBudget, LeavesSlidingLayersTheirOwnRows) {
  const std::vector<Layer> layers = gemma(buzz::beehive());
  const int sliding = layers[0].most_rows();
  const std::vector<long long> parts = buzz::split_budget(1000 + 3 * sliding, layers, {0, 3, 7, 9, 1}, 10);
  EXPECT_EQ(parts, (std::vector<long long>{sliding, 745, sliding, sliding, 255}));
  EXPECT_EQ(refused([&] { buzz::split_budget(1000, layers, {1, 1}, 10); }), "weights");
  EXPECT_EQ(refused([&] { buzz::split_budget(3 * sliding + 19, layers, {1, 1, 1, 1, 1}, 10); }), "total");
  const std::vector<Layer> alone(2, layers[0]);
  EXPECT_EQ(refused([&] { buzz::split_budget(1000, alone, {1, 1}, 1); }), "layers");
}

TEST(PinsOfLayers, LeaveSlidingOnesAlone) {
  ModelCache<float> model(gemma(buzz::beehive()));
  model.pin(0, 7);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(model.layer(i).evictor().pins().empty(), model.layer(i).is_sliding());
  for (int turn = 0; turn < 200; ++turn)
    for (int i = 0; i < 5; ++i) feed(model.layer(i), Text(), 1 + turn % 6);
  EXPECT_EQ(model.layer(1).positions(0)[6], 6);
  EXPECT_GT(model.layer(0).positions(0)[0], 6);
  model.unpin(0, 7);
  EXPECT_TRUE(model.layer(1).evictor().pins().empty());
}

}  // namespace
