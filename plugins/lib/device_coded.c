/* device_coded.c - see device_coded.h. */
#include "lib/device_coded.h"

#include <stdlib.h>

#include "lib/coded_state.h"

/* Pinned: what the device tells of a bucket under way. */
struct told {
    float gradients[CODED_SAMPLE], residual[CODED_SAMPLE];
    uint32_t refused;
};

struct device_coded {
    void *room;        /* of the device's encode */
    void *message;     /* of another worker, where it is decoded */
    struct told *told; /* by bucket, in turn */
    uint64_t *bytes;   /* by bucket: of each worker's message */
};

static struct told *told_of(const struct device_strategy *comm, uint64_t bucket)
{
    return &comm->coded->told[bucket % DEVICE_IN_FLIGHT];
}

static struct dpb_codec_part part_of(const struct strategy *base, uint32_t rank, uint64_t bucket)
{
    return coded_part_of(base, rank, bucket, 0, (uint64_t)base->coded->steps);
}

/* ---- stage: encode ------------------------------------------------------------------------- */

static bool encode_due(void *strategy, uint64_t bucket)
{
    const struct device_strategy *comm = strategy;
    return device_has_room(comm, DEVICE_PUSHES) &&
           signals_reached(&comm->base.signals, SIGNAL_READY, strategy_self(&comm->base), bucket);
}

static dpb_status encode_wait(void *strategy, uint64_t bucket)
{
    const struct device_strategy *comm = strategy;
    DPB_TRY(strategy_wait_ready(&comm->base, strategy_self(&comm->base), bucket));
    return comm->status;
}

static void tell_sample(struct device_strategy *comm, struct dpb_queue *queue, float *told,
                        const float *values, const struct dpb_codec_part *part)
{
    const struct dpb_range sample = coded_sample(part);
    device_keep(comm, comm->ops->copy(queue, told, values + sample.begin,
                                      (sample.end - sample.begin) * sizeof *told));
}

static void fill_message(struct device_strategy *comm, struct dpb_queue *queue,
                         const struct dpb_codec_part *part, const float *gradients, float *residual,
                         uint64_t bucket)
{
    const struct strategy *base = &comm->base;
    void *message = coded_message(base, base->args.rank, bucket)->content;
    uint64_t *bytes = &comm->coded->bytes[bucket];
    *bytes = part->n * sizeof *gradients;
    device_keep(comm, coded_is_plain(base, part->step)
                          ? comm->ops->copy(queue, message, gradients, *bytes)
                          : comm->ops->encode(queue, base->args.codec, part, gradients, residual,
                                              message, comm->coded->room, bytes));
}

static void encode(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    const struct strategy *base = &comm->base;
    const struct dpb_codec_part part = part_of(base, base->args.rank, bucket);
    struct dpb_queue *queue = comm->flights[DEVICE_PUSHES].lane->queue;
    const float *gradients = strategy_gradients(base, base->args.rank, part.first);
    float *kept = base->coded->residual + part.first, *dropped = base->coded->dropped;
    float *residual = dropped ? dropped : kept;
    (void)until_ns;
    if (dropped)
        device_keep(comm, comm->ops->clear(queue, dropped, length * sizeof *dropped));
    fill_message(comm, queue, &part, gradients, residual, bucket);
    if (dropped)
        device_keep(comm, comm->ops->axpby(queue, DPB_FP32, 1.0, dropped, 1.0, kept, length));
    tell_sample(comm, queue, told_of(comm, bucket)->gradients, gradients, &part);
    tell_sample(comm, queue, told_of(comm, bucket)->residual, residual, &part);
    device_begun(comm, DEVICE_PUSHES, bucket, false);
    *at = length;
}

/* ---- stage: decode, and update ------------------------------------------------------------- */

static bool decode_due(void *strategy, uint64_t bucket)
{
    const struct device_strategy *comm = strategy;
    return device_has_room(comm, DEVICE_PULLS) && device_has_room(comm, DEVICE_UPDATES) &&
           device_missing(comm, SIGNAL_PUSHED, false, bucket) == UINT32_MAX;
}

static dpb_status decode_wait(void *strategy, uint64_t bucket)
{
    struct device_strategy *comm = strategy;
    const uint32_t worker = device_missing(comm, SIGNAL_PUSHED, false, bucket);
    return worker == UINT32_MAX
               ? comm->status
               : device_wait(comm, bucket, worker, DPB_FP32, "the peer's encoded gradients");
}

static void add_message(struct device_strategy *comm, struct dpb_queue *queue, uint32_t rank,
                        uint64_t bucket, float *gradients)
{
    const struct strategy *base = &comm->base;
    const struct dpb_codec_part part = part_of(base, rank, bucket);
    const uint64_t bytes = comm->coded->bytes[bucket];
    const void *message = coded_message(base, rank, bucket)->content;
    if (rank != base->args.rank) {
        device_keep(comm, comm->ops->copy(queue, comm->coded->message, message, bytes));
        base->host->count_bytes(bytes);
        message = comm->coded->message;
    }
    device_keep(comm, coded_is_plain(base, part.step)
                          ? comm->ops->axpby(queue, DPB_FP32, 1.0, message, 1.0, gradients, part.n)
                          : comm->ops->decode(queue, base->args.codec, &part, message, gradients,
                                              &told_of(comm, bucket)->refused));
}

