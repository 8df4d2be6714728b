/* strategy.c - see strategy.h. */
#include "lib/strategy/strategy.h"

#include <stdlib.h>

dpb_status dpb_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                             size_t bytes, void **comm)
{
    struct dpb_strategy *made = calloc(1, bytes);
    if (!made)
        return host->fail(DPB_NO_MEMORY, "no memory for the communicator");
    made->host = host;
    made->args = *args;
    if (args->n_workers > DPB_STRATEGY_WORKERS) {
        free(made);
        return host->fail(DPB_UNSUPPORTED, "%u workers: at most %d share memory", args->n_workers,
                          DPB_STRATEGY_WORKERS);
    }
    *comm = made;
    return DPB_OK;
}

dpb_status dpb_strategy_bind(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                             const struct dpb_stage *stages, uint32_t n_stages)
{
    strategy->arenas = *arenas;
    strategy->signals =
        (struct dpb_rank_signals){.host = strategy->host,
                                  .rank = strategy->args.rank,
                                  .n_buckets = arenas->n_buckets,
                                  .exchange = UINT64_MAX, /* the first begin makes it 0 */
                                  .pages = (struct dpb_signal_page *const *)arenas->peer_scratch};
    return dpb_pipeline_open(&strategy->pipeline, strategy->host, strategy, stages, n_stages,
                             arenas);
}

dpb_status dpb_strategy_open_doorbell(struct dpb_strategy *strategy, const char *name)
{
    return dpb_signals_open_doorbell(&strategy->signals, &strategy->args, name,
                                     &strategy->signals.doorbell);
}

dpb_status dpb_strategy_plan_replica(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                                     dpb_memory shared, struct dpb_comm_plan *want)
{
    DPB_TRY(dpb_strategy_plan_own(strategy, layout, want));
    want->gradients = want->scratch = shared;
    want->scratch_bytes =
        dpb_signals_bytes(dpb_strategy_count_buckets(layout, want->bucket_elements));
    return DPB_OK;
}

dpb_status dpb_strategy_plan_own(void *comm, const struct dpb_layout *layout,
                                 struct dpb_comm_plan *want)
{
    const struct dpb_strategy *strategy = comm;
    want->weights = want->gradients = DPB_MEMORY_PRIVATE;
    want->owned = strategy->host->alloc(sizeof *want->owned);
    if (!want->owned)
        return DPB_NO_MEMORY;
    want->owned[0] = (struct dpb_range){0, layout->n_elements};
    want->n_owned = 1;
    return DPB_OK;
}

dpb_status dpb_strategy_plan_parts(const struct dpb_strategy *strategy,
                                   const struct dpb_layout *layout, dpb_strategy_part part,
                                   struct dpb_comm_plan *want)
{
    const uint64_t n_buckets = dpb_strategy_count_buckets(layout, want->bucket_elements);
    strategy->host->release(want->owned, want->n_owned * sizeof *want->owned);
    want->n_owned = 0;
    want->owned = strategy->host->alloc(n_buckets * sizeof *want->owned);
    if (!want->owned)
        return DPB_NO_MEMORY;
    want->n_owned = n_buckets;
    for (uint64_t bucket = 0; bucket < n_buckets; bucket++) {
        const uint64_t begin = bucket * want->bucket_elements;
        const struct dpb_range own = part(
            strategy, bucket, dpb_strategy_bucket_length(layout, want->bucket_elements, bucket));
        want->owned[bucket] = (struct dpb_range){begin + own.begin, begin + own.end};
    }
    return DPB_OK;
}

bool dpb_strategy_is_last(const struct dpb_strategy *strategy, uint64_t bucket)
{
    return bucket + 1 == strategy->arenas.n_buckets;
}

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status dpb_strategy_load(void *comm)
{
    struct dpb_strategy *strategy = comm; /* every worker holds the model already */
    if (strategy->client)
        strategy->client->load(strategy);
    return DPB_OK;
}

dpb_status dpb_strategy_begin(void *comm, const struct dpb_step *step)
{
    struct dpb_strategy *strategy = comm;
    strategy->step = *step;
    strategy->signals.exchange++;
    dpb_pipeline_begin(&strategy->pipeline);
    return strategy->client ? strategy->client->begin(strategy) : DPB_OK;
}

dpb_status dpb_strategy_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct dpb_strategy *strategy = comm;
    (void)event; /* host gradients are final when they are announced */
    dpb_signals_raise(&strategy->signals, DPB_SIGNAL_READY, bucket);
    return DPB_OK;
}

dpb_status dpb_strategy_progress(void *comm, int64_t budget_ns)
{
    return dpb_pipeline_progress(&((struct dpb_strategy *)comm)->pipeline, budget_ns);
}

