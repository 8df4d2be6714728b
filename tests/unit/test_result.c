/* test_result.c - results from made-up journals: the numbers, the warnings and the table. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "journal.h"
#include "base/json.h"
#include "lib/documented.h"
#include "lib/near.h"
#include "lib/printed.h"
#include "lib/test.h"
#include "measure/monitor.h"
#include "record/live.h"
#include "record/monitor_report.h"
#include "record/result.h"
#include "record/wall.h"

/* A strategy without a contract of its own. */
static const struct dpb_comm_ops synchronous;

/* An experiment that was never loaded from plugins, and the board of its 2 workers and a server. */
struct bench {
    struct dpb_experiment experiment;
    struct dpb_plugin plugins[DPB_PLUGIN_KINDS];
    struct dpb_board *board;
};

static struct dpb_journal *journal_of(struct bench *bench, uint32_t rank)
{
    return dpb_board_journal(bench->board, rank, NULL);
}

static int bench_create(void **state)
{
    static const char *const names[] = {"lenet", "idx", "cpu", "shm"};
    static const struct dpb_device_ops device = {.open = NULL};
    static const struct dpb_library libraries[] = {{"oneDNN", "3.2", "3.2.1"}, {0}};
    struct bench *bench = calloc(1, sizeof *bench);
    struct dpb_experiment *e = &bench->experiment;
    size_t bytes = sizeof(struct dpb_journal) + CAPACITY * sizeof(struct dpb_record);
    *state = bench;
    dpb_warnings_clear();
    dpb_first_error_clear();
    for (size_t kind = 0; kind < sizeof names / sizeof names[0]; kind++) { /* no codec */
        bench->plugins[kind] = (struct dpb_plugin){.name = names[kind], .version = "1.2.3"};
        e->plugins[kind] = &bench->plugins[kind];
    }
    bench->plugins[DPB_PLUGIN_COMM].capabilities = DPB_COMM_OVERLAP;
    bench->plugins[DPB_PLUGIN_COMM].ops = &synchronous;
    bench->plugins[DPB_PLUGIN_DEVICE].libraries = libraries;
    bench->plugins[DPB_PLUGIN_DEVICE].ops = &device;
    e->config = dpb_config_create();
    e->n_workers = 2;
    e->n_servers = 1;
    e->accumulate = 1;
    e->batch = 32;
    e->global_batch = 64;
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        e->tables[e->n_tables++] = (struct dpb_option_table){
            dpb_settings_sections[i].name, NULL, dpb_settings_sections[i].rows, &e->settings};
    if (dpb_config_assign(e->config, "run.workers=2", "x.ini:3") != DPB_OK ||
        dpb_options_parse(e->tables, e->n_tables, e->config) != DPB_OK ||
        dpb_board_create(3, bytes, &bench->board) != DPB_OK)
        return -1;
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct dpb_journal *journal = journal_of(bench, rank);
        struct dpb_status_page *page = dpb_board_page(bench->board, rank);
        page->role = rank == 2 ? DPB_SERVER : DPB_WORKER;
        page->pid = 1000 + (int32_t)rank;
        journal->capacity = CAPACITY;
        journal->timed_from = 2;
        snprintf(journal->consistency, sizeof journal->consistency, "synchronous");
        journal->threads = 1;
        journal->checksum = 0xabc;
        journal->parameters = 61706;
        journal->macs_per_sample = 416520;
        journal->classes = 10;
        for (int k = 0; k < 6 && rank < 2; k++) {
            add_step(journal, 0, 11);
            journal->records[k].comm_bytes = 61706 * sizeof(double); /* as an all-reduce of 2 */
        }
    }
    struct dpb_journal *first = journal_of(bench, 0);
    first->n_evals = 1;
    first->evals[0] = (struct dpb_eval){
        .step = 6, .loss = 0.5, .correct = 890, .in_top5 = 990, .samples = 1000, .labels = 1000};
    return 0;
}

