/*
 * restarts.h - a job with run.restart: the configuration with which its ranks start again after a
 * loss, and the account of the losses.
 *
 * A start continues the newest whole checkpoint exactly as a run with checkpoint.load would, and
 * ends at the step at which the first start would have. So a start needs nothing of the one before.
 */
#ifndef DPB_CORE_RECORD_RESTARTS_H
#define DPB_CORE_RECORD_RESTARTS_H

#include <jansson.h>

#include "launch/job.h"
#include "plan/plan.h"

struct dpb_restarts {
    const struct dpb_experiment *experiment; /* @borrowed */
    struct dpb_board_kept kept;              /* for the job; its files are @owned */
    json_t *losses;                          /* result.restarts */
    double known_ns;                         /* of the last loss; NaN: there was none */
    uint64_t from;                           /* the step that the job began with */
    double first_step_s;                     /* result.goodput; NaN: no start has made a step */
    char *config;
};

/* With checkpoint.place = peer each launcher gets memfds for checkpoints; they grow as used. */
dpb_status dpb_restarts_open(const struct dpb_experiment *experiment,
                             struct dpb_restarts *restarts);
void dpb_restarts_close(struct dpb_restarts *restarts); /* accepts zeroed ones */
/* `again` and `follow` of struct dpb_job; `context` is a struct dpb_restarts. The first warns of
 * the loss. */
dpb_status dpb_restarts_again(void *context, const struct dpb_loss *loss, struct dpb_board *board,
                              struct dpb_again *again);
dpb_status dpb_restarts_follow(void *context, const struct dpb_again *head,
                               struct dpb_again *again);
/* Adds `restarts` and `goodput`; `board` is the last start's. Nothing without run.restart. */
void dpb_restarts_report(struct dpb_restarts *restarts, struct dpb_board *board, json_t *document);

#endif
