/* needs: plain waits */
/*
 * test_overlap.c - strategies that promise overlap keep it: with a backward of ten buckets 5 ms
 * apart and exchanges of about 2 ms, what is left to wait for is one exchange, not ten; and a late
 * rank delays what depends on it, nothing else.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/timed.h"

enum { BUCKETS = 10, SPACING_MS = 5, EXCHANGE_MS = 2, FORWARD_MS = 2, TRIES = 12 };
enum { FIRST_PARAMETERS = 1 << 19, MOST_PARAMETERS = 2 << 20, GRANULE = 64 };

#define MACHINES(hosts) "comm.name=hierarchical comm.interface=lo comm.hosts=" hosts

/* ---- ten exchanges behind backward --------------------------------------------------------- */

/* Other processes only make steps longer: the shortest is the one that they meddled with least. */
static double shortest_step_ms(const json_t *document)
{
    size_t i;
    const json_t *step_ns;
    double shortest_ms = INFINITY;
    json_array_foreach(json_at(document, "timing.step_ns"), i, step_ns) shortest_ms =
        fmin(shortest_ms, json_number_value(step_ns) / 1e6);
    return shortest_ms;
}

/* The shortest step, less the forward pass. Elements of 8 bytes and a rule that divides make an
 * exchange long for its memory. Each of the `layers` has `parameters`. */
static double backward_to_weights_ms(const char *strategy, int layers, uint64_t parameters,
                                     int backward_ms, uint64_t bucket)
{
    struct command command;
    timed_run(&command, 0,
              "%s run.steps=5 run.precision=fp64 optimizer.name=adagrad "
              "device.forward=%d device.backward=%d model.layers=%d model.parameters=%llu "
              "comm.bucket=%llu",
              strategy, FORWARD_MS, backward_ms, layers, (unsigned long long)parameters,
              (unsigned long long)bucket * 8);
    double shortest_ms = shortest_step_ms(command.json);
    return shortest_ms - FORWARD_MS;
}

/* One bucket of `parameters`, when backward is over: nothing to hide behind. */
static double exchange_alone_ms(const char *strategy, uint64_t parameters)
{
    return backward_to_weights_ms(strategy, 2, parameters / 2, SPACING_MS, parameters) - SPACING_MS;
}

/* The bucket whose exchange takes EXCHANGE_MS, as far as a run of another size can tell; which one
 * under a load by others cannot, so sizes change in steps. */
static uint64_t choose_parameters(uint64_t parameters, double alone_ms)
{
    if (!(alone_ms > 0))
        return parameters;
    double factor = fmin(fmax(EXCHANGE_MS / alone_ms, 0.25), 2.0);
    double wanted = fmin(factor * (double)parameters, MOST_PARAMETERS);
    return (uint64_t)fmax(wanted, GRANULE) / GRANULE * GRANULE;
}

/* Waits for another process from the last bucket's gradients to its weights. */
enum { LAST_WAKES = 4 };

/* What may be left of the exchanges, in exchanges. Messages wait for the peer's next look at its
 * connections, and a bucket alone stays in caches that ten do not fit into. */
static double last_ones(const struct strategy_form *form)
{
    return form->ring ? 3.0 : 1.5;
}

/* A library exchanges when it likes. */
static bool promises_overlap(const struct strategy_form *form)
{
    return form->network == form->ring && !form->sharded && form->servers <= 1;
}

/* Ten exchanges that are not hidden are 20 ms: repeating cannot make them one. Under a load by
 * others the first sizes and times are wrong, so each try chooses anew, by what the last one took,
 * and later ones leave time for the others to end. */
static void test_overlap(void **state)
{
    const struct strategy_form *form = *state;
    char strategy[192];
    snprintf(strategy, sizeof strategy, "%s", form_settings(form, "", 2));
    uint64_t parameters = FIRST_PARAMETERS;
    double alone_ms = exchange_alone_ms(strategy, parameters), over_ms = 0.0;
    bool busy = true; /* in each try */
    for (useconds_t i = 0; i < TRIES; i++) {
        usleep(i * 200000);
        parameters = choose_parameters(parameters, alone_ms);
        alone_ms = exchange_alone_ms(strategy, parameters);
        timed_napper_start();
        double step_ms =
            backward_to_weights_ms(strategy, BUCKETS, parameters, BUCKETS * SPACING_MS, parameters);
        double late_ms = timed_napper_stop();
        busy = busy && timed_was_busy();
        print_message("%s: buckets of %.1f MB, an exchange %.1f ms, backward to weights %.1f ms, "
                      "processes woken %.2f ms late\n",
                      form->label, (double)parameters * 8e-6, alone_ms, step_ms, late_ms);
        over_ms =
            step_ms - BUCKETS * SPACING_MS - last_ones(form) * alone_ms - LAST_WAKES * late_ms;
        if (alone_ms > 0 && over_ms <= 0)
            return;
    }
    timed_skip_where(busy);
    fail_msg("%s: from backward's begin to new weights %.1f ms too much", form->label, over_ms);
}

