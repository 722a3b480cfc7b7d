#include "tiny_llama/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/refused.h"
#include "tiny_llama/documents.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/utf8.h"

namespace {

using tiny_llama::Tokenizer;
using tiny_llama::Vocabulary;
using Ids = std::vector<std::int32_t>;

/// Ours, with 2,048 tokens and all 256 bytes.
const Tokenizer& real() {
  static const Tokenizer tokenizer(
      tiny_llama::read_vocabulary(tiny_llama::Gguf::read(BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf")));
  return tokenizer;
}

/// <unk> <s> </s>, then these pieces with these scores. A space is written "_".
Vocabulary pieces(const std::vector<std::pair<std::string, float>>& list) {
  Vocabulary v;
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.scores = {0, 0, 0};
  v.types = {Vocabulary::unknown, Vocabulary::control, Vocabulary::control};
  for (const auto& [piece, score] : list) {
    std::string token;
    for (char c : piece) token += c == '_' ? "\xE2\x96\x81" : std::string(1, c);
    v.tokens.push_back(token);
    v.scores.push_back(score);
    v.types.push_back(token.substr(0, 3) == "<0x" ? Vocabulary::byte : Vocabulary::normal);
  }
  return v;
}

TEST(Tokenizer, MergesTheHighestScoreFirst) {
  const Tokenizer one(pieces({{"_", 0}, {"a", 0}, {"b", 0}, {"c", 0}, {"ab", -2}, {"bc", -1}}));
  EXPECT_EQ(one.encode_more("abc"), (Ids{4, 8}));  // a, bc
  const Tokenizer other(pieces({{"_", 0}, {"a", 0}, {"b", 0}, {"c", 0}, {"ab", -1}, {"bc", -2}}));
  EXPECT_EQ(other.encode_more("abc"), (Ids{7, 6}));  // ab, c
}

TEST(Tokenizer, MergesTheLeftmostOfEqualScores) {
  const Tokenizer t(pieces({{"a", 0}, {"aa", -1}}));
  EXPECT_EQ(t.encode_more("aaa"), (Ids{4, 3}));
  EXPECT_EQ(t.encode_more("aaaa"), (Ids{4, 4}));
}

TEST(Tokenizer, MergesWhatMergesHaveMade) {
  const Tokenizer t(pieces({{"a", 0}, {"b", 0}, {"ab", -3}, {"abab", -9}}));
  EXPECT_EQ(t.encode_more("abab"), (Ids{6}));
  EXPECT_EQ(t.encode_more("ababab"), (Ids{6, 5}));
}

TEST(Tokenizer, BeginsWithBosAndASpace) {
  Vocabulary v = pieces({{"_", -5}, {"a", 0}, {"_a", -1}});
  EXPECT_EQ(Tokenizer(v).encode("a"), (Ids{1, 5}));
  EXPECT_EQ(Tokenizer(v).encode(" a"), (Ids{1, 3, 5}));
  EXPECT_EQ(Tokenizer(v).encode_more("a"), (Ids{4}));
  v.add_space_prefix = false;
  EXPECT_EQ(Tokenizer(v).encode("a"), (Ids{1, 4}));
  v.add_bos = false;
  EXPECT_EQ(Tokenizer(v).encode("a"), (Ids{4}));
  v.add_eos = true;
  EXPECT_EQ(Tokenizer(v).encode("a"), (Ids{4, 2}));
}

TEST(Tokenizer, FallsBackToBytes) {
  const Tokenizer t(pieces({{"a", 0}, {"<0xC3>", 0}, {"<0xA9>", 0}}));
  EXPECT_EQ(t.encode_more("a\xC3\xA9"), (Ids{3, 4, 5}));
  EXPECT_EQ(t.decode({4, 5, 3}),
            "\xC3\xA9"
            "a");
}

TEST(Tokenizer, HasTheUnknownTokenForBytesThatHaveNone) {
  const Tokenizer t(pieces({{"a", 0}}));
  EXPECT_EQ(t.encode_more("ab"), (Ids{3, 0}));
  EXPECT_EQ(t.decode({3, 0, 3}), "aa");
}

TEST(Tokenizer, TakesNoSpecialTokenFromAText) {
  Vocabulary v = pieces({{"<", 0}, {"s", 0}, {">", 0}, {"<s", 0}, {"<0x41>", 0}});
  EXPECT_EQ(Tokenizer(v).encode_more("<s>"), (Ids{6, 5}));
  for (const char* text : {"<s>", "</s>", "<unk>", "<0x41>"}) {
    for (std::int32_t id : real().encode_more(text)) {
      EXPECT_GT(id, 2) << text;
    }
    EXPECT_EQ(real().decode(real().encode(text)), text);
  }
}

TEST(Tokenizer, SaysNothingForControlTokens) { EXPECT_EQ(real().piece(1) + real().piece(2) + real().piece(0), ""); }

TEST(Tokenizer, GivesTextsBack) {
  for (const std::string& text :
       {std::string("a"), std::string(" "), std::string("  two  spaces "), std::string("line\nline\r\n\ttab"),
        std::string("Na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x94 \xF0\x9F\x90\x9D"), std::string(1, '\0') + "zero",
        std::string("\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80"), std::string(5000, 'x')}) {
    EXPECT_EQ(real().decode(real().encode(text)), text);
  }
}

/// Any text of whole characters, of all lengths in UTF-8.
std::string random_text(std::mt19937& random) {
  const char* const characters[] = {
      "a", "e", "t", "h", " ", " ", ".", "\n", "Q", "7", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x90\x9D"};
  std::string text;
  for (auto left = 1 + random() % 40; left > 0; --left) text += characters[random() % 13];
  return text;
}

TEST(Tokenizer, GivesRandomTextsBack) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(real().decode(real().encode(text)), text);
    std::string more;
    for (std::int32_t id : real().encode_more(text)) more += real().piece(id);
    ASSERT_EQ(more, text);
  }
}

/// The rule word for word: while two neighbours make a piece, the best of these is merged, the leftmost of equals.
Ids slow_encode(const Vocabulary& v, const std::string& text) {
  std::vector<std::string> parts;
  for (char c : text) parts.push_back(c == ' ' ? "\xE2\x96\x81" : std::string(1, c));
  const auto id_of = [&](const std::string& part) {
    for (std::size_t id = 3; id < v.tokens.size(); ++id) {
      if (v.tokens[id] == part) return static_cast<std::int32_t>(id);
    }
    return std::int32_t{-1};
  };
  for (;;) {
    std::size_t best = parts.size();
    float score = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::int32_t id = id_of(parts[i] + parts[i + 1]);
      if (id < 0) continue;
      const float candidate = v.scores[static_cast<std::size_t>(id)];
      if (best == parts.size() || candidate > score) {
        best = i;
        score = candidate;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(id_of(part));
  return ids;
}

TEST(Tokenizer, AgreesWithTheRuleOnRandomVocabularies) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::pair<std::string, float>> list = {{"_", 0}, {"a", 0}, {"b", 0}, {"c", 0}};
    for (int i = 0; i < 20; ++i) {
      std::string piece;
      for (auto left = 2 + random() % 3; left > 0; --left) piece += "_abc"[random() % 4];
      list.emplace_back(piece, -static_cast<float>(random() % 8));
    }
    std::vector<std::pair<std::string, float>> once;  // each piece, with its first score
    for (const auto& entry : list) {
      bool is_new = true;
      for (const auto& earlier : once) is_new = is_new && earlier.first != entry.first;
      if (is_new) once.push_back(entry);
    }
    const Vocabulary v = pieces(once);
    const Tokenizer tokenizer(v);
    std::string text;
    for (auto left = 1 + random() % 30; left > 0; --left) text += " abc"[random() % 4];
    ASSERT_EQ(tokenizer.encode_more(text), slow_encode(v, text)) << "'" << text << "' in round " << round;
  }
}

TEST(Tokenizer, GoesOnAfterALineAsInTheWholeText) {
  const std::string first = "Document 1: Anna Bishop\nShe plays the harp.\n", second = "Question: What? Answer:";
  Ids whole = real().encode(first);
  const Ids more = real().encode_more(second);
  whole.insert(whole.end(), more.begin(), more.end());
  EXPECT_EQ(whole, real().encode(first + second));
}

TEST(Tokenizer, TakesLongTextsInGoodTime) {  // by a quadratic rule, this takes hours
  tiny_llama::Random random(1);
  std::string text;
  while (text.size() < 300000) text += tiny_llama::make_documents(random).text;
  EXPECT_EQ(real().decode(real().encode(text)), text);

  EXPECT_EQ(real().decode(real().encode(std::string(300000, 'a'))), std::string(300000, 'a'));
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(tiny_llama::valid_utf8_length(""), 0u);
  EXPECT_EQ(tiny_llama::valid_utf8_length("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x90\x9D"), 10u);
  const std::string bad[] = {"\x80",
                             "\xBF",
                             "\xC0\x80",
                             "\xC1\xBF",
                             "\xC3",
                             "\xC3"
                             "a",
                             "\xE0\x9F\xBF",
                             "\xE2\x82",
                             "\xE2"
                             "a\x80",
                             "\xED\xA0\x80",
                             "\xF0\x8F\xBF\xBF",
                             "\xF0\x9F\x90",
                             "\xF4\x90\x80\x80",
                             "\xF5\x80\x80\x80",
                             "\xFF"};
  for (const std::string& bytes : bad) {
    EXPECT_EQ(tiny_llama::valid_utf8_length(bytes), 0u);
    EXPECT_EQ(tiny_llama::valid_utf8_length("ok" + bytes + "ok"), 2u);
  }
}

TEST(TokenizerRefuses, AnEmptyPrompt) {
  EXPECT_REFUSED("prompt = empty, allowed: at least one character", real().encode(""));
  EXPECT_REFUSED("prompt = empty, allowed: at least one character", real().encode_more(""));
}

TEST(TokenizerRefuses, WhatIsNotUtf8) {
  EXPECT_REFUSED("prompt = not UTF-8 from byte 3 on, allowed: UTF-8 text", real().encode("abc\xFF"));
  EXPECT_REFUSED("prompt = not UTF-8 from byte 0 on, allowed: UTF-8 text", real().encode_more("\xED\xA0\x80"));
}

TEST(TokenizerRefuses, IdsThatAreNone) {
  EXPECT_REFUSED("token id = -1, allowed: 0 to 2047", real().piece(-1));
  EXPECT_REFUSED("token id = 2048, allowed: 0 to 2047", real().decode({5, 2048}));
}

TEST(TokenizerRefuses, VocabulariesThatDisagree) {
  Vocabulary v = pieces({{"a", 0}});
  v.scores.pop_back();
  EXPECT_REFUSED("tokenizer.ggml.scores = 3 elements, allowed: 4, one for each token", Tokenizer(v));
  EXPECT_THROW(Tokenizer{v}, buzz::FileError);
  v = pieces({{"a", 0}});
  v.types.push_back(1);
  EXPECT_REFUSED("tokenizer.ggml.token_type = 5 elements, allowed: 4, one for each token", Tokenizer(v));
  EXPECT_REFUSED("tokenizer.ggml.tokens = 0 elements, allowed: 1 to 16777216", Tokenizer(Vocabulary{}));
}

TEST(TokenizerRefuses, ScoresTypesAndBytesThatAreNone) {
  Vocabulary v = pieces({{"a", std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_REFUSED_WITH("nan, allowed: finite numbers", Tokenizer(v));
  for (int type : {-1, 0, 4, 7}) {
    v = pieces({{"a", 0}});
    v.types[3] = type;
    EXPECT_REFUSED_WITH("tokenizer.ggml.token_type = " + std::to_string(type), Tokenizer(v));
  }
  for (const char* token : {"<0x4>", "<0x4g>", "<0xaa>", "a"}) {
    v = pieces({{"a", 0}});
    v.tokens[3] = token;
    v.types[3] = Vocabulary::byte;
    EXPECT_REFUSED_WITH("'<0x00>' to '<0xFF>'", Tokenizer(v));
  }
}

TEST(TokenizerRefuses, SpecialIdsOutOfRange) {
  for (int Vocabulary::*id : {&Vocabulary::bos, &Vocabulary::eos, &Vocabulary::unk}) {
    for (int value : {-1, 4}) {
      Vocabulary v = pieces({{"a", 0}});
      v.*id = value;
      EXPECT_REFUSED_WITH("= " + std::to_string(value) + ", allowed: 0 to 3", Tokenizer(v));
      EXPECT_THROW(Tokenizer{v}, buzz::FileError);
    }
  }
}

}  // namespace
