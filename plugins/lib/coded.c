/* coded.c - see coded.h. */
#include "lib/coded.h"

#include <stdlib.h>
#include <string.h>

enum { BANKS = 2, SAMPLE = 4096 /* elements of a bucket whose norms are measured */ };

struct coded {
    uint64_t at, slot_bytes; /* of the messages in a scratch; of one of them */
    bool shared;
    float *residual; /* of the own gradients; without feedback the sum of what was dropped */
    float *dropped;  /* without feedback: of the bucket at hand; else NULL */
    double steps;    /* since `load` */
    dpb_status status;
};

/* ---- life ---------------------------------------------------------------------------------- */

dpb_status coded_open(struct strategy *strategy)
{
    if (!strategy->args.codec)
        return DPB_OK;
    strategy->coded = calloc(1, sizeof *strategy->coded);
    return strategy->coded ? DPB_OK
                           : strategy->host->fail(DPB_NO_MEMORY, "no memory for the codec");
}

uint64_t coded_slot_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout,
                          uint64_t bucket_elements)
{
    const uint64_t n = strategy_longest_bucket(layout, bucket_elements);
    const uint64_t bound = codec->ops->bound(codec->options, n);
    const uint64_t plain = codec->options->start_step > 0 ? n * sizeof(float) : 0;
    return sizeof(struct coded_message) + strategy_lines(bound > plain ? bound : plain);
}

static uint64_t messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                               uint64_t bucket_elements, bool shared)
{
    const uint64_t n = args->role == DPB_SERVER ? 0 : shared ? 1 : args->n_workers;
    return n * BANKS * strategy_count_buckets(layout, bucket_elements) *
           coded_slot_bytes(args->codec, layout, bucket_elements);
}

void coded_memory(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                  uint64_t bucket_elements, bool shared, struct dpb_comm_memory *memory)
{
    if (!args->codec || args->role == DPB_SERVER)
        return;
    memory->host_bytes +=
        messages_bytes(args, layout, bucket_elements, shared) + layout->n_elements * sizeof(float);
    if (!args->codec->options->feedback)
        memory->host_bytes += strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
}

dpb_status coded_plan(struct strategy *strategy, const struct dpb_layout *layout, bool shared,
                      struct dpb_comm_plan *want)
{
    struct coded *coded = strategy->coded;
    const struct dpb_comm_args *args = &strategy->args;
    if (strategy_longest_bucket(layout, want->bucket_elements) > UINT32_MAX)
        return strategy->host->fail(DPB_UNSUPPORTED,
                                    "comm.bucket = %llu bytes with comm.codec = %s: a bucket may "
                                    "have 2^32 - 1 elements",
                                    (unsigned long long)args->bucket_bytes, args->codec->name);
    coded->shared = shared;
    coded->at = strategy_lines(want->scratch_bytes);
    coded->slot_bytes = coded_slot_bytes(args->codec, layout, want->bucket_elements);
    want->scratch_bytes = coded->at + messages_bytes(args, layout, want->bucket_elements, shared);
    if (args->role == DPB_WORKER)
        want->gradients = DPB_MEMORY_PRIVATE;
    want->contract.consistency = DPB_LOSSY;
    want->contract.proof = DPB_PROOF_BOOKS;
    /* Residual and gradient are added; the message is taken off, and summed over the workers. */
    want->contract.roundings = 2 + args->n_workers;
    return DPB_OK;
}

static size_t dropped_bytes(const struct dpb_arenas *arenas)
{
    return strategy_longest_bucket(&arenas->layout, arenas->bucket_elements) * sizeof(float);
}

dpb_status coded_bind(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    const struct dpb_arenas *arenas = &strategy->arenas;
    if (strategy->args.role == DPB_SERVER)
        return DPB_OK;
    coded->residual = strategy->host->alloc(arenas->layout.n_elements * sizeof(float));
    if (!coded->residual)
        return DPB_NO_MEMORY;
    if (strategy->args.codec->options->feedback)
        return DPB_OK;
    coded->dropped = strategy->host->alloc(dropped_bytes(arenas));
    return coded->dropped ? DPB_OK : DPB_NO_MEMORY;
}

