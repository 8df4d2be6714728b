/* trace_file.c - see trace_file.h. */
#include "study/trace_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "study/json.h"
#include "study/result.h"
#include "study/summary.h"
#include "train/account.h"
#include "train/trace.h"

/* Rows of a process: threads of the format. For some readers the numbers of threads must differ in
 * all of the file, so rank r counts from (r + 1) * ROWS. */
enum { ROW_LOOP, ROW_DEVICE, ROW_COMM, ROW_LOAD = 5000, ROW_LOAD_TEST = 6000, ROWS = 10000 };

/* A row of communication: the ends of spans that lie within each other. */
enum { DEPTH = 8 };
struct lane {
    int64_t ends_ns[DEPTH];
    uint32_t n;
};

struct rank_trace {
    const struct dpb_journal *journal;
    const struct dpb_status_page *page;
    struct dpb_trace_span *spans; /* @owned, in the order of writing; on the clock of rank 0 */
    struct dpb_trace_span *steps; /* @owned: of them, those whose spans are all there */
    uint64_t n, n_steps;
    bool full;               /* older spans are lost */
    uint64_t first, n_shown; /* of the steps */
    int64_t from_ns, to_ns;  /* what is shown */
};

struct tracer {
    const struct dpb_experiment *experiment;
    uint32_t n_ranks;
    struct rank_trace *ranks;
    struct clock {
        int64_t offset_ns, error_ns; /* as of dpb_status_page.clock */
    } * clocks;                      /* of each machine */
    int64_t origin_ns;
    struct lane *lanes; /* of the rank that is written */
    uint32_t n_lanes, most_lanes;
    FILE *out;
    bool begun;
};

/* ---- reading ------------------------------------------------------------------------------- */

/* The ranks of a machine have estimates of the same difference: the surest one is for all. */
static void find_clocks(struct tracer *tracer)
{
    const uint32_t *machines = tracer->experiment->machines;
    for (uint32_t i = 0; i < tracer->experiment->n_machines; i++)
        tracer->clocks[i] = (struct clock){0, -1};
    for (uint32_t rank = 0; rank < tracer->n_ranks; rank++) {
        const struct dpb_status_page *page = tracer->ranks[rank].page;
        struct clock *clock = &tracer->clocks[machines[rank]];
        if (page->clock.error_ns >= 0 &&
            (clock->error_ns < 0 || page->clock.error_ns < clock->error_ns))
            *clock = (struct clock){page->clock.offset_ns, page->clock.error_ns};
    }
}

/* A ring that is full has a spoilt span, and lacks some of the first two steps that are in it. */
static dpb_status read_ring(const struct tracer *tracer, struct rank_trace *rank,
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
        if (span.what >= DPB_TRACE_WHATS || span.end_ns < span.begin_ns)
            continue; /* a strategy may report anything */
        rank->spans[rank->n++] = span;
        if (span.what == DPB_TRACE_STEP && (!rank->full || ++skipped > 2))
            rank->steps[rank->n_steps++] = span;
    }
    return DPB_OK;
}

