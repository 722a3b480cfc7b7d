#include <gtest/gtest.h>

#include <numeric>

#include "buzz/adapters/llama.h"
#include "expect_refused_for.h"
#include "fake_llama.h"
#include "typed.h"

namespace {

using fake::Batch;
using fake::Context;

template <class P>
struct Eviction : buzz::LlamaEviction<Context> {
  Eviction(const typename P::Options& o, int max_chunk, buzz::LlamaPositions p = buzz::LlamaPositions::kept)
      : buzz::LlamaEviction<Context>(P::make(o), max_chunk, p) {}
};

/// At most 31 rows with calls of 5 tokens.
template <class Policy>
typename Policy::Options small() {
  typename Policy::Options o;
  o.sink = 2;
  o.window = 8;
  if constexpr (std::is_base_of<buzz::TopK::Options, typename Policy::Options>::value) {
    o.heavy = 10;
    o.threshold = 16;
  } else {
    o.threshold = 16;
  }
  return o;
}

template <class Policy>
void begin(Eviction<Policy>& eviction, Context& context) {
  eviction.attach(context.params);
  eviction.begin(&context);
}

/// Tokens at other positions than the next ones.
struct PlacedBatch : Batch {
  std::vector<std::int32_t> positions;
  PlacedBatch(int tokens, int first) : positions(static_cast<std::size_t>(tokens)) {
    n_tokens = tokens;
    std::iota(positions.begin(), positions.end(), first);
    pos = positions.data();
  }
  PlacedBatch(const PlacedBatch&) = delete;
};

template <class T>
std::vector<T> list(const buzz::Span<const T>& s) {
  return {s.begin(), s.end()};
}

/// What the policy alone keeps of the same attention, with rows for cells: the positions of its rows in the context.
template <class Policy>
class Reference {
 public:
  Reference(const Context& c, bool closes) : c_(c), policy_(small<Policy>(), 1, 5), closes_(closes) {}

  void decode(int tokens) {
    if (policy_.should_evict()) {
      const buzz::KeptRows& keep = policy_.select();
      buzz::compact(keep, 0, buzz::view(positions_, 1, keep.from(), 1));
      positions_.resize(static_cast<std::size_t>(keep.size()));
      if (closes_) std::iota(positions_.begin(), positions_.end(), 0);
    }
    const int old = policy_.rows();
    for (int i = 0; i < tokens; ++i) positions_.push_back(positions_.empty() ? 0 : positions_.back() + 1);
    policy_.append(tokens);
    if constexpr (Policy::needs_attention) {
      std::vector<float> p;
      for (int layer = 0; layer < c_.layers; ++layer)
        for (int h = 0; h < c_.heads; ++h)
          for (int q = old; q < policy_.rows(); ++q)
            for (int r = 0; r < policy_.rows(); ++r) p.push_back(r <= q ? fake::weight(layer, h, at(q), at(r)) : 0);
      policy_.observe(buzz::view(p, c_.layers * c_.heads, tokens, policy_.rows()));
    }
  }
  const std::vector<std::int32_t>& positions() const { return positions_; }
  const Policy& policy() const { return policy_; }

