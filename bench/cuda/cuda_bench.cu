// Times on a GPU. What is compared is captured in graphs, which are launched in turn in one process, each over so many
// inputs that the L2 cache serves none; beside them a copy and a read of as many bytes. Medians of microseconds, and
// what share of the copy's and the read's rate that is: a JSON object a line. half, 32 over 8 heads of 128 where no
// other is named.
//
//     cuda_bench attend ROWS | decode | eviction | prefill
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../../tests/cuda/device.cuh"
#include "buzz/cuda.cuh"

namespace {

namespace cuda = buzz::cuda;
using T = __half;
using Cache = cuda::BuzzCache<T>;
constexpr int query_heads = 32, kv_heads = 8, dim = 128, rounds = 30, warm_up = 3;

/// A captured graph of what is launched on a stream.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& launches) {
    cudaGraph_t graph;
    BUZZ_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launches();
    BUZZ_MUST(cudaStreamEndCapture(stream, &graph));
    BUZZ_MUST(cudaGraphInstantiate(&exec_, graph, 0));
    BUZZ_MUST(cudaGraphDestroy(graph));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(exec_); }
  void launch(cudaStream_t stream) const { BUZZ_MUST(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// One of the things that are compared: work that is done `times` times in a launch of its graph, after before().
struct Side {
  Side(
      const char* n, cudaStream_t stream, int t, const std::function<void()>& launches, std::function<void()> b = [] {})
      : name(n), times(t), graph(std::make_unique<Graph>(stream, launches)), before(std::move(b)) {}
  std::string name;
  int times;
  std::unique_ptr<Graph> graph;
  std::function<void()> before;
};

/// What a line is about; `bytes`: what one piece of work has to move, 0: no rate is said; `flops`: what it computes.
struct Case {
  int batch, rows;
  double bytes = 0, flops = 0;
};

double at(std::vector<double> x, double share) {
  std::sort(x.begin(), x.end());
  return x[static_cast<std::size_t>(share * static_cast<double>(x.size() - 1) + 0.5)];
}

/// Times the sides in turn, in one order and then in the other, and prints a line of each. `copy` and `read`, by name,
/// are what rates are compared with, round by round.
void compare(const Case& c, const std::vector<Side>& sides, cudaStream_t stream) {
  cudaEvent_t begin, end;
  BUZZ_MUST(cudaEventCreate(&begin));
  BUZZ_MUST(cudaEventCreate(&end));
  std::vector<std::vector<double>> times(sides.size());
  for (int round = -warm_up; round < rounds; ++round)
    for (std::size_t k = 0; k < sides.size(); ++k) {
      const std::size_t i = round % 2 == 0 ? k : sides.size() - 1 - k;
      sides[i].before();
      BUZZ_MUST(cudaEventRecord(begin, stream));
      sides[i].graph->launch(stream);
      BUZZ_MUST(cudaEventRecord(end, stream));
      BUZZ_MUST(cudaEventSynchronize(end));
      float milliseconds = 0;
      BUZZ_MUST(cudaEventElapsedTime(&milliseconds, begin, end));
      if (round >= 0) times[i].push_back(static_cast<double>(milliseconds) * 1000 / sides[i].times);
    }
  BUZZ_MUST(cudaEventDestroy(begin));
  BUZZ_MUST(cudaEventDestroy(end));
  for (std::size_t i = 0; i < sides.size(); ++i) {
    std::printf("{\"name\": \"%s\", \"batch\": %d, \"rows\": %d, \"us\": %.3f, \"spread\": %.3f", sides[i].name.c_str(),
                c.batch, c.rows, at(times[i], 0.5), at(times[i], 0.75) - at(times[i], 0.25));
    if (c.bytes != 0) std::printf(", \"gb_per_s\": %.1f", c.bytes / at(times[i], 0.5) / 1000);
    if (c.flops != 0) std::printf(", \"tflops\": %.2f", c.flops / at(times[i], 0.5) / 1e6);
    for (std::size_t j = 0; j < sides.size(); ++j) {
      if (j == i || (sides[j].name != "copy" && sides[j].name != "read")) continue;
      std::vector<double> shares;
      for (std::size_t r = 0; r < times[i].size(); ++r) shares.push_back(times[j][r] / times[i][r]);
      std::printf(", \"of_%s\": %.3f", sides[j].name.c_str(), at(shares, 0.5));
    }
    std::printf("}\n");
  }
  std::fflush(stdout);
}

/// Random values of amplitude 1.
void fill(const device::Array<T>& x, std::size_t size) {
  std::mt19937 random(1);
  const std::vector<float> some = device::draw<T>(random, std::min<std::size_t>(size, 1 << 20), 1);
  const std::vector<T> block = device::as<T>(some);
  for (std::size_t from = 0; from < size; from += block.size())
    BUZZ_MUST(cudaMemcpy(x.data() + from, block.data(), std::min(block.size(), size - from) * sizeof(T),
                         cudaMemcpyHostToDevice));
}

/// Reads `count` times 16 bytes, and writes none of them.
__global__ void read_all(const uint4* from, long long count, unsigned* never) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned bits = 0;
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
    bits |= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += stride) bits |= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (bits == 1) *never = bits;
}

