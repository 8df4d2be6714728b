/*
 * test_combinations.c - every combination of device, precision, strategy, servers and mode either runs,
 * verified, or is refused by name with exit code 2; `check` says beforehand which. What may be combined
 * stands here once more, as rules that know nothing of the program.
 *
 * All combinations of the five are run, and a set of runs covers every pair of values of these and of
 * other axes that meet them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cases.h"
#include "lib/sandbox.h"
#include "lib/training.h"

enum axis {
    DEVICE,
    PRECISION,
    STRATEGY,
    SERVERS,
    MODE,
    N_FIRST, /* the five of which all combinations are looked at */
    WORKERS = N_FIRST,
    GRADIENT,
    COMM_CORES,
    PROVE,
    ACCUMULATE,
    OPTIMIZER,
    EVALUATION,
    SAVING,
    N_AXES
};

enum { MOST_VALUES = 6, MOST_ROWS = 256, TRIES = 4000 };

static const struct {
    const char *key;
    const char *values[MOST_VALUES + 1];
} axes[N_AXES] = {
    [DEVICE] = {"device.name", {"reference", "cpu"}},
    [PRECISION] = {"run.precision", {"fp64", "fp32", "bf16"}},
    [STRATEGY] = {"comm.name", {"independent", "shm", "replicated", "ps_cpu", "ring_tcp", "gloo"}},
    [SERVERS] = {"run.servers", {"0", "1", "2"}},
    [MODE] = {"run.mode", {"train", "forward"}},
    [WORKERS] = {"run.workers", {"1", "2"}},
    [GRADIENT] = {"comm.gradient", {"auto", "fp64", "fp32", "bf16"}},
    [COMM_CORES] = {"run.comm_cores", {"0", "1"}},
    [PROVE] = {"run.prove", {"no", "yes"}},
    [ACCUMULATE] = {"run.accumulate", {"1", "3"}},
    [OPTIMIZER] = {"optimizer.name", {"sgd", "adagrad"}},
    [EVALUATION] = {"eval.final", {"no", "yes"}},
    [SAVING] = {"checkpoint.save", {"", "saved.safetensors"}},
};

struct combination {
    unsigned char at[N_AXES]; /* index of the value of each axis */
};

static const char *value(const struct combination *c, enum axis axis)
{
    return axes[axis].values[c->at[axis]];
}

static bool has(const struct combination *c, enum axis axis, const char *text)
{
    return strcmp(value(c, axis), text) == 0;
}

static unsigned n_values(enum axis axis)
{
    unsigned n = 0;
    while (n < MOST_VALUES && axes[axis].values[n])
        n++;
    return n;
}

/* ---- what may be combined ------------------------------------------------------------------ */

/* The axes that a refusal may name; 0: the combination works. */
static unsigned refused_for(const struct combination *c)
{
    unsigned named = 0;
    bool independent = has(c, STRATEGY, "independent"), fp64 = has(c, PRECISION, "fp64");
    if (has(c, PRECISION, has(c, DEVICE, "reference") ? "bf16" : "fp64"))
        named |= 1u << PRECISION;
    if (!has(c, SERVERS, "0") && !has(c, STRATEGY, "ps_cpu"))
        named |= 1u << SERVERS;
    if (has(c, MODE, "forward") &&
        (!independent || !has(c, ACCUMULATE, "1") || has(c, PROVE, "yes") ||
         has(c, EVALUATION, "yes") || !has(c, SAVING, "")))
        named |= 1u << MODE;
    if (independent && has(c, COMM_CORES, "1"))
        named |= 1u << COMM_CORES;
    if (independent && has(c, PROVE, "yes"))
        named |= 1u << PROVE;
    if (!has(c, GRADIENT, "auto") && has(c, GRADIENT, "fp64") != fp64)
        named |= 1u << GRADIENT;
    return named;
}

/* ---- running one --------------------------------------------------------------------------- */

static void settings_of(const struct combination *c, char *line, size_t capacity)
{
    size_t used = 0;
    line[0] = '\0';
    for (enum axis axis = 0; axis < N_AXES; axis++)
        if (value(c, axis)[0])
            used += (size_t)snprintf(line + used, capacity - used, " %s=%s", axes[axis].key,
                                     value(c, axis));
}

static const char base[] =
    "-c empty.ini run.results=results run.steady_limit_s=0 run.warmup_steps=0 "
    "run.steps=2 run.batch=2 data.name=synthetic data.samples=24 "
    "data.test_samples=6 model.name=tiny device.threads=1";

static void expect_refusal(const struct command *command, const char *line, unsigned named)
{
    bool says = false;
    if (command->exit_code != 2)
        fail_msg("%s: exit code %d, not 2: %s", line, command->exit_code, command->err);
    for (enum axis axis = 0; axis < N_AXES; axis++)
        says = says || ((named & 1u << axis) && strstr(command->err, axes[axis].key));
    if (!says)
        fail_msg("%s: the refusal does not name what cannot be: %s", line, command->err);
}

static void expect_text(const struct command *command, const char *line, const char *path,
                        const char *expected)
{
    if (strcmp(json_text_at(command->json, path), expected) != 0)
        fail_msg("%s: %s is '%s', not '%s'", line, path, json_text_at(command->json, path),
                 expected);
}

