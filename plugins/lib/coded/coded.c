/* coded.c - see coded.h. */
#include "lib/coded/coded.h"

#include <stdlib.h>
#include <string.h>

/* ---- the codec's sizes ---------------------------------------------------------------------- */

uint32_t dpb_coded_rounds(const struct dpb_codec *codec)
{
    return codec->ops->finish ? DPB_CODEC_ROUNDS : 1;
}

static bool has_velocity(const struct dpb_codec *codec)
{
    return codec->ops->velocity && codec->ops->velocity(codec->options);
}

struct dpb_codec_part dpb_coded_part(const struct dpb_layout *layout, uint64_t bucket_elements,
                                     uint64_t bucket)
{
    struct dpb_codec_part part = {.first = bucket * bucket_elements,
                                  .n = dpb_strategy_bucket_length(layout, bucket_elements, bucket)};
    const struct dpb_tensor *tensor = layout->tensors, *end = tensor + layout->n_tensors;
    while (tensor < end && tensor->offset + tensor->n_elements <= part.first)
        tensor++;
    for (part.tensors = tensor; tensor < end && tensor->offset < part.first + part.n; tensor++)
        part.n_tensors++;
    return part;
}

/* The bytes of the longest message of a round. */
static uint64_t bound_of(const struct dpb_codec *codec, const struct dpb_layout *layout,
                         uint64_t bucket_elements, uint32_t round)
{
    uint64_t longest = 0;
    if (!codec->ops->finish)
        return codec->ops->bound(codec->options,
                                 dpb_strategy_longest_bucket(layout, bucket_elements));
    for (uint64_t b = 0; b < dpb_strategy_count_buckets(layout, bucket_elements); b++) {
        struct dpb_codec_part part = dpb_coded_part(layout, bucket_elements, b);
        part.round = round;
        const uint64_t bytes = codec->ops->bytes(codec->options, &part);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

uint64_t dpb_coded_slot_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout,
                              uint64_t bucket_elements, uint32_t round)
{
    const bool plain = codec->options->start_step > 0 && round + 1 == dpb_coded_rounds(codec);
    const uint64_t bound = bound_of(codec, layout, bucket_elements, round);
    const uint64_t whole = dpb_strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
    return sizeof(struct dpb_coded_message) +
           dpb_strategy_lines(plain && whole > bound ? whole : bound);
}

uint64_t dpb_coded_longest_slot_bytes(const struct dpb_codec *codec,
                                      const struct dpb_layout *layout, uint64_t bucket_elements)
{
    uint64_t longest = 0;
    for (uint32_t round = 0; round < dpb_coded_rounds(codec); round++) {
        const uint64_t bytes = dpb_coded_slot_bytes(codec, layout, bucket_elements, round);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* Returns the elements of all buckets' state. `at`, NULL or an array of n_buckets + 1, is set to
 * the first element of each bucket, then the total. */
static uint64_t count_state(const struct dpb_codec *codec, const struct dpb_layout *layout,
                            uint64_t bucket_elements, uint64_t *at)
{
    const uint64_t n_buckets = dpb_strategy_count_buckets(layout, bucket_elements);
    uint64_t n = 0;
    for (uint64_t b = 0; b < n_buckets; b++) {
        const struct dpb_codec_part part = dpb_coded_part(layout, bucket_elements, b);
        if (at)
            at[b] = n;
        n += codec->ops->state(codec->options, &part);
    }
    if (at)
        at[n_buckets] = n;
    return n;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Whether each of two rounds is an exchange of its own (gather.h): they take the two banks. */
static bool rounds_take_banks(const struct dpb_codec *codec, enum dpb_coded_way way)
{
    return way == DPB_CODED_GATHERED && codec->ops->finish;
}

/* Banks of each worker's messages; exchanges of all rounds take the banks in turn. */
static uint32_t banks(const struct dpb_codec *codec, enum dpb_coded_way way)
{
    return way == DPB_CODED_SUMMED || rounds_take_banks(codec, way) ? 1 : 2;
}

void dpb_coded_contract(const struct dpb_comm_args *args, struct dpb_contract *contract)
{
    if (!args->codec)
        return;
    contract->consistency = DPB_LOSSY;
    contract->proof = DPB_PROOF_BOOKS;
    /* Residual and gradient are added; the message is taken off, and summed over the workers. A
     * velocity makes two more roundings, of the gradient and of its own addition. */
    contract->roundings = 2 + args->n_workers + (has_velocity(args->codec) ? 2 : 0);
}

/* The bytes of a slot of each round: 0 for a round that the codec lacks. */
static void find_slots(const struct dpb_codec *codec, const struct dpb_layout *layout,
                       uint64_t bucket_elements, enum dpb_coded_way way,
                       uint64_t slot_bytes[DPB_CODEC_ROUNDS])
{
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++)
        slot_bytes[round] = rounds_take_banks(codec, way)
                                ? dpb_coded_longest_slot_bytes(codec, layout, bucket_elements)
                            : round < dpb_coded_rounds(codec)
                                ? dpb_coded_slot_bytes(codec, layout, bucket_elements, round)
                                : 0;
}

/* Whether sums replace messages. */
static bool sums_in_place(enum dpb_coded_way way)
{
    return way == DPB_CODED_SUMMED || way == DPB_CODED_APART;
}

static uint64_t messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                               uint64_t bucket_elements, enum dpb_coded_way way)
{
    const bool has_none = args->role == DPB_SERVER || way == DPB_CODED_APART;
    const uint64_t n = has_none ? 0 : way == DPB_CODED_GATHERED ? args->n_workers : 1;
    uint64_t bytes[DPB_CODEC_ROUNDS];
    find_slots(args->codec, layout, bucket_elements, way, bytes);
    return n * banks(args->codec, way) * dpb_strategy_count_buckets(layout, bucket_elements) *
           (bytes[0] + bytes[1]);
}

/* Bytes of the residual; with a velocity also of the velocity and of its additions. */
static size_t kept_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout)
{
    return (has_velocity(codec) ? 3 : 1) * layout->n_elements * sizeof(float);
}

void dpb_coded_memory(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                      uint64_t bucket_elements, enum dpb_coded_way way,
                      struct dpb_comm_memory *memory)
{
    if (!args->codec || args->role == DPB_SERVER)
        return;
    memory->beside_bytes +=
        messages_bytes(args, layout, bucket_elements, way) + kept_bytes(args->codec, layout);
    if (!args->codec->options->feedback)
        memory->beside_bytes +=
            dpb_strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
    if (!args->codec->ops->finish)
        return;
    memory->beside_bytes +=
        (sums_in_place(way) ? 0
                            : dpb_coded_longest_slot_bytes(args->codec, layout, bucket_elements)) +
        count_state(args->codec, layout, bucket_elements, NULL) * sizeof(float);
}

dpb_status dpb_coded_plan(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                          enum dpb_coded_way way, struct dpb_comm_plan *want)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    const struct dpb_comm_args *args = &strategy->args;
    if (dpb_strategy_longest_bucket(layout, want->bucket_elements) > UINT32_MAX)
        return strategy->host->fail(DPB_UNSUPPORTED,
                                    "comm.bucket = %llu bytes with comm.codec = %s: a bucket may "
                                    "have 2^32 - 1 elements",
                                    (unsigned long long)args->bucket_bytes, args->codec->name);
    coded->way = way;
    find_slots(args->codec, layout, want->bucket_elements, way, coded->slot_bytes);
    const uint64_t bytes = messages_bytes(args, layout, want->bucket_elements, way);
    if (way == DPB_CODED_APART) {
        coded->at = 0;
    } else if (coded->place) {
        want->inbox = DPB_MEMORY_SHARED;
        want->inbox_bytes = bytes;
    } else {
        coded->at = dpb_strategy_lines(want->scratch_bytes);
        want->scratch_bytes = coded->at + bytes;
    }
    if (args->role == DPB_WORKER)
        want->gradients = DPB_MEMORY_PRIVATE;
    dpb_coded_contract(args, &want->contract);
    return DPB_OK;
}

