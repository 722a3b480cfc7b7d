// Extreme values of every option: each is refused by its name, or is honoured. What plainly takes more memory than
// there is may end in std::bad_alloc, which here comes at 64 MiB, so that no machine has to find them.

#include "extremes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "buzz.h"
#include "buzz/rope_scaling.h"
#include "typed.h"

namespace {
std::size_t most_at_once = std::size_t{1} << 26;
}

// NOLINTBEGIN(cppcoreguidelines-no-malloc): operator new has to come from somewhere
BUZZ_NOINLINE void* operator new(std::size_t bytes) {
  if (bytes > most_at_once) throw std::bad_alloc();
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
BUZZ_NOINLINE void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > most_at_once ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
BUZZ_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
BUZZ_NOINLINE void operator delete(void* p, std::size_t) noexcept { std::free(p); }
// NOLINTEND(cppcoreguidelines-no-malloc)

namespace {

using namespace extremes;

/// f() works, or is refused by a name that has `field` in it; sizes may need more memory than there is.
void tolerates(Call f, const std::string& field, const std::string& value, bool size) {
  const std::string became = fate(f);
  const bool fits = became == "works" || became.find(field) != std::string::npos || (size && became == "memory");
  EXPECT_TRUE(fits) << field << " = " << value << ": " << became;
}

/// Some calls: four tokens each, or as many as may come.
template <class T>
void use(buzz::BuzzCache<T>& cache) {
  const buzz::Shape& s = cache.shape();
  for (int call = 0; call < 12; ++call) {
    const int tokens = std::min(4, s.max_chunk);
    const auto numbers = [&](int heads) {
      std::vector<float> x(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads) *
                           static_cast<std::size_t>(s.head_dim));
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(call)) % 5);
      return x;
    };
    const std::vector<float> q = numbers(s.query_heads), k = numbers(s.kv_heads), v = numbers(s.kv_heads);
    std::vector<float> out(q.size());
    const auto view = [&](const std::vector<float>& x, int heads) {
      return buzz::View<const float>(x.data(), tokens, heads, s.head_dim);
    };
    cache.attend(view(q, s.query_heads), view(k, s.kv_heads), view(v, s.kv_heads),
                 buzz::View<float>(out.data(), tokens, s.query_heads, s.head_dim));
  }
  // What is made can be saved, and what is saved can be loaded.
  std::stringstream file;
  cache.save(file);
  cache.load(file);
}

buzz::Shape shape() {
  buzz::Shape s;
  s.query_heads = 4;
  s.kv_heads = 2;
  s.head_dim = 4;
  s.max_chunk = 4;
  return s;
}

/// A cache of the options is made and used; where the cache is full, it has been used.
template <class P>
void try_options(const typename P::Options& o, int max_rollback = 0) {
  buzz::Shape s = shape();
  s.max_rollback = max_rollback;
  typed::Cache<float, P> cache(s, o);
  try {
    use(cache);
  } catch (const buzz::CacheFull&) {
    EXPECT_EQ(s.max_rollback, max_rollback);
  }
}

template <class P>
class Options : public testing::Test {
 protected:
  using O = typename P::Options;

  void whole(const char* field, int O::*option) {
    for (const int value : kInts) one(field, std::to_string(value), true, [&](O& o) { o.*option = value; });
  }
  void real(const char* field, float O::*option) {
    for (const double value : kReals) {
      const float x = static_cast<float>(std::min(value, 3e38));
      one(field, std::to_string(value), false, [&](O& o) {
        o.*option = std::isnan(value) ? static_cast<float>(kNan) : std::isinf(value) ? static_cast<float>(value) : x;
      });
    }
    one(field, "denormal", false, [&](O& o) { o.*option = kTiny; });
  }
  template <class E, class Base>
  void name(const char* field, E Base::*option) {
    for (const int value : {-1, 99, 1 << 30}) {
      O o = O::for_rows(24, 4);
      o.*option = static_cast<E>(value);
      EXPECT_EQ(fate([&] { try_options<P>(o); }), field) << value;
    }
  }

