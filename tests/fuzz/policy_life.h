#pragma once

// A policy whose K and V somebody else owns, taken through any operations beside the model. Probabilities are quarters,
// so that float sums are exact: kept rows and scores have to agree at every step.

#include <functional>
#include <sstream>
#include <string>

#include "buzz/evictor.h"
#include "fuzz.h"
#include "model.h"

namespace fuzz {

/// Operations done so far, by all bodies.
inline std::uint64_t operations = 0;
/// Of one execution: more would find no more, and take longer.
constexpr int most_operations = 64;

/// A range of positions to pin or unpin: mostly near rows that there are, now and then one that is none.
struct Range {
  int first, count;
};
inline Range range(Bytes& in, const Model& model) {
  constexpr int most = std::numeric_limits<int>::max();
  const int count = in.in(0, 6), how = in.byte();
  switch (how % 8) {
    case 0:
      return {model.next() + in.in(0, 3), count};
    case 1:
      return {most - in.in(0, 8), count};
    case 2:
      return {in.in(-1, 2), in.one_in(2) ? most : -1};
    case 3:
      return {in.in(0, 7), count};
    default: {
      if (model.rows() == 0) return {0, count};
      return {model.head(0)[static_cast<std::size_t>(in.byte() % model.rows())].position, count};
    }
  }
}

/// Sizes that evict every few tokens.
inline Config draw(Bytes& in, Kind kind) {
  Config c;
  c.kind = kind;
  oracle::Random random(static_cast<std::uint64_t>(in.word()));
  oracle::draw_policy(random, &c);
  // A decayed sum is not exact.
  if (c.oracle.attention == oracle::AttentionKind::decayed) c.oracle.attention = oracle::AttentionKind::accumulated;
  c.max_chunk = in.in(1, 5);
  c.calls = {in.in(1, 40)};  // Full has room for so many
  c.oracle.kv_heads = in.in(1, 3);
  c.oracle.query_heads = c.oracle.kv_heads * in.in(1, 2);
  return c;
}

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// What a policy's scores are made of: attention, or the user's own.
inline bool observes(const Config& c) { return c.oracle.score == oracle::Score::attention; }
inline bool is_given(const Config& c) { return c.kind == Kind::given; }

class PolicyLife {
 public:
  PolicyLife(Bytes& in, Kind kind)
      : in_(in),
        c_(draw(in, kind)),
        max_rollback_(in.in(0, 4)),
        policy_(oracle::library_policy(c_), c_.oracle.kv_heads, c_.max_chunk, max_rollback_),
        model_(c_, max_rollback_),
        parked_{policy_.fork(), model_} {
    require(policy_.capacity() == model_.capacity(), "capacity");
  }

  void run() {
    for (int i = 0; i < most_operations && !in_.done(); ++i, ++operations) {
      step(in_.byte() % 16);
      compare();
    }
  }

 private:
  struct Parked {
    buzz::Evictor policy;
    Model model;
  };

  void step(int operation) {
    switch (operation) {
      case 6:
        return append(in_.in(-1, c_.max_chunk + 1));
      case 7:
        return observe(in_.in(0, 3));
      case 8:
        return observe_sums(in_.in(0, 3));
      case 9:
        return select();
      case 10:
        return pin();
      case 11:
        return unpin();
      case 12:
        return in_.one_in(2) ? swap() : fork();
      case 13:
        return rollback(in_.in(-1, max_rollback_ + 1));
      case 14:
        return load();
      case 15:
        return in_.one_in(4) ? reset() : ask_wrongly();
      default:
        return call(in_.in(1, c_.max_chunk));
    }
  }

  /// What a token costs an engine.
  void call(int tokens) {
    append(tokens);
    observe(std::min(tokens, policy_.rows()));
    if (model_.should_evict()) select();
  }

  void append(int tokens) {
    if (refused_rightly(!model_.can_append(tokens), "append", bytes(), [&] { policy_.append(tokens); })) return;
    model_.append(tokens);
  }

