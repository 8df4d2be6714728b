/* gather.c - see gather.h. */
#include "lib/ring/gather.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/mesh/mesh.h"

enum { NEXT, PREVIOUS, LINKS };
enum { MESSAGE /* the only kind */ };

struct sending {
    uint32_t origin;
    uint64_t exchange, bucket;
};

struct dpb_gather {
    struct dpb_gather_args args;
    const struct dpb_host *host;
    struct dpb_mesh *mesh; /* NULL: there is one member */
    uint64_t n_buckets;
    uint64_t *n_posted; /* by bucket: exchanges that have begun here; the last is under way */
    bool *here;         /* by slot */
    /* By the slots of rank 0, thus by bank and bucket: messages of others here; messages sent. */
    uint32_t *n_here, *n_sent;
    struct sending *queue; /* by number modulo the slots: none has two messages on their way */
    uint64_t n_queued, n_handed_over, n_gone;
    int64_t *posted_ns;    /* by bucket */
    uint64_t n_begun;      /* messages that arrived at least in part */
    uint32_t n_arriving;   /* messages that arrived only in part */
    uint64_t n_waiting;    /* buckets whose exchange has begun here, and lacks messages of others */
    int64_t waits_from_ns; /* since when there are some, and nothing arrives; 0: not so */
    int64_t looked_ns;     /* until when nothing had arrived, as far as is known */
};

static uint32_t in_job(const struct dpb_gather *gather, uint32_t rank)
{
    return dpb_signals_rank(&gather->args.strategy->signals, rank);
}

static uint64_t slot_of(const struct dpb_gather *gather, uint32_t rank, uint64_t exchange,
                        uint64_t bucket)
{
    return dpb_gather_slot(gather->n_buckets, rank, exchange, bucket);
}

static uint64_t count_slots(const struct dpb_gather *gather)
{
    return gather->args.members.n_members * DPB_GATHER_BANKS * gather->n_buckets;
}

static uint64_t offset_of(const struct dpb_gather *gather, uint64_t slot)
{
    return slot * gather->args.slots.slot_bytes + sizeof(struct dpb_coded_message);
}

static struct dpb_coded_message *message_in(const struct dpb_gather *gather, uint64_t slot)
{
    char *at = gather->args.slots.at;
    return (struct dpb_coded_message *)(void *)(at + slot * gather->args.slots.slot_bytes);
}

static uint64_t content_bytes(const struct dpb_gather *gather)
{
    return gather->args.slots.slot_bytes - sizeof(struct dpb_coded_message);
}

static void queue(struct dpb_gather *gather, uint32_t origin, uint64_t exchange, uint64_t bucket)
{
    gather->queue[gather->n_queued++ % count_slots(gather)] =
        (struct sending){origin, exchange, bucket};
}

static uint32_t count_others(const struct dpb_gather *gather)
{
    return gather->args.members.n_members - 1;
}

static uint64_t slot_under_way(const struct dpb_gather *gather, uint64_t bucket)
{
    return slot_of(gather, 0, gather->n_posted[bucket] - 1, bucket);
}

/* ---- spans --------------------------------------------------------------------------------- */

static void note_waiting(struct dpb_gather *gather)
{
    if (gather->n_waiting == 0 || gather->n_arriving > 0)
        gather->waits_from_ns = 0;
    else if (gather->waits_from_ns == 0)
        gather->waits_from_ns = gather->host->now_ns();
}

/* The one that waits the longest; there is one. */
static uint64_t oldest_waiting(const struct dpb_gather *gather)
{
    uint64_t oldest = gather->n_buckets;
    for (uint64_t bucket = 0; bucket < gather->n_buckets; bucket++) {
        const bool waits = gather->n_posted[bucket] > 0 &&
                           gather->n_here[slot_under_way(gather, bucket)] < count_others(gather);
        if (waits &&
            (oldest == gather->n_buckets || gather->posted_ns[bucket] < gather->posted_ns[oldest]))
            oldest = bucket;
    }
    return oldest;
}

/* A message comes after a gap. Its bytes may have been here since the last look, while this rank
 * computed: the wait ends there. */
