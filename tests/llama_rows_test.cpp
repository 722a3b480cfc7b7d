#include <gtest/gtest.h>

#include <numeric>

#include "buzz/adapters/llama.h"
#include "buzz/policy_list.h"
#include "expect_refused_for.h"
#include "fake_llama.h"

namespace {

using fake::Batch;
using fake::Context;

/// The rows of a layer as the cache holds them, by an own way: stored, read, and un-mixed as a sum.
std::vector<float> read_row(const Context& c, bool key, int layer, const fake::Cell& cell) {
  const std::vector<float> row = fake::row_of(c, key, layer, cell);
  const fake::Type type = key ? c.params.type_k : c.params.type_v;
  std::vector<std::uint8_t> bytes(fake::row_size(type, static_cast<std::int64_t>(row.size())));
  fake::store(type, row, bytes.data());
  std::vector<float> out(row.size());
  if (type == fake::Type::f32)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  else
    fake::ggml_get_type_traits(type)->to_float(bytes.data(), out.data(), static_cast<std::int64_t>(row.size()));
  for (int h = 0; c.mixes && h < c.kv_heads; ++h) {
    std::vector<float> head(out.begin() + h * c.head_dim, out.begin() + (h + 1) * c.head_dim);
    for (int i = 0; i < c.head_dim; ++i) {
      double sum = 0;
      for (int j = 0; j < c.head_dim; ++j)
        sum += (__builtin_popcount(static_cast<unsigned>(i & j)) % 2 != 0 ? -1 : 1) *
               static_cast<double>(head[static_cast<std::size_t>(j)]);
      out[static_cast<std::size_t>(h * c.head_dim + i)] = static_cast<float>(sum / std::sqrt(c.head_dim));
    }
  }
  return out;
}

/// What a policy keeps that sees the same rows, one list for all layers, without a cache of cells. Keys are turned back
/// here where the policy wants them un-rotated.
class Reference {
 public:
  Reference(const Context& c, const buzz::Policy& policy, int max_chunk, bool closes) : c_(c), closes_(closes) {
    buzz::Policy of_model = policy;
    of_model.sharing = buzz::Sharing::model;
    buzz::ShownRows shown;
    shown.head_dim = shown.value_dim = c.head_dim;
    for (int i = 0; i < c.layers; ++i)
      if (!c.is_sliding(i)) {
        evictors_.emplace_back(of_model.for_layer(i), c.kv_heads, max_chunk, 0, shown);
        layers_.push_back(i);
      }
    model_ = buzz::ModelEvictor(evictors_);
  }
  void decode(const std::vector<int>& tokens) {
    if (model_.should_evict(evictors_)) evict();
    for (int token : tokens) {
      const int position = cells_.empty() ? 0 : cells_.back().position + 1;
      cells_.push_back({position, position, token, 1});
    }
    for (buzz::Evictor& e : evictors_) e.append(static_cast<int>(tokens.size()));
  }
  std::vector<int> tokens() const {
    std::vector<int> all;
    for (const fake::Cell& c : cells_) all.push_back(c.token);
    return all;
  }
  std::vector<std::int32_t> positions() const {
    std::vector<std::int32_t> all;
    for (const fake::Cell& c : cells_) all.push_back(c.position);
    return all;
  }

 private:
  void evict() {
    std::vector<float> keys, values;
    model_.select(evictors_, [&](int at) {
      const int rows = static_cast<int>(cells_.size()), layer = layers_[static_cast<std::size_t>(at)];
      keys.assign(static_cast<std::size_t>(c_.kv_heads * rows * c_.head_dim), 0);
      values = keys;
      for (int r = 0; r < rows; ++r) {
        const std::vector<float> k = key(layer, r), v = read_row(c_, false, layer, cells_[static_cast<std::size_t>(r)]);
        for (int h = 0; h < c_.kv_heads; ++h)
          for (int i = 0; i < c_.head_dim; ++i) {
            const auto to = static_cast<std::size_t>((h * rows + r) * c_.head_dim + i);
            keys[to] = k[static_cast<std::size_t>(h * c_.head_dim + i)];
            values[to] = v[static_cast<std::size_t>(h * c_.head_dim + i)];
          }
      }
      const buzz::View<const float> k(keys.data(), c_.kv_heads, rows, c_.head_dim);
      const buzz::View<const float> v(values.data(), c_.kv_heads, rows, c_.head_dim);
      return std::make_pair(buzz::RowsView<float>(k), buzz::RowsView<float>(v));
    });
    const buzz::KeptRows& kept = evictors_[0].kept();
    std::vector<fake::Cell> stay;
    for (std::int32_t r : kept.rows(0)) stay.push_back(cells_[static_cast<std::size_t>(r)]);
    for (std::size_t r = 0; closes_ && r < stay.size(); ++r) stay[r].position = stay[r].rotated = static_cast<int>(r);
    cells_ = stay;
  }
  std::vector<float> key(int layer, int r) const {
    const fake::Cell& cell = cells_[static_cast<std::size_t>(r)];
    std::vector<float> k = read_row(c_, true, layer, cell);
    const int half = c_.head_dim / 2;
    for (int h = 0; evictors_[0].needs().unrotated_keys && h < c_.kv_heads; ++h)
      for (int i = 0; i < half; ++i) {
        float &a = k[static_cast<std::size_t>(h * c_.head_dim + i)],
              &b = k[static_cast<std::size_t>(h * c_.head_dim + half + i)];
        const double turn = static_cast<double>(fake::angle(i, half, cell.rotated)), x = a, y = b;
        a = static_cast<float>(x * std::cos(turn) + y * std::sin(turn));
        b = static_cast<float>(y * std::cos(turn) - x * std::sin(turn));
      }
    return k;
  }

