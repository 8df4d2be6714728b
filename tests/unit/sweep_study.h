/*
 * sweep_study.h - a sweep of made-up runs: the configuration, the document that the runs make, and
 * what its table says.
 */
#ifndef DPB_TESTS_UNIT_SWEEP_STUDY_H
#define DPB_TESTS_UNIT_SWEEP_STUDY_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "lib/near.h"
#include "lib/own.h"
#include "lib/printed.h"
#include "lib/test.h"
#include "study/document/rows.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_runs.h"
#include "study/table/sweep_print.h"

#define FILE_LINE "x.ini:9"

/* A configuration of "SECTION.KEY=VALUE" texts, ended by NULL; from a file, but those that begin
 * with `!` from the command line. */
static inline struct dpb_config *configure(const char *const *settings)
{
    struct dpb_config *config = own_config(dpb_config_create());
    assert_non_null(config);
    dpb_first_error_clear();
    for (; *settings != NULL; settings++) {
        bool late = (*settings)[0] == '!';
        assert_int_equal(
            dpb_config_assign(config, *settings + late, late ? "command line" : FILE_LINE), DPB_OK);
    }
    return config;
}

#define CONFIGURE(...) configure((const char *const[]){__VA_ARGS__, NULL})

static inline void release_sweep(void *sweep)
{
    dpb_sweep_destroy(sweep);
}

static inline struct dpb_sweep *sweep_of(struct dpb_config *config)
{
    struct dpb_sweep *sweep = NULL;
    assert_true(dpb_sweep_wanted(config));
    assert_int_equal(dpb_sweep_create(config, &sweep), DPB_OK);
    return own_memory(sweep, release_sweep);
}

/* The configuration of a cell. */
static inline struct dpb_config *cell_of(const struct dpb_sweep *sweep, struct dpb_sweep_job job)
{
    struct dpb_config *made = NULL;
    assert_int_equal(dpb_sweep_config(sweep, &job, &made), DPB_OK);
    return own_config(made);
}

struct study {
    struct dpb_config *config;
    struct dpb_sweep *sweep;
    json_t *document;
};

static inline struct study study_of(struct dpb_config *config)
{
    struct study study = {.config = config, .sweep = sweep_of(config)};
    study.document = own_json(dpb_sweep_document(study.sweep));
    assert_non_null(study.document);
    return study;
}

#define STUDY(...) study_of(CONFIGURE(__VA_ARGS__))

static inline const json_t *row_at(const struct study *s, size_t i)
{
    const json_t *row = json_array_get(json_object_get(s->document, "rows"), i);
    assert_non_null(row);
    return row;
}

/* ---- what the table says ------------------------------------------------------------------- */

/* No line of the table is too long. */
static inline char *printed(const json_t *document)
{
    char *text = printed_as(document, dpb_sweep_print);
    for (const char *line = text; *line != '\0';) {
        size_t columns = strcspn(line, "\n");
        if (columns > 100)
            fail_msg("%zu columns: %.*s", columns, (int)columns, line);
        line += columns + (line[columns] == '\n');
    }
    return text;
}

/* That of the sweep when it has ended well. */
static inline char *table_of(const struct study *s)
{
    dpb_sweep_finish(DPB_OK, s->document);
    return printed(s->document);
}

