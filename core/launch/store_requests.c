/*
 * store_requests.c - the requests of ranks to the job's store: see store_server.h. A request that
 * cannot be answered yet waits in a list.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "launch/store_parts.h"

enum { TEXT_BYTES = 512, MAX_OUTPUT = 64 << 20 };

static const char no_memory[] = "the launcher is out of memory";
/* Answers a rank at a barrier, as DPB_PEER: the rank that left reports the cause. */
static const char left_before[] = "barrier '%s': rank %u left the job before it came";

/* ---- connections ---------------------------------------------------------------------------- */

void store_close(struct store_connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
    dpb_buffer_free(&connection->in);
    dpb_buffer_free(&connection->out);
}

void store_fault(struct store_connection *connection, const char *why)
{
    if (connection->fault[0] == '\0')
        snprintf(connection->fault, sizeof connection->fault, "%s", why);
}

/* ---- answers and waiters -------------------------------------------------------------------- */

static void answer_about(struct dpb_store_server *server, uint32_t rank, uint32_t serial,
                         dpb_status status, uint32_t peer, const void *value, uint32_t bytes)
{
    struct store_connection *connection = &server->connections[rank];
    struct dpb_frame frame = {.magic = DPB_STORE_MAGIC,
                              .op = DPB_STORE_ANSWER,
                              .serial = serial,
                              .value_bytes = bytes,
                              .status = (int32_t)status,
                              .peer = peer};
    if (connection->fd < 0)
        return;
    if (!dpb_buffer_add_frame(&connection->out, &frame, NULL, value))
        store_fault(connection, "the launcher is out of memory for its answers");
    else if (connection->out.end - connection->out.begin > MAX_OUTPUT)
        store_fault(connection, "it asks for values and does not read them");
    else if (dpb_buffer_send(&connection->out, connection->fd) < 0 && errno != EAGAIN)
        store_close(connection); /* it has died; the launcher finds its end */
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

static void accept(const struct request *request, const struct store_entry *entry)
{
    answer(request->server, request->rank, request->frame->serial, DPB_OK,
           entry ? entry->value : NULL, entry ? entry->bytes : 0);
}

DPB_PRINTF(3, 4)
static void refuse(const struct request *request, dpb_status status, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    answer(request->server, request->rank, request->frame->serial, status, text,
           (uint32_t)strlen(text));
}

static void wait_for(const struct request *request)
{
    struct dpb_store_server *server = request->server;
    const struct dpb_frame *frame = request->frame;
    struct store_connection *connection = &server->connections[request->rank];
    if (connection->n_waiting == DPB_STORE_WAITING) {
        store_fault(connection, "more than 64 unanswered requests");
        return;
    }
    if (server->n_waiters == server->capacity) {
        size_t capacity = server->capacity != 0 ? 2 * server->capacity : 64;
        struct store_waiter *waiters = realloc(server->waiters, capacity * sizeof *waiters);
        if (!waiters) {
            refuse(request, DPB_NO_MEMORY, "%s", no_memory);
            return;
        }
        server->waiters = waiters;
        server->capacity = capacity;
    }
    struct store_waiter *waiter = &server->waiters[server->n_waiters++];
    int64_t now = dpb_now_ns();
    *waiter = (struct store_waiter){.op = frame->op,
                                    .rank = request->rank,
                                    .serial = frame->serial,
                                    .from = frame->op == DPB_STORE_GET ? frame->peer : UINT32_MAX};
    waiter->deadline_ns = frame->timeout_ns < 0 || frame->timeout_ns > INT64_MAX - now
                              ? INT64_MAX
                              : now + frame->timeout_ns;
    memcpy(waiter->key, request->key, strlen(request->key) + 1);
    connection->n_waiting++;
}

/* Takes the i-th waiter out; the last one takes its place. */
static struct store_waiter take_waiter(struct dpb_store_server *server, size_t i)
{
    struct store_waiter waiter = server->waiters[i];
    server->waiters[i] = server->waiters[--server->n_waiters];
    server->connections[waiter.rank].n_waiting--;
    return waiter;
}

static void answer_waiters(struct dpb_store_server *server, uint16_t op,
                           const struct store_entry *entry)
{
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].op != op || strcmp(server->waiters[i].key, entry->key) != 0)
            continue;
        struct store_waiter waiter = take_waiter(server, i);
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
static struct store_entry *keep(const struct request *request, enum store_entry_kind kind)
{
    if (!has_space(request))
        return NULL;
    struct store_entry *entry = store_entry_create(request->server, request->key, kind,
                                                   request->value, request->frame->value_bytes);
    if (entry)
        request->server->total_bytes += request->frame->value_bytes;
    else
        refuse(request, DPB_NO_MEMORY, "%s", no_memory);
    return entry;
}

