/*
 * store_parts.h - the job's store: private to store_server.c, store_requests.c and store_entries.c.
 */
#ifndef DPB_CORE_LAUNCH_STORE_PARTS_H
#define DPB_CORE_LAUNCH_STORE_PARTS_H

#include "launch/store_server.h"
#include "world/store.h"

enum { STORE_CHAINS = 4096 };

/* Each kind has names of its own. */
enum store_entry_kind {
    STORE_VALUE,   /* was put */
    STORE_BARRIER, /* at least one rank has come to it */
    STORE_GIFT     /* was given, and not taken yet */
};

struct store_entry {
    struct store_entry *next;
    enum store_entry_kind kind;
    char key[DPB_STORE_KEY_BYTES + 1];
    uint32_t rank; /* the rank that put it */
    void *value;
    uint32_t bytes;
    uint32_t n_coming; /* the barrier is for the ranks below */
    uint8_t *arrived;  /* by rank */
};

struct store_waiter {
    uint16_t op;
    uint32_t rank, serial;
    uint32_t from;       /* get: the rank that is to put; UINT32_MAX: any */
    int64_t deadline_ns; /* INT64_MAX: none */
    char key[DPB_STORE_KEY_BYTES + 1];
};

struct store_connection {
    int fd; /* -1: not yet or no more */
    bool gone, bye, lost;
    struct dpb_buffer in, out;
    uint32_t n_waiting;
    char fault[192];
};

struct dpb_store_server {
    uint32_t n_ranks;
    struct store_connection *connections;
    struct store_entry *chains[STORE_CHAINS];
    size_t total_bytes;
    struct store_waiter *waiters;
    size_t n_waiters, capacity;
    dpb_store_on_post on_post;
    void *on_post_context;
};

/* NULL: there is none. */
struct store_entry *store_entry_find(struct dpb_store_server *server, const char *key,
                                     enum store_entry_kind kind);
/* A copy of the value, not counted in total_bytes yet. NULL: out of memory. */
struct store_entry *store_entry_create(struct dpb_store_server *server, const char *key,
                                       enum store_entry_kind kind, const void *value,
                                       uint32_t bytes);
/* Also from total_bytes. */
void store_entry_remove(struct dpb_store_server *server, struct store_entry *entry);

void store_close(struct store_connection *connection);
/* Keeps the first fault of a connection; the launcher ends the job for it. */
void store_fault(struct store_connection *connection, const char *why);
/* Answers a request, or lets it wait. */
void store_handle(struct dpb_store_server *server, uint32_t rank, const struct dpb_frame *frame,
                  const char *raw_key, const void *value);
/* A rank has gone: drops its requests, and refuses those that wait for it at a barrier. */
void store_drop(struct dpb_store_server *server, uint32_t rank);
/* Drops its requests; no rank waits for it any more. */
void store_lose(struct dpb_store_server *server, uint32_t rank);

#endif
