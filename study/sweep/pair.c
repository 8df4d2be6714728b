/* pair.c - see pair.h. */
#include "study/sweep/pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "machine/memory.h"

/* A build without sweep.turns knows no orders. */
static dpb_status know_turns(const char *program)
{
    static const char *const words[] = {"dpbench", "help", "sweep.turns", NULL};
    const struct dpb_child child = {.program = program, .words = words};
    struct dpb_child_end end = {0};
    dpb_status status = dpb_child_run(&child, &end);
    if (status == DPB_OK && (end.code != 0 || !strstr(end.out, "sweep.turns")))
        status = dpb_fail(DPB_UNSUPPORTED, "%s is of a time without turns", program);
    dpb_child_release(&end);
    return status;
}

static dpb_status hold_two(const struct dpb_sweep *sweep, const struct dpb_turns_needs *needs)
{
    struct dpb_machine_memory memory;
    dpb_memory_look("", &memory);
    for (size_t cell = 0; cell < sweep->n_cells; cell++)
        if (2 * needs->bytes[cell] > memory.available_bytes)
            return dpb_fail(DPB_UNSUPPORTED, "memory does not hold a cell twice");
    return DPB_OK;
}

dpb_status dpb_pairs_open(const struct dpb_sweep *sweep, const char *const programs[2],
                          struct dpb_pairs *pairs)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    const bool refuses = dpb_config_get(sweep->given, "sweep", "turns") && !sweep->turns.on;
    dpb_status status = dpb_turns_needs(sweep, &pairs->needs);
    dpb_log_set_hooks(&silent);
    if (status == DPB_OK && refuses)
        status = dpb_fail(DPB_UNSUPPORTED, "sweep.turns = no");
    DPB_THEN(status, hold_two(sweep, &pairs->needs));
    for (size_t i = 0; i < 2; i++) {
        DPB_THEN(status, know_turns(programs[i]));
        DPB_THEN(status, dpb_cells_of_build(sweep, programs[i], &pairs->builds[i]));
    }
    dpb_log_set_hooks(NULL);
    return status;
}

void dpb_pairs_release(struct dpb_pairs *pairs)
{
    dpb_turns_needs_release(&pairs->needs);
}

struct pair {
    const struct dpb_sweep_job *jobs;
    struct dpb_execution *made;
};

static void take_end(void *context, const struct dpb_sweep_job *job,
                     struct dpb_execution *execution)
{
    const struct pair *pair = context;
    pair->made[job - pair->jobs] = *execution;
}

dpb_status dpb_pairs_run(struct dpb_pairs *pairs, size_t cell, struct dpb_execution made[2])
{
    struct dpb_sweep_job jobs[2] = {{.cell = cell}, {.cell = cell}};
    struct pair pair = {jobs, made};
    const double seconds = pairs->needs.seconds[cell];
    struct dpb_turns_group group = {.cells = {&pairs->builds[0], &pairs->builds[1]},
                                    .jobs = jobs,
                                    .n = 2,
                                    .budget_s = seconds > 0 ? 2 * seconds : INFINITY,
                                    .before = dpb_deadline_in(-1),
                                    .quiet = true,
                                    .block = pairs->block,
                                    .ended = take_end,
                                    .context = &pair};
    const dpb_status status = dpb_turns_run(&group);
    pairs->block = group.block;
    return status;
}
