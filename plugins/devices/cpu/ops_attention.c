/*
 * ops_attention.c - attention, a head of a sample at a time: products by oneDNN, the softmax
 * between them by own loops, in fp32 whatever the precision.
 *
 * Queries go in blocks, so that a thread has no more than a block's scores: never length x length
 * of them. A causal block ends at its last query's key. Forward keeps the logarithm of each query's
 * sum of exponentials; backward makes the probabilities again from it, block by block in order.
 *
 * Dao: FlashAttention-2. ICLR 2024 (the log-sum-exp; D is summed here over p dp, which is at hand).
 */
#include <math.h>
#include <omp.h>

#include "inner.h"
#include "ops.h"

enum { BLOCK = 64 /* queries */ };

/* A thread's arrays, each a head's: {length, width} but for the two blocks {BLOCK, length}. */
struct room {
    float *q, *k, *v, *y; /* q is scaled; y: the result, or its gradient */
    float *dq, *dk, *dv;
    float *p, *ds;
};

/* One head of one sample. */
struct head {
    size_t length, width, stride; /* stride: of y in the activation, its channels */
    bool causal, bf16;
    float scale;
    float *log_sum;       /* of each query */
    size_t input, output; /* first element of q in the input, and of y in the output */
    struct room room;
};

static size_t room_floats(const struct dpb_node *node, bool backward)
{
    const size_t length = node->shape.w, width = node->shape.c / node->heads;
    return rounded_up((backward ? 7 : 4) * length * width + (backward ? 2 : 1) * BLOCK * length,
                      ARENA_ALIGN);
}

static struct room room_of(const struct step *step, bool backward)
{
    const struct dpb_node *node = step->node;
    const size_t n = (size_t)node->shape.w * (node->shape.c / node->heads);
    float *at =
        (float *)step->aux->data + (size_t)omp_get_thread_num() * room_floats(node, backward);
    struct room room = {.q = at, .k = at + n, .v = at + 2 * n, .y = at + 3 * n, .p = at + 4 * n};
    if (backward) {
        room.dq = at + 4 * n;
        room.dk = at + 5 * n;
        room.dv = at + 6 * n;
        room.p = at + 7 * n;
        room.ds = room.p + BLOCK * (size_t)node->shape.w;
    }
    return room;
}

/* ---- between the activations and a head's arrays -------------------------------------------- */

INLINE void gather_rows(const void *from, size_t first, size_t stride, float scale, float *to,
                        size_t rows, size_t width, bool bf16)
{
    for (size_t i = 0; i < rows; i++) {
#pragma omp simd
        for (size_t c = 0; c < width; c++)
            to[i * width + c] = scale * get(from, first + i * stride + c, bf16);
    }
}

INLINE void scatter_rows(const float *from, void *to, size_t first, size_t stride, size_t rows,
                         size_t width, bool bf16)
{
    for (size_t i = 0; i < rows; i++) {
#pragma omp simd
        for (size_t c = 0; c < width; c++)
            put(to, first + i * stride + c, from[i * width + c], bf16);
    }
}

KERNEL void gather(const struct head *head, const void *from, size_t first, size_t stride,
                   float scale, float *to)
{
    if (head->bf16)
        gather_rows(from, first, stride, scale, to, head->length, head->width, true);
    else
        gather_rows(from, first, stride, scale, to, head->length, head->width, false);
}

KERNEL void scatter(const struct head *head, const float *from, void *to, size_t first,
                    size_t stride)
{
    if (head->bf16)
        scatter_rows(from, to, first, stride, head->length, head->width, true);
    else
        scatter_rows(from, to, first, stride, head->length, head->width, false);
}

/* ---- softmax -------------------------------------------------------------------------------- */

/* Scores become probabilities; keys from n to `all` get none. Returns the logarithm of the sum. */
KERNEL float softmax(float *restrict scores, size_t n, size_t all)
{
    const float largest = largest_of(scores, 0, n, false);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; j++) {
        scores[j] = exponential(scores[j] - largest);
        sum += scores[j];
    }
    const float inverse = 1.0F / sum;
