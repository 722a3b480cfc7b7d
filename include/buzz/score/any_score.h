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
      : score_(std::move(score)),
        copy_([](const Score& s) -> std::unique_ptr<Score> { return std::make_unique<S>(static_cast<const S&>(s)); }) {}
  /// The same.
  template <class S, class = std::enable_if_t<std::is_base_of<Score, std::decay_t<S>>::value>>
  AnyScore(S&& score)  // NOLINT: the same
      : AnyScore(std::make_unique<std::decay_t<S>>(std::forward<S>(score))) {}

  AnyScore(AnyScore&&) = default;             ///< the source is none then
  AnyScore& operator=(AnyScore&&) = default;  ///< the same
  /// A deep copy.
  AnyScore(const AnyScore& other) : score_(other ? other.copy_(*other.score_) : nullptr), copy_(other.copy_) {}
  /// The same.
  AnyScore& operator=(const AnyScore& other) { return *this = AnyScore(other); }

  explicit operator bool() const { return score_ != nullptr; }  ///< is there one?
  /// The score; there has to be one.
  /// @{
  Score* operator->() { return score_.get(); }
  const Score* operator->() const { return score_.get(); }
  Score& operator*() { return *score_; }
  const Score& operator*() const { return *score_; }
  /// @}

 private:
  std::unique_ptr<Score> score_;
  std::unique_ptr<Score> (*copy_)(const Score&) = nullptr;
};

}  // namespace buzz
