/*
 * follow.h - a few elements of the model, followed through the steps of a training. Core keeps
 * their weights, and the gradients that each worker hands over. After training rank 0 compares
 * every step with the optimizer's rule, in float64. A mistake that acts on all replicas alike, and
 * only in some steps, is found where it meets such an element.
 *
 * Elements are drawn by core's secret, so no strategy can favour them; some are the first or the
 * last of their bucket. Followed are strategies with arenas on the host, for rules that need no
 * norms: synchronous ones, with comm.late, too, and under SGD those with replicas that meet now and
 * then. In each step of these the mean of all replicas has to move by the mean of their updates.
 */
#ifndef DPB_CORE_EXCHANGE_FOLLOW_H
#define DPB_CORE_EXCHANGE_FOLLOW_H

#include "exchange/exchange.h"
#include "measure/journal.h"

enum { DPB_FOLLOWED = 64, DPB_FOLLOWED_STEPS = 2048 }; /* at most; the first ones of the run */

struct dpb_followed_step {
    uint64_t number; /* of training; fp16 leaves some out */
    double rate, scale;
};

struct dpb_follow {
    uint32_t n;                      /* elements; 0: none is followed */
    uint32_t next;                   /* of this step: the first without a gradient */
    uint64_t elements[DPB_FOLLOWED]; /* bucket by bucket */
    uint64_t n_begun;                /* steps; from DPB_FOLLOWED_STEPS + 1 on it stands still */
    struct dpb_followed_step *steps; /* for each row of weights; of the last the number counts */
    double coefficient;              /* of the replica in its books; 0: they name more, too */
    char *weights;                   /* a row of n before each step, and one after the last */
    char *gradients;                 /* a row of n for each step */
};

/* Workers, once the model is loaded. The strategy's other steps are not followed. Sets the verdict
 * of a run that ends without `judge`. */
dpb_status dpb_follow_open(struct dpb_exchange *exchange, struct dpb_journal *journal);
void dpb_follow_close(struct dpb_exchange *exchange); /* also where none was opened */
/* Whether each worker has a replica of its own, which meets others now and then. */
bool dpb_follow_apart(const struct dpb_exchange *exchange);
/* An exchange is about to begin: the strategy's weights are final, and it has no gradients yet. */
void dpb_follow_begin(struct dpb_exchange *exchange);
/* The bucket is about to be handed over. */
void dpb_follow_bucket(struct dpb_exchange *exchange, uint64_t bucket);
/* The training's last step is over. */
void dpb_follow_end(struct dpb_exchange *exchange);
#endif
