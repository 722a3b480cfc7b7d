#pragma once

// The CPU library in one include. include/buzz/README.md is the map.

#include "buzz/budget.h"
#include "buzz/file.h"
#include "buzz/model_cache.h"
#include "buzz/policy_list.h"
#include "buzz/rope_scaling.h"
#include "buzz/version.h"
