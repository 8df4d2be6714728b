/*
 * tcp_connect.h - the options that every strategy over TCP has, and host->connect at the network
 * interface that the options name.
 */
#ifndef DPB_PLUGINS_LIB_TCP_CONNECT_H
#define DPB_PLUGINS_LIB_TCP_CONNECT_H

#include <stddef.h>

#include "dpbench/host.h"
#include "dpbench/plugin.h"

/* Options that every strategy over TCP has: a member of its options. */
struct dpb_tcp_options {
    int64_t streams;
    const char *interface; /* as in interface.h */
    int64_t port;          /* 0: any free port; else rank r listens at port + r */
};

/* The options' rows, for a struct with a member `tcp` of this type. `NEEDS`: what TCP needs. */
#define DPB_TCP_OPTION_ROWS(STRUCT, NEEDS)                                                   \
    DPB_OPTION_ROW("streams", INT, NULL, "1", 1, DPB_STREAMS, NULL, STRUCT, tcp.streams,     \
                   "TCP connections to each peer", NEEDS),                                   \
        DPB_OPTION_ROW(                                                                      \
            "interface", STRING, NULL, "", 0, 0, NULL, STRUCT, tcp.interface,                \
            "network interface: a name, an address or a network like 10.0.0.0/8; of a list " \
            "the first that the machine has",                                                \
            NULL),                                                                           \
        DPB_OPTION_ROW("port", INT, NULL, "0", 0, UINT16_MAX, NULL, STRUCT, tcp.port,        \
                       "rank r listens at port + r; 0: at any free port", NEEDS)

/* Returns `own` with these options behind its own, for libraries that connect on behalf of a
 * plugin. Once a shared object. NULL after host->fail if a name is taken. */
const struct dpb_plugin *dpb_tcp_add_options(const struct dpb_host *host,
                                             const struct dpb_plugin *own);
/* Returns the options of TCP among the options of such a plugin. */
static inline const struct dpb_tcp_options *dpb_tcp_options_of(const struct dpb_plugin *plugin,
                                                               const void *options)
{
    const char *end = (const char *)options + plugin->options_size;
    return (const struct dpb_tcp_options *)(const void *)(end - sizeof(struct dpb_tcp_options));
}

/* Refuses a port so high that `rank` has none. For the hook `contract`: of the job's last rank. */
dpb_status dpb_tcp_check_port(const struct dpb_host *host, const struct dpb_tcp_options *tcp,
                              uint32_t rank);

/* host->connect at the address that the options name. `args` has all but address and interface. */
dpb_status dpb_tcp_connect(const struct dpb_host *host, const struct dpb_tcp_options *tcp,
                           const struct dpb_connect_args *args);

#endif
