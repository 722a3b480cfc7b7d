#pragma once

#include <gtest/gtest.h>

#include <string>

#include "buzz/error.h"
#include "call.h"

/// Calls f; it has to be refused for that field.
template <class Error = buzz::InvalidArgument>
void expect_refused_for(const std::string& field, Call f) {
  try {
    f();
    ADD_FAILURE() << field << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.field(), field) << error.what();
  }
}
