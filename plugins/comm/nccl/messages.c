/* messages.c - see messages.h. */
#include "comm/nccl/messages.h"

#include "lib/strategy/slices.h"

enum { BANKS = MESSAGES_BANKS };

/* The strategy's client. */
struct messages {
    struct dpb_device_coder coder; /* first */
    struct dpb_queue *queue;
    char *memory;      /* of one bucket: of each worker, or the own */
    float *samples;    /* pinned: by bank and bucket, of gradients and residual */
    uint32_t *refused; /* pinned: by bank and bucket */
};

static struct messages *messages_of(const struct dpb_strategy *strategy)
{
    return (struct messages *)(void *)strategy->client;
}

static uint64_t sample_elements(const struct dpb_arenas *arenas)
{
    const uint64_t longest = dpb_strategy_longest_bucket(&arenas->layout, arenas->bucket_elements);
    return longest < DPB_CODED_SAMPLE ? longest : DPB_CODED_SAMPLE;
}

static struct dpb_device_told told_of(const struct dpb_strategy *strategy, uint32_t bank,
                                      uint64_t bucket)
{
    const struct messages *messages = messages_of(strategy);
    const uint64_t place = bank * strategy->arenas.n_buckets + bucket;
    const uint64_t n = sample_elements(&strategy->arenas);
    float *samples = messages->samples + 2 * place * n;
    return (struct dpb_device_told){samples, samples + n, &messages->refused[place]};
}

/* ---- life ---------------------------------------------------------------------------------- */

uint64_t messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                        uint64_t bucket_elements)
{
    const bool summed = dpb_coded_way_of(args->codec) == DPB_CODED_SUMMED;
    return (summed ? 1 : args->n_workers) *
           dpb_coded_longest_slot_bytes(args->codec, layout, bucket_elements);
}

static void close(struct dpb_strategy *strategy)
{
    const struct messages *messages = messages_of(strategy);
    const struct dpb_device_coder *coder = &messages->coder;
    if (coder->ops) {
        coder->ops->release(coder->device, messages->memory);
        coder->ops->unpin(coder->device, messages->samples);
        coder->ops->unpin(coder->device, messages->refused);
    }
    dpb_device_coder_close(strategy);
}

dpb_status messages_attach(struct dpb_strategy *strategy)
{
    DPB_TRY(dpb_coded_attach(strategy, sizeof(struct messages)));
    dpb_coded_of(strategy)->place = strategy->args.device;
    strategy->client->close = close;
    return DPB_OK;
}

dpb_status messages_bind(struct dpb_strategy *strategy, struct dpb_queue *queue)
{
    const struct dpb_arenas *arenas = &strategy->arenas;
    struct messages *messages = messages_of(strategy);
    const struct dpb_device_coder *coder = &messages->coder;
    const uint64_t places = BANKS * arenas->n_buckets;
    void *memory = NULL, *samples = NULL, *refused = NULL;
    messages->queue = dpb_coded_of(strategy)->queue = queue;
    DPB_TRY(dpb_device_coder_open(strategy, arenas));
    DPB_TRY(coder->ops->allocate(
        coder->device, "messages",
        messages_bytes(&strategy->args, &arenas->layout, arenas->bucket_elements), false, &memory));
    messages->memory = memory;
    DPB_TRY(coder->ops->pin(
        coder->device, 2 * places * sample_elements(arenas) * sizeof *messages->samples, &samples));
    messages->samples = samples;
    DPB_TRY(coder->ops->pin(coder->device, places * sizeof *messages->refused, &refused));
    messages->refused = refused;
    return dpb_coded_bind(strategy);
}

/* ---- an exchange --------------------------------------------------------------------------- */

