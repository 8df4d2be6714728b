/*
 * loops.c - dropout and the shortcut without parameters, which oneDNN lacks; and our own step, by
 * which image_conv.c and weights_product.c compute a convolution's weights.
 */
#include "ops.h"
#include "dpbench/random.h"
#include "inner.h"

/* -------------------------------------------------------------------------------------- dropout */

/* The mask of one sample, nhwc: 1 keeps. A draw of random.h gives four elements in CHW order. */
static void draw_mask(const struct program *p, const struct dpb_node *node, uint32_t sample,
                      uint8_t *mask)
{
    const uint32_t channels = node->shape.c, pixels = node->shape.h * node->shape.w;
    const uint32_t n = (uint32_t)dpb_shape_elements(node->shape), index = cpu_index(p, node);
    uint32_t c = 0, pixel = 0;
    for (uint32_t element = 0; element < n; element += 4) {
        struct dpb_random4 r = dpb_random(p->seed, DPB_STREAM_DROPOUT, index, element / 4, sample,
                                          (uint32_t)p->pass->step);
        for (uint32_t k = 0; k < 4 && element + k < n; k++) {
            mask[(size_t)pixel * channels + c] =
                (double)dpb_random_uniform(r.v[k]) >= node->rate ? 1 : 0;
            if (++pixel == pixels) {
                pixel = 0;
                c++;
            }
        }
    }
}

/* to = from * scale where the mask keeps, else 0; n elements. */
KERNEL void mask_fp32(const float *restrict from, float *restrict to, const uint8_t *restrict mask,
                      float scale, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = kept_if(mask[i], from[i] * scale);
}

KERNEL void mask_bf16(const uint16_t *restrict from, uint16_t *restrict to,
                      const uint8_t *restrict mask, float scale, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = dpb_bf16_from_fp32(kept_if(mask[i], dpb_bf16_to_fp32(from[i]) * scale));
}

static void mask_samples(const struct program *p, const struct step *step, bool draw)
{
    const struct dpb_node *node = step->node;
    size_t n_elements = dpb_shape_elements(node->shape);
    float scale = (float)(1.0 / (1.0 - node->rate));
    uint8_t *mask = step->aux->data;
    uint32_t n = p->args.batch;
#pragma omp parallel for
    for (uint32_t i = 0; i < n; i++) {
        size_t begin = i * n_elements;
        if (draw)
            draw_mask(p, node, p->pass->first_sample + i, mask + begin);
        if (p->type == dnnl_bf16)
            mask_bf16((const uint16_t *)step->from->data + begin,
                      (uint16_t *)step->to->data + begin, mask + begin, scale, n_elements);
        else
            mask_fp32((const float *)step->from->data + begin, (float *)step->to->data + begin,
                      mask + begin, scale, n_elements);
    }
}

static void forward_dropout(const struct program *p, const struct step *step)
{
    mask_samples(p, step, true);
}

static void backward_dropout(const struct program *p, const struct step *step)
{
    mask_samples(p, step, false);
}

dpb_status cpu_dropout_forward(struct program *p, const struct dpb_node *node)
{
    const struct tensor *src = cpu_plan(p, cpu_input(p, node, 0))->activation;
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    if (p->args.training) {
        size_t n_elements = p->args.batch * dpb_shape_elements(node->shape);
        DPB_TRY(cpu_buffer(p, n_elements, &plan->workspace));
        DPB_TRY(cpu_loop(p, WHEN_TRAINING, "forward", forward_dropout, src, dst, plan->workspace));
    }
    return cpu_reorder(p, WHEN_EVALUATION, "copy", src, dst);
}

dpb_status cpu_dropout_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    return cpu_loop(p, WHEN_ALWAYS, "backward", backward_dropout, plan->gradient, diff_src,
                    plan->workspace);
}

/* ------------------------------------------------------------------------------------- shortcut */

/*
 * Copies between the large side (in.h x in.w, in.c channels) and the small one (every stride-th
 * pixel, zero channels appended); elements without a counterpart on the other side become zero.
 */
static void forward_shortcut(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct dpb_shape in = cpu_input(p, node, 0)->shape, out = node->shape;
    const struct dpb_window *w = &node->window;
    const size_t element = dnnl_data_type_size(p->type);
    const char *from = step->from->data;
    char *to = step->to->data;
    uint32_t n = p->args.batch;
#pragma omp parallel for
    for (uint32_t i = 0; i < n; i++) {
        for (size_t y = 0; y < out.h; y++) {
            for (size_t x = 0; x < out.w; x++) {
                size_t source = ((i * (size_t)in.h + y * w->stride_h) * in.w + x * w->stride_w);
                size_t target = (i * (size_t)out.h + y) * out.w + x;
                char *pixel = to + target * out.c * element;
                memcpy(pixel, from + source * in.c * element, in.c * element);
                memset(pixel + in.c * element, 0, (out.c - in.c) * element);
            }
        }
    }
}

static void backward_shortcut(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct dpb_shape in = cpu_input(p, node, 0)->shape, out = node->shape;
    const struct dpb_window *w = &node->window;
    const size_t element = dnnl_data_type_size(p->type);
    const char *from = step->from->data;
    char *to = step->to->data;
    uint32_t n = p->args.batch;
#pragma omp parallel for
    for (uint32_t i = 0; i < n; i++) {
        for (size_t y = 0; y < in.h; y++) {
            for (size_t x = 0; x < in.w; x++) {
                char *pixel = to + ((i * (size_t)in.h + y) * in.w + x) * in.c * element;
                size_t source = (i * (size_t)out.h + y / w->stride_h) * out.w + x / w->stride_w;
                if (y % w->stride_h == 0 && x % w->stride_w == 0)
                    memcpy(pixel, from + source * out.c * element, in.c * element);
                else
                    memset(pixel, 0, in.c * element);
            }
        }
    }
}

dpb_status cpu_shortcut_forward(struct program *p, const struct dpb_node *node)
{
    return cpu_forward_loop(p, node, forward_shortcut);
}

dpb_status cpu_shortcut_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    return cpu_loop(p, WHEN_ALWAYS, "backward", backward_shortcut, cpu_plan(p, node)->gradient,
                    diff_src, NULL);
}

/* ------------------------------------------------------------------- a convolution's weights */

dpb_status cpu_weights_loop(struct program *p, const struct dpb_node *node,
                            const_dnnl_memory_desc_t canonical, size_t bytes, step_loop *loop)
{
    struct tensor *work, *gradient;
    DPB_TRY(cpu_scratch(p, bytes, &work));
    DPB_TRY(cpu_core_tensor(p, p->core.gradients, p->graph->tensors[node->weight].offset, canonical,
                            &gradient));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward weights", loop,
                     cpu_plan(p, cpu_input(p, node, 0))->activation, gradient, work));
    cpu_also(p, USE_PART, cpu_plan(p, node)->gradient);
    cpu_set_flops(p, node);
    return DPB_OK;
}
