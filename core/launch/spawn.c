/*
 * spawn.c - starts one rank of a local job.
 *
 * fork and exec rather than posix_spawn: the child has to ask for a signal at its parent's death.
 * Between the two only calls that are safe in a signal handler.
 */
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/signals.h"
#include "machine/rights.h"

extern char **environ;

enum { RANK_FD = 3, TICK_MS = 50 };
#define RANK_MARK DPB_JOB_VARIABLE "=3"
#define JOIN_MARK DPB_JOB_VARIABLE "=3,join"

static size_t name_length(const char *variable)
{
    return strcspn(variable, "=");
}

static bool same_variable(const char *a, const char *b)
{
    size_t n = name_length(a);
    return n == name_length(b) && strncmp(a, b, n) == 0;
}

char **dpb_spawn_environment(const char *const *additions, bool joins)
{
    size_t n_own = 0, n_added = 0, n = 0;
    while (environ && environ[n_own])
        n_own++;
    while (additions && additions[n_added])
        n_added++;
    char **variables = calloc(n_own + n_added + 2, sizeof *variables);
    if (!variables)
        return NULL;
    for (size_t i = 0; i < n_own; i++) {
        bool replaced = same_variable(environ[i], RANK_MARK);
        for (size_t j = 0; j < n_added && !replaced; j++)
            replaced = same_variable(environ[i], additions[j]);
        if (!replaced)
            variables[n++] = environ[i];
    }
    for (size_t j = 0; j < n_added; j++)
        variables[n++] =
            (char *)(uintptr_t)additions[j]; /* execve takes but does not change them */
    variables[n] = (char *)(uintptr_t)(joins ? JOIN_MARK : RANK_MARK);
    return variables;
}

dpb_status dpb_spawn_greet(const struct dpb_spawn *spawn, int socket)
{
    struct dpb_hello hello = spawn->hello;
    int fds[DPB_HELLO_FDS] = {0};
    size_t n_fds = 0;
    for (size_t i = 0; i < DPB_HELLO_FDS; i++)
        if (spawn->fds[i] >= 0)
            fds[n_fds++] = spawn->fds[i];
    ssize_t n = dpb_rights_send(socket, &hello, sizeof hello, 0, fds, n_fds);
    explicit_bzero(&hello, sizeof hello);
    if (n != (ssize_t)sizeof hello)
        return dpb_fail(DPB_FAILED, "cannot hand the job over to rank %u: %s", spawn->hello.rank,
                        strerror(errno));
    return DPB_OK;
}

/* A descriptor that the new program keeps, at a place of its own. */
static bool place(int fd, int number)
{
    if (fd == number)
        return fcntl(fd, F_SETFD, 0) == 0;
    return dup2(fd, number) == number;
}

static void run_child(const struct dpb_spawn *spawn, int socket, int null_fd, int report)
{
    static char name[] = "dpbench";
    char *arguments[] = {name, NULL};
    sigset_t none;
    /* First: a child that is stopped before this would outlive its launcher. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != spawn->hello.launcher_pid)
        _exit(1); /* it ended before the request was in place */
    sigemptyset(&none);
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        if (!dpb_signals_ends(signal_number) || !dpb_signals_ignored(signal_number))
            signal(signal_number, SIG_DFL); /* those that dpbench ignores would stay so */
    /* A group of its own: the terminal's ^C is for the launcher, and a rank's own children end with
     * it. As the rank is then in the background, writing to the terminal must not stop it. */
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Out of the way of the places to be filled. */
    int high = fcntl(report, F_DUPFD_CLOEXEC, RANK_FD + 1);
    const bool home = spawn->network < 0 || setns(spawn->network, CLONE_NEWNET) == 0;
    /* What plugins and libraries print is no part of a document on the launcher's stdout. */
    if (home && high >= 0 && place(socket, RANK_FD) && place(null_fd, STDIN_FILENO) &&
        place(STDERR_FILENO, STDOUT_FILENO))
        execve("/proc/self/exe", arguments, spawn->environment);
    int error = home ? errno : -errno;
    ssize_t ignored = write(high >= 0 ? high : report, &error, sizeof error);
    (void)ignored;
    _exit(127);
}

/* The pipe closes when the child executes its program, or says why it cannot. */
static dpb_status await_program(const struct dpb_spawn *spawn, int report)
{
    const struct dpb_deadline deadline = dpb_deadline_in(spawn->timeout_ns);
    struct pollfd said = {.fd = report, .events = POLLIN};
    int error = 0;
    while (poll(&said, 1, TICK_MS) <= 0) {
        if (dpb_signals_pending())
            return DPB_INTERRUPTED;
        if (dpb_deadline_passed(deadline))
            return DPB_TIMEOUT;
    }
    if (read(report, &error, sizeof error) == 0)
        return DPB_OK;
    if (error < 0)
        return dpb_fail(DPB_FAILED, "cannot start rank %u: entering the network of its host: %s",
                        spawn->hello.rank, strerror(-error));
    return dpb_fail(DPB_FAILED, "cannot start rank %u: executing /proc/self/exe: %s%s",
                    spawn->hello.rank, strerror(error),
                    error == ENOENT ? "; is /proc mounted?" : "");
}

static dpb_status start_child(const struct dpb_spawn *spawn, int socket, int null_fd, pid_t *pid)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return dpb_fail(DPB_FAILED, "cannot open a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        run_child(spawn, socket, null_fd, report[1]);
    int fork_error = errno;
    close(report[1]);
    dpb_status status = child > 0 ? await_program(spawn, report[0])
                                  : dpb_fail(DPB_FAILED, "cannot start rank %u: %s",
                                             spawn->hello.rank, strerror(fork_error));
    close(report[0]);
    if (status == DPB_OK || status == DPB_TIMEOUT) {
        *pid = child;
    } else if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return status;
}

/* The socket pair; its first message is in it before the child is there. */
static dpb_status open_pair(const struct dpb_spawn *spawn, int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return dpb_fail(DPB_FAILED, "cannot open a socket for rank %u: %s", spawn->hello.rank,
                        strerror(errno));
    return DPB_OK;
}

static dpb_status start_on(const struct dpb_spawn *spawn, dpb_status status, const int ends[2],
                           pid_t *pid, int *socket)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (status == DPB_OK && null_fd < 0)
        status = dpb_fail(DPB_IO, "/dev/null: %s", strerror(errno));
    DPB_THEN(status, start_child(spawn, ends[1], null_fd, pid));
    if (null_fd >= 0)
        close(null_fd);
    close(ends[1]);
    if (status == DPB_OK || status == DPB_TIMEOUT)
        *socket = ends[0];
    else
        close(ends[0]);
    return status;
}

dpb_status dpb_spawn_rank(const struct dpb_spawn *spawn, pid_t *pid, int *socket)
{
    int ends[2];
    DPB_TRY(open_pair(spawn, ends));
    return start_on(spawn, dpb_spawn_greet(spawn, ends[0]), ends, pid, socket);
}

dpb_status dpb_spawn_join(const struct dpb_spawn *spawn, const struct dpb_join *join, pid_t *pid,
                          int *socket)
{
    int ends[2];
    dpb_status status = DPB_OK;
    DPB_TRY(open_pair(spawn, ends));
    if (send(ends[0], join, sizeof *join, MSG_NOSIGNAL) != (ssize_t)sizeof *join)
        status = dpb_fail(DPB_FAILED, "cannot write to the socket of rank %u: %s",
                          spawn->hello.rank, strerror(errno));
    return start_on(spawn, status, ends, pid, socket);
}
