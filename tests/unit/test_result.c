/* test_result.c - results from made-up journals: the numbers, the names that scripts count on, and
 * the files. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "dpbench/random.h"
#include "lib/documented.h"
#include "lib/printed.h"
#include "lib/test.h"
#include "study/json.h"
#include "study/monitor_report.h"
#include "study/result.h"
#include "study/summary.h"
#include "train/monitor.h"

enum { CAPACITY = 64, MS = 1000000 };

static void assert_near(double is, double should, double within)
{
    if (!(fabs(is - should) <= within)) /* NaN is never near */
        fail_msg("%.17g should be %.17g", is, should);
}

static struct dpb_journal *make_journal(void)
{
    struct dpb_journal *journal = calloc(1, sizeof *journal + CAPACITY * sizeof(struct dpb_record));
    assert_non_null(journal);
    journal->capacity = CAPACITY;
    journal->timed_from = UINT64_MAX;
    return journal;
}

/* Appends a step that begins where the last one ended (the first: at `begin_ms`). Its parts are 5
 * %, 20 %, 45 %, 5 % (delay), 10 %, 15 % of it; hidden and wait_peer 30 % and 2 %. */
static struct dpb_record *add_step(struct dpb_journal *journal, int64_t begin_ms, int64_t ms)
{
    uint64_t k = journal->n_records++;
    struct dpb_record *record = &journal->records[k];
    int64_t begin = k == 0 ? begin_ms * MS : record[-1].begin_ns + record[-1].step_ns;
    *record = (struct dpb_record){
        .begin_ns = begin,
        .step_ns = ms * MS,
        .data_wait_ns = ms * MS / 100 * 5,
        .forward_ns = ms * MS / 100 * 20,
        .delay_ns = ms * MS / 100 * 5,
        .backward_ns = ms * MS / 100 * 45,
        .optimizer_ns = ms * MS / 100 * 10,
        .comm_exposed_ns = ms * MS / 100 * 15,
        .comm_hidden_ns = ms * MS / 100 * 30,
        .comm_wait_peer_ns = ms * MS / 100 * 2,
        .comm_bytes = 100,
        .loss = 1.0,
    };
    return record;
}

static double sum_of_parts(const struct dpb_breakdown *b)
{
    return b->data_wait + b->forward + b->delay + b->backward + b->optimizer + b->comm_exposed;
}

/* ---- summary ------------------------------------------------------------------------------- */

/* Workers by turns late: a step of the run goes from the last end to the last end. */
TEST(steps_end_with_the_last_worker)
{
    /* Steps 0 and 1 are warm-up and end together at 100 ms. Ends after that: 110 140 151, 120 132
     * 144, 110 120 160. */
    static const int64_t ms[3][5] = {
        {50, 50, 10, 30, 11}, {50, 50, 20, 12, 12}, {50, 50, 10, 10, 40}};
    const struct dpb_journal *journals[3];
    for (int w = 0; w < 3; w++) {
        struct dpb_journal *journal = make_journal();
        journal->timed_from = 2;
        journal->steady = journal->gated = true;
        for (int k = 0; k < 5; k++) {
            struct dpb_record *record = add_step(journal, 0, ms[w][k]);
            record->loss = 10 * k + w;
            record->comm_bytes = (uint64_t)(1000 * (w + 1));
        }
        journals[w] = journal;
    }
    const struct dpb_summary_args args = {journals, 3, 0, 96, false, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.warmup_steps, 2);
    assert_int_equal(s.n_warmup, 2);
    assert_int_equal(s.warmup_step_ns[0], 50 * MS);
    assert_int_equal(s.warmup_step_ns[1], 50 * MS);
    assert_int_equal(s.n_steps, 3);
    assert_int_equal(s.step_ns[0], 20 * MS);
    assert_int_equal(s.step_ns[1], 20 * MS);
    assert_int_equal(s.step_ns[2], 20 * MS);
    assert_int_equal(s.elapsed_ns, 60 * MS); /* the sum of the longest would be 90 */
    assert_near(s.rate.mean, 96 / 0.020, 1e-6);
    assert_near(s.rate.median, 96 / 0.020, 1e-6);
    assert_near(s.first_to_last, 96 / 0.020, 1e-6);
    assert_near(sum_of_parts(&s.breakdown), 20 * MS, 1e-3);
    assert_near(s.breakdown.comm_exposed, 3.0 * MS, 1e-3);
    assert_near(s.breakdown.comm_hidden, 6.0 * MS, 1e-3);
    assert_near(s.breakdown.comm_wait_peer, 0.4 * MS, 1e-3);
    assert_near(s.bytes_per_step, 6000, 1e-9);
    assert_int_equal(s.n_losses, 5);
    assert_near(s.loss[0], 1.0, 1e-12);
    assert_near(s.loss[4], 41.0, 1e-12);
    assert_true(s.steady);
    dpb_summary_release(&s);
    for (int w = 0; w < 3; w++)
        free((void *)(uintptr_t)journals[w]);
}

