/*
 * ops_embedding.c - rows of a table by the ids of tokens. Backward adds, for each id, the gradients
 * of its positions in their order, in fp64: the result does not depend on the number of threads.
 */
#include "inner.h"
#include "ops.h"

enum { AT_ONCE = 64 /* channels */ };

static size_t positions_of(const struct program *p, const struct dpb_node *node)
{
    return (size_t)p->args.batch * node->shape.w;
}

KERNEL void copy_row(const float *from, void *to, size_t first, size_t n, bool bf16)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        put(to, first + c, from[c], bf16);
}

/* Ids are copied: the batch is the caller's again when backward runs. */
static void embed(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const size_t n = node->shape.c, positions = positions_of(p, node);
    const float *rows = cpu_weights(p, node->weight);
    int32_t *ids = p->ids->data;
    memcpy(ids, p->batch->samples, positions * sizeof *ids);
#pragma omp parallel for
    for (size_t i = 0; i < positions; i++)
        copy_row(rows + (size_t)ids[i] * n, step->to->data, i * n, n, p->type == dnnl_bf16);
}

/* The positions of each id: first[id] is the first one's number plus 1 (0: there is none), and
 * next[position] the next one's. */
static void chain(const int32_t *ids, size_t positions, uint32_t nclass, uint32_t *first,
                  uint32_t *next)
{
    memset(first, 0, nclass * sizeof *first);
    for (size_t i = positions; i-- > 0;) {
        next[i] = first[ids[i]];
        first[ids[i]] = (uint32_t)i + 1;
    }
}

INLINE void add_rows(const void *gradient, uint32_t first, const uint32_t *next, size_t column,
                     size_t n, size_t stride, double *restrict sums, bool bf16)
{
    for (uint32_t at = first; at > 0; at = next[at - 1]) {
        const size_t from = (at - 1) * stride + column;
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            sums[c] += (double)get(gradient, from + c, bf16);
    }
}

/* to = before (NULL: 0) plus the gradients of the positions from `first` on. */
KERNEL void add_chain(const void *gradient, uint32_t first, const uint32_t *next, size_t channels,
                      const float *before, float *to, bool bf16)
{
    for (size_t column = 0; column < channels; column += AT_ONCE) {
        const size_t n = smaller(AT_ONCE, channels - column);
        double sums[AT_ONCE];
        for (size_t c = 0; c < n; c++)
            sums[c] = before ? (double)before[column + c] : 0.0;
        if (bf16)
            add_rows(gradient, first, next, column, n, channels, sums, true);
        else
            add_rows(gradient, first, next, column, n, channels, sums, false);
        for (size_t c = 0; c < n; c++)
            to[column + c] = (float)sums[c];
    }
}

/* from: the gradient; aux: the chains; USE_PART: a tied product's gradient. */
static void embed_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const size_t n = node->shape.c, positions = positions_of(p, node);
    const uint32_t nclass = p->graph->nclass;
    const struct tensor *tied = step->also[USE_PART];
    float *to = cpu_gradients(p, node->weight);
    uint32_t *first = step->aux->data, *next = first + nclass;
    chain(p->ids->data, positions, nclass, first, next);
#pragma omp parallel for
    for (uint32_t id = 0; id < nclass; id++) {
        const float *before = tied ? (const float *)tied->data + id * n : NULL;
        if (first[id] > 0)
            add_chain(step->from->data, first[id], next, n, before, to + id * n,
                      p->type == dnnl_bf16);
        else if (before)
            memcpy(to + id * n, before, n * sizeof *to);
        else
            memset(to + id * n, 0, n * sizeof *to);
    }
}

dpb_status cpu_embedding_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    DPB_TRY(cpu_buffer(p, positions_of(p, node) * sizeof(int32_t), &p->ids));
    cpu_keep(p->ids);
    return cpu_loop(p, WHEN_ALWAYS, "forward", embed, NULL, dst, p->ids);
}

dpb_status cpu_embedding_backward(struct program *p, const struct dpb_node *node)
{
    const size_t words = p->graph->nclass + positions_of(p, node);
    struct tensor *chains;
    DPB_TRY(cpu_scratch(p, words * sizeof(uint32_t), &chains));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward weights", embed_backward,
                     cpu_plan(p, node)->gradient, NULL, chains));
    cpu_also(p, USE_PART, p->tied);
    return DPB_OK;
}
