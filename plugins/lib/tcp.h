/*
 * tcp.h - the TCP transport of a ring (transport.h): `comm.streams` connections a neighbour, chunks
 * dealt out among them. Payload is copied by the kernel alone: sent from the gradient arena,
 * received into an inbox slot or the arena, several frames in one system call. Non-blocking
 * throughout; it blocks in `wait` only, for all connections at once.
 */
#ifndef DPB_PLUGINS_LIB_TCP_H
#define DPB_PLUGINS_LIB_TCP_H

#include "dpbench/option.h"
#include "lib/tcp_connect.h"

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

/* @owned: its `close`. The options stay as they are until then. */
dpb_status tcp_create(const struct dpb_host *host, const struct tcp_options *options,
                      bool one_machine, struct transport **transport);

/* A transport between connections that are there already (tests): to the next member and from the
 * one before. `connect` takes them over. */
dpb_status tcp_create_connected(const struct dpb_host *host, uint32_t n_streams, const int *to_next,
                                const int *from_previous, struct transport **transport);

#endif
