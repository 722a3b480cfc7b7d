// What both tokenizers do: neighbours are merged, the best pair first, until no two of them make a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace tiny_llama {

/// A stretch of a text; length 0 once it is merged into its left neighbour.
struct Symbol {
  std::size_t begin, length;
  std::int32_t id;  // its token; -1: none
  std::size_t previous = 0, next = 0;
};

/// What two neighbours would make: a token, and how soon, the highest first.
struct Made {
  float priority;
  std::int32_t id;
};

/// made(left, right): what they make, if anything. Of pairs of equal priority the leftmost is merged first. O(n log n).
template <class F>
void merge(std::vector<Symbol>& symbols, F&& made) {
  constexpr auto none = static_cast<std::size_t>(-1);
  struct Pair {
    Made made;
    std::size_t left, right;
    std::size_t length;  // of both; tells a pair that is out of date
    bool operator<(const Pair& other) const {
      return made.priority < other.made.priority || (made.priority == other.made.priority && left > other.left);
    }
  };
  std::priority_queue<Pair> queue;
  const auto propose = [&](std::size_t left, std::size_t right) {
    if (left == none || right == none) return;
    const std::optional<Made> m = made(symbols[left], symbols[right]);
    if (m.has_value()) queue.push({*m, left, right, symbols[left].length + symbols[right].length});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = i == 0 ? none : i - 1;
    symbols[i].next = i + 1 == symbols.size() ? none : i + 1;
  }
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) propose(i, i + 1);
  while (!queue.empty()) {
    const Pair best = queue.top();
    queue.pop();
    Symbol &left = symbols[best.left], &right = symbols[best.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
    left.length = best.length;
    left.id = best.made.id;
    right.length = 0;
    left.next = right.next;
    if (right.next != none) symbols[right.next].previous = best.left;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
}

}  // namespace tiny_llama
