// Different caches on different threads at once, and one cache whose work an executor splits: the bits of one thread.
// Built with -fsanitize=thread too.

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "oracle_twin.h"
#include "typed.h"

namespace {

using buzz::Rope;
using oracle::bytes_of;
using oracle::CachePtr;
using oracle::Config;
using oracle::Element;
using oracle::Kind;
using oracle::small;
using oracle::Text;

/// Two threads that wait for work: the caller's and one more.
class Pool {
 public:
  Pool() : worker_([this] { work(); }) {}
  ~Pool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    worker_.join();
  }

  /// The pieces with odd numbers are the worker's.
  void operator()(int count, buzz::Task task) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = &task;
      count_ = count;
    }
    wake_.notify_one();
    for (int i = 0; i < count; i += 2) task(i);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return task_ == nullptr; });
    ++calls_;
  }
  int calls() const { return calls_; }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || task_ != nullptr; });
      if (stop_) return;
      lock.unlock();
      for (int i = 1; i < count_; i += 2) (*task_)(i);
      lock.lock();
      task_ = nullptr;
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const buzz::Task* task_ = nullptr;
  int count_ = 0, calls_ = 0;
  bool stop_ = false;
  std::thread worker_;
};

Rope compact() {
  Rope rope{10000.0};
  rope.positions = buzz::Positions::compact;
  return rope;
}

buzz::AttentionOptions on(int threads) {
  buzz::AttentionOptions attention;
  attention.threads = threads;
  return attention;
}

/// The same text through one thread and through a pool.
void splits_its_work(const Config& c, const Rope& rope, int threads, int tokens, Element element = Element::float32) {
  const CachePtr serial = make_cache(element, c, rope), split = make_cache(element, c, rope, 0, on(threads));
  Pool pool;
  const Text text(c.seed);
  for (int turn = 0; serial->next_position() < tokens; ++turn) {
    const int n = turn % 3 == 0 ? 1 : 1 + turn % c.max_chunk;
    ASSERT_EQ(feed(*split, text, n, pool), feed(*serial, text, n)) << "at " << serial->next_position();
    ASSERT_EQ(bytes_of(*split), bytes_of(*serial)) << "at " << serial->next_position();
  }
  EXPECT_GT(pool.calls(), 10) << "it was used";
}

TEST(TwoThreads, InOneCacheAreOne) {
  oracle::with_every_kind([](Kind kind) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
    for (const Rope& rope : {Rope{}, compact()}) splits_its_work(small(kind), rope, 2, 80);
  });
}

TEST(TwoThreads, InOneCacheAreOneInEveryType) {
  splits_its_work(small(Kind::beehive), compact(), 2, 80, Element::half);
  splits_its_work(small(Kind::beehive), Rope{10000.0}, 2, 80, Element::bfloat16);
  splits_its_work(small(Kind::beehive), compact(), 2, 80, Element::int8);
}

/// Sizes that no packet and no tile divides, rows of several tiles.
Config odd(int heads, int group, int dim, int rows) {
  Config c = small(Kind::beehive);
  c.oracle.kv_heads = heads;
  c.oracle.query_heads = heads * group;
  c.oracle.head_dim = dim;
  c.oracle.scale = 1 / std::sqrt(static_cast<double>(dim));
  c.oracle.threshold = rows;
  c.max_chunk = 23;
  return c;
}

TEST(TwoThreads, InOneCacheAreOneForOddSizes) {
  for (int dim : {1, 3, 7, 17})
    for (int rows : {57, 130}) splits_its_work(odd(3, 1, dim, rows), Rope{}, 2, 300);
  splits_its_work(odd(2, 5, 9, 131), Rope{}, 2, 300);
  splits_its_work(odd(3, 2, 11, 131), Rope{}, 2, 300, Element::half);
}

TEST(MoreThreadsThanHeads, AreOne) {
  for (int threads : {3, 4, 7}) {
    splits_its_work(odd(1, 1, 13, 130), Rope{}, threads, 300);
    splits_its_work(odd(2, 2, 8, 64), compact(), threads, 200);
    splits_its_work(odd(2, 1, 10, 57), compact(), threads, 200, Element::half);
  }
}