static void request_put(const struct request *request)
{
    struct store_entry *entry = store_entry_find(request->server, request->key, STORE_VALUE);
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
    const struct store_entry *entry = store_entry_find(request->server, request->key, STORE_VALUE);
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
    if (store_entry_find(server, request->key, STORE_GIFT)) {
        refuse(request, DPB_FAILED, "key '%s' is given already, and was not taken yet",
               request->key);
    } else if (taker < server->n_waiters) {
        struct store_waiter waiter = take_waiter(server, taker);
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
    struct store_entry *gift = store_entry_find(server, request->key, STORE_GIFT);
    if (!gift) {
        wait_for(request);
        return;
    }
    size_t giver = find_waiter(server, DPB_STORE_GIVE, request->key);
    accept(request, gift);
    store_entry_remove(server, gift);
    if (giver < server->n_waiters) {
        struct store_waiter waiter = take_waiter(server, giver);
        answer(server, waiter.rank, waiter.serial, DPB_OK, NULL, 0);
    }
}

/* The first rank that left the job without coming to the barrier, UINT32_MAX: none. */
static uint32_t barrier_gone(const struct dpb_store_server *server, const struct store_entry *entry)
{
    for (uint32_t rank = 0; rank < entry->n_coming; rank++)
        if (!entry->arrived[rank] && server->connections[rank].gone)
            return rank;
    return UINT32_MAX;
}

/* Whether the barrier waits for the rank. */
static bool is_missing(const struct dpb_store_server *server, const struct store_entry *entry,
                       uint32_t rank)
{
    return !entry->arrived[rank] && !server->connections[rank].lost;
}

static bool all_arrived(const struct dpb_store_server *server, const struct store_entry *entry)
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
    struct store_entry *entry = store_entry_find(server, request->key, STORE_BARRIER);
    if (!entry) {
        entry = store_entry_create(server, request->key, STORE_BARRIER, NULL, 0);
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

void store_handle(struct dpb_store_server *server, uint32_t rank, const struct dpb_frame *frame,
                  const char *raw_key, const void *value)
{
    struct store_connection *connection = &server->connections[rank];
    char key[DPB_STORE_KEY_BYTES + 1];
    memcpy(key, raw_key, frame->key_bytes);
    key[frame->key_bytes] = '\0';
    const struct request request = {server, rank, frame, key, value};
    bool named = frame->key_bytes > 0 && strlen(key) == frame->key_bytes;
    if (frame->op == DPB_STORE_BYE)
        connection->bye = true;
    else if (frame->op == DPB_STORE_ANSWER)
        store_fault(connection, "an answer where requests are expected");
    else if (frame->op > DPB_STORE_TAKE)
        store_fault(connection, "an operation that is not one of ranks");
    else if (frame->op == DPB_STORE_POST && server->on_post)
        server->on_post(server->on_post_context, rank, value, frame->value_bytes);
    else if (frame->op == DPB_STORE_POST)
        store_fault(connection, "a post in a job of one launcher");
    else if (!named)
        store_fault(connection, "a key that is empty or has a NUL in it");
    else if (frame->op == DPB_STORE_PUT)
        request_put(&request);
    else if (frame->op == DPB_STORE_GIVE)
        request_give(&request);
    else if (frame->value_bytes > 0)
        store_fault(connection, "a value in a request that takes none");
    else if (frame->op == DPB_STORE_GET)
        request_get(&request);
    else if (frame->op == DPB_STORE_TAKE)
        request_take(&request);
    else
        request_barrier(&request);
}

/* ---- deadlines and ends -------------------------------------------------------------------- */

/* Removes the gift of a request that is over, unless the request was answered in order. */
static void forget(struct dpb_store_server *server, const struct store_waiter *waiter)
{
    struct store_entry *gift =
        waiter->op == DPB_STORE_GIVE ? store_entry_find(server, waiter->key, STORE_GIFT) : NULL;
    if (gift)
        store_entry_remove(server, gift);
}

/* The barrier where the waiter waits; NULL: it waits for something else. */
static const struct store_entry *barrier_of(struct dpb_store_server *server,
                                            const struct store_waiter *waiter)
{
    return waiter->op == DPB_STORE_BARRIER ? store_entry_find(server, waiter->key, STORE_BARRIER)
                                           : NULL;
}

static void expire_waiter(struct dpb_store_server *server, const struct store_waiter *waiter)
{
    static const char *const missing[] = {[DPB_STORE_GET] = "no rank has put key '",
                                          [DPB_STORE_BARRIER] = "barrier '",
                                          [DPB_STORE_GIVE] = "no rank has taken key '",
                                          [DPB_STORE_TAKE] = "no rank has given key '"};
    enum { LISTED = 8 };
    char array[TEXT_BYTES];
    struct dpb_text text = dpb_text_in(array, sizeof array);
    uint32_t first = UINT32_MAX, n_missing = 0;
    dpb_text_add(&text, "%s%s'%s", missing[waiter->op], waiter->key,
                 waiter->op == DPB_STORE_BARRIER ? ": not there yet: rank" : "");
    forget(server, waiter);
    const struct store_entry *barrier = barrier_of(server, waiter);
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

int64_t dpb_store_server_expire(struct dpb_store_server *server, int64_t now_ns)
{
    int64_t nearest = INT64_MAX;
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].deadline_ns <= now_ns) {
            struct store_waiter waiter = take_waiter(server, i);
            expire_waiter(server, &waiter);
        } else if (server->waiters[i].deadline_ns < nearest) {
            nearest = server->waiters[i].deadline_ns;
        }
    }
    return nearest;
}

