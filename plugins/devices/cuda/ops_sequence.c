/*
 * ops_sequence.c - the ops of sequences: embedding, layer-norm, GELU, positions, a prepended token
 * and attention. Activations are NHWC, so a position is a row of channels.
 *
 * Attention copies heads apart, then takes QUERIES queries of many heads at a time: products by
 * cuBLASLt with the heads as batch, and a softmax kernel between them. A causal block ends at its
 * last query's key. Forward keeps the logarithm of each query's sum of exponentials; backward makes
 * the probabilities again. Gradients by keys and values are added up block by block, from the last,
 * which has all keys.
 *
 * Dao: FlashAttention-2. ICLR 2024 (the log-sum-exp; D is summed here over p dp, which is at hand).
 */
#include <math.h>
#include <stdlib.h>

#include "lib/device/op_name.h"
#include "ops.h"
#include "products.h"

/* Plans the result of a node that takes positions apart. */
static dpb_status plan_rows(struct program *p, const struct dpb_node *node, struct tensor **y)
{
    if (p->device->options.layout == LAYOUT_NCHW)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: device.layout = nchw has no %s (node '%s'): sequences "
                               "are for device.layout = nhwc",
                               dpb_op_name(node->op), node->name);
    return cuda_activation(p, node, y);
}

static const struct tensor *input_of(const struct program *p, const struct dpb_node *node)
{
    return cuda_plan(p, cuda_input(p, node, 0))->activation;
}

static uint64_t rows_of(const struct program *p, const struct dpb_node *node)
{
    return (uint64_t)p->args.batch * node->shape.h * node->shape.w;
}

/* ------------------------------------------------------------------------------------ embedding */

static dpb_status run_embed(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    cuda_embed(p->device->stream, p->type, step->t[FROM]->data, cuda_weight(p, node->weight),
               step->t[TO]->data, rows_of(p, node), node->shape.c);
    return DPB_OK;
}

/* Bytes of the weights' rows that are read or written. */
static double row_bytes(const struct program *p, const struct dpb_node *node)
{
    return (double)cuda_elements(p, node->shape) * sizeof(float);
}

dpb_status cuda_embedding_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *y;
    DPB_TRY(plan_rows(p, node, &y));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_embed, TENSORS(p->ids, y)));
    cuda_last_step(p)->bytes += row_bytes(p, node);
    return DPB_OK;
}

static dpb_status run_sort_ids(const struct program *p, const struct step *step)
{
    cuda_sort_ids(p->device->stream, step->t[FROM]->data, (uint32_t)rows_of(p, step->node),
                  step->t[TO]->data);
    return DPB_OK;
}

/* A product with the same weights has assigned the gradient by all of them. */
static dpb_status run_embed_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    float *to = cuda_gradient(p, node->weight);
    const size_t bytes = p->graph->tensors[node->weight].n_elements * sizeof *to;
    if (!node->tied)
        DPB_TRY(cuda_check(p, node, "cudaMemsetAsync",
                           cudaMemsetAsync(to, 0, bytes, p->device->stream)));
    cuda_embed_backward(p->device->stream, p->type, step->t[AUX]->data, step->t[FOURTH]->data,
                        (uint32_t)rows_of(p, node), step->t[FROM]->data, to, node->shape.c,
                        node->tied);
    return DPB_OK;
}

dpb_status cuda_embedding_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *order;
    DPB_TRY(cuda_tensor(p, rows_of(p, node) * sizeof(uint32_t), &order));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "sorting of ids", run_sort_ids, TENSORS(p->ids, order)));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward weights", run_embed_backward,
                      TENSORS(cuda_plan(p, node)->gradient, NULL, p->ids, order)));
    cuda_last_step(p)->bytes += row_bytes(p, node) * (node->tied ? 2 : 1);
    if (!node->tied)
        cuda_use_core(p, node->weight);
    return DPB_OK;
}

/* ----------------------------------------------------------------------------------- layer-norm */

