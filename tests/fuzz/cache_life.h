#pragma once

// A BuzzCache taken through any operations beside the model. The model chooses by the very scores that the cache has,
// so positions have to agree; keys, values and outputs are held to what is true whatever attention gives.

#include <array>
#include <numeric>

#include "buzz/buzz_cache.h"
#include "policy_life.h"

namespace fuzz {

template <class T>
class CacheLife {
 public:
  using Cache = buzz::BuzzCache<T>;

  CacheLife(Bytes& in, Kind kind)
      : in_(in),
        c_(draw(in, kind)),
        shape_(draw_shape(in, &c_)),
        cache_(shape_, oracle::library_policy(c_), draw_rope(in, shape_.head_dim), draw_attention(in)),
        now_(c_, shape_.max_rollback),
        parked_(cache_.fork()),
        then_(now_) {
    require(cache_.capacity() == now_.model.capacity(), "capacity");
  }

  void run() {
    const std::size_t bytes = cache_.bytes();
    for (int i = 0; i < most_operations && !in_.done(); ++i, ++operations) {
      step(in_.byte() % 24);
      compare();
    }
    require(cache_.bytes() == bytes, "bytes() changed");
  }

 private:
  using Floats = std::vector<float>;
  /// The cache before a call: what a rollback to there has to bring back.
  struct Mark {
    int next;
    std::string state;
    bool has_scores;  // as they will be: no later call observed earlier tokens
  };
  struct Side {
    Side(const Config& c, int max_rollback) : model(c, max_rollback) {}
    Model model;
    std::vector<Mark> marks;  // since the last eviction
    int attended = 0;         // queries that observe() will add
    bool finite = true;       // all that came in so far
  };

  static buzz::Shape draw_shape(Bytes& in, Config* c) {
    buzz::Shape s = oracle::library_shape(*c);
    constexpr int dims[] = {1, 2, 4, 6, 8, 19};
    s.head_dim = dims[in.in(0, 5)];
    s.max_rollback = in.in(0, 4);
    // The sum of an observation is known where it adds up.
    const oracle::AttentionKind attention = c->oracle.attention;
    if (attention == oracle::AttentionKind::newest || attention == oracle::AttentionKind::largest)
      c->oracle.attention = oracle::AttentionKind::latest;
    return s;
  }

  buzz::Rope draw_rope(Bytes& in, int head_dim) {
    buzz::Rope r;
    const int how = in.in(0, 5);
    if (how == 0 || head_dim < 2) return r;
    r.base = 10000;
    r.dims = head_dim % 2 == 0 && in.one_in(2) ? 0 : head_dim / 2 * 2;
    if (r.dims != 0) r.first = head_dim - r.dims;
    r.pairs = in.one_in(2) ? buzz::Pairs::halves : buzz::Pairs::interleaved;
    if (how < 3) {
      if (in.one_in(4)) r.max_position = most_position_ = 50;
      return r;
    }
    r.positions = buzz::Positions::compact;
    if (how == 5) r.keys = buzz::KeyStorage::raw;
    if (how == 4 && oracle::library_policy(c_).moves_are_few(c_.max_chunk)) r.keys = buzz::KeyStorage::rotated;
    return r;
  }

  static buzz::AttentionOptions draw_attention(Bytes& in) {
    buzz::AttentionOptions a;
    a.lse_tolerance = 1e30;  // log-sum-exps are made up
    const int how = in.in(0, 3);
    if (how == 1) a.log_base = 4;
    if (how == 2) a.scale = 1;
    if (how == 3) a.threads = 3;
    return a;
  }

