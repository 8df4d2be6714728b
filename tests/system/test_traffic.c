/* needs: threads cells */
/*
 * test_traffic.c - strategies read, write and keep what their definitions say.
 *
 * Counted twice: by what they report (comm.bytes_per_step), and by a plugin between them and core
 * that looks at the addresses they sum and copy (tests/plugins/comm_mutant.c, `audited`).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

enum { MOST_WORKERS = 4, STEPS = 5, BUCKET = 37 /* elements */ };

static void expect_equal(const struct training *training, const char *what, double actual,
                         double expected)
{
    if (actual != expected)
        fail_msg("%s\n%s: %.17g, not %.17g", training->settings, what, actual, expected);
}

/* ---- bytes of a step ----------------------------------------------------------------------- */

static uint64_t slice_size(uint64_t length, uint64_t i, uint64_t n)
{
    return length * (i + 1) / n - length * i / n;
}

/* Of hierarchical on two machines, one with a worker more: that one has no ring, and its part of a
 * bucket is summed into the arenas of those who have. */
static double handed_over(uint64_t elements, int workers)
{
    uint64_t n = (uint64_t)(workers - workers / 2), moved = 0;
    for (uint64_t at = 0; at < elements && workers > 1 && workers % 2 == 1; at += BUCKET) {
        uint64_t length = elements - at < BUCKET ? elements - at : BUCKET;
        for (uint64_t place = 0; place < n; place++)
            for (uint64_t e = length * place / n; e < length * (place + 1) / n; e++)
                moved += place + 1 == n || e < length * place / (n - 1) ||
                         e >= length * (place + 1) / (n - 1);
    }
    return (double)moved;
}

/* Of all processes together: an element's gradient has g bytes, its weight w. */
static double bytes_of_step(const struct strategy_form *form, int workers, uint64_t elements,
                            int gradient_bytes, int weight_bytes)
{
    double g = (double)elements * gradient_bytes, w = (double)elements * weight_bytes;
    double extra = form->machines ? handed_over(elements, workers) * gradient_bytes : 0.0;
    if (strcmp(form->name, "ps_cpu") != 0 && !form->sharded)
        return 2.0 * (workers - 1) * g + extra;
    return form->servers > 0 ? workers * (g + w) : (workers - 1) * (g + w) + extra;
}

/* Each pair of form, workers and type occurs: a number of workers has one of the types, by turns.
 * With DPB_ALL_CELLS (check-long) it has all. */
static void test_bytes_reported(void **state)
{
    static const struct {
        const char *settings;
        int gradient_bytes, weight_bytes;
    } types[] = {
        {"run.precision=fp64", 8, 8},
        {"run.precision=fp32", 4, 4},
        {"run.precision=fp32 comm.gradient=bf16", 2, 4},
    };
    const struct strategy_form *form = *state;
    /* A library takes a millisecond for a bucket, and has no bytes of its own for one. */
    const int bucket = BUCKET * (strategy_named(form->name)->library ? 5 : 1);
    enum { N_TYPES = sizeof types / sizeof types[0] };
    static size_t turn;
    turn++;
    for (size_t t = 0; t < N_TYPES; t++)
        for (int workers = 1; workers <= MOST_WORKERS; workers++) {
            struct training training;
            const bool has_turn = (turn + (size_t)workers) % N_TYPES == t;
            if (!is_cell(form, workers, false) || !(has_turn || getenv("DPB_ALL_CELLS")))
                continue;
            train(&training, "model.name=tiny run.steps=2 %s %s comm.bucket=%d", types[t].settings,
                  form_settings(form, "", workers), bucket * types[t].gradient_bytes);
            expect_equal(&training, "comm.bytes_per_step",
                         json_number_at(training.command.json, "comm.bytes_per_step"),
                         bytes_of_step(form, workers, weights_arena_elements(&training.weights),
                                       types[t].gradient_bytes, types[t].weight_bytes));
        }
}

/* A strategy that reports less than any exact exchange moves, or computes on a core of its own, is
 * warned of; and nobody else. */
