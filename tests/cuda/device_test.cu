// The device against the library on the host. Inputs are fresh at each run: device_test [SEED] repeats one. It ends
// with 77 where there is no GPU.
#include <cmath>
#include <cstring>
#include <string>

#include "buzz/cuda.cuh"
#include "device.cuh"
#include "host.h"

namespace {

namespace cuda = buzz::cuda;
int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  if (++failures <= 20) std::printf("FAILED: %s\n", what.c_str());
}

template <class T>
struct Twin {
  using Cache = cuda::BuzzCache<T>;
  Twin(const buzz::Shape& its_shape, int sequences, const buzz::Policy& policy, const buzz::Rope& rope = {},
       const buzz::AttentionOptions& options = {})
      : shape(its_shape),
        memory(Cache::bytes(shape, batch(sequences), policy, rope).cache),
        workspace(Cache::bytes(shape, batch(sequences), policy, rope).workspace),
        cache(shape, batch(sequences), policy, rope, memory.data(), workspace.data(), options) {
    BUZZ_MUST(cache.reset(nullptr));
  }
  static cuda::Batch batch(int sequences) {
    cuda::Batch b;
    b.sequences = sequences;
    return b;
  }
  std::vector<int> positions(int sequence) const {
    return device::Array<int>::get(cache.positions(sequence),
                                   static_cast<std::size_t>(shape.kv_heads * cache.capacity()));
  }

  buzz::Shape shape;
  device::Array<char> memory, workspace;
  Cache cache;
};

/// Kept rows, element for element, for the same scores: given probabilities are multiples of 1/64, whose sums are
/// exact, so that there are ties to break. Then K and V are the rows of those positions, bit for bit.
void same_rows(const buzz::Policy& policy, std::mt19937& random, int head_dim, int steps = 30, int group = 2) {
  const buzz::Shape s{2 * group, 2, head_dim, 40};
  Twin<float> twin(s, 2, policy);
  std::unique_ptr<host::Chooser> hosts[2];
  std::vector<float> keys[2], values[2];  // [positions, kv_heads, head_dim]
  for (auto& h : hosts) h = host::make_chooser(s, policy);
  int evictions = 0;
  for (int step = 0; step < steps; ++step) {
    // The second sequence joins later, so that lengths differ.
    cuda::Call call;
    call.tokens = step % 3 == 0 ? 40 : 1 + step % 7;
    call.first = step % 4 == 1 ? 1 : 0;
    call.count = step < 6 || step % 4 == 1 ? 1 : 2;
    const std::size_t row = static_cast<std::size_t>(s.kv_heads * head_dim),
                      size = static_cast<std::size_t>(call.tokens) * row;
    const std::vector<float> k = device::draw<float>(random, size * 2, 2), v = device::draw<float>(random, size * 2, 1);
    const device::Array<float> dk(k), dv(v);
    const auto view = [&](const device::Array<float>& x, int outer, int inner, int dim) {
      return cuda::dense(static_cast<const float*>(x.data()), outer, inner, dim);
    };
    BUZZ_MUST(twin.cache.append(view(dk, call.tokens, s.kv_heads, head_dim),
                                view(dv, call.tokens, s.kv_heads, head_dim), call, nullptr));
    int most = 0;
    for (int i = 0; i < call.count; ++i) most = std::max(most, twin.cache.rows(call.first + i));
    const std::size_t plane = static_cast<std::size_t>(s.query_heads * call.tokens * most);
    std::vector<float> p(plane * 2);
    for (float& x : p) x = static_cast<float>(random() % 16) / 64;
    const device::Array<float> dp(p);
    std::vector<int> appended;  // rows, before the eviction
    for (int i = 0; i < call.count; ++i) {
      const int sequence = call.first + i;
      const float *its_k = k.data() + static_cast<std::size_t>(i) * size,
                  *its_v = v.data() + static_cast<std::size_t>(i) * size;
      keys[sequence].insert(keys[sequence].end(), its_k, its_k + size);
      values[sequence].insert(values[sequence].end(), its_v, its_v + size);
      hosts[sequence]->append(its_k, call.tokens);
      const int rows = hosts[sequence]->rows();
      appended.push_back(rows);
      std::vector<float> its;
      for (int j = 0; j < s.query_heads * call.tokens; ++j) {
        const float* from = p.data() + static_cast<std::size_t>(i) * plane + static_cast<std::size_t>(j * most);
        its.insert(its.end(), from, from + rows);
      }
      if (policy.needs().attention) hosts[sequence]->observe(its.data(), call.tokens);
      hosts[sequence]->evict();
    }
    if (policy.needs().attention) BUZZ_MUST(twin.cache.observe(view(dp, s.query_heads, call.tokens, most), nullptr));
    BUZZ_MUST(twin.cache.evict(nullptr));
    BUZZ_MUST(cudaDeviceSynchronize());
    for (int i = 0; i < call.count; ++i) {
      const int sequence = call.first + i, rows = hosts[sequence]->rows(), capacity = twin.cache.capacity();
      expect(twin.cache.rows(sequence) == rows, "rows");
      evictions += rows < appended[static_cast<std::size_t>(i)];
      const std::vector<int> got = twin.positions(sequence);
      const std::size_t cached = static_cast<std::size_t>(s.kv_heads * capacity * head_dim);
      const std::vector<float> dk_rows = device::Array<float>::get(twin.cache.keys(sequence).data, cached),
                               dv_rows = device::Array<float>::get(twin.cache.values(sequence).data, cached);
      for (int h = 0; h < s.kv_heads; ++h)
        for (int r = 0; r < rows; ++r) {
          const int position = hosts[sequence]->positions(h)[r];
          expect(got[static_cast<std::size_t>(h * capacity + r)] == position,
                 "kept rows at step " + std::to_string(step));
          const std::size_t at = static_cast<std::size_t>((h * capacity + r) * head_dim),
                            from = static_cast<std::size_t>((position * s.kv_heads + h) * head_dim);
          const std::size_t bytes = static_cast<std::size_t>(head_dim) * sizeof(float);
          expect(std::memcmp(&dk_rows[at], &keys[sequence][from], bytes) == 0, "K moved with its row");
          expect(std::memcmp(&dv_rows[at], &values[sequence][from], bytes) == 0, "V moved with its row");
        }
    }
  }
  expect((evictions > 1) == (policy.name != "full"), policy.name + ": " + std::to_string(evictions) + " evictions");
}