  void step(int operation) {
    switch (operation) {
      case 8:
        return append(in_.in(0, c_.max_chunk + 1));
      case 9:
        return void(attend(in_.in(0, c_.max_chunk + 1)));
      case 10:
        return observe();
      case 11:
        return observe_again(in_.in(0, c_.max_chunk + 1));
      case 12:
        return evict();
      case 13:
        return give();
      case 14:
        return pin();
      case 15:
        return unpin();
      case 16:
        return fork();
      case 17:
        return swap();
      case 18:
        return void(rollback(in_.in(-1, shape_.max_rollback + 1)));
      case 19:
        return speculate(in_.in(1, c_.max_chunk), in_.in(1, 4));
      case 20:
        return save_and_load();
      case 21:
        return load_damaged();
      case 22:
        return ask_wrongly();
      case 23:
        return in_.one_in(4) ? reset() : in_.one_in(8) ? poison() : call_at_once(in_.in(1, c_.max_chunk));
      default:
        return call(in_.in(1, c_.max_chunk));
    }
  }

  /// A number of a token, the same whenever it is asked for, in [-1, 1).
  static float number(int kind, int position, int i) {
    std::uint32_t x = static_cast<std::uint32_t>(position * 977 + i * 3 + kind) * 2654435761u;
    x = (x ^ (x >> 15)) * 2246822519u;
    return static_cast<float>(x >> 8) / 8388608.f - 1.f;
  }
  /// [tokens, heads, head_dim]
  Floats numbers(int kind, int first, int tokens, int heads) const {
    Floats all;
    for (int p = first; p < first + tokens; ++p)
      for (int i = 0; i < heads * shape_.head_dim; ++i) all.push_back(number(kind, p, i));
    if (!all.empty() && poison_ != 0) all[all.size() / 2] = poison_;
    return all;
  }
  buzz::View<const float> view(const Floats& x, int tokens, int heads) const {
    return {x.data(), tokens, heads, shape_.head_dim};
  }

  void append(int tokens) {
    const int first = cache_.next_position();
    const Floats k = numbers(1, first, tokens, shape_.kv_heads), v = numbers(2, first, tokens, shape_.kv_heads);
    const bool marks = shape_.max_rollback > 0;
    const Mark mark{first, marks ? state(cache_.rows(), true) : std::string(), true};
    const bool can = now_.model.can_append(tokens) && first + tokens <= most_position_;
    if (refused_rightly(!can, "append", bytes(),
                        [&] { cache_.append(view(k, tokens, shape_.kv_heads), view(v, tokens, shape_.kv_heads)); }))
      return;
    if (marks) now_.marks.push_back(mark);
    now_.model.append(tokens);
    now_.attended = 0;
  }

  Floats attend(int tokens) {
    const Floats q = numbers(0, cache_.next_position() - tokens, tokens, shape_.query_heads);
    Floats out(q.size(), 7.f);
    const bool bad = tokens > std::min(c_.max_chunk, cache_.rows());
    auto backwards = [](int count, buzz::Task task) {
      while (count-- > 0) task(count);
    };
    const auto work = [&] {
      cache_.attend(view(q, tokens, shape_.query_heads),
                    buzz::View<float>(out.data(), tokens, shape_.query_heads, shape_.head_dim), backwards);
    };
    if (refused_rightly(bad, "attend", bytes(), work) || tokens == 0) return out;
    now_.attended = tokens;
    check_outputs(out);
    return out;
  }

  /// Means of values.
  void check_outputs(const Floats& out) const {
    for (float x : out) require(!now_.finite || std::fabs(x) <= 1.001f, "an output that is no mean");
  }

  /// Each query gives one unit of attention to each of its group's heads.
  void observe() {
    const int attended = observes(c_) ? now_.attended : 0;
    std::vector<double> before;
    for (int h = 0; h < shape_.kv_heads; ++h) before.push_back(score_sum(h));
    cache_.observe();
    if (attended > 0) noted(attended);
    now_.attended = 0;
    const bool latest = c_.oracle.attention == oracle::AttentionKind::latest && attended > 0;
    for (int h = 0; h < shape_.kv_heads && observes(c_) && now_.finite; ++h) {
      const double expected = (latest ? 0 : before[static_cast<std::size_t>(h)]) + attended * shape_.group();
      require(std::fabs(score_sum(h) - expected) <= 1e-4 * (1 + expected), "the sum of an observation");
    }
  }

