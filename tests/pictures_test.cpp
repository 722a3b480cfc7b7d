// What the pages of pictures draw is what the policies hold.
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>

#include "buzz/policies.h"
#include "pictures/drawings.h"
#include "tiny_llama/documents.h"

namespace {

using namespace pictures;

const tiny_llama::Model& model() {
  static const tiny_llama::Model model = tiny_llama::read_model(BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf");
  return model;
}

Tokens some_tokens(std::size_t count) {
  tiny_llama::Random random(3);
  Tokens tokens = model().tokenizer.encode(tiny_llama::make_documents(random).text);
  tokens.resize(count);
  return tokens;
}

buzz::Policy small() {
  buzz::BeehiveOptions o;
  o.sink = 4;
  o.window = 8;
  o.threshold = 30;
  return buzz::beehive(o);
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(Watch, SeesTheRowsOfACacheThatIsNotWatched) {
  const Tokens tokens = some_tokens(120);
  const Watch watch = read(model(), tokens, small(), 1, 3);
  tiny_llama::Llama llama(
      model(), std::make_unique<tiny_llama::CacheOf<float>>(model().config, small(), buzz::Positions::logical, 1));
  int most = 0;
  auto seen = watch.rows.begin();
  for (const std::int32_t token : tokens) {
    llama.forward({token});
    ASSERT_NE(seen, watch.rows.end());
    most = (std::max)(most, seen->second);
    if (std::next(seen) != watch.rows.end() && std::next(seen)->first == seen->first) ++seen;  // after an eviction
    EXPECT_EQ(seen++->second, llama.cache().rows(3));
  }
  EXPECT_EQ(seen, watch.rows.end());
  EXPECT_EQ(most, watch.capacity);
  EXPECT_EQ(watch.end.regions.rows(), llama.cache().rows(3));
  EXPECT_EQ(watch.end.tokens, 120);
}

TEST(Rows, AreStruckOutWhereTheEvictionTookThem) {
  const Tokens tokens = some_tokens(120);
  const Watch watch = read(model(), tokens, small(), 1, 3);
  ASSERT_GE(watch.evictions.size(), 3u);
  for (const Eviction& e : watch.evictions) {
    const std::string drawn = rows("", e.before, 1, tokens, model().tokenizer, e.after.heads[1].positions, {});
    EXPECT_EQ(count(drawn, "class=\"kept\""), e.after.regions.rows());
    EXPECT_EQ(count(drawn, "class=\"gone\""), e.before.regions.rows() - e.after.regions.rows());
    EXPECT_EQ(e.after.regions.hive, (e.before.regions.hive + 2) / 3 + (e.before.regions.unfiltered + 4) / 5);
  }
}

TEST(Strip, HoldsAsMuchAsAllHeads) {
  const Tokens tokens = some_tokens(300);
  const Watch watch = read(model(), tokens, buzz::heavy_hitter(buzz::HeavyHitterOptions::for_rows(90, 16)), 16, 3);
  const std::string drawn = strip(watch.end, 300);
  const std::regex rect("width=\"(\\d+)\" height=\"1\" style=\"[^\"]*opacity:([0-9.]+)\"");
  double held = 0;
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), rect), end; at != end; ++at)
    held += std::stod((*at)[1]) * std::stod((*at)[2]);
  EXPECT_NEAR(held, watch.end.regions.rows(), 1e-9);
  EXPECT_LE(watch.end.regions.rows(), watch.capacity);
}

TEST(Bar, IsAsLongAsTheRegions) {
  const std::string drawn = bar({4, 93, 308, 160}, 565);
  for (const char* part :
       {"x=\"0\" width=\"4\"", "x=\"4\" width=\"93\"", "x=\"97\" width=\"308\"", "x=\"405\" width=\"160\""})
    EXPECT_EQ(count(drawn, part), 1) << part;
}

}  // namespace