static int bench_destroy(void **state)
{
    struct bench *bench = *state;
    dpb_board_destroy(bench->board);
    dpb_config_destroy(bench->experiment.config);
    free(bench);
    return 0;
}

static bool has_warning(const json_t *document, const char *code)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(document, "warnings"), i, entry)
    {
        if (strcmp(dpb_json_text(entry, "code", ""), code) == 0)
            return true;
    }
    return false;
}

/* tests/system/test_cli_run.c walks the list of its names. */
TEST_WITH(document_says_what_journals_say, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    json_t *document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
    assert_non_null(document);
    assert_non_null(dpb_json_at(document, "why"));
    assert_string_equal(
        dpb_json_text(document, "versions.plugins.device.libraries.oneDNN.loaded", ""), "3.2.1");
    assert_string_equal(dpb_json_text(document, "schema", ""), "dpbench.result/1");
    assert_string_equal(dpb_json_text(document, "status", ""), "ok");
    assert_true(json_is_null(dpb_json_at(document, "error")));
    assert_string_equal(dpb_json_text(document, "strategy.consistency", ""), "synchronous");
    assert_string_equal(dpb_json_text(document, "config.run.workers.origin", ""), "x.ini:3");
    assert_within(dpb_json_number(document, "config.comm.bucket.value"), 4 << 20, 0);
    assert_within(dpb_json_number(document, "timing.samples_per_s.mean"), 64 / 0.011, 1e-6);
    assert_int_equal(json_array_size(dpb_json_at(document, "timing.step_ns")), 4);
    assert_int_equal(json_array_size(dpb_json_at(document, "timing.samples_per_s.ci95")), 2);
    assert_int_equal(json_array_size(json_object_get(document, "loss")), 6);
    expect_documented(document);
    const json_t *eval = json_array_get(json_object_get(document, "eval"), 0);
    assert_within(dpb_json_number(eval, "accuracy"), 0.89, 1e-12);
    assert_within(dpb_json_number(eval, "step"), 6, 0);
    const json_t *ranks = json_object_get(document, "ranks");
    assert_int_equal(json_array_size(ranks), 3);
    assert_string_equal(dpb_json_text(json_array_get(ranks, 2), "role", ""), "server");
    assert_string_equal(dpb_json_text(json_array_get(ranks, 1), "checksum", ""),
                        "0x0000000000000abc");
    assert_within(dpb_json_number(json_array_get(ranks, 1), "step_ns.median"), 11 * MS, 1e-3);
    assert_false(has_warning(document, "not_finite"));
}

/* 100 ms before rank 0 opened its journal, 10 ms of each part but 60 of steps, and the end is under
 * way; two steps of 11 ms are warm-up. */
TEST_WITH(wall_clock_has_parts_that_add_up, bench_create, bench_destroy)
{
    static const char *const parts[] = {"start_s", "connect_s",     "compile_s",
                                        "proof_s", "warmup_s",      "measured_s",
                                        "eval_s",  "checkpoints_s", "end_s"};
    struct bench *bench = *state;
    struct dpb_journal *journal = journal_of(bench, 0);
    const int64_t now_ns = dpb_now_ns();
    json_t *wall = dpb_wall_to_json(bench->board, journal);
    assert_true(json_is_null(wall)); /* no command */
    journal->spent_from_ns = now_ns;
    journal->spending = DPB_SPENT_END;
    for (int i = 0; i < DPB_SPENT_PARTS; i++)
        journal->spent_ns[i] = (i == DPB_SPENT_STEPS ? 60 : 10) * INT64_C(1000000);
    journal->opened_ns = now_ns - 130 * INT64_C(1000000);
    dpb_board_about(bench->board)->command_ns = journal->opened_ns - 100 * INT64_C(1000000);
    for (int opened = 1; opened >= 0; opened--) {
        double sum = 0;
        journal->opened_ns = opened ? journal->opened_ns : 0;
        wall = own_json(dpb_wall_to_json(bench->board, journal));
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            sum += dpb_json_number(wall, parts[i]);
        assert_within(sum, dpb_json_number(wall, "seconds"), 1e-9);
        assert_true(sum >= 0.23);
        if (!opened) /* rank 0 did not come so far */
            assert_within(dpb_json_number(wall, "start_s"), sum, 0);
        else
            assert_within(dpb_json_number(wall, "start_s"), 0.11, 1e-9);
        assert_within(dpb_json_number(wall, "warmup_s"), opened ? 0.022 : 0, 1e-9);
        assert_within(dpb_json_number(wall, "measured_s"), opened ? 0.038 : 0, 1e-9);
    }
    char text[512];
    wall = own_json(json_pack("{s:f, s:f, s:f, s:f}", "seconds", 10.0, "start_s", 1.5, "compile_s",
                              0.001, "measured_s", 8.499));
    FILE *out = fmemopen(text, sizeof text, "w");
    dpb_wall_print(wall, out);
    fclose(out);
    assert_string_equal(text, "  wall clock    10.00 s: start 1.50, measured steps 8.50\n");
}