/* The breakdown of a step is that of the worker that ends it last, not a mean over the workers. */
TEST(breakdown_follows_the_last)
{
    struct dpb_journal *fast = make_journal(), *slow = make_journal();
    fast->timed_from = slow->timed_from = 0;
    struct dpb_record *waits = add_step(fast, 0, 100), *computes = add_step(slow, 0, 101);
    waits->forward_ns = 0;
    waits->comm_exposed_ns = 35 * MS;
    computes->comm_exposed_ns = 0;
    computes->backward_ns += computes->step_ns / 100 * 15;
    const struct dpb_journal *journals[] = {fast, slow};
    const struct dpb_summary_args args = {journals, 2, 0, 64, false, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_near(s.breakdown.comm_exposed, 0, 1e-9);
    assert_near(sum_of_parts(&s.breakdown), 101 * MS, 1e-3);
    dpb_summary_release(&s);
    free(fast);
    free(slow);
}

static void add_step_after(struct dpb_journal *journal, int64_t pause_ms, int64_t ms)
{
    struct dpb_record *record = add_step(journal, 0, ms);
    record->paused_ns = pause_ms * MS;
    record->begin_ns += pause_ms * MS;
}

/* A pause of all workers is no part of a step; time in which one of them trains is. */
TEST(pauses_are_left_out)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    add_step(a, 0, 10);        /* to 10 */
    add_step(b, 3, 12);        /* to 15 */
    add_step_after(a, 90, 10); /* 100 to 110 */
    add_step_after(b, 87, 10); /* 102 to 112 */
    add_step_after(a, 50, 10); /* 160 to 170, while b trains until 122 */
    add_step(b, 0, 10);
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, false, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_steps, 3);
    assert_int_equal(s.step_ns[0], 15 * MS);
    assert_int_equal(s.step_ns[1], 12 * MS);
    assert_int_equal(s.step_ns[2], 58 * MS);
    dpb_summary_release(&s);
    free(a);
    free(b);
}

/* Each worker's timed steps begin at a number of its own: 12 of 10 ms, 4 of 40 ms, together from 80
 * ms to 200 ms. */
TEST(local_steps_are_timed_from_their_own)
{
    struct dpb_journal *fast = make_journal(), *slow = make_journal();
    const struct dpb_journal *journals[] = {fast, slow};
    const struct dpb_summary_args args = {journals, 2, 0, 64, true, NULL};
    struct dpb_summary s;
    for (int k = 0; k < 20; k++)
        add_step(fast, 0, 10);
    for (int k = 0; k < 5; k++)
        add_step(slow, 0, 40);
    fast->timed_from = 8;
    slow->timed_from = 1;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_false(s.no_common_window);
    assert_int_equal(s.warmup_steps, 8);
    assert_int_equal(s.n_warmup, 0); /* no step of all */
    assert_int_equal(s.n_steps, 7);  /* of 7.5, by (1 / 10 + 1 / 40) / 2 a ms */
    assert_int_equal(s.elapsed_ns, 7 * 16 * MS);
    assert_near(s.rate.mean, 64 / 0.016, 1e-6);
    assert_near(s.bytes_per_step, 200, 1e-9); /* two workers' 100 */
    dpb_summary_release(&s);
    free(fast);
    free(slow);
}

/* A runs from 0 to 100 ms in steps of 10 ms, B from 0 to 40 in steps of 20, when it dies; C dies
 * before its first timed step. A global batch is three workers'. */
