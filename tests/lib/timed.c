/* timed.c - see timed.h. */
#include "lib/timed.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"

enum { NAP_NS = 1000000 };

static const char configuration[] = "[run]\nresults =\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                                    "[model]\nname = timed\n"
                                    "[data]\nname = timed\n"
                                    "[device]\nname = timed\nthreads = 1\n";

static char directory[64];

/* ---- runs ---------------------------------------------------------------------------------- */

int timed_setup(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/tests/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    temporary_directory(directory);
    snprintf(path, sizeof path, "%s/timed.ini", directory);
    write_file(path, configuration, strlen(configuration));
    return 0;
}

int timed_teardown(void **state)
{
    (void)state;
    timed_napper_stop();
    remove_directory(directory);
    return 0;
}

const char *timed_directory(void)
{
    return directory;
}

/* Unless the options give the run another length. */
static const char *default_length(const char *options)
{
    return strstr(options, "run.steps=") || strstr(options, "run.seconds=") ? "" : "run.steps=6";
}

static double others_share;

bool timed_was_busy(void)
{
    return others_share > 1.0 / 3;
}

void timed_skip_where(bool busy)
{
    if (!busy)
        return;
    print_message("others had the cores in every try: nothing is decided\n");
    skip();
}

void timed_run(struct command *command, int exit_code, const char *format, ...)
{
    char options[2048];
    va_list list;
    va_start(list, format);
    assert_true(vsnprintf(options, sizeof options, format, list) < (int)sizeof options);
    va_end(list);
    dpbench(command, TIMED_DEADLINE_S, "-c %s/timed.ini --json device.trace=%s/trace %s %s",
            directory, directory, default_length(options), options);
    if (command->exit_code != exit_code || !command->json)
        fail_msg("dpbench %s: exit %d (signal %d%s)\n%s", options, command->exit_code,
                 command->signal_number, command->late ? ", late" : "", command->err);
    others_share = json_number_at(command->json, "load.others_share");
}

/* ---- what the device saw ------------------------------------------------------------------- */

static bool read_stretch(FILE *file, struct timed_stretch *one)
{
    return fscanf(file, "%" SCNd64 " %" SCNd64 " %" SCNd64, &one->begin, &one->deadline,
                  &one->end) == 3;
}

static bool read_pass(FILE *file, struct timed_pass *one)
{
    if (fscanf(file, "%" SCNu64, &one->step) != 1 || !read_stretch(file, &one->forward) ||
        !read_stretch(file, &one->backward) ||
        fscanf(file, "%" SCNd64 " %" SCNu32, &one->strategy_ns, &one->n_layers) != 2)
        return false;
    assert_in_range(one->n_layers, 1, TIMED_LAYERS);
    for (uint32_t layer = 0; layer < one->n_layers; layer++)
        if (fscanf(file, "%" SCNd64, &one->final[layer]) != 1)
            return false;
    return true;
}

size_t timed_trace(uint32_t rank, struct timed_pass passes[TIMED_PASSES])
{
    char path[128];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/trace.%" PRIu32, directory, rank);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (n < TIMED_PASSES && read_pass(file, &passes[n]))
        n++;
    fclose(file);
    return n;
}

/* How late the device's own sleeps ended in the timed steps: the mean of a step, over all ranks
 * together. What passes between two passes is dpbench's and does not count. */
static double device_late_ms(const json_t *document)
{
    static struct timed_pass passes[TIMED_PASSES];
    uint64_t warm = (uint64_t)json_number_at(document, "timing.warmup_steps");
    uint32_t n_workers = (uint32_t)json_number_at(document, "world.workers");
    double late_ns = 0.0;
    for (uint32_t rank = 0; rank < n_workers; rank++) {
        size_t n = timed_trace(rank, passes), first = 0;
        while (first < n && passes[first].step < warm)
            first++;
        if (n < first + 2)
            continue;
        double sum = 0.0;
        for (size_t i = first; i < n; i++)
            sum += (double)(passes[i].forward.end - passes[i].forward.deadline +
                            passes[i].backward.end - passes[i].backward.deadline);
        late_ns += sum / (double)(passes[n - 1].step - passes[first].step + 1);
    }
    return late_ns / 1e6;
}

/* ---- how soon the machine wakes a process --------------------------------------------------- */

struct naps {
    double late_ns;
    uint64_t n;
};
static struct naps *naps; /* shared with the napper */
static pid_t napper;      /* 0: none */

static void nap_for_ever(volatile struct naps *seen)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        double began_s = now_s();
        nanosleep(&nap, NULL);
        seen->late_ns += (now_s() - began_s) * 1e9 - NAP_NS;
        seen->n++;
    }
}

