/*
 * reduce.c - see reduce.h: a bucket and its messages, by stages.
 *
 * A worker's scratch: its signal page; by bucket a flag, which counts the messages of this bucket;
 * slots for messages (gather.h), two banks of one for each bucket. Message k of a bucket, from 0,
 * lies in bank k mod 2. A worker writes message k + 2 when it has all messages k + 1. Each of these
 * was sent by a worker that had read all messages k.
 *
 * On one machine all workers read these slots. On several each has slots for the messages of all
 * workers, which go round a ring over TCP.
 */
#include <string.h>

#include "lib/reduce/reduce_state.h"

/* ---- messages ------------------------------------------------------------------------------ */

static struct dpb_flag *flag_of(const struct reduce *comm, uint32_t rank, uint64_t bucket)
{
    char *scratch = comm->base.arenas.peer_scratch[rank];
    return (struct dpb_flag *)(void *)(scratch + comm->flags_at) + bucket;
}

static struct coded_message *slot_of(const struct reduce *comm, uint32_t rank, uint64_t bucket,
                                     uint32_t k)
{
    const struct dpb_arenas *arenas = &comm->base.arenas;
    const bool across = reduce_goes_across(&comm->base.args);
    const uint64_t slot = gather_slot(arenas->n_buckets, across ? rank : 0, k, bucket);
    char *scratch = across ? arenas->scratch : arenas->peer_scratch[rank];
    return (struct coded_message *)(void *)(scratch + comm->slots_at + slot * comm->slot_bytes);
}

static uint64_t content_bytes(const struct reduce *comm)
{
    return comm->slot_bytes - sizeof(struct coded_message);
}

void reduce_make_room(struct exchange *x)
{
    x->bucket.message = slot_of(x->owner, x->bucket.rank, x->bucket.number, x->n_sent)->content;
}

static dpb_status post(struct reduce_bucket *bucket, uint64_t bytes, uint64_t n_summed,
                       reduce_function then)
{
    struct exchange *x = (struct exchange *)bucket;
    const uint64_t room = content_bytes(x->owner);
    if (bytes > room)
        return bucket->host->fail(DPB_FAILED,
                                  "comm '%s': a message of %llu bytes for the %llu elements of "
                                  "bucket %llu, and there is room for %llu: set message_bytes",
                                  x->owner->name, (unsigned long long)bytes,
                                  (unsigned long long)bucket->n, (unsigned long long)bucket->number,
                                  (unsigned long long)room);
    if (x->then)
        return bucket->host->fail(
            DPB_FAILED,
            "comm '%s': bucket %llu has a message under way; return the "
            "status of reduce_gather or reduce_sum, and send the next message "
            "from its function",
            x->owner->name, (unsigned long long)bucket->number);
    slot_of(x->owner, bucket->rank, bucket->number, x->n_sent++)->bytes = bytes;
    x->n_summed = n_summed;
    x->then = then;
    if (x->owner->gather)
        gather_post(x->owner->gather, bucket->number);
    else
        bucket->host->flag->set(flag_of(x->owner, bucket->rank, bucket->number), x->n_sent);
    return DPB_OK;
}

dpb_status reduce_gather(struct reduce_bucket *bucket, uint64_t bytes, reduce_function then)
{
    return post(bucket, bytes, 0, then);
}

dpb_status reduce_sum(struct reduce_bucket *bucket, uint64_t n, reduce_function then)
{
    return post(bucket, n * sizeof(float), n, then);
}

/* All are here. */
static dpb_status take_messages(struct reduce *comm, const struct exchange *x)
{
    const struct reduce_bucket *bucket = &x->bucket;
    for (uint32_t rank = 0; rank < bucket->n_workers; rank++) {
        const struct coded_message *slot = slot_of(comm, rank, bucket->number, x->n_sent - 1);
        const uint64_t bytes = __atomic_load_n(&slot->bytes, __ATOMIC_RELAXED);
        if (bytes > content_bytes(comm) ||
            (x->n_summed > 0 && bytes != x->n_summed * sizeof(float)))
            return bucket->host->fail(
                DPB_FAILED,
                "comm '%s': rank %u left a message of %llu bytes for bucket %llu, where rank "
                "%u expects another length: do all workers exchange the same?",
                comm->name, rank, (unsigned long long)bytes, (unsigned long long)bucket->number,
                bucket->rank);
        comm->messages[rank] = (struct reduce_message){slot->content, bytes};
        if (rank != bucket->rank && !comm->gather)
            bucket->host->count_bytes(bytes);
    }
    return DPB_OK;
}