/* Of five counters, the k-th rises by 2 k bytes in two seconds. */
static void expect_rates_of_counters(const struct bench *bench)
{
    static const char *const names[] = {"received_bytes_per_s", "sent_bytes_per_s",
                                        "loopback_bytes_per_s", "read_bytes_per_s",
                                        "written_bytes_per_s"};
    size_t bytes;
    uint8_t *journal = dpb_board_journal(bench->board, 0, &bytes);
    struct dpb_monitor_series *series =
        (void *)(journal + bytes - dpb_monitor_bytes(&bench->experiment.settings));
    series->of_machine = true;
    series->n = 2;
    for (uint64_t i = 0; i < 2; i++) {
        struct dpb_monitor_sample *sample = &series->samples[i];
        sample->at_ns = (int64_t)(2 * i + 1) * INT64_C(1000000000);
        sample->machine.received_bytes = 100;
        sample->machine.sent_bytes = 100 + 2 * i;
        sample->machine.loopback_bytes = 100 + 4 * i;
        sample->machine.read_bytes = 100 + 6 * i;
        sample->machine.written_bytes = 100 + 8 * i;
    }
    json_t *json = own_json(dpb_monitor_to_json(&bench->experiment, bench->board));
    const json_t *machine = json_array_get(json_object_get(json, "machines"), 0);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        assert_within(json_number_value(json_array_get(json_object_get(machine, names[k]), 0)),
                      (double)k, 1e-12);
    /* No time is a time that is known. */
    assert_true(json_is_number(json_array_get(json_object_get(machine, "others_cpus"), 0)));
    /* A process that has ended took its time with it, which is not the others'. */
    series->samples[0].machine.living = 1;
    json = own_json(dpb_monitor_to_json(&bench->experiment, bench->board));
    machine = json_array_get(json_object_get(json, "machines"), 0);
    assert_true(json_is_null(json_array_get(json_object_get(machine, "own_cpus"), 0)));
    assert_true(json_is_null(json_array_get(json_object_get(machine, "others_cpus"), 0)));
    series->samples[0].machine.living = 0;
}

