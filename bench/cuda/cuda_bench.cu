// Times on a GPU, by CUDA events: medians of repeated runs, each of another set of inputs, so that the L2 cache serves
// none. One JSON object a line. half, 32 over 8 heads of 128.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../../tests/cuda/device.cuh"
#include "buzz/cuda.cuh"

namespace {

namespace cuda = buzz::cuda;
using T = __half;
constexpr int query_heads = 32, kv_heads = 8, dim = 128, repeats = 30, runs = 5 + repeats;

/// The median time of run(i), microseconds, of which before(i) is not a part; i counts up to `runs`, so that runs can
/// take turns with their inputs.
template <class Run, class Before>
double median(cudaStream_t stream, Run&& run, Before&& before) {
  std::vector<float> times;
  cudaEvent_t begin, end;
  BUZZ_MUST(cudaEventCreate(&begin));
  BUZZ_MUST(cudaEventCreate(&end));
  for (int i = 0; i < runs; ++i) {
    before(i);
    BUZZ_MUST(cudaEventRecord(begin, stream));
    run(i);
    BUZZ_MUST(cudaEventRecord(end, stream));
    BUZZ_MUST(cudaEventSynchronize(end));
    float milliseconds = 0;
    BUZZ_MUST(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= runs - repeats) times.push_back(milliseconds);
  }
  BUZZ_MUST(cudaEventDestroy(begin));
  BUZZ_MUST(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]) * 1000;
}

template <class Run>
double median(cudaStream_t stream, Run&& run) {
  return median(stream, run, [](int) {});
}

