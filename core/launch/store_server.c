/*
 * store_server.c - the job's store: its entries by kind and key, the requests of ranks, and their
 * connections. A request that cannot be answered yet waits in a list.
 */
#include "launch/store_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "world/store.h"

enum { STORE_CHAINS = 4096 };

/* Each kind has names of its own. */
enum entry_kind {
    STORE_VALUE,   /* was put */
    STORE_BARRIER, /* at least one rank has come to it */
    STORE_GIFT     /* was given, and not taken yet */
};

struct entry {
    struct entry *next;
    enum entry_kind kind;
    char key[DPB_STORE_KEY_BYTES + 1];
    uint32_t rank; /* the rank that put it */
    void *value;
    uint32_t bytes;
    uint32_t n_coming; /* the barrier is for the ranks below */
    uint8_t *arrived;  /* by rank */
};

struct waiter {
    uint16_t op;
    uint32_t rank, serial;
    uint32_t from; /* get: the rank that is to put; UINT32_MAX: any */
    struct dpb_deadline deadline;
    char key[DPB_STORE_KEY_BYTES + 1];
};

struct connection {
    int fd; /* -1: not yet or no more */
    bool gone, bye, lost;
    struct dpb_buffer in, out;
    uint32_t n_waiting, n_idle; /* requests; those of them that are no wait */
    char fault[192];
};

struct dpb_store_server {
    uint32_t n_ranks;
    struct connection *connections;
    struct entry *chains[STORE_CHAINS];
    size_t total_bytes;
    struct waiter *waiters;
    size_t n_waiters, capacity;
    dpb_store_on_post on_post;
    void *on_post_context;
};

static struct entry **chain_of(struct dpb_store_server *server, const char *key)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = key; *c != '\0'; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return &server->chains[hash % STORE_CHAINS];
}

/* NULL: there is none. */
static struct entry *find_entry(struct dpb_store_server *server, const char *key,
                                enum entry_kind kind)
{
    struct entry *entry = *chain_of(server, key);
    while (entry && (entry->kind != kind || strcmp(entry->key, key) != 0))
        entry = entry->next;
    return entry;
}

/* A copy of the value, not counted in total_bytes yet. NULL: out of memory. */
static struct entry *create_entry(struct dpb_store_server *server, const char *key,
                                  enum entry_kind kind, const void *value, uint32_t bytes)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->value = malloc(bytes > 0 ? bytes : 1);
    entry->arrived = kind == STORE_BARRIER ? calloc(server->n_ranks, 1) : NULL;
    if (!entry->value || (kind == STORE_BARRIER && !entry->arrived)) {
        free(entry->value);
        free(entry->arrived);
        free(entry);
        return NULL;
    }
    entry->kind = kind;
    memcpy(entry->key, key, strlen(key) + 1);
    if (bytes > 0)
        memcpy(entry->value, value, bytes);
    entry->bytes = bytes;
    struct entry **chain = chain_of(server, key);
    entry->next = *chain;
    *chain = entry;
    return entry;
}

/* Also from total_bytes. */
static void remove_entry(struct dpb_store_server *server, struct entry *entry)
{
    struct entry **link = chain_of(server, entry->key);
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    server->total_bytes -= entry->bytes;
    free(entry->value);
    free(entry->arrived);
    free(entry);
}

enum { TEXT_BYTES = 512, MAX_OUTPUT = 64 << 20 };

static const char no_memory[] = "the launcher is out of memory";
/* Answers a rank at a barrier, as DPB_PEER: the rank that left reports the cause. */
static const char left_before[] = "barrier '%s': rank %u left the job before it came";

/* ---- connections ---------------------------------------------------------------------------- */

static void close_connection(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
    dpb_buffer_free(&connection->in);
    dpb_buffer_free(&connection->out);
}

/* Keeps the first fault of a connection; the launcher ends the job for it. */
static void keep_fault(struct connection *connection, const char *why)
{
    if (connection->fault[0] == '\0')
        snprintf(connection->fault, sizeof connection->fault, "%s", why);
}

