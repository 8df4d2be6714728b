/*
 * profile.h - the account that a device keeps of its ops' times, for run.profile.
 *
 * For devices that keep times of ops. A first plugin does not need this header.
 */
#ifndef DPBENCH_PROFILE_H
#define DPBENCH_PROFILE_H

#include "types.h"

/* One step of a pass (an op, a part of one, or several that the device fused), summed over all
 * passes since compile or since the account began anew. */
struct dpb_profile_row {
    uint32_t node;    /* of the graph; of fused nodes, the one with the most work */
    const char *op;   /* kind of op: "convolution"; @borrowed as long as the program lives */
    const char *what; /* the part of the op: "backward weights"; likewise */
    bool backward;    /* the pass that it belongs to */
    uint64_t calls;
    int64_t ns;
    double flops; /* of all calls: multiplications and additions of the op's definition, where the
                     op is a sum of products; else 0 */
    double bytes; /* of all calls: of the tensors read and written, each once */
};

/* The hardware's limits, measured with as many threads as the program has. 0: unknown. */
struct dpb_profile_limits {
    double fp32_flops_per_s, bf16_flops_per_s; /* multiply-adds in registers count as two */
    /* Of memory; a copy counts what is read and written. */
    double read_bytes_per_s, copy_bytes_per_s;
};

struct dpb_profile {
    /* In the order of the passes; @borrowed until the next pass. */
    const struct dpb_profile_row *rows;
    uint64_t n_rows;
    struct dpb_profile_limits limits;
    /* A note on these times for table and result; a constant. It says how they were taken, if not
     * by the clock around each op, and how passes differ from those without an account. */
    const char *how;
};

#endif
