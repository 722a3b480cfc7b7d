#include "use_both.h"

int rows_in_the_other_unit(int tokens);

int main() { return rows_after(50) < 50 && rows_after(50) == rows_in_the_other_unit(50) ? 0 : 1; }