pid_t timed_napper_start(void)
{
    const pid_t parent = getpid();
    timed_napper_stop();
    naps = mmap(NULL, sizeof *naps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(naps, MAP_FAILED);
    napper = fork();
    assert_true(napper >= 0);
    if (napper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        nap_for_ever(naps);
    }
    return napper;
}

double timed_napper_stop(void)
{
    if (napper <= 0)
        return 0.0;
    kill(napper, SIGKILL);
    waitpid(napper, NULL, 0);
    napper = 0;
    const double late_ms = naps->n > 0 ? naps->late_ns / (double)naps->n / 1e6 : 0.0;
    munmap(naps, sizeof *naps);
    return late_ms;
}

/* ---- checks -------------------------------------------------------------------------------- */

double timed_bound_ms(double ms)
{
    return fmax(0.01 * ms, 0.3);
}

/* What is in the step, and nothing else. */
static void check_sum(const char *name, const json_t *breakdown, double step_ns)
{
    static const char *const parts[] = {"data_wait", "forward",   "delay",
                                        "backward",  "optimizer", "comm_exposed"};
    double sum = 0.0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        sum += json_number_at(breakdown, parts[i]);
    if (!(fabs(sum - step_ns) < 0.01))
        fail_msg("%s: the parts sum to %.3f ns, the step is %.3f ns", name, sum, step_ns);
}

static void check_sums(const char *name, const json_t *document)
{
    size_t i;
    const json_t *rank;
    double steps = json_number_at(document, "timing.steps"), elapsed = 0.0;
    json_array_foreach(json_at(document, "timing.step_ns"), i, rank) elapsed +=
        json_number_value(rank);
    check_sum(name, json_at(document, "timing.breakdown_ns"), elapsed / steps);
    json_array_foreach(json_at(document, "ranks"), i, rank) if (json_at(rank, "breakdown_ns"))
        check_sum(name, json_at(rank, "breakdown_ns"), json_number_at(rank, "step_ns.mean"));
}

/* The rate over all steps is the batch by the mean of the steps. */
static void check_rate(const char *name, const json_t *document)
{
    double rate = json_number_at(document, "timing.samples_per_s.mean");
    double expected = json_number_at(document, "batch.global") *
                      json_number_at(document, "timing.steps") * 1e9 /
                      json_number_at(document, "timing.elapsed_ns");
    if (!(fabs(rate - expected) <= 1e-9 * expected))
        fail_msg("%s: %.6f samples/s, not %.6f", name, rate, expected);
}

/* The largest error beyond its bound, in ms, and a text on it; <= 0: all are right. */
static double largest_excess(const struct timed_case *one, const json_t *document, char text[256])
{
    struct timed_field step = {"timing.elapsed_ns", one->step_ms};
    double worst = -INFINITY;
    for (const struct timed_field *field = &step; field->path;
         field = field == &step ? one->fields : field + 1) {
        double ms = json_number_at(document, field->path) / 1e6;
        if (field == &step)
            ms /= json_number_at(document, "timing.steps");
        double excess = fabs(ms - field->ms) - timed_bound_ms(field->ms);
        if (!(excess <= worst)) {
            worst = isnan(excess) ? INFINITY : excess;
            snprintf(text, 256, "%s: %s is %.3f ms, not %.3f", one->name, field->path, ms,
                     field->ms);
        }
    }
    return worst;
}

double timed_unexplained_ms(const struct timed_case *one, bool with_napper, char text[256])
{
    struct command command;
    const int wakes = strstr(one->options, "run.workers=") ? TIMED_WAKES : TIMED_OWN_WAKES;
    if (with_napper)
        timed_napper_start();
    timed_run(&command, 0, "%s", one->options);
    double wakes_ms = with_napper ? wakes * timed_napper_stop() : 0.0;
    check_sums(one->name, command.json);
    check_rate(one->name, command.json);
    double excess = largest_excess(one, command.json, text);
    double late = device_late_ms(command.json);
    if (excess > late + wakes_ms)
        print_message("%s; the device's sleeps were %.3f ms late, %d others %.3f\n", text, late,
                      wakes, wakes_ms);
    return excess - late - wakes_ms;
}

void timed_check(const struct timed_case *one)
{
    timed_check_within(one, 0.0);
}

void timed_check_within(const struct timed_case *one, double slack_ms)
{
    char text[256] = "";
    bool busy = true;
    for (int i = 0; i < TIMED_TRIES; i++) {
        if (timed_unexplained_ms(one, i > 0, text) <= slack_ms) /* the first try is alone */
            return;
        busy &= timed_was_busy();
    }
    timed_skip_where(busy);
    fail_msg("%s, and so in each of %d tries", text, TIMED_TRIES);
}
