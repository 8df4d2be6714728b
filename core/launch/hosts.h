/*
 * hosts.h - the hosts of `dpbench hosts`: network namespaces of this machine. The local launcher
 * starts the ranks of machine m (comm.hosts) on host m + 1.
 *
 * DPBENCH_HOSTS has the process that holds each host's namespace, as in 812:813:814. Without that
 * variable there are no hosts, and ranks stay in the launcher's namespace.
 */
#ifndef DPB_CORE_LAUNCH_HOSTS_H
#define DPB_CORE_LAUNCH_HOSTS_H

#include "dpbench/host.h"

/* The addresses of the hosts: host h has the h-th, on eth0. */
#define DPB_HOSTS_PREFIX "10.9.0."
#define DPB_HOSTS_ADDRESSES DPB_HOSTS_PREFIX "0/24"
enum { DPB_HOSTS_MOST = 254 };

#define DPB_HOSTS_VARIABLE "DPBENCH_HOSTS"
/* The network as JSON, for world.hosts of a result: docs/results.md. */
#define DPB_HOSTS_NETWORK_VARIABLE "DPBENCH_HOSTS_NETWORK"
#define DPB_HOSTS_ORIGIN "hosts" /* of settings that follow from the hosts */

struct dpb_hosts {
    uint32_t n;              /* 0: there are none */
    int fds[DPB_HOSTS_MOST]; /* of their namespaces */
};

/* Not in a rank, whose namespace is one of theirs. DPB_USAGE: a host is gone, or the variable is
 * malformed. @owned: dpb_hosts_close. */
dpb_status dpb_hosts_open(struct dpb_hosts *hosts);
void dpb_hosts_close(struct dpb_hosts *hosts);

/* comm.hosts of a job: the workers in order, as many on each of n hosts; server s on host s % n.
 * DPB_UNSUPPORTED: the text is longer than `capacity`. */
dpb_status dpb_hosts_spread(uint32_t n, uint32_t n_workers, uint32_t n_servers, char *text,
                            size_t capacity);

#endif
