/* summary.c - see summary.h. */
#include "record/summary.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"

uint64_t dpb_journal_records(const struct dpb_journal *journal)
{
    if (!journal)
        return 0;
    uint64_t n = __atomic_load_n(&journal->n_records, __ATOMIC_ACQUIRE);
    return n < journal->capacity ? n : journal->capacity;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

const char *const dpb_breakdown_names[DPB_BREAKDOWN] = {
    "data_wait",    "forward",     "delay",          "backward",         "optimizer",
    "comm_exposed", "comm_hidden", "comm_wait_peer", "comm_exposed_wait"};

int64_t dpb_record_part(const struct dpb_record *record, size_t part)
{
    const int64_t parts_ns[DPB_BREAKDOWN] = {
        record->data_wait_ns,   record->forward_ns,        record->delay_ns,
        record->backward_ns,    record->optimizer_ns,      record->comm_exposed_ns,
        record->comm_hidden_ns, record->comm_wait_peer_ns, record->comm_exposed_wait_ns};
    return parts_ns[part];
}

/* `weight` of the record's parts. */
static void breakdown_add(struct dpb_breakdown *sum, const struct dpb_record *record, double weight)
{
    for (size_t i = 0; i < DPB_BREAKDOWN; i++)
        sum->parts[i] += weight * (double)dpb_record_part(record, i);
}

/* A factor of NaN says that there is no such step. */
static void breakdown_scale(struct dpb_breakdown *sum, double factor)
{
    for (size_t i = 0; i < DPB_BREAKDOWN; i++)
        sum->parts[i] *= factor;
}

static bool is_lost(const struct dpb_summary_args *args, uint32_t worker)
{
    return args->lost && args->lost[worker];
}

/* ---- the one clock ------------------------------------------------------------------------- */

struct span {
    int64_t begin_ns, end_ns;
};

/* From the step before to that of `record`. */
static void move_to(const struct dpb_record *record, struct span *span)
{
    span->begin_ns = span->end_ns + record->paused_ns;
    span->end_ns = span->begin_ns + record->step_ns;
}

/* Where a worker is before its first timed step. Durations place its steps among each other. Begins
 * may be noisy (a GPU's, another machine's), so only their mean places all of them on the clock. */
static struct span start_of(const struct dpb_record *records, uint64_t first, uint64_t end)
{
    const struct span start = {.end_ns = records[first].begin_ns - records[first].paused_ns};
    struct span span = start;
    double late_ns = 0;
    for (uint64_t k = first; k < end; k++) {
        move_to(&records[k], &span);
        late_ns += (double)(records[k].begin_ns - span.begin_ns);
    }
    return (struct span){.end_ns = start.end_ns + llround(late_ns / (double)(end - first))};
}

/* ---- workers that wait for each other ------------------------------------------------------ */

/* Record k of all workers: *latest is that of the worker that ends it last. */
static struct span step_of_all(const struct dpb_summary_args *args, uint64_t k, struct span *spans,
                               const struct dpb_record **latest)
{
    struct span all = {INT64_MAX, INT64_MIN};
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_record *record = &args->journals[w]->records[k];
        move_to(record, &spans[w]);
        if (spans[w].begin_ns < all.begin_ns)
            all.begin_ns = spans[w].begin_ns;
        if (spans[w].end_ns > all.end_ns) {
            all.end_ns = spans[w].end_ns;
            *latest = record;
        }
    }
    return all;
}

/* The times of steps [first, first + n) of all workers, and the sum of their parts. */
static dpb_status time_together(const struct dpb_summary_args *args, uint64_t first, uint64_t n,
                                int64_t *step_ns, struct dpb_breakdown *sum)
{
    struct span *spans = calloc((size_t)args->n_workers + 1, sizeof *spans);
    DPB_TRY(dpb_allocated(spans));
    int64_t ended_ns = INT64_MIN;
    for (uint32_t w = 0; w < args->n_workers && n > 0; w++) {
        spans[w] = start_of(args->journals[w]->records, first, first + n);
        /* Of workers that lead, the last to end the step before. */
        if (args->journals[w]->within > 1 && spans[w].end_ns > ended_ns)
            ended_ns = spans[w].end_ns;
    }
    for (uint64_t k = 0; k < n; k++) {
        const struct dpb_record *latest = NULL;
        struct span all = step_of_all(args, first + k, spans, &latest);
        /* After a pause of all workers the step begins with the first of them. */
        int64_t from_ns = all.begin_ns > ended_ns ? all.begin_ns : ended_ns;
        step_ns[k] = all.end_ns - from_ns;
        ended_ns = all.end_ns;
        breakdown_add(sum, latest, (double)step_ns[k] / (double)latest->step_ns);
    }
    free(spans);
    return DPB_OK;
}

