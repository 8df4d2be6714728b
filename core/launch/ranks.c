/*
 * ranks.c - the processes of a job's ranks, for the local launcher and for those of parts: starting
 * them, ending them, and the signals that come of them.
 */
#include "launch/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secret.h"
#include "launch/channel.h"
#include "launch/hosts.h"
#include "launch/outcome.h"
#include "launch/meet.h"
#include "launch/spawn.h"
#include "launch/stall.h"
#include "launch/turns.h"
#include "machine/proc.h"

#define GRACE_NS INT64_C(2000000000)        /* from the first death to SIGKILL */
#define RESTART_GRACE_NS INT64_C(100000000) /* where nobody reads what the others still write */
/* For a killed process that the system does not let die. */
#define GIVE_UP_NS INT64_C(10000000000)
#define MPIRUN_GRACE_NS INT64_C(500000000)

/* ---- signals ------------------------------------------------------------------------------- */

/* Signals are taken from a descriptor while the job runs. */
dpb_status dpb_job_take_signals(struct dpb_job_run *run)
{
    dpb_signals_hold(&run->signals, SIGCHLD, SIGTSTP);
    run->signal_fd = signalfd(-1, &run->signals.held, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd >= 0)
        return DPB_OK;
    const int error = errno;
    dpb_signals_release(&run->signals);
    return dpb_fail(DPB_FAILED, "cannot take signals: %s", strerror(error));
}

void dpb_job_release_signals(struct dpb_job_run *run)
{
    if (run->signal_fd < 0)
        return;
    close(run->signal_fd);
    run->signal_fd = -1;
    if (run->job->party) {
        /* Signals that mpirun or srun now send to all, as one part has ended, must not take the
         * result away. */
        for (int i = 0; i < DPB_ENDING_SIGNALS; i++)
            run->signals.actions[i] = (struct sigaction){.sa_handler = SIG_IGN};
    }
    dpb_signals_release(&run->signals);
}

