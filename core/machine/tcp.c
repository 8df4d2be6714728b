/* tcp.c - see tcp.h. */
#include "machine/tcp.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { NEVER_CONGESTED = 0x7fffffff }; /* the kernel's TCP_INFINITE_SSTHRESH */

/* A kernel that is older than a member leaves the member 0. False: also of an emulator that has an
 * int for all of it. */
static bool read_info(int fd, struct tcp_info *info)
{
    socklen_t bytes = sizeof *info;
    memset(info, 0, sizeof *info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &bytes) == 0 && bytes > sizeof(int);
}

uint32_t dpb_tcp_tries(int fd)
{
    struct tcp_info info;
    return read_info(fd, &info) ? info.tcpi_retransmits : 0;
}

/* An IPv4 address is written as one, also where the socket is of IPv6. False: no address. */
static bool address_of(int fd, char text[DPB_TCP_ADDRESS])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } at;
    static const char mapped[] = "::ffff:";
    socklen_t bytes = sizeof at;
    if (getpeername(fd, &at.any, &bytes) != 0)
        return false;
    const bool v4 = at.any.sa_family == AF_INET;
    const void *number = v4 ? (const void *)&at.v4.sin_addr : (const void *)&at.v6.sin6_addr;
    if ((!v4 && at.any.sa_family != AF_INET6) ||
        !inet_ntop(at.any.sa_family, number, text, DPB_TCP_ADDRESS))
        return false;
    if (strncmp(text, mapped, strlen(mapped)) == 0 && strchr(text, '.'))
        memmove(text, text + strlen(mapped), strlen(text + strlen(mapped)) + 1);
    return true;
}

/* The row of an address, made where there is none. */
static struct dpb_tcp_peer *row_of(struct dpb_tcp_peer *peers, uint32_t *n, const char *address)
{
    uint32_t i = 0;
    while (i < *n && strcmp(peers[i].address, address) != 0)
        i++;
    if (i >= DPB_TCP_TABLE - 1 && i == *n) {
        i = DPB_TCP_TABLE - 1;
        address = "others";
    }
    if (i >= *n) {
        peers[i] = (struct dpb_tcp_peer){.connections = 0};
        snprintf(peers[i].address, sizeof peers[i].address, "%s", address);
        *n = i + 1;
    }
    return &peers[i];
}

uint32_t dpb_tcp_count(struct dpb_tcp_peer *peers)
{
    uint32_t n = 0;
    DIR *directory = opendir("/proc/self/fd");
    for (const struct dirent *entry; directory && (entry = readdir(directory));) {
        char address[DPB_TCP_ADDRESS];
        struct tcp_info info;
        const int fd = (int)strtol(entry->d_name, NULL, 10);
        if (entry->d_name[0] == '.' || !read_info(fd, &info) || !address_of(fd, address))
            continue;
        struct dpb_tcp_peer *peer = row_of(peers, &n, address);
        peer->connections++;
        peer->congested += info.tcpi_snd_ssthresh < NEVER_CONGESTED;
        peer->rtt_us = info.tcpi_rtt > peer->rtt_us ? info.tcpi_rtt : peer->rtt_us;
        peer->window_segments += info.tcpi_snd_cwnd;
        peer->segments += info.tcpi_segs_out;
        peer->retransmitted += info.tcpi_total_retrans;
    }
    if (directory)
        closedir(directory);
    return n;
}
