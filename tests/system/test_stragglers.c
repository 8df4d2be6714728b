/* needs: plain waits cells */
/*
 * test_stragglers.c - beside exponential delays updates by comm.policy take the
 * time that Dutta et al. (AISTATS 2018) derive. W workers on the timed device, mean delay m, K
 * gradients an update:
 *
 *     k_sync         base + m (H(W) - H(W - K)), the K-th smallest of W delays
 *     k_batch_sync   base (1 + (K - 1) / W) + m K / W, for W workers together give W / m gradients
 *                    a second; but each of the K - 1 before the last has its worker begin anew
 *     k_async        base + m (H(W) - H(W - K)), for delays that have begun have the same rest
 *     k_batch_async  base + m K / W
 *
 * `base`, an update without delays, is measured just before, with as many processes. A process that
 * only sleeps beside both runs shows how late the machine wakes. An update may be off by a tenth,
 * and by that lateness for each of the WAKES on its way. A worker that does not hear that it is
 * cancelled makes both longer: the same check fails. Where others had the cores in each try,
 * nothing is decided and the case is skipped. With DPB_ALL_CELLS (make check-long) there are worlds
 * of 8 workers, too, runs are four times as long, and an update may be off by 5 %.
 *
 * Workers that average their weights wait in meetings alone. Beside a given trace of delays
 * local_sgd takes in each period the largest of the workers' sums, and not the sum of the largest.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/test.h"
#include "lib/timed.h"

#include "plan/delay.h"

/* On the way of an update are a worker's forward and delay, the server, and the worker again. */
enum { WAKES = 4 };

enum { TRIES = 3, MOST_WORKERS = 8 };

#define MEAN_MS 40
#define BUSY_LATE_MS 0.3 /* beside a random load 0.4 to 4.6 */

/* How long runs are: a rate of so many gradients has an error of 4 % (2 %). */
static unsigned steps = 75, gradients = 600;
static double within = 0.1;

static const struct policy {
    const char *name;
    unsigned workers, k;
} policies[] = {{"k_sync", 4, 2},        {"k_batch_sync", 4, 4}, {"k_async", 4, 2},
                {"k_batch_async", 4, 3}, {"k_sync", 8, 5},       {"k_batch_sync", 8, 4},
                {"k_async", 8, 5},       {"k_batch_async", 8, 4}};
enum { USUAL = 4 /* of them, of 4 workers */ };

static bool is_batch(const struct policy *policy)
{
    return strstr(policy->name, "batch") != NULL;
}

static bool is_named(const struct policy *policy, const char *name)
{
    return strcmp(policy->name, name) == 0;
}

/* What the paper says that delays add to an update. */
static double delay_ms(const struct policy *policy)
{
    double sum = 0.0;
    if (is_batch(policy))
        return (double)MEAN_MS * policy->k / policy->workers;
    for (unsigned i = policy->workers - policy->k + 1; i <= policy->workers; i++)
        sum += 1.0 / i;
    return MEAN_MS * sum;
}

/* ---- seeds --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The mean of the K-th smallest delays of the timed steps of k_sync. */
static double planned_ms(const struct policy *policy, uint64_t seed)
{
    struct dpb_delay delay;
    double sum = 0.0;
    char text[32];
    snprintf(text, sizeof text, "exponential(%d ms)", MEAN_MS);
    assert_int_equal(dpb_delay_make(text, "", "all", "", policy->workers, seed, &delay), DPB_OK);
    for (uint64_t step = 1; step <= steps; step++) {
        int64_t of[MOST_WORKERS];
        for (uint32_t rank = 0; rank < policy->workers; rank++)
            of[rank] = dpb_delay_of(&delay, rank, step);
        qsort(of, policy->workers, sizeof *of, compare);
        sum += (double)of[policy->k - 1];
    }
    return sum / steps * 1e-6;
}

/* The next seed from `seed` on by which the delays of `steps` have the mean that they are
 * expected to have: of so few it would be off by 8 %. The workers of the other policies are in no
 * common step, so any seed will do. */
static uint64_t choose_seed(const struct policy *policy, uint64_t seed)
{
    while (is_named(policy, "k_sync") &&
           fabs(planned_ms(policy, seed) / delay_ms(policy) - 1.0) > 0.005)
        seed++;
    return seed;
}

/* ---- runs ---------------------------------------------------------------------------------- */

/* Of an update: K gradients that count. */
static double update_ms(const struct policy *policy, const char *comm, unsigned n_steps,
                        const char *settings)
{
    struct command command;
    timed_run(&command, 0,
              "comm.name=%s comm.policy=%s comm.k=%u run.workers=%u run.servers=1 run.batch=1 "
              "run.prove=no device.forward=1 device.backward=0 run.steps=%u %s",
              comm, policy->name, policy->k, policy->workers, n_steps, settings);
    const double rate = json_number_at(command.json, "strategy.age.counted_samples_per_s");
    assert_true(rate > 0.0); /* there was a time in which all workers ran */
    return policy->k / rate * 1e3;
}

