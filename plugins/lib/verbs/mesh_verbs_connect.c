/* mesh_verbs_connect.c - see mesh_verbs_links.h: memory, queue pairs, and the cards that their ends
 * exchange by the store. */
#include "lib/verbs/mesh_verbs_links.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 4096, KEY_BYTES = 96, SHAPE_BYTES = 160 };

/* The two ends of a link exchange their cards. */
struct mesh_card {
    struct port_card port;
    uint32_t queue,
        begins; /* of the queue pair: its number, and the packet number it begins with */
    struct remote labels, landings[MESH_KINDS];
    uint32_t n_places, unused;
    char shape[SHAPE_BYTES]; /* struct mesh_args.shape */
};

/* ---- making -------------------------------------------------------------------------------- */

static dpb_status make_queue(struct mesh_verbs *verbs)
{
    const struct port *port = &verbs->adapter.port;
    struct ibv_device_attr device;
    uint32_t n_sends = REQUESTS + NUMBERS, n_receives = PLACES + NUMBERS;
    uint64_t n_completions = (uint64_t)verbs->n_ways * (n_sends + n_receives) + 1;
    int error = ibv_query_device(port->context, &device);
    if (error != 0)
        return verbs->host->fail(DPB_IO, "%s does not tell its limits: %s", port->name,
                                 strerror(error));
    if (n_sends > (uint32_t)device.max_qp_wr || n_completions > (uint64_t)device.max_cqe)
        return verbs->host->fail(DPB_USAGE,
                                 "%s has queues of %d requests and %d completions: too few for "
                                 "connections to %u ranks; take comm.transport = tcp",
                                 port->name, device.max_qp_wr, device.max_cqe, verbs->n_ways);
    verbs->largest_bytes = port->attributes.max_msg_sz / PAGE_BYTES * PAGE_BYTES;
    if (verbs->largest_bytes == 0) /* unknown: every path takes this size at once */
        verbs->largest_bytes = PAGE_BYTES;
    return adapter_make_queue(&verbs->adapter, (uint32_t)n_completions);
}

static dpb_status make_way(struct mesh_verbs *verbs, uint32_t link, uint32_t peer)
{
    struct way *way = &verbs->ways[link];
    const struct adapter *adapter = &verbs->adapter;
    const struct link_size size = {REQUESTS + NUMBERS, PLACES + NUMBERS, sizeof(struct place)};
    way->in = &verbs->places[(size_t)link * 2 * PLACES];
    way->out = way->in + PLACES;
    DPB_TRY(link_create(verbs->host, &adapter->port, adapter->domain, adapter->completions, peer,
                        &size, &way->link));
    for (uint32_t i = 0; i < size.n_receives; i++)
        DPB_TRY(link_post_receive(verbs->host, &way->link, request_id(KIND_IN, link)));
    return DPB_OK;
}

static dpb_status register_memories(struct mesh_verbs *verbs, const struct mesh_args *args)
{
    for (uint32_t i = 0; i < args->n_memories; i++) {
        const struct mesh_memory *memory = &args->memories[i];
        if (memory->bytes == 0)
            continue;
        struct region *region = &verbs->regions[verbs->n_regions];
        DPB_TRY(adapter_register(&verbs->adapter, memory->what, memory->at, memory->bytes,
                                 &region->registered));
        region->at = memory->at;
        region->bytes = memory->bytes;
        verbs->n_regions++;
    }
    return adapter_register(&verbs->adapter, "the labels", verbs->places,
                            mesh_verbs_places_bytes(verbs), &verbs->places_region);
}

