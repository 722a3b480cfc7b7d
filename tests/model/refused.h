// What was refused, and in which words.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "buzz/error.h"

namespace model {

/// The text of the error that the call throws; fails where it throws none.
template <class Call>
std::string refused(Call&& call) {
  try {
    call();
  } catch (const buzz::Error& error) {
    EXPECT_FALSE(error.field().empty());
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

/// What f() makes of a file; one that is refused with an error of another family than FileError fails the test.
template <class F>
auto from_file(F&& f) {
  try {
    return f();
  } catch (const buzz::FileError&) {
    throw;
  } catch (const buzz::Error& error) {
    ADD_FAILURE() << "not a FileError: " << error.what();
    throw;
  }
}

}  // namespace model

/// The call is refused, with exactly this text after "buzz: ".
#define EXPECT_REFUSED(text, ...) \
  EXPECT_EQ(std::string("buzz: ") + (text), model::refused([&] { (void)(__VA_ARGS__); }))

/// The call is refused, and the text holds this.
#define EXPECT_REFUSED_WITH(part, ...)                                                  \
  EXPECT_NE(std::string::npos, model::refused([&] { (void)(__VA_ARGS__); }).find(part)) \
      << model::refused([&] { (void)(__VA_ARGS__); })
