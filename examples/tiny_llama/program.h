// How the programs begin and end.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "buzz/error.h"

namespace tiny_llama {

/// Parses the command line and calls run(). Returns the exit code: 2 with a sentence where something was refused.
template <class Run>
int run_program(CLI::App& app, int argc, char** argv, Run&& run) {
  try {
    app.parse(argc, argv);
    run();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const buzz::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << "\n";
    return 2;
  }
  return 0;
}

}  // namespace tiny_llama
