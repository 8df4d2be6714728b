/*
 * trace_private.h - the spans of a job's ranks, read from the board and chosen for the file of
 * run.trace: private to trace_file.c and trace_spans.c.
 */
#ifndef DPB_CORE_RECORD_TRACE_PRIVATE_H
#define DPB_CORE_RECORD_TRACE_PRIVATE_H

#include <stdio.h>

#include "measure/journal.h"
#include "measure/trace.h"
#include "plan/experiment.h"
#include "world/board.h"

struct dpb_traced_clock {
    int64_t offset_ns, error_ns; /* as of dpb_status_page.clock */
};

/* A row of communication: the ends of spans that lie within each other. */
enum { DPB_TRACE_DEPTH = 8 };
struct dpb_trace_lane {
    int64_t ends_ns[DPB_TRACE_DEPTH];
    uint32_t n;
};

struct dpb_traced_rank {
    const struct dpb_journal *journal;
    const struct dpb_status_page *page;
    struct dpb_trace_span *spans; /* @owned, in the order of writing; on the clock of rank 0 */
    struct dpb_trace_span *steps; /* @owned: the steps whose spans are all there */
    uint64_t n, n_steps;
    bool full;               /* older spans are lost */
    uint64_t first, n_shown; /* of the steps */
    int64_t from_ns, to_ns;  /* the time shown */
};

struct dpb_tracer {
    const struct dpb_experiment *experiment;
    uint32_t n_ranks;
    struct dpb_traced_rank *ranks;
    struct dpb_traced_clock *clocks; /* of each machine */
    int64_t origin_ns;
    struct dpb_trace_lane *lanes; /* of the rank that is written */
    uint32_t n_lanes, most_lanes;
    FILE *out;
    bool begun;
};

/* Fills the clocks, and spans and steps of each rank. */
dpb_status dpb_trace_read_rings(struct dpb_tracer *tracer, struct dpb_board *board);
/* Servers, and ranks without a step, show the spans within the others' time; if no rank has a step,
 * all spans. */
void dpb_trace_choose_spans(struct dpb_tracer *tracer);
bool dpb_trace_is_shown(const struct dpb_traced_rank *rank, const struct dpb_trace_span *span);
/* Whether the rank has fewer steps than requested and done; or, on a server, less time than the
 * workers show. */
bool dpb_trace_is_cut(const struct dpb_tracer *tracer, uint32_t number);
/* Warns of ranks whose spans are cut or lost. */
void dpb_trace_warn(const struct dpb_tracer *tracer);

#endif
