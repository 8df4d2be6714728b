/* codecs.c - see codecs.h. Kernels are found by the codec's name. */
#include "codecs.h"

#include <string.h>

#include "codecs/int8.h"
#include "codecs/scale.h"
#include "codecs/topk.h"
#include "cuda.h"

struct work {
    cudaStream_t stream;
    const void *options;
    const struct dpb_codec_part *part;
    uint32_t *refused; /* on the device; NULL in `encode` */
};

struct kernels {
    const char *name;
    uint64_t (*room)(uint64_t n);
    uint64_t (*encode)(const struct work *work, const float *gradients, float *residual,
                       void *message, void *room); /* returns the message's bytes */
    void (*decode)(const struct work *work, const void *message, float *sum);
};

static uint64_t int8_room(uint64_t n)
{
    (void)n;
    return 0;
}

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

static const struct kernels all[] = {{"int8", int8_room, int8_encode, int8_decode},
                                     {"topk", cuda_topk_bytes, topk_encode, topk_decode}};

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
    return kernels ? kernels->room(n) : UINT64_MAX;
}

static dpb_status refuse(const struct dpb_codec *codec)
{
    return cuda_host->fail(DPB_UNSUPPORTED, "device cuda: no kernels for codec %s", codec->name);
}

dpb_status cuda_encode(cudaStream_t stream, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const float *gradients, float *residual,
                       void *message, void *room, uint64_t *bytes)
{
    const struct kernels *kernels = find(codec);
    const struct work work = {stream, codec->options, part, NULL};
    if (!kernels)
        return refuse(codec);
    *bytes = kernels->encode(&work, gradients, residual, message, room);
    return cuda_check(NULL, NULL, "a codec's encoding", cudaPeekAtLastError());
}

dpb_status cuda_decode(cudaStream_t stream, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const void *message, float *sum,
                       uint32_t *refused)
{
    const struct kernels *kernels = find(codec);
    struct work work = {stream, codec->options, part, NULL};
    if (!kernels)
        return refuse(codec);
    work.refused = refused;
    kernels->decode(&work, message, sum);
    return cuda_check(NULL, NULL, "a codec's decoding", cudaPeekAtLastError());
}
