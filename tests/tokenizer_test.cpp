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

// --- tokens that are found whole ------------------------------------------------------------------------------------

/// pieces(), with these of the type given.
Vocabulary with_type(Vocabulary v, const std::vector<std::string>& tokens, std::int32_t type) {
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    for (const std::string& token : tokens)
      if (v.tokens[i] == token) v.types[i] = type;
  return v;
}

TEST(Tokenizer, FindsUserDefinedTokensWholeTheLongestFirst) {
  const std::vector<std::pair<std::string, float>> list = {{"a", 0},    {"b", 0},  {"ab", -1}, {"\n", 0},
                                                           {"\n\n", 0}, {"ba", 0}, {"_", 0}};
  Vocabulary v = with_type(pieces(list), {"\n", "\n\n", "ba"}, Vocabulary::user_defined);
  v.add_space_prefix = false;
  const Tokenizer t(std::move(v));
  EXPECT_EQ(t.encode_more("\n\n\nab\n"), (Ids{7, 6, 5, 6}));
  EXPECT_EQ(t.encode_more("abab"), (Ids{3, 8, 4})) << "ba before ab is merged";
  EXPECT_EQ(t.encode_more("\n"), (Ids{6}));
  EXPECT_EQ(t.decode({7, 5, 8}), "\n\nabba");
}

TEST(Tokenizer, PutsASpaceBehindWhatIsFoundWhole) {  // as llama.cpp does
  Vocabulary v = with_type(pieces({{"_", 0}, {"a", 0}, {"|", 0}}), {"|"}, Vocabulary::user_defined);
  EXPECT_EQ(Tokenizer(v).encode("a|a"), (Ids{1, 3, 4, 5, 3, 4}));
  EXPECT_EQ(Tokenizer(v).encode("|a"), (Ids{1, 5, 3, 4}));
  EXPECT_EQ(Tokenizer(v).encode_more("a|a"), (Ids{4, 5, 3, 4}));
  v.add_space_prefix = false;
  EXPECT_EQ(Tokenizer(v).encode("a|a"), (Ids{1, 4, 5, 4}));
}

TEST(Tokenizer, ParsesControlTokensWhereThatIsWanted) {
  Vocabulary v = pieces({{"a", 0}, {"<", 0}, {"s", 0}, {">", 0}});
  v.add_space_prefix = false;
  const Tokenizer t(std::move(v));
  EXPECT_EQ(t.encode("a<s>a"), (Ids{1, 3, 4, 5, 6, 3}));
  EXPECT_EQ(t.encode("a<s>a<s>", tiny_llama::ControlTokens::parsed), (Ids{1, 3, 1, 3, 1}));
  EXPECT_EQ(t.encode_more("<s>", tiny_llama::ControlTokens::parsed), (Ids{1}));
  EXPECT_EQ(t.encode_more("<unk>a", tiny_llama::ControlTokens::parsed), (Ids{0, 3}));
}

// --- the BPE of bytes ------------------------------------------------------------------------------------------------

/// <|end|> <|begin|>, the bytes of these characters, and what these merges make, in order. "_" is a space.
Vocabulary bpe(const std::string& characters, const std::vector<std::string>& merges) {
  Vocabulary v;
  v.kind = tiny_llama::TokenizerKind::gpt2;
  v.tokens = {"<|end|>", "<|begin|>"};
  v.bos = 1;
  v.eos = 0;
  v.add_bos = v.add_space_prefix = false;
  const auto marked = [](char c) { return c == '_' ? std::string("\xC4\xA0") : std::string(1, c); };  // U+0120
  for (char c : characters) v.tokens.push_back(marked(c));
  for (const std::string& m : merges) {
    std::string merge, token;
    for (char c : m) {
      merge += c == ' ' ? " " : marked(c);
      token += c == ' ' ? "" : marked(c);
    }
    v.merges.push_back(merge);
    v.tokens.push_back(token);
  }
  v.types.assign(v.tokens.size(), Vocabulary::normal);
  v.types[0] = v.types[1] = Vocabulary::control;
  return v;
}

TEST(Bpe, MergesTheLowestRankFirst) {
  const Tokenizer one(bpe("abc", {"b c", "a b"}));
  EXPECT_EQ(one.encode_more("abc"), (Ids{2, 5}));
  const Tokenizer other(bpe("abc", {"a b", "b c"}));
  EXPECT_EQ(other.encode_more("abc"), (Ids{5, 4}));
}