  void observe_again(int tokens) {
    if (observes(c_)) {
      const Floats q = numbers(0, cache_.next_position() - tokens, tokens, shape_.query_heads);
      Floats lse(static_cast<std::size_t>(tokens * shape_.query_heads), 0.25f * static_cast<float>(in_.in(0, 16)));
      if (!lse.empty() && in_.one_in(8)) lse[0] = -std::numeric_limits<float>::infinity();
      const bool bad = now_.attended > 0 || tokens > std::min(c_.max_chunk, cache_.rows());
      if (refused_rightly(bad, "observe", bytes(), [&] {
            cache_.observe(view(q, tokens, shape_.query_heads),
                           buzz::View<const float>(lse.data(), 1, tokens, shape_.query_heads));
          }))
        return;
      if (tokens == 0) return;
      noted(tokens);
      now_.attended = 0;
      for (int h = 0; h < shape_.kv_heads && now_.finite; ++h)
        require(score_sum(h) >= 0 && std::isfinite(score_sum(h)), "a score that is no sum of probabilities");
    }
  }

  /// The model learns which tokens were observed, and marks before them what rollback will not bring back.
  void noted(int tokens) {
    const int slices = std::min(tokens, shape_.max_rollback + 1), next = cache_.next_position();
    std::vector<Slice> all;
    for (int p = next - slices; p < next; ++p) all.push_back({p, {}});
    now_.model.observe(all);
    for (Mark& m : now_.marks) m.has_scores = m.has_scores && m.next <= next - tokens;
  }

  double score_sum(int h) const {
    const auto scores = cache_.scores(h);
    return std::accumulate(scores.begin(), scores.end(), 0.0);
  }

  void evict() {
    const bool evicts = now_.model.should_evict();
    if (evicts && observes(c_) && now_.attended > 0) {
      refused_rightly(true, "evict", bytes(), [&] { cache_.evict(); });
      observe();
    }
    for (int h = 0; h < shape_.kv_heads; ++h) {
      const auto scores = cache_.scores(h);
      for (int i = 0; i < scores.size; ++i) now_.model.head(h)[static_cast<std::size_t>(i)].score = scores[i];
    }
    std::vector<Model::Choice> choices;
    for (int h = 0; h < shape_.kv_heads && evicts; ++h) choices.push_back(now_.model.choose(h));
    require(cache_.evict() == evicts, "whether it evicted");
    if (!evicts) return;
    for (int h = 0; h < shape_.kv_heads && oracle::looks_at_rows(c_.kind); ++h)
      adopt(h, &choices[static_cast<std::size_t>(h)]);
    now_.model.evict(choices);
    now_.marks.clear();
    now_.attended = 0;
    for (int h = 0; h < shape_.kv_heads; ++h) {
      const auto scores = cache_.scores(h);
      for (int i = 0; i < scores.size; ++i)
        require(same(scores[i], now_.model.head(h)[static_cast<std::size_t>(i)].score), "a score after an eviction");
    }
  }

  /// What a score that looks at keys chose: as many rows as the model's choice, of those that there were.
  void adopt(int h, Model::Choice* choice) {
    const auto positions = cache_.positions(h);
    require(positions.size == static_cast<int>(choice->kept.size()), "kept rows");
    const Rows& rows = now_.model.head(h);
    const buzz::Regions r = now_.model.regions();
    choice->kept.clear();
    for (int i = 0, kept = 0; i < static_cast<int>(rows.size()); ++i) {
      const int position = rows[static_cast<std::size_t>(i)].position;
      const bool stays = kept < positions.size && positions[kept] == position;
      const bool in_middle = i >= r.sink && i < r.sink + r.middle();
      require(stays || (in_middle && now_.model.pins().count(position) == 0), "a protected row was evicted");
      if (!stays) continue;
      choice->kept.push_back(i);
      ++kept;
    }
  }

