// buzz-evaluate's policies side by side: they say what each says alone, on our small model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/answers.h"
#include "evaluate/facts.h"
#include "evaluate/models.h"
#include "evaluate/texts.h"
#include "model/refused.h"
#include "temporary_folder.h"

namespace {

using evaluate::Common;
using evaluate::Foretold;
using evaluate::json;
using evaluate::Members;
using evaluate::Sequences;
using evaluate::Tokens;

const std::string weights = BUZZ_TEST_DIR "/../examples/calibrate/weights/buzz-tiny.calibration";

evaluate::CommonOptions options() {
  evaluate::CommonOptions o;
  o.policies = {"streaming", "heavy_hitter", "key_outliers:window=0.3"};
  o.budgets = {"40%", "30%"};
  o.chunk = 16;
  return o;
}
const Common& common() {
  static const Common all(options(), "test");
  return all;
}
Tokens text(std::size_t tokens) { return evaluate::made_up_text(common(), tokens).tokens; }

using Said = std::vector<std::vector<Foretold>>;

void expect_near(const std::vector<Foretold>& a, const std::vector<Foretold>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].nll, b[i].nll, 2e-3) << i;  // products of other sizes round otherwise
    if (std::exp(-a[i].nll) > 0.51) {
      EXPECT_TRUE(b[i].is_likeliest) << i;
    }
  }
}

TEST(Sequences, SayTogetherWhatEachSaysAlone) {
  const Tokens tokens = text(150);
  Members all;
  for (std::size_t c = 0; c < common().contenders().size(); ++c) all.push_back(c);
  Sequences together = common().sequences(all, 150, 300);
  Said said;
  together.read(tokens, &said);
  const std::vector<std::string> texts = together.fork().texts(9, ".");
  std::set<double> sums;
  for (std::size_t c : all) {
    const int i = static_cast<int>(c);
    Sequences alone = common().sequences({c}, 150, 300);
    Said own;
    alone.read(tokens, &own);
    expect_near(own[0], said[c]);
    EXPECT_EQ(own[0].size(), 149u) << "nothing foretells the first";
    EXPECT_EQ(alone.rows(), together.rows(i));
    EXPECT_EQ(alone.peak_rows(), together.peak_rows(i));
    EXPECT_EQ(alone.allocated_bytes(), together.allocated_bytes(i));
    EXPECT_EQ(alone.likeliest(), together.likeliest(i));
    EXPECT_EQ(alone.texts(9, ".")[0], texts[c]);
    double sum = 0;
    for (const Foretold& f : own[0]) sum += f.nll;
    sums.insert(sum);
  }
  EXPECT_EQ(sums.size(), all.size()) << "they are not the same";
  EXPECT_EQ(together.peak_rows(0), 150);
  for (int i = 1; i < together.size(); ++i)
    EXPECT_LE(together.peak_rows(i), common().contenders()[static_cast<std::size_t>(i)].budget.of(150));
}

TEST(Sequences, ScoreFromAnyTokenOn) {
  const Tokens before = text(40), tokens = text(77);
  Sequences s = common().sequences({0, 1}, 150, 300);
  s.read(before);
  Said all;
  s.fork().read(tokens, &all);
  ASSERT_EQ(all[1].size(), tokens.size());
  for (std::size_t first : {0u, 1u, 15u, 16u, 17u, 32u, 75u, 76u, 77u}) {
    Said some;
    Sequences own = s.fork();
    own.read(tokens, &some, first);
    for (std::size_t m = 0; m < 2; ++m)
      expect_near(some[m], {all[m].begin() + static_cast<std::ptrdiff_t>(first), all[m].end()});
    Said next;
    own.read({5}, &next);
    EXPECT_EQ(next[1].size(), 1u) << "what comes next is foretold whatever was scored";
  }
}

