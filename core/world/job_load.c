/* job_load.c - see job_load.h. */
#include "world/job_load.h"

#include <stdlib.h>

#include "machine/cores.h"
#include "machine/neighbour.h"
#include "world/world.h"

enum { MAX_CPUS = 4096 };

static struct {
    uint8_t cpus[MAX_CPUS];
    struct dpb_load_sample begin;
    struct dpb_neighbour neighbour;
    uint32_t n_lost; /* ranks, by then */
} load_state;

uint32_t dpb_job_pids(int32_t *pids)
{
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        const bool here = !dpb_world.parted || dpb_world_is_local(rank);
        const struct dpb_status_page *page = dpb_board_page(dpb_world.board, rank);
        pids[rank] = here ? __atomic_load_n(&page->pid, __ATOMIC_RELAXED) : 0;
    }
    return dpb_world.n_ranks;
}

static void sample_job(struct dpb_load_sample *sample)
{
    int32_t *pids = calloc(dpb_world.n_ranks, sizeof *pids);
    const uint32_t n = pids ? dpb_job_pids(pids) : 0;
    dpb_load_sample("", load_state.cpus, MAX_CPUS, pids, n, sample);
    /* On several machines that are one, the others' ranks would be taken for another job's. */
    if (n > 0 && dpb_world.n_machines == 1 && load_state.neighbour.pid == 0)
        dpb_neighbour_find("", load_state.cpus, MAX_CPUS, pids, n, &load_state.neighbour);
    if (n == 0)
        sample->used_ns = -1; /* nobody's own time is known */
    free(pids);
}

static uint32_t count_lost(void)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        n += dpb_board_lost(dpb_world.board, rank);
    return n;
}

void dpb_load_begin(uint32_t n_cores)
{
    dpb_cores_kinds(n_cores, load_state.cpus, MAX_CPUS);
    load_state.n_lost = count_lost();
    sample_job(&load_state.begin);
}

void dpb_load_end(struct dpb_load *load)
{
    struct dpb_load_sample end;
    if (load_state.begin.at_ns == 0)
        return; /* nothing was timed */
    sample_job(&end);
    if (count_lost() != load_state.n_lost)
        end.used_ns = -1; /* a dead rank's own time is no longer known: it is not of others */
    dpb_load_between(&load_state.begin, &end, load);
    load->neighbour = load_state.neighbour;
}
