/* mesh_verbs.c - see mesh_verbs.h. */
#include "lib/verbs/mesh_verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>

#include "lib/verbs/failure.h"
#include "lib/verbs/mesh_verbs_links.h"

/* The good-bye, among the numbers of credits. */
#define BYE UINT32_MAX
#define BYE_NS INT64_C(1000000000)

static struct mesh_verbs *verbs_of(struct mesh_transport *transport)
{
    return (struct mesh_verbs *)(void *)transport;
}

static const struct way *way_seen(const struct mesh_transport *transport, uint32_t link)
{
    return &((const struct mesh_verbs *)(const void *)transport)->ways[link];
}

/* ---- sending ------------------------------------------------------------------------------- */

static uint32_t room(const struct mesh_transport *transport, uint32_t link)
{
    const struct way *way = way_seen(transport, link);
    return MESH_QUEUE - (way->tail - way->head);
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
    const struct message *message = &way->queue[way->cursor % MESH_QUEUE];
    mesh_write_header(way->out[place].header, &message->label);
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
        struct message *message = &way->queue[way->cursor % MESH_QUEUE];
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

static void send_message(struct mesh_transport *transport, uint32_t link,
                         const struct mesh_label *label, const void *payload)
{
    struct mesh_verbs *verbs = verbs_of(transport);
    struct way *way = &verbs->ways[link];
    way->queue[way->tail++ % MESH_QUEUE] = (struct message){.label = *label, .payload = payload};
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
    struct mesh_label label;
    void *memory;
    if (number != (uint32_t)way->n_received || !mesh_read_header(place->header, &label))
        return mesh_refuse_bytes(verbs->mesh, link);
    way->n_received++;
    way->n_unreturned++;
    DPB_TRY(mesh_begins(verbs->mesh, link, mesh_arrived(verbs->mesh, link, label.kind % MESH_KINDS),
                        &label, &memory));
    mesh_arrives(verbs->mesh, link, &label);
    return give_back(verbs, way);
}

static dpb_status take_number(struct mesh_verbs *verbs, struct way *way, uint32_t number)
{
    uint32_t link = (uint32_t)(way - verbs->ways);
    if (number == BYE) {
        way->left = true;
        mesh_leaves(verbs->mesh, link);
        return DPB_OK;
    }
    if (number > way->n_sent - way->n_returned)
        return mesh_refuse_bytes(verbs->mesh, link);
    way->n_returned += number;
    return DPB_OK;
}

static dpb_status fail_completion(const struct mesh_verbs *verbs, struct way *way, enum kind kind,
                                  const struct ibv_wc *completion)
{
    char text[MESH_TEXT_BYTES];
    if (way->left || verbs->closing) {
        way->failed = true;
        way->head = way->cursor = way->tail; /* a peer that has left needs no more */
        return DPB_OK;
    }
    if (kind != KIND_PART && kind != KIND_LAST)
        return failure_of_completion(verbs->host, &way->link, completion, NULL);
    mesh_describe(verbs->mesh, &way->queue[way->head % MESH_QUEUE].label, text);
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

static dpb_status move(struct mesh_transport *transport, int64_t until_ns, bool *moved)
{
    struct mesh_verbs *verbs = verbs_of(transport);
    if (verbs->awaited && verbs->status == DPB_OK)
        verbs->status = adapter_woken(&verbs->adapter, verbs->awaited);
    verbs->awaited = NULL;
    if (verbs->status == DPB_OK)
        verbs->status = move_some(verbs, until_ns, moved);
    return verbs->status;
}

static uint32_t n_watched(const struct mesh_transport *transport)
{
    (void)transport;
    return ADAPTER_FDS;
}

static bool watch(struct mesh_transport *transport, struct pollfd *fds)
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
static void close_all(struct mesh_transport *transport, bool through)
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
    verbs->host->release(verbs->places, mesh_verbs_places_bytes(verbs));
    free(verbs->regions);
    free(verbs->ways);
    free(verbs);
}

static const struct mesh_transport_ops verbs_ops = {.connect = mesh_verbs_connect,
                                                    .room = room,
                                                    .send = send_message,
                                                    .move = move,
                                                    .n_watched = n_watched,
                                                    .watch = watch,
                                                    .close = close_all};

dpb_status mesh_verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                             uint32_t local_rank, struct mesh_transport **transport)
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
