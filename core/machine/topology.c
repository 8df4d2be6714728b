/* topology.c - see topology.h. */
#include "machine/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { MAX_PCI = 64, ADDRESS_BYTES = 32 };

/* Classes of PCI devices that links lead to: base class, or base class and subclass. */
enum {
    CLASS_NVME = 0x0108,
    CLASS_NETWORK = 0x02,
    CLASS_DISPLAY = 0x03,
    CLASS_INFINIBAND = 0x0c06,
    CLASS_ACCELERATOR = 0x12
};

struct dpb_topology {
    hwloc_topology_t tree;
    hwloc_obj_t pci[MAX_PCI];
    uint32_t n_pci, n_more;
};

static const char *kind_of(const struct hwloc_obj *device)
{
    unsigned number = device->attr->pcidev.class_id, base = number >> 8;
    return base == CLASS_DISPLAY || base == CLASS_ACCELERATOR    ? "gpu"
           : base == CLASS_NETWORK || number == CLASS_INFINIBAND ? "network"
           : number == CLASS_NVME                                ? "nvme"
                                                                 : NULL;
}

static void find_pci(struct dpb_topology *topology)
{
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_pcidev(topology->tree, device))) {
        if (!kind_of(device))
            continue;
        if (topology->n_pci < MAX_PCI)
            topology->pci[topology->n_pci++] = device;
        else
            topology->n_more++;
    }
}

dpb_status dpb_topology_open(const char *xml, struct dpb_topology **opened)
{
    struct dpb_topology *topology = calloc(1, sizeof *topology);
    if (!topology || hwloc_topology_init(&topology->tree) != 0) {
        free(topology);
        return dpb_fail(DPB_NO_MEMORY, "out of memory for the machine's topology");
    }
    bool loaded =
        hwloc_topology_set_io_types_filter(topology->tree, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_set_type_filter(topology->tree, HWLOC_OBJ_BRIDGE,
                                       HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
        (!xml || hwloc_topology_set_xmlbuffer(topology->tree, xml, (int)strlen(xml) + 1) == 0) &&
        hwloc_topology_load(topology->tree) == 0;
    if (!loaded) {
        dpb_fail(DPB_FAILED, "hwloc cannot read the machine's topology: %s", strerror(errno));
        dpb_topology_close(topology);
        return DPB_FAILED;
    }
    find_pci(topology);
    *opened = topology;
    return DPB_OK;
}

void dpb_topology_close(struct dpb_topology *topology)
{
    if (!topology)
        return;
    hwloc_topology_destroy(topology->tree);
    free(topology);
}

/* ---- cores and memory ---------------------------------------------------------------------- */

uint32_t dpb_topology_nodes(const struct dpb_topology *topology)
{
    int n = hwloc_get_nbobjs_by_type(topology->tree, HWLOC_OBJ_NUMANODE);
    return n > 0 ? (uint32_t)n : 0;
}

uint32_t dpb_topology_node_of(const struct dpb_topology *topology, uint16_t cpu)
{
    hwloc_obj_t thread = hwloc_get_pu_obj_by_os_index(topology->tree, cpu);
    int node = thread ? hwloc_bitmap_first(thread->nodeset) : -1;
    return node >= 0 ? (uint32_t)node : UINT32_MAX;
}

const char *dpb_topology_shared(const struct dpb_topology *topology, uint16_t a, uint16_t b)
{
    hwloc_obj_t first = hwloc_get_pu_obj_by_os_index(topology->tree, a);
    hwloc_obj_t second = hwloc_get_pu_obj_by_os_index(topology->tree, b);
    if (!first || !second)
        return "?";
    for (hwloc_obj_t o = hwloc_get_common_ancestor_obj(topology->tree, first, second); o;
         o = o->parent) {
        if (o->type == HWLOC_OBJ_CORE || o->type == HWLOC_OBJ_PU)
            return "core";
        if (o->type == HWLOC_OBJ_L2CACHE)
            return "L2";
        if (o->type == HWLOC_OBJ_L3CACHE)
            return "L3";
        if (hwloc_bitmap_weight(o->nodeset) == 1 && dpb_topology_nodes(topology) > 1)
            return "NUMA node";
        if (o->type == HWLOC_OBJ_PACKAGE)
            return "package";
    }
    return "machine";
}

/* ---- ways between PCI devices ---------------------------------------------------------------- */

/* Finds a device by its address; the domain may have 4 or 8 digits. */
static hwloc_obj_t device_at(const struct dpb_topology *topology, const char *address)
{
    unsigned domain, bus, device, function;
    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return NULL;
    return hwloc_get_pcidev_by_busid(topology->tree, domain, bus, device, function);
}

static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    for (hwloc_obj_t x = a; x; x = x->parent)
        for (hwloc_obj_t y = b; y; y = y->parent)
            if (x == y)
                return x;
    return NULL;
}

static uint32_t bridges_below(hwloc_obj_t device, const struct hwloc_obj *top)
{
    uint32_t n = 0;
    for (hwloc_obj_t o = device->parent; o && o != top; o = o->parent)
        n += o->type == HWLOC_OBJ_BRIDGE;
    return n;
}

static const char *path_of(hwloc_obj_t a, hwloc_obj_t b)
{
    if (a == b)
        return "X";
    hwloc_obj_t top = common_ancestor(a, b);
    if (!top)
        return "?";
    if (top->type == HWLOC_OBJ_BRIDGE && top->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)
        return "PHB";
    /* One switch counts as its upstream port and a downstream port for each of the two devices. */
    if (top->type == HWLOC_OBJ_BRIDGE)
        return bridges_below(a, top) <= 1 && bridges_below(b, top) <= 1 ? "PIX" : "PXB";
    if (top->type == HWLOC_OBJ_PCI_DEVICE)
        return "PIX";
    return top->nodeset && hwloc_bitmap_weight(top->nodeset) == 1 ? "NODE" : "SYS";
}

const char *dpb_topology_path(const struct dpb_topology *topology, const char *a, const char *b)
{
    hwloc_obj_t first = device_at(topology, a), second = device_at(topology, b);
    return first && second ? path_of(first, second) : "?";
}

/* ---- description --------------------------------------------------------------------------- */

static json_t *real_or_null(double value)
{
    return isfinite(value) && value > 0 ? json_real(value) : json_null();
}

static json_t *cpus_of(hwloc_const_bitmap_t set)
{
    char *text = NULL;
    if (!set || hwloc_bitmap_list_asprintf(&text, set) < 0)
        return json_null();
    json_t *json = json_string(text);
    free(text);
    return json;
}

static json_t *describe_nodes(const struct dpb_topology *topology)
{
    json_t *nodes = json_array();
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology->tree, HWLOC_OBJ_NUMANODE, node)))
        json_array_append_new(nodes, json_pack("{s:I, s:I, s:o}", "node",
                                               (json_int_t)node->os_index, "memory_bytes",
                                               (json_int_t)node->attr->numanode.local_memory,
                                               "threads", cpus_of(node->cpuset)));
    return nodes;
}

