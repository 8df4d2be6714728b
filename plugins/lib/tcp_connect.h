/*
 * tcp_connect.h - the TCP connections between a rank and those that it works with: dialled by one
 * of the two, each proven to belong to the job before anything else that comes over it is looked
 * at.
 *
 * Each rank listens at the address of comm.interface and tells it by the store. Whoever else
 * finds the port has a few seconds to prove that he knows the secret, beside which nothing waits:
 * he is dropped, and it is logged.
 */
#ifndef DPB_PLUGINS_LIB_TCP_CONNECT_H
#define DPB_PLUGINS_LIB_TCP_CONNECT_H

#include <stddef.h>

#include "dpbench/option.h"
#include "lib/tcp_wire.h"

enum { TCP_MOST_STREAMS = 16, TCP_SHAPE_BYTES = 160 };

/* Options that every strategy over TCP has: a member of its options. */
struct tcp_options {
    int64_t streams;
    const char *interface;
    int64_t port;
};

/* Their rows, for a struct whose member `tcp` they are. */
#define TCP_OPTION_ROWS(STRUCT)                                                          \
    {"streams",                                                                          \
     DPB_OPT_INT,                                                                        \
     NULL,                                                                               \
     "1",                                                                                \
     1,                                                                                  \
     TCP_MOST_STREAMS,                                                                   \
     NULL,                                                                               \
     offsetof(STRUCT, tcp.streams),                                                      \
     "connections to each neighbour"},                                                   \
        {"interface",                                                                    \
         DPB_OPT_STRING,                                                                 \
         NULL,                                                                           \
         "",                                                                             \
         0,                                                                              \
         0,                                                                              \
         NULL,                                                                           \
         offsetof(STRUCT, tcp.interface),                                                \
         "network interface: a name, an address or a network like 10.0.0.0/8"},          \
    {                                                                                    \
        "port", DPB_OPT_INT, NULL, "0", 0, UINT16_MAX, NULL, offsetof(STRUCT, tcp.port), \
            "rank r listens at port + r; 0: at any free port"                            \
    }

struct tcp_args {
    const struct dpb_host *host;
    const char *interface; /* comm.interface: as interface.h says */
    int64_t port;          /* comm.port: 0: any free one; else rank r listens at port + r */
    uint32_t n_streams;
    bool one_machine;
};

/* The other end of n_streams connections. A rank may be one's peer twice: dialled, and dialling. */
struct tcp_peer {
    uint32_t rank;
    bool dialled;              /* by this rank; else it dials */
    int fds[TCP_MOST_STREAMS]; /* set by tcp_connect: non-blocking, @owned by the caller */
};

/* What connects. Every peer's own description has this rank among its peers, the other way
 * round. */
struct tcp_party {
    const char *name;  /* once a job: prefix of its keys in the store */
    const char *what;  /* in messages: "the ring" */
    const char *shape; /* what must be equal at both ends of a connection, as said in messages */
    uint32_t self;     /* rank */
    uint32_t keeper;   /* the rank that makes the party's secret; it connects, too */
    struct tcp_peer *peers;
    uint32_t n_peers;
};

/* Collective over the party; blocks up to run.timeout_s. No socket is left when this fails. */
dpb_status tcp_connect(const struct tcp_args *args, const struct tcp_party *party);

#endif
