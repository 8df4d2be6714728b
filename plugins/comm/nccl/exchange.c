/* exchange.c - see exchange.h. */
#include "comm/nccl/exchange.h"

#include "lib/strategy/slices.h"

struct dpb_range launch_range(const struct nccl *nccl, const struct launch *launch)
{
    const struct dpb_arenas *arenas = &nccl->strategy.arenas;
    uint64_t end = (launch->first + launch->n) * arenas->bucket_elements;
    return (struct dpb_range){launch->first * arenas->bucket_elements,
                              end < arenas->layout.n_elements ? end : arenas->layout.n_elements};
}

struct dpb_range launch_owned(const struct nccl *nccl, const struct launch *launch)
{
    const struct dpb_comm_args *args = &nccl->strategy.args;
    const struct dpb_range range = launch_range(nccl, launch);
    if (!nccl->sharded)
        return range;
    const struct dpb_range own = slice_of(range.end - range.begin, args->rank, args->n_workers);
    return (struct dpb_range){range.begin + own.begin, range.begin + own.end};
}

struct dpb_wait launch_wait(const struct nccl *nccl, const struct exchange *exchange,
                            const struct launch *launch, const char *purpose)
{
    struct dpb_range range = launch_range(nccl, launch);
    return (struct dpb_wait){.step = exchange->step.step,
                             .bucket = launch->first,
                             .bytes = (range.end - range.begin) *
                                      dpb_dtype_size(nccl->strategy.arenas.layout.gradient_type),
                             .peer = UINT32_MAX,
                             .purpose = purpose};
}

/* ---- progress of the GPU ------------------------------------------------------------------- */

static enum mark last_mark(const struct nccl *nccl)
{
    return nccl->sharded ? GATHERED : UPDATED;
}

static dpb_status report_span(const struct nccl *nccl, const struct exchange *exchange,
                              const struct launch *launch, enum mark from, dpb_phase phase)
{
    int64_t begin_ns, end_ns;
    DPB_TRY(nccl->queues->elapsed(exchange->origin, launch->marks[from], &begin_ns));
    DPB_TRY(nccl->queues->elapsed(exchange->origin, launch->marks[from + 1], &end_ns));
    nccl->strategy.host->span(launch->first, phase, exchange->origin_ns + begin_ns,
                              exchange->origin_ns + end_ns);
    return DPB_OK;
}

dpb_status exchange_look(const struct nccl *nccl, struct exchange *exchange)
{
    const struct work *work = exchange->work;
    while (exchange->n_through < work->n_launches &&
           nccl->strategy.host->event->poll(
               work->launches[exchange->n_through].marks[last_mark(nccl)])) {
        exchange->n_through++;
        exchange->waiting_ns = 0;
    }
    if (exchange->reported || !exchange->ended || exchange->n_through < work->n_launches ||
        !nccl->strategy.host->event->poll(work->done) ||
        !nccl->strategy.host->event->poll(exchange->origin))
        return DPB_OK;
    for (uint64_t i = 0; i < work->n_launches; i++) {
        const struct launch *launch = &work->launches[i];
        DPB_TRY(report_span(nccl, exchange, launch, BEGUN, DPB_PHASE_TRANSFER));
        if (nccl->strategy.arenas.optimizer)
            DPB_TRY(report_span(nccl, exchange, launch, REDUCED, DPB_PHASE_UPDATE));
        if (nccl->sharded)
            DPB_TRY(report_span(nccl, exchange, launch, UPDATED, DPB_PHASE_TRANSFER));
    }
    exchange->reported = true;
    return DPB_OK;
}

/* The first part of the launch that the GPU has not finished. */
static const char *purpose_of(const struct nccl *nccl, const struct launch *launch, bool *updates)
{
    const bool reduced = nccl->strategy.host->event->poll(launch->marks[REDUCED]);
    const bool sharded = nccl->sharded;
    *updates = reduced && !(sharded && nccl->strategy.host->event->poll(launch->marks[UPDATED]));
    if (*updates)
        return "the update by the GPU";
    if (!sharded)
        return "NCCL's all-reduce";
    return reduced ? "NCCL's all-gather" : "NCCL's reduce-scatter";
}

