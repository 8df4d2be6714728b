/*
 * links.h - measures how fast bytes move: through this machine's memory, between its cores, over
 * its loopback or a connection to another, and between the host and the devices of a plugin.
 * Nothing is trained. Rates are bytes of payload a second: a copy counts its bytes once.
 *
 * A measurement repeats the work until it fills a window, and is the median of up to five windows,
 * with the slowest and the fastest. Functions block while they measure, bind threads of their own
 * and release all they take.
 */
#ifndef DPB_LINKS_LINKS_H
#define DPB_LINKS_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/device.h"
#include "dpbench/status.h"

enum { DPB_LINKS_WINDOWS = 5, DPB_LINKS_CORES = 16, DPB_LINKS_DEVICES = 16 };
enum { DPB_LINKS_SIZES = 10 };

/* The sizes of messages: 1 KiB to 256 MiB, by 4. */
static inline uint64_t dpb_links_size(uint32_t i)
{
    return UINT64_C(1024) << (2 * i < 18 ? 2 * i : 18);
}

struct dpb_links_limits {
    int64_t window_ns;
    uint64_t min_bytes, max_bytes; /* smaller and larger sizes are left out */
    bool (*stopped)(void);         /* true: DPB_INTERRUPTED at the next window; may be NULL */
};

/* NaN: not measured. Latencies are in seconds. */
struct dpb_links_value {
    double median, least, most;
    double windows[DPB_LINKS_WINDOWS]; /* of each, in the order of time */
    uint32_t n_windows;
};

static inline bool dpb_links_wanted(const struct dpb_links_limits *limits, uint64_t bytes)
{
    return bytes >= limits->min_bytes && bytes <= limits->max_bytes;
}

static inline dpb_status dpb_links_stopped(const struct dpb_links_limits *limits)
{
    return limits->stopped && limits->stopped() ? DPB_INTERRUPTED : DPB_OK;
}

/* ---- how it is timed ----------------------------------------------------------------------- */

/* Does the work `times` times and blocks until it is done. */
typedef dpb_status (*dpb_links_work)(void *context, uint64_t times);

/* The seconds of one repetition of the work. */
dpb_status dpb_links_time(const struct dpb_links_limits *limits, dpb_links_work work, void *context,
                          struct dpb_links_value *seconds);
/* The seconds of each of `n` equal parts of such work. */
struct dpb_links_value dpb_links_share(const struct dpb_links_value *seconds, double n);
/* The rate of `bytes` in these seconds. */
struct dpb_links_value dpb_links_rate(const struct dpb_links_value *seconds, double bytes);
/* The value of 1 to DPB_LINKS_WINDOWS windows, in the order of time. */
struct dpb_links_value dpb_links_value_of(const double *x, size_t n);
struct dpb_links_value dpb_links_nothing(void);

/* Runs `member` at once on threads bound to these hardware threads (as the system numbers them),
 * and waits for all. */
typedef void (*dpb_links_member)(void *context, uint32_t member);
dpb_status dpb_links_team(const uint16_t *cpus, uint32_t n, dpb_links_member member, void *context);

/* ---- the host's memory --------------------------------------------------------------------- */

struct dpb_links_memory {
    uint32_t n_threads;
    uint32_t cpu_node, memory_node; /* UINT32_MAX: of all nodes */
    struct dpb_links_value read[DPB_LINKS_SIZES], copy[DPB_LINKS_SIZES];
};

/* Threads on these hardware threads read and copy memory of one node: `toucher` writes the memory
 * first, so the memory lies on its node (UINT16_MAX: each thread writes its own). All threads
 * together go over one size; sizes with less than 4 KiB a thread are left out. Each thread counts
 * its passes in its own window. */
dpb_status dpb_links_memory_measure(const struct dpb_links_limits *limits, const uint16_t *cpus,
                                    uint32_t n_threads, uint16_t toucher,
                                    struct dpb_links_memory *memory);

