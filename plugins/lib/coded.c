/* coded.c - see coded.h. */
#include "lib/coded.h"

#include <stdlib.h>
#include <string.h>

enum { BANKS = 2, SAMPLE = 4096 /* elements of a bucket whose norms are measured */ };

struct coded {
    uint64_t at; /* of the messages in a scratch */
    uint64_t slot_bytes[DPB_CODEC_ROUNDS];
    bool shared;
    float *residual; /* of the own gradients; without feedback the sum of what was dropped */
    float *velocity; /* of the codec, then what it has added; behind the residual. NULL: none */
    float *dropped;  /* without feedback: of the bucket at hand; else NULL */
    double steps;    /* since `load` */
    /* Of a codec of two rounds: */
    float *sum, *state;
    uint64_t *state_at; /* by bucket: its first element; then their number */
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

/* Of each round: 0 for one that the codec lacks. */
static void find_slots(const struct dpb_codec *codec, const struct dpb_layout *layout,
                       uint64_t bucket_elements, uint64_t slot_bytes[DPB_CODEC_ROUNDS])
{
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++)
        slot_bytes[round] = round < coded_rounds(codec)
                                ? coded_slot_bytes(codec, layout, bucket_elements, round)
                                : 0;
}

static uint64_t longer(const uint64_t slot_bytes[DPB_CODEC_ROUNDS])
{
    return slot_bytes[0] > slot_bytes[1] ? slot_bytes[0] : slot_bytes[1];
}

static uint64_t messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                               uint64_t bucket_elements, bool shared)
{
    const uint64_t n = args->role == DPB_SERVER ? 0 : shared ? 1 : args->n_workers;
    uint64_t bytes[DPB_CODEC_ROUNDS];
    find_slots(args->codec, layout, bucket_elements, bytes);
    return n * BANKS * strategy_count_buckets(layout, bucket_elements) * (bytes[0] + bytes[1]);
}

/* Of the residual; with a velocity of that and of what it has added, too. */
static size_t kept_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout)
{
    return (coded_has_velocity(codec) ? 3 : 1) * layout->n_elements * sizeof(float);
}

void coded_memory(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                  uint64_t bucket_elements, bool shared, struct dpb_comm_memory *memory)
{
    if (!args->codec || args->role == DPB_SERVER)
        return;
    memory->host_bytes +=
        messages_bytes(args, layout, bucket_elements, shared) + kept_bytes(args->codec, layout);
    if (!args->codec->options->feedback)
        memory->host_bytes += strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
    if (!args->codec->ops->finish)
        return;
    uint64_t slot_bytes[DPB_CODEC_ROUNDS];
    find_slots(args->codec, layout, bucket_elements, slot_bytes);
    memory->host_bytes +=
        longer(slot_bytes) +
        coded_count_state(args->codec, layout, bucket_elements, NULL) * sizeof(float);
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
    find_slots(args->codec, layout, want->bucket_elements, coded->slot_bytes);
    want->scratch_bytes = coded->at + messages_bytes(args, layout, want->bucket_elements, shared);
    if (args->role == DPB_WORKER)
        want->gradients = DPB_MEMORY_PRIVATE;
    want->contract.consistency = DPB_LOSSY;
    want->contract.proof = DPB_PROOF_BOOKS;
    /* Residual and gradient are added; the message is taken off, and summed over the workers. A
     * velocity makes two more of the gradient and of what it adds. */
    want->contract.roundings = 2 + args->n_workers + (coded_has_velocity(args->codec) ? 2 : 0);
    return DPB_OK;
}

static size_t dropped_bytes(const struct dpb_arenas *arenas)
{
    return strategy_longest_bucket(&arenas->layout, arenas->bucket_elements) * sizeof(float);
}

static size_t state_at_bytes(const struct strategy *strategy)
{
    return (strategy->arenas.n_buckets + 1) * sizeof(uint64_t);
}

static uint64_t state_elements(const struct strategy *strategy)
{
    const uint64_t *at = strategy->coded->state_at;
    return at ? at[strategy->arenas.n_buckets] : 0;
}

static dpb_status bind_rounds(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    const struct dpb_host *host = strategy->host;
    const struct dpb_arenas *arenas = &strategy->arenas;
    coded->sum = host->alloc(longer(coded->slot_bytes));
    coded->state_at = host->alloc(state_at_bytes(strategy));
    if (!coded->sum || !coded->state_at)
        return DPB_NO_MEMORY;
    const uint64_t n = coded_count_state(strategy->args.codec, &arenas->layout,
                                         arenas->bucket_elements, coded->state_at);
    coded->state = n > 0 ? host->alloc(n * sizeof(float)) : NULL;
    return coded->state || n == 0 ? DPB_OK : DPB_NO_MEMORY;
}

