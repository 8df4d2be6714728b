/*
 * input.c - from samples as they come (uint8 or fp32, channels first or last) to the activation of
 * the input node: value * scale[c] + offset[c], nhwc, in the program's type.
 */
#include "ops.h"

/* Where element (c, pixel) of a sample lies: c * channel_stride + pixel * pixel_stride. */
struct source {
    const uint8_t *bytes; /* NULL: fp32 */
    const float *values;
    size_t channel_stride, pixel_stride;
};

static inline float read_source(const struct source *s, size_t i)
{
    return s->bytes ? (float)s->bytes[i] : s->values[i];
}

static void normalise_sample(const struct dpb_sample_format *format, const struct source *source,
                             dnnl_data_type_t type, void *to, size_t first)
{
    const struct dpb_shape shape = format->shape;
    size_t pixels = (size_t)shape.h * shape.w;
    float *fp32 = (float *)to + (type == dnnl_f32 ? first : 0);
    uint16_t *bf16 = (uint16_t *)to + (type == dnnl_bf16 ? first : 0);
    for (size_t pixel = 0; pixel < pixels; pixel++) {
        for (size_t c = 0; c < shape.c; c++) {
            size_t from = c * source->channel_stride + pixel * source->pixel_stride;
            float value = read_source(source, from) * format->scale[c] + format->offset[c];
            if (type == dnnl_bf16)
                bf16[pixel * shape.c + c] = dpb_bf16_from_fp32(value);
            else
                fp32[pixel * shape.c + c] = value;
        }
    }
}

static void normalise(const struct program *p, const struct step *step)
{
    const struct dpb_sample_format *format = p->args.format;
    const struct dpb_shape shape = format->shape;
    size_t n_elements = dpb_shape_elements(shape), pixels = (size_t)shape.h * shape.w;
    bool chw = format->order == DPB_CHW, bytes = format->type == DPB_UINT8;
    const void *samples = p->batch->samples;
    uint32_t n = p->args.batch;
#pragma omp parallel for
    for (uint32_t i = 0; i < n; i++) {
        const struct source source = {
            .bytes = bytes ? (const uint8_t *)samples + i * n_elements : NULL,
            .values = bytes ? NULL : (const float *)samples + i * n_elements,
            .channel_stride = chw ? pixels : 1,
            .pixel_stride = chw ? 1 : shape.c,
        };
        normalise_sample(format, &source, p->type, step->to->data, i * n_elements);
    }
}

dpb_status cpu_input_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *activation;
    if (p->args.format->type == DPB_INT32) /* the embedding reads them from the batch */
        return DPB_OK;
    DPB_TRY(cpu_activation(p, node, &activation));
    return cpu_loop(p, WHEN_ALWAYS, "normalisation of the samples", normalise, NULL, activation,
                    NULL);
}