TEST(test_untold)
{
    static const struct {
        const char *mutation, *warning;
        int steps;
    } rows[] = {{"half_bytes", "few_bytes", 20},
                {"own_thread", "undeclared_threads", 300}, /* its processor time must be counted */
                {"none", "-", 300}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        train(&training,
              "model.name=tiny run.workers=2 run.steps=%d comm.name=mutant_shm "
              "comm.mutation=%s",
              rows[i].steps, rows[i].mutation);
        for (size_t k = 0; k < 2; k++) {
            char code[32];
            snprintf(code, sizeof code, "\"%s\"", rows[k].warning);
            if ((strstr(training.command.out, code) != NULL) != (i == k))
                fail_msg("%s: %s: %s", rows[i].mutation, code, training.command.out);
        }
    }
}

TEST(test_independent_moves_nothing)
{
    struct training training;
    train(&training, "model.name=tiny run.workers=3 comm.name=independent run.steps=400");
    expect_equal(&training, "comm.bytes_per_step",
                 json_number_at(training.command.json, "comm.bytes_per_step"), 0.0);
}

/* ---- who does what ------------------------------------------------------------------------- */

struct audit {
    unsigned long long summed, read, wrote, reported; /* of all steps */
};

static struct audit audit_of(const struct training *training, int rank)
{
    char head[64];
    struct audit audit;
    snprintf(head, sizeof head, "audit of rank %d: ", rank);
    const char *line = strstr(training->command.err, head);
    if (!line || sscanf(line + strlen(head), "summed %llu, read %llu, wrote %llu, reported %llu",
                        &audit.summed, &audit.read, &audit.wrote, &audit.reported) != 4)
        fail_msg("%s\nno audit of rank %d: %s", training->settings, rank, training->command.err);
    return audit;
}

/* The part of a bucket that is summed on `rank`: as the strategies' definitions have it. */
static uint64_t share_of(const struct strategy_form *form, int workers, uint64_t bucket,
                         uint64_t length, int rank)
{
    uint64_t n = form->servers > 0 ? (uint64_t)form->servers : (uint64_t)workers;
    uint64_t shard = (uint64_t)(form->servers > 0 ? rank - workers : rank);
    if (form->servers > 0 && rank < workers)
        return 0;
    if (strcmp(form->name, "replicated") == 0)
        return bucket % n == shard ? length : 0;
    if (strcmp(form->name, "ps_cpu") == 0)
        shard = (shard + bucket) % n;
    return slice_size(length, shard, n);
}

/* The position in the ring is the rank. A rank adds its part to all slices but that which begins
 * with it; it sends all but the one it does not reduce further and all but the one it is the last
 * to get. */
static void expect_ring_audit(const struct training *training, int workers, int rank)
{
    uint64_t all = weights_arena_elements(&training->weights), summed = 0, sent = 0;
    uint64_t n = (uint64_t)workers, self = (uint64_t)rank;
    for (uint64_t at = 0; at < all && n > 1; at += BUCKET) {
        uint64_t length = all - at < BUCKET ? all - at : BUCKET, sizes[MOST_WORKERS];
        for (uint64_t slice = 0; slice < n; slice++)
            sizes[slice] = slice_size(length, slice, n);
        summed += length - sizes[self];
        sent += length - sizes[(self + 1) % n] + length - sizes[(self + 2) % n];
    }
    struct audit audit = audit_of(training, rank);
    expect_equal(training, "elements summed by a rank", (double)audit.summed,
                 (double)(STEPS * summed));
    expect_equal(training, "bytes sent by a rank", (double)audit.reported,
                 (double)(STEPS * 8 * sent));
    expect_equal(training, "bytes of others' memory touched", (double)(audit.read + audit.wrote),
                 0.0);
}

/* Two machines: a rank sums its part over its machine, adds its part of the ring's slice to what
 * comes from the other (half of the slice), sends a slice in all, and writes it into the arenas of
 * its machine. Where there is one worker more than places with a ring, all but the totals depends
 * on the edges. */
