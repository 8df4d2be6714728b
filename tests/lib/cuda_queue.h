/*
 * cuda_queue.h - the cuda device with a queue, for tests of its memory and queues that no run
 * surrounds: on a CUDA for tests, or on a GPU (stand_in.h).
 */
#ifndef DPB_TESTS_LIB_CUDA_QUEUE_H
#define DPB_TESTS_LIB_CUDA_QUEUE_H

#include "dpbench/plugin.h"

struct cuda_queue {
    struct dpb_device_arenas arenas;
    struct dpb_queue *queue;
    const struct dpb_device_ops *device_ops;
    struct dpb_host *host; /* the device's: a test may replace a part */
};

/* Opens GPU `index`. A failure fails the test. @owned: cuda_queue_close. */
void cuda_queue_open(uint32_t index, struct cuda_queue *opened);
void cuda_queue_close(const struct cuda_queue *opened);

#endif