  void give() {
    if (is_given(c_)) {
      oracle::Random random(static_cast<std::uint64_t>(in_.word()));
      Floats scores;
      for (int i = 0; i < shape_.kv_heads * cache_.rows(); ++i)
        scores.push_back(0.25f * static_cast<float>(random.in(-3, 3)));
      cache_.give(buzz::View<const float>(scores.data(), 1, shape_.kv_heads, cache_.rows()));
      now_.model.observe({{cache_.next_position() - 1, {}}});
      for (Mark& m : now_.marks) m.has_scores = m.has_scores && m.next < cache_.next_position();
    }
  }

  /// A call, step by step.
  void call(int tokens) {
    append(tokens);
    poison_ = 0;
    attend(std::min(tokens, cache_.rows()));
    observe();
    evict();
  }

  /// The one call is the four steps.
  void call_at_once(int tokens) {
    const int first = cache_.next_position();
    if (!now_.model.can_append(tokens) || first + tokens > most_position_) return append(tokens);
    Cache once = cache_.fork();
    const Floats q = numbers(0, first, tokens, shape_.query_heads), k = numbers(1, first, tokens, shape_.kv_heads),
                 v = numbers(2, first, tokens, shape_.kv_heads);
    Floats out(q.size());
    once.attend(view(q, tokens, shape_.query_heads), view(k, tokens, shape_.kv_heads), view(v, tokens, shape_.kv_heads),
                buzz::View<float>(out.data(), tokens, shape_.query_heads, shape_.head_dim));
    append(tokens);
    poison_ = 0;
    const Floats steps = attend(tokens);
    observe();
    evict();
    if (!now_.finite) return;
    require(out == steps, "one call gives other outputs than its steps");
    require(bytes_of(once) == bytes()(), "one call is another cache than its steps");
  }

  void pin() {
    const Range r = range(in_, now_.model);
    const bool bad = !now_.model.can_pin(r.first, r.count);
    if (!refused_rightly(bad, "pin", bytes(), [&] { cache_.pin(r.first, r.count); })) now_.model.pin(r.first, r.count);
  }
  void unpin() {
    const Range r = range(in_, now_.model);
    const bool bad = r.first < 0 || r.count < 0 || r.count > std::numeric_limits<int>::max() - r.first;
    if (!refused_rightly(bad, "unpin", bytes(), [&] { cache_.unpin(r.first, r.count); }))
      now_.model.unpin(r.first, r.count);
  }

  void fork() {
    require(bytes_of(parked_) == parked_bytes_, "what was done to a cache reached another");
    parked_ = cache_.fork();
    then_ = now_;
    parked_bytes_ = bytes_of(parked_);
    require(parked_bytes_ == bytes()(), "a fork is another cache");
  }
  void swap() {
    require(bytes_of(parked_) == parked_bytes_, "what was done to a cache reached another");
    std::swap(cache_, parked_);
    std::swap(now_, then_);
    parked_bytes_ = bytes_of(parked_);
  }

  bool rollback(int tokens) {
    const bool can = cache_.can_rollback(tokens);
    require(can == now_.model.can_rollback(tokens), "whether a rollback is possible");
    const std::string left = can ? state(cache_.rows() - tokens, false) : std::string();
    if (refused_rightly(!can, "rollback", bytes(), [&] { cache_.rollback(tokens); })) return false;
    require(state(cache_.rows(), false) == left, "a rollback changed rows that stay");
    now_.model.rollback(tokens);
    now_.attended = std::max(0, now_.attended - tokens);
    while (!now_.marks.empty() && now_.marks.back().next > cache_.next_position()) now_.marks.pop_back();
    if (!now_.marks.empty() && now_.marks.back().next == cache_.next_position() && now_.marks.back().has_scores)
      require(state(cache_.rows(), true) == now_.marks.back().state, "a rollback that is not as before");
    return true;
  }

