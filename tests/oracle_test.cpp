#include "oracle.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "trace_file.h"

namespace {

oracle::Options options_of(const trace::Trace& t) {
  oracle::Options o;
  o.query_heads = o.kv_heads = t.heads;
  o.sink = t.sink;
  o.window = t.window;
  o.threshold = t.threshold;
  o.stride = t.stride;
  o.hive_stride = (t.stride + 1) / 2;
  o.single_pass = true;
  if (t.policy == "buzz_fast") o.attention = oracle::AttentionKind::latest;
  if (t.policy == "buzz_no_max") o.score = oracle::Score::none;
  if (t.policy == "h2o") {
    o.select = oracle::Select::heaviest;
    o.heavy = o.threshold = t.heavy;
  }
  if (t.policy == "streaming" || t.policy == "local") o.select = oracle::Select::nothing;
  return o;
}

oracle::Probabilities probabilities(const trace::Trace& t, int call, int queries, int columns) {
  const std::vector<float> flat = trace::scores(t, call, queries, columns);
  oracle::Probabilities p(static_cast<std::size_t>(t.heads));
  auto next = flat.begin();
  for (oracle::Matrix& head : p)
    for (int i = 0; i < queries; ++i, next += columns) head.emplace_back(next, next + columns);
  return p;
}

/// The oracle's kept and score lines of a trace.
std::vector<std::string> replay(const trace::Trace& t, int* final_length) {
  oracle::Cache cache(options_of(t));
  std::vector<std::string> lines;
  for (std::size_t c = 0; c < t.calls.size(); ++c) {
    const int n = t.calls[c];
    const oracle::Tokens tokens(static_cast<std::size_t>(n),
                                std::vector<oracle::Vector>(static_cast<std::size_t>(t.heads), oracle::Vector{0}));
    cache.append(tokens, tokens);
    cache.observe(probabilities(t, static_cast<int>(c), n, cache.rows()));
    if (!cache.evict()) continue;
    for (int h = 0; h < t.heads; ++h) {
      std::string line = "kept " + std::to_string(c) + " " + std::to_string(h);
      for (const oracle::Row& row : cache.head(h)) line += " " + std::to_string(row.position);
      lines.push_back(line);
    }
  }
  for (int h = 0; h < t.heads && t.scored(); ++h) {
    std::string line = "score " + std::to_string(h);
    for (const oracle::Row& row : cache.head(h)) line += " " + std::to_string(std::llround(row.score * 16384));
    lines.push_back(line);
  }
  *final_length = cache.rows();
  return lines;
}

TEST(Oracle, ReplaysEveryGoldenTrace) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(BUZZ_TEST_DIR) + "/golden")) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    std::ifstream in(entry.path());
    const trace::Trace t = trace::parse(in);
    int final_length = 0;
    EXPECT_EQ(replay(t, &final_length), t.lines) << entry.path().filename();
    EXPECT_EQ(final_length, t.final_length) << entry.path().filename();
    EXPECT_GT(t.lines.size(), 0u) << entry.path().filename();
  }
  EXPECT_EQ(files, 32);
}

oracle::Options one_head(int dim) {
  oracle::Options o;
  o.head_dim = dim;
  return o;
}

TEST(Oracle, OneRowGetsAllTheAttention) {
  oracle::Cache cache(one_head(2));
  cache.append({{{1, 2}}}, {{{3, 4}}});
  EXPECT_EQ(cache.attend({{{5, 6}}}), (oracle::Tokens{{{3, 4}}}));
  cache.observe();
  EXPECT_EQ(cache.head(0)[0].score, 1);
}

TEST(Oracle, AttentionByHand) {
  oracle::Cache cache(one_head(1));
  const double ln2 = std::log(2.0);
  cache.append({{{0}}, {{ln2}}}, {{{3}}, {{6}}});  // logits of the second query: 0 and ln 2, so 1/3 and 2/3
  const oracle::Tokens out = cache.attend({{{1}}, {{1}}});
  EXPECT_DOUBLE_EQ(out[0][0][0], 3);
  EXPECT_DOUBLE_EQ(out[1][0][0], 5);
  cache.observe();
  EXPECT_DOUBLE_EQ(cache.head(0)[0].score, 1 + 1.0 / 3);
  EXPECT_DOUBLE_EQ(cache.head(0)[1].score, 2.0 / 3);
}

TEST(Oracle, LogNSharpensByTheRowsAQuerySees) {
  oracle::Options o = one_head(1);
  o.log_base = 2;
  oracle::Cache cache(o);
  const double ln2 = std::log(2.0);
  cache.append({{{0}}, {{0}}, {{0}}, {{ln2}}}, {{{0}}, {{0}}, {{0}}, {{7}}});
  // The fourth query sees 4 rows: logits times log_2(4) = 2, so weights 1, 1, 1, 4.
  EXPECT_DOUBLE_EQ(cache.attend({{{1}}, {{1}}, {{1}}, {{1}}})[3][0][0], 4);
}