 private:
  template <class F>
  void one(const std::string& field, const std::string& value, bool size, F&& set) {
    O o = O::for_rows(24, 4);
    set(o);
    const std::string became = fate([&] { try_options<P>(o); });
    const bool together =
        became == "sink + window + threshold + max_chunk" || became == "queries * kv_heads * capacity";
    EXPECT_TRUE(became == "works" || became == field || (size && (became == "memory" || together)) ||
                also(field, became))
        << field << " = " << value << ": " << became;
  }
  /// Options that are checked against each other name the other one.
  static bool also(const std::string& field, const std::string& became) {
    if (field == "heavy" || field == "keep" || field == "chunk" || field == "stride")
      return became == "threshold" || became == "chunk" || became == "stride" || became == "keep";
    return field == "capacity" && became == "rows";  // of a call longer than that
  }
};

using Policies =
    testing::Types<typed::Beehive, typed::Strided, typed::DiverseBeehive, typed::KeyValueBeehive, typed::HeavyHitter,
                   typed::KeyDiff, typed::KeyOutliers, typed::Leverage, typed::LagKv, typed::ExpectedAttention,
                   typed::TriAttention, typed::CapKv, typed::Tova, typed::SnapKv, typed::Streaming, typed::Full,
                   typed::Policy<typed::Sum<typed::AttentionSum, typed::ValueNorm>, buzz::TopK>,
                   typed::Policy<typed::UserScores, buzz::TopK>>;
TYPED_TEST_SUITE(Options, Policies);

TYPED_TEST(Options, AreRefusedByNameOrHonoured) {
  using Given = typename TypeParam::Options;
  this->whole("sink", &Given::sink);
  this->whole("window", &Given::window);
  if constexpr (std::is_base_of<buzz::Segments::Options, Given>::value) {
    this->whole("threshold", &Given::threshold);
    this->whole("stride", &Given::stride);
    this->whole("keep", &Given::keep);
    this->whole("chunk", &Given::chunk);
    this->whole("hive_stride", &Given::hive_stride);
    this->name("hive", &Given::hive);
    this->name("passes", &Given::passes);
  }
  if constexpr (std::is_base_of<buzz::TopK::Options, Given>::value) {
    this->whole("heavy", &Given::heavy);
    this->whole("threshold", &Given::threshold);
  }
  if constexpr (std::is_base_of<buzz::KeepNone::Options, Given>::value) this->whole("threshold", &Given::threshold);
  if constexpr (std::is_base_of<buzz::KeepAll::Options, Given>::value) this->whole("capacity", &Given::capacity);
  if constexpr (std::is_base_of<buzz::AttentionSumOptions, Given>::value) {
    this->real("decay", &Given::decay);
    this->name("attention", &Given::attention);
  }
  if constexpr (std::is_base_of<buzz::DiversityOptions, Given>::value) {
    this->name("unlike", &Given::unlike);
    this->name("mean_over", &Given::mean_over);
  }
  if constexpr (std::is_base_of<buzz::FadingOptions, Given>::value) this->real("fade", &Given::fade);
  if constexpr (std::is_base_of<buzz::RidgeOptions, Given>::value) {
    this->name("of", &Given::of);
    this->real("ridge", &Given::ridge);
  }
  if constexpr (std::is_base_of<buzz::LagOptions, Given>::value) this->whole("lag", &Given::lag);
  if constexpr (std::is_base_of<buzz::ExpectedOptions, Given>::value) {
    this->whole("horizon", &Given::horizon);
    this->name("times", &Given::times);
  }
  if constexpr (std::is_base_of<buzz::CapOptions, Given>::value) {
    this->whole("horizon", &Given::horizon);
    this->real("sharpness", &Given::sharpness);
  }
  if constexpr (std::is_base_of<buzz::TriOptions, Given>::value) this->whole("reach", &Given::reach);
  if constexpr (std::is_base_of<buzz::RecentAttentionOptions, Given>::value) {
    this->whole("queries", &Given::queries);
    this->whole("kernel", &Given::kernel);
    this->name("pooling", &Given::pooling);
  }
}

