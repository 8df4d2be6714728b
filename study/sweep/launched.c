/*
 * launched.c - other programs that print a document: for `dpbench gate`, another build; and a cell
 * that sweep.launch starts, which is dpbench under mpirun or srun.
 *
 * All settings of a cell are on its command line, so the experiment's file is read on this machine
 * alone; the result comes by standard output, since rank 0 may be elsewhere.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include "base/signals.h"
#include "base/text.h"
#include "cli/cli.h"
#include "base/json.h"
#include "study/sweep/launch_line.h"
#include "study/sweep/sweep_list.h"

#define TICK_NS INT64_C(250000000)
#define LINGER_NS INT64_C(10000000000) /* from the end of the document to that of the program */
#define KILL_NS INT64_C(3000000000)    /* from SIGTERM, or a second signal, to SIGKILL */

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
    /* Those that main and the parent's wait changed: ignored ones would stay so. */
    static const int numbers[] = {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};
    sigset_t none;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    setpgid(0, 0); /* the terminal's ^C is for the parent, which passes it on once */
    if (running->child->without)
        unsetenv(running->child->without);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        signal(numbers[i], SIG_DFL);
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
static void await(struct running *running, struct dpb_signals *signals)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    int status = 0;
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)running->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        const int number = sigtimedwait(&signals->held, NULL, &tick);
        if (dpb_signals_interrupts(signals, number)) {
            /* The child has not ended by the first one. */
            if (running->end->signal_number != 0 && running->kill_at_ns == INT64_MAX)
                running->kill_at_ns = dpb_now_ns() + KILL_NS;
            running->end->signal_number = number;
            kill(running->pid, running->child->lingers ? SIGTERM : number);
        }
        look_at_time(running);
    }
    /* Until the child is reaped, its number names its group: all that it started. */
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
    struct dpb_signals signals;
    *end = (struct dpb_child_end){.code = 127};
    dpb_signals_hold(&signals, (const int[DPB_SIGNALS_HELD]){SIGINT, SIGTERM, SIGCHLD});
    running.pid = running.out >= 0 && running.err >= 0 ? fork() : -1;
    if (running.pid == 0)
        become(&running, own);
    if (running.pid > 0) {
        if (child->limit_ns > 0)
            running.end_at_ns = dpb_now_ns() + child->limit_ns;
        await(&running, &signals);
        end->out = take_text(running.out, &end->out_bytes);
        end->err = take_text(running.err, &end->err_bytes);
    }
    const int error = errno;
    dpb_signals_release(&signals);
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

/* ---- cells that sweep.launch starts ---------------------------------------------------------- */

enum { REASON = 512 };

