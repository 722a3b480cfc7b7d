"""Evicts rows of two torch tensors in place through DLPack, on the GPU if there is one, and compares with torch.

Needs PyTorch, a C++ compiler and Eigen; on a GPU also the CUDA toolkit. From this folder:
    python3 evict_torch.py [--eigen /usr/include/eigen3]
"""
import argparse
import os

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/DLConvertor.h>
#include <torch/extension.h>

#include <memory>
#include <vector>

#include "buzz/adapters/dlpack.h"
#include "buzz/evictor.h"
#include "buzz/policies.h"
#ifdef WITH_CUDA
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#endif

// k, v: [kv_heads, rows, head_dim], changed in place; probabilities: [query_heads, queries, rows], on the CPU.
// Returns the kept rows of each head.
std::vector<std::vector<int64_t>> evict(torch::Tensor k, torch::Tensor v, torch::Tensor probabilities, int64_t heavy) {
  buzz::HeavyHitterOptions options;
  options.window = 32;
  options.heavy = static_cast<int>(heavy);
  const int heads = static_cast<int>(k.size(0)), rows = static_cast<int>(k.size(1));
  buzz::Evictor evictor(buzz::heavy_hitter(options), heads, rows);
  const auto borrowed = [](const torch::Tensor& t) {  // at::toDLPack holds the tensor until the deleter
    return std::unique_ptr<DLManagedTensor, void (*)(DLManagedTensor*)>(at::toDLPack(t),
                                                                        [](DLManagedTensor* m) { m->deleter(m); });
  };
  evictor.append(rows);
  const auto p = borrowed(probabilities);
  evictor.observe(buzz::from_dlpack<const float>(p->dl_tensor));
  const buzz::KeptRows& keep = evictor.select();
  for (const torch::Tensor& tensor : {k, v}) {
    const auto lent = borrowed(tensor);
    const DLDevice device = lent->dl_tensor.device;
    const auto view = buzz::from_dlpack<float>(lent->dl_tensor, {static_cast<int>(device.device_type), device.device_id});
    if (device.device_type == kDLCPU) {
      buzz::compact(keep, view);
      continue;
    }
#ifdef WITH_CUDA
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    for (int h = 0; h < heads; ++h)
      keep.for_each_run(h, [&](int from, int to, int count) {
        for (int i = 0; from != to && i < count; ++i)  // row by row: a run may overlap itself
          cudaMemcpyAsync(view.row(h, to + i), view.row(h, from + i), sizeof(float) * view.shape(2),
                          cudaMemcpyDeviceToDevice, stream);
      });
#endif
  }
  std::vector<std::vector<int64_t>> kept;
  for (int h = 0; h < heads; ++h) kept.emplace_back(keep.rows(h).begin(), keep.rows(h).end());
  return kept;
}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--eigen", default="/usr/include/eigen3")
    eigen = parser.parse_args().eigen
    device = "cuda" if torch.cuda.is_available() else "cpu"
    include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")
    flags = ["-O2", "-std=c++17"] + (["-DWITH_CUDA"] if device == "cuda" else [])
    module = load_inline("buzz_torch", SOURCE, functions=["evict"], extra_cflags=flags,
                         extra_include_paths=[include, eigen], with_cuda=device == "cuda")

    torch.manual_seed(1)
    heads, rows, dim, heavy = 4, 600, 64, 100
    k, v = torch.randn(heads, rows, dim, device=device), torch.randn(heads, rows, dim, device=device)
    before = [k.clone(), v.clone()]
    probabilities = torch.softmax(torch.randn(2 * heads, 1, rows), -1)
    kept = module.evict(k, v, probabilities, heavy)
    score = probabilities.view(heads, 2, rows).sum(1)
    for h in range(heads):
        chosen = torch.topk(score[h, :rows - 32], heavy).indices.sort().values.tolist() + list(range(rows - 32, rows))
        assert kept[h] == chosen, "head %d keeps other rows than torch.topk" % h
        for now, then in zip((k, v), before):
            assert torch.equal(now[h, :len(chosen)], then[h, chosen]), "head %d: rows are not in place" % h
    print("%s: %d of %d rows kept in each of %d heads, in place" % (device, len(kept[0]), rows, heads))


if __name__ == "__main__":
    main()