/* Two workers on one GPU, then each on its own host's. */
TEST_WITH(monitor_tells_rates_of_counters_and_energy_of_a_gpu_once, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    struct dpb_settings *settings = &bench->experiment.settings;
    struct dpb_board *small = bench->board;
    settings->run.monitor_ns = INT64_C(1000000000);
    const size_t bytes = sizeof(struct dpb_journal) + CAPACITY * sizeof(struct dpb_record) +
                         dpb_monitor_bytes(settings);
    assert_int_equal(dpb_board_create(2, bytes, &bench->board), DPB_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct dpb_journal *journal = journal_of(bench, rank);
        journal->capacity = CAPACITY;
        journal->timed_from = 2;
        for (int k = 0; k < 6; k++)
            add_step(journal, 0, 11);
        strcpy(journal->gpu.pci_address, "00000000:1b:00.0");
        strcpy(dpb_board_page(bench->board, rank)->gpu, "00000000:1b:00.0");
        journal->gpu.first = (struct dpb_gpu_sample){.known = true, .energy_j = 10};
        journal->gpu.last = (struct dpb_gpu_sample){.known = true, .energy_j = 10 + 4 * 64};
    }
    expect_rates_of_counters(bench);
    for (int hosts = 1; hosts <= 2; hosts++) {
        strcpy(dpb_board_page(bench->board, 0)->host, "a");
        strcpy(dpb_board_page(bench->board, 1)->host, hosts == 1 ? "a" : "b");
        json_t *json = own_json(dpb_monitor_to_json(&bench->experiment, bench->board));
        assert_within(dpb_json_number(json, "joules_per_sample.gpus"), hosts, 1e-12);
    }
    dpb_board_destroy(bench->board);
    bench->board = small;
}

/* Gradients of two workers, by age: a quantile is the nearest rank's, its own rank included. */
TEST_WITH(quantiles_of_ages_are_of_the_nearest_rank, bench_create, bench_destroy)
{
    static const struct {
        uint64_t ages[3], p50, p99;
    } rows[] = {{{1, 0, 0}, 0, 0},   {{1, 1, 0}, 0, 1},   {{1, 2, 0}, 1, 1},  {{50, 49, 1}, 0, 1},
                {{50, 48, 2}, 0, 2}, {{49, 50, 1}, 1, 1}, {{0, 99, 1}, 1, 1}, {{0, 0, 3}, 2, 2}};
    struct bench *bench = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t n = 0, sum = 0;
        for (uint64_t age = 0; age < 3; age++) {
            journal_of(bench, age % 2)->ages[age] = rows[i].ages[age];
            n += rows[i].ages[age];
            sum += age * rows[i].ages[age];
            if (rows[i].ages[age] > 0)
                journal_of(bench, 1)->most_age = age;
        }
        journal_of(bench, 0)->sum_of_ages = sum;
        json_t *document =
            own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
        const json_t *age = dpb_json_at(document, "strategy.age");
        if (dpb_json_number(age, "p50") != (double)rows[i].p50 ||
            dpb_json_number(age, "p99") != (double)rows[i].p99)
            fail_msg("row %zu: p50 %g, p99 %g", i, dpb_json_number(age, "p50"),
                     dpb_json_number(age, "p99"));
        assert_within(dpb_json_number(age, "mean"), (double)sum / (double)n, 1e-12);
        assert_int_equal(json_array_size(json_object_get(age, "histogram")),
                         journal_of(bench, 1)->most_age + 1);
    }
}

/* What `watch` shows of ranks of which one has no process yet. */
TEST_WITH(a_rank_that_has_not_started_is_said_to, bench_create, bench_destroy)
{
    const struct bench *bench = *state;
    char line[DPB_LIVE_LINE];
    struct dpb_status_page *page = dpb_board_page(bench->board, 1);
    strcpy(page->host, "a");
    strcpy(page->phase, "backward");
    page->step = 52;
    page->peer = 0;
    dpb_live_rank(bench->board, 1, 80, line, sizeof line);
    assert_string_equal(line, "  rank 1 (a, pid 1001)  backward of step 52, for rank 0");
    page->pid = 0;
    page->peer = UINT32_MAX;
    dpb_live_rank(bench->board, 1, 80, line, sizeof line);
    assert_string_equal(line, "  rank 1  not started");
}

