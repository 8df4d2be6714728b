/* port.c - see port.h. */
#include "lib/verbs/port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/tcp/interface.h"

enum { LIST_BYTES = 1024, ITEM_BYTES = 128, RIVALS = 2 };

/* ---- addresses ----------------------------------------------------------------------------- */

static bool maps_ip4(const union ibv_gid *gid)
{
    return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)gid->raw);
}

static bool is_link_local(const union ibv_gid *gid)
{
    return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(const void *)gid->raw);
}

static void describe_gid(const union ibv_gid *gid, char text[PORT_ADDRESS_BYTES])
{
    if (maps_ip4(gid))
        inet_ntop(AF_INET, gid->raw + 12, text, PORT_ADDRESS_BYTES);
    else
        inet_ntop(AF_INET6, gid->raw, text, PORT_ADDRESS_BYTES);
}

static void gid_of_address(const struct dpb_interface *interface, union ibv_gid *gid)
{
    *gid = (union ibv_gid){{0}};
    if (interface->socket.any.sa_family == AF_INET) {
        gid->raw[10] = gid->raw[11] = 0xff;
        memcpy(gid->raw + 12, &interface->socket.ip4.sin_addr, 4);
    } else {
        memcpy(gid->raw, &interface->socket.ip6.sin6_addr, sizeof gid->raw);
    }
}

/* ---- the wanted port ----------------------------------------------------------------------- */

/* The entry of a list that a local rank takes; the list begins anew after its end. */
static dpb_status take_entry(const struct dpb_host *host, const char *option, const char *list,
                             uint32_t local_rank, char item[ITEM_BYTES])
{
    uint32_t n = 1;
    for (const char *c = list; *c; c++)
        n += *c == ',';
    for (uint32_t i = local_rank % n; i > 0; i--)
        list = strchr(list, ',') + 1;
    while (*list == ' ')
        list++;
    size_t length = strcspn(list, ",");
    while (length > 0 && list[length - 1] == ' ')
        length--;
    if ((length == 0 && n > 1) || length >= ITEM_BYTES)
        return host->fail(DPB_USAGE, "%s has an entry that is %s", option,
                          length == 0 ? "empty" : "too long");
    memcpy(item, list, length);
    item[length] = '\0';
    return DPB_OK;
}

/* One rank's choice. */
struct choice {
    char device[ITEM_BYTES], interface[ITEM_BYTES]; /* "": any */
    unsigned port;                                  /* 0: any */
    union ibv_gid address;                          /* of the interface */
    int64_t gid_index;
};

static dpb_status read_choice(const struct dpb_host *host, const struct port_wanted *wanted,
                              struct choice *choice)
{
    *choice = (struct choice){.gid_index = wanted->gid_index};
    DPB_TRY(take_entry(host, "comm.device", wanted->devices, wanted->local_rank, choice->device));
    DPB_TRY(take_entry(host, "comm.interface", wanted->interfaces, wanted->local_rank,
                       choice->interface));
    char *colon = strchr(choice->device, ':');
    if (colon) {
        char *end;
        unsigned long port = strtoul(colon + 1, &end, 10);
        if (colon[1] < '1' || colon[1] > '9' || *end != '\0' || port > UINT8_MAX)
            return host->fail(DPB_USAGE,
                              "comm.device = %s: a device is NAME or NAME:PORT, PORT "
                              "being a number from 1",
                              choice->device);
        *colon = '\0';
        choice->port = (unsigned)port;
    }
    if (choice->interface[0] != '\0') {
        struct dpb_interface interface;
        DPB_TRY(dpb_interface_find(host, choice->interface, &interface));
        gid_of_address(&interface, &choice->address);
        snprintf(choice->interface, sizeof choice->interface, "%s", interface.name);
    }
    return DPB_OK;
}

/* ---- GIDs ---------------------------------------------------------------------------------- */

bool port_is_ethernet(const struct port *port)
{
    return port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* An interface over InfiniBand has an address that is none of the port's. */
static bool is_over(const char *interface, const struct port *port)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device/net/%s",
             ibv_get_device_name(port->context->device), interface);
    return access(path, F_OK) == 0;
}

