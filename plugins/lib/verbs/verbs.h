/*
 * verbs.h - the transport of a ring (lib/transport.h) over RDMA.
 *
 * A chunk is two requests on the connection to the next member: its label, written into the next
 * place of a ring of labels there, and its payload, written to where it belongs (the peer's arena,
 * or a slot of its inbox) with the chunk's number as immediate data. Requests of a connection take
 * effect in order, so a receiver that sees the number has both, and no copy was made on the way.
 *
 * The receiver gives back places and slots by credits: messages without payload whose immediate
 * data are the slot that is free again, if any, and how many chunks were taken since the last one.
 * Nothing is sent that there is no place for, so no receiver is ever found not ready.
 *
 * InfiniBand Architecture Specification, volume 1, release 1.3: 9.7 (ordering, acknowledgement),
 * 10.7 (completions), 11.6.2 (their errors); annex A17 (RoCE v2).
 */
#ifndef DPB_PLUGINS_LIB_VERBS_VERBS_H
#define DPB_PLUGINS_LIB_VERBS_VERBS_H

#include <stddef.h>

#include "dpbench/option.h"
#include "lib/transport.h"

/* Options that every strategy over RDMA has: a member of its options. */
struct verbs_options {
    const char *device, *interface; /* as in port.h */
    int64_t gid_index, ack_timeout;
    bool poll;
};

/* Their rows, but that of the interface, for a struct whose member `verbs` they are. */
#define VERBS_OPTION_ROWS(STRUCT)                                                                  \
    {"device",                                                                                     \
     DPB_OPT_STRING,                                                                               \
     NULL,                                                                                         \
     "",                                                                                           \
     0,                                                                                            \
     0,                                                                                            \
     NULL,                                                                                         \
     offsetof(STRUCT, verbs.device),                                                               \
     "RDMA device, NAME or NAME:PORT; the ranks of a machine take the entries of a list (commas "  \
     "between) in turn; empty: the only one that fits"},                                           \
        {"gid_index",                                                                              \
         DPB_OPT_INT,                                                                              \
         NULL,                                                                                     \
         "-1",                                                                                     \
         -1,                                                                                       \
         255,                                                                                      \
         NULL,                                                                                     \
         offsetof(STRUCT, verbs.gid_index),                                                        \
         "place of the own address in the port's table of GIDs; -1: that of the interface's "      \
         "address, RoCE v2 before v1"},                                                            \
        {"poll",                                                                                   \
         DPB_OPT_BOOL,                                                                             \
         NULL,                                                                                     \
         "no",                                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         NULL,                                                                                     \
         offsetof(STRUCT, verbs.poll),                                                             \
         "look for completions all the time that is spent waiting, instead of sleeping until an "  \
         "event"},                                                                                 \
    {                                                                                              \
        "ack_timeout", DPB_OPT_INT, NULL, "17", 1, 31, NULL, offsetof(STRUCT, verbs.ack_timeout),  \
            "after 4.096 us times 2 to this a request that was not acknowledged is sent again, 6 " \
            "times"                                                                                \
    }

/* Opens the port; `connect` does the rest. */
dpb_status verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                        uint32_t local_rank, struct transport **transport);

/* port_missing, for who knows of no ports. */
bool verbs_missing(char *text, size_t bytes);

#endif