dpb_status coded_bind(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    const struct dpb_arenas *arenas = &strategy->arenas;
    if (strategy->args.role == DPB_SERVER)
        return DPB_OK;
    coded->residual = strategy->host->alloc(kept_bytes(strategy->args.codec, &arenas->layout));
    if (!coded->residual)
        return DPB_NO_MEMORY;
    if (coded_has_velocity(strategy->args.codec))
        coded->velocity = coded->residual + arenas->layout.n_elements;
    if (strategy->args.codec->ops->finish)
        DPB_TRY(bind_rounds(strategy));
    if (strategy->args.codec->options->feedback)
        return DPB_OK;
    coded->dropped = strategy->host->alloc(dropped_bytes(arenas));
    return coded->dropped ? DPB_OK : DPB_NO_MEMORY;
}

void coded_load(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    memset(coded->residual, 0, kept_bytes(strategy->args.codec, &strategy->arenas.layout));
    if (coded->state)
        memset(coded->state, 0, state_elements(strategy) * sizeof(float));
    coded->steps = 0;
}

void coded_close(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    if (!coded)
        return;
    strategy->host->release(coded->residual,
                            kept_bytes(strategy->args.codec, &strategy->arenas.layout));
    strategy->host->release(coded->dropped, dropped_bytes(&strategy->arenas));
    strategy->host->release(coded->sum, longer(coded->slot_bytes));
    strategy->host->release(coded->state, state_elements(strategy) * sizeof(float));
    strategy->host->release(coded->state_at, state_at_bytes(strategy));
    free(coded);
}

/* ---- a bucket ------------------------------------------------------------------------------ */

static struct dpb_codec_part part_of(const struct strategy *strategy, uint32_t rank,
                                     uint64_t bucket, uint32_t round, uint64_t step)
{
    const struct coded *coded = strategy->coded;
    struct dpb_codec_part part =
        coded_part(&strategy->arenas.layout, strategy->arenas.bucket_elements, bucket);
    part.seed = strategy->args.codec->seed;
    part.step = step;
    part.rank = signals_rank(&strategy->signals, rank);
    part.round = round;
    part.n_workers = strategy->args.n_workers;
    part.state = coded->state ? coded->state + coded->state_at[bucket] : NULL;
    part.velocity = coded->velocity ? coded->velocity + part.first : NULL;
    part.added = coded->velocity ? part.velocity + strategy->arenas.layout.n_elements : NULL;
    return part;
}

uint64_t coded_content_bytes(const struct strategy *strategy, uint64_t slot)
{
    return strategy->coded->slot_bytes[slot / strategy->arenas.n_buckets] -
           sizeof(struct coded_message);
}

void *coded_memory_of(const struct strategy *strategy, uint64_t *bytes)
{
    const struct coded *coded = strategy->coded;
    *bytes = messages_bytes(&strategy->args, &strategy->arenas.layout,
                            strategy->arenas.bucket_elements, coded->shared);
    return (char *)strategy->arenas.scratch + coded->at;
}

uint64_t coded_n_slots(const struct strategy *strategy)
{
    return strategy->arenas.n_buckets * coded_rounds(strategy->args.codec);
}

uint64_t coded_slot(const struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    return round * strategy->arenas.n_buckets + bucket;
}

/* A slot's place among the messages of its scratch. */
static uint64_t slot_at(const struct strategy *strategy, uint64_t exchange, uint32_t rank,
                        uint64_t slot)
{
    const uint64_t place = strategy->coded->shared ? 0 : rank;
    const uint64_t bank = place * BANKS + exchange % BANKS;
    const uint64_t *bytes = strategy->coded->slot_bytes, n = strategy->arenas.n_buckets;
    const uint64_t first = slot < n ? slot : n, second = slot - first;
    return (bank * n + first) * bytes[0] + (bank * n + second) * bytes[1];
}

uint64_t coded_offset(const struct strategy *strategy, uint64_t exchange, uint32_t rank,
                      uint64_t slot)
{
    return slot_at(strategy, exchange, rank, slot) + sizeof(struct coded_message);
}

