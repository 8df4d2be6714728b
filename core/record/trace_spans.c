/* trace_spans.c - which spans of a job the file of run.trace shows: see trace_private.h. */
#include <stdlib.h>

#include "base/log.h"
#include "record/trace_private.h"

/* ---- reading ------------------------------------------------------------------------------- */

/* The ranks of a machine have estimates of the same difference: the surest one is for all. */
static void find_clocks(struct dpb_tracer *tracer)
{
    const uint32_t *machines = tracer->experiment->machines;
    for (uint32_t i = 0; i < tracer->experiment->n_machines; i++)
        tracer->clocks[i] = (struct dpb_traced_clock){0, -1};
    for (uint32_t rank = 0; rank < tracer->n_ranks; rank++) {
        const struct dpb_status_page *page = tracer->ranks[rank].page;
        struct dpb_traced_clock *clock = &tracer->clocks[machines[rank]];
        if (page->clock.error_ns >= 0 &&
            (clock->error_ns < 0 || page->clock.error_ns < clock->error_ns))
            *clock = (struct dpb_traced_clock){page->clock.offset_ns, page->clock.error_ns};
    }
}

/* A ring that is full has a spoilt span, and lacks some of the first two steps that are in it. */
static dpb_status read_ring(const struct dpb_tracer *tracer, struct dpb_traced_rank *rank,
                            const struct dpb_trace_ring *ring, int64_t offset_ns)
{
    const uint64_t capacity = dpb_trace_capacity(&tracer->experiment->settings);
    const uint64_t written = __atomic_load_n(&ring->n, __ATOMIC_ACQUIRE);
    const uint64_t n = written < capacity ? written : capacity - 1;
    uint64_t skipped = 0;
    rank->full = written > n;
    rank->spans = malloc((n + 1) * sizeof *rank->spans);
    rank->steps = malloc((n + 1) * sizeof *rank->steps);
    if (!rank->spans || !rank->steps)
        return dpb_fail(DPB_NO_MEMORY, "out of memory: run.trace is not written");
    for (uint64_t i = written - n; i < written; i++) {
        struct dpb_trace_span span = ring->spans[i % capacity];
        span.begin_ns += offset_ns;
        span.end_ns += offset_ns;
        if (span.kind >= DPB_TRACE_KINDS || span.end_ns < span.begin_ns)
            continue; /* a strategy may report anything */
        rank->spans[rank->n++] = span;
        if (span.kind == DPB_TRACE_STEP && (!rank->full || ++skipped > 2))
            rank->steps[rank->n_steps++] = span;
    }
    return DPB_OK;
}

dpb_status dpb_trace_read_rings(struct dpb_tracer *tracer, struct dpb_board *board)
{
    const size_t ring_bytes = dpb_trace_bytes(&tracer->experiment->settings);
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        struct dpb_traced_rank *rank = &tracer->ranks[i];
        rank->journal = dpb_board_journal(board, i, NULL);
        rank->page = dpb_board_page(board, i);
    }
    find_clocks(tracer);
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        size_t bytes;
        const uint8_t *journal = dpb_board_journal(board, i, &bytes);
        DPB_TRY(read_ring(tracer, &tracer->ranks[i], (const void *)(journal + bytes - ring_bytes),
                          tracer->clocks[tracer->experiment->machines[i]].offset_ns));
    }
    return DPB_OK;
}

/* ---- which steps --------------------------------------------------------------------------- */

bool dpb_trace_is_shown(const struct dpb_traced_rank *rank, const struct dpb_trace_span *span)
{
    return span->begin_ns < rank->to_ns &&
           (span->begin_ns >= rank->from_ns || span->end_ns > rank->from_ns);
}

/* Each worker shows its last steps, then the spans after the very last. Workers that are apart end
 * at different times: they show steps that began before the first of them ended. */
