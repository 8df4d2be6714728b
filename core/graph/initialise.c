/*
 * initialise.c - initial weights and batch-norm state.
 *
 * Each value is a pure function of seed, tensor and element, made in fp64 and rounded last, so
 * every rank writes the same ones in every precision.
 *
 * He, Zhang, Ren, Sun: Delving deep into rectifiers. ICCV 2015.
 * Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks.
 * AISTATS 2010.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "dpbench/random.h"
#include "graph/graph.h"

static void store(dpb_dtype type, void *arena, uint64_t index, double value)
{
    if (type == DPB_FP64)
        ((double *)arena)[index] = value;
    else
        ((float *)arena)[index] = (float)value;
}

static void fill(dpb_dtype type, void *arena, uint64_t offset, uint64_t n, double value)
{
    for (uint64_t i = 0; i < n; i++)
        store(type, arena, offset + i, value);
}

/* Draws with mean 0 and variance 1, by Box and Muller or within +-sqrt(3). */
static void draw(bool uniform, struct dpb_random4 bits, double value[4])
{
    if (!uniform) {
        dpb_random_normal(bits.v[0], bits.v[1], &value[0]);
        dpb_random_normal(bits.v[2], bits.v[3], &value[2]);
        return;
    }
    for (int k = 0; k < 4; k++)
        value[k] = sqrt(3.0) * (((double)bits.v[k] + 0.5) * 0x1p-31 - 1.0);
}

static void fill_random(const struct dpb_tensor *tensor, uint32_t index, uint64_t seed,
                        dpb_dtype type, void *weights)
{
    for (uint64_t i = 0; i < tensor->n_elements; i += 4) {
        struct dpb_random4 bits = dpb_random(seed, DPB_STREAM_INIT, index, (uint32_t)(i / 4), 0, 0);
        double value[4];
        draw(tensor->init_uniform, bits, value);
        for (uint64_t k = 0; k < 4 && i + k < tensor->n_elements; k++)
            store(type, weights, tensor->offset + i + k, tensor->init_stddev * value[k]);
    }
}

void dpb_graph_initialise(const struct dpb_graph *graph, uint64_t seed, dpb_dtype type,
                          void *weights)
{
    assert(type == DPB_FP32 || type == DPB_FP64);
    memset(weights, 0, graph->n_elements * dpb_dtype_size(type));
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        if (tensor->init_stddev > 0.0)
            fill_random(tensor, i, seed, type, weights);
        else
            fill(type, weights, tensor->offset, tensor->n_elements, tensor->init_value);
    }
}

void dpb_graph_initialise_state(const struct dpb_graph *graph, dpb_dtype type, void *state)
{
    assert(type == DPB_FP32 || type == DPB_FP64);
    memset(state, 0, graph->n_state_elements * dpb_dtype_size(type));
    for (uint32_t i = 0; i < graph->n_states; i++) {
        const struct dpb_state *one = &graph->states[i];
        fill(type, state, one->offset, one->n_elements, one->init_value);
    }
}
