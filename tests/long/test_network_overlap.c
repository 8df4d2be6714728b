/* needs: alone */
/*
 * test_network_overlap.c - between hosts joined by links of 1 Gbit/s a training step hides and
 * exposes what can be told beforehand: latency and bandwidth of the exchange alone, measured by
 * `dpbench comm` over the same links in the same run, replayed over the times at which the device
 * had its gradients ready, predict comm_exposed and comm_hidden within 10 %.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/network.h"
#include "lib/test.h"
#include "lib/timed.h"

enum { RANKS = 2, TURNS = 5, MOST_TRIES = 15, STEPS = 6, FORWARD_MS = 30 };
/* A bucket takes the link about 40 ms; what the link carries in no time after a pause 2. */
enum {
    LAYERS = 8,
    PARAMETERS = 39062 * 32,
    BUCKET_BYTES = PARAMETERS * 4,
    BURST_BYTES = 256 << 10
};

static const double most_off = 0.1, quiet_ms = 0.3;
static struct network network;

/* Milliseconds from one bucket to the next: most of the exchange is exposed, about a third, the
 * last bucket's alone. */
enum { SPACINGS = 3 };
static const int spacings[SPACINGS] = {10, 30, 60};

/* Between the device's ops a bucket alone is as fast as the device looks after it, which is no
 * matter of the link: all is hidden with a core for communication. */
static const struct job {
    const char *name, *settings;
    int n_spacings;
} jobs[] = {
    {"ring_tcp", "comm.name=ring_tcp", SPACINGS - 1},
    {"ring_tcp, comm_cores", "comm.name=ring_tcp run.comm_cores=1", SPACINGS},
};
enum { JOBS = sizeof jobs / sizeof jobs[0] };

/* TCP's own ideas of the link are not what this is about: BBR measures a link anew after pauses,
 * and keeps off it to do so. Reno fills it, and the queue is so long that it drops nothing. */
static int setup(void **state)
{
    char shape[64];
    snprintf(shape, sizeof shape, "rate 1gbit burst %d limit 64m", BURST_BYTES);
    if (timed_setup(state) != 0)
        return -1;
    if (network_possible()) {
        network_up(&network, RANKS, NULL);
        network_shape(&network, shape);
        network_set_tcp(&network, "reno");
    }
    return 0;
}

static int teardown(void **state)
{
    network_down(&network);
    return timed_teardown(state);
}

/* ---- the exchange alone -------------------------------------------------------------------- */

struct link {
    double latency_ms, bytes_per_ms;
};

static double point_ms(const struct command *command, int i)
{
    char path[48];
    snprintf(path, sizeof path, "points.%d.time_us.p50", i);
    return expect_number(command, path) / 1e3;
}

/* One bucket and several at once: what one takes beyond its share of several is the latency. */
static struct link measure_link(const struct job *job)
{
    enum { LONG = 4 };
    struct command command;
    struct link link;
    char line[512];
    snprintf(line, sizeof line,
             "-c /dev/null --json device.name=reference device.threads=1 comm.bucket=%d "
             "comm.interface=10.9.0.0/24 comm_test.sizes=%d,%d comm_test.seconds=1 "
             "run.workers=2 comm.hosts=1+1 %s",
             BUCKET_BYTES, BUCKET_BYTES, LONG * BUCKET_BYTES, job->settings);
    network_place(&network, true);
    dpbench_ends(&command, TIMED_DEADLINE_S, 0, "comm %s", line);
    network_place(&network, false);
    double one_ms = point_ms(&command, 0), carry_ms = (point_ms(&command, 1) - one_ms) / (LONG - 1);
    link.bytes_per_ms = BUCKET_BYTES / carry_ms;
    link.latency_ms = fmax(one_ms - carry_ms, 0);
    return link;
}

/* ---- the step that it makes ---------------------------------------------------------------- */

struct parts {
    double exposed_ms; /* with what the optimizer does of it */
    double hidden_ms;
};

static struct timed_pass traces[RANKS][TIMED_PASSES];

static void read_traces(void)
{
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(timed_trace((uint32_t)rank, traces[rank]), STEPS + 1);
        assert_int_equal(traces[rank][0].n_layers, LAYERS);
    }
}

static double final_ms(int rank, size_t step, int layer)
{
    return (double)(traces[rank][step].final[layer] - traces[0][step].backward.begin) / 1e6;
}

/* When the last rank has a layer's gradients. */
static double ready_ms(size_t step, int layer)
{
    double last_ms = final_ms(0, step, layer);
    for (int rank = 1; rank < RANKS; rank++)
        last_ms = fmax(last_ms, final_ms(rank, step, layer));
    return last_ms;
}

/*
 * A link carries a bucket after the other, each once all ranks have it, at its rate; but for what
 * it did not carry in a pause, up to BURST_BYTES (tbf's bucket of tokens). A rank communicates from
 * when it has something that is not exchanged until it has nothing. Exposed is that part of it
 * which comes after the last gradient, and what the strategy takes of backward's own thread, where
 * it also updates.
 */
