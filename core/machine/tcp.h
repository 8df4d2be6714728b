/*
 * tcp.h - the TCP connections of this process, as the kernel counts them: how much of what they
 * sent was lost on the way, and how full the way was.
 */
#ifndef DPB_CORE_MACHINE_TCP_H
#define DPB_CORE_MACHINE_TCP_H

#include <stdint.h>

/* IPv6 with its NUL. TABLE: addresses with rows of their own; the last row has all others. */
enum { DPB_TCP_ADDRESS = 46, DPB_TCP_TABLE = 64 };

/* All connections to an address, since each was opened. */
struct dpb_tcp_peer {
    char address[DPB_TCP_ADDRESS];
    uint32_t connections, congested; /* congested: a loss has lowered their window */
    uint32_t rtt_us;                 /* smoothed; the longest */
    uint32_t window_segments;        /* that may be on the way at once, added up */
    uint64_t segments, retransmitted;
};

/* Counts the connections of this process that are open. Returns the number of rows; a row is kept
 * at `peers`, which has room for DPB_TCP_TABLE. Does not block. */
uint32_t dpb_tcp_count(struct dpb_tcp_peer *peers);
/* How often in a row the kernel has sent the oldest bytes of a socket again without an answer; 0:
 * all is well, or this is no TCP. */
uint32_t dpb_tcp_tries(int fd);

#endif