TEST(Extremes, OfWeights) {
  using P = typed::KeyValueBeehive;
  for (const double value : kReals) {
    P::Options o = P::Options::for_rows(24, 4);
    o.weight = std::isfinite(value) ? static_cast<float>(std::min(value, 3e38)) : static_cast<float>(value);
    tolerates([&] { try_options<P>(o); }, "weight", std::to_string(value), false);
    EXPECT_TRUE(std::isfinite(value) || fate([&] { try_options<P>(o); }) == "weight");
  }
}

TEST(Extremes, OfSnapKvsQueries) {
  for (const int queries : {1 << 15, 1 << 30, std::numeric_limits<int>::max()}) {
    typed::SnapKv::Options o;
    o.queries = queries;
    EXPECT_EQ(fate([&] { try_options<typed::SnapKv>(o); }), "queries") << queries;
    EXPECT_EQ(fate([&] { typed::SnapKv(o, 1); }), "queries") << queries;
  }
}

TEST(Extremes, OfShapes) {
  int buzz::Shape::*const fields[] = {&buzz::Shape::query_heads, &buzz::Shape::kv_heads,     &buzz::Shape::head_dim,
                                      &buzz::Shape::max_chunk,   &buzz::Shape::max_rollback, &buzz::Shape::value_dim};
  const char* const names[] = {"query_heads", "kv_heads", "head_dim", "max_chunk", "max_rollback", "value_dim"};
  for (int i = 0; i < 6; ++i)
    for (const int value : kInts) {
      buzz::Shape s = shape();
      s.*fields[i] = value;
      if (i == 1) s.query_heads = value;  // a group of one, so that it is not the group that is refused
      const auto use_all = [&] {
        typed::Cache<std::int8_t> cache(s, typed::Options(), buzz::Rope());
        if (s.query_heads <= 64 && s.head_dim <= 64 && s.value_dim == 0) use(cache);
      };
      const std::string became = fate(use_all);
      EXPECT_TRUE(became == "works" || became == "memory" || became.find(names[i]) != std::string::npos ||
                  (i == 1 && became == "query_heads"))
          << names[i] << " = " << value << ": " << became;
    }
}

TEST(Extremes, OfProductsOfSizes) {
  // Each of the sizes is allowed, all of them together are not.
  most_at_once = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(fate([&] { buzz::Rows<float>(1 << 16, 1 << 30, 1 << 16); }), "kv_heads * capacity * head_dim");
  EXPECT_EQ(fate([&] { buzz::RowScores<double>(1 << 30, 1 << 30); }), "kv_heads * capacity");
  EXPECT_EQ(fate([&] { buzz::UndoLog(1 << 20, 1 << 16, 1 << 30, 8); }), "max_rollback * kv_heads * capacity");
  most_at_once = std::size_t{1} << 26;
  EXPECT_EQ(buzz::count_of<float>("sizes", {1 << 30, 1 << 25}), std::size_t{1} << 55);
  EXPECT_EQ(fate([] { buzz::count_of<float>("sizes", {1 << 30, 1 << 30}); }), "sizes");
  EXPECT_EQ(buzz::count_of<float>("sizes", {1 << 30, 1 << 30, 1 << 30, 0}), 0u);
}

