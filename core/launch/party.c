/* party.c - coming together and leaving: see party.h. */
#include "launch/party_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "launch/spawn.h"
#include "machine/proc.h"
#include "machine/rights.h"
#include "world/board.h"
#include "world/pmix.h"

/* The head gives up first, then rank 1: the first names the culprit, the second the head. */
#define TURN_NS INT64_C(500000000)
#define SLEPT_NS INT64_C(1000000000)   /* between two looks: it was stopped */
#define LATELY_NS INT64_C(10000000000) /* from being continued to an end that the stop explains */
#define LEAVE_NS INT64_C(2000000000)   /* for a word to arrive, for a rank without a job to end */
#define GIVE_UP_NS INT64_C(2000000000) /* then, for the killed rank */

/* ---- this part's own end -------------------------------------------------------------------- */

static int stderr_kept = -1;                /* of a process that is silent */
static volatile sig_atomic_t was_continued; /* since the last look */

static void on_continue(int number)
{
    was_continued = number;
}

void dpb_party_hush(void)
{
    if (!dpb_pmix_is_here())
        return;
    signal(SIGCONT, on_continue);
    if (dpb_pmix_rank() == 0)
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

static void speak(void)
{
    if (stderr_kept >= 0)
        dup2(stderr_kept, STDERR_FILENO);
}

void dpb_party_speak(const struct dpb_party *party)
{
    if (party->rank == 1)
        speak();
}

static void destroy(struct dpb_party *party)
{
    keeper_stop(&party->keeper);
    for (uint32_t i = 0; party->links && i < party->n_ranks; i++) {
        link_close(&party->links[i]);
        if (party->links[i].lost_fd >= 0)
            close(party->links[i].lost_fd);
    }
    for (uint32_t i = 0; party->store_fds && i < party->n_ranks; i++)
        if (party->store_fds[i] >= 0)
            close(party->store_fds[i]);
    if (party->store_fd >= 0)
        close(party->store_fd);
    if (party->pmix_fd >= 0)
        close(party->pmix_fd);
    free(party->links);
    free(party->store_fds);
    free(party->launcher_pids);
    free(party->machines);
    free(party->hosts);
    free(party);
}

/* A rank that gets no job finalizes PMIx and ends when its socket closes. */
static void dismiss(struct dpb_party *party)
{
    if (party->socket >= 0)
        close(party->socket);
    party->socket = -1;
    const int64_t until_ns = dpb_now_ns() + LEAVE_NS;
    while (party->pid > 0 && waitpid(party->pid, NULL, WNOHANG) == 0 &&
           dpb_now_ns() < until_ns + GIVE_UP_NS) {
        if (dpb_now_ns() > until_ns)
            kill(party->pid, SIGKILL);
        poll(NULL, 0, 2);
    }
    party->pid = 0;
}

/* ---- the process that started this one ------------------------------------------------------- */

/* Scripts around this process have the mark of mpirun or srun in their environment; mpirun and srun
 * have not. */
static void find_starter(struct dpb_party *party)
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
    if (getppid() != party->parent)
        return true;
    return party->starter != party->parent &&
           (!dpb_proc_read("", party->started, &proc) || proc.parent != party->starter);
}

dpb_status party_look(struct dpb_party *party)
{
    const int64_t now_ns = dpb_now_ns();
    if (party->looked_ns != 0 && now_ns - party->looked_ns > SLEPT_NS)
        party->slept_ns = now_ns - party->looked_ns;
    party->looked_ns = now_ns;
    if (was_continued)
        party->continued_ns = now_ns;
    was_continued = 0;
    if (!dpb_party_deserted(party))
        return DPB_OK;
    return dpb_fail(DPB_PEER, "the process of %s that started rank %u (pid %d) has ended",
                    party->launcher, party->rank, (int)party->starter);
}

dpb_status party_missed(struct dpb_party *party, const char *format, ...)
{
    va_list list;
    DPB_TRY(party_look(party));
    if (party->slept_ns > 0 ||
        (party->continued_ns != 0 && dpb_now_ns() - party->continued_ns < LATELY_NS)) {
        dpb_log(DPB_LOG_INFO, "the launcher of rank %u was stopped while it waited", party->rank);
        return DPB_TIMEOUT;
    }
    va_start(list, format);
    dpb_failv(DPB_TIMEOUT, format, list);
    va_end(list);
    return DPB_TIMEOUT;
}

/* ---- joining -------------------------------------------------------------------------------- */

