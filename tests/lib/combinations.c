/* combinations.c - see combinations.h. */
#include "lib/combinations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpbench/comm.h"
#include "lib/launch_faults.h"
#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 60.0, many_s = 300.0;

static struct {
    const char *key; /* a refusal for it has this in it; a section's key, but of the launcher */
    const char *values[MOST_VALUES + 1];
} axes[N_AXES] = {
    [DEVICE] = {"device.name", {"reference", "cpu"}},
    [PRECISION] = {"run.precision", {"fp64", "fp32", "bf16"}},
    [STRATEGY] = {"comm.name", {0}}, /* by find_strategies */
    [SERVERS] = {"run.servers", {"0", "1", "2"}},
    [MODE] = {"run.mode", {"train", "forward"}},
    [HOSTS] = {"comm.hosts", {"", "1+1", "2+1"}},
    [LAUNCHER] = {"mpirun or srun", {"", "mpirun", "srun"}},
    [WORKERS] = {"run.workers", {"2", "1"}},
    [GRADIENT] = {"comm.gradient", {"auto", "fp64", "fp32", "bf16", "fp16"}},
    [COMM_CORES] = {"run.comm_cores", {"0", "1"}},
    [PROVE] = {"run.prove", {"no", "yes"}},
    [ACCUMULATE] = {"run.accumulate", {"1", "3"}},
    [OPTIMIZER] = {"optimizer.name", {"sgd", "adagrad"}},
    [EVALUATION] = {"eval.final", {"no", "yes"}},
    [SAVING] = {"checkpoint.save", {"", "saved.safetensors"}},
};

static bool have_launchers;
static const char by_mpi[] = "hierarchical comm.transport=mpi";

static void find_strategies(void)
{
    size_t n = 0;
    for (const struct strategy *s = NULL; (s = strategy_after(s));)
        if (s->usable && (s->synchronous || s->capabilities & DPB_COMM_ALONE)) {
            assert_true(n < MOST_VALUES - 1);
            axes[STRATEGY].values[n++] = s->name;
        }
    if (have_plugin("comm_mpi"))
        axes[STRATEGY].values[n] = by_mpi;
}

/* What the strategy of the combination declares. */
static uint64_t declared(const struct combination *c)
{
    const char *name = combination_value(c, STRATEGY);
    return name == by_mpi ? strategy_named("hierarchical")->capabilities | DPB_COMM_LAUNCHER
                          : strategy_named(name)->capabilities;
}

const char *combination_value(const struct combination *c, enum axis axis)
{
    return axes[axis].values[c->at[axis]];
}

bool combination_has(const struct combination *c, enum axis axis, const char *value)
{
    return strcmp(combination_value(c, axis), value) == 0;
}

unsigned n_values(enum axis axis)
{
    unsigned n = 0;
    while (n < MOST_VALUES && axes[axis].values[n])
        n++;
    return n;
}

bool combination_next(struct combination *c)
{
    for (enum axis axis = 0; axis < N_FIRST; axis++) { /* counts up */
        c->at[axis] = (unsigned char)((c->at[axis] + 1u) % n_values(axis));
        if (c->at[axis] != 0)
            return true;
    }
    return false;
}

int combinations_setup(void **state)
{
    /* dpbench speaks to launchers where MPI was found to build with: mk/mpi.mk, mk/pmix.mk. */
    have_launchers = have_plugin("comm_mpi");
    if (have_launchers && launchers_start(1) != 0)
        return 1;
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    use_stand_in(true); /* NVIDIA's NCCL is refused for want of a driver, by none of the axes */
    find_strategies();
    int code = sandbox_setup(state);
    sandbox_write("empty.ini", "%s", "");
    return code;
}

int combinations_teardown(void **state)
{
    if (have_launchers)
        launchers_stop();
    return sandbox_teardown(state);
}

/* ---- what may be combined ------------------------------------------------------------------ */

static int n_workers(const struct combination *c)
{
    return atoi(combination_value(c, WORKERS));
}

static int n_ranks(const struct combination *c)
{
    return n_workers(c) + atoi(combination_value(c, SERVERS));
}

/* 1: one machine, which is never wrong. */
static int n_machines(const struct combination *c)
{
    return combination_has(c, HOSTS, "") ? 1 : 2;
}

static bool fits_hosts(const struct combination *c)
{
    return n_machines(c) == 1 || n_ranks(c) == (combination_has(c, HOSTS, "1+1") ? 2 : 3);
}

bool combination_by_mpi(const struct combination *c)
{
    return declared(c) & DPB_COMM_LAUNCHER;
}

static bool needs_device(const struct combination *c)
{
    return combination_value(c, STRATEGY) != by_mpi &&
           strategy_named(combination_value(c, STRATEGY))->runtime;
}

