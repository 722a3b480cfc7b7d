// The library keeps what the authors' code keeps: golden/README.md.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "trace.h"

namespace {

const char* const kManifest[] = {
    "buzz-chunked-prefill",
    "buzz-decode",
    "buzz-long-prompt",
    "buzz-no-sink",
    "buzz-paper",
    "buzz-prompt-exactly-full",
    "buzz-prompt-one-over",
    "buzz-stride-over-history",
    "buzz-stride5",
    "buzz-window-one",
    "buzz_fast-chunked-prefill",
    "buzz_fast-decode",
    "buzz_fast-long-prompt",
    "buzz_no_max-chunked-prefill",
    "buzz_no_max-decode",
    "buzz_no_max-long-prompt",
    "buzz_no_max-no-sink",
    "buzz_no_max-paper",
    "buzz_no_max-prompt-exactly-full",
    "buzz_no_max-prompt-one-over",
    "buzz_no_max-stride-over-history",
    "buzz_no_max-stride5",
    "buzz_no_max-window-one",
    "h2o-decode-31",
    "h2o-decode-32",
    "h2o-prompt-31",
    "h2o-prompt-32",
    "h2o-wide-31",
    "h2o-wide-32",
    "local-decode",
    "streaming-decode",
    "streaming-prompt",
};

std::string folder() { return std::string(BUZZ_TEST_DIR) + "/golden"; }

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, KeepsWhatTheAuthorsKeep) {
  std::ifstream in(folder() + "/" + GetParam() + ".txt", std::ios::binary);
  ASSERT_TRUE(in) << "the trace is missing";
  const trace::Trace t = trace::parse(in);
  ASSERT_FALSE(t.lines.empty()) << "the trace says nothing";
  const trace::Replay r = trace::replay(t);
  ASSERT_EQ(r.lines.size(), t.lines.size());
  for (std::size_t i = 0; i < t.lines.size(); ++i) EXPECT_EQ(r.lines[i], t.lines[i]);
  EXPECT_EQ(r.final_length, t.final_length);
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Traces, Golden, testing::ValuesIn(kManifest), test_name);

TEST(GoldenFolder, HoldsTheManifestAndNothingElse) {
  std::set<std::string> expected = {"README.md"}, found;
  for (const char* name : kManifest) expected.insert(std::string(name) + ".txt");
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    found.insert(entry.path().filename().string());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(expected.size(), 32u + 1u);
}

/// A trace with all that a replay could get wrong: each policy is there, and both kinds of line.
TEST(GoldenFolder, CoversEveryPolicy) {
  std::set<std::string> policies;
  std::size_t kept = 0, score = 0;
  for (const char* name : kManifest) {
    std::ifstream in(folder() + "/" + name + ".txt", std::ios::binary);
    const trace::Trace t = trace::parse(in);
    policies.insert(t.policy);
    for (const std::string& line : t.lines) ++(line[0] == 'k' ? kept : score);
  }
  EXPECT_EQ(policies, (std::set<std::string>{"buzz", "buzz_fast", "buzz_no_max", "h2o", "local", "streaming"}));
  EXPECT_GT(kept, 1000u);
  EXPECT_EQ(score, 34u);
}

}  // namespace
