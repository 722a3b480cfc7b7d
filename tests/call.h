#pragma once

/// What is to be called before the statement ends that it stands in: a function that takes one is compiled once, and
/// not for each lambda.
template <class... Arguments>
class CallWith {
 public:
  template <class F>
  CallWith(const F& f)  // NOLINT: of any lambda
      : what_(&f), call_([](const void* what, Arguments... arguments) {
          static_cast<void>((*static_cast<const F*>(what))(static_cast<Arguments>(arguments)...));
        }) {}
  void operator()(Arguments... arguments) const { call_(what_, static_cast<Arguments>(arguments)...); }

 private:
  const void* what_;
  void (*call_)(const void*, Arguments...);
};
using Call = CallWith<>;
