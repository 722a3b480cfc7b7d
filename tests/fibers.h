#pragma once

// Threads that take turns on one: each runs until it waits at a barrier or ends, then another does, drawn at random.
// ThreadSanitizer takes them for threads that nothing but barriers put in order, so it sees the races of every order.

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "sanitizers.h"

#if defined(BUZZ_TEST_TSAN) && !defined(__clang__)
#undef BUZZ_TEST_TSAN  // clang's alone knows fibers
#endif
#if defined(BUZZ_TEST_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(BUZZ_TEST_TSAN)
#include <sanitizer/tsan_interface.h>
#endif
#define BUZZ_TEST_UNSEEN __attribute__((no_sanitize("thread")))

class Fibers {
  struct Fiber;

 public:
  /// Where `threads` fibers wait for each other, again and again.
  class Barrier {
   public:
    Barrier(Fibers& fibers, int threads) : fibers_(fibers), threads_(static_cast<std::size_t>(threads)) {}
    void wait() {
      char& all = turns_[turn() % 2];  // those who are late in this turn must not see the next one's
      fibers_.release(&all);
      fibers_.pause(this);
      fibers_.acquire(&all);
    }

   private:
    friend class Fibers;
    BUZZ_TEST_UNSEEN unsigned turn() const { return turn_; }

    Fibers& fibers_;
    std::size_t threads_;
    std::vector<Fiber*> waiting_;
    unsigned turn_ = 0;
    char turns_[2] = {};
  };

  void add(std::function<void()> body) {
    all_.push_back(std::make_unique<Fiber>());
    all_.back()->fibers = this;
    all_.back()->body = std::move(body);
  }

  /// Until all have ended; std::logic_error where some wait for one that does not come.
  void run() {
    std::vector<Fiber*> ready;
    for (const auto& fiber : all_) {
      start(*fiber);
      ready.push_back(fiber.get());
    }
    std::size_t ended = 0;
    while (!ready.empty()) {
      std::swap(ready[random_() % ready.size()], ready.back());
      now_ = ready.back();
      ready.pop_back();
      resume();
      if (at_ == nullptr) {
        ++ended;
        continue;
      }
      at_->waiting_.push_back(now_);
      if (at_->waiting_.size() < at_->threads_) continue;
      ready.insert(ready.end(), at_->waiting_.begin(), at_->waiting_.end());
      at_->waiting_.clear();
      ++at_->turn_;
    }
    acquire(&end_);
    if (ended != all_.size()) throw std::logic_error("not all threads come to a barrier");
  }

 private:
  static constexpr std::size_t kStack = 64 * 1024;

  struct Fiber {
    ~Fiber() {
#if defined(BUZZ_TEST_TSAN)
      if (seen != nullptr) __tsan_destroy_fiber(seen);
#endif
    }
    Fibers* fibers;
    std::function<void()> body;
    std::unique_ptr<char[]> stack{new char[kStack]};
    ucontext_t context;
    void* seen = nullptr;  // by the sanitizer
  };

  void start(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    const auto address = reinterpret_cast<std::uintptr_t>(&fiber);  // makecontext passes integers alone
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Fibers::enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
#if defined(BUZZ_TEST_TSAN)
    fiber.seen = __tsan_create_fiber(0);
    main_seen_ = __tsan_get_current_fiber();
#endif
  }
  static void enter(unsigned high, unsigned low) {
    Fiber& fiber = *reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
    Fibers& all = *fiber.fibers;
#if defined(BUZZ_TEST_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &all.main_stack_, &all.main_size_);
#endif
    fiber.body();
    all.release(&all.end_);
    all.pause(nullptr);
  }

  // Only run() knows who waits: a fiber tells it by at_. ThreadSanitizer must see nothing of a turn's change.
  BUZZ_TEST_UNSEEN void resume() {
    Fiber& fiber = *now_;
#if defined(BUZZ_TEST_ASAN)
    void* mine = nullptr;
    __sanitizer_start_switch_fiber(&mine, fiber.stack.get(), kStack);
#elif defined(BUZZ_TEST_TSAN)
    __tsan_switch_to_fiber(fiber.seen, __tsan_switch_to_fiber_no_sync);
#endif
    swapcontext(&main_, &fiber.context);
#if defined(BUZZ_TEST_ASAN)
    __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
  }
  BUZZ_TEST_UNSEEN void pause(Barrier* at) {
    Fiber& fiber = *now_;
    at_ = at;
#if defined(BUZZ_TEST_ASAN)
    __sanitizer_start_switch_fiber(at == nullptr ? nullptr : &fiber.seen, main_stack_, main_size_);
#elif defined(BUZZ_TEST_TSAN)
    __tsan_switch_to_fiber(main_seen_, __tsan_switch_to_fiber_no_sync);
#endif
    swapcontext(&fiber.context, &main_);
#if defined(BUZZ_TEST_ASAN)
    __sanitizer_finish_switch_fiber(fiber.seen, &main_stack_, &main_size_);
#endif
  }
  void release([[maybe_unused]] char* what) {
#if defined(BUZZ_TEST_TSAN)
    __tsan_release(what);
#endif
  }
  void acquire([[maybe_unused]] char* what) {
#if defined(BUZZ_TEST_TSAN)
    __tsan_acquire(what);
#endif
  }

  std::minstd_rand random_;
  std::vector<std::unique_ptr<Fiber>> all_;
  Fiber* now_ = nullptr;
  Barrier* at_ = nullptr;
  char end_ = 0;
  ucontext_t main_;
  [[maybe_unused]] const void* main_stack_ = nullptr;
  [[maybe_unused]] std::size_t main_size_ = 0;
  [[maybe_unused]] void* main_seen_ = nullptr;
};
