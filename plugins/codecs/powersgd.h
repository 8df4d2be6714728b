/*
 * powersgd.h - the rule of codec powersgd, for its plugin and for devices that encode by kernels:
 * the matrices of a part, and the places of their factors.
 */
#ifndef DPB_PLUGINS_CODECS_POWERSGD_H
#define DPB_PLUGINS_CODECS_POWERSGD_H

#include <string.h>

#include "dpbench/codec.h"

/* A product of two vectors is summed in pieces of CHUNK elements. In a piece, lane l sums elements
 * l, l + LANES, ...; then the elements behind the last LANES are summed, then the lanes. */
enum { POWERSGD_CHUNK = 1024, POWERSGD_LANES = 32 };

struct powersgd_options {
    struct dpb_codec_options base;
    int64_t rank;
};

struct powersgd_matrix {
    uint64_t at, n; /* elements [at, at + n) of the part */
    uint64_t lacks; /* elements of its first row that lie before the part */
    uint64_t rows, columns;
    uint64_t rank; /* of the factors; 0: sent uncoded */
    /* Its first element in the messages of both rounds, and in the state: Q, then P. */
    uint64_t in_message[DPB_CODEC_ROUNDS], in_state;
};

/* Elements of the matrix in a round's message. */
static inline uint64_t powersgd_elements(const struct powersgd_matrix *m, uint32_t round)
{
    if (round == 0)
        return m->rows * m->rank;
    return m->rank > 0 ? m->columns * m->rank : m->n;
}

static inline uint64_t powersgd_state_elements(const struct powersgd_matrix *m)
{
    return (m->rows + m->columns) * m->rank;
}

/* Sets *m from matrix i - 1 of the part to matrix i. Before matrix 0, *m is zeroed. */
static inline void powersgd_next(const struct powersgd_options *options,
                                 const struct dpb_codec_part *part, uint32_t i,
                                 struct powersgd_matrix *m)
{
    const struct dpb_tensor *tensor = &part->tensors[i];
    const uint64_t limit = (uint64_t)options->rank;
    const uint64_t tensor_end = tensor->offset + tensor->n_elements, end = part->first + part->n;
    const uint64_t from = tensor->offset > part->first ? tensor->offset : part->first;
    const uint64_t to = tensor_end < end ? tensor_end : end;
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++)
        m->in_message[round] += powersgd_elements(m, round);
    m->in_state += powersgd_state_elements(m);
    m->at = from - part->first;
    m->n = to - from;
    m->columns = tensor->n_elements / tensor->dims[0];
    m->lacks = (from - tensor->offset) % m->columns;
    m->rows = (m->lacks + m->n + m->columns - 1) / m->columns;
    m->rank = limit < m->rows ? limit : m->rows;
    m->rank = m->rank < m->columns ? m->rank : m->columns;
    if (powersgd_state_elements(m) >= m->n)
        m->rank = 0;
}

/* Sets *m to the place behind the last matrix. */
static inline void powersgd_end(const struct powersgd_options *options,
                                const struct dpb_codec_part *part, struct powersgd_matrix *m)
{
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < part->n_tensors; i++)
        powersgd_next(options, part, i, m);
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++)
        m->in_message[round] += powersgd_elements(m, round);
    m->in_state += powersgd_state_elements(m);
}

static inline uint64_t powersgd_message_bytes(const struct powersgd_options *options,
                                              const struct dpb_codec_part *part)
{
    struct powersgd_matrix m;
    powersgd_end(options, part, &m);
    return m.in_message[part->round] * sizeof(float);
}

#endif
