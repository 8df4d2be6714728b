/* stall.c - see stall.h. */
#include "launch/stall.h"

#include <stdio.h>
#include <string.h>

#include "base/deadline.h"
#include "base/log.h"
#include "launch/outcome.h"
#include "launch/part_messages.h"
#include "machine/proc.h"
#include "machine/tcp.h"

#define LOOK_NS INT64_C(250000000)
/* After run.timeout_s: ranks that wait report first, since they can name their wait. */
#define AFTER_WAITERS_NS INT64_C(2000000000)
/* A tenth of a core is more than waiting takes and less than any computing. */
enum { COMPUTES = 10, PICTURE_RANKS = 32, WHERE_BYTES = 288 };
/* Of the heartbeats of another part's launcher so many are missing. */
#define UNHEARD_NS (3 * DPB_PART_PING_NS)

/* Phases in which core itself waits, under a deadline of its own. */
static const char *const waiting_phases[] = {"wait_peer", "control", "wait_end"};

static bool is_worker(const struct dpb_job_run *run, uint32_t rank)
{
    return rank < run->job->n_workers;
}

static void phase_of(const struct dpb_job_run *run, uint32_t rank, char phase[32])
{
    const struct dpb_status_page *page = dpb_job_page(run, rank);
    snprintf(phase, 32, "%.*s", (int)sizeof page->phase - 1,
             page->phase[0] != '\0' ? page->phase : "start");
}

static bool waits(const struct dpb_job_run *run, uint32_t rank)
{
    char phase[32];
    phase_of(run, rank, phase);
    for (size_t i = 0; i < sizeof waiting_phases / sizeof *waiting_phases; i++)
        if (strcmp(phase, waiting_phases[i]) == 0)
            return true;
    return dpb_store_server_waits(run->server, rank);
}

/* Since the launcher of a rank of another part was last heard; 0: it is a rank of this part. */
static int64_t unheard_ns(const struct dpb_job_run *run, uint32_t rank)
{
    const struct dpb_process *process = &run->processes[rank];
    return process->remote && process->running ? dpb_ran_ns() - process->heard_ns : 0;
}

/* Its page has the last state that was heard of, and not where it is. */
static bool is_unheard(const struct dpb_job_run *run, uint32_t rank)
{
    return unheard_ns(run, rank) >= UNHEARD_NS;
}

/* ---- signs of life ------------------------------------------------------------------------- */

/* Times of this file are dpb_ran_ns's: no rank is silent while this process does not run. The
 * pages' are dpb_now_ns's. */

/* Whether the process did anything since it was last looked at, or would if it had a core. */
static bool at_work(struct dpb_stall_sign *sign, int32_t pid, int64_t ran_ns)
{
    struct dpb_proc proc;
    if (!dpb_proc_read("", pid, &proc))
        return false;
    bool first = sign->sampled_ns == 0;
    int64_t passed_ns = ran_ns - sign->sampled_ns;
    bool works =
        !first && (proc.state == 'R' || proc.state == 'D' || proc.io_bytes != sign->io_bytes ||
                   (proc.cpu_ns - sign->cpu_ns) * COMPUTES >= passed_ns);
    sign->sampled_ns = ran_ns;
    sign->cpu_ns = proc.cpu_ns;
    sign->io_bytes = proc.io_bytes;
    return works;
}

void dpb_stall_look_at(struct dpb_job_run *run, uint32_t rank, int64_t ran_ns)
{
    struct dpb_stall_sign *sign = &run->processes[rank].sign;
    const struct dpb_status_page *page = dpb_job_page(run, rank);
    if (run->processes[rank].remote) { /* head.c keeps it */
        sign->sign_ns = sign->sign_ns != 0 ? sign->sign_ns : ran_ns;
        return;
    }
    int64_t note_ns = __atomic_load_n(&page->since_ns, __ATOMIC_RELAXED);
    uint64_t step = __atomic_load_n(&page->step, __ATOMIC_RELAXED);
    if (sign->sign_ns == 0 || note_ns != sign->note_ns || step != sign->step)
        *sign = (struct dpb_stall_sign){.note_ns = note_ns, .step = step, .sign_ns = ran_ns};
    else if (at_work(sign, (int32_t)run->processes[rank].pid, ran_ns))
        sign->sign_ns = ran_ns;
}

