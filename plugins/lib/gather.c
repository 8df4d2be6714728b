/* gather.c - see gather.h. */
#include "lib/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEXT, PREVIOUS, LINKS };
enum { MESSAGE /* the only kind */ };

struct sending {
    uint32_t origin;
    uint64_t bucket;
};

struct gather {
    struct gather_args args;
    const struct dpb_host *host;
    struct mesh *mesh; /* NULL: there is one member */
    uint32_t n_members;
    uint64_t n_buckets;
    bool *here[2];         /* by bank, of a message [origin * n_buckets + bucket] */
    uint32_t *n_here;      /* by bucket, of this exchange: messages of others */
    uint32_t *n_sent;      /* likewise */
    struct sending *queue; /* of this exchange */
    uint64_t n_queued, n_handed_over, n_gone;
    uint64_t sent_before; /* messages of the link in the exchanges before */
    struct pollfd *fds;   /* the bell's, then the mesh's */
};

static uint32_t rank_at(const struct gather *gather, uint32_t position)
{
    const uint32_t *members = gather->args.members;
    position %= gather->n_members;
    return members ? members[position] : position;
}

static uint32_t own_rank(const struct gather *gather)
{
    return gather->args.strategy->args.rank;
}

static uint32_t next_rank(const struct gather *gather)
{
    return rank_at(gather, gather->args.position + 1);
}

static uint32_t previous_rank(const struct gather *gather)
{
    return rank_at(gather, gather->args.position + gather->n_members - 1);
}

static uint32_t in_job(const struct gather *gather, uint32_t rank)
{
    return signals_rank(&gather->args.strategy->signals, rank);
}

static uint64_t exchange_of(const struct gather *gather)
{
    return gather->args.strategy->signals.exchange;
}

static bool *here(const struct gather *gather, uint64_t exchange, uint32_t origin, uint64_t bucket)
{
    return &gather->here[exchange % 2][origin * gather->n_buckets + bucket];
}

static void queue(struct gather *gather, uint32_t origin, uint64_t bucket)
{
    gather->queue[gather->n_queued++] = (struct sending){origin, bucket};
}

/* ---- what the mesh says -------------------------------------------------------------------- */

static dpb_status begins(void *gather_, uint32_t link, uint64_t n, const struct mesh_label *label)
{
    const struct gather *gather = gather_;
    const struct strategy *strategy = gather->args.strategy;
    const uint64_t now = exchange_of(gather);
    (void)n;
    if (link == PREVIOUS && label->kind == MESSAGE && label->word < gather->n_members &&
        label->word != own_rank(gather) && label->bucket < gather->n_buckets &&
        (label->exchange == now + 1 || (label->exchange == now && now != UINT64_MAX)) &&
        label->bytes <= coded_content_bytes(strategy, label->bucket) &&
        label->at_bytes ==
            coded_offset(strategy, label->exchange, (uint32_t)label->word, label->bucket) &&
        !*here(gather, label->exchange, (uint32_t)label->word, label->bucket))
        return DPB_OK;
    return gather->host->fail(
        DPB_FAILED,
        "rank %u sent the message of rank %llu for exchange %llu, bucket %llu: %llu bytes for byte "
        "%llu; rank %u expects no such message: the two do not run the same training",
        in_job(gather, link == PREVIOUS ? previous_rank(gather) : next_rank(gather)),
        (unsigned long long)(label->word < gather->n_members ? in_job(gather, (uint32_t)label->word)
                                                             : label->word),
        (unsigned long long)label->exchange, (unsigned long long)label->bucket,
        (unsigned long long)label->bytes, (unsigned long long)label->at_bytes,
        in_job(gather, own_rank(gather)));
}

static void take(struct gather *gather, uint32_t origin, uint64_t bucket)
{
    gather->n_here[bucket]++;
    if (origin != next_rank(gather))
        queue(gather, origin, bucket);
}

/* A message of the next exchange is taken when that begins. One whose streams disagree may arrive
 * twice. */
