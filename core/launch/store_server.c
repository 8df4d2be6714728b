/*
 * store_server.c - see store_server.h. A request that cannot be answered yet waits in a list.
 */
#include "launch/store_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "world/store.h"

enum { CHAINS = 4096, TEXT_BYTES = 512, MAX_OUTPUT = 64 << 20 };

/* Each kind has names of its own. */
enum entry_kind {
    VALUE,   /* that was put */
    BARRIER, /* somebody has come to */
    GIFT     /* is given, and not taken yet */
};

struct entry {
    struct entry *next;
    enum entry_kind kind;
    char key[DPB_STORE_KEY_BYTES + 1];
    uint32_t rank; /* that put it */
    void *value;
    uint32_t bytes;
    uint8_t *arrived; /* by rank */
    uint32_t n_arrived;
};

struct waiter {
    uint16_t op;
    uint32_t rank, serial;
    int64_t deadline_ns; /* INT64_MAX: none */
    char key[DPB_STORE_KEY_BYTES + 1];
};

struct connection {
    int fd; /* -1: not yet or no more */
    bool gone, bye;
    struct dpb_buffer in, out;
    uint32_t n_waiting;
    char fault[192];
};

struct dpb_store_server {
    uint32_t n_ranks;
    struct connection *connections;
    struct entry *chains[CHAINS];
    size_t total_bytes;
    struct waiter *waiters;
    size_t n_waiters, capacity;
    dpb_store_on_post on_post;
    void *on_post_context;
};

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

static void connection_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
    dpb_buffer_free(&connection->in);
    dpb_buffer_free(&connection->out);
}

void dpb_store_server_destroy(struct dpb_store_server *server)
{
    if (!server)
        return;
    for (uint32_t rank = 0; rank < server->n_ranks; rank++)
        connection_close(&server->connections[rank]);
    for (size_t chain = 0; chain < CHAINS; chain++) {
        while (server->chains[chain]) {
            struct entry *entry = server->chains[chain];
            server->chains[chain] = entry->next;
            free(entry->value);
            free(entry->arrived);
            free(entry);
        }
    }
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

/* ---- entries and waiters ------------------------------------------------------------------- */

static struct entry **chain_of(struct dpb_store_server *server, const char *key)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = key; *c != '\0'; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return &server->chains[hash % CHAINS];
}

static struct entry *entry_find(struct dpb_store_server *server, const char *key,
                                enum entry_kind kind)
{
    struct entry *entry = *chain_of(server, key);
    while (entry && (entry->kind != kind || strcmp(entry->key, key) != 0))
        entry = entry->next;
    return entry;
}

/* NULL: out of memory. */
static struct entry *entry_create(struct dpb_store_server *server, const char *key,
                                  enum entry_kind kind, const void *value, uint32_t bytes)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->value = malloc(bytes > 0 ? bytes : 1);
    entry->arrived = kind == BARRIER ? calloc(server->n_ranks, 1) : NULL;
    if (!entry->value || (kind == BARRIER && !entry->arrived)) {
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

static void entry_remove(struct dpb_store_server *server, struct entry *entry)
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

static void set_fault(struct connection *connection, const char *why)
{
    if (connection->fault[0] == '\0')
        snprintf(connection->fault, sizeof connection->fault, "%s", why);
}

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
        set_fault(connection, "the launcher is out of memory for its answers");
    else if (connection->out.end - connection->out.begin > MAX_OUTPUT)
        set_fault(connection, "it asks for values and does not read them");
    else if (dpb_buffer_send(&connection->out, connection->fd) < 0 && errno != EAGAIN)
        connection_close(connection); /* it has died; its end is found by the launcher */
}

static void answer(struct dpb_store_server *server, uint32_t rank, uint32_t serial,
                   dpb_status status, const void *value, uint32_t bytes)
{
    answer_about(server, rank, serial, status, UINT32_MAX, value, bytes);
}

DPB_PRINTF(5, 6)
static void answer_text(struct dpb_store_server *server, uint32_t rank, uint32_t serial,
                        dpb_status status, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    answer(server, rank, serial, status, text, (uint32_t)strlen(text));
}

