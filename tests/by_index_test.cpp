#include "buzz/select/by_index.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "typed.h"

namespace {

using typed::Full;
using typed::Streaming;
using Rows = std::vector<int>;

Streaming::Options options(int sink, int window, int threshold = 0) {
  Streaming::Options o;
  o.sink = sink;
  o.window = window;
  o.threshold = threshold;
  return o;
}

template <class P>
Rows positions(const P& p) {
  return Rows(p.positions(0).begin(), p.positions(0).end());
}

/// StreamingLLM in the plainest way.
struct Window {
  int sink, window;
  int next = 0;
  Rows first = {};
  std::deque<int> last = {};

  void append(int tokens) {
    for (int i = 0; i < tokens; ++i, ++next) {
      if (next < sink)
        first.push_back(next);
      else
        last.push_back(next);
    }
    while (static_cast<int>(last.size()) > window) last.pop_front();
  }
  Rows rows() const {
    Rows all = first;
    all.insert(all.end(), last.begin(), last.end());
    return all;
  }
};

TEST(Streaming, IsADequeForEveryPromptLength) {
  for (int sink : {0, 1, 4})
    for (int window : {0, 1, 2, 3, 8})
      for (int prompt = 1; prompt <= 2 * window + sink + 1; ++prompt) {
        Streaming policy(options(sink, window), 1, 2 * window + sink + 1);
        Window plain{sink, window};
        for (int i = 0; i < 2 * window + 3; ++i) {
          const int tokens = i == 0 ? prompt : 1;
          policy.append(tokens);
          if (policy.should_evict()) policy.select();
          plain.append(tokens);
          ASSERT_EQ(positions(policy), plain.rows()) << "prompt " << prompt << ", token " << i;
        }
      }
}

TEST(Streaming, DropsTheFirstRowAtOnePastSinkAndWindow) {
  Streaming policy(options(2, 3), 1);
  for (int i = 0; i < 5; ++i) policy.append(1);
  EXPECT_FALSE(policy.should_evict());
  policy.append(1);
  EXPECT_TRUE(policy.should_evict());
  policy.select();
  EXPECT_EQ(positions(policy), (Rows{0, 1, 3, 4, 5}));
}

TEST(Streaming, WithSinkZeroIsASlidingWindow) {
  Streaming policy(options(0, 3), 1, 7);
  policy.append(7);
  policy.select();
  EXPECT_EQ(positions(policy), (Rows{4, 5, 6}));
}

TEST(Streaming, AThresholdLetsTheMiddleFillBeforeItGoes) {
  Streaming policy(options(1, 2, 3), 1);
  std::vector<int> rows;
  for (int i = 0; i < 12; ++i) {
    policy.append(1);
    policy.select();
    rows.push_back(policy.rows());
  }
  EXPECT_EQ(rows, (std::vector<int>{1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 3, 4}));
  EXPECT_EQ(policy.capacity(), 1 + 2 + 3 + 1);
}

TEST(Streaming, KeepsTheSinkThroughChunkedPrompts) {
  for (int chunk : {1, 7, 100}) {
    Streaming policy(options(2, 5), 1, chunk);
    for (int done = 0; done < 100; done += chunk) {
      policy.append(std::min(chunk, 100 - done));
      policy.select();
    }
    EXPECT_EQ(positions(policy), (Rows{0, 1, 95, 96, 97, 98, 99})) << "chunks of " << chunk;
  }
}

TEST(Streaming, IsThePapersByDefault) {
  const Streaming::Options o;
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 160);
  EXPECT_EQ(o.threshold, 0);
}

Full full(int capacity, int max_chunk = 1) {
  Full::Options o;
  o.capacity = capacity;
  return Full(o, 1, max_chunk);
}

TEST(Full, NeverEvicts) {
  Full policy = full(50);
  for (int i = 0; i < 50; ++i) {
    policy.append(1);
    ASSERT_FALSE(policy.should_evict());
    policy.select();
    ASSERT_EQ(policy.rows(), i + 1);
  }
  EXPECT_EQ(policy.capacity(), 50);
  EXPECT_EQ(policy.positions(0)[49], 49);
}

TEST(Full, CountsSinkAndWindowAmongItsRows) {
  Full::Options o;
  o.capacity = 20;
  o.sink = 4;
  o.window = 8;
  Full policy(o, 1, 20);
  EXPECT_EQ(policy.capacity(), 20);
  policy.append(20);
  EXPECT_EQ(policy.regions(), (buzz::Regions{4, 0, 8, 8}));
  EXPECT_THROW(policy.append(1), buzz::CacheFull);
  o.capacity = 5;  // the window is what is left
  Full narrow(o, 1, 5);
  narrow.append(5);
  EXPECT_EQ(narrow.capacity(), 5);
  EXPECT_EQ(narrow.regions(), (buzz::Regions{4, 0, 0, 1}));
  EXPECT_EQ(Full::Options::for_rows(100, 8, 0.5).capacity, 100);
}

TEST(Full, RefusesWhatDoesNotFitAndStaysAsItIs) {
  Full policy = full(5, 4);
  policy.append(3);
  EXPECT_THROW(policy.append(3), buzz::CacheFull);
  EXPECT_EQ(positions(policy), (Rows{0, 1, 2}));
  EXPECT_EQ(policy.next_position(), 3);
  policy.append(2);
  EXPECT_EQ(positions(policy), (Rows{0, 1, 2, 3, 4}));
  EXPECT_THROW(policy.append(1), buzz::CacheFull);
}

}  // namespace
