#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <sstream>

#include "buzz/adapters/llama.h"
#include "buzz/policy_list.h"
#include "expect_refused_for.h"
#include "fake_llama.h"

namespace {

using fake::Batch;
using fake::Context;
using Eviction = buzz::LlamaEviction<Context>;

/// A batch of tokens of several sequences, in any order; what each token is follows from its sequence and position.
struct Mixed : Batch {
  std::vector<std::int32_t> tokens, positions, ones;
  std::vector<std::int32_t> sequences;
  std::vector<std::int32_t*> pointers;

  /// order: whose each token is. Positions follow `next`.
  Mixed(const std::vector<int>& order, const std::function<int(int)>& next, const std::vector<int>& read) {
    std::vector<int> seen(8, 0);
    for (int s : order) {
      const auto i = static_cast<std::size_t>(s);
      positions.push_back(next(s) + seen[i]);
      tokens.push_back((read[i] + seen[i]) * 7 + 3);
      ++seen[i];
      ones.push_back(1);
      sequences.push_back(s);
    }
    for (std::int32_t& s : sequences) pointers.push_back(&s);
    n_tokens = static_cast<int>(order.size());
    token = tokens.data();
    pos = positions.data();
    n_seq_id = ones.data();
    seq_id = pointers.data();
  }
  Mixed(const Mixed&) = delete;
};

template <class T>
std::vector<T> list(const buzz::Span<const T>& s) {
  return {s.begin(), s.end()};
}

/// A context and its adapter.
struct Slots {
  Context context;
  Eviction eviction;
  std::vector<int> read;  // tokens of each sequence so far

  Slots(const std::vector<buzz::Policy>& policies, bool unified,
        buzz::LlamaPositions positions = buzz::LlamaPositions::kept)
      : eviction(policies, 5, positions), read(policies.size(), 0) {
    const auto n = static_cast<std::uint32_t>(policies.size());
    context.n_ctx = 64 * static_cast<int>(n);
    context.cells.resize(static_cast<std::size_t>(context.n_ctx));
    context.n_batch = 64;
    context.params.n_seq_max = n;
    context.params.kv_unified = unified;
    context.params.type_k = context.params.type_v = fake::Type::f32;
    eviction.attach(context.params);
    eviction.begin(&context);
  }
  void decode(const std::vector<int>& order) {
    eviction.evict();
    Mixed batch(
        order, [&](int s) { return eviction.next_position(s); }, read);
    ASSERT_EQ(eviction.decode(batch), 0);
    for (int s : order) ++read[static_cast<std::size_t>(s)];
  }
  /// Are cells and positions what llama.cpp has?
  void expect_in_step() {
    for (int s = 0; s < eviction.sequences(); ++s) {
      ASSERT_EQ(context.used(s), eviction.rows(s));
      for (int r = 0; r < eviction.cells(s).size; ++r) {
        const int at = context.stream_of(s) * context.stream_cells() + eviction.cells(s)[r];
        ASSERT_TRUE(context.cells[static_cast<std::size_t>(at)].has(s));
        ASSERT_EQ(context.cells[static_cast<std::size_t>(at)].position, eviction.positions(s)[r]);
      }
    }
  }
};

std::vector<buzz::Policy> policies() {
  return {buzz::policy("key_outliers:window=8,heavy=8,threshold=14"),
          buzz::policy("heavy_hitter:window=4,heavy=6,threshold=9"), buzz::policy("tova:heavy=15"),
          buzz::policy("leverage:window=6,heavy=5,threshold=9"),
          buzz::policy("streaming:sink=2,window=20,threshold=8")};
}

/// Orders of tokens: prompts of some beside single tokens of others, shuffled.
std::vector<int> order_of(int step, int sequences) {
  std::vector<int> order;
  for (int s = 0; s < sequences; ++s) {
    const int count = (step + s) % 3 == 0 ? (step * 3 + s) % 6 : (step + s) % 2;
    order.insert(order.end(), static_cast<std::size_t>(count), s);
  }
  if (order.empty()) order.push_back(step % sequences);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(step * 31 + static_cast<int>(i) * 17) % i]);
  return order;
}

TEST(LlamaSequences, EachKeepsWhatItKeepsAlone) {
  for (bool unified : {true, false}) {
    Slots slots(policies(), unified);
    std::vector<std::unique_ptr<Slots>> alone;
    for (const buzz::Policy& p : policies()) {
      alone.push_back(std::make_unique<Slots>(std::vector<buzz::Policy>{p}, unified));
      alone.back()->context.params.flash_attn_type = fake::Flash::disabled;
    }
    for (int step = 0; step < 200; ++step) {
      const std::vector<int> order = order_of(step, 5);
      slots.decode(order);
      slots.expect_in_step();
      for (std::size_t s = 0; s < 5; ++s) {
        const auto mine = static_cast<std::size_t>(std::count(order.begin(), order.end(), static_cast<int>(s)));
        alone[s]->eviction.evict();
        if (mine > 0) alone[s]->decode(std::vector<int>(mine, 0));
        ASSERT_EQ(list(slots.eviction.positions(static_cast<int>(s))), list(alone[s]->eviction.positions()))
            << step << " " << s;
        ASSERT_EQ(list(slots.eviction.evictor(static_cast<int>(s)).scores(0)),
                  list(alone[s]->eviction.evictor().scores(0)));
        ASSERT_LE(slots.eviction.rows(static_cast<int>(s)), slots.eviction.sequence(static_cast<int>(s)).capacity());
      }
    }
    EXPECT_GT(slots.eviction.report().evictions, 50);
  }
}