static bool has_precision(const struct combination *c)
{
    bool cpu = combination_has(c, DEVICE, "cpu");
    return combination_has(c, PRECISION, "fp32") ||
           (combination_has(c, PRECISION, "bf16") ? cpu && cpu_has_bf16() : !cpu);
}

/* The axes that a refusal may name, as bits; 0: the combination works. */
static unsigned refused_for(const struct combination *c)
{
    unsigned named = 0;
    bool independent = declared(c) & DPB_COMM_ALONE;
    bool fp64 = combination_has(c, PRECISION, "fp64");
    if (!has_precision(c))
        named |= 1u << PRECISION;
    if (declared(c) & (combination_has(c, SERVERS, "0") ? DPB_COMM_SERVED : 0) ||
        (!combination_has(c, SERVERS, "0") && !(declared(c) & DPB_COMM_SERVERS)))
        named |= 1u << SERVERS;
    if (combination_has(c, MODE, "forward") &&
        (!independent || !combination_has(c, ACCUMULATE, "1") || combination_has(c, PROVE, "yes") ||
         combination_has(c, EVALUATION, "yes") || !combination_has(c, SAVING, "")))
        named |= 1u << MODE;
    if (!fits_hosts(c) || (n_machines(c) > 1 && !(declared(c) & DPB_COMM_MULTI_NODE)))
        named |= 1u << HOSTS;
    if (combination_by_mpi(c) && combination_has(c, LAUNCHER, ""))
        named |= 1u << LAUNCHER;
    if (needs_device(c)) /* neither device has memory of its own */
        named |= 1u << DEVICE;
    if (independent && combination_has(c, COMM_CORES, "1"))
        named |= 1u << COMM_CORES;
    if (independent && combination_has(c, PROVE, "yes"))
        named |= 1u << PROVE;
    if (!combination_has(c, GRADIENT, "auto") && combination_has(c, GRADIENT, "fp64") != fp64)
        named |= 1u << GRADIENT;
    return named;
}

bool combination_works(const struct combination *c)
{
    return refused_for(c) == 0;
}

unsigned combination_contradictions(const struct combination *c)
{
    return (unsigned)__builtin_popcount(refused_for(c));
}

bool combination_is_there(const struct combination *c)
{
    return (!combination_has(c, DEVICE, "cpu") || have_cpu_device()) &&
           (combination_has(c, LAUNCHER, "") || have_launchers);
}

/* ---- one of them --------------------------------------------------------------------------- */

enum { LINE_BYTES = 1024 };

static const char base[] =
    "-c empty.ini run.results=results run.steady_limit_s=0 run.warmup_steps=0 "
    "run.steps=2 run.batch=2 data.name=synthetic data.samples=24 "
    "data.test_samples=6 model.name=tiny device.threads=1";

static void settings_of(const struct combination *c, char line[LINE_BYTES])
{
    size_t used = 0;
    line[0] = '\0';
    for (enum axis axis = 0; axis < N_AXES; axis++)
        if (axis != LAUNCHER && combination_value(c, axis)[0])
            used += (size_t)snprintf(line + used, LINE_BYTES - used, " %s=%s", axes[axis].key,
                                     combination_value(c, axis));
}

/* `line`: what it was, for the message. */
static void expect_refusal(int exit_code, const char *err, const char *line, unsigned named)
{
    bool says = false;
    if (exit_code != 2)
        fail_msg("%s: exit code %d, not 2: %s", line, exit_code, err);
    for (enum axis axis = 0; axis < N_AXES; axis++)
        says = says || ((named & 1u << axis) && strstr(err, axes[axis].key));
    if (!says)
        fail_msg("%s: the refusal does not name what cannot be: %s", line, err);
}

static void expect_text(const json_t *result, const char *line, const char *path,
                        const char *expected)
{
    if (strcmp(json_text_at(result, path), expected) != 0)
        fail_msg("%s: %s is '%s', not '%s'", line, path, json_text_at(result, path), expected);
}

static void expect_number_at(const json_t *result, const char *line, const char *path,
                             double expected)
{
    if (json_number_at(result, path) != expected)
        fail_msg("%s: %s is %g, not %g", line, path, json_number_at(result, path), expected);
}

/* It ran, and what was asked for is what happened: as far as the result shows it by more than
 * echo. */
