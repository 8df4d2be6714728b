/*
 * compare.h - two results, or two sweeps, side by side: first everything else in which they differ,
 * then the rates. One JSON document, schema dpbench.compare/1, and a table of it. It is made from
 * the documents alone; nothing runs.
 *
 * A rate has an interval: of a sweep's cell as its row has it, of a run the 95 % interval of its
 * mean. Where the two overlap, no difference is shown, however far apart the rates are.
 */
#ifndef DPB_CORE_STUDY_COMPARE_H
#define DPB_CORE_STUDY_COMPARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "dpbench/status.h"

struct dpb_compared {
    const char *file;       /* as the user named it */
    const json_t *document; /* @borrowed: dpbench.result/1 or dpbench.sweep/1 */
};

/* `threshold`: the share (0.05) of A's rate that B may be slower; NaN: any. *regression: whether a
 * cell of B is slower by more than that and their intervals do not overlap, or one of the two has
 * no rate. DPB_USAGE: one is a run and the other a sweep, or they have no cell in common.
 * *document is @owned. */
dpb_status dpb_compare_make(const struct dpb_compared *a, const struct dpb_compared *b,
                            double threshold, json_t **document, bool *regression);
void dpb_compare_print(const json_t *document, FILE *out);

#endif