/* A rank that takes without a deadline answers others beside its work, and reports no wait. */
bool dpb_store_server_waits(const struct dpb_store_server *server, uint32_t rank)
{
    for (size_t i = 0; i < server->n_waiters; i++) {
        const struct store_waiter *waiter = &server->waiters[i];
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

void store_drop(struct dpb_store_server *server, uint32_t rank)
{
    char text[TEXT_BYTES];
    for (size_t i = server->n_waiters; i-- > 0;) {
        const struct store_waiter *waiter = &server->waiters[i];
        const struct store_entry *barrier = barrier_of(server, waiter);
        bool own = waiter->rank == rank;
        bool hopeless = barrier && rank < barrier->n_coming && !barrier->arrived[rank];
        if (!own && !hopeless)
            continue;
        struct store_waiter taken = take_waiter(server, i);
        forget(server, &taken);
        if (own)
            continue;
        snprintf(text, sizeof text, left_before, taken.key, rank);
        answer(server, taken.rank, taken.serial, DPB_PEER, text, (uint32_t)strlen(text));
    }
}

void store_lose(struct dpb_store_server *server, uint32_t rank)
{
    for (size_t i = server->n_waiters; i-- > 0;) {
        if (server->waiters[i].rank != rank && server->waiters[i].from != rank)
            continue;
        struct store_waiter taken = take_waiter(server, i);
        forget(server, &taken);
        if (taken.rank != rank)
            answer(server, taken.rank, taken.serial, DPB_PEER, NULL, 0);
    }
    for (size_t i = 0; i < server->n_waiters;) {
        const struct store_entry *barrier = barrier_of(server, &server->waiters[i]);
        const bool is_over = barrier && all_arrived(server, barrier);
        if (is_over)
            answer_waiters(server, DPB_STORE_BARRIER, barrier);
        i = is_over ? 0 : i + 1;
    }
}
