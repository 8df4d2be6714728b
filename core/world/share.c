/*
 * share.c - memory that the ranks of a machine share.
 *
 * One rank is the hub. It listens on an abstract Unix socket whose name the kernel chooses, and
 * puts it into the store; the others connect. Both say hello: rank, the job's secret, sizes, and
 * their descriptors with it. All sockets are served by one loop that never blocks in one of them,
 * so the order in which ranks come does not matter. Sockets of this kind vanish with their
 * processes.
 *
 * What all ranks share is one memory with a part for each of them, which every rank maps as a
 * whole: so there are as many requests, sockets and mappings as ranks. With a memory of its own for
 * each rank there were their square, and pages come only when they are first used anyhow.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secret.h"
#include "machine/rights.h"
#include "world/futex.h"
#include "world/store.h"
#include "world/world.h"

enum {
    MAX_MAPPINGS = DPB_RIGHTS_MOST,
    SLICE_MS = 50,
    RETRY_MS = 2,
    HUGE_BYTES = 4 << 20,
    HUGE_PAGE_BYTES = 2 << 20,
    MAX_STRANGERS = 16
};

#define HELLO_MAGIC UINT64_C(0x3145524148535044) /* "DPSHARE1" */

static uint8_t job_secret[DPB_SECRET_BYTES];

void dpb_share_set_secret(const uint8_t secret[DPB_SECRET_BYTES])
{
    memcpy(job_secret, secret, DPB_SECRET_BYTES);
}

/* ---- mappings ------------------------------------------------------------------------------ */

/* The addresses are taken at once, so that the copies of the memory lie side by side. From no bytes
 * on, mremap adds a mapping of the same memory. */
static void *map_window(void *memory, size_t bytes, size_t window)
{
    char *first = mmap(NULL, window, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; first != MAP_FAILED && at < window; at += bytes) {
        const size_t n = window - at < bytes ? window - at : bytes;
        if (mremap(memory, 0, n, MREMAP_MAYMOVE | MREMAP_FIXED, first + at) != MAP_FAILED)
            continue;
        const int error = errno;
        munmap(first, window);
        errno = error;
        return MAP_FAILED;
    }
    return first;
}

static dpb_status cannot_map(size_t bytes, const char *what)
{
    return dpb_fail(DPB_NO_MEMORY, "cannot map %zu bytes of shared memory for %s: %s", bytes, what,
                    strerror(errno));
}

/* An advice: without it pages are small. */
static void advise_huge(void *memory, size_t bytes)
{
    if (bytes >= HUGE_BYTES)
        madvise(memory, bytes, MADV_HUGEPAGE);
}

/* Fills in `memory`, without a window. */
static dpb_status map_memory(int fd, const char *what, struct dpb_mapping *mapping)
{
    void *mapped = mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return cannot_map(mapping->bytes, what);
    advise_huge(mapped, mapping->bytes);
    mapping->memory = mapped;
    return DPB_OK;
}

/* `memory` again and again. */
static dpb_status widen(const char *name, void *memory, struct dpb_mapping *mapping)
{
    void *mapped = map_window(memory, mapping->bytes, mapping->window);
    if (mapped == MAP_FAILED)
        return cannot_map(mapping->window, name);
    advise_huge(mapped, mapping->window);
    mapping->memory = mapped;
    return DPB_OK;
}

dpb_status dpb_mapping_create(const char *name, size_t bytes, struct dpb_mapping *mapping)
{
    return dpb_mapping_create_window(name, bytes, 0, mapping);
}

dpb_status dpb_mapping_create_window(const char *name, size_t bytes, size_t window,
                                     struct dpb_mapping *mapping)
{
    char full[128];
    struct dpb_mapping made = {.bytes = bytes, .window = window};
    if (bytes == 0) {
        *mapping = (struct dpb_mapping){.fd = -1};
        return DPB_OK;
    }
    snprintf(full, sizeof full, "dpbench-%s", name);
    /* Sealed, so that no peer can take pages away from under another. */
    const int fd = dpb_memory_file(full, bytes);
    if (fd < 0)
        return dpb_fail(DPB_NO_MEMORY, "cannot make %zu bytes of shared memory for %s: %s", bytes,
                        name, strerror(errno));
    made.fd = fd;
    dpb_status status = map_memory(fd, name, &made);
    if (status == DPB_OK && window > 0) {
        void *once = made.memory;
        status = widen(name, once, &made);
        munmap(once, bytes);
    }
    if (status == DPB_OK)
        *mapping = made;
    else
        close(fd);
    return status;
}