TEST(Extremes, OfRopes) {
  const auto with = [](CallWith<buzz::Rope&> set) {
    buzz::Rope rope;
    set(rope);
    typed::Cache<float> cache(shape(), typed::Options::for_rows(24, 4), rope);
    use(cache);
  };
  for (const double x : kReals)
    for (const bool table : {false, true}) {
      const auto frequencies = [&](buzz::Rope& r) {
        if (table) r.frequencies = {1, 0.01};
      };
      const std::string text = std::to_string(x) + (table ? " with frequencies" : "");
      const auto base = [&](buzz::Rope& r) { frequencies(r), r.base = x; };
      tolerates([&] { with(base); }, "rope.base", text, false);
      EXPECT_TRUE(std::isfinite(x) || fate([&] { with(base); }) == "rope.base") << text;
      const auto factor = [&](buzz::Rope& r) { frequencies(r), r.attention_factor = x; };
      tolerates([&] { with(factor); }, "rope.attention_factor", text, false);
      EXPECT_TRUE(std::isfinite(x) || fate([&] { with(factor); }) == "rope.attention_factor") << text;
      tolerates([&] { with([&](buzz::Rope& r) { r.frequencies = {x, 1}; }); }, "rope.frequencies", text, false);
    }
  for (const int x : kInts) {
    tolerates([&] { with([&](buzz::Rope& r) { r.base = 10000, r.dims = x; }); }, "rope.dims", std::to_string(x), false);
    tolerates([&] { with([&](buzz::Rope& r) { r.base = 10000, r.dims = 2, r.first = x; }); }, "rope.first",
              std::to_string(x), false);
    tolerates([&] { with([&](buzz::Rope& r) { r.base = 10000, r.max_position = x; }); }, "position", std::to_string(x),
              false);
  }
  for (const int x : {-1, 99, 1 << 30}) {
    EXPECT_EQ(fate([&] { with([&](buzz::Rope& r) { r.pairs = static_cast<buzz::Pairs>(x); }); }), "rope.pairs");
    EXPECT_EQ(fate([&] { with([&](buzz::Rope& r) { r.positions = static_cast<buzz::Positions>(x); }); }),
              "rope.positions");
    EXPECT_EQ(fate([&] { with([&](buzz::Rope& r) { r.keys = static_cast<buzz::KeyStorage>(x); }); }), "rope.keys");
  }
}

TEST(Extremes, OfAttention) {
  const auto with = [](CallWith<buzz::AttentionOptions&> set) {
    buzz::AttentionOptions a;
    set(a);
    typed::Cache<float> cache(shape(), typed::Options::for_rows(24, 4), {}, a);
    use(cache);
  };
  for (const double x : kReals) {
    tolerates([&] { with([&](buzz::AttentionOptions& a) { a.scale = x; }); }, "scale", std::to_string(x), false);
    tolerates([&] { with([&](buzz::AttentionOptions& a) { a.log_base = x; }); }, "log_base", std::to_string(x), false);
    tolerates([&] { with([&](buzz::AttentionOptions& a) { a.lse_tolerance = x; }); }, "lse_tolerance",
              std::to_string(x), false);
  }
  for (const int x : kInts)
    tolerates([&] { with([&](buzz::AttentionOptions& a) { a.threads = x; }); }, "threads", std::to_string(x), true);
}

TEST(Extremes, OfScaledRopes) {
  namespace scaling = buzz::rope_scaling;
  const buzz::Rope rope{10000.0};
  for (const double x : kReals) {
    const auto made = [&](const char* field, const std::function<buzz::Rope()>& make) {
      tolerates([&] { buzz::Rotation(make(), 8); }, field, std::to_string(x), false);
    };
    made("", [&] { return scaling::linear(rope, 8, x); });
    made("", [&] { return scaling::ntk(rope, 8, x); });
    made("", [&] { return scaling::llama3(rope, 8, x, 1, 4, 64); });
    made("low", [&] { return scaling::llama3(rope, 8, 2, x, 4, 64); });
    made("", [&] { return scaling::llama3(rope, 8, 2, 1, x, 64); });
    made("original_context", [&] { return scaling::llama3(rope, 8, 2, 1, 4, x); });
    for (const bool truncate : {false, true}) {
      made("", [&] { return scaling::yarn(rope, 8, x, 64, 32, 1, 0, truncate); });
      made("original_context", [&] { return scaling::yarn(rope, 8, 2, x, 32, 1, 0, truncate); });
      made("beta_", [&] { return scaling::yarn(rope, 8, 2, 64, x, 1, 0, truncate); });
      made("beta_slow", [&] { return scaling::yarn(rope, 8, 2, 64, 32, x, 0, truncate); });
      made("attention_factor", [&] { return scaling::yarn(rope, 8, 2, 64, 32, 1, x, truncate); });
    }
  }
}