dpb_status dpb_strategy_end(void *comm, struct dpb_event **done)
{
    *done = ((struct dpb_strategy *)comm)->pipeline.done;
    return DPB_OK;
}

dpb_status dpb_strategy_publish(void *comm, struct dpb_view *view)
{
    view->weights = ((struct dpb_strategy *)comm)->arenas.weights;
    return DPB_OK;
}

uint64_t dpb_strategy_taken(void *comm)
{
    return dpb_pipeline_count_done(&((struct dpb_strategy *)comm)->pipeline);
}

uint64_t dpb_strategy_met(void *comm)
{
    return ((struct dpb_strategy *)comm)->pipeline.needs.met;
}

void dpb_strategy_close(void *comm)
{
    struct dpb_strategy *strategy = comm;
    if (!strategy)
        return;
    if (strategy->client)
        strategy->client->close(strategy);
    strategy->host->release(strategy->room, DPB_CHUNK_BYTES);
    free(strategy->needed);
    strategy->host->release(strategy->squares.all, strategy->squares.n_owners *
                                                       strategy->arenas.layout.n_tensors *
                                                       sizeof *strategy->squares.all);
    dpb_pipeline_close(&strategy->pipeline);
    dpb_doorbell_close(strategy->signals.doorbell);
    free(strategy);
}

/* ---- for stages ---------------------------------------------------------------------------- */

uint32_t dpb_strategy_local_rank(const struct dpb_comm_args *args)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < args->rank; rank++)
        n += args->machines[rank] == args->machines[args->rank];
    return n;
}

dpb_status dpb_strategy_order(const struct dpb_strategy *strategy, uint32_t **order,
                              uint32_t *position)
{
    const struct dpb_comm_args *args = &strategy->args;
    uint32_t n = 0, *made = calloc(args->n_workers, sizeof *made);
    if (!made)
        return strategy->host->fail(DPB_NO_MEMORY, "no memory for a ring of %u ranks",
                                    args->n_workers);
    for (uint32_t machine = 0; machine < args->n_machines; machine++)
        for (uint32_t rank = 0; rank < args->n_workers; rank++)
            if (args->machines[rank] == machine) {
                if (rank == args->rank)
                    *position = n;
                made[n++] = rank;
            }
    *order = made;
    return DPB_OK;
}

struct dpb_rank_set dpb_strategy_self(const struct dpb_strategy *strategy)
{
    return (struct dpb_rank_set){strategy->args.rank, 1};
}

struct dpb_rank_set dpb_strategy_workers(const struct dpb_strategy *strategy)
{
    return (struct dpb_rank_set){0, strategy->args.n_workers};
}

dpb_status dpb_strategy_wait(const struct dpb_strategy *strategy, enum dpb_signal_kind kind,
                             struct dpb_rank_set ranks, uint64_t bucket, dpb_dtype type,
                             const char *purpose)
{
    uint64_t bytes = dpb_pipeline_bucket_length(&strategy->pipeline, bucket) * dpb_dtype_size(type);
    return dpb_signals_wait(&strategy->signals, kind, ranks, bucket, 0, bytes, purpose);
}

dpb_status dpb_strategy_wait_ready(const struct dpb_strategy *strategy, struct dpb_rank_set ranks,
                                   uint64_t bucket)
{
    struct dpb_rank_set self = dpb_strategy_self(strategy);
    if (strategy->args.role == DPB_WORKER &&
        !dpb_signals_reached(&strategy->signals, DPB_SIGNAL_READY, self, bucket))
        return dpb_signals_wait(&strategy->signals, DPB_SIGNAL_READY, self, bucket, DPB_FOREVER, 0,
                                "its own gradients");
    return dpb_strategy_wait(strategy, DPB_SIGNAL_READY, ranks, bucket,
                             strategy->arenas.layout.gradient_type, "gradients of the peer");
}

bool dpb_strategy_all_reached(const struct dpb_strategy *strategy, enum dpb_signal_kind kind,
                              uint64_t bucket)
{
    return dpb_signals_reached(&strategy->signals, kind, dpb_strategy_workers(strategy), bucket);
}

bool dpb_strategy_own_ready(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *comm = strategy;
    return dpb_signals_reached(&comm->signals, DPB_SIGNAL_READY, dpb_strategy_self(comm), bucket);
}

dpb_status dpb_strategy_own_wait(void *strategy, uint64_t bucket)
{
    return dpb_strategy_wait_ready(strategy, dpb_strategy_self(strategy), bucket);
}

struct dpb_piece dpb_strategy_piece(const struct dpb_strategy *strategy, uint64_t bucket,
                                    uint64_t length, uint64_t at, dpb_dtype type)
{
    uint64_t chunk = DPB_CHUNK_BYTES / dpb_dtype_size(type), rest = length - at;
    return (struct dpb_piece){bucket * strategy->arenas.bucket_elements + at,
                              rest < chunk ? rest : chunk};
}

