#include "trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "temporary_folder.h"

namespace {

/// A good trace; each test below spoils one line of it.
const std::vector<std::string> kGood = {"policy buzz",        "seed 7",       "heads 2",      "sink 1",
                                        "window 2",           "threshold 3",  "stride 3",     "calls 4x2 1x1",
                                        "final_length 6",     "kept 1 0 0 3", "kept 1 1 0 4", "score 0 1 2 3 4 5 6",
                                        "score 1 1 2 3 4 5 6"};

std::string text(const std::vector<std::string>& lines) {
  std::string result;
  for (const std::string& line : lines) result += line + "\n";
  return result;
}

trace::Trace parse(const std::string& file) {
  std::istringstream in(file);
  return trace::parse(in);
}

/// "LINE: reason", or "good".
std::string verdict(const std::string& file) {
  try {
    parse(file);
    return "good";
  } catch (const trace::FormatError& e) {
    return std::to_string(e.line()) + ": " + e.what();
  }
}

/// The verdict on the good trace with line `number` (from 1) replaced.
std::string with(int number, const std::string& line) {
  std::vector<std::string> lines = kGood;
  lines[static_cast<std::size_t>(number) - 1] = line;
  return verdict(text(lines));
}

std::string without(int number) {
  std::vector<std::string> lines = kGood;
  lines.erase(lines.begin() + number - 1);
  return verdict(text(lines));
}

TEST(TraceFile, ReadsAGoodOne) {
  const trace::Trace t = parse(text(kGood));
  EXPECT_EQ(t.policy, "buzz");
  EXPECT_EQ(t.seed, 7u);
  EXPECT_EQ(t.heads, 2);
  EXPECT_EQ(t.sink, 1);
  EXPECT_EQ(t.window, 2);
  EXPECT_EQ(t.threshold, 3);
  EXPECT_EQ(t.stride, 3);
  EXPECT_EQ(t.calls, (std::vector<int>{4, 4, 1}));
  EXPECT_EQ(t.final_length, 6);
  EXPECT_EQ(t.lines, std::vector<std::string>(kGood.begin() + 9, kGood.end()));
}

TEST(TraceFile, NeedsNoLastNewlineAndNoLines) {
  std::string file = text(kGood);
  file.pop_back();
  EXPECT_EQ(verdict(file), "good");
  EXPECT_EQ(verdict(text({kGood.begin(), kGood.begin() + 9})), "good");
}

TEST(TraceFile, HeaderMayStandInAnyOrder) {
  std::vector<std::string> lines = kGood;
  std::swap(lines[0], lines[8]);
  EXPECT_EQ(verdict(text(lines)), "good");
}

TEST(TraceFile, RefusesSpacing) {
  EXPECT_EQ(with(2, ""), "2: a name is missing");
  EXPECT_EQ(with(2, "seed"), "2: seed is missing");
  EXPECT_EQ(with(2, "seed "), "2: the line ends with a space");
  EXPECT_EQ(with(2, "seed 7 "), "2: the line ends with a space");
  EXPECT_EQ(with(2, "seed  7"), "2: one space belongs between two words");
  EXPECT_EQ(with(2, " seed 7"), "2: one space belongs between two words");
  EXPECT_EQ(with(2, "seed 7 8"), "2: unexpected '8'");
  EXPECT_EQ(with(2, "seed\t7"), "2: unknown name 'seed?7'");
  EXPECT_EQ(with(3, "heads 2\r"), "3: heads is '2?', allowed: 1 to 256");
}

TEST(TraceFile, RefusesNumbers) {
  EXPECT_EQ(with(2, "seed 18446744073709551615"), "good");
  EXPECT_EQ(with(2, "seed 18446744073709551616"),
            "2: seed is '18446744073709551616', allowed: 0 to 18446744073709551615");
  EXPECT_EQ(with(2, "seed -1"), "2: seed is '-1', allowed: 0 to 18446744073709551615");
  EXPECT_EQ(with(2, "seed 0x7"), "2: seed is '0x7', allowed: 0 to 18446744073709551615");
  EXPECT_EQ(with(3, "heads 0"), "3: heads is '0', allowed: 1 to 256");
  EXPECT_EQ(with(3, "heads 257"), "3: heads is '257', allowed: 1 to 256");
  EXPECT_EQ(with(4, "sink 1000001"), "4: sink is '1000001', allowed: 0 to 1000000");
  EXPECT_EQ(with(5, "window 4294967298"), "5: window is '4294967298', allowed: 0 to 1000000");
  EXPECT_EQ(with(6, "threshold 0"), "6: threshold is '0', allowed: 1 to 1000000");
  EXPECT_EQ(with(7, "stride 2"), "7: stride is '2', allowed: 3 to 1000000");
  EXPECT_EQ(with(9, "final_length 0"), "9: final_length is '0', allowed: 1 to 1000000");
  EXPECT_EQ(with(2, "seed " + std::string(100, '9')),
            "2: seed is '" + std::string(40, '9') + "...', allowed: 0 to 18446744073709551615");
}

TEST(TraceFile, RefusesCalls) {
  EXPECT_EQ(with(8, "calls"), "8: a call is missing");
  EXPECT_EQ(with(8, "calls 9"), "8: a call is '9', allowed: TOKENSxTIMES");
  EXPECT_EQ(with(8, "calls x3"), "8: a call's tokens is '', allowed: 1 to 1000000");
  EXPECT_EQ(with(8, "calls 3x"), "8: a call's times is '', allowed: 1 to 1000000");
  EXPECT_EQ(with(8, "calls 0x3"), "8: a call's tokens is '0', allowed: 1 to 1000000");
  EXPECT_EQ(with(8, "calls 3x3x3"), "8: a call's times is '3x3', allowed: 1 to 1000000");
  EXPECT_EQ(with(8, "calls 1000000x1000000"), "8: more than 1000000 tokens");
  EXPECT_EQ(with(8, "calls 4x2 1x999993"), "8: more than 1000000 tokens");
}

TEST(TraceFile, RefusesHeaders) {
  EXPECT_EQ(with(2, "sede 7"), "2: unknown name 'sede'");
  EXPECT_EQ(with(5, "sink 2"), "5: a second 'sink'");
  EXPECT_EQ(with(1, "policy bee"), "10: policy is 'bee', allowed: buzz, buzz_fast, buzz_no_max, h2o, streaming, local");
  EXPECT_EQ(with(1, "policy h2o"), "10: no 'heavy' line before this");
  EXPECT_EQ(with(2, "heavy 7"), "10: no 'seed' line before this");
  EXPECT_EQ(with(10, "heavy 7"), "11: policy buzz has no 'heavy'");
  EXPECT_EQ(with(11, "seed 7"), "11: 'seed' after the first kept or score line");
  for (int line = 1; line <= 9; ++line) {
    const std::string name = kGood[static_cast<std::size_t>(line) - 1];
    EXPECT_EQ(without(line), "9: no '" + name.substr(0, name.find(' ')) + "' line before this");
  }
  EXPECT_EQ(verdict(""), "1: no 'policy' line before this");
  EXPECT_EQ(verdict(text({"policy local", "seed 1", "heads 1", "sink 1", "window 2", "calls 1x1", "final_length 1"})),
            "8: policy local has sink 0");
}

TEST(TraceFile, RefusesKeptLines) {
  EXPECT_EQ(with(10, "kept 3 0 0"), "10: the call is '3', allowed: 0 to 2");
  EXPECT_EQ(with(10, "kept 1 2 0"), "10: the head is '2', allowed: 0 to 1");
  EXPECT_EQ(with(10, "kept 1 0 0 8"), "10: a kept token is '8', allowed: 1 to 7");
  EXPECT_EQ(with(10, "kept 1 0 3 3"), "10: a kept token is '3', allowed: 4 to 7");
  EXPECT_EQ(with(10, "kept 1 0 7 3"), "10: a kept token is '3', allowed: 8 to 7");
  EXPECT_EQ(with(11, "kept 1 0 0"), "11: kept lines are not in the order of calls and heads");
  EXPECT_EQ(with(13, "kept 2 0 0"), "13: a kept line after a score line");
  EXPECT_EQ(with(10, "kept 1"), "10: the head is missing");
}

TEST(TraceFile, RefusesScoreLines) {
  EXPECT_EQ(with(12, "score 0 1 2 3 4 5"), "12: a score is missing");
  EXPECT_EQ(with(12, "score 0 1 2 3 4 5 6 7"), "12: unexpected '7'");
  EXPECT_EQ(with(12, "score 0 1 2 3 4 5 -6"), "12: a score is '-6', allowed: 0 to 18446744073709551615");
  EXPECT_EQ(with(12, "score 2 1 2 3 4 5 6"), "12: the head is '2', allowed: 0 to 1");
  EXPECT_EQ(with(13, "score 0 1 2 3 4 5 6"), "13: the head is '0', allowed: 1 to 1");
  EXPECT_EQ(with(1, "policy buzz_fast"), "12: policy buzz_fast has no score lines");
}

// Sizes that a machine could not serve are refused by arithmetic; nothing of their size is allocated.
TEST(TraceFile, RefusesWhatWouldNotFit) {
  EXPECT_EQ(with(8, "calls 3000x1"), "10: call 0 has more than 16777216 scores");
  EXPECT_EQ(with(8, "calls 1000000x1"), "10: call 0 has more than 16777216 scores");
  std::vector<std::string> lines = kGood;
  lines[2] = "heads 256";
  lines[4] = "window 1000000";
  EXPECT_EQ(verdict(text(lines)), "10: heads times the policy's sizes is over 4194304");
}

TEST(TraceFile, EveryPrefixIsGoodOrRefused) {
  const std::string good = text(kGood);
  int refused = 0;
  for (std::size_t n = 0; n <= good.size(); ++n) refused += verdict(good.substr(0, n)) != "good";
  EXPECT_GT(refused, 100);
}

TEST(TraceFile, EveryByteMayBeSpoilt) {
  const std::string good = text(kGood);
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (char c : {'\0', '\n', ' ', '9', 'x', '\xff'}) {
      std::string bad = good;
      bad[i] = c;
      refused += verdict(bad) != "good";
    }
  }
  EXPECT_GT(refused, 700);
}