static dpb_status read_rings(struct tracer *tracer, struct dpb_board *board)
{
    const size_t ring_bytes = dpb_trace_bytes(&tracer->experiment->settings);
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        struct rank_trace *rank = &tracer->ranks[i];
        size_t bytes;
        const uint8_t *journal = dpb_board_journal(board, i, &bytes);
        rank->journal = (const void *)journal;
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

static bool is_shown(const struct rank_trace *rank, const struct dpb_trace_span *span)
{
    return span->begin_ns < rank->to_ns &&
           (span->begin_ns >= rank->from_ns || span->end_ns > rank->from_ns);
}

/* Each worker shows its last steps, and behind the very last what came then. Workers that are apart
 * end at different times: theirs are steps that began before the first of them ended. */
static void choose_steps(struct tracer *tracer, int64_t *from_ns)
{
    const struct dpb_experiment *experiment = tracer->experiment;
    const uint64_t wanted = (uint64_t)experiment->settings.run.trace_steps;
    const bool apart = (experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE) ||
                       tracer->ranks[0].journal->apart;
    int64_t common_ns = INT64_MAX;
    for (uint32_t i = 0; apart && i < tracer->n_ranks; i++) {
        const struct rank_trace *rank = &tracer->ranks[i];
        if (rank->n_steps > 0 && rank->steps[rank->n_steps - 1].end_ns < common_ns)
            common_ns = rank->steps[rank->n_steps - 1].end_ns;
    }
    *from_ns = INT64_MAX;
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        struct rank_trace *rank = &tracer->ranks[i];
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

/* Servers, and ranks without a step, show what lies within the others' time; where no rank has a
 * step, all that there is. */
static void choose_spans(struct tracer *tracer)
{
    int64_t from_ns, to_ns = INT64_MIN;
    choose_steps(tracer, &from_ns);
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        const struct rank_trace *rank = &tracer->ranks[i];
        for (uint64_t k = 0; rank->n_shown > 0 && k < rank->n; k++)
            if (is_shown(rank, &rank->spans[k]) && rank->spans[k].end_ns > to_ns)
                to_ns = rank->spans[k].end_ns;
    }
    tracer->origin_ns = INT64_MAX;
    for (uint32_t i = 0; i < tracer->n_ranks; i++) {
        struct rank_trace *rank = &tracer->ranks[i];
        if (rank->n_shown == 0) {
            rank->from_ns = to_ns == INT64_MIN ? INT64_MIN : from_ns;
            rank->to_ns = to_ns == INT64_MIN ? INT64_MAX : to_ns;
        }
        for (uint64_t k = 0; k < rank->n; k++)
            if (is_shown(rank, &rank->spans[k]) && rank->spans[k].begin_ns < tracer->origin_ns)
                tracer->origin_ns = rank->spans[k].begin_ns;
    }
}

/* Fewer steps than were asked for and done; or, on a server, less time than the workers show. */
static bool is_cut(const struct tracer *tracer, uint32_t number)
{
    const struct rank_trace *rank = &tracer->ranks[number];
    if (number < tracer->experiment->n_workers)
        return rank->full && rank->n_shown < (uint64_t)tracer->experiment->settings.run.trace_steps;
    return rank->full && rank->spans[0].end_ns > rank->from_ns;
}

static void warn(const struct tracer *tracer)
{
    uint32_t n_cut = 0, n_lost = 0, cut = 0, lost = 0;
    for (uint32_t i = tracer->n_ranks; i-- > 0;) {
        const bool worker = i < tracer->experiment->n_workers;
        if (is_cut(tracer, i)) {
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

/* ---- rows of communication ----------------------------------------------------------------- */

/* The first row on which the span lies beside or within the others; UINT32_MAX: out of memory. */
static uint32_t find_lane(struct tracer *tracer, const struct dpb_trace_span *span)
{
    for (uint32_t i = 0; i < tracer->n_lanes; i++) {
        struct lane *lane = &tracer->lanes[i];
        while (lane->n > 0 && lane->ends_ns[lane->n - 1] <= span->begin_ns)
            lane->n--;
        if (lane->n < DEPTH && (lane->n == 0 || lane->ends_ns[lane->n - 1] >= span->end_ns)) {
            lane->ends_ns[lane->n++] = span->end_ns;
            return i;
        }
    }
    if (tracer->n_lanes == tracer->most_lanes) {
        const uint32_t most = 2 * tracer->most_lanes + 8;
        struct lane *more = realloc(tracer->lanes, most * sizeof *more);
        if (!more)
            return UINT32_MAX;
        tracer->lanes = more;
        tracer->most_lanes = most;
    }
    tracer->lanes[tracer->n_lanes] = (struct lane){{span->end_ns}, 1};
    return tracer->n_lanes++;
}

/* As they begin; of two that begin together the one around the other first. */
static int compare(const void *a_, const void *b_)
{
    const struct dpb_trace_span *a = a_, *b = b_;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    return (a->what > b->what) - (a->what < b->what);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* The begin of an event, up to its arguments' object. */
static void begin_event(struct tracer *tracer, uint32_t rank, uint32_t row, const char *kind)
{
    fprintf(tracer->out, "%s\n{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u", tracer->begun ? "," : "", kind,
            rank + 1, (rank + 1) * ROWS + row);
    tracer->begun = true;
}

static void put_text(struct tracer *tracer, const char *key, const char *text)
{
    json_t *string = dpb_json_string(text);
    fprintf(tracer->out, ",\"%s\":", key);
    json_dumpf(string, tracer->out, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(string);
}

/* The format's unit is a microsecond. */
static void put_time(struct tracer *tracer, const char *key, int64_t time_ns)
{
    fprintf(tracer->out, ",\"%s\":%lld.%03d", key, (long long)(time_ns / 1000),
            (int)(time_ns % 1000));
}

static void name_row(struct tracer *tracer, uint32_t rank, uint32_t row, const char *what,
                     const char *name)
{
    begin_event(tracer, rank, row, "M");
    fprintf(tracer->out, ",\"name\":\"%s\",\"args\":{\"sort_index\":%u", what,
            strncmp(what, "process", 7) == 0 ? rank : row);
    put_text(tracer, "name", name);
    fputs("}}", tracer->out);
}

static const char *layer_of(const struct tracer *tracer, uint64_t node)
{
    const struct dpb_journal *journal = tracer->ranks[0].journal;
    const uint64_t n =
        journal->n_profile < DPB_JOURNAL_PROFILE ? journal->n_profile : DPB_JOURNAL_PROFILE;
    for (uint64_t i = 0; i < n; i++)
        if (journal->profile[i].node == node)
            return journal->profile[i].layer;
    return "op";
}

/* What the account says of the step. */
static void put_record(struct tracer *tracer, const struct rank_trace *rank, uint64_t number)
{
    const struct dpb_journal *journal = rank->journal;
    if (number >= dpb_journal_records(journal))
        return;
    const struct dpb_record *record = &journal->records[number];
    const struct {
        const char *name;
        int64_t value;
    } figures[] = {{"data_wait_ns", record->data_wait_ns},
                   {"forward_ns", record->forward_ns},
                   {"delay_ns", record->delay_ns},
                   {"backward_ns", record->backward_ns},
                   {"optimizer_ns", record->optimizer_ns},
                   {"comm_exposed_ns", record->comm_exposed_ns},
                   {"comm_hidden_ns", record->comm_hidden_ns},
                   {"comm_wait_peer_ns", record->comm_wait_peer_ns},
                   {"comm_bytes", (int64_t)record->comm_bytes}};
    fprintf(tracer->out, ",\"timed\":%s", number >= journal->timed_from ? "true" : "false");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        fprintf(tracer->out, ",\"%s\":%lld", figures[i].name, (long long)figures[i].value);
}

static void put_span(struct tracer *tracer, uint32_t number, uint32_t row, const char *category,
                     const char *name, const struct dpb_trace_span *span)
{
    static const char *const counts[] = {
        [DPB_TRACE_STEP] = "step",       [DPB_TRACE_EVALUATE] = "step",
        [DPB_TRACE_CHECKPOINT] = "step", [DPB_TRACE_READY] = "bucket",
        [DPB_TRACE_LOAD] = "batch",      [DPB_TRACE_LOAD_TEST] = "batch",
        [DPB_TRACE_OP] = "node",         [DPB_TRACE_WHATS] = NULL};
    const char *count = span->what >= DPB_TRACE_PHASE ? "bucket" : counts[span->what];
    const struct rank_trace *rank = &tracer->ranks[number];
    const bool step = span->what == DPB_TRACE_STEP;
    begin_event(tracer, number, row, span->what == DPB_TRACE_READY ? "i" : "X");
    put_time(tracer, "ts", span->begin_ns - tracer->origin_ns);
    if (span->what == DPB_TRACE_READY)
        fputs(",\"s\":\"t\"", tracer->out);
    else
        put_time(tracer, "dur", span->end_ns - span->begin_ns);
    fprintf(tracer->out, ",\"cat\":\"%s\"", category);
    put_text(tracer, "name", name);
    fputs(",\"args\":{", tracer->out);
    if (count)
        fprintf(tracer->out, "\"%s\":%" PRIu64, count,
                span->number + (step ? rank->journal->first_step : 0));
    if (step)
        put_record(tracer, rank, span->number);
    if (span->what >= DPB_TRACE_PHASE && number < tracer->experiment->n_workers)
        fprintf(tracer->out, ",\"step\":%" PRIu64, rank->journal->first_step + span->of);
    fputs("}}", tracer->out);
}

/* Where the device tells its times, the loop's thread runs ahead, and they have a row of their
 * own. */
static dpb_status write_span(struct tracer *tracer, uint32_t number,
                             const struct dpb_trace_span *span)
{
    static const char *const parts[DPB_PARTS] = {"data", "forward", "delay", "backward"};
    static const char *const phases[DPB_PHASES] = {"wait", "transfer", "reduce", "update"};
    const uint32_t steps_row = tracer->ranks[number].journal->by_device ? ROW_DEVICE : ROW_LOOP;
    if (span->what >= DPB_TRACE_PHASE) {
        const uint32_t lane = find_lane(tracer, span);
        if (lane >= ROW_LOAD - ROW_COMM)
            return dpb_fail(DPB_NO_MEMORY, "run.trace: more than %d transfers at the same time",
                            ROW_LOAD - ROW_COMM);
        put_span(tracer, number, ROW_COMM + lane, "bucket", phases[span->what - DPB_TRACE_PHASE],
                 span);
    } else if (span->what == DPB_TRACE_STEP) {
        put_span(tracer, number, steps_row, "step", "step", span);
    } else if (span->what == DPB_TRACE_EXPOSED) {
        put_span(tracer, number, steps_row, "exposed", "communicator", span);
    } else if (span->what < DPB_TRACE_EXPOSED) {
        put_span(tracer, number, ROW_LOOP, "part", parts[span->what - DPB_TRACE_PART], span);
    } else if (span->what == DPB_TRACE_OP) {
        put_span(tracer, number, ROW_LOOP, "layer", layer_of(tracer, span->number), span);
    } else if (span->what == DPB_TRACE_READY) {
        put_span(tracer, number, ROW_LOOP, "bucket", "ready", span);
    } else if (span->what == DPB_TRACE_LOAD || span->what == DPB_TRACE_LOAD_TEST) {
        const uint32_t row = span->what == DPB_TRACE_LOAD ? ROW_LOAD : ROW_LOAD_TEST;
        put_span(tracer, number, row + span->of % (ROW_LOAD_TEST - ROW_LOAD), "data", "load", span);
    } else {
        put_span(tracer, number, ROW_LOOP, "pause",
                 span->what == DPB_TRACE_EVALUATE ? "evaluate" : "checkpoint", span);
    }
    return DPB_OK;
}

static void name_rows(struct tracer *tracer, uint32_t number)
{
    const struct rank_trace *rank = &tracer->ranks[number];
    const bool worker = number < tracer->experiment->n_workers;
    const uint32_t threads = (uint32_t)tracer->experiment->settings.data.threads;
    char name[128];
    snprintf(name, sizeof name, "%s %u (%.*s)", worker ? "worker" : "server", number,
             (int)sizeof rank->page->host, rank->page->host);
    name_row(tracer, number, ROW_LOOP, "process_name", name);
    name_row(tracer, number, ROW_LOOP, "process_sort_index", name);
    if (worker)
        name_row(tracer, number, ROW_LOOP, "thread_name", "compute");
    if (rank->journal->by_device)
        name_row(tracer, number, ROW_DEVICE, "thread_name", "device");
    for (uint32_t i = 0; i < tracer->n_lanes; i++) {
        snprintf(name, sizeof name, i == 0 ? "communication" : "communication %u", i + 1);
        name_row(tracer, number, ROW_COMM + i, "thread_name", name);
    }
    for (uint32_t i = 0; worker && i < threads; i++) {
        snprintf(name, sizeof name, "data %u", i);
        name_row(tracer, number, ROW_LOAD + i, "thread_name", name);
        snprintf(name, sizeof name, "test data %u", i);
        name_row(tracer, number, ROW_LOAD_TEST + i, "thread_name", name);
    }
}

static dpb_status write_rank(struct tracer *tracer, uint32_t number)
{
    struct rank_trace *rank = &tracer->ranks[number];
    tracer->n_lanes = 0;
    qsort(rank->spans, rank->n, sizeof *rank->spans, compare);
    for (uint64_t i = 0; i < rank->n; i++) {
        const struct dpb_trace_span *span = &rank->spans[i];
        if (is_shown(rank, span))
            DPB_TRY(write_span(tracer, number, span));
    }
    name_rows(tracer, number);
    return DPB_OK;
}

/* ---- what the file is of ------------------------------------------------------------------- */

static json_t *rank_to_json(const struct tracer *tracer, uint32_t number)
{
    const struct rank_trace *rank = &tracer->ranks[number];
    const json_int_t before = (json_int_t)rank->journal->first_step;
    json_t *first = rank->n_shown == 0
                        ? json_null()
                        : json_integer(before + (json_int_t)rank->steps[rank->first].number);
    return json_pack("{s:i, s:s, s:i, s:o, s:I, s:b}", "rank", (int)number, "role",
                     number < tracer->experiment->n_workers ? "worker" : "server", "machine",
                     (int)tracer->experiment->machines[number], "first_step", first, "steps",
                     (json_int_t)rank->n_shown, "complete", !is_cut(tracer, number));
}

static json_t *clock_to_json(const struct clock *clock)
{
    return json_pack("{s:I, s:o}", "offset_ns", (json_int_t)clock->offset_ns, "error_ns",
                     clock->error_ns < 0 ? json_null() : json_integer((json_int_t)clock->error_ns));
}

static json_t *about(const struct tracer *tracer, dpb_status ended)
{
    const struct dpb_settings *settings = &tracer->experiment->settings;
    json_t *ranks = json_array(), *clocks = json_array();
    for (uint32_t i = 0; i < tracer->n_ranks; i++)
        json_array_append_new(ranks, rank_to_json(tracer, i));
    for (uint32_t i = 0; i < tracer->experiment->n_machines; i++)
        json_array_append_new(clocks, clock_to_json(&tracer->clocks[i]));
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:s, s:I, s:o, s:o}", //
                     "schema", "dpbench.trace/1",                          //
                     "version", DPB_VERSION,                               //
                     "name", dpb_json_string(settings->run.name),          //
                     "model", settings->model.name,                        //
                     "strategy", settings->comm.name,                      //
                     "status", json_string(dpb_result_status(ended)),      //
                     "clock", "CLOCK_MONOTONIC of rank 0's machine",       //
                     "origin_ns",
                     (json_int_t)(tracer->origin_ns == INT64_MAX ? 0 : tracer->origin_ns), //
                     "machines", clocks,                                                   //
                     "ranks", ranks);
}

static dpb_status write_all(struct tracer *tracer, dpb_status ended)
{
    json_t *otherData = about(tracer, ended);
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":", tracer->out);
    json_dumpf(otherData, tracer->out, JSON_COMPACT);
    json_decref(otherData);
    fputs(",\"traceEvents\":[", tracer->out);
    dpb_status status = DPB_OK;
    for (uint32_t i = 0; i < tracer->n_ranks && status == DPB_OK; i++)
        status = write_rank(tracer, i);
    fputs("\n]}\n", tracer->out);
    return status;
}

static dpb_status make_file(struct tracer *tracer, dpb_status ended)
{
    const char *path = tracer->experiment->settings.run.trace;
    char *text = NULL;
    size_t length = 0;
    tracer->out = open_memstream(&text, &length);
    dpb_status status = tracer->out ? write_all(tracer, ended) : DPB_NO_MEMORY;
    if (tracer->out && fclose(tracer->out) != 0 && status == DPB_OK)
        status = DPB_NO_MEMORY;
    if (status == DPB_NO_MEMORY)
        dpb_fail(status, "out of memory: run.trace is not written");
    if (status == DPB_OK)
        status = dpb_result_write_page(text, length, path);
    if (status == DPB_OK)
        dpb_log(DPB_LOG_INFO, "trace: %s", path);
    free(text);
    return status;
}

dpb_status dpb_trace_file(const struct dpb_experiment *experiment, struct dpb_board *board,
                          dpb_status ended)
{
    if (!experiment->settings.run.trace[0])
        return DPB_OK;
    struct tracer tracer = {.experiment = experiment, .n_ranks = dpb_board_ranks(board)};
    tracer.ranks = calloc(tracer.n_ranks, sizeof *tracer.ranks);
    tracer.clocks = calloc(experiment->n_machines, sizeof *tracer.clocks);
    dpb_status status = tracer.ranks && tracer.clocks
                            ? read_rings(&tracer, board)
                            : dpb_fail(DPB_NO_MEMORY, "out of memory: run.trace is not written");
    if (status == DPB_OK) {
        choose_spans(&tracer);
        warn(&tracer);
        status = make_file(&tracer, ended);
    }
    for (uint32_t i = 0; tracer.ranks && i < tracer.n_ranks; i++) {
        free(tracer.ranks[i].spans);
        free(tracer.ranks[i].steps);
    }
    free(tracer.ranks);
    free(tracer.clocks);
    free(tracer.lanes);
    return status;
}