/* How much a GID is to be preferred; 0: not at all. RoCE v1 cannot be routed, IPv6 addresses of a
 * link mean nothing on another one. */
static int rank_gid(const struct port *port, const struct choice *choice,
                    const struct ibv_gid_entry *entry)
{
    if (choice->gid_index >= 0 && entry->gid_index != choice->gid_index)
        return 0;
    if (!port_is_ethernet(port))
        return choice->interface[0] == '\0' || is_over(choice->interface, port);
    if (choice->interface[0] != '\0' && choice->gid_index < 0 &&
        memcmp(&choice->address, &entry->gid, sizeof entry->gid) != 0)
        return 0;
    return 1 + 4 * (entry->gid_type == IBV_GID_TYPE_ROCE_V2) + 2 * !is_link_local(&entry->gid) +
           maps_ip4(&entry->gid);
}

static bool choose_gid(const struct choice *choice, struct port *port)
{
    int best = 0;
    bool has_address = choice->interface[0] == '\0' || !port_is_ethernet(port);
    for (int i = 0; i < port->attributes.gid_tbl_len; i++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(port->context, port->number, (uint32_t)i, &entry, 0) != 0)
            continue; /* an empty place */
        has_address = has_address || memcmp(&choice->address, &entry.gid, sizeof entry.gid) == 0;
        int value = rank_gid(port, choice, &entry);
        if (value <= best)
            continue;
        best = value;
        port->gid = entry;
        describe_gid(&entry.gid, port->address);
    }
    return best > 0 && has_address;
}

/* ---- ports --------------------------------------------------------------------------------- */

/* A look at all ports of the machine. */
struct search {
    const struct dpb_host *host;
    const struct choice *choice;
    struct port found;
    uint32_t n_found;
    char list[LIST_BYTES]; /* all that was found, for messages */
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add_to_list(struct search *search,
                                                              const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (search->used > 0 && search->used + 2 < LIST_BYTES)
        search->used += (size_t)snprintf(search->list + search->used, 3, ", ");
    int n = vsnprintf(search->list + search->used, LIST_BYTES - search->used, format, arguments);
    if (n > 0)
        search->used +=
            (size_t)n < LIST_BYTES - search->used ? (size_t)n : LIST_BYTES - 1 - search->used;
    va_end(arguments);
}

/* Looks at one port; the context stays with `found` when it is chosen. */
static bool look_at_port(struct search *search, struct ibv_context *context, uint8_t number)
{
    const char *device = ibv_get_device_name(context->device);
    struct port port = {.context = context, .number = number};
    char suffix[8] = "";
    if (number != 1)
        snprintf(suffix, sizeof suffix, ":%u", number);
    snprintf(port.name, sizeof port.name, "%s%s", device, suffix);
    if (ibv_query_port(context, number, &port.attributes) != 0) {
        add_to_list(search, "%s (cannot be asked: %s)", port.name, strerror(errno));
        return false;
    }
    bool up = port.attributes.state == IBV_PORT_ACTIVE;
    bool has_gid = choose_gid(search->choice, &port);
    add_to_list(search, "%s (%s%s%s)", port.name,
                up ? "up" : ibv_port_state_str(port.attributes.state), has_gid ? ", " : "",
                has_gid ? port.address : "");
    bool named = search->choice->device[0] == '\0' ||
                 (strcmp(search->choice->device, device) == 0 &&
                  (search->choice->port == 0 || search->choice->port == number));
    if (!up || !has_gid || !named)
        return false;
    if (search->n_found++ > 0)
        return false;
    search->found = port;
    return true;
}

static void look_at_device(struct search *search, struct ibv_device *device)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attributes;
    bool kept = false;
    if (!context) {
        add_to_list(search, "%s (cannot be opened: %s)", ibv_get_device_name(device),
                    strerror(errno));
        return;
    }
    if (ibv_query_device(context, &attributes) == 0)
        for (unsigned number = 1; number <= attributes.phys_port_cnt; number++)
            kept = look_at_port(search, context, (uint8_t)number) || kept;
    if (!kept)
        ibv_close_device(context);
}

