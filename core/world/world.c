/*
 * world.c - the job as a rank sees it: taking over what the launcher left, the status page, and
 * what is said of other ranks in messages.
 */
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "machine/cores.h"
#include "machine/proc.h"
#include "machine/rights.h"
#include "world/futex.h"
#include "world/pmix.h"
#include "world/store.h"

struct dpb_world dpb_world;

enum { MAX_CONFIG_BYTES = 64 << 20, AGREE_BYTES = 4096 };

/* ---- the status page ----------------------------------------------------------------------- */

/* Readers may look at any moment, and several threads of a rank may note: whole words, relaxed. */
typedef uint64_t __attribute__((may_alias)) phase_word;
enum { PHASE_WORDS = sizeof((struct dpb_status_page *)0)->phase / sizeof(phase_word) };
_Static_assert(offsetof(struct dpb_status_page, phase) % sizeof(phase_word) == 0, "phase by words");

static void phase_store(struct dpb_status_page *page, const char *phase)
{
    union {
        char text[sizeof page->phase];
        phase_word words[PHASE_WORDS];
    } copy = {{0}};
    memcpy(copy.text, phase, strnlen(phase, sizeof copy.text - 1));
    for (size_t i = 0; i < PHASE_WORDS; i++)
        __atomic_store_n((phase_word *)(void *)page->phase + i, copy.words[i], __ATOMIC_RELAXED);
}

static void phase_load(const struct dpb_status_page *page, char phase[sizeof page->phase])
{
    phase_word words[PHASE_WORDS] = {0};
    for (size_t i = 0; i < PHASE_WORDS; i++)
        words[i] =
            __atomic_load_n((const phase_word *)(const void *)page->phase + i, __ATOMIC_RELAXED);
    memcpy(phase, words, sizeof words);
}

void dpb_world_note(const char *phase, uint64_t bucket, uint32_t peer)
{
    if (dpb_world.board == NULL)
        return;
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    phase_store(page, phase);
    __atomic_store_n(&page->bucket, bucket, __ATOMIC_RELAXED);
    __atomic_store_n(&page->peer, peer, __ATOMIC_RELAXED);
    __atomic_store_n(&page->since_ns, dpb_now_ns(), __ATOMIC_RELAXED);
}

void dpb_world_report(const char *name, const char *format, ...)
{
    char value[sizeof((struct dpb_fact *)NULL)->value];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (dpb_world.board == NULL)
        return;
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    uint32_t i = 0;
    while (i < page->n_facts && strcmp(page->facts[i].name, name) != 0)
        i++;
    struct dpb_fact *fact = &page->facts[i];
    if (i >= DPB_BOARD_FACTS || n < 0 || (size_t)n >= sizeof value ||
        strlen(name) >= sizeof fact->name) {
        dpb_warn("not_reported", "there is no room for '%s' in what this rank reports", name);
        return;
    }
    strcpy(fact->name, name);
    strcpy(fact->value, value);
    if (i == page->n_facts)
        __atomic_store_n(&page->n_facts, i + 1, __ATOMIC_RELEASE); /* last: it is whole */
}

int64_t dpb_world_now_ns(void)
{
    int64_t now = dpb_now_ns();
    return dpb_world.board != NULL ? now - dpb_board_suspended_ns(dpb_world.board) : now;
}

void dpb_peer_describe(uint32_t rank, char *text, size_t size)
{
    struct dpb_board *board = dpb_world.board;
    if (board == NULL || rank >= dpb_board_ranks(board)) {
        snprintf(text, size, "rank %u", rank);
        return;
    }
    struct dpb_status_page *page = dpb_board_page(board, rank);
    int32_t pid = __atomic_load_n(&page->pid, __ATOMIC_RELAXED);
    if (pid == 0) {
        snprintf(text, size, "rank %u has not started yet", rank);
        return;
    }
    struct dpb_proc proc = {0};
    bool here = !dpb_world.parted || dpb_world_is_local(rank);
    if (here && (!dpb_proc_read("", pid, &proc) || proc.state == 'Z' || proc.state == 'X')) {
        snprintf(text, size, "rank %u (pid %d) has ended", rank, pid);
        return;
    }
    int64_t since = __atomic_load_n(&page->since_ns, __ATOMIC_RELAXED);
    snprintf(text, size, "rank %u (pid %d) is in phase '%.*s' of step %llu for %.1f s%s", rank, pid,
             (int)sizeof page->phase - 1, page->phase[0] != '\0' ? page->phase : "start",
             (unsigned long long)__atomic_load_n(&page->step, __ATOMIC_RELAXED),
             (double)(dpb_now_ns() - since) * 1e-9,
             proc.state == 'T' || proc.state == 't' ? " and is stopped (SIGSTOP)" : "");
}

