/* coded_life.c - see coded.h: a worker's memory of its codec, from open to close. */
#include <stdlib.h>
#include <string.h>

#include "lib/coded/coded_state.h"

dpb_status coded_open(struct strategy *strategy)
{
    if (!strategy->args.codec)
        return DPB_OK;
    strategy->coded = calloc(1, sizeof *strategy->coded);
    return strategy->coded ? DPB_OK
                           : strategy->host->fail(DPB_NO_MEMORY, "no memory for the codec");
}

void coded_contract(const struct dpb_comm_args *args, struct dpb_contract *contract)
{
    if (!args->codec)
        return;
    contract->consistency = DPB_LOSSY;
    contract->proof = DPB_PROOF_BOOKS;
    /* Residual and gradient are added; the message is taken off, and summed over the workers. A
     * velocity makes two more roundings, of the gradient and of its own addition. */
    contract->roundings = 2 + args->n_workers + (coded_has_velocity(args->codec) ? 2 : 0);
}

/* The bytes of a slot of each round: 0 for a round that the codec lacks. */
static void find_slots(const struct dpb_codec *codec, const struct dpb_layout *layout,
                       uint64_t bucket_elements, uint64_t slot_bytes[DPB_CODEC_ROUNDS])
{
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++)
        slot_bytes[round] = round < coded_rounds(codec)
                                ? coded_slot_bytes(codec, layout, bucket_elements, round)
                                : 0;
}

uint64_t coded_messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                              uint64_t bucket_elements, enum coded_way way)
{
    const uint64_t n = args->role == DPB_SERVER ? 0 : way == CODED_GATHERED ? args->n_workers : 1;
    uint64_t bytes[DPB_CODEC_ROUNDS];
    find_slots(args->codec, layout, bucket_elements, bytes);
    return n * coded_banks(way) * strategy_count_buckets(layout, bucket_elements) *
           (bytes[0] + bytes[1]);
}

/* Bytes of the residual; with a velocity also of the velocity and of its additions. */
static size_t kept_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout)
{
    return (coded_has_velocity(codec) ? 3 : 1) * layout->n_elements * sizeof(float);
}

void coded_memory(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                  uint64_t bucket_elements, enum coded_way way, struct dpb_comm_memory *memory)
{
    if (!args->codec || args->role == DPB_SERVER)
        return;
    memory->beside_bytes +=
        coded_messages_bytes(args, layout, bucket_elements, way) + kept_bytes(args->codec, layout);
    if (!args->codec->options->feedback)
        memory->beside_bytes += strategy_longest_bucket(layout, bucket_elements) * sizeof(float);
    if (!args->codec->ops->finish)
        return;
    memory->beside_bytes +=
        (way == CODED_SUMMED ? 0 : coded_longest_slot_bytes(args->codec, layout, bucket_elements)) +
        coded_count_state(args->codec, layout, bucket_elements, NULL) * sizeof(float);
}

dpb_status coded_plan(struct strategy *strategy, const struct dpb_layout *layout,
                      enum coded_way way, struct dpb_comm_plan *want)
{
    struct coded *coded = strategy->coded;
    const struct dpb_comm_args *args = &strategy->args;
    if (strategy_longest_bucket(layout, want->bucket_elements) > UINT32_MAX)
        return strategy->host->fail(DPB_UNSUPPORTED,
                                    "comm.bucket = %llu bytes with comm.codec = %s: a bucket may "
                                    "have 2^32 - 1 elements",
                                    (unsigned long long)args->bucket_bytes, args->codec->name);
    coded->way = way;
    find_slots(args->codec, layout, want->bucket_elements, coded->slot_bytes);
    const uint64_t bytes = coded_messages_bytes(args, layout, want->bucket_elements, way);
    if (coded->place) {
        want->inbox = DPB_MEMORY_SHARED;
        want->inbox_bytes = bytes;
    } else {
        coded->at = strategy_lines(want->scratch_bytes);
        want->scratch_bytes = coded->at + bytes;
    }
    if (args->role == DPB_WORKER)
        want->gradients = DPB_MEMORY_PRIVATE;
    coded_contract(args, &want->contract);
    return DPB_OK;
}

