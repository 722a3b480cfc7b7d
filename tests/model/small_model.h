// A complete Llama model of a few kilobytes and a Gemma 3, with tensors of all types between them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gguf_builder.h"

namespace model {

/// Deterministic weights: small numbers, F32.
inline std::string random_f32(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += bytes<float>(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 4000.0f);
  }
  return out;
}

/// The same as Q8_0: blocks of a F16 scale (1/256) and 32 8-bit integers.
inline std::string random_q8_0(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string out;
  for (std::size_t block = 0; block < count / 32; ++block) {
    out += bytes<std::uint16_t>(0x1C00);
    for (int i = 0; i < 32; ++i) out += static_cast<char>(random() % 255);
  }
  return out;
}

/// The same as F16, from 0.5 to 1.
inline std::string random_f16(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string out;
  for (std::size_t i = 0; i < count; ++i)
    out += bytes<std::uint16_t>(static_cast<std::uint16_t>(0x3800 + random() % 1024));
  return out;
}

/// As many numbers of a block format: random bits, with scales that make them some tenths at most.
inline std::string random_blocks(std::uint32_t type, std::size_t count, std::uint32_t seed) {
  struct Format {
    std::size_t numbers, bytes;
    std::vector<std::size_t> scales;  // where the halves are
    std::uint16_t scale;
  };
  const Format f = type == tensor_q4_1   ? Format{32, 20, {0, 2}, 0x2400}
                   : type == tensor_q5_0 ? Format{32, 22, {0}, 0x2400}
                   : type == tensor_q8_0 ? Format{32, 34, {0}, 0x1800}
                   : type == tensor_q4_k ? Format{256, 144, {0, 2}, 0x0C00}
                                         : Format{256, 210, {208}, 0x0400};
  std::mt19937 random(seed);
  std::string out;
  for (std::size_t block = 0; block < count / f.numbers; ++block) {
    std::string bits(f.bytes, 0);
    for (char& c : bits) c = static_cast<char>(random() % 256);
    for (std::size_t at : f.scales) {
      const bool negative = random() % 2 != 0;  // and up to twice as large
      bits.replace(at, 2,
                   bytes<std::uint16_t>(static_cast<std::uint16_t>(f.scale + random() % 1024 + negative * 0x8000)));
    }
    out += bits;
  }
  return out;
}

/// width 32, 1 layer, 4 query heads over 2 KV heads of size 8, feed-forward 32, vocabulary 9, context 64.
inline GgufBuilder small_model() {
  GgufBuilder g;
  g.set("general.architecture", string, text("llama"));
  g.set("llama.context_length", u32, bytes<std::uint32_t>(64));
  g.set("llama.embedding_length", u32, bytes<std::uint32_t>(32));
  g.set("llama.block_count", u32, bytes<std::uint32_t>(1));
  g.set("llama.feed_forward_length", u32, bytes<std::uint32_t>(32));
  g.set("llama.attention.head_count", u32, bytes<std::uint32_t>(4));
  g.set("llama.attention.head_count_kv", u32, bytes<std::uint32_t>(2));
  g.set("llama.attention.layer_norm_rms_epsilon", f32, bytes<float>(1e-5f));
  g.set("llama.rope.dimension_count", u32, bytes<std::uint32_t>(8));
  g.set("llama.rope.freq_base", f32, bytes<float>(10000.0f));
  g.set("llama.vocab_size", u32, bytes<std::uint32_t>(9));
  g.set("tokenizer.ggml.model", string, text("llama"));
  g.set("tokenizer.ggml.tokens", array,
        list<std::string>(string, {"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81", "a", "b", "ab",
                                   "\xE2\x96\x81"
                                   "ab"}));
  g.set("tokenizer.ggml.scores", array, list<float>(f32, {0, 0, 0, 0, -3, -4, -5, -1, -2}));
  g.set("tokenizer.ggml.token_type", array, list<std::int32_t>(i32, {2, 3, 3, 6, 1, 1, 1, 1, 1}));
  g.set("tokenizer.ggml.bos_token_id", u32, bytes<std::uint32_t>(1));
  g.set("tokenizer.ggml.eos_token_id", u32, bytes<std::uint32_t>(2));
  g.set("tokenizer.ggml.unknown_token_id", u32, bytes<std::uint32_t>(0));
  g.set("tokenizer.ggml.add_bos_token", boolean, bytes<std::uint8_t>(1));
  g.set("tokenizer.ggml.add_space_prefix", boolean, bytes<std::uint8_t>(1));

  g.tensor("token_embd.weight") = {"token_embd.weight", {32, 9}, tensor_q8_0, random_q8_0(32 * 9, 1)};
  g.tensor("blk.0.attn_norm.weight") = {"blk.0.attn_norm.weight", {32}, tensor_f16, random_f16(32, 2)};
  g.tensor("blk.0.attn_q.weight") = {"blk.0.attn_q.weight", {32, 32}, tensor_q8_0, random_q8_0(32 * 32, 3)};
  g.tensor("blk.0.attn_k.weight") = {"blk.0.attn_k.weight", {32, 16}, tensor_f32, random_f32(32 * 16, 4)};
  g.tensor("blk.0.attn_v.weight") = {"blk.0.attn_v.weight", {32, 16}, tensor_q8_0, random_q8_0(32 * 16, 5)};
  g.tensor("blk.0.attn_output.weight") = {"blk.0.attn_output.weight", {32, 32}, tensor_q8_0, random_q8_0(32 * 32, 6)};
  g.tensor("blk.0.ffn_norm.weight") = {"blk.0.ffn_norm.weight", {32}, tensor_f32, random_f32(32, 7)};
  g.tensor("blk.0.ffn_gate.weight") = {"blk.0.ffn_gate.weight", {32, 32}, tensor_q8_0, random_q8_0(32 * 32, 8)};
  g.tensor("blk.0.ffn_up.weight") = {"blk.0.ffn_up.weight", {32, 32}, tensor_q8_0, random_q8_0(32 * 32, 9)};
  g.tensor("blk.0.ffn_down.weight") = {"blk.0.ffn_down.weight", {32, 32}, tensor_q8_0, random_q8_0(32 * 32, 10)};
  g.tensor("output_norm.weight") = {"output_norm.weight", {32}, tensor_f32, random_f32(32, 11)};
  return g;
}