TEST(a_lost_worker_counts_while_it_lives)
{
    struct dpb_journal *a = make_journal(), *b = make_journal(), *c = make_journal();
    a->timed_from = b->timed_from = 0;
    a->verdict_after = DPB_VERDICT_PASS;
    for (int k = 0; k < 10; k++)
        add_step(a, 0, 10);
    for (int k = 0; k < 2; k++)
        add_step(b, 0, 20);
    c->timed_from = UINT64_MAX;
    const struct dpb_journal *journals[] = {a, b, c};
    const bool lost[] = {false, true, true};
    const struct dpb_summary_args args = {journals, 3, 0, 96, true, lost};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_losses, 10);
    assert_int_equal(s.n_steps, 4); /* 12 steps of 32 samples */
    assert_int_equal(s.step_ns[0], 20 * MS);
    assert_int_equal(s.step_ns[1], 20 * MS);
    assert_int_equal(s.step_ns[2], 30 * MS); /* of A alone */
    assert_near(s.rate.mean, 12 * 32 / 0.100, 1e-3);
    assert_near(sum_of_parts(&s.breakdown), 25.0 * MS, 1e-3);
    assert_int_equal(s.after, DPB_VERDICT_PASS);
    dpb_summary_release(&s);
    free(a);
    free(b);
    free(c);
}

TEST(local_rates_add_up_in_the_common_window)
{
    /* A runs from 0 to 100 ms in steps of 10 ms, but its first takes 20 and its last 40; B from 15
     * to 75 ms in steps of 20 ms. Within 15..75 A does 0.25 + 4 + 0.375 steps and B 3: 3.8125
     * global batches, three of them whole. */
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    static const int64_t ms[] = {20, 10, 10, 10, 10, 40};
    for (size_t k = 0; k < sizeof ms / sizeof ms[0]; k++)
        add_step(a, 0, ms[k]);
    for (int k = 0; k < 3; k++)
        add_step(b, 15, 20);
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, true, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_false(s.no_common_window);
    assert_int_equal(s.n_steps, 3);
    assert_int_equal(s.step_ns[0], 15000000); /* 5 ms at 0.05 steps a ms, 10 at 0.075 */
    assert_int_equal(s.step_ns[1], 13333333);
    assert_int_equal(s.elapsed_ns, 41666667);
    assert_near(s.rate.mean, 3 * 64 / 0.041666667, 1e-3);
    assert_near(s.rate.median, 4800, 1e-3);
    assert_near(sum_of_parts(&s.breakdown), 41666667.0 / 3, 1e-3);
    assert_near(s.first_to_last, 9 * 32 / 0.100, 1e-6); /* of all nine steps, in all the time */
    dpb_summary_release(&s);

    /* Alone, a worker's rate is the plain one. */
    const struct dpb_summary_args alone = {journals, 1, 0, 32, true, NULL};
    assert_int_equal(dpb_summary_make(&alone, &s), DPB_OK);
    assert_int_equal(s.n_steps, 6);
    assert_near(s.rate.mean, 6 * 32 / 0.100, 1e-6);
    dpb_summary_release(&s);
    free(a);
    free(b);
}

/* ---- an oracle: the clock tick by tick ------------------------------------------------------ */

enum { ORACLE_STEPS = 12, ORACLE_WORKERS = 16, DRAWS = 12, TICKS = 4096, TICK = 1000 /* ns */ };

static uint32_t drawn;

static int64_t draw(int64_t below)
{
    return dpb_random(5, DPB_STREAM_SHUFFLE, drawn++, 7, 0, 0).v[0] % below;
}

/* What every worker does in every tick: its step, counted from 1; 0: none. */
static struct {
    uint8_t at[ORACLE_WORKERS][TICKS];
    int64_t length[ORACLE_WORKERS][ORACLE_STEPS]; /* ticks */
    int64_t end[ORACLE_WORKERS];
} oracle;

/* The next step of a worker, [begin, end) in ticks. `noise`: what its clock is off in ns. */
static void tick_step(struct dpb_journal *journal, uint32_t w, int64_t begin, int64_t end,
                      int64_t noise)
{
    uint64_t k = journal->n_records;
    assert_true(begin < end && end < TICKS);
    struct dpb_record *record = add_step(journal, 0, 0);
    int64_t ns = (end - begin) * TICK;
    *record = (struct dpb_record){.begin_ns = begin * TICK + noise,
                                  .step_ns = ns,
                                  .paused_ns = k > 0 ? (begin - oracle.end[w]) * TICK : 0,
                                  .data_wait_ns = ns / 5,
                                  .forward_ns = ns / 2,
                                  .backward_ns = ns - ns / 5 - ns / 2};
    oracle.length[w][k] = end - begin;
    oracle.end[w] = end;
    for (int64_t t = begin; t < end; t++)
        oracle.at[w][t] = (uint8_t)(k + 1);
}

/* Of a clock that is wrong now and then; its mean over a worker's steps is 0. */
static int64_t noise_at(uint32_t w, int k)
{
    static int64_t noise[ORACLE_WORKERS];
    noise[w] = k % 2 == 0 ? draw(5 * TICK) : -noise[w];
    return noise[w];
}