static dpb_status summarise_together(const struct dpb_summary_args *args, uint64_t first,
                                     struct dpb_summary *summary)
{
    struct dpb_breakdown of_warmup = {0};
    DPB_TRY(time_together(args, 0, first, summary->warmup_step_ns, &of_warmup));
    DPB_TRY(time_together(args, first, summary->n_steps, summary->step_ns, &summary->breakdown));
    for (uint64_t k = 0; k < summary->n_steps; k++)
        summary->elapsed_ns += summary->step_ns[k];
    summary->n_warmup = first;
    breakdown_scale(&summary->breakdown,
                    summary->n_steps > 0 ? 1.0 / (double)summary->n_steps : NAN);
    dpb_rate_of(summary->step_ns, summary->n_steps, (double)args->global_batch, &summary->rate);
    summary->first_to_last = summary->rate.mean;
    return DPB_OK;
}

/* ---- workers that do not wait for each other ----------------------------------------------- */

/* A worker begins a step (running 1) or ends one (-1). */
struct change {
    int64_t at_ns;
    double steps_per_ns;  /* by which the speed of all workers together changes */
    int running, working; /* a lost worker counts as running, but works no more */
};

static int by_time(const void *a, const void *b)
{
    int64_t x = ((const struct change *)a)->at_ns, y = ((const struct change *)b)->at_ns;
    return (x > y) - (x < y);
}

/* The timed records of a worker: [first, end). */
struct timed {
    uint64_t first, end;
};

/* All changes in the order of time, two for each timed record; their number. Steps that took no
 * time have no speed and are left out. *common is the time from the first moment to the last in
 * which all workers may run. */
static size_t find_changes(const struct dpb_summary_args *args, const struct timed *timed,
                           struct change *changes, struct span *common)
{
    size_t n = 0;
    *common = (struct span){INT64_MIN, INT64_MAX};
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_record *records = args->journals[w]->records;
        const uint64_t first = timed[w].first;
        if (first == timed[w].end)
            continue; /* lost before */
        struct span span = start_of(records, first, timed[w].end);
        for (uint64_t k = first; k < timed[w].end; k++) {
            double speed = 1.0 / (double)records[k].step_ns;
            move_to(&records[k], &span);
            if (k == first && span.begin_ns > common->begin_ns)
                common->begin_ns = span.begin_ns;
            if (records[k].step_ns <= 0)
                continue;
            changes[n++] = (struct change){span.begin_ns, speed, 1, 1};
            changes[n++] = (struct change){span.end_ns, -speed, -1, -1};
        }
        if (is_lost(args, w) && n > 0)
            changes[n - 1].running = 0; /* no worker waits for it to run again */
        else if (span.end_ns < common->end_ns)
            common->end_ns = span.end_ns;
    }
    qsort(changes, n, sizeof *changes, by_time);
    return n;
}

/* Cuts the time in which all n_run workers with timed steps run, at each global batch that the
 * n_workers have done together. A step that is under way counts by the share of its time. Returns
 * the time in which any worker runs. */
static double cut_steps(const struct change *changes, size_t n, uint32_t n_workers, uint32_t n_run,
                        struct dpb_summary *summary)
{
    const double rounding = 1e-9; /* of a step, in the sum of shares */
    double speed = 0, done = 0, all_ns = 0, any_ns = 0;
    uint32_t running = 0, working = 0;
    summary->n_steps = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        double passed_ns = (double)(changes[i + 1].at_ns - changes[i].at_ns);
        running = (uint32_t)((int)running + changes[i].running);
        working = (uint32_t)((int)working + changes[i].working);
        speed += changes[i].steps_per_ns / n_workers;
        any_ns += working > 0 ? passed_ns : 0;
        if (running < n_run)
            continue;
        double before = done;
        done += passed_ns * speed;
        while ((double)summary->n_steps + 1 <= done + rounding) {
            double next = (double)summary->n_steps + 1;
            int64_t at_ns = llround(all_ns + (next - before) / speed);
            summary->step_ns[summary->n_steps++] = at_ns - summary->elapsed_ns;
            summary->elapsed_ns = at_ns;
        }
        all_ns += passed_ns;
    }
    return any_ns;
}

