/*
 * over_coded.c - between machines by messages of a codec, over TCP: see across.h.
 *
 * Place `bucket` mod n_shares carries a whole bucket across, because a message holds a whole
 * bucket. To the codec's carrier (coded.h) each machine is a worker, whose gradients are the
 * machine's sum. A ring of places, one of each machine, carries the messages (gather.h). Each
 * place decodes all messages, in the order of the machines, into its own gradients. With a codec of
 * two rounds it does so twice: the sum of the first messages answers with the second one.
 *
 * All workers have a residual and its hooks, including workers that carry nothing.
 */
#include <stdio.h>

#include "across.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/ring/gather.h"

struct over_coded {
    struct across base;
    struct dpb_sums sums;                 /* of whole buckets, by messages */
    struct dpb_strategy *machines;        /* @owned */
    struct dpb_mesh_transport *transport; /* the gather's, once there is one */
    struct dpb_gather *gather;            /* NULL: this place carries nothing */
    void **gradients;                     /* by machine: the own arena */
    char name[32];                        /* of the ring */
    uint32_t place, n_shares;
    uint64_t answered; /* of two rounds: buckets of this exchange in the second one or behind */
};

static struct over_coded *over_of(struct dpb_sums *sums)
{
    return (struct over_coded *)(void *)((char *)sums - offsetof(struct over_coded, sums));
}

static size_t gradients_bytes(const struct over_coded *over)
{
    return over->machines->args.n_workers * sizeof *over->gradients;
}

/* ---- making and ending --------------------------------------------------------------------- */

/* The carrier sees the arenas of this rank, and no bucket that goes by stages. */
static dpb_status bind_machines(struct over_coded *over, const struct across_group *group)
{
    struct dpb_strategy *machines = over->machines;
    over->gradients = machines->host->alloc(gradients_bytes(over));
    if (!over->gradients)
        return DPB_NO_MEMORY;
    over->gradients[group->machine] = group->arenas->gradients;
    struct dpb_arenas view = *group->arenas;
    view.peer_gradients = over->gradients;
    DPB_TRY(dpb_strategy_bind(machines, &view, NULL, 0));
    machines->signals.ranks = group->members;
    return dpb_coded_bind(machines);
}

static dpb_status over_coded_connect(struct across *across, const struct across_group *group)
{
    struct over_coded *over = (struct over_coded *)across;
    over->place = group->place;
    over->n_shares = group->n_shares;
    DPB_TRY(bind_machines(over, group));
    if (!over->transport)
        return DPB_OK;
    snprintf(over->name, sizeof over->name, "ring %u", group->place);
    const struct dpb_gather_args args = {.strategy = over->machines,
                                         .slots = dpb_gather_coded_slots(over->machines),
                                         .transport = over->transport,
                                         .members = {.name = over->name,
                                                     .n_members = group->job->n_machines,
                                                     .position = group->machine,
                                                     .doorbell = group->doorbell}};
    over->transport = NULL; /* the gather's from here on */
    return dpb_gather_create(&args, &over->gather);
}

static void over_coded_close(struct across *across)
{
    struct over_coded *over = (struct over_coded *)across;
    const struct dpb_host *host = over->machines->host;
    if (over->transport)
        over->transport->ops->close(over->transport, false);
    dpb_gather_destroy(over->gather);
    host->release(over->gradients, gradients_bytes(over));
    dpb_strategy_close(over->machines);
    host->release(over, sizeof *over);
}

/* ---- an exchange --------------------------------------------------------------------------- */

static bool carries(const struct over_coded *over, uint64_t bucket)
{
    return bucket % over->n_shares == over->place;
}

static void encode(struct over_coded *over, uint64_t bucket, uint32_t round)
{
    dpb_coded_encode(over->machines, bucket, round);
    dpb_gather_post(over->gather, bucket);
}

static void over_coded_post(struct dpb_sums *sums, uint64_t begin, uint64_t n)
{
    struct over_coded *over = over_of(sums);
    const uint64_t bucket = sums->posted++;
    (void)begin; /* the share is the bucket, or nothing */
    (void)n;
    if (carries(over, bucket))
        encode(over, bucket, 0);
}

/* Whether the round under way of the bucket is through. */
static bool is_here(const struct over_coded *over, uint64_t bucket)
{
    return !carries(over, bucket) || dpb_gather_finished(over->gather, bucket);
}

static bool answer(struct over_coded *over)
{
    const uint64_t bucket = over->answered;
    if (bucket == over->sums.posted || !is_here(over, bucket) ||
        dpb_coded_status(over->machines) != DPB_OK)
        return false;
    if (carries(over, bucket)) {
        dpb_coded_decode(over->machines, bucket, 0);
        encode(over, bucket, 1);
    }
    over->answered++;
    return true;
}

/* Decodes one bucket of each round a call, once its messages are here: others' messages are to move
 * meanwhile. */
static dpb_status over_coded_move(struct dpb_sums *sums, int64_t until_ns, bool *moved)
{
    struct over_coded *over = over_of(sums);
    const uint64_t bucket = sums->finished;
    const uint32_t last_round = dpb_coded_rounds(over->machines->args.codec) - 1;
    DPB_TRY(dpb_gather_move(over->gather, until_ns, moved));
    if (dpb_sums_idle(sums))
        return dpb_coded_status(over->machines);
    if (last_round > 0)
        *moved = answer(over) || *moved;
    if (bucket == (last_round > 0 ? over->answered : sums->posted) || !is_here(over, bucket))
        return dpb_coded_status(over->machines);
    if (carries(over, bucket))
        dpb_coded_decode(over->machines, bucket, last_round);
    sums->finished++;
    if (sums->finished == over->machines->arenas.n_buckets)
        over->answered = 0;
    *moved = true;
    return dpb_coded_status(over->machines);
}

/* `move` finishes buckets of other places by itself. */
static dpb_status over_coded_wait(struct dpb_sums *sums)
{
    const struct over_coded *over = over_of(sums);
    return dpb_sums_idle(sums) || !carries(over, sums->finished)
               ? DPB_OK
               : dpb_gather_wait(over->gather, sums->finished);
}

/* They end with the way across. */
static const struct dpb_sums_ops sums_ops = {
    .post = over_coded_post, .move = over_coded_move, .wait = over_coded_wait};

static const struct across_ops ops = {.connect = over_coded_connect, .close = over_coded_close};

dpb_status across_open_coded(const struct dpb_host *host, const struct dpb_comm_args *job,
                             const struct hierarchical_options *options, bool drives,
                             struct across **across, struct dpb_strategy **machines)
{
    struct dpb_comm_args args = *job;
    void *made;
    args.n_workers = job->n_machines;
    args.rank = job->machines[job->rank];
    DPB_TRY(dpb_coded_open(host, &args, sizeof(struct dpb_strategy), &made));
    struct over_coded *over = host->alloc(sizeof *over);
    if (!over) {
        dpb_strategy_close(made);
        return DPB_NO_MEMORY;
    }
    *over = (struct over_coded){.base = {&ops, &over->sums},
                                .sums = {.ops = &sums_ops, .window = UINT64_MAX},
                                .machines = made};
    dpb_status status =
        drives ? dpb_mesh_tcp_create(host, &options->tcp, &over->transport) : DPB_OK;
    if (status != DPB_OK) {
        over_coded_close(&over->base);
        return status;
    }
    *machines = made;
    *across = &over->base;
    return DPB_OK;
}
