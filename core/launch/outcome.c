/* outcome.c - see outcome.h. */
#include "launch/outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "machine/memory.h"

enum { LINE = 512 };
#define REFRESH_NS INT64_C(500000000)
#define LOG_NS INT64_C(30000000000)
/* Others notice a broken connection before the launcher has reaped the rank that broke it. */
#define NOTICE_NS INT64_C(50000000)

struct dpb_status_page *dpb_job_page(const struct dpb_job_run *run, uint32_t rank)
{
    return dpb_board_page(run->board, rank);
}

const char *dpb_job_host(const struct dpb_job_run *run, uint32_t rank)
{
    return run->job->party ? run->job->party->hosts[rank] : run->host;
}

int32_t dpb_job_pid(const struct dpb_job_run *run, uint32_t rank)
{
    return run->processes[rank].remote ? dpb_job_page(run, rank)->pid
                                       : (int32_t)run->processes[rank].pid;
}

/* ---- progress ------------------------------------------------------------------------------ */

void dpb_job_erase_progress(struct dpb_job_run *run)
{
    if (!run->progress.drawn || !dpb_log_can_write(0)) /* a terminal may be stopped by ^S */
        return;
    fputs("\r\033[K", stderr);
    run->progress.drawn = false;
}

static void draw_progress(struct dpb_job_run *run, int64_t now_ns)
{
    struct winsize size;
    char line[LINE];
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    /* A line that the terminal breaks leaves its first part behind when it is erased. */
    run->job->live(run->board, known ? (size_t)size.ws_col - 1 : LINE, line, sizeof line);
    fprintf(stderr, "\r\033[K%s", line);
    run->progress.drawn = true;
    run->progress.at_ns = now_ns;
}

static void log_progress(struct dpb_job_run *run, int64_t now_ns)
{
    char line[LINE];
    run->job->live(run->board, LINE, line, sizeof line);
    dpb_log(DPB_LOG_INFO, "%s", line);
    run->progress.at_ns = now_ns;
}

static void show_progress(struct dpb_job_run *run, int64_t now_ns)
{
    const struct dpb_board_about *about = &run->job->about;
    const char *kind = getenv("TERM");
    const bool terminal = isatty(STDERR_FILENO) != 0 && !(kind && strcmp(kind, "dumb") == 0);
    if (about->label[0] == '\0' || !dpb_log_can_write(0))
        return;
    if (run->progress.at_ns == 0)
        run->progress.at_ns = about->began_ns;
    if (now_ns - run->progress.at_ns < (terminal ? REFRESH_NS : LOG_NS))
        return;
    if (terminal)
        draw_progress(run, now_ns);
    else
        log_progress(run, now_ns);
}

/* ---- warnings ------------------------------------------------------------------------------ */

/* Whether another rank has said the same before. */
static bool warning_known(const struct dpb_job_run *run, uint32_t rank, uint32_t i)
{
    struct dpb_status_page *page = dpb_job_page(run, rank);
    for (uint32_t r = 0; r < run->n_ranks; r++) {
        struct dpb_status_page *other = dpb_job_page(run, r);
        for (uint32_t j = 0; r != rank && j < run->processes[r].n_warnings_shown; j++)
            if (strcmp(other->warnings[j].code, page->warnings[i].code) == 0 &&
                strcmp(other->warnings[j].text, page->warnings[i].text) == 0)
                return true;
    }
    return false;
}

static void show_warnings(struct dpb_job_run *run)
{
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        struct dpb_status_page *page = dpb_job_page(run, rank);
        uint32_t n = __atomic_load_n(&page->n_warnings, __ATOMIC_ACQUIRE);
        if (n > DPB_BOARD_WARNINGS)
            n = DPB_BOARD_WARNINGS;
        for (uint32_t *i = &run->processes[rank].n_warnings_shown; *i < n; ++*i) {
            if (warning_known(run, rank, *i) || !dpb_warning_is_new(page->warnings[*i].code))
                continue;
            dpb_job_erase_progress(run);
            if (run->n_ranks > 1)
                dpb_log(DPB_LOG_WARNING, "[%u %s] %s", rank, dpb_job_host(run, rank),
                        page->warnings[*i].text);
            else
                dpb_log(DPB_LOG_WARNING, "%s", page->warnings[*i].text);
        }
    }
}

void dpb_job_show(struct dpb_job_run *run, int64_t now_ns)
{
    show_warnings(run);
    show_progress(run, now_ns);
}

void dpb_job_show_end(struct dpb_job_run *run)
{
    show_warnings(run);
    dpb_job_erase_progress(run);
}

/* ---- the cause ----------------------------------------------------------------------------- */

bool dpb_job_ended_well(const struct dpb_job_run *run, uint32_t rank)
{
    const struct dpb_process *process = &run->processes[rank];
    if (process->lost || !WIFEXITED(process->wait_status))
        return process->lost;
    int code = WEXITSTATUS(process->wait_status);
    if (code == 0)
        return process->bye;
    return run->interrupt != 0 &&
           (code == dpb_status_exit_code(DPB_INTERRUPTED) || code == 128 + run->interrupt);
}

