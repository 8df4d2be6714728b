/*
 * way.h - the options of strategy gloo, and the interface or RDMA device by which Gloo sends.
 */
#ifndef DPB_PLUGINS_COMM_GLOO_WAY_H
#define DPB_PLUGINS_COMM_GLOO_WAY_H

#include "dpbench/comm.h"
#include "dpbench/option.h"
#include "lib/tcp/interface.h"

struct gloo_options {
    int transport, algorithm; /* enum shim_transport, enum shim_algorithm */
    const char *interface, *device;
    int64_t gid_index;
};

extern const struct dpb_option way_option_rows[];
extern const char *const way_algorithms[]; /* their names, by enum shim_algorithm */
/* Whether the algorithm is a class of Gloo, which knows its buffers beforehand. */
bool way_is_class(int algorithm);

struct way {
    char text[160];             /* for messages: "tcp, eth0, 10.9.0.1" */
    struct interface interface; /* for SHIM_TCP */
    char device[64];            /* for SHIM_IBVERBS: Gloo opens this device */
    int port, gid_index;
};

/* Refuses options of the other transport, and a transport that this build lacks. */
dpb_status way_check(const struct dpb_host *host, const struct gloo_options *given);
/* The options have passed way_check. */
dpb_status way_find(const struct dpb_host *host, const struct gloo_options *given,
                    const struct dpb_comm_args *args, struct way *way);

#endif