/// A Gemma 3 of three layers, of which the last is global and the others see 4 tokens; width 32, 2 query heads over 1
/// KV head of size 20, feed-forward 256, in all block formats; vocabulary 12, of which "ba" is user-defined.
inline GgufBuilder small_gemma() {
  GgufBuilder g;
  const auto number = [&](const char* key, std::uint32_t value) { g.set(key, u32, bytes(value)); };
  g.set("general.architecture", string, text("gemma3"));
  number("gemma3.context_length", 64);
  number("gemma3.embedding_length", 32);
  number("gemma3.block_count", 3);
  number("gemma3.feed_forward_length", 256);
  number("gemma3.attention.head_count", 2);
  number("gemma3.attention.head_count_kv", 1);
  number("gemma3.attention.key_length", 20);
  number("gemma3.attention.value_length", 20);
  number("gemma3.attention.sliding_window", 4);
  number("gemma3.attention.sliding_window_pattern", 3);
  g.set("gemma3.attention.layer_norm_rms_epsilon", f32, bytes(1e-6f));
  g.set("gemma3.rope.freq_base", f32, bytes(1000.0f));
  g.set("gemma3.rope.freq_base_swa", f32, bytes(20.0f));
  g.set("tokenizer.ggml.model", string, text("llama"));
  g.set("tokenizer.ggml.tokens", array,
        list<std::string>(string, {"<pad>", "<eos>", "<bos>", "<unk>", "<0x0A>", "\xE2\x96\x81", "a", "b", "ab", "ba",
                                   "aba", "<turn>"}));
  g.set("tokenizer.ggml.scores", array, list<float>(f32, {0, 0, 0, 0, 0, -3, -4, -5, -1, -9, -2, 0}));
  g.set("tokenizer.ggml.token_type", array, list<std::int32_t>(i32, {3, 3, 3, 2, 6, 1, 1, 1, 1, 4, 1, 3}));
  number("tokenizer.ggml.bos_token_id", 2);
  number("tokenizer.ggml.eos_token_id", 1);
  number("tokenizer.ggml.unknown_token_id", 3);
  g.set("tokenizer.ggml.add_space_prefix", boolean, bytes<std::uint8_t>(0));

  std::uint32_t seed = 100;
  const auto vector = [&](const std::string& name, std::size_t size) {
    g.tensor(name) = {name, {size}, tensor_f16, random_f16(size, ++seed)};
  };
  const auto matrix = [&](const std::string& name, std::size_t columns, std::size_t rows, std::uint32_t type) {
    const std::string data = type == tensor_f32   ? random_f32(rows * columns, ++seed)
                             : type == tensor_f16 ? random_f16(rows * columns, ++seed)
                                                  : random_blocks(type, rows * columns, ++seed);
    g.tensor(name) = {name, {columns, rows}, type, data};
  };
  matrix("token_embd.weight", 32, 12, tensor_q8_0);
  vector("output_norm.weight", 32);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    for (const char* name : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"})
      vector(block + name + ".weight", 32);
    for (const char* name : {"attn_q_norm", "attn_k_norm"}) vector(block + name + ".weight", 20);
    matrix(block + "attn_q.weight", 32, 40, tensor_q5_0);
    matrix(block + "attn_k.weight", 32, 20, tensor_q4_1);
    matrix(block + "attn_v.weight", 32, 20, tensor_q8_0);
    matrix(block + "attn_output.weight", 40, 32, tensor_f32);
    matrix(block + "ffn_gate.weight", 32, 256, tensor_q5_0);
    matrix(block + "ffn_up.weight", 32, 256, tensor_q4_1);
    matrix(block + "ffn_down.weight", 256, 32, layer == 0 ? tensor_q6_k : tensor_q4_k);
  }
  return g;
}

}  // namespace model
