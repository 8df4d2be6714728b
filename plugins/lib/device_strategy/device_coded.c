/* device_coded.c - see device_coded.h. */
#include "lib/device_strategy/device_coded.h"

#include <stdlib.h>

/* Pinned. */
struct told {
    float gradients[DPB_CODED_SAMPLE], residual[DPB_CODED_SAMPLE];
    uint32_t refused;
};

struct device_coded {
    struct dpb_device_coder coder; /* first */
    void *message;                 /* of another worker, where it is decoded */
    struct told *told;             /* by bucket, in turn */
    uint64_t *bytes;               /* by bucket: of each worker's message */
};

static struct device_coded *codec_of(const struct dpb_device_strategy *comm)
{
    return (struct device_coded *)(void *)comm->base.client;
}

static struct dpb_device_told told_of(const struct dpb_device_strategy *comm, uint64_t bucket)
{
    struct told *told = &codec_of(comm)->told[bucket % DPB_DEVICE_IN_FLIGHT];
    return (struct dpb_device_told){told->gradients, told->residual, &told->refused};
}

/* ---- messages of a round ------------------------------------------------------------------- */

static bool has_answers(const struct dpb_device_strategy *comm)
{
    return dpb_coded_rounds(comm->base.args.codec) > 1;
}

static void encode_round(struct dpb_device_strategy *comm, struct dpb_queue *queue, uint64_t bucket,
                         uint32_t round)
{
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_codec_part part = dpb_device_coder_part(base, base->args.rank, bucket, round);
    const uint64_t slot = dpb_coded_slot(base, bucket, round);
    const struct dpb_device_told told = told_of(comm, bucket);
    void *message = dpb_coded_message(base, base->args.rank, slot)->content;
    dpb_device_keep(comm, dpb_device_coder_encode(base, queue, &part, &told, message,
                                                  &codec_of(comm)->bytes[slot]));
}

static void add_message(struct dpb_device_strategy *comm, struct dpb_queue *queue, uint32_t rank,
                        uint64_t bucket, uint32_t round, float *sum)
{
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_codec_part part = dpb_device_coder_part(base, rank, bucket, round);
    const uint64_t slot = dpb_coded_slot(base, bucket, round), bytes = codec_of(comm)->bytes[slot];
    const struct dpb_device_told told = told_of(comm, bucket);
    const void *message = dpb_coded_message(base, rank, slot)->content;
    if (bytes > 0 && rank != base->args.rank) {
        dpb_device_keep(comm, comm->ops->copy(queue, codec_of(comm)->message, message, bytes));
        base->host->count_bytes(bytes);
        message = codec_of(comm)->message;
    }
    dpb_device_keep(comm, dpb_device_coder_add(base, queue, &part, &told, message, bytes, sum));
}

/* Sums the messages of a round. After the last one the own gradients are the sum. */
static void take_round(struct dpb_device_strategy *comm, struct dpb_queue *queue, uint64_t bucket,
                       uint32_t round)
{
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_codec *codec = base->args.codec;
    const struct dpb_codec_part part = dpb_device_coder_part(base, base->args.rank, bucket, round);
    const struct dpb_device_told told = told_of(comm, bucket);
    const bool finishes = dpb_coded_finishes(base, &part);
    float *gradients = dpb_strategy_own_gradients(base, part.first);
    float *sum = finishes ? dpb_coded_of(base)->sum : gradients;
    const uint64_t bytes = finishes ? codec->ops->bytes(codec->options, &part)
                                    : dpb_coded_elements_of_round(base, &part) * sizeof *sum;
    dpb_device_keep(comm, comm->ops->clear(queue, sum, bytes));
    for (uint32_t rank = 0; rank < base->args.n_workers && comm->status == DPB_OK; rank++)
        add_message(comm, queue, rank, bucket, round, sum);
    dpb_device_keep(comm, dpb_device_coder_finish(base, queue, &part, &told, sum));
}

static const enum dpb_signal_kind there[DPB_CODEC_ROUNDS] = {DPB_SIGNAL_PUSHED,
                                                             DPB_SIGNAL_ANSWERED};

static dpb_status wait_messages(struct dpb_device_strategy *comm, uint64_t bucket, uint32_t round)
{
    const uint32_t worker = dpb_device_missing(comm, there[round], false, bucket);
    return worker == UINT32_MAX
               ? comm->status
               : dpb_device_wait(comm, bucket, worker, DPB_FP32, "the peer's encoded gradients");
}

/* ---- stage: encode ------------------------------------------------------------------------- */

static bool encode_due(void *strategy, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = strategy;
    return dpb_device_has_room(comm, DPB_DEVICE_PUSHES) && dpb_strategy_own_ready(strategy, bucket);
}

static dpb_status encode_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = strategy;
    DPB_TRY(dpb_strategy_own_wait(strategy, bucket));
    return comm->status;
}