 private:
  int at(int row) const { return positions_[static_cast<std::size_t>(row)]; }
  const Context& c_;
  Policy policy_;
  bool closes_;
  std::vector<std::int32_t> positions_;
};

/// Decodes 300 tokens in calls of 1 to 5 and compares after each.
template <class Policy>
void expect_as_alone(buzz::LlamaPositions positions) {
  Context context;
  context.ubatch = 3;  // a call of 5 is two micro-batches
  Eviction<Policy> eviction(small<Policy>(), 5, positions);
  begin(eviction, context);
  Reference<Policy> reference(context, positions == buzz::LlamaPositions::closed);
  bool in_order = true;
  for (int t = 0, n = 1; t < 300; t += n, n = n % 5 + 1) {
    ASSERT_EQ(eviction.decode(Batch{n}), 0);
    reference.decode(n);
    ASSERT_EQ(list(eviction.positions()), reference.positions()) << t;
    const auto scores = list(eviction.evictor().scores(0)), expected = list(reference.policy().scores(0));
    ASSERT_EQ(scores, expected) << t;
    for (int r = 0; r < eviction.rows(); ++r) {
      const auto cell = static_cast<std::size_t>(eviction.cells()[r]);
      ASSERT_EQ(context.cells[cell].position, eviction.positions()[r]);
      in_order = in_order && (r == 0 || eviction.cells()[r] > eviction.cells()[r - 1]);
    }
    ASSERT_EQ(context.used(), eviction.rows());
  }
  EXPECT_FALSE(in_order);  // or the test would not tell cells from rows
  EXPECT_GT(eviction.report().evictions, 10);
}

TEST(LlamaEviction, KeepsWhatThePolicyKeepsOfTheAttentionOfAllLayersAndHeads) {
  expect_as_alone<typed::HeavyHitter>(buzz::LlamaPositions::kept);
  expect_as_alone<typed::Beehive>(buzz::LlamaPositions::kept);
}

TEST(LlamaEviction, SeesTheNewestQueriesApartWhereTheScoreDoes) {
  expect_as_alone<typed::Tova>(buzz::LlamaPositions::kept);
  expect_as_alone<typed::SnapKv>(buzz::LlamaPositions::kept);
}

TEST(LlamaEviction, OfAQueryOfNaNTakesWhatTheOtherHeadsGive) {
  Context context, whole;
  context.spoilt = 5;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5), spared(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  begin(spared, whole);
  for (int call = 0; call < 3; ++call) {
    ASSERT_EQ(eviction.decode(Batch{4}), 0);
    ASSERT_EQ(spared.decode(Batch{4}), 0);
  }
  for (int r = 0; r < eviction.rows(); ++r) {
    EXPECT_TRUE(std::isfinite(eviction.evictor().scores(0)[r])) << r;
    EXPECT_LE(eviction.evictor().scores(0)[r], spared.evictor().scores(0)[r]) << r;
  }
  EXPECT_LT(eviction.evictor().scores(0)[0], spared.evictor().scores(0)[0]);
}

TEST(LlamaEviction, ClosesPositionsWhereAsked) {
  expect_as_alone<typed::HeavyHitter>(buzz::LlamaPositions::closed);
  expect_as_alone<typed::Beehive>(buzz::LlamaPositions::closed);
}

TEST(LlamaEviction, RemovesMergedRangesFirstAndThenShiftsEachRunOnce) {
  Context context;
  typed::Streaming::Options o;
  o.sink = 2;
  o.window = 4;
  o.threshold = 6;
  Eviction<typed::Streaming> eviction(o, 4, buzz::LlamaPositions::closed);
  begin(eviction, context);
  eviction.pin(4, 2);
  for (int i = 0; i < 4; ++i) eviction.decode(Batch{4});
  ASSERT_TRUE(eviction.evict());
  EXPECT_EQ(context.log, (std::vector<std::string>{"rm 2 4", "rm 6 12", "add 4 6 -2", "add 12 16 -8"}));
  EXPECT_EQ(list(eviction.positions()), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(eviction.next_position(), 8);
  const buzz::LlamaReport& report = eviction.report();
  EXPECT_EQ(report.tokens, 16);
  EXPECT_EQ(report.evictions, 1);
  EXPECT_EQ(report.rows, 8);
  EXPECT_EQ(report.removals, 2);
  EXPECT_EQ(report.shifts, 2);
}

TEST(LlamaEviction, KeepsPositionsWithTheirHoles) {
  Context context;
  typed::Streaming::Options o;
  o.sink = 2;
  o.window = 4;
  o.threshold = 6;
  Eviction<typed::Streaming> eviction(o, 4);
  begin(eviction, context);
  for (int i = 0; i < 4; ++i) eviction.decode(Batch{4});
  ASSERT_TRUE(eviction.evict());
  EXPECT_EQ(context.log, std::vector<std::string>{"rm 2 12"});
  EXPECT_EQ(list(eviction.positions()), (std::vector<std::int32_t>{0, 1, 12, 13, 14, 15}));
  EXPECT_EQ(eviction.next_position(), 16);
}

TEST(LlamaEviction, GoesOnBehindANewestRowThatWasEvicted) {
  Context context;
  typed::Tova::Options o;
  o.heavy = 10;
  Eviction<typed::Tova> eviction(o, 4);
  begin(eviction, context);
  bool fell = false;
  for (int i = 0; i < 50; ++i) {
    const int next = eviction.next_position();
    eviction.evict();
    fell = fell || eviction.next_position() < next;
    ASSERT_EQ(eviction.decode(Batch{3}), 0);
  }
  EXPECT_TRUE(fell);
}

TEST(LlamaEviction, WantsNoNodesWithoutProbabilities) {
  Context context;
  Eviction<typed::Streaming> eviction(small<typed::Streaming>(), 5);
  begin(eviction, context);
  EXPECT_EQ(context.params.flash_attn_type, fake::Flash::enabled);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(eviction.decode(Batch{5}), 0);
  EXPECT_LE(eviction.rows(), eviction.evictor().capacity());
  EXPECT_EQ(context.computed, 0);
}

TEST(LlamaEviction, CompactsIntoTheFirstCellsAndGoesOnAsBefore) {
  Context compacted, other;
  Eviction<typed::HeavyHitter> a(small<typed::HeavyHitter>(), 5), b(small<typed::HeavyHitter>(), 5);
  begin(a, compacted);
  begin(b, other);
  for (int i = 0; i < 200; ++i) {
    a.decode(Batch{3});
    b.decode(Batch{3});
    if (i % 7 == 0) {
      a.compact();
      std::vector<std::int32_t> cells = list(a.cells()), first(cells.size());
      std::sort(cells.begin(), cells.end());
      std::iota(first.begin(), first.end(), 0);
      ASSERT_EQ(cells, first);
    }
    ASSERT_EQ(list(a.positions()), list(b.positions()));
    ASSERT_EQ(list(a.evictor().scores(0)), list(b.evictor().scores(0)));
  }
  EXPECT_EQ(a.report().compactions, 29);
  EXPECT_GT(a.report().evictions, 20);
}

TEST(LlamaEviction, DoesNotCompactKeysThatAreYetToBeRotated) {
  Context context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5, buzz::LlamaPositions::closed);
  begin(eviction, context);
  while (!eviction.evict()) eviction.decode(Batch{5});
  expect_refused_for("compact", [&] { eviction.compact(); });
  eviction.decode(Batch{5});
  eviction.compact();
  for (const fake::Cell& cell : context.cells) EXPECT_EQ(cell.rotated, cell.position < 0 ? 0 : cell.position);
}

TEST(LlamaEviction, IsAsBeforeAfterACallThatFailed) {
  Context context;
  context.ubatch = 2;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  eviction.decode(Batch{5});
  const auto positions = list(eviction.positions());
  const auto scores = list(eviction.evictor().scores(0));
  context.stored = 4;
  EXPECT_EQ(eviction.decode(Batch{5}), 2);  // aborted when four tokens were stored
  context.stored = -1;
  EXPECT_EQ(context.used(), 5);
  EXPECT_EQ(list(eviction.positions()), positions);
  EXPECT_EQ(list(eviction.evictor().scores(0)), scores);
  EXPECT_EQ(eviction.report().failed, 1);
  EXPECT_EQ(eviction.report().tokens, 5);
  EXPECT_EQ(eviction.decode(Batch{5}), 0);
  EXPECT_EQ(eviction.rows(), 10);
}

TEST(LlamaEviction, RefusesAGraphWithoutItsNodesAndTakesTheTokensBack) {
  for (const std::string node : {"kq_soft_max", "cache_k_l"}) {
    Context context;
    Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
    begin(eviction, context);
    eviction.decode(Batch{3});
    context.without = node;
    expect_refused_for(node, [&] { eviction.decode(Batch{5}); });
    EXPECT_EQ(context.used(), 3);
    EXPECT_EQ(eviction.rows(), 3);
    context.without = "";
    EXPECT_EQ(eviction.decode(Batch{5}), 0);
  }
}

TEST(LlamaEviction, RefusesToWorkUnattached) {
  Context context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  expect_refused_for("cb_eval", [&] { eviction.begin(&context); });
}

TEST(LlamaEviction, RefusesTokensAtOtherPositions) {
  Context context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  eviction.decode(Batch{3});
  expect_refused_for("position", [&] { eviction.decode(PlacedBatch(2, 4)); });
  EXPECT_EQ(context.used(), 3);
  EXPECT_EQ(eviction.decode(PlacedBatch(2, 3)), 0);
}

TEST(LlamaEviction, RefusesAttentionToCellsThatItDoesNotKnow) {
  Context context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  context.ghost = 9;
  expect_refused_for("cell", [&] { eviction.decode(Batch{3}); });
  EXPECT_EQ(context.used(), 0);
  context.ghost = -1;
  EXPECT_EQ(eviction.decode(Batch{3}), 0);
  EXPECT_EQ(list(eviction.cells()).size(), 3u);
}

TEST(LlamaEviction, RefusesASequenceThatSomebodyElseHasChanged) {
  Context context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  eviction.decode(Batch{5});
  fake::llama_memory_seq_rm(&context, 0, 4, 5);
  expect_refused_for("last position", [&] { eviction.decode(Batch{1}); });
}

TEST(LlamaEviction, RefusesContextsThatItCannotServe) {
  const auto expect = [](const std::string& field, auto&& spoil) {
    Context context;
    Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5, buzz::LlamaPositions::closed);
    eviction.attach(context.params);
    spoil(context);
    expect_refused_for(field, [&] { eviction.begin(&context); });
    expect_refused_for("context", [&] { eviction.decode(Batch{1}); });  // as it was: without one
  };
  expect("model", [](Context& c) { c.model.recurrent = true; });
  expect("model", [](Context& c) { c.model.hybrid = true; });
  expect("window", [](Context& c) { c.model.swa = 9; });
  expect("positions", [](Context& c) { c.can_shift = false; });
  expect("n_ctx", [](Context& c) { c.n_ctx = 30; });
  expect("n_batch", [](Context& c) { c.n_batch = 4; });
  expect("n_seq_max", [](Context& c) { c.params.n_seq_max = 2; });
  expect("tokens in the context", [](Context& c) { fake::llama_decode(&c, Batch{2}); });
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  expect_refused_for("context", [&] { eviction.begin(nullptr); });
}