/* ---- answers and waiters -------------------------------------------------------------------- */

static void answer_about(struct dpb_store_server *server, uint32_t rank, uint32_t serial,
                         dpb_status status, uint32_t peer, const void *value, uint32_t bytes)
{
    struct connection *connection = &server->connections[rank];
    struct dpb_frame frame = {.magic = DPB_STORE_MAGIC,
                              .op = DPB_STORE_ANSWER,
                              .serial = serial,
                              .value_bytes = bytes,
                              .status = (int32_t)status,
                              .peer = peer};
    if (connection->fd < 0)
        return;
    if (!dpb_buffer_add_frame(&connection->out, &frame, NULL, value))
        keep_fault(connection, "the launcher is out of memory for its answers");
    else if (connection->out.end - connection->out.begin > MAX_OUTPUT)
        keep_fault(connection, "it asks for values and does not read them");
    else if (dpb_buffer_send(&connection->out, connection->fd) < 0 && errno != EAGAIN)
        close_connection(connection); /* it has died; the launcher finds its end */
}

static void answer(struct dpb_store_server *server, uint32_t rank, uint32_t serial,
                   dpb_status status, const void *value, uint32_t bytes)
{
    answer_about(server, rank, serial, status, UINT32_MAX, value, bytes);
}

/* One request of a rank. */
struct request {
    struct dpb_store_server *server;
    uint32_t rank;
    const struct dpb_frame *frame;
    const char *key;
    const void *value;
};

static void accept(const struct request *request, const struct entry *entry)
{
    answer(request->server, request->rank, request->frame->serial, DPB_OK,
           entry ? entry->value : NULL, entry ? entry->bytes : 0);
}

DPB_PRINTF(3, 4)
static void refuse(const struct request *request, dpb_status status, const char *format, ...)
{
    char text[TEXT_BYTES];
    DPB_PRINT_ARGUMENTS(text, sizeof text, format);
    answer(request->server, request->rank, request->frame->serial, status, text,
           (uint32_t)strlen(text));
}

/* A rank that takes without a deadline answers others beside its work, and reports no wait. */
static bool is_idle(const struct waiter *waiter)
{
    return waiter->op == DPB_STORE_TAKE && waiter->deadline.at_ns == INT64_MAX;
}

static void wait_for(const struct request *request)
{
    struct dpb_store_server *server = request->server;
    const struct dpb_frame *frame = request->frame;
    struct connection *connection = &server->connections[request->rank];
    if (connection->n_waiting == DPB_STORE_WAITING) {
        keep_fault(connection, "more than 64 unanswered requests");
        return;
    }
    if (server->n_waiters == server->capacity) {
        size_t capacity = server->capacity != 0 ? 2 * server->capacity : 64;
        struct waiter *waiters = realloc(server->waiters, capacity * sizeof *waiters);
        if (!waiters) {
            refuse(request, DPB_NO_MEMORY, "%s", no_memory);
            return;
        }
        server->waiters = waiters;
        server->capacity = capacity;
    }
    struct waiter *waiter = &server->waiters[server->n_waiters++];
    *waiter = (struct waiter){.op = frame->op,
                              .rank = request->rank,
                              .serial = frame->serial,
                              .from = frame->op == DPB_STORE_GET && frame->peer < server->n_ranks
                                          ? frame->peer
                                          : UINT32_MAX};
    waiter->deadline = dpb_deadline_in(frame->timeout_ns);
    memcpy(waiter->key, request->key, strlen(request->key) + 1);
    connection->n_waiting++;
    connection->n_idle += is_idle(waiter);
}

/* Takes the i-th waiter out; the last one takes its place. */
static struct waiter take_waiter(struct dpb_store_server *server, size_t i)
{
    struct waiter waiter = server->waiters[i];
    server->waiters[i] = server->waiters[--server->n_waiters];
    server->connections[waiter.rank].n_waiting--;
    server->connections[waiter.rank].n_idle -= is_idle(&waiter);
    return waiter;
}

