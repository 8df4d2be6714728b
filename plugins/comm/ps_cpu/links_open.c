/* links_open.c - makes and ends the links between workers and servers: see ps.h. */
#include <stdlib.h>

#include "comm/ps_cpu/links_parts.h"

static const char *const kinds[MESH_KINDS] = {"parameters",      "gradients",       "new weights",
                                              "weights to load", "loading weights", "word",
                                              "the model",       "age of gradients"};

_Static_assert((int)AGE < (int)MESH_KINDS, "kinds of messages");

/* ---- ranks and sizes ----------------------------------------------------------------------- */

static uint32_t n_ranks(const struct dpb_comm_args *args)
{
    return args->n_workers + args->n_servers;
}

static bool is_a_shard(const struct dpb_comm_args *args, uint32_t rank)
{
    struct rank_set all = ps_shards(args);
    return rank >= all.first && rank < all.first + all.n;
}

/* Ranks that work together, but on different machines. */
bool links_lead_to(const struct dpb_comm_args *args, uint32_t rank)
{
    bool served = args->role == DPB_WORKER && is_a_shard(args, rank);
    bool serves = ps_is_shard(args) && rank < args->n_workers;
    return (served || serves) && !ps_is_here(args, rank);
}

/* The most that a slice has: a bucket may be given larger than the model is. */
static uint64_t slice_elements(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                               uint64_t bucket_elements)
{
    uint32_t n = ps_shards(args).n;
    return (strategy_longest_bucket(layout, bucket_elements) + n - 1) / n;
}

static uint64_t inbox_slot(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements)
{
    return args->codec ? coded_slot_bytes(args->codec, layout, bucket_elements, 0)
                       : slice_elements(args, layout, bucket_elements) *
                             dpb_dtype_size(layout->gradient_type);
}

/* Whether slices to and from a rank go through shared memory. */
static bool shares(const struct dpb_comm_args *args, const struct links_memory *memory,
                   uint32_t rank)
{
    return memory->machines && memory->machines[rank] == memory->machines[args->rank];
}

uint64_t links_inbox_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements, const struct links_memory *memory)
{
    const uint64_t in = inbox_slot(args, layout, bucket_elements);
    const uint64_t out =
        slice_elements(args, layout, bucket_elements) * dpb_dtype_size(layout->weight_type);
    uint64_t n = 0;
    for (uint32_t rank = 0; rank < args->n_workers && ps_is_shard(args); rank++)
        n += links_lead_to(args, rank) && !shares(args, memory, rank);
    if (memory->accrues && args->role == DPB_WORKER)
        return layout->n_elements * dpb_dtype_size(layout->gradient_type);
    return n * strategy_count_buckets(layout, bucket_elements) *
           (in + (memory->keeps_sent ? out : 0));
}

/* ---- making and ending --------------------------------------------------------------------- */

static size_t times_bytes(const struct links *links)
{
    return 4 * (links->base->arenas.n_buckets + 1) * sizeof(int64_t);
}

static size_t steps_bytes(const struct links *links)
{
    return (1 + (size_t)n_ranks(&links->base->args)) * STEP_BYTES;
}

/* The same places in the scratch of all ranks. */
static char *arena_pushed_from(const struct links *links, uint32_t rank)
{
    const struct dpb_arenas *arenas = &links->base->arenas;
    return links->memory.accrues
               ? (char *)arenas->peer_scratch[rank] + (links->inbox - (char *)arenas->scratch)
               : arenas->peer_gradients[rank];
}

static void place_boxes(struct links *links, struct link *link, char **at)
{
    const struct dpb_arenas *arenas = &links->base->arenas;
    if (link->shares) {
        link->pushed_from = arena_pushed_from(links, link->rank);
        return;
    }
    link->inbox = *at;
    *at += arenas->n_buckets * links->inbox_slot;
    if (!links->memory.keeps_sent)
        return;
    link->outbox = *at;
    *at += links_place_of(links, arenas->n_buckets, arenas->layout.weight_type);
}

static dpb_status make_link(struct links *links, uint32_t rank, char **at)
{
    const struct strategy *base = links->base;
    const struct dpb_arenas *arenas = &base->arenas;
    struct link *link = &links->links[links->n];
    int64_t *times = links->host->alloc(times_bytes(links));
    if (!times)
        return DPB_NO_MEMORY;
    *link =
        (struct link){.rank = rank,
                      .is_shard = base->args.role == DPB_WORKER && is_a_shard(&base->args, rank),
                      .is_worker = ps_is_shard(&base->args) && rank < base->args.n_workers,
                      .shares = shares(&base->args, &links->memory, rank),
                      .began_ns = times,
                      .came_ns = times + arenas->n_buckets,
                      .given_ns = times + 2 * arenas->n_buckets,
                      .waited_ns = times + 3 * arenas->n_buckets,
                      .step = links->steps + (1 + (size_t)rank) * STEP_BYTES};
    if (link->is_worker)
        place_boxes(links, link, at);
    links->by_rank[rank] = links->n++;
    return DPB_OK;
}

