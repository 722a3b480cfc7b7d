// Any sequence of operations on a policy or a cache, beside a model of it (model.h).

#include "cache_life.h"

namespace {

using fuzz::Bytes;
using fuzz::CacheLife;
using fuzz::Kind;
using fuzz::PolicyLife;

void live(int which, Bytes& in) {
  constexpr Kind policies[] = {Kind::beehive, Kind::heavy_hitter, Kind::streaming,
                               Kind::full,    Kind::strided,      Kind::given};
  if (which < 6) return PolicyLife(in, policies[which]).run();
  switch (which) {
    case 6:
      return CacheLife<float>(in, Kind::beehive).run();
    case 7:
      return CacheLife<Eigen::half>(in, Kind::beehive).run();
    case 8:
      return CacheLife<Eigen::bfloat16>(in, Kind::heavy_hitter).run();
    case 9:
      return CacheLife<std::int8_t>(in, Kind::beehive).run();
    case 10:
      return CacheLife<float>(in, Kind::streaming).run();
    case 11:
      return CacheLife<std::int8_t>(in, Kind::diverse).run();
    case 12:
      return CacheLife<Eigen::half>(in, Kind::full).run();
    case 13:
      return CacheLife<Eigen::bfloat16>(in, Kind::strided).run();
    case 14:
      return CacheLife<float>(in, Kind::given).run();
    case 15:
      return CacheLife<float>(in, Kind::key_diff).run();
    default:
      return CacheLife<std::int8_t>(in, Kind::key_value).run();
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