static dpb_status start_rank(struct dpb_party *party, const char *address)
{
    struct dpb_join join = {.magic = DPB_JOIN_MAGIC,
                            .launcher_pid = (int32_t)getpid(),
                            .timeout_ns = party->timeout_ns};
    struct dpb_spawn spawn = {.environment = dpb_spawn_environment(NULL, true),
                              .timeout_ns = party->timeout_ns,
                              .hello = {.rank = party->rank, .launcher_pid = join.launcher_pid}};
    snprintf(join.address, sizeof join.address, "%s", address);
    dpb_status status = dpb_allocated(spawn.environment);
    DPB_THEN(status, dpb_spawn_join(&spawn, &join, &party->pid, &party->socket));
    free(spawn.environment);
    explicit_bzero(&join, sizeof join);
    return status == DPB_TIMEOUT ? DPB_OK : status; /* the child is there: read_rank waits for it */
}

/* The first descriptor that the rank sends is its connection to PMIx. */
static void keep_connection(struct dpb_party *party, const int *fds, size_t n_fds)
{
    bool wanted = n_fds > 0 && party->pmix_fd < 0;
    if (wanted)
        party->pmix_fd = fds[0];
    dpb_rights_close(fds + wanted, n_fds - wanted);
}

static dpb_status has_not_joined(struct dpb_party *party)
{
    struct dpb_proc proc = {0};
    dpb_proc_read("", (int32_t)party->pid, &proc);
    return party_missed(party, "rank %u (pid %d) has not joined the job by PMIx within %.1f s%s",
                        party->rank, (int)party->pid, (double)party->timeout_ns * 1e-9,
                        dpb_proc_is_stopped(&proc)
                            ? ": it is stopped (SIGSTOP)"
                            : "; if it is only slow, set a larger run.timeout_s");
}

int64_t party_deadline(const struct dpb_party *party)
{
    uint32_t turn = party->rank < 2 ? party->rank : 2;
    return dpb_now_ns() + party->timeout_ns + turn * TURN_NS;
}

