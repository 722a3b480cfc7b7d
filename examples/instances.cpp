#include "instances.h"

BUZZ_INSTANCES(template)