/* It ran, and what was asked for is what happened: as far as the result shows it by more than echo. */
static void expect_run(const struct command *command, const char *line, const struct combination *c)
{
    bool trains = has(c, MODE, "train"), exchanges = !has(c, STRATEGY, "independent");
    double workers = atof(value(c, WORKERS)), servers = atof(value(c, SERVERS));
    if (command->exit_code != 0 || !command->json)
        fail_msg("%s: exit code %d: %s", line, command->exit_code, command->err);
    expect_text(command, line, "status", "ok");
    expect_text(command, line, "verification.pattern", exchanges ? "pass" : "not_applicable");
    expect_text(command, line, "verification.exchange", has(c, PROVE, "yes") ? "pass" : "skipped");
    expect_text(command, line, "verification.replicas",
                exchanges ? "pass"
                : trains  ? "not_applicable"
                          : "skipped");
    assert_true((double)json_array_size(json_at(command->json, "ranks")) == workers + servers);
    assert_int_equal(json_array_size(json_at(command->json, "loss")), 2);
    assert_int_equal(json_array_size(json_at(command->json, "eval")), has(c, EVALUATION, "yes"));
    bool moves = json_number_at(command->json, "comm.bytes_per_step") > 0;
    if (moves != (exchanges && workers + servers > 1))
        fail_msg("%s: bytes moved: %d", line, moves);
}

/* On this system, with what was built. */
static bool is_there(const struct combination *c)
{
    return (!has(c, DEVICE, "cpu") || have_cpu_device()) &&
           (!has(c, STRATEGY, "gloo") || have_plugin("comm_gloo"));
}

static void run_one(const struct combination *c)
{
    struct command command;
    char line[1024];
    unsigned named = refused_for(c);
    settings_of(c, line, sizeof line);
    dpbench(&command, 60, "check %s%s", base, line);
    if (named)
        expect_refusal(&command, line, named);
    else if (command.exit_code != 0)
        fail_msg("%s: refused by check, exit code %d: %s", line, command.exit_code, command.err);
    command_free(&command);
    dpbench(&command, 60, "%s --json%s", base, line);
    if (named)
        expect_refusal(&command, line, named);
    else
        expect_run(&command, line, c);
    command_free(&command);
}

/* ---- all of the five ----------------------------------------------------------------------- */

static void test_all(void **state)
{
    (void)state;
    struct combination c = {{0}};
    for (bool more = true; more;) {
        if (is_there(&c))
            run_one(&c);
        more = false;
        for (enum axis axis = 0; axis < N_FIRST && !more; axis++) { /* counts up */
            c.at[axis] = (unsigned char)((c.at[axis] + 1u) % n_values(axis));
            more = c.at[axis] != 0;
        }
    }
}

/* ---- a set that covers all pairs ----------------------------------------------------------- */

static bool covered[N_AXES][MOST_VALUES][N_AXES][MOST_VALUES];
static uint32_t random_state = 1;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static unsigned gain(const struct combination *c)
{
    unsigned n = 0;
    for (enum axis a = 0; a < N_AXES; a++)
        for (enum axis b = a + 1; b < N_AXES; b++)
            n += !covered[a][c->at[a]][b][c->at[b]];
    return n;
}

static void cover(const struct combination *c)
{
    for (enum axis a = 0; a < N_AXES; a++)
        for (enum axis b = a + 1; b < N_AXES; b++)
            covered[a][c->at[a]][b][c->at[b]] = true;
}

/* Of random combinations with these two values that work, the one that covers the most new pairs; where
 * none works, one with the fewest reasons to be refused. */
static struct combination best_with(enum axis a, unsigned va, enum axis b, unsigned vb)
{
    struct combination best = {{0}}, c;
    unsigned most = 0;
    for (int i = 0; i < TRIES; i++) {
        for (enum axis axis = 0; axis < N_AXES; axis++)
            c.at[axis] = (unsigned char)random_below(n_values(axis));
        c.at[a] = (unsigned char)va;
        c.at[b] = (unsigned char)vb;
        unsigned named = refused_for(&c);
        unsigned worth = named ? N_AXES - (unsigned)__builtin_popcount(named) : N_AXES + gain(&c);
        if (worth > most) {
            most = worth;
            best = c;
        }
    }
    return best;
}

static void test_pairs(void **state)
{
    (void)state;
    unsigned n_rows = 0, n_ran = 0;
    for (enum axis a = 0; a < N_AXES; a++)
        for (unsigned va = 0; va < n_values(a); va++)
            for (enum axis b = a + 1; b < N_AXES; b++)
                for (unsigned vb = 0; vb < n_values(b); vb++) {
                    if (covered[a][va][b][vb])
                        continue;
                    struct combination c = best_with(a, va, b, vb);
                    if (!is_there(&c))
                        continue;
                    bool works = refused_for(&c) == 0;
                    run_one(&c);
                    if (works)
                        cover(&c);
                    covered[a][va][b][vb] = true;
                    n_rows++;
                    n_ran += works;
                }
    print_message("%u combinations, %u of them ran\n", n_rows, n_ran);
    assert_true(n_rows < MOST_ROWS && n_ran > 10);
}

static int setup(void **state)
{
    int code = sandbox_setup(state);
    sandbox_write("empty.ini", "%s", "");
    return code;
}

int main(void)
{
    add_case(test_all, NULL, "device x precision x strategy x servers x mode");
    add_case(test_pairs, NULL, "a set of runs that covers all pairs");
    return run_cases("combinations", setup, sandbox_teardown);
}