void coded_load(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    memset(coded->residual, 0, strategy->arenas.layout.n_elements * sizeof(float));
    coded->steps = 0;
}

void coded_close(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    if (!coded)
        return;
    strategy->host->release(coded->residual, strategy->arenas.layout.n_elements * sizeof(float));
    strategy->host->release(coded->dropped, dropped_bytes(&strategy->arenas));
    free(coded);
}

/* ---- a bucket ------------------------------------------------------------------------------ */

static struct dpb_codec_part part_of(const struct strategy *strategy, uint32_t rank,
                                     uint64_t bucket, uint64_t step)
{
    return (struct dpb_codec_part){.first = bucket * strategy->arenas.bucket_elements,
                                   .n = pipeline_bucket_length(&strategy->pipeline, bucket),
                                   .seed = strategy->args.codec->seed,
                                   .step = step,
                                   .rank = rank};
}

uint64_t coded_content_bytes(const struct strategy *strategy)
{
    return strategy->coded->slot_bytes - sizeof(struct coded_message);
}

void *coded_memory_of(const struct strategy *strategy, uint64_t *bytes)
{
    const struct coded *coded = strategy->coded;
    *bytes = messages_bytes(&strategy->args, &strategy->arenas.layout,
                            strategy->arenas.bucket_elements, coded->shared);
    return (char *)strategy->arenas.scratch + coded->at;
}

/* A slot's place among the messages of its scratch. */
static uint64_t slot_at(const struct strategy *strategy, uint64_t exchange, uint32_t rank,
                        uint64_t bucket)
{
    const uint64_t place = strategy->coded->shared ? 0 : rank;
    const uint64_t slot = (place * BANKS + exchange % BANKS) * strategy->arenas.n_buckets + bucket;
    return slot * strategy->coded->slot_bytes;
}

uint64_t coded_offset(const struct strategy *strategy, uint64_t exchange, uint32_t rank,
                      uint64_t bucket)
{
    return slot_at(strategy, exchange, rank, bucket) + sizeof(struct coded_message);
}

struct coded_message *coded_message_of(const struct strategy *strategy, uint64_t exchange,
                                       uint32_t rank, uint64_t bucket)
{
    const struct coded *coded = strategy->coded;
    char *scratch = coded->shared ? strategy->arenas.peer_scratch[rank] : strategy->arenas.scratch;
    return (struct coded_message *)(void *)(scratch + coded->at +
                                            slot_at(strategy, exchange, rank, bucket));
}

struct coded_message *coded_message(const struct strategy *strategy, uint32_t rank, uint64_t bucket)
{
    return coded_message_of(strategy, strategy->signals.exchange, rank, bucket);
}

