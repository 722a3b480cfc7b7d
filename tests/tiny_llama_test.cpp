#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_builder.h"
#include "model/refused.h"
#include "model/slow_forward.h"
#include "model/small_model.h"
#include "thread_pool.h"
#include "tiny_llama/cache_options.h"
#include "tiny_llama/demo_run.h"
#include "tiny_llama/documents.h"
#include "tiny_llama/llama.h"
#include "tiny_llama/model.h"
#include "tiny_llama/reader.h"
#include "tiny_llama/reading.h"
#include "tiny_llama/report.h"

namespace {

using model::bytes;
using model::GgufBuilder;
using model::small_model;
using model::text;
using tiny_llama::CacheOptions;
using tiny_llama::Llama;
using tiny_llama::Matrix;
using tiny_llama::Model;
using tiny_llama::Reader;
using Ids = std::vector<std::int32_t>;

const Model& real() {
  static const Model model = tiny_llama::read_model(BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf");
  return model;
}

Model small(const GgufBuilder& builder = small_model()) {
  return model::from_file([&] { return tiny_llama::read_model(tiny_llama::Gguf::parse(builder.build())); });
}

CacheOptions policy(const std::string& name) {
  CacheOptions options;
  options.policy = name;
  return options;
}

Llama llama(const Model& model, const CacheOptions& options, int tokens) {
  return Llama(model, tiny_llama::make_cache(model.config, options, tokens));
}

Ids numbers(int count, int vocab) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * 7 + i / 3) % vocab);
  return ids;
}

// --- our model against the values that PyTorch gave
// -------------------------------------------------------------------

TEST(OurModel, AgreesWithPyTorch) {
  std::ifstream file(BUZZ_TEST_DIR "/model/checks.json");
  const nlohmann::json checks = nlohmann::json::parse(file);
  ASSERT_EQ(checks.size(), 3u);
  for (const nlohmann::json& check : checks) {
    SCOPED_TRACE(check.at("name").get<std::string>());
    const Ids ids = real().tokenizer.encode(check.at("text").get<std::string>());
    const Ids greedy = check.at("greedy_ids").get<Ids>();
    ASSERT_EQ(ids, check.at("ids").get<Ids>());
    Llama model = llama(real(), policy("full"), static_cast<int>(ids.size() + greedy.size()));
    Reader reader(model);
    reader.read(ids);
    EXPECT_NEAR(reader.account().mean_nll(), check.at("mean_nll").get<double>(), 1e-4);
    const auto logits = check.at("last_logits_first_16").get<std::vector<float>>();
    ASSERT_EQ(logits.size(), 16u);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(reader.logits()[static_cast<int>(i)], logits[i], 2e-3);
    ASSERT_GE(greedy.size(), 32u);
    for (std::int32_t id : greedy) {
      ASSERT_EQ(reader.likeliest(), id);
      reader.read({id});
    }
  }
}

TEST(OurModel, ReadsTheSameInAnyChunks) {
  const Ids ids = numbers(70, real().config.vocab);
  tiny_llama::Vector expected;
  double nll = 0;
  for (int chunk : {1, 3, 32, 70}) {
    CacheOptions options = policy("full");
    options.max_chunk = chunk;
    Llama model = llama(real(), options, 70);
    Reader reader(model);
    reader.read(ids);
    EXPECT_EQ(reader.account().tokens, 70);
    EXPECT_EQ(reader.account().scored, 69);
    if (chunk == 1) {
      expected = reader.logits();
      nll = reader.account().nll;
    }
    EXPECT_LT((reader.logits() - expected).cwiseAbs().maxCoeff(), 1e-4f) << chunk;
    EXPECT_NEAR(reader.account().nll, nll, 1e-3) << chunk;
  }
}

TEST(Reader, IsAsFarWithoutLikelihoods) {
  const Ids ids = numbers(70, real().config.vocab);
  Llama one = llama(real(), policy("full"), 70), other = llama(real(), policy("full"), 70);
  Reader scored(one), unscored(other, false);
  scored.read(ids);
  unscored.read(ids);
  EXPECT_EQ(unscored.account().tokens, 70);
  EXPECT_EQ(unscored.account().scored, 0);
  EXPECT_EQ(unscored.account().nll, 0);
  EXPECT_LT((unscored.logits() - scored.logits()).cwiseAbs().maxCoeff(), 1e-4f);
}

TEST(OurModel, ReadsTheSameWithEveryPolicyUntilOneEvicts) {
  const Ids ids = numbers(64, real().config.vocab);
  const auto read = [&](const CacheOptions& options) {
    Llama model = llama(real(), options, 64);
    Reader reader(model);
    reader.read(ids);
    EXPECT_EQ(model.cache().rows(0), 64);
    return reader.logits();
  };
  const tiny_llama::Vector expected = read(policy("full"));
  for (const char* name : {"beehive", "streaming", "heavy_hitter", "streaming:sink=0", "key_outliers"}) {
    for (const char* positions : {"logical", "compact"}) {
      CacheOptions options = policy(name);
      options.positions = positions;
      EXPECT_LT((read(options) - expected).cwiseAbs().maxCoeff(), 1e-4f) << name << " " << positions;
    }
  }
}