/* ---- who is late --------------------------------------------------------------------------- */

/* Follows the peers from a rank that makes no progress: the last one is late. If the last one waits
 * for an unknown rank, the rank furthest behind among those that do not wait is late. */
static uint32_t find_late(const struct dpb_job_run *run, uint32_t rank)
{
    for (uint32_t i = 0; i < run->n_ranks; i++) {
        uint32_t peer = __atomic_load_n(&dpb_job_page(run, rank)->peer, __ATOMIC_RELAXED);
        if (peer >= run->n_ranks || peer == rank || !run->processes[peer].running ||
            is_unheard(run, rank))
            break;
        rank = peer;
    }
    if (is_unheard(run, rank) || !waits(run, rank))
        return rank;
    uint32_t late = rank;
    for (uint32_t other = 0; other < run->n_ranks; other++) {
        if (!run->processes[other].running || waits(run, other))
            continue;
        if (late == rank || (is_worker(run, other) &&
                             dpb_job_page(run, other)->step < dpb_job_page(run, late)->step))
            late = other;
    }
    return late;
}

static bool is_stopped(const struct dpb_job_run *run, uint32_t rank)
{
    const struct dpb_process *process = &run->processes[rank];
    struct dpb_proc proc = {.state = process->state};
    if (process->running && !process->remote)
        dpb_proc_read("", (int32_t)process->pid, &proc);
    return process->running && dpb_proc_is_stopped(&proc);
}

/* "; its machine has acknowledged nothing since (4 tries)": then it is not its launcher alone that
 * is stopped. */
static void describe_silence(const struct dpb_job_run *run, uint32_t rank, char *text, size_t size)
{
    const struct dpb_party *party = run->job->party;
    const uint32_t tries = party ? dpb_tcp_tries(party->channels[party->parts[rank]].fd) : 0;
    if (tries > 0)
        snprintf(text, size, "; its machine acknowledges nothing (%u tries)", tries);
}

/* "phase 'backward' of step 7, bucket 3, since 10.2 s, asleep in futex_wait_queue", or "node1 was
 * last heard 10.0 s ago, then in phase ...". `now_ns` of 0 leaves the time in the phase out. */
static void describe(const struct dpb_job_run *run, uint32_t rank, int64_t now_ns, char *text,
                     size_t size)
{
    const struct dpb_process *process = &run->processes[rank];
    const struct dpb_status_page *page = dpb_job_page(run, rank);
    const int64_t silent_ns = unheard_ns(run, rank);
    const bool unheard = is_unheard(run, rank);
    char phase[32], bucket[48] = "", peer[32] = "", since[32] = "", heard[128] = "",
                    state[160] = "";
    char function[DPB_PROC_FUNCTION_BYTES];
    struct dpb_proc proc = {.state = process->state};
    int64_t since_ns = __atomic_load_n(&page->since_ns, __ATOMIC_RELAXED);
    phase_of(run, rank, phase);
    if (page->bucket != UINT64_MAX)
        snprintf(bucket, sizeof bucket, ", bucket %llu", (unsigned long long)page->bucket);
    if (page->peer != UINT32_MAX)
        snprintf(peer, sizeof peer, ", for rank %u", page->peer);
    if (now_ns != 0)
        snprintf(since, sizeof since, ", since %.1f s",
                 since_ns != 0 ? (double)(now_ns - silent_ns - since_ns) * 1e-9 : 0.0);
    if (unheard)
        snprintf(heard, sizeof heard, "%s was last heard %.1f s ago, then in ",
                 dpb_job_host(run, rank), (double)silent_ns * 1e-9);
    bool there =
        process->running && (process->remote || dpb_proc_read("", (int32_t)process->pid, &proc));
    if (!there)
        snprintf(state, sizeof state, "; has ended");
    else if (unheard)
        describe_silence(run, rank, state, sizeof state);
    else if (dpb_proc_is_stopped(&proc))
        snprintf(state, sizeof state, "; is stopped (SIGSTOP)");
    else if (process->remote)
        snprintf(state, sizeof state, "; heard %.1f s ago", (double)silent_ns * 1e-9);
    else if (dpb_proc_sleeps_in("", (int32_t)process->pid, function))
        snprintf(state, sizeof state, ", asleep in %.120s", function);
    snprintf(text, size, "%sphase '%s' of step %llu%s%s%s%s", heard, phase,
             (unsigned long long)page->step, bucket, peer, since, state);
}

