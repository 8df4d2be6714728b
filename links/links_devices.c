/* links_devices.c - copies between the host and devices, by the device plugin's table. Enough
 * copies to fill a window are enqueued and waited for once, so the link is measured, not the
 * calls. A latency is of one copy that is waited for. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "links/links.h"

enum { LATENCY_BYTES = 4, MOST_ENQUEUED = 256 };

/* A copy on a queue. */
struct lane {
    void *queue;
    void *destination;
    const void *source;
    uint32_t to, from;
};

struct course {
    const struct dpb_device_links *links;
    struct lane lanes[2];
    uint32_t n_lanes;
    uint64_t bytes;
    bool waits; /* waits for each copy by itself */
};

static dpb_status wait_all(const struct course *course)
{
    for (uint32_t i = 0; i < course->n_lanes; i++)
        DPB_TRY(course->links->wait(course->lanes[i].queue));
    return DPB_OK;
}

static dpb_status run_course(void *course_, uint64_t times)
{
    const struct course *course = course_;
    for (uint64_t k = 1; k <= times; k++) {
        for (uint32_t i = 0; i < course->n_lanes; i++) {
            const struct lane *lane = &course->lanes[i];
            DPB_TRY(course->links->copy(lane->queue, lane->destination, lane->to, lane->source,
                                        lane->from, course->bytes));
        }
        if (course->waits || k % MOST_ENQUEUED == 0)
            DPB_TRY(wait_all(course));
    }
    return wait_all(course);
}

static dpb_status time_latency(const struct dpb_links_limits *limits, const struct course *course,
                               struct dpb_links_value *latency)
{
    struct course one = *course;
    one.n_lanes = 1;
    one.bytes = LATENCY_BYTES;
    one.waits = true;
    return dpb_links_time(limits, run_course, &one, latency);
}

static dpb_status time_rates(const struct dpb_links_limits *limits, struct course *course,
                             struct dpb_links_value rates[DPB_LINKS_SIZES])
{
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
        struct dpb_links_value seconds;
        rates[i] = dpb_links_nothing();
        course->bytes = dpb_links_size(i);
        if (!dpb_links_wanted(limits, course->bytes))
            continue;
        DPB_TRY(dpb_links_time(limits, run_course, course, &seconds));
        rates[i] = dpb_links_rate(&seconds, (double)course->bytes * course->n_lanes);
    }
    return DPB_OK;
}

/* ---- memory and queues --------------------------------------------------------------------- */

enum { PAGEABLE = -1 };

struct buffer {
    int kind; /* dpb_link_memory, or PAGEABLE */
    uint32_t device;
    void *memory;
};

/* Two lanes' worth. */
struct bench {
    const struct dpb_device_links *links;
    struct buffer buffers[4];
    uint32_t n_buffers;
    void *queues[2];
};

static dpb_status take_buffer(struct bench *bench, int kind, uint32_t device, uint64_t bytes,
                              void **memory)
{
    struct buffer *buffer = &bench->buffers[bench->n_buffers];
    *buffer = (struct buffer){.kind = kind, .device = device};
    if (kind != PAGEABLE)
        DPB_TRY(bench->links->allocate((dpb_link_memory)kind, device, bytes, &buffer->memory));
    else if (!(buffer->memory = malloc(bytes)))
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    else
        memset(buffer->memory, 1, bytes); /* the first write maps the pages */
    bench->n_buffers++;
    *memory = buffer->memory;
    return DPB_OK;
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < 2; i++)
        bench->links->close_queue(bench->queues[i]);
    for (uint32_t i = 0; i < bench->n_buffers; i++) {
        const struct buffer *buffer = &bench->buffers[i];
        if (buffer->kind == PAGEABLE)
            free(buffer->memory);
        else
            bench->links->release((dpb_link_memory)buffer->kind, buffer->device, buffer->memory);
    }
}

/* ---- host and device ----------------------------------------------------------------------- */

static dpb_status host_lanes(struct bench *bench, uint64_t bytes, uint32_t device, bool pinned,
                             struct lane lanes[2])
{
    int kind = pinned ? DPB_LINK_PINNED : PAGEABLE;
    for (int i = 0; i < 2; i++) {
        void *host = NULL, *there = NULL;
        DPB_TRY(bench->links->open_queue(device, &bench->queues[i]));
        DPB_TRY(take_buffer(bench, kind, device, bytes, &host));
        DPB_TRY(take_buffer(bench, DPB_LINK_DEVICE, device, bytes, &there));
        lanes[i] = i == DPB_LINKS_TO_DEVICE
                       ? (struct lane){bench->queues[i], there, host, device, DPB_LINK_HOST}
                       : (struct lane){bench->queues[i], host, there, DPB_LINK_HOST, device};
    }
    return DPB_OK;
}