/* The file of a program as a shell finds it. */
static bool find_program(const char *name, char path[PATH_MAX])
{
    const char *at = getenv("PATH");
    if (strchr(name, '/')) {
        snprintf(path, PATH_MAX, "%s", name);
        return access(path, X_OK) == 0;
    }
    while (at && *at != '\0') {
        const size_t length = strcspn(at, ":");
        snprintf(path, PATH_MAX, "%.*s/%s", length > 0 ? (int)length : 1, length > 0 ? at : ".",
                 name);
        if (access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* Fails once the file is gone: another file in its place is another build. */
static dpb_status find_own(char path[PATH_MAX])
{
    if (realpath("/proc/self/exe", path))
        return DPB_OK;
    return dpb_fail(DPB_FAILED, "cannot find dpbench by /proc/self/exe: it was moved or replaced "
                                "after its start, or /proc is not mounted");
}

dpb_status dpb_launched_probe(const struct dpb_sweep *sweep)
{
    char **words, path[PATH_MAX], own[PATH_MAX];
    size_t n_words;
    dpb_status status = DPB_OK;
    if (sweep->launch[0] == '\0')
        return DPB_OK;
    DPB_TRY(dpb_sweep_launch(sweep, 1, 0, 1, &words, &n_words));
    if (!find_program(words[0], path))
        status = dpb_fail(DPB_USAGE, "%s: %s.launch: there is no program '%s' here",
                          sweep->launch_origin, sweep->study->name, words[0]);
    else
        status = find_own(own);
    dpb_sweep_list_destroy(words, n_words);
    return status;
}

/* ---- its command line ---------------------------------------------------------------------- */

/* The words of the launcher, of dpbench, and the settings of the cell, ended by NULL. They are the
 * caller's, also after a failure: dpb_sweep_list_destroy. */
static dpb_status make_line(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                            char ***words, size_t *n_words)
{
    static const char *const fixed[] = {"run", "-c", "/dev/null", "--json", "run.results="};
    enum { FIXED = sizeof fixed / sizeof *fixed };
    const struct dpb_config *config = experiment->config;
    char own[PATH_MAX];
    DPB_TRY(find_own(own));
    DPB_TRY(dpb_sweep_launch(sweep, experiment->n_workers, experiment->n_servers,
                             (uint32_t)experiment->settings.run.learners, words, n_words));
    size_t n = *n_words;
    char **line = realloc(*words, (n + FIXED + config->n_settings + 2) * sizeof *line);
    DPB_TRY(dpb_allocated(line));
    line[n++] = strdup(own);
    for (size_t i = 0; i < FIXED; i++)
        line[n++] = strdup(fixed[i]);
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *setting = &config->settings[i];
        /* The launcher will say where its ranks are. */
        if (strcmp(setting->origin, DPB_LAUNCH_ORIGIN) == 0 ||
            (strcmp(setting->section, "run") == 0 && strcmp(setting->key, "results") == 0))
            continue;
        if (asprintf(&line[n++], "%s.%s=%s", setting->section, setting->key, setting->value) < 0)
            line[n - 1] = NULL;
    }
    line[n] = NULL;
    *words = line;
    *n_words = n;
    bool whole = true;
    for (size_t i = 0; i < n; i++)
        whole &= line[i] != NULL;
    return dpb_allocated(whole);
}

void dpb_launched_print(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                        FILE *out)
{
    char **words;
    size_t n_words;
    if (sweep->launch[0] == '\0' ||
        dpb_sweep_launch(sweep, experiment->n_workers, experiment->n_servers,
                         (uint32_t)experiment->settings.run.learners, &words, &n_words) != DPB_OK)
        return;
    for (size_t i = 0; i < n_words; i++)
        fprintf(out, "%s %s", i == 0 ? "; by" : "", words[i]);
    dpb_sweep_list_destroy(words, n_words);
}

/* ---- its end ------------------------------------------------------------------------------- */

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* The error of dpbench itself (true); where there is none, the first line with a word in it. */
static bool find_reason(const char *text, char reason[REASON])
{
    static const char mark[] = "error: ", settings[] = "command line: ";
    const char *found = NULL;
    bool own = false;
    for (const char *line = text; *line != '\0' && !own; line = next_line(line)) {
        own = dpb_begins_with(line, mark);
        if (own)
            found = line + sizeof mark - 1;
        for (const char *c = line; !found && *c != '\0' && *c != '\n'; c++)
            found = isalnum((unsigned char)*c) ? line : NULL;
    }
    if (own && dpb_begins_with(found, settings))
        found += sizeof settings - 1; /* the sweep's user did not write it */
    snprintf(reason, REASON, "%.*s", found ? (int)strcspn(found, "\n") : 0, found ? found : "");
    return own;
}

static dpb_status status_named(const char *name)
{
    for (int status = DPB_OK; strcmp(dpb_status_name((dpb_status)status), "UNKNOWN") != 0; status++)
        if (strcmp(dpb_status_name((dpb_status)status), name) == 0)
            return (dpb_status)status;
    return DPB_FAILED;
}

/* Why a cell has left no result. */
static dpb_status explain(const struct dpb_sweep *sweep, const char *program,
                          const struct dpb_child_end *end)
{
    char reason[REASON];
    const bool own = find_reason(end->err, reason);
    if (end->signal_number != 0)
        return dpb_fail(DPB_INTERRUPTED, "interrupted by signal %d before there was a result",
                        end->signal_number);
    if (end->late && !end->whole)
        return dpb_fail(DPB_TIMEOUT, "%s has not ended within %s.launch_limit_s = %g s: %s",
                        program, sweep->study->name, (double)sweep->launch_limit_ns * 1e-9,
                        reason[0] ? reason : "it said nothing");
    if (own && end->code == dpb_status_exit_code(DPB_UNSUPPORTED))
        return dpb_fail(DPB_UNSUPPORTED, "%s", reason);
    if (end->code == 0 || end->whole)
        return dpb_fail(DPB_FAILED,
                        "%s printed no result of one run: '%.60s'; does it start several jobs, or "
                        "print lines of its own?",
                        program, end->out);
    return dpb_fail(DPB_FAILED, "%s ended with exit code %d: %s", program, end->code, reason);
}

/* Replaces the child's origin `command line` by the origin that the setting has in this sweep. */
static void restore_origins(const struct dpb_experiment *experiment, json_t *result)
{
    static const char mark[] = DPB_LAUNCH_ORIGIN ", ";
    json_t *own = dpb_experiment_effective(experiment);
    char path[256];
    for (size_t i = 0; i < experiment->config->n_settings; i++) {
        const struct dpb_setting *setting = &experiment->config->settings[i];
        const bool marked = dpb_begins_with(setting->origin, mark);
        snprintf(path, sizeof path, "config.%s.%s", setting->section, setting->key);
        json_t *entry = (json_t *)(uintptr_t)dpb_json_at(result, path);
        if (dpb_json_is(entry, "origin", DPB_COMMAND_LINE))
            json_object_set_new(entry, "origin",
                                dpb_json_string(setting->origin + (marked ? sizeof mark - 1 : 0)));
    }
    json_object_update_new((json_t *)(uintptr_t)dpb_json_at(result, "config.run"),
                           json_pack("{s:O*}", "results", dpb_json_at(own, "run.results")));
    json_decref(own);
}

static json_t *result_of(const struct dpb_child_end *end)
{
    json_t *made = json_loadb(end->out, end->out_bytes, 0, NULL);
    if (dpb_json_is(made, "schema", "dpbench.result/1"))
        return made;
    json_decref(made);
    return NULL;
}

/* As dpb_execute, but from the end of a child. */
static void take_end(const struct dpb_sweep *sweep, const char *program,
                     const struct dpb_experiment *experiment, const struct dpb_child_end *end,
                     struct dpb_execution *execution)
{
    execution->result = result_of(end);
    if (!execution->result) {
        execution->status = explain(sweep, program, end);
    } else {
        const char *failure = dpb_json_text(execution->result, "failure", NULL);
        execution->status = failure ? status_named(failure) : DPB_OK;
        if (failure)
            dpb_fail(execution->status, "%s",
                     dpb_json_text(execution->result, "error", "no reason given"));
        if (end->late)
            dpb_log(DPB_LOG_INFO, "  %s has not ended after its result, and was ended", program);
        restore_origins(experiment, execution->result);
    }
    execution->exit_code = dpb_status_exit_code(execution->status);
    if (execution->status == DPB_INTERRUPTED && end->signal_number != 0)
        execution->exit_code = 128 + end->signal_number;
}

void dpb_execute_launched(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                          struct dpb_execution *execution)
{
    char **words = NULL;
    size_t n_words = 0;
    struct dpb_child_end end = {0};
    char path[PATH_MAX];
    dpb_status status = make_line(sweep, experiment, &words, &n_words);
    if (status == DPB_OK && !find_program(words[0], path))
        status = dpb_fail(DPB_FAILED, "there is no program '%s' any more", words[0]);
    if (status == DPB_OK) {
        const struct dpb_child child = {.program = path,
                                        .words = (const char *const *)words,
                                        .limit_ns = sweep->launch_limit_ns,
                                        .lingers = true};
        status = dpb_child_run(&child, &end);
    }
    *execution = (struct dpb_execution){status, dpb_status_exit_code(status), NULL};
    if (status == DPB_OK)
        take_end(sweep, words[0], experiment, &end, execution);
    if (execution->status == DPB_OK && end.signal_number != 0)
        raise(end.signal_number); /* it came after the result: the sweep ends, too */
    dpb_child_release(&end);
    dpb_sweep_list_destroy(words, n_words);
}
