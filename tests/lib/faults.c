/* faults.c - see faults.h. */
#include "lib/faults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/boards.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

enum { MOST_RANKS = 8 };

static const double start_s = 60.0; /* for a loaded machine to start ranks */

int faults_setup(void **state)
{
    const struct rlimit none = {0};
    int result = sandbox_setup(state);
    setrlimit(RLIMIT_CORE, &none);
    sandbox_write("base.ini", "[run]\nresults =\nworkers = 2\nbatch = 2\nsteps = 20\n"
                              "warmup_steps = 3\nsteady_limit_s = 0\n"
                              "[model]\nname = tiny\n"
                              "[data]\nsamples = 64\ntest_samples = 16\n"
                              "[device]\nname = reference\nthreads = 1\n"
                              "[comm]\nname = shm\n[eval]\nevery = 5\n");
    return result;
}

const char *faults_only_error(const char *title, const struct command *command)
{
    const char *error = strstr(command->err, "error: ");
    if (!error || strstr(error + 1, "error: "))
        fail_msg("%s: not one error: %s", title, command->err);
    return error;
}

void faults_expect_failed(const char *title, const struct command *command)
{
    const char *error = json_text_at(command->json, "error");
    if (strcmp(json_text_at(command->json, "status"), "failed") != 0 || !error[0] ||
        !strstr(command->err, error))
        fail_msg("%s: the result does not say what failed: %s", title, command->out);
}

unsigned faults_number_of(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* ---- processes ----------------------------------------------------------------------------- */

/* The kernel lists them by birth. /proc lists them by number, and numbers begin anew. */
size_t faults_children_of(pid_t parent, pid_t *pids, size_t n)
{
    char path[64];
    size_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "re");
    if (!file)
        assert_int_equal(access("/proc/thread-self/children", R_OK), 0);
    while (file && found < n && fscanf(file, "%d", &pids[found]) == 1)
        found++;
    if (file)
        fclose(file);
    return found;
}

bool faults_is_named(pid_t pid, const char *name)
{
    char path[64], named[17] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(named, sizeof named, file);
    if (file)
        fclose(file);
    named[strcspn(named, "\n")] = '\0';
    return read && strcmp(named, name) == 0;
}

void faults_start(struct started *started, const char *arguments)
{
    dpbench_start(started, NULL, FAULTS_BASE "%s", arguments);
}

void faults_start_long(struct started *started, const char *arguments)
{
    char line[1024];
    snprintf(line, sizeof line, "run.seconds=60 run.delay=constant(1ms) %s", arguments);
    faults_start(started, line);
}

/* A sweep starts the launcher of its cell. */
static size_t ranks_of(pid_t launcher, pid_t *pids, size_t n)
{
    const size_t found = faults_children_of(launcher, pids, n);
    return found == 1 && faults_is_named(pids[0], "dpbench") ? faults_children_of(pids[0], pids, n)
                                                             : found;
}

void faults_await_ranks(const struct started *started, pid_t *pids, size_t n)
{
    for (double until_s = now_s() + start_s; ranks_of(started->pid, pids, n) < n;) {
        if (now_s() > until_s)
            fail_msg("%zu ranks did not start", n);
        usleep(500);
    }
}

void faults_await_steps(const struct started *started, pid_t *pids, size_t n)
{
    faults_await_ranks(started, pids, n);
    for (double until_s = now_s() + start_s; board_ranks_with_steps(started->pid, (int)n) < (int)n;
         usleep(5000))
        if (now_s() > until_s)
            fail_msg("%zu ranks made no steps", n);
    for (size_t rank = 0; rank < n; rank++) {
        char name[32];
        snprintf(name, sizeof name, "dpb-rank%zu", rank);
        assert_true(faults_is_named(pids[rank], name));
    }
}

void faults_check_killed(const char *arguments, size_t n_ranks, bool in_training, double most_s)
{
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[MOST_RANKS];
    char victim[64];
    assert_in_range(n_ranks, 2, MOST_RANKS);
    traces_take(&before, ".");
    faults_start_long(&started, arguments);
    (in_training ? faults_await_steps : faults_await_ranks)(&started, pids, n_ranks);
    kill(pids[1], SIGKILL);
    const double killed_s = now_s();
    command_finish(&started, &command, killed_s - started.began_s + 2 * most_s);
    const double took_s = now_s() - killed_s;
    if (command.exit_code != 1 || took_s > most_s)
        fail_msg("%s: exit %d after %.1f s\n%s", arguments, command.exit_code, took_s, command.err);
    snprintf(victim, sizeof victim, ", pid %d) ", (int)pids[1]);
    EXPECT_WORDS(arguments, faults_only_error(arguments, &command), "rank ", victim, "signal 9");
    traces_expect_none(&before, arguments, 1.0);
}
