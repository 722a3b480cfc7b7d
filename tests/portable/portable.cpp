// portable write PATH: caches of every type, on this machine, into one file.
// portable check PATH: the same caches, made by whatever machine: each loads, is what the writer says in plain numbers
// that it was, and saves as the same bytes.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "buzz.h"

namespace {

const buzz::Shape kShape{/*query_heads*/ 4, /*kv_heads*/ 2, /*head_dim*/ 6, /*max_chunk*/ 4, /*max_rollback*/ 2};

template <class T>
buzz::BuzzCache<T> empty() {
  buzz::Options o;
  o.sink = 2;
  o.window = 5;
  o.threshold = 11;
  return buzz::BuzzCache<T>(kShape, o, buzz::Rope{10000.0});
}

std::vector<float> numbers(int count, int from) {
  std::vector<float> all;
  for (int i = 0; i < count; ++i) all.push_back(static_cast<float>((from + i) * 37 % 101 - 50) / 8);
  return all;
}

template <class T>
buzz::BuzzCache<T> filled() {
  buzz::BuzzCache<T> cache = empty<T>();
  for (int call = 0; call < 9; ++call) {
    const int n = 1 + call % 4;
    std::vector<float> q = numbers(n * 24, call), k = numbers(n * 12, call + 50), v = numbers(n * 12, call + 70),
                       out(q);
    cache.attend(buzz::view(q, n, 4, 6), buzz::view(k, n, 2, 6), buzz::view(v, n, 2, 6), buzz::view(out, n, 4, 6));
  }
  cache.pin(20, 3);
  return cache;
}

/// Positions, scores and rows as text, exactly.
template <class T>
std::string told(const buzz::BuzzCache<T>& cache) {
  std::ostringstream out;
  out << std::hexfloat << cache.rows() << ' ' << cache.next_position();
  for (int h = 0; h < kShape.kv_heads; ++h) {
    for (std::int32_t p : cache.positions(h)) out << ' ' << p;
    for (auto s : cache.scores(h)) out << ' ' << s;
    for (int r = 0; r < cache.rows(); ++r)
      for (int i = 0; i < kShape.head_dim; ++i)
        out << ' ' << static_cast<float>(cache.keys().row(h, r)[i]) << ' '
            << static_cast<float>(cache.values().row(h, r)[i]);
  }
  return out.str();
}

/// Text of any length, in a line of its own before as many bytes.
void put(std::ostream& out, const std::string& bytes) { out << bytes.size() << '\n' << bytes; }
std::string get(std::istream& in) {
  std::size_t size = 0;
  in >> size;
  in.get();
  std::string bytes(size, '\0');
  in.read(&bytes[0], static_cast<std::streamsize>(size));
  return bytes;
}

template <class T>
std::string saved(const buzz::BuzzCache<T>& cache) {
  std::ostringstream out;
  cache.save(out);
  return out.str();
}

template <class T>
void write(std::ostream& out) {
  const buzz::BuzzCache<T> cache = filled<T>();
  put(out, saved(cache));
  put(out, told(cache));
}

template <class T>
bool check(std::istream& in, const char* type) {
  const std::string bytes = get(in), text = get(in);
  buzz::BuzzCache<T> cache = empty<T>();
  std::istringstream stream(bytes);
  cache.load(stream);
  const bool same_text = told(cache) == text, same_bytes = saved(cache) == bytes;
  std::printf("%s: %zu bytes, %s, %s\n", type, bytes.size(), same_text ? "read as written" : "READ AS SOMETHING ELSE",
              same_bytes ? "saved as they were" : "SAVED AS OTHERS");
  return same_text && same_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what == "write") {
    std::ofstream out(argv[2], std::ios::binary);
    write<float>(out);
    write<Eigen::half>(out);
    write<Eigen::bfloat16>(out);
    write<std::int8_t>(out);
    return out.flush() ? 0 : 1;
  }
  if (what == "check") {
    std::ifstream in(argv[2], std::ios::binary);
    const bool good[] = {check<float>(in, "float"), check<Eigen::half>(in, "half"),
                         check<Eigen::bfloat16>(in, "bfloat16"), check<std::int8_t>(in, "int8")};
    return in && good[0] && good[1] && good[2] && good[3] ? 0 : 1;
  }
  std::fprintf(stderr, "usage: portable write PATH | portable check PATH\n");
  return 2;
}
