#include <cstdio>
#include <cstdlib>
#include <cstring>

// The text that the case shall be refused with; null where nothing shall be refused.
static const char* expected = nullptr;

[[noreturn]] static void refused(const char* message) {
  const bool right = expected != nullptr && std::strcmp(message, expected) == 0;
  if (!right) std::fprintf(stderr, "refused with: %s\nbut expected: %s\n", message, expected ? expected : "no error");
  std::_Exit(right ? 0 : 1);
}

#define BUZZ_ERROR_HANDLER(message) refused(message)
#include "buzz.h"

static void decode(int tokens) {
  buzz::FullOptions options;
  options.capacity = 8;
  buzz::BuzzCache<float> cache(buzz::Shape{2, 1, 4}, buzz::full(options));
  std::vector<float> q(8, 1.f), kv(4, 1.f), out(8);
  for (int i = 0; i < tokens; ++i)
    cache.attend(buzz::view(q, 1, 2, 4), buzz::view(kv, 1, 1, 4), buzz::view(kv, 1, 1, 4), buzz::view(out, 1, 2, 4));
}

// noexcept_handler CASE: 0 where the case is refused with its text, or, for nothing_bad, not refused.
int main(int argc, char** argv) {
  const std::string name = argc == 2 ? argv[1] : "";
  buzz::BeehiveOptions options;
  if (name == "nothing_bad") {
    decode(8);
    return 0;
  }
  if (name == "stride") {
    expected = "buzz: stride = 0, allowed: >= 1";
    options.stride = 0;
    buzz::Evictor evictor(buzz::beehive(options), 1);
  } else if (name == "heads") {
    expected = "buzz: query_heads = 3, allowed: a multiple of kv_heads = 2";
    buzz::BuzzCache<float> cache(buzz::Shape{3, 2, 4}, buzz::beehive(options));
  } else if (name == "view_count") {
    expected = "buzz: view.count = 7, allowed: 8 (shape[0] * shape[1] * shape[2])";
    std::vector<float> seven(7);
    buzz::view(seven, 1, 2, 4);
  } else if (name == "capacity") {
    expected = "buzz: rows = 9, allowed: 0 to 8";
    decode(9);
  }
  std::fprintf(stderr, "nothing was refused, but expected: %s\n", expected ? expected : "a case's name");
  return 1;
}