TEST(OurModel, HasASmallErrorWithSmallTypes) {
  const Ids ids = numbers(64, real().config.vocab);
  const auto read = [&](const char* type) {
    CacheOptions options = policy("full");
    options.type = type;
    Llama model = llama(real(), options, 64);
    Reader reader(model);
    reader.read(ids);
    return std::make_pair(reader.account().mean_nll(), model.cache().bytes(0));
  };
  const auto [nll, size] = read("f32");
  for (const char* type : {"f16", "bf16"}) {
    const auto [small_nll, small_size] = read(type);
    EXPECT_NE(small_nll, nll) << type;
    EXPECT_NEAR(small_nll, nll, 0.05) << type;
    EXPECT_LT(small_size, size) << type;
  }
}

TEST(OurModel, GoesPastItsContextWithinTheBound) {
  CacheOptions options = policy("beehive");
  options.positions = "compact";
  options.window = 32;
  options.threshold = 64;
  const int bound = 4 + 32 + 64 + options.max_chunk;
  tiny_llama::Config config = real().config;
  config.context = bound;
  Llama model(real(), tiny_llama::make_cache(config, options, 600));
  EXPECT_EQ(model.cache().capacity(5), bound);
  tiny_llama::Random random(1);
  Ids ids = tiny_llama::make_reading(real().tokenizer, random, 600, nullptr).tokens;
  Reader reader(model);
  for (std::size_t at = 0; at < 600; at += 30) {
    reader.read(Ids(ids.begin() + static_cast<std::ptrdiff_t>(at), ids.begin() + static_cast<std::ptrdiff_t>(at) + 30));
    for (int i = 0; i < 6; ++i) ASSERT_LE(model.cache().rows(i), bound);
  }
  EXPECT_EQ(reader.account().tokens, 600);
  EXPECT_LT(reader.account().mean_nll(), 1.5);  // the uniform guess is 7.6
}

// --- the forward pass ----------------------------------------------------------------------------------------------

TEST(Forward, GivesTheLogitsOfTheLastTokens) {
  const Model model = small();
  Llama one = llama(model, policy("full"), 10), other = llama(model, policy("full"), 10);
  EXPECT_REFUSED_WITH("outputs = 2, allowed: 0 to 1", one.forward({1}, 2));
  const Matrix all = one.forward({1, 5, 6, 7}, 4);
  const Matrix last = other.forward({1, 5, 6, 7});
  ASSERT_EQ(all.rows(), 4);
  ASSERT_EQ(all.cols(), 9);
  ASSERT_EQ(last.rows(), 1);
  EXPECT_LT((all.row(3) - last.row(0)).cwiseAbs().maxCoeff(), 1e-5f);
  EXPECT_GT((all.row(2) - last.row(0)).cwiseAbs().maxCoeff(), 1e-3f);
  EXPECT_EQ(one.forward({8, 2}, 0).rows(), 0);
  const Matrix after_none = one.forward({3, 4, 5}, 2), of_all = other.forward({8, 2, 3, 4, 5}, 5);
  ASSERT_EQ(after_none.rows(), 2);
  EXPECT_LT((after_none - of_all.bottomRows(2)).cwiseAbs().maxCoeff(), 1e-5f);
}

TEST(Forward, UsesItsOwnOutputWhereThereIsOne) {
  const Model tied = small();
  GgufBuilder g = small_model();
  g.tensor("output.weight") = {"output.weight", {32, 9}, model::tensor_f32, model::random_f32(32 * 9, 99)};
  const Model untied = small(g);
  Llama one = llama(tied, policy("full"), 10), other = llama(untied, policy("full"), 10);
  EXPECT_GT((one.forward({1}) - other.forward({1})).cwiseAbs().maxCoeff(), 1e-3f);
}

/// Its logits after each token, read in chunks, and those of the forward pass said slowly.
void expect_slow_logits(const GgufBuilder& builder, int tokens, int chunk, buzz::Executor run = {}) {
  const tiny_llama::Gguf file = tiny_llama::Gguf::parse(builder.build());
  const Model model = tiny_llama::read_model(file);
  CacheOptions options = policy("full");
  options.max_chunk = chunk;
  options.threads = 3;
  Llama l(model, tiny_llama::make_cache(model.config, options, tokens), run);
  const Ids ids = numbers(tokens, model.config.vocab);
  const model::SlowForward::Rows slow = model::SlowForward(file)(ids);
  for (int at = 0; at < tokens; at += chunk) {
    const int n = std::min(chunk, tokens - at);
    const Matrix logits = l.forward(Ids(ids.begin() + at, ids.begin() + at + n), n);
    for (int t = 0; t < n; ++t)
      for (int i = 0; i < model.config.vocab; ++i) {
        const double expected = slow[static_cast<std::size_t>(at + t)][static_cast<std::size_t>(i)];
        ASSERT_NEAR(static_cast<double>(logits(t, i)), expected, 2e-4) << "chunk " << chunk << " token " << at + t;
      }
  }
}

TEST(Forward, OfLlamaIsWhatItIsSaidSlowly) {
  GgufBuilder g = small_model();
  for (int chunk : {1, 7, 20}) expect_slow_logits(g, 20, chunk);
}

