/* party.c - a part's voice, its starter and its waits: see party.h. */
#include "launch/party.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "machine/proc.h"
#include "world/pmix.h"

/* The head gives up first, then rank 1: the first names the culprit, the second the head. */
#define TURN_NS INT64_C(500000000)
#define LATELY_NS INT64_C(10000000000) /* from being continued to an end that the stop explains */

/* ---- this part's own end -------------------------------------------------------------------- */

static int stderr_kept = -1;                /* of a process that is silent */
static volatile sig_atomic_t was_continued; /* since the last look */

static void on_continue(int number)
{
    was_continued = number;
}

bool dpb_party_is_here(uint32_t *rank)
{
    *rank = dpb_pmix_rank();
    return dpb_pmix_is_here() || dpb_environment_is_here(rank);
}

void dpb_party_hush(void)
{
    uint32_t rank;
    if (!dpb_party_is_here(&rank))
        return;
    signal(SIGCONT, on_continue);
    if (rank == 0)
        return;
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    stderr_kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    fflush(stdout);
    if (null_fd >= 0) {
        dup2(null_fd, STDOUT_FILENO);
        dup2(null_fd, STDERR_FILENO);
        close(null_fd);
    }
}

void dpb_party_speak_up(void)
{
    if (stderr_kept >= 0)
        dup2(stderr_kept, STDERR_FILENO);
}

void dpb_party_complain(void)
{
    if (stderr_kept < 0)
        return;
    dpb_party_speak_up();
    dpb_log(DPB_LOG_ERROR, "%s", dpb_first_error(NULL));
}

void dpb_party_speak(const struct dpb_party *party)
{
    if (party->part == 1)
        dpb_party_speak_up();
}

uint32_t dpb_party_first(const struct dpb_party *party, uint32_t part)
{
    for (uint32_t rank = 0; rank < party->n_ranks; rank++)
        if (party->parts[rank] == part)
            return rank;
    return part;
}

/* ---- the process that started this one ------------------------------------------------------- */

/* Scripts around this process have the mark of mpirun or srun in their environment; mpirun and srun
 * have not. */
void dpb_party_find_starter(struct dpb_party *party)
{
    struct dpb_proc proc;
    party->started = getpid();
    party->starter = party->parent = getppid();
    while (dpb_proc_has_variable("", party->starter, DPB_PMIX_RANK_VARIABLE) &&
           dpb_proc_read("", party->starter, &proc)) {
        party->started = party->starter;
        party->starter = proc.parent;
    }
}

bool dpb_party_deserted(const struct dpb_party *party)
{
    struct dpb_proc proc;
    if (party->starter == 0)
        return false;
    if (getppid() != party->parent)
        return true;
    return party->starter != party->parent &&
           (!dpb_proc_read("", party->started, &proc) || proc.parent != party->starter);
}

/* ---- waits ----------------------------------------------------------------------------------- */

void dpb_party_begin_looks(struct dpb_party *party)
{
    dpb_ran_blocked();
    party->missed_ns = dpb_missed_ns();
}

dpb_status dpb_party_look(struct dpb_party *party)
{
    const int64_t slept_ns = dpb_missed_ns() - party->missed_ns;
    party->slept_ns = slept_ns > 0 ? slept_ns : party->slept_ns;
    party->missed_ns += slept_ns;
    if (was_continued)
        party->continued_ns = dpb_now_ns();
    was_continued = 0;
    if (!dpb_party_deserted(party))
        return party->meanwhile ? party->meanwhile(party->context) : DPB_OK;
    return dpb_fail(DPB_PEER, "the process of %s that started rank %u (pid %d) has ended",
                    party->launcher, party->part, (int)party->starter);
}

/* A part that was itself stopped must not name another: the head, or rank 1's part, has meanwhile
 * named the missing one. mpirun continues processes that it ends (SIGCONT). */
dpb_status dpb_party_missed(struct dpb_party *party, const char *format, ...)
{
    va_list list;
    DPB_TRY(dpb_party_look(party));
    if (party->slept_ns > 0 ||
        (party->continued_ns != 0 && dpb_now_ns() - party->continued_ns < LATELY_NS)) {
        dpb_log(DPB_LOG_INFO, "the launcher of rank %u was stopped while it waited",
                dpb_party_first(party, party->part));
        return DPB_TIMEOUT;
    }
    va_start(list, format);
    dpb_failv(DPB_TIMEOUT, format, list);
    va_end(list);
    return DPB_TIMEOUT;
}

struct dpb_deadline dpb_party_deadline(const struct dpb_party *party)
{
    uint32_t turn = party->part < 2 ? party->part : 2;
    return dpb_deadline_in(party->timeout_ns + turn * TURN_NS);
}

dpb_status dpb_party_await(struct dpb_party *party, struct dpb_channel *channel, dpb_channel_op op,
                           struct dpb_deadline deadline, struct dpb_frame *frame,
                           const void **value, int *found)
{
    char why[128] = "";
    for (;;) {
        const bool open = dpb_channel_receive(channel);
        const int next = dpb_channel_next(channel, frame, value, why);
        *found = next > 0 && frame->op == op ? 1 : next != 0 || !open ? -1 : 0;
        if (*found != 0 || dpb_deadline_passed(deadline))
            return DPB_OK;
        struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
        poll(&ready, 1, DPB_PARTY_TICK_MS);
        DPB_TRY(dpb_party_look(party));
    }
}