// A policy that reads the prompt in one call evicts after it by itself: the same rows, to rounding.
TEST(Led, FollowersKeepWhatTheyWouldAlone) {
  const Tokens prompt = text(150), more = text(20);
  evaluate::Sizes sizes;
  sizes.budget = 51;
  sizes.counted = 1;
  sizes.max_chunk = sizes.tokens = 180;
  const std::vector<std::string> specs = {"streaming", "heavy_hitter",       "key_outliers:window=0.3",
                                          "snap_kv",   "expected_attention", "leverage:window=0.3,sharing=model",
                                          "full"};
  const auto follower = [&](const std::string& spec, int max_chunk) {
    return std::make_unique<evaluate::Follower>(common().config(), evaluate::sized_policy(spec, sizes), sizes.positions,
                                                max_chunk);
  };
  Said alone_said;
  std::vector<int> rows;
  for (const std::string& spec : specs) {
    evaluate::Batch::Members own;
    own.push_back(evaluate::make_policy(common().config(), spec, sizes));
    Sequences alone(common().model(), std::move(own));
    alone.read(prompt);
    rows.push_back(static_cast<int>(alone.rows()));
    EXPECT_LE(rows.back(), spec == "full" ? 150 : 50);
    Said said;
    alone.read(more, &said, 1);
    alone_said.push_back(said[0]);
  }

  evaluate::Led::Followers followers;
  for (const std::string& spec : specs) followers.push_back(follower(spec, 180));
  auto led = std::make_unique<evaluate::Led>(common().config(), follower("full", 16), std::move(followers));
  evaluate::Led& all = *led;
  evaluate::Batch::Members one;
  one.push_back(std::move(led));
  Sequences reading(common().model(), std::move(one));
  reading.read(prompt);
  Sequences cut(reading, all.cut(rows));
  for (int i = 0; i < cut.size(); ++i) {
    EXPECT_EQ(cut.rows(i), rows[static_cast<std::size_t>(i)]);
    EXPECT_EQ(cut.peak_rows(i), 150);
  }
  Said said;
  cut.read(more, &said, 1);
  for (std::size_t i = 0; i < specs.size(); ++i) expect_near(said[i], alone_said[i]);
}

// The slow way: of the rows between sink and window those whose attention in the second reading, as it is or to a
// power, is highest, summed over heads where they share.
TEST(Replay, KeepsWhatTheSecondReadingLooksAt) {
  const Tokens prompt = text(150);
  constexpr int rows = 51, sink = 4;
  evaluate::CommonOptions o = options();
  o.once = true;
  o.budgets = {"34%"};
  struct Case {
    std::string options, sharing;
    double power;
    int window;
    double trail = 0;
  };
  const std::vector<Case> cases = {{":window=0.1,sharing=head,power=0,trail=0", "head", 0, 5},
                                   {":window=0.5,sharing=layer,power=0.7,trail=0", "layer", 0.7, 23},
                                   {":window=0.1,sharing=model,power=0.2,trail=0", "model", 0.2, 5},
                                   {":window=0.1,sharing=model,power=0.2,trail=2", "model", 0.2, 5, 2}};
  o.policies = {"snap_kv"};
  Members members;
  for (const Case& c : cases) {
    o.policies.push_back("replay" + c.options);
    members.push_back(members.size() + 2);
  }
  const Common once(o, "test");
  const Sequences s = once.read(members, prompt, 20);
  const calibrate::Replay read = calibrate::replay(once.model(), prompt);
  const int layers = once.config().layers, heads = once.config().kv_heads;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto& cache = dynamic_cast<const evaluate::Follower&>(s.cache(static_cast<int>(c))).cache();
    for (int l = 0; l < layers; ++l)
      for (int h = 0; h < heads; ++h) {
        std::vector<std::pair<double, int>> middle;
        for (int r = sink; r < 150 - cases[c].window; ++r) {
          double sum = 0;
          for (int m = 0; m < layers; ++m)
            for (int g = 0; g < heads; ++g) {
              if ((cases[c].sharing != "model" && m != l) || (cases[c].sharing == "head" && g != h)) continue;
              for (int from = cases[c].trail > 0 ? 0 : r; from <= r; ++from) {  // what each row leaves to it
                const double a = static_cast<double>(read.attention[static_cast<std::size_t>(m)](g, from)) + 1e-6;
                sum += (cases[c].power > 0 ? std::pow(a, cases[c].power) : std::log(a)) *
                       (from == r ? 1 : std::exp((from - r) / cases[c].trail)) /
                       (from == 0 ? 1 - std::exp(-1 / cases[c].trail) : 1);  // nothing is before the first
              }
            }
          middle.emplace_back(-sum, r);
        }
        std::sort(middle.begin(), middle.end());
        std::set<int> expected;
        for (int r = 0; r < sink; ++r) expected.insert(r);
        for (int r = 150 - cases[c].window; r < 150; ++r) expected.insert(r);
        for (int i = 0; i < rows - sink - cases[c].window; ++i)
          expected.insert(middle[static_cast<std::size_t>(i)].second);
        const auto positions = cache.layer(l).evictor().positions();
        ASSERT_EQ(positions.shape(2), rows);
        EXPECT_EQ(std::set<int>(positions.row(0, h), positions.row(0, h) + rows), expected)
            << cases[c].options << " " << l << " " << h;
      }
  }
}

