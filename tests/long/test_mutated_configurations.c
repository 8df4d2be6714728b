/*
 * test_mutated_configurations.c - experiments with mistakes in them, 10,000 of them: `check` ends
 * soon, passes or refuses by a message, and prints nothing that steers a terminal. The run of an
 * experiment that `check` passes is not refused, but for an interface that is not there, and ends.
 *
 * DPB_CONFIGURATIONS=N: so many instead; DPB_FAULTS_SEED=S: others. A failure prints the
 * experiment.
 */
#include <ctype.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/launch_faults.h"
#include "lib/sandbox.h"
#include "lib/test.h"
#include "lib/traces.h"

/* The first is a hang's: the test may stand behind others' work. */
static const double deadline_s = 300.0, run_s = 4.0;

enum { MOST_BASES = 128, MOST_KEYS = 1024, RUN_EVERY = 5, MOST_BAD = 10 };

/* ---- what is changed ----------------------------------------------------------------------- */

#define SMALL(MORE)                                                                        \
    "[run]\nresults =\nworkers = 2\nbatch = 2\nsteps = 3\nwarmup_steps = 1\n"              \
    "steady_limit_s = 0\ntimeout_s = 10\n[model]\nname = tiny\n[data]\nname = synthetic\n" \
    "samples = 64\ntest_samples = 16\n[device]\nname = reference\nthreads = 1\n"           \
    "[optimizer]\nlearning_rate = 0.01\nmomentum = 0.9\n[eval]\nevery = 2\n" MORE

static const char *const small[] = {
    SMALL("[comm]\nname = shm\nbucket = 1 KiB\n"),
    SMALL("[comm]\nname = shm\ncodec = topk\n"),
    SMALL("[comm]\nname = replicated\n"),
    SMALL("[comm]\nname = ring_tcp\nchunk = 64\ninbox = 256\n"),
    SMALL("[comm]\nname = hierarchical\nhosts = 1+1\ninterface = lo\n"),
    SMALL("[comm]\nname = ps_cpu\n[run]\nservers = 1\n"),
    SMALL("[comm]\nname = local_sgd\nperiod = 2\n"),
    SMALL("[comm]\nname = independent\n[checkpoint]\nsave = x.safetensors\n"),
    SMALL("[sweep]\ncomm.name = shm, replicated\nrepeats = 2\n"),
    SMALL("[tune]\nrun.batch = 1, 2, 4\n")};

enum { SMALL_BASES = sizeof small / sizeof *small };

/* No path that leads out of the test's directory. */
static const char *const values[] = {"",
                                     "0",
                                     "1",
                                     "2",
                                     "3",
                                     "-1",
                                     "1.5",
                                     "0.1",
                                     "1e9",
                                     "1e308",
                                     "1e309",
                                     "nan",
                                     "-inf",
                                     "4294967296",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "18446744073709551616",
                                     "yes",
                                     "no",
                                     "none",
                                     "all",
                                     "auto",
                                     "sgd",
                                     "adam",
                                     "lars",
                                     "fp64",
                                     "fp16",
                                     "bf16",
                                     "shm",
                                     "replicated",
                                     "x",
                                     "a,b",
                                     "1,2",
                                     ",",
                                     "0..9",
                                     "2+1",
                                     "1+1+1",
                                     "1 s",
                                     "1 ms",
                                     "-1 s",
                                     "1 KiB",
                                     "4 EiB",
                                     "64",
                                     "\033[31m",
                                     "%s%n",
                                     "\xff\xfe",
                                     "'",
                                     "\"",
                                     ";",
                                     "[run]",
                                     "a/../b",
                                     "nowhere/x",
                                     "/dev/null",
                                     "trace(x)",
                                     "constant(1 ms)",
                                     "pareto(1 ms, 0)",
                                     NULL};

static char *bases[MOST_BASES], *keys[MOST_KEYS]; /* keys: "run.batch" */
static size_t n_bases, n_keys;

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_true(getdelim(&text, &size, '\0', file) > 0);
    fclose(file);
    return text;
}