TEST(Extremes, OfBudgets) {
  constexpr long long most = std::numeric_limits<long long>::max();
  for (const long long total : {std::numeric_limits<long long>::min(), -1LL, 0LL, 1LL << 31, 1LL << 62, most - 1, most})
    for (const std::vector<double>& weights :
         {std::vector<double>{1}, {1, 1, 1}, {0.1, 0.2, 0.7}, {5e-324, 5e-324}, {1e308, 1}, {5e-324, 1e300, 3}})
      for (const long long minimum : {std::numeric_limits<long long>::min(), -1LL, 0LL, 1LL, 1LL << 61, most}) {
        std::vector<long long> parts;
        const std::string became = fate([&] { parts = buzz::split_budget(total, weights, minimum); });
        if (became == "works") {
          unsigned long long sum = 0;
          for (const long long part : parts) {
            EXPECT_GE(part, minimum);
            sum += static_cast<unsigned long long>(part);
          }
          EXPECT_EQ(sum, static_cast<unsigned long long>(total)) << weights.size() << " layers";
        } else {
          EXPECT_TRUE(became == "total" || became == "minimum") << became;
        }
      }
  // Exactly: doubles would be off by hundreds.
  EXPECT_EQ(buzz::split_budget(most, {1, 1}, 0), (std::vector<long long>{most / 2 + 1, most / 2}));
  EXPECT_EQ(buzz::split_budget(most, {1, 2}, 0), (std::vector<long long>{most / 3, most / 3 * 2 + 1}));
  EXPECT_EQ(buzz::split_budget(most, {1}, 0), (std::vector<long long>{most}));
  EXPECT_EQ(buzz::split_budget(most, {5e-324, 5e-324}, 0), (std::vector<long long>{most / 2 + 1, most / 2}));
}

/// What is refused leaves scores that go on as if it had not been asked.
template <class P>
void refuses_sums(buzz::AttentionKind kind) {
  typename P::Options o = P::Options::for_rows(24, 1);
  if constexpr (std::is_base_of<buzz::AttentionSumOptions, typename P::Options>::value) o.attention = kind;
  P asked(o, 1, 4), spared(o, 1, 4);
  const auto feed = [](P& p) {
    p.append(4);
    const std::vector<float> sums(static_cast<std::size_t>(4 * p.rows()), 0.25f);
    p.observe_sums(buzz::View<const float>(sums.data(), 4, 1, p.rows()));
  };
  const auto bytes = [](P& p) {
    std::stringstream file;
    buzz::Writer writer(file);
    P::archive(static_cast<const P&>(p), writer);
    return file.str();
  };
  feed(asked), feed(spared);
  for (const double bad : {kNan, kInf, -kInf, -1.0, 3e38})
    for (const std::size_t at : {std::size_t{0}, std::size_t{7}, std::size_t{15}}) {
      std::vector<float> sums(16, 0.25f);
      sums[at] = static_cast<float>(bad);
      EXPECT_EQ(fate([&] { asked.observe_sums(buzz::View<const float>(sums.data(), 4, 1, 4)); }), "sums") << bad;
      if (!std::isfinite(bad)) continue;
      sums[0] = static_cast<float>(bad);  // which every query sees
      EXPECT_EQ(fate([&] { asked.observe(buzz::View<const float>(sums.data(), 1, 4, 4)); }), "probabilities") << bad;
    }
  EXPECT_EQ(bytes(asked), bytes(spared));
  for (int i = 0; i < 9; ++i) {
    feed(asked), feed(spared);
    asked.select(), spared.select();
  }
  EXPECT_EQ(bytes(asked), bytes(spared));
}