static size_t dropped_bytes(const struct dpb_arenas *arenas)
{
    return dpb_strategy_longest_bucket(&arenas->layout, arenas->bucket_elements) * sizeof(float);
}

static uint64_t longest_bytes(const struct dpb_strategy *strategy)
{
    return dpb_coded_longest_slot_bytes(strategy->args.codec, &strategy->arenas.layout,
                                        strategy->arenas.bucket_elements);
}

static size_t state_at_bytes(const struct dpb_strategy *strategy)
{
    return (strategy->arenas.n_buckets + 1) * sizeof(uint64_t);
}

static uint64_t state_elements(const struct dpb_strategy *strategy)
{
    const uint64_t *at = dpb_coded_of(strategy)->state_at;
    return at ? at[strategy->arenas.n_buckets] : 0;
}

static dpb_status allocate(const struct dpb_strategy *strategy, const char *name, uint64_t bytes,
                           float **memory)
{
    const struct dpb_device_arenas *place = dpb_coded_of(strategy)->place;
    void *made = NULL;
    if (place)
        DPB_TRY(place->ops->allocate(place->device, name, bytes, false, &made));
    else
        made = strategy->host->alloc(bytes);
    *memory = made;
    return made ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status bind_rounds(struct dpb_strategy *strategy)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    const struct dpb_arenas *arenas = &strategy->arenas;
    if (!sums_in_place(coded->way))
        DPB_TRY(allocate(strategy, "a sum of messages", longest_bytes(strategy), &coded->sum));
    coded->state_at = strategy->host->alloc(state_at_bytes(strategy));
    if (!coded->state_at)
        return DPB_NO_MEMORY;
    const uint64_t n = count_state(strategy->args.codec, &arenas->layout, arenas->bucket_elements,
                                   coded->state_at);
    return n > 0 ? allocate(strategy, "state of a codec", n * sizeof(float), &coded->state)
                 : DPB_OK;
}

