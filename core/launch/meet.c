/* meet.c - coming together, coming back and leaving: see meet.h. */
#include "launch/meet.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "launch/agree.h"
#include "launch/spawn.h"
#include "machine/proc.h"
#include "machine/rights.h"
#include "world/board.h"
#include "world/pmix.h"

#define LEAVE_NS INT64_C(2000000000)   /* for a word to arrive, for a rank without a job to end */
#define GIVE_UP_NS INT64_C(2000000000) /* then, for the killed rank */

/* From here on no connection is expected. */
static void forget_address(struct dpb_party *party)
{
    if (party->listener >= 0)
        close(party->listener);
    party->listener = -1;
    explicit_bzero(party->address, sizeof party->address);
    explicit_bzero(&party->circle, sizeof party->circle);
    free(party->cards);
    free(party->config);
    party->cards = NULL;
    party->config = NULL;
}

static void destroy(struct dpb_party *party)
{
    dpb_keeper_stop(&party->keeper);
    for (uint32_t i = 0; party->channels && i < party->n_parts; i++) {
        dpb_channel_close(&party->channels[i]);
        if (party->channels[i].lost_fd >= 0)
            close(party->channels[i].lost_fd);
    }
    for (uint32_t i = 0; party->store_fds && i < party->n_ranks; i++)
        if (party->store_fds[i] >= 0)
            close(party->store_fds[i]);
    if (party->pmix_fd >= 0)
        close(party->pmix_fd);
    forget_address(party);
    free(party->channels);
    free(party->store_fds);
    free(party->launcher_pids);
    free(party->seats);
    free(party->parts);
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
    const struct dpb_deadline leaves = dpb_deadline_in(LEAVE_NS),
                              over = dpb_deadline_in(LEAVE_NS + GIVE_UP_NS);
    while (party->pid > 0 && waitpid(party->pid, NULL, WNOHANG) == 0 &&
           !dpb_deadline_passed(over)) {
        if (dpb_deadline_passed(leaves))
            kill(party->pid, SIGKILL);
        poll(NULL, 0, 2);
    }
    party->pid = 0;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* It joins by PMIx, with rank 0's `address`. */
static dpb_status start_rank(struct dpb_party *party, const char *address)
{
    struct dpb_join join = {.magic = DPB_JOIN_MAGIC,
                            .launcher_pid = (int32_t)getpid(),
                            .timeout_ns = party->timeout_ns};
    struct dpb_spawn spawn = {.network = -1,
                              .environment = dpb_spawn_environment(NULL, true),
                              .timeout_ns = party->timeout_ns,
                              .hello = {.rank = party->part, .launcher_pid = join.launcher_pid}};
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
    return dpb_party_missed(party, "rank %u (pid %d) has not joined the job within %.1f s%s",
                            party->part, (int)party->pid, (double)party->timeout_ns * 1e-9,
                            dpb_proc_is_stopped(&proc)
                                ? ": it is stopped (SIGSTOP)"
                                : "; if it is only slow, set a larger run.timeout_s");
}

/* No other process knows how it ended: mpirun ends the others before a message reaches rank 0. */
static dpb_status has_ended(const struct dpb_party *party)
{
    siginfo_t info = {0};
    for (struct dpb_deadline end = dpb_deadline_in(LEAVE_NS);
         info.si_pid == 0 && !dpb_deadline_passed(end); poll(NULL, 0, 2))
        if (waitid(P_PID, (id_t)party->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
    if (info.si_pid == 0 || info.si_code == CLD_EXITED)
        return dpb_fail(DPB_PEER, "rank %u has ended while it joined the job", party->part);
    dpb_party_speak_up();
    return dpb_fail(DPB_FAILED,
                    "rank %u (pid %d) was killed by signal %d (%s) while it joined the job",
                    party->part, (int)party->pid, info.si_status, strsignal(info.si_status));
}

/* All of it, or the reason why not. */
static dpb_status read_rank(struct dpb_party *party, void *bytes, size_t n,
                            struct dpb_deadline deadline)
{
    for (size_t done = 0; done < n;) {
        struct pollfd ready = {.fd = party->socket, .events = POLLIN};
        int found = poll(&ready, 1, DPB_PARTY_TICK_MS);
        DPB_TRY(dpb_party_look(party));
        if (found <= 0 && !dpb_deadline_passed(deadline))
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

static dpb_status make_room(struct dpb_party *party, uint32_t n_parts, uint32_t n_workers,
                            uint32_t n_ranks)
{
    party->hosts = calloc(n_ranks, sizeof *party->hosts);
    party->parts = calloc(n_ranks, sizeof *party->parts);
    party->machines = calloc(n_ranks, sizeof *party->machines);
    party->seats = calloc(n_ranks, sizeof *party->seats);
    party->launcher_pids = calloc(n_parts, sizeof *party->launcher_pids);
    party->channels = calloc(n_parts, sizeof *party->channels);
    party->store_fds = calloc(n_ranks, sizeof *party->store_fds);
    DPB_TRY(dpb_allocated(party->hosts && party->parts && party->machines && party->seats &&
                          party->launcher_pids && party->channels && party->store_fds));
    party->n_parts = n_parts; /* 0 until then: no channel is to be closed */
    party->n_ranks = n_ranks;
    for (uint32_t part = 0; part < n_parts; part++)
        party->channels[part].fd = party->channels[part].lost_fd = -1;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        party->store_fds[rank] = -1;
        party->parts[rank] =
            rank < n_workers ? rank / (n_workers / n_parts) : (rank - n_workers) % n_parts;
    }
    return DPB_OK;
}

static dpb_status hear_rank(struct dpb_party *party, struct dpb_deadline deadline,
                            struct dpb_join_answer *answer)
{
    char opened;
    DPB_TRY(read_rank(party, &opened, sizeof opened, deadline));
    DPB_TRY(read_rank(party, answer, sizeof *answer, deadline));
    answer->text[sizeof answer->text - 1] = '\0';
    if (answer->magic != DPB_JOIN_MAGIC)
        return dpb_fail(DPB_FAILED, "rank %u has joined by another version of dpbench",
                        party->part);
    if (answer->status == DPB_TIMEOUT) /* of rank 0 */
        dpb_party_speak(party);
    if (answer->status != DPB_OK)
        return dpb_fail((dpb_status)answer->status, "%s", answer->text);
    if (answer->n_ranks > DPB_JOB_RANKS)
        return dpb_fail(DPB_USAGE, "%s started %u processes; a job has at most %d", party->launcher,
                        answer->n_ranks, DPB_JOB_RANKS);
    if (answer->rank != party->part || answer->n_ranks == 0)
        return dpb_fail(DPB_FAILED, "%s says that this is rank %u of %u, and PMIX_RANK rank %u",
                        party->launcher, answer->rank, answer->n_ranks, party->part);
    DPB_TRY(make_room(party, answer->n_ranks, answer->n_ranks, answer->n_ranks));
    return read_rank(party, party->hosts, party->n_ranks * sizeof *party->hosts, deadline);
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

/* As a part, or as the rank that will have the connection. Tries until it is there. */
static dpb_status connect_as(struct dpb_party *party, const char *address,
                             dpb_channel_purpose purpose, uint32_t number,
                             struct dpb_deadline deadline, int *fd)
{
    const uint32_t own = dpb_party_first(party, party->part);
    /* Without PMIx the address says all: it may be a socket of this user's. */
    const bool same_host = dpb_pmix_is_here() && party->machines[own] == party->machines[0];
    char why[DPB_CHANNEL_WHY_BYTES];
    for (;;) {
        dpb_status status =
            dpb_channel_connect(address, same_host, number, purpose, deadline, fd, why);
        if (status != DPB_PEER)
            return status;
        dpb_party_begin_looks(party); /* a try may take long */
        DPB_TRY(dpb_party_look(party));
        if (dpb_deadline_passed(deadline)) {
            dpb_party_speak(party);
            return dpb_party_missed(party, "rank %u cannot reach rank 0's launcher (%s): %s", own,
                                    party->hosts[0], why);
        }
        poll(NULL, 0, DPB_PARTY_TICK_MS);
    }
}

static dpb_status connect_part(struct dpb_party *party, const char *address,
                               struct dpb_deadline deadline)
{
    return connect_as(party, address, DPB_CHANNEL_PART, party->part, deadline,
                      &party->channels[0].fd);
}

static dpb_status connect_stores(struct dpb_party *party, const char *address,
                                 struct dpb_deadline deadline)
{
    for (uint32_t rank = 0; rank < party->n_ranks; rank++)
        if (party->parts[rank] == party->part)
            DPB_TRY(connect_as(party, address, DPB_CHANNEL_STORE, rank, deadline,
                               &party->store_fds[rank]));
    return DPB_OK;
}

/* Where a connection belongs; NULL: none is expected of this part, or rank, and purpose. A part
 * that has agreed is there. */
static int *socket_of(struct dpb_party *party, const struct dpb_greeting *greeting)
{
    const uint32_t number = greeting->dialler;
    if (greeting->purpose == DPB_CHANNEL_PART && number > 0 && number < party->n_parts &&
        party->launcher_pids[number] == 0)
        return &party->channels[number].fd;
    const bool of_rank = greeting->purpose == DPB_CHANNEL_STORE && number < party->n_ranks &&
                         party->parts[number] != 0;
    return of_rank ? &party->store_fds[number] : NULL;
}

/* How many connections of these purposes are expected, and how many are not there. The first such
 * rank, or first rank of a part, is *missing. */
static uint32_t count_missing(const struct dpb_party *party, unsigned purposes,
                              uint32_t *n_expected, uint32_t *missing)
{
    uint32_t n = 0;
    *n_expected = 0;
    *missing = UINT32_MAX;
    for (uint32_t part = 1; (purposes & DPB_CHANNEL_PART) && part < party->n_parts; part++) {
        ++*n_expected;
        if (party->channels[part].fd < 0 && n++ == 0)
            *missing = dpb_party_first(party, part);
    }
    for (uint32_t rank = 0; (purposes & DPB_CHANNEL_STORE) && rank < party->n_ranks; rank++) {
        *n_expected += party->parts[rank] != 0;
        if (party->parts[rank] == 0 || party->store_fds[rank] >= 0)
            continue;
        *missing = rank < *missing ? rank : *missing;
        n++;
    }
    return n;
}

/* The head: until the connections of these purposes are there, a part's or its ranks'. DPB_TIMEOUT,
 * without a message: that of *missing is not. */
static dpb_status accept_until(struct dpb_party *party, int listener,
                               const struct dpb_circle *circle, unsigned purposes,
                               struct dpb_deadline deadline, uint32_t *missing)
{
    uint32_t n_expected;
    (void)count_missing(party, purposes, &n_expected, missing);
    struct dpb_door door = {.listener = listener, .circle = circle};
    DPB_TRY(dpb_door_open(&door, n_expected));
    dpb_files_allow(door.n_visitors);
    struct pollfd *fds = calloc(1 + door.n_visitors, sizeof *fds);
    dpb_status status = dpb_allocated(fds);
    while (status == DPB_OK && count_missing(party, purposes, &n_expected, missing) > 0 &&
           !dpb_deadline_passed(deadline)) {
        struct dpb_meeting came = {.fd = -1};
        if (poll(fds, dpb_door_watch(&door, fds), DPB_PARTY_TICK_MS) < 0 && errno == EINVAL)
            status = dpb_fail(DPB_FAILED, "cannot wait for %u connections: %s", n_expected,
                              strerror(EMFILE)); /* poll takes no more entries than open files */
        DPB_THEN(status, dpb_door_serve(&door, fds, &came));
        DPB_THEN(status, dpb_party_look(party));
        const bool expected =
            came.fd >= 0 && (purposes & came.greeting.purpose) && dpb_channel_is_own(came.fd);
        int *place = expected ? socket_of(party, &came.greeting) : NULL;
        if (!place && came.fd >= 0)
            close(came.fd);
        if (!place)
            continue;
        if (*place >= 0) /* it dialled again: it has given the one before up */
            close(*place);
        dpb_channel_tune(came.fd);
        *place = came.fd;
    }
    free(fds);
    dpb_door_close(&door);
    return status == DPB_OK && *missing != UINT32_MAX ? DPB_TIMEOUT : status;
}

static dpb_status accept_all(struct dpb_party *party, int listener, const struct dpb_circle *circle,
                             unsigned purposes, struct dpb_deadline deadline)
{
    uint32_t missing;
    const dpb_status status = accept_until(party, listener, circle, purposes, deadline, &missing);
    if (status != DPB_TIMEOUT)
        return status;
    const bool known = party->hosts[missing][0] != '\0';
    return dpb_party_missed(
        party,
        "rank %u%s%s%s has not connected to rank 0's launcher within %.1f s: it is "
        "stopped, has not been started by dpbench, or a firewall holds its connections "
        "back",
        missing, known ? " (" : "", party->hosts[missing], known ? ")" : "",
        (double)party->timeout_ns * 1e-9);
}

/* Waits until all messages have arrived everywhere: if a connection is closed with unread bytes, it
 * loses the last messages. */
static void finish_links(struct dpb_party *party)
{
    const struct dpb_deadline deadline = dpb_deadline_in(LEAVE_NS);
    for (uint32_t part = 1; party->channels && part < party->n_parts; part++) {
        struct dpb_channel *channel = &party->channels[part];
        bool open = channel->fd >= 0, said = false;
        while (open && !dpb_deadline_passed(deadline)) {
            struct dpb_frame frame;
            const void *value;
            char why[128];
            if (!said && dpb_channel_flush(channel) && channel->out.begin == channel->out.end) {
                shutdown(channel->fd, SHUT_WR);
                said = true;
            }
            struct pollfd ready = {.fd = channel->fd, .events = (short)(said ? POLLIN : POLLOUT)};
            poll(&ready, 1, 10);
            open = dpb_channel_receive(channel);
            while (dpb_channel_next(channel, &frame, &value, why) > 0)
                ;
        }
    }
}

/* ---- without PMIx: where the ranks are ----------------------------------------------------- */

/* What a part says of itself; `machine` is the same in processes that may share memory. */
struct dpb_card {
    uint32_t n_parts, n_ranks;
    uint8_t machine[DPB_MAC_BYTES];
    char host[DPB_HOST_BYTES];
};

/* A machine is one start of a kernel, and one network of it: containers are machines of their own,
 * though they may have the same name. */
static void make_card(const struct dpb_party *party, struct dpb_card *card)
{
    static const uint8_t label[DPB_SECRET_BYTES] = "dpbench: a machine";
    char text[256] = "", network[128] = "";
    *card = (struct dpb_card){.n_parts = party->n_parts, .n_ranks = party->n_ranks};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(text, sizeof text / 2, file))
        text[0] = '\0';
    if (file)
        fclose(file);
    if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0)
        network[0] = '\0';
    if (gethostname(card->host, sizeof card->host - 1) != 0)
        snprintf(card->host, sizeof card->host, "localhost");
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, " %s", network);
    dpb_mac(label, text, strlen(text), card->machine);
}

/* Names that two machines have are told apart by the rank. */
static void name_hosts(struct dpb_party *party, const struct dpb_card *cards)
{
    for (uint32_t rank = 0; rank < party->n_ranks; rank++) {
        const struct dpb_card *own = &cards[party->parts[rank]], *other = cards;
        bool taken = false;
        uint32_t first = 0;
        for (; memcmp(other->machine, own->machine, sizeof own->machine) != 0;
             other = &cards[party->parts[++first]])
            taken = taken || strcmp(other->host, own->host) == 0;
        if (first < rank)
            memcpy(party->hosts[rank], party->hosts[first], DPB_HOST_BYTES);
        else if (taken)
            snprintf(party->hosts[rank], DPB_HOST_BYTES, "%.40s#%u", own->host, rank);
        else
            snprintf(party->hosts[rank], DPB_HOST_BYTES, "%.*s", DPB_HOST_BYTES - 1, own->host);
    }
}

static dpb_status differ_in_size(const struct dpb_party *party, uint32_t rank,
                                 const struct dpb_card *card)
{
    const bool in_ranks = card->n_ranks != party->n_ranks;
    return dpb_fail(DPB_USAGE,
                    "the ranks differ in the size of the job: rank 0 was told of %u %s, rank %u "
                    "(%s) of %u",
                    in_ranks ? party->n_ranks : party->n_parts, in_ranks ? "ranks" : "machines",
                    rank, card->host, in_ranks ? card->n_ranks : card->n_parts);
}

static dpb_status take_card(struct dpb_party *party, uint32_t part, struct dpb_deadline deadline,
                            struct dpb_card *card)
{
    const uint32_t rank = dpb_party_first(party, part);
    struct dpb_frame frame;
    const void *value;
    int found = 0;
    DPB_TRY(dpb_party_await(party, &party->channels[part], DPB_CHANNEL_HOST, deadline, &frame,
                            &value, &found));
    if (found == 0)
        return dpb_party_missed(party, "rank %u has not said within %.1f s where it is", rank,
                                (double)party->timeout_ns * 1e-9);
    if (found < 0 || frame.value_bytes != sizeof *card)
        return dpb_fail(DPB_PEER, "rank %u has ended while it joined the job", rank);
    memcpy(card, value, sizeof *card);
    card->host[DPB_HOST_BYTES - 1] = '\0';
    return card->n_ranks == party->n_ranks && card->n_parts == party->n_parts
               ? DPB_OK
               : differ_in_size(party, rank, card);
}

/* To a part: where all ranks are, and whether it comes in the place of another. */
static void say_hosts(struct dpb_party *party, uint32_t part, bool rejoins)
{
    struct dpb_channel *channel = &party->channels[part];
    dpb_channel_say(channel, DPB_CHANNEL_HOST, rejoins, party->hosts,
                    party->n_ranks * sizeof *party->hosts);
}

static dpb_status gather_hosts(struct dpb_party *party, struct dpb_deadline deadline)
{
    party->cards = calloc(party->n_parts, sizeof *party->cards);
    DPB_TRY(dpb_allocated(party->cards));
    make_card(party, &party->cards[0]);
    for (uint32_t part = 1; part < party->n_parts; part++)
        DPB_TRY(take_card(party, part, deadline, &party->cards[part]));
    name_hosts(party, party->cards);
    for (uint32_t part = 1; part < party->n_parts; part++)
        say_hosts(party, part, false);
    return DPB_OK;
}

static dpb_status exchange_host(struct dpb_party *party, struct dpb_deadline deadline)
{
    struct dpb_channel *channel = &party->channels[0];
    struct dpb_frame frame;
    const void *value;
    struct dpb_card card;
    int found = 0;
    make_card(party, &card);
    dpb_channel_say(channel, DPB_CHANNEL_HOST, party->part, &card, sizeof card);
    deadline.at_ns += party->timeout_ns; /* the head waits for the others first */
    DPB_TRY(dpb_party_await(party, channel, DPB_CHANNEL_HOST, deadline, &frame, &value, &found));
    if (found > 0 && frame.value_bytes == party->n_ranks * sizeof *party->hosts) {
        memcpy(party->hosts, value, frame.value_bytes);
        party->rejoins = frame.peer != 0;
        return DPB_OK;
    }
    if (found == 0)
        dpb_party_speak(party);
    return found == 0
               ? dpb_party_missed(party, "rank 0's launcher (%s) has not said where the ranks are",
                                  party->hosts[0])
               : DPB_PEER; /* it has said why */
}

/* By PMIx, whose client is the rank: it learns the others' machines and rank 0's address. */
static dpb_status join_by_pmix(struct dpb_party *party)
{
    int listener = -1;
    struct dpb_circle circle;
    char address[DPB_ADDRESS_BYTES] = "";
    struct dpb_join_answer answer;
    const bool head = dpb_party_is_head(party);
    dpb_party_find_starter(party);
    const struct dpb_deadline deadline = dpb_party_deadline(party);
    dpb_status status = head ? dpb_channel_listen(&listener, &circle, address) : DPB_OK;
    DPB_THEN(status, start_rank(party, address));
    dpb_party_begin_looks(party); /* a slow start is no stop of this process */
    DPB_THEN(status, hear_rank(party, deadline, &answer));
    if (status == DPB_OK) {
        find_machines(party);
        status = head ? accept_all(party, listener, &circle, DPB_CHANNEL_PART | DPB_CHANNEL_STORE,
                                   deadline)
                      : connect_part(party, answer.text, deadline);
        if (!head)
            DPB_THEN(status, connect_stores(party, answer.text, deadline));
    }
    if (listener >= 0)
        close(listener);
    explicit_bzero(&circle, sizeof circle);
    explicit_bzero(&answer, sizeof answer);
    explicit_bzero(address, sizeof address);
    return status;
}

/* By rank 0's address alone. First all tell each other where they are, and of what job. */
static dpb_status join_by_environment(struct dpb_party *party,
                                      const struct dpb_environment *environment)
{
    const bool head = dpb_party_is_head(party);
    const struct dpb_deadline deadline = dpb_party_deadline(party);
    const char *address = environment->address;
    DPB_TRY(make_room(party, environment->n_parts, environment->n_workers, environment->n_ranks));
    snprintf(party->hosts[0], sizeof party->hosts[0], "%.*s", DPB_HOST_BYTES - 1,
             environment->master);
    dpb_status status =
        head ? dpb_channel_listen_at(address, &party->listener, &party->circle) : DPB_OK;
    DPB_THEN(status,
             head ? accept_all(party, party->listener, &party->circle, DPB_CHANNEL_PART, deadline)
                  : connect_part(party, address, deadline));
    DPB_THEN(status, head ? gather_hosts(party, deadline) : exchange_host(party, deadline));
    if (!party->rejoins)
        DPB_THEN(status, head ? accept_all(party, party->listener, &party->circle,
                                           DPB_CHANNEL_STORE, deadline)
                              : connect_stores(party, address, deadline));
    if (environment->restarts)
        snprintf(party->address, sizeof party->address, "%s", address);
    else
        forget_address(party);
    if (status == DPB_OK)
        find_machines(party);
    return status;
}

dpb_status dpb_party_join(int64_t timeout_ns, const struct dpb_environment *environment,
                          struct dpb_party **party)
{
    const bool by_pmix = dpb_pmix_is_here();
    *party = NULL;
    if (!by_pmix && environment->n_parts < 2)
        return DPB_OK;
    struct dpb_party *made = calloc(1, sizeof *made);
    DPB_TRY(dpb_allocated(made));
    *made = (struct dpb_party){.part = by_pmix ? dpb_pmix_rank() : environment->part,
                               .launcher = by_pmix ? dpb_pmix_launcher() : DPB_ENVIRONMENT_LAUNCHER,
                               .socket = -1,
                               .pmix_fd = -1,
                               .listener = -1,
                               .timeout_ns = timeout_ns + DPB_PARTY_START_NS};
    dpb_party_begin_looks(made);
    dpb_status status = by_pmix ? join_by_pmix(made) : join_by_environment(made, environment);
    if (status != DPB_OK) {
        if (dpb_party_is_head(made)) {
            dpb_party_refuse(made, status);
            finish_links(made);
        }
        dismiss(made);
        destroy(made);
        return status;
    }
    *party = made;
    return DPB_OK;
}

/* ---- starting again ------------------------------------------------------------------------ */

bool dpb_party_is_whole(const struct dpb_party *party)
{
    bool whole = true;
    for (uint32_t part = 1; party && part < party->n_parts; part++)
        whole = whole && party->channels[part].fd >= 0;
    return whole;
}

dpb_status dpb_party_reconnect(struct dpb_party *party)
{
    const struct dpb_deadline deadline = dpb_party_deadline(party);
    dpb_party_begin_looks(party);
    return dpb_party_is_head(party)
               ? accept_all(party, party->listener, &party->circle, DPB_CHANNEL_STORE, deadline)
               : connect_stores(party, party->address, deadline);
}

/* Another launcher in the place of a part: on a machine of its own, or with the same others. */
static dpb_status check_place(const struct dpb_party *party, uint32_t part,
                              const struct dpb_card *card)
{
    const uint32_t rank = dpb_party_first(party, part);
    for (uint32_t other = 0; other < party->n_parts; other++) {
        const bool before = party->machines[dpb_party_first(party, other)] == party->machines[rank];
        const bool now =
            memcmp(party->cards[other].machine, card->machine, sizeof card->machine) == 0;
        if (other != part && before != now)
            return dpb_fail(
                DPB_USAGE,
                "the launcher that came for rank %u is on %s, %s rank %u (%s); start it "
                "where the machines of the ranks are grouped as before",
                rank, card->host, now ? "beside" : "away from", dpb_party_first(party, other),
                party->hosts[dpb_party_first(party, other)]);
    }
    return DPB_OK;
}

static dpb_status readmit_part(struct dpb_party *party, uint32_t part)
{
    struct dpb_card card;
    dpb_status status = take_card(party, part, dpb_party_deadline(party), &card);
    DPB_THEN(status, check_place(party, part, &card));
    if (status == DPB_OK) {
        party->cards[part] = card;
        name_hosts(party, party->cards);
        say_hosts(party, part, true);
    }
    return dpb_party_agree_again(party, part, status);
}

dpb_status dpb_party_readmit(struct dpb_party *party, int64_t within_ns)
{
    uint32_t missing;
    bool *came = calloc(party->n_parts, sizeof *came);
    dpb_status status = dpb_allocated(came);
    for (uint32_t part = 1; status == DPB_OK && part < party->n_parts; part++) {
        struct dpb_channel *channel = &party->channels[part];
        came[part] = channel->fd < 0;
        if (!came[part])
            continue;
        if (channel->lost_fd >= 0)
            close(channel->lost_fd);
        *channel = (struct dpb_channel){.fd = -1, .lost_fd = -1};
        party->launcher_pids[part] = 0;
    }
    dpb_party_begin_looks(party);
    DPB_THEN(status, accept_until(party, party->listener, &party->circle, DPB_CHANNEL_PART,
                                  dpb_deadline_in(within_ns), &missing));
    for (uint32_t part = 1; status == DPB_OK && part < party->n_parts; part++)
        if (came[part])
            status = readmit_part(party, part);
    free(came);
    return status;
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* Without another part, the death of this part can end no other before its time. */
dpb_status dpb_party_keep(struct dpb_party *party)
{
    if (party->pmix_fd < 0 || party->n_parts == 1)
        return DPB_OK;
    int channel_fd = party->channels[dpb_party_is_head(party) ? 1 : 0].fd;
    return dpb_keeper_start(party->pmix_fd, channel_fd, &party->keeper);
}

/* ---- leaving -------------------------------------------------------------------------------- */

/* mpirun ends a job by its daemons, and waits for one on a machine that does not answer until TCP
 * gives up: 10 minutes and more. A second SIGTERM ends mpirun at once. The result is written. */
static void end_starter(const struct dpb_party *party)
{
    enum { BEGINS_TO_END_MS = 300 };
    if (!party->cut_off || strcmp(party->launcher, "mpirun") != 0 || dpb_party_deserted(party))
        return;
    dpb_log(DPB_LOG_INFO, "ending mpirun (pid %d), which would wait for a machine that is cut off",
            (int)party->starter);
    for (int i = 0; i < 2 && !dpb_party_deserted(party); i++) {
        kill(party->starter, SIGTERM);
        poll(NULL, 0, BEGINS_TO_END_MS);
    }
}

void dpb_party_leave(struct dpb_party *party, int exit_code)
{
    if (!party)
        return;
    /* mpirun or srun ends the others when one exits with a code that is not 0: this part still has
     * a message to send, and a code of its own. */
    signal(SIGTERM, SIG_IGN);
    dismiss(party);
    if (dpb_party_is_head(party)) {
        for (uint32_t part = 1; part < party->n_parts; part++)
            dpb_channel_say(&party->channels[part], DPB_CHANNEL_OVER, part, &exit_code,
                            sizeof exit_code);
        finish_links(party);
        end_starter(party);
    }
    destroy(party);
}
