/* child.c - runs another program that prints a document, for `dpbench gate` and sweep.launch: see
 * cli.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

#define TICK_NS INT64_C(250000000)
#define LINGER_NS INT64_C(10000000000) /* from the end of the document to that of the program */
#define KILL_NS INT64_C(3000000000)    /* from SIGTERM to SIGKILL */

struct running {
    const struct dpb_child *child;
    struct dpb_child_end *end;
    pid_t pid;
    int out, err;
    off_t bytes;        /* of `out` at the last look */
    int64_t end_at_ns;  /* SIGTERM then; INT64_MAX: no limit */
    int64_t kill_at_ns; /* SIGKILL then */
};

/* In the child: does not return. */
static void become(const struct running *running, pid_t parent)
{
    sigset_t none;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    setpgid(0, 0); /* the terminal's ^C is for the parent, which passes it on once */
    if (running->child->without)
        unsetenv(running->child->without);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127); /* it ended before the request was in place */
    dup2(null_fd, STDIN_FILENO);
    dup2(running->out, STDOUT_FILENO);
    dup2(running->err, STDERR_FILENO);
    execv(running->child->program, (char *const *)(uintptr_t)running->child->words);
    dprintf(STDERR_FILENO, "%s: %s\n", running->child->program, strerror(errno));
    _exit(127);
}

/* The text of a descriptor; NULL: no memory. @owned. */
static char *take_text(int fd, size_t *length)
{
    struct stat info;
    char *text = fstat(fd, &info) == 0 ? calloc((size_t)info.st_size + 1, 1) : NULL;
    const ssize_t n = text ? pread(fd, text, (size_t)info.st_size, 0) : 0;
    *length = n > 0 ? (size_t)n : 0;
    return text;
}

/* Whether the output, which has grown, ends as a document of dpbench does. */
static bool has_document(struct running *running)
{
    struct stat info;
    char last[3] = "";
    if (fstat(running->out, &info) != 0 || info.st_size < 3 || info.st_size == running->bytes)
        return false;
    running->bytes = info.st_size;
    return pread(running->out, last, 3, info.st_size - 3) == 3 && memcmp(last, "\n}\n", 3) == 0;
}

static void look_at_time(struct running *running)
{
    const int64_t now = dpb_now_ns();
    if (running->child->lingers && has_document(running)) {
        running->end->whole = true;
        running->end_at_ns = now + LINGER_NS;
    }
    if (now >= running->end_at_ns) {
        running->end->late = true;
        running->end_at_ns = INT64_MAX;
        running->kill_at_ns = now + KILL_NS;
        kill(running->pid, SIGTERM);
    }
    if (now >= running->kill_at_ns)
        kill(-running->pid, SIGKILL);
}

/* Passes on the signals of this process, and ends the child when it is late. */
static void await(struct running *running, const sigset_t *set)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    int status = 0;
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)running->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        const int number = sigtimedwait(set, NULL, &tick);
        if (number == SIGINT || number == SIGTERM) {
            running->end->signal_number = number;
            kill(running->pid, running->child->lingers ? SIGTERM : number);
        }
        look_at_time(running);
    }
    /* Until the child is reaped, the number is that of its group: of what it has started. */
    if (running->end->late || running->end->signal_number != 0)
        kill(-running->pid, SIGKILL);
    if (waitpid(running->pid, &status, 0) == running->pid)
        running->end->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

dpb_status dpb_child_run(const struct dpb_child *child, struct dpb_child_end *end)
{
    struct running running = {.child = child,
                              .end = end,
                              .out = memfd_create("document", MFD_CLOEXEC),
                              .err = memfd_create("messages", MFD_CLOEXEC),
                              .end_at_ns = INT64_MAX,
                              .kill_at_ns = INT64_MAX};
    const pid_t own = getpid();
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction old_child;
    sigset_t set, mask;
    *end = (struct dpb_child_end){.code = 127};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigaction(SIGCHLD, &usual, &old_child);
    sigprocmask(SIG_BLOCK, &set, &mask);
    running.pid = running.out >= 0 && running.err >= 0 ? fork() : -1;
    if (running.pid == 0)
        become(&running, own);
    if (running.pid > 0) {
        if (child->limit_ns > 0)
            running.end_at_ns = dpb_now_ns() + child->limit_ns;
        await(&running, &set);
        end->out = take_text(running.out, &end->out_bytes);
        end->err = take_text(running.err, &end->err_bytes);
    }
    const int error = errno;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGCHLD, &old_child, NULL);
    if (running.out >= 0)
        close(running.out);
    if (running.err >= 0)
        close(running.err);
    if (running.pid < 0)
        return dpb_fail(DPB_FAILED, "%s cannot be started: %s", child->program, strerror(error));
    return dpb_allocated(end->out && end->err);
}

void dpb_child_release(struct dpb_child_end *end)
{
    free(end->out);
    free(end->err);
    *end = (struct dpb_child_end){0};
}