TEST(Bpe, MergesPairsAndNotWhatTheyMake) {
  // "abc" is made of "a" and "bc" alone; "ab" and "c" make nothing.
  const Tokenizer t(bpe("abc", {"a b", "b c", "a bc"}));
  EXPECT_EQ(t.encode_more("abc"), (Ids{5, 4}));
}

TEST(Bpe, MergesInWordsAlone) {
  const Tokenizer t(bpe("ab_1", {"a a", "_ a", "1 1", "_a a", "a _"}));
  EXPECT_EQ(t.encode_more("aa a"), (Ids{6, 7}));
  EXPECT_EQ(t.encode_more("a aa"), (Ids{2, 4, 6}));
  EXPECT_EQ(t.encode_more("11"), (Ids{5, 5}));
  EXPECT_EQ(t.encode_more("a 1"), (Ids{2, 4, 5}));
}

TEST(Bpe, PassesOverBytesThatAreNoTokens) {
  const Tokenizer t(bpe("ab", {"a b"}));
  EXPECT_EQ(t.encode_more("axb"), (Ids{2, 3}));
  EXPECT_TRUE(t.encode_more("x").empty());
}

TEST(Bpe, GivesTextsBack) {
  Vocabulary v = bpe("", {});
  for (char32_t c = 33; c < 324; ++c) {  // all characters that stand for bytes
    if (c == 127) c = 161;
    if (c == 173) continue;
    std::string token;
    if (c < 128)
      token += static_cast<char>(c);
    else
      token = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    v.tokens.push_back(token);
  }
  v.types.resize(v.tokens.size(), Vocabulary::normal);
  ASSERT_EQ(v.tokens.size(), 258u);
  const Tokenizer t(std::move(v));
  std::string text;
  for (int byte = 0; byte < 128; ++byte) text += static_cast<char>(byte);
  text += "Na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x94 \xF0\x9F\x90\x9D \xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF";
  EXPECT_EQ(t.encode(text).size(), text.size());
  EXPECT_EQ(t.decode(t.encode(text)), text);
  EXPECT_EQ(t.decode({0, 1}), "");
}

TEST(Bpe, FindsControlTokensWhereThatIsWanted) {
  const Tokenizer t(bpe("ab<|>egin", {"b e"}));
  EXPECT_EQ(t.encode("a<|begin|>b", tiny_llama::ControlTokens::parsed), (Ids{2, 1, 3}));
  EXPECT_EQ(t.encode("<|begin|>").size(), 8u);
}

/// The rule word for word: while neighbours make a pair of the list, the first of the list is merged everywhere.
Ids slow_bpe(const Vocabulary& v, const std::string& word) {
  std::vector<std::string> parts;
  for (char c : word) parts.push_back(std::string(1, c));
  for (;;) {
    std::size_t best = v.merges.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      for (std::size_t m = 0; m < best; ++m)
        if (v.merges[m] == parts[i] + " " + parts[i + 1]) best = m;
    if (best == v.merges.size()) break;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (v.merges[best] == parts[i] + " " + parts[i + 1]) {
        parts[i] += parts[i + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
  }
  Ids ids;
  for (const std::string& part : parts)
    for (std::size_t id = 2; id < v.tokens.size(); ++id)
      if (v.tokens[id] == part) {
        ids.push_back(static_cast<std::int32_t>(id));
        break;
      }
  return ids;
}

TEST(Bpe, AgreesWithTheRuleOnRandomMerges) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"}, merges;
    for (int i = 0; i < 12; ++i) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      bool is_new = true;
      for (const std::string& t : tokens) is_new = is_new && t != left + right;
      if (!is_new) continue;
      merges.push_back(left + " " + right);
      tokens.push_back(left + right);
    }
    const Vocabulary v = bpe("abc", merges);
    std::string word;
    for (auto left = 1 + random() % 30; left > 0; --left) word += "abc"[random() % 3];
    ASSERT_EQ(Tokenizer(v).encode_more(word), slow_bpe(v, word)) << word << " in round " << round;
  }
}