TEST(LlamaSequences, ACopySharesCellsOfWhichOneMayEvict) {
  for (bool unified : {true, false}) {
    const buzz::Policy policy = buzz::policy("key_outliers:window=8,heavy=8,threshold=14");
    Slots slots({policy, policy, policy}, unified), alone({policy}, true);
    for (int i = 0; i < 4; ++i) {
      slots.decode({0, 0, 0, 0, 0});
      alone.decode({0, 0, 0, 0, 0});
    }
    slots.eviction.copy(0, 2);
    slots.read[2] = slots.read[0];
    slots.expect_in_step();
    EXPECT_EQ(slots.context.used(), unified ? 20 : 40);
    for (int i = 0; i < 20; ++i) {  // the first alone evicts
      slots.decode({0, 0, 0});
      alone.decode({0, 0, 0});
      slots.expect_in_step();
      EXPECT_EQ(slots.eviction.rows(2), 20);
    }
    EXPECT_GT(slots.eviction.report().evictions, 3);
    EXPECT_EQ(list(slots.eviction.positions(0)), list(alone.eviction.positions(0)));
    Slots other({policy}, true);
    for (int i = 0; i < 4; ++i) other.decode({0, 0, 0, 0, 0});
    for (int i = 0; i < 20; ++i) {  // then the copy goes on as if it were alone
      slots.decode({2, 2});
      other.decode({0, 0});
      slots.expect_in_step();
      ASSERT_EQ(list(slots.eviction.positions(2)), list(other.eviction.positions(0)));
    }
  }
}

TEST(LlamaSequences, ARemovedOneBeginsAnewWithItsOwnPolicy) {
  for (bool unified : {true, false}) {
    Slots slots(policies(), unified), fresh(policies(), unified);
    for (int step = 0; step < 60; ++step) slots.decode(order_of(step, 5));
    for (int s = 0; s < 5; ++s) {
      slots.eviction.remove(s);
      slots.read[static_cast<std::size_t>(s)] = 0;
      EXPECT_EQ(slots.eviction.rows(s), 0);
    }
    EXPECT_EQ(slots.context.used(), 0);
    slots.decode({0, 0, 0});
    slots.eviction.copy(0, 4);  // streaming's place, for a while
    EXPECT_EQ(slots.eviction.sequence(4).policy().name, "key_outliers");
    slots.eviction.remove(4);
    slots.eviction.remove(0);
    EXPECT_EQ(slots.eviction.sequence(4).policy().name, "streaming");
    slots.read[0] = 0;
    for (int step = 0; step < 60; ++step) {
      slots.decode(order_of(step, 5));
      fresh.decode(order_of(step, 5));
      slots.expect_in_step();
      for (int s = 0; s < 5; ++s) ASSERT_EQ(list(slots.eviction.positions(s)), list(fresh.eviction.positions(s)));
    }
  }
}

TEST(LlamaSequences, CellsThatOthersTookAreAnErrorToActOn) {
  const buzz::Policy policy = buzz::policy("key_outliers:window=8,heavy=8,threshold=14");
  Slots slots({policy}, true);
  slots.decode({0, 0, 0});
  for (int i = 0; i < 60; ++i)
    slots.context.cells[static_cast<std::size_t>(i + 4)] = {i, i, 0, 2};  // another sequence's
  const auto before = list(slots.eviction.positions());
  expect_refused_for<buzz::CacheFull>("cells", [&] { slots.eviction.decode(Batch{5}); });
  EXPECT_EQ(list(slots.eviction.positions()), before);
  EXPECT_EQ(slots.context.used(0), 3);
  EXPECT_EQ(slots.eviction.report().failed, 1);
  for (fake::Cell& c : slots.context.cells)
    if (c.sequences == 2) c = {};
  EXPECT_EQ(slots.eviction.decode(Batch{5}), 0);  // the caller has made room
  slots.expect_in_step();
}

TEST(LlamaSequences, AContextShiftBySomebodyElseIsNoticed) {
  const buzz::Policy policy = buzz::policy("key_outliers:window=8,heavy=8,threshold=14");
  Slots slots({policy, policy}, true);
  slots.decode({0, 0, 0, 0, 1, 1});
  fake::llama_memory_seq_rm(&slots.context, 0, 1, 3);
  fake::llama_memory_seq_add(&slots.context, 0, 3, -1, -2);
  slots.decode({1});  // which has not been touched
  expect_refused_for("last position", [&] { slots.eviction.decode(Mixed({0}, [](int) { return 4; }, {4, 3})); });
}