void *dpb_strategy_weights(const struct dpb_strategy *strategy, uint32_t rank, uint64_t at)
{
    return (char *)strategy->arenas.peer_weights[rank] +
           at * dpb_dtype_size(strategy->arenas.layout.weight_type);
}

void *dpb_strategy_gradients(const struct dpb_strategy *strategy, uint32_t rank, uint64_t at)
{
    return (char *)strategy->arenas.peer_gradients[rank] +
           at * dpb_dtype_size(strategy->arenas.layout.gradient_type);
}

void *dpb_strategy_own_weights(const struct dpb_strategy *strategy, uint64_t at)
{
    return dpb_strategy_weights(strategy, strategy->args.rank, at);
}

void *dpb_strategy_own_gradients(const struct dpb_strategy *strategy, uint64_t at)
{
    return dpb_strategy_gradients(strategy, strategy->args.rank, at);
}

void *dpb_strategy_own_sums(const struct dpb_strategy *strategy, uint64_t at)
{
    const struct dpb_arenas *arenas = &strategy->arenas;
    return arenas->sums ? (char *)arenas->sums + at * dpb_dtype_size(arenas->layout.gradient_type)
                        : dpb_strategy_own_gradients(strategy, at);
}

void dpb_strategy_sum_sources(const struct dpb_strategy *strategy, uint64_t bucket,
                              struct dpb_piece piece, const void *const *sources, void *const *dst,
                              uint32_t n_dst)
{
    const struct dpb_host *host = strategy->host;
    int64_t began_ns = host->now_ns();
    host->vec->sum(strategy->arenas.layout.gradient_type, dst, n_dst, sources,
                   strategy->args.n_workers, piece.n);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
}

void dpb_strategy_sum(const struct dpb_strategy *strategy, uint64_t bucket, struct dpb_piece piece,
                      void *const *dst, uint32_t n_dst)
{
    const struct dpb_comm_args *args = &strategy->args;
    const void *sources[DPB_STRATEGY_WORKERS];
    uint32_t n_others = args->n_workers - (args->role == DPB_WORKER ? 1 : 0);
    for (uint32_t rank = 0; rank < args->n_workers; rank++)
        sources[rank] = dpb_strategy_gradients(strategy, rank, piece.begin);
    dpb_strategy_sum_sources(strategy, bucket, piece, sources, dst, n_dst);
    strategy->host->count_bytes(n_others * piece.n *
                                dpb_dtype_size(strategy->arenas.layout.gradient_type));
}

dpb_status dpb_strategy_enqueue_update(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                       uint64_t bucket, struct dpb_piece piece,
                                       const void *gradients)
{
    return strategy->host->optimizer->update(
        strategy->arenas.optimizer, queue, (struct dpb_range){piece.begin, piece.begin + piece.n},
        dpb_strategy_own_weights(strategy, piece.begin), gradients, bucket, &strategy->step);
}

void dpb_strategy_update(const struct dpb_strategy *strategy, uint64_t bucket,
                         struct dpb_piece piece, const void *gradients)
{
    (void)dpb_strategy_enqueue_update(strategy, NULL, bucket, piece, gradients);
}

void dpb_strategy_make_weights(void *strategy_, uint64_t bucket, uint64_t begin, uint64_t n)
{
    const struct dpb_strategy *strategy = strategy_;
    dpb_strategy_update(strategy, bucket, (struct dpb_piece){begin, n},
                        dpb_strategy_own_sums(strategy, begin));
}

void dpb_strategy_span_others(const struct dpb_strategy *strategy, enum dpb_signal_kind own,
                              enum dpb_signal_kind theirs, struct dpb_rank_set ranks,
                              uint64_t bucket)
{
    int64_t here =
        dpb_signals_latest_ns(&strategy->signals, own, dpb_strategy_self(strategy), bucket);
    int64_t last = dpb_signals_latest_ns(&strategy->signals, theirs, ranks, bucket);
    if (last > here && !dpb_signals_overwritten(&strategy->signals, theirs, ranks, bucket))
        strategy->host->span(bucket, DPB_PHASE_TRANSFER, here, last);
}

void dpb_strategy_update_bucket(void *strategy_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *strategy = strategy_;
    dpb_dtype type = strategy->arenas.layout.weight_type;
    do {
        struct dpb_piece piece = dpb_strategy_piece(strategy, bucket, turn->length, turn->at, type);
        dpb_strategy_make_weights(strategy_, bucket, piece.begin, piece.n);
        turn->at += piece.n;
    } while (turn->at < turn->length && strategy->host->now_ns() < turn->until_ns);
}