/* A run whose steps are not steady yet makes many that are not timed. */
TEST_WITH(a_line_of_progress_says_that_it_warms_up, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    char line[DPB_LIVE_LINE];
    dpb_board_about(bench->board)->step_samples = 8;
    dpb_board_page(bench->board, 0)->step = 52;
    dpb_live_line(bench->board, 200, line, sizeof line);
    assert_null(strstr(line, "warm-up"));
    strcpy(dpb_board_about(bench->board)->label, "[3/24] comm.name=shm run.workers=2");
    dpb_live_line(bench->board, 46, line, sizeof line); /* too narrow for the settings' names */
    assert_string_equal(line, "[3/24] shm 2  step 52  727.3 samples/s  loss 1");
    dpb_live_line(bench->board, 16, line, 16);
    assert_int_equal(strlen(line), 15);
    dpb_live_rank(bench->board, 1, 16, line, 16);
    assert_int_equal(strlen(line), 15);
    journal_of(bench, 0)->timed_from = UINT64_MAX;
    dpb_live_line(bench->board, 200, line, sizeof line);
    assert_non_null(strstr(line, "step 52 (warm-up)  "));
}

TEST_WITH(not_finite_is_null_and_warned_of, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    journal_of(bench, 1)->records[3].loss = NAN;
    json_t *document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
    const json_t *loss = json_object_get(document, "loss");
    assert_true(json_is_null(json_array_get(loss, 3)));
    assert_true(json_is_real(json_array_get(loss, 2)));
    assert_true(has_warning(document, "not_finite"));
}

TEST_WITH(unquiet_run_says_so, bench_create, bench_destroy)
{
    static const char *const codes[] = {
        "not_steady",         "drift",     "busy_machine",      "throttled",
        "steps_not_recorded", "few_bytes", "undeclared_threads"};
    struct bench *bench = *state;
    json_t *document;
    for (int unquiet = 0; unquiet < 2; unquiet++) {
        for (uint32_t rank = 0; rank < 2 && unquiet; rank++) {
            struct dpb_journal *journal = journal_of(bench, rank);
            journal->gated = true;
            journal->steady = false;
            for (uint64_t k = 0; k < journal->n_records; k++)
                journal->records[k].step_ns += (int64_t)k * MS;
            journal->records[3].comm_bytes = journal->records[4].comm_bytes = rank;
            journal->others_wall_ns = 100 * MS;
            journal->others_cpu_ns = rank * 11 * MS;
        }
        journal_of(bench, 1)->unrecorded = unquiet ? 5 : 0;
        if (unquiet)
            journal_of(bench, 0)->load = (struct dpb_load){
                .known = true, .seconds = 10, .cpus = 2, .others_share = 0.5, .throttled = 3};
        document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            if (has_warning(document, codes[i]) != (unquiet == 1))
                fail_msg("%s: %d", codes[i], unquiet);
        assert_true(json_is_true(dpb_json_at(document, "load.disturbed")) == (unquiet == 1));
    }
}

/* Of intervals of 1 and 2 s, some numbers of the first are not known. */
TEST(monitor_prints_means_of_known_intervals)
{
    json_t *document = own_json(json_loads(
        "{\"monitor\": {\"machines\": [{\"host\": \"vm\", \"cpus\": 2, \"seconds\": [1, 3],"
        " \"own_cpus\": [1, 0.5], \"others_cpus\": [null, 0.25],"
        " \"received_bytes_per_s\": [null, 2e6], \"sent_bytes_per_s\": [0, 0],"
        " \"read_bytes_per_s\": [0, 0], \"written_bytes_per_s\": [0, 0]}]}}",
        0, NULL));
    assert_non_null(document);
    char *text = printed_as(document, dpb_monitor_print);
    assert_non_null(strstr(text, "the job 0.67 CPUs, others 0.25, of 2; 2.0 MB/s in, 0.0 out"));
}

