#include "tiny_llama/cache.h"

namespace tiny_llama {

template class CacheOf<float>;
template class CacheOf<Eigen::half>;
template class CacheOf<Eigen::bfloat16>;

}  // namespace tiny_llama
