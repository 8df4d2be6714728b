/*
 * why.h - why a run is not faster: the worker that the others wait for, and the part of its step;
 * the time that computing waits for data and for the exchange; the rate without these waits.
 *
 * A worker's own time of a step lasts until its gradients are handed over: data_wait + forward +
 * delay + backward. The worker with the longest own time was last in the step. The last worker
 * waits for no other, so its exposed communication is the exchange's own.
 *
 * A statement stands (`decided`) where the lower end of its 95 % interval exceeds DPB_MARGIN of the
 * step. The unit is the step; the error is that of a block bootstrap (base/stats.h).
 */
#ifndef DPB_CORE_RECORD_WHY_H
#define DPB_CORE_RECORD_WHY_H

#include <jansson.h>
#include <stdio.h>

#include "measure/journal.h"

struct dpb_why_args {
    const struct dpb_journal *const *journals; /* by rank; all workers have a timed step */
    uint32_t n_workers;
    uint64_t first, n_steps; /* timed records of every worker */
    double samples;          /* of a worker, a step */
    bool apart; /* workers do not wait for each other: each has its own timed records */
};

/* result.why (docs/results.md). Reads complete records alone. NULL: out of memory. @owned. */
json_t *dpb_why_to_json(const struct dpb_why_args *args);

/* Statements as sentences without full stop, made from `why` of n > 0 results of the same settings.
 * A statement that is not decided in all of them is left out. Numbers are those of the run with the
 * median rate. */
enum { DPB_WHY_SENTENCES = 6, DPB_WHY_TEXT = 256 };
size_t dpb_why_sentences(const json_t *const *runs, size_t n,
                         char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT]);
/* The sentences of one result, a line each, and the parts of each worker's step where one worker
 * holds up the others. */
void dpb_why_print(const json_t *result, FILE *out);

#endif
