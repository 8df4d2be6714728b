/* interface.c - see interface.h. */
#include "lib/tcp/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIST_BYTES = 1024, WORD_BYTES = 64, BITS_A_BYTE = 8 };

/* ---- addresses ----------------------------------------------------------------------------- */

/* A network, or with all bits a single address. */
struct network {
    int family;
    uint8_t bytes[16];
    unsigned bits;
};

static const uint8_t *bytes_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET
               ? (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr
               : (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

static unsigned bits_of(int family)
{
    return family == AF_INET ? 32 : 128;
}

/* False: `text` is neither a network nor an address. */
static bool parse_network(const char *text, struct network *network)
{
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    if (length >= sizeof address)
        return false;
    memcpy(address, text, length);
    address[length] = '\0';
    if (inet_pton(AF_INET, address, network->bytes) == 1)
        network->family = AF_INET;
    else if (inet_pton(AF_INET6, address, network->bytes) == 1)
        network->family = AF_INET6;
    else
        return false;
    network->bits = bits_of(network->family);
    if (!slash)
        return true;
    char *end;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits > network->bits)
        return false;
    network->bits = (unsigned)bits;
    return true;
}

static bool is_in(const struct network *network, const struct sockaddr *address)
{
    const uint8_t *bytes = bytes_of(address);
    unsigned whole = network->bits / BITS_A_BYTE, rest = network->bits % BITS_A_BYTE;
    if (address->sa_family != network->family || memcmp(bytes, network->bytes, whole) != 0)
        return false;
    return rest == 0 || (bytes[whole] ^ network->bytes[whole]) >> (BITS_A_BYTE - rest) == 0;
}

/* ---- the machine's interfaces -------------------------------------------------------------- */

/* Whether the entry can reach ranks: an address of the internet, of an interface that is up. */
static bool is_usable(const struct ifaddrs *entry)
{
    const struct sockaddr *address = entry->ifa_addr;
    if (!address || !(entry->ifa_flags & IFF_UP))
        return false;
    if (address->sa_family == AF_INET)
        return true;
    return address->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(const void *)bytes_of(address));
}

static void take(const struct ifaddrs *entry, struct dpb_interface *found)
{
    memset(found, 0, sizeof *found);
    snprintf(found->name, sizeof found->name, "%s", entry->ifa_name);
    int family = entry->ifa_addr->sa_family;
    found->socket_bytes = family == AF_INET ? sizeof found->socket.ip4 : sizeof found->socket.ip6;
    memcpy(&found->socket, entry->ifa_addr, found->socket_bytes);
    inet_ntop(family, bytes_of(entry->ifa_addr), found->address, sizeof found->address);
}

static void list_interfaces(const struct ifaddrs *all, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "none");
    for (const struct ifaddrs *entry = all; entry && used < size; entry = entry->ifa_next) {
        struct dpb_interface one;
        if (!is_usable(entry))
            continue;
        take(entry, &one);
        int n =
            snprintf(text + used, size - used, "%s%s %s", used ? ", " : "", one.name, one.address);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* IPv4 before IPv6, then as the system lists them. */
static const struct ifaddrs *first_of(const struct ifaddrs *all, const char *name)
{
    const struct ifaddrs *found = NULL;
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next)
        if (is_usable(entry) && strcmp(entry->ifa_name, name) == 0 &&
            (!found ||
             (found->ifa_addr->sa_family == AF_INET6 && entry->ifa_addr->sa_family == AF_INET)))
            found = entry;
    return found;
}

static const struct ifaddrs *first_in(const struct ifaddrs *all, const struct network *network)
{
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next)
        if (is_usable(entry) && is_in(network, entry->ifa_addr))
            return entry;
    return NULL;
}

static const struct ifaddrs *loopback(const struct ifaddrs *all)
{
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next)
        if (is_usable(entry) && (entry->ifa_flags & IFF_LOOPBACK))
            return first_of(all, entry->ifa_name);
    return NULL;
}