/* The mean step, divided as all workers' time within `common` was. */
static void divide_step(const struct dpb_summary_args *args, const struct timed *timed,
                        const struct span *common, struct dpb_summary *summary)
{
    double sum_ns = 0;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_record *records = args->journals[w]->records;
        if (timed[w].first == timed[w].end)
            continue;
        struct span span = start_of(records, timed[w].first, timed[w].end);
        for (uint64_t k = timed[w].first; k < timed[w].end; k++) {
            move_to(&records[k], &span);
            int64_t from_ns = span.begin_ns > common->begin_ns ? span.begin_ns : common->begin_ns;
            int64_t to_ns = span.end_ns < common->end_ns ? span.end_ns : common->end_ns;
            if (to_ns <= from_ns)
                continue;
            double within_ns = (double)(to_ns - from_ns);
            breakdown_add(&summary->breakdown, &records[k], within_ns / (double)records[k].step_ns);
            sum_ns += within_ns;
        }
    }
    double step_ns = (double)summary->elapsed_ns / (double)summary->n_steps; /* 0 / 0 without one */
    breakdown_scale(&summary->breakdown, step_ns / sum_ns);
}

static dpb_status summarise_apart(const struct dpb_summary_args *args, struct dpb_summary *summary)
{
    size_t n_records = 0;
    uint32_t n_run = 0;
    struct timed *timed = calloc(args->n_workers, sizeof *timed);
    for (uint32_t w = 0; w < args->n_workers && timed; w++) {
        const uint64_t end = dpb_journal_records(args->journals[w]); /* a rank may still write */
        timed[w] = (struct timed){min_u64(args->journals[w]->timed_from, end), end};
        n_records += (size_t)(end - timed[w].first);
        n_run += end > timed[w].first;
    }
    int64_t *step_ns = calloc(n_records / args->n_workers + 2, sizeof *step_ns);
    struct change *changes = calloc(2 * n_records, sizeof *changes);
    dpb_status status = dpb_allocated(timed && step_ns && changes);
    free(summary->step_ns);
    summary->step_ns = step_ns;
    if (status == DPB_OK) {
        struct span common;
        size_t n = find_changes(args, timed, changes, &common);
        double any_ns = cut_steps(changes, n, args->n_workers, n_run, summary);
        double samples = (double)args->global_batch / args->n_workers * 0.5 * (double)n;
        summary->first_to_last = samples / (any_ns / 1e9);
        divide_step(args, timed, &common, summary);
        summary->no_common_window = summary->n_steps == 0;
        dpb_rate_of(summary->step_ns, summary->n_steps, (double)args->global_batch, &summary->rate);
    }
    free(changes);
    free(timed);
    return status;
}

/* ---- both ---------------------------------------------------------------------------------- */

static void summarise_losses(const struct dpb_summary_args *args, struct dpb_summary *summary)
{
    const uint64_t tokens = summary->n_losses > 0 ? args->journals[0]->tokens : 0;
    const double samples = (double)args->global_batch / args->n_workers; /* of a worker */
    const double labels = samples * (double)(tokens > 0 ? tokens : 1);
    for (uint64_t k = 0; k < summary->n_losses; k++) {
        double sum = 0, correct = 0;
        uint32_t n = 0;
        for (uint32_t w = 0; w < args->n_workers; w++) {
            if (k >= dpb_journal_records(args->journals[w]) ||
                args->journals[w]->records[k].has_no_loss)
                continue; /* it was lost before, or stopped */
            sum += args->journals[w]->records[k].loss;
            correct += (double)args->journals[w]->records[k].correct;
            n++;
        }
        summary->loss[k] = n > 0 ? sum / n : k > 0 ? summary->loss[k - 1] : NAN;
        summary->accuracy[k] = n > 0   ? correct / n / labels
                               : k > 0 ? summary->accuracy[k - 1]
                                       : NAN;
    }
}