/// Policies that evict nothing before `rows` rows.
buzz::Policy beehive(int rows) {
  buzz::BeehiveOptions o;
  o.threshold = rows - o.sink - o.window;
  return buzz::beehive(o);
}
buzz::Policy full(int rows) { return buzz::policy("full:capacity=" + std::to_string(rows)); }

std::size_t elements(int a, int b, int c, int d) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
         static_cast<std::size_t>(d);
}

/// What the caches of a case have in common: sizes, room to work in, and the tensors of a call.
struct Common {
  Common(const buzz::Shape& s, int sequences, const buzz::Policy& p)
      : shape(s),
        policy(p),
        batch{sequences},
        workspace(Cache::bytes(shape, batch, policy).workspace),
        q(elements(sequences, shape.max_chunk, shape.query_heads, dim)),
        k(elements(sequences, shape.max_chunk, shape.kv_heads, dim)),
        v(elements(sequences, shape.max_chunk, shape.kv_heads, dim)),
        out(elements(sequences, shape.max_chunk, shape.query_heads, dim)) {
    fill(q, elements(sequences, shape.max_chunk, shape.query_heads, dim));
    fill(k, elements(sequences, shape.max_chunk, shape.kv_heads, dim));
    fill(v, elements(sequences, shape.max_chunk, shape.kv_heads, dim));
  }
  cuda::Tensor<const T> view(const device::Array<T>& x, int tokens, int heads) const {
    return cuda::dense(static_cast<const T*>(x.data()), tokens, heads, dim);
  }

  buzz::Shape shape;
  buzz::Policy policy;
  cuda::Batch batch;
  device::Array<char> workspace;
  device::Array<T> q, k, v, out;
};

/// A cache of a case.
struct Filled {
  Filled(const Common& common, cudaStream_t s)
      : c(common),
        stream(s),
        memory(Cache::bytes(c.shape, c.batch, c.policy).cache),
        cache(c.shape, c.batch, c.policy, {}, memory.data(), c.workspace.data()) {
    BUZZ_MUST(cache.reset(stream));
  }
  /// Appends up to `rows` rows, as many at a time as a call takes, the last `open` of them in a step that stays open.
  void grow(int rows, int open) {
    for (int left = rows - open; left > 0;) {
      const int tokens = std::min(left, c.shape.max_chunk);
      append(tokens);
      evict();
      left -= tokens;
    }
    if (open > 0) append(open);
  }
  void append(int tokens) {
    BUZZ_MUST(cache.append(c.view(c.k, tokens, c.shape.kv_heads), c.view(c.v, tokens, c.shape.kv_heads),
                           {tokens, 0, c.batch.sequences}, stream));
  }
  void attend(int tokens) {
    BUZZ_MUST(cache.attend(c.view(c.q, tokens, c.shape.query_heads),
                           cuda::dense(c.out.data(), tokens, c.shape.query_heads, dim), stream));
  }
  void evict() { BUZZ_MUST(cache.evict(stream)); }

  const Common& c;
  cudaStream_t stream;
  device::Array<char> memory;
  Cache cache;
};

/// So many caches that 512 MiB are gone through, 128 at most.
struct Set {
  Set(const Common& common, double bytes, cudaStream_t stream) {
    const int count = std::min(128, std::max(1, static_cast<int>(512e6 / bytes) + 1));
    for (int i = 0; i < count; ++i) all.push_back(std::make_unique<Filled>(common, stream));
  }
  template <class F>
  void each(F&& f) {
    for (const auto& filled : all) f(*filled);
  }
  int count() const { return static_cast<int>(all.size()); }
  std::vector<std::unique_ptr<Filled>> all;
};

