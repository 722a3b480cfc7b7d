// buzz-trace FILE: replays a conformance trace (tests/golden/README.md) and prints its kept and score lines as the
// library computes them, so that a diff with the file's own is empty:
//
//     buzz-trace F | diff - <(grep -E '^(kept|score) ' F)

#include "trace.h"

#include <iostream>

int main(int argc, char** argv) { return trace::run({argv + 1, argv + argc}, std::cout, std::cerr); }
