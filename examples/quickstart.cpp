#include <buzz.h>

#include <cstdio>
#include <vector>

int main() {
  const buzz::Policy policy = buzz::fluency(buzz::FluencyOptions::for_rows(512));  // which rows stay
  buzz::BuzzCache<float> cache({/*query_heads*/ 8, /*kv_heads*/ 2, /*head_dim*/ 64}, policy, buzz::Rope{10000.0});
  std::vector<float> q(8 * 64, 0.1f), k(2 * 64, 0.2f), v(2 * 64, 0.3f), out(8 * 64);
  for (int token = 0; token < 10000; ++token)
    cache.attend(buzz::view(q, 1, 8, 64), buzz::view(k, 1, 2, 64), buzz::view(v, 1, 2, 64), buzz::view(out, 1, 8, 64));
  std::printf("%d tokens read, %d rows held, never more than %d\n", cache.next_position(), cache.rows(),
              cache.capacity());
}