static void page_error(void *context, dpb_status status, const char *text)
{
    struct dpb_status_page *page = context;
    snprintf(page->error, sizeof page->error, "%s", text);
    page->status = (uint32_t)status;
    phase_load(page, page->failed.phase);
    page->failed.step = __atomic_load_n(&page->step, __ATOMIC_RELAXED);
    page->failed.bucket = __atomic_load_n(&page->bucket, __ATOMIC_RELAXED);
    __atomic_store_n(&page->failed_ns, dpb_now_ns(), __ATOMIC_RELEASE); /* last: all is there */
}

static void page_warning(void *context, const char *code, const char *text)
{
    struct dpb_status_page *page = context;
    uint32_t i = __atomic_load_n(&page->n_warnings, __ATOMIC_RELAXED);
    if (i < DPB_BOARD_WARNINGS) {
        snprintf(page->warnings[i].code, sizeof page->warnings[i].code, "%s", code);
        snprintf(page->warnings[i].text, sizeof page->warnings[i].text, "%s", text);
    }
    __atomic_store_n(&page->n_warnings, i + 1, __ATOMIC_RELEASE);
}

/* ---- opening and closing ------------------------------------------------------------------- */

bool dpb_world_is_rank(void)
{
    static bool was;
    was = was || getenv(DPB_JOB_VARIABLE) != NULL;
    return was;
}

/* The descriptor that the launcher left, and whether this rank is to join first. Children of this
 * process get neither it nor its number. */
static dpb_status inherited_socket(int *fd, bool *joins)
{
    const char *text = getenv(DPB_JOB_VARIABLE);
    char *end = NULL;
    long number = text != NULL ? strtol(text, &end, 10) : -1;
    *joins = end != NULL && strcmp(end, ",join") == 0;
    if (end == NULL || end == text || (*end != '\0' && !*joins) || number < 0 ||
        number > INT32_MAX || fcntl((int)number, F_SETFD, FD_CLOEXEC) != 0)
        return dpb_fail(DPB_USAGE,
                        "%s is '%s', no descriptor from dpbench: unset it, dpbench sets it "
                        "itself",
                        DPB_JOB_VARIABLE, text != NULL ? text : "");
    unsetenv(DPB_JOB_VARIABLE);
    *fd = (int)number;
    return DPB_OK;
}