  /// A call that is taken back, in part, and done again.
  void speculate(int tokens, int again) {
    const int next = cache_.next_position();
    append(tokens);
    poison_ = 0;
    if (cache_.next_position() == next) return;
    const Floats first = attend(tokens);
    observe();
    const std::string before = state(cache_.rows(), true);
    again = std::min(again, tokens);
    if (rollback(again)) {
      append(again);
      const Floats second = attend(again);
      observe();
      const bool whole = again == tokens || c_.oracle.attention != oracle::AttentionKind::latest;
      if (now_.finite && whole) require(state(cache_.rows(), true) == before, "done again, it is not the same");
      if (now_.finite)
        require(std::equal(second.rbegin(), second.rend(), first.rbegin()), "done again, outputs are not the same");
    }
    evict();
  }

  /// Into a cache that has been elsewhere, and on from there, as if nothing had happened.
  void save_and_load() {
    const std::string saved = bytes()();
    Cache loaded = parked_.fork();
    std::istringstream file(saved);
    loaded.load(file);
    require(bytes_of(loaded) == saved, "save, load, save");
    now_.model.loaded();
    now_.marks.clear();
    now_.attended = 0;
    std::swap(cache_, loaded);
    if (now_.model.can_append(1) && cache_.next_position() < most_position_ && now_.finite && in_.one_in(2)) {
      decode_one(loaded);
      call(1);
      require(bytes_of(loaded) == bytes()(), "save, load, go on");
    }
  }
  void decode_one(Cache& cache) const {
    const int first = cache.next_position();
    const Floats q = numbers(0, first, 1, shape_.query_heads), k = numbers(1, first, 1, shape_.kv_heads),
                 v = numbers(2, first, 1, shape_.kv_heads);
    Floats out(q.size());
    cache.attend(view(q, 1, shape_.query_heads), view(k, 1, shape_.kv_heads), view(v, 1, shape_.kv_heads),
                 buzz::View<float>(out.data(), 1, shape_.query_heads, shape_.head_dim));
  }

  void load_damaged() {
    std::string file = bytes()();
    const std::size_t at = static_cast<std::size_t>(in_.word()) % file.size();
    if (in_.one_in(4))
      file.resize(at);
    else
      file[at] = static_cast<char>(file[at] ^ (1 << in_.in(0, 7)));
    std::istringstream in(file);
    refused_rightly(true, "a damaged file", bytes(), [&] { cache_.load(in); });
  }

  /// Shapes and numbers that are none.
  void ask_wrongly() {
    const int heads = shape_.kv_heads, dim = shape_.head_dim, rows = cache_.rows(), chunk = c_.max_chunk;
    const int size = std::max((chunk + 1) * (shape_.query_heads + 1) * (dim + 1), (heads + 1) * (rows + 1));
    Floats some(static_cast<std::size_t>(size));
    const auto v = [&](int a, int b, int c) { return buzz::View<const float>(some.data(), a, b, c); };
    const auto wrong = [&](auto&& f) { refused_rightly(true, "a wrong request", bytes(), f); };
    wrong([&] { cache_.append(v(1, heads + 1, dim), v(1, heads + 1, dim)); });
    wrong([&] { cache_.append(v(1, heads, dim), v(1, heads, dim + 1)); });
    wrong([&] { cache_.append(v(1, heads, dim), v(0, heads, dim)); });
    const buzz::View<float> out(some.data(), 1, shape_.query_heads, dim);
    wrong([&] { cache_.attend(v(1, shape_.query_heads + 1, dim), out); });
    wrong([&] { cache_.attend(v(0, shape_.query_heads, dim), v(1, heads, dim), v(1, heads, dim), out); });
    wrong([&] { cache_.attend(v(1, shape_.query_heads, dim), v(1, heads, dim), v(1, heads, dim + 1), out); });
    wrong([&] { cache_.positions(heads); });
    wrong([&] { cache_.scores(-1); });
    if (observes(c_)) {
      const int tokens = std::min(1, rows);
      wrong([&] { cache_.observe(v(tokens, shape_.query_heads, dim), v(1, tokens + 1, shape_.query_heads)); });
    }
    if (is_given(c_)) wrong([&] { cache_.give(v(1, heads + 1, rows)); });
  }