/* By how much an update is off what the formula says, as a share of it; less what the machine
 * explains: how late it wakes a process, and how an update without delays differs before and after.
 * *busy stays where others had the cores. */
static double error_of(const struct policy *policy, const char *comm, uint64_t seed, bool *busy)
{
    char settings[96];
    /* Half of the steps of k_batch_sync are cancelled, or somewhat less. */
    const unsigned n_steps = is_named(policy, "k_sync")         ? steps
                             : is_named(policy, "k_batch_sync") ? 2 * gradients / policy->workers
                                                                : gradients / policy->workers;
    snprintf(settings, sizeof settings, "run.delay=exponential(%dms) run.seed=%llu", MEAN_MS,
             (unsigned long long)seed);
    timed_napper_start();
    const double before = update_ms(policy, comm, n_steps, "");
    const double is = update_ms(policy, comm, n_steps, settings);
    const double after = update_ms(policy, comm, n_steps, "");
    const double late = timed_napper_stop();
    *busy = *busy && timed_was_busy() && late > BUSY_LATE_MS;
    const double begins =
        is_named(policy, "k_batch_sync") ? 1.0 + (policy->k - 1.0) / policy->workers : 1.0;
    const double least = begins * fmin(before, after) + delay_ms(policy);
    const double most = begins * fmax(before, after) + delay_ms(policy);
    const double off = fmax(fmax(least - is, is - most), 0.0);
    print_message("%s, %u of %u, %s: an update %.2f ms, expected %.2f to %.2f ms (%.1f %% off), "
                  "wakes %.2f ms late\n",
                  policy->name, policy->k, policy->workers, comm, is, least, most,
                  off / least * 100.0, late);
    return fmax(0.0, off - WAKES * late) / least;
}

static void test_formula(void **state)
{
    const struct policy *policy = *state;
    double error = INFINITY;
    uint64_t seed = 0;
    bool busy = true;
    for (int attempt = 0; attempt < TRIES && error > within; attempt++) {
        seed = choose_seed(policy, seed + 1);
        error = error_of(policy, "ps_async", seed, &busy);
    }
    timed_skip_where(error > within && busy);
    if (error > within)
        fail_msg("an update is %.1f %% off what the formula and the machine say", error * 100.0);
}

/* Beside the true strategy, which passes the same check. */
static void test_deaf(void **state)
{
    const struct policy *policy = *state;
    double error = 0;
    uint64_t seed = 0;
    bool busy = true;
    for (int attempt = 0; attempt < TRIES && error <= 2 * within; attempt++) {
        seed = choose_seed(policy, seed + 1);
        error = error_of(policy, "mutant_async comm.mutation=deaf", seed, &busy);
    }
    timed_skip_where(error <= 2 * within && busy);
    if (error <= 2 * within)
        fail_msg("workers that train on when they are cancelled cost no more than %.1f %%",
                 error * 100.0);
}

/* Worker 0 gives a gradient, begins its next batch, and is cancelled in that one's forward or
 * backward, when the delay of worker 1 is over: it leaves the pass there. Worker 1 does all of its
 * own. *part: the mean time of worker 0's as a share of worker 1's. */
static double share_of_pass(const char *comm, const char *part, int delay_ms)
{
    struct command command;
    char of_0[64], of_1[64];
    snprintf(of_0, sizeof of_0, "ranks.0.breakdown_ns.%s", part);
    snprintf(of_1, sizeof of_1, "ranks.1.breakdown_ns.%s", part);
    timed_run(&command, 0,
              "comm.name=%s comm.policy=k_batch_sync comm.k=2 run.workers=2 run.servers=1 "
              "run.batch=1 run.prove=no device.forward=60 device.backward=60 run.steps=20 "
              "run.delay=constant(%dms) run.delay_ranks=1",
              comm, delay_ms);
    const double share = json_number_at(command.json, of_0) / json_number_at(command.json, of_1);
    const json_t *losses = json_at(command.json, "loss");
    for (size_t i = 0; i < json_array_size(losses); i++)
        assert_true(json_is_number(json_array_get(losses, i)));
    assert_true(json_number_at(command.json, "strategy.age.dropped_share") > 0.2);
    return share;
}

/* Half of worker 0's passes end after half of their time; of a deaf one none does. */
static void test_stops(void **state)
{
    const int delay = strcmp(*state, "forward") == 0 ? 30 : 90;
    double stops = 1, deaf = 0;
    for (int attempt = 0; attempt < TRIES && !(stops < 0.85 && deaf > 0.95); attempt++) {
        stops = share_of_pass("ps_async", *state, delay);
        deaf = share_of_pass("mutant_async comm.mutation=deaf", *state, delay);
        print_message("%s: %.3f of a whole one, deaf %.3f\n", (const char *)*state, stops, deaf);
    }
    assert_true(stops < 0.85 && deaf > 0.95);
}

/* ---- meetings ------------------------------------------------------------------------------ */