/* Until this rank's own backward gets there, the wait is the device's matter. A graph does not show
 * its progress: its deadline counts from its launch. */
dpb_status exchange_watch(const struct nccl *nccl, struct exchange *exchange)
{
    if (exchange->n_through == exchange->work->n_launches)
        return DPB_OK;
    const struct launch *launch = &exchange->work->launches[exchange->n_through];
    bool updates;
    const char *purpose = purpose_of(nccl, launch, &updates);
    const struct dpb_wait what = launch_wait(nccl, exchange, launch, purpose);
    DPB_TRY(communicator_look(&nccl->communicator, &what));
    const bool captured = exchange->work == &nccl->captured;
    if (!captured && !nccl->strategy.host->event->poll(launch->marks[BEGUN])) {
        exchange->waiting_ns = 0;
        return DPB_OK;
    }
    if (exchange->waiting_ns == 0)
        nccl->strategy.host->note(updates ? "update" : "wait_peer", launch->first, UINT32_MAX);
    return nccl->strategy.host->patience(&what, &exchange->waiting_ns);
}

dpb_status exchange_settle(const struct nccl *nccl, struct exchange *exchange)
{
    const struct dpb_wait what = {.step = exchange->step.step,
                                  .bucket = UINT64_MAX,
                                  .peer = UINT32_MAX,
                                  .purpose = "the last step's exchange"};
    if (exchange->reported)
        return DPB_OK;
    DPB_TRY(nccl->strategy.host->event->wait(exchange->work->done, &what));
    DPB_TRY(nccl->strategy.host->event->wait(exchange->origin, &what));
    return exchange_look(nccl, exchange);
}

/* ---- making ------------------------------------------------------------------------------- */

dpb_status work_open(const struct nccl *nccl, struct work *work)
{
    void *device = nccl->strategy.args.device->device;
    uint64_t n_buckets = nccl->strategy.arenas.n_buckets;
    work->launches = nccl->strategy.host->alloc(n_buckets * sizeof *work->launches);
    if (!work->launches)
        return DPB_NO_MEMORY;
    DPB_TRY(nccl->queues->new_event(device, &work->done));
    for (uint64_t b = 0; b < n_buckets; b++)
        for (int mark = 0; mark < MARKS; mark++)
            DPB_TRY(nccl->queues->new_event(device, &work->launches[b].marks[mark]));
    return DPB_OK;
}

void work_close(const struct nccl *nccl, struct work *work)
{
    uint64_t n_buckets = nccl->strategy.arenas.n_buckets;
    for (uint64_t b = 0; work->launches && b < n_buckets; b++)
        for (int mark = 0; mark < MARKS; mark++)
            nccl->strategy.host->event->destroy(work->launches[b].marks[mark]);
    nccl->strategy.host->event->destroy(work->done);
    nccl->strategy.host->release(work->launches, n_buckets * sizeof *work->launches);
}

dpb_status exchange_open(const struct nccl *nccl, struct exchange *exchange)
{
    exchange->reported = true;
    exchange->work = &exchange->own;
    DPB_TRY(nccl->queues->new_event(nccl->strategy.args.device->device, &exchange->origin));
    return work_open(nccl, &exchange->own);
}

bool exchange_is_through(const struct nccl *nccl, const struct exchange *exchange)
{
    return exchange->reported || !exchange->own.launches ||
           (exchange->ended && nccl->strategy.host->event->poll(exchange->work->done));
}

void exchange_close(const struct nccl *nccl, struct exchange *exchange)
{
    nccl->strategy.host->event->destroy(exchange->origin);
    work_close(nccl, &exchange->own);
}
