// What was refused, and in which words.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "buzz/error.h"
#include "call.h"

namespace model {

/// The text of the error that the call throws; fails where it throws none.
inline std::string refused(Call call) {
  try {
    call();
  } catch (const buzz::Error& error) {
    EXPECT_FALSE(error.field().empty());
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

/// Is the call refused with exactly this text, or with one that holds it?
inline testing::AssertionResult refuses(Call call, const std::string& text) {
  const std::string its = refused(call);
  return (its == text ? testing::AssertionSuccess() : testing::AssertionFailure() << "not \"" << text << "\" but \"")
         << its << "\"";
}
inline testing::AssertionResult refuses_with(Call call, const std::string& part) {
  const std::string its = refused(call);
  return (its.find(part) != its.npos ? testing::AssertionSuccess()
                                     : testing::AssertionFailure() << "no \"" << part << "\" in \"")
         << its << "\"";
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
  EXPECT_TRUE(model::refuses([&] { (void)(__VA_ARGS__); }, std::string("buzz: ") + (text)))

/// The call is refused, and the text holds this.
#define EXPECT_REFUSED_WITH(part, ...) EXPECT_TRUE(model::refuses_with([&] { (void)(__VA_ARGS__); }, part))