/* Workers meet in each step: the last to arrive lets all go on, at their own time. Now and then all
 * pause. */
static void draw_together(struct dpb_journal *journals[], uint32_t n)
{
    for (int k = 0; k < ORACLE_STEPS; k++) {
        int64_t met = 0, begin[ORACLE_WORKERS];
        int64_t resumed = 0;
        for (uint32_t w = 0; w < n && k > 0 && k % 5 == 0; w++)
            resumed = oracle.end[w] > resumed ? oracle.end[w] : resumed;
        for (uint32_t w = 0; w < n; w++) {
            begin[w] = k == 0 ? 5 + draw(20) : resumed > 0 ? resumed + 30 + draw(8) : oracle.end[w];
            int64_t arrived = begin[w] + 20 + draw(40);
            met = arrived > met ? arrived : met;
        }
        for (uint32_t w = 0; w < n; w++)
            tick_step(journals[w], w, begin[w], met + 1 + draw(25), noise_at(w, k));
    }
}

static void draw_apart(struct dpb_journal *journals[], uint32_t n)
{
    for (uint32_t w = 0; w < n; w++) {
        int64_t at = 5 + draw(60), slow = 1 + draw(3);
        for (int k = 0; k < ORACLE_STEPS; k++) {
            at += w == 0 && k == 6 ? 40 : 0; /* evaluates alone */
            int64_t end = at + 30 * slow + draw(30);
            tick_step(journals[w], w, at, end, noise_at(w, k));
            at = end;
        }
    }
}

/* The ticks in which some worker trains; and of those in which all do how many pass until `steps`
 * global batches are done. */
static void count_ticks(uint32_t n, double steps, int64_t *any, double *all)
{
    double done = 0;
    *any = 0;
    *all = 0;
    for (int64_t t = 0; t < TICKS; t++) {
        uint32_t running = 0;
        double speed = 0;
        for (uint32_t w = 0; w < n; w++) {
            uint8_t k = oracle.at[w][t];
            running += k > 0;
            speed += k > 0 ? 1.0 / (double)oracle.length[w][k - 1] / n : 0;
        }
        *any += running > 0;
        if (running < n || !(done < steps))
            continue;
        *all += done + speed > steps ? (steps - done) / speed : 1;
        done += speed;
    }
    if (done < steps - 1e-6)
        fail_msg("all workers together did %.6f global batches, not %.0f", done, steps);
}

/* Against the ticks: 1 to 16 workers. Noise in the begins changes nothing.
 */
static void check_against_ticks(bool local)
{
    for (uint32_t n = 1; n <= ORACLE_WORKERS; n++)
        for (int i = 0; i < DRAWS; i++) {
            struct dpb_journal *journals[ORACLE_WORKERS];
            struct dpb_summary s;
            double all;
            int64_t any;
            memset(&oracle, 0, sizeof oracle);
            for (uint32_t w = 0; w < n; w++) {
                journals[w] = make_journal();
                journals[w]->timed_from = 0;
            }
            (local ? draw_apart : draw_together)(journals, n);
            const struct dpb_summary_args args = {
                (const struct dpb_journal *const *)journals, n, 0, 32 * (uint64_t)n, local, NULL};
            assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
            count_ticks(n, local ? (double)s.n_steps : 0, &any, &all);
            double passed_ns = (local ? all : (double)any) * TICK, sum_ns = 0,
                   first_to_last = 32.0 * n * ORACLE_STEPS / ((double)any * TICK / 1e9);
            for (uint64_t k = 0; k < s.n_steps; k++)
                sum_ns += (double)s.step_ns[k];
            assert_true(s.n_steps > 0 && (local || s.n_steps == ORACLE_STEPS));
            assert_near((double)s.elapsed_ns, passed_ns, 2);
            assert_near(sum_ns, (double)s.elapsed_ns, 0);
            assert_near(sum_of_parts(&s.breakdown), passed_ns / (double)s.n_steps, 1);
            assert_near(s.rate.mean / (32.0 * n * (double)s.n_steps / (passed_ns / 1e9)), 1, 1e-5);
            assert_near(s.first_to_last / first_to_last, 1, 1e-9);
            dpb_summary_release(&s);
            for (uint32_t w = 0; w < n; w++)
                free(journals[w]);
        }
}

TEST(synchronous_rate_is_of_the_time_that_passed)
{
    check_against_ticks(false);
}

TEST(local_rate_is_of_the_common_time)
{
    check_against_ticks(true);
}

