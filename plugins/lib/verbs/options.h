/*
 * options.h - the options of every strategy over RDMA: a device, and how to use the device. This
 * header needs no libibverbs: a build without libibverbs has the options, too.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_OPTIONS_H
#define DPB_PLUGINS_LIB_VERBS_OPTIONS_H

#include <stddef.h>

#include "dpbench/host.h"
#include "dpbench/option.h"

/* A member of the strategy's options. */
struct verbs_options {
    const char *device, *interface; /* as in port.h */
    int64_t gid_index, ack_timeout;
    bool poll;
};

/* The options' rows, except the interface's, for a struct with a member `verbs` of this type.
 * `NEEDS`: what RDMA needs. */
#define VERBS_OPTION_ROWS(STRUCT, NEEDS)                                                           \
    DPB_OPTION_ROW("device", STRING, NULL, "", 0, 0, NULL, STRUCT, verbs.device,                   \
                   "RDMA device, NAME or NAME:PORT; the ranks of a machine take the entries of a " \
                   "list (commas "                                                                 \
                   "between) in turn; empty: the only one that fits",                              \
                   NEEDS),                                                                         \
        DPB_OPTION_ROW(                                                                            \
            "gid_index", INT, NULL, "-1", -1, 255, NULL, STRUCT, verbs.gid_index,                  \
            "index of the own address in the port's table of GIDs; -1: that of the interface's "   \
            "address, RoCE v2 before v1",                                                          \
            NEEDS),                                                                                \
        DPB_OPTION_ROW("poll", BOOL, NULL, "no", 0, 0, NULL, STRUCT, verbs.poll,                   \
                       "look for completions all the time that is spent waiting, instead of "      \
                       "sleeping until an "                                                        \
                       "event",                                                                    \
                       NEEDS),                                                                     \
        DPB_OPTION_ROW(                                                                            \
            "ack_timeout", INT, NULL, "17", 1, 31, NULL, STRUCT, verbs.ack_timeout,                \
            "after 4.096 us times 2 to this a request that was not acknowledged is sent again, 6 " \
            "times",                                                                               \
            NEEDS)

/* Checks comm.transport = verbs, for a strategy with more than one transport. */
static inline dpb_status verbs_check_built(const struct dpb_host *host)
{
#ifdef DPB_HAVE_VERBS
    (void)host;
    return DPB_OK;
#else
    return host->fail(DPB_UNSUPPORTED,
                      "comm.transport = verbs: this build is without libibverbs (`make` says why); "
                      "take tcp");
#endif
}

#endif
