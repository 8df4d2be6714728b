/* summary.c - see summary.h. */
#include "study/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

uint64_t dpb_journal_records(const struct dpb_journal *journal)
{
    if (journal == NULL)
        return 0;
    uint64_t n = __atomic_load_n(&journal->n_records, __ATOMIC_ACQUIRE);
    return n < journal->capacity ? n : journal->capacity;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void breakdown_add(struct dpb_breakdown *sum, const struct dpb_record *record)
{
    sum->data_wait += (double)record->data_wait_ns;
    sum->forward += (double)record->forward_ns;
    sum->backward += (double)record->backward_ns;
    sum->optimizer += (double)record->optimizer_ns;
    sum->comm_exposed += (double)record->comm_exposed_ns;
    sum->comm_hidden += (double)record->comm_hidden_ns;
    sum->comm_wait_peer += (double)record->comm_wait_peer_ns;
}

/* n = 0 makes every part NaN: there is no such step. */
static void breakdown_divide(struct dpb_breakdown *sum, uint64_t n)
{
    double *const parts[] = {&sum->data_wait,     &sum->forward,      &sum->backward,
                             &sum->optimizer,     &sum->comm_exposed, &sum->comm_hidden,
                             &sum->comm_wait_peer};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] = n > 0 ? *parts[i] / (double)n : NAN;
}

/* ---- synchronous --------------------------------------------------------------------------- */

static void summarise_synchronous(const struct dpb_summary_args *args, uint64_t first,
                                  struct dpb_summary *summary)
{
    for (uint64_t k = 0; k < summary->n_steps; k++) {
        const struct dpb_record *slowest = &args->journals[0]->records[first + k];
        for (uint32_t w = 1; w < args->n_workers; w++) {
            const struct dpb_record *record = &args->journals[w]->records[first + k];
            if (record->step_ns > slowest->step_ns)
                slowest = record;
        }
        summary->step_ns[k] = slowest->step_ns;
        summary->elapsed_ns += slowest->step_ns;
        breakdown_add(&summary->breakdown, slowest);
    }
    breakdown_divide(&summary->breakdown, summary->n_steps);
    dpb_rate_of(summary->step_ns, summary->n_steps, (double)args->global_batch, &summary->rate);
}

/* ---- workers that do not wait for each other ----------------------------------------------- */

/* The whole steps [begin, end) of a worker within a window of time. */
struct within {
    uint64_t begin, end;
};

static struct within steps_within(const struct dpb_journal *journal, uint64_t first,
                                  int64_t from_ns, int64_t to_ns)
{
    struct within steps = {first, dpb_journal_records(journal)};
    while (steps.begin < steps.end && journal->records[steps.begin].begin_ns < from_ns)
        steps.begin++;
    while (steps.end > steps.begin) {
        const struct dpb_record *last = &journal->records[steps.end - 1];
        if (last->begin_ns + last->step_ns <= to_ns)
            break;
        steps.end--;
    }
    return steps;
}

/* The window in which every worker ran timed steps. */
static void common_window(const struct dpb_summary_args *args, uint64_t first, int64_t *from_ns,
                          int64_t *to_ns)
{
    *from_ns = INT64_MIN;
    *to_ns = INT64_MAX;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_record *records = args->journals[w]->records;
        const struct dpb_record *last = &records[dpb_journal_records(args->journals[w]) - 1];
        if (records[first].begin_ns > *from_ns)
            *from_ns = records[first].begin_ns;
        if (last->begin_ns + last->step_ns < *to_ns)
            *to_ns = last->begin_ns + last->step_ns;
    }
}

/* The rate of every worker over its whole steps, summed. */
static double sum_of_rates(const struct dpb_summary_args *args, const struct within *within)
{
    double batch = (double)args->global_batch / args->n_workers, rate = 0;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        int64_t elapsed_ns = 0;
        for (uint64_t k = within[w].begin; k < within[w].end; k++)
            elapsed_ns += args->journals[w]->records[k].step_ns;
        rate += batch * (double)(within[w].end - within[w].begin) / ((double)elapsed_ns / 1e9);
    }
    return rate;
}

static dpb_status summarise_local(const struct dpb_summary_args *args, uint64_t first,
                                  struct dpb_summary *summary)
{
    struct within *within = calloc(args->n_workers, sizeof *within);
    if (within == NULL)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    int64_t from_ns, to_ns;
    common_window(args, first, &from_ns, &to_ns);
    uint64_t n_added = 0;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        within[w] = steps_within(args->journals[w], first, from_ns, to_ns);
        uint64_t n = within[w].end - within[w].begin;
        summary->n_steps = min_u64(summary->n_steps, n);
        for (uint64_t k = within[w].begin; k < within[w].end; k++, n_added++)
            breakdown_add(&summary->breakdown, &args->journals[w]->records[k]);
    }
    breakdown_divide(&summary->breakdown, n_added);
    summary->no_common_window = summary->n_steps == 0;
    for (uint64_t k = 0; k < summary->n_steps; k++) {
        double steps_per_ns = 0;
        for (uint32_t w = 0; w < args->n_workers; w++)
            steps_per_ns += 1.0 / (double)args->journals[w]->records[within[w].begin + k].step_ns;
        summary->step_ns[k] = (int64_t)llround(args->n_workers / steps_per_ns);
        summary->elapsed_ns += summary->step_ns[k];
    }
    dpb_rate_of(summary->step_ns, summary->n_steps, (double)args->global_batch, &summary->rate);
    if (summary->n_steps > 0)
        summary->rate.mean = sum_of_rates(args, within);
    free(within);
    return DPB_OK;
}

