/*
 * result_private.h - a result being made: private to result.c and result_ranks.c.
 */
#ifndef DPB_CORE_RECORD_RESULT_PRIVATE_H
#define DPB_CORE_RECORD_RESULT_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/experiment.h"
#include "record/summary.h"
#include "world/board.h"

/* A document being made. */
struct dpb_result_maker {
    const struct dpb_experiment *experiment;
    struct dpb_board *board; /* NULL: no rank was ever started */
    const struct dpb_journal *journals[DPB_JOB_RANKS];
    uint32_t n_workers, n_ranks;
    bool lost[DPB_JOB_RANKS];
    uint32_t n_left; /* workers */
    struct dpb_load load;
    struct dpb_summary summary;
    bool apart;    /* workers do not wait for each other in each step */
    bool counting; /* numbers that are not finite: off where nothing was timed */
    uint64_t n_not_finite;
    char first_not_finite[64];
};

/* A real that should be finite; one that is not becomes null and is counted for the warning. */
json_t *dpb_result_real(struct dpb_result_maker *maker, double value, const char *name);
json_t *dpb_result_breakdown(struct dpb_result_maker *maker, const struct dpb_breakdown *breakdown);

json_t *dpb_result_ranks(struct dpb_result_maker *maker);
/* Whether any rank's GPU was throttled; null: no rank is on a GPU whose driver reports that. */
json_t *dpb_result_throttled(const struct dpb_result_maker *maker);

#endif
