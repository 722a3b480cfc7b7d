#pragma once

// The CPU library in one include. include/buzz/README.md is the map.

#include "buzz/model_cache.h"
#include "buzz/version.h"
