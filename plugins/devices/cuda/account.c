/*
 * account.c - run.profile: the time of every step of a pass, by an event behind each step on the
 * main stream.
 *
 * A program that keeps an account enqueues its steps one by one and captures no graph: within a
 * graph, steps may run side by side, so a step's own time is not defined. A step's time is from the
 * end of the step before to its own end. If the GPU is faster than the host enqueues, this time
 * includes waiting for the launch.
 *
 * Events of a pass are read when the host knows that it is over: of a forward, which is waited for,
 * at its end; of a backward by the next forward's end, which comes behind it on the stream.
 */
#include <stdlib.h>

#include "account.h"

dpb_status cuda_account_open(struct program *p)
{
    const size_t n = 1 + p->n_steps;
    struct account *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    p->account = made; /* the program owns and closes it */
    made->n = n;
    made->ends = calloc(n, sizeof *made->ends);
    made->ns = calloc(n, sizeof *made->ns);
    made->calls = calloc(n, sizeof *made->calls);
    made->rows = calloc(n, sizeof *made->rows);
    made->passed[0] = calloc(n, sizeof *made->passed[0]);
    made->passed[1] = calloc(n, sizeof *made->passed[1]);
    if (!made->ends || !made->ns || !made->calls || !made->rows || !made->passed[0] ||
        !made->passed[1])
        return cuda_no_memory();
    for (size_t i = 0; i < n; i++)
        CUDA_TRY(cudaEventCreate(&made->ends[i]));
    for (int list = 0; list < 2; list++)
        CUDA_TRY(cudaEventCreate(&made->begins[list]));
    return DPB_OK;
}

void cuda_account_close(struct account *account)
{
    if (!account)
        return;
    for (size_t i = 0; account->ends && i < account->n; i++) {
        if (account->ends[i])
            cudaEventDestroy(account->ends[i]);
    }
    for (int list = 0; list < 2; list++) {
        if (account->begins[list])
            cudaEventDestroy(account->begins[list]);
        free(account->passed[list]);
    }
    free(account->ends);
    free(account->ns);
    free(account->calls);
    free(account->rows);
    free(account);
}

/* ---- while a pass is enqueued -------------------------------------------------------------- */

dpb_status cuda_account_begin(const struct program *p, bool backward)
{
    struct account *account = p->account;
    if (!account)
        return DPB_OK;
    account->n_passed[backward] = 0;
    return CUDA_CALL(cudaEventRecord(account->begins[backward], p->device->stream));
}

static dpb_status pass_by(const struct program *p, bool backward, size_t place)
{
    struct account *account = p->account;
    account->passed[backward][account->n_passed[backward]++] = place;
    return CUDA_CALL(cudaEventRecord(account->ends[place], p->device->stream));
}

dpb_status cuda_account_packing(const struct program *p)
{
    return p->account ? pass_by(p, false, ACCOUNT_PACKING) : DPB_OK;
}

dpb_status cuda_account_step(const struct program *p, bool backward, size_t step)
{
    return p->account ? pass_by(p, backward, cuda_account_place(p, backward, step)) : DPB_OK;
}

/* ---- when it is over ----------------------------------------------------------------------- */

static dpb_status settle(const struct program *p, bool backward)
{
    struct account *account = p->account;
    cudaEvent_t from = account->begins[backward];
    for (size_t i = 0; i < account->n_passed[backward]; i++) {
        const size_t place = account->passed[backward][i];
        int64_t ns;
        DPB_TRY(cuda_elapsed(from, account->ends[place], &ns));
        account->ns[place] += ns;
        account->calls[place]++;
        from = account->ends[place];
    }
    account->n_passed[backward] = 0;
    return DPB_OK;
}

dpb_status cuda_account_settle(const struct program *p, bool training)
{
    if (!p->account)
        return DPB_OK;
    DPB_TRY(settle(p, true));
    if (p->args.training && !training)
        p->account->n_passed[false] = 0; /* an evaluation, which does not count */
    return settle(p, false);
}