int dpb_job_next_signal(const struct dpb_job_run *run)
{
    struct signalfd_siginfo info;
    return read(run->signal_fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo
                                                                            : 0;
}

/* ---- starting ------------------------------------------------------------------------------ */

static dpb_status create_file(const char *name, const void *bytes, size_t n, int *fd)
{
    int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0 || !dpb_write_all(made, bytes, n) ||
        fcntl(made, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        if (made >= 0)
            close(made);
        return dpb_fail(DPB_FAILED, "cannot hand the configuration over: %s", strerror(error));
    }
    *fd = made;
    return DPB_OK;
}

/* The plugins' variables, each ended by NUL, for a rank that is running already. */
static dpb_status create_environment(const char *const *variables, int *fd)
{
    char block[4096];
    size_t used = 0;
    for (; variables && *variables; variables++) {
        size_t bytes = strlen(*variables) + 1;
        if (used + bytes > sizeof block)
            return dpb_fail(DPB_FAILED, "the plugins' environment is longer than %zu bytes",
                            sizeof block);
        memcpy(block + used, *variables, bytes);
        used += bytes;
    }
    return create_file("dpbench-environment", block, used, fd);
}

/* The members of `spawn` that are equal for all ranks. */
static dpb_status prepare(const struct dpb_job_run *run, struct dpb_spawn *spawn)
{
    const struct dpb_job *job = run->job;
    *spawn = (struct dpb_spawn){.fds = {dpb_board_fd(run->board), -1, -1, -1},
                                .network = -1,
                                .timeout_ns = job->timeout_ns};
    spawn->hello = (struct dpb_hello){.magic = DPB_HELLO_MAGIC,
                                      .n_workers = job->n_workers,
                                      .n_servers = job->n_servers,
                                      .launcher_pid = (int32_t)getpid(),
                                      .timeout_ns = job->timeout_ns,
                                      .keep_pmix = job->keep_pmix,
                                      .parted = job->party != NULL};
    snprintf(spawn->hello.launcher, sizeof spawn->hello.launcher, "%s",
             job->party ? job->party->launcher : "local");
    dpb_random_bytes(spawn->hello.secret, DPB_SECRET_BYTES);
    return create_file("dpbench-config", job->config, strlen(job->config),
                       &spawn->fds[DPB_FD_CONFIG]);
}

static void put_away(struct dpb_spawn *spawn)
{
    explicit_bzero(&spawn->hello, sizeof spawn->hello);
    free(spawn->environment);
    for (size_t i = DPB_FD_CONFIG; i <= DPB_FD_ENVIRONMENT; i++)
        if (spawn->fds[i] >= 0)
            close(spawn->fds[i]);
}

/* A rank does not begin, or a pending signal says that none may begin; dpb_job_conclude names the
 * cause. */
static void give_up_start(struct dpb_job_run *run)
{
    dpb_job_end(run);
    dpb_job_kill_all(run);
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        run->processes[rank].killed = true;
}

static void does_not_begin(struct dpb_job_run *run, uint32_t rank)
{
    struct dpb_process *process = &run->processes[rank];
    struct dpb_proc proc = {0};
    dpb_proc_read("", (int32_t)process->pid, &proc);
    process->fault_ns = dpb_now_ns();
    process->stuck = true;
    snprintf(process->fault, sizeof process->fault, "it has not executed dpbench within %.1f s: %s",
             (double)run->job->timeout_ns * 1e-9,
             dpb_proc_is_stopped(&proc) ? "it is stopped (SIGSTOP)"
                                        : "if it is only slow, set a larger run.timeout_s");
}

/* *network stays -1 without hosts. */
static dpb_status choose_host(const struct dpb_job *job, const struct dpb_hosts *hosts,
                              uint32_t rank, int *network)
{
    const uint32_t machine = job->machines ? job->machines[rank] : 0;
    if (hosts->n > 0 && machine >= hosts->n)
        return dpb_fail(DPB_USAGE,
                        "rank %u is on machine %u, and " DPB_HOSTS_VARIABLE " has %u hosts", rank,
                        machine, hosts->n);
    if (hosts->n > 0)
        *network = hosts->fds[machine];
    return DPB_OK;
}

/* The members of `spawn` that are the rank's. */
static void address(const struct dpb_job_run *run, uint32_t rank, struct dpb_spawn *spawn)
{
    const struct dpb_party *party = run->job->party;
    struct dpb_hello *hello = &spawn->hello;
    hello->rank = rank;
    hello->place = party ? party->seats[rank]
                         : (struct dpb_seat){rank, run->job->n_workers, run->job->n_servers};
    spawn->fds[DPB_FD_STORE] = party ? party->store_fds[rank] : -1;
    hello->has_store = spawn->fds[DPB_FD_STORE] >= 0;
}

/* A process has the rank, and this launcher an end of its socket. */
static void note_started(struct dpb_job_run *run, uint32_t rank, int socket)
{
    struct dpb_party *party = run->job->party;
    if (run->server)
        dpb_store_server_attach(run->server, rank, socket);
    else
        close(socket);
    if (party && party->store_fds[rank] >= 0) {
        close(party->store_fds[rank]); /* the rank's alone: its end is that of the connection */
        party->store_fds[rank] = -1;
    }
    run->processes[rank].running = true;
    run->n_running++;
}

/* The process of this part's rank is there: it has joined by PMIx. */
static dpb_status greet_rank(struct dpb_job_run *run, struct dpb_spawn *spawn)
{
    struct dpb_party *party = run->job->party;
    const uint32_t rank = dpb_party_first(party, party->part);
    address(run, rank, spawn);
    const dpb_status status = dpb_spawn_greet(spawn, party->socket);
    run->processes[rank].pid = party->pid;
    party->pid = 0; /* reaped here */
    note_started(run, rank, party->socket);
    party->socket = -1;
    return status == DPB_OK && run->job->keep_pmix ? dpb_party_keep(party) : status;
}

/* A rank does not begin for `status`. */
static dpb_status has_not_begun(struct dpb_job_run *run, uint32_t rank, dpb_status status)
{
    const bool head = dpb_party_is_head(run->job->party);
    if (status == DPB_TIMEOUT && head)
        does_not_begin(run, rank);
    if (status == DPB_INTERRUPTED && !head) {
        run->processes[rank].wait_status = dpb_status_exit_code(status) << 8;
        run->processes[rank].ended_ns = dpb_now_ns();
    }
    return head ? status : DPB_OK; /* the head is told of both */
}

static dpb_status spawn_ranks(struct dpb_job_run *run, struct dpb_spawn *spawn)
{
    struct dpb_hosts hosts = {0};
    DPB_TRY(dpb_hosts_open(&hosts));
    dpb_status status = DPB_OK;
    for (uint32_t rank = 0; status == DPB_OK && rank < run->n_ranks; rank++) {
        int socket;
        if (!dpb_party_owns(run->job->party, rank))
            continue;
        address(run, rank, spawn);
        status = choose_host(run->job, &hosts, rank, &spawn->network);
        DPB_THEN(status, dpb_spawn_rank(spawn, &run->processes[rank].pid, &socket));
        if (status == DPB_OK || status == DPB_TIMEOUT)
            note_started(run, rank, socket);
        if (status == DPB_TIMEOUT || status == DPB_INTERRUPTED)
            status = has_not_begun(run, rank, status);
    }
    dpb_hosts_close(&hosts);
    return status;
}

dpb_status dpb_job_start_ranks(struct dpb_job_run *run)
{
    const struct dpb_party *party = run->job->party;
    struct dpb_spawn spawn;
    dpb_status status = prepare(run, &spawn);
    if (party) {
        DPB_THEN(status, create_environment(run->job->environment, &spawn.fds[DPB_FD_ENVIRONMENT]));
        memcpy(spawn.hello.secret, party->secret, DPB_SECRET_BYTES);
    }
    spawn.environment = dpb_spawn_environment(party ? NULL : run->job->environment, false);
    DPB_THEN(status, dpb_allocated(spawn.environment));
    if (status == DPB_OK)
        status = party && party->pid > 0 ? greet_rank(run, &spawn) : spawn_ranks(run, &spawn);
    put_away(&spawn);
    if (status != DPB_INTERRUPTED && status != DPB_TIMEOUT)
        return status;
    give_up_start(run);
    return DPB_OK;
}

/* ---- ending -------------------------------------------------------------------------------- */

void dpb_job_kill(struct dpb_job_run *run, uint32_t rank)
{
    struct dpb_process *process = &run->processes[rank];
    if (!process->running)
        return;
    process->killed = true;
    if (process->remote) {
        struct dpb_party *party = run->job->party;
        dpb_channel_say(&party->channels[party->parts[rank]], DPB_CHANNEL_KILL, rank, NULL, 0);
        return;
    }
    kill(process->pid, SIGKILL);
    kill(-process->pid, SIGKILL); /* and the processes it has started */
}

/* mpirun sends SIGTERM, and SIGKILL a second later: the result must be written before SIGKILL. */
static bool is_of_mpirun(const struct dpb_job_run *run)
{
    return run->job->party && strcmp(run->job->party->launcher, "mpirun") == 0;
}

void dpb_job_kill_all(struct dpb_job_run *run)
{
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        dpb_job_kill(run, rank);
    run->kill_at = dpb_deadline_in(-1);
    run->give_up = dpb_deadline_in(GIVE_UP_NS);
}

void dpb_job_tell_parts(struct dpb_job_run *run, dpb_channel_op op, const void *value, size_t bytes)
{
    struct dpb_party *party = run->job->party;
    for (uint32_t part = 1; party && part < party->n_parts; part++)
        dpb_channel_say(&party->channels[part], op, part, value, bytes);
}

void dpb_job_end(struct dpb_job_run *run)
{
    if (run->ending)
        return;
    dpb_turns_continue(run, -1);
    dpb_stall_keep_picture(run);
    run->ending = true;
    run->known_ns = dpb_now_ns();
    run->kill_at = dpb_deadline_in(run->job->restarts > 0 ? RESTART_GRACE_NS : GRACE_NS);
    dpb_board_end_job(run->board);
    dpb_job_tell_parts(run, DPB_CHANNEL_END_JOB, NULL, 0);
}

void dpb_job_interrupt(struct dpb_job_run *run, uint32_t n_interrupts, int signal_number)
{
    if (n_interrupts <= run->n_interrupts)
        return;
    run->n_interrupts = n_interrupts;
    dpb_turns_continue(run, -1);
    if (run->interrupt == 0) {
        int32_t number = signal_number;
        run->interrupt = signal_number;
        dpb_board_interrupt(run->board, signal_number);
        dpb_job_tell_parts(run, DPB_CHANNEL_INTERRUPT, &number, sizeof number);
    }
    if (n_interrupts > 1) {
        dpb_board_end_job(run->board);
        run->ending = true;
        dpb_job_kill_all(run);
    } else if (is_of_mpirun(run) && signal_number == SIGTERM) {
        run->kill_at = dpb_deadline_first(run->kill_at, dpb_deadline_in(MPIRUN_GRACE_NS));
    }
}

bool dpb_job_reap(struct dpb_job_run *run, uint32_t rank)
{
    struct dpb_process *process = &run->processes[rank];
    siginfo_t info = {0};
    if (!process->running || process->remote ||
        waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return false;
    /* Until it is reaped its number is its own: the rest of its group can be ended safely. */
    kill(-process->pid, SIGKILL);
    waitpid(process->pid, &process->wait_status, 0);
    process->ended_ns = dpb_now_ns();
    return true;
}

/* Rank 0 is not spared: the others agree with it on each change of phase. */
static bool may_lose(const struct dpb_job_run *run, uint32_t rank)
{
    const struct dpb_process *process = &run->processes[rank];
    const struct dpb_status_page *page = dpb_board_page(run->board, rank);
    return run->job->survive && rank > 0 && rank < run->job->n_workers && !run->ending &&
           !process->killed && process->fault_ns == 0 && WIFSIGNALED(process->wait_status) &&
           __atomic_load_n(&page->may_die, __ATOMIC_ACQUIRE) != 0;
}

/* The word on the board comes first: a rank that learns of the loss by the store finds it there. */
static void lose(struct dpb_job_run *run, uint32_t rank)
{
    run->processes[rank].lost = true;
    dpb_board_lose(run->board, rank);
    dpb_store_server_lose(run->server, rank);
    dpb_job_erase_progress(run);
    dpb_job_say_lost(run, rank);
}

void dpb_job_rank_ended(struct dpb_job_run *run, uint32_t rank)
{
    struct dpb_process *process = &run->processes[rank];
    process->running = false;
    run->n_running--;
    if (may_lose(run, rank)) {
        lose(run, rank);
        return;
    }
    dpb_store_server_detach(run->server, rank);
    process->bye = dpb_store_server_said_bye(run->server, rank);
    if (!dpb_job_ended_well(run, rank))
        dpb_job_end(run);
    else if (run->stalls.first_left_ns == 0)
        run->stalls.first_left_ns = dpb_ran_ns();
}