static dpb_status allocate(struct mesh_verbs *verbs, const struct mesh_args *args)
{
    verbs->n_ways = args->n_peers;
    verbs->ways = calloc(args->n_peers + 1, sizeof *verbs->ways);
    verbs->regions = calloc(args->n_memories + 1, sizeof *verbs->regions);
    verbs->places = verbs->host->alloc(mesh_verbs_places_bytes(verbs));
    if (!verbs->places)
        return DPB_NO_MEMORY;
    if (!verbs->ways || !verbs->regions)
        return verbs->host->fail(DPB_NO_MEMORY, "no memory to connect %s", args->what);
    return DPB_OK;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* The key in the store for news over a link: to its other end (`own`), or from the other end. */
static void make_key(const struct mesh_args *args, const char *what, uint32_t link, bool own,
                     char key[KEY_BYTES])
{
    const struct mesh_peer *peer = &args->peers[link];
    snprintf(key, KEY_BYTES, "%s.verbs.%s.%u.%u.%u", args->name, what,
             own ? args->rank : peer->rank, own ? peer->rank : args->rank, peer->number);
}

/* Where in registered memory a landing lies; one that is not there has no key. */
static struct remote landing_of(const struct mesh_verbs *verbs, const struct mesh_landing *landing)
{
    for (uint32_t i = 0; i < verbs->n_regions; i++) {
        const struct region *region = &verbs->regions[i];
        const char *at = landing->memory;
        if (landing->bytes > 0 && at >= region->at && at < region->at + region->bytes)
            return (struct remote){.at = (uintptr_t)at, .key = region->registered->rkey};
    }
    assert(landing->bytes == 0);
    return (struct remote){0};
}

static dpb_status put_card(const struct mesh_verbs *verbs, const struct mesh_args *args,
                           uint32_t link)
{
    const struct way *way = &verbs->ways[link];
    const struct mesh_peer *peer = &args->peers[link];
    struct mesh_card card = {
        .port = link_card(&verbs->adapter.port),
        .queue = way->link.queue->qp_num,
        .begins = way->link.begins,
        .labels = {.at = (uintptr_t)way->in, .key = verbs->places_region->rkey},
        .n_places = PLACES};
    char key[KEY_BYTES];
    snprintf(card.shape, sizeof card.shape, "%s", args->shape ? args->shape : "");
    for (uint32_t kind = 0; kind < MESH_KINDS; kind++)
        card.landings[kind] = landing_of(verbs, &peer->landings[kind]);
    make_key(args, "card", link, true, key);
    return verbs->host->store->put(key, &card, sizeof card);
}

static dpb_status take_card(struct mesh_verbs *verbs, const struct mesh_args *args, uint32_t link)
{
    const struct dpb_host *host = verbs->host;
    struct way *way = &verbs->ways[link];
    uint32_t peer = args->peers[link].rank;
    struct mesh_card card;
    size_t bytes = sizeof card;
    char key[KEY_BYTES];
    make_key(args, "card", link, false, key);
    DPB_TRY(host->store->get(key, &card, &bytes, 0));
    if (bytes != sizeof card || card.n_places != PLACES)
        return host->fail(DPB_USAGE, "rank %u and rank %u run different versions of dpbench",
                          args->rank, peer);
    card.shape[sizeof card.shape - 1] = '\0';
    if (args->shape && strcmp(card.shape, args->shape) != 0)
        return host->fail(DPB_USAGE, "rank %u has %s; rank %u has %s", args->rank, args->shape,
                          peer, card.shape);
    DPB_TRY(link_check_card(host, &verbs->adapter.port, args->rank, peer, &card.port));
    way->labels = card.labels;
    memcpy(way->landings, card.landings, sizeof way->landings);
    return link_connect(host, &way->link, &card.port, card.queue, card.begins,
                        (uint32_t)verbs->adapter.options.ack_timeout);
}

/* A rank that is "ready" can receive: messages sent before would have to be sent again. */
static dpb_status meet(const struct mesh_verbs *verbs, const struct mesh_args *args)
{
    char key[KEY_BYTES], byte = 1;
    for (uint32_t link = 0; link < args->n_peers; link++) {
        make_key(args, "ready", link, true, key);
        DPB_TRY(verbs->host->store->put(key, &byte, sizeof byte));
    }
    for (uint32_t link = 0; link < args->n_peers; link++) {
        size_t bytes = sizeof byte;
        make_key(args, "ready", link, false, key);
        DPB_TRY(verbs->host->store->get(key, &byte, &bytes, 0));
    }
    return DPB_OK;
}

dpb_status mesh_verbs_connect(struct mesh_transport *transport, const struct mesh_args *args,
                              struct mesh *mesh)
{
    struct mesh_verbs *verbs = (struct mesh_verbs *)(void *)transport;
    verbs->mesh = mesh;
    verbs->doorbell = args->doorbell;
    DPB_TRY(allocate(verbs, args));
    DPB_TRY(make_queue(verbs));
    DPB_TRY(register_memories(verbs, args));
    for (uint32_t link = 0; link < args->n_peers; link++)
        DPB_TRY(make_way(verbs, link, args->peers[link].rank));
    for (uint32_t link = 0; link < args->n_peers; link++)
        DPB_TRY(put_card(verbs, args, link));
    for (uint32_t link = 0; link < args->n_peers; link++)
        DPB_TRY(take_card(verbs, args, link));
    return meet(verbs, args);
}
