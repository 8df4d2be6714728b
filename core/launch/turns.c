/* turns.c - see turns.h. */
#include "launch/turns.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "machine/cores.h"
#include "machine/latency.h"

enum { ORDER = 128, TURNS = 1 << 16, WARM_MS = 10 };
#define STAND_NS INT64_C(250000000)

dpb_status dpb_turns_open(struct dpb_job_run *run)
{
    if (run->job->orders == 0)
        return DPB_OK;
    dpb_board_turns(run->board)->orders = true;
    run->turns.had.at = calloc(TURNS, sizeof *run->turns.had.at); /* pages that are used alone */
    dpb_cores_kinds(run->job->cores, run->turns.cpus, DPB_TURNS_CPUS);
    return dpb_allocated(run->turns.had.at);
}

struct pollfd dpb_turns_watch(const struct dpb_job_run *run)
{
    const bool listens = run->job->orders > 0 && !run->turns.closed;
    return (struct pollfd){.fd = listens ? run->job->orders : -1, .events = POLLIN};
}

int dpb_turns_look_ms(const struct dpb_job_run *run, int ms)
{
    return run->job->orders > 0 && !run->turns.ready && ms > WARM_MS ? WARM_MS : ms;
}

bool dpb_turns_parked(const struct dpb_job_run *run)
{
    return run->turns.parked_ns != 0;
}

int64_t dpb_turns_block(const struct dpb_job_run *run)
{
    return run->turns.had.n > 0 ? run->turns.had.at[run->turns.had.n - 1].block : -1;
}

/* ---- stopping and continuing --------------------------------------------------------------- */

/* A rank's group: the processes that it has started, too. */
static void signal_all(const struct dpb_job_run *run, int number)
{
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        if (run->processes[rank].running)
            kill(-run->processes[rank].pid, number);
}

/* One that is stuck in the system stands later. */
static void await_standing(const struct dpb_job_run *run)
{
    const struct timespec nap = {.tv_nsec = 100000};
    const int64_t began_ns = dpb_now_ns();
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        const struct dpb_process *process = &run->processes[rank];
        siginfo_t changed = {0};
        while (process->running && !process->remote && dpb_now_ns() - began_ns < STAND_NS &&
               waitid(P_PID, (id_t)process->pid, &changed,
                      WSTOPPED | WEXITED | WNOHANG | WNOWAIT) == 0 &&
               changed.si_pid == 0)
            nanosleep(&nap, NULL);
    }
}

/* The load, and a sample of run.monitor. `begins`: just before a turn. */
static void sample(struct dpb_job_run *run, bool begins, struct dpb_load_sample *load)
{
    const int64_t now_ns = dpb_turns_parked(run) ? run->turns.parked_ns : dpb_now_ns();
    const int64_t parked_ns = dpb_board_turns(run->board)->parked_ns;
    size_t bytes;
    uint8_t *journal = dpb_board_journal(run->board, 0, &bytes);
    int32_t *pids = calloc(run->n_ranks, sizeof *pids);
    for (uint32_t rank = 0; pids && rank < run->n_ranks; rank++)
        pids[rank] = run->processes[rank].running ? (int32_t)run->processes[rank].pid : 0;
    const uint32_t n_pids = pids ? run->n_ranks : 0;
    dpb_load_times("", run->turns.cpus, DPB_TURNS_CPUS, pids, n_pids, load);
    journal += bytes - run->job->shape.tail_bytes;
    if (run->job->sample)
        run->turns.due = dpb_deadline_in(
            run->job->sample("", (void *)journal, pids, n_pids, begins, now_ns - parked_ns));
    free(pids);
}

/* The load of a turn that ends. */
static void add_load(struct dpb_job_run *run)
{
    struct dpb_load_sample *spent = &run->turns.had.spent, now;
    const struct dpb_load_sample *went = &run->turns.went;
    sample(run, false, &now);
    if (went->used_ns < 0 || now.used_ns < 0 || spent->used_ns < 0) {
        spent->used_ns = -1;
        return;
    }
    spent->at_ns += now.at_ns - went->at_ns;
    spent->used_ns += now.used_ns - went->used_ns;
    spent->siblings_ns += now.siblings_ns - went->siblings_ns;
    spent->stolen_ns += now.stolen_ns - went->stolen_ns;
    spent->own_ns += now.own_ns - went->own_ns;
    spent->n_used = now.n_used;
    spent->n_siblings = now.n_siblings;
}

