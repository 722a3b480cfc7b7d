#pragma once

// The one place that holds the version; CMake reads it from here.
#define BUZZ_VERSION_MAJOR 0
#define BUZZ_VERSION_MINOR 2
#define BUZZ_VERSION_PATCH 0