  const Context& c_;
  bool closes_;
  std::vector<int> layers_;
  std::vector<buzz::Evictor> evictors_;
  buzz::ModelEvictor model_;
  std::vector<fake::Cell> cells_;
};

/// Weights of two layers, of which the second alone may slide.
buzz::Policy calibrated(const std::string& options) {
  auto weights = std::make_shared<buzz::Calibration>(buzz::CalibratedModel{"fake", 3, 2, 16, 16});
  for (int layer = 0; layer < 3; ++layer) {
    std::vector<float> w;
    for (int i = 0; i < 2 * 33; ++i) w.push_back(std::sin(static_cast<float>(i * i + 5 * layer)));
    weights->set(layer, w);
  }
  buzz::CalibratedOptions o;
  o.weights = weights;
  buzz::Policy policy = buzz::calibrated(o);
  std::istringstream list(options);
  for (std::string part; std::getline(list, part, ',');)
    buzz::set_option(policy, part.substr(0, part.find('=')), part.substr(part.find('=') + 1));
  return policy;
}

struct Case {
  std::string policy;
  fake::Type type = fake::Type::f16;
  fake::Flash flash = fake::Flash::enabled;
  bool mixes = false, closed = false;
  int layers = 3;
  std::vector<bool> slides = {};
};

buzz::Policy policy_of(const std::string& text) {
  if (text.compare(0, 11, "calibrated:") == 0) return calibrated(text.substr(11));
  return buzz::policy(text);
}

void expect_as_alone(const Case& k) {
  SCOPED_TRACE(k.policy);
  Context context;
  context.layers = k.layers;
  context.ubatch = 3;
  context.mixes = k.mixes;
  context.slides = k.slides;
  context.model.swa = k.slides.empty() ? 0 : 7;
  context.params.type_k = context.params.type_v = k.type;
  context.params.flash_attn_type = k.flash;
  const buzz::Policy policy = policy_of(k.policy);
  buzz::LlamaEviction<Context> eviction(policy, 5,
                                        k.closed ? buzz::LlamaPositions::closed : buzz::LlamaPositions::kept);
  eviction.attach(context.params);
  EXPECT_EQ(context.params.flash_attn_type, k.flash);
  eviction.begin(&context);
  EXPECT_EQ(context.used(), 0);
  Reference reference(context, policy, 5, k.closed);
  bool in_order = true;
  for (int t = 0, n = 1; t < 300; t += n, n = n % 5 + 1) {
    std::vector<int> tokens(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) tokens[static_cast<std::size_t>(i)] = (t + i) * 7 + 3;
    Batch batch{n};
    batch.token = tokens.data();
    ASSERT_EQ(eviction.decode(batch), 0);
    reference.decode(tokens);
    ASSERT_EQ(std::vector<std::int32_t>(eviction.positions().begin(), eviction.positions().end()),
              reference.positions())
        << t;
    ASSERT_EQ(context.used(), eviction.rows());
    std::vector<int> held;  // closed positions say nothing of which tokens stayed
    for (std::int32_t cell : eviction.cells()) held.push_back(context.cells[static_cast<std::size_t>(cell)].token);
    ASSERT_EQ(held, reference.tokens()) << t;
    ASSERT_LE(eviction.rows(), eviction.capacity());
    for (int r = 0; r < eviction.rows(); ++r) {
      ASSERT_EQ(context.cells[static_cast<std::size_t>(eviction.cells()[r])].position, eviction.positions()[r]);
      in_order = in_order && (r == 0 || eviction.cells()[r] > eviction.cells()[r - 1]);
    }
  }
  EXPECT_FALSE(in_order);  // or the test would not tell cells from rows
  EXPECT_GT(eviction.report().evictions, 10);
  EXPECT_EQ(context.computed, 0);  // the graph is computed in one piece
}

const char* const sizes = ":window=8,heavy=8,threshold=14";

TEST(LlamaRows, KeepsWhatThePolicyKeepsOfTheKeysAndValuesOfAllLayers) {
  for (const std::string name : {"key_outliers", "key_diff", "leverage", "lag_kv"}) expect_as_alone({name + sizes});
  expect_as_alone({"key_outliers:window=8,heavy=8,threshold=14,reduce=mean"});
  expect_as_alone({"calibrated:window=8,heavy=8,threshold=14,reduce=top"});
}

TEST(LlamaRows, ReadsRowsOfEveryTypeWithFlashAttentionAndWithout) {
  for (fake::Type type : {fake::Type::f32, fake::Type::f16})
    for (fake::Flash flash : {fake::Flash::enabled, fake::Flash::disabled})
      expect_as_alone({"calibrated:window=8,heavy=8,threshold=14,reduce=mean", type, flash});
  for (bool mixes : {false, true}) {
    expect_as_alone(
        {"calibrated:window=8,heavy=8,threshold=14,reduce=mean", fake::Type::q8_0, fake::Flash::enabled, mixes});
    expect_as_alone({std::string("lag_kv") + sizes, fake::Type::q8_0, fake::Flash::enabled, mixes});
  }
}

TEST(LlamaRows, TurnsKeysBackFromClosedPositions) {
  expect_as_alone({"calibrated:window=8,heavy=8,threshold=14", fake::Type::f32, fake::Flash::enabled, false, true});
  expect_as_alone({std::string("leverage") + sizes, fake::Type::f32, fake::Flash::enabled, true, true});
  expect_as_alone({std::string("key_outliers") + sizes, fake::Type::f32, fake::Flash::enabled, false, true});
}

TEST(LlamaRows, LooksAtTheLayersWithoutWindowsAlone) {
  for (const std::vector<bool>& slides :
       {std::vector<bool>{true, false, true}, {false, true, false}, {true, true, false}})
    expect_as_alone(
        {"calibrated:window=8,heavy=8,threshold=14", fake::Type::f16, fake::Flash::enabled, false, false, 3, slides});
}

TEST(LlamaRows, SaysWhatTheCacheTakesBeforeItStarts) {
  Context context;
  context.layers = 3;
  context.slides = {true, false, true};
  context.model.swa = 7;
  buzz::LlamaEviction<Context> eviction(buzz::policy(std::string("key_outliers") + sizes), 5);
  eviction.attach(context.params);
  eviction.begin(&context);
  EXPECT_EQ(eviction.cache_bytes(), 2u * 2 * (64 + 16 + 16) * 32);
  EXPECT_EQ(eviction.layers().size(), 3u);
  EXPECT_TRUE(eviction.layers()[2].slides);
}

TEST(LlamaRows, RefusesByNameWhatItCannotShow) {
  const auto expect = [](const std::string& field, const std::string& policy, auto&& spoil) {
    Context context;
    spoil(context);
    buzz::LlamaEviction<Context> eviction(policy_of(policy), 5);
    eviction.attach(context.params);
    expect_refused_for(field, [&] { eviction.begin(&context); });
    EXPECT_EQ(context.used(), 0);
    expect_refused_for("context", [&] { eviction.decode(Batch{1}); });
  };
  const std::string calibrated = "calibrated:window=8,heavy=8,threshold=14",
                    outliers = std::string("key_outliers") + sizes;
  expect("cache_k_l", outliers, [](Context& c) { c.without = "cache_k_l"; });
  expect("layer[0].keys", calibrated, [](Context& c) { c.joins = true; });
  expect("layer[0].values", calibrated, [](Context& c) { c.without = "cache_v_l"; });
  expect("n_ctx", outliers, [](Context& c) { c.slides = {true, false}, c.window_cells = 64, c.model.swa = 7; });
  expect("window", outliers, [](Context& c) { c.slides = {true, false}, c.model.swa = 9; });
  expect("layer[0].weights.kv_heads", calibrated, [](Context& c) { c.kv_heads = 4, c.head_dim = 8; });
}

TEST(LlamaRows, RefusesPoliciesThatItCannotServe) {
  for (const std::string name : {"expected_attention", "tri_attention", "cap_kv"})
    expect_refused_for("policy", [&] { buzz::LlamaEviction<Context>(buzz::policy(name + sizes), 5); });
  expect_refused_for("reduce", [&] { buzz::LlamaEviction<Context>(buzz::policy("tova:reduce=mean"), 5); });
  expect_refused_for("policy", [&] {
    const buzz::Policy both("", buzz::sum(buzz::attention_sum(), buzz::value_norm(), 1), buzz::TopK::Options{});
    buzz::LlamaEviction<Context>(both, 5);
  });
}

}  // namespace