static void release(const struct dpb_strategy *strategy, float *memory, uint64_t bytes)
{
    const struct dpb_device_arenas *place = dpb_coded_of(strategy)->place;
    if (place)
        place->ops->release(place->device, memory);
    else
        strategy->host->release(memory, bytes);
}

dpb_status dpb_coded_bind(struct dpb_strategy *strategy)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    const struct dpb_arenas *arenas = &strategy->arenas;
    if (strategy->args.role == DPB_SERVER)
        return DPB_OK;
    DPB_TRY(allocate(strategy, "residuals", kept_bytes(strategy->args.codec, &arenas->layout),
                     &coded->residual));
    if (has_velocity(strategy->args.codec))
        coded->velocity = coded->residual + arenas->layout.n_elements;
    if (strategy->args.codec->ops->finish)
        DPB_TRY(bind_rounds(strategy));
    if (strategy->args.codec->options->feedback)
        return DPB_OK;
    return allocate(strategy, "a residual", dropped_bytes(arenas), &coded->dropped);
}

static void clear(struct dpb_strategy *strategy, float *memory, uint64_t bytes)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    if (coded->place)
        DPB_THEN(coded->status, coded->place->ops->clear(coded->queue, memory, bytes));
    else
        memset(memory, 0, bytes);
}

/* Clears residuals, velocity, state and step count. */
static void load(struct dpb_strategy *strategy)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    clear(strategy, coded->residual, kept_bytes(strategy->args.codec, &strategy->arenas.layout));
    if (coded->state)
        clear(strategy, coded->state, state_elements(strategy) * sizeof(float));
    if (coded->place)
        DPB_THEN(coded->status, coded->place->ops->drain(coded->queue));
    coded->steps = 0;
}

void dpb_coded_close(struct dpb_strategy *strategy)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    if (coded->carrier && coded->carrier->close)
        coded->carrier->close(strategy);
    release(strategy, coded->residual, kept_bytes(strategy->args.codec, &strategy->arenas.layout));
    release(strategy, coded->dropped, dropped_bytes(&strategy->arenas));
    release(strategy, coded->sum, coded->sum ? longest_bytes(strategy) : 0);
    release(strategy, coded->state, state_elements(strategy) * sizeof(float));
    strategy->host->release(coded->state_at, state_at_bytes(strategy));
    free(coded);
}