  void reset() {
    cache_.reset();
    now_ = Side(c_, shape_.max_rollback);
  }

  /// The next call has a number in it that floats cannot reckon with.
  void poison() {
    poison_ = std::array<float, 4>{std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                   -3e38f, 1e30f}[static_cast<std::size_t>(in_.in(0, 3))];
    now_.finite = false;
    call(in_.in(1, c_.max_chunk));
    poison_ = 0;
  }

  void compare() const {
    const Model& m = now_.model;
    require(cache_.rows() == m.rows(), "rows");
    require(cache_.rows() <= cache_.capacity(), "rows past the bound");
    require(cache_.regions() == m.regions(), "regions");
    require(cache_.next_position() == m.next(), "next_position");
    require(cache_.keys().shape(1) == m.rows() && cache_.values().shape(1) == m.rows(), "rows of K and V");
    for (int h = 0; h < shape_.kv_heads; ++h) {
      const auto positions = cache_.positions(h);
      require(positions.size == m.rows(), "count of positions");
      for (int i = 0; i < positions.size; ++i)
        require(positions[i] == m.head(h)[static_cast<std::size_t>(i)].position, "position");
      if (now_.finite) compare_values(h, positions);
    }
    for (int p : m.pins()) require(cache_.evictor().pins().contains(p), "a pin");
  }

  /// The first number of a row's value is its token's.
  void compare_values(int h, const buzz::Span<const std::int32_t>& positions) const {
    const auto values = cache_.values();
    const auto scales = cache_.value_scales();
    for (int i = 0; i < positions.size; ++i) {
      const float given = number(2, positions[i], h * shape_.head_dim);
      const T stored = values.row(h, i)[0];
      if constexpr (std::is_same<T, std::int8_t>::value) {
        const float scale = scales.row(0, h)[i];
        require(std::fabs(static_cast<float>(stored) * scale - given) <= 0.501f * scale, "value");
      } else {
        require(stored == T(given), "value");
      }
    }
  }

  /// The first `rows` rows as bytes, pins apart.
  std::string state(int rows, bool scores) const {
    std::string s;
    add(s, &rows, 1);
    const int hive = cache_.regions().hive;
    add(s, &hive, 1);
    for (int h = 0; h < shape_.kv_heads; ++h) {
      add(s, cache_.positions(h).data, rows);
      if (scores && cache_.scores(h).size > 0) add(s, cache_.scores(h).data, rows);
      add(s, cache_.keys().row(h, 0), rows * shape_.head_dim);
      add(s, cache_.values().row(h, 0), rows * shape_.head_dim);
      if (cache_.key_scales().empty()) continue;
      add(s, cache_.key_scales().row(0, h), rows);
      add(s, cache_.value_scales().row(0, h), rows);
    }
    return s;
  }
  template <class X>
  static void add(std::string& s, const X* from, int count) {
    s.append(reinterpret_cast<const char*>(from), sizeof(X) * static_cast<std::size_t>(count));
  }

  /// But for what waits for observe(), which is not saved.
  static std::string bytes_of(const Cache& cache) {
    std::ostringstream out;
    Cache copy = cache.fork();
    copy.discard();
    copy.save(out);
    return out.str();
  }
  auto bytes() const {
    return [this] { return bytes_of(cache_); };
  }

  Bytes& in_;
  Config c_;
  buzz::Shape shape_;
  int most_position_ = std::numeric_limits<int>::max();  // that the rope allows
  float poison_ = 0;
  Cache cache_;
  Side now_;
  Cache parked_;
  Side then_;
  std::string parked_bytes_ = bytes_of(parked_);
};

}  // namespace fuzz
