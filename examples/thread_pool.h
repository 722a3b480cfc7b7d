// An executor for buzz on a few threads of its own: pool(count, task) runs task(0), ..., task(count - 1).
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "buzz/executor.h"

namespace examples {

/// The caller works too, so that a pool of n starts n - 1 threads. Between calls they spin for a while, since a decode
/// step has many calls that follow close on each other, and then sleep. One call at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void operator()(int count, buzz::Task task) {
    task_ = &task;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    take();
    while (running_.load(std::memory_order_acquire) != 0) {
    }
  }

 private:
  void take() {
    for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) (*task_)(i);
  }

  void work() {
    for (unsigned seen = 0;;) {
      for (int spins = 0; spins < 20000 && generation_.load(std::memory_order_acquire) == seen; ++spins) {
      }
      if (generation_.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      }
      ++seen;
      if (stop_) return;
      take();
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> generation_{0};
  std::atomic<int> next_{0}, running_{0};
  bool stop_ = false;
  const buzz::Task* task_ = nullptr;
  int count_ = 0;
};

}  // namespace examples
