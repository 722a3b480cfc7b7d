#include "tiny_llama/documents.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "model/refused.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/reading.h"

namespace {

using tiny_llama::DocumentOptions;
using tiny_llama::Documents;
using tiny_llama::Random;

Documents make(std::uint64_t seed, const DocumentOptions& options = {}) {
  Random random(seed);
  return tiny_llama::make_documents(random, options);
}

TEST(Random, IsTheSameEverywhere) {
  Random random(5489);
  std::vector<std::size_t> drawn;
  for (int i = 0; i < 4; ++i) drawn.push_back(random.below(1000));
  // mt19937_64's first numbers are 14514284786278117030, 4620546740167642908, 13109570281517897720,
  // 17462938647148434322.
  EXPECT_EQ(drawn, (std::vector<std::size_t>{30, 908, 720, 322}));
}

TEST(Random, DrawsEveryNumberAsOften) {
  Random random(1);
  int counts[7] = {};
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (int count : counts) EXPECT_NEAR(count, 10000, 500);
  for (int i = 0; i < 100; ++i) {
    const int drawn = random.between(-2, 1);
    EXPECT_TRUE(drawn >= -2 && drawn <= 1);
  }
}

TEST(Random, SamplesWithoutReturningInAnyOrder) {
  Random random(3);
  std::map<std::vector<int>, int> orders;
  for (int i = 0; i < 24000; ++i) ++orders[random.sample(std::vector<int>{1, 2, 3, 4}, 3)];
  EXPECT_EQ(orders.size(), 24u);
  for (const auto& [order, times] : orders) {
    EXPECT_NEAR(times, 1000, 150);
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 3u);
  }
}

TEST(Join, ClosesUpAndTakesTheRightArticle) {
  EXPECT_EQ(tiny_llama::join("It was a empty day , and so on . Why ?"), "It was an empty day, and so on. Why?");
  EXPECT_EQ(tiny_llama::join("A apple , a pear , a orange"), "An apple, a pear, an orange");
  EXPECT_EQ(tiny_llama::join("Clara ate a Ugli , extra old ."), "Clara ate a Ugli, extra old.");
  EXPECT_EQ(tiny_llama::join("a"), "a");
  EXPECT_EQ(tiny_llama::join(""), "");
}

TEST(Documents, AreTheSameForTheSameSeed) {
  const Documents one = make(1);
  EXPECT_EQ(one.text.substr(0, one.text.find(". ") + 1),
            "Document 1: Helga Osborne\nThe empty forest stayed by the wall.");
  EXPECT_EQ(one.text, make(1).text);
  EXPECT_NE(one.text, make(2).text);
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

TEST(Documents, HaveATitleAndABodyEach) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    DocumentOptions options;
    options.documents = 1 + static_cast<int>(seed % 12);
    const Documents made = make(seed, options);
    const std::vector<std::string> all = lines(made.text);
    ASSERT_EQ(all.size(), 2 * static_cast<std::size_t>(options.documents));
    EXPECT_EQ(made.text.back(), '\n');
    std::set<std::string> names;
    for (std::size_t i = 0; i < all.size(); i += 2) {
      const std::string title = "Document " + std::to_string(i / 2 + 1) + ": ";
      ASSERT_EQ(all[i].substr(0, title.size()), title);
      names.insert(all[i].substr(title.size()));
      EXPECT_EQ(all[i + 1].back(), '.');
      EXPECT_EQ(all[i + 1].find_first_of("{}"), std::string::npos);
    }
    EXPECT_EQ(names.size(), all.size() / 2);
  }
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

TEST(Documents, HaveFactsAndFillersInTheRangesAsked) {
  DocumentOptions options;
  options.fewest_facts = 1;
  options.most_facts = 3;
  options.fewest_fillers = 2;
  options.most_fillers = 4;
  options.questions = 1000;
  options.other_filler = [](Random&) { return std::string("Filler ."); };
  std::set<std::size_t> facts, fillers;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Documents made = make(seed, options);
    const std::vector<std::string> all = lines(made.text);
    std::size_t known = 0;
    for (std::size_t i = 1; i < all.size(); i += 2) {
      const std::size_t filled = count(all[i], "Filler."), told = count(all[i], ".") - filled;
      fillers.insert(filled);
      facts.insert(told);
      known += told;
    }
    EXPECT_EQ(made.questions.size(), known);
  }
  EXPECT_EQ(facts, (std::set<std::size_t>{1, 2, 3}));
  EXPECT_EQ(fillers, (std::set<std::size_t>{2, 3, 4}));
}