TEST(Oracle, QueryHeadsOfAGroupAreNeighbours) {
  oracle::Options o = one_head(1);
  o.query_heads = 4;
  o.kv_heads = 2;
  oracle::Cache cache(o);
  cache.append({{{0}, {0}}}, {{{10}, {20}}});
  EXPECT_EQ(cache.attend({{{1}, {1}, {1}, {1}}}), (oracle::Tokens{{{10}, {10}, {20}, {20}}}));
  cache.observe({{{1}}, {{2}}, {{4}}, {{8}}});
  EXPECT_EQ(cache.head(0)[0].score, 3);
  EXPECT_EQ(cache.head(1)[0].score, 12);
}

TEST(Oracle, RotationByHand) {
  oracle::Options o = one_head(4);
  o.rope_base = 10000;
  o.rope_dims = 4;
  const double c0 = std::cos(3.0), s0 = std::sin(3.0), c1 = std::cos(0.03), s1 = std::sin(0.03);
  const oracle::Vector pairs = oracle::rotate({1, 0, 0, 1}, 3, o);
  const oracle::Vector by_hand = {c0, s0, -s1, c1};
  o.rope_halves = true;
  const oracle::Vector halves = oracle::rotate({1, 0, 0, 1}, 3, o);
  const oracle::Vector halves_by_hand = {c0, -s1, s0, c1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(pairs[i], by_hand[i], 1e-15);
    EXPECT_NEAR(halves[i], halves_by_hand[i], 1e-15);
  }
}

/// Appends n rows of one head with the given scores, all in the middle.
oracle::Cache scored(oracle::Options o, const std::vector<double>& scores) {
  o.sink = o.window = 0;
  o.threshold = 1;
  o.single_pass = true;
  oracle::Cache cache(o);
  const oracle::Tokens tokens(scores.size(), {{0}});
  cache.append(tokens, tokens);
  for (std::size_t i = 0; i < scores.size(); ++i) cache.head(0)[i].score = scores[i];
  return cache;
}

std::vector<int> kept(const oracle::Cache& cache) { return cache.choose(0, cache.importance(0)).kept; }

TEST(Oracle, TiesGoToTheLowestRowAndNanLoses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  oracle::Options o = one_head(1);
  o.stride = 3;
  EXPECT_EQ(kept(scored(o, {1, 2, 2, 3, 3, 3, nan, nan, -9, nan, nan})), (std::vector<int>{1, 3, 8, 9}));
}

TEST(Oracle, KeepTakesTheBestOfWiderChunks) {
  oracle::Options o = one_head(1);
  o.stride = 2;
  o.keep = 2;  // chunks of 4 leave 2, the short one of 3 leaves ceil(3 / 2)
  EXPECT_EQ(kept(scored(o, {9, 8, 1, 1, 0, 5, 0, 6, 1, 3, 2})), (std::vector<int>{0, 1, 5, 7, 9, 10}));
}

/// Tokens left by two evictions; the second finds a hive of tokens 0 2 4 6, of which 4 is the heaviest, and 8
/// unfiltered.
std::vector<int> left_by(oracle::Hive rule) {
  oracle::Options o = one_head(1);
  o.stride = 2;
  o.hive_stride = 3;
  o.hive = rule;
  oracle::Cache cache = scored(o, {9, 1, 9, 1, 9, 1, 9, 1});
  cache.evict();
  const oracle::Tokens one(1, {{0}});
  cache.append(one, one);
  cache.head(0)[2].score = 20;
  cache.evict();
  std::vector<int> left;
  for (const oracle::Row& row : cache.head(0)) left.push_back(row.position);
  return left;
}

TEST(Oracle, HiveRules) {
  EXPECT_EQ(left_by(oracle::Hive::first), (std::vector<int>{0, 6, 8}));
  EXPECT_EQ(left_by(oracle::Hive::heaviest), (std::vector<int>{4, 6, 8}));
  EXPECT_EQ(left_by(oracle::Hive::together), (std::vector<int>{0, 4, 8}));
}

TEST(Oracle, DiversityIsMinusTheCosineWithTheMeanKey) {
  oracle::Options o = one_head(2);
  o.score = oracle::Score::key_diversity;
  oracle::Cache cache(o);
  const oracle::Tokens keys = {{{3, 0}}, {{0, 1}}, {{0, 0}}, {{1, 3}}};  // their mean is (1, 1)
  cache.append(keys, keys);
  const std::vector<double> importance = cache.importance(0);
  EXPECT_NEAR(importance[0], -std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(importance[1], -std::sqrt(0.5), 1e-15);
  EXPECT_EQ(importance[2], 0);
  EXPECT_NEAR(importance[3], -4 / std::sqrt(20.0), 1e-15);
}

TEST(Oracle, WhatIsNotFiniteAddsNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  oracle::Cache cache(one_head(1));
  cache.append({{{0}}, {{0}}}, {{{0}}, {{0}}});
  cache.observe({{{nan, inf}, {1, -inf}}});
  EXPECT_EQ(cache.head(0)[0].score, 1);
  EXPECT_EQ(cache.head(0)[1].score, 0);
}

}  // namespace