TEST(Replay, ReadsAgainInPiecesThatTheContextHasRoomFor) {
  calibrate::Model model = tiny_llama::read_model(options().model);
  model.config.context = 1000;  // less than its own, which takes longer to fill
  const auto asked = common().tokenizer().encode_more(calibrate::ReplayOptions().request).size();
  const auto most = static_cast<std::size_t>(model.config.context) - asked - 400;
  EXPECT_EQ(evaluate::read_again(model, text(most)).attention[0].cols(), static_cast<Eigen::Index>(most));
  EXPECT_REFUSED_WITH("tokens = ", evaluate::read_again(model, text(most + 400)));
}

TEST(Replay, IsRefusedWhereNothingIsReadAgain) {
  evaluate::CommonOptions o = options();
  o.policies = {"replay"};
  EXPECT_REFUSED_WITH("policy = 'replay', allowed: another where no prompt is read --once", Common(o, "test"));
  o.once = true;
  const Common once(o, "test");
  EXPECT_REFUSED_WITH("policy = 'replay'", once.sequences({1}, 150, 170));
  o.policies = {"replay:weights=" + weights};
  EXPECT_REFUSED_WITH("none of replay", Common(o, "test"));
}

TEST(Models, AreTogetherPolicyByPolicy) {
  const TemporaryFolder folder;
  std::string novel;
  for (int i = 0; i < 60; ++i) novel += "The men of the ship number " + std::to_string(i) + " went on shore. ";
  evaluate::CommonOptions common = options();
  common.policies = {"streaming", "calibrated:window=0.1", "replay"};
  evaluate::ModelsOptions o;
  o.models = {common.model, common.model};
  o.calibrations = {weights, "none"};
  o.tasks = {"once", "stream"};
  o.facts.text = folder.write("novel.txt", novel);
  o.facts.facts = 3;
  o.tokens = {80, 100};
  o.sets = 2;
  evaluate::Models page(common, "test", o);
  const std::vector<evaluate::Table> tables = page.run();
  ASSERT_EQ(tables.size(), 4u) << "a task and model each";
  ASSERT_EQ(page.summaries().size(), 4u) << "a task and column each";
  for (std::size_t s = 0; s < 4; ++s) {
    const evaluate::Table& all = page.summaries()[s];
    const std::vector<std::string> rows =
        s < 2 ? common.policies : std::vector<std::string>{"streaming", "calibrated:window=0.1"};
    ASSERT_EQ(all.columns.size(), 5u);
    EXPECT_EQ(all.columns[4].name, "buzz-tiny-q8_0 30%");
    ASSERT_EQ(all.rows.size(), rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(all.rows[r][0].text, rows[r]);
      for (std::size_t c = 0; c < 4; ++c) {
        const evaluate::Cell& cell = all.rows[r][c + 1];
        const evaluate::Table& one = tables[s / 2 * 2 + c / 2];
        const std::size_t figure = one.column(s % 2 == 0 ? "kept of full's right" : "log-likelihood - full");
        bool found = false;
        for (const auto& row : one.rows) {
          const std::string policy = row[0].text.substr(0, row[0].text.find(",weights"));
          if (policy != rows[r] || row[1].text != common.budgets[c % 2]) continue;
          found = true;
          EXPECT_EQ(cell.kind, row[figure].kind);
          EXPECT_EQ(cell.number.value, row[figure].number.value);
          EXPECT_EQ(cell.number.low, row[figure].number.low);
        }
        if (!found) {
          EXPECT_EQ(cell.kind, evaluate::Cell::Kind::text);
        }
        EXPECT_EQ(found, r != 1 || c < 2) << "the second model has no weights";
      }
    }
  }
  EXPECT_NE(tables[0].title, tables[1].title) << "they have tokens of their own";
  EXPECT_NE(page.html().find("<polyline"), std::string::npos);
}

