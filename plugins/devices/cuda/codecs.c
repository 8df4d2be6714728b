/* codecs.c - see codecs.h. Kernels are found by the codec's name. */
#include "codecs.h"

#include <string.h>

#include "arenas.h"
#include "codecs/int8.h"
#include "codecs/powersgd.h"
#include "codecs/scale.h"
#include "codecs/topk.h"
#include "kernels_codec.h"
#include "streams.h"

struct work {
    cudaStream_t stream;
    const void *options;
    const struct dpb_codec_part *part;
    uint32_t *refused; /* on the device; NULL in `encode` */
};

struct kernels {
    const char *name;
    uint64_t (*room)(uint64_t n); /* NULL: none is needed */
    uint64_t (*encode)(const struct work *work, const float *gradients, float *residual,
                       void *message, void *room); /* returns the message's bytes */
    void (*decode)(const struct work *work, const void *message, float *sum);
    /* NULL: of a codec of one round. */
    void (*finish)(const struct work *work, const float *sum, float *gradients, float *residual);
};

static uint64_t int8_encode(const struct work *work, const float *gradients, float *residual,
                            void *message, void *room)
{
    const struct int8_options *options = work->options;
    (void)room;
    cuda_encode_int8(work->stream, gradients, residual, message, work->part->n,
                     options->rounding == INT8_STOCHASTIC, scaled_key(work->part));
    return int8_bytes(work->part->n);
}

/* All integers are possible. */
static void int8_decode(const struct work *work, const void *message, float *sum)
{
    cuda_decode_int8(work->stream, message, sum, work->part->n);
}

static uint64_t topk_encode(const struct work *work, const float *gradients, float *residual,
                            void *message, void *room)
{
    const struct topk_options *options = work->options;
    const uint64_t k = topk_count(options, work->part);
    cuda_encode_topk(work->stream, work->part, gradients, residual, message, (uint32_t)k,
                     (float)options->momentum, room);
    return topk_bytes(k);
}

static void topk_decode(const struct work *work, const void *message, float *sum)
{
    cuda_decode_topk(work->stream, work->part, message,
                     (uint32_t)topk_count(work->options, work->part), sum, work->refused);
}

static void add(const struct work *work, const float *a, const float *b, float *to, uint64_t n)
{
    const struct cuda_sources both = {{a, b}, 2};
    cuda_sum_arenas(work->stream, DPB_FP32, &both, to, n);
}

static uint64_t powersgd_encode(const struct work *work, const float *gradients, float *residual,
                                void *message, void *room)
{
    const struct dpb_codec_part *part = work->part;
    struct powersgd_matrix m = {0};
    (void)room;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        powersgd_next(work->options, part, i, &m);
        float *to = (float *)message + m.in_message[part->round];
        if (m.rank > 0)
            cuda_powersgd_multiply(work->stream, part, &m, gradients, residual, to);
        else if (part->round == 1)
            add(work, gradients + m.at, residual + m.at, to, m.n);
    }
    return powersgd_message_bytes(work->options, part);
}

static void powersgd_decode(const struct work *work, const void *message, float *sum)
{
    const uint64_t n = powersgd_message_bytes(work->options, work->part) / sizeof *sum;
    if (n > 0)
        add(work, sum, message, sum, n);
}

static void powersgd_finish(const struct work *work, const float *sum, float *gradients,
                            float *residual)
{
    const struct dpb_codec_part *part = work->part;
    const struct powersgd_matrix behind = {.at = part->n};
    struct powersgd_matrix m = {0};
    uint64_t from = 0;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        powersgd_next(work->options, part, i, &m);
        const float *factor = sum + m.in_message[part->round];
        if (m.rank > 0)
            cuda_powersgd_take(work->stream, part, &m, factor);
        if (part->round == 0)
            continue;
        cuda_powersgd_settle(work->stream, part, &m, from, factor, gradients, residual);
        from = m.at + m.n;
    }
    if (part->round == 1 && from < part->n)
        cuda_powersgd_settle(work->stream, part, &behind, from, NULL, gradients, residual);
}

static const struct kernels all[] = {
    {"int8", NULL, int8_encode, int8_decode, NULL},
    {"topk", cuda_topk_bytes, topk_encode, topk_decode, NULL},
    {"powersgd", NULL, powersgd_encode, powersgd_decode, powersgd_finish}};

static const struct kernels *find(const struct dpb_codec *codec)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, codec->name) == 0)
            return &all[i];
    return NULL;
}

uint64_t cuda_coding_bytes(const struct dpb_codec *codec, uint64_t n)
{
    const struct kernels *kernels = find(codec);
    if (!kernels)
        return UINT64_MAX;
    return kernels->room ? kernels->room(n) : 0;
}

/* *work is that of a codec on the queue's stream; *kernels its kernels. */
static dpb_status begin(struct dpb_queue *queue, const struct dpb_codec *codec,
                        const struct dpb_codec_part *part, struct work *work,
                        const struct kernels **kernels)
{
    *work = (struct work){(cudaStream_t)queue, codec->options, part, NULL};
    *kernels = find(codec);
    return *kernels ? cuda_turn_to(queue)
                    : cuda_host->fail(DPB_UNSUPPORTED, "device cuda: no kernels for codec %s",
                                      codec->name);
}

dpb_status cuda_encode(struct dpb_queue *queue, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const float *gradients, float *residual,
                       void *message, void *room, uint64_t *bytes)
{
    const struct kernels *kernels;
    struct work work;
    DPB_TRY(begin(queue, codec, part, &work, &kernels));
    *bytes = kernels->encode(&work, gradients, residual, message, room);
    return cuda_check(NULL, NULL, "a codec's encoding", cudaPeekAtLastError());
}

dpb_status cuda_decode(struct dpb_queue *queue, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const void *message, float *sum,
                       uint32_t *refused)
{
    const struct kernels *kernels;
    struct work work;
    DPB_TRY(begin(queue, codec, part, &work, &kernels));
    work.refused = refused;
    kernels->decode(&work, message, sum);
    return cuda_check(NULL, NULL, "a codec's decoding", cudaPeekAtLastError());
}

dpb_status cuda_finish(struct dpb_queue *queue, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const float *sum, float *gradients,
                       float *residual)
{
    const struct kernels *kernels;
    struct work work;
    DPB_TRY(begin(queue, codec, part, &work, &kernels));
    kernels->finish(&work, sum, gradients, residual);
    return cuda_check(NULL, NULL, "the end of a codec's round", cudaPeekAtLastError());
}