static void answer_waiters(struct dpb_store_server *server, uint16_t op, const struct entry *entry)
{
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].op != op || strcmp(server->waiters[i].key, entry->key) != 0)
            continue;
        struct waiter waiter = take_waiter(server, i);
        answer(server, waiter.rank, waiter.serial, DPB_OK, entry->value, entry->bytes);
    }
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Whether the store takes a value more; else the request is answered. */
static bool has_space(const struct request *request)
{
    if (request->server->total_bytes + request->frame->value_bytes <= DPB_STORE_TOTAL_BYTES)
        return true;
    refuse(request, DPB_FAILED, "key '%s': the store holds at most %d bytes a job", request->key,
           DPB_STORE_TOTAL_BYTES);
    return false;
}

/* Keeps the request's value. NULL: no space or memory, and the request is answered. */
static struct entry *keep(const struct request *request, enum entry_kind kind)
{
    if (!has_space(request))
        return NULL;
    struct entry *entry = create_entry(request->server, request->key, kind, request->value,
                                       request->frame->value_bytes);
    if (entry)
        request->server->total_bytes += request->frame->value_bytes;
    else
        refuse(request, DPB_NO_MEMORY, "%s", no_memory);
    return entry;
}

static void request_put(const struct request *request)
{
    struct entry *entry = find_entry(request->server, request->key, STORE_VALUE);
    if (entry) {
        refuse(request, DPB_FAILED, "key '%s' was put before, by rank %u: a key is put once a job",
               request->key, entry->rank);
        return;
    }
    entry = keep(request, STORE_VALUE);
    if (!entry)
        return;
    entry->rank = request->rank;
    accept(request, NULL);
    answer_waiters(request->server, DPB_STORE_GET, entry);
}

static void request_get(const struct request *request)
{
    const struct entry *entry = find_entry(request->server, request->key, STORE_VALUE);
    const uint32_t from = request->frame->peer;
    if (entry)
        accept(request, entry);
    else if (from < request->server->n_ranks && request->server->connections[from].lost)
        refuse(request, DPB_PEER, "rank %u is lost", from);
    else
        wait_for(request);
}

/* The place of the request that waits with this operation and key; n_waiters: there is none. */
static size_t find_waiter(const struct dpb_store_server *server, uint16_t op, const char *key)
{
    size_t i = 0;
    while (i < server->n_waiters &&
           (server->waiters[i].op != op || strcmp(server->waiters[i].key, key) != 0))
        i++;
    return i;
}

static void request_give(const struct request *request)
{
    struct dpb_store_server *server = request->server;
    size_t taker = find_waiter(server, DPB_STORE_TAKE, request->key);
    if (find_entry(server, request->key, STORE_GIFT)) {
        refuse(request, DPB_FAILED, "key '%s' is given already, and was not taken yet",
               request->key);
    } else if (taker < server->n_waiters) {
        struct waiter waiter = take_waiter(server, taker);
        answer(server, waiter.rank, waiter.serial, DPB_OK, request->value,
               request->frame->value_bytes);
        accept(request, NULL);
    } else if (keep(request, STORE_GIFT)) {
        wait_for(request);
    }
}

static void request_take(const struct request *request)
{
    struct dpb_store_server *server = request->server;
    struct entry *gift = find_entry(server, request->key, STORE_GIFT);
    if (!gift) {
        wait_for(request);
        return;
    }
    size_t giver = find_waiter(server, DPB_STORE_GIVE, request->key);
    accept(request, gift);
    remove_entry(server, gift);
    if (giver < server->n_waiters) {
        struct waiter waiter = take_waiter(server, giver);
        answer(server, waiter.rank, waiter.serial, DPB_OK, NULL, 0);
    }
}

/* The first rank that left the job without coming to the barrier, UINT32_MAX: none. */
static uint32_t barrier_gone(const struct dpb_store_server *server, const struct entry *entry)
{
    for (uint32_t rank = 0; rank < entry->n_coming; rank++)
        if (!entry->arrived[rank] && server->connections[rank].gone)
            return rank;
    return UINT32_MAX;
}