void dpb_turns_park(struct dpb_job_run *run)
{
    struct dpb_turns *had = &run->turns.had;
    const int64_t to_ns = dpb_now_ns();
    if (dpb_turns_parked(run))
        return;
    signal_all(run, SIGSTOP);
    await_standing(run);
    run->turns.parked_ns = dpb_now_ns();
    run->turns.ran_ns = dpb_ran_ns();
    if (had->n > 0) {
        had->at[had->n - 1].to_ns = to_ns;
        if (dpb_turns_block(run) >= 0)
            add_load(run);
    }
}

void dpb_turns_continue(struct dpb_job_run *run, int64_t block)
{
    struct dpb_turns *had = &run->turns.had;
    if (!dpb_turns_parked(run))
        return;
    if (had->at) {
        struct dpb_board_turns *board = dpb_board_turns(run->board);
        const uint16_t *ends = run->job->about.ends;
        const double apart_ns = block >= 0 ? dpb_core_latency_ns(ends[0], ends[1]) : NAN;
        if (block >= 0)
            sample(run, true, &run->turns.went);
        const int64_t now_ns = dpb_now_ns();
        had->at[had->n++] =
            (struct dpb_turn){block, run->turns.parked_ns, now_ns, INT64_MAX, apart_ns};
        __atomic_fetch_add(&board->parked_ns, now_ns - run->turns.parked_ns, __ATOMIC_RELEASE);
        dpb_ran_rested(dpb_ran_ns() - run->turns.ran_ns);
    }
    run->turns.parked_ns = 0;
    signal_all(run, SIGCONT);
}

/* ---- orders -------------------------------------------------------------------------------- */

static void answer(const struct dpb_job_run *run, const char *word)
{
    char text[ORDER];
    const struct dpb_status_page *page = dpb_board_page(run->board, 0);
    const struct dpb_turns *had = &run->turns.had;
    int n = snprintf(text, sizeof text, "%s %" PRId64 " %" PRIu64, word, dpb_now_ns(), page->step);
    if (strcmp(word, "parked") == 0 && had->n > 1)
        n += snprintf(text + n, sizeof text - (size_t)n, " %" PRId64 " %.9g",
                      had->at[had->n - 2].block, run->job->rate(had, had->n - 2, run->board));
    /* A sweep that is gone shows as the end of the file. */
    (void)send(run->job->orders, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void obey(struct dpb_job_run *run, const char *order)
{
    const bool parked = dpb_turns_parked(run), may = run->turns.ready && !run->ending;
    int64_t block;
    if (strcmp(order, "end") == 0 || order[0] == '\0') {
        __atomic_store_n(&dpb_board_turns(run->board)->end, 1, __ATOMIC_RELEASE);
        run->turns.ready = true; /* a job that ends is not parked again */
        dpb_turns_continue(run, -1);
    } else if (strcmp(order, "park") == 0 && may && !parked) {
        dpb_turns_park(run);
        answer(run, "parked");
    } else if (sscanf(order, "go %" SCNd64, &block) == 1 && block >= 0 && may && parked &&
               run->turns.had.n + 1 < TURNS) {
        dpb_turns_continue(run, block);
        answer(run, "went");
    } else {
        answer(run, "refused");
    }
}

void dpb_turns_serve(struct dpb_job_run *run, short events)
{
    char order[ORDER] = "";
    struct dpb_load_sample load;
    if (run->job->orders == 0)
        return;
    if (run->job->sample && !run->ending && !dpb_turns_parked(run) && dpb_turns_block(run) >= 0 &&
        dpb_deadline_passed(run->turns.due))
        sample(run, false, &load);
    if (!run->turns.ready && !run->ending && run->interrupt == 0 && run->job->warm(run->board)) {
        run->turns.ready = true;
        dpb_turns_park(run);
        answer(run, "ready");
    }
    if (events == 0)
        return;
    const ssize_t n = recv(run->job->orders, order, sizeof order - 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    run->turns.closed = n <= 0;
    obey(run, order);
}