TEST(BpeRefuses, MergesAndTokensThatAreNone) {
  Vocabulary v = bpe("ab", {"a b"});
  for (const char* merge : {"ab", "a c", "c a", "b a", "", "a ", " a", "a b b"}) {
    v.merges[0] = merge;
    EXPECT_REFUSED("tokenizer.ggml.merges = '" + std::string(merge) + "', allowed: two tokens that make a token",
                   Tokenizer(v));
  }
  for (const char* token : {"a b", "\xC6\x90", "\xC4"}) {  // U+0190 stands for no byte
    v = bpe("ab", {});
    v.tokens[2] = token;
    EXPECT_REFUSED_WITH("allowed: GPT-2's characters for bytes", Tokenizer(v));
  }
  v = bpe("ab", {});
  v.types[2] = Vocabulary::byte;
  EXPECT_REFUSED("tokenizer.ggml.token_type = 6, allowed: 1 to 5", Tokenizer(v));
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  tiny_llama::for_each_smollm_word(text, [&](std::string_view word) { all.emplace_back(word); });
  return all;
}

TEST(SmollmWords, AreThoseOfGpt2) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words("a  b   c"), (Words{"a", " ", " b", "  ", " c"}));
  EXPECT_EQ(words("a \n b "), (Words{"a", " \n", " b", " "}));
  EXPECT_EQ(words("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(words("  "), (Words{"  "}));
  EXPECT_EQ(words("don't we'll I'd x's'S 'tis"),
            (Words{"don", "'t", " we", "'ll", " I", "'d", " x", "'s", "'", "S", " '", "tis"}));
  EXPECT_EQ(words("a, (b) ... !?c"), (Words{"a", ",", " (", "b", ")", " ...", " !?", "c"}));
  EXPECT_EQ(words(""), Words{});
}

TEST(SmollmWords, HaveEachNumberByItself) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("in 1905, 3.14"), (Words{"in", " ", "1", "9", "0", "5", ",", " ", "3", ".", "1", "4"}));
  EXPECT_EQ(words("a  7"), (Words{"a", "  ", "7"})) << "before a number all spaces stay together";
  EXPECT_EQ(words("x\xC2\xB2\xE2\x85\xA7"), (Words{"x", "\xC2\xB2", "\xE2\x85\xA7"})) << "a superscript, VIII";
}

TEST(SmollmWords, KnowUnicode) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("\xD0\x94\xD0\xB0 \xC3\xA9t\xC3\xA9"), (Words{"\xD0\x94\xD0\xB0", " \xC3\xA9t\xC3\xA9"}));
  EXPECT_EQ(words("\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C"), (Words{"\xE4\xBD\xA0\xE5\xA5\xBD", "\xEF\xBC\x8C"}));
  EXPECT_EQ(words("a\xE3\x80\x80\xC2\xA0z"), (Words{"a", "\xE3\x80\x80", "\xC2\xA0", "z"})) << "wide spaces";
  EXPECT_EQ(words("ok \xF0\x9F\x90\x9D\xF0\x9F\x90\x9D!"), (Words{"ok", " \xF0\x9F\x90\x9D\xF0\x9F\x90\x9D!"}));
}

TEST(Unicode, TellsTheEndsOfItsRanges) {
  namespace unicode = tiny_llama::unicode;
  for (char32_t c : {U'A', U'Z', U'a', U'z', U'\u00AA', U'\u00B5', U'\u0410', U'\u4E00', U'\u9FFF', U'\U00020000'})
    EXPECT_TRUE(unicode::is_letter(c)) << static_cast<unsigned>(c);
  for (char32_t c : {U'@', U'[', U'`', U'{', U'\u00A9', U'\u00AB', U'0', U'\u0300', U'\U0001F41D', U'\U0010FFFF'})
    EXPECT_FALSE(unicode::is_letter(c)) << static_cast<unsigned>(c);
  for (char32_t c : {U'0', U'9', U'\u00B2', U'\u0660', U'\u2167', U'\uFF19'})
    EXPECT_TRUE(unicode::is_number(c)) << static_cast<unsigned>(c);
  for (char32_t c : {U'/', U':', U'\u0001', U'\U0010FFFF'}) EXPECT_FALSE(unicode::is_number(c));
  int letters = 0, numbers = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    letters += unicode::is_letter(c);
    numbers += unicode::is_number(c);
  }
  EXPECT_EQ(letters, 131756);  // of Unicode 14.0.0
  EXPECT_EQ(numbers, 1791);
}

TEST(Utf8, GivesCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x90\x9D";
  EXPECT_EQ(tiny_llama::utf8_character(text, 0), U'a');
  EXPECT_EQ(tiny_llama::utf8_character(text, 1), U'\u00E9');
  EXPECT_EQ(tiny_llama::utf8_character(text, 3), U'\u20AC');
  EXPECT_EQ(tiny_llama::utf8_character(text, 6), U'\U0001F41D');
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
  for (int type : {-1, 0, 7}) {
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
