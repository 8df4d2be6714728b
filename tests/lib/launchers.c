/* launchers.c - see launchers.h. */
#include "lib/launchers.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/boards.h"
#include "lib/test.h"

const char *const launcher_names[N_LAUNCHERS] = {"mpirun", "srun", "environment"};

static const double start_s = 60.0; /* for a loaded machine, or a sanitizer */
/* A part tells the head of its journal after half a second (launch/part_messages.h), by ticks of
 * 0.1 s. */
static const useconds_t journal_us = 700000;
static char slurm_directory[80], slurm_program[PATH_MAX], environment_program[PATH_MAX];
static char mark[64]; /* in the environment of the job that was started last */
static unsigned n_started;
static int slurm_nodes = 1;

static int slurm(const char *what, const char *nodes)
{
    const char *const arguments[] = {slurm_program, what, slurm_directory, nodes, NULL};
    struct command command;
    command_run(&command, 60, arguments, NULL);
    int code = command.exit_code;
    if (code != 0)
        print_error("%s %s: %s\n", slurm_program, what, command.err);
    return code;
}

int launchers_start(int n_nodes)
{
    char directory[64], conf[128], nodes[12];
    if (access("/usr/bin/mpirun", X_OK) != 0 && system("command -v mpirun >/dev/null") != 0) {
        print_error("mpirun is missing: make deps\n");
        return 1;
    }
    if (!realpath("tests/lib/slurm", slurm_program) ||
        !realpath("tests/lib/by_environment", environment_program))
        return 1;
    setenv("DPB_TEST_BY_ENVIRONMENT", environment_program, 1);
    temporary_directory(directory);
    snprintf(slurm_directory, sizeof slurm_directory, "%s", directory);
    snprintf(conf, sizeof conf, "%s/slurm.conf", slurm_directory);
    setenv("SLURM_CONF", conf, 1);
    launchers_allow_root();
    snprintf(nodes, sizeof nodes, "%d", n_nodes);
    slurm_nodes = n_nodes;
    return slurm("start", nodes);
}

/* Each mpirun of a user makes this directory if it is missing; the last removes it, unless it holds
 * something. One that ends while another begins takes it from under that: none is to remove it. */
static void hold_session_directory(void)
{
    char host[HOST_NAME_MAX + 1] = "", path[512];
    const char *root = getenv("TMPDIR");
    if (!root || strlen(root) > 256 || gethostname(host, sizeof host - 1) != 0)
        return; /* /tmp is not ours */
    host[strcspn(host, ".")] = '\0';
    snprintf(path, sizeof path, "%s/ompi.%s.%u", root, host, (unsigned)geteuid());
    (void)mkdir(path, 0700);
    strcat(path, "/held");
    (void)mkdir(path, 0700);
}

void launchers_allow_root(void)
{
    hold_session_directory();
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

void launchers_stop(void)
{
    if (slurm_directory[0])
        slurm("stop", NULL);
}

/* ---- starting -------------------------------------------------------------------------------- */

const char *launched_mark(void)
{
    snprintf(mark, sizeof mark, "DPB_TEST_MARK=%d.%u", (int)getpid(), ++n_started);
    return mark;
}

void launched_start_program(struct started *started, launcher by, int n, const char *program)
{
    const char *const environment[] = {launched_mark(), NULL};
    if (by == MPIRUN)
        line_start(started, environment, "/usr/bin/env mpirun --oversubscribe -np %d %s", n,
                   program);
    else if (by == ENVIRONMENT)
        line_start(started, environment, "%s %d %s", environment_program, n, program);
    else
        line_start(started, environment,
                   "/usr/bin/env srun --quiet --overcommit --kill-on-bad-exit=1 --mpi=pmix -N %d "
                   "-n %d %s",
                   slurm_nodes, n, program);
}

static void start_dpbench(struct started *started, launcher by, int n, const char *format,
                          va_list list)
{
    char program[4096];
    size_t used = (size_t)snprintf(program, sizeof program, "%s/dpbench ", build_directory());
    used += (size_t)vsnprintf(program + used, sizeof program - used, format, list);
    assert_true(used < sizeof program);
    launched_start_program(started, by, n, program);
}

void launched_start(struct started *started, launcher by, int n, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    start_dpbench(started, by, n, format, list);
    va_end(list);
}

void launched(struct command *command, double deadline_s, launcher by, int n, const char *format,
              ...)
{
    struct started started;
    va_list list;
    va_start(list, format);
    start_dpbench(&started, by, n, format, list);
    va_end(list);
    command_finish(&started, command, deadline_s);
}

/* ---- its processes --------------------------------------------------------------------------- */

/* The environment that a process was started with, NULs for ends; its length. */
static size_t read_environment(const char *pid, char *text, size_t capacity)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, capacity - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    return n;
}

static bool has_variable(const char *text, size_t n, const char *variable)
{
    for (const char *at = text; at < text + n; at += strlen(at) + 1)
        if (strcmp(at, variable) == 0)
            return true;
    return false;
}

/* A launcher of a part has it not. */
static bool is_rank(const char *text, size_t n)
{
    return has_variable(text, n, "DPBENCH_JOB=3,join") || has_variable(text, n, "DPBENCH_JOB=3");
}

static bool is_dpbench(const char *pid)
{
    char path[PATH_MAX], exe[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/%s/exe", pid);
    ssize_t n = readlink(path, exe, sizeof exe - 1);
    return n > 8 && strcmp(exe + n - 8, "/dpbench") == 0;
}

/* The first process of the job of which `rank` and the other are true; rank < 0: any. */
static pid_t find(int rank, bool part_launcher)
{
    static char text[1 << 18];
    char by_pmix[32], by_environment[32];
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    snprintf(by_pmix, sizeof by_pmix, "PMIX_RANK=%d", rank);
    snprintf(by_environment, sizeof by_environment, "RANK=%d", rank);
    for (struct dirent *entry; !found && (entry = readdir(proc));) {
        if (!strspn(entry->d_name, "0123456789") || !is_dpbench(entry->d_name))
            continue;
        size_t n = read_environment(entry->d_name, text, sizeof text);
        const bool of_rank =
            has_variable(text, n, by_pmix) || has_variable(text, n, by_environment);
        if (has_variable(text, n, mark) &&
            (rank < 0 || (of_rank && is_rank(text, n) == !part_launcher)))
            found = (pid_t)atoi(entry->d_name);
    }
    closedir(proc);
    return found;
}

pid_t launched_process(int rank, bool part_launcher)
{
    return find(rank, part_launcher);
}

bool launched_has_begun(int rank)
{
    return board_is_there(find(rank, true));
}

void launched_await_steps(int n)
{
    int made;
    for (double until_s = now_s() + start_s; (made = board_ranks_with_steps(find(0, true), n)) < n;
         usleep(5000))
        if (now_s() > until_s)
            fail_msg("%d of %d ranks made steps in %g s%s", made, n, start_s,
                     find(0, true) ? "" : "; the job has ended");
    usleep(journal_us);
}

void launched_expect_none(const char *title, double gone_s)
{
    double left_s = gone_s; /* by looks, as in traces.c */
    for (pid_t pid; (pid = find(-1, false)) != 0; usleep(5000)) {
        if ((left_s -= 0.005) > 0)
            continue;
        kill(pid, SIGKILL);
        fail_msg("%s: process %d is left after %g s", title, (int)pid, gone_s);
    }
}
