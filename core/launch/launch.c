/*
 * launch.c - the local launcher: one thread, one poll loop, over the signals that came (children's
 * ends among them) and the ranks' sockets.
 */
#include "launch/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "launch/head.h"
#include "launch/meet.h"
#include "launch/outcome.h"
#include "launch/part.h"
#include "launch/ranks.h"
#include "launch/stall.h"
#include "launch/turns.h"
#include "machine/memory.h"

/* ---- beginning and end --------------------------------------------------------------------- */

static void run_destroy(struct dpb_job_run *run)
{
    dpb_store_server_destroy(run->server);
    free(run->processes);
    free(run->fds);
    free(run->turns.had.at);
    dpb_job_release_signals(run);
}

/* A connection to each rank, the signals and, with parts, a channel to each part; or the orders of
 * a sweep. No more than that: poll refuses a list that is longer than the number of files that this
 * process may open. */
static nfds_t count_watched(const struct dpb_job_run *run)
{
    return (nfds_t)run->n_ranks + 1 + (run->job->party ? run->job->party->n_parts : 0) +
           (run->job->orders > 0);
}

/* The board and the store of a start. */
static dpb_status open_start(struct dpb_job_run *run)
{
    const struct dpb_job *job = run->job;
    run->memory_kills = dpb_memory_kills("");
    run->kill_at = dpb_deadline_in(-1);
    run->child_ended = true;
    DPB_TRY(dpb_board_create(run->n_ranks, job->journal_bytes, &run->board));
    *dpb_board_about(run->board) = job->about;
    *dpb_board_kept(run->board) = job->kept;
    for (uint32_t rank = 0; job->machines && rank < run->n_ranks; rank++)
        dpb_board_page(run->board, rank)->machine = job->machines[rank];
    return dpb_store_server_create(run->n_ranks, &run->server);
}

static dpb_status run_create(struct dpb_job_run *run, const struct dpb_job *job)
{
    *run = (struct dpb_job_run){.job = job, .signal_fd = -1};
    if (job->n_workers == 0 || job->n_workers > DPB_JOB_RANKS ||
        job->n_servers > DPB_JOB_RANKS - job->n_workers)
        return dpb_fail(DPB_USAGE,
                        "a job has 1 to %d workers, and as many processes at most, not %u workers "
                        "and %u servers",
                        DPB_JOB_RANKS, job->n_workers, job->n_servers);
    run->n_ranks = job->n_workers + job->n_servers;
    dpb_files_allow(2 * (size_t)run->n_ranks); /* a rank needs more than one while it starts */
    run->processes = calloc(run->n_ranks, sizeof *run->processes);
    run->fds = calloc(count_watched(run), sizeof *run->fds);
    DPB_TRY(dpb_allocated(run->processes && run->fds));
    if (gethostname(run->host, sizeof run->host - 1) != 0)
        snprintf(run->host, sizeof run->host, "localhost");
    DPB_TRY(open_start(run));
    DPB_TRY(dpb_turns_open(run));
    return dpb_job_take_signals(run);
}

/* The terminal's ^Z: the ranks, in groups of their own, did not get it. Comes back when
 * continued. */
static void suspend(struct dpb_job_run *run)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    const bool parked = dpb_turns_parked(run); /* a sweep continues it */
    struct sigaction passed_on;
    sigset_t suspension;
    if (run->ending)
        return;
    dpb_job_erase_progress(run);
    int64_t began_ns = dpb_now_ns();
    dpb_turns_park(run);
    sigemptyset(&suspension);
    sigaddset(&suspension, SIGTSTP);
    sigaction(SIGTSTP, &usual, &passed_on);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &suspension, NULL); /* here it stops */
    sigprocmask(SIG_BLOCK, &suspension, NULL);
    sigaction(SIGTSTP, &passed_on, NULL);
    int64_t took_ns = dpb_now_ns() - began_ns;
    if (parked)
        return;
    dpb_turns_continue(run, dpb_turns_block(run));
    dpb_warn("suspended",
             "the job was suspended (SIGTSTP) for %.1f s; the step that it fell into is longer by "
             "that",
             (double)took_ns * 1e-9);
}

