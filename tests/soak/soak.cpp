// A million tokens through one cache: soak [tokens]. Says what it found, and returns 1 where something is not as it
// has to be.
//
// First the cache alone: after each 10,000th token rows, bytes and resident memory must be what they were after the
// first eviction, and the mean time of a token in the last tenth within 5% of the first tenth's, warm-up apart. Other
// programs make a machine faster and slower meanwhile; so a second cache, reset at each 10,000th token, takes turns
// with the first, and what its tokens take in the same tenths is the measure. Then, after a reset, the same tokens
// beside the oracle: positions must be its at every 10,000th token, and those of the first time.

#include <cstdio>
#include <ctime>
#include <fstream>

#if defined(__unix__)
#include <unistd.h>
#endif

#include "oracle_twin.h"

namespace {

using Cache = buzz::BuzzCache<float>;

constexpr int kStep = 10000, kTurn = 250, kTexts = 997, kDim = 32;

oracle::Config config() {
  oracle::Config c;
  oracle::Options& o = c.oracle;
  o.head_dim = kDim;
  o.sink = 4;
  o.window = 64;
  o.threshold = 128;
  o.stride = 5;
  o.hive_stride = 3;
  o.scale = 1 / std::sqrt(static_cast<double>(kDim));
  return c;
}

buzz::Rope rope() {
  buzz::Rope r{10000.0};
  r.positions = buzz::Positions::compact;
  return r;
}

/// Queries, keys and values of kTexts tokens, over and over.
struct Tokens {
  std::vector<float> q, k, v;
  Tokens() {
    const oracle::Text text;
    q = text.queries(0, kTexts, 1, kDim);
    k = text.keys(0, kTexts, 1, kDim);
    v = text.values(0, kTexts, 1, kDim);
  }
  static buzz::View<const float> of(const std::vector<float>& all, int token) {
    return {all.data() + token % kTexts * kDim, 1, 1, kDim};
  }
};

/// Resident memory in bytes, what is mapped from files apart (code is read in as it is run); 0 where it cannot be told.
long long resident() {
#if defined(__unix__)
  std::ifstream statm("/proc/self/statm");
  long long pages = 0, in_memory = 0, of_files = 0;
  if (statm >> pages >> in_memory >> of_files) return (in_memory - of_files) * sysconf(_SC_PAGESIZE);
#endif
  return 0;
}

/// What was seen at a 10,000th token; made before the first, so that looking takes no memory.
struct Look {
  int most_rows = 0;
  std::size_t bytes = 0;
  long long resident = 0;
  std::uint64_t positions = 0;  // their checksum
  double time = 0, young = 0;   // nanoseconds of processor time a token since the last look; the young cache's
};

std::uint64_t checksum(const Cache& cache) {
  buzz::Checksum sum;
  const auto p = cache.positions(0);
  sum.add(reinterpret_cast<const unsigned char*>(p.data), static_cast<std::size_t>(p.size) * sizeof(std::int32_t));
  return sum.value();
}

void attend(Cache& cache, const Tokens& tokens, int token) {
  static float out[kDim];
  cache.attend(Tokens::of(tokens.q, token), Tokens::of(tokens.k, token), Tokens::of(tokens.v, token),
               buzz::View<float>(out, 1, 1, kDim));
}

/// Nanoseconds of processor time that kTurn tokens from `first` on take; `most`: the most rows after one of them.
double turn(Cache& cache, const Tokens& tokens, int first, int* most) {
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kTurn; ++i) {
    attend(cache, tokens, first + i);
    *most = std::max(*most, cache.rows());
  }
  return 1e9 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

std::vector<Look> run_alone(Cache& cache, const Tokens& tokens, int total, long long* after_first_eviction) {
  std::vector<Look> looks(static_cast<std::size_t>(total / kStep));
  Cache young = cache.fork();
  resident();  // what looking takes, it has taken
  for (std::size_t step = 0; step < looks.size(); ++step) {
    Look& look = looks[step];
    young.reset();
    for (int i = 0; i < kStep; i += kTurn) {
      const int first = static_cast<int>(step) * kStep + i;
      look.time += turn(cache, tokens, first, &look.most_rows) / kStep;
      look.young += turn(young, tokens, first, &look.most_rows) / kStep;
      if (*after_first_eviction == 0 && cache.regions().hive > 0) *after_first_eviction = resident();
    }
    look.bytes = cache.bytes();
    look.resident = resident();
    look.positions = checksum(cache);
  }
  return looks;
}

int failures = 0;
void expect(bool good, const char* what) {
  std::printf("%-60s %s\n", what, good ? "yes" : "NO");
  failures += !good;
}

void check_memory(const std::vector<Look>& looks, std::size_t bytes, long long after_first_eviction) {
  const oracle::Options o = config().oracle;
  bool bounded = true, same = true;
  long long most = 0;
  for (const Look& look : looks) {
    bounded &= look.most_rows <= o.sink + o.window + o.threshold;
    same &= look.bytes == bytes;
    most = std::max(most, look.resident);
  }
  expect(bounded, "rows are within sink + window + threshold after every call");
  expect(same, "bytes() is what it was at the start");
  if (most == 0) return void(std::puts("resident memory cannot be told here"));
  std::printf("resident: %lld bytes after the first eviction, at most %lld later\n", after_first_eviction, most);
  expect(most <= after_first_eviction, "resident memory is flat after the first eviction");
}

/// The mean of a time over the tenth of the steps that begins at `first`.
double tenth(const std::vector<Look>& looks, std::size_t first, double Look::*time) {
  double sum = 0;
  const std::size_t count = looks.size() / 10;
  for (std::size_t i = first; i < first + count; ++i) sum += looks[i].*time;
  return sum / static_cast<double>(count);
}

void check_time(const std::vector<Look>& looks) {
  const std::size_t first = std::max<std::size_t>(1, looks.size() / 50), last = looks.size() - looks.size() / 10;
  const double a = tenth(looks, first, &Look::time), b = tenth(looks, last, &Look::time);
  const double young_a = tenth(looks, first, &Look::young), young_b = tenth(looks, last, &Look::young);
  const double change = 100 * (b / a - 1), beside = 100 * (b / young_b / (a / young_a) - 1);
  std::printf("a token takes %.0f ns in the first tenth after warm-up, %.0f in the last: %+.1f%%\n", a, b, change);
  std::printf("one of the young cache %.0f and %.0f: beside it the change is %+.1f%%\n", young_a, young_b, beside);
  expect(std::fabs(beside) <= 5, "a token of the last tenth takes what one of the first took, within 5%");
}

/// Throws oracle::Mismatch where an eviction kept other rows than the oracle's.
void check_positions(Cache& cache, const Tokens& tokens, const std::vector<Look>& looks) {
  cache.reset();
  const oracle::Options o = config().oracle;
  oracle::Life life(o, oracle::rotation_of(rope(), kDim, false));
  bool oracles = true, again = true;
  int near_ties = 0, evictions = 0;
  for (int token = 0; token < static_cast<int>(looks.size()) * kStep; ++token) {
    const auto one = [token](const std::vector<float>& all) {
      const float* x = Tokens::of(all, token).row(0, 0);
      return oracle::tokens_of(std::vector<float>(x, x + kDim), 1, kDim);
    };
    attend(cache, tokens, token);
    life.append(one(tokens.k), one(tokens.v));
    life.attend(one(tokens.q));
    life.observe();
    if (life.should_evict()) {
      ++evictions;
      life.evict({oracle::follow(cache, life, 0, false, &near_ties)});
    }
    if ((token + 1) % kStep != 0) continue;
    oracles &= cache.rows() == life.rows() && cache.next_position() == life.next_position();
    for (int i = 0; oracles && i < life.rows(); ++i)
      oracles &= cache.positions(0)[i] == life.head(0)[static_cast<std::size_t>(i)].position;
    again &= checksum(cache) == looks[static_cast<std::size_t>(token / kStep)].positions;
    if (!oracles) break;
  }
  std::printf("%d evictions; %d times float rounding tipped a near tie\n", evictions, near_ties);
  expect(oracles, "positions are the oracle's at every 10,000th token");
  expect(again, "after a reset they are the same again");
}

}  // namespace

int main(int argc, char** argv) {
  const int total = argc > 1 ? std::atoi(argv[1]) : 1000000;
  if (argc > 2 || total < 10 * kStep || total % kStep != 0) {
    std::fprintf(stderr, "usage: soak [tokens], a multiple of %d and at least %d\n", kStep, 10 * kStep);
    return 2;
  }
  const oracle::Config c = config();
  const Tokens tokens;
  Cache cache(library_shape(c), oracle::library_policy(c), rope());
  const std::size_t bytes = cache.bytes();
  long long after_first_eviction = 0;
  const std::vector<Look> looks = run_alone(cache, tokens, total, &after_first_eviction);
  std::printf("%d tokens, %d rows, %zu bytes\n", total, cache.rows(), bytes);
  check_memory(looks, bytes, after_first_eviction);
  check_time(looks);
  try {
    check_positions(cache, tokens, looks);
  } catch (const oracle::Mismatch& mismatch) {
    expect(false, mismatch.what());
  }
  return failures == 0 ? 0 : 1;
}