TEST(Extremes, OfSums) {
  for (const auto kind : {buzz::AttentionKind::accumulated, buzz::AttentionKind::latest, buzz::AttentionKind::mean,
                          buzz::AttentionKind::newest, buzz::AttentionKind::largest, buzz::AttentionKind::decayed})
    refuses_sums<typed::Beehive>(kind);
  refuses_sums<typed::SnapKv>({});
  refuses_sums<typed::Tova>(buzz::AttentionKind::newest);
}

TEST(Extremes, OfSumsAtEachPlace) {
  for (const int count : {0, 1, 15, 31, 32, 33, 63, 64, 65, 127, 128, 130, 300}) {
    std::vector<float> x(static_cast<std::size_t>(count), 0.5f);
    const auto asks = [&](bool not_finite) {
      return fate([&] { buzz::require_attention_sums("sums", x.data(), count, not_finite); });
    };
    EXPECT_EQ(asks(false), "works") << count;
    for (float& at : x) {
      for (const float bad : {-1.f, -kTiny, 3e38f, std::nextafter(18446744073709551616.f, 3e38f)}) {
        at = bad;
        EXPECT_EQ(asks(false), "sums") << count << " " << bad;
        EXPECT_EQ(asks(true), "sums") << count << " " << bad;
      }
      for (const double bad : {kNan, kInf, -kInf}) {
        at = static_cast<float>(bad);
        EXPECT_EQ(asks(false), "sums") << count << " " << bad;
        EXPECT_EQ(asks(true), "works") << count << " " << bad;
      }
      for (const float good : {-0.f, 0.f, kTiny, 18446744073709551616.f}) {
        at = good;
        EXPECT_EQ(asks(false), "works") << count << " " << good;
      }
      at = 0.5f;
    }
  }
}

TEST(Extremes, OfOneQuerysProbabilitiesInAnyHead) {
  for (const std::size_t bad : {0u, 5u, 6u, 11u}) {  // four query heads of three rows, over two KV heads
    typed::HeavyHitter p(typed::HeavyHitter::Options::for_rows(24, 3), 2, 3);
    p.append(3);
    std::vector<float> sums(12, 0.25f);
    p.observe(buzz::View<const float>(sums.data(), 4, 1, 3));
    sums[bad] = -1;
    EXPECT_EQ(fate([&] { p.observe(buzz::View<const float>(sums.data(), 4, 1, 3)); }), "probabilities") << bad;
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < 3; ++r) EXPECT_EQ(p.scores(h)[r], 0.5) << bad;
  }
}

TEST(Extremes, OfProbabilitiesThatAreNotSeen) {
  typed::HeavyHitter p(typed::HeavyHitter::Options::for_rows(24, 2), 1, 2);
  p.append(2);
  const std::vector<float> sums = {1, -5, 0.5f, 0.5f};  // the first query does not see the second row
  p.observe(buzz::View<const float>(sums.data(), 1, 2, 2));
  EXPECT_EQ(p.scores(0)[1], 0.5);
}

TEST(Extremes, OfSavedScores) {
  using P = typed::Policy<typed::AttentionSum, buzz::TopK>;
  const P::Options o = P::Options::for_rows(24, 1);
  P policy(o, 1, 4);
  policy.append(1);
  for (const double bad : {kNan, kInf, -1.0}) {
    std::stringstream file;
    buzz::Writer writer(file);
    P::archive(static_cast<const P&>(policy), writer);
    writer.finish();
    std::string bytes = file.str();
    const std::size_t at = bytes.size() - 8 - 8 - 8;  // before the count of pins and the checksum
    std::memcpy(&bytes[at], &bad, 8);
    P loaded(o, 1, 4);
    EXPECT_EQ(fate([&] {
                std::istringstream in(bytes);
                buzz::Reader reader(in);
                P::archive(loaded, reader);
              }),
              "scores");
  }
}

}  // namespace
