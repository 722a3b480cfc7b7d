#include "use_both.h"

int rows_in_the_other_unit(int tokens) { return rows_after(tokens); }