static struct parts replay_step(const struct link *link, int rank, size_t step)
{
    const double carry_ms = BUCKET_BYTES / link->bytes_per_ms;
    const double burst_ms = BURST_BYTES / link->bytes_per_ms;
    double busy_ms = 0, until_ms = 0, free_ms = -INFINITY;
    for (int layer = 0; layer < LAYERS; layer++) {
        free_ms = fmax(ready_ms(step, layer) - burst_ms, free_ms) + carry_ms;
        busy_ms += free_ms + link->latency_ms - fmax(final_ms(rank, step, layer), until_ms);
        until_ms = free_ms + link->latency_ms;
    }
    double exposed_ms =
        until_ms - final_ms(rank, step, LAYERS - 1) + (double)traces[rank][step].strategy_ns / 1e6;
    return (struct parts){exposed_ms, busy_ms - exposed_ms};
}

/* The mean over the timed steps, which are those after the first, and the ranks. */
static struct parts replay(const struct link *link)
{
    const double share = 1.0 / (STEPS * RANKS);
    struct parts mean = {0, 0};
    read_traces();
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t step = 1; step <= STEPS; step++) {
            struct parts one = replay_step(link, rank, step);
            mean.exposed_ms += share * one.exposed_ms;
            mean.hidden_ms += share * one.hidden_ms;
        }
    return mean;
}

static struct parts train(const struct job *job, int spacing_ms)
{
    struct command command;
    network_place(&network, true);
    timed_run(&command, 0,
              "run.steps=%d device.forward=%d device.backward=%d model.layers=%d "
              "model.parameters=%d comm.bucket=%d comm.interface=10.9.0.0/24 run.workers=2 "
              "comm.hosts=1+1 %s",
              STEPS, FORWARD_MS, LAYERS * spacing_ms, LAYERS, PARAMETERS, BUCKET_BYTES,
              job->settings);
    network_place(&network, false);
    struct parts parts = {
        (expect_number(&command, "timing.breakdown_ns.comm_exposed") +
         expect_number(&command, "timing.breakdown_ns.optimizer")) /
            1e6,
        expect_number(&command, "timing.breakdown_ns.comm_hidden") / 1e6,
    };
    return parts;
}

/* ---- both ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_near(const char *name, int spacing_ms, const char *part, double ratios[TURNS])
{
    qsort(ratios, TURNS, sizeof *ratios, compare);
    double median = ratios[TURNS / 2];
    if (!(fabs(median - 1) <= most_off))
        fail_msg("%s, a bucket every %d ms: %s is %.3f of what was predicted (median of %d)", name,
                 spacing_ms, part, median, TURNS);
}

/* What a spacing's exposed and hidden parts are of the predicted ones, turn by turn. */
struct ratios {
    double exposed[TURNS], hidden[TURNS];
};

static void take_turn(const struct job *job, int turn, struct ratios ratios[SPACINGS])
{
    struct link link = measure_link(job);
    for (int i = 0; i < job->n_spacings; i++) {
        struct parts measured = train(job, spacings[i]), predicted = replay(&link);
        ratios[i].exposed[turn] = measured.exposed_ms / predicted.exposed_ms;
        ratios[i].hidden[turn] = measured.hidden_ms / predicted.hidden_ms;
        print_message("%s, a bucket every %d ms: latency %.3f ms, %.1f MB/s; exposed %.1f ms, "
                      "predicted %.1f (%.3f); hidden %.1f, predicted %.1f (%.3f)\n",
                      job->name, spacings[i], link.latency_ms, link.bytes_per_ms / 1e3,
                      measured.exposed_ms, predicted.exposed_ms, ratios[i].exposed[turn],
                      measured.hidden_ms, predicted.hidden_ms, ratios[i].hidden[turn]);
    }
}

/* A process that does nothing but sleep tells whether others took the machine: such a turn does not
 * count, unless most of them are like that. What still disturbs one leaves the median as it is. */
static void test_step(void **state)
{
    const struct job *job = *state;
    struct ratios ratios[SPACINGS];
    network_or_skip(&network);
    for (int turn = 0, tries = 0; turn < TURNS; tries++) {
        timed_napper_start();
        take_turn(job, turn, ratios);
        double late_ms = timed_napper_stop();
        bool quiet = late_ms <= quiet_ms || tries >= MOST_TRIES;
        print_message("processes were woken %.2f ms late%s\n", late_ms, quiet ? "" : ": once more");
        turn += quiet;
    }
    for (int i = 0; i < job->n_spacings; i++) {
        expect_near(job->name, spacings[i], "comm_exposed", ratios[i].exposed);
        expect_near(job->name, spacings[i], "comm_hidden", ratios[i].hidden);
    }
}

int main(void)
{
    for (size_t i = 0; i < JOBS; i++)
        add_case(test_step, &jobs[i], "%s", jobs[i].name);
    return test_main(setup, teardown);
}
