/*
 * network.h - a network of hosts on this machine: each a network namespace, joined by a switch,
 * links shaped to a rate. Namespaces have no names: processes hold them that die with this one, so
 * nothing is left however it ends. Needs root, and `ip` and `tc` of iproute2.
 *
 *     host 1: eth0 ---- cable1 +--------+        +--------+ cable3 ---- eth0 :host 3
 *     host 2: eth0 ---- cable2 | switch0 uplink0-uplink1 switch1 | cable4 ---- eth0 :host 4
 *
 * Each end of a cable shapes what it sends. The switch's end delays it first.
 */
#ifndef DPB_EMULATE_NETWORK_H
#define DPB_EMULATE_NETWORK_H

#include <sys/types.h>

#include "launch/hosts.h"

/* As asked for; the links' rates are divided by the dilation, their latency is multiplied. */
struct dpb_hosts_plan {
    uint32_t n;
    uint64_t rate;                  /* bytes a second, each way */
    uint64_t rates[DPB_HOSTS_MOST]; /* of each host: `rate`, or that of a slow one */
    uint64_t latency_ns;            /* from a host to another */
    double uplink; /* the sum of a half's rates over the rate between the halves; 0: one switch */
    double dilation;
};

struct dpb_hosts_network {
    const struct dpb_hosts_plan *plan; /* @borrowed */
    pid_t holders[DPB_HOSTS_MOST + 1]; /* of the hosts' namespaces, then of the switches' */
};

/* DPB_UNSUPPORTED: this process or this kernel cannot. Blocks. */
dpb_status dpb_hosts_network_up(const struct dpb_hosts_plan *plan,
                                struct dpb_hosts_network *network);
/* Warns of every queue that dropped packets. */
void dpb_hosts_network_check(const struct dpb_hosts_network *network);
void dpb_hosts_network_down(struct dpb_hosts_network *network); /* accepts a zeroed one */

#endif
