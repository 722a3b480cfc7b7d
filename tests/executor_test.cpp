#include "buzz/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include "thread_pool.h"

namespace {

using buzz::Executor;
using buzz::Task;

static_assert(std::is_trivially_copyable<Executor>::value && std::is_trivially_copyable<Task>::value,
              "both are references: cheap to pass, nothing to allocate");

/// A thread for each piece.
struct ThreadEach {
  int calls = 0;
  void operator()(int count, Task task) {
    ++calls;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([task, i] { task(i); });
    for (std::thread& t : threads) t.join();
  }
};

TEST(Executor, ByDefaultRunsInOrderOnTheCallersThread) {
  const std::thread::id here = std::this_thread::get_id();
  std::vector<int> seen;
  Executor()(4, [&](int i) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    seen.push_back(i);
  });
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Executor, HandsEveryPieceToTheCallersPoolOnce) {
  ThreadEach pool;
  std::vector<std::atomic<int>> times(8);
  const Executor run(pool);
  run(8, [&](int i) { ++times[static_cast<std::size_t>(i)]; });
  for (const auto& t : times) EXPECT_EQ(t, 1);
  EXPECT_EQ(pool.calls, 1);
}

TEST(Executor, DoesNotWakeThePoolForLessThanTwoPieces) {
  ThreadEach pool;
  const Executor run(pool);
  int done = 0;
  run(0, [&](int) { ++done; });
  EXPECT_EQ(done, 0);
  run(1, [&](int) { ++done; });
  EXPECT_EQ(done, 1);
  EXPECT_EQ(pool.calls, 0);
}

TEST(Executor, CopiesUseTheSamePool) {
  ThreadEach pool;
  const Executor first(pool);
  const Executor copy = first;
  std::atomic<int> done{0};
  copy(2, [&](int) { ++done; });
  EXPECT_EQ(done, 2);
  EXPECT_EQ(pool.calls, 1);
}

TEST(Executor, TakesALambda) {
  int pieces = 0;
  auto backwards = [&](int count, Task task) {
    for (int i = count - 1; i >= 0; --i) task(i);
    pieces = count;
  };
  std::vector<int> seen;
  const Executor run(backwards);
  run(3, [&](int i) { seen.push_back(i); });
  EXPECT_EQ(seen, (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(pieces, 3);
}

TEST(Task, RefersToTheCallable) {
  int sum = 0;
  auto add = [&sum](int i) { sum += i; };
  const Task task(add);
  const Task copy = task;
  task(3);
  copy(4);
  EXPECT_EQ(sum, 7);
}

TEST(Executor, TakesWhatIsConst) {
  const auto in_order = [](int count, Task task) {
    for (int i = 0; i < count; ++i) task(i);
  };
  const Executor run(in_order);
  std::vector<int> seen;
  const auto see = [&seen](int i) { seen.push_back(i); };
  run(3, see);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(ThreadPool, RunsEveryPieceOnceAndReturnsWhenTheyAreDone) {
  for (int threads = 1; threads <= 4; ++threads) {
    examples::ThreadPool pool(threads);
    for (int call = 0; call < 3000; ++call) {
      const int count = call * 7 % 19;
      std::vector<int> times(19, 0);  // a piece's own: a race if two threads had it, or if it were not done yet
      auto piece = [&](int i) { ++times[static_cast<std::size_t>(i)]; };
      pool(count, Task(piece));
      for (int i = 0; i < 19; ++i) ASSERT_EQ(times[static_cast<std::size_t>(i)], i < count ? 1 : 0);
      if (call % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // they sleep
    }
  }
}

}  // namespace
