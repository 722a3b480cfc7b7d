// After the constructor nothing allocates: every malloc of this program is counted, where glibc or a sanitizer lets us,
// and with it every operator new and what Eigen asks for.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "buzz/model_cache.h"
#include "buzz/policy_list.h"
#include "sanitizers.h"

namespace {
std::atomic<long> allocations{0};
}

#if defined(BUZZ_TEST_ASAN) || defined(BUZZ_TEST_TSAN) || defined(BUZZ_TEST_MSAN)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
namespace {
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {});
}
#elif defined(__GLIBC__)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  ++allocations;
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? 12 /*ENOMEM*/ : 0;
}
}
#else
#error "Say how allocations are counted here."
#endif

namespace {

/// The allocations that f() makes.
template <class F>
long count(F&& f) {
  const long before = allocations;
  f();
  return allocations - before;
}

void* volatile escape;  // no compiler may leave out what is stored here

void* seen(void* p) {
  escape = p;
  return p;
}

TEST(Counting, SeesEveryKindOfAllocation) {
  struct alignas(64) Wide {
    float x[16];
  };
  EXPECT_GT(count([] { delete static_cast<int*>(seen(new int(1))); }), 0);
  EXPECT_GT(count([] { delete[] static_cast<int*>(seen(new int[9])); }), 0);
  EXPECT_GT(count([] { delete static_cast<Wide*>(seen(new Wide)); }), 0);
  EXPECT_GT(count([] { delete static_cast<int*>(seen(new (std::nothrow) int(1))); }), 0);
  EXPECT_GT(count([] {
              std::vector<int> x(9);
              escape = x.data();
            }),
            0);
  EXPECT_EQ(count([] {}), 0);
}

TEST(Counting, SeesMallocAndEigen) {
  EXPECT_EQ(count([] { std::free(seen(std::malloc(9))); }), 1);
  EXPECT_EQ(count([] { std::free(seen(std::calloc(9, 9))); }), 1);
  EXPECT_EQ(count([] { std::free(seen(std::aligned_alloc(64, 64))); }), 1);
  EXPECT_EQ(count([] { std::free(seen(std::realloc(nullptr, 9))); }), 1);
  EXPECT_EQ(count([] {
              void* p = nullptr;
              EXPECT_EQ(posix_memalign(&p, 64, 64), 0);
              std::free(seen(p));
            }),
            1);
  EXPECT_GT(count([] {
              Eigen::VectorXf x(9);
              escape = x.data();
            }),
            0);
}

/// Numbers that differ from each other, none of them large.
template <class T>
std::vector<T> numbers(int count) {
  std::vector<T> result;
  for (int i = 0; i < count; ++i) result.push_back(static_cast<T>(static_cast<float>((i * 37) % 101 - 50) / 50));
  return result;
}

template <class Options>
Options small() {
  Options o;
  o.sink = 2;
  o.window = 5;
  return o;
}
buzz::BeehiveOptions small_beehive() {
  auto o = small<buzz::BeehiveOptions>();
  o.threshold = 9;
  o.keep = 2;
  o.hive = buzz::HiveRule::heaviest;
  return o;
}

/// Calls of `chunk` tokens and of one, whole and step by step; each cache has to evict.
template <class T>
void expect_no_allocation(const buzz::Shape& shape, const buzz::Rope& rope, const buzz::Policy& policy,
                          buzz::AttentionOptions attention = {}) {
  using In = typename std::conditional<std::is_same<T, std::int8_t>::value, float, T>::type;
  attention.log_base = 512;
  buzz::BuzzCache<T> cache(shape, policy, rope, attention);
  const std::vector<In> q = numbers<In>(shape.max_chunk * shape.query_heads * shape.head_dim);
  const std::vector<In> k = numbers<In>(shape.max_chunk * shape.kv_heads * shape.head_dim);
  const std::vector<In> v = numbers<In>(shape.max_chunk * shape.kv_heads * shape.value_size());
  std::vector<float> out(static_cast<std::size_t>(shape.max_chunk * shape.query_heads * shape.value_size()));
  int evictions = 0;
  const auto call = [&](int n, bool steps) {
    const buzz::View<const In> qs(q.data(), n, shape.query_heads, shape.head_dim);
    const buzz::View<const In> ks(k.data(), n, shape.kv_heads, shape.head_dim);
    const buzz::View<const In> vs(v.data(), n, shape.kv_heads, shape.values_in_keys ? 0 : shape.value_size());
    const buzz::View<float> outs(out.data(), n, shape.query_heads, shape.value_size());
    const int before = cache.rows();
    if (steps) {
      cache.append(ks, vs);
      cache.attend(qs, outs);
      cache.observe();
      cache.evict();
    } else {
      cache.attend(qs, ks, vs, outs);
    }
    evictions += cache.rows() < before + n;
  };
  const long made = count([&] {
    for (int round = 0; round < 2; ++round) {
      call(shape.max_chunk, false);
      call(shape.max_chunk, true);
      for (int i = 0; i < 30; ++i) call(1, i % 2 == 0);
      cache.reset();
    }
  });
  EXPECT_EQ(made, 0) << policy.name << " head_dim " << shape.head_dim << " query_heads " << shape.query_heads
                     << " chunk " << shape.max_chunk;
  EXPECT_GT(evictions, 2);
}

template <class T>
class Allocation : public testing::Test {};
using Types = testing::Types<float, Eigen::half, Eigen::bfloat16, std::int8_t>;
TYPED_TEST_SUITE(Allocation, Types);

TYPED_TEST(Allocation, NoneInShapesOfRealModels) {
  // {query_heads, kv_heads, head_dim, max_chunk}: tiny, Llama, many queries of one head, Gemma, as large as may be,
  // odd.
  for (const buzz::Shape& shape : std::vector<buzz::Shape>{{1, 1, 2, 1},
                                                           {4, 2, 64, 1},
                                                           {8, 2, 128, 130},
                                                           {71, 1, 64, 40},
                                                           {2, 1, 256, 200},
                                                           {8, 1, 512, 64},
                                                           {300, 1, 512, 2},
                                                           {6, 3, 17, 33}}) {
    buzz::Rope rope;
    rope.base = 10000;
    rope.dims = shape.head_dim == 17 ? 16 : 0;
    expect_no_allocation<TypeParam>(shape, rope, buzz::beehive(small_beehive()));
  }
}

TYPED_TEST(Allocation, NoneInCompactPositions) {
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  rope.keys = buzz::KeyStorage::rotated;
  expect_no_allocation<TypeParam>({4, 2, 32, 20}, rope, buzz::beehive(small_beehive()));
  rope.keys = buzz::KeyStorage::raw;
  expect_no_allocation<TypeParam>({4, 2, 32, 20}, rope, buzz::beehive(small_beehive()));
}

TYPED_TEST(Allocation, NoneInTodaysMechanisms) {
  buzz::AttentionOptions attention;
  attention.window = 7;
  attention.soft_cap = 50;
  attention.sinks = attention.alibi_slopes = std::vector<float>(8, 0.5f);
  for (const bool in_keys : {false, true}) {
    buzz::Shape shape{8, 2, 40, 20};
    shape.value_dim = 32;
    shape.values_in_keys = in_keys;
    expect_no_allocation<TypeParam>(shape, {}, buzz::beehive(small_beehive()), attention);
  }
}

TYPED_TEST(Allocation, NoneWhereKeysAreRotatedBack) {
  buzz::Rope rope;
  rope.base = 10000;
  expect_no_allocation<TypeParam>({4, 2, 32, 16}, rope, buzz::policy("leverage:rows=32,max_chunk=16"));
  for (const char* name : {"expected_attention", "tri_attention", "cap_kv"})
    for (buzz::Positions positions : {buzz::Positions::logical, buzz::Positions::compact})
      for (const int dim : {32, 300}) {
        rope.positions = positions;
        const bool slow = dim == 300 && name == std::string("cap_kv");  // whose products go by its square
        if (!slow || positions == buzz::Positions::logical)
          expect_no_allocation<TypeParam>({slow ? 2 : 4, slow ? 1 : 2, dim, 16}, rope,
                                          buzz::policy(std::string(name) + ":rows=32,max_chunk=16"));
      }
  rope.positions = buzz::Positions::logical;
  expect_no_allocation<TypeParam>({2, 1, 300, 16}, rope, buzz::policy("leverage:rows=32,max_chunk=16"));
}

TYPED_TEST(Allocation, NoneInAnyPolicy) {
  const buzz::Shape shape{4, 2, 24, 16};
  auto h2o = small<buzz::HeavyHitterOptions>();
  h2o.heavy = 6;
  expect_no_allocation<TypeParam>(shape, {}, buzz::heavy_hitter(h2o));
  expect_no_allocation<TypeParam>(shape, {}, buzz::streaming(small<buzz::StreamingOptions>()));
  auto strided = small<buzz::StridedOptions>();
  strided.threshold = 7;
  expect_no_allocation<TypeParam>(shape, {}, buzz::strided(strided));
  auto diverse = small<buzz::DiverseBeehiveOptions>();
  diverse.threshold = 7;
  for (buzz::Unlike unlike : {buzz::Unlike::cosine, buzz::Unlike::direction, buzz::Unlike::distance}) {
    diverse.unlike = unlike;
    expect_no_allocation<TypeParam>(shape, {}, buzz::diverse_beehive(diverse));
  }
  for (const char* name : {"key_value_beehive", "key_diff", "key_outliers", "leverage", "lag_kv", "expected_attention",
                           "tri_attention", "tova", "snap_kv"})
    expect_no_allocation<TypeParam>(shape, {}, buzz::policy(std::string(name) + ":rows=32,max_chunk=16"));
  expect_no_allocation<TypeParam>(shape, {}, buzz::policy("leverage:rows=32,max_chunk=16,of=values"));
}

TYPED_TEST(Allocation, NoneWhereAModelIsCalibrated) {
  auto weights = std::make_shared<buzz::Calibration>(buzz::CalibratedModel{"", 1, 2, 24, 24});
  weights->set(0, std::vector<float>(2 * 49, 0.5f));
  auto o = buzz::CalibratedOptions::for_rows(32, 16);
  o.weights = weights;
  buzz::Rope rope;
  rope.base = 10000;
  expect_no_allocation<TypeParam>({4, 2, 24, 16}, rope, buzz::calibrated(o));
}

/// The engine owns K and V: append, observe, select, compact.
void expect_no_allocation_in_evictor(const buzz::Policy& policy) {
  const int query_heads = 6, kv_heads = 3, max_chunk = 40, dim = 10;
  buzz::Evictor evictor(policy, kv_heads, max_chunk);
  std::vector<float> p = numbers<float>(query_heads * max_chunk * evictor.capacity());
  for (float& x : p) x = std::fabs(x);
  std::vector<float> rows = numbers<float>(kv_heads * evictor.capacity() * dim);
  int evictions = 0;
  const long made = count([&] {
    for (int n : {40, 40, 1, 1, 7, 1, 40, 3, 1, 1, 1, 1, 1, 1, 1, 1}) {
      evictor.append(n);
      if (evictor.needs().attention) {
        evictor.observe(buzz::View<const float>(p.data(), query_heads, n, evictor.rows()));
        evictor.observe_sums(buzz::View<const float>(p.data(), 1, kv_heads, evictor.rows()));
      } else {
        evictor.give(buzz::View<const float>(p.data(), 1, kv_heads, evictor.rows()));
      }
      if (!evictor.should_evict()) continue;
      const buzz::KeptRows& keep = evictor.select();
      buzz::compact(keep, buzz::View<float>(rows.data(), kv_heads, evictor.capacity(), dim));
      ++evictions;
    }
    evictor.reset();
  });
  EXPECT_EQ(made, 0) << policy.name;
  EXPECT_GT(evictions, 4);
}

TEST(Allocation, NoneInAnEvictorAlone) {
  using Kind = buzz::AttentionKind;
  for (Kind kind : {Kind::accumulated, Kind::mean, Kind::latest, Kind::newest, Kind::largest, Kind::decayed}) {
    for (buzz::HiveRule hive : {buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together}) {
      buzz::BeehiveOptions o = small_beehive();
      o.attention = kind;
      o.hive = hive;
      expect_no_allocation_in_evictor(buzz::beehive(o));
    }
    auto o = small<buzz::HeavyHitterOptions>();
    o.attention = kind;
    o.heavy = 11;
    expect_no_allocation_in_evictor(buzz::heavy_hitter(o));
  }
  expect_no_allocation_in_evictor(buzz::policy("tova:rows=60,max_chunk=40"));
  expect_no_allocation_in_evictor(buzz::policy("snap_kv:rows=60,max_chunk=40"));
  expect_no_allocation_in_evictor(buzz::policy("user_scores:sink=3,window=3,threshold=9"));
}

TEST(Allocation, NoneInAModelOfLayers) {
  buzz::ModelCache<float> model({2, 1, 8, 4}, {buzz::beehive(small_beehive()), buzz::beehive(small_beehive())});
  const std::vector<float> q = numbers<float>(2 * 8), kv = numbers<float>(8);
  std::vector<float> out(q.size());
  const long made = count([&] {
    for (int i = 0; i < 60; ++i)
      for (int layer = 0; layer < model.layers(); ++layer)
        model.layer(layer).attend(buzz::view(q, 1, 2, 8), buzz::view(kv, 1, 1, 8), buzz::view(kv, 1, 1, 8),
                                  buzz::view(out, 1, 2, 8));
  });
  EXPECT_EQ(made, 0);
  EXPECT_LT(model.rows(0), 20);
}

TEST(Allocation, NoneWhereAModelKeepsOneList) {
  for (const char* reduce : {"sum", "mean", "maximum", "top"}) {
    const buzz::Shape shape{2, 1, 8, 4, 2};
    const buzz::Layer sliding = buzz::sliding_layer(shape, 6, buzz::Rope{10000.0});
    const buzz::Layer global{
        shape, buzz::policy("leverage:rows=24,max_chunk=4,sharing=model,part=0.5,reduce=" + std::string(reduce)),
        buzz::Rope{10000.0}};
    buzz::ModelCache<float> model({sliding, global, global, global});
    const std::vector<float> q = numbers<float>(2 * 8), kv = numbers<float>(8);
    std::vector<float> out(q.size());
    int evictions = 0;
    const long made = count([&] {
      for (int i = 0; i < 90; ++i) {
        for (int layer = 0; layer < model.layers(); ++layer)
          model.layer(layer).attend(buzz::view(q, 1, 2, 8), buzz::view(kv, 1, 1, 8), buzz::view(kv, 1, 1, 8),
                                    buzz::view(out, 1, 2, 8));
        evictions += i % 20 == 19 ? model.evict_to(22) : model.evict();
      }
    });
    EXPECT_EQ(made, 0) << reduce;
    EXPECT_GT(evictions, 5);
  }
}

TEST(Allocation, NoneInAModelThatSlidesAndRollsBack) {
  const buzz::Shape shape{2, 1, 8, 4, 2};
  const buzz::Layer sliding = buzz::sliding_layer(shape, 6, buzz::Rope{10000.0});
  buzz::ModelCache<float> model({sliding, {shape, buzz::beehive(small_beehive()), buzz::Rope{500000.0}}, sliding});
  const std::vector<float> q = numbers<float>(2 * 8), kv = numbers<float>(8);
  std::vector<float> out(q.size());
  int rollbacks = 0;
  const long made = count([&] {
    for (int i = 0; i < 90; ++i) {
      for (int layer = 0; layer < model.layers(); ++layer)
        model.layer(layer).attend(buzz::view(q, 1, 2, 8), buzz::view(kv, 1, 1, 8), buzz::view(kv, 1, 1, 8),
                                  buzz::view(out, 1, 2, 8));
      if (i % 3 != 0 || !model.can_rollback(1)) continue;
      model.rollback(1);
      ++rollbacks;
    }
  });
  EXPECT_EQ(made, 0);
  EXPECT_GT(rollbacks, 20);
  EXPECT_LT(model.rows(0), 20);
}

}  // namespace
