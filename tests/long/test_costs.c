/* needs: cpu alone */
/*
 * test_costs.c - what looking at a run costs the run.
 *
 * The monitor: the processor's time that its thread took, as a share of the run. The trace: the
 * spans of a step, times the time of a span, as a share of the step. Whole runs with and without
 * would not show either: two equal runs of LeNet differ by some percent.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"
#include "measure/trace.h"

enum { ROUNDS = 5, SPANS = 1 << 16 };

static const double deadline_s = 60, most_monitor = 0.005, most_trace = 0.02;

/* LeNet in short steps: costs of a step weigh most. */
static void measure(struct command *command, const char *settings)
{
    dpbench_ends(command, deadline_s, 0,
                 "-c /dev/null --json run.results= run.steady_limit_s=0 run.warmup_steps=5 "
                 "run.workers=1 run.batch=8 model.name=lenet device.threads=1 %s",
                 settings);
}

TEST(monitor)
{
    struct command command;
    measure(&command, "run.seconds=5 run.monitor=1s");
    const double cost = expect_number(&command, "monitor.machines.0.monitor_cpu_s") /
                        (expect_number(&command, "timing.elapsed_ns") * 1e-9);
    print_message("the monitor's thread takes %.3f %% of a core\n", 100 * cost);
    assert_true(cost > 0 && cost <= most_monitor);
}

/* With both looks at the clock; the quickest round, which other processes touched least. */
static double ns_of_a_span(void)
{
    struct dpb_trace_ring *ring = calloc(1, sizeof *ring + SPANS * sizeof *ring->spans);
    double best = INFINITY;
    assert_non_null(ring);
    dpb_trace_open(ring, SPANS);
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t begin_ns = dpb_now_ns();
        for (int i = 0; i < SPANS; i++)
            dpb_trace_end(DPB_TRACE_LOAD, 0, (uint64_t)i, dpb_trace_begin());
        best = fmin(best, (double)(dpb_now_ns() - begin_ns) / SPANS);
    }
    dpb_trace_close();
    assert_int_equal(ring->n, ROUNDS * SPANS);
    free(ring);
    return best;
}

TEST(trace)
{
    struct command command;
    double n_spans = 0, n_steps = 0;
    size_t i;
    const json_t *event;
    measure(&command, "run.steps=100 run.trace=t.json");
    json_t *trace = own_json(json_load_file("t.json", 0, NULL));
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *phase = json_string_value(json_object_get(event, "ph"));
        n_spans += strcmp(phase, "M") != 0; /* names of rows */
        n_steps += strcmp(name, "step") == 0;
    }
    assert_true(n_steps >= 20 && n_spans > n_steps);
    const double span_ns = ns_of_a_span(), spans = n_spans / n_steps;
    const double step_ns =
        expect_number(&command, "timing.elapsed_ns") / expect_number(&command, "timing.steps");
    print_message("%.0f spans of %.0f ns: %.3f %% of a step of %.2f ms\n", spans, span_ns,
                  100 * spans * span_ns / step_ns, step_ns * 1e-6);
    assert_true(spans * span_ns <= most_trace * step_ns);
}

TEST_MAIN(sandbox_setup, sandbox_teardown)
