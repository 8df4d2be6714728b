/*
 * interface.h - the network interface that `comm.interface` means on this machine, and its address.
 *
 *     eth0, ib0           an interface: its first IPv4 address, else its first IPv6 address that
 *                         others can reach (not link-local)
 *     10.9.0.0/24, fd00::/64
 *                         the first interface with an address in this network
 *     10.9.0.3            the interface that has this address
 *     eth1,ens4           the first of them that this machine has
 *     (nothing)           if all ranks are on one machine: loopback. Else the only interface
 *                         that is up; if several are up, the interface of the default route
 *
 * An interface that is down or missing, or a default that is ambiguous, is refused. The message
 * lists the interfaces.
 */
#ifndef DPB_PLUGINS_LIB_INTERFACE_H
#define DPB_PLUGINS_LIB_INTERFACE_H

#include <net/if.h>
#include <netinet/in.h>

#include "dpbench/host.h"

struct dpb_interface {
    char name[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN]; /* as text */
    union {
        struct sockaddr any; /* sa_family selects ip4 or ip6; port 0 */
        struct sockaddr_in ip4;
        struct sockaddr_in6 ip6;
    } socket;
    socklen_t socket_bytes;
};

/* Warns if the default route has led this machine and a peer to different networks, although this
 * machine has an interface in the peer's: `peer` is connected. False: it did not. */
bool dpb_interface_warn(const struct dpb_host *host, const struct dpb_interface *own, uint32_t rank,
                        int peer);

/* `wanted` as above; never NULL. Blocks for system calls only. Reports the chosen interface. */
dpb_status dpb_interface_find(const struct dpb_host *host, const char *wanted,
                              struct dpb_interface *found);

#endif