/// The sides `copy`, of the first half of so many bytes of each cache over the second, and `read`, of all of them.
void add_plain(std::vector<Side>* sides, Set& set, double bytes, cudaStream_t stream) {
  const std::size_t half = static_cast<std::size_t>(bytes / 2);
  sides->emplace_back("copy", stream, set.count(), [&] {
    set.each([&](Filled& f) {
      BUZZ_MUST(cudaMemcpyAsync(f.memory.data() + half, f.memory.data(), half, cudaMemcpyDeviceToDevice, stream));
    });
  });
  int multiprocessors = 0;
  BUZZ_MUST(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  sides->emplace_back("read", stream, set.count(), [&] {
    set.each([&](Filled& f) {
      read_all<<<static_cast<unsigned>(multiprocessors) * 8, 256, 0, stream>>>(
          reinterpret_cast<const uint4*>(f.memory.data()), static_cast<long long>(half / 8),
          reinterpret_cast<unsigned*>(f.c.out.data()));
      BUZZ_MUST(cudaGetLastError());
    });
  });
}

/// Attention of one query a head.
void attend(int rows, cudaStream_t stream) {
  for (const int batch : {1, 8, 32, 64}) {
    const double bytes = 4.0 * kv_heads * dim * batch * rows;
    const buzz::Shape shape{query_heads, kv_heads, dim, std::min(rows, 512)};
    const Common scored(shape, batch, beehive(rows)), plain(shape, batch, full(rows));
    Set with(scored, bytes, stream), without(plain, bytes, stream);
    std::vector<Side> sides;
    for (Set* set : {&with, &without}) {
      set->each([&](Filled& f) { f.grow(rows, 1); });
      sides.emplace_back(set == &with ? "attention with sums" : "attention", stream, set->count(),
                         [&] { set->each([&](Filled& f) { f.attend(1); }); });
    }
    add_plain(&sides, without, bytes, stream);
    compare({batch, rows, bytes}, sides, stream);
  }
}

/// A whole decode step: append, attend, observe; and with the eviction's kernels, which find nothing to evict.
void decode(cudaStream_t stream) {
  const int rows = 564, batch = 1;
  const double bytes = 4.0 * kv_heads * dim * batch * rows;
  const Common common({query_heads, kv_heads, dim, 512}, batch, beehive(rows + warm_up + rounds + 2));
  Set open(common, bytes, stream), whole(common, bytes, stream);
  for (Set* set : {&open, &whole}) set->each([&](Filled& f) { f.grow(rows - 1, 0); });
  std::vector<Side> sides;
  // Without evict() a sequence stays as long as it is.
  sides.emplace_back("step", stream, open.count(), [&] {
    open.each([](Filled& f) {
      f.append(1);
      f.attend(1);
    });
  });
  sides.emplace_back("step with no eviction", stream, whole.count(), [&] {
    whole.each([](Filled& f) {
      f.append(1);
      f.attend(1);
      f.evict();
    });
  });
  add_plain(&sides, open, bytes, stream);
  compare({batch, rows, bytes}, sides, stream);
}

/// An eviction of 565 rows of 32 heads, beside a copy of the rows that move; before each all rows are appended anew.
void eviction(cudaStream_t stream) {
  const int heads = 32, rows = 565;
  for (const int batch : {1, 32}) {
    const Common common({heads, heads, dim, rows}, batch, buzz::beehive());
    Set set(common, 4.0 * heads * dim * batch * rows, stream);
    set.each([&](Filled& f) { f.grow(rows, rows); });
    const auto again = [&] {
      set.each([&](Filled& f) {
        BUZZ_MUST(f.cache.reset(stream));
        f.grow(rows, rows);
      });
    };
    std::vector<Side> sides;
    sides.emplace_back(
        "eviction", stream, set.count(), [&] { set.each([](Filled& f) { f.evict(); }); }, again);
    const int moved = set.all[0]->cache.rows(0) - common.policy.protect.sink;
    const std::size_t bytes = 2 * sizeof(T) * elements(heads, dim, batch, moved);
    sides.emplace_back("copy", stream, set.count(), [&] {
      set.each([&](Filled& f) {
        BUZZ_MUST(cudaMemcpyAsync(f.memory.data() + bytes, f.memory.data(), bytes, cudaMemcpyDeviceToDevice, stream));
      });
    });
    compare({batch, rows, 2 * static_cast<double>(bytes)}, sides, stream);
  }
}

/// The last 512 tokens of a prompt.
void prefill(cudaStream_t stream) {
  const int tokens = 512;
  for (const int rows : {512, 4096, 32768}) {
    const double flops = 4.0 * query_heads * dim * tokens * (rows - (tokens - 1) / 2.0);
    const buzz::Shape shape{query_heads, kv_heads, dim, tokens};
    const Common scored(shape, 1, beehive(rows)), plain(shape, 1, full(rows));
    Filled with(scored, stream), without(plain, stream);
    std::vector<Side> sides;
    for (Filled* filled : {&with, &without}) {
      filled->grow(rows, tokens);
      sides.emplace_back(filled == &with ? "prefill with sums" : "prefill", stream, 1, [&] { filled->attend(tokens); });
    }
    compare({1, rows, 0, flops}, sides, stream);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (!device::found()) return device::skipped;
  const std::string what = count > 1 ? arguments[1] : "";
  const int rows = count > 2 ? std::atoi(arguments[2]) : 0;
  cudaStream_t stream;
  BUZZ_MUST(cudaStreamCreate(&stream));
  if (what == "attend" && rows >= 564)
    attend(rows, stream);
  else if (what == "decode")
    decode(stream);
  else if (what == "eviction")
    eviction(stream);
  else if (what == "prefill")
    prefill(stream);
  else
    return std::fprintf(stderr, "cuda_bench attend ROWS (564 on) | decode | eviction | prefill\n"), 2;
}