static void expect_run(const json_t *result, const char *line, const struct combination *c)
{
    bool trains = combination_has(c, MODE, "train");
    bool exchanges = !(declared(c) & DPB_COMM_ALONE);
    const char *by = combination_value(c, LAUNCHER);
    expect_text(result, line, "status", "ok");
    expect_text(result, line, "verification.pattern", exchanges ? "pass" : "not_applicable");
    expect_text(result, line, "verification.exchange",
                combination_has(c, PROVE, "yes") ? "pass" : "skipped");
    expect_text(result, line, "verification.replicas",
                exchanges ? "pass"
                : trains  ? "not_applicable"
                          : "skipped");
    expect_text(result, line, "world.launcher", by[0] ? by : "local");
    expect_number_at(result, line, "world.machines", n_machines(c));
    assert_int_equal(json_array_size(json_at(result, "ranks")), n_ranks(c));
    assert_int_equal(json_array_size(json_at(result, "loss")), 2);
    assert_int_equal(json_array_size(json_at(result, "eval")),
                     combination_has(c, EVALUATION, "yes"));
    bool moves = json_number_at(result, "comm.bytes_per_step") > 0;
    if (moves != (exchanges && n_ranks(c) > 1))
        fail_msg("%s: bytes moved: %d", line, moves);
}

static void start(struct command *command, const struct combination *c, const char *line)
{
    if (combination_has(c, LAUNCHER, "")) {
        dpbench(command, deadline_s, "%s --json%s", base, line);
        return;
    }
    launcher by = combination_has(c, LAUNCHER, "mpirun") ? MPIRUN : SRUN;
    launched(command, deadline_s, by, n_ranks(c), "%s --output " LAUNCH_RESULT "%s", base, line);
    command->json = own_json(launch_take_result());
}

void combination_run(const struct combination *c)
{
    struct command command;
    char line[LINE_BYTES], title[LINE_BYTES + 16];
    unsigned named = refused_for(c);
    settings_of(c, line);
    snprintf(title, sizeof title, "%s%s", combination_value(c, LAUNCHER), line);
    start(&command, c, line);
    if (named)
        expect_refusal(command.exit_code, command.err, title, named);
    else if (command.exit_code != 0 || !command.json)
        fail_msg("%s: exit code %d: %s", title, command.exit_code, command.err);
    else
        expect_run(command.json, title, c);
}

/* ---- all of them, checked ------------------------------------------------------------------- */

/* Of those that a launcher checks one in five, which no number of values divides; with
 * DPB_ALL_CELLS all (make check-long). Without a launcher all are checked, under a sanitizer one in
 * five. */
static bool is_checked(const struct combination *c, unsigned by, unsigned number)
{
    return c->at[LAUNCHER] == by && combination_is_there(c) &&
           ((by == 0 && !SANITIZED) || number % 5 == 0 || getenv("DPB_ALL_CELLS") != NULL);
}

/* A launcher takes longer to start than `check` takes: it starts a script that checks all of
 * them. */
static void write_script(unsigned by)
{
    struct combination c = {{0}};
    char line[LINE_BYTES];
    unsigned number = 0;
    FILE *script = fopen("checks.sh", "w");
    assert_non_null(script);
    do {
        if (!is_checked(&c, by, number++))
            continue;
        settings_of(&c, line);
        fprintf(script, "%s/dpbench check %s%s 2>&1 >/dev/null\necho \"= $?\"\n", build_directory(),
                base, line);
    } while (combination_next(&c));
    assert_int_equal(fclose(script), 0);
}

static void run_script(struct command *command, unsigned by)
{
    static const char *const starts[][12] = {
        {"/bin/sh", "checks.sh"},
        {"/usr/bin/env", "mpirun", "--oversubscribe", "-np", "1", "sh", "checks.sh"},
        {"/usr/bin/env", "srun", "--quiet", "--overcommit", "--mpi=pmix", "-n1", "sh", "checks.sh"},
    };
    command_run(command, many_s, starts[by], NULL);
    if (command->exit_code != 0)
        fail_msg("%s: exit code %d%s: %s", axes[LAUNCHER].values[by], command->exit_code,
                 command->late ? " (late)" : "", command->err);
}

/* The answer to one: its lines, ended in *at, which moves on; the exit code. */
static int take_answer(char **at, char **text)
{
    char *end = strncmp(*at, "= ", 2) == 0 ? *at : strstr(*at, "\n= ");
    if (!end)
        fail_msg("checks.sh has not come to its end: %s", *at);
    int code = atoi(end + (*end == '\n') + 2);
    *text = *at;
    *at = strchr(end + 1, '\n') + 1;
    *end = '\0';
    return code;
}

unsigned combinations_check(unsigned by)
{
    struct combination c = {{0}};
    struct command command;
    char line[LINE_BYTES], *text;
    unsigned n = 0, number = 0;
    write_script(by);
    run_script(&command, by);
    char *at = command.out;
    do {
        if (!is_checked(&c, by, number++))
            continue;
        unsigned named = refused_for(&c);
        int code = take_answer(&at, &text);
        settings_of(&c, line);
        if (named)
            expect_refusal(code, text, line, named);
        else if (code != 0)
            fail_msg("%s: refused by check, exit code %d: %s", line, code, text);
        n++;
    } while (combination_next(&c));
    assert_string_equal(at, "");
    return n;
}