TEST(Documents, AnswerTheirQuestions) {
  DocumentOptions options;
  options.questions = 5;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Documents made = make(seed, options);
    const std::vector<std::string> all = lines(made.text);
    ASSERT_EQ(made.questions.size(), 5u);
    for (const tiny_llama::Question& q : made.questions) {
      const std::string& title = all[2 * static_cast<std::size_t>(q.document - 1)];
      const std::string& body = all[2 * static_cast<std::size_t>(q.document - 1) + 1];
      const std::string name = title.substr(title.find(": ") + 2);
      EXPECT_NE(q.text.find(name), std::string::npos) << q.text;
      EXPECT_NE(body.find(q.answer), std::string::npos) << q.text << q.answer;
      EXPECT_EQ(q.text.substr(0, 10), "Question: ");
      EXPECT_EQ(q.text.substr(q.text.size() - 9), "? Answer:");
      EXPECT_EQ(q.answer[0], ' ');
    }
  }
}

TEST(DocumentsRefuse, RangesThatAreNone) {
  DocumentOptions o;
  o.documents = 0;
  EXPECT_REFUSED_WITH("documents = 0, allowed: 1 to ", make(1, o));
  o = {};
  o.most_facts = 8;
  EXPECT_REFUSED("most_facts = 8, allowed: 0 to 7", make(1, o));
  o = {};
  o.fewest_facts = 5;
  EXPECT_REFUSED("fewest_facts = 5, allowed: 0 to 4", make(1, o));
  o = {};
  o.most_fillers = -1;
  EXPECT_REFUSED("most_fillers = -1, allowed: 0 to 1000", make(1, o));
  o = {};
  o.fewest_fillers = 7;
  EXPECT_REFUSED("fewest_fillers = 7, allowed: 0 to 6", make(1, o));
  o = {};
  o.questions = -1;
  EXPECT_REFUSED("questions = -1, allowed: >= 0", make(1, o));
}

const tiny_llama::Tokenizer& tokenizer() {
  static const tiny_llama::Tokenizer t(
      tiny_llama::read_vocabulary(tiny_llama::Gguf::read(BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf")));
  return t;
}

TEST(Reading, IsWholeSetsOfDocuments) {
  Random random(1);
  const tiny_llama::Reading r = tiny_llama::make_reading(tokenizer(), random, 3000, nullptr);
  EXPECT_GE(r.tokens.size(), 3000u);
  EXPECT_LT(r.tokens.size(), 5000u);
  EXPECT_EQ(r.documents.size(), 10u);
  EXPECT_EQ(r.documents[9].substr(0, 13), "Document 10: ");
  const std::string text = tokenizer().decode(r.tokens);
  EXPECT_EQ(r.tokens, tokenizer().encode(text));  // the tokens of the parts are those of the whole
  std::string last;
  for (const std::string& document : r.documents) last += document;
  EXPECT_EQ(text.substr(text.size() - last.size()), last);
  for (const tiny_llama::Question& q : r.questions) {
    EXPECT_NE(r.documents[static_cast<std::size_t>(q.document - 1)].find(q.answer), std::string::npos);
  }
}

TEST(Reading, IsATextAndThenDocuments) {
  Random random(1);
  const std::string text = "Call me Ishmael.";
  const tiny_llama::Reading r = tiny_llama::make_reading(tokenizer(), random, 8000, &text);
  const std::string all = tokenizer().decode(r.tokens);
  EXPECT_EQ(all.substr(0, 29), "Call me Ishmael.\nDocument 1: ");
  EXPECT_LT(r.tokens.size(), 2000u);
  Random again(1);
  const std::string longer(40000, 'x');
  const std::size_t documents = r.tokens.size() - tokenizer().encode(text).size();
  EXPECT_EQ(tiny_llama::make_reading(tokenizer(), again, 8000, &longer).tokens.size(), 8000 + documents);
}

TEST(Reading, RefusesATextThatIsNone) {
  Random random(1);
  const std::string empty, bad = "\xC3";
  EXPECT_REFUSED_WITH("prompt = empty", tiny_llama::make_reading(tokenizer(), random, 8000, &empty));
  EXPECT_REFUSED_WITH("prompt = not UTF-8", tiny_llama::make_reading(tokenizer(), random, 8000, &bad));
}

TEST(LastDocuments, AreAsManyAsFit) {
  const std::vector<std::string> documents = {"Document 1: A\nOne.\n", "Document 2: B\nTwo.\n"};
  const std::vector<std::int32_t> both = tokenizer().encode(documents[0] + documents[1]);
  EXPECT_EQ(tiny_llama::last_documents(tokenizer(), documents, both.size()), both);
  EXPECT_EQ(tiny_llama::last_documents(tokenizer(), documents, both.size() - 1), tokenizer().encode(documents[1]));
  EXPECT_TRUE(tiny_llama::last_documents(tokenizer(), documents, 2).empty());
}

}  // namespace