static void encode(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    encode_round(comm, comm->flights[DPB_DEVICE_PUSHES].lane->queue, bucket, 0);
    dpb_device_begun(comm, DPB_DEVICE_PUSHES, bucket, false);
    turn->at = turn->length;
}

/* ---- stage: answer, of two rounds ---------------------------------------------------------- */

enum { ANSWERS = DPB_DEVICE_PULLS + 1 };

static void see_messages(const struct dpb_device_strategy *comm, uint64_t bucket)
{
    dpb_signals_span_late_peer(&comm->base.signals, dpb_strategy_workers(&comm->base), bucket);
    *told_of(comm, bucket).refused = 0;
}

static bool answer_due(void *strategy, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = strategy;
    return dpb_device_has_room(comm, ANSWERS) &&
           dpb_device_missing(comm, there[0], false, bucket) == UINT32_MAX;
}

static dpb_status answer_wait(void *strategy, uint64_t bucket)
{
    return wait_messages(strategy, bucket, 0);
}

static void answer(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    struct dpb_queue *queue = comm->flights[ANSWERS].lane->queue;
    see_messages(comm, bucket);
    take_round(comm, queue, bucket, 0);
    encode_round(comm, queue, bucket, 1);
    dpb_device_begun(comm, ANSWERS, bucket, false);
    turn->at = turn->length;
}

/* ---- stage: decode the last round, and update ---------------------------------------------- */

static uint32_t last_round(const struct dpb_device_strategy *comm)
{
    return dpb_coded_rounds(comm->base.args.codec) - 1;
}

static bool decode_due(void *strategy, uint64_t bucket)
{
    const struct dpb_device_strategy *comm = strategy;
    return dpb_device_has_room(comm, DPB_DEVICE_PULLS) &&
           dpb_device_has_room(comm, DPB_DEVICE_UPDATES) &&
           dpb_device_missing(comm, there[last_round(comm)], false, bucket) == UINT32_MAX;
}

static dpb_status decode_wait(void *strategy, uint64_t bucket)
{
    return wait_messages(strategy, bucket, last_round(strategy));
}

static void update(struct dpb_device_strategy *comm, uint64_t bucket, uint64_t first,
                   uint64_t length)
{
    const struct dpb_strategy *base = &comm->base;
    struct dpb_queue *queue = comm->flights[DPB_DEVICE_UPDATES].lane->queue;
    float *gradients = dpb_strategy_own_gradients(base, first);
    dpb_device_keep(comm, dpb_strategy_enqueue_update(
                              base, queue, bucket, (struct dpb_piece){first, length}, gradients));
    const struct dpb_range spent = dpb_coded_spent(base, bucket, (struct dpb_range){0, length});
    if (spent.end > spent.begin)
        dpb_device_keep(comm, comm->ops->clear(queue, dpb_strategy_own_gradients(base, spent.begin),
                                               (spent.end - spent.begin) * sizeof *gradients));
    dpb_device_begun(comm, DPB_DEVICE_UPDATES, bucket, false);
}

static void decode(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    if (!has_answers(comm))
        see_messages(comm, bucket);
    take_round(comm, comm->flights[DPB_DEVICE_PULLS].lane->queue, bucket, last_round(comm));
    dpb_device_begun(comm, DPB_DEVICE_PULLS, bucket, false);
    update(comm, bucket, bucket * comm->base.arenas.bucket_elements, turn->length);
    turn->at = turn->length;
}

/* ---- the stages of a codec of one round, and of two ----------------------------------------- */

static const struct dpb_stage one[] = {
    {encode_due, encode, encode_wait}, {decode_due, decode, decode_wait}, {NULL, NULL, NULL}};
static const struct dpb_stage two[] = {{encode_due, encode, encode_wait},
                                       {answer_due, answer, answer_wait},
                                       {decode_due, decode, decode_wait},
                                       {NULL, NULL, NULL}};

static const struct dpb_stage_flight encoded = {DPB_DEVICE_PUSHES, DPB_PHASE_REDUCE,
                                                "its device to encode gradients"};
static const struct dpb_stage_flight answered = {ANSWERS, DPB_PHASE_REDUCE,
                                                 "its device to encode the second round"};
static const struct dpb_stage_flight decoded = {DPB_DEVICE_PULLS, DPB_PHASE_REDUCE,
                                                "its device to decode messages"};
static const struct dpb_stage_flight *const flights_of_one[] = {&encoded, &decoded,
                                                                &dpb_device_updated};
static const struct dpb_stage_flight *const flights_of_two[] = {&encoded, &answered, &decoded,
                                                                &dpb_device_updated};

