/*
 * comm_mutant_nccl.c - mutant_nccl: see comm_mutant.c. In an object of its own, so that the tests
 * of the other mutants do not load NCCL.
 */
#define MUTANTS(X) X(nccl)
#include "comm_mutant.c"
