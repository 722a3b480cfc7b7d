// Independent pieces of work on a few threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tiny_llama/report.h"

namespace evaluate {

/// How far the work is, and how long the rest may take; on a terminal only.
class Progress {
 public:
  /// all: the work, in tokens say; done: how much of it an earlier run did.
  Progress(std::size_t all, std::size_t done)
      : bar_(true, stderr), all_(all), done_(done), before_(done), began_(std::chrono::steady_clock::now()) {}
  ~Progress() { bar_.clear(); }

  /// `cost` more is done.
  void add(std::size_t cost) {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ += cost;
    if (!bar_.shown()) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    const double left =
        done_ == before_ ? 0 : seconds / static_cast<double>(done_ - before_) * static_cast<double>(all_ - done_);
    const long whole = std::lround(left);
    bar_.show(
        done_, all_,
        "tokens, " + (whole < 120 ? std::to_string(whole) + " s left   " : std::to_string(whole / 60) + " min left "));
  }

 private:
  tiny_llama::ProgressBar bar_;
  std::size_t all_, done_, before_;
  std::chrono::steady_clock::time_point began_;
  std::mutex mutex_;
};

/// Calls job(0), ..., job(count - 1) on `threads` threads. A job writes to its own place only, so that results do not
/// depend on the number of threads. The first job's error, in their order, is thrown when all threads have stopped.
inline void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& job) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t i; !failed && (i = next++) < count;) {
      try {
        job(i);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace evaluate
