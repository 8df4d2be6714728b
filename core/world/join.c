/*
 * join.c - how a rank joins its job and leaves it: it takes over the launcher's descriptors,
 * connects the store, and agrees with the other ranks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "machine/cores.h"
#include "machine/rights.h"
#include "world/pmix.h"
#include "world/store.h"
#include "world/world.h"

enum { MAX_CONFIG_BYTES = 64 << 20, AGREE_BYTES = 4096 };

bool dpb_world_is_rank(void)
{
    static bool was;
    was = was || getenv(DPB_JOB_VARIABLE);
    return was;
}

/* The descriptor that the launcher left, and whether this rank is to join first. Children of this
 * process get neither it nor its number. */
static dpb_status inherited_socket(int *fd, bool *joins)
{
    const char *text = getenv(DPB_JOB_VARIABLE);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : -1;
    *joins = end && strcmp(end, ",join") == 0;
    if (!end || end == text || (*end != '\0' && !*joins) || number < 0 || number > INT32_MAX ||
        fcntl((int)number, F_SETFD, FD_CLOEXEC) != 0)
        return dpb_fail(DPB_USAGE,
                        "%s is '%s', no descriptor from dpbench: unset it, dpbench sets it itself",
                        DPB_JOB_VARIABLE, text ? text : "");
    unsetenv(DPB_JOB_VARIABLE);
    *fd = (int)number;
    return DPB_OK;
}

/* By PMIx, for the launcher of this part: the launcher prints failures. */
static dpb_status join(int fd)
{
    struct dpb_join asked;
    struct dpb_joined joined = {0};
    struct dpb_join_answer answer = {.magic = DPB_JOIN_MAGIC};
    const struct dpb_log_hooks silent = {.silent = true};
    if (recv(fd, &asked, sizeof asked, MSG_WAITALL) != (ssize_t)sizeof asked ||
        asked.magic != DPB_JOIN_MAGIC)
        return dpb_fail(DPB_USAGE, "descriptor %d is not that of a dpbench launcher", fd);
    dpb_log_set_hooks(&silent);
    int connection;
    dpb_status status = dpb_pmix_open(&connection);
    bool sent = dpb_rights_send(fd, "", 1, 0, &connection, connection >= 0) == 1;
    DPB_THEN(status, dpb_pmix_join(asked.address, asked.timeout_ns, &joined));
    dpb_log_set_hooks(NULL);
    answer.status = (int32_t)status;
    answer.rank = joined.rank;
    answer.n_ranks = joined.n_ranks;
    snprintf(answer.text, sizeof answer.text, "%s",
             status == DPB_OK ? joined.address : dpb_first_error(NULL));
    sent = sent && dpb_write_all(fd, &answer, sizeof answer) &&
           dpb_write_all(fd, joined.hosts, joined.n_ranks * sizeof *joined.hosts);
    free(joined.hosts);
    explicit_bzero(&asked, sizeof asked);
    explicit_bzero(&answer, sizeof answer);
    explicit_bzero(joined.address, sizeof joined.address);
    return status == DPB_OK && !sent ? DPB_PEER : status;
}

/* The launcher's hello, and the descriptors with it; missing fds are -1. DPB_PEER without a
 * message: a rank of a party gets no job. */
static dpb_status receive_hello(int fd, struct dpb_hello *hello, int fds[DPB_HELLO_FDS])
{
    int came[DPB_RIGHTS_MOST];
    size_t n_fds = 0;
    ssize_t n;
    do
        n = dpb_rights_receive(fd, hello, sizeof *hello, MSG_WAITALL, came, &n_fds);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return DPB_PEER;
    if (n != (ssize_t)sizeof *hello || hello->magic != DPB_HELLO_MAGIC ||
        n_fds != 2u + (hello->parted ? 1 : 0) + (hello->has_store ? 1 : 0)) {
        dpb_rights_close(came, n_fds);
        return dpb_fail(DPB_USAGE,
                        "descriptor %d is not that of a dpbench launcher of this version", fd);
    }
    for (size_t i = 0; i < DPB_HELLO_FDS; i++)
        fds[i] = i < n_fds ? came[i] : -1;
    hello->launcher[sizeof hello->launcher - 1] = '\0';
    return DPB_OK;
}

