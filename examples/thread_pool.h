// An executor for buzz on a few threads of its own: pool(count, task) runs task(0), ..., task(count - 1).
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "buzz/executor.h"

namespace examples {

/// The caller works too, so that a pool of n starts n - 1 threads, and returns when the pieces are done, whoever did
/// them: a thread that sleeps or that the system has put aside delays no call that it took no piece of. Between calls
/// they spin for a while, since a decode step has many calls that follow close on each other, and then sleep. One call
/// at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_.store(true, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void operator()(int count, buzz::Task task) {
    if (count < 1) return;
    task_ = &task;
    undone_.store(count, std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      untaken_.store(count, std::memory_order_release);
    }
    wake_.notify_all();
    take();
    for (int spins = 0; undone_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins > 1000) std::this_thread::yield();  // perhaps to the thread that is waited for
    }
  }

 private:
  /// Runs pieces until none is left. A piece that is taken holds its call open, and with it task_.
  void take() {
    for (int n = untaken_.load(std::memory_order_acquire); n > 0;) {
      if (!untaken_.compare_exchange_weak(n, n - 1, std::memory_order_acquire)) continue;
      (*task_)(n - 1);
      undone_.fetch_sub(1, std::memory_order_release);
      n = untaken_.load(std::memory_order_acquire);
    }
  }

  bool idle() const { return untaken_.load(std::memory_order_acquire) == 0 && !stop_.load(std::memory_order_acquire); }

  void work() {
    while (!stop_.load(std::memory_order_acquire)) {
      for (int spins = 0; spins < 20000 && idle(); ++spins) {
      }
      if (idle()) {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return !idle(); });
      }
      take();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> untaken_{0}, undone_{0};  // pieces of the call
  std::atomic<bool> stop_{false};
  const buzz::Task* task_ = nullptr;
};

}  // namespace examples
