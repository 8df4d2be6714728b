/* toy_reduce_exact - comm_toy_reduce.c without a residual: a synchronous mean. */
#define TOY "toy_reduce_exact"
#define RESIDUAL false
#define ROUNDINGS 0
#include "comm_toy_reduce.c"
