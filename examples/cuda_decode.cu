// A decode loop on a GPU: one layer, two sequences, a step captured once in a graph and launched for every token. The
// host never waits for the device and always knows how many rows each sequence holds.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "buzz/cuda.cuh"

namespace {

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* allocate(std::size_t size) {
  void* data = nullptr;
  must(cudaMalloc(&data, size * sizeof(T)));
  must(cudaMemset(data, 0, size * sizeof(T)));
  return static_cast<T*>(data);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("No GPU here: nothing was run.\n");
    return 0;
  }
  const buzz::Shape shape{/*query_heads*/ 8, /*kv_heads*/ 2, /*head_dim*/ 64};
  buzz::cuda::Batch batch;
  batch.sequences = 2;
  const buzz::Rope rope{10000.0};
  using Cache = buzz::cuda::BuzzCache<__half>;
  const buzz::Policy policy = buzz::beehive();
  const buzz::cuda::Bytes bytes = Cache::bytes(shape, batch, policy, rope);  // all there will ever be
  Cache cache(shape, batch, policy, rope, allocate<char>(bytes.cache), allocate<char>(bytes.workspace));

  cudaStream_t stream;
  must(cudaStreamCreate(&stream));
  must(cache.reset(stream));

  // Where the engine's kernels leave a token's q, k, v and find its output: [sequences, 1, heads, head_dim].
  __half *q = allocate<__half>(2 * 8 * 64), *k = allocate<__half>(2 * 2 * 64), *v = allocate<__half>(2 * 2 * 64);
  __half* out = allocate<__half>(2 * 8 * 64);
  const buzz::cuda::Call call{/*tokens*/ 1, /*first*/ 0, /*count*/ 2};

  cudaGraph_t graph;
  cudaGraphExec_t step;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  must(cache.attend(buzz::cuda::dense<const __half>(q, 1, 8, 64), buzz::cuda::dense<const __half>(k, 1, 2, 64),
                    buzz::cuda::dense<const __half>(v, 1, 2, 64), buzz::cuda::dense(out, 1, 8, 64), call, stream));
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&step, graph, 0));

  int most = 0;
  for (int token = 0; token < 1000; ++token) {
    if (token > 0) must(cache.replayed(call));  // the capture was the first
    must(cudaGraphLaunch(step, stream));
    most = cache.rows(0) > most ? cache.rows(0) : most;
  }
  must(cudaStreamSynchronize(stream));
  std::printf("1000 tokens read, %d rows held after the last, %d after any, capacity %d\n", cache.rows(0), most,
              cache.capacity());
}