static void report_wait(const struct dpb_gather *gather)
{
    const int64_t from_ns = gather->waits_from_ns, end_ns = gather->looked_ns;
    if (from_ns != 0 && end_ns - from_ns > DPB_RING_GAP_NS)
        gather->host->span(oldest_waiting(gather), DPB_PHASE_WAIT_PEER, from_ns, end_ns);
}

/* The last message of an exchange has come, or gone. */
static void report_transfer(const struct dpb_gather *gather, uint64_t exchange, uint64_t bucket)
{
    if (exchange + 1 == gather->n_posted[bucket] && dpb_gather_finished(gather, bucket))
        gather->host->span(bucket, DPB_PHASE_TRANSFER, gather->posted_ns[bucket],
                           gather->host->now_ns());
}

/* ---- the mesh's news ----------------------------------------------------------------------- */

/* A message of the exchange under way, or of the next one if the others have finished this one. */
static bool is_awaited(const struct dpb_gather *gather, const struct dpb_mesh_label *label)
{
    if (label->kind != MESSAGE || label->word >= gather->args.members.n_members ||
        label->word == dpb_ring_own(&gather->args.members) || label->bucket >= gather->n_buckets)
        return false;
    const uint64_t n_posted = gather->n_posted[label->bucket];
    return (label->exchange == n_posted || (n_posted > 0 && label->exchange == n_posted - 1)) &&
           !gather->here[slot_of(gather, (uint32_t)label->word, label->exchange, label->bucket)];
}

static dpb_status begins(void *gather_, uint32_t link, uint64_t n,
                         const struct dpb_mesh_label *label)
{
    struct dpb_gather *gather = gather_;
    if (link == PREVIOUS && is_awaited(gather, label) && label->bytes <= content_bytes(gather) &&
        label->at_bytes == offset_of(gather, slot_of(gather, (uint32_t)label->word, label->exchange,
                                                     label->bucket))) {
        if (n < gather->n_begun)
            return DPB_OK;
        report_wait(gather);
        gather->n_begun++;
        gather->n_arriving++;
        note_waiting(gather);
        return DPB_OK;
    }
    return gather->host->fail(
        DPB_FAILED,
        "rank %u sent the message of rank %llu for exchange %llu of bucket %llu: %llu bytes for "
        "byte %llu; rank %u expects no such message: the two do not run the same training",
        in_job(gather, link == PREVIOUS ? dpb_ring_previous(&gather->args.members)
                                        : dpb_ring_next(&gather->args.members)),
        (unsigned long long)(label->word < gather->args.members.n_members
                                 ? in_job(gather, (uint32_t)label->word)
                                 : label->word),
        (unsigned long long)label->exchange, (unsigned long long)label->bucket,
        (unsigned long long)label->bytes, (unsigned long long)label->at_bytes,
        in_job(gather, dpb_ring_own(&gather->args.members)));
}

/* Bytes that this member sends count to the step of their exchange. A message of the next step may
 * come, and be passed on, before this member begins the next step. */
static void count(const struct dpb_gather *gather, uint32_t origin, uint64_t slot)
{
    if (origin != dpb_ring_next(&gather->args.members))
        gather->host->count_bytes(message_in(gather, slot)->bytes);
}

/* A message whose streams disagree may arrive twice. */
static void arrived(void *gather_, uint32_t link, const struct dpb_mesh_label *label)
{
    struct dpb_gather *gather = gather_;
    const uint32_t origin = (uint32_t)label->word;
    (void)link;
    gather->n_arriving--;
    if (!is_awaited(gather, label))
        return;
    const uint64_t slot = slot_of(gather, origin, label->exchange, label->bucket);
    const uint64_t banked = slot_of(gather, 0, label->exchange, label->bucket);
    const bool under_way = label->exchange < gather->n_posted[label->bucket];
    gather->here[slot] = true;
    message_in(gather, slot)->bytes = label->bytes;
    gather->n_here[banked]++;
    gather->n_waiting -= under_way && gather->n_here[banked] == count_others(gather);
    if (under_way)
        count(gather, origin, slot);
    if (origin != dpb_ring_next(&gather->args.members))
        queue(gather, origin, label->exchange, label->bucket);
    note_waiting(gather);
    report_transfer(gather, label->exchange, label->bucket);
}

/* ---- for the strategy ---------------------------------------------------------------------- */