void dpb_mapping_destroy(struct dpb_mapping *mapping)
{
    if (mapping->memory) {
        munmap(mapping->memory, mapping->window > 0 ? mapping->window : mapping->bytes);
        if (mapping->fd >= 0)
            close(mapping->fd);
    }
    *mapping = (struct dpb_mapping){0};
}

/* ---- hellos -------------------------------------------------------------------------------- */

struct hello {
    uint64_t magic;
    uint32_t rank, n;
    uint8_t secret[DPB_SECRET_BYTES];
    uint64_t bytes[MAX_MAPPINGS];
};

/* One connection. Outgoing ones know their rank from the start, incoming ones by the hello. */
struct link {
    int fd;        /* -1: free */
    uint32_t rank; /* UINT32_MAX: not known yet */
    bool sent, received;
};

struct exchange {
    const char *name;
    const struct dpb_mapping *mine;
    struct dpb_mapping *peers;
    uint32_t n;
    uint32_t hub, n_partners;
    int listener;
    struct link *links; /* n_links: a place for each peer, and some for strangers */
    uint32_t n_links, n_done;
    bool *met; /* by rank: an incoming peer that has proven itself */
};

/* Whether this rank and that one meet. */
static bool is_partner(const struct exchange *exchange, uint32_t rank)
{
    return rank != dpb_world.rank && dpb_world_is_local(rank) &&
           (rank == exchange->hub || dpb_world.rank == exchange->hub);
}

static bool same_user(int fd)
{
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
           credentials.uid == geteuid();
}

/* Leaves link->sent unchanged if the hello cannot be sent now: a full socket, or too many
 * descriptors of this user on their way. */
static dpb_status send_hello(const struct exchange *exchange, struct link *link)
{
    struct hello hello = {.magic = HELLO_MAGIC, .rank = dpb_world.rank, .n = exchange->n};
    int fds[MAX_MAPPINGS];
    uint32_t n_fds = 0;
    memcpy(hello.secret, job_secret, sizeof hello.secret);
    for (uint32_t i = 0; i < exchange->n; i++) {
        hello.bytes[i] = exchange->mine[i].bytes;
        if (exchange->mine[i].bytes > 0)
            fds[n_fds++] = exchange->mine[i].fd;
    }
    if (dpb_rights_send(link->fd, &hello, sizeof hello, MSG_DONTWAIT, fds, n_fds) ==
        (ssize_t)sizeof hello)
        link->sent = true;
    else if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS)
        return dpb_fail(DPB_PEER, "sharing of %s: cannot reach rank %u: %s", exchange->name,
                        link->rank, strerror(errno));
    return DPB_OK;
}

static dpb_status map_peer(struct exchange *exchange, const struct hello *hello, const int *fds,
                           size_t n_fds)
{
    size_t used = 0;
    char what[160];
    snprintf(what, sizeof what, "%s of rank %u", exchange->name, hello->rank);
    if (hello->n != exchange->n)
        return dpb_fail(DPB_FAILED, "sharing of %s: rank %u offers %u mappings, rank %u %u",
                        exchange->name, hello->rank, hello->n, dpb_world.rank, exchange->n);
    for (uint32_t i = 0; i < exchange->n; i++) {
        struct dpb_mapping *peer = &exchange->peers[hello->rank * exchange->n + i];
        struct stat info;
        if (hello->bytes[i] == 0)
            continue;
        if (used == n_fds)
            return dpb_fail(DPB_FAILED, "sharing of %s: a descriptor was lost (raise ulimit -n)",
                            what);
        int fd = fds[used++], seals = fcntl(fd, F_GET_SEALS);
        if (fstat(fd, &info) != 0 || (uint64_t)info.st_size < hello->bytes[i] || seals < 0 ||
            (seals & F_SEAL_SHRINK) == 0)
            return dpb_fail(
                DPB_FAILED,
                "sharing of %s: descriptor %u has %lld bytes (seals %d), %llu were said", what, i,
                (long long)info.st_size, seals, (unsigned long long)hello->bytes[i]);
        *peer = (struct dpb_mapping){.bytes = (size_t)hello->bytes[i], .fd = -1};
        DPB_TRY(map_memory(fd, what, peer));
    }
    return DPB_OK;
}