TEST(Models, TakeFilesOfDocumentsAndSummaries) {
  const TemporaryFolder folder;
  evaluate::CommonOptions common = options();
  common.policies = {"streaming"};
  common.budgets = {"24"};
  evaluate::ModelsOptions o;
  o.models = {common.model};
  o.tasks = {"summaries"};
  const auto made = [&] { return evaluate::Models(common, "test", o); };
  EXPECT_REFUSED_WITH("summaries = none, allowed: a file of JSON lines", made());
  o.summaries = folder.write("bad.jsonl", "{\n");
  EXPECT_THROW(made(), buzz::FileError) << "before anything is measured";
  o.summaries = std::string(BUZZ_TEST_DIR) + "/data/summaries.jsonl";
  o.documents = std::string(BUZZ_TEST_DIR) + "/data/questions.jsonl";
  evaluate::Models page = made();
  const std::vector<evaluate::Table> tables = page.run();
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_NE(tables[0].title.find("Summaries of"), std::string::npos);
  EXPECT_NE(tables[1].title.find("Questions of"), std::string::npos) << "a file asks for its task";
  ASSERT_EQ(page.summaries().size(), 6u) << "four columns of the one, two of the other";
  EXPECT_EQ(page.summaries()[0].rows[0][1].number.value, tables[0].rows[1][tables[0].column("ROUGE-1")].number.value);
  EXPECT_EQ(page.summaries()[5].rows[0][1].number.value,
            tables[1].rows[1][tables[1].column("log-likelihood - full")].number.value);
}

TEST(Models, RefuseListsThatDoNotGoTogether) {
  evaluate::ModelsOptions o;
  const auto made = [&] { evaluate::Models(options(), "test", o); };
  EXPECT_REFUSED_WITH("models = none", made());
  o.models = {options().model, options().model};
  o.calibrations = {weights};
  EXPECT_REFUSED_WITH("calibrations = 1, allowed: 2, one a model", made());
  o.calibrations = {};
  o.tokens = {1, 2, 3};
  EXPECT_REFUSED_WITH("tokens = 3, allowed: 2", made());
  o.tokens = {5};
  o.tasks = {"best"};
  EXPECT_REFUSED_WITH("task = 'best', allowed: once, stream, pairs, needle, perplexity, documents, summaries", made());
  o.tasks = {};
  EXPECT_REFUSED_WITH("tasks = none", made());
}

