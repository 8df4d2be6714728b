/* trace_file.c - see trace_file.h. */
#include "record/trace_file.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "measure/account.h"
#include "record/result.h"
#include "record/result_file.h"
#include "record/summary.h"
#include "record/trace_private.h"

/* Rows of a process: threads of the format. For some readers the numbers of threads must differ in
 * all of the file, so rank r counts from (r + 1) * ROWS. */
enum { ROW_LOOP, ROW_DEVICE, ROW_COMM, ROW_LOAD = 5000, ROW_LOAD_TEST = 6000, ROWS = 10000 };

/* ---- rows of communication ----------------------------------------------------------------- */

/* The first row on which the span lies beside or within the others; UINT32_MAX: out of memory. */
static uint32_t find_lane(struct dpb_tracer *tracer, const struct dpb_trace_span *span)
{
    for (uint32_t i = 0; i < tracer->n_lanes; i++) {
        struct dpb_trace_lane *lane = &tracer->lanes[i];
        while (lane->n > 0 && lane->ends_ns[lane->n - 1] <= span->begin_ns)
            lane->n--;
        if (lane->n < DPB_TRACE_DEPTH &&
            (lane->n == 0 || lane->ends_ns[lane->n - 1] >= span->end_ns)) {
            lane->ends_ns[lane->n++] = span->end_ns;
            return i;
        }
    }
    if (tracer->n_lanes == tracer->most_lanes) {
        const uint32_t most = 2 * tracer->most_lanes + 8;
        struct dpb_trace_lane *more = realloc(tracer->lanes, most * sizeof *more);
        if (!more)
            return UINT32_MAX;
        tracer->lanes = more;
        tracer->most_lanes = most;
    }
    tracer->lanes[tracer->n_lanes] = (struct dpb_trace_lane){{span->end_ns}, 1};
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
    return (a->kind > b->kind) - (a->kind < b->kind);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* The begin of an event, up to its arguments' object. */
static void begin_event(struct dpb_tracer *tracer, uint32_t rank, uint32_t row, const char *kind)
{
    fprintf(tracer->out, "%s\n{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u", tracer->begun ? "," : "", kind,
            rank + 1, (rank + 1) * ROWS + row);
    tracer->begun = true;
}

static void put_text(struct dpb_tracer *tracer, const char *key, const char *text)
{
    json_t *string = dpb_json_string(text);
    fprintf(tracer->out, ",\"%s\":", key);
    json_dumpf(string, tracer->out, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(string);
}

/* The format's unit is a microsecond. */
static void put_time(struct dpb_tracer *tracer, const char *key, int64_t time_ns)
{
    fprintf(tracer->out, ",\"%s\":%lld.%03d", key, (long long)(time_ns / 1000),
            (int)(time_ns % 1000));
}

static void name_row(struct dpb_tracer *tracer, uint32_t rank, uint32_t row, const char *what,
                     const char *name)
{
    begin_event(tracer, rank, row, "M");
    fprintf(tracer->out, ",\"name\":\"%s\",\"args\":{\"sort_index\":%u", what,
            dpb_begins_with(what, "process") ? rank : row);
    put_text(tracer, "name", name);
    fputs("}}", tracer->out);
}

static const char *layer_of(const struct dpb_tracer *tracer, uint64_t node)
{
    const struct dpb_journal *journal = tracer->ranks[0].journal;
    const uint64_t n =
        journal->n_profile < DPB_JOURNAL_PROFILE ? journal->n_profile : DPB_JOURNAL_PROFILE;
    for (uint64_t i = 0; i < n; i++)
        if (journal->profile[i].node == node)
            return journal->profile[i].layer;
    return "op";
}

/* The account's record of the step. */
static void put_record(struct dpb_tracer *tracer, const struct dpb_traced_rank *rank,
                       uint64_t number)
{
    const struct dpb_journal *journal = rank->journal;
    if (number >= dpb_journal_records(journal))
        return;
    const struct dpb_record *record = &journal->records[number];
    fprintf(tracer->out, ",\"timed\":%s", number >= journal->timed_from ? "true" : "false");
    for (size_t i = 0; i < DPB_BREAKDOWN; i++)
        fprintf(tracer->out, ",\"%s_ns\":%lld", dpb_breakdown_names[i],
                (long long)dpb_record_part(record, i));
    fprintf(tracer->out, ",\"comm_bytes\":%lld", (long long)record->comm_bytes);
}

/* The form of each kind of span: its row, category, name, and the thing that its number counts. */
static const struct kind {
    uint32_t row;
    const char *category, *name, *counts;
} kinds[DPB_TRACE_KINDS] = {
    [DPB_TRACE_STEP] = {ROW_LOOP, "step", "step", "step"},
    [DPB_TRACE_PART + DPB_PART_DATA] = {ROW_LOOP, "part", "data", NULL},
    [DPB_TRACE_PART + DPB_PART_FORWARD] = {ROW_LOOP, "part", "forward", NULL},
    [DPB_TRACE_PART + DPB_PART_DELAY] = {ROW_LOOP, "part", "delay", NULL},
    [DPB_TRACE_PART + DPB_PART_BACKWARD] = {ROW_LOOP, "part", "backward", NULL},
    [DPB_TRACE_EXPOSED] = {ROW_LOOP, "exposed", "communicator", NULL},
    [DPB_TRACE_OP] = {ROW_LOOP, "layer", NULL, "node"}, /* the layer's name */
    [DPB_TRACE_EVALUATE] = {ROW_LOOP, "pause", "evaluate", "step"},
    [DPB_TRACE_CHECKPOINT] = {ROW_LOOP, "pause", "checkpoint", "step"},
    [DPB_TRACE_READY] = {ROW_LOOP, "bucket", "ready", "bucket"},
    [DPB_TRACE_LOAD] = {ROW_LOAD, "data", "load", "batch"},
    [DPB_TRACE_LOAD_TEST] = {ROW_LOAD_TEST, "data", "load", "batch"},
    [DPB_TRACE_PHASE + DPB_PHASE_WAIT_PEER] = {ROW_COMM, "bucket", "wait", "bucket"},
    [DPB_TRACE_PHASE + DPB_PHASE_TRANSFER] = {ROW_COMM, "bucket", "transfer", "bucket"},
    [DPB_TRACE_PHASE + DPB_PHASE_REDUCE] = {ROW_COMM, "bucket", "reduce", "bucket"},
    [DPB_TRACE_PHASE + DPB_PHASE_UPDATE] = {ROW_COMM, "bucket", "update", "bucket"},
};

static void put_span(struct dpb_tracer *tracer, uint32_t number, uint32_t row,
                     const struct dpb_trace_span *span)
{
    const struct dpb_traced_rank *rank = &tracer->ranks[number];
    const struct kind *kind = &kinds[span->kind];
    const bool step = span->kind == DPB_TRACE_STEP;
    begin_event(tracer, number, row, span->kind == DPB_TRACE_READY ? "i" : "X");
    put_time(tracer, "ts", span->begin_ns - tracer->origin_ns);
    if (span->kind == DPB_TRACE_READY)
        fputs(",\"s\":\"t\"", tracer->out);
    else
        put_time(tracer, "dur", span->end_ns - span->begin_ns);
    fprintf(tracer->out, ",\"cat\":\"%s\"", kind->category);
    put_text(tracer, "name", kind->name ? kind->name : layer_of(tracer, span->number));
    fputs(",\"args\":{", tracer->out);
    if (kind->counts)
        fprintf(tracer->out, "\"%s\":%" PRIu64, kind->counts,
                span->number + (step ? rank->journal->first_step : 0));
    if (step)
        put_record(tracer, rank, span->number);
    if (span->kind >= DPB_TRACE_PHASE && number < tracer->experiment->n_workers)
        fprintf(tracer->out, ",\"step\":%" PRIu64, rank->journal->first_step + span->of);
    fputs("}}", tracer->out);
}

/* If the device reports its times, the loop's thread runs ahead, and the times have a row of their
 * own. */
static dpb_status write_span(struct dpb_tracer *tracer, uint32_t number,
                             const struct dpb_trace_span *span)
{
    uint32_t row = kinds[span->kind].row;
    if (row == ROW_COMM) {
        const uint32_t lane = find_lane(tracer, span);
        if (lane >= ROW_LOAD - ROW_COMM)
            return dpb_fail(DPB_NO_MEMORY, "run.trace: more than %d transfers at the same time",
                            ROW_LOAD - ROW_COMM);
        row += lane;
    } else if (row >= ROW_LOAD) {
        row += span->of % (ROW_LOAD_TEST - ROW_LOAD);
    } else if (tracer->ranks[number].journal->by_device &&
               (span->kind == DPB_TRACE_STEP || span->kind == DPB_TRACE_EXPOSED)) {
        row = ROW_DEVICE;
    }
    put_span(tracer, number, row, span);
    return DPB_OK;
}

static void name_rows(struct dpb_tracer *tracer, uint32_t number)
{
    const struct dpb_traced_rank *rank = &tracer->ranks[number];
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

static dpb_status write_rank(struct dpb_tracer *tracer, uint32_t number)
{
    struct dpb_traced_rank *rank = &tracer->ranks[number];
    tracer->n_lanes = 0;
    qsort(rank->spans, rank->n, sizeof *rank->spans, compare);
    for (uint64_t i = 0; i < rank->n; i++) {
        const struct dpb_trace_span *span = &rank->spans[i];
        if (dpb_trace_is_shown(rank, span))
            DPB_TRY(write_span(tracer, number, span));
    }
    name_rows(tracer, number);
    return DPB_OK;
}

/* ---- what the file is of ------------------------------------------------------------------- */

static json_t *rank_to_json(const struct dpb_tracer *tracer, uint32_t number)
{
    const struct dpb_traced_rank *rank = &tracer->ranks[number];
    const json_int_t before = (json_int_t)rank->journal->first_step;
    json_t *first = rank->n_shown == 0
                        ? json_null()
                        : json_integer(before + (json_int_t)rank->steps[rank->first].number);
    return json_pack("{s:i, s:s, s:i, s:o, s:I, s:b}", "rank", (int)number, "role",
                     number < tracer->experiment->n_workers ? "worker" : "server", "machine",
                     (int)tracer->experiment->machines[number], "first_step", first, "steps",
                     (json_int_t)rank->n_shown, "complete", !dpb_trace_is_cut(tracer, number));
}

static json_t *clock_to_json(const struct dpb_traced_clock *clock)
{
    return json_pack("{s:I, s:o}", "offset_ns", (json_int_t)clock->offset_ns, "error_ns",
                     clock->error_ns < 0 ? json_null() : json_integer((json_int_t)clock->error_ns));
}

static json_t *about(const struct dpb_tracer *tracer, dpb_status ended)
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

static dpb_status write_all(struct dpb_tracer *tracer, dpb_status ended)
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

static dpb_status make_file(struct dpb_tracer *tracer, dpb_status ended)
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
    DPB_THEN(status, dpb_output_write(path, text, length));
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
    struct dpb_tracer tracer = {.experiment = experiment, .n_ranks = dpb_board_ranks(board)};
    tracer.ranks = calloc(tracer.n_ranks, sizeof *tracer.ranks);
    tracer.clocks = calloc(experiment->n_machines, sizeof *tracer.clocks);
    dpb_status status = tracer.ranks && tracer.clocks
                            ? dpb_trace_read_rings(&tracer, board)
                            : dpb_fail(DPB_NO_MEMORY, "out of memory: run.trace is not written");
    if (status == DPB_OK) {
        dpb_trace_choose_spans(&tracer);
        dpb_trace_warn(&tracer);
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
