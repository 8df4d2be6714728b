/* mesh_verbs.c - see mesh_verbs.h. */
#include "lib/verbs/mesh_verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mesh/mesh.h"
#include "lib/verbs/adapter.h"
#include "lib/verbs/failure.h"

/* The good-bye, among the numbers of credits. */
#define BYE UINT32_MAX
#define BYE_NS INT64_C(1000000000)

enum {
    PLACES = 32,   /* labels sent to a rank whose places the rank has not returned */
    REQUESTS = 48, /* posted writes of a link */
    CREDITS = 8,   /* under way; a credit is for a quarter of the places */
    NUMBERS = CREDITS + 1
};

/* The kind of a request; above the link's number in wr_id. */
enum kind { KIND_PART, KIND_LAST, KIND_CREDIT, KIND_BYE, KIND_IN };

/* A place for a label, at either end. */
struct place {
    uint8_t header[DPB_MESH_HEADER_BYTES];
    uint8_t unused[DPB_CACHE_LINE - DPB_MESH_HEADER_BYTES];
};

_Static_assert(sizeof(struct place) == DPB_CACHE_LINE, "a place is a cache line");

struct message {
    struct dpb_mesh_label label;
    const char *payload;
    uint64_t posted_bytes;
};

struct way {
    struct link link;
    struct place *in, *out; /* PLACES each */
    struct remote labels, landings[DPB_MESH_KINDS];
    struct message queue[DPB_MESH_QUEUE];
    uint32_t head, cursor, tail; /* they only rise: delivered, being posted, accepted */
    uint32_t n_requests;         /* posted, not completed */
    uint64_t n_sent, n_returned; /* labels */
    uint64_t n_received;
    uint32_t n_unreturned, n_credits; /* labels taken, but not returned yet; credits under way */
    bool left, bye_sent;              /* the peer's good-bye has come; ours is with the peer */
    bool failed;                      /* after the good-bye or while closing: nothing can be sent */
};

struct region {
    const char *at;
    uint64_t bytes;
    struct ibv_mr *registered;
};

struct mesh_verbs {
    struct dpb_mesh_transport base;
    const struct dpb_host *host;
    struct dpb_mesh *mesh;
    struct adapter adapter;
    uint32_t n_ways, n_regions;
    struct way *ways;
    struct region *regions;
    struct place *places;
    struct ibv_mr *places_region;
    uint64_t largest_bytes;              /* of a write */
    const struct pollfd *awaited;        /* the argument of poll; NULL: no descriptor to check */
    const struct dpb_doorbell *doorbell; /* struct dpb_mesh_args */
    bool closing;
    dpb_status status; /* a failure in a function that returns no status */
};

static uint64_t request_id(enum kind kind, uint32_t link)
{
    return (uint64_t)kind << 32 | link;
}

static size_t places_bytes(const struct mesh_verbs *verbs)
{
    return ((size_t)verbs->n_ways * 2 * PLACES + 1) * sizeof *verbs->places;
}

static struct mesh_verbs *verbs_of(struct dpb_mesh_transport *transport)
{
    return (struct mesh_verbs *)(void *)transport;
}

static const struct way *way_seen(const struct dpb_mesh_transport *transport, uint32_t link)
{
    return &((const struct mesh_verbs *)(const void *)transport)->ways[link];
}

enum { PAGE_BYTES = 4096, KEY_BYTES = 96, SHAPE_BYTES = 160 };