/* Wherever lines are broken. */
static inline void expect_said(const char *text, const char *said)
{
    char *flat = strdup(text);
    for (char *c = flat; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    if (!strstr(flat, said))
        fail_msg("no '%s':\n%s", said, text);
    free(flat);
}

/* The table says all of this, ended by NULL. */
static inline void expect_table(const struct study *s, const char *const *said)
{
    char *text = table_of(s);
    for (; *said; said++)
        expect_said(text, *said);
}

#define EXPECT_TABLE(s, ...) expect_table(s, (const char *const[]){__VA_ARGS__, NULL})

/* ---- made-up runs -------------------------------------------------------------------------- */

struct made_run {
    const char *strategy;
    int workers, threads;
    double rate, exposed_share;
    size_t n_steps;
    const char *pattern;
    int batch; /* of a worker; 0: 10 */
};

/* A result as a job would give it: loss falling by 1 a 100 samples. */
static inline json_t *make_result(const struct made_run *run)
{
    int batch = run->batch > 0 ? run->batch : 10, global_batch = batch * run->workers;
    json_t *loss = json_array();
    for (size_t k = 0; k < run->n_steps; k++)
        json_array_append_new(loss, json_real(9 - (double)(k + 1) * global_batch / 100.0));
    bool timed = isfinite(run->rate);
    double step_ns = timed ? 1e9 * global_batch / run->rate : 1;
    json_t *result = json_pack("{s:s, s:s, s:n, s:{s:s, s:s}, s:{s:i, s:i, s:b}, s:{s:i, s:i}}", //
                               "schema", "dpbench.result/1", "status", "ok", "error",            //
                               "strategy", "name", run->strategy, "consistency",                 //
                               strcmp(run->strategy, "independent") == 0 ? "none" : "synchronous",
                               "world", "workers", run->workers, "servers", 0, "oversubscribed", 0,
                               "batch", "per_worker", batch, "global", global_batch);
    json_t *timing =
        json_pack("{s:I, s:f, s:b, s:b, s:{s:f, s:f}, s:{s:f, s:f}}",                   //
                  "steps", (json_int_t)run->n_steps,                                    //
                  "elapsed_ns", step_ns * (double)run->n_steps,                         //
                  "steady", 1, "gated", 1,                                              //
                  "samples_per_s", "mean", timed ? run->rate : 0.0, "uncertainty", 5.0, //
                  "breakdown_ns", "comm_exposed", run->exposed_share * step_ns, "comm_hidden", 0.0);
    assert_non_null(result);
    assert_non_null(timing);
    json_t *steps = json_array();
    for (size_t k = 0; k < run->n_steps; k++)
        json_array_append_new(steps, json_real(step_ns * (0.9 + 0.2 * (double)(k * 7 % 11) / 10)));
    json_object_set_new(timing, "step_ns", steps);
    if (!timed)
        json_object_del(timing, "samples_per_s");
    json_object_set_new(result, "timing", timing);
    json_object_set_new(result, "comm", json_pack("{s:f}", "bytes_per_step", 1e6));
    json_object_set_new(result, "loss", loss);
    json_object_set_new(result, "eval", json_array());
    json_object_set_new(result, "verification",
                        json_pack("{s:s, s:s, s:s, s:s, s:s}", "pattern", run->pattern, "exchange",
                                  "skipped", "replicas", run->pattern, "after", run->pattern,
                                  "steps", run->pattern));
    json_object_set_new(result, "ranks", json_pack("[{s:i}]", "threads", run->threads));
    return result;
}

static inline void add_run(const struct study *s, size_t cell, uint32_t repeat, struct made_run run)
{
    const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
    run.threads = run.threads ? run.threads : 1;
    run.pattern = run.pattern ? run.pattern : "pass";
    dpb_sweep_add(s->sweep, &job, make_result(&run), s->document);
}

static inline void add_accuracy_run(const struct study *s, size_t cell, double accuracy,
                                    struct made_run run)
{
    const struct dpb_sweep_job job = {.cell = cell, .accuracy = true};
    run.threads = 1;
    run.pattern = run.pattern ? run.pattern : "pass";
    json_t *result = make_result(&run);
    json_object_set_new(result, "eval",
                        json_pack("[{s:i, s:f}]", "step", 500, "accuracy", accuracy));
    dpb_sweep_add(s->sweep, &job, result, s->document);
}

/* independent and shm with 1 and 2 workers; 2 repeats. */
static inline struct study make_study(void)
{
    struct study s = STUDY("sweep.comm.name=independent,shm", "sweep.run.workers=1,2",
                           "sweep.repeats=2", "sweep.accuracy=500");
    static const struct made_run runs[4] = {
        {"independent", 1, 1, 1000, 0.0, 40, "not_applicable", 0},
        {"independent", 2, 1, 1900, 0.0, 40, "not_applicable", 0},
        {"shm", 1, 1, 980, 0.01, 40, "pass", 0},
        {"shm", 2, 1, 1600, 0.15, 40, "pass", 0}};
    for (uint32_t repeat = 0; repeat < 2; repeat++)
        for (size_t cell = 0; cell < 4; cell++) {
            struct made_run run = runs[cell];
            run.rate += repeat == 0 ? -20 : 20;
            add_run(&s, cell, repeat, run);
        }
    add_accuracy_run(&s, 1, 0.8125, runs[1]);
    add_accuracy_run(&s, 3, 0.875, runs[3]);
    return s;
}

/* Two strategies with 2 workers each: rates[0] by repeat, then rates[1]. */
static inline struct study race(const char *names, size_t repeats, const double *rates)
{
    char axis[64], count[32], *name = axis + strlen("sweep.comm.name=");
    snprintf(axis, sizeof axis, "sweep.comm.name=%s", names);
    snprintf(count, sizeof count, "sweep.repeats=%zu", repeats);
    struct study s = STUDY(axis, count);
    name[strcspn(name, ",")] = '\0';
    for (uint32_t repeat = 0; repeat < repeats; repeat++)
        for (size_t cell = 0; cell < 2; cell++)
            add_run(&s, cell, repeat,
                    (struct made_run){cell == 0 ? name : strchr(names, ',') + 1, 2, 1,
                                      rates[cell * repeats + repeat], 0, 10, NULL, 0});
    return s;
}

#endif