/* Each worker's message begins a cache line. All are as long, so the all-gather is in place. */
static dpb_status gather(const struct dpb_strategy *strategy,
                         const struct dpb_communicator *communicator,
                         const struct dpb_device_told *told, uint64_t bucket,
                         struct dpb_event *const marks[], const struct dpb_wait *what,
                         uint64_t *bytes)
{
    const struct messages *messages = messages_of(strategy);
    const struct dpb_queue_ops *ops = messages->coder.ops;
    const struct dpb_comm_args *args = &strategy->args;
    struct dpb_queue *queue = messages->queue;
    const uint64_t slot_bytes = dpb_strategy_lines(dpb_coded_most_bytes(strategy, bucket, 0));
    struct dpb_codec_part part = dpb_device_coder_part(strategy, args->rank, bucket, 0);
    float *sum = dpb_strategy_own_gradients(strategy, part.first);
    DPB_TRY(dpb_device_coder_encode(strategy, queue, &part, told,
                                    messages->memory + args->rank * slot_bytes, bytes));
    DPB_TRY(ops->stamp(queue, marks[0]));
    const struct dpb_nccl_range all = {messages->memory, DPB_FP32,
                                       args->n_workers * slot_bytes / sizeof(float)};
    DPB_TRY(communicator_gather_slices(communicator, queue, &all, args->n_workers, what));
    DPB_TRY(ops->stamp(queue, marks[1]));
    DPB_TRY(ops->clear(queue, sum, part.n * sizeof *sum));
    for (uint32_t rank = 0; rank < args->n_workers; rank++) {
        part = dpb_device_coder_part(strategy, rank, bucket, 0);
        DPB_TRY(dpb_device_coder_add(strategy, queue, &part, told,
                                     messages->memory + rank * slot_bytes, *bytes, sum));
    }
    strategy->host->count_bytes((args->n_workers - 1) * *bytes);
    return DPB_OK;
}

static dpb_status sum_round(const struct dpb_strategy *strategy,
                            const struct dpb_communicator *communicator,
                            const struct dpb_device_told *told, uint64_t bucket, uint32_t round,
                            struct dpb_event *const marks[], const struct dpb_wait *what,
                            uint64_t *bytes)
{
    const struct messages *messages = messages_of(strategy);
    const struct dpb_queue_ops *ops = messages->coder.ops;
    const struct dpb_comm_args *args = &strategy->args;
    struct dpb_queue *queue = messages->queue;
    const struct dpb_codec_part part = dpb_device_coder_part(strategy, args->rank, bucket, round);
    float *sum = (float *)(void *)messages->memory;
    DPB_TRY(dpb_device_coder_encode(strategy, queue, &part, told, sum, bytes));
    DPB_TRY(ops->stamp(queue, marks[0]));
    const struct dpb_nccl_range range = {sum, DPB_FP32, *bytes / sizeof *sum};
    if (range.n > 0)
        DPB_TRY(communicator_all_reduce(communicator, queue, &range, what));
    DPB_TRY(ops->stamp(queue, marks[1]));
    strategy->host->count_bytes(2 * dpb_slices_sent(range.n, args->rank, args->n_workers) *
                                sizeof *sum);
    if (!dpb_coded_finishes(strategy, &part) && *bytes > 0)
        DPB_TRY(ops->copy(queue, dpb_strategy_own_gradients(strategy, part.first), sum, *bytes));
    return dpb_device_coder_finish(strategy, queue, &part, told, sum);
}

dpb_status messages_exchange(const struct dpb_strategy *strategy,
                             const struct dpb_communicator *communicator, uint32_t bank,
                             uint64_t bucket, struct dpb_event *const marks[],
                             const struct dpb_wait *what)
{
    const struct dpb_device_told told = told_of(strategy, bank, bucket);
    const uint32_t rounds = dpb_coded_rounds(strategy->args.codec);
    struct dpb_coding coding = {.elements = what->bytes / sizeof(float)};
    uint64_t bytes = 0;
    *told.refused = 0;
    if (rounds == 1)
        DPB_TRY(gather(strategy, communicator, &told, bucket, marks, what, &bytes));
    coding.message_bytes = bytes;
    for (uint32_t round = 0; round < rounds && rounds > 1; round++) {
        DPB_TRY(sum_round(strategy, communicator, &told, bucket, round, marks + 2 * round, what,
                          &bytes));
        coding.message_bytes += bytes;
    }
    strategy->host->coding(&coding);
    return DPB_OK;
}

dpb_status messages_report(const struct dpb_strategy *strategy, uint32_t bank, uint64_t bucket,
                           int64_t encode_ns, int64_t decode_ns)
{
    const struct dpb_device_told told = told_of(strategy, bank, bucket);
    const struct dpb_codec_part part =
        dpb_coded_part(&strategy->arenas.layout, strategy->arenas.bucket_elements, bucket);
    struct dpb_coding coding = {.encode_ns = encode_ns, .decode_ns = decode_ns};
    dpb_device_coder_read(&part, &told, true, true, &coding);
    strategy->host->coding(&coding);
    return dpb_device_coder_check(strategy, bucket, &told);
}