static void wait_for(struct dpb_store_server *server, uint32_t rank, const struct dpb_frame *frame,
                     const char *key)
{
    struct connection *connection = &server->connections[rank];
    if (connection->n_waiting == DPB_STORE_WAITING) {
        set_fault(connection, "more than 64 unanswered requests");
        return;
    }
    if (server->n_waiters == server->capacity) {
        size_t capacity = server->capacity != 0 ? 2 * server->capacity : 64;
        struct waiter *waiters = realloc(server->waiters, capacity * sizeof *waiters);
        if (!waiters) {
            answer_text(server, rank, frame->serial, DPB_NO_MEMORY,
                        "the launcher is out of memory");
            return;
        }
        server->waiters = waiters;
        server->capacity = capacity;
    }
    struct waiter *waiter = &server->waiters[server->n_waiters++];
    int64_t now = dpb_now_ns();
    *waiter = (struct waiter){.op = frame->op, .rank = rank, .serial = frame->serial};
    waiter->deadline_ns = frame->timeout_ns < 0 || frame->timeout_ns > INT64_MAX - now
                              ? INT64_MAX
                              : now + frame->timeout_ns;
    memcpy(waiter->key, key, strlen(key) + 1);
    connection->n_waiting++;
}

/* Takes the i-th waiter out; the last one takes its place. */
static struct waiter take_waiter(struct dpb_store_server *server, size_t i)
{
    struct waiter waiter = server->waiters[i];
    server->waiters[i] = server->waiters[--server->n_waiters];
    server->connections[waiter.rank].n_waiting--;
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

/* Whether the store takes a value more; else it is answered. */
static bool has_space(struct dpb_store_server *server, uint32_t rank, const struct dpb_frame *frame,
                      const char *key)
{
    if (server->total_bytes + frame->value_bytes <= DPB_STORE_TOTAL_BYTES)
        return true;
    answer_text(server, rank, frame->serial, DPB_FAILED,
                "key '%s': the store holds at most %d bytes a job", key, DPB_STORE_TOTAL_BYTES);
    return false;
}

static void request_put(struct dpb_store_server *server, uint32_t rank,
                        const struct dpb_frame *frame, const char *key, const void *value)
{
    struct entry *entry = entry_find(server, key, VALUE);
    if (entry) {
        answer_text(server, rank, frame->serial, DPB_FAILED,
                    "key '%s' was put before, by rank %u: a key is put once a job", key,
                    entry->rank);
        return;
    }
    if (!has_space(server, rank, frame, key))
        return;
    entry = entry_create(server, key, VALUE, value, frame->value_bytes);
    if (!entry) {
        answer_text(server, rank, frame->serial, DPB_NO_MEMORY, "the launcher is out of memory");
        return;
    }
    entry->rank = rank;
    server->total_bytes += frame->value_bytes;
    answer(server, rank, frame->serial, DPB_OK, NULL, 0);
    answer_waiters(server, DPB_STORE_GET, entry);
}

static void request_get(struct dpb_store_server *server, uint32_t rank,
                        const struct dpb_frame *frame, const char *key)
{
    const struct entry *entry = entry_find(server, key, VALUE);
    if (entry)
        answer(server, rank, frame->serial, DPB_OK, entry->value, entry->bytes);
    else
        wait_for(server, rank, frame, key);
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

static void request_give(struct dpb_store_server *server, uint32_t rank,
                         const struct dpb_frame *frame, const char *key, const void *value)
{
    size_t taker = find_waiter(server, DPB_STORE_TAKE, key);
    if (entry_find(server, key, GIFT)) {
        answer_text(server, rank, frame->serial, DPB_FAILED,
                    "key '%s' is given already, and was not taken yet", key);
    } else if (taker < server->n_waiters) {
        struct waiter waiter = take_waiter(server, taker);
        answer(server, waiter.rank, waiter.serial, DPB_OK, value, frame->value_bytes);
        answer(server, rank, frame->serial, DPB_OK, NULL, 0);
    } else if (has_space(server, rank, frame, key)) {
        if (!entry_create(server, key, GIFT, value, frame->value_bytes)) {
            answer_text(server, rank, frame->serial, DPB_NO_MEMORY,
                        "the launcher is out of memory");
            return;
        }
        server->total_bytes += frame->value_bytes;
        wait_for(server, rank, frame, key);
    }
}

static void request_take(struct dpb_store_server *server, uint32_t rank,
                         const struct dpb_frame *frame, const char *key)
{
    struct entry *gift = entry_find(server, key, GIFT);
    if (!gift) {
        wait_for(server, rank, frame, key);
        return;
    }
    size_t giver = find_waiter(server, DPB_STORE_GIVE, key);
    answer(server, rank, frame->serial, DPB_OK, gift->value, gift->bytes);
    entry_remove(server, gift);
    if (giver < server->n_waiters) {
        struct waiter waiter = take_waiter(server, giver);
        answer(server, waiter.rank, waiter.serial, DPB_OK, NULL, 0);
    }
}

/* What a request that is over has left, unless it was answered in order. */
static void forget(struct dpb_store_server *server, const struct waiter *waiter)
{
    struct entry *gift =
        waiter->op == DPB_STORE_GIVE ? entry_find(server, waiter->key, GIFT) : NULL;
    if (gift)
        entry_remove(server, gift);
}

/* The first rank that left the job without coming to the barrier, UINT32_MAX: none. */
static uint32_t barrier_gone(const struct dpb_store_server *server, const struct entry *entry)
{
    for (uint32_t rank = 0; rank < server->n_ranks; rank++)
        if (!entry->arrived[rank] && server->connections[rank].gone)
            return rank;
    return UINT32_MAX;
}

static void request_barrier(struct dpb_store_server *server, uint32_t rank,
                            const struct dpb_frame *frame, const char *key)
{
    struct entry *entry = entry_find(server, key, BARRIER);
    if (!entry)
        entry = entry_create(server, key, BARRIER, NULL, 0);
    if (!entry) {
        answer_text(server, rank, frame->serial, DPB_NO_MEMORY, "the launcher is out of memory");
        return;
    }
    if (entry->arrived[rank]) {
        answer_text(server, rank, frame->serial, DPB_FAILED,
                    "this rank came to barrier '%s' before: a name is used once a job", key);
        return;
    }
    entry->arrived[rank] = 1;
    entry->n_arrived++;
    uint32_t gone = barrier_gone(server, entry);
    if (entry->n_arrived == server->n_ranks) {
        answer(server, rank, frame->serial, DPB_OK, NULL, 0);
        answer_waiters(server, DPB_STORE_BARRIER, entry);
    } else if (gone != UINT32_MAX) {
        answer_text(server, rank, frame->serial, DPB_FAILED,
                    "barrier '%s': rank %u left the job before it came", key, gone);
    } else {
        wait_for(server, rank, frame, key);
    }
}

static void handle(struct dpb_store_server *server, uint32_t rank, const struct dpb_frame *frame,
                   const char *raw_key, const void *value)
{
    struct connection *connection = &server->connections[rank];
    char key[DPB_STORE_KEY_BYTES + 1];
    memcpy(key, raw_key, frame->key_bytes);
    key[frame->key_bytes] = '\0';
    bool named = frame->key_bytes > 0 && strlen(key) == frame->key_bytes;
    if (frame->op == DPB_STORE_BYE)
        connection->bye = true;
    else if (frame->op == DPB_STORE_ANSWER)
        set_fault(connection, "an answer where requests are expected");
    else if (frame->op > DPB_STORE_TAKE)
        set_fault(connection, "an operation that is not one of ranks");
    else if (frame->op == DPB_STORE_POST && server->on_post)
        server->on_post(server->on_post_context, rank, value, frame->value_bytes);
    else if (frame->op == DPB_STORE_POST)
        set_fault(connection, "a post in a job of one launcher");
    else if (!named)
        set_fault(connection, "a key that is empty or has a NUL in it");
    else if (frame->op == DPB_STORE_PUT)
        request_put(server, rank, frame, key, value);
    else if (frame->op == DPB_STORE_GIVE)
        request_give(server, rank, frame, key, value);
    else if (frame->value_bytes > 0)
        set_fault(connection, "a value in a request that takes none");
    else if (frame->op == DPB_STORE_GET)
        request_get(server, rank, frame, key);
    else if (frame->op == DPB_STORE_TAKE)
        request_take(server, rank, frame, key);
    else
        request_barrier(server, rank, frame, key);
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
            set_fault(connection, why);
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
        connection_close(connection);
        return;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !take_input(server, rank))
        connection_close(connection);
}

/* ---- deadlines and ends -------------------------------------------------------------------- */

static void expire_waiter(struct dpb_store_server *server, const struct waiter *waiter)
{
    static const char *const missing[] = {[DPB_STORE_GET] = "no rank has put key '",
                                          [DPB_STORE_BARRIER] = "barrier '",
                                          [DPB_STORE_GIVE] = "no rank has taken key '",
                                          [DPB_STORE_TAKE] = "no rank has given key '"};
    char text[TEXT_BYTES];
    enum { LISTED = 8 };
    uint32_t first = UINT32_MAX, n_missing = 0;
    size_t used = (size_t)snprintf(text, sizeof text, "%s%s'%s", missing[waiter->op], waiter->key,
                                   waiter->op == DPB_STORE_BARRIER ? ": not there yet: rank" : "");
    forget(server, waiter);
    for (uint32_t rank = 0; waiter->op == DPB_STORE_BARRIER && rank < server->n_ranks; rank++) {
        if (entry_find(server, waiter->key, BARRIER)->arrived[rank])
            continue;
        if (++n_missing <= LISTED)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s %u",
                                     n_missing == 1 ? "" : ",", rank);
        if (first == UINT32_MAX)
            first = rank;
    }
    if (n_missing > LISTED)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, " and %u more", n_missing - LISTED);
    answer_about(server, waiter->rank, waiter->serial, DPB_TIMEOUT, first, text, (uint32_t)used);
}