/* Clears the other bank for the next exchange. None of that exchange's messages has come yet: all
 * members first need the message that this call posts. */
void dpb_gather_post(struct dpb_gather *gather, uint64_t bucket)
{
    const uint64_t exchange = gather->n_posted[bucket]++;
    const uint64_t free_slot = slot_of(gather, 0, exchange + 1, bucket);
    gather->n_here[free_slot] = gather->n_sent[free_slot] = 0;
    for (uint32_t origin = 0; origin < gather->args.members.n_members && gather->mesh; origin++) {
        const uint64_t slot = slot_of(gather, origin, exchange, bucket);
        gather->here[slot_of(gather, origin, exchange + 1, bucket)] = false;
        if (gather->here[slot] || origin == dpb_ring_own(&gather->args.members))
            count(gather, origin, slot);
    }
    if (!gather->mesh)
        return;
    queue(gather, dpb_ring_own(&gather->args.members), exchange, bucket);
    gather->posted_ns[bucket] = gather->host->now_ns();
    gather->n_waiting +=
        gather->n_here[slot_of(gather, 0, exchange, bucket)] < count_others(gather);
    note_waiting(gather);
}

bool dpb_gather_finished(const struct dpb_gather *gather, uint64_t bucket)
{
    const uint32_t others = count_others(gather);
    const uint64_t slot = slot_under_way(gather, bucket);
    return gather->n_here[slot] == others && gather->n_sent[slot] == others;
}

static void hand_over(struct dpb_gather *gather, bool *moved)
{
    for (; gather->n_handed_over < gather->n_queued && dpb_mesh_room(gather->mesh, NEXT) > 0;
         gather->n_handed_over++) {
        const struct sending *next = &gather->queue[gather->n_handed_over % count_slots(gather)];
        const uint64_t slot = slot_of(gather, next->origin, next->exchange, next->bucket);
        const struct dpb_coded_message *message = message_in(gather, slot);
        const struct dpb_mesh_label label = {.kind = MESSAGE,
                                             .bucket = (uint32_t)next->bucket,
                                             .exchange = next->exchange,
                                             .at_bytes = offset_of(gather, slot),
                                             .bytes = message->bytes,
                                             .word = next->origin};
        dpb_mesh_send(gather->mesh, NEXT, &label, message->content);
        *moved = true;
    }
}

static void note_sent(struct dpb_gather *gather)
{
    for (; gather->n_gone < dpb_mesh_sent(gather->mesh, NEXT); gather->n_gone++) {
        const struct sending *gone = &gather->queue[gather->n_gone % count_slots(gather)];
        gather->n_sent[slot_of(gather, 0, gone->exchange, gone->bucket)]++;
        report_transfer(gather, gone->exchange, gone->bucket);
    }
}

dpb_status dpb_gather_move(struct dpb_gather *gather, int64_t until_ns, bool *moved)
{
    const uint64_t n_begun = gather->n_begun;
    bool handed = false;
    *moved = false;
    if (!gather->mesh)
        return DPB_OK;
    hand_over(gather, &handed);
    handed = false; /* those go out now */
    DPB_TRY(dpb_mesh_move(gather->mesh, until_ns, moved));
    if (gather->waits_from_ns != 0 && gather->n_begun == n_begun)
        gather->looked_ns = gather->host->now_ns();
    note_sent(gather);
    hand_over(gather, &handed); /* new messages may be sent on, and there may be room again */
    *moved = *moved || handed;
    return DPB_OK;
}