static dpb_status make_links(struct links *links)
{
    const struct dpb_comm_args *args = &links->base->args;
    char *at = links->inbox;
    links->steps = links->host->alloc(steps_bytes(links));
    if (!links->steps)
        return DPB_NO_MEMORY;
    links->links = calloc(n_ranks(args), sizeof *links->links);
    links->by_rank = calloc(n_ranks(args), sizeof *links->by_rank);
    links->comers = calloc(n_ranks(args), sizeof *links->comers);
    if (!links->links || !links->by_rank || !links->comers)
        return links->host->fail(DPB_NO_MEMORY, "no memory for links to %u ranks", n_ranks(args));
    for (uint32_t rank = 0; rank < n_ranks(args); rank++) {
        links->by_rank[rank] = NONE;
        if (links_lead_to(args, rank))
            DPB_TRY(make_link(links, rank, &at));
    }
    return DPB_OK;
}

static dpb_status connect_mesh(struct links *links, struct mesh_transport *transport,
                               const struct mesh_peer *peers)
{
    const struct strategy *base = links->base;
    const struct dpb_arenas *arenas = &base->arenas;
    const struct dpb_layout *layout = &arenas->layout;
    uint64_t messages_bytes = 0;
    void *messages = base->args.codec ? coded_memory_of(base, &messages_bytes) : NULL;
    const struct mesh_memory memories[] = {
        {"the weights", arenas->weights,
         arenas->weights ? layout->n_elements * dpb_dtype_size(layout->weight_type) : 0},
        {"the gradients", arenas->gradients,
         arenas->gradients ? layout->n_elements * dpb_dtype_size(layout->gradient_type) : 0},
        {"the messages", messages, messages_bytes},
        {"the answers", links->memory.answers,
         links->memory.answers ? arenas->n_buckets * links->memory.answer_slot : 0},
        {"the inbox", links->inbox, links->inbox_bytes},
        {"the steps' parameters", links->steps, steps_bytes(links)}};
    const struct mesh_args args = {
        .host = links->host,
        .transport = transport,
        .name = "ps",
        .what = "the parameter servers",
        .kinds = kinds,
        .rank = base->args.rank,
        .keeper = 0,
        .peers = peers,
        .n_peers = links->n,
        .memories = memories,
        .n_memories = sizeof memories / sizeof memories[0],
        .doorbell = base->signals.doorbell,
        .survives = base->args.survives && base->args.role == DPB_SERVER,
        .sink = {.owner = links, .expects = links_expects, .arrived = links_arrived}};
    return mesh_open(&args, &links->mesh);
}

static dpb_status open_mesh(struct links *links, struct mesh_transport *transport)
{
    const struct strategy *base = links->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    size_t inbox_bytes = base->arenas.n_buckets * links->inbox_slot;
    const void *arena = base->arenas.weights; /* NULL: of a server that gives answers */
    size_t weight_bytes = arena ? layout->n_elements * dpb_dtype_size(layout->weight_type) : 0;
    struct mesh_peer *peers = calloc(links->n + 1, sizeof *peers);
    if (!peers) {
        transport->ops->close(transport, false);
        return links->host->fail(DPB_NO_MEMORY, "no memory for %u links", links->n);
    }
    struct mesh_landing weights = {base->arenas.weights, weight_bytes};
    if (links->memory.answers)
        weights = (struct mesh_landing){links->memory.answers,
                                        base->arenas.n_buckets * links->memory.answer_slot};
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        peers[i] = (struct mesh_peer){
            .rank = link->rank,
            .landings = {[STEP] = {link->step, STEP_BYTES},
                         [GRADIENTS] = {link->inbox, link->inbox ? inbox_bytes : 0},
                         [WEIGHTS] = weights,
                         [LOAD] = {base->arenas.weights, weight_bytes},
                         [MODEL] = {base->arenas.weights, weight_bytes}}};
    }
    dpb_status status = connect_mesh(links, transport, peers);
    free(peers);
    return status;
}

dpb_status links_open(struct strategy *base, struct mesh_transport *transport, void *inbox,
                      const struct links_memory *memory, struct links **made)
{
    const struct dpb_arenas *arenas = &base->arenas;
    struct links *links = calloc(1, sizeof *links);
    dpb_status status = DPB_OK;
    if (links) {
        links->host = base->host;
        links->base = base;
        links->slice_elements =
            slice_elements(&base->args, &arenas->layout, arenas->bucket_elements);
        links->inbox_slot = inbox_slot(&base->args, &arenas->layout, arenas->bucket_elements);
        links->inbox = inbox;
        links->inbox_bytes =
            links_inbox_bytes(&base->args, &arenas->layout, arenas->bucket_elements, memory);
        links->memory = *memory;
        links->turn = (struct links_turn){arenas->gradients, 1, true};
        status = make_links(links);
        DPB_THEN(status, strategy_open_doorbell(base, "ps"));
    } else {
        status = base->host->fail(DPB_NO_MEMORY, "no memory for links");
    }
    if (status == DPB_OK)
        status = open_mesh(links, transport);
    else
        transport->ops->close(transport, false);
    if (status != DPB_OK) {
        links_close(links, false);
        return status;
    }
    *made = links;
    return DPB_OK;
}

void links_close(struct links *links, bool through)
{
    if (!links)
        return;
    mesh_close(links->mesh, through);
    for (uint32_t i = 0; i < links->n; i++)
        links->host->release(links->links[i].began_ns, times_bytes(links));
    links->host->release(links->steps, steps_bytes(links));
    free(links->links);
    free(links->by_rank);
    free(links->comers);
    free(links);
}