/* The time of the message that a rank left; INT64_MAX if the message names no cause. */
static int64_t message_time(const struct dpb_job_run *run, uint32_t rank)
{
    struct dpb_status_page *page = dpb_job_page(run, rank);
    int64_t failed_ns = __atomic_load_n(&page->failed_ns, __ATOMIC_ACQUIRE);
    if (failed_ns == 0 || page->status == DPB_PEER || page->status == DPB_INTERRUPTED)
        return INT64_MAX;
    return failed_ns;
}

/* When a rank failed in a way that may have ended the job; INT64_MAX: it did not. */
static int64_t blame_time(const struct dpb_job_run *run, uint32_t rank)
{
    const struct dpb_process *process = &run->processes[rank];
    if (process->fault_ns != 0) /* what interrupts a job ends parts of it, too */
        return process->deserted && run->interrupt != 0 ? INT64_MAX : process->fault_ns;
    if (process->running || dpb_job_ended_well(run, rank))
        return INT64_MAX;
    int64_t message_ns = message_time(run, rank);
    if (message_ns != INT64_MAX || process->killed)
        return message_ns;
    /* A victim says so; one that says nothing is a cause. */
    bool silent = WIFSIGNALED(process->wait_status) || dpb_job_page(run, rank)->failed_ns == 0;
    return silent ? process->ended_ns - NOTICE_NS : INT64_MAX;
}

/* A server has no steps of its own: its step is the furthest step of the workers. */
static uint64_t step_of(const struct dpb_job_run *run, uint32_t rank)
{
    uint64_t step = dpb_job_page(run, rank)->step;
    for (uint32_t worker = 0; rank >= run->job->n_workers && worker < run->job->n_workers; worker++)
        if (dpb_job_page(run, worker)->step > step)
            step = dpb_job_page(run, worker)->step;
    return step;
}

/* "in phase 'forward' of step 12, bucket 3": where it is, or was when it left its message. */
static void describe_place(const struct dpb_job_run *run, uint32_t rank, char *text, size_t size)
{
    const struct dpb_status_page *page = dpb_job_page(run, rank);
    bool then = message_time(run, rank) != INT64_MAX;
    bool worker = rank < run->job->n_workers;
    const char *phase = then ? page->failed.phase : page->phase;
    uint64_t step = then && worker ? page->failed.step : step_of(run, rank);
    uint64_t bucket = then ? page->failed.bucket : page->bucket;
    char in_bucket[48] = "";
    if (bucket != UINT64_MAX)
        snprintf(in_bucket, sizeof in_bucket, ", bucket %llu", (unsigned long long)bucket);
    snprintf(text, size, "in phase '%.*s' of step %llu%s", (int)sizeof page->phase - 1,
             phase[0] != '\0' ? phase : "start", (unsigned long long)step, in_bucket);
}

static dpb_status status_of_code(int code)
{
    for (int status = DPB_FAILED; status <= DPB_INTERRUPTED; status++)
        if (dpb_status_exit_code((dpb_status)status) == code)
            return (dpb_status)status;
    return DPB_FAILED;
}

/* The system's own SIGKILL looks like any other, but the system counts its own: here, those of this
 * machine. *status: unchanged unless the system sent the signal. */
static const char *why_killed(const struct dpb_job_run *run, uint32_t rank, dpb_status *status)
{
    const struct dpb_party *party = run->job->party;
    bool elsewhere = party && party->machines[rank] != party->machines[0];
    uint64_t kills = elsewhere ? UINT64_MAX : dpb_memory_kills("");
    if (kills == UINT64_MAX || run->memory_kills == UINT64_MAX)
        return "; if nobody sent it, memory ran out (see dmesg)";
    if (kills <= run->memory_kills)
        return "";
    *status = DPB_NO_MEMORY;
    return "; memory ran out: the system ended processes while the job ran; take a smaller "
           "run.batch or fewer workers";
}

static void name_rank(const struct dpb_job_run *run, uint32_t rank, char who[160])
{
    snprintf(who, 160, "rank %u (%s, pid %d)", rank, dpb_job_host(run, rank),
             (int)dpb_job_pid(run, rank));
}

void dpb_job_say_lost(const struct dpb_job_run *run, uint32_t rank)
{
    const int number = WTERMSIG(run->processes[rank].wait_status);
    uint32_t n_left = 0;
    char place[160], who[160];
    describe_place(run, rank, place, sizeof place);
    name_rank(run, rank, who);
    for (uint32_t worker = 0; worker < run->job->n_workers; worker++)
        n_left += !run->processes[worker].lost;
    dpb_warn("worker_lost", "%s was killed by signal %d (%s) %s; %u of %u workers train on", who,
             number, strsignal(number), place, n_left, run->job->n_workers);
}