static void arrived(void *gather_, uint32_t link, const struct mesh_label *label)
{
    struct gather *gather = gather_;
    const uint32_t origin = (uint32_t)label->word;
    (void)link;
    if (*here(gather, label->exchange, origin, label->bucket))
        return;
    *here(gather, label->exchange, origin, label->bucket) = true;
    coded_message_of(gather->args.strategy, label->exchange, origin, label->bucket)->bytes =
        label->bytes;
    if (label->exchange == exchange_of(gather))
        take(gather, origin, label->bucket);
}

/* ---- for the strategy ---------------------------------------------------------------------- */

void gather_begin(struct gather *gather)
{
    const uint64_t exchange = exchange_of(gather);
    gather->sent_before += gather->n_handed_over;
    gather->n_queued = gather->n_handed_over = gather->n_gone = 0;
    memset(gather->n_here, 0, gather->n_buckets * sizeof *gather->n_here);
    memset(gather->n_sent, 0, gather->n_buckets * sizeof *gather->n_sent);
    memset(here(gather, exchange + 1, 0, 0), 0, gather->n_members * gather->n_buckets);
    for (uint32_t origin = 0; origin < gather->n_members; origin++)
        for (uint64_t bucket = 0; bucket < gather->n_buckets; bucket++)
            if (*here(gather, exchange, origin, bucket))
                take(gather, origin, bucket);
}

void gather_post(struct gather *gather, uint64_t bucket)
{
    if (gather->mesh)
        queue(gather, own_rank(gather), bucket);
}

bool gather_finished(const struct gather *gather, uint64_t bucket)
{
    const uint32_t others = gather->n_members - 1;
    return gather->n_here[bucket] == others && gather->n_sent[bucket] == others;
}

static void hand_over(struct gather *gather, bool *moved)
{
    const struct strategy *strategy = gather->args.strategy;
    const uint64_t exchange = exchange_of(gather);
    for (; gather->n_handed_over < gather->n_queued && mesh_room(gather->mesh, NEXT) > 0;
         gather->n_handed_over++) {
        const struct sending *next = &gather->queue[gather->n_handed_over];
        const struct coded_message *message =
            coded_message_of(strategy, exchange, next->origin, next->bucket);
        const struct mesh_label label = {
            .kind = MESSAGE,
            .bucket = (uint32_t)next->bucket,
            .exchange = exchange,
            .at_bytes = coded_offset(strategy, exchange, next->origin, next->bucket),
            .bytes = message->bytes,
            .word = next->origin};
        mesh_send(gather->mesh, NEXT, &label, message->content);
        gather->host->count_bytes(message->bytes);
        *moved = true;
    }
}

static void note_sent(struct gather *gather)
{
    const uint64_t n = mesh_sent(gather->mesh, NEXT) - gather->sent_before;
    for (; gather->n_gone < n; gather->n_gone++)
        gather->n_sent[gather->queue[gather->n_gone].bucket]++;
}

dpb_status gather_move(struct gather *gather, int64_t until_ns, bool *moved)
{
    bool handed = false;
    *moved = false;
    if (!gather->mesh)
        return DPB_OK;
    hand_over(gather, &handed);
    handed = false; /* those go out now */
    DPB_TRY(mesh_move(gather->mesh, until_ns, moved));
    note_sent(gather);
    hand_over(gather, &handed); /* what came may be sent on, and there may be room again */
    *moved = *moved || handed;
    return DPB_OK;
}