static void link_close(struct link *link)
{
    close(link->fd);
    *link = (struct link){.fd = -1, .rank = UINT32_MAX};
}

/* Whether a hello is that of a peer that may be at the other end of this link. */
static bool is_peer(const struct exchange *exchange, const struct link *link,
                    const struct hello *hello, ssize_t bytes)
{
    if (bytes != (ssize_t)sizeof *hello || hello->magic != HELLO_MAGIC ||
        !dpb_same_bytes(hello->secret, job_secret, DPB_SECRET_BYTES) || hello->n > MAX_MAPPINGS)
        return false;
    if (link->rank != UINT32_MAX)
        return hello->rank == link->rank;
    return hello->rank > dpb_world.rank && hello->rank < dpb_world.n_ranks &&
           is_partner(exchange, hello->rank) && !exchange->met[hello->rank];
}

static dpb_status receive_hello(struct exchange *exchange, struct link *link)
{
    struct hello hello;
    int fds[DPB_RIGHTS_MOST];
    size_t n_fds;
    ssize_t bytes = dpb_rights_receive(link->fd, &hello, sizeof hello, MSG_DONTWAIT, fds, &n_fds);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return DPB_OK;
    dpb_status status = DPB_OK;
    if (is_peer(exchange, link, &hello, bytes)) {
        link->rank = hello.rank;
        link->received = true;
        exchange->met[hello.rank] = true;
        status = map_peer(exchange, &hello, fds, n_fds);
    } else if (link->rank != UINT32_MAX) {
        status = dpb_fail(DPB_PEER,
                          "sharing of %s: rank %u closed the connection or is not the one "
                          "that the store names",
                          exchange->name, link->rank);
    } else {
        dpb_warn("share_stranger", "sharing of %s: refused a connection without the job's secret",
                 exchange->name);
        link_close(link);
    }
    dpb_rights_close(fds, n_fds);
    return status;
}

/* ---- the exchange -------------------------------------------------------------------------- */

static dpb_status open_listener(struct exchange *exchange)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    char key[DPB_STORE_KEY_BYTES + 1];
    exchange->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The family alone: the kernel chooses a free abstract name. */
    if (exchange->listener < 0 ||
        bind(exchange->listener, (struct sockaddr *)&address, sizeof address.sun_family) != 0 ||
        listen(exchange->listener, (int)exchange->n_links) != 0 ||
        getsockname(exchange->listener, (struct sockaddr *)&address, &size) != 0)
        return dpb_fail(DPB_FAILED, "sharing of %s: cannot open a Unix socket: %s", exchange->name,
                        strerror(errno));
    snprintf(key, sizeof key, "share/%s/%u", exchange->name, dpb_world.rank);
    return dpb_store.put(key, &address, size);
}

static dpb_status connect_to(struct exchange *exchange, uint32_t rank, struct link *link)
{
    struct sockaddr_un address;
    size_t size = sizeof address;
    char key[DPB_STORE_KEY_BYTES + 1];
    snprintf(key, sizeof key, "share/%s/%u", exchange->name, rank);
    DPB_TRY(dpb_store.get(key, &address, &size, 0));
    link->rank = rank;
    link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd < 0)
        return dpb_fail(DPB_FAILED, "sharing of %s: cannot open a Unix socket: %s", exchange->name,
                        strerror(errno));
    /* A Unix socket connects at once: the backlog has room for every rank. */
    int result = connect(link->fd, (struct sockaddr *)&address, (socklen_t)size);
    for (int tries = 0; result != 0 && (errno == EAGAIN || errno == EINTR) && tries < 1000;
         tries++) {
        poll(NULL, 0, RETRY_MS);
        result = connect(link->fd, (struct sockaddr *)&address, (socklen_t)size);
    }
    if (result != 0)
        return dpb_fail(DPB_PEER, "sharing of %s: cannot reach rank %u: %s", exchange->name, rank,
                        strerror(errno));
    if (!same_user(link->fd))
        return dpb_fail(DPB_FAILED, "sharing of %s: the socket of rank %u belongs to another user",
                        exchange->name, rank);
    return send_hello(exchange, link);
}

