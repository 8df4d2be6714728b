/*
 * profile.c - run.profile: what every step of a pass takes, by an event behind each on the main
 * stream; and what the GPU can do at most (limits.c).
 *
 * A program that keeps an account enqueues its steps one by one and captures no graph: within a
 * graph steps may be done side by side, and what one of them takes by itself is not defined. A
 * step's time is from the end of the one before to its own end. Where the GPU is faster than the
 * host enqueues it has waited for the launch in that time.
 *
 * Events of a pass are read when the host knows that it is over: of a forward, which is waited for,
 * at its end; of a backward by the next forward's end, which comes behind it on the stream.
 */
#include <stdlib.h>

#include "streams.h"

/* Places: the packing of the weights, which begins a forward; the steps of forward; those of
 * backward. */
struct account {
    cudaEvent_t *ends;     /* by place */
    cudaEvent_t begins[2]; /* of the lists */
    int64_t *ns;
    uint64_t *calls;
    struct dpb_profile_row *rows;
    size_t *passed[2]; /* places of the pass that is to be read, in their order; by list */
    size_t n_passed[2];
    size_t n; /* places */
};

enum { PACKING };

static size_t place_of(const struct program *p, bool backward, size_t step)
{
    return 1 + (backward ? p->forward.n : 0) + step;
}

dpb_status cuda_account_open(struct program *p)
{
    const size_t n = 1 + p->n_steps;
    struct account *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    p->account = made; /* the program's, which closes it whatever comes */
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
        DPB_TRY(cuda_check(p, NULL, "cudaEventCreate", cudaEventCreate(&made->ends[i])));
    for (int list = 0; list < 2; list++)
        DPB_TRY(cuda_check(p, NULL, "cudaEventCreate", cudaEventCreate(&made->begins[list])));
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
    return cuda_check(p, NULL, "cudaEventRecord",
                      cudaEventRecord(account->begins[backward], p->device->stream));
}

static dpb_status pass_by(const struct program *p, bool backward, size_t place)
{
    struct account *account = p->account;
    account->passed[backward][account->n_passed[backward]++] = place;
    return cuda_check(p, NULL, "cudaEventRecord",
                      cudaEventRecord(account->ends[place], p->device->stream));
}

dpb_status cuda_account_packing(const struct program *p)
{
    return p->account ? pass_by(p, false, PACKING) : DPB_OK;
}

dpb_status cuda_account_step(const struct program *p, bool backward, size_t step)
{
    return p->account ? pass_by(p, backward, place_of(p, backward, step)) : DPB_OK;
}

/* ---- when it is over ----------------------------------------------------------------------- */

static dpb_status settle(const struct program *p, bool backward)
{
    struct account *account = p->account;
    cudaEvent_t from = account->begins[backward];
    for (size_t i = 0; i < account->n_passed[backward]; i++) {
        const size_t place = account->passed[backward][i];
        float ms = 0.0f;
        DPB_TRY(cuda_check(p, NULL, "cudaEventElapsedTime",
                           cudaEventElapsedTime(&ms, from, account->ends[place])));
        account->ns[place] += (int64_t)((double)ms * 1e6);
        account->calls[place]++;
        from = account->ends[place];
    }
    account->n_passed[backward] = 0;
    return DPB_OK;
}

dpb_status cuda_account_settle(const struct program *p)
{
    if (!p->account)
        return DPB_OK;
    DPB_TRY(settle(p, true));
    return settle(p, false);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static double packed_bytes(const struct program *p)
{
    double bytes = 0;
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct dpb_node *node = &p->graph->nodes[i];
        if (p->nodes[i].packed)
            bytes += (double)p->graph->tensors[node->weight].n_elements *
                     (double)(sizeof(float) + cuda_type_size(p->type));
    }
    return bytes;
}

/* Of all weights at once: it stands under the input, before all others. */
static void add_packing(const struct program *p)
{
    const struct account *account = p->account;
    account->rows[PACKING] = (struct dpb_profile_row){
        .node = 0, .op = "weights", .what = "packing", .bytes = packed_bytes(p)};
}

static void add_rows(const struct program *p, const struct step_list *list, bool backward)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        p->account->rows[place_of(p, backward, i)] =
            (struct dpb_profile_row){.node = cuda_index(p, step->node),
                                     .op = cuda_ops[step->node->op].name,
                                     .what = step->what,
                                     .backward = backward,
                                     .flops = step->flops,
                                     .bytes = step->bytes};
    }
}

/* Of all calls; rows of steps that never ran (evaluation, say) are left out. */
static uint64_t add_up(struct account *account)
{
    uint64_t kept = 0;
    for (size_t i = 0; i < account->n; i++) {
        struct dpb_profile_row row = account->rows[i];
        if (account->calls[i] == 0)
            continue;
        row.calls = account->calls[i];
        row.ns = account->ns[i];
        row.flops *= (double)row.calls;
        row.bytes *= (double)row.calls;
        account->rows[kept++] = row;
    }
    return kept;
}

dpb_status cuda_profile(void *program, struct dpb_profile *profile)
{
    struct program *p = program;
    struct account *account = p->account;
    if (!account)
        return cuda_host->fail(DPB_USAGE,
                               "device cuda: the program was compiled without an account "
                               "of its ops");
    if (!profile) { /* what is under way is not counted either */
        account->n_passed[0] = account->n_passed[1] = 0;
        memset(account->ns, 0, account->n * sizeof *account->ns);
        memset(account->calls, 0, account->n * sizeof *account->calls);
        return DPB_OK;
    }
    struct dpb_profile made = {.rows = account->rows,
                               .how = "events between the ops, which are enqueued one by one: no "
                                      "CUDA graph; limits by cuBLASLt's products"};
    DPB_TRY(cuda_drain(p));
    DPB_TRY(cuda_account_settle(p));
    add_packing(p);
    add_rows(p, &p->forward, false);
    add_rows(p, &p->backward, true);
    made.n_rows = add_up(account);
    DPB_TRY(cuda_measure_limits(p, &made.limits));
    *profile = made;
    return DPB_OK;
}
