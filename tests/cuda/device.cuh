#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "buzz/cuda/types.cuh"

// What the device tests, the example and the benchmark need of the CUDA runtime.

namespace device {

/// Ends the program, naming the call, where CUDA reports an error.
inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define BUZZ_MUST(call) device::must(call, #call)

/// Is there a GPU? Where not, says so.
inline bool found() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) {
    cudaDeviceProp properties;
    BUZZ_MUST(cudaGetDeviceProperties(&properties, 0));
    std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
    return true;
  }
  std::printf("No GPU here (%s): nothing was run.\n", cudaGetErrorString(error));
  return false;
}
constexpr int skipped = 77;  // the exit status of a test that found none

/// Device memory, poisoned: all bytes ones, which is NaN in every type.
template <class T>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size) {
    BUZZ_MUST(cudaMalloc(&data_, size * sizeof(T) + 1));
    poison();
  }
  explicit Array(const std::vector<T>& x) : Array(x.size()) { put(x); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }

  T* data() const { return static_cast<T*>(data_); }
  void poison() { BUZZ_MUST(cudaMemset(data_, 0xff, size_ * sizeof(T))); }
  void put(const std::vector<T>& x) {
    BUZZ_MUST(cudaMemcpy(data_, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> get() const { return get(data(), size_); }
  static std::vector<T> get(const T* from, std::size_t size) {
    std::vector<T> x(size);
    BUZZ_MUST(cudaMemcpy(x.data(), from, size * sizeof(T), cudaMemcpyDeviceToHost));
    return x;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

template <class T>
T typed(float x) {
  return static_cast<T>(x);
}

/// Random numbers of T, as floats.
template <class T>
std::vector<float> draw(std::mt19937& random, std::size_t size, float amplitude) {
  std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
  std::vector<float> x(size);
  for (float& f : x) f = static_cast<float>(typed<T>(uniform(random)));
  return x;
}
template <class T>
std::vector<T> as(const std::vector<float>& x) {
  std::vector<T> result;
  for (const float f : x) result.push_back(typed<T>(f));
  return result;
}

}  // namespace device