  void observe(int queries) {
    queries = std::min(queries, policy_.rows());
    if (observes(c_)) {
      std::vector<float> flat;
      const std::vector<Slice> slices = probabilities(queries, flat);
      policy_.observe(buzz::view(flat, c_.oracle.query_heads, queries, policy_.rows()));
      model_.observe(slices);
    } else {
      give();
    }
  }

  /// [query_heads, queries, rows] of quarters, a few of them not finite, with rubbish behind the causal mask.
  std::vector<Slice> probabilities(int queries, std::vector<float>& flat) {
    oracle::Random random(static_cast<std::uint64_t>(in_.word()));
    const int rows = policy_.rows(), group = c_.oracle.query_heads / c_.oracle.kv_heads;
    std::vector<Slice> slices = no_slices(queries);
    for (int q = 0; q < c_.oracle.query_heads; ++q) {
      for (int i = 0; i < queries; ++i) {
        for (int r = 0; r < rows; ++r) {
          const bool seen = r <= rows - queries + i;
          flat.push_back(seen ? quarters(random) : 99.f);
          if (seen && std::isfinite(flat.back()))
            slices[static_cast<std::size_t>(i)]
                .sums[static_cast<std::size_t>(q / group)][static_cast<std::size_t>(r)] += flat.back();
        }
      }
    }
    return slices;
  }
  static float quarters(oracle::Random& random) {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    return random.one_in(16) ? random.of({nan, inf, -inf}) : 0.25f * static_cast<float>(random.in(0, 3));
  }
  std::vector<Slice> no_slices(int count) const {
    std::vector<Slice> slices;
    const std::vector<float> none(static_cast<std::size_t>(policy_.rows()), 0.f);
    for (int i = 0; i < count; ++i)
      slices.push_back({policy_.next_position() - count + i,
                        std::vector<std::vector<float>>(static_cast<std::size_t>(c_.oracle.kv_heads), none)});
    return slices;
  }

  void observe_sums(int count) {
    count = std::min(count, policy_.rows());
    if (observes(c_)) {
      oracle::Random random(static_cast<std::uint64_t>(in_.word()));
      std::vector<Slice> slices = no_slices(count);
      std::vector<float> flat;
      for (Slice& slice : slices)
        for (std::vector<float>& sums : slice.sums)
          for (float& sum : sums) flat.push_back(sum = 0.25f * static_cast<float>(random.in(0, 9)));
      policy_.observe_sums(buzz::view(flat, count, c_.oracle.kv_heads, policy_.rows()));
      model_.observe(slices);
    } else {
      give();
    }
  }

  void give() {
    if (is_given(c_)) {
      oracle::Random random(static_cast<std::uint64_t>(in_.word()));
      std::vector<Slice> slices = no_slices(1);
      std::vector<float> flat;
      for (std::vector<float>& scores : slices[0].sums)
        for (float& score : scores) flat.push_back(score = quarters(random));
      policy_.give(buzz::view(flat, 1, c_.oracle.kv_heads, policy_.rows()));
      model_.give(slices[0]);
    }
  }

  void select() {
    const bool evicts = model_.should_evict();
    std::vector<Model::Choice> choices;
    for (int h = 0; h < c_.oracle.kv_heads; ++h) choices.push_back(evicts ? model_.choose(h) : all());
    const buzz::KeptRows& keep = policy_.select();
    require(keep.heads() == c_.oracle.kv_heads && keep.from() == model_.rows(), "KeptRows");
    for (int h = 0; h < c_.oracle.kv_heads; ++h) {
      const auto rows = keep.rows(h);
      require(std::vector<int>(rows.begin(), rows.end()) == choices[static_cast<std::size_t>(h)].kept, "kept rows");
    }
    if (evicts) model_.evict(choices);
  }
  Model::Choice all() const {
    Model::Choice choice;
    for (int i = 0; i < model_.rows(); ++i) choice.kept.push_back(i);
    return choice;
  }