int64_t dpb_store_server_expire(struct dpb_store_server *server, int64_t now_ns)
{
    int64_t nearest = INT64_MAX;
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].deadline_ns <= now_ns) {
            struct waiter waiter = take_waiter(server, i);
            expire_waiter(server, &waiter);
        } else if (server->waiters[i].deadline_ns < nearest) {
            nearest = server->waiters[i].deadline_ns;
        }
    }
    return nearest;
}

/* Who takes without a deadline answers others beside its work, and says nothing of that. */
bool dpb_store_server_waits(const struct dpb_store_server *server, uint32_t rank)
{
    for (size_t i = 0; i < server->n_waiters; i++) {
        const struct waiter *waiter = &server->waiters[i];
        if (waiter->rank == rank &&
            !(waiter->op == DPB_STORE_TAKE && waiter->deadline_ns == INT64_MAX))
            return true;
    }
    return false;
}

void dpb_store_server_delay(struct dpb_store_server *server, int64_t by_ns)
{
    for (size_t i = 0; i < server->n_waiters; i++)
        if (server->waiters[i].deadline_ns < INT64_MAX - by_ns)
            server->waiters[i].deadline_ns += by_ns;
}

void dpb_store_server_detach(struct dpb_store_server *server, uint32_t rank)
{
    struct connection *connection = &server->connections[rank];
    take_input(server, rank);
    connection_close(connection);
    connection->gone = true;
    for (size_t i = server->n_waiters; i-- > 0;) {
        const struct waiter *waiter = &server->waiters[i];
        bool own = waiter->rank == rank;
        bool hopeless = waiter->op == DPB_STORE_BARRIER &&
                        !entry_find(server, waiter->key, BARRIER)->arrived[rank];
        if (!own && !hopeless)
            continue;
        struct waiter taken = take_waiter(server, i);
        forget(server, &taken);
        if (!own)
            answer_text(server, taken.rank, taken.serial, DPB_FAILED,
                        "barrier '%s': rank %u left the job before it came", taken.key, rank);
    }
}