/* The experiments of conf/ are read before the test has a directory of its own. */
static int set_up(void **state)
{
    glob_t found;
    for (size_t i = 0; i < SMALL_BASES; i++)
        bases[n_bases++] = strdup(small[i]);
    assert_int_equal(glob("conf/*.ini", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc && n_bases < MOST_BASES; i++)
        bases[n_bases++] = read_text(found.gl_pathv[i]);
    globfree(&found);
    return faults_setup(state);
}

static int tear_down(void **state)
{
    while (n_bases > 0)
        free(bases[--n_bases]);
    while (n_keys > 0)
        free(keys[--n_keys]);
    return sandbox_teardown(state);
}

/* Lines "  SECTION.KEY = what" of the help. */
static void read_keys(void)
{
    struct command command;
    dpbench(&command, deadline_s, "help all");
    for (char *line = strtok(command.out, "\n"); line && n_keys < MOST_KEYS;
         line = strtok(NULL, "\n")) {
        const size_t n =
            strspn(line += strspn(line, " "), "abcdefghijklmnopqrstuvwxyz0123456789_.");
        if (strncmp(line + n, " = ", 3) == 0 && memchr(line, '.', n))
            keys[n_keys++] = strndup(line, n);
    }
    assert_true(n_keys > 100);
}

/* ---- mutations ----------------------------------------------------------------------------- */

static size_t below(unsigned *seed, size_t n)
{
    return (size_t)rand_r(seed) % n;
}

static void replace(char **text, size_t from, size_t to, const char *with)
{
    char *made = NULL;
    assert_true(asprintf(&made, "%.*s%s%s", (int)from, *text, with, *text + to) >= 0);
    free(*text);
    *text = made;
}

static const char *any_value(unsigned *seed)
{
    static char longest[5001];
    const size_t i = below(seed, sizeof values / sizeof *values);
    memset(longest, 'a', sizeof longest - 1);
    return values[i] ? values[i] : longest;
}

/* From the begin of a line to that of the next. */
static void any_line(unsigned *seed, const char *text, size_t *from, size_t *to)
{
    *from = below(seed, strlen(text) + 1);
    while (*from > 0 && text[*from - 1] != '\n')
        --*from;
    *to = *from + strcspn(text + *from, "\n");
    *to += text[*to] == '\n';
}

static void add_setting(unsigned *seed, char **text)
{
    char *line = NULL;
    const char *key = keys[below(seed, n_keys)], *dot = strchr(key, '.');
    assert_true(asprintf(&line, "\n[%.*s]\n%s = %s\n", (int)(dot - key), key, dot + 1,
                         any_value(seed)) >= 0);
    replace(text, strlen(*text), strlen(*text), line);
    free(line);
}

static void mutate(unsigned *seed, char **text)
{
    size_t from, to;
    any_line(seed, *text, &from, &to);
    const char *equals = memchr(*text + from, '=', to - from);
    char byte[2] = {(char)(1 + below(seed, 255)), '\0'};
    char *line = strndup(*text + from, to - from);
    switch (below(seed, 8)) {
    case 0:
    case 1:
    case 2:
        if (equals)
            replace(text, (size_t)(equals - *text) + 1, to - (to > from), any_value(seed));
        break;
    case 3:
        replace(text, from, to, "");
        break;
    case 4:
        replace(text, from, from, line);
        break;
    case 5:
        if (to > from)
            replace(text, from, from + 1, byte);
        break;
    default:
        add_setting(seed, text);
    }
    free(line);
}

/* Most of them of the small ones, which can be run. */
static char *make_text(unsigned *seed)
{
    const size_t base = rand_r(seed) % 5 ? below(seed, SMALL_BASES) : below(seed, n_bases);
    char *text = strdup(bases[base]);
    for (size_t n = 1 + below(seed, 2); n > 0; n--)
        mutate(seed, &text);
    return text;
}

/* ---- what is seen -------------------------------------------------------------------------- */

static bool steers_terminal(const char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text) && *text != '\n' && *text != '\t')
            return true;
    return false;
}