/// The formula of golden/README.md, written out once more.
float score(std::uint64_t seed, std::uint64_t c, std::uint64_t h, std::uint64_t i, std::uint64_t j) {
  const auto m = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 31;
    return x;
  };
  return static_cast<float>(m(m(m(m(m(seed) ^ c) ^ h) ^ i) ^ j) >> 50) / 16384.f;
}

TEST(TraceFile, ScoresFollowTheFormulaAndTheMask) {
  const trace::Trace t = parse(text(kGood));
  const std::vector<float> p = trace::scores(t, 5, 2, 3);  // [2, 2, 3]
  ASSERT_EQ(p.size(), 12u);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 3; ++j)
        EXPECT_EQ(p[(h * 2 + i) * 3 + j], j > 1 + i ? 0 : score(7, 5, h, i, j)) << h << i << j;
}

struct Outcome {
  int status;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int status = trace::run(arguments, out, err);
  return {status, out.str(), err.str()};
}

TEST(TraceProgram, PrintsTheLinesOfAGoldenTrace) {
  const std::string name = std::string(BUZZ_TEST_DIR) + "/golden/buzz-stride5.txt";
  std::ifstream in(name);
  const Outcome o = run({name});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, text(trace::parse(in).lines));
  EXPECT_EQ(o.err, "");
}