static void accept_links(struct exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->n_links; i++) {
        struct link *link = &exchange->links[i];
        if (link->fd >= 0 || link->received)
            continue;
        int fd = accept4(exchange->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        *link = (struct link){.fd = fd, .rank = UINT32_MAX};
        if (!same_user(fd)) {
            dpb_warn("share_stranger", "sharing of %s: refused a connection of another user",
                     exchange->name);
            link_close(link);
        }
    }
}

/* One round over all links: reads each hello that has come, and sends each hello that is due. */
static dpb_status exchange_round(struct exchange *exchange, struct pollfd *fds)
{
    int timeout_ms = SLICE_MS;
    for (uint32_t i = 0; i < exchange->n_links; i++) {
        const struct link *link = &exchange->links[i];
        fds[i] = (struct pollfd){.fd = link->received ? -1 : link->fd, .events = POLLIN};
        if (link->fd >= 0 && link->rank != UINT32_MAX && !link->sent)
            timeout_ms = RETRY_MS; /* its obstacle has no event to wait for */
    }
    fds[exchange->n_links] = (struct pollfd){.fd = exchange->listener, .events = POLLIN};
    if (poll(fds, exchange->n_links + 1, timeout_ms) < 0 && errno != EINTR)
        return dpb_fail(DPB_FAILED, "sharing of %s: poll of %u sockets: %s (raise ulimit -n)",
                        exchange->name, exchange->n_links + 1, strerror(errno));
    accept_links(exchange);
    for (uint32_t i = 0; i < exchange->n_links; i++) {
        struct link *link = &exchange->links[i];
        if (link->fd < 0)
            continue;
        /* Only links that poll has seen: Linux looks at the queue first and at the peer's closing
         * after, so that a read at any time may say "closed" beside a hello that has just come. */
        if (fds[i].revents != 0)
            DPB_TRY(receive_hello(exchange, link));
        if (link->fd >= 0 && link->rank != UINT32_MAX && !link->sent)
            DPB_TRY(send_hello(exchange, link));
        if (link->fd >= 0 && link->sent && link->received) {
            close(link->fd);
            link->fd = -1; /* `received` keeps the place taken */
            exchange->n_done++;
        }
    }
    return DPB_OK;
}

/* The first partner with which hellos are not exchanged yet; there is one. */
static uint32_t missing_partner(const struct exchange *exchange)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < exchange->n_links; i++)
        if (exchange->links[i].fd >= 0 && exchange->links[i].rank != UINT32_MAX)
            return exchange->links[i].rank;
    while (!is_partner(exchange, rank) || exchange->met[rank])
        rank++;
    return rank;
}

static dpb_status exchange_all(struct exchange *exchange)
{
    struct pollfd *fds = calloc(exchange->n_links + 1, sizeof *fds);
    DPB_TRY(dpb_allocated(fds));
    const int64_t timeout = dpb_timeout_of(0);
    const struct dpb_deadline deadline = dpb_deadline_in(timeout);
    dpb_status status = DPB_OK;
    while (status == DPB_OK && exchange->n_done < exchange->n_partners) {
        status = exchange_round(exchange, fds);
        if (status == DPB_OK && dpb_board_job_ended(dpb_world.board))
            status = dpb_fail(DPB_PEER, "stopped sharing %s: the job is ending", exchange->name);
        if (status == DPB_OK && dpb_deadline_passed(deadline)) {
            char peer[512];
            dpb_peer_describe(missing_partner(exchange), peer, sizeof peer);
            status = dpb_fail(DPB_TIMEOUT, "waited %.1f s to share %s: %s", (double)timeout * 1e-9,
                              exchange->name, peer);
        }
    }
    free(fds);
    return status;
}

static dpb_status exchange_open(struct exchange *exchange)
{
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        exchange->n_partners += is_partner(exchange, rank);
    exchange->n_links = exchange->n_partners + MAX_STRANGERS;
    exchange->links = calloc(exchange->n_links, sizeof *exchange->links);
    exchange->met = calloc(dpb_world.n_ranks, sizeof *exchange->met);
    DPB_TRY(dpb_allocated(exchange->links && exchange->met));
    for (uint32_t i = 0; i < exchange->n_links; i++)
        exchange->links[i] = (struct link){.fd = -1, .rank = UINT32_MAX};
    DPB_TRY(open_listener(exchange));
    for (uint32_t rank = 0, i = 0; rank < dpb_world.rank; rank++)
        if (is_partner(exchange, rank))
            DPB_TRY(connect_to(exchange, rank, &exchange->links[i++]));
    return DPB_OK;
}