/* The firmware's relative latencies; 10 is a node's own; null: the firmware gives none. */
static json_t *describe_distances(const struct dpb_topology *topology)
{
    struct hwloc_distances_s *distances = NULL;
    unsigned n = 1;
    if (hwloc_distances_get_by_type(topology->tree, HWLOC_OBJ_NUMANODE, &n, &distances,
                                    HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
        n == 0)
        return json_null();
    json_t *rows = json_array();
    for (unsigned i = 0; i < distances->nbobjs; i++) {
        json_t *row = json_array();
        for (unsigned k = 0; k < distances->nbobjs; k++)
            json_array_append_new(
                row, json_integer((json_int_t)distances->values[i * distances->nbobjs + k]));
        json_array_append_new(rows, row);
    }
    hwloc_distances_release(topology->tree, distances);
    return rows;
}

static void address_of(const struct hwloc_obj *device, char address[ADDRESS_BYTES])
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    snprintf(address, ADDRESS_BYTES, "%04x:%02x:%02x.%01x", pci->domain, pci->bus, pci->dev,
             pci->func);
}

/* The system's name: eth0, mlx5_0, nvme0n1. */
static json_t *system_names(const struct hwloc_obj *device)
{
    json_t *names = json_array();
    for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling)
        if (child->type == HWLOC_OBJ_OS_DEVICE && child->name)
            json_array_append_new(names, json_string(child->name));
    return names;
}

static json_t *describe_pci(const struct dpb_topology *topology)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < topology->n_pci; i++) {
        hwloc_obj_t device = topology->pci[i];
        hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology->tree, device);
        char address[ADDRESS_BYTES], ids[32];
        bool local = near && near->nodeset && hwloc_bitmap_weight(near->nodeset) == 1;
        address_of(device, address);
        snprintf(ids, sizeof ids, "%04x:%04x", device->attr->pcidev.vendor_id,
                 device->attr->pcidev.device_id);
        const char *vendor = hwloc_obj_get_info_by_name(device, "PCIVendor");
        const char *name = hwloc_obj_get_info_by_name(device, "PCIDevice");
        json_t *paths = json_object();
        for (uint32_t k = 0; k < topology->n_pci; k++) {
            char other[ADDRESS_BYTES];
            address_of(topology->pci[k], other);
            json_object_set_new(paths, other, json_string(path_of(device, topology->pci[k])));
        }
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:o, s:o, s:o, s:o}", "pci_address", address,
                      "kind", kind_of(device), "ids", ids, "vendor", vendor, "name", name, "node",
                      local ? json_integer(hwloc_bitmap_first(near->nodeset)) : json_null(),
                      "link_bytes_per_s",
                      real_or_null((double)device->attr->pcidev.linkspeed * 1e9), "system_names",
                      system_names(device), "paths", paths));
    }
    return list;
}

json_t *dpb_topology_describe(const struct dpb_topology *topology)
{
    return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:I}", //
                     "packages", hwloc_get_nbobjs_by_type(topology->tree, HWLOC_OBJ_PACKAGE),
                     "cores", hwloc_get_nbobjs_by_type(topology->tree, HWLOC_OBJ_CORE), "threads",
                     hwloc_get_nbobjs_by_type(topology->tree, HWLOC_OBJ_PU), "nodes",
                     describe_nodes(topology), "distances", describe_distances(topology), "pci",
                     describe_pci(topology), "pci_left_out", (json_int_t)topology->n_more);
}