/* A step that took no time has no speed: the others count. */
TEST(local_steps_without_time_are_left_out)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    for (int k = 0; k < 6; k++) {
        add_step(a, 0, k == 2 ? 0 : 10);
        add_step(b, 0, 10);
    }
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, true, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_steps, 5);
    assert_int_equal(s.elapsed_ns, 50 * MS);
    dpb_summary_release(&s);
    free(a);
    free(b);
}

TEST(local_without_common_window_says_so)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    add_step(a, 0, 10);
    add_step(b, 500, 10);
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, true, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_true(s.no_common_window);
    assert_true(isnan(s.rate.mean));
    dpb_summary_release(&s);
    free(a);
    free(b);
}

TEST(incomplete_journals_give_what_there_is)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    for (int k = 0; k < 5; k++)
        add_step(a, 0, 10);
    for (int k = 0; k < 4; k++) /* died in its fifth step */
        add_step(b, 0, 10);
    a->timed_from = b->timed_from = 2;
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, false, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_steps, 2);
    assert_int_equal(s.n_losses, 4);
    dpb_summary_release(&s);

    a->timed_from = UINT64_MAX; /* still in warm-up */
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_steps, 0);
    assert_int_equal(s.n_losses, 4);
    assert_true(isnan(s.rate.mean));
    assert_true(isnan(s.breakdown.forward));
    dpb_summary_release(&s);

    journals[1] = NULL; /* never came up */
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_losses, 0);
    dpb_summary_release(&s);
    free(a);
    free(b);
}

TEST(worst_verdict_stands)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->verdict_pattern = DPB_VERDICT_SKIPPED;
    b->verdict_pattern = DPB_VERDICT_FAIL;
    a->verdict_exchange = DPB_VERDICT_PASS;
    b->verdict_exchange = DPB_VERDICT_SKIPPED;
    a->verdict_replicas = b->verdict_replicas = DPB_VERDICT_NOT_APPLICABLE;
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, false, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.pattern, DPB_VERDICT_FAIL);
    assert_int_equal(s.exchange, DPB_VERDICT_SKIPPED);
    assert_int_equal(s.replicas, DPB_VERDICT_NOT_APPLICABLE);
    dpb_summary_release(&s);
    free(a);
    free(b);
}

/* ---- the document -------------------------------------------------------------------------- */

/* An experiment that was never loaded from plugins, and the board of its 2 workers and a server. */
struct bench {
    struct dpb_experiment experiment;
    struct dpb_plugin plugins[DPB_PLUGIN_KINDS];
    struct dpb_board *board;
};

static struct dpb_journal *journal_of(struct bench *bench, uint32_t rank)
{
    size_t bytes;
    return dpb_board_journal(bench->board, rank, &bytes);
}

static int bench_create(void **state)
{
    static const char *const names[] = {"lenet", "idx", "cpu", "shm"};
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
    bench->plugins[DPB_PLUGIN_DEVICE].libraries = libraries;
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
        for (int k = 0; k < 6 && rank < 2; k++)
            add_step(journal, 0, 11);
    }
    struct dpb_journal *first = journal_of(bench, 0);
    first->n_evals = 1;
    first->evals[0] =
        (struct dpb_eval){.step = 6, .loss = 0.5, .correct = 890, .in_top5 = 990, .samples = 1000};
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