static void report_coding(const struct dpb_device_strategy *comm, uint32_t flight, uint64_t bucket,
                          int64_t ns)
{
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_codec_part part = dpb_device_coder_part(base, base->args.rank, bucket, 0);
    const struct dpb_device_told told = told_of(comm, bucket);
    struct dpb_coding coding = {0};
    *(flight == DPB_DEVICE_PULLS ? &coding.decode_ns : &coding.encode_ns) = ns;
    if (flight == DPB_DEVICE_PUSHES) {
        coding.elements = part.n;
        coding.message_bytes = codec_of(comm)->bytes[dpb_coded_slot(base, bucket, 0)];
    } else if (flight == ANSWERS) {
        coding.message_bytes = codec_of(comm)->bytes[dpb_coded_slot(base, bucket, 1)];
    }
    dpb_device_coder_read(&part, &told, flight == DPB_DEVICE_PUSHES,
                          flight == (has_answers(comm) ? DPB_DEVICE_PULLS : DPB_DEVICE_PUSHES),
                          &coding);
    base->host->coding(&coding);
}

static void landed(struct dpb_device_strategy *comm, uint32_t flight, uint64_t bucket, int64_t ns)
{
    const struct dpb_device_told told = told_of(comm, bucket);
    if (flight == DPB_DEVICE_UPDATES)
        return;
    report_coding(comm, flight, bucket, ns);
    if (flight == DPB_DEVICE_PULLS)
        dpb_device_keep(comm, dpb_device_coder_check(&comm->base, bucket, &told));
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Behind dpb_device_flights_close: nothing is under way. */
static void close(struct dpb_strategy *strategy)
{
    const struct dpb_device_strategy *comm = (const struct dpb_device_strategy *)(void *)strategy;
    struct device_coded *coded = codec_of(comm);
    if (coded->bytes) {
        comm->ops->release(comm->device, coded->message);
        comm->ops->unpin(comm->device, coded->told);
    }
    free(coded->bytes);
    dpb_device_coder_close(strategy);
}

dpb_status dpb_device_coded_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                 size_t bytes, void **comm)
{
    void *made;
    DPB_TRY(dpb_device_strategy_open(host, args, bytes, &made));
    struct dpb_strategy *strategy = made;
    dpb_status status = dpb_coded_attach(strategy, sizeof(struct device_coded));
    if (status != DPB_OK) {
        dpb_device_strategy_close(made);
        return status;
    }
    if (strategy->client)
        strategy->client->close = close;
    *comm = made;
    return DPB_OK;
}

dpb_status dpb_device_coded_plan(struct dpb_device_strategy *comm, const struct dpb_layout *layout,
                                 struct dpb_comm_plan *want)
{
    if (!comm->in_place)
        dpb_coded_of(&comm->base)->place = comm->base.args.device;
    return dpb_coded_plan(&comm->base, layout, DPB_CODED_SHARED, want);
}

static dpb_status allocate(struct dpb_device_strategy *comm, const struct dpb_arenas *arenas)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_codec *codec = comm->base.args.codec;
    const uint64_t elements = arenas->bucket_elements;
    struct device_coded *made = codec_of(comm);
    void *told = NULL;
    made->bytes = calloc(dpb_coded_rounds(codec) * arenas->n_buckets, sizeof *made->bytes);
    if (!made->bytes)
        return host->fail(DPB_NO_MEMORY, "no memory for the codec");
    DPB_TRY(dpb_device_coder_open(&comm->base, arenas));
    DPB_TRY(comm->ops->allocate(comm->device, "a message",
                                dpb_coded_longest_slot_bytes(codec, &arenas->layout, elements),
                                false, &made->message));
    DPB_TRY(comm->ops->pin(comm->device, DPB_DEVICE_IN_FLIGHT * sizeof *made->told, &told));
    made->told = told;
    return DPB_OK;
}

/* All work of a codec of two rounds uses one lane: the rounds share `room` and `dropped`. */
static dpb_status bind_two(struct dpb_device_strategy *comm, const struct dpb_arenas *arenas)
{
    DPB_TRY(dpb_device_strategy_bind(comm, arenas, two, flights_of_two, sizeof two / sizeof *two));
    comm->flights[DPB_DEVICE_PUSHES].lane = &comm->back;
    return dpb_device_flight_open(comm, ANSWERS, &comm->back, DPB_SIGNAL_ANSWERED);
}

dpb_status dpb_device_coded_bind(struct dpb_device_strategy *comm, const struct dpb_arenas *arenas)
{
    if (comm->in_place)
        return dpb_coded_bind_stages(&comm->base, arenas, &dpb_coded_shared);
    DPB_TRY(allocate(comm, arenas));
    DPB_TRY(has_answers(comm) ? bind_two(comm, arenas)
                              : dpb_device_strategy_bind(comm, arenas, one, flights_of_one,
                                                         sizeof one / sizeof *one));
    comm->landed = landed;
    dpb_coded_of(&comm->base)->queue = comm->back.queue;
    return dpb_coded_bind(&comm->base);
}
