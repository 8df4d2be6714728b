/*
 * connect.h - TCP connections between ranks, which core makes for a strategy (host->connect). Both
 * ends prove that they belong to the job.
 *
 * For strategies that open connections of their own. A first plugin does not need this header.
 */
#ifndef DPBENCH_CONNECT_H
#define DPBENCH_CONNECT_H

#include "types.h"

enum { DPB_STREAMS = 16, DPB_SHAPE_BYTES = 160 };
struct dpb_store_ops; /* host.h */
struct sockaddr;

/* The other end of n_streams connections. A rank may be a peer twice: dialled, and dialling. */
struct dpb_connect_peer {
    uint32_t rank;
    bool dialled;         /* by this rank; else it dials */
    int fds[DPB_STREAMS]; /* set by `connect`: non-blocking, @owned by the caller */
};

/* Every peer's own arguments have this rank among the peers, the other way round. */
struct dpb_connect_args {
    const char *name;      /* once a job, up to 63 bytes: prefix of keys in the store */
    const char *what;      /* in messages: "the ring" */
    const char *shape;     /* must be equal at both ends of a connection; shown in messages */
    const char *interface; /* in messages: the interface of `address` */
    const struct sockaddr *address; /* where to listen and to dial from; port 0: any free one */
    uint32_t address_bytes;
    uint32_t rank;
    uint32_t keeper; /* the rank that makes the secret; it connects, too, with peers or without */
    uint32_t n_streams;
    struct dpb_connect_peer *peers;
    uint32_t n_peers;
    const struct dpb_store_ops *store; /* where the ranks put their addresses */
};

#endif