/// A captured graph of what is launched on a stream.
class Graph {
 public:
  template <class Launches>
  Graph(cudaStream_t stream, Launches&& launches) {
    cudaGraph_t graph;
    BUZZ_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launches();
    BUZZ_MUST(cudaStreamEndCapture(stream, &graph));
    BUZZ_MUST(cudaGraphInstantiate(&exec_, graph, 0));
    BUZZ_MUST(cudaGraphDestroy(graph));
  }
  void launch(cudaStream_t stream) const { BUZZ_MUST(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// Random values of amplitude 1.
void fill(const device::Array<T>& x, std::size_t size) {
  std::mt19937 random(1);
  const std::vector<float> some = device::draw<T>(random, std::min<std::size_t>(size, 1 << 16), 1);
  const std::vector<T> block = device::as<T>(some);
  for (std::size_t at = 0; at < size; at += block.size())
    BUZZ_MUST(
        cudaMemcpy(x.data() + at, block.data(), std::min(block.size(), size - at) * sizeof(T), cudaMemcpyHostToDevice));
}

/// Bytes a microsecond of a copy on the device, read and written counted.
double copy_rate(cudaStream_t stream) {
  const std::size_t bytes = 1u << 30;
  const device::Array<char> from(bytes), to(bytes);
  const double time = median(stream, [&](int) {
    BUZZ_MUST(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream));
  });
  return 2 * static_cast<double>(bytes) / time;
}

/// Policies that evict nothing before `rows` rows.
buzz::Policy beehive(int rows) {
  buzz::BeehiveOptions o;
  o.threshold = rows - o.sink - o.window;
  return buzz::beehive(o);
}
buzz::Policy full(int rows) { return buzz::policy("full:capacity=" + std::to_string(rows + 1)); }

/// A cache whose sequences have `rows` rows, appended 512 at a time, and a token's tensors.
struct Filled {
  using Cache = cuda::BuzzCache<T>;
  Filled(int sequences, int rows, const buzz::Policy& policy, cudaStream_t stream)
      : shape{query_heads, kv_heads, dim, rows < 512 ? rows : 512},
        batch{sequences},
        memory(Cache::bytes(shape, batch, policy).cache),
        workspace(Cache::bytes(shape, batch, policy).workspace),
        cache(shape, batch, policy, {}, memory.data(), workspace.data()),
        q(static_cast<std::size_t>(sequences) * query_heads * dim),
        out(static_cast<std::size_t>(sequences) * query_heads * dim) {
    fill(q, static_cast<std::size_t>(sequences) * query_heads * dim);
    BUZZ_MUST(cache.reset(stream));
    const std::size_t size =
        static_cast<std::size_t>(sequences) * static_cast<std::size_t>(shape.max_chunk) * kv_heads * dim;
    const device::Array<T> k(size), v(size);
    fill(k, size);
    fill(v, size);
    for (int left = rows - 1; left > 0;) {
      const int tokens = std::min(left, shape.max_chunk);
      add(k, v, tokens, stream);
      BUZZ_MUST(cache.evict(stream));
      left -= tokens;
    }
    add(k, v, 1, stream);  // and leaves the step open
    BUZZ_MUST(cudaStreamSynchronize(stream));
  }
  void add(const device::Array<T>& k, const device::Array<T>& v, int tokens, cudaStream_t stream) {
    const auto view = [&](const device::Array<T>& x) {
      return cuda::dense(static_cast<const T*>(x.data()), tokens, kv_heads, dim);
    };
    BUZZ_MUST(cache.append(view(k), view(v), {tokens, 0, batch.sequences}, stream));
  }
  /// The next token's step, whose keys and values are of q; attend() comes once in each.
  void next(cudaStream_t stream) {
    BUZZ_MUST(cache.evict(stream));
    add(q, q, 1, stream);
  }
  void attend(cudaStream_t stream) {
    BUZZ_MUST(cache.attend(cuda::dense(static_cast<const T*>(q.data()), 1, query_heads, dim),
                           cuda::dense(out.data(), 1, query_heads, dim), stream));
  }

  buzz::Shape shape;
  cuda::Batch batch;
  device::Array<char> memory, workspace;
  Cache cache;
  device::Array<T> q, out;
};

/// Attention of one query a head, over as many caches in turn as make 256 MiB at least; a row more at each turn.
double attention(const buzz::Policy& policy, int sequences, int rows, cudaStream_t stream) {
  const double bytes = 4.0 * kv_heads * dim * sequences * rows;
  const int sets = std::min(64, std::max(2, static_cast<int>(256e6 / bytes) + 1));
  std::vector<std::unique_ptr<Filled>> caches;
  for (int i = 0; i < sets; ++i) caches.push_back(std::make_unique<Filled>(sequences, rows, policy, stream));
  const auto turn = [&](int i) -> Filled& { return *caches[static_cast<std::size_t>(i % sets)]; };
  return median(
      stream, [&](int i) { turn(i).attend(stream); },
      [&](int i) {
        if (i >= sets) turn(i).next(stream);
      });
}

/// A whole decode step in a graph, as it is (with_eviction: the eviction's kernels too, which find nothing to evict).
double step(bool with_eviction, cudaStream_t stream) {
  Filled filled(1, 564, beehive(564), stream);
  BUZZ_MUST(filled.cache.evict(stream));
  BUZZ_MUST(filled.cache.reset(stream));
  const device::Array<T> k(kv_heads * dim), v(kv_heads * dim);
  fill(k, kv_heads * dim);
  fill(v, kv_heads * dim);
  for (int i = 0; i < 400; ++i) {
    filled.add(k, v, 1, stream);
    BUZZ_MUST(filled.cache.evict(stream));
  }
  const Graph graph(stream, [&] {
    filled.add(k, v, 1, stream);
    filled.attend(stream);
    if (with_eviction) BUZZ_MUST(filled.cache.evict(stream));
  });
  return median(stream, [&](int) { graph.launch(stream); });
}

/// An eviction of 565 rows to 246 of 32 heads: a cache evicted once can not be again, so that each run has its own.
double eviction(int sequences, cudaStream_t stream) {
  using Cache = cuda::BuzzCache<T>;
  const buzz::Shape shape{32, 32, dim, 565};
  const cuda::Batch batch{sequences};
  const device::Array<char> memory(Cache::bytes(shape, batch, buzz::beehive()).cache);
  const device::Array<char> workspace(Cache::bytes(shape, batch, buzz::beehive()).workspace);
  Cache cache(shape, batch, buzz::beehive(), {}, memory.data(), workspace.data());
  const std::size_t size = static_cast<std::size_t>(sequences) * 565 * 32 * dim;
  const device::Array<T> k(size), v(size);
  fill(k, size);
  fill(v, size);
  std::vector<float> times;
  cudaEvent_t begin, end;
  BUZZ_MUST(cudaEventCreate(&begin));
  BUZZ_MUST(cudaEventCreate(&end));
  for (int i = 0; i < repeats; ++i) {
    BUZZ_MUST(cache.reset(stream));
    BUZZ_MUST(cache.append(cuda::dense(static_cast<const T*>(k.data()), 565, 32, dim),
                           cuda::dense(static_cast<const T*>(v.data()), 565, 32, dim), {565, 0, sequences}, stream));
    BUZZ_MUST(cudaEventRecord(begin, stream));
    BUZZ_MUST(cache.evict(stream));
    BUZZ_MUST(cudaEventRecord(end, stream));
    BUZZ_MUST(cudaEventSynchronize(end));
    float milliseconds = 0;
    BUZZ_MUST(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]) * 1000;
}

void say(const std::string& name, int batch, int rows, double value) {
  std::printf("{\"name\": \"%s\", \"batch\": %d, \"rows\": %d, \"value\": %.3f}\n", name.c_str(), batch, rows, value);
  std::fflush(stdout);
}

}  // namespace

int main() {
  if (!device::found()) return device::skipped;
  cudaStream_t stream;
  BUZZ_MUST(cudaStreamCreate(&stream));
  say("copy, GB/s", 0, 0, copy_rate(stream) / 1000);
  for (const int batch : {1, 32})
    for (const int rows : {564, 4096, 32768}) {
      say("attention with sums, us", batch, rows, attention(beehive(rows + runs), batch, rows, stream));
      say("attention, us", batch, rows, attention(full(rows + runs), batch, rows, stream));
    }
  say("step, us", 1, 564, step(false, stream));
  say("step with no eviction, us", 1, 564, step(true, stream));
  for (const int batch : {1, 32}) say("eviction, us", batch, 565, eviction(batch, stream));
}