/* ---- between two cores --------------------------------------------------------------------- */

/* `latency`: one way, of a cache line that two cores write in turn. `rate`: `a` writes into shared
 * memory, then `b` copies this into its own memory; the copy is timed. */
struct dpb_links_cores {
    uint16_t a, b;
    struct dpb_links_value latency, rate[DPB_LINKS_SIZES];
};
dpb_status dpb_links_cores_latency(const struct dpb_links_limits *limits, uint16_t a, uint16_t b,
                                   struct dpb_links_value *latency);
dpb_status dpb_links_cores_rate(const struct dpb_links_limits *limits,
                                struct dpb_links_cores *cores);

/* ---- over a connection --------------------------------------------------------------------- */

/* One end of a TCP connection: one end measures, the other answers. */
struct dpb_links_line {
    const char *name;   /* in messages: "loopback" */
    int fd;             /* @owned; -1: none */
    int64_t longest_ns; /* sizes whose message would take longer are left out; 0: none */
    /* Private. */
    char *buffer;
    uint64_t capacity, bytes; /* of the buffer; of a message */
};
/* Owns the descriptor from now on, and makes it blocking; -1: there is nothing to open. Close the
 * line after a failure, too. */
dpb_status dpb_links_line_open(const char *name, int fd, const struct dpb_links_limits *limits,
                               struct dpb_links_line *line);
void dpb_links_line_close(struct dpb_links_line *line);
/* From now on a message that does not move for limit_ns is an error; negative: no limit. */
dpb_status dpb_links_line_limit(const struct dpb_links_line *line, int64_t limit_ns);
/* `latency`: one way of a byte. `rate`: messages of each size, each answered by a byte. NaN: not
 * measured. */
dpb_status dpb_links_line_measure(const struct dpb_links_limits *limits,
                                  struct dpb_links_line *line, struct dpb_links_value *latency,
                                  struct dpb_links_value rate[DPB_LINKS_SIZES]);
/* Answers until the other end has measured all. */
dpb_status dpb_links_line_answer(struct dpb_links_line *line);

/* ---- over loopback ------------------------------------------------------------------------- */

/* TCP over 127.0.0.1 between two threads. */
struct dpb_links_loopback {
    struct dpb_links_value latency, rate[DPB_LINKS_SIZES];
};
dpb_status dpb_links_loopback_measure(const struct dpb_links_limits *limits, uint16_t a, uint16_t b,
                                      struct dpb_links_loopback *loopback);

/* ---- between the host and devices, and among devices ---------------------------------------- */

typedef enum dpb_links_way {
    DPB_LINKS_TO_DEVICE,
    DPB_LINKS_FROM_DEVICE,
    DPB_LINKS_BOTH /* at once on two queues; the rate is their sum */
} dpb_links_way;
enum { DPB_LINKS_WAYS = 3 };

struct dpb_links_host {
    uint32_t device;
    bool pinned; /* else pageable */
    struct dpb_links_value latency[2], rate[DPB_LINKS_WAYS][DPB_LINKS_SIZES];
};
dpb_status dpb_links_host_measure(const struct dpb_links_limits *limits,
                                  const struct dpb_device_links *links, uint32_t device,
                                  bool pinned, struct dpb_links_host *host);

/* Copies from one device's memory into another's; `from` = `to`: within it. `direct`: as peers;
 * else through the host. `possible` is false for devices that cannot be peers. */
struct dpb_links_pair {
    uint32_t from, to;
    bool direct, possible;
    struct dpb_links_value latency, one_way[DPB_LINKS_SIZES], both[DPB_LINKS_SIZES];
};
dpb_status dpb_links_pair_measure(const struct dpb_links_limits *limits,
                                  const struct dpb_device_links *links, uint32_t from, uint32_t to,
                                  bool direct, struct dpb_links_pair *pair);

#endif