static struct row_norm norm_of(const struct program *p, const struct dpb_node *node)
{
    return (struct row_norm){.moments = cuda_plan(p, node)->workspace->data,
                             .gamma = cuda_weight(p, node->weight),
                             .beta = cuda_weight(p, node->bias),
                             .epsilon = (float)node->epsilon,
                             .channels = node->shape.c};
}

static dpb_status run_layer_norm(const struct program *p, const struct step *step)
{
    const struct row_norm by = norm_of(p, step->node);
    cuda_layer_norm(p->device->stream, p->type, step->t[FROM]->data, &by, step->t[TO]->data,
                    rows_of(p, step->node));
    return DPB_OK;
}

dpb_status cuda_layer_norm_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cuda_plan(p, node);
    struct tensor *y;
    DPB_TRY(plan_rows(p, node, &y));
    DPB_TRY(cuda_tensor(p, rows_of(p, node) * sizeof(struct row_moments), &plan->workspace));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_layer_norm,
                      TENSORS(input_of(p, node), y, plan->workspace)));
    cuda_use_core(p, node->weight);
    cuda_use_core(p, node->bias);
    return DPB_OK;
}

static dpb_status run_layer_norm_weights(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    cuda_layer_norm_weights(p->device->stream, p->type, step->t[FROM]->data, step->t[AUX]->data,
                            step->t[FOURTH]->data, cuda_grid(p, node->shape), cuda_sum_room(p),
                            cuda_gradient(p, node->weight), cuda_gradient(p, node->bias));
    return DPB_OK;
}

static dpb_status run_layer_norm_backward(const struct program *p, const struct step *step)
{
    const struct row_norm by = norm_of(p, step->node);
    cuda_layer_norm_backward(p->device->stream, p->type, step->t[FROM]->data, step->t[AUX]->data,
                             &by, step->t[TO]->data, rows_of(p, step->node));
    return DPB_OK;
}

dpb_status cuda_layer_norm_backward_plan(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cuda_plan(p, node);
    const struct tensor *dy = plan->gradient, *x = input_of(p, node);
    struct tensor *dx;
    cuda_need_sum_room(p, node);
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward weights", run_layer_norm_weights,
                      TENSORS(dy, NULL, x, plan->workspace)));
    cuda_use_core(p, node->weight);
    cuda_use_core(p, node->bias);
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    if (!dx)
        return DPB_OK;
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward data", run_layer_norm_backward,
                      TENSORS(dy, dx, x, plan->workspace)));
    cuda_use_core(p, node->weight);
    return DPB_OK;
}

/* ----------------------------------------------------------------------------------------- GELU */

dpb_status cuda_run_gelu(const struct program *p, const struct step *step)
{
    cuda_gelu(p->device->stream, p->type, step->t[FROM]->data, step->node->tanh, step->t[TO]->data,
              cuda_elements(p, step->node->shape));
    return DPB_OK;
}

dpb_status cuda_run_gelu_backward(const struct program *p, const struct step *step)
{
    cuda_gelu_backward(p->device->stream, p->type, step->t[FROM]->data, step->t[AUX]->data,
                       step->node->tanh, step->t[TO]->data, cuda_elements(p, step->node->shape));
    return DPB_OK;
}

/* --------------------------------------------------------------------------- positions, prepend */

/* The first n elements of each sample of the node's result. */
static struct sample_rows first_of(const struct program *p, const struct dpb_node *node, uint32_t n)
{
    return (struct sample_rows){p->args.batch, n, (uint32_t)dpb_shape_elements(node->shape)};
}

static dpb_status run_positions(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct sample_rows all = first_of(p, node, (uint32_t)dpb_shape_elements(node->shape));
    cuda_add_rows(p->device->stream, p->type, step->t[FROM]->data, cuda_weight(p, node->weight),
                  step->t[TO]->data, &all);
    return DPB_OK;
}