/* Several sums at a time: one alone would wait for itself. */
static double sum_squares(const float *values, uint64_t n)
{
    double sums[8] = {0}, sum = 0;
    for (uint64_t i = 0; i + 8 <= n; i += 8)
        for (uint64_t k = 0; k < 8; k++)
            sums[k] += (double)values[i + k] * (double)values[i + k];
    for (uint64_t i = n / 8 * 8; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    for (uint64_t k = 0; k < 8; k++)
        sum += sums[k];
    return sum;
}

/* ---- the steps before the codec begins ----------------------------------------------------- */

/* Steps count from 1 where weights were loaded; a training that is continued goes on counting. */
static bool is_plain(const struct strategy *strategy, uint64_t step)
{
    return step <= (uint64_t)strategy->args.codec->options->start_step;
}

static dpb_status add_plain(const struct strategy *strategy, const struct dpb_codec_part *part,
                            const struct coded_message *message, uint64_t bytes, float *sum)
{
    const float *gradients = (const void *)message->content;
    if (bytes != part->n * sizeof *gradients)
        return strategy->host->fail(DPB_FAILED,
                                    "rank %u sent %llu bytes for %llu elements of step %llu, which "
                                    "comm.codec_start_step = %lld leaves as they are: do all ranks "
                                    "run the same training?",
                                    part->rank, (unsigned long long)bytes,
                                    (unsigned long long)part->n, (unsigned long long)part->step,
                                    (long long)strategy->args.codec->options->start_step);
    for (uint64_t i = 0; i < part->n; i++)
        sum[i] += gradients[i];
    return DPB_OK;
}

/* ---- encoding and decoding ----------------------------------------------------------------- */

/* Returns the message's bytes. */
static uint64_t fill_message(const struct strategy *strategy, const struct dpb_codec_part *part,
                             const float *gradients, float *residual, void *content)
{
    const struct dpb_codec *codec = strategy->args.codec;
    if (!is_plain(strategy, part->step))
        return codec->ops->encode(codec->options, part, gradients, residual, content);
    memcpy(content, gradients, part->n * sizeof *gradients);
    return part->n * sizeof *gradients;
}

void coded_encode(struct strategy *strategy, uint64_t bucket)
{
    struct coded *coded = strategy->coded;
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec_part part =
        part_of(strategy, strategy->args.rank, bucket, (uint64_t)coded->steps);
    struct coded_message *message = coded_message(strategy, part.rank, bucket);
    const float *gradients = strategy_gradients(strategy, part.rank, part.first);
    float *residual = coded->residual + part.first;
    const int64_t began_ns = host->now_ns();
    if (coded->dropped)
        memset(coded->dropped, 0, part.n * sizeof(float));
    message->step = part.step;
    message->bytes = fill_message(strategy, &part, gradients,
                                  coded->dropped ? coded->dropped : residual, message->content);
    if (coded->dropped)
        host->vec->axpby(DPB_FP32, 1.0, coded->dropped, 1.0, residual, part.n);
    const int64_t ended_ns = host->now_ns();
    struct dpb_coding coding = {
        .encode_ns = ended_ns - began_ns, .elements = part.n, .message_bytes = message->bytes};
    const uint64_t n = part.n < SAMPLE ? part.n : SAMPLE; /* other ones in each step */
    const uint64_t at = part.step * SAMPLE % (part.n - n + 1);
    coding.gradients = sum_squares(gradients + at, n);
    coding.residual = sum_squares((coded->dropped ? coded->dropped : residual) + at, n);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

static dpb_status add_message(const struct strategy *strategy, const struct dpb_codec_part *part,
                              const struct coded_message *message, uint64_t bucket, float *sum)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const uint64_t bytes = message->bytes; /* once: it may be a peer's memory */
    if (bytes > coded_content_bytes(strategy))
        return strategy->host->fail(
            DPB_FAILED, "rank %u left a message of %llu bytes for bucket %llu", part->rank,
            (unsigned long long)bytes, (unsigned long long)bucket);
    if (is_plain(strategy, part->step))
        return add_plain(strategy, part, message, bytes, sum);
    return codec->ops->decode(codec->options, part, message->content, bytes, sum);
}

void coded_sum(struct strategy *strategy, uint64_t bucket,
               const struct coded_message *const *messages, float *sum)
{
    struct coded *coded = strategy->coded;
    const struct dpb_host *host = strategy->host;
    const int64_t began_ns = host->now_ns();
    memset(sum, 0, pipeline_bucket_length(&strategy->pipeline, bucket) * sizeof *sum);
    for (uint32_t rank = 0; rank < strategy->args.n_workers && coded->status == DPB_OK; rank++) {
        const uint64_t step =
            strategy->args.role == DPB_SERVER ? messages[rank]->step : (uint64_t)coded->steps;
        const struct dpb_codec_part part = part_of(strategy, rank, bucket, step);
        coded->status = add_message(strategy, &part, messages[rank], bucket, sum);
    }
    const int64_t ended_ns = host->now_ns();
    host->coding(&(struct dpb_coding){.decode_ns = ended_ns - began_ns});
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void coded_decode(struct strategy *strategy, uint64_t bucket)
{
    const uint64_t begin = bucket * strategy->arenas.bucket_elements;
    const struct coded_message *messages[STRATEGY_WORKERS];
    for (uint32_t rank = 0; rank < strategy->args.n_workers; rank++) {
        messages[rank] = coded_message(strategy, rank, bucket);
        if (strategy->coded->shared && rank != strategy->args.rank)
            strategy->host->count_bytes(messages[rank]->bytes);
    }
    coded_sum(strategy, bucket, messages, strategy_gradients(strategy, strategy->args.rank, begin));
}

dpb_status coded_status(const struct strategy *strategy)
{
    return strategy->coded ? strategy->coded->status : DPB_OK;
}

dpb_status coded_begin(struct strategy *strategy)
{
    strategy->coded->steps += 1;
    return coded_status(strategy);
}

/* ---- hooks: model -------------------------------------------------------------------------- */

dpb_status coded_books(void *comm, struct dpb_books *books)
{
    const struct strategy *strategy = comm;
    const double share = 1.0 / strategy->args.n_workers;
    books->entries[books->n++] =
        (struct dpb_book){strategy->arenas.weights, DPB_FP32, share, false};
    if (strategy->coded)
        books->entries[books->n++] =
            (struct dpb_book){strategy->coded->residual, DPB_FP32, share, true};
    return DPB_OK;
}

dpb_status coded_state(void *comm, struct dpb_saved *saved)
{
    const struct strategy *strategy = comm;
    struct coded *coded = strategy->coded;
    if (!coded)
        return DPB_OK;
    saved->arrays[saved->n++] = (struct dpb_saved_array){"steps", DPB_FP64, true, 1, &coded->steps};
    if (!coded->dropped) /* what was dropped is for the books alone */
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            "residual", DPB_FP32, false, strategy->arenas.layout.n_elements, coded->residual};
    return DPB_OK;
}

/* ---- stages: encode, decode what all have encoded, update ----------------------------------- */

bool coded_encode_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket);
}