/* ---- both ---------------------------------------------------------------------------------- */

static void summarise_losses(const struct dpb_summary_args *args, struct dpb_summary *summary)
{
    for (uint64_t k = 0; k < summary->n_losses; k++) {
        double sum = 0;
        for (uint32_t w = 0; w < args->n_workers; w++)
            sum += args->journals[w]->records[k].loss;
        summary->loss[k] = sum / args->n_workers;
    }
}

static void summarise_bytes(const struct dpb_summary_args *args, uint64_t first,
                            struct dpb_summary *summary)
{
    double bytes = 0;
    for (uint32_t r = 0; r < args->n_workers + args->n_servers; r++) {
        uint64_t end = min_u64(dpb_journal_records(args->journals[r]), first + summary->n_steps);
        for (uint64_t k = first; k < end; k++)
            bytes += (double)args->journals[r]->records[k].comm_bytes;
    }
    summary->bytes_per_step = summary->n_steps > 0 ? bytes / (double)summary->n_steps : NAN;
}

static dpb_verdict worst(dpb_verdict a, uint32_t b)
{
    static const dpb_verdict order[] = {DPB_VERDICT_FAIL, DPB_VERDICT_SKIPPED, DPB_VERDICT_PASS,
                                        DPB_VERDICT_NOT_APPLICABLE};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (a == order[i] || b == (uint32_t)order[i])
            return order[i];
    return DPB_VERDICT_SKIPPED;
}

static void summarise_verdicts(const struct dpb_summary_args *args, struct dpb_summary *summary)
{
    summary->pattern = summary->exchange = DPB_VERDICT_NOT_APPLICABLE;
    summary->replicas = summary->after = DPB_VERDICT_NOT_APPLICABLE;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_journal *journal = args->journals[w];
        summary->pattern = worst(summary->pattern, journal ? journal->verdict_pattern : 0);
        summary->exchange = worst(summary->exchange, journal ? journal->verdict_exchange : 0);
        summary->replicas = worst(summary->replicas, journal ? journal->verdict_replicas : 0);
        summary->after = worst(summary->after, journal ? journal->verdict_after : 0);
    }
    for (uint32_t r = 0; r < args->n_workers + args->n_servers; r++)
        summary->oversubscribed |= args->journals[r] != NULL && args->journals[r]->oversubscribed;
}

dpb_status dpb_summary_make(const struct dpb_summary_args *args, struct dpb_summary *summary)
{
    struct dpb_summary result = {.n_losses = UINT64_MAX};
    for (uint32_t w = 0; w < args->n_workers; w++)
        result.n_losses = min_u64(result.n_losses, dpb_journal_records(args->journals[w]));
    if (args->n_workers == 0)
        result.n_losses = 0;
    const struct dpb_journal *leader = args->journals[0];
    uint64_t first = leader != NULL ? min_u64(leader->timed_from, result.n_losses) : 0;
    result.warmup_steps = first;
    result.n_steps = result.n_losses - first;
    result.steady = leader != NULL && leader->steady;
    result.gated = leader != NULL && leader->gated;
    result.step_ns = calloc((size_t)result.n_steps + 1, sizeof *result.step_ns);
    result.loss = calloc((size_t)result.n_losses + 1, sizeof *result.loss);
    dpb_status status = DPB_OK;
    if (result.step_ns == NULL || result.loss == NULL)
        status = dpb_fail(DPB_NO_MEMORY, "out of memory");
    else if (args->local && result.n_steps > 0)
        status = summarise_local(args, first, &result);
    else
        summarise_synchronous(args, first, &result);
    if (status != DPB_OK) {
        dpb_summary_release(&result);
        return status;
    }
    summarise_losses(args, &result);
    summarise_bytes(args, first, &result);
    summarise_verdicts(args, &result);
    *summary = result;
    return DPB_OK;
}

void dpb_summary_release(struct dpb_summary *summary)
{
    free(summary->step_ns);
    free(summary->loss);
    *summary = (struct dpb_summary){0};
}

void dpb_summary_of_rank(const struct dpb_journal *journal, uint64_t timed_from,
                         struct dpb_stats *step_ns, struct dpb_breakdown *breakdown)
{
    uint64_t end = dpb_journal_records(journal), first = min_u64(timed_from, end);
    double *times = calloc((size_t)(end - first) + 1, sizeof *times);
    *breakdown = (struct dpb_breakdown){0};
    for (uint64_t k = first; k < end; k++) {
        breakdown_add(breakdown, &journal->records[k]);
        if (times != NULL)
            times[k - first] = (double)journal->records[k].step_ns;
    }
    breakdown_divide(breakdown, end - first);
    dpb_stats_of(times, times != NULL ? (size_t)(end - first) : 0, step_ns);
    free(times);
}