#pragma omp simd
    for (size_t j = 0; j < n; j++)
        scores[j] *= inverse;
    memset(scores + n, 0, (all - n) * sizeof *scores);
    return largest - logf(inverse);
}

/* Scores become probabilities p, and their gradients dp become ds = p (dp - sum of p dp). */
KERNEL void softmax_backward(float *restrict p, float *restrict dp, float log_sum, size_t n,
                             size_t all)
{
    float d = 0.0F;
#pragma omp simd reduction(+ : d)
    for (size_t j = 0; j < n; j++) {
        p[j] = exponential(p[j] - log_sum);
        d += p[j] * dp[j];
    }
#pragma omp simd
    for (size_t j = 0; j < n; j++)
        dp[j] = p[j] * (dp[j] - d);
    memset(p + n, 0, (all - n) * sizeof *p);
    memset(dp + n, 0, (all - n) * sizeof *dp);
}

/* ---- a head --------------------------------------------------------------------------------- */

/* c = a b or a b', plus c if `add`; row by row, without gaps but where `wide` says how long the
 * rows of a block of scores are. On the calling thread, as oneDNN does within a parallel region. */
static void multiply(char transpose_a, char transpose_b, size_t m, size_t n, size_t k, float scale,
                     const float *a, size_t row_a, const float *b, size_t row_b, bool add, float *c,
                     size_t row_c)
{
    dnnl_sgemm(transpose_a, transpose_b, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, scale, a,
               (dnnl_dim_t)row_a, b, (dnnl_dim_t)row_b, add ? 1.0F : 0.0F, c, (dnnl_dim_t)row_c);
}

/* A block's queries: [first, first + rows), which see the keys [0, seen). */
struct block {
    size_t first, rows, seen;
};

static struct block block_at(const struct head *head, size_t first)
{
    const size_t rows = smaller(BLOCK, head->length - first);
    return (struct block){first, rows, head->causal ? first + rows : head->length};
}

static size_t seen_by(const struct head *head, const struct block *block, size_t row)
{
    return head->causal ? block->first + row + 1 : block->seen;
}

static void attend(const struct head *head)
{
    const struct room *room = &head->room;
    const size_t width = head->width, length = head->length;
    for (size_t first = 0; first < length; first += BLOCK) {
        const struct block block = block_at(head, first);
        multiply('N', 'T', block.rows, block.seen, width, 1.0F, room->q + first * width, width,
                 room->k, width, false, room->p, length);
        for (size_t i = 0; i < block.rows; i++)
            head->log_sum[first + i] =
                softmax(room->p + i * length, seen_by(head, &block, i), block.seen);
        multiply('N', 'N', block.rows, width, block.seen, 1.0F, room->p, length, room->v, width,
                 false, room->y + first * width, width);
    }
}

static void attend_backward(const struct head *head)
{
    const struct room *room = &head->room;
    const size_t width = head->width, length = head->length;
    memset(room->dk, 0, length * width * sizeof(float));
    memset(room->dv, 0, length * width * sizeof(float));
    for (size_t first = 0; first < length; first += BLOCK) {
        const struct block block = block_at(head, first);
        const float *q = room->q + first * width, *dy = room->y + first * width;
        multiply('N', 'T', block.rows, block.seen, width, 1.0F, q, width, room->k, width, false,
                 room->p, length);
        multiply('N', 'T', block.rows, block.seen, width, 1.0F, dy, width, room->v, width, false,
                 room->ds, length);
        for (size_t i = 0; i < block.rows; i++)
            softmax_backward(room->p + i * length, room->ds + i * length, head->log_sum[first + i],
                             seen_by(head, &block, i), block.seen);
        multiply('T', 'N', block.seen, width, block.rows, 1.0F, room->p, length, dy, width, true,
                 room->dv, width);
        multiply('T', 'N', block.seen, width, block.rows, 1.0F, room->ds, length, q, width, true,
                 room->dk, width);
        multiply('N', 'N', block.rows, width, block.seen, head->scale, room->ds, length, room->k,
                 width, false, room->dq + first * width, width);
    }
}