TEST_WITH(untimed_run_says_so_once, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    for (uint32_t rank = 0; rank < 2; rank++)
        journal_of(bench, rank)->timed_from = UINT64_MAX;
    json_t *document =
        dpb_result_make(&bench->experiment, bench->board, DPB_INTERRUPTED, "stopped");
    assert_true(json_is_null(dpb_json_at(document, "timing.samples_per_s.mean")));
    assert_true(json_is_null(dpb_json_at(document, "comm.bytes_per_step")));
    assert_true(has_warning(document, "nothing_timed"));
    assert_false(has_warning(document, "not_finite"));
    assert_int_equal(json_array_size(json_object_get(document, "loss")), 6);
    json_decref(document);
}

/* Rank 0 begins to time at its step 5, rank 1 at its step 1: each has its own timed steps. */
TEST_WITH(ranks_apart_have_their_own_timed_steps, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    bench->plugins[DPB_PLUGIN_COMM].capabilities = DPB_COMM_ALONE;
    journal_of(bench, 0)->timed_from = 5;
    journal_of(bench, 1)->timed_from = 1;
    journal_of(bench, 1)->n_records = 4;
    json_t *document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
    const json_t *ranks = json_object_get(document, "ranks");
    assert_within(dpb_json_number(document, "timing.warmup_steps"), 5, 0);
    assert_within(dpb_json_number(json_array_get(ranks, 0), "steps"), 1, 0);
    assert_within(dpb_json_number(json_array_get(ranks, 1), "steps"), 3, 0);
    assert_within(dpb_json_number(json_array_get(ranks, 1), "step_ns.mean"), 11 * MS, 1e-3);
}

TEST_WITH(statuses_are_named, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    bench->plugins[DPB_PLUGIN_COMM].capabilities = DPB_COMM_ALONE;
    snprintf(journal_of(bench, 0)->consistency, DPB_LABEL_BYTES, "none");
    json_t *document =
        own_json(dpb_result_make(&bench->experiment, bench->board, DPB_INTERRUPTED, "stopped"));
    assert_string_equal(dpb_json_text(document, "status", ""), "interrupted");
    assert_string_equal(dpb_json_text(document, "error", ""), "stopped");
    assert_string_equal(dpb_json_text(document, "strategy.consistency", ""), "none");
    document = own_json(dpb_result_make(&bench->experiment, NULL, DPB_PEER, "rank 1 died \xff"));
    assert_string_equal(dpb_json_text(document, "status", ""), "failed");
    assert_string_equal(dpb_json_text(document, "error", ""), "rank 1 died ?");
    assert_true(json_is_null(dpb_json_at(document, "timing.samples_per_s.mean")));
}

TEST_WITH(warnings_are_counted_once, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct dpb_status_page *page = dpb_board_page(bench->board, rank);
        page->n_warnings = 1;
        strcpy(page->warnings[0].code, "clock");
        memset(page->warnings[0].text, 'x', sizeof page->warnings[0].text); /* no end */
    }
    json_t *document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
    const json_t *warnings = json_object_get(document, "warnings");
    assert_int_equal(json_array_size(warnings), 2); /* the other: too_short */
    assert_within(dpb_json_number(json_array_get(warnings, 0), "count"), 2, 0);
    assert_int_equal(strlen(dpb_json_text(json_array_get(warnings, 0), "text", "")), 256);
}

static char *printed(const json_t *document)
{
    return printed_as(document, dpb_result_print);
}

