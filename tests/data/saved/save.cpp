// Writes the caches of saved_caches.h as the library that it is compiled with saves them; README.md says how.

#include <cstdio>

#include "saved_caches.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: save FOLDER\n"), 2;
  saved::for_each([&](const std::string& name, auto cache) {
    saved::calls(cache, 20);
    cache.pin(cache.next_position(), 1);
    buzz::save_file(cache, std::string(argv[1]) + "/" + name + ".buzz");
  });
}
