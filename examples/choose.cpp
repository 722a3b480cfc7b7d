#include <buzz.h>

#include <cstdio>

int main(int argc, char** argv) try {
  const buzz::Policy policy = buzz::policy(argc > 1 ? argv[1] : "fluency");
  buzz::BuzzCache<float> cache({/*query_heads*/ 1, /*kv_heads*/ 1, /*head_dim*/ 4}, policy);
  float token[4] = {1, 2, 3, 4}, out[4];
  const buzz::View<const float> x(token, 1, 1, 4);
  for (int t = 0; t < 1000; ++t) cache.attend(x, x, x, buzz::View<float>(out, 1, 1, 4));
  std::printf("%s: %d of 1000 rows are left\n", buzz::to_text(policy).c_str(), cache.rows());
} catch (const buzz::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 2;
}
