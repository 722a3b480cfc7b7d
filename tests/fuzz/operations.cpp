// Any sequence of operations on a policy or a cache, beside a model of it (model.h).

#include "buzz.h"
#include "cache_life.h"
#include "typed.h"

namespace {

using fuzz::Bytes;
using fuzz::CacheLife;
using fuzz::Kind;
using fuzz::PolicyLife;

using UserScores = typed::Policy<typed::UserScores, buzz::Segments>;

void live(int which, Bytes& in) {
  switch (which) {
    case 0:
      return PolicyLife<typed::Beehive>(in, Kind::beehive).run();
    case 1:
      return PolicyLife<typed::HeavyHitter>(in, Kind::heavy_hitter).run();
    case 2:
      return PolicyLife<typed::Streaming>(in, Kind::streaming).run();
    case 3:
      return PolicyLife<typed::Full>(in, Kind::full).run();
    case 4:
      return PolicyLife<typed::Strided>(in, Kind::strided).run();
    case 5:
      return PolicyLife<UserScores>(in, Kind::given).run();
    case 6:
      return CacheLife<float, typed::Beehive>(in, Kind::beehive).run();
    case 7:
      return CacheLife<Eigen::half, typed::Beehive>(in, Kind::beehive).run();
    case 8:
      return CacheLife<Eigen::bfloat16, typed::HeavyHitter>(in, Kind::heavy_hitter).run();
    case 9:
      return CacheLife<std::int8_t, typed::Beehive>(in, Kind::beehive).run();
    case 10:
      return CacheLife<float, typed::Streaming>(in, Kind::streaming).run();
    case 11:
      return CacheLife<std::int8_t, typed::DiverseBeehive>(in, Kind::diverse).run();
    case 12:
      return CacheLife<Eigen::half, typed::Full>(in, Kind::full).run();
    case 13:
      return CacheLife<Eigen::bfloat16, typed::Strided>(in, Kind::strided).run();
    case 14:
      return CacheLife<float, UserScores>(in, Kind::given).run();
    case 15:
      return CacheLife<float, typed::KeyDiff>(in, Kind::key_diff).run();
    default:
      return CacheLife<std::int8_t, typed::KeyValueBeehive>(in, Kind::key_value).run();
  }
}

void report() { std::fprintf(stderr, "%llu operations\n", static_cast<unsigned long long>(fuzz::operations)); }

}  // namespace

/// libFuzzer's alone.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes in(data, size);
  live(in.in(0, 16), in);
  return 0;
}