static void expect_machines_audit(const struct training *training, int workers, int rank)
{
    uint64_t all = weights_arena_elements(&training->weights), summed = 0, read = 0, own = 0;
    uint64_t n = (uint64_t)workers / 2, self = (uint64_t)rank % n, others = n - 1;
    struct audit audit = audit_of(training, rank);
    if (workers % 2 == 1) {
        expect_equal(training, "bytes reported, of those touched and sent", 1.0,
                     audit.reported >= audit.read + audit.wrote);
        return;
    }
    for (uint64_t at = 0; at < all; at += BUCKET) {
        uint64_t slice = slice_size(all - at < BUCKET ? all - at : BUCKET, self, n);
        summed += (n > 1 ? slice : 0) + slice_size(slice, (uint64_t)rank < n ? 1 : 0, 2);
        read += others * slice;
        own += slice;
    }
    expect_equal(training, "elements summed by a rank", (double)audit.summed,
                 (double)(STEPS * summed));
    expect_equal(training, "bytes read by a rank", (double)audit.read, (double)(STEPS * 8 * read));
    expect_equal(training, "bytes written by a rank", (double)audit.wrote,
                 (double)(STEPS * 8 * others * own));
    expect_equal(training, "bytes sent by a rank",
                 (double)(audit.reported - audit.read - audit.wrote), (double)(STEPS * 8 * own));
}

static void expect_audit(const struct training *training, const struct strategy_form *form,
                         int workers, int rank)
{
    if (form->machines && workers > 1) {
        expect_machines_audit(training, workers, rank);
        return;
    }
    if (form->ring && !form->machines) {
        expect_ring_audit(training, workers, rank);
        return;
    }
    uint64_t all = weights_arena_elements(&training->weights), own = 0;
    for (uint64_t at = 0; at < all; at += BUCKET)
        own += share_of(form, workers, at / BUCKET, all - at < BUCKET ? all - at : BUCKET, rank);
    bool shm = strcmp(form->name, "shm") == 0 || form->machines, server = rank >= workers;
    shm = shm || (form->sharded && workers > 1); /* as shm's: owners write the weights */
    uint64_t sources = (uint64_t)(server ? workers : workers - 1);
    uint64_t fetched = shm || server ? 0 : all - own; /* sums or weights from where they are made */
    uint64_t given = shm ? sources * own : 0;
    bool sums = workers > 1 || strcmp(form->name, "replicated") != 0; /* alone it has nothing to */
    struct audit audit = audit_of(training, rank);
    char what[64];
    snprintf(what, sizeof what, "elements summed on rank %d", rank);
    expect_equal(training, what, (double)audit.summed, (double)(sums ? STEPS * own : 0));
    snprintf(what, sizeof what, "bytes read by rank %d", rank);
    expect_equal(training, what, (double)audit.read,
                 (double)(STEPS * 8 * (sources * own + fetched)));
    snprintf(what, sizeof what, "bytes written by rank %d", rank);
    expect_equal(training, what, (double)audit.wrote, (double)(STEPS * 8 * given));
}

static void test_audit(void **state)
{
    const struct strategy_form *form = *state;
    for (int workers = 1; workers <= MOST_WORKERS; workers++) {
        struct training training;
        double touched = 0.0, reported = 0.0;
        train(&training,
              "model.name=tiny %s comm.bucket=%d run.steps=%d comm.mutation=audited comm.from=1 "
              "comm.until=%d",
              form_settings(form, "mutant_", workers), BUCKET * 8, STEPS, STEPS + 1);
        for (int rank = 0; rank < workers + form->servers; rank++) {
            struct audit audit = audit_of(&training, rank);
            expect_audit(&training, form, workers, rank);
            touched += (double)(form->ring ? audit.reported : audit.read + audit.wrote);
            reported += rank < workers ? (double)audit.reported : 0.0;
        }
        expect_equal(&training, "bytes reported, of bytes touched", reported, touched);
        expect_equal(&training, "comm.bytes_per_step, of bytes touched",
                     json_number_at(training.command.json, "comm.bytes_per_step"), touched / STEPS);
    }
}

/* ---- what a worker keeps -------------------------------------------------------------------- */