dpb_status cuda_positions_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *y;
    DPB_TRY(plan_rows(p, node, &y));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_positions, TENSORS(input_of(p, node), y)));
    cuda_last_step(p)->bytes += (double)dpb_shape_elements(node->shape) * sizeof(float);
    return DPB_OK;
}

/* Rows beyond the positions have no gradient. */
static dpb_status run_positions_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const size_t n = dpb_shape_elements(node->shape);
    const size_t all = p->graph->tensors[node->weight].n_elements;
    const struct sample_rows rows = first_of(p, node, (uint32_t)n);
    float *to = cuda_gradient(p, node->weight);
    cuda_sum_samples(p->device->stream, p->type, step->t[FROM]->data, to, &rows);
    if (all == n)
        return DPB_OK;
    return cuda_check(p, node, "cudaMemsetAsync",
                      cudaMemsetAsync(to + n, 0, (all - n) * sizeof *to, p->device->stream));
}

dpb_status cuda_positions_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *dy = cuda_plan(p, node)->gradient;
    cuda_share_input_gradient(p, node, 0, dy);
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward weights", run_positions_backward, TENSORS(dy)));
    cuda_use_core(p, node->weight);
    return DPB_OK;
}

/* For copies, a sample is a row of all its channels; the token's are the first. */
static dpb_status run_prepend(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct sample_rows token = first_of(p, node, node->shape.c);
    cuda_add_rows(p->device->stream, p->type, NULL, cuda_weight(p, node->weight), step->t[TO]->data,
                  &token);
    cuda_scatter_columns(p->device->stream, p->type, step->t[FROM]->data, step->t[TO]->data,
                         token.stride, token.n, token.samples, token.stride - token.n);
    return DPB_OK;
}

dpb_status cuda_prepend_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *y;
    DPB_TRY(plan_rows(p, node, &y));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_prepend, TENSORS(input_of(p, node), y)));
    cuda_use_core(p, node->weight);
    return DPB_OK;
}

static dpb_status run_prepend_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct sample_rows token = first_of(p, node, node->shape.c);
    cuda_sum_samples(p->device->stream, p->type, step->t[FROM]->data,
                     cuda_gradient(p, node->weight), &token);
    if (step->t[TO])
        cuda_gather_columns(p->device->stream, p->type, step->t[FROM]->data, token.stride, token.n,
                            step->t[TO]->data, token.samples, token.stride - token.n);
    return DPB_OK;
}

dpb_status cuda_prepend_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *dx;
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward", run_prepend_backward,
                      TENSORS(cuda_plan(p, node)->gradient, dx)));
    cuda_use_core(p, node->weight);
    return DPB_OK;
}

/* ------------------------------------------------------------------------------------ attention */

enum { QUERIES = 128, HEAD_UNIT = 16 /* channels, and columns of scores */ };
/* Scores of a call: 16 MiB, so that all arrays of a block fit into the 50 MB cache of an H100. */
static const uint64_t SCORES_AT_ONCE = UINT64_C(1) << 22;

/* The products of a block. An operand is rows of a head, or the scores. */
enum product {
    BY_SCORE, /* scores, or gradients by probabilities: queries' rows by keys' */
    BY_QUERY, /* rows of queries: scores by keys' rows */
    BY_KEY,   /* rows of keys, added up over all blocks: scores by queries' rows */
    PRODUCTS
};

struct attention {
    struct heads heads;
    uint32_t pairs;   /* heads of all samples */
    uint32_t at_once; /* of these */
    uint32_t wide;    /* columns of scores */
    uint32_t blocks;
    bool causal;
    float scale;
};

/* The queries [first, first + queries) of a head, which see keys [0, keys). */
struct block {
    uint32_t first, queries, keys;
};

static struct block block_of(const struct attention *by, uint32_t number)
{
    const uint32_t first = number * QUERIES, left = by->heads.length - first;
    const uint32_t queries = left < QUERIES ? left : QUERIES;
    return (struct block){first, queries, by->causal ? first + queries : by->heads.length};
}