/* ---- watching ------------------------------------------------------------------------------ */

/* Asks each process: only after SIGCHLD, since each rank's store requests wake the loop, too. */
static void reap(struct dpb_job_run *run)
{
    if (!run->child_ended)
        return;
    run->child_ended = false;
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        if (dpb_job_reap(run, rank))
            dpb_job_rank_ended(run, rank);
}

static void take_signal_input(struct dpb_job_run *run)
{
    for (int number; (number = dpb_job_next_signal(run)) != 0;) {
        if (dpb_signals_interrupts(&run->signals, number))
            dpb_job_interrupt(run, ++run->processes[0].n_interrupts, number);
        else if (number == SIGCHLD)
            run->child_ended = true;
        else if (number == SIGTSTP && !run->job->party)
            suspend(run);
    }
}

/* Ends a rank that sends a malformed request: its other requests cannot be trusted either. */
static void check_fault(struct dpb_job_run *run, uint32_t rank)
{
    struct dpb_process *process = &run->processes[rank];
    const char *fault = dpb_store_server_fault(run->server, rank);
    if (!fault || process->fault_ns != 0)
        return;
    process->fault_ns = dpb_now_ns();
    snprintf(process->fault, sizeof process->fault, "malformed request to the store: %s", fault);
    dpb_job_kill(run, rank);
    dpb_job_end(run);
}

/* Ends a rank that neither works nor waits for a rank, unless another's deadline ended the job. */
static void check_stalls(struct dpb_job_run *run)
{
    uint32_t stuck = dpb_stall_look(run, dpb_ran_ns());
    if (stuck == UINT32_MAX)
        return;
    run->processes[stuck].fault_ns = dpb_now_ns();
    run->processes[stuck].stuck = true;
    dpb_job_end(run); /* first: dpb_job_end reads where all ranks are */
    dpb_job_kill(run, stuck);
}

/* Ranks may sleep until a time that is far again. */
static void check_clock(struct dpb_job_run *run)
{
    struct dpb_process *process = &run->processes[0];
    char why[256];
    if (run->ending || !dpb_ran_backwards(why, sizeof why))
        return;
    process->fault_ns = dpb_now_ns();
    snprintf(process->fault, sizeof process->fault, "%s", why);
    dpb_job_end(run);
}

static void watch(struct dpb_job_run *run)
{
    struct dpb_deadline nearest = {INT64_MAX}; /* of a request to the store */
    while (run->n_running > 0) {
        dpb_store_server_watch(run->server, run->fds);
        run->fds[run->n_ranks] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
        struct pollfd *part_fds = run->job->party ? run->fds + run->n_ranks + 1 : NULL;
        struct pollfd *order_fd = run->job->orders > 0 ? run->fds + run->n_ranks + 1 : NULL;
        if (part_fds)
            dpb_head_watch(run, part_fds);
        if (order_fd)
            *order_fd = dpb_turns_watch(run);
        const int look_ms = dpb_deadline_look_ms(dpb_deadline_first(nearest, run->kill_at));
        int n = poll(run->fds, count_watched(run), dpb_turns_look_ms(run, look_ms));
        for (uint32_t rank = 0; n > 0 && rank < run->n_ranks; rank++)
            dpb_store_server_serve(run->server, rank, run->fds[rank].revents);
        if (part_fds)
            dpb_head_serve(run, part_fds, dpb_now_ns());
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
            check_fault(run, rank);
        take_signal_input(run);
        reap(run);
        if (order_fd)
            dpb_turns_serve(run, n > 0 ? order_fd->revents : 0);
        if (dpb_turns_parked(run)) { /* nobody is late, and no deadline passes */
            nearest = (struct dpb_deadline){INT64_MAX};
            continue;
        }
        nearest = dpb_store_server_expire(run->server, dpb_ran_ns());
        if (dpb_deadline_passed(run->kill_at))
            dpb_job_kill_all(run);
        if (run->give_up.at_ns != 0 && dpb_deadline_passed(run->give_up)) {
            dpb_warn("rank_not_ended",
                     "%u processes of the job were killed but do not end; the "
                     "system holds them (see their state in /proc)",
                     run->n_running);
            break;
        }
        check_stalls(run);
        check_clock(run);
        dpb_job_show(run, dpb_now_ns());
    }
    take_signal_input(run);
    dpb_job_show_end(run);
}