TEST(TraceProgram, SaysWhichLineIsMalformed) {
  std::vector<std::string> lines = kGood;
  lines[3] = "sink -1";
  const TemporaryFolder folder;
  const std::string file = folder.write("trace", text(lines));
  const Outcome o = run({file});
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.err, "buzz-trace: " + file + ":4: sink is '-1', allowed: 0 to 1000000\n");
}

TEST(TraceProgram, RefusesWhatItCannotRead) {
  const TemporaryFolder folder;
  const std::string missing = folder.path("trace");
  EXPECT_EQ(run({missing}).status, 2);
  EXPECT_EQ(run({missing}).err, "buzz-trace: " + missing + ": cannot be read, or is empty\n");
  EXPECT_EQ(run({folder.path()}).status, 2);
  EXPECT_EQ(run({folder.write("empty", "")}).status, 2);
  EXPECT_EQ(run({}).status, 2);
  EXPECT_EQ(run({}).err, "usage: buzz-trace FILE\n");
  EXPECT_EQ(run({"a", "b"}).status, 2);
}

TEST(TraceProgram, SaysWhenTheLengthIsAnother) {
  const std::vector<std::string> lines = {"policy streaming", "seed 1",    "heads 1",       "sink 1",
                                          "window 2",         "calls 4x1", "final_length 4"};
  const TemporaryFolder folder;
  const std::string file = folder.write("trace", text(lines));
  const Outcome o = run({file});
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.out, "kept 0 0 0 2 3\n");
  EXPECT_EQ(o.err, "buzz-trace: " + file + ": final_length is 4, the library leaves 3\n");
}

}  // namespace
