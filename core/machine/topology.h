/*
 * topology.h - where cores, memory and PCI devices of this machine lie, by hwloc; and the way
 * between two PCI devices, named as in dpbench/monitor.h.
 */
#ifndef DPB_CORE_MACHINE_TOPOLOGY_H
#define DPB_CORE_MACHINE_TOPOLOGY_H

#include <jansson.h>
#include <stdint.h>

#include "dpbench/status.h"

struct dpb_topology; /* opaque */

/* The topology of hwloc's XML (for tests), or, with NULL, of this machine. @owned. */
dpb_status dpb_topology_open(const char *xml, struct dpb_topology **topology);
void dpb_topology_close(struct dpb_topology *topology); /* accepts NULL */

uint32_t dpb_topology_nodes(const struct dpb_topology *topology);
/* The NUMA node of a hardware thread (both as the system numbers them); UINT32_MAX: unknown. */
uint32_t dpb_topology_node_of(const struct dpb_topology *topology, uint16_t cpu);
/* The smallest thing that two hardware threads share: "core", "L2", "L3", "NUMA node", "package",
 * "machine". */
const char *dpb_topology_shared(const struct dpb_topology *topology, uint16_t a, uint16_t b);

/* The way between two PCI devices, by their addresses ("0000:1b:00.0"; a domain may have 8 digits):
 *   PIX   one PCIe switch at most              PXB  several switches, no host bridge
 *   PHB   a host bridge                        NODE host bridges of one NUMA node
 *   SYS   NUMA nodes         X  itself         ?    not known here
 */
const char *dpb_topology_path(const struct dpb_topology *topology, const char *a, const char *b);

/* Packages, NUMA nodes (memory, hardware threads, distances), accelerators, networks and NVMe
 * devices with node and link speed, and the ways among these devices. @owned. */
json_t *dpb_topology_describe(const struct dpb_topology *topology);

#endif