/* Whether the barrier waits for the rank. */
static bool is_missing(const struct dpb_store_server *server, const struct entry *entry,
                       uint32_t rank)
{
    return !entry->arrived[rank] && !server->connections[rank].lost;
}

static bool all_arrived(const struct dpb_store_server *server, const struct entry *entry)
{
    for (uint32_t rank = 0; rank < entry->n_coming; rank++)
        if (is_missing(server, entry, rank))
            return false;
    return true;
}

static void request_barrier(const struct request *request)
{
    struct dpb_store_server *server = request->server;
    const uint32_t end = request->frame->peer;
    const uint32_t n_coming = end < server->n_ranks ? end : server->n_ranks;
    struct entry *entry = find_entry(server, request->key, STORE_BARRIER);
    if (!entry) {
        entry = create_entry(server, request->key, STORE_BARRIER, NULL, 0);
        if (!entry) {
            refuse(request, DPB_NO_MEMORY, "%s", no_memory);
            return;
        }
        entry->n_coming = n_coming;
    }
    if (entry->n_coming != n_coming || request->rank >= n_coming) {
        refuse(request, DPB_FAILED,
               "rank %u comes to barrier '%s' as one of the first %u ranks; it is for the first %u",
               request->rank, request->key, n_coming, entry->n_coming);
        return;
    }
    if (entry->arrived[request->rank]) {
        refuse(request, DPB_FAILED,
               "this rank came to barrier '%s' before: a name is used once a job", request->key);
        return;
    }
    entry->arrived[request->rank] = 1;
    uint32_t gone = barrier_gone(server, entry);
    if (all_arrived(server, entry)) {
        accept(request, NULL);
        answer_waiters(server, DPB_STORE_BARRIER, entry);
    } else if (gone != UINT32_MAX) {
        refuse(request, DPB_PEER, left_before, request->key, gone);
    } else {
        wait_for(request);
    }
}

/* Answers a request, or lets it wait. */
static void handle(struct dpb_store_server *server, uint32_t rank, const struct dpb_frame *frame,
                   const char *raw_key, const void *value)
{
    struct connection *connection = &server->connections[rank];
    char key[DPB_STORE_KEY_BYTES + 1];
    memcpy(key, raw_key, frame->key_bytes);
    key[frame->key_bytes] = '\0';
    const struct request request = {server, rank, frame, key, value};
    bool named = frame->key_bytes > 0 && strlen(key) == frame->key_bytes;
    if (frame->op == DPB_STORE_BYE)
        connection->bye = true;
    else if (frame->op == DPB_STORE_ANSWER)
        keep_fault(connection, "an answer where requests are expected");
    else if (frame->op > DPB_STORE_TAKE)
        keep_fault(connection, "an operation that is not one of ranks");
    else if (frame->op == DPB_STORE_POST && server->on_post)
        server->on_post(server->on_post_context, rank, value, frame->value_bytes);
    else if (frame->op == DPB_STORE_POST)
        keep_fault(connection, "a post in a job of one launcher");
    else if (!named)
        keep_fault(connection, "a key that is empty or has a NUL in it");
    else if (frame->op == DPB_STORE_PUT)
        request_put(&request);
    else if (frame->op == DPB_STORE_GIVE)
        request_give(&request);
    else if (frame->value_bytes > 0)
        keep_fault(connection, "a value in a request that takes none");
    else if (frame->op == DPB_STORE_GET)
        request_get(&request);
    else if (frame->op == DPB_STORE_TAKE)
        request_take(&request);
    else
        request_barrier(&request);
}

/* ---- deadlines and ends -------------------------------------------------------------------- */

/* Removes the gift of a request that is over, unless the request was answered in order. */
static void forget(struct dpb_store_server *server, const struct waiter *waiter)
{
    struct entry *gift =
        waiter->op == DPB_STORE_GIVE ? find_entry(server, waiter->key, STORE_GIFT) : NULL;
    if (gift)
        remove_entry(server, gift);
}

