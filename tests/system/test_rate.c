/*
 * test_rate.c - the rate of a run against a clock outside of dpbench: the device `timed` writes
 * down when each pass began. In every run one worker jitters. Where workers exchange, rank 0 gets
 * its new weights late in every other step (tests/plugins/comm_paused.c): workers end their steps
 * apart, and the longest steps sum to far more than the time that passed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpbench/comm.h"
#include "lib/launchers.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/timed.h"

enum { WORKERS = 16, STEPS = 25, WARM = 2, TRIES = 6, AHEAD_S = 1000 };

static const double bound = 0.005;

static const struct form {
    const char *name;
    uint32_t n_workers;
    bool hosts; /* worker 1 on a machine whose clock is another */
} special[] = {
    {"ring_tcp", 2, true},     {"independent", 2, true},   {"shm", 1, false},
    {"shm", 4, false},         {"shm", 16, false},         {"ps_cpu", 16, false},
    {"ring_tcp", 16, false},   {"independent", 1, false},  {"independent", 2, false},
    {"independent", 4, false}, {"independent", 16, false},
};
enum { N_SPECIAL = sizeof special / sizeof *special, MOST_FORMS = 64 };
/* These, and two workers of each synchronous strategy. */
static struct form forms[MOST_FORMS];
static size_t n_forms;

static bool is_apart(const struct form *form)
{
    return strcmp(form->name, "independent") == 0 && form->n_workers > 1;
}

/* ---- the clock outside --------------------------------------------------------------------- */

/* When each worker began its timed steps, and (the last) ended its last backward pass. */
static int64_t begins[WORKERS][STEPS + 1];

static void read_begins(const struct form *form)
{
    static struct timed_pass passes[TIMED_PASSES];
    for (uint32_t w = 0; w < form->n_workers; w++) {
        int64_t ahead_ns = form->hosts && w == 1 ? AHEAD_S * INT64_C(1000000000) : 0;
        assert_int_equal(timed_trace(w, passes), WARM + STEPS);
        for (int k = 0; k < STEPS; k++)
            begins[w][k] = passes[WARM + k].forward.begin - ahead_ns;
        begins[w][STEPS] = passes[WARM + STEPS - 1].backward.end - ahead_ns;
    }
}

static double least(uint32_t n_workers, int k)
{
    int64_t at = INT64_MAX;
    for (uint32_t w = 0; w < n_workers; w++)
        at = begins[w][k] < at ? begins[w][k] : at;
    return (double)at;
}

static double most(uint32_t n_workers, int k)
{
    int64_t at = INT64_MIN;
    for (uint32_t w = 0; w < n_workers; w++)
        at = begins[w][k] > at ? begins[w][k] : at;
    return (double)at;
}

/* Global batches that all workers have done by `at`; a step under way counts by its share. */
static double done_by(uint32_t n_workers, double at)
{
    double done = 0;
    for (uint32_t w = 0; w < n_workers; w++) {
        int k = 0;
        while (k < STEPS - 1 && (double)begins[w][k + 1] <= at)
            k++;
        double length = (double)(begins[w][k + 1] - begins[w][k]);
        done += k + (at - (double)begins[w][k]) / length;
    }
    return done / n_workers;
}

/* ---- what dpbench says --------------------------------------------------------------------- */

static double sum_of_steps(const json_t *document, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += json_number_value(json_array_get(json_at(document, "timing.step_ns"), k));
    return sum;
}

/* The end of the last step is nobody's begin, so it is left out. */
static double error_together(const json_t *document, uint32_t n_workers)
{
    double passed = most(n_workers, STEPS - 1) - least(n_workers, 0), longest = 0;
    assert_int_equal(json_number_at(document, "timing.steps"), STEPS);
    for (int k = 0; k + 1 < STEPS; k++) {
        int64_t step = 0;
        for (uint32_t w = 0; w < n_workers; w++) {
            int64_t own = begins[w][k + 1] - begins[w][k];
            step = own > step ? own : step;
        }
        longest += (double)step;
    }
    if (n_workers > 1 && !(longest > (1 + 8 * bound) * passed))
        fail_msg("the workers are not apart: %.3f ms passed, the longest steps sum to %.3f",
                 passed / 1e6, longest / 1e6);
    return sum_of_steps(document, STEPS - 1) / passed - 1;
}

/* The time in which all workers run, from the last first begin. */
static double error_apart(const json_t *document, uint32_t n_workers)
{
    size_t n = json_array_size(json_at(document, "timing.step_ns"));
    double from = most(n_workers, 0), low = from, high = least(n_workers, STEPS);
    double before = done_by(n_workers, from);
    if (n < STEPS / 4) /* a busy machine let them run one after the other: try again */
        return INFINITY;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(done_by(n_workers, middle) - before < (double)n ? &low : &high) = middle;
    }
    double all = (double)STEPS * json_number_at(document, "batch.global");
    double first_to_last = all * 1e9 / (most(n_workers, STEPS) - least(n_workers, 0));
    double error = sum_of_steps(document, n) / (low - from) - 1;
    double other =
        json_number_at(document, "timing.samples_per_s.first_to_last") / first_to_last - 1;
    return fabs(other) > fabs(error) ? other : error;
}

/* Steps, parts and rate are three views of one time. */
static void check_sums(const json_t *document)
{
    static const char *const parts[] = {"data_wait", "forward",   "delay",
                                        "backward",  "optimizer", "comm_exposed"};
    double elapsed = json_number_at(document, "timing.elapsed_ns"), sum = 0;
    double steps = json_number_at(document, "timing.steps");
    double rate = json_number_at(document, "batch.global") * steps * 1e9 / elapsed;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        sum += json_number_at(json_at(document, "timing.breakdown_ns"), parts[i]);
    assert_true(fabs(sum - elapsed / steps) < 0.01);
    assert_true(fabs(sum_of_steps(document, (size_t)steps) - elapsed) < 0.5);
    assert_true(fabs(json_number_at(document, "timing.samples_per_s.mean") / rate - 1) < 1e-9);
}

