#pragma once

#include <type_traits>

namespace buzz {

/// The callable F, const or not, that `context` is the address of.
template <class F>
F& called(const void* context) {
  return *static_cast<F*>(const_cast<void*>(context));
}

/// A reference to a callable void(int); it owns nothing and never allocates.
class Task {
 public:
  /// Refers to `f`, which has to live as long.
  template <class F, class = std::enable_if_t<!std::is_same<std::decay_t<F>, Task>::value>>
  Task(F& f)  // NOLINT: made to be passed a lambda
      : context_(&f), call_([](const void* context, int i) { called<F>(context)(i); }) {}

  void operator()(int i) const { call_(context_, i); }  ///< runs piece i

 private:
  const void* context_;
  void (*call_)(const void*, int);
};

/// Who runs the pieces of work inside one call: any callable run(int count, Task task) that calls task(i) once for
/// each i in [0, count), on any threads, and returns when all are done. By default the caller's thread, in order.
/// The pieces write apart from each other, so results are the same bits whatever the number of threads.
class Executor {
 public:
  Executor() : context_(nullptr), run_(nullptr) {}
  /// Refers to `run`, which has to live as long.
  template <class F, class = std::enable_if_t<!std::is_same<std::decay_t<F>, Executor>::value>>
  Executor(F& run)  // NOLINT: made to be passed a pool
      : context_(&run), run_([](const void* context, int count, Task task) { called<F>(context)(count, task); }) {}

  /// Runs task(i) for each i in [0, count), and returns when all are done.
  template <class F>
  void operator()(int count, F&& task) const {
    if (run_ == nullptr || count < 2) {
      for (int i = 0; i < count; ++i) task(i);
    } else {
      run_(context_, count, Task(task));
    }
  }

 private:
  const void* context_;
  void (*run_)(const void*, int, Task);
};

}  // namespace buzz
