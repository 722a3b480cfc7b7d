// A complete Llama model of a few kilobytes, with tensors of all three types.
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

}  // namespace model
