// After the constructor nothing allocates: every malloc of this program is counted, where glibc or a sanitizer lets us,
// and with it every operator new and what Eigen asks for.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "buzz/model_cache.h"
#include "buzz/score/given.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_BY_HOOK 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COUNTS_BY_HOOK 1
#endif
#endif

namespace {
std::atomic<long> allocations{0};
}

#if defined(COUNTS_BY_HOOK)
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

template <class P>
typename P::Options small() {
  typename P::Options o;
  o.sink = 2;
  o.window = 5;
  return o;
}
template <>
buzz::Beehive::Options small<buzz::Beehive>() {
  buzz::Beehive::Options o;
  o.sink = 2;
  o.window = 5;
  o.threshold = 9;
  o.keep = 2;
  o.hive = buzz::HiveRule::heaviest;
  return o;
}

/// Calls of `chunk` tokens and of one, whole and step by step; each cache has to evict.
template <class T, class P>
void expect_no_allocation(const buzz::Shape& shape, const buzz::Rope& rope, typename P::Options options) {
  using In = typename std::conditional<std::is_same<T, std::int8_t>::value, float, T>::type;
  buzz::AttentionOptions attention;
  attention.log_base = 512;
  buzz::BuzzCache<T, P> cache(shape, options, rope, attention);
  const std::vector<In> q = numbers<In>(shape.max_chunk * shape.query_heads * shape.head_dim);
  const std::vector<In> kv = numbers<In>(shape.max_chunk * shape.kv_heads * shape.head_dim);
  std::vector<float> out(q.size());
  int evictions = 0;
  const auto call = [&](int n, bool steps) {
    const buzz::View<const In> qs(q.data(), n, shape.query_heads, shape.head_dim);
    const buzz::View<const In> kvs(kv.data(), n, shape.kv_heads, shape.head_dim);
    const buzz::View<float> outs(out.data(), n, shape.query_heads, shape.head_dim);
    const int before = cache.rows();
    if (steps) {
      cache.append(kvs, kvs);
      cache.attend(qs, outs);
      cache.observe();
      cache.evict();
    } else {
      cache.attend(qs, kvs, kvs, outs);
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
  EXPECT_EQ(made, 0) << "head_dim " << shape.head_dim << " query_heads " << shape.query_heads << " chunk "
                     << shape.max_chunk;
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
    expect_no_allocation<TypeParam, buzz::Beehive>(shape, rope, small<buzz::Beehive>());
  }
}

TYPED_TEST(Allocation, NoneInCompactPositions) {
  buzz::Rope rope;
  rope.base = 10000;
  rope.positions = buzz::Positions::compact;
  rope.keys = buzz::KeyStorage::rotated;
  expect_no_allocation<TypeParam, buzz::Beehive>({4, 2, 32, 20}, rope, small<buzz::Beehive>());
  rope.keys = buzz::KeyStorage::raw;
  expect_no_allocation<TypeParam, buzz::Beehive>({4, 2, 32, 20}, rope, small<buzz::Beehive>());
}

TYPED_TEST(Allocation, NoneInAnyPolicy) {
  const buzz::Shape shape{4, 2, 24, 16};
  buzz::HeavyHitter::Options h2o = small<buzz::HeavyHitter>();
  h2o.heavy = 6;
  expect_no_allocation<TypeParam, buzz::HeavyHitter>(shape, {}, h2o);
  expect_no_allocation<TypeParam, buzz::Streaming>(shape, {}, small<buzz::Streaming>());
  buzz::Strided::Options strided = small<buzz::Strided>();
  strided.threshold = 7;
  expect_no_allocation<TypeParam, buzz::Strided>(shape, {}, strided);
  buzz::DiverseBeehive::Options diverse = small<buzz::DiverseBeehive>();
  diverse.threshold = 7;
  expect_no_allocation<TypeParam, buzz::DiverseBeehive>(shape, {}, diverse);
  for (buzz::Unlike unlike : {buzz::Unlike::direction, buzz::Unlike::distance}) {
    diverse.unlike = unlike;
    expect_no_allocation<TypeParam, buzz::DiverseBeehive>(shape, {}, diverse);
  }
  expect_no_allocation<TypeParam, buzz::KeyValueBeehive>(shape, {}, buzz::KeyValueBeehive::Options::for_rows(32, 16));
  expect_no_allocation<TypeParam, buzz::KeyDiff>(shape, {}, buzz::KeyDiff::Options::for_rows(32, 16));
  expect_no_allocation<TypeParam, buzz::KeyOutliers>(shape, {}, buzz::KeyOutliers::Options::for_rows(32, 16));
  expect_no_allocation<TypeParam, buzz::Tova>(shape, {}, buzz::Tova::Options::for_rows(32, 16));
  expect_no_allocation<TypeParam, buzz::SnapKv>(shape, {}, buzz::SnapKv::Options::for_rows(32, 16));
}

/// The engine owns K and V: append, observe, select, compact.
template <class P>
void expect_no_allocation_in_policy(const typename P::Options& options) {
  const int query_heads = 6, kv_heads = 3, max_chunk = 40, dim = 10;
  P policy(options, kv_heads, max_chunk);
  const std::vector<float> p = numbers<float>(query_heads * max_chunk * policy.capacity());
  std::vector<float> rows = numbers<float>(kv_heads * policy.capacity() * dim);
  int evictions = 0;
  const long made = count([&] {
    for (int n : {40, 40, 1, 1, 7, 1, 40, 3, 1, 1, 1, 1, 1, 1, 1, 1}) {
      policy.append(n);
      if constexpr (P::needs_mass) {
        policy.observe(buzz::View<const float>(p.data(), query_heads, n, policy.rows()));
        policy.observe_mass(buzz::View<const float>(p.data(), 1, kv_heads, policy.rows()));
      } else {
        policy.give(buzz::View<const float>(p.data(), 1, kv_heads, policy.rows()));
      }
      if (!policy.due()) continue;
      const buzz::Keep& keep = policy.select();
      buzz::compact(keep, buzz::View<float>(rows.data(), kv_heads, policy.capacity(), dim));
      ++evictions;
    }
    policy.reset();
  });
  EXPECT_EQ(made, 0);
  EXPECT_GT(evictions, 4);
}

TEST(Allocation, NoneInAPolicyAlone) {
  for (buzz::MassKind mass : {buzz::MassKind::accumulated, buzz::MassKind::mean, buzz::MassKind::latest,
                              buzz::MassKind::newest, buzz::MassKind::largest, buzz::MassKind::decayed}) {
    for (buzz::HiveRule hive : {buzz::HiveRule::first, buzz::HiveRule::heaviest, buzz::HiveRule::together}) {
      buzz::Beehive::Options o = small<buzz::Beehive>();
      o.mass = mass;
      o.hive = hive;
      expect_no_allocation_in_policy<buzz::Beehive>(o);
    }
    buzz::HeavyHitter::Options o = small<buzz::HeavyHitter>();
    o.mass = mass;
    o.heavy = 11;
    expect_no_allocation_in_policy<buzz::HeavyHitter>(o);
  }
  expect_no_allocation_in_policy<buzz::Tova>(buzz::Tova::Options::for_rows(60, 40));
  expect_no_allocation_in_policy<buzz::SnapKv>(buzz::SnapKv::Options::for_rows(60, 40));
  buzz::Policy<buzz::Given, buzz::Segments>::Options given;
  given.sink = given.window = 3;
  given.threshold = 9;
  expect_no_allocation_in_policy<buzz::Policy<buzz::Given, buzz::Segments>>(given);
}

TEST(Allocation, NoneInAModelOfLayers) {
  buzz::ModelCache<float> model({2, 1, 8, 4}, {small<buzz::Beehive>(), small<buzz::Beehive>()});
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

}  // namespace