static uint64_t scores_of(const struct attention *by)
{
    return (uint64_t)block_of(by, 0).queries * by->wide;
}

static struct attention attention_of(const struct program *p, const struct dpb_node *node)
{
    const uint32_t length = node->shape.w, width = node->shape.c / node->heads;
    struct attention by = {.heads = {p->args.batch, length, node->heads, width},
                           .pairs = p->args.batch * node->heads,
                           .wide = (length + HEAD_UNIT - 1) / HEAD_UNIT * HEAD_UNIT,
                           .blocks = (length + QUERIES - 1) / QUERIES,
                           .causal = node->causal,
                           .scale = (float)(1.0 / sqrt((double)width))};
    const uint64_t allowed = p->device->options.workspace / sizeof(float);
    const uint64_t most = allowed < SCORES_AT_ONCE ? allowed : SCORES_AT_ONCE;
    by.at_once = by.pairs;
    while (by.at_once > 1 && (by.pairs % by.at_once > 0 || by.at_once * scores_of(&by) > most))
        by.at_once--;
    return by;
}

/* Column-major, a row of a head is a column; so are a query's scores. */
static struct gemm_shape shape_of(const struct attention *by, enum product which, uint32_t number)
{
    const struct block block = block_of(by, number);
    const struct gemm_operand rows = {0, (uint64_t)by->heads.length * by->heads.width};
    const struct gemm_operand scores = {by->wide, (uint64_t)block.queries * by->wide};
    struct gemm_shape shape = {.m = by->heads.width,
                               .n = block.queries,
                               .k = block.keys,
                               .c_type = TYPE_FP32,
                               .a = rows,
                               .b = scores,
                               .c = rows,
                               .products = by->at_once};
    if (which == BY_SCORE) {
        shape.m = block.keys;
        shape.k = by->heads.width;
        shape.transpose_a = true;
        shape.b = rows;
        shape.c = scores;
    } else if (which == BY_KEY) {
        shape.n = block.keys;
        shape.k = block.queries;
        shape.transpose_b = true;
        shape.adds = number + 1 < by->blocks;
    }
    return shape;
}