static dpb_status share(const char *name, uint32_t hub, const struct dpb_mapping *mine, uint32_t n,
                        struct dpb_mapping *peers)
{
    struct exchange exchange = {
        .name = name, .mine = mine, .peers = peers, .n = n, .hub = hub, .listener = -1};
    assert(n <= MAX_MAPPINGS);
    memset(peers, 0, sizeof *peers * n * dpb_world.n_ranks);
    dpb_status status = exchange_open(&exchange);
    DPB_THEN(status, exchange_all(&exchange));
    for (uint32_t i = 0; exchange.links && i < exchange.n_links; i++)
        if (exchange.links[i].fd >= 0)
            close(exchange.links[i].fd);
    if (exchange.listener >= 0)
        close(exchange.listener);
    free(exchange.links);
    free(exchange.met);
    if (status != DPB_OK) {
        for (uint32_t i = 0; i < n * dpb_world.n_ranks; i++)
            dpb_mapping_destroy(&peers[i]);
        return status;
    }
    for (uint32_t i = 0; i < n; i++)
        peers[dpb_world.rank * n + i] = mine[i];
    return DPB_OK;
}

dpb_status dpb_world_share_with_0(const char *name, const struct dpb_mapping *mine, uint32_t n,
                                  struct dpb_mapping *peers)
{
    return share(name, 0, mine, n, peers);
}

/* ---- one memory for all -------------------------------------------------------------------- */

/* Of a rank, in one of the memories; the hub says where. */
struct part {
    uint64_t bytes, window, at;
};

/* The first rank of this machine. */
static uint32_t find_hub(void)
{
    uint32_t rank = 0;
    while (!dpb_world_is_local(rank))
        rank++;
    return rank;
}

/* There is space for MAX_MAPPINGS more. */
static dpb_status get_parts(const char *key, uint32_t rank, uint32_t n, struct part *parts)
{
    size_t bytes = (n + MAX_MAPPINGS) * sizeof *parts;
    bool lost;
    dpb_world_note("bind", UINT64_MAX, rank);
    DPB_TRY(dpb_store_get_from(rank, key, parts, &bytes, &lost));
    return bytes == n * sizeof *parts
               ? DPB_OK
               : dpb_fail(DPB_FAILED, "%s: %zu mappings, not %u", key, bytes / sizeof *parts, n);
}

/* The hub gets the parts of all ranks, parts[rank * n + i], and lays them out in the order of the
 * ranks: large ones from a huge page on. bytes[i] becomes that of a memory. */
static dpb_status gather_parts(const char *name, uint32_t n, struct part *parts, size_t *bytes)
{
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        char key[DPB_STORE_KEY_BYTES + 1];
        snprintf(key, sizeof key, "sharing of %s/%u", name, rank);
        if (rank != dpb_world.rank && dpb_world_is_local(rank))
            DPB_TRY(get_parts(key, rank, n, &parts[rank * n]));
        for (uint32_t i = 0; i < n; i++) {
            struct part *part = &parts[rank * n + i];
            const size_t page =
                part->bytes < HUGE_BYTES ? (size_t)sysconf(_SC_PAGESIZE) : HUGE_PAGE_BYTES;
            if (part->bytes == 0)
                continue;
            part->at = (bytes[i] + page - 1) / page * page;
            bytes[i] = part->at + part->bytes;
        }
    }
    return DPB_OK;
}

