#include <csignal>
#include <cstdlib>

#include "buzz.h"

// Without a handler a bad option aborts: the signal is what this program has to die of, and turns into its success.
int main() {
  std::signal(SIGABRT, [](int) { std::_Exit(0); });
  buzz::BeehiveOptions options;
  options.stride = 0;
  buzz::Evictor evictor(buzz::beehive(options), 1);
  return 1;
}