/* ---- starting again ------------------------------------------------------------------------ */

/* After a loss, while the job has restarts left: what follows is a job of its own, with the next
 * configuration, and with nothing of this one but the signals. */
static dpb_status begin_again(struct dpb_job_run *run, struct dpb_job *job, bool *again)
{
    struct dpb_job_outcome outcome;
    *again = false;
    if (job->restarts == 0)
        return DPB_OK;
    dpb_job_judge(run, &outcome);
    if (!dpb_job_is_loss(run, &outcome) ||
        (!dpb_party_is_whole(job->party) && dpb_head_await_launchers(run) != DPB_OK))
        return DPB_OK;
    const int64_t since_ns = dpb_job_page(run, outcome.culprit)->since_ns;
    const struct dpb_loss loss = {.rank = outcome.culprit,
                                  .cause = outcome.cause,
                                  .sign_ns = since_ns > 0 ? since_ns : run->known_ns,
                                  .known_ns = run->known_ns};
    struct dpb_again next_start;
    DPB_TRY(job->again(job->context, &loss, run->board, &next_start));
    job->config = next_start.config;
    job->restarts--;
    job->kept = *dpb_board_kept(run->board);
    struct dpb_job_run next = {.job = job,
                               .n_ranks = run->n_ranks,
                               .processes = run->processes,
                               .fds = run->fds,
                               .signal_fd = run->signal_fd,
                               .signals = run->signals,
                               .confirm.serial = run->confirm.serial};
    memcpy(next.host, run->host, sizeof next.host);
    memset(next.processes, 0, next.n_ranks * sizeof *next.processes);
    dpb_store_server_destroy(run->server);
    dpb_board_destroy(run->board);
    *run = next;
    *again = true;
    DPB_TRY(open_start(run));
    return job->party ? dpb_head_begin_again(run, &next_start) : DPB_OK;
}

dpb_status dpb_launch(const struct dpb_job *given, struct dpb_job_outcome *outcome)
{
    struct dpb_job job_of_now = *given, *job = &job_of_now;
    struct dpb_job_run run;
    if (!dpb_party_is_head(job->party))
        return dpb_part_launch(job, outcome);
    dpb_status status = run_create(&run, job);
    if (status == DPB_OK && job->party)
        dpb_head_begin(&run);
    for (bool again = true; status == DPB_OK && again;) {
        status = dpb_job_start_ranks(&run);
        if (status != DPB_OK)
            dpb_job_kill_all(&run);
        watch(&run);
        DPB_THEN(status, begin_again(&run, job, &again));
    }
    if (status == DPB_OK) {
        dpb_job_tell_parts(&run, DPB_CHANNEL_ALL_ENDED, NULL, 0);
        dpb_job_conclude(&run, outcome);
        outcome->turns = run.turns.had;
        run.turns.had.at = NULL;
        if (outcome->culprit != UINT32_MAX) /* before mpirun ends this process, too */
            dpb_job_tell_parts(&run, DPB_CHANNEL_SAID, NULL, 0);
    } else {
        dpb_board_destroy(run.board);
    }
    run_destroy(&run);
    return status;
}
