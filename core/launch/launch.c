/*
 * launch.c - the local launcher: one thread, one poll loop, over the signals that came (children's
 * ends among them) and the ranks' sockets.
 */
#include "launch/launch.h"

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

#include "base/log.h"
#include "base/secret.h"
#include "launch/job.h"
#include "launch/parts.h"
#include "launch/spawn.h"
#include "machine/memory.h"

#define GRACE_NS INT64_C(2000000000) /* from the first death to SIGKILL */
/* For a killed process that the system does not let die. */
#define GIVE_UP_NS INT64_C(10000000000)
#define MPIRUN_GRACE_NS INT64_C(500000000)
#define TICK_NS INT64_C(250000000)

enum { MAX_RANKS = 1024 };

/* ---- beginning and end --------------------------------------------------------------------- */

dpb_status job_create_file(const char *name, const void *bytes, size_t n, int *fd)
{
    size_t used = 0;
    int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    while (made >= 0 && used < n) {
        ssize_t written = write(made, (const char *)bytes + used, n - used);
        if (written < 0 && errno != EINTR)
            break;
        used += written > 0 ? (size_t)written : 0;
    }
    if (made < 0 || used < n ||
        fcntl(made, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        if (made >= 0)
            close(made);
        return dpb_fail(DPB_FAILED, "cannot hand the configuration over: %s", strerror(error));
    }
    *fd = made;
    return DPB_OK;
}

/* Signals are taken from a descriptor while the job runs. */
dpb_status job_take_signals(struct job_run *run)
{
    sigset_t set;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTSTP);
    run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd < 0)
        return dpb_fail(DPB_FAILED, "cannot take signals: %s", strerror(errno));
    /* Children of a process that ignores SIGCHLD leave no status behind. */
    sigaction(SIGCHLD, &usual, &run->old_child_action);
    sigprocmask(SIG_BLOCK, &set, &run->old_mask);
    return DPB_OK;
}

void job_release_signals(struct job_run *run)
{
    if (run->signal_fd < 0)
        return;
    close(run->signal_fd);
    run->signal_fd = -1;
    if (run->job->party != NULL) {
        /* What mpirun or srun now send to all, as one part has ended, must not take the result
         * away. */
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
    }
    sigaction(SIGCHLD, &run->old_child_action, NULL);
    sigprocmask(SIG_SETMASK, &run->old_mask, NULL);
}

static void run_destroy(struct job_run *run)
{
    dpb_store_server_destroy(run->server);
    free(run->processes);
    free(run->fds);
    job_release_signals(run);
}

static dpb_status run_create(struct job_run *run, const struct dpb_job *job)
{
    *run = (struct job_run){
        .job = job, .signal_fd = -1, .memory_kills = dpb_memory_kills(""), .kill_at_ns = INT64_MAX};
    if (job->n_workers == 0 || job->n_workers > MAX_RANKS || job->n_servers > MAX_RANKS)
        return dpb_fail(DPB_USAGE,
                        "a local job has 1 to %d workers and at most %d servers, not %u "
                        "and %u",
                        MAX_RANKS, MAX_RANKS, job->n_workers, job->n_servers);
    run->n_ranks = job->n_workers + job->n_servers;
    run->processes = calloc(run->n_ranks, sizeof *run->processes);
    run->fds = calloc(2 * (size_t)run->n_ranks + 1, sizeof *run->fds);
    if (run->processes == NULL || run->fds == NULL)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    if (gethostname(run->host, sizeof run->host - 1) != 0)
        snprintf(run->host, sizeof run->host, "localhost");
    DPB_TRY(dpb_board_create(run->n_ranks, job->journal_bytes, &run->board));
    for (uint32_t rank = 0; job->machines != NULL && rank < run->n_ranks; rank++)
        dpb_board_page(run->board, rank)->machine = job->machines[rank];
    DPB_TRY(dpb_store_server_create(run->n_ranks, &run->server));
    return job_take_signals(run);
}