struct coded_message *coded_message_of(const struct strategy *strategy, uint64_t exchange,
                                       uint32_t rank, uint64_t slot)
{
    const struct coded *coded = strategy->coded;
    char *scratch = coded->shared ? strategy->arenas.peer_scratch[rank] : strategy->arenas.scratch;
    return (struct coded_message *)(void *)(scratch + coded->at +
                                            slot_at(strategy, exchange, rank, slot));
}

struct coded_message *coded_message(const struct strategy *strategy, uint32_t rank, uint64_t slot)
{
    return coded_message_of(strategy, strategy->signals.exchange, rank, slot);
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

/* Whether `finish` makes gradients and residuals, in place of decode and encode. */
static bool finishes(const struct strategy *strategy, const struct dpb_codec_part *part)
{
    return strategy->args.codec->ops->finish && !is_plain(strategy, part->step);
}

/* Where it does not: all elements go in the last round. */
static uint64_t elements_of_round(const struct strategy *strategy,
                                  const struct dpb_codec_part *part)
{
    return part->round + 1 == coded_rounds(strategy->args.codec) ? part->n : 0;
}

static dpb_status add_plain(const struct strategy *strategy, const struct dpb_codec_part *part,
                            const struct coded_message *message, uint64_t bytes, float *sum)
{
    const float *gradients = (const void *)message->content;
    const uint64_t n = elements_of_round(strategy, part);
    if (bytes != n * sizeof *gradients)
        return strategy->host->fail(DPB_FAILED,
                                    "rank %u sent %llu bytes for %llu elements of step %llu, which "
                                    "comm.codec_start_step = %lld leaves as they are: do all ranks "
                                    "run the same training?",
                                    part->rank, (unsigned long long)bytes, (unsigned long long)n,
                                    (unsigned long long)part->step,
                                    (long long)strategy->args.codec->options->start_step);
    for (uint64_t i = 0; i < n; i++)
        sum[i] += gradients[i];
    return DPB_OK;
}

/* ---- encoding and decoding ----------------------------------------------------------------- */

/* What the codec takes for the residual: without feedback there is none. */
static float *begin_residual(const struct strategy *strategy, const struct dpb_codec_part *part)
{
    const struct coded *coded = strategy->coded;
    if (!coded->dropped)
        return coded->residual + part->first;
    memset(coded->dropped, 0, part->n * sizeof(float));
    return coded->dropped;
}

/* Other elements in each step. */
static double sample_squares(const float *values, const struct dpb_codec_part *part)
{
    const uint64_t n = part->n < SAMPLE ? part->n : SAMPLE;
    return sum_squares(values + part->step * SAMPLE % (part->n - n + 1), n);
}

/* The codec has written the residual of begin_residual. */
static void end_residual(const struct strategy *strategy, const struct dpb_codec_part *part,
                         struct dpb_coding *coding)
{
    const struct coded *coded = strategy->coded;
    float *residual = coded->residual + part->first;
    if (coded->dropped)
        strategy->host->vec->axpby(DPB_FP32, 1.0, coded->dropped, 1.0, residual, part->n);
    coding->residual = sample_squares(coded->dropped ? coded->dropped : residual, part);
}

/* Returns the message's bytes. */
static uint64_t fill_message(const struct strategy *strategy, const struct dpb_codec_part *part,
                             const float *gradients, float *residual, void *content)
{
    const struct dpb_codec *codec = strategy->args.codec;
    if (!is_plain(strategy, part->step))
        return codec->ops->encode(codec->options, part, gradients, residual, content);
    const uint64_t bytes = elements_of_round(strategy, part) * sizeof *gradients;
    memcpy(content, gradients, bytes);
    return bytes;
}

void coded_encode(struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec_part part =
        part_of(strategy, strategy->args.rank, bucket, round, (uint64_t)strategy->coded->steps);
    struct coded_message *message =
        coded_message(strategy, strategy->args.rank, coded_slot(strategy, bucket, round));
    const float *gradients = strategy_gradients(strategy, strategy->args.rank, part.first);
    struct dpb_coding coding = {.elements = round == 0 ? part.n : 0};
    const int64_t began_ns = host->now_ns();
    message->step = part.step;
    message->bytes = coding.message_bytes =
        fill_message(strategy, &part, gradients, begin_residual(strategy, &part), message->content);
    const int64_t ended_ns = host->now_ns();
    coding.encode_ns = ended_ns - began_ns;
    if (round == 0)
        coding.gradients = sample_squares(gradients, &part);
    if (!finishes(strategy, &part))
        end_residual(strategy, &part, &coding);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

static dpb_status add_message(const struct strategy *strategy, const struct dpb_codec_part *part,
                              const struct coded_message *message, uint64_t bucket, float *sum)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const uint64_t bytes = message->bytes; /* once: it may be a peer's memory */
    if (bytes > coded_content_bytes(strategy, coded_slot(strategy, bucket, part->round)))
        return strategy->host->fail(
            DPB_FAILED, "rank %u left a message of %llu bytes for bucket %llu", part->rank,
            (unsigned long long)bytes, (unsigned long long)bucket);
    if (is_plain(strategy, part->step))
        return add_plain(strategy, part, message, bytes, sum);
    return codec->ops->decode(codec->options, part, message->content, bytes, sum);
}

static void sum_messages(struct strategy *strategy, uint64_t bucket, uint32_t round,
                         const struct coded_message *const *messages, float *sum, uint64_t bytes)
{
    struct coded *coded = strategy->coded;
    const struct dpb_host *host = strategy->host;
    const int64_t began_ns = host->now_ns();
    memset(sum, 0, bytes);
    for (uint32_t rank = 0; rank < strategy->args.n_workers && coded->status == DPB_OK; rank++) {
        const uint64_t step =
            strategy->args.role == DPB_SERVER ? messages[rank]->step : (uint64_t)coded->steps;
        const struct dpb_codec_part part = part_of(strategy, rank, bucket, round, step);
        coded->status = add_message(strategy, &part, messages[rank], bucket, sum);
    }
    const int64_t ended_ns = host->now_ns();
    host->coding(&(struct dpb_coding){.decode_ns = ended_ns - began_ns});
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void coded_sum(struct strategy *strategy, uint64_t bucket,
               const struct coded_message *const *messages, float *sum)
{
    sum_messages(strategy, bucket, 0, messages, sum,
                 pipeline_bucket_length(&strategy->pipeline, bucket) * sizeof *sum);
}

/* Once a bucket, whatever the number of workers: it counts to encoding. */
static void finish(struct strategy *strategy, const struct dpb_codec_part *part, uint64_t bucket,
                   float *gradients)
{
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec *codec = strategy->args.codec;
    struct dpb_coding coding = {0};
    const int64_t began_ns = host->now_ns();
    codec->ops->finish(codec->options, part, strategy->coded->sum, gradients,
                       begin_residual(strategy, part));
    const int64_t ended_ns = host->now_ns();
    coding.encode_ns = ended_ns - began_ns;
    if (part->round + 1 == DPB_CODEC_ROUNDS)
        end_residual(strategy, part, &coding);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void coded_decode(struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    struct coded *coded = strategy->coded;
    const struct coded_message *messages[STRATEGY_WORKERS];
    if (coded->shared && round == 0)
        signals_span_late_peer(&strategy->signals, strategy_workers(strategy), bucket);
    for (uint32_t rank = 0; rank < strategy->args.n_workers; rank++) {
        messages[rank] = coded_message(strategy, rank, coded_slot(strategy, bucket, round));
        if (coded->shared && rank != strategy->args.rank)
            strategy->host->count_bytes(messages[rank]->bytes);
    }
    const struct dpb_codec_part part =
        part_of(strategy, strategy->args.rank, bucket, round, (uint64_t)coded->steps);
    const struct dpb_codec *codec = strategy->args.codec;
    float *gradients = strategy_gradients(strategy, strategy->args.rank, part.first);
    if (!finishes(strategy, &part)) {
        const uint64_t n = elements_of_round(strategy, &part);
        sum_messages(strategy, bucket, round, messages, n > 0 ? gradients : coded->sum,
                     n * sizeof *gradients);
        return;
    }
    sum_messages(strategy, bucket, round, messages, coded->sum,
                 codec->ops->bytes(codec->options, &part));
    if (coded->status == DPB_OK)
        finish(strategy, &part, bucket, gradients);
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
    if (strategy->coded && strategy->coded->velocity)
        books->entries[books->n++] = (struct dpb_book){
            strategy->coded->velocity + strategy->arenas.layout.n_elements, DPB_FP32, -share, true};
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
    if (coded->velocity)
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            "velocity", DPB_FP32, false, strategy->arenas.layout.n_elements, coded->velocity};
    if (coded->state)
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            "codec", DPB_FP32, true, state_elements(strategy), coded->state};
    return DPB_OK;
}