TEST(Forward, OfGemmaIsWhatItIsSaidSlowly) {  // 20 tokens are five windows of the layers that slide
  GgufBuilder g = model::small_gemma();
  for (int chunk : {1, 3, 7, 20}) expect_slow_logits(g, 20, chunk);
  g.set("gemma3.attention.sliding_window_pattern", model::u32, bytes(2u));  // the layer in the middle is global
  expect_slow_logits(g, 20, 5);
}

TEST(Forward, IsTheSameOnAnyThreads) {
  examples::ThreadPool pool(3);
  expect_slow_logits(model::small_gemma(), 20, 7, pool);
  const Model model = small(model::small_gemma());
  Llama one = llama(model, policy("full"), 20);
  Llama three(model, tiny_llama::make_cache(model.config, policy("full"), 20), pool);
  EXPECT_EQ(Matrix(one.forward(numbers(20, 12), 20)), Matrix(three.forward(numbers(20, 12), 20)));
}

TEST(Forward, OfGemmaGoesOnInAFork) {
  const Model model = small(model::small_gemma());
  Llama first = llama(model, policy("full"), 20);
  first.forward(numbers(9, 12));
  Llama second = first.fork();
  first.forward({5});
  EXPECT_EQ(Matrix(second.forward({6, 7})), [&] {
    Llama other = llama(model, policy("full"), 20);
    other.forward(numbers(9, 12));
    return Matrix(other.forward({6, 7}));
  }());
}

TEST(Forward, OfGemmaHoldsAWindowInTheLayersThatSlide) {
  const Model model = small(model::small_gemma());
  Llama l = llama(model, policy("full"), 20);
  l.forward(numbers(20, 12));
  for (int layer : {0, 1}) {  // a window of 4, and one row more before an eviction
    EXPECT_GE(l.cache().rows(layer), 4);
    EXPECT_LE(l.cache().rows(layer), 5);
  }
  EXPECT_EQ(l.cache().rows(2), 20);
  EXPECT_EQ(l.cache().capacity(2), 20);
}

TEST(ForwardRefuses, InAGlobalLayerWhatSlidingOnesWouldTake) {
  const Model model = small(model::small_gemma());
  Llama spoilt = llama(model, policy("full"), 6), good = llama(model, policy("full"), 6);
  spoilt.forward(numbers(5, 12));
  good.forward(numbers(5, 12));
  EXPECT_REFUSED("rows = 7, allowed: 0 to 6", spoilt.forward({5, 6}));
  EXPECT_EQ(spoilt.cache().rows(0), good.cache().rows(0));
  EXPECT_EQ(Matrix(spoilt.forward({6})), Matrix(good.forward({6})));
}

TEST(ForwardRefuses, BadTokensAndStaysAsItWas) {
  const Model model = small();
  Llama spoilt = llama(model, policy("full"), 10), good = llama(model, policy("full"), 10);
  spoilt.forward({1, 5});
  good.forward({1, 5});
  EXPECT_REFUSED("token id = 9, allowed: 0 to 8", spoilt.forward({5, 9}));
  EXPECT_REFUSED("token id = -1, allowed: 0 to 8", spoilt.forward({-1}));
  EXPECT_REFUSED("tokens = 0, allowed: 1 to 32", spoilt.forward({}));
  EXPECT_REFUSED("tokens = 33, allowed: 1 to 32", spoilt.forward(Ids(33, 5)));
  EXPECT_EQ(spoilt.cache().rows(0), 2);
  EXPECT_EQ(Matrix(spoilt.forward({6})), Matrix(good.forward({6})));
}

TEST(ForwardRefuses, MoreThanTheFullCacheHolds) {
  const Model model = small();
  Llama l = llama(model, policy("full"), 3);
  l.forward({1, 5});
  EXPECT_REFUSED("rows = 4, allowed: 0 to 3", l.forward({5, 6}));
  EXPECT_THROW(l.forward({5, 6}), buzz::CacheFull);
  EXPECT_EQ(l.cache().rows(0), 2);
  l.forward({5});
}

TEST(ForwardRefuses, PositionsPastTheContext) {
  const Model model = small();  // of context 64
  CacheOptions options = policy("streaming");
  options.window = 8;
  Llama l = llama(model, options, 64);
  for (int i = 0; i < 64; ++i) l.forward({5});
  EXPECT_REFUSED_WITH("position", l.forward({5}));
}

// --- the choice of a cache -------------------------------------------------------------------------------------------

void make(const Model& model, const CacheOptions& options, int tokens = 64) {
  tiny_llama::make_cache(model.config, options, tokens);
}