static dpb_status host_ways(const struct dpb_links_limits *limits,
                            const struct dpb_device_links *links, const struct lane lanes[2],
                            struct dpb_links_host *host)
{
    for (int way = 0; way < 2; way++) {
        struct course course = {.links = links, .lanes = {lanes[way]}, .n_lanes = 1};
        DPB_TRY(time_latency(limits, &course, &host->latency[way]));
        DPB_TRY(time_rates(limits, &course, host->rate[way]));
    }
    /* A copy of pageable memory blocks its caller, so two copies take turns. */
    if (!host->pinned)
        return DPB_OK;
    struct course both = {.links = links, .lanes = {lanes[0], lanes[1]}, .n_lanes = 2};
    return time_rates(limits, &both, host->rate[DPB_LINKS_BOTH]);
}

dpb_status dpb_links_host_measure(const struct dpb_links_limits *limits,
                                  const struct dpb_device_links *links, uint32_t device,
                                  bool pinned, struct dpb_links_host *host)
{
    struct bench bench = {.links = links};
    struct lane lanes[2];
    *host = (struct dpb_links_host){.device = device, .pinned = pinned};
    for (int way = 0; way < DPB_LINKS_WAYS; way++)
        for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++)
            host->rate[way][i] = dpb_links_nothing();
    host->latency[0] = host->latency[1] = dpb_links_nothing();
    dpb_status status = host_lanes(&bench, limits->max_bytes, device, pinned, lanes);
    DPB_THEN(status, host_ways(limits, links, lanes, host));
    bench_close(&bench);
    return status;
}

/* ---- device and device --------------------------------------------------------------------- */

/* The second lane goes the other way. */
static dpb_status pair_lanes(struct bench *bench, uint64_t bytes, uint32_t from, uint32_t to,
                             struct lane lanes[2])
{
    for (int i = 0; i < 2; i++) {
        uint32_t a = i == 0 ? from : to, b = i == 0 ? to : from;
        void *source = NULL, *destination = NULL;
        DPB_TRY(bench->links->open_queue(a, &bench->queues[i]));
        DPB_TRY(take_buffer(bench, DPB_LINK_DEVICE, a, bytes, &source));
        DPB_TRY(take_buffer(bench, DPB_LINK_DEVICE, b, bytes, &destination));
        lanes[i] = (struct lane){bench->queues[i], destination, source, b, a};
    }
    return DPB_OK;
}

static dpb_status pair_rates(const struct dpb_links_limits *limits,
                             const struct dpb_device_links *links, struct dpb_links_pair *pair)
{
    struct bench bench = {.links = links};
    struct lane lanes[2];
    dpb_status status = pair_lanes(&bench, limits->max_bytes, pair->from, pair->to, lanes);
    if (status == DPB_OK) {
        struct course course = {.links = links, .lanes = {lanes[0], lanes[1]}, .n_lanes = 1};
        status = time_latency(limits, &course, &pair->latency);
        DPB_THEN(status, time_rates(limits, &course, pair->one_way));
        course.n_lanes = 2;
        if (status == DPB_OK && pair->from != pair->to)
            status = time_rates(limits, &course, pair->both);
    }
    bench_close(&bench);
    return status;
}

static dpb_status enable(const struct dpb_device_links *links, uint32_t a, uint32_t b, bool enabled)
{
    DPB_TRY(links->peer_enable(a, b, enabled));
    return links->peer_enable(b, a, enabled);
}

dpb_status dpb_links_pair_measure(const struct dpb_links_limits *limits,
                                  const struct dpb_device_links *links, uint32_t from, uint32_t to,
                                  bool direct, struct dpb_links_pair *pair)
{
    bool there = true, back = true, peers = direct && from != to;
    *pair = (struct dpb_links_pair){
        .from = from, .to = to, .direct = direct, .latency = dpb_links_nothing()};
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++)
        pair->one_way[i] = pair->both[i] = dpb_links_nothing();
    if (peers) {
        DPB_TRY(links->peer_possible(from, to, &there));
        DPB_TRY(links->peer_possible(to, from, &back));
    }
    pair->possible = there && back;
    if (!pair->possible)
        return DPB_OK;
    if (peers)
        DPB_TRY(enable(links, from, to, true));
    dpb_status status = pair_rates(limits, links, pair);
    if (peers) {
        dpb_status undone = enable(links, from, to, false);
        status = status != DPB_OK ? status : undone;
    }
    return status;
}