TEST(TwoThreads, InObserveWithLogSumExpAreOne) {
  const Config c = odd(3, 2, 7, 90);
  Rope rope = compact();
  rope.dims = 6;
  const auto any_lse = [](buzz::AttentionOptions a) {
    a.lse_tolerance = 1e9;
    return a;
  };
  const CachePtr serial = make_cache(Element::float32, c, rope, 0, any_lse({}));
  const CachePtr split = make_cache(Element::float32, c, rope, 0, any_lse(on(2)));
  Pool pool;
  const Text text;
  for (int turn = 0; turn < 20; ++turn) {
    const int n = 1 + turn, first = serial->next_position();
    const std::vector<float> q = text.queries(first, n, 6, 7), k = text.keys(first, n, 3, 7);
    const std::vector<float> lse(static_cast<std::size_t>(n * 6), 4.5f);
    for (oracle::AnyCache* cache : {serial.get(), split.get()}) {
      cache->append(buzz::view(k, n, 3, 7), buzz::view(k, n, 3, 7));
      cache->observe(buzz::view(q, n, 6, 7), buzz::view(lse, 1, n, 6),
                     cache == split.get() ? buzz::Executor(pool) : buzz::Executor());
      cache->evict();
    }
    ASSERT_EQ(bytes_of(*split), bytes_of(*serial));
  }
  EXPECT_GT(pool.calls(), 10);
}

TEST(TwoThreads, OnTwoCachesAreAsOneAfterTheOther) {
  // And one of the two was forked from the other: nothing is shared.
  CachePtr one = make_cache(Element::float32, small(Kind::beehive), compact());
  for (int i = 0; i < 10; ++i) feed(*one, Text(1), 7);
  CachePtr two = one->fork(), one_serial = one->fork(), two_serial = one->fork();
  const auto life = [](CachePtr& cache, std::uint64_t seed) {
    const Text text(seed);
    for (int turn = 0; turn < 150; ++turn) {
      feed(*cache, text, 1 + turn % 8);
      if (turn == 30) cache->pin(cache->next_position(), 3);
      if (turn == 60) {
        std::istringstream file(bytes_of(*cache));
        cache->load(file);
      }
      if (turn == 90) cache = cache->fork();
      if (turn == 120 && seed == 2) cache->reset();
    }
  };
  std::thread first([&] { life(one, 1); }), second([&] { life(two, 2); });
  first.join();
  second.join();
  life(one_serial, 1);
  life(two_serial, 2);
  EXPECT_EQ(bytes_of(*one), bytes_of(*one_serial));
  EXPECT_EQ(bytes_of(*two), bytes_of(*two_serial));
}

TEST(TwoThreads, OnTwoLayersOfAModelAreAsOneAfterTheOther) {
  typed::Options wide, tight;
  wide.window = 40;
  tight.window = 6;
  tight.threshold = 12;
  typed::Model<float> both({2, 2, 8, 8}, {wide, tight}, compact()), serial = both.fork();
  const auto life = [](buzz::BuzzCache<float>& layer) {
    for (int turn = 0; turn < 100; ++turn) feed(layer, Text(3), 1 + turn % 8);
  };
  std::thread other([&] { life(both.layer(1)); });
  life(both.layer(0));
  other.join();
  life(serial.layer(0));
  life(serial.layer(1));
  EXPECT_EQ(bytes_of(both), bytes_of(serial));
}

TEST(TwoThreads, MayReadACacheAtOnce) {
  const CachePtr cache = make_cache(Element::float32, small(Kind::beehive), compact());
  for (int i = 0; i < 20; ++i) feed(*cache, Text(), 7);
  const oracle::AnyCache& fixed = *cache;
  std::string one, two;
  std::thread other([&] { one = bytes_of(fixed) + std::to_string(fixed.fork()->rows()); });
  two = bytes_of(fixed) + std::to_string(fixed.fork()->rows());
  other.join();
  EXPECT_EQ(one, two);
}

}  // namespace