TEST_WITH(document_has_every_name, bench_create, bench_destroy)
{
    static const char *const paths[] = {
        "schema",
        "status",
        "error",
        "started",
        "warnings",
        "config.run.workers.value",
        "config.run.workers.origin",
        "config.comm.bucket.value",
        "world.workers",
        "world.servers",
        "world.learners",
        "world.launcher",
        "world.oversubscribed",
        "model.name",
        "model.parameters",
        "model.macs_per_sample",
        "strategy.name",
        "strategy.consistency",
        "batch.per_worker",
        "batch.global",
        "timing.warmup_steps",
        "timing.warmup_step_ns",
        "timing.steps",
        "timing.steady",
        "timing.step_ns",
        "timing.ready",
        "timing.samples_per_s.mean",
        "timing.samples_per_s.median",
        "timing.samples_per_s.p10",
        "timing.samples_per_s.p90",
        "timing.samples_per_s.ci95",
        "timing.samples_per_s.jitter",
        "timing.samples_per_s.uncertainty",
        "timing.breakdown_ns.data_wait",
        "timing.breakdown_ns.forward",
        "timing.breakdown_ns.delay",
        "timing.breakdown_ns.backward",
        "timing.breakdown_ns.optimizer",
        "timing.breakdown_ns.comm_exposed",
        "timing.breakdown_ns.comm_hidden",
        "timing.breakdown_ns.comm_wait_peer",
        "why",
        "comm.bytes_per_step",
        "loss",
        "eval",
        "verification.pattern",
        "verification.exchange",
        "verification.replicas",
        "machine",
        "load",
        "versions.dpbench",
        "versions.compiler",
        "versions.kernel",
        "versions.hwloc.built",
        "versions.jansson.loaded",
        "versions.plugins.comm.version",
        "versions.plugins.device.libraries.oneDNN.loaded",
        "ranks",
    };
    struct bench *bench = *state;
    json_t *document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
    assert_non_null(document);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (dpb_json_at(document, paths[i]) == NULL)
            fail_msg("the result has no %s", paths[i]);
    assert_string_equal(dpb_json_text(document, "schema", ""), "dpbench.result/1");
    assert_string_equal(dpb_json_text(document, "status", ""), "ok");
    assert_true(json_is_null(dpb_json_at(document, "error")));
    assert_string_equal(dpb_json_text(document, "strategy.consistency", ""), "synchronous");
    assert_string_equal(dpb_json_text(document, "config.run.workers.origin", ""), "x.ini:3");
    assert_near(dpb_json_number(document, "config.comm.bucket.value"), 4 << 20, 0);
    assert_near(dpb_json_number(document, "timing.samples_per_s.mean"), 64 / 0.011, 1e-6);
    assert_int_equal(json_array_size(dpb_json_at(document, "timing.step_ns")), 4);
    assert_int_equal(json_array_size(dpb_json_at(document, "timing.samples_per_s.ci95")), 2);
    assert_int_equal(json_array_size(json_object_get(document, "loss")), 6);
    expect_documented(document);
    const json_t *eval = json_array_get(json_object_get(document, "eval"), 0);
    assert_near(dpb_json_number(eval, "accuracy"), 0.89, 1e-12);
    assert_near(dpb_json_number(eval, "step"), 6, 0);
    const json_t *ranks = json_object_get(document, "ranks");
    assert_int_equal(json_array_size(ranks), 3);
    assert_string_equal(dpb_json_text(json_array_get(ranks, 2), "role", ""), "server");
    assert_string_equal(dpb_json_text(json_array_get(ranks, 1), "checksum", ""),
                        "0x0000000000000abc");
    assert_near(dpb_json_number(json_array_get(ranks, 1), "step_ns.median"), 11 * MS, 1e-3);
    assert_false(has_warning(document, "not_finite"));
    json_decref(document);
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
    json_t *json = dpb_monitor_to_json(&bench->experiment, bench->board);
    const json_t *machine = json_array_get(json_object_get(json, "machines"), 0);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        assert_near(json_number_value(json_array_get(json_object_get(machine, names[k]), 0)),
                    (double)k, 1e-12);
    json_decref(json);
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
        journal->gpu.first = (struct dpb_gpu_sample){.known = true, .energy_j = 10};
        journal->gpu.last = (struct dpb_gpu_sample){.known = true, .energy_j = 10 + 4 * 64};
    }
    expect_rates_of_counters(bench);
    for (int hosts = 1; hosts <= 2; hosts++) {
        strcpy(dpb_board_page(bench->board, 0)->host, "a");
        strcpy(dpb_board_page(bench->board, 1)->host, hosts == 1 ? "a" : "b");
        json_t *json = dpb_monitor_to_json(&bench->experiment, bench->board);
        assert_near(dpb_json_number(json, "joules_per_sample.gpus"), hosts, 1e-12);
        json_decref(json);
    }
    dpb_board_destroy(bench->board);
    bench->board = small;
}

TEST_WITH(not_finite_is_null_and_warned_of, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    journal_of(bench, 1)->records[3].loss = NAN;
    json_t *document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
    const json_t *loss = json_object_get(document, "loss");
    assert_true(json_is_null(json_array_get(loss, 3)));
    assert_true(json_is_real(json_array_get(loss, 2)));
    assert_true(has_warning(document, "not_finite"));
    json_decref(document);
}