static dpb_status open_products(struct program *p, const struct dpb_node *node, enum product first,
                                enum product last)
{
    const struct attention by = attention_of(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    if (!plan->products)
        plan->products = calloc((size_t)by.blocks * PRODUCTS, sizeof *plan->products);
    if (!plan->products)
        return cuda_no_memory();
    plan->n_products = by.blocks * PRODUCTS;
    for (uint32_t i = 0; i < by.blocks; i++) {
        for (enum product which = first; which <= last; which++) {
            const struct gemm_shape shape = shape_of(&by, which, i);
            struct gemm **gemm = &plan->products[i * PRODUCTS + which];
            DPB_TRY(cuda_gemm_open(p, node, &shape, gemm));
            cuda_need_scratch(p, cuda_gemm_workspace(*gemm));
        }
    }
    return DPB_OK;
}

/* The arrays of a step, one behind the other: heads apart (q, k, v, dy), sums (y; dq, dk, dv) and,
 * for a block of queries, scores, p, dp, ds. */
enum array { HEADS, SUMS, SCORES, P, DP, DS, ARRAYS };

/* Returns the bytes of all arrays. */
static size_t place_arrays(const struct program *p, const struct attention *by, bool backward,
                           size_t at[ARRAYS])
{
    const size_t size = cuda_type_size(p->type), scores = by->at_once * scores_of(by);
    const size_t part = (size_t)by->pairs * by->heads.length * by->heads.width;
    const size_t bytes[ARRAYS] = {[HEADS] = (backward ? 4 : 3) * part * size,
                                  [SUMS] = (backward ? 3 : 1) * part * sizeof(float),
                                  [SCORES] = scores * sizeof(float),
                                  [P] = scores * size,
                                  [DP] = backward ? scores * sizeof(float) : 0,
                                  [DS] = backward ? scores * size : 0};
    size_t used = 0;
    for (int i = 0; i < ARRAYS; i++) {
        at[i] = used;
        used += (bytes[i] + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    }
    return used;
}

/* A step under way, at the heads from `pair` on. */
struct work {
    const struct program *p;
    const struct dpb_node *node;
    struct attention by;
    void *array[ARRAYS];
    float *log_sum;
    uint32_t pair;
};

static struct work work_of(const struct program *p, const struct step *step, bool backward)
{
    struct work work = {.p = p,
                        .node = step->node,
                        .by = attention_of(p, step->node),
                        .log_sum = step->t[FOURTH]->data};
    size_t at[ARRAYS];
    place_arrays(p, &work.by, backward, at);
    for (int i = 0; i < ARRAYS; i++)
        work.array[i] = (char *)step->t[FIFTH]->data + at[i];
    return work;
}

/* Row `position` of part `part` of HEADS or SUMS. */
static void *row_at(const struct work *work, enum array array, uint32_t part, uint32_t position)
{
    const struct heads *heads = &work->by.heads;
    const size_t size = array == SUMS ? sizeof(float) : cuda_type_size(work->p->type);
    const size_t head = (size_t)part * work->by.pairs + work->pair;
    return (char *)work->array[array] + (head * heads->length + position) * heads->width * size;
}

static dpb_status multiply(const struct work *work, enum product which, uint32_t block,
                           const void *a, const void *b, void *c)
{
    const struct gemm *gemm = cuda_plan(work->p, work->node)->products[block * PRODUCTS + which];
    return cuda_gemm_run(work->p, work->node, gemm, a, b, c);
}

static struct score_block scores_at(const struct work *work, const struct block *block)
{
    return (struct score_block){.heads = work->by.at_once,
                                .queries = block->queries,
                                .keys = block->keys,
                                .wide = work->by.wide,
                                .first = block->first,
                                .causal = work->by.causal,
                                .scale = work->by.scale,
                                .log_sum =
                                    work->log_sum + (size_t)work->pair * work->by.heads.length,
                                .length = work->by.heads.length};
}

/* Parts of HEADS, and of SUMS. */
enum { Q, K, V, DY };

static dpb_status attend(const struct work *work, uint32_t number)
{
    const struct block block = block_of(&work->by, number);
    const struct score_block scores = scores_at(work, &block);
    void *const *array = work->array;
    DPB_TRY(multiply(work, BY_SCORE, number, row_at(work, HEADS, K, 0),
                     row_at(work, HEADS, Q, block.first), array[SCORES]));
    cuda_softmax(work->p->device->stream, work->p->type, &scores, array[SCORES], array[P]);
    return multiply(work, BY_QUERY, number, row_at(work, HEADS, V, 0), array[P],
                    row_at(work, SUMS, 0, block.first));
}

static dpb_status attend_backward(const struct work *work, uint32_t number)
{
    const struct block block = block_of(&work->by, number);
    const struct score_block scores = scores_at(work, &block);
    void *const *array = work->array;
    const void *q = row_at(work, HEADS, Q, block.first), *k = row_at(work, HEADS, K, 0);
    const void *dy = row_at(work, HEADS, DY, block.first), *v = row_at(work, HEADS, V, 0);
    DPB_TRY(multiply(work, BY_SCORE, number, k, q, array[SCORES]));
    DPB_TRY(multiply(work, BY_SCORE, number, v, dy, array[DP]));
    cuda_softmax_backward(work->p->device->stream, work->p->type, &scores, array[SCORES], array[DP],
                          array[P], array[DS]);
    DPB_TRY(multiply(work, BY_KEY, number, dy, array[P], row_at(work, SUMS, V, 0)));
    DPB_TRY(multiply(work, BY_KEY, number, q, array[DS], row_at(work, SUMS, K, 0)));
    return multiply(work, BY_QUERY, number, k, array[DS], row_at(work, SUMS, Q, block.first));
}

static dpb_status run_attention(const struct program *p, const struct step *step)
{
    struct work work = work_of(p, step, false);
    cuda_split_heads(p->device->stream, p->type, &work.by.heads, 3, step->t[FROM]->data,
                     work.array[HEADS]);
    for (; work.pair < work.by.pairs; work.pair += work.by.at_once)
        for (uint32_t i = 0; i < work.by.blocks; i++)
            DPB_TRY(attend(&work, i));
    cuda_join_heads(p->device->stream, p->type, &work.by.heads, 1, work.array[SUMS],
                    step->t[TO]->data);
    return DPB_OK;
}

static dpb_status run_attention_backward(const struct program *p, const struct step *step)
{
    struct work work = work_of(p, step, true);
    cuda_split_heads(p->device->stream, p->type, &work.by.heads, 3, step->t[AUX]->data,
                     work.array[HEADS]);
    cuda_split_heads(p->device->stream, p->type, &work.by.heads, 1, step->t[FROM]->data,
                     row_at(&work, HEADS, DY, 0));
    for (; work.pair < work.by.pairs; work.pair += work.by.at_once)
        for (uint32_t i = work.by.blocks; i-- > 0;)
            DPB_TRY(attend_backward(&work, i));
    cuda_join_heads(p->device->stream, p->type, &work.by.heads, 3, work.array[SUMS],
                    step->t[TO]->data);
    return DPB_OK;
}

static dpb_status check_attention(const struct program *p, const struct dpb_node *node)
{
    const struct attention by = attention_of(p, node);
    const uint64_t least = scores_of(&by) * sizeof(float);
    if (by.heads.width % HEAD_UNIT > 0)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: a head of attention '%s' has %u channels; multiples "
                               "of %d are possible; take another number of heads, or device.name "
                               "= cpu",
                               node->name, by.heads.width, HEAD_UNIT);
    if (least > p->device->options.workspace)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: attention '%s' needs %llu bytes for scores; "
                               "device.workspace = %llu allows fewer",
                               node->name, (unsigned long long)least,
                               (unsigned long long)p->device->options.workspace);
    return DPB_OK;
}