TEST(CacheOptions, ReachThePolicy) {
  CacheOptions options = policy("beehive");
  options.sink = 1;
  options.window = 2;
  options.threshold = 3;
  options.stride = 5;
  options.max_chunk = 4;
  EXPECT_EQ(tiny_llama::make_cache(real().config, options, 64)->capacity(0), 10);
  options.policy = "streaming";
  options.stride.reset();
  EXPECT_EQ(tiny_llama::make_cache(real().config, options, 64)->capacity(0), 10);
  options.policy = "heavy_hitter";
  options.heavy = 2;
  EXPECT_EQ(tiny_llama::make_cache(real().config, options, 64)->capacity(0), 10);
  options = policy("streaming:sink=0");
  options.window = 9;
  options.max_chunk = 4;
  EXPECT_EQ(tiny_llama::make_cache(real().config, options, 64)->capacity(0), 13);
  options = policy("heavy_hitter:sink=1,window=7,heavy=2,threshold=3");  // options beside the text go before it
  options.window = 2;
  options.max_chunk = 4;
  EXPECT_EQ(tiny_llama::make_cache(real().config, options, 64)->capacity(0), 10);
  EXPECT_EQ(tiny_llama::make_cache(real().config, policy("full"), 64)->capacity(0), 64);
}

TEST(CacheOptionsRefuse, WhatThePolicyDoesNotHave) {
  const auto given = [](const char* name, std::optional<int> CacheOptions::*option) {
    CacheOptions options = policy(name);
    options.*option = 3;
    return options;
  };
  const auto text = [](const std::string& option, const std::string& has) {
    return "policy option = " + option + ", allowed: " + has + ", sharing, reduce, part";
  };
  const std::string segments =
                        "sink, window, attention, decay, threshold, stride, chunk, keep, hive_stride, hive, passes",
                    top = "sink, window, attention, decay, heavy, threshold", none = "sink, window, threshold";
  EXPECT_REFUSED(text("sink", "capacity"), make(real(), given("full", &CacheOptions::sink)));
  EXPECT_REFUSED(text("window", "capacity"), make(real(), given("full", &CacheOptions::window)));
  EXPECT_REFUSED(text("threshold", "capacity"), make(real(), given("full", &CacheOptions::threshold)));
  EXPECT_REFUSED(text("stride", "capacity"), make(real(), given("full", &CacheOptions::stride)));
  EXPECT_REFUSED(text("heavy", "capacity"), make(real(), given("full", &CacheOptions::heavy)));
  EXPECT_REFUSED(text("heavy", segments), make(real(), given("beehive", &CacheOptions::heavy)));
  EXPECT_REFUSED(text("stride", top), make(real(), given("heavy_hitter", &CacheOptions::stride)));
  EXPECT_REFUSED(text("heavy", none), make(real(), given("streaming", &CacheOptions::heavy)));
  EXPECT_REFUSED(text("stride", none), make(real(), given("streaming", &CacheOptions::stride)));
}

TEST(CacheOptionsRefuse, NamesThatAreNone) {
  EXPECT_REFUSED_WITH("policy = lru, allowed: beehive, strided", make(real(), policy("lru")));
  CacheOptions options;
  options.positions = "absolute";
  EXPECT_REFUSED("positions = 'absolute', allowed: logical or compact", make(real(), options));
  options = {};
  options.type = "f64";
  EXPECT_REFUSED("type = 'f64', allowed: f32, f16 or bf16", make(real(), options));
}

TEST(CacheOptionsRefuse, WhatTheLibraryRefuses) {
  CacheOptions options = policy("beehive");
  options.stride = 0;
  EXPECT_REFUSED("layer[0].stride = 0, allowed: >= 1", make(real(), options));
  options = policy("streaming");
  options.sink = -1;
  EXPECT_REFUSED("sink = -1, allowed: 0 to 2147483647", make(real(), options));
}

TEST(CacheOptionsRefuse, MorePositionsThanTheContext) {
  EXPECT_REFUSED("tokens = 2049, allowed: <= 2048, the model's context, with positions logical",
                 make(real(), policy("beehive"), 2049));
  CacheOptions options = policy("full");
  options.positions = "compact";
  EXPECT_REFUSED("layer[0].capacity = 2049, allowed: 1 to 2048", make(real(), options, 2049));
}

// --- models that are none --------------------------------------------------------------------------------------------

/// The small model's file with one metadata value set, or removed where `type` is none.
Model with(const std::string& key, std::uint32_t type, const std::string& value) {
  GgufBuilder g = small_model();
  g.set(key, type, value);
  return small(g);
}
Model with(const std::string& key, std::uint32_t value) { return with(key, model::u32, bytes(value)); }
Model with(const std::string& key, float value) { return with(key, model::f32, bytes(value)); }