static void draw_picture(const struct dpb_job_run *run, int64_t now_ns, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t rank = 0; rank < run->n_ranks && used + WHERE_BYTES + 64 < size; rank++) {
        char where[WHERE_BYTES];
        if (rank == PICTURE_RANKS) {
            snprintf(text + used, size - used, "\n  ... and %u more", run->n_ranks - rank);
            return;
        }
        describe(run, rank, now_ns, where, sizeof where);
        used += (size_t)snprintf(
            text + used, size - used, "%s  rank %u (%s, pid %d): %s", rank > 0 ? "\n" : "", rank,
            is_worker(run, rank) ? "worker" : "server", (int)dpb_job_pid(run, rank), where);
    }
}

static void keep_late(struct dpb_job_run *run, uint32_t late)
{
    char where[WHERE_BYTES];
    describe(run, late, dpb_now_ns(), where, sizeof where);
    snprintf(run->stalls.late, sizeof run->stalls.late, "rank %u is late: %s", late, where);
}

void dpb_stall_keep_picture(struct dpb_job_run *run)
{
    struct dpb_stall_watch *watch = &run->stalls;
    uint32_t silent = UINT32_MAX; /* a rank that says nothing: others may wait for it in the store,
                                     where their pages do not name it */
    draw_picture(run, dpb_now_ns(), watch->picture, sizeof watch->picture);
    for (uint32_t rank = run->n_ranks; rank-- > 0;)
        if (is_unheard(run, rank) || is_stopped(run, rank))
            silent = rank;
    for (uint32_t rank = 0; rank < run->n_ranks && watch->late[0] == '\0'; rank++) {
        const struct dpb_status_page *page = dpb_job_page(run, rank);
        if (__atomic_load_n(&page->failed_ns, __ATOMIC_ACQUIRE) == 0 || page->status != DPB_TIMEOUT)
            continue;
        uint32_t late = find_late(run, rank);
        late = late == rank && silent != UINT32_MAX ? silent : late;
        if (late != rank)
            keep_late(run, late);
    }
    /* The page of another part's rank that waited too long for it may come later. */
    if (watch->late[0] == '\0' && silent != UINT32_MAX && is_unheard(run, silent))
        keep_late(run, silent);
}

/* ---- saying so ----------------------------------------------------------------------------- */

static void say_stall(struct dpb_job_run *run, uint32_t late, uint32_t n_others, int64_t silent_ns)
{
    char where[WHERE_BYTES], others[64] = "", picture[DPB_STALL_PICTURE_BYTES];
    describe(run, late, 0, where, sizeof where); /* a phase may be older than the silence in it */
    draw_picture(run, dpb_now_ns(), picture, sizeof picture);
    if (n_others > 0)
        snprintf(others, sizeof others, "; %u other%s late, too", n_others,
                 n_others == 1 ? " is" : "s are");
    dpb_job_erase_progress(run);
    dpb_warn("stall", "no progress for %.1f s: rank %u (%s, pid %d) is late: %s%s",
             (double)silent_ns * 1e-9, late, dpb_job_host(run, late), (int)dpb_job_pid(run, late),
             where, others);
    if (run->n_ranks > 1)
        dpb_log(DPB_LOG_INFO, "%s", picture);
}

static bool is_silent(const struct dpb_job_run *run, uint32_t rank, int64_t ran_ns)
{
    return ran_ns - run->processes[rank].sign.sign_ns >= run->job->stall_warning_ns;
}

/* All ranks that are late now, in one message: a rank late in the same phase before is not named
 * again, nor any after DPB_STALL_SAID messages. Waiting for a rank that computes is no stall. */