static void summarise_bytes(const struct dpb_summary_args *args, uint64_t first,
                            struct dpb_summary *summary)
{
    double bytes = 0, n = 0;
    for (uint32_t r = 0; r < args->n_workers + args->n_servers; r++) {
        uint64_t end = dpb_journal_records(args->journals[r]), from = first;
        if (args->local)
            from = args->journals[r] ? min_u64(args->journals[r]->timed_from, end) : end;
        else
            end = min_u64(end, first + summary->n_steps);
        for (uint64_t k = from; k < end; k++)
            bytes += (double)args->journals[r]->records[k].comm_bytes;
        n += end > from && r < args->n_workers ? (double)(end - from) / args->n_workers : 0;
    }
    if (!args->local)
        n = (double)summary->n_steps;
    summary->bytes_per_step = summary->n_steps > 0 ? bytes / n : NAN;
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
    const char *reason = "";
    summary->pattern = summary->exchange = DPB_VERDICT_NOT_APPLICABLE;
    summary->replicas = summary->after = summary->steps = DPB_VERDICT_NOT_APPLICABLE;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_journal *journal = args->journals[w];
        if (is_lost(args, w))
            continue;
        summary->pattern = worst(summary->pattern, journal ? journal->verdict_pattern : 0);
        summary->exchange = worst(summary->exchange, journal ? journal->verdict_exchange : 0);
        summary->replicas = worst(summary->replicas, journal ? journal->verdict_replicas : 0);
        summary->after = worst(summary->after, journal ? journal->verdict_after : 0);
        summary->steps = worst(summary->steps, journal ? journal->verdict_steps : 0);
        if (journal && !reason[0])
            reason = journal->steps_reason;
    }
    const bool compared = summary->steps == DPB_VERDICT_PASS || summary->steps == DPB_VERDICT_FAIL;
    summary->steps_reason = compared    ? NULL
                            : reason[0] ? reason
                                        : "the run ended before its steps were compared";
    for (uint32_t r = 0; r < args->n_workers + args->n_servers; r++)
        summary->oversubscribed |= args->journals[r] && args->journals[r]->oversubscribed;
}

/* Whether each worker that is left has a timed step. */
static bool all_have_begun(const struct dpb_summary_args *args)
{
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const struct dpb_journal *journal = args->journals[w];
        const bool has_begun = journal && journal->timed_from < dpb_journal_records(journal);
        if (!has_begun && !is_lost(args, w))
            return false;
    }
    return true;
}

dpb_status dpb_summary_make(const struct dpb_summary_args *args, struct dpb_summary *summary)
{
    struct dpb_summary result = {.n_losses = UINT64_MAX};
    for (uint32_t w = 0; w < args->n_workers; w++)
        if (!is_lost(args, w))
            result.n_losses = min_u64(result.n_losses, dpb_journal_records(args->journals[w]));
    if (args->n_workers == 0)
        result.n_losses = 0;
    const struct dpb_journal *leader = args->journals[0];
    uint64_t first = leader ? min_u64(leader->timed_from, result.n_losses) : 0;
    const bool apart = args->local && args->n_workers > 1;
    result.warmup_steps =
        apart && leader ? min_u64(leader->timed_from, dpb_journal_records(leader)) : first;
    result.n_steps = apart && !all_have_begun(args) ? 0 : result.n_losses - first;
    result.steady = leader && leader->steady;
    result.gated = leader && leader->gated;
    result.step_ns = calloc((size_t)result.n_steps + 1, sizeof *result.step_ns);
    result.warmup_step_ns = calloc((size_t)first + 1, sizeof *result.warmup_step_ns);
    result.loss = calloc((size_t)result.n_losses + 1, sizeof *result.loss);
    result.accuracy = calloc((size_t)result.n_losses + 1, sizeof *result.accuracy);
    dpb_status status =
        dpb_allocated(result.step_ns && result.warmup_step_ns && result.loss && result.accuracy);
    DPB_THEN(status, apart && all_have_begun(args) ? summarise_apart(args, &result)
                                                   : summarise_together(args, first, &result));
    if (status != DPB_OK) {
        dpb_summary_release(&result);
        return status;
    }
    result.too_short = result.n_steps < DPB_LEAST_STEPS || result.elapsed_ns < DPB_LEAST_NS;
    summarise_losses(args, &result);
    summarise_bytes(args, first, &result);
    summarise_verdicts(args, &result);
    *summary = result;
    return DPB_OK;
}

void dpb_summary_release(struct dpb_summary *summary)
{
    free(summary->step_ns);
    free(summary->warmup_step_ns);
    free(summary->loss);
    free(summary->accuracy);
    *summary = (struct dpb_summary){0};
}

void dpb_summary_of_rank(const struct dpb_journal *journal, uint64_t timed_from,
                         struct dpb_stats *step_ns, struct dpb_breakdown *breakdown)
{
    uint64_t end = dpb_journal_records(journal), first = min_u64(timed_from, end);
    double *times = calloc((size_t)(end - first) + 1, sizeof *times);
    *breakdown = (struct dpb_breakdown){0};
    for (uint64_t k = first; k < end; k++) {
        breakdown_add(breakdown, &journal->records[k], 1);
        if (times)
            times[k - first] = (double)journal->records[k].step_ns;
    }
    breakdown_scale(breakdown, end > first ? 1.0 / (double)(end - first) : NAN);
    dpb_stats_of(times, times ? (size_t)(end - first) : 0, step_ns);
    free(times);
}