TEST(ModelRefuses, MissingMetadata) {
  for (const char* key :
       {"general.architecture", "llama.context_length", "llama.embedding_length", "llama.block_count",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    GgufBuilder g = small_model();
    g.remove(key);
    EXPECT_REFUSED(std::string(key) + " = missing, allowed: metadata that a llama model has", small(g));
  }
}

TEST(Model, HasDefaultsForWhatMayBeMissing) {
  GgufBuilder g = small_model();
  for (const char* key : {"llama.rope.dimension_count", "llama.rope.freq_base", "llama.vocab_size",
                          "tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token"}) {
    g.remove(key);
  }
  const Model model = small(g);
  EXPECT_EQ(model.config.rope_dims, 8);
  EXPECT_EQ(model.config.rope_base, 10000.0f);
  EXPECT_EQ(model.config.vocab, 9);
  EXPECT_EQ(model.tokenizer.encode("a")[0], 1);
}

TEST(ModelRefuses, MissingTensors) {
  for (const model::TensorEntry& entry : small_model().tensors) {
    GgufBuilder g = small_model();
    g.tensor(entry.name).name = "another";
    EXPECT_REFUSED_WITH(entry.name + " = missing, allowed: a tensor of shape [", small(g));
  }
}

TEST(ModelRefuses, TensorsThatTheForwardPassHasNoUseFor) {
  GgufBuilder g = small_model();
  g.tensor("blk.0.attn_q.bias") = {"blk.0.attn_q.bias", {32}, model::tensor_f32, model::random_f32(32, 1)};
  EXPECT_REFUSED("tensor = 'blk.0.attn_q.bias', allowed: the tensors of a llama model without biases", small(g));
  for (const char* name : {"rope_freqs.weight", "blk.0.ffn_gate_inp.weight", "blk.1.attn_q.weight", "output.bias"}) {
    g = small_model();
    g.tensor(name) = {name, {4}, model::tensor_f32, model::random_f32(4, 1)};
    EXPECT_REFUSED("tensor = '" + std::string(name) + "', allowed: the tensors of a llama model without biases",
                   small(g));
  }
}

TEST(ModelRefuses, ShapesThatDisagreeWithTheMetadata) {
  EXPECT_REFUSED("token_embd.weight shape = [9, 32], allowed: [9, 64], as the metadata say",
                 with("llama.embedding_length", 64u));
  EXPECT_REFUSED("blk.0.ffn_gate.weight shape = [32, 32], allowed: [64, 32], as the metadata say",
                 with("llama.feed_forward_length", 64u));
  EXPECT_REFUSED("blk.0.attn_k.weight shape = [16, 32], allowed: [32, 32], as the metadata say",
                 with("llama.attention.head_count_kv", 4u));
  EXPECT_REFUSED("blk.1.attn_norm.weight = missing, allowed: a tensor of shape [32]", with("llama.block_count", 2u));
  EXPECT_REFUSED("llama.vocab_size = 8, allowed: 9, the elements of tokenizer.ggml.tokens",
                 with("llama.vocab_size", 8u));
  GgufBuilder g = small_model();
  g.tensor("output_norm.weight").lengths = {4, 8};
  EXPECT_REFUSED("output_norm.weight shape = [8, 4], allowed: [32], as the metadata say", small(g));
}

TEST(ModelRefuses, NumbersOutOfRange) {
  EXPECT_REFUSED("llama.block_count = 0, allowed: 1 to 1024", with("llama.block_count", 0u));
  EXPECT_REFUSED("llama.block_count = 4294967295, allowed: 1 to 1024", with("llama.block_count", ~0u));
  EXPECT_REFUSED("llama.context_length = 0, allowed: 1 to 16777216", with("llama.context_length", 0u));
  EXPECT_REFUSED("llama.embedding_length = 70000, allowed: 1 to 65536", with("llama.embedding_length", 70000u));
  EXPECT_REFUSED("llama.embedding_length = 32, allowed: a multiple of llama.attention.head_count = 6",
                 with("llama.attention.head_count", 6u));
  EXPECT_REFUSED("llama.attention.head_count = 4, allowed: a multiple of llama.attention.head_count_kv = 3",
                 with("llama.attention.head_count_kv", 3u));
  EXPECT_REFUSED("llama.attention.head_count_kv = 8, allowed: 1 to 4", with("llama.attention.head_count_kv", 8u));
  EXPECT_REFUSED("llama.rope.dimension_count = 0, allowed: 2 to 8", with("llama.rope.dimension_count", 0u));
  EXPECT_REFUSED("llama.rope.dimension_count = 10, allowed: 2 to 8", with("llama.rope.dimension_count", 10u));
  EXPECT_REFUSED("llama.rope.dimension_count = 5, allowed: an even number", with("llama.rope.dimension_count", 5u));
  EXPECT_REFUSED_WITH("allowed: finite and > 1", with("llama.rope.freq_base", 1.0f));
  EXPECT_REFUSED_WITH("allowed: finite and > 1", with("llama.rope.freq_base", NAN));
  EXPECT_REFUSED_WITH("allowed: > 0 and < 1", with("llama.attention.layer_norm_rms_epsilon", 0.0f));
  EXPECT_REFUSED_WITH("allowed: > 0 and < 1", with("llama.attention.layer_norm_rms_epsilon", NAN));
  EXPECT_REFUSED("tokenizer.ggml.bos_token_id = 9, allowed: 0 to 8", with("tokenizer.ggml.bos_token_id", 9u));
}

TEST(ModelRefuses, OtherArchitecturesAndVariants) {
  EXPECT_REFUSED("general.architecture = 'gpt2', allowed: 'llama' or 'gemma3'",
                 with("general.architecture", model::string, text("gpt2")));
  EXPECT_REFUSED("tokenizer.ggml.model = 'bert', allowed: 'llama' (sentencepiece BPE) or 'gpt2' (BPE of bytes)",
                 with("tokenizer.ggml.model", model::string, text("bert")));
  EXPECT_REFUSED("llama.rope.scaling.type = 'yarn', allowed: 'none'",
                 with("llama.rope.scaling.type", model::string, text("yarn")));
  EXPECT_REFUSED("llama.attention.key_length = 16, allowed: 8, embedding_length / head_count",
                 with("llama.attention.key_length", 16u));
}

TEST(GemmaRefuses, WhatItsForwardPassDoesNotHonour) {
  const auto gemma = [](const std::string& key, std::uint32_t type, const std::string& value) {
    GgufBuilder g = model::small_gemma();
    g.set(key, type, value);
    return small(g);
  };
  EXPECT_NO_THROW(small(model::small_gemma()));
  EXPECT_REFUSED("gemma3.attention.value_length = 16, allowed: 20, gemma3.attention.key_length",
                 gemma("gemma3.attention.value_length", model::u32, bytes(16u)));
  EXPECT_REFUSED("gemma3.rope.scaling.type = 'linear', allowed: 'none'",
                 gemma("gemma3.rope.scaling.type", model::string, text("linear")));
  EXPECT_REFUSED("gemma3.final_logit_softcapping = 30, allowed: 0",
                 gemma("gemma3.final_logit_softcapping", model::f32, bytes(30.0f)));
  EXPECT_REFUSED("gemma3.attention.sliding_window_pattern = 0, allowed: 1 to 1024",
                 gemma("gemma3.attention.sliding_window_pattern", model::u32, bytes(0u)));
  EXPECT_REFUSED_WITH("gemma3.rope.freq_base_swa = 1.0", gemma("gemma3.rope.freq_base_swa", model::f32, bytes(1.0f)));
  EXPECT_REFUSED_WITH("gemma3.block_count = 62, allowed: another number",
                      gemma("gemma3.block_count", model::u32, bytes(62u)));
  EXPECT_REFUSED_WITH("gemma3.x = 1", gemma("gemma3.x", model::u32, bytes(1u)));
  EXPECT_REFUSED_WITH("llama.x = 1", gemma("llama.x", model::u32, bytes(1u)));
  GgufBuilder g = model::small_gemma();
  g.tensor("blk.2.attn_q_norm.weight").name = "another";
  EXPECT_REFUSED_WITH("blk.2.attn_q_norm.weight = missing", small(g));
}

TEST(Gemma, HasDefaultsForWhatMayBeMissing) {
  GgufBuilder g = model::small_gemma();
  g.remove("gemma3.rope.freq_base_swa");
  g.remove("gemma3.attention.sliding_window_pattern");
  const tiny_llama::Config c = small(g).config;
  EXPECT_EQ(c.sliding_rope_base, 10000.0f);
  EXPECT_EQ(c.global_every, 6);
  EXPECT_TRUE(c.slides(4));
  EXPECT_FALSE(c.slides(5));
  g.remove("gemma3.attention.sliding_window");
  EXPECT_FALSE(small(g).config.slides(4));
}

TEST(Model, OfAnotherTokenizerIsRead) {
  GgufBuilder g = small_model();
  g.set("tokenizer.ggml.model", model::string, text("gpt2"));
  EXPECT_REFUSED("tokenizer.ggml.pre = missing, allowed: metadata that a llama model has", small(g));
  g.set("tokenizer.ggml.pre", model::string, text("llama-bpe"));
  EXPECT_REFUSED("tokenizer.ggml.pre = 'llama-bpe', allowed: 'smollm'", small(g));
  g.set("tokenizer.ggml.pre", model::string, text("smollm"));
  EXPECT_REFUSED("tokenizer.ggml.merges = missing, allowed: metadata that a llama model has", small(g));
  g.set("tokenizer.ggml.merges", model::array, model::list<std::string>(model::string, {"a b", "\xC4\xA0 ab"}));
  g.set("tokenizer.ggml.tokens", model::array,
        model::list<std::string>(model::string, {"<unk>", "<s>", "</s>", "c", "\xC4\xA0", "a", "b", "ab",
                                                 "\xC4\xA0"
                                                 "ab"}));
  g.set("tokenizer.ggml.token_type", model::array, model::list<std::int32_t>(model::i32, {2, 3, 3, 1, 1, 1, 1, 1, 1}));
  g.remove("tokenizer.ggml.add_bos_token");
  g.remove("tokenizer.ggml.add_space_prefix");
  EXPECT_EQ(small(g).tokenizer.encode("ab abc"), (Ids{7, 8, 3}));
}

/// Keys that change what is computed, each with a value that changes nothing and one that does.
struct Variant {
  const char* key;
  std::uint32_t type;
  std::string neutral, other;
  const char* text;  // of the refusal, after the key
};
const Variant variants[] = {
    {"llama.rope.scale_linear", model::f32, bytes(1.0f), bytes(4.0f), "4, allowed: 1"},
    {"llama.rope.scaling.factor", model::f32, bytes(1.0f), bytes(8.0f), "8, allowed: 1"},
    {"llama.rope.scaling.attn_factor", model::f32, bytes(1.0f), bytes(1.5f), "1.5, allowed: 1"},
    {"llama.rope.scaling.yarn_log_multiplier", model::f32, bytes(0.0f), bytes(0.1f), "0.100000001, allowed: 0"},
    {"llama.rope.scaling.type", model::string, text("none"), text("linear"), "'linear', allowed: 'none'"},
    {"llama.attention.causal", model::boolean, std::string(1, '\1'), std::string(1, '\0'), "false, allowed: true"},
    {"llama.attention.scale", model::f32, bytes(1 / std::sqrt(8.0f)), bytes(1.0f), "1, allowed: 0.353553385"},
    {"llama.attention.sliding_window", model::u32, bytes(0u), bytes(16u), "16, allowed: 0"},
    {"llama.attention.max_alibi_bias", model::f32, bytes(0.0f), bytes(8.0f), "8, allowed: 0"},
    {"llama.attention.clamp_kqv", model::f32, bytes(0.0f), bytes(6.0f), "6, allowed: 0"},
    {"llama.attn_logit_softcapping", model::f32, bytes(0.0f), bytes(50.0f), "50, allowed: 0"},
    {"llama.final_logit_softcapping", model::f32, bytes(0.0f), bytes(NAN), "nan, allowed: 0"},
    {"llama.logit_scale", model::f32, bytes(1.0f), bytes(0.0625f), "0.0625, allowed: 1"},
    {"llama.embedding_scale", model::f32, bytes(1.0f), bytes(12.0f), "12, allowed: 1"},
    {"llama.residual_scale", model::f32, bytes(1.0f), bytes(NAN), "nan, allowed: 1"},
    {"llama.expert_count", model::u32, bytes(0u), bytes(8u), "8, allowed: 0"},
    {"llama.expert_used_count", model::u32, bytes(0u), bytes(2u), "2, allowed: 0"},
    {"llama.use_parallel_residual", model::boolean, std::string(1, '\0'), std::string(1, '\1'), "true, allowed: false"},
    {"llama.tensor_data_layout", model::string, text("Meta AI original pth"), text("reference"),
     "'reference', allowed: 'Meta AI original pth'"},
    {"llama.attention.value_length", model::u32, bytes(8u), bytes(4u), "4, allowed: 8, embedding_length / head_count"},
    {"general.type", model::string, text("model"), text("adapter"), "'adapter', allowed: 'model'"},
    {"general.quantization_version", model::u32, bytes(2u), bytes(1u), "1, allowed: 2"},
    {"tokenizer.ggml.pre", model::string, text("default"), text("llama-bpe"), "'llama-bpe', allowed: 'default'"},
    {"tokenizer.ggml.remove_extra_whitespaces", model::boolean, std::string(1, '\0'), std::string(1, '\1'),
     "true, allowed: false"},
    {"tokenizer.ggml.escape_whitespaces", model::boolean, std::string(1, '\1'), std::string(1, '\0'),
     "false, allowed: true"},
    {"tokenizer.ggml.add_sep_token", model::boolean, std::string(1, '\0'), std::string(1, '\1'),
     "true, allowed: false"},
    {"tokenizer.ggml.eot_token_id", model::u32, bytes(2u), bytes(3u), "3, allowed: 2"},
};

TEST(ModelRefuses, MetadataThatTheForwardPassDoesNotHonour) {
  for (const Variant& v : variants) {
    EXPECT_NO_THROW(with(v.key, v.type, v.neutral)) << v.key;
    EXPECT_REFUSED(std::string(v.key) + " = " + v.text, with(v.key, v.type, v.other));
  }
  EXPECT_REFUSED("llama.attention.causal = 'no', allowed: 1",
                 with("llama.attention.causal", model::string, text("no")));
  EXPECT_NO_THROW(with("llama.logit_scale", model::u64, bytes<std::uint64_t>(1))) << "1 is 1 in every type";
}

TEST(ModelRefuses, KeysThatItDoesNotKnow) {
  const std::string why = ", allowed: no value, since this reader does not know the key";
  for (const char* key :
       {"llama.rope.scaling.yarn_beta_fast", "llama.attention.layer_norm_epsilon", "llama.pooling_type", "llama.x",
        "llama.attention.head_count_kvs", "llama.", "tokenizer.ggml.merges", "tokenizer.ggml.add_prefix", "tokenizer.x",
        "split.count", "adapter.lora.alpha", "clip.has_vision_encoder", "gemma.attention.causal", "logit_scale",
        "llama.a.name.longer.than.what.is.printed.of.a.value"}) {
    EXPECT_REFUSED(key + (" = 3" + why), with(key, 3u));
  }
  EXPECT_REFUSED("llama.suppress = an array of 2 elements" + why,
                 with("llama.suppress", model::array, model::list<float>(model::f32, {1, 2})));
  EXPECT_REFUSED("llama.a?? = 'x?'" + why, with("llama.a\n\xFF", model::string, text("x\x1B")));
}

TEST(Model, PassesOverWhatOnlyDescribesIt) {
  GgufBuilder g = small_model();
  for (const char* key :
       {"general.name", "general.author", "general.base_model.0.name", "quantize.imatrix.file",
        "tokenizer.chat_template", "tokenizer.chat_template.tool_use", "tokenizer.huggingface.json"}) {
    g.set(key, model::string, text("x"));
  }
  g.set("tokenizer.ggml.padding_token_id", model::u32, bytes(~0u));
  g.set("llama.rope.scaling.original_context_length", model::u32, bytes(64u));
  g.set("general.file_type", model::u32, bytes(7u));
  EXPECT_NO_THROW(small(g));
}

TEST(ModelRefuses, WeightsThatAreNotFinite) {
  GgufBuilder g = small_model();
  g.tensor("blk.0.attn_k.weight").data.replace(4 * 100, 4, bytes<std::uint32_t>(0x7FC00000));
  EXPECT_REFUSED("'blk.0.attn_k.weight' = element 100, which is not finite, allowed: finite ones", small(g));
  g = small_model();
  g.tensor("blk.0.ffn_up.weight").data.replace(34 * 3, 2, bytes<std::uint16_t>(0x7C00));
  EXPECT_REFUSED("'blk.0.ffn_up.weight' = scale of block 3, which is not finite, allowed: finite ones", small(g));
  g = small_model();
  g.tensor("blk.0.attn_norm.weight").data.replace(0, 2, bytes<std::uint16_t>(0xFE00));
  EXPECT_REFUSED("'blk.0.attn_norm.weight' = element 0, which is not finite, allowed: finite ones", small(g));
}

TEST(Model, OfDamagedBytesIsRefusedOrRunsWithoutHarm) {
  const std::vector<char> whole = small_model().build();
  std::mt19937 random(9);
  int refused = 0, ran = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<char> damaged = whole;
    for (int i = 0; i < 2; ++i) damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    try {
      const Model model =
          model::from_file([&] { return tiny_llama::read_model(tiny_llama::Gguf::parse(std::move(damaged))); });
      Llama l = llama(model, policy("full"), 4);
      Reader reader(l);
      reader.read(model.tokenizer.encode("a"));
      EXPECT_LT(reader.likeliest(), model.config.vocab);
      ++ran;
    } catch (const buzz::Error&) {  // or its tokens are more than there is room for
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(ran, 100);
}

// --- the account and its printing ------------------------------------------------------------------------------------

TEST(NegativeLogLikelihood, IsThatOfTheSoftmax) {
  tiny_llama::Vector logits(3);
  logits << 0.0f, std::log(2.0f), std::log(5.0f);
  EXPECT_NEAR(tiny_llama::negative_log_likelihood(logits, 2), -std::log(5.0 / 8.0), 1e-6);
  logits.array() += 1000.0f;  // no overflow
  EXPECT_NEAR(tiny_llama::negative_log_likelihood(logits, 0), std::log(8.0), 1e-4);
}

TEST(Report, WritesNumbersForPeople) {
  EXPECT_EQ(tiny_llama::grouped(0), "0");
  EXPECT_EQ(tiny_llama::grouped(999), "999");
  EXPECT_EQ(tiny_llama::grouped(1000), "1,000");
  EXPECT_EQ(tiny_llama::grouped(-123456), "-123,456");
  EXPECT_EQ(tiny_llama::grouped(1234567), "1,234,567");
  EXPECT_EQ(tiny_llama::fixed(1.25, 1) + tiny_llama::fixed(-2, 0), "1.2-2");
  EXPECT_EQ(tiny_llama::mebibytes(3u << 19), "1.50");
  EXPECT_EQ(tiny_llama::right("ab", 4) + tiny_llama::left("ab", 4) + "|", "  abab  |");
  EXPECT_EQ(tiny_llama::right("abcde", 4), "abcde");
}

TEST(Demo, MeasuresBothCachesOverTheSameTokens) {
  GgufBuilder g = small_model();
  g.set("llama.context_length", model::u32, bytes<std::uint32_t>(1024));
  const Model model = small(g);
  tiny_llama::Reading reading;
  reading.tokens = numbers(3000, 9);
  reading.documents = {"ab ab\n", "ab\n"};
  for (int i = 0; i < 5; ++i) reading.questions.push_back({"ab a", " b", 1});
  tiny_llama::Demo demo(model, reading, buzz::policy(tiny_llama::demo_policy));
  int chunks = 0;
  const tiny_llama::Measured m = demo.run([&](const tiny_llama::Side&, const tiny_llama::Side&) { ++chunks; });
  EXPECT_EQ(demo.held(), 1024u);
  EXPECT_EQ(chunks, (1024 - 64) / 32 + 64 + (3000 - 1024 + 31) / 32);
  EXPECT_EQ(m.full.tokens, 1024);
  EXPECT_EQ(m.buzz.tokens, 1024);
  EXPECT_EQ(m.full.scored, 1023);
  EXPECT_EQ(m.full_rows, 1024);
  EXPECT_LT(m.buzz_rows, 596);
  EXPECT_LT(m.buzz_bytes, m.full_bytes);
  EXPECT_EQ(m.full_after.tokens, m.buzz_after.tokens);
  EXPECT_EQ(m.full_after.tokens, 1024 - 576);  // 4 + 448 + 112 is first exceeded by 576, a multiple of 32
  EXPECT_EQ(m.buzz_beyond.tokens, 3000 - 1024);
  EXPECT_EQ(m.full_steps.size(), 64u);
  EXPECT_EQ(m.buzz_steps.size(), 64u);
  ASSERT_EQ(m.answers.size(), 3u);
  EXPECT_LE(m.full_right, 3);
  EXPECT_LE(m.full_asked, 5);
  EXPECT_EQ(m.full_documents_tokens, static_cast<int>(model.tokenizer.encode("ab ab\nab\n").size()));
}

}  // namespace
