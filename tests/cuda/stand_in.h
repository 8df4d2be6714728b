/*
 * stand_in.h - what the files of the stand-in's runtime share.
 */
#ifndef DPB_TESTS_CUDA_STAND_IN_H
#define DPB_TESTS_CUDA_STAND_IN_H

#include <cuda_runtime_api.h>
#include <mutex>

/* Calls of several threads are served one after the other. */
extern std::recursive_mutex serving;
#define ONE_AT_A_TIME const std::lock_guard<std::recursive_mutex> one_at_a_time(serving)

extern thread_local cudaError_t last_error; /* what cudaGetLastError takes away */
extern thread_local int current_device;
extern cudaError_t sticky; /* of work that has failed: stays */

/* The number in that environment variable. */
long setting(const char *name, long otherwise);
/* What a call that a capture forbids to this thread gives, which ends the capture; cudaSuccess:
 * there is none. */
cudaError_t forbidden();
/* Of this thread's GPU, for what is copied without a stream. */
cudaStream_t default_stream();
/* A line of the trace, for tests of what was called and in which order. */
void trace(const char *what);

#endif