/* ---- a late rank --------------------------------------------------------------------------- */

/* Rank 1 is 50 ms late with bucket 6 and all that follow. The others' passes take as long as ever;
 * they wait for it from their own bucket 6 on (at 120 + 20 ms) until its last comes (at 250). */
#define LATE                                                                                  \
    " device.forward=20 device.backward=200 model.layers=10 comm.bucket=4096 device.late=50 " \
    "device.late_rank=1 device.late_in=backward device.late_layer=6 run.steps=4 run.workers="
#define OF(rank, name) "ranks." #rank ".breakdown_ns." name
#define PUNCTUAL(rank)                                                                      \
    {OF(rank, "forward"), 20}, {OF(rank, "backward"), 200}, {OF(rank, "comm_exposed"), 50}, \
    {                                                                                       \
        OF(rank, "comm_wait_peer"), 110                                                     \
    }
#define LATE_ONE                                                                  \
    {OF(1, "forward"), 20}, {OF(1, "backward"), 250}, {OF(1, "comm_exposed"), 0}, \
    {                                                                             \
        OF(1, "comm_wait_peer"), 0                                                \
    }

/* Where a bucket passes through another process - a server, or the other ranks of a ring - a rank
 * that nobody keeps waiting still waits for that one to wake up, ten times a step and with fewer
 * cores than processes. A wait put down to the wrong rank or bucket is a whole spacing of buckets
 * off: half of one tells them apart. */
enum { WAKING_MS = 10 };

static const struct late_case {
    struct timed_case timed;
    int slack_ms;
} late_cases[] = {
    {{"shm", "comm.name=shm" LATE "3", 270, {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}}, 0},
    {{"replicated", "comm.name=replicated" LATE "3", 270, {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}}, 0},
    {{"ps_cpu", "comm.name=ps_cpu" LATE "3", 270, {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}}, 0},
    {{"ps_cpu, a server", "comm.name=ps_cpu run.servers=1" LATE "2", 270, {PUNCTUAL(0), LATE_ONE}},
     WAKING_MS},
    {{"ring_tcp", "comm.name=ring_tcp" LATE "3", 270, {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}},
     WAKING_MS},
    {{"local_sgd",
      "comm.name=local_sgd comm.period=1" LATE "3",
      270,
      {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}},
     0},
    {{"ring_tcp with a codec",
      "comm.name=ring_tcp comm.codec=int8" LATE "3",
      270,
      {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}},
     WAKING_MS},
    {{"hierarchical", MACHINES("1+2") LATE "3", 270, {PUNCTUAL(0), LATE_ONE, PUNCTUAL(2)}},
     WAKING_MS},
};

static void test_late_rank(void **state)
{
    const struct late_case *one = *state;
    timed_check_within(&one->timed, one->slack_ms);
}

/* Nothing depends on it. */
TEST(test_late_and_independent)
{
    struct command command;
    timed_run(&command, 0, "comm.name=independent" LATE "2");
    double punctual_ms = json_number_at(command.json, "ranks.0.step_ns.p10") / 1e6;
    double late_ms = json_number_at(command.json, "ranks.1.step_ns.median") / 1e6;
    if (!(punctual_ms < 245 && late_ms >= 270))
        fail_msg("steps of %.1f and %.1f ms, not 220 and 270", punctual_ms, late_ms);
    assert_true(json_number_at(command.json, "ranks.0.breakdown_ns.comm_wait_peer") == 0.0);
}

int main(void)
{
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));)
        if (promises_overlap(form))
            add_case(test_overlap, form, "ten exchanges, %s", form->label);
    for (size_t i = 0; i < sizeof late_cases / sizeof *late_cases; i++)
        add_case(test_late_rank, &late_cases[i], "a late rank, %s", late_cases[i].timed.name);
    return test_main(timed_setup, timed_teardown);
}