/// Rows of every named policy that the device has, and of one that has no name.
void same_rows_of_all(std::mt19937& random, bool brief) {
  struct Run {
    const char* policy;
    int head_dim, steps, group;
  };
  const std::vector<Run> runs = {
      {"beehive:sink=3,window=20,threshold=60,hive=heaviest", 64, 30, 2},
      {"heavy_hitter:sink=3,window=20,threshold=60,heavy=30", 80, 30, 1},
      {"key_outliers:sink=3,window=20,threshold=60,heavy=30", 128, 30, 2},
      {"tova:heavy=60", 64, 30, 4},
      {"strided:sink=3,window=20,threshold=60", 64, 30, 1},
      {"diverse_beehive:sink=3,window=20,threshold=60", 256, 30, 2},
      {"key_diff:heavy=60", 96, 30, 1},
      {"streaming:sink=3,window=40,threshold=9", 64, 30, 2},
      {"full:capacity=2000", 64, 30, 2},
      // More rows than a block has threads, also between sink and window.
      {"beehive:sink=4,window=40,threshold=700", 64, 100, 1},
      {"heavy_hitter:sink=4,window=300,threshold=600,heavy=300", 64, 100, 2},
      {"tova:heavy=400,threshold=500", 64, 100, 1},
      {"key_outliers:sink=4,window=40,threshold=500,heavy=300", 64, 100, 2},
  };
  if (brief) {
    for (const char* policy :
         {"beehive:sink=1,window=9,threshold=20", "key_outliers:sink=1,window=9,threshold=20,heavy=9"})
      same_rows(buzz::policy(policy), random, 16, 6);
    return;
  }
  for (const Run& run : runs) same_rows(buzz::policy(run.policy), random, run.head_dim, run.steps, run.group);
  buzz::AttentionSumOptions newest;
  newest.attention = buzz::AttentionKind::mean;
  buzz::TopK::Options best;
  best.heavy = 60;
  best.threshold = 80;
  same_rows(buzz::policy(buzz::faded(buzz::attention_sum(newest)), best), random, 64);
  for (const buzz::PolicyInfo& info : buzz::policies()) {
    try {
      cuda::BuzzCache<float>::bytes({2, 1, 64}, {}, info.make());
    } catch (const buzz::InvalidArgument&) {
      continue;  // the device does not have it
    }
    bool tested = false;
    for (const Run& run : runs) tested |= std::string(run.policy).find(std::string(info.name) + ":") == 0;
    expect(tested, std::string(info.name) + " has no test");
  }
}

