/*
 * port.h - the port of an RDMA device that a rank uses, and the rank's address (GID) at the port.
 *
 * A device is found by name or by the address of its network interface, never by number. A GID is
 * found by address and type. Their order differs between machines, and may change at a reboot.
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
    char name[PORT_NAME_BYTES];       /* "rxe1", or "mlx5_0:2" if it is not port 1 */
    char address[PORT_ADDRESS_BYTES]; /* the GID as text; an IPv4 address if the GID maps one */
};

/* The wanted port. Commas separate a list's entries, which the ranks of a machine take in turn. */
struct port_wanted {
    const char *devices;    /* NAME or NAME:PORT; "": any */
    const char *interfaces; /* as in interface.h; "": any */
    int64_t gid_index;      /* -1: the GID of the interface's address, RoCE v2 before v1 */
    uint32_t local_rank;
};

/* Opens the one port that fits and is up. If none or several fit, refuses and lists the ports.
 * Blocks for system calls only. @owned: port_close. */
dpb_status port_open(const struct dpb_host *host, const struct port_wanted *wanted,
                     struct port *port);
void port_close(struct port *port); /* accepts a zeroed port */

bool port_is_ethernet(const struct port *port); /* RoCE; else InfiniBand, which routes by LIDs */

/* Writes why no rank can use RDMA on this machine, and the remedy; false: nothing is missing. */
bool port_missing(char *text, size_t bytes);

#endif