/* ---- all heads ------------------------------------------------------------------------------ */

static struct head head_of(const struct program *p, const struct step *step, size_t number,
                           bool backward)
{
    const struct dpb_node *node = step->node;
    const size_t length = node->shape.w, width = node->shape.c / node->heads;
    const size_t sample = number / node->heads, which = number % node->heads;
    return (struct head){.length = length,
                         .width = width,
                         .stride = node->shape.c,
                         .causal = node->causal,
                         .bf16 = p->type == dnnl_bf16,
                         .scale = (float)(1.0 / sqrt((double)width)),
                         .log_sum = (float *)cpu_plan(p, node)->workspace->data + number * length,
                         .input = sample * length * 3 * node->shape.c + which * width,
                         .output = sample * length * node->shape.c + which * width,
                         .room = room_of(step, backward)};
}

/* q, k and v of the head, from the input. */
static void gather_head(const struct head *head, const void *input)
{
    const size_t stride = 3 * head->stride;
    gather(head, input, head->input, stride, head->scale, head->room.q);
    gather(head, input, head->input + head->stride, stride, 1.0F, head->room.k);
    gather(head, input, head->input + 2 * head->stride, stride, 1.0F, head->room.v);
}

static void attention(const struct program *p, const struct step *step)
{
    const size_t n_heads = (size_t)p->args.batch * step->node->heads;
#pragma omp parallel for
    for (size_t i = 0; i < n_heads; i++) {
        const struct head head = head_of(p, step, i, false);
        gather_head(&head, step->from->data);
        attend(&head);
        scatter(&head, head.room.y, step->to->data, head.output, head.stride);
    }
}

static void attention_backward(const struct program *p, const struct step *step)
{
    const size_t n_heads = (size_t)p->args.batch * step->node->heads;
#pragma omp parallel for
    for (size_t i = 0; i < n_heads; i++) {
        const struct head head = head_of(p, step, i, true);
        const size_t stride = 3 * head.stride;
        gather_head(&head, step->from->data);
        gather(&head, step->also[USE_PART]->data, head.output, head.stride, 1.0F, head.room.y);
        attend_backward(&head);
        scatter(&head, head.room.dq, step->to->data, head.input, stride);
        scatter(&head, head.room.dk, step->to->data, head.input + head.stride, stride);
        scatter(&head, head.room.dv, step->to->data, head.input + 2 * head.stride, stride);
    }
}

/* Room for every thread. A plan alone has no threads: it counts one. */
static dpb_status rooms(struct program *p, const struct dpb_node *node, bool backward,
                        struct tensor **tensor)
{
    const size_t threads = larger(p->threads, 1);
    return cpu_scratch(p, threads * room_floats(node, backward) * sizeof(float), tensor);
}

dpb_status cpu_attention_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cpu_plan(p, node);
    const size_t queries = (size_t)p->args.batch * node->heads * node->shape.w;
    struct tensor *dst, *room;
    DPB_TRY(cpu_activation(p, node, &dst));
    DPB_TRY(cpu_buffer(p, queries * sizeof(float), &plan->workspace));
    DPB_TRY(rooms(p, node, false, &room));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "forward", attention,
                     cpu_plan(p, cpu_input(p, node, 0))->activation, dst, room));
    cpu_also(p, USE_OUTPUT, plan->workspace);
    cpu_set_flops(p, node);
    return DPB_OK;
}

dpb_status cpu_attention_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *diff_src, *room;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    DPB_TRY(rooms(p, node, true, &room));
    DPB_TRY(cpu_loop(p, WHEN_ALWAYS, "backward", attention_backward,
                     cpu_plan(p, cpu_input(p, node, 0))->activation, diff_src, room));
    cpu_also(p, USE_PART, plan->gradient);
    cpu_also(p, USE_OUTPUT, plan->workspace);
    cpu_set_flops(p, node);
    return DPB_OK;
}
