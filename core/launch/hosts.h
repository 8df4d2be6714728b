/*
 * hosts.h - the hosts of `dpbench hosts`: network namespaces of this machine. The local launcher
 * starts the ranks of machine m (comm.hosts) on host m + 1.
 *
 * DPBENCH_HOSTS has the process that holds each host's namespace, as in 812:813:814. Without that
 * variable there are no hosts, and ranks stay in the launcher's namespace.
 */
#ifndef DPB_CORE_LAUNCH_HOSTS_H
#define DPB_CORE_LAUNCH_HOSTS_H

#include "base/config.h"
#include "base/settings.h"
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

/* Adds the settings that follow from the hosts, unless they are given. comm.hosts: the workers in
 * order, as many on each host, or one on each of the first hosts; server s on host s % n.
 * comm.interface, if the strategy has one (`interface`). *n: the hosts; 0: none, as in ranks, which
 * get the settings from their launcher. */
dpb_status dpb_hosts_adopt(const struct dpb_run_settings *run, bool interface,
                           struct dpb_config *config, uint32_t *n);

#endif