/* The two ends of a link exchange their cards. */
struct mesh_card {
    struct port_card port;
    uint32_t queue,
        begins; /* of the queue pair: its number, and the packet number it begins with */
    struct remote labels, landings[DPB_MESH_KINDS];
    uint32_t n_places, unused;
    char shape[SHAPE_BYTES]; /* struct dpb_mesh_args.shape */
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

static dpb_status register_memories(struct mesh_verbs *verbs, const struct dpb_mesh_args *args)
{
    for (uint32_t i = 0; i < args->n_memories; i++) {
        const struct dpb_mesh_memory *memory = &args->memories[i];
        if (memory->bytes == 0)
            continue;
        struct region *region = &verbs->regions[verbs->n_regions];
        DPB_TRY(adapter_register(&verbs->adapter, memory->what, memory->at, memory->bytes,
                                 &region->registered));
        region->at = memory->at;
        region->bytes = memory->bytes;
        verbs->n_regions++;
    }
    return adapter_register(&verbs->adapter, "the labels", verbs->places, places_bytes(verbs),
                            &verbs->places_region);
}

static dpb_status allocate(struct mesh_verbs *verbs, const struct dpb_mesh_args *args)
{
    verbs->n_ways = args->n_peers;
    verbs->ways = calloc(args->n_peers + 1, sizeof *verbs->ways);
    verbs->regions = calloc(args->n_memories + 1, sizeof *verbs->regions);
    verbs->places = verbs->host->alloc(places_bytes(verbs));
    if (!verbs->places)
        return DPB_NO_MEMORY;
    if (!verbs->ways || !verbs->regions)
        return verbs->host->fail(DPB_NO_MEMORY, "no memory to connect %s", args->what);
    return DPB_OK;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* The key in the store for news over a link: to its other end (`own`), or from the other end. */
static void make_key(const struct dpb_mesh_args *args, const char *what, uint32_t link, bool own,
                     char key[KEY_BYTES])
{
    const struct dpb_mesh_peer *peer = &args->peers[link];
    snprintf(key, KEY_BYTES, "%s.verbs.%s.%u.%u.%u", args->name, what,
             own ? args->rank : peer->rank, own ? peer->rank : args->rank, peer->number);
}

/* Where in registered memory a landing lies; one that is not there has no key. */
static struct remote landing_of(const struct mesh_verbs *verbs,
                                const struct dpb_mesh_landing *landing)
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

static dpb_status put_card(const struct mesh_verbs *verbs, const struct dpb_mesh_args *args,
                           uint32_t link)
{
    const struct way *way = &verbs->ways[link];
    const struct dpb_mesh_peer *peer = &args->peers[link];
    struct mesh_card card = {
        .port = link_card(&verbs->adapter.port),
        .queue = way->link.queue->qp_num,
        .begins = way->link.begins,
        .labels = {.at = (uintptr_t)way->in, .key = verbs->places_region->rkey},
        .n_places = PLACES};
    char key[KEY_BYTES];
    snprintf(card.shape, sizeof card.shape, "%s", args->shape ? args->shape : "");
    for (uint32_t kind = 0; kind < DPB_MESH_KINDS; kind++)
        card.landings[kind] = landing_of(verbs, &peer->landings[kind]);
    make_key(args, "card", link, true, key);
    return verbs->host->store->put(key, &card, sizeof card);
}

static dpb_status take_card(struct mesh_verbs *verbs, const struct dpb_mesh_args *args,
                            uint32_t link)
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
static dpb_status meet(const struct mesh_verbs *verbs, const struct dpb_mesh_args *args)
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

static dpb_status connect_all(struct dpb_mesh_transport *transport,
                              const struct dpb_mesh_args *args, struct dpb_mesh *mesh)
{
    struct mesh_verbs *verbs = verbs_of(transport);
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

/* ---- sending ------------------------------------------------------------------------------- */

static uint32_t room(const struct dpb_mesh_transport *transport, uint32_t link)
{
    const struct way *way = way_seen(transport, link);
    return DPB_MESH_QUEUE - (way->tail - way->head);
}

/* The key of own memory, which payload lies in: the mesh's user has said so. */
static uint32_t key_of(const struct mesh_verbs *verbs, const char *at)
{
    uint32_t i = 0;
    while (i < verbs->n_regions &&
           (at < verbs->regions[i].at || at >= verbs->regions[i].at + verbs->regions[i].bytes))
        i++;
    assert(i < verbs->n_regions);
    return verbs->regions[i].registered->lkey;
}

/* The next write of a message, at most as large as one may be. */
static struct link_write next_write(const struct mesh_verbs *verbs, const struct way *way,
                                    const struct message *message)
{
    uint64_t rest = message->label.bytes - message->posted_bytes;
    const char *from = message->payload + message->posted_bytes;
    return (struct link_write){.id = request_id(KIND_PART, (uint32_t)(way - verbs->ways)),
                               .from = from,
                               .bytes = rest < verbs->largest_bytes ? rest : verbs->largest_bytes,
                               .offset = message->label.at_bytes + message->posted_bytes,
                               .key = key_of(verbs, from),
                               .to = way->landings[message->label.kind]};
}

/* The rest of a message and its label. */
static dpb_status post_last(struct mesh_verbs *verbs, struct way *way,
                            const struct link_write *payload)
{
    uint64_t place = way->n_sent % PLACES,
             id = request_id(KIND_LAST, (uint32_t)(way - verbs->ways));
    const struct message *message = &way->queue[way->cursor % DPB_MESH_QUEUE];
    dpb_mesh_write_header(way->out[place].header, &message->label);
    const struct link_write label = {.id = id,
                                     .from = &way->out[place],
                                     .bytes = sizeof way->out[place],
                                     .offset = place * sizeof way->out[place],
                                     .key = verbs->places_region->lkey,
                                     .to = way->labels};
    struct link_write last = {0};
    if (payload) {
        last = *payload;
        last.id = id;
    }
    DPB_TRY(link_post_message(verbs->host, &way->link, &label, payload ? &last : NULL,
                              (uint32_t)way->n_sent));
    way->n_sent++;
    way->n_requests += 2;
    way->cursor++;
    return DPB_OK;
}

static dpb_status post_part(struct mesh_verbs *verbs, struct way *way, struct message *message,
                            const struct link_write *part)
{
    DPB_TRY(link_post_write(verbs->host, &way->link, part));
    message->posted_bytes += part->bytes;
    way->n_requests++;
    return DPB_OK;
}

/* Posts as many requests as there is room for. */
static dpb_status pump(struct mesh_verbs *verbs, struct way *way)
{
    while (way->cursor != way->tail && way->n_requests + 2 <= REQUESTS && !way->failed) {
        struct message *message = &way->queue[way->cursor % DPB_MESH_QUEUE];
        bool label_may = way->n_sent - way->n_returned < PLACES;
        struct link_write write = {0};
        if (message->label.bytes > 0)
            write = next_write(verbs, way, message);
        if (message->posted_bytes + write.bytes < message->label.bytes)
            DPB_TRY(post_part(verbs, way, message, &write));
        else if (label_may)
            DPB_TRY(post_last(verbs, way, write.bytes > 0 ? &write : NULL));
        else
            break;
    }
    return DPB_OK;
}

static void send_message(struct dpb_mesh_transport *transport, uint32_t link,
                         const struct dpb_mesh_label *label, const void *payload)
{
    struct mesh_verbs *verbs = verbs_of(transport);
    struct way *way = &verbs->ways[link];
    way->queue[way->tail++ % DPB_MESH_QUEUE] =
        (struct message){.label = *label, .payload = payload};
    if (verbs->status == DPB_OK)
        verbs->status = pump(verbs, way);
}

static dpb_status give_back(struct mesh_verbs *verbs, struct way *way)
{
    if (way->n_unreturned < PLACES / 4 || way->n_credits == CREDITS || way->left)
        return DPB_OK;
    uint64_t id = request_id(KIND_CREDIT, (uint32_t)(way - verbs->ways));
    DPB_TRY(link_post_number(verbs->host, &way->link, id, way->n_unreturned));
    way->n_credits++;
    way->n_unreturned = 0;
    return DPB_OK;
}

/* ---- receiving ----------------------------------------------------------------------------- */

static dpb_status take_message(struct mesh_verbs *verbs, struct way *way, uint32_t number)
{
    uint32_t link = (uint32_t)(way - verbs->ways);
    const struct place *place = &way->in[way->n_received % PLACES];
    struct dpb_mesh_label label;
    void *memory;
    if (number != (uint32_t)way->n_received || !dpb_mesh_read_header(place->header, &label))
        return dpb_mesh_refuse_bytes(verbs->mesh, link);
    way->n_received++;
    way->n_unreturned++;
    DPB_TRY(dpb_mesh_begins(verbs->mesh, link,
                            dpb_mesh_arrived(verbs->mesh, link, label.kind % DPB_MESH_KINDS),
                            &label, &memory));
    dpb_mesh_arrives(verbs->mesh, link, &label);
    return give_back(verbs, way);
}

static dpb_status take_number(struct mesh_verbs *verbs, struct way *way, uint32_t number)
{
    uint32_t link = (uint32_t)(way - verbs->ways);
    if (number == BYE) {
        way->left = true;
        dpb_mesh_leaves(verbs->mesh, link);
        return DPB_OK;
    }
    if (number > way->n_sent - way->n_returned)
        return dpb_mesh_refuse_bytes(verbs->mesh, link);
    way->n_returned += number;
    return DPB_OK;
}

static dpb_status fail_completion(const struct mesh_verbs *verbs, struct way *way, enum kind kind,
                                  const struct ibv_wc *completion)
{
    char text[DPB_MESH_TEXT_BYTES];
    if (way->left || verbs->closing) {
        way->failed = true;
        way->head = way->cursor = way->tail; /* a peer that has left needs no more */
        return DPB_OK;
    }
    if (kind != KIND_PART && kind != KIND_LAST)
        return failure_of_completion(verbs->host, &way->link, completion, NULL);
    dpb_mesh_describe(verbs->mesh, &way->queue[way->head % DPB_MESH_QUEUE].label, text);
    return failure_of_completion(verbs->host, &way->link, completion, text);
}

static dpb_status complete(struct mesh_verbs *verbs, const struct ibv_wc *completion)
{
    enum kind kind = (enum kind)(completion->wr_id >> 32);
    uint32_t link = (uint32_t)completion->wr_id, number = ntohl(completion->imm_data);
    struct way *way = &verbs->ways[link];
    if (completion->status != IBV_WC_SUCCESS)
        return fail_completion(verbs, way, kind, completion);
    switch (kind) {
    case KIND_PART:
        way->n_requests--;
        return DPB_OK;
    case KIND_LAST:
        way->n_requests -= 2;
        way->head++;
        return DPB_OK;
    case KIND_CREDIT:
        way->n_credits--;
        return DPB_OK;
    case KIND_BYE:
        way->bye_sent = true;
        return DPB_OK;
    default:
        DPB_TRY(link_post_receive(verbs->host, &way->link, completion->wr_id));
        return completion->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? take_message(verbs, way, number)
                                                               : take_number(verbs, way, number);
    }
}

/* ---- moving and waiting -------------------------------------------------------------------- */

static dpb_status move_some(struct mesh_verbs *verbs, int64_t until_ns, bool *moved)
{
    for (bool some;;) {
        DPB_TRY(adapter_poll(&verbs->adapter, &some));
        if (!some)
            break;
        DPB_TRY(complete(verbs, adapter_take(&verbs->adapter)));
        *moved = true;
        if (verbs->host->now_ns() >= until_ns)
            break;
    }
    for (uint32_t link = 0; link < verbs->n_ways; link++)
        DPB_TRY(pump(verbs, &verbs->ways[link]));
    return DPB_OK;
}

static dpb_status move(struct dpb_mesh_transport *transport, int64_t until_ns, bool *moved)
{
    struct mesh_verbs *verbs = verbs_of(transport);
    if (verbs->awaited && verbs->status == DPB_OK)
        verbs->status = adapter_woken(&verbs->adapter, verbs->awaited);
    verbs->awaited = NULL;
    if (verbs->status == DPB_OK)
        verbs->status = move_some(verbs, until_ns, moved);
    return verbs->status;
}

static uint32_t n_watched(const struct dpb_mesh_transport *transport)
{
    (void)transport;
    return ADAPTER_FDS;
}

static bool watch(struct dpb_mesh_transport *transport, struct pollfd *fds)
{
    struct mesh_verbs *verbs = verbs_of(transport);
    bool some = false;
    if (verbs->status == DPB_OK)
        verbs->status = adapter_arm(&verbs->adapter, verbs->doorbell, fds, &some);
    verbs->awaited = fds;
    return verbs->status == DPB_OK && !some;
}

/* ---- ending -------------------------------------------------------------------------------- */

static bool all_know(const struct mesh_verbs *verbs)
{
    for (uint32_t link = 0; link < verbs->n_ways; link++)
        if (!verbs->ways[link].failed && (!verbs->ways[link].bye_sent || !verbs->ways[link].left))
            return false;
    return true;
}

/* A queue pair that is destroyed drops its unsent requests, and a peer that sends to it gets no
 * answer. So both ends stay until both good-byes have come. A slow peer is not waited for long: it
 * has ours, and nothing is to come from it. */
static void say_bye(struct mesh_verbs *verbs)
{
    int64_t until_ns = verbs->host->now_ns() + BYE_NS, now_ns;
    struct pollfd fds[ADAPTER_FDS];
    bool moved, posted = verbs->status == DPB_OK;
    verbs->closing = true;
    for (uint32_t link = 0; posted && link < verbs->n_ways; link++)
        if (!verbs->ways[link].failed)
            posted = link_post_number(verbs->host, &verbs->ways[link].link,
                                      request_id(KIND_BYE, link), BYE) == DPB_OK;
    while (posted && !all_know(verbs) && (now_ns = verbs->host->now_ns()) < until_ns) {
        if (move(&verbs->base, INT64_MAX, &moved) != DPB_OK)
            break;
        if (!all_know(verbs) && watch(&verbs->base, fds))
            (void)poll(fds, ADAPTER_FDS, (int)((until_ns - now_ns) / 1000000) + 1);
    }
}

/* Closes queue pairs before memory: only a queue pair could still write there. */
static void close_all(struct dpb_mesh_transport *transport, bool through)
{
    struct mesh_verbs *verbs = verbs_of(transport);
    if (through && verbs->mesh)
        say_bye(verbs);
    for (uint32_t link = 0; link < verbs->n_ways && verbs->ways; link++)
        link_close(&verbs->ways[link].link);
    for (uint32_t i = 0; i < verbs->n_regions; i++)
        adapter_deregister(verbs->regions[i].registered);
    adapter_deregister(verbs->places_region);
    adapter_close(&verbs->adapter);
    verbs->host->release(verbs->places, places_bytes(verbs));
    free(verbs->regions);
    free(verbs->ways);
    free(verbs);
}

static const struct dpb_mesh_transport_ops verbs_ops = {.connect = connect_all,
                                                        .room = room,
                                                        .send = send_message,
                                                        .move = move,
                                                        .n_watched = n_watched,
                                                        .watch = watch,
                                                        .close = close_all};

dpb_status mesh_verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                             uint32_t local_rank, struct dpb_mesh_transport **transport)
{
    struct mesh_verbs *verbs = calloc(1, sizeof *verbs);
    if (!verbs)
        return host->fail(DPB_NO_MEMORY, "no memory for an RDMA transport");
    verbs->base.ops = &verbs_ops;
    verbs->host = host;
    dpb_status status = adapter_open(host, options, local_rank, &verbs->adapter);
    if (status != DPB_OK) {
        free(verbs);
        return status;
    }
    *transport = &verbs->base;
    return DPB_OK;
}
