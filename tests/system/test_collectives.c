/*
 * test_collectives.c - comm_test.operation of `dpbench comm`: every operation of every strategy
 * that has it, checked, with the bandwidths of nccl-tests' formulas; wrong results are found; what
 * is refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/command.h"
#include "lib/faults.h"
#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/strategies.h"
#include "lib/test.h"

static const double deadline_s = 60.0;

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("x.ini",
                  "[run]\nname = thing\nworkers = 2\n[device]\nname = reference\n"
                  "[comm]\nname = shm\n[comm_test]\niterations = 3\nwarmup_iterations = 2\n"
                  "codecs = no\n");
    launchers_allow_root();
    return result;
}

/* With run.workers = 1 and others[0], 2 and others[1], ... */
static const char *const others[] = {"", "run.precision=fp64", "run.comm_cores=1",
                                     "comm_test.barrier=exchange"};
struct form {
    const char *comm, *operation;
    size_t from, to; /* of others: libraries take long */
};

static const struct form forms[] = {
    {"shm", "reduce_scatter", 0, 4},      {"shm", "all_gather", 0, 4},
    {"shm", "broadcast", 0, 4},           {"shm", "all_to_all", 0, 4},
    {"ring_tcp", "reduce_scatter", 0, 4}, {"ring_tcp", "all_gather", 0, 4},
    {"gloo", "reduce_scatter", 1, 3},     {"gloo", "all_gather", 2, 3},
    {"gloo", "broadcast", 2, 3},          {"gloo", "all_to_all", 1, 3},
    {"mpi", "reduce_scatter", 2, 3},      {"mpi", "all_gather", 2, 3},
    {"mpi", "broadcast", 1, 2},           {"mpi", "all_to_all", 2, 3}};
enum { FORMS = sizeof forms / sizeof forms[0] };

/* https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md */
static double factor_of(const char *operation, double n)
{
    return strcmp(operation, "broadcast") == 0 ? 1 : (n - 1) / n;
}

static void expect_point(const struct command *command, size_t i, const char *operation, int n)
{
    const json_t *point = json_array_get(json_at(command->json, "points"), i);
    const double algorithm = json_number_at(point, "algorithm_gb_per_s"),
                 bus = json_number_at(point, "bus_gb_per_s"),
                 count = json_number_at(point, "count");
    const bool in_place = strcmp(operation, "all_to_all") != 0;
    const bool rated = n == 1 ? isnan(bus) : fabs(bus / algorithm - factor_of(operation, n)) < 1e-9;
    if (json_number_at(point, "wrong") != 0 || json_number_at(point, "checked") != 6 ||
        json_number_at(point, "iterations") != 3 || fmod(count, n) != 0 || !rated ||
        json_is_true(json_at(point, "in_place")) != in_place)
        fail_msg("%s, %d workers: point %zu is not as it should be\n%s", operation, n, i,
                 command->out);
}

/* Sizes below, at and above buckets, which take slices for all workers. */
static void test_operation(void **state)
{
    const struct form *form = *state;
    const struct strategy *strategy = strategy_named(form->comm);
    if (!strategy || !strategy->usable)
        skip();
    for (size_t i = form->from; i < form->to; i++) {
        struct command command;
        const int n = (int)i + 1;
        char words[256];
        snprintf(words, sizeof words,
                 "comm -c x.ini --json comm_test.sizes=1,100,264,10000 comm.bucket=%d "
                 "comm_test.operation=%s comm.name=%s run.workers=%d %s",
                 strategy->library || i % 2 == 1 ? 4000 : 64, form->operation, form->comm, n,
                 others[i]);
        if (strategy->capabilities & DPB_COMM_LAUNCHER)
            launched(&command, deadline_s, MPIRUN, n, "%s", words);
        else
            dpbench_ends(&command, deadline_s, 0, "%s", words);
        if (command.exit_code != 0 || !command.json)
            fail_msg("%s: exit code %d: %s", words, command.exit_code, command.err);
        assert_string_equal(json_text_at(command.json, "operation"), form->operation);
        assert_string_equal(json_text_at(command.json, "series.0.key.operation"), form->operation);
        assert_int_equal(json_array_size(json_at(command.json, "points")), 4);
        for (size_t k = 0; k < 4; k++)
            expect_point(&command, k, form->operation, n);
    }
}

TEST(a_ring_over_machines)
{
    static const char *const operations[] = {"reduce_scatter", "all_gather"};
    for (size_t i = 0; i < 2; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0,
                     "comm -c x.ini --json comm.name=ring_tcp run.workers=4 comm.hosts=0,1,0,1 "
                     "comm.interface=lo comm_test.sizes=100,10000 comm.bucket=1000 "
                     "comm_test.operation=%s comm.gradient=bf16",
                     operations[i]);
        assert_string_equal(json_text_at(command.json, "barrier"), "exchange");
        for (size_t k = 0; k < 2; k++)
            expect_point(&command, k, operations[i], 4);
    }
}

TEST(wrong_results_are_found)
{
    for (size_t i = 0; i < FORMS; i++) {
        struct command command;
        if (strcmp(forms[i].comm, "shm") != 0)
            continue;
        dpbench_ends(&command, deadline_s, 3,
                     "comm -c x.ini --json comm.name=crooked comm_test.sizes=4KiB "
                     "comm_test.iterations=20 comm_test.operation=%s",
                     forms[i].operation);
        expect_part(command.err, "the strategy does not compute the ");
        expect_part(command.err, forms[i].operation);
        assert_true(expect_number(&command, "points.0.wrong") > 0);
    }
}

TEST(the_table_and_a_threshold)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "comm -c x.ini comm_test.operation=broadcast comm_test.sizes=4KiB model.name=tiny "
                 "--least bus_gb_per_s@operation=broadcast,size=4KiB=1kB/s");
    expect_part(command.out, "thing: comm shm, broadcast, 2 workers; ");
    assert_null(strstr(command.out, "tiny")); /* a model's layout is of training */
}

TEST(what_has_no_such_operation_is_refused)
{
    dpbench_says(deadline_s, 2,
                 WORDS("comm 'ring_tcp' has no broadcast; take a comm.name that has it:", " shm"),
                 "comm -c x.ini comm_test.operation=broadcast comm.name=ring_tcp");
    dpbench_says(deadline_s, 2, WORDS("comm 'ps_cpu' has no reduce_scatter", "ring_tcp shm"),
                 "comm -c x.ini comm_test.operation=reduce_scatter comm.name=ps_cpu run.servers=1");
    dpbench_says(deadline_s, 2, WORDS("comm.shard = optimizer is of the all-reduce"),
                 "comm -c x.ini comm_test.operation=all_gather comm.shard=optimizer");
    dpbench_says(deadline_s, 2,
                 WORDS("all_to_all writes into the weights", "leave comm.gradient out"),
                 "comm -c x.ini comm_test.operation=all_to_all comm.gradient=bf16");
    dpbench_says(deadline_s, 2, WORDS("leave nothing to exchange"),
                 "comm -c x.ini comm_test.operation=all_gather comm_test.sizes=none "
                 "model.name=tiny");
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "comm -c x.ini comm_test.operation=all_gather "
                 "comm_test.sizes=4KiB --output gather.json");
    dpbench_says(deadline_s, 2, WORDS("gather.json is of all_gather", "an all-reduce"),
                 "predict v100_alexnet --comm gather.json");
}

int main(void)
{
    for (size_t i = 0; i < FORMS; i++)
        add_case(test_operation, &forms[i], "%s: %s", forms[i].comm, forms[i].operation);
    return test_main(set_up, sandbox_teardown);
}