/* The barrier where the waiter waits; NULL: it waits for something else. */
static const struct entry *barrier_of(struct dpb_store_server *server, const struct waiter *waiter)
{
    return waiter->op == DPB_STORE_BARRIER ? find_entry(server, waiter->key, STORE_BARRIER) : NULL;
}

static void expire_waiter(struct dpb_store_server *server, const struct waiter *waiter)
{
    static const char *const missing[] = {[DPB_STORE_GET] = "no rank has put key '",
                                          [DPB_STORE_BARRIER] = "barrier '",
                                          [DPB_STORE_GIVE] = "no rank has taken key '",
                                          [DPB_STORE_TAKE] = "no rank has given key '"};
    enum { LISTED = 8 };
    char array[TEXT_BYTES];
    struct dpb_text text = dpb_text_in(array, sizeof array);
    uint32_t first = waiter->from, n_missing = 0;
    dpb_text_add(&text, "%s%s'%s", missing[waiter->op], waiter->key,
                 waiter->op == DPB_STORE_BARRIER ? ": not there yet: rank" : "");
    forget(server, waiter);
    const struct entry *barrier = barrier_of(server, waiter);
    for (uint32_t rank = 0; barrier && rank < barrier->n_coming; rank++) {
        if (!is_missing(server, barrier, rank))
            continue;
        if (++n_missing <= LISTED)
            dpb_text_add(&text, "%s %u", n_missing == 1 ? "" : ",", rank);
        if (first == UINT32_MAX)
            first = rank;
    }
    if (n_missing > LISTED)
        dpb_text_add(&text, " and %u more", n_missing - LISTED);
    answer_about(server, waiter->rank, waiter->serial, DPB_TIMEOUT, first, array,
                 (uint32_t)text.length);
}

struct dpb_deadline dpb_store_server_expire(struct dpb_store_server *server, int64_t ran_ns)
{
    struct dpb_deadline nearest = {INT64_MAX};
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].deadline.at_ns <= ran_ns) {
            struct waiter waiter = take_waiter(server, i);
            expire_waiter(server, &waiter);
        } else {
            nearest = dpb_deadline_first(nearest, server->waiters[i].deadline);
        }
    }
    return nearest;
}

bool dpb_store_server_waits(const struct dpb_store_server *server, uint32_t rank)
{
    return server->connections[rank].n_waiting > server->connections[rank].n_idle;
}

/* A rank has gone: drops its requests, and refuses those that wait for it at a barrier. */
static void drop_requests(struct dpb_store_server *server, uint32_t rank)
{
    char text[TEXT_BYTES];
    for (size_t i = server->n_waiters; i-- > 0;) {
        const struct waiter *waiter = &server->waiters[i];
        const struct entry *barrier = barrier_of(server, waiter);
        bool own = waiter->rank == rank;
        bool hopeless = barrier && rank < barrier->n_coming && !barrier->arrived[rank];
        if (!own && !hopeless)
            continue;
        struct waiter taken = take_waiter(server, i);
        forget(server, &taken);
        if (own)
            continue;
        snprintf(text, sizeof text, left_before, taken.key, rank);
        answer(server, taken.rank, taken.serial, DPB_PEER, text, (uint32_t)strlen(text));
    }
}

/* Drops its requests; no rank waits for it any more. */
static void lose(struct dpb_store_server *server, uint32_t rank)
{
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].rank != rank && server->waiters[i].from != rank)
            continue;
        struct waiter taken = take_waiter(server, i);
        forget(server, &taken);
        if (taken.rank != rank)
            answer(server, taken.rank, taken.serial, DPB_PEER, NULL, 0);
    }
    for (size_t i = 0; i < server->n_waiters;) {
        const struct entry *barrier = barrier_of(server, &server->waiters[i]);
        const bool is_over = barrier && all_arrived(server, barrier);
        if (is_over)
            answer_waiters(server, DPB_STORE_BARRIER, barrier);
        i = is_over ? 0 : i + 1;
    }
}