/* The plugins' variables, each ended by NUL, for a rank that is running already. */
static dpb_status create_environment(const char *const *variables, int *fd)
{
    char block[4096];
    size_t used = 0;
    for (; variables != NULL && *variables != NULL; variables++) {
        size_t bytes = strlen(*variables) + 1;
        if (used + bytes > sizeof block)
            return dpb_fail(DPB_FAILED, "the plugins' environment is longer than %zu bytes",
                            sizeof block);
        memcpy(block + used, *variables, bytes);
        used += bytes;
    }
    return job_create_file("dpbench-environment", block, used, fd);
}

/* What all ranks get. */
static dpb_status prepare(const struct job_run *run, struct dpb_spawn *spawn)
{
    const struct dpb_job *job = run->job;
    *spawn = (struct dpb_spawn){.fds = {dpb_board_fd(run->board), -1, -1, -1}, .null_fd = -1};
    spawn->hello = (struct dpb_hello){.magic = DPB_HELLO_MAGIC,
                                      .n_workers = job->n_workers,
                                      .n_servers = job->n_servers,
                                      .launcher_pid = (int32_t)getpid(),
                                      .timeout_ns = job->timeout_ns,
                                      .keep_pmix = job->keep_pmix,
                                      .parted = job->party != NULL};
    snprintf(spawn->hello.launcher, sizeof spawn->hello.launcher, "%s",
             job->party != NULL ? job->party->launcher : "local");
    dpb_random_bytes(spawn->hello.secret, DPB_SECRET_BYTES);
    return job_create_file("dpbench-config", job->config, strlen(job->config),
                           &spawn->fds[DPB_FD_CONFIG]);
}

static void put_away(struct dpb_spawn *spawn)
{
    explicit_bzero(&spawn->hello, sizeof spawn->hello);
    free(spawn->environment);
    if (spawn->null_fd >= 0)
        close(spawn->null_fd);
    for (size_t i = DPB_FD_CONFIG; i <= DPB_FD_ENVIRONMENT; i++)
        if (spawn->fds[i] >= 0)
            close(spawn->fds[i]);
}

static dpb_status start_ranks(struct job_run *run)
{
    struct dpb_spawn spawn;
    dpb_status status = prepare(run, &spawn);
    spawn.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    spawn.environment = dpb_spawn_environment(run->job->environment, false);
    if (status == DPB_OK && spawn.null_fd < 0)
        status = dpb_fail(DPB_IO, "/dev/null: %s", strerror(errno));
    if (status == DPB_OK && spawn.environment == NULL)
        status = dpb_fail(DPB_NO_MEMORY, "out of memory");
    for (uint32_t rank = 0; status == DPB_OK && rank < run->n_ranks; rank++) {
        int socket;
        spawn.hello.rank = rank;
        spawn.hello.place = (struct dpb_seat){rank, run->job->n_workers, run->job->n_servers};
        status = dpb_spawn_rank(&spawn, &run->processes[rank].pid, &socket);
        if (status == DPB_OK) {
            dpb_store_server_attach(run->server, rank, socket);
            run->processes[rank].running = true;
            run->n_running++;
        }
    }
    put_away(&spawn);
    return status;
}

dpb_status job_greet_rank(struct job_run *run)
{
    struct dpb_party *party = run->job->party;
    struct process *process = &run->processes[party->rank];
    struct dpb_spawn spawn;
    dpb_status status = prepare(run, &spawn);
    if (status == DPB_OK)
        status = create_environment(run->job->environment, &spawn.fds[DPB_FD_ENVIRONMENT]);
    spawn.hello.rank = party->rank;
    spawn.hello.place = party->place;
    spawn.fds[DPB_FD_STORE] = party->store_fd;
    spawn.hello.has_store = party->store_fd >= 0;
    memcpy(spawn.hello.secret, party->secret, DPB_SECRET_BYTES);
    if (status == DPB_OK)
        status = dpb_spawn_greet(&spawn, party->socket);
    put_away(&spawn);
    process->pid = party->pid;
    party->pid = 0; /* reaped here */
    process->running = true;
    run->n_running++;
    if (party->store_fd >= 0)
        close(party->store_fd); /* the rank's alone: its end is that of the connection */
    party->store_fd = -1;
    return status == DPB_OK && run->job->keep_pmix ? dpb_party_keep(party) : status;
}

