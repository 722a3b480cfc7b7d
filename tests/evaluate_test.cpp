// The parts of buzz-evaluate that need no model.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "evaluate/facts.h"
#include "evaluate/html.h"
#include "evaluate/jobs.h"
#include "evaluate/jsonl.h"
#include "evaluate/results_cache.h"
#include "evaluate/sentences.h"
#include "evaluate/sized_policy.h"
#include "evaluate/table.h"
#include "model/refused.h"
#include "temporary_folder.h"
#include "tiny_llama/policies.h"

namespace {

using nlohmann::json;

// The test vectors of the FNV authors (Fowler, Noll, Vo; "FNV test vectors").
TEST(Hash, IsFnv1a) {
  EXPECT_EQ(evaluate::hash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(evaluate::hash("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(evaluate::hash("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(evaluate::hex(0xabcu), "0000000000000abc");
}

TEST(ResultsCache, GivesWhatAnEarlierOneGot) {
  const TemporaryFolder folder;
  {
    const evaluate::ResultsCache cache(folder.path());
    EXPECT_TRUE(cache.find({{"task", "a"}}).is_null());
    cache.put({{"task", "a"}}, 1);
    cache.put({{"task", "b"}}, 2);
  }
  const evaluate::ResultsCache later(folder.path());
  EXPECT_EQ(later.find({{"task", "a"}}), json(1));
  EXPECT_EQ(later.find({{"task", "b"}}), json(2));
  EXPECT_TRUE(later.find({{"task", "c"}}).is_null());
}

TEST(ResultsCache, WithoutAFolderRemembersNothing) {
  const evaluate::ResultsCache cache;
  cache.put(1, 2);
  EXPECT_TRUE(cache.find(1).is_null());
}

TEST(ResultsCache, TakesNothingThatIsDamagedOrAnotherKeys) {
  const TemporaryFolder folder;
  const evaluate::ResultsCache cache(folder.path());
  cache.put("key", "first");
  ASSERT_EQ(folder.names().size(), 1u);
  for (const char* content : {"", "{\"key\": \"key\"", "{\"key\": \"other\", \"result\": \"wrong\"}", "[]"}) {
    folder.write(folder.names()[0], content);
    EXPECT_TRUE(cache.find("key").is_null()) << content;
    cache.put("key", "again");
    EXPECT_EQ(cache.find("key"), json("again")) << content;
  }
}

TEST(ResultsCache, RefusesAFolderThatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_REFUSED_WITH("a folder", evaluate::ResultsCache(folder.write("file", "a file")));
}

TEST(Jobs, RunAllOnceOnAnyNumberOfThreads) {
  for (int threads : {1, 2, 5}) {
    std::vector<int> done(37);
    evaluate::run_jobs(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(37, 1));
  }
  evaluate::run_jobs(0, 3, [](std::size_t) { FAIL(); });
}

TEST(Jobs, ThrowWhatAJobThrew) {
  std::atomic<int> done{0};
  try {
    evaluate::run_jobs(100, 2, [&](std::size_t i) {
      if (i == 3) throw std::runtime_error("three");
      ++done;
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "three");
  }
  EXPECT_LT(done, 100);
}

evaluate::Sizes sizes(int budget = 500) {
  evaluate::Sizes s;
  s.budget = budget;
  s.tokens = 2000;
  return s;
}
std::string sized(const std::string& spec, const evaluate::Sizes& s = sizes()) {
  return buzz::to_text(evaluate::sized_policy(spec, s));
}

TEST(Policies, AreListedWithWhatTheyAreBestFor) {
  const std::string all = tiny_llama::lines_of(tiny_llama::policies());
  EXPECT_NE(all.find("\n  streaming: "), std::string::npos);
  EXPECT_NE(all.find("\n  fluency: expected_attention, the best known for running text"), std::string::npos);
  const std::string blind = tiny_llama::lines_of(tiny_llama::policies(/*shows_queries*/ false));
  EXPECT_NE(blind.find("\n  recall: calibrated, "), std::string::npos);
  EXPECT_EQ(blind.find("fluency"), std::string::npos) << "its policy is not there";
}

TEST(SizedPolicy, TakesAllOfTheBudget) {
  for (const buzz::PolicyInfo& p : tiny_llama::policies())
    for (const char* options : {"", ":window=0.2", ":sink=1", ":sink=9,window=0.93"}) {
      const std::string spec = p.name + std::string(options);
      if (p.name == std::string("full")) continue;
      const buzz::Policy policy = evaluate::sized_policy(spec, sizes());
      EXPECT_EQ(policy.most_rows(32), 500) << spec;
      EXPECT_EQ(policy.name, p.name);
    }
  EXPECT_EQ(sized("full"), "full:capacity=2000");
}

TEST(SizedPolicy, HasSharesForSizes) {
  EXPECT_EQ(sized("beehive:window=0.2"), "beehive:window=93,threshold=371");
  EXPECT_EQ(sized("streaming:window=0.5,sink=0"), "streaming:sink=0,window=234,threshold=234");
  EXPECT_EQ(sized("heavy_hitter:heavy=0.5"), "heavy_hitter:window=234,heavy=117,threshold=234");
  EXPECT_EQ(sized("key_outliers:heavy=0.5"), "key_outliers:window=372,heavy=46,threshold=92");
}

TEST(SizedPolicy, HasThePolicysOwnOptions) {
  EXPECT_EQ(sized("diverse_beehive:keep=4,chunk=16,hive=together"),
            "diverse_beehive:window=232,threshold=232,stride=0,chunk=16,keep=4,hive=together");
  EXPECT_EQ(sized("heavy_hitter:attention=mean"), "heavy_hitter:window=234,attention=mean,heavy=234");
}

TEST(SizedPolicy, FillsTheBudgetFromOneCall) {
  evaluate::Sizes whole = sizes();
  whole.max_chunk = 1000;
  const buzz::Policy filled = evaluate::sized_policy("beehive:window=0.2,fill=8", whole);
  const auto& o = *filled.select.as<buzz::Segments::Options>();
  EXPECT_EQ(o.stride, 0);
  EXPECT_GE(o.chunk, 8);
  const int unfiltered = 1000 - 4 - 93;
  EXPECT_EQ((unfiltered * o.keep + o.chunk - 1) / o.chunk, 371);
  EXPECT_EQ(sized("beehive:fill=8"), sized("beehive")) << "which is read in chunks";
  EXPECT_EQ(sized("beehive:fill=0", whole), sized("beehive", whole));
}

TEST(SizedPolicy, RefusesByName) {
  EXPECT_REFUSED_WITH("policy = best, allowed: beehive, strided", sized("best"));
  EXPECT_REFUSED_WITH("policy option = stride, allowed: sink, window, threshold", sized("streaming:stride=2"));
  EXPECT_REFUSED_WITH("budget = 20 rows, allowed: >= 37", sized("beehive", sizes(20)));
  EXPECT_REFUSED_WITH("budget = 40 rows, allowed: >= 42", sized("beehive:sink=9", sizes(40)));
  EXPECT_REFUSED_WITH("rows of 'streaming:threshold=9' = 509, allowed: <= 500", sized("streaming:threshold=9"));
  EXPECT_REFUSED_WITH("window_share = 2.000000, allowed: 0 to 1", sized("beehive:window=2"));
  EXPECT_REFUSED_WITH("heavy = '2', allowed: 0 to 1", sized("heavy_hitter:heavy=2"));
  EXPECT_REFUSED_WITH("heavy = '1', allowed: no value", sized("beehive:heavy=1"));
  EXPECT_REFUSED_WITH("fill = '8', allowed: no value", sized("tova:fill=8"));
  EXPECT_REFUSED_WITH("fill = '1.5', allowed: 0 to", sized("beehive:fill=1.5"));
  EXPECT_REFUSED_WITH("hive = last, allowed: first, heaviest, together", sized("beehive:hive=last"));
  EXPECT_REFUSED_WITH("full, which has no options here", sized("full:capacity=3"));
  EXPECT_REFUSED_WITH("policy = user_scores", sized("user_scores"));
  for (const char* text : {"window", "=2", "window=", "keep=1,,hive=first"})
    EXPECT_REFUSED_WITH("option", sized(std::string("beehive:") + text));
}

TEST(Sentences, AreWholeOnesOfRunningText) {
  const std::vector<std::string> found = evaluate::sentences(
      "CHAPTER ONE\n\nThe old house stood\nby the river. It was. Dr. Brown came to the house at noon.  He said \"no\" "
      "and went away again.\n\nNobody came after that in the winter.");
  EXPECT_EQ(found,
            (std::vector<std::string>{"The old house stood by the river.", "Dr. Brown came to the house at noon.",
                                      "Nobody came after that in the winter."}));
  EXPECT_REFUSED_WITH("a text with sentences", evaluate::sentences("no sentence"));
}

TEST(Facts, AreAboutSubjectsOfTheirOwn) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    tiny_llama::Random random(seed);
    std::set<std::string> sentences, beginnings, kinds;
    for (const evaluate::Fact& f : evaluate::draw_facts(random, 24)) {
      EXPECT_EQ(" " + f.sentence, f.question.text + f.question.answer + ".");
      EXPECT_TRUE(sentences.insert(f.sentence).second) << f.sentence;
      EXPECT_TRUE(beginnings.insert(f.question.text).second) << f.question.text;
      kinds.insert(f.question.text.substr(0, 14));
    }
    EXPECT_GE(kinds.size(), 23u) << "they begin unlike each other";
  }
  tiny_llama::Random random(1);
  std::set<std::string> first;
  for (int i = 0; i < 50; ++i) first.insert(evaluate::draw_facts(random, 1)[0].question.text);
  EXPECT_GT(first.size(), 20u) << "of all kinds";
  EXPECT_EQ(evaluate::draw_facts(random, 96).size(), 96u);
  EXPECT_REFUSED_WITH("facts = 97, allowed: 1 to 96", evaluate::draw_facts(random, 97));
}

TEST(Pairs, HaveKeysOfTheirOwn) {
  const evaluate::Pairs pairs({20, 6});
  tiny_llama::Random random(3);
  const tiny_llama::Documents made = pairs(random);
  std::set<std::string> keys;
  for (std::size_t at = 0, end; at < made.text.size(); at = end + 1) {
    end = made.text.find('\n', at);
    keys.insert(made.text.substr(at, made.text.find(':', at) - at));
  }
  EXPECT_EQ(keys.size(), 20u);
  EXPECT_EQ(made.questions.size(), 6u);
  for (const tiny_llama::Question& q : made.questions)
    EXPECT_NE(("\n" + made.text).find("\n" + q.text + q.answer + "\n"), std::string::npos) << q.text;
  EXPECT_REFUSED_WITH("pairs = 325, allowed: 1 to 324", evaluate::Pairs({325, 1}));
  EXPECT_REFUSED_WITH("questions = 7, allowed: 1 to 6", evaluate::Pairs({6, 7}));
}

class Jsonl : public testing::Test {
 protected:
  std::string file(const std::string& text) { return folder.write("data.jsonl", text); }
  const TemporaryFolder folder;
};

TEST_F(Jsonl, IsAnObjectALine) {
  const std::vector<json> lines = evaluate::read_jsonl(file("{\"a\": \"x\"}\r\n\n{\"a\": \"y\"}"), 10);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("a"), "y");
  EXPECT_EQ(lines[1].at("line"), 3);
  EXPECT_EQ(evaluate::read_jsonl(file("{}\n{}\nnot read"), 2).size(), 2u);
}

TEST_F(Jsonl, RefusesByLineAndField) {
  EXPECT_REFUSED_WITH("data.jsonl:2 = '[1]', allowed: a JSON object", evaluate::read_jsonl(file("{}\n[1]"), 10));
  EXPECT_REFUSED_WITH("data.jsonl:1 = 'b', allowed: each field once",
                      evaluate::read_jsonl(file("{\"a\": {\"b\": 1}, \"c\": [{\"b\": 1, \"b\": 1}]}"), 10));
  EXPECT_NO_THROW(evaluate::read_jsonl(file("{\"a\": {\"b\": 1}, \"b\": [{\"a\": 1}, {\"a\": 1}]}"), 10));
  EXPECT_REFUSED_WITH("a JSON object a line", evaluate::read_jsonl(file("\n"), 10));
  EXPECT_THROW(evaluate::read_jsonl(file("[1]"), 10), buzz::FileError);
  const json line = {{"line", 7}, {"number", 1}, {"none", json::array()}, {"mixed", {"a", 1}}};
  EXPECT_REFUSED_WITH("f:7 text = missing, allowed: a text", evaluate::field<std::string>("f", line, "text"));
  EXPECT_REFUSED_WITH("f:7 number = '1'", evaluate::field<std::string>("f", line, "number"));
  EXPECT_THROW(evaluate::field<std::string>("f", line, "number"), buzz::FileError);
  for (const char* name : {"number", "none", "mixed"})
    EXPECT_REFUSED_WITH("a list of texts", evaluate::field<std::vector<std::string>>("f", line, name));
}

evaluate::Table table() {
  return {"Title",
          "Note",
          {{"policy"}, {"rows"}, {"figure", 2}},
          {{"a", 12, evaluate::Estimate{0.5, 0.25, 0.75}}, {"b,c", 3, {}}}};
}

TEST(Table, AsText) {
  EXPECT_EQ(table().as_text(),
            "Title\n"
            "policy  rows             figure\n"
            "a         12  0.50 [0.25, 0.75]\n"
            "b,c        3\n"
            "Note\n");
}

TEST(Table, AsCsv) {
  EXPECT_EQ(table().as_csv(),
            "policy,rows,figure,figure_low,figure_high\n"
            "a,12.0,0.5,0.25,0.75\n"
            "\"b,c\",3.0,,,\n");
}

TEST(Table, AsJson) {
  const json rows = table().as_json().at("rows");
  EXPECT_EQ(rows[0],
            (json{{"policy", "a"}, {"rows", 12}, {"figure", 0.5}, {"figure_low", 0.25}, {"figure_high", 0.75}}));
  EXPECT_EQ(rows[1].at("figure"), json());
}

TEST(Page, NeedsNothingElseAndEscapes) {
  evaluate::Page page("A <b> & c");
  page.table(table());
  page.plot("rows", evaluate::line_plot("rows", "x", "y", {{"a<b", {{0, 1}, {5, 2}}}, {"empty", {}}}));
  page.plot("heat", evaluate::heat_map("heat", {"1"}, {"2"}, {{0.5}}));
  const std::string text = page.text();
  for (const char* part : {"<title>A &lt;b&gt; &amp; c</title>", "prefers-color-scheme", "viewport", "a&lt;b",
                           "0.50 <small>[0.25, 0.75]</small>", "b,c"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  for (const char* part : {"http", "<script", "<link", "src=", "nan", "inf", "empty"})
    EXPECT_EQ(text.find(part), std::string::npos) << part;
}

TEST(LinePlot, IsAFileOfItsOwn) {
  const std::string plot = evaluate::line_plot("rows", "x", "y", {{"a<b", {{0, 1}, {5, 2}}}});
  const std::string file = evaluate::standalone({plot, plot}, {{"a<b", {}}});
  EXPECT_EQ(file.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0u);
  EXPECT_NE(file.find(">a&lt;b</text>"), std::string::npos);
  std::size_t opened = 0, closed = 0;
  for (std::size_t at = 0; (at = file.find("<svg ", at)) != std::string::npos; ++at) ++opened;
  for (std::size_t at = 0; (at = file.find("</svg>", at)) != std::string::npos; ++at) ++closed;
  EXPECT_EQ(opened, 3u);
  EXPECT_EQ(closed, 3u);
  EXPECT_EQ(file.find("<div"), std::string::npos);
  EXPECT_EQ(file.find("var("), std::string::npos) << "no page says what the variable is";
}

TEST(LinePlot, OfNothingIsNothing) { EXPECT_EQ(evaluate::line_plot("t", "x", "y", {}), ""); }

TEST(LinePlot, OfOnePointHasAxes) {
  const std::string plot = evaluate::line_plot("t", "x", "y", {{"a", {{0, 0}}}});
  EXPECT_EQ(plot.find("nan"), std::string::npos);
  EXPECT_NE(plot.find("polyline"), std::string::npos);
}

}  // namespace
