#pragma once

// All of the library for CUDA: include/buzz/README.md, floor 5. It includes no Eigen.
#include "buzz/cuda/buzz_cache.cuh"
#include "buzz/policy_list.h"