TEST(LlamaEviction, RefusesParametersThatItCannotSet) {
  const auto expect = [](const std::string& field, auto&& spoil) {
    fake::Params params;
    spoil(params);
    Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
    const bool had = params.cb_eval != nullptr;
    expect_refused_for(field, [&] { eviction.attach(params); });
    EXPECT_EQ(params.flash_attn_type, fake::Flash::enabled);
    EXPECT_EQ(params.cb_eval != nullptr, had);
  };
  expect("n_seq_max", [](fake::Params& p) { p.n_seq_max = 2; });
  expect("type_v", [](fake::Params& p) { p.type_v = fake::Type::q8_0; });
  expect("cb_eval", [](fake::Params& p) { p.cb_eval = [](fake::Tensor*, bool, void*) { return true; }; });
}

TEST(LlamaEviction, RefusesCallsThatAreEmptyOrTooLong) {
  Context context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  expect_refused_for("tokens", [&] { eviction.decode(Batch{0}); });
  expect_refused_for("tokens", [&] { eviction.decode(Batch{6}); });
  expect_refused_for("calls begun", [&] { eviction.after_decode(0); });  // without before_decode()
}

TEST(LlamaEviction, SaysThatItIsFullBeforeAnythingIsDecoded) {
  Context context;
  typed::Full::Options options;
  options.capacity = 7;
  Eviction<typed::Full> eviction(options, 5);
  begin(eviction, context);
  eviction.decode(Batch{5});
  EXPECT_THROW(eviction.decode(PlacedBatch(3, 5)), buzz::CacheFull);
  EXPECT_EQ(context.used(), 5);
  EXPECT_EQ(eviction.decode(PlacedBatch(2, 5)), 0);
  EXPECT_EQ(eviction.rows(), 7);
}