/* The tensor of a step's arrays, whose content nobody counts. */
static dpb_status plan_arrays(struct program *p, const struct dpb_node *node, bool backward,
                              struct tensor **arrays)
{
    const struct attention by = attention_of(p, node);
    size_t at[ARRAYS];
    DPB_TRY(cuda_tensor(p, place_arrays(p, &by, backward, at), arrays));
    (*arrays)->bytes = 0;
    return DPB_OK;
}

dpb_status cuda_attention_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cuda_plan(p, node);
    struct tensor *y, *arrays;
    DPB_TRY(plan_rows(p, node, &y));
    DPB_TRY(check_attention(p, node));
    DPB_TRY(open_products(p, node, BY_SCORE, BY_QUERY));
    DPB_TRY(plan_arrays(p, node, false, &arrays));
    DPB_TRY(cuda_tensor(p, rows_of(p, node) * node->heads * sizeof(float), &plan->workspace));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_attention,
                      TENSORS(input_of(p, node), y, NULL, plan->workspace, arrays)));
    cuda_last_step(p)->flops = 2.0 * (double)node->macs * p->args.batch;
    return DPB_OK;
}

/* Flops without those that make the probabilities again. */
dpb_status cuda_attention_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cuda_plan(p, node);
    struct tensor *dx, *arrays;
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    if (!dx)
        return DPB_OK;
    DPB_TRY(open_products(p, node, BY_KEY, BY_KEY));
    DPB_TRY(plan_arrays(p, node, true, &arrays));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward", run_attention_backward,
                      TENSORS(plan->gradient, dx, input_of(p, node), plan->workspace, arrays)));
    cuda_last_step(p)->flops = 4.0 * (double)node->macs * p->args.batch;
    return DPB_OK;
}