  void pin() {
    const Range r = range(in_, model_);
    const bool bad = !model_.can_pin(r.first, r.count);
    if (!refused_rightly(bad, "pin", bytes(), [&] { policy_.pin(r.first, r.count); })) model_.pin(r.first, r.count);
  }
  void unpin() {
    const Range r = range(in_, model_);
    const bool bad = r.first < 0 || r.count < 0 || r.count > std::numeric_limits<int>::max() - r.first;
    if (!refused_rightly(bad, "unpin", bytes(), [&] { policy_.unpin(r.first, r.count); }))
      model_.unpin(r.first, r.count);
  }

  void fork() { parked_ = {policy_.fork(), model_}; }
  void swap() {
    std::swap(policy_, parked_.policy);
    std::swap(model_, parked_.model);
  }

  void rollback(int tokens) {
    const bool can = policy_.can_rollback(tokens);
    require(can == model_.can_rollback(tokens), "whether a rollback is possible");
    if (!refused_rightly(!can, "rollback", bytes(), [&] { policy_.rollback(tokens); })) model_.rollback(tokens);
  }

  /// Into a fork that has gone elsewhere, and on from there.
  void load() {
    const std::string saved = bytes()();
    buzz::Evictor other = policy_.fork();
    if (in_.one_in(2)) other.reset();
    std::istringstream in(saved);
    buzz::Reader reader(in);
    other.reset();
    buzz::Evictor::archive(other, reader);
    reader.finish();
    policy_ = std::move(other);
    require(bytes()() == saved, "save, load, save");
    model_.loaded();
  }

  void reset() {
    policy_.reset();
    model_.reset();
  }

  /// Shapes that are none.
  void ask_wrongly() {
    const int heads = c_.oracle.kv_heads, rows = policy_.rows();
    std::vector<float> some(static_cast<std::size_t>((rows + 1) * (heads + 1) * (rows + 1)));
    const auto wrong = [&](auto&& f) { refused_rightly(true, "a wrong shape", bytes(), f); };
    if (observes(c_)) {
      wrong([&] { policy_.observe(buzz::View<const float>(some.data(), heads, 1, rows + 1)); });
      if (heads > 1) wrong([&] { policy_.observe(buzz::View<const float>(some.data(), heads + 1, 1, rows)); });
      wrong([&] { policy_.observe_sums(buzz::View<const float>(some.data(), 1, heads + 1, rows)); });
      wrong([&] { policy_.observe_sums(buzz::View<const float>(some.data(), rows + 1, heads, rows)); });
    } else if (is_given(c_)) {
      wrong([&] { policy_.give(buzz::View<const float>(some.data(), 1, heads, rows + 1)); });
    }
    wrong([&] { policy_.positions(heads); });
    wrong([&] { policy_.scores(-1); });
  }

  void compare() const {
    require(policy_.rows() == model_.rows(), "rows");
    require(policy_.rows() <= policy_.capacity(), "rows past the bound");
    require(policy_.regions() == model_.regions(), "regions");
    require(policy_.next_position() == model_.next(), "next_position");
    require(policy_.should_evict() == model_.should_evict(), "whether it should evict");
    const bool stateful = observes(c_) || is_given(c_);
    for (int h = 0; h < c_.oracle.kv_heads; ++h) {
      const auto positions = policy_.positions(h);
      const auto scores = policy_.scores(h);
      require(positions.size == model_.rows(), "count of positions");
      require(scores.size == (stateful ? model_.rows() : 0), "count of scores");
      for (int i = 0; i < positions.size; ++i) {
        const Row& row = model_.head(h)[static_cast<std::size_t>(i)];
        require(positions[i] == row.position, "position");
        require(!stateful || same(scores[i], row.score), "score");
      }
    }
    for (int p : model_.pins()) require(policy_.pins().contains(p), "a pin");
  }

  /// All that the policy is.
  std::function<std::string()> bytes() const {
    return [this] {
      std::ostringstream out;
      buzz::Writer writer(out);
      buzz::Evictor::archive(policy_, writer);
      writer.finish();
      return out.str();
    };
  }

  Bytes& in_;
  Config c_;
  int max_rollback_;
  buzz::Evictor policy_;
  Model model_;
  Parked parked_;
};

}  // namespace fuzz