static void say_stalls(struct dpb_job_run *run, int64_t ran_ns)
{
    struct dpb_stall_watch *watch = &run->stalls;
    uint32_t n_late = 0, named = UINT32_MAX;
    int64_t silent_ns = 0;
    watch->n_looks++;
    for (uint32_t rank = 0; rank < run->job->n_workers; rank++) {
        char phase[32];
        if (!run->processes[rank].running || !is_silent(run, rank, ran_ns))
            continue;
        const uint32_t late = find_late(run, rank);
        struct dpb_process *process = &run->processes[late];
        if (process->late_at == watch->n_looks || !is_silent(run, late, ran_ns))
            continue;
        process->late_at = watch->n_looks;
        n_late++;
        phase_of(run, late, phase);
        if (strcmp(process->late_in, phase) == 0)
            continue;
        snprintf(process->late_in, sizeof process->late_in, "%s", phase);
        if (named == UINT32_MAX)
            silent_ns = ran_ns - run->processes[rank].sign.sign_ns;
        named = named == UINT32_MAX ? late : named;
    }
    if (named != UINT32_MAX && watch->n_said++ < DPB_STALL_SAID)
        say_stall(run, named, n_late - 1, silent_ns);
}

/* All leave together: a rank that is there long after another has left does not end. */
static void check_left(struct dpb_job_run *run, uint32_t rank, int64_t ran_ns)
{
    struct dpb_process *process = &run->processes[rank];
    int64_t left_ns = run->stalls.first_left_ns;
    if (left_ns == 0 || ran_ns - left_ns < run->job->timeout_ns + AFTER_WAITERS_NS)
        return;
    snprintf(process->fault, sizeof process->fault,
             "stuck: it has not ended within %.1f s of another that left the job with it",
             (double)(ran_ns - left_ns) * 1e-9);
}

static void check_rank(struct dpb_job_run *run, uint32_t rank, int64_t ran_ns)
{
    struct dpb_process *process = &run->processes[rank];
    dpb_stall_look_at(run, rank, ran_ns);
    int64_t silent_ns = ran_ns - process->sign.sign_ns;
    if (silent_ns >= run->job->timeout_ns + AFTER_WAITERS_NS && !waits(run, rank))
        snprintf(process->fault, sizeof process->fault,
                 "stuck: for %.1f s it has not moved on, computed, read or written, nor waited for "
                 "another; if it is only slow, set a larger run.timeout_s",
                 (double)silent_ns * 1e-9);
}

/* Each waiting rank has a deadline and reports its passing. If no rank does so for longer, none
 * can. A stopped rank is named before another. */
static uint32_t find_all_silent(struct dpb_job_run *run, int64_t ran_ns)
{
    const int64_t limit_ns = run->job->timeout_ns + 2 * AFTER_WAITERS_NS;
    uint32_t named = UINT32_MAX;
    bool stopped = false;
    for (uint32_t rank = 0; rank < run->job->n_workers; rank++) {
        if (!run->processes[rank].running)
            continue;
        if (ran_ns - run->processes[rank].sign.sign_ns < limit_ns)
            return UINT32_MAX;
        if (named == UINT32_MAX || (is_stopped(run, rank) && !stopped))
            named = rank;
        stopped = stopped || is_stopped(run, rank);
    }
    if (named != UINT32_MAX) {
        char where[WHERE_BYTES];
        describe(run, named, dpb_now_ns(), where, sizeof where);
        snprintf(run->processes[named].fault, sizeof run->processes[named].fault,
                 "stuck: for %.1f s no rank has done anything, and no deadline of those that wait "
                 "was heeded; %s",
                 (double)(ran_ns - run->processes[named].sign.sign_ns) * 1e-9, where);
    }
    return named;
}

/* A look reads /proc of every rank: the more ranks, the rarer. */
static int64_t look_interval_ns(const struct dpb_job_run *run)
{
    enum { RANKS = 64 };
    return run->n_ranks > RANKS ? LOOK_NS * run->n_ranks / RANKS : LOOK_NS;
}

uint32_t dpb_stall_look(struct dpb_job_run *run, int64_t ran_ns)
{
    uint32_t stuck = UINT32_MAX;
    if (run->ending || ran_ns - run->stalls.looked_ns < look_interval_ns(run))
        return stuck;
    run->stalls.looked_ns = ran_ns;
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        if (!run->processes[rank].running)
            continue;
        check_left(run, rank, ran_ns);
        if (is_worker(run, rank)) /* a server has nothing to do while workers compute */
            check_rank(run, rank, ran_ns);
        if (stuck == UINT32_MAX && run->processes[rank].fault[0] != '\0')
            stuck = rank;
    }
    if (run->job->stall_warning_ns > 0)
        say_stalls(run, ran_ns);
    return stuck != UINT32_MAX ? stuck : find_all_silent(run, ran_ns);
}