/* The interface of IPv4's default route with the least metric; "": there is none. */
static void default_route(char name[IF_NAMESIZE])
{
    char line[512], device[IF_NAMESIZE];
    unsigned long best = 0;
    FILE *file = fopen("/proc/net/route", "re");
    name[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        unsigned long to, metric, mask;
        if (sscanf(line, "%15s %lx %*x %*x %*d %*d %lu %lx", device, &to, &metric, &mask) != 4 ||
            to != 0 || mask != 0 || (name[0] != '\0' && metric >= best))
            continue;
        best = metric;
        memcpy(name, device, IF_NAMESIZE);
    }
    if (file)
        fclose(file);
}

/* Between machines, when nothing is said. */
static const struct ifaddrs *way_out(const struct ifaddrs *all)
{
    const char *only = NULL;
    char routed[IF_NAMESIZE];
    bool several = false;
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
        if (!is_usable(entry) || (entry->ifa_flags & IFF_LOOPBACK))
            continue;
        several = several || (only && strcmp(only, entry->ifa_name) != 0);
        only = entry->ifa_name;
    }
    if (only && !several)
        return first_of(all, only);
    default_route(routed);
    return first_of(all, routed);
}

static const struct ifaddrs *choose(const struct dpb_host *host, const struct ifaddrs *all,
                                    const char *wanted)
{
    struct network network;
    const struct ifaddrs *found = NULL;
    if (wanted[0] == '\0')
        return host->n_machines() == 1 ? loopback(all) : way_out(all);
    for (const char *at = wanted; at && !found; at = strchr(at, ',')) {
        char word[WORD_BYTES];
        at += *at == ',';
        at += strspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        found = parse_network(word, &network) ? first_in(all, &network) : first_of(all, word);
    }
    return found;
}

/* Whether the entry's network has the address. */
static bool reaches(const struct ifaddrs *entry, const struct sockaddr *address)
{
    if (!is_usable(entry) || !entry->ifa_netmask || (entry->ifa_flags & IFF_LOOPBACK) ||
        entry->ifa_addr->sa_family != address->sa_family)
        return false;
    const uint8_t *mask = bytes_of(entry->ifa_netmask), *own = bytes_of(entry->ifa_addr);
    const uint8_t *other = bytes_of(address);
    for (unsigned i = 0; i < bits_of(address->sa_family) / BITS_A_BYTE; i++)
        if ((own[i] ^ other[i]) & mask[i])
            return false;
    return true;
}

bool dpb_interface_warn(const struct dpb_host *host, const struct dpb_interface *own, uint32_t rank,
                        int peer)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } address;
    socklen_t bytes = sizeof address;
    char text[INET6_ADDRSTRLEN];
    const char *other = NULL;
    struct ifaddrs *all;
    if (getpeername(peer, &address.any, &bytes) != 0 || getifaddrs(&all) != 0)
        return false;
    bool same = false;
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next)
        if (reaches(entry, &address.any)) {
            same = same || strcmp(entry->ifa_name, own->name) == 0;
            other = entry->ifa_name;
        }
    const bool warns = other && !same;
    if (warns)
        host->warn("different_networks",
                   "this rank uses %s, and rank %u %s, an address in the network of this machine's "
                   "%s: the machines' default routes differ; choose one network for all by "
                   "comm.interface (a network like 10.0.0.0/8, or names like eth1,ens4)",
                   own->name, rank,
                   inet_ntop(address.any.sa_family, bytes_of(&address.any), text, sizeof text),
                   other);
    freeifaddrs(all);
    return warns;
}

dpb_status dpb_interface_find(const struct dpb_host *host, const char *wanted,
                              struct dpb_interface *found)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return host->fail(DPB_IO, "cannot list the network interfaces: %s", strerror(errno));
    const struct ifaddrs *chosen = choose(host, all, wanted);
    char list[LIST_BYTES];
    dpb_status status = DPB_OK;
    if (!chosen)
        list_interfaces(all, list, sizeof list);
    if (chosen) {
        take(chosen, found);
        host->report("interface", "%s", found->name);
        host->report("address", "%s", found->address);
    } else if (wanted[0] != '\0') {
        status = host->fail(DPB_USAGE,
                            "comm.interface = %s is no interface, address or network of this "
                            "machine that is up; there are: %s",
                            wanted, list);
    } else {
        status =
            host->fail(DPB_USAGE,
                       "which network interface leads to the other machines cannot be told: "
                       "say it by comm.interface (a name, or a network like 10.0.0.0/8); there "
                       "are: %s",
                       list);
    }
    freeifaddrs(all);
    return status;
}