/* Reads all of a file of the launcher's; @owned, ended by NUL. The descriptor is closed. */
static dpb_status read_file(int fd, char **content, size_t *bytes)
{
    struct stat info;
    size_t used = 0;
    char *text = NULL;
    if (fstat(fd, &info) == 0 && info.st_size <= MAX_CONFIG_BYTES)
        text = calloc(1, (size_t)info.st_size + 1);
    while (text && used < (size_t)info.st_size) {
        ssize_t n = pread(fd, text + used, (size_t)info.st_size - used, (off_t)used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    if (!text || used < (size_t)info.st_size) {
        free(text);
        return dpb_fail(DPB_IO, "cannot read the configuration that the launcher left");
    }
    *content = text;
    *bytes = used;
    return DPB_OK;
}

/* Takes the environment that plugins need, before any of them is loaded. If PMIx still has a
 * thread, the thread waits for messages. */
static dpb_status take_environment(int fd)
{
    char *block = NULL;
    size_t bytes = 0;
    DPB_TRY(read_file(fd, &block, &bytes));
    for (char *at = block; at < block + bytes; at += strlen(at) + 1) {
        char *equals = strchr(at, '=');
        if (!equals)
            break;
        *equals = '\0';
        setenv(at, equals + 1, 1);
        *equals = '=';
    }
    free(block);
    return DPB_OK;
}

/* The launcher left the machine of each rank on the board. */
static dpb_status fill_machines(void)
{
    dpb_world.machines = calloc(dpb_world.n_ranks, sizeof *dpb_world.machines);
    DPB_TRY(dpb_allocated(dpb_world.machines));
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        uint32_t machine = dpb_board_page(dpb_world.board, rank)->machine;
        dpb_world.machines[rank] = machine;
        if (machine >= dpb_world.n_machines)
            dpb_world.n_machines = machine + 1;
    }
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        dpb_world.n_local += dpb_world_is_local(rank);
    return DPB_OK;
}

static void fill_world(const struct dpb_hello *hello)
{
    dpb_world.rank = hello->rank;
    dpb_world.n_workers = hello->n_workers;
    dpb_world.n_servers = hello->n_servers;
    dpb_world.n_ranks = hello->n_workers + hello->n_servers;
    dpb_world.role = hello->rank < hello->n_workers ? DPB_WORKER : DPB_SERVER;
    snprintf(dpb_world.launcher, sizeof dpb_world.launcher, "%s", hello->launcher);
    dpb_world.place = hello->place;
    dpb_world.parted = hello->parted;
    dpb_world.timeout_ns = hello->timeout_ns;
    if (gethostname(dpb_world.host, sizeof dpb_world.host - 1) != 0)
        snprintf(dpb_world.host, sizeof dpb_world.host, "localhost");
}

/* Opens the job that the launcher handed over; all descriptors are taken over or closed. */
static dpb_status open_job(int socket, const struct dpb_hello *hello, const int fds[DPB_HELLO_FDS])
{
    size_t config_bytes;
    int store = hello->has_store ? fds[2 + hello->parted] : socket;
    fill_world(hello);
    dpb_status status = dpb_board_open(fds[DPB_FD_BOARD], &dpb_world.board);
    if (status == DPB_OK) {
        dpb_ran_without(&dpb_board_turns(dpb_world.board)->parked_ns);
        dpb_world_open_page();
    }
    DPB_THEN(status, fill_machines());
    dpb_status config_status = read_file(fds[DPB_FD_CONFIG], &dpb_world.config, &config_bytes);
    DPB_THEN(status, config_status);
    if (hello->parted && status == DPB_OK)
        status = take_environment(fds[DPB_FD_ENVIRONMENT]);
    else if (hello->parted)
        close(fds[DPB_FD_ENVIRONMENT]);
    if (status == DPB_OK && getppid() != hello->launcher_pid)
        status = dpb_fail(DPB_PEER, "the launcher has ended");
    if (status == DPB_OK)
        dpb_store_connect(store);
    else
        close(store);
    if (store != socket)
        close(socket);
    return status;
}

dpb_status dpb_world_open(void)
{
    int fd = -1, fds[DPB_HELLO_FDS];
    bool joins = false;
    struct dpb_hello hello = {0};
    DPB_TRY(inherited_socket(&fd, &joins));
    dpb_status status = joins ? join(fd) : DPB_OK;
    DPB_THEN(status, receive_hello(fd, &hello, fds));
    if (status != DPB_OK || !hello.keep_pmix)
        dpb_pmix_leave(); /* the death of a client of PMIx is the end of a step of Slurm's */
    if (status != DPB_OK) {
        close(fd);
        return status;
    }
    status = open_job(fd, &hello, fds);
    if (status == DPB_OK && hello.keep_pmix)
        status = dpb_pmix_check_mpi();
    uint32_t n_cores = 0;
    DPB_THEN(status, dpb_cores_available(&n_cores));
    dpb_world.may_spin = hello.place.n_workers + hello.place.n_servers <= n_cores;
    dpb_share_set_secret(hello.secret);
    explicit_bzero(&hello, sizeof hello);
    if (status != DPB_OK)
        dpb_world_close();
    return status;
}

void dpb_world_close(void)
{
    static const uint8_t no_secret[DPB_SECRET_BYTES];
    dpb_store_disconnect();
    dpb_pmix_leave();
    dpb_share_set_secret(no_secret);
    dpb_log_set_hooks(NULL);
    dpb_log_set_prefix(NULL);
    dpb_ran_without(NULL);
    dpb_board_destroy(dpb_world.board);
    free(dpb_world.config);
    free(dpb_world.machines);
    dpb_world = (struct dpb_world){0};
}

/* ---- agreement ----------------------------------------------------------------------------- */

struct agreement {
    uint32_t number;
    const char *what;
};

/* The key of `rank`'s value; UINT32_MAX: of rank 0's verdict whether all are the same. */
static void agree_key(const struct agreement *agreement, uint32_t rank,
                      char key[DPB_STORE_KEY_BYTES + 1])
{
    if (rank == UINT32_MAX)
        snprintf(key, DPB_STORE_KEY_BYTES + 1, "agree/%u/%s", agreement->number, agreement->what);
    else
        snprintf(key, DPB_STORE_KEY_BYTES + 1, "agree/%u/%s/rank %u", agreement->number,
                 agreement->what, rank);
}

/* Rank 0's: the first two ranks that differ; an empty verdict: none do. */
static dpb_status compare_all(const struct agreement *agreement, const char *value, char *verdict,
                              size_t size)
{
    char key[DPB_STORE_KEY_BYTES + 1], other[AGREE_BYTES];
    verdict[0] = '\0';
    for (uint32_t rank = 1; rank < dpb_world.n_ranks; rank++) {
        size_t bytes = sizeof other;
        agree_key(agreement, rank, key);
        DPB_TRY(dpb_store.get(key, other, &bytes, 0));
        other[sizeof other - 1] = '\0';
        if (verdict[0] == '\0' && strcmp(value, other) != 0)
            snprintf(verdict, size, "the ranks differ in %s: rank 0 has '%s', rank %u has '%s'",
                     agreement->what, value, rank, other);
    }
    return DPB_OK;
}

/* Rank 0 compares and informs the others: the cost grows as the ranks do, not as their square. */
dpb_status dpb_world_agree(const char *what, const char *value)
{
    static uint32_t n_agreements; /* the same on all ranks: the calls are collective */
    const struct agreement agreement = {__atomic_fetch_add(&n_agreements, 1, __ATOMIC_RELAXED),
                                        what};
    char key[DPB_STORE_KEY_BYTES + 1], verdict[2 * AGREE_BYTES + 256];
    size_t bytes = strlen(value) + 1;
    if (bytes > AGREE_BYTES)
        return dpb_fail(DPB_FAILED,
                        "agreement on %s: a value of %zu bytes, at most %d are possible", what,
                        bytes, AGREE_BYTES);
    if (dpb_world.rank == 0) {
        DPB_TRY(compare_all(&agreement, value, verdict, sizeof verdict));
        agree_key(&agreement, UINT32_MAX, key);
        DPB_TRY(dpb_store.put(key, verdict, strlen(verdict) + 1));
    } else {
        agree_key(&agreement, dpb_world.rank, key);
        DPB_TRY(dpb_store.put(key, value, bytes));
        agree_key(&agreement, UINT32_MAX, key);
        bytes = sizeof verdict;
        DPB_TRY(dpb_store.get(key, verdict, &bytes, 0));
        verdict[sizeof verdict - 1] = '\0';
    }
    return verdict[0] == '\0' ? DPB_OK : dpb_fail(DPB_FAILED, "%s", verdict);
}

dpb_status dpb_workers_meet(void)
{
    static uint32_t n_meetings; /* the same on all workers, as above */
    const uint32_t meeting = __atomic_fetch_add(&n_meetings, 1, __ATOMIC_RELAXED);
    char name[32];
    snprintf(name, sizeof name, "meeting %u", meeting);
    return dpb_store_barrier_of(dpb_world.n_workers, name, 0);
}
