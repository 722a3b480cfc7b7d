// The kernels whose machine code machine_code.py looks at; nothing here runs.
#include "buzz/cuda.cuh"

namespace buzz {
namespace cuda {

// Heads of 128 and of 64 elements, one query head a KV head, and four.
template __global__ void run(Attend<__half, 1, 1, false>);
template __global__ void run(Attend<__half, 1, 4, false>);
template __global__ void run(Attend<__half, 1, 8, false>);
template __global__ void run(Attend<__half, 1, 4, true>);
template __global__ void run(Attend<__half, 2, 4, false>);
template __global__ void run(Attend<__nv_bfloat16, 1, 1, false>);
template __global__ void run(Attend<__nv_bfloat16, 1, 4, false>);
template __global__ void run(Attend<float, 1, 1, false>);
template __global__ void run(Attend<float, 1, 4, false>);
template __global__ void run(Attend<float, 2, 1, false>);
template __global__ void run(Attend<float, 2, 4, false>);
template __global__ void run(Merge<__half, false>);
template __global__ void run(Observe<__half, 1, false>);
template __global__ void run(ObserveGiven);
template __global__ void run(Append<__half>);
template __global__ void run(KeyDiversity<__half>);
template __global__ void run(Select);
template __global__ void run(Compact<__half>);
template __global__ void run(Rerotate<__half>);

}  // namespace cuda
}  // namespace buzz