dpb_status coded_encode_wait(void *strategy, uint64_t bucket)
{
    return strategy_wait_ready(strategy, strategy_self(strategy), bucket);
}

static void encode(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct strategy *comm = strategy;
    (void)until_ns;
    coded_encode(comm, bucket);
    signals_raise(&comm->signals, SIGNAL_PUSHED, bucket);
    *at = length;
}

static bool decode_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_PUSHED, strategy_workers(comm), bucket);
}

static dpb_status decode_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait(comm, SIGNAL_PUSHED, strategy_workers(comm), bucket, DPB_FP32,
                         "the peer's encoded gradients");
}

static void decode(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct strategy *comm = strategy;
    (void)until_ns;
    signals_span_late_peer(&comm->signals, strategy_workers(comm), bucket);
    coded_decode(comm, bucket);
    *at = length;
}

bool coded_update_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return coded_status(strategy) == DPB_OK;
}

dpb_status coded_update_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return coded_status(strategy);
}

/* No device writes the gradients between tensors, and a codec may decode 0 to another number: what
 * it leaves there would be encoded with the next step's. */
void coded_update(void *strategy_, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct strategy *strategy = strategy_;
    const uint64_t begin = *at;
    strategy_update_bucket(strategy_, bucket, length, at, until_ns);
    memset(strategy_gradients(strategy, strategy->args.rank,
                              bucket * strategy->arenas.bucket_elements + begin),
           0, (*at - begin) * sizeof(float));
}

const struct stage coded_stages[CODED_STAGES] = {
    {coded_encode_due, encode, coded_encode_wait},
    {decode_due, decode, decode_wait},
    {coded_update_due, coded_update, coded_update_wait}};