TEST(LlamaEviction, RefusesToBeUsedBeforeItsBegin) {
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5);
  expect_refused_for("context", [&] { eviction.before_decode(Batch{1}); });
  expect_refused_for("context", [&] { eviction.reset(); });
  eviction.compact();  // nothing is there
  EXPECT_FALSE(eviction.evict());
}

TEST(LlamaEviction, RefusesToMoveRowsInTheMiddleOfACall) {
  Context context, other_context;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5), other(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  begin(other, other_context);
  for (int i = 0; i < 60; ++i) {
    eviction.before_decode(Batch{2});
    expect_refused_for("calls begun", [&] { eviction.evict(); });
    expect_refused_for("calls begun", [&] { eviction.compact(); });
    if (i % 7 == 0) eviction.before_decode(Batch{2});  // one that was begun and never made
    eviction.after_decode(llama_decode(&context, Batch{2}));
    other.decode(Batch{2});
    ASSERT_EQ(list(eviction.positions()), list(other.positions())) << i;
  }
  EXPECT_GT(eviction.report().evictions, 3);
}

TEST(LlamaEviction, ResetIsAsNew) {
  Context context, fresh;
  Eviction<typed::HeavyHitter> eviction(small<typed::HeavyHitter>(), 5), other(small<typed::HeavyHitter>(), 5);
  begin(eviction, context);
  begin(other, fresh);
  for (int i = 0; i < 40; ++i) eviction.decode(Batch{4});
  eviction.reset();
  for (int i = 0; i < 40; ++i) {
    eviction.decode(Batch{3});
    other.decode(Batch{3});
  }
  EXPECT_EQ(list(eviction.cells()), list(other.cells()));
  EXPECT_EQ(list(eviction.positions()), list(other.positions()));
  EXPECT_EQ(eviction.report().tokens, 120);
}

}  // namespace