/* *any: a rank offers something. */
static dpb_status agree_on_parts(const char *name, const struct dpb_offer *mine, uint32_t n,
                                 struct part *parts, struct dpb_shared *shared, bool *any)
{
    const uint32_t hub = find_hub(), n_all = dpb_world.n_ranks * n;
    char own[DPB_STORE_KEY_BYTES + 1], all[DPB_STORE_KEY_BYTES + 1];
    size_t bytes[MAX_MAPPINGS] = {0};
    snprintf(own, sizeof own, "sharing of %s/%u", name, dpb_world.rank);
    snprintf(all, sizeof all, "sharing of %s/by %u", name, hub);
    for (uint32_t i = 0; i < n; i++) {
        if (mine[i].bytes > INT64_MAX / DPB_JOB_RANKS)
            return dpb_fail(DPB_NO_MEMORY, "cannot make %zu bytes of shared memory for %s",
                            mine[i].bytes, mine[i].name);
        parts[dpb_world.rank * n + i] = (struct part){mine[i].bytes, mine[i].window, 0};
    }
    if (dpb_world.rank == hub) {
        DPB_TRY(gather_parts(name, n, parts, bytes));
        DPB_TRY(dpb_store.put(all, parts, n_all * sizeof *parts));
        for (uint32_t i = 0; i < n; i++)
            DPB_TRY(dpb_mapping_create(mine[i].name, bytes[i], &shared->whole[i]));
    } else {
        DPB_TRY(dpb_store.put(own, &parts[dpb_world.rank * n], n * sizeof *parts));
        DPB_TRY(get_parts(all, hub, n_all, parts));
    }
    *any = false;
    for (uint32_t i = 0; i < n_all; i++)
        *any |= parts[i].bytes > 0;
    return DPB_OK;
}

static dpb_status view_part(const char *name, const struct part *part,
                            const struct dpb_mapping *whole, struct dpb_mapping *view)
{
    struct dpb_mapping made = {.fd = -1};
    if (part->bytes > 0) {
        if (part->at + part->bytes > whole->bytes)
            return dpb_fail(DPB_FAILED, "sharing of %s: a memory is too small", name);
        made =
            (struct dpb_mapping){(char *)whole->memory + part->at, part->bytes, -1, part->window};
        if (part->window > 0)
            DPB_TRY(widen(name, made.memory, &made));
    }
    *view = made;
    return DPB_OK;
}

/* First shared->of[hub * n + i] is a whole memory. */
static dpb_status share_parts(const char *name, const struct dpb_offer *mine,
                              struct dpb_shared *shared, struct part *parts)
{
    const uint32_t n = shared->n, n_all = dpb_world.n_ranks * n;
    struct dpb_mapping *hubs = &shared->of[find_hub() * n];
    bool any;
    DPB_TRY(agree_on_parts(name, mine, n, parts, shared, &any));
    if (!any)
        return DPB_OK;
    DPB_TRY(share(name, find_hub(), shared->whole, n, shared->of));
    for (uint32_t i = 0; i < n; i++) {
        shared->whole[i] = hubs[i];
        if (hubs[i].memory && hubs[i].fd >= 0)
            close(hubs[i].fd);
        shared->whole[i].fd = -1;
    }
    memset(shared->of, 0, n_all * sizeof *shared->of);
    for (uint32_t i = 0; i < n_all; i++)
        DPB_TRY(view_part(name, &parts[i], &shared->whole[i % n], &shared->of[i]));
    return DPB_OK;
}

dpb_status dpb_world_share(const char *name, const struct dpb_offer *mine, uint32_t n,
                           struct dpb_shared *shared)
{
    const size_t all = (size_t)dpb_world.n_ranks * n;
    struct dpb_shared made = {.n = n};
    made.of = calloc(all, sizeof *made.of);
    made.whole = calloc(n, sizeof *made.whole);
    struct part *parts = calloc(all + MAX_MAPPINGS, sizeof *parts);
    dpb_status status = dpb_allocated(made.of && made.whole && parts);
    DPB_THEN(status, share_parts(name, mine, &made, parts));
    free(parts);
    if (status == DPB_OK)
        *shared = made;
    else
        dpb_shared_destroy(&made);
    return status;
}

void dpb_shared_destroy(struct dpb_shared *shared)
{
    for (size_t i = 0; shared->of && i < (size_t)dpb_world.n_ranks * shared->n; i++)
        if (shared->of[i].window > 0)
            munmap(shared->of[i].memory, shared->of[i].window);
    for (uint32_t i = 0; shared->whole && i < shared->n; i++)
        dpb_mapping_destroy(&shared->whole[i]);
    free(shared->of);
    free(shared->whole);
    *shared = (struct dpb_shared){.n = 0};
}