/// A layer whose attention is compared.
struct Layer {
  int head_dim = 64;
  int group = 4;
  bool modified = false;  ///< with all that AttentionOptions have, and values of half the keys' size
  bool compact = false;   ///< keys that move are rotated on; which rows stay does not hang on scores
  int long_calls = 16;    ///< after those of 1 to 40 tokens, of 40 each
};

/// Outputs and scores of attention with rotation, in calls of 1 to 40 tokens and then of 40, for a sequence that is not
/// the first.
template <class T>
void same_attention(host::Type type, std::mt19937& random, double tolerance, const Layer& layer) {
  const int head_dim = layer.head_dim, query_heads = 2 * layer.group;
  buzz::Shape s{query_heads, 2, head_dim, 40};
  buzz::AttentionOptions options;
  if (layer.modified) {
    s.value_dim = head_dim / 2;
    options.window = 70;
    options.soft_cap = 3;
    for (int h = 0; h < s.query_heads; ++h) {
      options.sinks.push_back(0.5f * static_cast<float>(h - 2));
      options.alibi_slopes.push_back(std::ldexp(1.f, -1 - h));
    }
  }
  const buzz::Policy policy = buzz::policy(layer.compact ? "strided:sink=4,window=300,threshold=100"
                                                         : "beehive:sink=4,window=50,threshold=900");
  buzz::Rope rope{10000};
  if (layer.compact) rope.positions = buzz::Positions::compact, rope.keys = buzz::KeyStorage::rotated;
  Twin<T> twin(s, 2, policy, rope, options);
  const std::unique_ptr<host::Attention> reference = host::make_attention(type, s, policy, rope, options);
  std::vector<int> calls = {1, 1, 40, 16, 7, 40, 1, 33, 2, 40, 40, 1};
  calls.insert(calls.end(), static_cast<std::size_t>(layer.long_calls), 40);
  calls.push_back(1);
  const std::string its = " of head size " + std::to_string(head_dim) + (layer.modified ? ", modified" : "") +
                          (layer.compact ? ", compact" : "") + ", group " + std::to_string(layer.group);
  for (const int tokens : calls) {
    const int value_dim = s.value_size();
    const std::size_t size = static_cast<std::size_t>(tokens * head_dim),
                      of_values = static_cast<std::size_t>(tokens * value_dim);
    const std::size_t heads = static_cast<std::size_t>(query_heads);
    const std::vector<float> q = device::draw<T>(random, size * heads, 1), k = device::draw<T>(random, size * 2, 1),
                             v = device::draw<T>(random, of_values * 2, 1);
    const device::Array<T> dq(device::as<T>(q)), dk(device::as<T>(k)), dv(device::as<T>(v));
    device::Array<T> out(of_values * heads);
    const auto view = [&](const device::Array<T>& x, int heads, int dim) {
      return cuda::dense(static_cast<const T*>(x.data()), tokens, heads, dim);
    };
    BUZZ_MUST(twin.cache.attend(view(dq, query_heads, head_dim), view(dk, 2, head_dim), view(dv, 2, value_dim),
                                cuda::dense(out.data(), tokens, query_heads, value_dim), {tokens, 1, 1}, nullptr));
    BUZZ_MUST(cudaDeviceSynchronize());
    std::vector<float> expected(of_values * heads);
    reference->attend(q.data(), k.data(), v.data(), tokens, expected.data());
    const std::vector<T> got = out.get();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(static_cast<float>(got[i])) - static_cast<double>(expected[i]));
      if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
    }
    expect(worst <= tolerance,
           "outputs of " + std::to_string(tokens) + " tokens" + its + ": off by " + std::to_string(worst));
    if (!policy.needs().attention) continue;
    const std::vector<double> scores =
        device::Array<double>::get(twin.cache.scores(1), static_cast<std::size_t>(2 * twin.cache.capacity()));
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < twin.cache.rows(1); ++r) {
        const double want = reference->score(h, r),
                     is = scores[static_cast<std::size_t>(h * twin.cache.capacity() + r)];
        expect(std::abs(is - want) <= 1e-4 * (1 + want), "scores" + its);
      }
  }
}