/* ---- ending it ----------------------------------------------------------------------------- */

void job_kill(struct job_run *run, uint32_t rank)
{
    struct process *process = &run->processes[rank];
    if (!process->running)
        return;
    process->killed = true;
    if (process->remote) {
        link_say(&run->job->party->links[rank], LINK_KILL, rank, NULL, 0);
        return;
    }
    kill(process->pid, SIGKILL);
    kill(-process->pid, SIGKILL); /* and what it has started */
}

/* It sends SIGTERM, and SIGKILL a second later: until then the result has to be written. */
static bool is_of_mpirun(const struct job_run *run)
{
    return run->job->party != NULL && strcmp(run->job->party->launcher, "mpirun") == 0;
}

static void kill_all(struct job_run *run)
{
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        job_kill(run, rank);
    run->kill_at_ns = INT64_MAX;
    run->give_up_ns = dpb_now_ns() + GIVE_UP_NS;
}

void job_end(struct job_run *run)
{
    if (run->ending)
        return;
    stall_keep_picture(run, dpb_now_ns());
    run->ending = true;
    run->kill_at_ns = dpb_now_ns() + GRACE_NS;
    dpb_board_end_job(run->board);
    head_tell_all(run, LINK_END_JOB, NULL, 0);
}

void job_interrupt(struct job_run *run, uint32_t n_interrupts, int signal_number)
{
    if (n_interrupts <= run->n_interrupts)
        return;
    run->n_interrupts = n_interrupts;
    if (run->interrupt == 0) {
        int32_t number = signal_number;
        run->interrupt = signal_number;
        dpb_board_interrupt(run->board, signal_number);
        head_tell_all(run, LINK_INTERRUPT, &number, sizeof number);
    }
    if (n_interrupts > 1) {
        dpb_board_end_job(run->board);
        run->ending = true;
        kill_all(run);
    } else if (is_of_mpirun(run) && signal_number == SIGTERM) {
        int64_t at_ns = dpb_now_ns() + MPIRUN_GRACE_NS;
        run->kill_at_ns = at_ns < run->kill_at_ns ? at_ns : run->kill_at_ns;
    }
}

static void signal_all(const struct job_run *run, int signal_number)
{
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        if (run->processes[rank].running)
            kill(-run->processes[rank].pid, signal_number);
}

/* The terminal's ^Z: the ranks, in groups of their own, did not get it. Comes back when
 * continued. */
static void suspend(struct job_run *run)
{
    sigset_t suspension;
    if (run->ending)
        return;
    job_erase_progress(run);
    int64_t began_ns = dpb_now_ns();
    signal_all(run, SIGSTOP);
    sigemptyset(&suspension);
    sigaddset(&suspension, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &suspension, NULL); /* here it stops */
    sigprocmask(SIG_BLOCK, &suspension, NULL);
    int64_t took_ns = dpb_now_ns() - began_ns;
    dpb_board_suspended(run->board, took_ns);
    dpb_store_server_delay(run->server, took_ns);
    stall_forgive(run, took_ns);
    signal_all(run, SIGCONT);
    dpb_warn("suspended",
             "the job was suspended (SIGTSTP) for %.1f s; the step that it fell into is longer by "
             "that",
             (double)took_ns * 1e-9);
}

/* ---- watching ------------------------------------------------------------------------------ */

