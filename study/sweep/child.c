/* child.c - see child.h. */
#include "study/sweep/child.h"

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

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"

#define TICK_NS INT64_C(250000000)
#define LINGER_NS INT64_C(10000000000) /* from the end of the document to that of the program */
#define KILL_NS INT64_C(3000000000)    /* from SIGTERM, or a second signal, to SIGKILL */

struct running {
    const struct dpb_child *child;
    struct dpb_child_end *end;
    struct dpb_child_running its;
    off_t bytes;                         /* of `out` at the last look */
    struct dpb_deadline end_at, kill_at; /* SIGTERM and SIGKILL then */
};

/* In the child: does not return. */
static void become(const struct dpb_child *child, const struct dpb_child_running *running,
                   const struct dpb_signals *held, pid_t parent)
{
    /* Those that main and the parent's wait changed: ignored ones would stay so. */
    static const int numbers[] = {SIGTSTP, SIGPIPE, SIGXFSZ};
    sigset_t none;
    int in = running->in >= 0 ? running->in : open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    setpgid(0, 0); /* the terminal's ^C is for the parent, which passes it on once */
    if (child->without)
        unsetenv(child->without);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        signal(numbers[i], SIG_DFL);
    for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
        if (held->numbers[i] != 0) /* ignored ones stay so */
            signal(held->numbers[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, child->input ? SIGKILL : SIGTERM);
    if (getppid() != parent)
        _exit(127); /* it ended before the request was in place */
    if (child->orders > 0)
        fcntl(child->orders, F_SETFD, 0);
    dup2(in, STDIN_FILENO);
    dup2(running->out, STDOUT_FILENO);
    if (running->err >= 0)
        dup2(running->err, STDERR_FILENO);
    execv(child->program, (char *const *)(uintptr_t)child->words);
    dprintf(STDERR_FILENO, "%s: %s\n", child->program, strerror(errno));
    _exit(127);
}

/* The text of a descriptor (-1: none); NULL: no memory. @owned. */
static char *take_text(int fd, size_t *length)
{
    struct stat info = {0};
    char *text = fd < 0 || fstat(fd, &info) == 0 ? calloc((size_t)info.st_size + 1, 1) : NULL;
    const ssize_t n = text ? pread(fd, text, (size_t)info.st_size, 0) : 0;
    *length = n > 0 ? (size_t)n : 0;
    return text;
}

/* Whether the output, which has grown, ends as a document of dpbench does. */
static bool has_document(struct running *running)
{
    struct stat info;
    char last[3] = "";
    if (fstat(running->its.out, &info) != 0 || info.st_size < 3 || info.st_size == running->bytes)
        return false;
    running->bytes = info.st_size;
    return pread(running->its.out, last, 3, info.st_size - 3) == 3 && memcmp(last, "\n}\n", 3) == 0;
}

static void look_at_time(struct running *running)
{
    if (running->child->lingers && has_document(running)) {
        running->end->whole = true;
        running->end_at = dpb_deadline_in(LINGER_NS);
    }
    if (dpb_deadline_passed(running->end_at)) {
        running->end->late = true;
        running->end_at = dpb_deadline_in(-1);
        running->kill_at = dpb_deadline_in(KILL_NS);
        kill(running->its.pid, SIGTERM);
    }
    if (dpb_deadline_passed(running->kill_at))
        kill(-running->its.pid, SIGKILL);
}

/* ^Z is for the child's job, which stops its ranks and then itself; then this process stops. */
void dpb_child_suspend(const struct dpb_child_running *const *running, size_t n)
{
    siginfo_t changed;
    for (size_t i = 0; i < n; i++)
        kill(running[i]->pid, SIGTSTP);
    for (size_t i = 0; i < n; i++)
        waitid(P_PID, (id_t)running[i]->pid, &changed, WSTOPPED | WEXITED | WNOWAIT);
    raise(SIGSTOP);
    for (size_t i = 0; i < n; i++)
        kill(running[i]->pid, SIGCONT);
}

/* Passes on the signals of this process, and ends the child when it is late. */
static void await(struct running *running, struct dpb_signals *signals)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    const struct dpb_child_running *its = &running->its;
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)its->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        const int number = sigtimedwait(&signals->held, NULL, &tick);
        if (dpb_signals_interrupts(signals, number)) {
            /* The child has not ended by the first one. */
            if (running->end->signal_number != 0 && running->kill_at.at_ns == INT64_MAX)
                running->kill_at = dpb_deadline_in(KILL_NS);
            running->end->signal_number = number;
            kill(running->its.pid, running->child->lingers ? SIGTERM : number);
        }
        if (number == SIGTSTP)
            dpb_child_suspend(&its, 1);
        look_at_time(running);
    }
}

/* Opens the child's files; false: errno. */
static bool open_files(const char *input, struct dpb_child_running *running)
{
    running->out = memfd_create("document", MFD_CLOEXEC);
    if (!input)
        running->err = memfd_create("messages", MFD_CLOEXEC);
    else
        running->in = memfd_create("request", MFD_CLOEXEC);
    if (running->out < 0 || (running->err < 0 && running->in < 0))
        return false;
    return !input || (dpb_write_all(running->in, input, strlen(input)) &&
                      lseek(running->in, 0, SEEK_SET) == 0);
}

static void close_files(const struct dpb_child_running *running)
{
    const int files[] = {running->in, running->out, running->err};
    for (size_t i = 0; i < 3; i++)
        if (files[i] >= 0)
            close(files[i]);
}

dpb_status dpb_child_start(const struct dpb_child *child, const struct dpb_signals *held,
                           struct dpb_child_running *running)
{
    const pid_t own = getpid();
    *running = (struct dpb_child_running){-1, -1, -1, -1};
    running->pid = open_files(child->input, running) ? fork() : -1;
    if (running->pid == 0)
        become(child, running, held, own);
    if (running->pid > 0)
        return DPB_OK;
    const int error = errno;
    close_files(running);
    return dpb_fail(DPB_FAILED, "%s cannot be started: %s", child->program, strerror(error));
}

dpb_status dpb_child_take(struct dpb_child_running *running, struct dpb_child_end *end)
{
    int status = 0;
    siginfo_t ended;
    while (waitid(P_PID, (id_t)running->pid, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    /* Until the child is reaped, its number names its group: all that it started. */
    if (end->late || end->signal_number != 0)
        kill(-running->pid, SIGKILL);
    if (waitpid(running->pid, &status, 0) == running->pid)
        end->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    end->out = take_text(running->out, &end->out_bytes);
    end->err = take_text(running->err, &end->err_bytes);
    close_files(running);
    return dpb_allocated(end->out && end->err);
}

dpb_status dpb_child_run(const struct dpb_child *child, struct dpb_child_end *end)
{
    struct running running = {
        .child = child, .end = end, .end_at = dpb_deadline_in(-1), .kill_at = dpb_deadline_in(-1)};
    struct dpb_signals signals;
    *end = (struct dpb_child_end){.code = 127};
    dpb_signals_hold(&signals, SIGCHLD, child->input ? SIGTSTP : 0);
    dpb_status status = dpb_child_start(child, &signals, &running.its);
    if (status == DPB_OK) {
        if (child->limit_ns > 0)
            running.end_at = dpb_deadline_in(child->limit_ns);
        await(&running, &signals);
        status = dpb_child_take(&running.its, end);
    }
    dpb_signals_release(&signals);
    return status;
}

void dpb_child_release(struct dpb_child_end *end)
{
    free(end->out);
    free(end->err);
    *end = (struct dpb_child_end){0};
}
