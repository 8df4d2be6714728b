/*
 * stand_in.h - which CUDA a test of the cuda device runs on: one for tests (tests/cuda), which
 * needs no GPU, or with DPB_TEST_DEVICE=cuda NVIDIA's.
 */
#ifndef DPB_TESTS_LIB_STAND_IN_H
#define DPB_TESTS_LIB_STAND_IN_H

#include <stdbool.h>
#include <stdint.h>

bool on_gpu(void);
/* DPB_TEST_CUDA=no: there is no CUDA for tests, and no plugin of CUDA's needs to be there, since
 * `make check` builds neither. */
bool is_cuda_left_out(void);
/* Whether dpbench finds the plugins of tests/cuda before those that are linked to NVIDIA's
 * libraries; never where the test is on a GPU. */
void use_stand_in(bool yes);
/* How often a line stands in a trace of the stand-in's (DPB_STAND_IN_TRACE). */
int stand_in_count(const char *trace, const char *line);
/* That counter of the stand-in that this process has loaded. */
uint64_t stand_in_counted(const char *what);
/* Whether tests/cuda has it: "comm_nccl". */
bool have_stand_in(const char *kind_name);

#endif
