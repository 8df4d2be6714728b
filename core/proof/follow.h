/*
 * follow.h - elements of the model, followed through the whole training. Each rank keeps a record:
 * core looks from outside, and a strategy can notice nothing. After training rank 0 compares every
 * recorded step with the optimizer's rule in float64 (follow_judge.h).
 *
 * The record is of segments of 16 exchanges. A segment has elements of its own, drawn by core's
 * secret: first and last elements of buckets, the rest uniformly. It holds
 *
 *     weights      before each exchange and after the last, where this worker trains with them;
 *                  weights on need as the device reads them, all bits one where they are away
 *     gradients    as the device calls them final, before the strategy can see them
 *     books        beside the weights (contract.h), at the same times as the weights
 *     notes        of core's optimizer, on whichever rank owns the element: the rule's state and
 *                  factors just before the update. One a segment, from which the state of later
 *                  steps follows; one a step where replicas differ, and where there are norms
 *
 * Every exchange is recorded until the record is full. Then every second segment is given up, and
 * of the later ones every second is left out, and so on. The choice follows from the segments'
 * numbers alone, so all ranks choose alike.
 *
 * Followed are strategies with arenas on the host whose replicas are equal (synchronous ones, with
 * comm.late or a codec, too), and those whose replicas meet now and then.
 */
#ifndef DPB_CORE_PROOF_FOLLOW_H
#define DPB_CORE_PROOF_FOLLOW_H

#include "exchange/exchange.h"
#include "measure/journal.h"
#include "plan/estimate.h"
#include "world/answer.h"

enum {
    DPB_SEGMENT_STEPS = 16,
    DPB_FOLLOWED = 256,         /* elements of a segment, up to 64 workers */
    DPB_FOLLOWED_LEAST = 24,    /* of a segment, with any number of workers */
    DPB_FOLLOWED_ENDS = 1 << 15 /* exchanges whose end is looked at for a meeting */
};

struct dpb_followed_step {
    uint64_t number; /* of training: a step that fp16 skips has no exchange */
    double rate, scale;
};

/* Before the element's update in an exchange: the optimizer's state. */
struct dpb_followed_note {
    uint32_t exchange; /* number + 1, its low bits; 0: no note was made */
    uint32_t update;   /* the number of struct dpb_optimizer_witness, its low bits */
    double first, second;
};

/* By norms: the factors of the element's tensor in an exchange. */
struct dpb_followed_factors {
    double rate, scale, decay;
};

/* An element's sum of coefficient x array, and the sum of magnitudes. */
struct dpb_followed_books {
    double sum, size;
};

/* At the end of an exchange, of the elements of the first segment. */
struct dpb_followed_end {
    uint64_t weights, books; /* checksums */
    double rate;             /* of the exchange */
};

/* How a worker's arrays are to be judged. */
struct dpb_followed_terms {
    double coefficient;   /* of the weights in the books */
    bool has_other_units; /* books beside the weights in other units than the judge adds */
    uint64_t n_ends;
};

/* Of the exchanges [16 number, 16 number + 16); arrays follow it, by the offsets of the record. */
struct dpb_segment {
    uint64_t number;             /* UINT64_MAX: the place is free */
    uint32_t weights, gradients; /* bit i: row i is there. Weights have one row more */
    struct dpb_followed_step steps[DPB_SEGMENT_STEPS];
};

struct dpb_follow {
    struct dpb_exchange *exchange;
    uint32_t n;         /* elements of a segment */
    uint32_t note_rows; /* of a segment; and as many of factors, if there are any */
    bool has_books, has_factors;
    /* In a segment's bytes. */
    size_t elements_at, weights_at, gradients_at, books_at, notes_at, factors_at, segment_bytes;
    char *record;
    pthread_mutex_t lock; /* of the next four, and of beginning a segment: updates come from any
                             thread */
    uint64_t capacity, stride; /* segments */
    uint64_t first, latest;    /* numbers; UINT64_MAX: none has begun */
    /* The loop's thread. */
    uint64_t first_exchange, open; /* the one begun last; UINT64_MAX: none */
    uint32_t next;                 /* of this step: the first element without a gradient */
    struct dpb_books books;        /* beside the weights */
    struct dpb_followed_terms terms;
    uint64_t elements[DPB_FOLLOWED]; /* of `ends` */
    struct dpb_followed_end *ends;   /* NULL: no replicas that meet */
    struct dpb_answerer answerer;    /* a server's */
};

static inline uint64_t *dpb_segment_elements(const struct dpb_follow *follow,
                                             const struct dpb_segment *segment)
{
    return (uint64_t *)(void *)((char *)segment + follow->elements_at);
}
static inline void *dpb_segment_weights(const struct dpb_follow *follow,
                                        const struct dpb_segment *segment, uint32_t row)
{
    const size_t size = dpb_dtype_size(follow->exchange->layout.weight_type);
    return (char *)segment + follow->weights_at + row * follow->n * size;
}
static inline void *dpb_segment_gradients(const struct dpb_follow *follow,
                                          const struct dpb_segment *segment, uint32_t row)
{
    const size_t size = dpb_dtype_size(follow->exchange->layout.gradient_type);
    return (char *)segment + follow->gradients_at + row * follow->n * size;
}
static inline struct dpb_followed_books *
dpb_segment_books(const struct dpb_follow *follow, const struct dpb_segment *segment, uint32_t row)
{
    return (struct dpb_followed_books *)(void *)((char *)segment + follow->books_at) +
           row * follow->n;
}
static inline struct dpb_followed_note *
dpb_segment_notes(const struct dpb_follow *follow, const struct dpb_segment *segment, uint32_t row)
{
    return (struct dpb_followed_note *)(void *)((char *)segment + follow->notes_at) +
           (follow->note_rows > 1 ? row : 0) * follow->n;
}
/* Where the rule has factors by norms. */
static inline struct dpb_followed_factors *dpb_segment_factors(const struct dpb_follow *follow,
                                                               const struct dpb_segment *segment,
                                                               uint32_t row)
{
    return (struct dpb_followed_factors *)(void *)((char *)segment + follow->factors_at) +
           row * follow->n;
}
/* The recorded segment with the lowest number from `number` on; NULL: none. No exchange is under
 * way. */
struct dpb_segment *dpb_follow_next(const struct dpb_follow *follow, uint64_t number);

/* NULL: nothing is followed. */
static inline struct dpb_follow *dpb_follow_of(const struct dpb_exchange *exchange)
{
    return exchange->onlooker.owner;
}
/* Any rank, before training; workers once the model is loaded. The strategy's steps of proofs are
 * not followed. Where nothing is followed *journal says why. */
dpb_status dpb_follow_open(struct dpb_exchange *exchange, struct dpb_journal *journal);
void dpb_follow_close(struct dpb_exchange *exchange); /* also where none was opened */
/* Whether each worker has a replica of its own, which meets others now and then. */
bool dpb_follow_apart(const struct dpb_exchange *exchange);
/* Whether owners have to have made notes: the rule has a state, or factors of norms. */
bool dpb_follow_notes(const struct dpb_exchange *exchange);

/* A worker's training is over. */
void dpb_follow_end(struct dpb_exchange *exchange);

enum { DPB_FOLLOW_KEY = 48 };
/* Rank 0's question to a server: a segment's number. The answer is the segment, as many bytes as
 * rank 0's; its number is UINT64_MAX where the server has none. */
void dpb_follow_ask_key(uint32_t rank, char key[DPB_FOLLOW_KEY]);
void dpb_follow_answer_key(uint32_t rank, char key[DPB_FOLLOW_KEY]);
#endif