static bool send_all(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t sent = send(fd, (const char *)bytes + done, n - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        done += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* By PMIx, for the launcher of this part: it prints what goes wrong. */
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
    if (status == DPB_OK)
        status = dpb_pmix_join(asked.address, &joined);
    dpb_log_set_hooks(NULL);
    answer.status = (int32_t)status;
    answer.rank = joined.rank;
    answer.n_ranks = joined.n_ranks;
    snprintf(answer.text, sizeof answer.text, "%s",
             status == DPB_OK ? joined.address : dpb_first_error(NULL));
    sent = sent && send_all(fd, &answer, sizeof answer) &&
           send_all(fd, joined.hosts, joined.n_ranks * sizeof *joined.hosts);
    free(joined.hosts);
    explicit_bzero(&asked, sizeof asked);
    explicit_bzero(&answer, sizeof answer);
    explicit_bzero(joined.address, sizeof joined.address);
    return status == DPB_OK && !sent ? DPB_PEER : status;
}

/* The launcher's hello, and what comes with it; fds that did not come are -1. DPB_PEER without a
 * message: a rank that has joined gets no job. */
static dpb_status receive_hello(int fd, bool joined, struct dpb_hello *hello,
                                int fds[DPB_HELLO_FDS])
{
    int came[DPB_RIGHTS_MOST];
    size_t n_fds = 0;
    ssize_t n;
    do
        n = dpb_rights_receive(fd, hello, sizeof *hello, MSG_WAITALL, came, &n_fds);
    while (n < 0 && errno == EINTR);
    if (n == 0 && joined)
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
    while (text != NULL && used < (size_t)info.st_size) {
        ssize_t n = pread(fd, text + used, (size_t)info.st_size - used, (off_t)used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    if (text == NULL || used < (size_t)info.st_size) {
        free(text);
        return dpb_fail(DPB_IO, "cannot read the configuration that the launcher left");
    }
    *content = text;
    *bytes = used;
    return DPB_OK;
}

/* What plugins need in their environment, before any of them is loaded. Where PMIx has a thread
 * still, it waits for messages. */
static dpb_status take_environment(int fd)
{
    char *block = NULL;
    size_t bytes = 0;
    DPB_TRY(read_file(fd, &block, &bytes));
    for (char *at = block; at < block + bytes; at += strlen(at) + 1) {
        char *equals = strchr(at, '=');
        if (equals == NULL)
            break;
        *equals = '\0';
        setenv(at, equals + 1, 1);
        *equals = '=';
    }
    free(block);
    return DPB_OK;
}

bool dpb_world_is_local(uint32_t rank)
{
    return dpb_world.machines[rank] == dpb_world.machines[dpb_world.rank];
}

/* The launcher left the machine of each rank on the board. */
static dpb_status fill_machines(void)
{
    dpb_world.machines = calloc(dpb_world.n_ranks, sizeof *dpb_world.machines);
    if (dpb_world.machines == NULL)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
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

static void open_page(void)
{
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    page->role = dpb_world.role;
    memcpy(page->host, dpb_world.host, sizeof page->host);
    __atomic_store_n(&page->pid, (int32_t)getpid(), __ATOMIC_RELAXED);
    dpb_world_note("start", UINT64_MAX, UINT32_MAX);
    struct dpb_log_hooks hooks = {
        .error = page_error, .warning = page_warning, .context = page, .silent = true};
    dpb_log_set_hooks(&hooks);
    char prefix[96];
    snprintf(prefix, sizeof prefix, "[%u %s] ", dpb_world.rank, dpb_world.host);
    dpb_log_set_prefix(dpb_world.n_ranks > 1 ? prefix : NULL);
}

/* What the launcher handed over; all descriptors are taken over or closed. */
static dpb_status open_job(int socket, const struct dpb_hello *hello, const int fds[DPB_HELLO_FDS])
{
    size_t config_bytes;
    int store = hello->has_store ? fds[2 + hello->parted] : socket;
    fill_world(hello);
    dpb_status status = dpb_board_open(fds[DPB_FD_BOARD], &dpb_world.board);
    if (status == DPB_OK)
        open_page();
    if (status == DPB_OK)
        status = fill_machines();
    dpb_status config_status = read_file(fds[DPB_FD_CONFIG], &dpb_world.config, &config_bytes);
    if (status == DPB_OK)
        status = config_status;
    if (hello->parted && status == DPB_OK)
        status = take_environment(fds[DPB_FD_ENVIRONMENT]);
    else if (hello->parted)
        close(fds[DPB_FD_ENVIRONMENT]);
    if (status == DPB_OK && getppid() != hello->launcher_pid)
        status = dpb_fail(DPB_PEER, "the launcher has ended");
    if (status == DPB_OK)
        status = dpb_store_connect(store);
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
    if (status == DPB_OK)
        status = receive_hello(fd, joins, &hello, fds);
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
    if (status == DPB_OK)
        status = dpb_cores_available(&n_cores);
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
    dpb_board_destroy(dpb_world.board);
    free(dpb_world.config);
    free(dpb_world.machines);
    dpb_world = (struct dpb_world){0};
}

/* ---- agreement ----------------------------------------------------------------------------- */

dpb_status dpb_world_agree(const char *what, const char *value)
{
    static uint32_t n_agreements; /* the same on all ranks: the calls are collective */
    uint32_t number = __atomic_fetch_add(&n_agreements, 1, __ATOMIC_RELAXED);
    char key[DPB_STORE_KEY_BYTES + 1], first[AGREE_BYTES], other[AGREE_BYTES];
    size_t bytes = strlen(value) + 1;
    if (bytes > sizeof first)
        return dpb_fail(DPB_FAILED,
                        "agreement on %s: a value of %zu bytes, at most %d are possible", what,
                        bytes, AGREE_BYTES);
    snprintf(key, sizeof key, "agree/%u/%s/rank %u", number, what, dpb_world.rank);
    DPB_TRY(dpb_store.put(key, value, bytes));
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        char *into = rank == 0 ? first : other;
        bytes = sizeof first;
        snprintf(key, sizeof key, "agree/%u/%s/rank %u", number, what, rank);
        DPB_TRY(dpb_store.get(key, into, &bytes, 0));
        into[sizeof first - 1] = '\0';
        if (rank > 0 && strcmp(first, other) != 0)
            return dpb_fail(DPB_FAILED, "the ranks differ in %s: rank 0 has '%s', rank %u has '%s'",
                            what, first, rank, other);
    }
    return DPB_OK;
}