/// A captured decode step, launched again and again across evictions, against the same launches made one by one.
void same_graph(std::mt19937& random) {
  const buzz::Shape s{8, 2, 128};
  const buzz::Policy policy = buzz::policy("beehive:sink=4,window=32,threshold=40,hive=heaviest");
  const buzz::Rope rope{10000};
  Twin<__half> eager(s, 4, policy, rope), captured(s, 4, policy, rope);
  device::Array<__half> q(4 * 8 * 128), k(4 * 2 * 128), v(4 * 2 * 128), out(4 * 8 * 128), again(4 * 8 * 128);
  const auto step = [&](Twin<__half>& twin, const device::Array<__half>& to, cudaStream_t stream) {
    const auto view = [](const device::Array<__half>& x, int heads) {
      return cuda::dense(static_cast<const __half*>(x.data()), 1, heads, 128);
    };
    BUZZ_MUST(
        twin.cache.attend(view(q, 8), view(k, 2), view(v, 2), cuda::dense(to.data(), 1, 8, 128), {1, 0, 4}, stream));
  };
  cudaStream_t stream;
  BUZZ_MUST(cudaStreamCreate(&stream));
  BUZZ_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  step(captured, again, stream);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  BUZZ_MUST(cudaStreamEndCapture(stream, &graph));
  BUZZ_MUST(cudaGraphInstantiate(&exec, graph, 0));
  int evictions = 0;
  for (int t = 0; t < 200; ++t) {
    q.put(device::as<__half>(device::draw<__half>(random, 4 * 8 * 128, 1)));
    k.put(device::as<__half>(device::draw<__half>(random, 4 * 2 * 128, 1)));
    v.put(device::as<__half>(device::draw<__half>(random, 4 * 2 * 128, 1)));
    out.poison();
    again.poison();
    const int before = eager.cache.rows(0);
    step(eager, out, nullptr);
    if (t > 0) BUZZ_MUST(captured.cache.replayed({1, 0, 4}));
    BUZZ_MUST(cudaDeviceSynchronize());  // the copies above
    BUZZ_MUST(cudaGraphLaunch(exec, stream));
    BUZZ_MUST(cudaDeviceSynchronize());
    const std::vector<__half> a = out.get(), b = again.get();
    expect(std::memcmp(a.data(), b.data(), a.size() * sizeof(__half)) == 0, "replayed token " + std::to_string(t));
    expect(eager.cache.rows(3) == captured.cache.rows(3), "replayed rows");
    evictions += eager.cache.rows(0) < before;
  }
  expect(evictions > 3, "evictions under replay");
  BUZZ_MUST(cudaGraphExecDestroy(exec));
  BUZZ_MUST(cudaGraphDestroy(graph));
  BUZZ_MUST(cudaStreamDestroy(stream));
}

}  // namespace

/// device_test [SEED] [short]: `short` is for compute-sanitizer.
int main(int count, char** arguments) {
  if (!device::found()) return device::skipped;
  const unsigned seed =
      count > 1 ? static_cast<unsigned>(std::strtoul(arguments[1], nullptr, 10)) : std::random_device()();
  const bool brief = count > 2;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  same_rows_of_all(random, brief);
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const bool modified : {false, true}) {
      Layer layer;
      layer.head_dim = head_dim;
      layer.modified = modified;
      if (brief) {
        layer.long_calls = 0;
        if (head_dim == 64) same_attention<float>(host::Type::float32, random, 1e-5, layer);
        continue;
      }
      same_attention<float>(host::Type::float32, random, 1e-5, layer);
      same_attention<__half>(host::Type::half, random, 2e-3, layer);
      same_attention<__nv_bfloat16>(host::Type::bfloat16, random, 1.6e-2, layer);
    }
  for (const int group : {1, 2, 3, 8}) {
    Layer layer;
    layer.group = group;
    layer.head_dim = group == 1 ? 128 : 64;
    layer.modified = group == 3;
    if (brief) break;
    same_attention<float>(host::Type::float32, random, 1e-5, layer);
    same_attention<__half>(host::Type::half, random, 2e-3, layer);
  }
  for (const int head_dim : {64, 128}) {
    Layer layer;
    layer.head_dim = head_dim;
    layer.compact = true;
    layer.long_calls = 32;
    if (brief) break;
    same_attention<float>(host::Type::float32, random, 1e-4, layer);
    same_attention<__half>(host::Type::half, random, 4e-3, layer);
  }
  same_graph(random);
  std::printf(failures == 0 ? "all is the host's\n" : "%d differences\n", failures);
  return failures == 0 ? 0 : 1;
}
