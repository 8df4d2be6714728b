/*
 * contract.h - a strategy's promise about the gradients that core hands over. Core proves the
 * promise.
 *
 * For strategies that are not a synchronous mean. A first plugin does not need this header.
 *
 * Every strategy conserves something: each gradient ends up in the model, or is still on its way,
 * exactly once. Core hands over gradients that core alone knows, and checks the promise in one of
 * three ways:
 *
 *   settling   After contract.settle_steps steps of zero gradients every worker's weights have
 *              moved by  - learning rate x contract.share x (sum of all workers' gradients).
 *   books      A strategy whose replicas stay apart, or that drops gradients, names arrays and
 *              coefficients. Over all workers, element by element, the change of
 *                  sum of coefficient x array
 *              is  - learning rate x sum over workers and steps of (share x gradient).
 *   alone      A strategy that does not exchange: each worker's weights move by its own gradients.
 *
 * Core fills in the contract of a synchronous mean before `plan`; such a strategy changes nothing.
 * Others may need hooks. Core calls all of them on workers, between steps, and all but `cancelled`
 * may block:
 *
 *     settle     Applies all gradients that are on their way. Until its next step nobody waits for
 *                this worker. Not collective: core also calls it when a worker's training ends, or
 *                waits for a pause of all. NULL: the steps of zero gradients suffice.
 *     books      With DPB_PROOF_BOOKS; *books is zeroed. Collective. Core may call it once
 *                for all: the arrays and coefficients stay until close, and the arrays are final
 *                between steps.
 *     applied    The part of an element of this worker's mean gradient of `step`, one of the last
 *                64, that was applied, in place of contract.share, which NULL stands for. 0:
 *                dropped, by DPB_PARTIAL and DPB_BATCHES alone.
 *     cancelled  True: the gradients of the step under way will be dropped. Core then need not
 *                compute them, and hands over all buckets as they are. The loop's thread calls;
 *                never blocks. NULL: never.
 */
#ifndef DPBENCH_CONTRACT_H
#define DPBENCH_CONTRACT_H

#include "types.h"

/* The word for tables, with contract.parameter in brackets where a line names one. */
typedef enum dpb_consistency {
    DPB_SYNCHRONOUS, /* every step applies the mean gradient of all workers */
    DPB_LATE,        /* ... a fixed number of steps later: late(steps) */
    DPB_PERIODIC,    /* workers train alone; every so many steps all meet in one: periodic(steps) */
    DPB_STALE,       /* no worker is further ahead of another than: stale(steps) */
    DPB_PARTIAL,     /* of each step's gradients so many count: partial(count of workers) */
    DPB_BATCHES,     /* an update takes the first so many gradients of the weights before it, of any
                    workers: batches(count); others are dropped */
    DPB_ASYNCHRONOUS,
    DPB_LOSSY,     /* gradients lose precision on the way, and come later or not at all */
    DPB_AVERAGING, /* replicas differ and are drawn together */
    DPB_ALONE      /* workers do not exchange: "none" in tables */
} dpb_consistency;

typedef enum dpb_proof { DPB_PROOF_SETTLES, DPB_PROOF_BOOKS, DPB_PROOF_ALONE } dpb_proof;

struct dpb_contract {
    dpb_consistency consistency;
    uint32_t parameter;
    dpb_proof proof;
    uint32_t settle_steps;
    /* Gradients of an update: step->scale = 1 / (divisor x accumulate x loss scale). At most the
     * workers, but for DPB_BATCHES. */
    uint32_t divisor;
    /* Part of one worker's mean gradient that reaches the weights or books of the proof;
     * 1 / divisor for a strategy that applies step->scale once. Above 0, at most 1: a strategy
     * whose weights move by more divides the coefficients of its books. */
    double share;
    /* Roundings between a gradient and the weights beside the optimizer's own; 0: small integers
     * must come out exactly. Each is at most one unit of the gradient or weight type; with
     * DPB_PERIODIC and DPB_AVERAGING, of the weight type. Count every operation that rounds a value
     * which carries the gradient: an average of W replicas is W.
     * DPB_LOSSY with books: a unit of the largest gradient handed over, for codecs share scales. */
    uint32_t roundings;
    /* Steps by which a worker may be ahead of another. 0: none begins a step before all have handed
     * over the gradients of the step before (with comm.late: of the one before that). UINT32_MAX:
     * any number. Core compares the begins of steps after training. Workers pause and end at one
     * step: 3 behind the furthest that one of them has begun, under mpirun 2 + 2 lead. With
     * UINT32_MAX, or a lead and the hook `settle`, each ends where it is. Between a worker's own
     * steps its weights, and its arrays of the books, do not change. */
    uint32_t lead;
    bool replicas_equal; /* after settling, all workers hold the same bits */
};

/* One array of the books, with an element for each of the layout's weights. The sum runs over all
 * workers: equal replicas name their weights with coefficient 1 / n_workers. */
struct dpb_book {
    const void *array; /* @borrowed until close; NULL: none on this rank */
    dpb_dtype type;
    double coefficient;
    bool of_gradients; /* the array is in units of gradients: core multiplies by - learning rate */
};

/* host->age: in place of an age. */
#define DPB_DROPPED UINT64_MAX

enum { DPB_BOOKS = 4 };
struct dpb_books {
    struct dpb_book entries[DPB_BOOKS];
    uint32_t n;
};

#endif
