// The kernels whose machine code machine_code.py looks at; nothing here runs.
#include "buzz/cuda.cuh"

namespace buzz {
namespace cuda {

// Heads of 64, 128 and 256 elements; up to 8 or 16 query heads a KV head, of floats one or four.
template __global__ void run(AttendMma<__half, 64, 8, false>);
template __global__ void run(AttendMma<__half, 128, 8, false>);
template __global__ void run(AttendMma<__half, 128, 8, true>);
template __global__ void run(AttendMma<__half, 128, 16, false>);
template __global__ void run(AttendMma<__half, 256, 8, false>);
template __global__ void run(AttendMma<__nv_bfloat16, 128, 8, false>);
template __global__ void run(AttendMany<__half, 64, false>);
template __global__ void run(AttendMany<__half, 128, false>);
template __global__ void run(AttendMany<__half, 128, true>);
template __global__ void run(Attend<float, 1, 1, false>);
template __global__ void run(Attend<float, 1, 4, false>);
template __global__ void run(Attend<float, 2, 1, false>);
template __global__ void run(Attend<float, 2, 4, false>);
template __global__ void run(Attend<float, 2, 4, true>);
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
