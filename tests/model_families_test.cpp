// The layers of open model families, as include/buzz/MODELS.md says: every field is accepted beside the others, and a
// token goes through.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "buzz.h"
#include "buzz/rope_scaling.h"

namespace {

using buzz::Layer;
using buzz::Rope;
using buzz::Shape;

Rope halves(double base) {
  Rope rope{base};
  rope.pairs = buzz::Pairs::halves;
  return rope;
}

/// A layer that evicts, by the keys alone.
Layer global(const Shape& shape, const Rope& rope, const buzz::AttentionOptions& attention = {}) {
  return {shape, buzz::key_outliers(buzz::KeyOutliersOptions::for_rows(256, shape.max_chunk)), rope, attention};
}

/// Three tokens through every layer: finite outputs of the right size.
void runs(const std::vector<Layer>& layers) {
  buzz::ModelCache<Eigen::half> cache(layers);
  EXPECT_EQ(cache.bytes(), buzz::ModelCache<Eigen::half>::memory_of(layers).total());
  for (int i = 0; i < cache.layers(); ++i) {
    const Shape& s = cache.layer(i).shape();
    const auto values = [](int heads, int dim) {
      std::vector<float> v(static_cast<std::size_t>(heads * dim));
      for (std::size_t d = 0; d < v.size(); ++d) v[d] = static_cast<float>(d % 7) / 8 - 0.25f;
      return v;
    };
    const std::vector<float> q = values(s.query_heads, s.head_dim), k = values(s.kv_heads, s.head_dim),
                             v = values(s.kv_heads, s.value_size());
    std::vector<float> out(static_cast<std::size_t>(s.query_heads * s.value_size()));
    for (int token = 0; token < 3; ++token) {
      cache.layer(i).attend(
          buzz::view(q, 1, s.query_heads, s.head_dim), buzz::view(k, 1, s.kv_heads, s.head_dim),
          s.values_in_keys ? buzz::View<const float>(nullptr, 0, 0, 0) : buzz::view(v, 1, s.kv_heads, s.value_size()),
          buzz::view(out, 1, s.query_heads, s.value_size()));
      for (float x : out) ASSERT_TRUE(buzz::is_finite(x));
    }
  }
}

TEST(ModelFamilies, Llama3) {
  runs({global({32, 8, 128}, buzz::rope_scaling::llama3(halves(500000.0), 128, 8, 1, 4, 8192))});
}

TEST(ModelFamilies, Qwen3) { runs({global({32, 8, 128}, halves(1000000.0))}); }

TEST(ModelFamilies, Gemma3) {
  const Shape shape{8, 4, 256};
  buzz::AttentionOptions attention;
  attention.scale = 1 / std::sqrt(256.0);  // query_pre_attn_scalar
  std::vector<Layer> layers(5, sliding_layer(shape, 1024, halves(10000.0), attention));
  layers.push_back(global(shape, halves(1000000.0), attention));
  runs(layers);
}

TEST(ModelFamilies, Gemma2) {
  const Shape shape{8, 4, 256};
  buzz::AttentionOptions attention;
  attention.scale = 1 / std::sqrt(256.0);
  attention.soft_cap = 50;
  runs({sliding_layer(shape, 4096, halves(10000.0), attention), global(shape, halves(10000.0), attention)});
}

std::vector<Layer> gpt_oss(const std::vector<std::vector<float>>& sinks) {
  const Shape shape{/*query_heads*/ 64, /*kv_heads*/ 8, /*head_dim*/ 64};
  Rope rope{150000.0};
  rope.pairs = buzz::Pairs::halves;
  rope = buzz::rope_scaling::yarn(rope, 64, 32, 4096, 32, 1, 0, /*truncate*/ false);
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    buzz::AttentionOptions attention;
    attention.sinks = sinks[i];
    if (i % 2 == 0)
      layers.push_back(buzz::sliding_layer(shape, 128, rope, attention));
    else
      layers.push_back({shape, buzz::key_outliers(buzz::KeyOutliersOptions::for_rows(1024, 1)), rope, attention});
  }
  return layers;
}

TEST(ModelFamilies, GptOss) { runs(gpt_oss(std::vector<std::vector<float>>(4, std::vector<float>(64, 0.5f)))); }

TEST(ModelFamilies, DeepSeekV3) {
  const double mscale = 0.1 * std::log(40.0) + 1;
  buzz::AttentionOptions attention;
  attention.scale = mscale * mscale / std::sqrt(192.0);
  Rope rope{10000.0};
  rope = buzz::rope_scaling::yarn(rope, 64, 40, 4096, 32, 1, 1);
  Shape latent{128, 1, 576};  // one KV head of 512 latent and 64 rotated elements
  latent.value_dim = 512;
  latent.values_in_keys = true;
  rope.dims = 64;
  rope.first = 512;
  Shape whole{128, 128, 192};  // or keys and values as they are multiplied out
  whole.value_dim = 128;
  Rope end = rope;
  end.first = 128;
  runs({global(latent, rope, attention), global(whole, end, attention)});
}

TEST(ModelFamilies, Phi) {
  Rope rope = halves(10000.0);
  rope.dims = 96;  // of 128: partial_rotary_factor 0.75
  runs({global({24, 8, 128}, rope)});
}

TEST(ModelFamilies, Mistral) { runs({buzz::sliding_layer({32, 8, 128}, 4096, halves(10000.0))}); }

TEST(ModelFamilies, Glm4) {
  Rope rope{10000.0};
  rope.dims = 64;  // of 128, interleaved; in GLM 4.5 halves
  runs({global({32, 2, 128}, rope)});
}

TEST(ModelFamilies, FalconWithAlibi) {
  buzz::AttentionOptions attention;
  for (int head = 0; head < 64; ++head)
    attention.alibi_slopes.push_back(std::exp2(-static_cast<float>(head + 1) / 8) / std::sqrt(64.f));
  runs({global({64, 64, 64}, {}, attention)});
}

TEST(ModelFamilies, SmolLm3) {
  std::vector<Layer> layers(3, global({16, 4, 128}, halves(2000000.0)));
  layers.push_back(global({16, 4, 128}, {}));  // without positions
  runs(layers);
}

TEST(ModelFamilies, Grok1) {
  buzz::AttentionOptions attention;
  attention.scale = 0.08838834764831845;  // its attn_output_multiplier
  attention.soft_cap = 30;
  runs({global({48, 8, 128}, halves(10000.0), attention)});
}

}  // namespace
