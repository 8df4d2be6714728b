/* places.c - see places.h. */
#include <stdlib.h>

#include "comm/hierarchical/places.h"

/* ---- places and ranks ----------------------------------------------------------------------- */

uint32_t hierarchical_count(const struct dpb_comm_args *job, uint32_t machine)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < job->n_workers; rank++)
        n += job->machines[rank] == machine;
    return n;
}

/* The rank at a place of a machine that has so many. */
static uint32_t rank_at(const struct dpb_comm_args *args, uint32_t machine, uint32_t place)
{
    uint32_t rank = 0;
    while (args->machines[rank] != machine || place-- > 0)
        rank++;
    return rank;
}

uint32_t hierarchical_shares(const struct dpb_comm_args *job)
{
    uint32_t least = job->n_workers;
    for (uint32_t machine = 0; machine < job->n_machines; machine++) {
        uint32_t n = hierarchical_count(job, machine);
        least = n < least ? n : least;
    }
    return job->n_machines == 1 && !job->codec ? 0 : least;
}

uint32_t hierarchical_last(const struct dpb_comm_args *job)
{
    const uint32_t place = hierarchical_shares(job) - 1;
    uint32_t last = 0;
    for (uint32_t machine = 0; machine < job->n_machines; machine++) {
        const uint32_t rank = rank_at(job, machine, place);
        last = rank > last ? rank : last;
    }
    return last;
}

uint64_t hierarchical_longest_share(const struct dpb_comm_args *job,
                                    const struct dpb_layout *layout, uint64_t bucket_elements)
{
    return dpb_strategy_longest_bucket(layout, bucket_elements) / hierarchical_shares(job) + 1;
}

dpb_status hierarchical_find_places(struct hierarchical *comm)
{
    const struct dpb_comm_args *job = &comm->job;
    uint32_t n_local = comm->base.args.n_workers;
    comm->machine = job->machines[job->rank];
    comm->ranks = calloc(n_local, sizeof *comm->ranks);
    comm->members = calloc(job->n_machines, sizeof *comm->members);
    comm->views = calloc((size_t)n_local * 3, sizeof(void *));
    if (!comm->ranks || !comm->members || !comm->views)
        return comm->base.host->fail(DPB_NO_MEMORY, "no memory for the places of %u ranks",
                                     job->n_workers);
    for (uint32_t place = 0; place < n_local; place++)
        comm->ranks[place] = rank_at(job, comm->machine, place);
    comm->n_shares = hierarchical_shares(job);
    for (uint32_t machine = 0; hierarchical_drives(comm) && machine < job->n_machines; machine++)
        comm->members[machine] = rank_at(job, machine, comm->base.args.rank);
    return DPB_OK;
}

struct dpb_arenas hierarchical_view(struct hierarchical *comm, const struct dpb_arenas *arenas)
{
    struct dpb_arenas view = *arenas;
    uint32_t n = comm->base.args.n_workers;
    void **weights = comm->views, **gradients = weights + n, **scratch = gradients + n;
    for (uint32_t place = 0; place < n; place++) {
        weights[place] = arenas->peer_weights[comm->ranks[place]];
        gradients[place] = arenas->peer_gradients[comm->ranks[place]];
        scratch[place] = arenas->peer_scratch[comm->ranks[place]];
    }
    view.peer_weights = weights;
    view.peer_gradients = gradients;
    view.peer_scratch = scratch;
    return view;
}

/* ---- the way across ------------------------------------------------------------------------- */

static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    struct dpb_sums *sums = ((const struct hierarchical *)strategy)->across->sums;
    return sums->ops->move(sums, until_ns, moved);
}

dpb_status hierarchical_connect(struct hierarchical *comm, const struct dpb_arenas *staged)
{
    if (comm->n_shares == 0)
        return DPB_OK;
    if (comm->transport != OVER_MPI) /* MPI does not sleep */
        DPB_TRY(dpb_strategy_open_doorbell(&comm->base, "hierarchical"));
    if (!comm->across)
        return DPB_OK;
    const struct across_group group = {.job = &comm->job,
                                       .arenas = staged,
                                       .members = comm->members,
                                       .machine = comm->machine,
                                       .place = comm->base.args.rank,
                                       .n_shares = comm->n_shares,
                                       .doorbell = comm->base.signals.doorbell,
                                       .shards = comm->shards};
    if (hierarchical_drives(comm))
        comm->base.pipeline.move = move;
    return comm->across->ops->connect(comm->across, &group);
}

void hierarchical_begin(const struct hierarchical *comm, uint64_t step)
{
    if (!hierarchical_drives(comm))
        return;
    dpb_sums_begin(comm->across->sums, step);
    if (comm->machines) /* the sums' `move` returns the error if a message was refused */
        (void)dpb_strategy_begin(comm->machines, &(struct dpb_step){.step = step});
}

void hierarchical_release(struct hierarchical *comm)
{
    if (comm->across)
        comm->across->ops->close(comm->across);
    free(comm->ranks);
    free(comm->members);
    free(comm->views);
}