static dpb_status refuse(struct search *search)
{
    const struct choice *choice = search->choice;
    char wanted[2 * ITEM_BYTES + 128] = "";
    int used = 0;
    if (search->n_found > 1)
        return search->host->fail(DPB_USAGE,
                                  "several RDMA ports would do: %s; choose by comm.device, for "
                                  "several ranks of a machine by a list with commas between",
                                  search->list);
    if (choice->device[0] != '\0')
        used += snprintf(wanted, sizeof wanted, " for comm.device = %s", choice->device);
    if (choice->interface[0] != '\0')
        used += snprintf(wanted + used, sizeof wanted - (size_t)used, " for comm.interface = %s",
                         choice->interface);
    if (choice->gid_index >= 0)
        snprintf(wanted + used, sizeof wanted - (size_t)used, " with comm.gid_index = %lld",
                 (long long)choice->gid_index);
    return search->host->fail(DPB_USAGE, "no RDMA port that is up%s; there is: %s", wanted,
                              search->list);
}

dpb_status port_open(const struct dpb_host *host, const struct port_wanted *wanted,
                     struct port *port)
{
    struct choice choice;
    struct search search = {.host = host, .choice = &choice};
    char missing[LIST_BYTES];
    int n = 0;
    if (port_missing(missing, sizeof missing))
        return host->fail(DPB_UNSUPPORTED, "no RDMA here: %s", missing);
    DPB_TRY(read_choice(host, wanted, &choice));
    struct ibv_device **devices = ibv_get_device_list(&n);
    for (int i = 0; i < n; i++)
        look_at_device(&search, devices[i]);
    if (devices)
        ibv_free_device_list(devices);
    if (search.n_found != 1) {
        port_close(&search.found);
        return refuse(&search);
    }
    *port = search.found;
    host->log(DPB_LOG_INFO, "RDMA by %s, address %s (GID %u, %s), MTU %d", port->name,
              port->address, port->gid.gid_index,
              !port_is_ethernet(port)                      ? "InfiniBand"
              : port->gid.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2"
                                                           : "RoCE v1",
              128 << port->attributes.active_mtu);
    host->report("device", "%s", ibv_get_device_name(port->context->device));
    host->report("port", "%u", port->number);
    host->report("gid_index", "%u", port->gid.gid_index);
    host->report("address", "%s", port->address);
    return DPB_OK;
}

void port_close(struct port *port)
{
    if (port->context)
        ibv_close_device(port->context);
    port->context = NULL;
}

/* ---- missing parts ------------------------------------------------------------------------- */

/* A device that the kernel has. */
static bool kernel_device(char name[NAME_MAX + 1])
{
    DIR *directory = opendir("/sys/class/infiniband");
    struct dirent *entry;
    bool found = false;
    while (directory && !found && (entry = readdir(directory))) {
        found = entry->d_name[0] != '.';
        if (found)
            snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    }
    if (directory)
        closedir(directory);
    return found;
}

bool port_missing(char *text, size_t bytes)
{
    char name[NAME_MAX + 1], path[PATH_MAX] = "";
    int n = 0, error = 0;
    struct ibv_device **devices = ibv_get_device_list(&n);
    bool usable = false;
    for (int i = 0; i < n && !usable; i++) {
        snprintf(path, sizeof path, "/dev/infiniband/%s", devices[i]->dev_name);
        usable = access(path, R_OK | W_OK) == 0;
        error = errno;
    }
    if (devices)
        ibv_free_device_list(devices);
    if (usable)
        return false;
    if (n > 0)
        snprintf(text, bytes, "this user cannot use the RDMA device at %s: %s%s", path,
                 strerror(error),
                 error == EACCES ? "; it needs the right to read and write there"
                                 : "; is the kernel's module ib_uverbs loaded?");
    else if (kernel_device(name))
        snprintf(text, bytes,
                 "the kernel has the RDMA device '%s', but libibverbs no driver for it; Debian's "
                 "package ibverbs-providers brings them",
                 name);
    else
        snprintf(text, bytes,
                 "this machine has no RDMA device: it needs a card for InfiniBand or RoCE and its "
                 "kernel driver, or soft-RoCE (modprobe rdma_rxe; rdma link add rxe0 type rxe "
                 "netdev INTERFACE)");
    return true;
}