/* No device writes the gradients between tensors: see coded_update. */
static void update(struct device_strategy *comm, uint64_t bucket, uint64_t first, uint64_t length)
{
    const struct strategy *base = &comm->base;
    struct dpb_queue *queue = comm->flights[DEVICE_UPDATES].lane->queue;
    float *gradients = strategy_gradients(base, base->args.rank, first);
    device_keep(comm, base->host->optimizer->update(base->arenas.optimizer, queue,
                                                    (struct dpb_range){first, first + length},
                                                    strategy_weights(base, base->args.rank, first),
                                                    gradients, bucket, &base->step));
    device_keep(comm, comm->ops->clear(queue, gradients, length * sizeof *gradients));
    device_begun(comm, DEVICE_UPDATES, bucket, false);
}

static void decode(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    const struct strategy *base = &comm->base;
    const uint64_t first = bucket * base->arenas.bucket_elements;
    struct dpb_queue *queue = comm->flights[DEVICE_PULLS].lane->queue;
    float *gradients = strategy_gradients(base, base->args.rank, first);
    (void)until_ns;
    signals_span_late_peer(&base->signals, strategy_workers(base), bucket);
    told_of(comm, bucket)->refused = 0;
    device_keep(comm, comm->ops->clear(queue, gradients, length * sizeof *gradients));
    for (uint32_t rank = 0; rank < base->args.n_workers && comm->status == DPB_OK; rank++)
        add_message(comm, queue, rank, bucket, gradients);
    device_begun(comm, DEVICE_PULLS, bucket, false);
    update(comm, bucket, first, length);
    *at = length;
}

enum { ENCODE, DECODE, UPDATED, STAGES };

static const struct stage stages[STAGES] = {
    [ENCODE] = {encode_due, encode, encode_wait}, [DECODE] = {decode_due, decode, decode_wait}};

static const struct stage_flight encoded = {DEVICE_PUSHES, DPB_PHASE_REDUCE,
                                            "its device to encode gradients"};
static const struct stage_flight decoded = {DEVICE_PULLS, DPB_PHASE_REDUCE,
                                            "its device to decode messages"};
static const struct stage_flight *const flights[STAGES] = {
    [ENCODE] = &encoded, [DECODE] = &decoded, [UPDATED] = &device_updated};

static void landed(struct device_strategy *comm, uint32_t flight, uint64_t bucket, int64_t ns)
{
    const struct strategy *base = &comm->base;
    const struct dpb_codec_part part = part_of(base, base->args.rank, bucket);
    const struct dpb_range sample = coded_sample(&part);
    const uint64_t n = sample.end - sample.begin;
    const struct told *told = told_of(comm, bucket);
    if (flight == DEVICE_PUSHES)
        base->host->coding(&(struct dpb_coding){.elements = part.n,
                                                .message_bytes = comm->coded->bytes[bucket],
                                                .encode_ns = ns,
                                                .gradients = coded_sum_squares(told->gradients, n),
                                                .residual = coded_sum_squares(told->residual, n)});
    if (flight != DEVICE_PULLS)
        return;
    base->host->coding(&(struct dpb_coding){.decode_ns = ns});
    if (told->refused)
        device_keep(comm,
                    base->host->fail(
                        DPB_FAILED,
                        "codec %s: rank %u sent for bucket %llu what its device cannot "
                        "decode: do all ranks run the same training, with the same options "
                        "of the codec?",
                        base->args.codec->name, told->refused - 1, (unsigned long long)bucket));
}

/* ---- life ---------------------------------------------------------------------------------- */

dpb_status device_coded_plan(struct device_strategy *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    if (!comm->in_place)
        comm->base.coded->place = comm->base.args.device;
    return coded_plan(&comm->base, layout, CODED_SHARED, want);
}

dpb_status device_coded_bind(struct device_strategy *comm, const struct dpb_arenas *arenas)
{
    const struct dpb_host *host = comm->base.host;
    if (comm->in_place)
        return coded_bind_stages(&comm->base, arenas, &coded_shared);
    const struct dpb_codec *codec = comm->base.args.codec;
    struct coded *kept = comm->base.coded;
    const uint64_t room = comm->ops->coding_bytes(
        codec, strategy_longest_bucket(&arenas->layout, arenas->bucket_elements));
    struct device_coded *made = calloc(1, sizeof *made);
    void *told = NULL;
    comm->coded = made;
    if (made)
        made->bytes = calloc(arenas->n_buckets, sizeof *made->bytes);
    if (!made || !made->bytes)
        return host->fail(DPB_NO_MEMORY, "no memory for the codec");
    DPB_TRY(comm->ops->allocate(comm->device, "room of a codec", room + 1, false, &made->room));
    DPB_TRY(
        comm->ops->allocate(comm->device, "a message", kept->slot_bytes[0], false, &made->message));
    DPB_TRY(comm->ops->pin(comm->device, DEVICE_IN_FLIGHT * sizeof *made->told, &told));
    made->told = told;
    DPB_TRY(device_strategy_bind(comm, arenas, stages, flights, STAGES));
    comm->landed = landed;
    kept->queue = comm->back.queue;
    return coded_bind(&comm->base);
}

void device_coded_close(struct device_strategy *comm)
{
    struct device_coded *coded = comm->coded;
    if (!coded)
        return;
    struct dpb_queue *const queues[] = {comm->out.queue, comm->back.queue};
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++)
        if (queues[i])
            comm->ops->drain(queues[i]);
    comm->ops->release(comm->device, coded->room);
    comm->ops->release(comm->device, coded->message);
    comm->ops->unpin(comm->device, coded->told);
    free(coded->bytes);
    free(coded);
}
