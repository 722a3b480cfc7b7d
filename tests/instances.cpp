#include "instances.h"

BUZZ_TEST_INSTANCES(template)