static void choose_steps(struct dpb_tracer *tracer, int64_t *from_ns)
{
    const struct dpb_experiment *experiment = tracer->experiment;
    const uint64_t wanted = (uint64_t)experiment->settings.run.trace_steps;
    const bool apart = (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE) ||
                       tracer->ranks[0].journal->apart;
    int64_t common_ns = INT64_MAX;
    for (uint32_t i = 0; apart && i < tracer->n_ranks; i++) {
        const struct dpb_traced_rank *rank = &tracer->ranks[i];
        if (rank->n_steps > 0 && rank->steps[rank->n_steps - 1].end_ns < common_ns)
            common_ns = rank->steps[rank->n_steps - 1].end_ns;
    }
    *from_ns = INT64_MAX;
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        struct dpb_traced_rank *rank = &tracer->ranks[i];
        uint64_t end = rank->n_steps;
        while (end > 0 && rank->steps[end - 1].begin_ns >= common_ns)
            end--;
        rank->n_shown = end < wanted ? end : wanted;
        rank->first = end - rank->n_shown;
        if (end == 0)
            continue;
        rank->from_ns = rank->steps[rank->first].begin_ns;
        rank->to_ns = end == rank->n_steps ? INT64_MAX : rank->steps[end - 1].end_ns;
        *from_ns = rank->from_ns < *from_ns ? rank->from_ns : *from_ns;
    }
}

void dpb_trace_choose_spans(struct dpb_tracer *tracer)
{
    int64_t from_ns, to_ns = INT64_MIN;
    choose_steps(tracer, &from_ns);
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        const struct dpb_traced_rank *rank = &tracer->ranks[i];
        for (uint64_t k = 0; rank->n_shown > 0 && k < rank->n; k++)
            if (dpb_trace_is_shown(rank, &rank->spans[k]) && rank->spans[k].end_ns > to_ns)
                to_ns = rank->spans[k].end_ns;
    }
    tracer->origin_ns = INT64_MAX;
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        struct dpb_traced_rank *rank = &tracer->ranks[i];
        if (rank->n_shown == 0) {
            rank->from_ns = to_ns == INT64_MIN ? INT64_MIN : from_ns;
            rank->to_ns = to_ns == INT64_MIN ? INT64_MAX : to_ns;
        }
        for (uint64_t k = 0; k < rank->n; k++)
            if (dpb_trace_is_shown(rank, &rank->spans[k]) &&
                rank->spans[k].begin_ns < tracer->origin_ns)
                tracer->origin_ns = rank->spans[k].begin_ns;
    }
}

bool dpb_trace_is_cut(const struct dpb_tracer *tracer, uint32_t number)
{
    const struct dpb_traced_rank *rank = &tracer->ranks[number];
    if (number < tracer->experiment->n_workers)
        return rank->full && rank->n_shown < (uint64_t)tracer->experiment->settings.run.trace_steps;
    return rank->full && rank->spans[0].end_ns > rank->from_ns;
}

void dpb_trace_warn(const struct dpb_tracer *tracer)
{
    uint32_t n_cut = 0, n_lost = 0, cut = 0, lost = 0;
    for (uint32_t i = tracer->n_ranks; i-- > 0;) {
        const bool worker = i < tracer->experiment->n_workers;
        if (dpb_trace_is_cut(tracer, i)) {
            n_cut++;
            cut = i;
        } else if (worker && tracer->ranks[i].n == 0) {
            n_lost++;
            lost = i;
        }
    }
    if (n_cut > 0)
        dpb_warn(
            "trace_cut",
            "run.trace: %u rank%s had more spans than there is room for; rank %u shows %llu of "
            "%lld steps. A larger comm.bucket makes fewer spans",
            n_cut, n_cut == 1 ? "" : "s", cut, (unsigned long long)tracer->ranks[cut].n_shown,
            (long long)tracer->experiment->settings.run.trace_steps);
    if (n_lost > 0)
        dpb_warn(
            "trace_lost",
            "run.trace: %u rank%s left no spans, rank %u among them: its launcher was lost, or "
            "it ended before its first step",
            n_lost, n_lost == 1 ? "" : "s", lost);
}