TEST_WITH(unquiet_run_says_so, bench_create, bench_destroy)
{
    static const char *const codes[] = {"not_steady", "drift", "busy_machine", "throttled"};
    struct bench *bench = *state;
    json_t *document;
    for (int unquiet = 0; unquiet < 2; unquiet++) {
        for (uint32_t rank = 0; rank < 2 && unquiet; rank++) {
            struct dpb_journal *journal = journal_of(bench, rank);
            journal->gated = true;
            journal->steady = false;
            for (uint64_t k = 0; k < journal->n_records; k++)
                journal->records[k].step_ns += (int64_t)k * MS;
        }
        if (unquiet)
            journal_of(bench, 0)->load = (struct dpb_load){
                .known = true, .seconds = 10, .cpus = 2, .others_share = 0.5, .throttled = 3};
        document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            if (has_warning(document, codes[i]) != (unquiet == 1))
                fail_msg("%s: %d", codes[i], unquiet);
        assert_true(json_is_true(dpb_json_at(document, "load.disturbed")) == (unquiet == 1));
        json_decref(document);
    }
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

TEST_WITH(statuses_are_named, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    bench->plugins[DPB_PLUGIN_COMM].capabilities = DPB_COMM_ALONE;
    snprintf(journal_of(bench, 0)->consistency, DPB_LABEL_BYTES, "none");
    json_t *document =
        dpb_result_make(&bench->experiment, bench->board, DPB_INTERRUPTED, "stopped");
    assert_string_equal(dpb_json_text(document, "status", ""), "interrupted");
    assert_string_equal(dpb_json_text(document, "error", ""), "stopped");
    assert_string_equal(dpb_json_text(document, "strategy.consistency", ""), "none");
    json_decref(document);
    document = dpb_result_make(&bench->experiment, NULL, DPB_PEER, "rank 1 died \xff");
    assert_string_equal(dpb_json_text(document, "status", ""), "failed");
    assert_string_equal(dpb_json_text(document, "error", ""), "rank 1 died ?");
    assert_true(json_is_null(dpb_json_at(document, "timing.samples_per_s.mean")));
    json_decref(document);
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
    json_t *document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
    const json_t *warnings = json_object_get(document, "warnings");
    assert_int_equal(json_array_size(warnings), 2); /* the other: too_short */
    assert_near(dpb_json_number(json_array_get(warnings, 0), "count"), 2, 0);
    assert_int_equal(strlen(dpb_json_text(json_array_get(warnings, 0), "text", "")), 256);
    json_decref(document);
}

static char *printed(const json_t *document)
{
    return printed_as(document, dpb_result_print);
}

TEST_WITH(table_closes_with_the_rate, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    json_t *document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
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
    free(text);
    json_decref(document);
    document = dpb_result_make(&bench->experiment, NULL, DPB_PEER, "rank 1 died");
    text = printed(document);
    assert_null(strstr(text, "SamplesPerSec:"));
    assert_non_null(strstr(text, "failed: rank 1 died"));
    free(text);
    json_decref(document);
}

/* One step has a rate and no uncertainty; ten of half a second together have an interval. */
TEST_WITH(table_says_how_sure_it_is, bench_create, bench_destroy)
{
    struct bench *bench = *state;
    for (uint32_t rank = 0; rank < 2; rank++)
        journal_of(bench, rank)->timed_from = 5;
    json_t *document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
    char *text = printed(document);
    assert_null(strstr(text, "nan"));
    assert_non_null(
        strstr(text, "\nSamplesPerSec: 5818.2 (of one step: its uncertainty is unknown)\n"));
    free(text);
    json_decref(document);
    for (int extra = 0; extra < 2; extra++) { /* 9 steps, 10 steps */
        for (uint32_t rank = 0; rank < 2; rank++) {
            journal_of(bench, rank)->timed_from = 6;
            for (int k = 0; k < (extra == 0 ? 9 : 1); k++)
                add_step(journal_of(bench, rank), 0, 100);
        }
        document = dpb_result_make(&bench->experiment, bench->board, DPB_OK, NULL);
        text = printed(document);
        bool interval = strstr(text, "median 640.0 (95 %: 640.0 .. 640.0), p10") != NULL;
        bool too_short = strstr(text, "TOO SHORT") != NULL;
        assert_int_equal(interval, extra == 1);
        assert_int_equal(too_short, extra == 0);
        assert_int_equal(has_warning(document, "too_short"), extra == 0);
        free(text);
        json_decref(document);
    }
}

/* ---- files --------------------------------------------------------------------------------- */

static size_t count_files(const char *directory)
{
    size_t n = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

struct place {
    char root[64], results[128], file[128];
};

static int place_create(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    strcpy(place->root, "/tmp/dpbench-test-XXXXXX");
    if (mkdtemp(place->root) == NULL)
        return -1;
    snprintf(place->results, sizeof place->results, "%s/a/b", place->root);
    snprintf(place->file, sizeof place->file, "%s/out.json", place->root);
    *state = place;
    dpb_first_error_clear();
    return 0;
}

static int place_destroy(void **state)
{
    struct place *place = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place->root);
    int rc = system(command);
    free(place);
    return rc;
}

TEST_WITH(never_over_another_runs_file, place_create, place_destroy)
{
    struct place *place = *state;
    char name[PATH_MAX];
    json_t *document =
        json_pack("{s:{s:s}, s:{s:i}}", "strategy", "name", "shm", "world", "workers", 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(dpb_result_write(document, NULL, place->results, "my run/1", name),
                         DPB_OK);
        assert_int_equal(count_files(place->results), i + 1);
        json_t *read = json_load_file(name, 0, NULL);
        assert_true(json_equal(read, document));
        json_decref(read);
    }
    assert_non_null(strstr(name, "/a/b/my_run_1-shm-w2-"));
    json_decref(document);
}

/* Names that no file can have, or that a shell or `ls` would take for something else. */
TEST_WITH(any_name_makes_a_file, place_create, place_destroy)
{
    static const struct {
        const char *run_name, *file;
    } rows[] = {{"", "/unnamed-shm-"}, {"-rf", "/_rf-shm-"}, {"../x", "/_._x-shm-"}};
    struct place *place = *state;
    char name[PATH_MAX], longest[4096];
    json_t *document = json_pack("{s:{s:s}}", "strategy", "name", "shm");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(dpb_result_write(document, NULL, place->results, rows[i].run_name, name),
                         DPB_OK);
        if (strstr(name, rows[i].file) == NULL)
            fail_msg("run.name = '%s' makes %s", rows[i].run_name, name);
    }
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(dpb_result_write(document, NULL, place->results, longest, name), DPB_OK);
    assert_non_null(strstr(name, "x-shm-"));
    json_decref(document);
}