static char late[64];

/* The machine `other` has names, shared memory and a clock of its own. mpirun enters by a script
 * in place of ssh. */
static void run_on_hosts(struct command *command, const char *options)
{
    char line[4096], own[128];
    assert_int_equal(gethostname(own, sizeof own), 0);
    char *program = NULL;
    assert_true(asprintf(&program, "%s/dpbench", build_directory()) > 0);
    char *real = realpath(program, NULL);
    free(program);
    assert_non_null(real);
    snprintf(line, sizeof line,
             "exec mpirun --allow-run-as-root --oversubscribe --bind-to none --mca plm_rsh_agent "
             "%s/agent -H %s:1,other:1 -np 2 -x DPBENCH_PLUGIN_PATH -x DPB_LATE_MS %s -c "
             "%s/timed.ini --json device.trace=%s/trace %s",
             late, own, real, timed_directory(), timed_directory(), options);
    free(real);
    command_run(command, TIMED_DEADLINE_S, WORDS("/bin/sh", "-c", line), NULL);
    if (command->exit_code != 0 || json_number_at(command->json, "world.machines") != 2)
        fail_msg("%s: exit %d\n%s", line, command->exit_code, command->err);
}

static void test_rate(void **state)
{
    const struct form *form = *state;
    uint32_t n = form->n_workers;
    double error = INFINITY;
    for (int i = 0; i < TRIES && !(fabs(error) <= bound); i++) {
        struct command command;
        char options[512];
        snprintf(options, sizeof options,
                 "comm.name=%s run.workers=%u run.servers=0 run.warmup_steps=%d run.steps=%d "
                 "device.forward=8 device.backward=8 device.late_rank=%u device.jitter=6",
                 form->name, n, WARM, STEPS, n - 1);
        if (form->hosts)
            run_on_hosts(&command, options);
        else
            timed_run(&command, 0, "%s", options);
        read_begins(form);
        if (json_number_at(command.json, "timing.steps") > 0) /* some ran beside each other */
            check_sums(command.json);
        error = is_apart(form) ? error_apart(command.json, n) : error_together(command.json, n);
        print_message("%s, %u workers: the rate is off by %.3f %%\n", form->name, n, -100 * error);
    }
    if (!(fabs(error) <= bound))
        fail_msg("%s, %u workers: off by %.2f %% in the last of %d tries", form->name, n,
                 -100 * error, TRIES);
}

/* ---- the program --------------------------------------------------------------------------- */

static void make_forms(bool has_hosts)
{
    for (size_t i = 0; i < N_SPECIAL; i++)
        if (strategy_named(special[i].name) && (!special[i].hosts || has_hosts))
            forms[n_forms++] = special[i];
    for (const struct strategy *s = NULL; (s = strategy_after(s));)
        if (s->synchronous && strategy_on_host(s) && !(s->capabilities & DPB_COMM_SERVED)) {
            assert_true(n_forms < MOST_FORMS);
            forms[n_forms++] = (struct form){s->name, 2, false};
        }
}

/* What starts processes on two machines, and gives one of them another clock. */
static bool find_hosts(void)
{
    struct command command;
    if (!strategy_named("mpi")) /* no launcher was built in */
        return false;
    command_run(&command, TIMED_DEADLINE_S,
                WORDS("/bin/sh", "-c",
                      "command -v mpirun && unshare -T --monotonic 1 --uts --ipc "
                      "--fork --kill-child hostname other"),
                NULL);
    bool found = command.exit_code == 0;
    return found;
}

static int setup(void **state)
{
    char own[1024], path[2048];
    int result = timed_setup(state);
    temporary_directory(late);
    snprintf(own, sizeof own, "%s/tests/plugins/comm_paused.so", build_directory());
    char *real = realpath(own, NULL);
    assert_non_null(real);
    for (size_t i = 0; i < n_forms; i++) {
        struct command command;
        snprintf(path, sizeof path, "%s/%s.so", late, strategy_named(forms[i].name)->plugin);
        if (access(path, F_OK) == 0 || strcmp(forms[i].name, "independent") == 0)
            continue;
        command_run(&command, TIMED_DEADLINE_S, WORDS("/usr/bin/env", "cp", real, path), NULL);
        assert_int_equal(command.exit_code, 0);
    }
    free(real);
    snprintf(path, sizeof path, "%s:%s", late, getenv("DPBENCH_PLUGIN_PATH"));
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    setenv("DPB_LATE_MS", "8", 1);
    snprintf(path, sizeof path, "%s/agent", late);
    snprintf(own, sizeof own,
             "#!/bin/sh\n"
             "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
             "h=$1; shift\n"
             "exec unshare -T --monotonic %d --uts --ipc --fork --kill-child sh -c \"hostname $h; "
             "$*\"\n",
             AHEAD_S);
    write_file(path, own, strlen(own));
    assert_int_equal(chmod(path, 0755), 0);
    launchers_allow_root();
    return result;
}

static int teardown(void **state)
{
    remove_directory(late);
    return timed_teardown(state);
}

int main(void)
{
    make_forms(find_hosts());
    for (const struct form *form = forms; form < forms + n_forms; form++)
        add_case(test_rate, form, "%s, %u workers%s", form->name, form->n_workers,
                 form->hosts ? ", two machines" : "");
    return test_main(setup, teardown);
}
