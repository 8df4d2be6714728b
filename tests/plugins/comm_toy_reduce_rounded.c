/* toy_reduce_rounded - comm_toy_reduce.c without a residual, with 8 bits of each number. */
#define TOY "toy_reduce_rounded"
#define RESIDUAL false
#define ROUNDINGS (1 << 17)
#include "comm_toy_reduce.c"