/* Fails if an earlier exchange has failed. */
static dpb_status begin(struct dpb_strategy *strategy)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    coded->steps += 1;
    if (coded->carrier && coded->carrier->begin)
        coded->carrier->begin(strategy);
    return coded->status;
}

dpb_status dpb_coded_attach(struct dpb_strategy *strategy, size_t bytes)
{
    if (!strategy->args.codec)
        return DPB_OK;
    struct dpb_coded *coded = calloc(1, bytes);
    if (!coded)
        return strategy->host->fail(DPB_NO_MEMORY, "no memory for the codec");
    coded->client =
        (struct dpb_strategy_client){.load = load, .begin = begin, .close = dpb_coded_close};
    strategy->client = &coded->client;
    return DPB_OK;
}

dpb_status dpb_coded_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                          size_t bytes, void **comm)
{
    void *made;
    DPB_TRY(dpb_strategy_open(host, args, bytes, &made));
    dpb_status status = dpb_coded_attach(made, sizeof(struct dpb_coded));
    if (status == DPB_OK)
        *comm = made;
    else
        dpb_strategy_close(made);
    return status;
}

/* ---- a bucket ------------------------------------------------------------------------------ */

struct dpb_codec_part dpb_coded_part_of(const struct dpb_strategy *strategy, uint32_t rank,
                                        uint64_t bucket, uint32_t round, uint64_t step)
{
    const struct dpb_coded *coded = dpb_coded_of(strategy);
    struct dpb_codec_part part =
        dpb_coded_part(&strategy->arenas.layout, strategy->arenas.bucket_elements, bucket);
    part.seed = strategy->args.codec->seed;
    part.step = step;
    part.rank = dpb_signals_rank(&strategy->signals, rank);
    part.round = round;
    part.n_workers = strategy->args.n_workers;
    part.state = coded->state ? coded->state + coded->state_at[bucket] : NULL;
    part.velocity = coded->velocity ? coded->velocity + part.first : NULL;
    part.added = coded->velocity ? part.velocity + strategy->arenas.layout.n_elements : NULL;
    return part;
}

uint64_t dpb_coded_content_bytes(const struct dpb_strategy *strategy, uint64_t slot)
{
    return dpb_coded_of(strategy)->slot_bytes[slot / strategy->arenas.n_buckets] -
           sizeof(struct dpb_coded_message);
}

void *dpb_coded_memory_of(const struct dpb_strategy *strategy, uint64_t *bytes)
{
    const struct dpb_coded *coded = dpb_coded_of(strategy);
    *bytes = messages_bytes(&strategy->args, &strategy->arenas.layout,
                            strategy->arenas.bucket_elements, coded->way);
    return (char *)strategy->arenas.scratch + coded->at;
}

uint64_t dpb_coded_slot(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    return round * strategy->arenas.n_buckets + bucket;
}

struct dpb_coded_message *dpb_coded_message(const struct dpb_strategy *strategy, uint32_t rank,
                                            uint64_t slot)
{
    const struct dpb_coded *coded = dpb_coded_of(strategy);
    const uint64_t worker = coded->way == DPB_CODED_GATHERED ? rank : 0;
    const uint32_t n_banks = banks(strategy->args.codec, coded->way);
    const uint64_t bank = worker * n_banks + strategy->signals.exchange % n_banks;
    const uint64_t *bytes = coded->slot_bytes, n = strategy->arenas.n_buckets;
    const uint64_t first = slot < n ? slot : n, second = slot - first;
    char *memory = coded->place                     ? strategy->arenas.peer_inbox[rank]
                   : coded->way == DPB_CODED_SHARED ? strategy->arenas.peer_scratch[rank]
                                                    : strategy->arenas.scratch;
    memory += coded->at + (bank * n + first) * bytes[0] + (bank * n + second) * bytes[1];
    return (struct dpb_coded_message *)(void *)memory;
}

