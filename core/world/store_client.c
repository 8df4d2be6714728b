/*
 * store_client.c - a rank's side of the key-value store.
 *
 * Any number of threads may have a request under way. A thread that finds no reader of the socket
 * reads for all; the others sleep until their answer is there or the reader has its own.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "world/futex.h"
#include "world/store.h"
#include "world/world.h"

#define MARGIN_NS \
    INT64_C(5000000000) /* the launcher keeps the deadlines; this is for its own hang */

#define LONGEST_SLICE_NS INT64_C(250000000)

enum { KEY = DPB_STORE_KEY_BYTES + 16 };

/* A request of one thread. */
struct call {
    struct call *next;
    const char *what; /* "get", ...; for messages */
    const char *key;
    uint32_t serial, peer;
    uint32_t from; /* the rank whose loss is an answer; UINT32_MAX: none */
    bool answered;
    dpb_status status;
    void *value; /* where the answer goes; NULL: nowhere */
    size_t capacity, bytes;
    char text[512]; /* why not */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int store_fd = -1;
static pid_t parent; /* the launcher */
static bool reading; /* a thread reads the socket, without the lock; `input` is its own */
static struct dpb_buffer input;
static struct call *calls;
static uint32_t last_serial;
static char scope[32]; /* before every key; "": none */

void dpb_store_connect(int fd)
{
    pthread_mutex_lock(&lock);
    store_fd = fd;
    parent = getppid();
    pthread_mutex_unlock(&lock);
}

/* A library or a plugin may close what is not its own: no peer did that. */
static dpb_status lost(int error)
{
    if (error == EBADF || error == ENOTSOCK)
        return dpb_fail(DPB_FAILED,
                        "descriptor %d, this process's socket to the job's store, was closed by a "
                        "plugin or a library of this process",
                        store_fd);
    return getppid() == parent
               ? dpb_fail(DPB_PEER,
                          "this process has lost its socket to the job's store (%s); the "
                          "launcher still runs",
                          error ? strerror(error) : "it was closed")
               : dpb_fail(DPB_PEER, "the launcher has ended, or ends the job");
}

/* Sends all of a frame; the launcher always reads, so this waits for no other rank. */
static dpb_status send_frame(const struct dpb_frame *frame, const char *key, const void *value)
{
    struct dpb_buffer output = {0};
    dpb_status status = DPB_OK;
    if (!dpb_buffer_add_frame(&output, frame, key, value))
        return dpb_fail(DPB_NO_MEMORY, "out of memory for a request to the store");
    const struct dpb_deadline deadline = dpb_deadline_in(MARGIN_NS);
    while (status == DPB_OK && output.end > output.begin) {
        struct pollfd ready = {.fd = store_fd, .events = POLLOUT};
        if (dpb_buffer_send(&output, store_fd) >= 0)
            continue;
        if (errno != EAGAIN)
            status = lost(errno);
        else if (dpb_deadline_passed(deadline))
            status =
                dpb_fail(DPB_TIMEOUT, "the launcher does not read requests to the store; is it "
                                      "stopped?");
        else
            poll(&ready, 1, (int)(DPB_WAIT_SLICE_NS / 1000000));
    }
    dpb_buffer_free(&output);
    return status;
}

dpb_status dpb_store_post(const void *value, size_t bytes)
{
    const struct dpb_frame frame = {
        .magic = DPB_STORE_MAGIC, .op = DPB_STORE_POST, .value_bytes = (uint32_t)bytes};
    pthread_mutex_lock(&lock);
    dpb_status status = store_fd < 0 ? dpb_fail(DPB_FAILED, "a post outside of a job")
                                     : send_frame(&frame, NULL, value);
    pthread_mutex_unlock(&lock);
    return status;
}

void dpb_store_disconnect(void)
{
    struct dpb_frame frame = {.magic = DPB_STORE_MAGIC, .op = DPB_STORE_BYE};
    pthread_mutex_lock(&lock);
    if (store_fd >= 0) {
        struct dpb_buffer output = {0};
        if (dpb_buffer_add_frame(&output, &frame, NULL, NULL))
            dpb_buffer_send(&output, store_fd);
        dpb_buffer_free(&output);
        close(store_fd);
        store_fd = -1;
        dpb_buffer_free(&input);
    }
    pthread_mutex_unlock(&lock);
}

/* Gives an answer to the call that waits for it; one whose caller has given up is dropped. */
static void dispatch(const struct dpb_frame *frame, const void *value)
{
    struct call *call = calls;
    while (call && call->serial != frame->serial)
        call = call->next;
    if (!call)
        return;
    call->status = (dpb_status)frame->status;
    call->peer = frame->peer;
    call->bytes = frame->value_bytes;
    if (call->status != DPB_OK)
        snprintf(call->text, sizeof call->text, "%.*s", (int)frame->value_bytes,
                 (const char *)value);
    else if (call->value && frame->value_bytes <= call->capacity)
        memcpy(call->value, value, frame->value_bytes);
    call->answered = true;
}

/* The reader's turn: waits for input until `until_ns` at the most and hands out the answers. Called
 * with the lock, which is released meanwhile. */
static dpb_status read_turn(int64_t until_ns)
{
    reading = true;
    pthread_mutex_unlock(&lock);
    struct pollfd ready = {.fd = store_fd, .events = POLLIN};
    int64_t wait_ns = until_ns - dpb_now_ns();
    int n_ready = poll(&ready, 1, wait_ns > 0 ? (int)((wait_ns + 999999) / 1000000) : 0);
    ssize_t n = n_ready == 0 ? -1 : dpb_buffer_receive(&input, store_fd);
    int error = n_ready == 0 ? EAGAIN : errno;
    pthread_mutex_lock(&lock);
    reading = false;
    struct dpb_frame frame;
    const char *key;
    const void *value;
    char why[128];
    dpb_frame_state state;
    while ((state = dpb_buffer_frame(&input, &frame, &key, &value, why)) == DPB_FRAME_WHOLE) {
        dispatch(&frame, value);
        dpb_buffer_drop_frame(&input, &frame);
    }
    pthread_cond_broadcast(&changed);
    if (state == DPB_FRAME_MALFORMED)
        return dpb_fail(DPB_FAILED, "malformed answer of the launcher: %s", why);
    if (n == 0 || (n < 0 && error != EAGAIN))
        return lost(n == 0 ? 0 : error);
    return DPB_OK;
}

static void sleep_turn(int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
}

/* Many ranks wait for the last one as a job starts: the longer a wait, the rarer the looks. */
static int64_t slice_of(int64_t waited_ns)
{
    const int64_t slice_ns = waited_ns / 4;
    if (slice_ns < DPB_WAIT_SLICE_NS)
        return DPB_WAIT_SLICE_NS;
    return slice_ns < LONGEST_SLICE_NS ? slice_ns : LONGEST_SLICE_NS;
}

/* Until the call is answered. Called with the lock. */
static dpb_status wait_answer(struct call *call, int64_t timeout_ns)
{
    const int64_t begin = dpb_ran_ns();
    dpb_status status = DPB_OK;
    while (status == DPB_OK && !call->answered) {
        int64_t now = dpb_now_ns(), waited = dpb_ran_ns() - begin;
        if (dpb_world.board && dpb_board_job_ended(dpb_world.board))
            return dpb_fail(DPB_PEER, "stopped waiting for %s '%s': the job is ending", call->what,
                            call->key);
        if (timeout_ns >= 0 && waited - MARGIN_NS > timeout_ns)
            return dpb_fail(DPB_TIMEOUT,
                            "the launcher has not answered %s '%s' for %.1f s; is it stopped?",
                            call->what, call->key, (double)waited * 1e-9);
        if (reading)
            sleep_turn(now + slice_of(waited));
        else
            status = read_turn(now + slice_of(waited));
    }
    return call->answered ? DPB_OK : status;
}

static dpb_status explain(const struct call *call, int64_t timeout_ns)
{
    char peer[512] = "";
    if (call->status != DPB_TIMEOUT)
        return dpb_fail(call->status, "store: %s", call->text);
    if (call->peer != UINT32_MAX)
        dpb_peer_describe(call->peer, peer, sizeof peer);
    return dpb_fail(DPB_TIMEOUT,
                    "waited %.1f s: %s%s%s; if it is only slow, set a larger run.timeout_s",
                    (double)timeout_ns * 1e-9, call->text, peer[0] != '\0' ? "; " : "", peer);
}

void dpb_store_scope(const char *name)
{
    snprintf(scope, sizeof scope, "%s%s", name, name[0] != '\0' ? "/" : "");
}

static dpb_status perform(dpb_store_op op, struct call *call, const void *value, size_t bytes,
                          int64_t timeout)
{
    char key[DPB_STORE_KEY_BYTES + sizeof scope + 1];
    int64_t timeout_ns = dpb_timeout_of(timeout);
    int printed = snprintf(key, sizeof key, "%s%s", scope, call->key);
    size_t key_bytes = call->key[0] != '\0' ? (size_t)printed : 0;
    if (key_bytes == 0 || key_bytes > DPB_STORE_KEY_BYTES)
        return dpb_fail(DPB_FAILED, "store: %s of a key of %zu bytes; it has 1 to %d", call->what,
                        key_bytes, DPB_STORE_KEY_BYTES);
    if (bytes > DPB_STORE_VALUE_BYTES)
        return dpb_fail(DPB_FAILED, "store: value of '%s' has %zu bytes, at most %d are allowed",
                        call->key, bytes, DPB_STORE_VALUE_BYTES);
    call->key = key;
    pthread_mutex_lock(&lock);
    if (store_fd < 0) {
        pthread_mutex_unlock(&lock);
        return dpb_fail(DPB_FAILED, "store: %s '%s' outside of a job", call->what, call->key);
    }
    call->serial = ++last_serial;
    call->next = calls;
    calls = call;
    struct dpb_frame frame = {.magic = DPB_STORE_MAGIC,
                              .op = (uint16_t)op,
                              .key_bytes = (uint16_t)key_bytes,
                              .serial = call->serial,
                              .value_bytes = (uint32_t)bytes,
                              .peer = call->from,
                              .timeout_ns = timeout_ns};
    dpb_status status = send_frame(&frame, call->key, value);
    DPB_THEN(status, wait_answer(call, timeout_ns));
    struct call **link = &calls;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    pthread_mutex_unlock(&lock);
    const bool lost = op == DPB_STORE_GET && call->from != UINT32_MAX && call->status == DPB_PEER;
    if (status == DPB_OK && call->status != DPB_OK && !lost)
        status = explain(call, timeout_ns);
    return status;
}

static dpb_status store_put(const char *key, const void *value, size_t bytes)
{
    struct call call = {.what = "put", .key = key, .from = UINT32_MAX};
    return perform(DPB_STORE_PUT, &call, value, bytes, 0);
}

static dpb_status receive(dpb_store_op op, struct call *call, size_t *bytes, int64_t timeout_ns)
{
    const char *key = call->key;
    call->capacity = *bytes;
    DPB_TRY(perform(op, call, NULL, 0, timeout_ns));
    if (call->status == DPB_OK && call->bytes > call->capacity)
        return dpb_fail(DPB_FAILED, "store: value of '%s' has %zu bytes, there is space for %zu",
                        key, call->bytes, call->capacity);
    *bytes = call->status == DPB_OK ? call->bytes : 0;
    return DPB_OK;
}

static dpb_status store_get(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    struct call call = {.what = "get", .key = key, .value = value, .from = UINT32_MAX};
    return receive(DPB_STORE_GET, &call, bytes, timeout_ns);
}

dpb_status dpb_store_get_from(uint32_t rank, const char *key, void *value, size_t *bytes,
                              bool *lost)
{
    struct call call = {.what = "get", .key = key, .value = value, .from = rank};
    DPB_TRY(receive(DPB_STORE_GET, &call, bytes, 0));
    *lost = call.status == DPB_PEER;
    return DPB_OK;
}

dpb_status dpb_store_from_0(const char *key, void *value, size_t bytes)
{
    return dpb_world.rank == 0 ? store_put(key, value, bytes) : store_get(key, value, &bytes, 0);
}

static void key_of(uint32_t rank, const char *name, char key[KEY])
{
    snprintf(key, KEY, "%s/%u", name, rank);
}

dpb_status dpb_store_put_own(const char *name, const void *value, size_t bytes)
{
    char key[KEY];
    key_of(dpb_world.rank, name, key);
    return store_put(key, value, bytes);
}

dpb_status dpb_store_get_of(uint32_t rank, const char *name, void *value, size_t bytes, bool *lost)
{
    char key[KEY];
    key_of(rank, name, key);
    return lost ? dpb_store_get_from(rank, key, value, &bytes, lost)
                : store_get(key, value, &bytes, 0);
}

dpb_status dpb_store_gather(const char *name, const void *own, size_t bytes, uint32_t n, void *all)
{
    if (dpb_world.rank != 0)
        DPB_TRY(dpb_store_put_own(name, own, bytes));
    else
        memcpy(all, own, bytes);
    for (uint32_t rank = 1; dpb_world.rank == 0 && rank < n; rank++)
        DPB_TRY(dpb_store_get_of(rank, name, (char *)all + rank * bytes, bytes, NULL));
    return dpb_store_from_0(name, all, n * bytes);
}

dpb_status dpb_store_barrier_of(uint32_t n_ranks, const char *name, int64_t timeout_ns)
{
    struct call call = {.what = "barrier", .key = name, .from = n_ranks};
    return perform(DPB_STORE_BARRIER, &call, NULL, 0, timeout_ns);
}

dpb_status dpb_store_barrier(const char *name, int64_t timeout_ns)
{
    return dpb_store_barrier_of(UINT32_MAX, name, timeout_ns);
}

dpb_status dpb_store_give(const char *key, const void *value, size_t bytes, int64_t timeout_ns)
{
    struct call call = {.what = "give", .key = key, .from = UINT32_MAX};
    return perform(DPB_STORE_GIVE, &call, value, bytes, timeout_ns);
}

dpb_status dpb_store_take(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    struct call call = {.what = "take", .key = key, .value = value, .from = UINT32_MAX};
    return receive(DPB_STORE_TAKE, &call, bytes, timeout_ns);
}

static size_t piece_of(size_t bytes)
{
    return bytes < DPB_STORE_VALUE_BYTES ? bytes : DPB_STORE_VALUE_BYTES;
}

dpb_status dpb_store_give_all(const char *key, const void *value, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += piece_of(bytes - at))
        DPB_TRY(dpb_store_give(key, (const char *)value + at, piece_of(bytes - at), 0));
    return DPB_OK;
}

dpb_status dpb_store_take_all(uint32_t rank, const char *key, void *value, size_t bytes,
                              const char *what)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        const size_t expected = n = piece_of(bytes - at);
        DPB_TRY(dpb_store_take(key, (char *)value + at, &n, 0));
        if (n != expected)
            return dpb_fail(DPB_FAILED, "rank %u gave %zu bytes of %s, not %zu", rank, n, what,
                            expected);
    }
    return DPB_OK;
}

const struct dpb_store_ops dpb_store = {
    .put = store_put,
    .get = store_get,
};