bool job_reap(struct job_run *run, uint32_t rank)
{
    struct process *process = &run->processes[rank];
    siginfo_t info = {0};
    if (!process->running || process->remote ||
        waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return false;
    /* Until it is reaped its number is its own: what is left of its group can be ended safely. */
    kill(-process->pid, SIGKILL);
    waitpid(process->pid, &process->wait_status, 0);
    process->ended_ns = dpb_now_ns();
    return true;
}

void job_rank_ended(struct job_run *run, uint32_t rank)
{
    struct process *process = &run->processes[rank];
    process->running = false;
    run->n_running--;
    dpb_store_server_detach(run->server, rank);
    process->bye = dpb_store_server_said_bye(run->server, rank);
    if (!job_ended_well(run, rank))
        job_end(run);
    else if (run->stalls.first_left_ns == 0)
        run->stalls.first_left_ns = process->ended_ns;
}

static void reap(struct job_run *run)
{
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        if (job_reap(run, rank))
            job_rank_ended(run, rank);
}

int job_next_signal(const struct job_run *run)
{
    struct signalfd_siginfo info;
    return read(run->signal_fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo
                                                                            : 0;
}

static void take_signal_input(struct job_run *run)
{
    for (int number; (number = job_next_signal(run)) != 0;) {
        if (number == SIGINT || number == SIGTERM)
            job_interrupt(run, ++run->processes[0].n_interrupts, number);
        else if (number == SIGTSTP && run->job->party == NULL)
            suspend(run);
    }
}

/* A rank that sends what no rank should is ended: what else it does cannot be trusted either. */
static void check_fault(struct job_run *run, uint32_t rank)
{
    struct process *process = &run->processes[rank];
    const char *fault = dpb_store_server_fault(run->server, rank);
    if (fault == NULL || process->fault_ns != 0)
        return;
    process->fault_ns = dpb_now_ns();
    snprintf(process->fault, sizeof process->fault, "malformed request to the store: %s", fault);
    job_kill(run, rank);
    job_end(run);
}

/* A rank that does nothing and waits for nobody, where nobody else's deadline ended the job. */
static void check_stalls(struct job_run *run, int64_t now_ns)
{
    uint32_t stuck = stall_look(run, now_ns);
    if (stuck == UINT32_MAX)
        return;
    run->processes[stuck].fault_ns = now_ns;
    run->processes[stuck].stuck = true;
    job_end(run); /* before: it looks at where all of them are */
    job_kill(run, stuck);
}

static int wait_ms(const struct job_run *run, int64_t store_deadline_ns)
{
    int64_t now = dpb_now_ns(), until = now + TICK_NS;
    if (store_deadline_ns < until)
        until = store_deadline_ns;
    if (run->kill_at_ns < until)
        until = run->kill_at_ns;
    return until > now ? (int)((until - now + 999999) / 1000000) : 0;
}

static void watch(struct job_run *run)
{
    int64_t store_deadline_ns = INT64_MAX;
    while (run->n_running > 0) {
        dpb_store_server_watch(run->server, run->fds);
        run->fds[run->n_ranks] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
        head_watch(run, run->fds + run->n_ranks + 1);
        int n = poll(run->fds, 2 * run->n_ranks + 1, wait_ms(run, store_deadline_ns));
        for (uint32_t rank = 0; n > 0 && rank < run->n_ranks; rank++)
            dpb_store_server_serve(run->server, rank, run->fds[rank].revents);
        head_serve(run, dpb_now_ns());
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
            check_fault(run, rank);
        take_signal_input(run);
        reap(run);
        int64_t now = dpb_now_ns();
        store_deadline_ns = dpb_store_server_expire(run->server, now);
        if (now >= run->kill_at_ns)
            kill_all(run);
        if (run->give_up_ns != 0 && now >= run->give_up_ns) {
            dpb_warn("rank_not_ended",
                     "%u processes of the job were killed but do not end; the "
                     "system holds them (see their state in /proc)",
                     run->n_running);
            break;
        }
        check_stalls(run, now);
        job_show(run, now);
    }
    take_signal_input(run);
    job_show_end(run);
}

dpb_status dpb_launch(const struct dpb_job *job, struct dpb_job_outcome *outcome)
{
    struct job_run run;
    if (job->party != NULL && !dpb_party_is_head(job->party))
        return part_launch(job, outcome);
    dpb_status status = run_create(&run, job);
    if (status == DPB_OK && job->party != NULL)
        head_begin(&run);
    if (status == DPB_OK) {
        status = job->party != NULL ? job_greet_rank(&run) : start_ranks(&run);
        if (status != DPB_OK)
            kill_all(&run);
        watch(&run);
    }
    if (status == DPB_OK)
        job_conclude(&run, outcome);
    else
        dpb_board_destroy(run.board);
    run_destroy(&run);
    return status;
}