dpb_status dpb_store_server_create(uint32_t n_ranks, struct dpb_store_server **server)
{
    struct dpb_store_server *made = calloc(1, sizeof *made);
    if (made)
        made->connections = calloc(n_ranks, sizeof *made->connections);
    if (!made || !made->connections) {
        free(made);
        return dpb_fail(DPB_NO_MEMORY, "out of memory for the job's store");
    }
    made->n_ranks = n_ranks;
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        made->connections[rank].fd = -1;
    *server = made;
    return DPB_OK;
}

void dpb_store_server_destroy(struct dpb_store_server *server)
{
    if (!server)
        return;
    for (uint32_t rank = 0; rank < server->n_ranks; rank++)
        close_connection(&server->connections[rank]);
    for (size_t chain = 0; chain < STORE_CHAINS; chain++)
        while (server->chains[chain])
            remove_entry(server, server->chains[chain]);
    free(server->connections);
    free(server->waiters);
    free(server);
}

void dpb_store_server_attach(struct dpb_store_server *server, uint32_t rank, int fd)
{
    server->connections[rank].fd = fd;
}

void dpb_store_server_watch(const struct dpb_store_server *server, struct pollfd *fds)
{
    for (uint32_t rank = 0; rank < server->n_ranks; rank++) {
        const struct connection *connection = &server->connections[rank];
        bool output = connection->out.end > connection->out.begin;
        fds[rank] = (struct pollfd){.fd = connection->fd,
                                    .events = (short)(POLLIN | (output ? POLLOUT : 0))};
    }
}

bool dpb_store_server_said_bye(const struct dpb_store_server *server, uint32_t rank)
{
    return server->connections[rank].bye;
}

void dpb_store_server_on_post(struct dpb_store_server *server, dpb_store_on_post call,
                              void *context)
{
    server->on_post = call;
    server->on_post_context = context;
}

bool dpb_store_server_closed(const struct dpb_store_server *server, uint32_t rank)
{
    return server->connections[rank].fd < 0;
}

const char *dpb_store_server_fault(const struct dpb_store_server *server, uint32_t rank)
{
    const char *fault = server->connections[rank].fault;
    return fault[0] != '\0' ? fault : NULL;
}

/* Reads and handles all that is there; false once nothing more will come. */
static bool take_input(struct dpb_store_server *server, uint32_t rank)
{
    struct connection *connection = &server->connections[rank];
    while (connection->fd >= 0 && connection->fault[0] == '\0') {
        struct dpb_frame frame;
        const char *key;
        const void *value;
        char why[128];
        dpb_frame_state state = dpb_buffer_frame(&connection->in, &frame, &key, &value, why);
        if (state == DPB_FRAME_MALFORMED) {
            keep_fault(connection, why);
        } else if (state == DPB_FRAME_WHOLE) {
            handle(server, rank, &frame, key, value);
            if (connection->fd >= 0)
                dpb_buffer_drop_frame(&connection->in, &frame);
        } else {
            ssize_t n = dpb_buffer_receive(&connection->in, connection->fd);
            if (n < 0 && errno == EAGAIN)
                return true;
            if (n <= 0)
                return false;
        }
    }
    return false;
}

void dpb_store_server_serve(struct dpb_store_server *server, uint32_t rank, short events)
{
    struct connection *connection = &server->connections[rank];
    if (connection->fd < 0)
        return;
    if ((events & POLLOUT) != 0 && dpb_buffer_send(&connection->out, connection->fd) < 0 &&
        errno != EAGAIN) {
        close_connection(connection);
        return;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !take_input(server, rank))
        close_connection(connection);
}

void dpb_store_server_detach(struct dpb_store_server *server, uint32_t rank)
{
    struct connection *connection = &server->connections[rank];
    take_input(server, rank);
    close_connection(connection);
    connection->gone = true;
    drop_requests(server, rank);
}

void dpb_store_server_lose(struct dpb_store_server *server, uint32_t rank)
{
    struct connection *connection = &server->connections[rank];
    take_input(server, rank);
    close_connection(connection);
    connection->lost = true;
    lose(server, rank);
}
