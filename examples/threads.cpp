// buzz-threads: one cache's work on the caller's thread, on a pool's and on OpenMP's. The results are the same bits.
#include <buzz.h>

#include <cstdio>
#include <vector>

#include "openmp.h"
#include "thread_pool.h"

namespace {

const buzz::Shape shape{/*query_heads*/ 8, /*kv_heads*/ 2, /*head_dim*/ 64};
constexpr int pieces = 4;  // more than KV heads: their rows are split too

/// The output of the last of a thousand tokens.
std::vector<float> decode(buzz::Executor run) {
  buzz::AttentionOptions options;
  options.threads = pieces;
  buzz::BuzzCache<float> cache(shape, buzz::beehive(), buzz::Rope{10000.0}, options);
  std::vector<float> q(8 * 64), k(2 * 64), v(2 * 64), out(8 * 64);
  for (int token = 0; token < 1000; ++token) {
    for (std::size_t i = 0; i < q.size(); ++i)
      q[i] = static_cast<float>((token * 7 + static_cast<int>(i)) % 13 - 6) / 6;
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = v[i] = q[i + 64];
    cache.attend(buzz::view(q, 1, 8, 64), buzz::view(k, 1, 2, 64), buzz::view(v, 1, 2, 64), buzz::view(out, 1, 8, 64),
                 run);
  }
  return out;
}

}  // namespace

int main() {
  examples::ThreadPool pool(2);
  examples::OpenMp openmp;
  const std::vector<float> alone = decode({}), pooled = decode(pool), parallel = decode(openmp);
  std::printf("a pool's results are the same bits: %s\n", pooled == alone ? "yes" : "no");
  std::printf("OpenMP's results are the same bits: %s\n", parallel == alone ? "yes" : "no");
  return pooled == alone && parallel == alone ? 0 : 1;
}
