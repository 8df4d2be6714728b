/* over_ring.c - between machines by a ring of the library's, over TCP or verbs: see across.h. */
#include <stdio.h>

#include "across.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/verbs/mesh_verbs.h"

struct over_ring {
    struct across base;
    const struct dpb_host *host;
    struct dpb_ring_options options;
    struct dpb_mesh_transport *transport; /* the ring's, once there is one */
    struct dpb_ring_inbox inbox;
    uint64_t share_elements; /* of the longest share */
    char name[32];           /* of the ring */
};

static dpb_status over_ring_plan(struct across *across, uint64_t share_elements,
                                 struct dpb_comm_plan *want)
{
    struct over_ring *over = (struct over_ring *)across;
    over->share_elements = share_elements;
    return dpb_ring_inbox_plan(over->host, &over->options, want, &over->inbox);
}

static dpb_status over_ring_connect(struct across *across, const struct across_group *group)
{
    struct over_ring *over = (struct over_ring *)across;
    const struct dpb_arenas *arenas = group->arenas;
    snprintf(over->name, sizeof over->name, "ring %u", group->place);
    const struct dpb_ring_args args = {.host = over->host,
                                       .transport = over->transport,
                                       .members = {.name = over->name,
                                                   .members = group->members,
                                                   .n_members = group->job->n_machines,
                                                   .position = group->machine,
                                                   .doorbell = group->doorbell},
                                       .memory = dpb_ring_inbox_memory(&over->inbox, arenas),
                                       .type = arenas->layout.gradient_type,
                                       .shards = group->shards,
                                       .n_buckets = arenas->n_buckets,
                                       .bucket_elements = over->share_elements};
    over->transport = NULL; /* the ring's from here on */
    return dpb_ring_create(&args, &across->sums);
}

static void over_ring_close(struct across *across)
{
    struct over_ring *over = (struct over_ring *)across;
    if (over->transport)
        over->transport->ops->close(over->transport, false);
    dpb_sums_destroy(across->sums);
    over->host->release(over, sizeof *over);
}

static const struct across_ops ops = {
    .plan = over_ring_plan, .connect = over_ring_connect, .close = over_ring_close};

static dpb_status open_transport(struct over_ring *over, const struct hierarchical_options *given,
                                 uint32_t place)
{
#ifdef DPB_HAVE_VERBS
    if (given->transport == OVER_VERBS) {
        struct verbs_options verbs = given->verbs;
        verbs.interface = given->tcp.interface;
        return mesh_verbs_create(over->host, &verbs, place, &over->transport);
    }
#endif
    (void)place; /* verbs without its library is refused before */
    return dpb_mesh_tcp_create(over->host, &given->tcp, &over->transport);
}

dpb_status across_open_ring(const struct dpb_host *host, const struct hierarchical_options *options,
                            uint32_t place, struct across **across)
{
    struct over_ring *over = host->alloc(sizeof *over);
    if (!over)
        return DPB_NO_MEMORY;
    *over = (struct over_ring){.base = {.ops = &ops}, .host = host, .options = options->ring};
    dpb_status status = open_transport(over, options, place);
    if (status != DPB_OK) {
        over_ring_close(&over->base);
        return status;
    }
    *across = &over->base;
    return DPB_OK;
}