enum {
    APART = 4,
    PERIOD = 8,
    PERIODS = 5,
    TRACED = (PERIODS + 1) * PERIOD /* steps, warm-up too */
};

static double traced_ms[TRACED][APART];

static void write_trace(uint64_t seed)
{
    struct dpb_delay delay;
    char path[96];
    assert_int_equal(dpb_delay_make("exponential(20 ms)", "", "all", "", APART, seed, &delay),
                     DPB_OK);
    snprintf(path, sizeof path, "%s/delays", timed_directory());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t step = 0; step < TRACED; step++)
        for (uint32_t rank = 0; rank < APART; rank++) {
            traced_ms[step][rank] = (double)(dpb_delay_of(&delay, rank, step) / 1000) * 1e-3;
            fprintf(file, "%.3f\n", traced_ms[step][rank]);
        }
    assert_int_equal(fclose(file), 0);
}

/* What delays add to the timed steps of workers that meet every `period` steps. */
static double traced_sum_ms(unsigned period)
{
    double all = 0;
    for (unsigned first = PERIOD; first < TRACED; first += period) {
        double largest = 0;
        for (unsigned rank = 0; rank < APART; rank++) {
            double sum = 0;
            for (unsigned step = first; step < first + period; step++)
                sum += traced_ms[step][rank];
            largest = fmax(largest, sum);
        }
        all += largest;
    }
    return all;
}

static double timed_steps_ms(unsigned period, const char *machines, bool delayed)
{
    struct command command;
    char delay[128] = "";
    double sum_ns = 0;
    if (delayed)
        snprintf(delay, sizeof delay, "run.delay=trace(%s/delays)", timed_directory());
    timed_run(&command, 0,
              "comm.name=local_sgd comm.period=%u run.workers=%d run.batch=1 run.prove=no "
              "device.forward=1 device.backward=0 run.warmup_steps=%d run.steps=%d %s %s",
              period, APART, PERIOD, TRACED - PERIOD, machines, delay);
    const json_t *steps_ns = json_at(command.json, "timing.step_ns");
    assert_int_equal(json_array_size(steps_ns), TRACED - PERIOD);
    for (size_t i = 0; i < json_array_size(steps_ns); i++)
        sum_ns += json_number_value(json_array_get(steps_ns, i));
    return sum_ns * 1e-6;
}

/* As error_of. A period of 1 is the control: workers that wait for each other in each step. */
static double meeting_error(unsigned period, const char *machines, bool *busy)
{
    timed_napper_start();
    const double before = timed_steps_ms(period, machines, false);
    const double is = timed_steps_ms(period, machines, true);
    const double after = timed_steps_ms(period, machines, false), late = timed_napper_stop();
    const double least = traced_sum_ms(period) + fmin(before, after);
    const double most = traced_sum_ms(period) + fmax(before, after);
    const double off = fmax(fmax(least - is, is - most), 0.0);
    *busy = *busy && timed_was_busy() && late > BUSY_LATE_MS;
    print_message(
        "period %u: %.1f ms, expected %.1f to %.1f ms (%.1f %% off), wakes %.2f ms late\n", period,
        is, least, most, off / least * 100.0, late);
    return fmax(0.0, off - (TRACED - PERIOD) * late) / least;
}

static void test_meetings(void **state)
{
    double error = INFINITY, control = INFINITY;
    const char *machines = *state;
    bool busy = true;
    uint64_t seed = 0;
    for (int attempt = 0; attempt < TRIES && !(error <= 0.03 && control <= 0.03); attempt++) {
        do
            write_trace(++seed);
        while (traced_sum_ms(1) < 1.4 * traced_sum_ms(PERIOD));
        error = meeting_error(PERIOD, machines, &busy);
        control = meeting_error(1, machines, &busy);
    }
    timed_skip_where(!(error <= 0.03 && control <= 0.03) && busy);
    if (!(error <= 0.03 && control <= 0.03))
        fail_msg("a period is %.1f %% off its slowest worker's time, the control %.1f %%",
                 error * 100.0, control * 100.0);
}

int main(void)
{
    const bool all = getenv("DPB_ALL_CELLS") != NULL;
    if (all) {
        steps *= 4;
        gradients *= 4;
        within /= 2;
    }
    for (size_t i = 0; i < (all ? sizeof policies / sizeof *policies : USUAL); i++)
        add_case(test_formula, &policies[i], "%s, %u of %u: the time of an update",
                 policies[i].name, policies[i].k, policies[i].workers);
    add_case(test_deaf, &policies[0], "k_sync with workers that do not stop takes longer");
    add_case(test_deaf, &policies[1], "k_batch_sync with workers that do not stop takes longer");
    add_case(test_stops, "forward", "a cancelled worker leaves its forward pass");
    add_case(test_stops, "backward", "a cancelled worker leaves its backward pass");
    static char here[] = "", across[] = "comm.hosts=2x2 comm.interface=lo";
    add_case(test_meetings, here, "workers that average wait in meetings alone");
    add_case(test_meetings, across, "so do they on two machines");
    return test_main(timed_setup, timed_teardown);
}
