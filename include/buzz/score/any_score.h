#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "buzz/score/score.h"

namespace buzz {

/// A score as a value: a copy is a deep one.
class AnyScore {
 public:
  AnyScore() = default;  ///< none
  /// Of a class derived from Score that can be copied.
  template <class S, class = std::enable_if_t<std::is_base_of<Score, S>::value>>
  AnyScore(std::unique_ptr<S> score)  // NOLINT: it is that score
      : score_(score.release()), copy_(copy<S>) {}
  /// The same.
  template <class S, class = std::enable_if_t<std::is_base_of<Score, std::decay_t<S>>::value>>
  AnyScore(S&& score)  // NOLINT: the same
      : score_(new std::decay_t<S>(std::forward<S>(score))), copy_(copy<std::decay_t<S>>) {}
  ~AnyScore() { delete score_; }

  /// The source is none then.
  AnyScore(AnyScore&& other) noexcept : score_(std::exchange(other.score_, nullptr)), copy_(other.copy_) {}
  /// A deep copy.
  AnyScore(const AnyScore& other) : score_(other ? other.copy_(*other.score_) : nullptr), copy_(other.copy_) {}
  /// Of a copy, or of what was moved.
  AnyScore& operator=(AnyScore other) noexcept {
    std::swap(score_, other.score_);
    std::swap(copy_, other.copy_);
    return *this;
  }

  explicit operator bool() const { return score_ != nullptr; }  ///< is there one?
  /// The score; there has to be one.
  /// @{
  Score* operator->() { return score_; }
  const Score* operator->() const { return score_; }
  Score& operator*() { return *score_; }
  const Score& operator*() const { return *score_; }
  /// @}

 private:
  template <class S>
  static Score* copy(const Score& s) {
    return new S(static_cast<const S&>(s));
  }

  Score* score_ = nullptr;  // owned; unique_ptrs of each kind take long to compile
  Score* (*copy_)(const Score&) = nullptr;
};

}  // namespace buzz