/* No other process knows how it ended: mpirun ends the others before a message reaches rank 0. */
static dpb_status has_ended(const struct dpb_party *party)
{
    siginfo_t info = {0};
    for (int64_t until_ns = dpb_now_ns() + LEAVE_NS; info.si_pid == 0 && dpb_now_ns() < until_ns;
         poll(NULL, 0, 2))
        if (waitid(P_PID, (id_t)party->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
    if (info.si_pid == 0 || info.si_code == CLD_EXITED)
        return dpb_fail(DPB_PEER, "rank %u has ended while it joined the job", party->rank);
    speak();
    return dpb_fail(DPB_FAILED,
                    "rank %u (pid %d) was killed by signal %d (%s) while it joined the job",
                    party->rank, (int)party->pid, info.si_status, strsignal(info.si_status));
}

/* All of it, or the reason why not. */
static dpb_status read_rank(struct dpb_party *party, void *bytes, size_t n, int64_t deadline_ns)
{
    for (size_t done = 0; done < n;) {
        struct pollfd ready = {.fd = party->socket, .events = POLLIN};
        int found = poll(&ready, 1, PARTY_TICK_MS);
        DPB_TRY(party_look(party));
        if (found <= 0 && dpb_now_ns() < deadline_ns)
            continue;
        if (found <= 0)
            return has_not_joined(party);
        int fds[DPB_RIGHTS_MOST];
        size_t n_fds;
        ssize_t got = dpb_rights_receive(party->socket, (char *)bytes + done, n - done,
                                         MSG_DONTWAIT, fds, &n_fds);
        keep_connection(party, fds, n_fds);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return has_ended(party);
        done += (size_t)got;
    }
    return DPB_OK;
}

static dpb_status hear_rank(struct dpb_party *party, int64_t deadline_ns,
                            struct dpb_join_answer *answer)
{
    char opened;
    DPB_TRY(read_rank(party, &opened, sizeof opened, deadline_ns));
    DPB_TRY(read_rank(party, answer, sizeof *answer, deadline_ns));
    answer->text[sizeof answer->text - 1] = '\0';
    if (answer->magic != DPB_JOIN_MAGIC)
        return dpb_fail(DPB_FAILED, "rank %u has joined by another version of dpbench",
                        party->rank);
    if (answer->status == DPB_TIMEOUT) /* of rank 0 */
        dpb_party_speak(party);
    if (answer->status != DPB_OK)
        return dpb_fail((dpb_status)answer->status, "%s", answer->text);
    if (answer->n_ranks > DPB_JOB_RANKS)
        return dpb_fail(DPB_USAGE, "%s started %u processes; a job has at most %d", party->launcher,
                        answer->n_ranks, DPB_JOB_RANKS);
    if (answer->rank != party->rank || answer->n_ranks == 0)
        return dpb_fail(DPB_FAILED, "%s says that this is rank %u of %u, and PMIX_RANK rank %u",
                        party->launcher, answer->rank, answer->n_ranks, party->rank);
    party->hosts = calloc(answer->n_ranks, sizeof *party->hosts);
    party->machines = calloc(answer->n_ranks, sizeof *party->machines);
    party->launcher_pids = calloc(answer->n_ranks, sizeof *party->launcher_pids);
    party->links = calloc(answer->n_ranks, sizeof *party->links);
    party->store_fds = calloc(answer->n_ranks, sizeof *party->store_fds);
    DPB_TRY(dpb_allocated(party->hosts && party->machines && party->launcher_pids && party->links &&
                          party->store_fds));
    party->n_ranks = answer->n_ranks; /* 0 until then: no link is to be closed */
    for (uint32_t rank = 0; rank < party->n_ranks; rank++)
        party->links[rank].fd = party->links[rank].lost_fd = party->store_fds[rank] = -1;
    return read_rank(party, party->hosts, party->n_ranks * sizeof *party->hosts, deadline_ns);
}

/* Ranks whose launcher gives them the same host are on one machine. */
static void find_machines(struct dpb_party *party)
{
    for (uint32_t rank = 0; rank < party->n_ranks; rank++) {
        uint32_t first = 0;
        party->hosts[rank][DPB_HOST_BYTES - 1] = '\0';
        while (strcmp(party->hosts[first], party->hosts[rank]) != 0)
            first++;
        party->machines[rank] = first < rank ? party->machines[first] : party->n_machines++;
    }
}

/* Tries until it is there. */
static dpb_status connect_as(struct dpb_party *party, const char *address, link_purpose purpose,
                             int64_t deadline_ns, int *fd)
{
    bool same_host = party->machines[party->rank] == party->machines[0];
    char why[LINK_WHY_BYTES];
    for (;;) {
        dpb_status status =
            link_connect(address, same_host, party->rank, purpose, deadline_ns, fd, why);
        if (status != DPB_PEER)
            return status;
        party->looked_ns = 0; /* a try may take long */
        DPB_TRY(party_look(party));
        if (dpb_now_ns() >= deadline_ns) {
            dpb_party_speak(party);
            return party_missed(party, "rank %u cannot reach rank 0's launcher (%s): %s",
                                party->rank, party->hosts[0], why);
        }
        poll(NULL, 0, PARTY_TICK_MS);
    }
}

static dpb_status connect_to_head(struct dpb_party *party, const char *address, int64_t deadline_ns)
{
    DPB_TRY(connect_as(party, address, LINK_PART, deadline_ns, &party->links[0].fd));
    return connect_as(party, address, LINK_STORE, deadline_ns, &party->store_fd);
}

/* Where a connection belongs; NULL: none is expected of this rank and purpose. */
static int *socket_of(struct dpb_party *party, const struct dpb_greeting *greeting)
{
    const uint32_t rank = greeting->dialler;
    if (rank == 0 || rank >= party->n_ranks)
        return NULL;
    return greeting->purpose == LINK_PART    ? &party->links[rank].fd
           : greeting->purpose == LINK_STORE ? &party->store_fds[rank]
                                             : NULL;
}

/* The head: until both connections of every other part are there. */
static dpb_status accept_all(struct dpb_party *party, int listener, const struct dpb_circle *circle,
                             int64_t deadline_ns)
{
    const uint32_t n_expected = 2 * (party->n_ranks - 1);
    struct dpb_door door = {.listener = listener, .circle = circle};
    DPB_TRY(dpb_door_open(&door, n_expected));
    dpb_files_allow(door.n_visitors);
    struct pollfd *fds = calloc(1 + door.n_visitors, sizeof *fds);
    dpb_status status = dpb_allocated(fds);
    for (uint32_t n = 0; status == DPB_OK && n < n_expected && dpb_now_ns() < deadline_ns;) {
        struct dpb_meeting came = {.fd = -1};
        if (poll(fds, dpb_door_watch(&door, fds), PARTY_TICK_MS) < 0 && errno == EINVAL)
            status = dpb_fail(DPB_FAILED, "cannot wait for %u connections: %s", n_expected,
                              strerror(EMFILE)); /* poll takes no more entries than open files */
        DPB_THEN(status, dpb_door_serve(&door, fds, &came));
        DPB_THEN(status, party_look(party));
        int *place = came.fd >= 0 ? socket_of(party, &came.greeting) : NULL;
        if (!place && came.fd >= 0)
            close(came.fd);
        if (!place)
            continue;
        if (*place >= 0) /* it dialled again: it has given the one before up */
            close(*place);
        else
            n++;
        link_tune(came.fd);
        *place = came.fd;
    }
    free(fds);
    dpb_door_close(&door);
    for (uint32_t rank = 1; status == DPB_OK && rank < party->n_ranks; rank++)
        if (party->links[rank].fd < 0 || party->store_fds[rank] < 0)
            return party_missed(
                party,
                "rank %u (%s) has not connected to rank 0's launcher within %.1f s: it is stopped, "
                "has not been started by dpbench, or a firewall holds its connections back",
                rank, party->hosts[rank], (double)party->timeout_ns * 1e-9);
    return status;
}

void party_refuse(struct dpb_party *party, dpb_status status)
{
    const struct verdict verdict = {.exit_code = dpb_status_exit_code(status)};
    for (uint32_t rank = 1; party->links && rank < party->n_ranks; rank++)
        link_say(&party->links[rank], LINK_VERDICT, rank, &verdict, sizeof verdict);
}

/* Waits until all messages have arrived everywhere: if a connection is closed with unread bytes, it
 * loses the last messages. */
static void finish_links(struct dpb_party *party)
{
    int64_t until_ns = dpb_now_ns() + LEAVE_NS;
    for (uint32_t rank = 1; party->links && rank < party->n_ranks; rank++) {
        struct link *link = &party->links[rank];
        bool open = link->fd >= 0, said = false;
        while (open && dpb_now_ns() < until_ns) {
            struct dpb_frame frame;
            const void *value;
            char why[128];
            if (!said && link_flush(link) && link->out.begin == link->out.end) {
                shutdown(link->fd, SHUT_WR);
                said = true;
            }
            struct pollfd ready = {.fd = link->fd, .events = (short)(said ? POLLIN : POLLOUT)};
            poll(&ready, 1, 10);
            open = link_receive(link);
            while (link_next(link, &frame, &value, why) > 0)
                ;
        }
    }
}

dpb_status dpb_party_join(int64_t timeout_ns, struct dpb_party **party)
{
    *party = NULL;
    if (!dpb_pmix_is_here())
        return DPB_OK;
    struct dpb_party *made = calloc(1, sizeof *made);
    DPB_TRY(dpb_allocated(made));
    *made = (struct dpb_party){.rank = dpb_pmix_rank(),
                               .launcher = dpb_pmix_launcher(),
                               .socket = -1,
                               .store_fd = -1,
                               .pmix_fd = -1,
                               .timeout_ns = timeout_ns + PARTY_START_NS,
                               .looked_ns = dpb_now_ns()};
    int listener = -1;
    struct dpb_circle circle;
    char address[DPB_ADDRESS_BYTES] = "";
    struct dpb_join_answer answer;
    bool head = dpb_party_is_head(made);
    find_starter(made);
    const int64_t deadline_ns = party_deadline(made);
    dpb_status status = head ? link_listen(&listener, &circle, address) : DPB_OK;
    DPB_THEN(status, start_rank(made, address));
    made->looked_ns = 0; /* a slow start is no stop of this process */
    DPB_THEN(status, hear_rank(made, deadline_ns, &answer));
    if (status == DPB_OK) {
        find_machines(made);
        status = head ? accept_all(made, listener, &circle, deadline_ns)
                      : connect_to_head(made, answer.text, deadline_ns);
    }
    if (listener >= 0)
        close(listener);
    explicit_bzero(&circle, sizeof circle);
    explicit_bzero(&answer, sizeof answer);
    explicit_bzero(address, sizeof address);
    if (status != DPB_OK) {
        if (head) {
            party_refuse(made, status);
            finish_links(made);
        }
        dismiss(made);
        destroy(made);
        return status;
    }
    *party = made;
    return DPB_OK;
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* Without another part, the death of this part can end no other before its time. */
dpb_status dpb_party_keep(struct dpb_party *party)
{
    if (party->pmix_fd < 0 || party->n_ranks == 1)
        return DPB_OK;
    int link_fd = party->links[dpb_party_is_head(party) ? 1 : 0].fd;
    return keeper_start(party->pmix_fd, link_fd, &party->keeper);
}

/* ---- leaving -------------------------------------------------------------------------------- */

void dpb_party_leave(struct dpb_party *party, int exit_code)
{
    if (!party)
        return;
    /* mpirun or srun ends the others when one exits with a code that is not 0: this part still has
     * a message to send, and a code of its own. */
    signal(SIGTERM, SIG_IGN);
    dismiss(party);
    if (dpb_party_is_head(party)) {
        for (uint32_t rank = 1; rank < party->n_ranks; rank++)
            link_say(&party->links[rank], LINK_OVER, rank, &exit_code, sizeof exit_code);
        finish_links(party);
    }
    destroy(party);
}
