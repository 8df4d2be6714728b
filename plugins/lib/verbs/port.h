/*
 * port.h - the port of an RDMA device that a rank uses, and the address (GID) that it has there.
 *
 * Devices are told apart by name or by the address of their network interface, never by number, and
 * GIDs by address and type: their order is another one on every machine and after every reboot.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_PORT_H
#define DPB_PLUGINS_LIB_VERBS_PORT_H

#include <infiniband/verbs.h>

#include "dpbench/host.h"

enum { PORT_NAME_BYTES = 80, PORT_ADDRESS_BYTES = 64 };

struct port {
    struct ibv_context *context; /* NULL: not open */
    uint8_t number;              /* of the device's ports, from 1 */
    struct ibv_port_attr attributes;
    struct ibv_gid_entry gid;         /* .gid_index is its place in the port's table */
    char name[PORT_NAME_BYTES];       /* "rxe1", or "mlx5_0:2" where it is not port 1 */
    char address[PORT_ADDRESS_BYTES]; /* the GID as text; an IPv4 address where it maps one */
};

/* What to look for. Both lists have commas between; the ranks of a machine take turns. */
struct port_wanted {
    const char *devices;    /* NAME or NAME:PORT; "": any */
    const char *interfaces; /* as in lib/interface.h; "": any */
    int64_t gid_index;      /* -1: the GID of the interface's address, RoCE v2 before v1 */
    uint32_t local_rank;
};

/* Opens the one port that fits and is up; refuses by name, listing what there is, where none or
 * several do. Blocks for system calls only. @owned: port_close. */
dpb_status port_open(const struct dpb_host *host, const struct port_wanted *wanted,
                     struct port *port);
void port_close(struct port *port); /* a zeroed one, too */

bool port_is_ethernet(const struct port *port); /* RoCE; else InfiniBand, which routes by LIDs */

/* What this machine lacks for any rank to use RDMA, with what to do about it; false: nothing. */
bool port_missing(char *text, size_t bytes);

#endif