dpb_status dpb_gather_wait(struct dpb_gather *gather, uint64_t bucket)
{
    const bool receives = gather->n_here[slot_under_way(gather, bucket)] < count_others(gather);
    const struct dpb_wait what = {
        .step = gather->args.strategy->signals.exchange,
        .bucket = bucket,
        .peer = in_job(gather, receives ? dpb_ring_previous(&gather->args.members)
                                        : dpb_ring_next(&gather->args.members)),
        .purpose = receives ? "messages from the rank before in the ring"
                            : "the next rank in the ring to take messages"};
    if (dpb_gather_finished(gather, bucket))
        return DPB_OK;
    if (dpb_mesh_left(gather->mesh, receives ? PREVIOUS : NEXT))
        return gather->host->fail(DPB_PEER,
                                  "rank %u has left the ring before exchange %llu, bucket %llu was "
                                  "through",
                                  what.peer, (unsigned long long)what.step,
                                  (unsigned long long)what.bucket);
    const dpb_status status = dpb_mesh_wait(gather->mesh, &what);
    gather->looked_ns = gather->host->now_ns();
    return status;
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status allocate(struct dpb_gather *gather)
{
    const uint64_t n = count_slots(gather), n_banks = DPB_GATHER_BANKS * gather->n_buckets;
    gather->n_posted = calloc(gather->n_buckets, sizeof *gather->n_posted);
    gather->here = calloc(n, sizeof *gather->here);
    gather->n_here = calloc(n_banks, sizeof *gather->n_here);
    gather->n_sent = calloc(n_banks, sizeof *gather->n_sent);
    gather->queue = calloc(n, sizeof *gather->queue);
    gather->posted_ns = calloc(gather->n_buckets, sizeof *gather->posted_ns);
    return gather->n_posted && gather->here && gather->n_here && gather->n_sent && gather->queue &&
                   gather->posted_ns
               ? DPB_OK
               : gather->host->fail(DPB_NO_MEMORY, "no memory to gather messages");
}

static dpb_status open_mesh(struct dpb_gather *gather)
{
    static const char *const kinds[DPB_MESH_KINDS] = {"a message"};
    void *memory = gather->args.slots.at;
    const uint64_t bytes = count_slots(gather) * gather->args.slots.slot_bytes;
    const uint32_t own = in_job(gather, dpb_ring_own(&gather->args.members));
    const uint32_t next = in_job(gather, dpb_ring_next(&gather->args.members));
    const uint32_t previous = in_job(gather, dpb_ring_previous(&gather->args.members));
    struct dpb_mesh_peer peers[LINKS] = {{.rank = next, .number = own > next},
                                         {.rank = previous, .number = previous > own}};
    const struct dpb_mesh_memory memories[] = {{"the messages", memory, bytes}};
    char shape[128];
    for (uint32_t link = 0; link < LINKS; link++)
        peers[link].landings[MESSAGE] = (struct dpb_mesh_landing){memory, bytes};
    snprintf(shape, sizeof shape, "messages of up to %llu bytes of %llu buckets",
             (unsigned long long)content_bytes(gather), (unsigned long long)gather->n_buckets);
    const struct dpb_mesh_args args = {
        .host = gather->host,
        .transport = gather->args.transport,
        .name = gather->args.members.name,
        .what = "the ring",
        .kinds = kinds,
        .shape = shape,
        .rank = own,
        .keeper = in_job(gather, dpb_ring_rank_at(&gather->args.members, 0)),
        .peers = peers,
        .n_peers = LINKS,
        .memories = memories,
        .n_memories = 1,
        .doorbell = gather->args.members.doorbell,
        .sink = {.owner = gather, .begins = begins, .arrived = arrived}};
    gather->args.transport = NULL; /* the mesh's from here on */
    return dpb_mesh_open(&args, &gather->mesh);
}

dpb_status dpb_gather_create(const struct dpb_gather_args *args, struct dpb_gather **made)
{
    struct dpb_gather *gather = calloc(1, sizeof *gather);
    if (!gather) {
        args->transport->ops->close(args->transport, false);
        return args->strategy->host->fail(DPB_NO_MEMORY, "no memory to gather messages");
    }
    gather->args = *args;
    gather->host = args->strategy->host;
    gather->n_buckets = args->strategy->arenas.n_buckets;
    dpb_status status = allocate(gather);
    if (status == DPB_OK && gather->args.members.n_members > 1)
        status = open_mesh(gather);
    if (status == DPB_OK)
        *made = gather;
    else
        dpb_gather_destroy(gather);
    return status;
}

void dpb_gather_destroy(struct dpb_gather *gather)
{
    if (!gather)
        return;
    dpb_mesh_close(gather->mesh, gather->n_gone == gather->n_queued);
    if (gather->args.transport)
        gather->args.transport->ops->close(gather->args.transport, false);
    free(gather->n_posted);
    free(gather->here);
    free(gather->n_here);
    free(gather->n_sent);
    free(gather->queue);
    free(gather->posted_ns);
    free(gather);
}