static size_t dropped_bytes(const struct dpb_arenas *arenas)
{
    return strategy_longest_bucket(&arenas->layout, arenas->bucket_elements) * sizeof(float);
}

static uint64_t longest_bytes(const struct strategy *strategy)
{
    return coded_longest_slot_bytes(strategy->args.codec, &strategy->arenas.layout,
                                    strategy->arenas.bucket_elements);
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

static dpb_status allocate(const struct strategy *strategy, const char *name, uint64_t bytes,
                           float **memory)
{
    const struct dpb_device_arenas *place = strategy->coded->place;
    void *made = NULL;
    if (place)
        DPB_TRY(place->ops->allocate(place->device, name, bytes, false, &made));
    else
        made = strategy->host->alloc(bytes);
    *memory = made;
    return made ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status bind_rounds(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    const struct dpb_arenas *arenas = &strategy->arenas;
    if (coded->way != CODED_SUMMED)
        DPB_TRY(allocate(strategy, "a sum of messages", longest_bytes(strategy), &coded->sum));
    coded->state_at = strategy->host->alloc(state_at_bytes(strategy));
    if (!coded->state_at)
        return DPB_NO_MEMORY;
    const uint64_t n = coded_count_state(strategy->args.codec, &arenas->layout,
                                         arenas->bucket_elements, coded->state_at);
    return n > 0 ? allocate(strategy, "state of a codec", n * sizeof(float), &coded->state)
                 : DPB_OK;
}

static void release(const struct strategy *strategy, float *memory, uint64_t bytes)
{
    const struct dpb_device_arenas *place = strategy->coded->place;
    if (place)
        place->ops->release(place->device, memory);
    else
        strategy->host->release(memory, bytes);
}

dpb_status coded_bind(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    const struct dpb_arenas *arenas = &strategy->arenas;
    if (strategy->args.role == DPB_SERVER)
        return DPB_OK;
    DPB_TRY(allocate(strategy, "residuals", kept_bytes(strategy->args.codec, &arenas->layout),
                     &coded->residual));
    if (coded_has_velocity(strategy->args.codec))
        coded->velocity = coded->residual + arenas->layout.n_elements;
    if (strategy->args.codec->ops->finish)
        DPB_TRY(bind_rounds(strategy));
    if (strategy->args.codec->options->feedback)
        return DPB_OK;
    return allocate(strategy, "a residual", dropped_bytes(arenas), &coded->dropped);
}

static void clear(struct strategy *strategy, float *memory, uint64_t bytes)
{
    struct coded *coded = strategy->coded;
    if (coded->place)
        DPB_THEN(coded->status, coded->place->ops->clear(coded->queue, memory, bytes));
    else
        memset(memory, 0, bytes);
}

void coded_load(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    clear(strategy, coded->residual, kept_bytes(strategy->args.codec, &strategy->arenas.layout));
    if (coded->state)
        clear(strategy, coded->state, state_elements(strategy) * sizeof(float));
    if (coded->place)
        DPB_THEN(coded->status, coded->place->ops->drain(coded->queue));
    coded->steps = 0;
}

void coded_close(struct strategy *strategy)
{
    struct coded *coded = strategy->coded;
    if (!coded)
        return;
    release(strategy, coded->residual, kept_bytes(strategy->args.codec, &strategy->arenas.layout));
    release(strategy, coded->dropped, dropped_bytes(&strategy->arenas));
    release(strategy, coded->sum, coded->sum ? longest_bytes(strategy) : 0);
    release(strategy, coded->state, state_elements(strategy) * sizeof(float));
    strategy->host->release(coded->state_at, state_at_bytes(strategy));
    strategy->host->release(strategy->sums.buckets, DPB_CODEC_ROUNDS * strategy->arenas.n_buckets *
                                                        sizeof *strategy->sums.buckets);
    free(coded);
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