static double kept(const struct training *training, int rank, const char *what)
{
    char path[64];
    snprintf(path, sizeof path, "ranks.%d.memory.%s_bytes", rank, what);
    return json_number_at(training->command.json, path);
}

static double state_by_check(const char *settings)
{
    struct command command;
    dpbench(&command, 60.0, "check -c /dev/null model.name=lenet run.steps=1 comm.bucket=32KiB %s",
            settings);
    const char *at = strstr(command.out, "optimizer state ");
    if (command.exit_code != 0 || !at)
        fail_msg("%s: %s%s", settings, command.out, command.err);
    const double mib = strtod(at + strlen("optimizer state "), NULL);
    return mib;
}

/* Each has a W-th of the optimizer's state, within a bucket; together they have all of it. */
static void test_shards_kept(void **state)
{
    const struct strategy_form *form = *state;
    const int workers = form->machines ? 4 : 3; /* as many on each machine */
    struct strategy_form whole_form = *form;
    struct training whole, sharded;
    double sum = 0.0;
    whole_form.sharded = false;
    train(&whole, "model.name=tiny optimizer.name=adam comm.bucket=%d %s", BUCKET * 8,
          form_settings(&whole_form, "", workers));
    train(&sharded, "model.name=tiny optimizer.name=adam comm.bucket=%d %s", BUCKET * 8,
          form_settings(form, "", workers));
    const double all = kept(&whole, 0, "optimizer_state");
    expect_equal(&whole, "bytes of Adam's state", all, 2 * kept(&whole, 0, "weights"));
    for (int rank = 0; rank < workers; rank++) {
        const double own = kept(&sharded, rank, "optimizer_state");
        if (fabs(own - all / workers) > 2 * 8 * BUCKET)
            fail_msg("%s: rank %d keeps %g bytes of %g", sharded.settings, rank, own, all);
        expect_equal(&sharded, "bytes of weights", kept(&sharded, rank, "weights"), all / 2);
        expect_equal(&sharded, "bytes of gradients", kept(&sharded, rank, "gradients"), all / 2);
        sum += own;
    }
    expect_equal(&sharded, "bytes of state, of all workers", sum, all);
    const double mib = state_by_check(form_settings(&whole_form, "", workers));
    const double shard_mib = state_by_check(form_settings(form, "", workers));
    if (mib < 1 || fabs(shard_mib - mib / workers) > 0.1)
        fail_msg("%s: check says %g MiB of state, and %g in all", form->label, shard_mib, mib);
}

/* With slots the plan rounds a bucket up to a page, and `check` counts by that bucket. */
TEST(test_state_of_whole_pages)
{
    static const char *const strategies[] = {"shm", "ring_tcp"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        char settings[160];
        snprintf(settings, sizeof settings,
                 "comm.name=%s comm.shard=gradients run.workers=4 optimizer.name=adam "
                 "comm.bucket=4096",
                 strategies[i]);
        const double mib = state_by_check(settings);
        settings[strlen(settings) - 3] = '\0'; /* an element in place of a page */
        if (mib < 0.5 || state_by_check(settings) != mib)
            fail_msg("%s: check says %g MiB of state, not %g", settings, state_by_check(settings),
                     mib);
    }
}

/* Where servers keep the optimizer's state, `check` counts none for a worker. */
TEST(test_served_state)
{
    static const char *const served[] = {"comm.name=ps_cpu", "comm.name=ps_async"};
    for (size_t i = 0; i < sizeof served / sizeof *served; i++) {
        char settings[128];
        snprintf(settings, sizeof settings, "%s run.servers=2 optimizer.name=adam", served[i]);
        const double mib = state_by_check(settings);
        if (mib > 0)
            fail_msg("%s: check says %g MiB of state", settings, mib);
    }
}

int main(void)
{
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        add_case(test_bytes_reported, form, "bytes reported, %s", form->label);
        if (!form->network || form->ring)
            add_case(test_audit, form, "who reads and writes what, %s", form->label);
    }
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));)
        if (form->sharded)
            add_case(test_shards_kept, form, "optimizer state is kept once, %s", form->label);
    return test_main(training_setup_mutants, training_teardown);
}