TEST(HeatMaps, AreOneAPolicyAndBudget) {
  const evaluate::Table t{"Needle",
                          "",
                          {{"policy"}, {"budget"}, {"length"}, {"0%", 2}, {"100%", 2}},
                          {{"a", "20%", 64, 0.25, 1.0}, {"a", "20%", 96, 0.5, 0.0}, {"a", "10%", 64, 0.75, 1.0}}};
  evaluate::Page page("t");
  evaluate::show_heat_maps(page, t);
  const std::string text = page.text();
  std::size_t maps = 0;
  for (std::size_t at = 0; (at = text.find("<figure>", at)) != std::string::npos; ++at) ++maps;
  EXPECT_EQ(maps, 2u);
  for (const char* part : {">64<", ">96<", ">0%<", ">100%<", ">0.25<", ">0.50<", ">0.75<"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(Ask, IsRightWhereGreedyDecodingIs) {
  Sequences s = common().sequences({0, 1, 3}, 150, 300);
  s.read(common().tokenizer().encode("Document 1: Anna Abbott\nAnna Abbott lives in Rome.\n"));
  for (const std::string answer : {" Rome", " Paris", " Florence"}) {
    const evaluate::Question q{"Question: In which city does Anna Abbott live ? Answer:", answer, 1};
    const std::vector<evaluate::Answer> answers = evaluate::ask(s, common().tokenizer(), {q}, false);
    Sequences own = s.fork();
    own.read(common().tokenizer().encode_more(q.text));
    const std::vector<std::string> said = own.texts(12, ".\n");
    for (std::size_t m = 0; m < said.size(); ++m) {
      EXPECT_EQ(answers[m].exact, said[m] == answer) << said[m];
      EXPECT_LT(answers[m].log_likelihood, 0);
    }
  }
}

TEST(Results, AreMadeOnceAndTogether) {
  const TemporaryFolder folder;
  evaluate::CommonOptions o = options();
  o.cache = folder.path();
  o.threads = 1;
  std::vector<Members> jobs;
  const auto results = [&](const std::string& built, std::size_t most) {
    jobs.clear();
    const Common c(o, built);
    return c.results(
        5, 2,
        [](std::size_t contender, std::size_t unit) {
          return json{contender, unit};
        },
        [](std::size_t) { return std::size_t{1}; },
        [&](std::size_t unit, const Members& members) {
          jobs.push_back(members);
          std::vector<json> made;
          for (std::size_t m : members) made.push_back(10 * unit + m);
          return made;
        },
        most);
  };
  const std::vector<json> expected = {0, 10, 1, 11, 2, 12, 3, 13, 4, 14};
  EXPECT_EQ(results("then", 3), expected);
  EXPECT_EQ(jobs, (std::vector<Members>{{0, 1, 2}, {3, 4}, {0, 1, 2}, {3, 4}}));
  EXPECT_EQ(results("then", 3), expected);
  EXPECT_TRUE(jobs.empty());
  EXPECT_EQ(results("now", 9), expected);
  EXPECT_EQ(jobs.size(), 2u) << "another program's results are not taken";
  o.program = "mine";
  results("then", 9);
  EXPECT_EQ(jobs.size(), 2u);
  results("now", 9);
  EXPECT_TRUE(jobs.empty()) << "but those of one with the same name are";
  std::filesystem::remove(folder.path() + "/" + folder.names()[0]);
  results("now", 9);
  EXPECT_LE(jobs.size(), 1u) << "and what was lost is made again, alone";
}

TEST(FactsInAText, AreToldOnceEachAndSpreadEvenly) {
  const TemporaryFolder folder;
  std::string novel;
  for (int i = 0; i < 200; ++i) novel += "The men of the ship number " + std::to_string(i) + " went on shore. ";
  evaluate::FactsOptions o;
  o.text = folder.write("novel.txt", novel);
  o.from = 0.5;
  o.facts = 6;
  o.tokens = 500;
  const evaluate::Facts facts(common().tokenizer(), o);
  tiny_llama::Random random(1);
  const tiny_llama::Documents made = facts(random);
  const double tokens = static_cast<double>(common().tokenizer().encode(made.text).size());
  EXPECT_NEAR(tokens, 500, 30);
  EXPECT_EQ(made.questions.size(), 6u);
  std::size_t last = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string told = made.questions[i].text.substr(1) + made.questions[i].answer + ".";
    const std::size_t at = made.text.find(told);
    ASSERT_NE(at, std::string::npos) << told;
    EXPECT_EQ(made.text.find(told, at + 1), std::string::npos) << told;
    EXPECT_GE(at, last);
    EXPECT_NEAR(static_cast<double>(at) / static_cast<double>(made.text.size()), (static_cast<double>(i) + 0.5) / 6,
                0.13);
    last = at;
  }
  EXPECT_EQ(made.text.find("number 9 "), std::string::npos) << "of the second half alone";
  o.to = 0.5;
  EXPECT_REFUSED_WITH("part = 0.500000 to 0.500000", evaluate::Facts(common().tokenizer(), o));
}

}  // namespace
