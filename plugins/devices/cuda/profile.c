/*
 * profile.c - run.profile: the account of the steps (account.c) as rows, and the GPU's limits
 * (limits.c).
 */
#include "account.h"
#include "hooks.h"
#include "lib/device/op_name.h"

static double packed_bytes(const struct program *p)
{
    double bytes = 0;
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct dpb_node *node = &p->graph->nodes[i];
        if (p->nodes[i].packed)
            bytes += (double)p->graph->tensors[node->weight].n_elements * sizeof(float) +
                     p->nodes[i].packed->bytes;
    }
    return bytes;
}

double cuda_step_bytes(const struct program *p)
{
    const struct step_list *lists[] = {&p->forward, &p->backward};
    double bytes = packed_bytes(p);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < lists[k]->n; i++) {
            if (lists[k]->steps[i].when & WHEN_TRAINING)
                bytes += lists[k]->steps[i].bytes;
        }
    }
    return bytes;
}

/* The packing of all weights at once: its row has the input's name and precedes all others. */
static void add_packing(const struct program *p)
{
    const struct account *account = p->account;
    account->rows[ACCOUNT_PACKING] = (struct dpb_profile_row){
        .node = 0, .op = "weights", .what = "packing", .bytes = packed_bytes(p)};
}

static void add_rows(const struct program *p, const struct step_list *list, bool backward)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        p->account->rows[cuda_account_place(p, backward, i)] =
            (struct dpb_profile_row){.node = cuda_index(p, step->node),
                                     .op = dpb_op_name(step->node->op),
                                     .what = step->what,
                                     .backward = backward,
                                     .flops = step->flops,
                                     .bytes = step->bytes};
    }
}

/* Sums over all calls. Steps that never ran (evaluation, say) have no row. */
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
    if (!profile) { /* work under way is not counted either */
        account->n_passed[0] = account->n_passed[1] = 0;
        memset(account->ns, 0, account->n * sizeof *account->ns);
        memset(account->calls, 0, account->n * sizeof *account->calls);
        return DPB_OK;
    }
    struct dpb_profile made = {.rows = account->rows,
                               .how = "events between the ops, which are enqueued one by one: no "
                                      "CUDA graph; limits by cuBLASLt's products"};
    DPB_TRY(cuda_drain(p));
    DPB_TRY(cuda_account_settle(p, true));
    add_packing(p);
    add_rows(p, &p->forward, false);
    add_rows(p, &p->backward, true);
    made.n_rows = add_up(account);
    DPB_TRY(cuda_measure_limits(p, &made.limits));
    *profile = made;
    return DPB_OK;
}
