/* device_coder.c - see device_coder.h. */
#include "lib/device_strategy/device_coder.h"

static struct dpb_device_coder *coder_of(const struct dpb_strategy *strategy)
{
    return (struct dpb_device_coder *)(void *)strategy->client;
}

/* ---- life ---------------------------------------------------------------------------------- */

dpb_status dpb_device_coder_open(struct dpb_strategy *strategy, const struct dpb_arenas *arenas)
{
    const struct dpb_device_arenas *device = strategy->args.device;
    struct dpb_device_coder *coder = coder_of(strategy);
    const uint64_t longest = dpb_strategy_longest_bucket(&arenas->layout, arenas->bucket_elements);
    const uint64_t room = device->ops->coding_bytes(strategy->args.codec, longest);
    coder->ops = device->ops;
    coder->device = device->device;
    return coder->ops->allocate(coder->device, "room of a codec", room + 1, false, &coder->room);
}

void dpb_device_coder_close(struct dpb_strategy *strategy)
{
    const struct dpb_device_coder *coder = coder_of(strategy);
    if (coder->ops)
        coder->ops->release(coder->device, coder->room);
    dpb_coded_close(strategy);
}

struct dpb_codec_part dpb_device_coder_part(const struct dpb_strategy *strategy, uint32_t rank,
                                            uint64_t bucket, uint32_t round)
{
    return dpb_coded_part_of(strategy, rank, bucket, round,
                             (uint64_t)dpb_coded_of(strategy)->steps);
}

/* ---- a residual ---------------------------------------------------------------------------- */

static dpb_status tell_sample(const struct dpb_device_coder *coder, struct dpb_queue *queue,
                              float *told, const float *values, const struct dpb_codec_part *part)
{
    const struct dpb_range sample = dpb_coded_sample(part);
    return coder->ops->copy(queue, told, values + sample.begin,
                            (sample.end - sample.begin) * sizeof *told);
}

/* The residual that the codec works on: zeros without feedback, where there is none. */
static dpb_status begin_residual(const struct dpb_device_coder *coder, struct dpb_queue *queue,
                                 const struct dpb_codec_part *part, float **residual)
{
    float *dropped = coder->coded.dropped;
    *residual = dropped ? dropped : coder->coded.residual + part->first;
    return dropped ? coder->ops->clear(queue, dropped, part->n * sizeof *dropped) : DPB_OK;
}

/* The codec has written the residual of begin_residual. */
static dpb_status end_residual(const struct dpb_device_coder *coder, struct dpb_queue *queue,
                               const struct dpb_codec_part *part,
                               const struct dpb_device_told *told)
{
    const float *dropped = coder->coded.dropped;
    float *residual = coder->coded.residual + part->first;
    if (dropped)
        DPB_TRY(coder->ops->axpby(queue, DPB_FP32, 1.0, dropped, 1.0, residual, part->n));
    return tell_sample(coder, queue, told->residual, dropped ? dropped : residual, part);
}

/* ---- messages ------------------------------------------------------------------------------ */

dpb_status dpb_device_coder_encode(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                   const struct dpb_codec_part *part,
                                   const struct dpb_device_told *told, void *message,
                                   uint64_t *bytes)
{
    const struct dpb_device_coder *coder = coder_of(strategy);
    const struct dpb_codec *codec = strategy->args.codec;
    const float *gradients = dpb_strategy_own_gradients(strategy, part->first);
    float *residual;
    DPB_TRY(begin_residual(coder, queue, part, &residual));
    *bytes = dpb_coded_elements_of_round(strategy, part) * sizeof *gradients;
    DPB_TRY(dpb_coded_is_plain(strategy, part->step)
                ? coder->ops->copy(queue, message, gradients, *bytes)
                : coder->ops->encode(queue, codec, part, gradients, residual, message, coder->room,
                                     bytes));
    if (part->round == 0)
        DPB_TRY(tell_sample(coder, queue, told->gradients, gradients, part));
    return dpb_coded_rounds(codec) == 1 ? end_residual(coder, queue, part, told) : DPB_OK;
}

dpb_status dpb_device_coder_add(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                const struct dpb_codec_part *part,
                                const struct dpb_device_told *told, const void *message,
                                uint64_t bytes, float *sum)
{
    const struct dpb_device_coder *coder = coder_of(strategy);
    if (bytes == 0)
        return DPB_OK;
    return dpb_coded_is_plain(strategy, part->step)
               ? coder->ops->axpby(queue, DPB_FP32, 1.0, message, 1.0, sum, bytes / sizeof *sum)
               : coder->ops->decode(queue, strategy->args.codec, part, message, sum, told->refused);
}

dpb_status dpb_device_coder_finish(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                   const struct dpb_codec_part *part,
                                   const struct dpb_device_told *told, const float *sum)
{
    const struct dpb_device_coder *coder = coder_of(strategy);
    float *residual;
    if (dpb_coded_rounds(strategy->args.codec) == 1)
        return DPB_OK;
    DPB_TRY(begin_residual(coder, queue, part, &residual));
    if (dpb_coded_finishes(strategy, part))
        DPB_TRY(coder->ops->finish(queue, strategy->args.codec, part, sum,
                                   dpb_strategy_own_gradients(strategy, part->first), residual));
    return part->round == 1 ? end_residual(coder, queue, part, told) : DPB_OK;
}

/* ---- the account --------------------------------------------------------------------------- */

void dpb_device_coder_read(const struct dpb_codec_part *part, const struct dpb_device_told *told,
                           bool gradients, bool residual, struct dpb_coding *coding)
{
    const struct dpb_range sample = dpb_coded_sample(part);
    const uint64_t n = sample.end - sample.begin;
    if (gradients)
        coding->gradients = dpb_coded_sum_squares(told->gradients, n);
    if (residual)
        coding->residual = dpb_coded_sum_squares(told->residual, n);
}

dpb_status dpb_device_coder_check(const struct dpb_strategy *strategy, uint64_t bucket,
                                  const struct dpb_device_told *told)
{
    if (*told->refused == 0)
        return DPB_OK;
    return strategy->host->fail(
        DPB_FAILED,
        "codec %s: rank %u sent a message for bucket %llu that this device cannot decode: do all "
        "ranks run the same training, with the same options of the codec?",
        strategy->args.codec->name, *told->refused - 1, (unsigned long long)bucket);
}