static void blame(const struct dpb_job_run *run, uint32_t rank, struct dpb_job_outcome *outcome)
{
    const struct dpb_process *process = &run->processes[rank];
    const struct dpb_status_page *page = dpb_job_page(run, rank);
    char place[160], who[160];
    describe_place(run, rank, place, sizeof place);
    name_rank(run, rank, who);
    char *cause = outcome->cause;
    size_t size = sizeof outcome->cause;
    outcome->culprit = rank;
    outcome->status = DPB_FAILED;
    if (process->fault_ns != 0) {
        outcome->status = process->stuck ? DPB_TIMEOUT : DPB_FAILED;
        snprintf(cause, size, "%s %s: %s", who, place, process->fault);
    } else if (message_time(run, rank) != INT64_MAX) {
        bool timed_out = page->status == DPB_TIMEOUT;
        outcome->status = (dpb_status)page->status;
        if (run->n_ranks == 1)
            snprintf(cause, size, "%s", page->error);
        else
            snprintf(cause, size, "%s %s: %s%s%s", who, place, page->error,
                     timed_out && run->stalls.late[0] != '\0' ? "; " : "",
                     timed_out ? run->stalls.late : "");
    } else if (WIFSIGNALED(process->wait_status)) {
        int number = WTERMSIG(process->wait_status);
        snprintf(cause, size, "%s was killed by signal %d (%s) %s%s", who, number,
                 strsignal(number), place,
                 number == SIGKILL ? why_killed(run, rank, &outcome->status) : "");
    } else if (WEXITSTATUS(process->wait_status) == 0) {
        snprintf(cause, size, "%s ended %s, before the job was over, and gave no reason", who,
                 place);
    } else {
        /* A code alone says nothing: 3, say, is a library's own as often as a failed check. */
        outcome->status =
            page->error[0] != '\0' ? status_of_code(WEXITSTATUS(process->wait_status)) : DPB_FAILED;
        snprintf(cause, size, "%s ended with exit code %d %s%s%s", who,
                 WEXITSTATUS(process->wait_status), place, page->error[0] != '\0' ? ": " : "",
                 page->error[0] != '\0' ? page->error : " and gave no reason");
    }
    outcome->exit_code = dpb_status_exit_code(outcome->status);
}

/* The rank to blame; UINT32_MAX: none. When every rank says that it is a victim, the first to say
 * so, but of an interruption. */
static uint32_t find_culprit(const struct dpb_job_run *run)
{
    uint32_t culprit = UINT32_MAX;
    int64_t earliest = INT64_MAX;
    bool interrupted = false; /* with a part of the job */
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        int64_t time = blame_time(run, rank);
        interrupted = interrupted || (run->processes[rank].deserted && run->interrupt != 0);
        if (time < earliest) {
            earliest = time;
            culprit = rank;
        }
    }
    bool all_victims = culprit == UINT32_MAX && !interrupted;
    for (uint32_t rank = 0; all_victims && rank < run->n_ranks; rank++) {
        int64_t failed_ns = dpb_job_page(run, rank)->failed_ns;
        if (!run->processes[rank].running && !run->processes[rank].killed &&
            !dpb_job_ended_well(run, rank) && failed_ns < earliest) {
            earliest = failed_ns;
            culprit = rank;
        }
    }
    return culprit;
}

void dpb_job_judge(const struct dpb_job_run *run, struct dpb_job_outcome *outcome)
{
    *outcome = (struct dpb_job_outcome){.culprit = UINT32_MAX, .board = run->board};
    bool forced = run->n_interrupts > 1;
    uint32_t culprit = forced ? UINT32_MAX : find_culprit(run);
    if (culprit != UINT32_MAX) {
        blame(run, culprit, outcome);
    } else if (run->interrupt != 0) {
        outcome->status = DPB_INTERRUPTED;
        outcome->exit_code = 128 + run->interrupt;
        snprintf(outcome->cause, sizeof outcome->cause, "interrupted by signal %d (%s)%s",
                 run->interrupt, strsignal(run->interrupt),
                 forced ? "; a second one ended the job at once" : "");
    }
}

bool dpb_job_is_loss(const struct dpb_job_run *run, const struct dpb_job_outcome *outcome)
{
    const uint32_t rank = outcome->culprit;
    if (rank == UINT32_MAX || run->interrupt != 0 || run->n_running > 0)
        return false;
    return outcome->status == DPB_TIMEOUT || run->processes[rank].deserted ||
           (run->processes[rank].fault_ns == 0 && message_time(run, rank) == INT64_MAX);
}

void dpb_job_conclude(const struct dpb_job_run *run, struct dpb_job_outcome *outcome)
{
    dpb_job_judge(run, outcome);
    if (outcome->culprit == UINT32_MAX)
        return;
    if (!run->was_given_up)
        dpb_log(DPB_LOG_ERROR, "%s", outcome->cause);
    if (run->n_ranks > 1 && outcome->status == DPB_TIMEOUT)
        dpb_log(DPB_LOG_INFO, "where the ranks were:\n%s", run->stalls.picture);
}