/* Several sums at a time: one alone would wait for itself. */
double dpb_coded_sum_squares(const float *values, uint64_t n)
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

/* Steps count from 1 where weights were loaded; a resumed training continues the count. */
bool dpb_coded_is_plain(const struct dpb_strategy *strategy, uint64_t step)
{
    return step <= (uint64_t)strategy->args.codec->options->start_step;
}

bool dpb_coded_finishes(const struct dpb_strategy *strategy, const struct dpb_codec_part *part)
{
    return strategy->args.codec->ops->finish && !dpb_coded_is_plain(strategy, part->step);
}

uint64_t dpb_coded_elements_of_round(const struct dpb_strategy *strategy,
                                     const struct dpb_codec_part *part)
{
    return part->round + 1 == dpb_coded_rounds(strategy->args.codec) ? part->n : 0;
}

static dpb_status add_plain(const struct dpb_strategy *strategy, const struct dpb_codec_part *part,
                            const struct dpb_coded_message *message, uint64_t bytes, float *sum)
{
    const float *gradients = (const void *)message->content;
    const uint64_t n = dpb_coded_elements_of_round(strategy, part);
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

uint64_t dpb_coded_most_bytes(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const struct dpb_codec_part part = dpb_coded_part_of(
        strategy, strategy->args.rank, bucket, round, (uint64_t)dpb_coded_of(strategy)->steps);
    if (dpb_coded_is_plain(strategy, part.step))
        return dpb_coded_elements_of_round(strategy, &part) * sizeof(float);
    return codec->ops->bytes ? codec->ops->bytes(codec->options, &part)
                             : codec->ops->bound(codec->options, part.n);
}

/* ---- encoding and decoding ----------------------------------------------------------------- */

/* The residual that the codec works on: zeros without feedback, where there is none. */
static float *begin_residual(const struct dpb_strategy *strategy, const struct dpb_codec_part *part)
{
    const struct dpb_coded *coded = dpb_coded_of(strategy);
    if (!coded->dropped)
        return coded->residual + part->first;
    memset(coded->dropped, 0, part->n * sizeof(float));
    return coded->dropped;
}

struct dpb_range dpb_coded_sample(const struct dpb_codec_part *part)
{
    const uint64_t n = part->n < DPB_CODED_SAMPLE ? part->n : DPB_CODED_SAMPLE;
    const uint64_t begin = part->step * DPB_CODED_SAMPLE % (part->n - n + 1);
    return (struct dpb_range){begin, begin + n};
}

static double sample_squares(const float *values, const struct dpb_codec_part *part)
{
    const struct dpb_range sample = dpb_coded_sample(part);
    return dpb_coded_sum_squares(values + sample.begin, sample.end - sample.begin);
}

/* The codec has written the residual of begin_residual. */
static void end_residual(const struct dpb_strategy *strategy, const struct dpb_codec_part *part,
                         struct dpb_coding *coding)
{
    const struct dpb_coded *coded = dpb_coded_of(strategy);
    float *residual = coded->residual + part->first;
    if (coded->dropped)
        strategy->host->vec->axpby(DPB_FP32, 1.0, coded->dropped, 1.0, residual, part->n);
    coding->residual = sample_squares(coded->dropped ? coded->dropped : residual, part);
}

uint64_t dpb_coded_fill(const struct dpb_strategy *strategy, const struct dpb_codec_part *part,
                        const float *gradients, float *residual, void *content)
{
    const struct dpb_codec *codec = strategy->args.codec;
    if (!dpb_coded_is_plain(strategy, part->step))
        return codec->ops->encode(codec->options, part, gradients, residual, content);
    const uint64_t bytes = dpb_coded_elements_of_round(strategy, part) * sizeof *gradients;
    memcpy(content, gradients, bytes);
    return bytes;
}

void dpb_coded_encode(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec_part part = dpb_coded_part_of(
        strategy, strategy->args.rank, bucket, round, (uint64_t)dpb_coded_of(strategy)->steps);
    struct dpb_coded_message *message =
        dpb_coded_message(strategy, strategy->args.rank, dpb_coded_slot(strategy, bucket, round));
    const float *gradients = dpb_strategy_own_gradients(strategy, part.first);
    struct dpb_coding coding = {.elements = round == 0 ? part.n : 0};
    const int64_t began_ns = host->now_ns();
    message->step = part.step;
    message->bytes = coding.message_bytes = dpb_coded_fill(
        strategy, &part, gradients, begin_residual(strategy, &part), message->content);
    const int64_t ended_ns = host->now_ns();
    coding.encode_ns = ended_ns - began_ns;
    if (round == 0)
        coding.gradients = sample_squares(gradients, &part);
    if (!dpb_coded_finishes(strategy, &part))
        end_residual(strategy, &part, &coding);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

static dpb_status add_message(const struct dpb_strategy *strategy,
                              const struct dpb_codec_part *part,
                              const struct dpb_coded_message *message, uint64_t bucket, float *sum)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const uint64_t bytes = message->bytes; /* once: it may be a peer's memory */
    if (bytes > dpb_coded_content_bytes(strategy, dpb_coded_slot(strategy, bucket, part->round)))
        return strategy->host->fail(
            DPB_FAILED, "rank %u left a message of %llu bytes for bucket %llu", part->rank,
            (unsigned long long)bytes, (unsigned long long)bucket);
    if (dpb_coded_is_plain(strategy, part->step))
        return add_plain(strategy, part, message, bytes, sum);
    return codec->ops->decode(codec->options, part, message->content, bytes, sum);
}

static void sum_messages(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round,
                         const struct dpb_coded_message *const *messages, float *sum,
                         uint64_t bytes)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    const struct dpb_host *host = strategy->host;
    const int64_t began_ns = host->now_ns();
    memset(sum, 0, bytes);
    for (uint32_t rank = 0; rank < strategy->args.n_workers && coded->status == DPB_OK; rank++) {
        const uint64_t step =
            strategy->args.role == DPB_SERVER ? messages[rank]->step : (uint64_t)coded->steps;
        const struct dpb_codec_part part = dpb_coded_part_of(strategy, rank, bucket, round, step);
        coded->status = add_message(strategy, &part, messages[rank], bucket, sum);
    }
    const int64_t ended_ns = host->now_ns();
    host->coding(&(struct dpb_coding){.decode_ns = ended_ns - began_ns});
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void dpb_coded_sum(struct dpb_strategy *strategy, uint64_t bucket,
                   const struct dpb_coded_message *const *messages, float *sum)
{
    sum_messages(strategy, bucket, 0, messages, sum,
                 dpb_pipeline_bucket_length(&strategy->pipeline, bucket) * sizeof *sum);
}

/* Once a bucket, whatever the number of workers: it counts to encoding. */
static void finish(struct dpb_strategy *strategy, const struct dpb_codec_part *part,
                   uint64_t bucket, const float *sum, float *gradients)
{
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec *codec = strategy->args.codec;
    struct dpb_coding coding = {0};
    const int64_t began_ns = host->now_ns();
    codec->ops->finish(codec->options, part, sum, gradients, begin_residual(strategy, part));
    const int64_t ended_ns = host->now_ns();
    coding.encode_ns = ended_ns - began_ns;
    if (part->round + 1 == DPB_CODEC_ROUNDS)
        end_residual(strategy, part, &coding);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void dpb_coded_decode(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    struct dpb_coded *coded = dpb_coded_of(strategy);
    const struct dpb_coded_message *messages[DPB_STRATEGY_WORKERS];
    if (coded->way == DPB_CODED_SHARED && round == 0)
        dpb_signals_span_late_peer(&strategy->signals, dpb_strategy_workers(strategy), bucket);
    for (uint32_t rank = 0; rank < strategy->args.n_workers; rank++) {
        messages[rank] = dpb_coded_message(strategy, rank, dpb_coded_slot(strategy, bucket, round));
        if (coded->way == DPB_CODED_SHARED && rank != strategy->args.rank)
            strategy->host->count_bytes(messages[rank]->bytes);
    }
    const struct dpb_codec_part part =
        dpb_coded_part_of(strategy, strategy->args.rank, bucket, round, (uint64_t)coded->steps);
    const struct dpb_codec *codec = strategy->args.codec;
    float *gradients = dpb_strategy_own_gradients(strategy, part.first);
    if (!dpb_coded_finishes(strategy, &part)) {
        const uint64_t n = dpb_coded_elements_of_round(strategy, &part);
        sum_messages(strategy, bucket, round, messages, n > 0 ? gradients : coded->sum,
                     n * sizeof *gradients);
        return;
    }
    sum_messages(strategy, bucket, round, messages, coded->sum,
                 codec->ops->bytes(codec->options, &part));
    if (coded->status == DPB_OK)
        finish(strategy, &part, bucket, coded->sum, gradients);
}

void dpb_coded_take_sum(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct dpb_codec_part part = dpb_coded_part_of(
        strategy, strategy->args.rank, bucket, round, (uint64_t)dpb_coded_of(strategy)->steps);
    const struct dpb_coded_message *message =
        dpb_coded_message(strategy, strategy->args.rank, dpb_coded_slot(strategy, bucket, round));
    const float *sum = (const void *)message->content;
    float *gradients = dpb_strategy_own_gradients(strategy, part.first);
    if (dpb_coded_finishes(strategy, &part))
        finish(strategy, &part, bucket, sum, gradients);
    else
        memcpy(gradients, sum, dpb_coded_elements_of_round(strategy, &part) * sizeof *gradients);
}

dpb_status dpb_coded_status(const struct dpb_strategy *strategy)
{
    return dpb_coded_of(strategy) ? dpb_coded_of(strategy)->status : DPB_OK;
}

/* ---- stages: encode, for each round gather and decode, update ------------------------------- */

static void encode_round(struct dpb_strategy *comm, uint64_t bucket, uint32_t round)
{
    dpb_coded_encode(comm, bucket, round);
    dpb_coded_of(comm)->carrier->post(comm, bucket, round);
}

static void encode(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    encode_round(strategy, bucket, 0);
    turn->at = turn->length;
}

static bool decode_due(void *strategy, uint64_t bucket)
{
    return dpb_coded_of(strategy)->carrier->here(strategy, bucket, 0);
}

static dpb_status decode_wait(void *strategy, uint64_t bucket)
{
    return dpb_coded_of(strategy)->carrier->wait(strategy, bucket, 0);
}

static void decode(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_coded_of(strategy)->carrier->take(strategy, bucket, 0);
    turn->at = turn->length;
}

/* The second round: decode_again ends it. */
static void answer(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    decode(strategy, bucket, turn);
    encode_round(strategy, bucket, 1);
}

static bool again_due(void *strategy, uint64_t bucket)
{
    return dpb_coded_of(strategy)->carrier->here(strategy, bucket, 1);
}

static dpb_status again_wait(void *strategy, uint64_t bucket)
{
    return dpb_coded_of(strategy)->carrier->wait(strategy, bucket, 1);
}

static void decode_again(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_coded_of(strategy)->carrier->take(strategy, bucket, 1);
    turn->at = turn->length;
}

static bool update_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return dpb_coded_status(strategy) == DPB_OK;
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return dpb_coded_status(strategy);
}

struct dpb_range dpb_coded_spent(const struct dpb_strategy *strategy, uint64_t bucket,
                                 struct dpb_range updated)
{
    const uint64_t first = bucket * strategy->arenas.bucket_elements;
    const uint64_t n = strategy->arenas.layout.n_elements;
    if (!strategy->args.whole)
        return (struct dpb_range){first + updated.begin, first + updated.end};
    return (struct dpb_range){0, first + updated.end == n ? n : 0};
}

void dpb_coded_update(void *strategy_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *strategy = strategy_;
    const uint64_t begin = turn->at;
    dpb_strategy_update_bucket(strategy_, bucket, turn);
    const struct dpb_range spent =
        dpb_coded_spent(strategy, bucket, (struct dpb_range){begin, turn->at});
    memset(dpb_strategy_own_gradients(strategy, spent.begin), 0,
           (spent.end - spent.begin) * sizeof(float));
}

dpb_status dpb_coded_bind_stages(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                                 const struct dpb_coded_carrier *carrier)
{
    static const struct dpb_stage one[] = {{dpb_strategy_own_ready, encode, dpb_strategy_own_wait},
                                           {decode_due, decode, decode_wait},
                                           {update_due, dpb_coded_update, update_wait}};
    static const struct dpb_stage two[] = {{dpb_strategy_own_ready, encode, dpb_strategy_own_wait},
                                           {decode_due, answer, decode_wait},
                                           {again_due, decode_again, again_wait},
                                           {update_due, dpb_coded_update, update_wait}};
    const bool twice = dpb_coded_rounds(strategy->args.codec) > 1;
    dpb_coded_of(strategy)->carrier = carrier;
    DPB_TRY(dpb_strategy_bind(strategy, arenas, twice ? two : one,
                              twice ? sizeof two / sizeof *two : sizeof one / sizeof *one));
    return dpb_coded_bind(strategy);
}

/* ---- messages in memory that all workers share --------------------------------------------- */

static const enum dpb_signal_kind there[DPB_CODEC_ROUNDS] = {DPB_SIGNAL_PUSHED,
                                                             DPB_SIGNAL_ANSWERED};

static void raise_message(struct dpb_strategy *comm, uint64_t bucket, uint32_t round)
{
    dpb_signals_raise(&comm->signals, there[round], bucket);
}

static bool messages_raised(const struct dpb_strategy *comm, uint64_t bucket, uint32_t round)
{
    return dpb_strategy_all_reached(comm, there[round], bucket);
}

static dpb_status wait_messages(const struct dpb_strategy *comm, uint64_t bucket, uint32_t round)
{
    return dpb_strategy_wait(comm, there[round], dpb_strategy_workers(comm), bucket, DPB_FP32,
                             "the peer's encoded gradients");
}

const struct dpb_coded_carrier dpb_coded_shared = {.post = raise_message,
                                                   .here = messages_raised,
                                                   .wait = wait_messages,
                                                   .take = dpb_coded_decode};

/* ---- books and state ------------------------------------------------------------------------ */

struct dpb_saved_array dpb_coded_saved_share(struct dpb_coded_share *share)
{
    return (struct dpb_saved_array){"share", DPB_FP64, false, sizeof *share / sizeof(double),
                                    share};
}

dpb_status dpb_coded_check_share(const struct dpb_host *host, struct dpb_coded_share own,
                                 struct dpb_coded_share loaded)
{
    if (own.bucket_elements == loaded.bucket_elements && own.first == loaded.first &&
        own.every == loaded.every)
        return DPB_OK;
    return host->fail(DPB_USAGE,
                      "the checkpoint's residuals are of other buckets than this rank's: "
                      "continue with the comm.bucket, machines and servers that it was "
                      "saved with, or without its state by checkpoint.resume=no");
}

dpb_status dpb_coded_books(void *comm, struct dpb_books *books)
{
    const struct dpb_strategy *strategy = comm;
    const struct dpb_coded *coded = dpb_coded_of(strategy);
    const double share = 1.0 / strategy->args.n_workers;
    books->entries[books->n++] =
        (struct dpb_book){strategy->arenas.weights, DPB_FP32, share, false};
    if (coded)
        books->entries[books->n++] = (struct dpb_book){coded->residual, DPB_FP32, share, true};
    if (coded && coded->velocity)
        books->entries[books->n++] = (struct dpb_book){
            coded->velocity + strategy->arenas.layout.n_elements, DPB_FP32, -share, true};
    return DPB_OK;
}

dpb_status dpb_coded_state(void *comm, struct dpb_saved *saved)
{
    const struct dpb_strategy *strategy = comm;
    struct dpb_coded *coded = dpb_coded_of(strategy);
    if (!coded)
        return DPB_OK;
    saved->arrays[saved->n++] = (struct dpb_saved_array){"steps", DPB_FP64, true, 1, &coded->steps};
    if (!coded->dropped) /* the sum of dropped gradients is for the books alone */
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