dpb_status gather_wait(struct gather *gather, uint64_t bucket)
{
    const bool receives = gather->n_here[bucket] < gather->n_members - 1;
    const struct dpb_wait what = {
        .step = exchange_of(gather),
        .bucket = bucket,
        .peer = in_job(gather, receives ? previous_rank(gather) : next_rank(gather)),
        .purpose = receives ? "messages from the rank before in the ring"
                            : "the next rank in the ring to take messages"};
    if (gather_finished(gather, bucket))
        return DPB_OK;
    if (mesh_left(gather->mesh, receives ? PREVIOUS : NEXT))
        return gather->host->fail(DPB_PEER,
                                  "rank %u has left the ring before exchange %llu, bucket %llu was "
                                  "through",
                                  what.peer, (unsigned long long)what.step,
                                  (unsigned long long)what.bucket);
    gather->host->note("wait_peer", what.bucket, what.peer);
    if (!mesh_watch(gather->mesh, gather->fds + 1))
        return DPB_OK;
    const int *bell = gather->args.bell;
    gather->fds[0] = (struct pollfd){.fd = bell ? *bell : -1, .events = POLLIN};
    return gather->host->poll(gather->fds, 1 + mesh_n_watched(gather->mesh), &what, NULL);
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status allocate(struct gather *gather)
{
    const uint64_t n = gather->n_members * gather->n_buckets;
    gather->here[0] = calloc(n, sizeof(bool));
    gather->here[1] = calloc(n, sizeof(bool));
    gather->n_here = calloc(gather->n_buckets, sizeof *gather->n_here);
    gather->n_sent = calloc(gather->n_buckets, sizeof *gather->n_sent);
    gather->queue = calloc(n, sizeof *gather->queue);
    return gather->here[0] && gather->here[1] && gather->n_here && gather->n_sent && gather->queue
               ? DPB_OK
               : gather->host->fail(DPB_NO_MEMORY, "no memory to gather messages");
}

static dpb_status open_mesh(struct gather *gather)
{
    static const char *const kinds[MESH_KINDS] = {"a message"};
    const struct strategy *strategy = gather->args.strategy;
    const uint32_t own = in_job(gather, own_rank(gather));
    const uint32_t next = in_job(gather, next_rank(gather));
    const uint32_t previous = in_job(gather, previous_rank(gather));
    uint64_t bytes;
    void *memory = coded_memory_of(strategy, &bytes);
    struct mesh_peer peers[LINKS] = {{.rank = next, .number = own > next},
                                     {.rank = previous, .number = previous > own}};
    const struct mesh_memory memories[] = {{"the messages", memory, bytes}};
    char shape[128];
    for (uint32_t link = 0; link < LINKS; link++)
        peers[link].landings[MESSAGE] = (struct mesh_landing){memory, bytes};
    snprintf(shape, sizeof shape, "messages of up to %llu bytes of %llu buckets",
             (unsigned long long)coded_content_bytes(strategy, 0),
             (unsigned long long)gather->n_buckets);
    const struct mesh_args args = {.host = gather->host,
                                   .transport = gather->args.transport,
                                   .name = gather->args.name,
                                   .what = "the ring",
                                   .kinds = kinds,
                                   .shape = shape,
                                   .rank = own,
                                   .keeper = in_job(gather, rank_at(gather, 0)),
                                   .peers = peers,
                                   .n_peers = LINKS,
                                   .memories = memories,
                                   .n_memories = 1,
                                   .bell = -1,
                                   .sink = {.owner = gather, .begins = begins, .arrived = arrived}};
    gather->args.transport = NULL; /* the mesh's from here on */
    DPB_TRY(mesh_open(&args, &gather->mesh));
    gather->fds = calloc(mesh_n_watched(gather->mesh) + 1, sizeof *gather->fds);
    return gather->fds ? DPB_OK
                       : gather->host->fail(DPB_NO_MEMORY, "no memory to wait for the ring");
}

dpb_status gather_create(const struct gather_args *args, struct gather **made)
{
    struct gather *gather = calloc(1, sizeof *gather);
    if (!gather) {
        args->transport->ops->close(args->transport, false);
        return args->strategy->host->fail(DPB_NO_MEMORY, "no memory to gather messages");
    }
    gather->args = *args;
    gather->host = args->strategy->host;
    gather->n_members = args->strategy->args.n_workers;
    gather->n_buckets = args->strategy->arenas.n_buckets;
    dpb_status status = allocate(gather);
    if (status == DPB_OK && gather->n_members > 1)
        status = open_mesh(gather);
    if (status == DPB_OK)
        *made = gather;
    else
        gather_destroy(gather);
    return status;
}

void gather_destroy(struct gather *gather)
{
    if (!gather)
        return;
    mesh_close(gather->mesh, gather->n_gone == gather->n_queued);
    if (gather->args.transport)
        gather->args.transport->ops->close(gather->args.transport, false);
    free(gather->fds);
    free(gather->here[0]);
    free(gather->here[1]);
    free(gather->n_here);
    free(gather->n_sent);
    free(gather->queue);
    free(gather);
}
