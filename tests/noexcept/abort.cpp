#include <csignal>
#include <cstdlib>

#include "buzz.h"

// Without a handler what is refused aborts: the signal is what this program has to die of, and turns into its success.
int main() {
  std::signal(SIGABRT, [](int) { std::_Exit(0); });
  std::vector<float> seven(7);
  buzz::view(seven, 1, 2, 4);
  return 1;
}
