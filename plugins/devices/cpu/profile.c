/*
 * profile.c - run.profile: the account of the steps, which pass.c keeps, as rows; and the highest
 * rates of the cores and the memory (limits.c).
 */
#include <stdlib.h>

#include "hooks.h"
#include "lib/device/op_name.h"

static void add_rows(struct program *p, const struct step_list *list, bool backward, size_t first)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        const double calls = (double)p->step_calls[first + i];
        p->rows[first + i] = (struct dpb_profile_row){
            .node = cpu_index(p, step->node),
            .op = dpb_op_name(step->node->op),
            .what = step->what,
            .backward = backward,
            .calls = p->step_calls[first + i],
            .ns = p->step_ns[first + i],
            .flops = step->flops * calls,
            .bytes = step->bytes * calls,
        };
    }
}

/* Rows of steps that never ran (evaluation, say) are left out. */
static uint64_t drop_idle(struct dpb_profile_row *rows, size_t n)
{
    uint64_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].calls > 0)
            rows[kept++] = rows[i];
    }
    return kept;
}

dpb_status cpu_profile(void *program, struct dpb_profile *profile)
{
    struct program *p = program;
    if (!p->step_ns)
        return cpu_host->fail(DPB_USAGE,
                              "device cpu: the program was compiled without an account of its ops");
    if (!profile) {
        memset(p->step_ns, 0, p->n_steps * sizeof *p->step_ns);
        memset(p->step_calls, 0, p->n_steps * sizeof *p->step_calls);
        return DPB_OK;
    }
    struct dpb_profile made = {.rows = p->rows};
    add_rows(p, &p->forward, false, 0);
    add_rows(p, &p->backward, true, p->forward.n);
    made.n_rows = drop_idle(p->rows, p->n_steps);
    DPB_TRY(cpu_measure_limits(p->threads, &made.limits));
    *profile = made;
    return DPB_OK;
}
