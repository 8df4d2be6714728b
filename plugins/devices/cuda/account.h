/*
 * account.h - the account of a program's steps: account.c keeps it and profile.c shows it.
 */
#ifndef DPB_CUDA_ACCOUNT_H
#define DPB_CUDA_ACCOUNT_H

#include "streams.h"

/* Places: the packing of the weights, which begins a forward; forward's steps; backward's steps. */
struct account {
    cudaEvent_t *ends;     /* by place */
    cudaEvent_t begins[2]; /* of the lists */
    int64_t *ns;
    uint64_t *calls;
    struct dpb_profile_row *rows;
    size_t *passed[2]; /* by list: places of the pass to be read, in their order */
    size_t n_passed[2];
    size_t n; /* places */
};

enum { ACCOUNT_PACKING };

/* Bytes that the steps of a training step move in all. */
double cuda_step_bytes(const struct program *p);

static inline size_t cuda_account_place(const struct program *p, bool backward, size_t step)
{
    return 1 + (backward ? p->forward.n : 0) + step;
}

#endif