static void sum_messages(const struct reduce *comm, const struct exchange *x)
{
    const void *sources[STRATEGY_WORKERS];
    for (uint32_t rank = 0; rank < x->bucket.n_workers; rank++)
        sources[rank] = comm->messages[rank].content;
    x->bucket.host->vec->sum(DPB_FP32, &x->bucket.message, 1, sources, x->bucket.n_workers,
                             x->n_summed);
}

/* ---- stages: the own message; all messages; update ------------------------------------------ */

static bool start_due(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    return comm->status == DPB_OK && strategy_own_ready(comm_, bucket);
}

static dpb_status start_wait(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    DPB_TRY(comm->status);
    return strategy_own_wait(comm_, bucket);
}

static void start(void *comm_, uint64_t bucket, struct stage_turn *turn)
{
    struct reduce *comm = comm_;
    struct exchange *x = &comm->exchanges[bucket];
    const struct dpb_host *host = comm->base.host;
    const int64_t began_ns = host->now_ns();
    x->again = false;
    x->bucket.step = (uint64_t)comm->steps;
    comm->status = comm->strategy->reduce(&x->bucket);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
    if (comm->status == DPB_OK && !x->then)
        comm->status = host->fail(DPB_FAILED,
                                  "comm '%s': nothing was exchanged for bucket %llu; a bucket has "
                                  "at least one message a step, which may be empty",
                                  comm->name, (unsigned long long)bucket);
    turn->at = turn->length;
}

static bool all_sent(const struct reduce *comm, uint64_t bucket, uint32_t *missing)
{
    if (comm->gather)
        return gather_finished(comm->gather, bucket);
    for (*missing = 0; *missing < comm->base.args.n_workers; ++*missing)
        if (!comm->base.host->flag->reached(flag_of(comm, *missing, bucket),
                                            comm->exchanges[bucket].n_sent))
            return false;
    return true;
}

static bool go_on_due(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    uint32_t missing;
    return comm->status == DPB_OK && all_sent(comm, bucket, &missing);
}

static dpb_status go_on_wait(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    struct dpb_wait what = {
        .step = comm->base.step.step, .bucket = bucket, .purpose = "the peer's message"};
    DPB_TRY(comm->status);
    if (all_sent(comm, bucket, &what.peer))
        return DPB_OK;
    if (comm->gather)
        return gather_wait(comm->gather, bucket);
    comm->base.host->note("wait_peer", bucket, what.peer);
    return comm->base.host->flag->wait(flag_of(comm, what.peer, bucket),
                                       comm->exchanges[bucket].n_sent, &what);
}

/* The bucket stays in this stage while its functions send further messages. */
static void go_on(void *comm_, uint64_t bucket, struct stage_turn *turn)
{
    struct reduce *comm = comm_;
    struct exchange *x = &comm->exchanges[bucket];
    const struct dpb_host *host = comm->base.host;
    const reduce_function then = x->then;
    if (!x->again && !comm->gather)
        signals_span_late_peer(&comm->base.signals, strategy_workers(&comm->base), bucket);
    const int64_t began_ns = host->now_ns();
    x->again = true;
    x->then = NULL;
    comm->status = take_messages(comm, x);
    if (comm->status != DPB_OK)
        return;
    reduce_make_room(x);
    if (x->n_summed > 0)
        sum_messages(comm, x);
    comm->status = then(&x->bucket);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
    if (comm->status == DPB_OK && !x->then)
        turn->at = turn->length;
}

/* A late strategy's first steps have no gradients yet: an update by zeros would decay weights. */
static void update(void *comm_, uint64_t bucket, struct stage_turn *turn)
{
    const struct reduce *comm = comm_;
    const struct reduce_bucket *own = &comm->exchanges[bucket].bucket;
    if (comm->steps > comm->strategy->late) {
        coded_update(comm_, bucket, turn);
        return;
    }
    memset(own->gradients, 0, own->n * sizeof(float));
    turn->at = turn->length;
}

const struct stage reduce_stages[REDUCE_STAGES] = {
    {start_due, start, start_wait}, {go_on_due, go_on, go_on_wait}, {.work = update}};