/* Two workers on GPUs: of one host or two, served by a service or not, or unlike each other. */
TEST_WITH(workers_that_share_a_gpu_are_said_to, bench_create, bench_destroy)
{
    static const struct {
        struct dpb_sharing sharing[2];
        const char *hosts, *wanted, *line;
        bool sliced;
    } rows[] = {
        {{{true, ""}, {true, ""}},
         "aa",
         "time slices",
         "GPUs          2 workers on one: time slices; TIME-SLICED: workers take turns\n",
         true},
        {{{true, "MPS"}, {true, "MPS"}}, "aa", "MPS", "2 workers on one: MPS\n", false},
        {{{false, ""}, {false, ""}}, "aa", "", "how they share it is not known; TIME", true},
        {{{true, ""}, {true, "MPS"}}, "aa", "mixed", "2 workers on one: mixed; TIME", true},
        {{{true, ""}, {true, ""}}, "ab", "time slices", NULL, false}};
    struct bench *bench = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct dpb_status_page *page = dpb_board_page(bench->board, rank);
            strcpy(page->gpu, "0000:1b:00.0");
            page->sharing = rows[i].sharing[rank];
            snprintf(page->host, 2, "%c", rows[i].hosts[rank]);
        }
        json_t *document =
            own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
        char *text = printed(document);
        const char *is = dpb_json_text(document, "gpus.sharing", "");
        if (strcmp(is, rows[i].wanted) != 0 ||
            (strstr(text, rows[i].line ? rows[i].line : "workers on one") != NULL) !=
                (rows[i].line != NULL))
            fail_msg("%zu: '%s':\n%s", i, is, text);
        assert_int_equal(dpb_json_true(document, "gpus.time_sliced"), rows[i].sliced);
        assert_int_equal(has_warning(document, "gpu_shared"), rows[i].sliced);
    }
}

TEST_WITH(table_closes_with_the_rate, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    json_t *document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
    char *text = printed(document), *last = strstr(text, "SamplesPerSec:");
    assert_non_null(last);
    assert_string_equal(last, "SamplesPerSec: 5818.2 +- 0.0 (jitter 0.0)\n");
    assert_non_null(strstr(text, "shm, consistency: synchronous"));
    assert_non_null(strstr(text, "89.00 % of the test set, 99.00 % in the top 5, after 6 steps"));
    assert_non_null(strstr(text, "comm_exposed     1.650 ms  15.0 %"));
    /* 4 steps of 11 ms. */
    assert_non_null(strstr(text, "samples/s     5818.2 over all timed steps (SamplesPerSec)\n"));
    assert_non_null(strstr(text, " step by step: median 5818.2, p10 5818.2, p90 5818.2; TOO SHORT "
                                 "for a conclusion\n"));
    assert_true(has_warning(document, "too_short"));
    document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_PEER, "rank 1 died"));
    text = printed(document);
    assert_non_null(strstr(text, "samples/s     5818.2 over all timed steps"));
    assert_null(strstr(text, "SamplesPerSec:"));
    assert_string_equal(strstr(text, "  status "), "  status        failed: rank 1 died\n");
    document = own_json(dpb_result_make(&bench->experiment, NULL, DPB_PEER, "rank 1 died"));
    text = printed(document);
    assert_null(strstr(text, "SamplesPerSec:"));
    assert_non_null(strstr(text, "failed: rank 1 died"));
}

/* One step has a rate and no uncertainty; ten of half a second together have an interval. */
TEST_WITH(table_says_how_sure_it_is, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    for (uint32_t rank = 0; rank < 2; rank++)
        journal_of(bench, rank)->timed_from = 5;
    journal_of(bench, 0)->n_evals = 0;
    json_t *document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
    char *text = printed(document);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "of the test set"));
    assert_non_null(
        strstr(text, "\nSamplesPerSec: 5818.2 (of one step: its uncertainty is unknown)\n"));
    for (int extra = 0; extra < 2; extra++) { /* 9 steps, 10 steps */
        for (uint32_t rank = 0; rank < 2; rank++) {
            journal_of(bench, rank)->timed_from = 6;
            for (int k = 0; k < (extra == 0 ? 9 : 1); k++)
                add_step(journal_of(bench, rank), 0, 100);
        }
        document = own_json(dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL));
        text = printed(document);
        bool interval = strstr(text, "median 640.0 (95 %: 640.0 .. 640.0), p10") != NULL;
        bool too_short = strstr(text, "TOO SHORT") != NULL;
        assert_int_equal(interval, extra == 1);
        assert_int_equal(too_short, extra == 0);
        assert_int_equal(has_warning(document, "too_short"), extra == 0);
    }
}

TEST_MAIN(NULL, NULL)