/* NULL: nothing is wrong with how it ended. */
static const char *wrong_end(const struct command *command, const char *allowed)
{
    if (command->late)
        return "it does not end";
    if (command->signal_number != 0)
        return "it ended by a signal";
    if (steers_terminal(command->out) || steers_terminal(command->err))
        return "it prints a control character";
    for (const char *at = allowed; *at; at += strspn(at, " ")) {
        char *end;
        if ((int)strtol(at, &end, 10) == command->exit_code)
            return command->exit_code == 0 || launch_count_errors(command->err) > 0 ||
                           command->exit_code > 2 || strstr(command->out, "refused: ")
                       ? NULL
                       : "it failed without a message";
        at = end;
    }
    return "its exit code";
}

/* The run of an experiment: what takes longer is interrupted. */
static void run(struct command *command)
{
    struct started started;
    dpbench_start(&started, NULL, "-c mutated.ini");
    for (double until_s = now_s() + run_s; now_s() < until_s; usleep(20000)) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)started.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != 0)
            break;
    }
    kill(started.pid, SIGINT);
    command_finish(&started, command, deadline_s);
}

/* Few processes, and little memory: as `check` said. */
static bool is_small(const char *said)
{
    const char *memory = strstr(said, "  memory: "), *workers = strstr(said, " workers, ");
    const char *all = memory ? strstr(memory, " a worker, ") : NULL;
    if (!all || !workers || strtod(all + strlen(" a worker, "), NULL) > 300)
        return false;
    const long n_servers = strtol(workers + strlen(" workers, "), NULL, 10);
    while (workers > said && isdigit((unsigned char)workers[-1]))
        workers--;
    return strtol(workers, NULL, 10) + n_servers <= 8;
}

static void report(unsigned seed, const char *what, const char *why, const char *text,
                   const struct command *command)
{
    print_message("seed %u: %s: %s (exit %d, signal %d, %.1f s)\n%.1500s\n--- it said:\n%.1500s\n",
                  seed, what, why, command->exit_code, command->signal_number, command->seconds,
                  text, command->err);
}

/* Counts of all that was seen. */
struct counts {
    unsigned passed, run, bad;
};

/* `check` may run on another machine than the ranks do. */
static bool is_of_the_machine(const struct command *command)
{
    return command->exit_code == 2 &&
           strstr(command->err, " is no interface, address or network of this machine");
}

static void run_passed(unsigned seed, const char *text, struct counts *counts)
{
    struct command command;
    struct traces before;
    traces_take(&before, "empty");
    run(&command);
    const char *why = is_of_the_machine(&command) ? NULL : wrong_end(&command, "0 1 3 4 5 130");
    counts->run++;
    if (why) {
        report(seed, "run", why, text, &command);
        counts->bad++;
    }
    traces_expect_none(&before, "mutated", 2.0);
}

static void try_one(unsigned first, struct counts *counts)
{
    struct command command;
    unsigned seed = first;
    char *text = make_text(&seed);
    write_file("mutated.ini", text, strlen(text));
    dpbench(&command, deadline_s, "check -c mutated.ini");
    const char *why = wrong_end(&command, "0 2");
    if (why) {
        report(first, "check", why, text, &command);
        counts->bad++;
    }
    if (command.exit_code == 0 && counts->passed++ % RUN_EVERY == 0 && is_small(command.out) &&
        !strstr(text, "[sweep]") && !strstr(text, "[tune]"))
        run_passed(first, text, counts);
    free(text);
}

TEST(test_mutated)
{
    const unsigned n = faults_number_of("DPB_CONFIGURATIONS", 10000),
                   seed = faults_number_of("DPB_FAULTS_SEED", 8);
    struct counts counts = {0};
    read_keys();
    assert_int_equal(mkdir("empty", 0777), 0); /* traces are of processes and shared memory */
    for (unsigned i = 0; i < n && counts.bad < MOST_BAD; i++)
        try_one(seed + i * 2654435761u, &counts);
    print_message("%u of %u mutated configurations passed the check, %u were run\n", counts.passed,
                  n, counts.run);
    assert_int_equal(counts.bad, 0);
    assert_true(counts.passed * 20 > n && counts.run > 0);
}

TEST_MAIN(set_up, tear_down)