TEST_WITH(named_file_is_replaced_whole, place_create, place_destroy)
{
    struct place *place = *state;
    char name[PATH_MAX];
    json_t *old = json_pack("{s:i}", "old", 1), *new = json_object();
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        json_object_set_new(new, key, json_integer(i));
    }
    assert_int_equal(dpb_result_write(old, place->file, "unused", "run", name), DPB_OK);
    assert_string_equal(name, place->file);

    /* A disk that is full after 4 KiB. */
    struct rlimit kept, small = {4096, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &kept);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    dpb_status status = dpb_result_write(new, place->file, "unused", "run", name);
    setrlimit(RLIMIT_FSIZE, &kept);
    assert_int_equal(status, DPB_IO);
    assert_non_null(strstr(dpb_first_error(NULL), place->file));
    assert_int_equal(count_files(place->root), 1);
    json_t *read = json_load_file(place->file, 0, NULL);
    assert_true(json_equal(read, old));
    json_decref(read);

    assert_int_equal(dpb_result_write(new, place->file, "unused", "run", name), DPB_OK);
    read = json_load_file(place->file, 0, NULL);
    assert_true(json_equal(read, new));
    assert_int_equal(count_files(place->root), 1);
    json_decref(read);
    json_decref(old);
    json_decref(new);
}

TEST_WITH(probe_refuses_and_leaves_nothing, place_create, place_destroy)
{
    struct place *place = *state;
    char below[160];
    assert_int_equal(dpb_result_probe(NULL, place->results), DPB_OK);
    assert_int_equal(count_files(place->root), 0);
    assert_int_equal(dpb_result_probe(NULL, ""), DPB_OK);

    int fd = open(place->file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    close(fd);
    snprintf(below, sizeof below, "%s/sub", place->file);
    assert_int_equal(dpb_result_probe(NULL, below), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "--output FILE"));
    assert_int_equal(dpb_result_probe(NULL, place->file), DPB_USAGE);
    assert_int_equal(dpb_result_probe(below, "unused"), DPB_USAGE);
    assert_int_equal(dpb_result_probe(place->root, "unused"), DPB_USAGE);
    assert_int_equal(dpb_result_probe(place->file, "unused"), DPB_OK);
    assert_int_equal(count_files(place->root), 1);

    /* What is no file would be replaced by one: root's /dev/null. */
    unlink(place->file);
    assert_int_equal(mkfifo(place->file, 0600), 0);
    dpb_first_error_clear();
    assert_int_equal(dpb_result_probe(place->file, "unused"), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "no regular file"));
}

TEST_MAIN(NULL, NULL)