TEST(LlamaSequences, RefusesWhatCannotBe) {
  const buzz::Policy small = buzz::policy("key_outliers:window=8,heavy=8,threshold=14");
  const buzz::Policy large = buzz::policy("key_outliers:window=8,heavy=8,threshold=20");
  Slots slots({small, large}, true);
  slots.decode({0, 0, 1});
  std::int32_t two = 2;
  Batch batch{1};
  batch.n_seq_id = &two;
  expect_refused_for("n_seq_id", [&] { slots.eviction.decode(batch); });
  expect_refused_for("seq_id", [&] { slots.eviction.decode(Mixed({2}, [](int) { return 0; }, {0, 0, 0})); });
  expect_refused_for("tokens", [&] {
    slots.eviction.decode(Mixed({1, 1, 1, 1, 1, 1}, [](int) { return 1; }, {0, 1}));
  });
  expect_refused_for("rows of the sequence", [&] { slots.eviction.copy(0, 1); });
  slots.eviction.remove(0);
  expect_refused_for("capacity", [&] { slots.eviction.copy(1, 0); });
  for (int s : {-1, 2}) {
    expect_refused_for("sequence", [&] { slots.eviction.copy(s, 0); });
    expect_refused_for("sequence", [&] { slots.eviction.copy(0, s); });
    expect_refused_for("sequence", [&] { slots.eviction.remove(s); });
    expect_refused_for("sequence", [&] { slots.eviction.rows(s); });
    expect_refused_for("sequence", [&] { slots.eviction.pin(0, 1, s); });
  }
  expect_refused_for("sequences", [&] { slots.eviction.compact(); });
  expect_refused_for("sequences", [&] { Eviction(std::vector<buzz::Policy>(), 5); });
  slots.decode({1, 0});
  slots.expect_in_step();
  Slots closed({small, small}, true, buzz::LlamaPositions::closed);
  closed.decode({0});
  expect_refused_for("positions", [&] { closed.eviction.copy(0, 1); });
}

TEST(LlamaSequences, NeedsRoomForAllOrForEach) {
  const buzz::Policy policy = buzz::policy("key_outliers:window=8,heavy=8,threshold=14");  // of 31 rows
  for (bool unified : {true, false}) {
    Context context;
    context.n_ctx = 62;
    context.cells.resize(62);
    context.params.n_seq_max = 2;
    context.params.kv_unified = unified;
    Eviction eviction({policy, policy}, 5);
    eviction.attach(context.params);
    EXPECT_EQ(eviction.capacity(), 2 * eviction.sequence(0).capacity());
    context.n_ctx = 2 * eviction.sequence(0).capacity() - 2;
    expect_refused_for(unified ? "n_ctx" : "n_ctx of a sequence", [&] { eviction.begin(&context); });
    context.n_ctx += 2;
    eviction.begin(&context);
  }
}

TEST(LlamaSequences, ASavedOneGoesOnAsIfNothingHadBeen) {
  for (const buzz::Policy& policy : policies())
    for (buzz::LlamaPositions positions : {buzz::LlamaPositions::kept, buzz::LlamaPositions::closed}) {
      Slots slots({policy}, true, positions), loaded({policy}, true, positions);
      for (int i = 0; i < 23; ++i) slots.decode({0, 0, 0, 0});
      std::stringstream file;
      slots.eviction.save(file);
      loaded.decode({0});  // which is forgotten
      loaded.eviction.load(file);
      loaded.read = slots.read;
      loaded.expect_in_step();
      for (int i = 0; i < 40; ++i) {
        slots.decode({0, 0, 0});
        loaded.decode({0, 0, 0});
        loaded.expect_in_step();
        ASSERT_EQ(list(loaded.eviction.positions()), list(slots.eviction.positions()));
        ASSERT_EQ(list(loaded.eviction.evictor().scores(0)), list(slots.eviction.evictor().scores(0)));
      }
    }
}

TEST(LlamaSequences, ADamagedOrStrangeFileChangesNothing) {
  const std::vector<buzz::Policy> all = policies();
  Slots slots({all[0]}, true), empty({all[0]}, true), other({all[1]}, true), two({all[0], all[0]}, true);
  std::stringstream none;
  empty.eviction.save(none);
  slots.decode({0, 0, 0, 0});
  std::stringstream file;
  slots.eviction.save(file);
  const std::string bytes = file.str();
  const auto expect_kept = [&](const std::string& text) {
    std::istringstream in(text);
    EXPECT_THROW(slots.eviction.load(in), buzz::FileError);
    slots.expect_in_step();
    EXPECT_EQ(slots.eviction.rows(), 4);
  };
  for (std::size_t size = 0; size < bytes.size(); size += 29) expect_kept(bytes.substr(0, size));
  for (std::size_t at = 0; at < bytes.size(); at += 13) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 64);
    expect_kept(damaged);
  }
  std::istringstream in(bytes), again(bytes);
  EXPECT_THROW(other.eviction.load(in), buzz::FileError);
  expect_refused_for("sequences", [&] { two.eviction.load(again); });
  slots.eviction.load(none);
  EXPECT_EQ(slots.eviction.rows(), 0);
  EXPECT_EQ(slots.context.used(), 0);
  slots.read = {0};
  slots.decode({0, 0});
}

}  // namespace
