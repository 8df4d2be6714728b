/* ring.c - see ring.h. */
#include "lib/ring/ring.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mesh/mesh_transport.h"

/* Handed to the mesh at once. A slot is chosen when its chunk is handed over. So with fewer chunks
 * ahead fewer slots are in use, and these slots are in the caches. */
#define AHEAD_BYTES (UINT64_C(512) << 10)

/* Links: to the next member, and to the member before. Two members have both links: a connection is
 * faster one way than both ways at once. */
enum { NEXT, PREVIOUS, LINKS };

/* A chunk that may be sent as soon as the link has room. */
struct pending {
    uint32_t round, chunk;
};

/* A bucket on its way round the ring. */
struct flight {
    uint64_t bucket, begin, n;                     /* elements of the arena */
    uint64_t name;                                 /* in spans and messages */
    uint32_t first_round, end_round;               /* a given bucket begins with all-gather */
    char *given;                                   /* its arena; NULL: it is not given */
    uint32_t n_to_receive, n_to_reduce, n_to_send; /* chunks */
    uint32_t n_received, n_handed_over, n_sent;
    /* Rounds of which bytes have arrived, and the chunks of these rounds. If all these chunks have
     * arrived and scatter-reduce is not over, the bucket waits for a peer. */
    uint32_t rounds_begun, n_begun;
    int64_t waits_from_ns;
    int64_t began_ns;  /* start of the next span; 0: no chunk arrived or left since the last */
    uint32_t n_queued; /* since the bucket was posted: the queue's end; n_handed_over is its head */
    struct pending *queue;
    uint64_t *seen; /* a bit for each chunk of each round */
};

/* A slot of the own inbox, and the slot of the same number in the next member's inbox. */
struct slot {
    bool lent;  /* the next member's: a chunk is under way to it, or lies in it */
    bool taken; /* the own: a chunk is in it, or the member before has no credit for it yet */
    bool held;  /* the own: its chunk came before this member was ready for it */
    struct dpb_mesh_label label; /* of the chunk that is held */
};

/* A chunk that the mesh has not sent yet. */
struct sending {
    uint64_t bucket, bytes;
};

struct ring {
    struct dpb_sums sums;
    struct dpb_ring_args args;
    struct dpb_ring_shards gathered; /* carried by the all-gather rounds; without `make` the sums */
    struct dpb_mesh *mesh;           /* NULL: there is one member */
    dpb_status status;               /* a failure in a function that returns no status */
    uint64_t chunk_elements;
    uint32_t max_chunks; /* of a slice */
    uint32_t queue_size, n_seen_words;
    uint32_t reserve;                  /* credits that are left to the oldest bucket */
    uint64_t n_begun[DPB_RING_CREDIT]; /* chunks of each kind that arrived at least in part */
    uint32_t n_arriving;               /* chunks that arrived only in part */
    int64_t last_ns;                   /* when the last chunk had arrived */
    struct flight flights[DPB_RING_WINDOW];
    struct slot *slots;
    uint32_t *free_slots, n_free; /* of the next member's inbox: the last one returned on top */
    uint64_t *released;           /* a bit for each slot of the own inbox: there is no credit yet */
    uint32_t n_released;
    struct sending sending[DPB_MESH_QUEUE];
    uint64_t ahead_bytes;             /* of the chunks there */
    uint64_t n_messages, n_completed; /* chunks handed over, and sent */
    struct pending *queues;
    uint64_t *seens;
};

/* ---- which bytes travel when --------------------------------------------------------------- */

static uint32_t n_members(const struct ring *ring)
{
    return ring->args.members.n_members;
}

static uint32_t n_rounds(const struct ring *ring)
{
    return 2 * (n_members(ring) - 1);
}

static bool reduces(const struct ring *ring, uint32_t round)
{
    return round + 1 < n_members(ring);
}

static bool gives(const struct ring *ring)
{
    return ring->args.shards.arena && !ring->args.shards.make;
}

static bool is_given(const struct flight *flight)
{
    return flight->given != NULL;
}

/* The slice that the member at `position` sends in a round. */
static uint32_t slice_sent(const struct ring *ring, uint32_t position, uint32_t round)
{
    return (position + 2 * n_members(ring) - round) % n_members(ring);
}

static uint32_t own_slice(const struct ring *ring, uint32_t round)
{
    return slice_sent(ring, ring->args.members.position, round);
}

static uint32_t incoming_slice(const struct ring *ring, uint32_t round)
{
    return slice_sent(ring, ring->args.members.position + n_members(ring) - 1, round);
}

static uint32_t round_of(const struct dpb_mesh_label *label)
{
    return (uint32_t)(label->word >> 32);
}

static uint32_t chunk_of(const struct dpb_mesh_label *label)
{
    return (uint32_t)label->word;
}

static struct flight *flight_of(struct ring *ring, uint64_t bucket)
{
    return &ring->flights[bucket % DPB_RING_WINDOW];
}

/* Groups of 64 slots; one credit returns slots of one group. */
static uint32_t n_groups(const struct ring *ring)
{
    return (ring->args.memory.n_slots + 63) / 64;
}

static uint32_t slot_of(const struct ring *ring, const struct dpb_mesh_label *label)
{
    return (uint32_t)(label->at_bytes / ring->args.memory.slot_bytes);
}

/* Takes the lowest slot out of a credit. */
static uint32_t take_slot(uint32_t group, uint64_t *slots)
{
    uint32_t slot = group * 64 + (uint32_t)__builtin_ctzll(*slots);
    *slots &= *slots - 1;
    return slot;
}

static struct dpb_range slice_range(const struct ring *ring, const struct flight *flight,
                                    uint32_t slice)
{
    uint64_t n = n_members(ring);
    return (struct dpb_range){flight->n * slice / n, flight->n * (slice + 1) / n};
}

static uint32_t count_chunks(const struct ring *ring, const struct flight *flight, uint32_t slice)
{
    struct dpb_range range = slice_range(ring, flight, slice);
    return (uint32_t)((range.end - range.begin + ring->chunk_elements - 1) / ring->chunk_elements);
}

/* Its at_bytes is the chunk's place in either arena; of partial sums a slot's place is sent. */
static struct dpb_mesh_label label_of(const struct ring *ring, const struct flight *flight,
                                      uint32_t slice, uint32_t round, uint32_t chunk)
{
    struct dpb_range range = slice_range(ring, flight, slice);
    const bool partial = reduces(ring, round) || is_given(flight);
    uint64_t size = dpb_dtype_size(is_given(flight)       ? ring->args.shards.type
                                   : reduces(ring, round) ? ring->args.type
                                                          : ring->gathered.type);
    uint64_t begin = range.begin + chunk * ring->chunk_elements, rest = range.end - begin;
    uint64_t n = rest < ring->chunk_elements ? rest : ring->chunk_elements;
    return (struct dpb_mesh_label){.kind = partial ? DPB_RING_PARTIAL : DPB_RING_SUM,
                                   .bucket = (uint32_t)flight->bucket,
                                   .exchange = ring->sums.step,
                                   .at_bytes = (flight->begin + begin) * size,
                                   .bytes = n * size,
                                   .word = (uint64_t)round << 32 | chunk};
}

/* The flight that a label belongs to; NULL: that bucket is not under way here. */
static struct flight *find_flight(struct ring *ring, const struct dpb_mesh_label *label)
{
    bool under_way = label->exchange == ring->sums.step && label->bucket >= ring->sums.finished &&
                     label->bucket < ring->sums.posted;
    return under_way ? flight_of(ring, label->bucket) : NULL;
}

/* ---- refusing ------------------------------------------------------------------------------ */

static const char *target_of(const struct dpb_mesh_label *label)
{
    return label->kind == DPB_RING_PARTIAL ? "inbox" : "arena";
}

static dpb_status refuse(const struct ring *ring, const struct dpb_mesh_label *label,
                         const char *expected)
{
    return ring->args.host->fail(
        DPB_FAILED,
        "rank %u sent exchange %llu, bucket %u, round %u, chunk %u: %llu bytes for the %s at byte "
        "%llu; rank %u expected %s: the two do not run the same training",
        dpb_ring_previous(&ring->args.members), (unsigned long long)label->exchange, label->bucket,
        round_of(label), chunk_of(label), (unsigned long long)label->bytes, target_of(label),
        (unsigned long long)label->at_bytes, dpb_ring_own(&ring->args.members), expected);
}

/* Whether a label is one that its bucket's flight expects. */
static dpb_status check_label(const struct ring *ring, const struct flight *flight,
                              const struct dpb_mesh_label *label)
{
    char text[128];
    uint32_t round = round_of(label), chunk = chunk_of(label);
    if (round >= flight->end_round) {
        snprintf(text, sizeof text, "rounds below %u", flight->end_round);
        return refuse(ring, label, text);
    }
    if (round < flight->first_round) {
        snprintf(text, sizeof text, "rounds from %u on", flight->first_round);
        return refuse(ring, label, text);
    }
    uint32_t slice = incoming_slice(ring, round);
    if (chunk >= count_chunks(ring, flight, slice)) {
        snprintf(text, sizeof text, "chunks below %u in that round",
                 count_chunks(ring, flight, slice));
        return refuse(ring, label, text);
    }
    struct dpb_mesh_label wanted = label_of(ring, flight, slice, round, chunk);
    if (label->kind == wanted.kind && label->bytes == wanted.bytes &&
        (label->kind == DPB_RING_PARTIAL || label->at_bytes == wanted.at_bytes))
        return DPB_OK;
    int n = snprintf(text, sizeof text, "%llu bytes for the %s", (unsigned long long)wanted.bytes,
                     target_of(&wanted));
    if (wanted.kind == DPB_RING_SUM)
        snprintf(text + n, sizeof text - (size_t)n, " at byte %llu",
                 (unsigned long long)wanted.at_bytes);
    return refuse(ring, label, text);
}

/* A label that is not under way here may belong to a bucket that backward has not reached, or to
 * the next step of a member that has finished this step before. */
static dpb_status check_early(const struct ring *ring, const struct dpb_mesh_label *label)
{
    char text[128];
    bool later = !ring->sums.begun || label->exchange == ring->sums.step + 1 ||
                 (label->exchange == ring->sums.step && label->bucket >= ring->sums.posted);
    if (later && label->bucket < ring->args.n_buckets && label->kind == DPB_RING_PARTIAL)
        return DPB_OK;
    snprintf(text, sizeof text, "buckets %llu to %llu of exchange %llu",
             (unsigned long long)ring->sums.finished, (unsigned long long)ring->args.n_buckets - 1,
             (unsigned long long)ring->sums.step);
    return refuse(ring, label, text);
}

/* A chunk of partial sums lands at the beginning of a slot, which a credit was sent for. */
static dpb_status check_slot(const struct ring *ring, const struct dpb_mesh_label *label)
{
    const struct dpb_ring_memory *memory = &ring->args.memory;
    bool whole = label->at_bytes % memory->slot_bytes == 0 && label->bytes > 0 &&
                 label->bytes <= memory->slot_bytes;
    if (whole && label->at_bytes / memory->slot_bytes < memory->n_slots &&
        !ring->slots[slot_of(ring, label)].taken)
        return DPB_OK;
    return refuse(ring, label, "partial sums in a slot of the inbox that is free");
}

static bool are_lent(const struct ring *ring, const struct dpb_mesh_label *label)
{
    uint64_t slots = label->word;
    if (slots == 0 || label->bucket >= n_groups(ring))
        return false;
    while (slots != 0) {
        uint32_t slot = take_slot(label->bucket, &slots);
        if (slot >= ring->args.memory.n_slots || !ring->slots[slot].lent)
            return false;
    }
    return true;
}

static dpb_status check_credit(const struct ring *ring, uint32_t link,
                               const struct dpb_mesh_label *label)
{
    if (link == NEXT && are_lent(ring, label))
        return DPB_OK;
    return ring->args.host->fail(
        DPB_FAILED,
        "rank %u sent a credit for slots %llx behind slot %llu of its inbox, of which rank %u has "
        "not used all: the two do not run the same training",
        link == NEXT ? dpb_ring_next(&ring->args.members) : dpb_ring_previous(&ring->args.members),
        (unsigned long long)label->word, (unsigned long long)label->bucket * 64,
        dpb_ring_own(&ring->args.members));
}

/* Each chunk comes once. */
static dpb_status see(const struct ring *ring, struct flight *flight,
                      const struct dpb_mesh_label *label)
{
    uint32_t bit = round_of(label) * ring->max_chunks + chunk_of(label);
    uint64_t mask = UINT64_C(1) << (bit % 64);
    if (flight->seen[bit / 64] & mask)
        return refuse(ring, label, "it once, and had it");
    flight->seen[bit / 64] |= mask;
    return DPB_OK;
}

/* ---- slots --------------------------------------------------------------------------------- */

static void release(struct ring *ring, uint32_t slot)
{
    ring->released[slot / 64] |= UINT64_C(1) << (slot % 64);
    ring->n_released++;
}

static void take_credit(struct ring *ring, const struct dpb_mesh_label *label)
{
    for (uint64_t slots = label->word; slots != 0;) {
        uint32_t slot = take_slot(label->bucket, &slots);
        ring->slots[slot].lent = false;
        ring->free_slots[ring->n_free++] = slot;
    }
}

/* ---- waiting for a peer -------------------------------------------------------------------- */

static bool waits_for_peer(const struct flight *flight)
{
    return flight->n_received == flight->n_begun && flight->n_begun < flight->n_to_reduce;
}

/* A chunk comes after a gap: the bucket that waited all the time is the oldest that waits. */
static void report_wait(struct ring *ring, int64_t now_ns)
{
    const struct flight *oldest = NULL;
    for (uint64_t bucket = ring->sums.finished; bucket < ring->sums.posted; bucket++) {
        const struct flight *flight = flight_of(ring, bucket);
        if (waits_for_peer(flight) && (!oldest || flight->waits_from_ns < oldest->waits_from_ns))
            oldest = flight;
    }
    if (!oldest || ring->n_arriving > 0)
        return;
    int64_t from_ns = oldest->waits_from_ns > ring->last_ns ? oldest->waits_from_ns : ring->last_ns;
    if (now_ns - from_ns > DPB_RING_GAP_NS)
        ring->args.host->span(oldest->name, DPB_PHASE_WAIT_PEER, from_ns, now_ns);
}

static void begin_rounds(const struct ring *ring, struct flight *flight, uint32_t round)
{
    for (; flight->rounds_begun <= round; flight->rounds_begun++)
        flight->n_begun += count_chunks(ring, flight, incoming_slice(ring, flight->rounds_begun));
}

/* ---- a chunk's way ------------------------------------------------------------------------- */

/* If members keep to their turns, no queue gets more chunks before it has sent some on. */
static bool is_full(const struct ring *ring, const struct flight *flight)
{
    return flight->n_queued - flight->n_handed_over >= ring->queue_size;
}

static void queue_chunk(struct ring *ring, struct flight *flight, uint32_t round, uint32_t chunk)
{
    assert(!is_full(ring, flight));
    flight->queue[flight->n_queued++ % ring->queue_size] = (struct pending){round, chunk};
}

/* The bucket's transfer, as far as no span has it. */
static void report_transfer(const struct ring *ring, const struct flight *flight)
{
    const struct dpb_host *host = ring->args.host;
    if (flight->began_ns != 0)
        host->span(flight->name, DPB_PHASE_TRANSFER, flight->began_ns, host->now_ns());
}

/* A bucket is finished when nothing of it will be read or written here any more. */
static void finish_if_complete(struct ring *ring, struct flight *flight)
{
    if (flight->n_received < flight->n_to_receive || flight->n_sent < flight->n_to_send)
        return;
    report_transfer(ring, flight);
    while (ring->sums.finished < ring->sums.posted) {
        const struct flight *oldest = flight_of(ring, ring->sums.finished);
        if (oldest->n_received < oldest->n_to_receive || oldest->n_sent < oldest->n_to_send)
            break;
        ring->sums.finished++;
    }
}

/* The work of the shards' owner on sums is no transfer. */
static void make_shard(const struct ring *ring, struct flight *flight, uint64_t begin, uint64_t n)
{
    report_transfer(ring, flight);
    ring->gathered.make(ring->gathered.owner, flight->bucket, begin, n);
    flight->began_ns = ring->args.host->now_ns();
}

static void reduce(const struct ring *ring, struct flight *flight,
                   const struct dpb_mesh_label *label)
{
    const struct dpb_host *host = ring->args.host;
    const struct dpb_ring_memory *memory = &ring->args.memory;
    const size_t size = dpb_dtype_size(ring->args.type);
    uint32_t round = round_of(label);
    struct dpb_mesh_label here =
        label_of(ring, flight, incoming_slice(ring, round), round, chunk_of(label));
    void *own = (char *)memory->arena + here.at_bytes;
    const void *sources[] = {(char *)memory->inbox + label->at_bytes, own};
    int64_t began_ns = host->now_ns();
    host->vec->sum(ring->args.type, &own, 1, sources, 2, label->bytes / size);
    host->span(flight->name, DPB_PHASE_REDUCE, began_ns, host->now_ns());
    if (ring->gathered.make && !reduces(ring, round + 1))
        make_shard(ring, flight, here.at_bytes / size, label->bytes / size);
}

/* Here, too, the bucket is given: nothing reads the old weights any more. */
static void take_given(const struct ring *ring, const struct flight *flight,
                       const struct dpb_mesh_label *label)
{
    const dpb_dtype type = ring->args.shards.type;
    const uint32_t round = round_of(label);
    const struct dpb_mesh_label here =
        label_of(ring, flight, incoming_slice(ring, round), round, chunk_of(label));
    ring->args.host->vec->copy(type, flight->given + here.at_bytes,
                               (const char *)ring->args.memory.inbox + label->at_bytes,
                               label->bytes / dpb_dtype_size(type));
}

/* A chunk that is all here, of a bucket that is under way. */
static dpb_status take_arrived(struct ring *ring, struct flight *flight,
                               const struct dpb_mesh_label *label)
{
    uint32_t round = round_of(label);
    DPB_TRY(check_label(ring, flight, label));
    if (round + 1 < flight->end_round && is_full(ring, flight))
        return refuse(ring, label, "only rounds whose turn has come");
    DPB_TRY(see(ring, flight, label));
    begin_rounds(ring, flight, round);
    if (reduces(ring, round))
        reduce(ring, flight, label);
    else if (is_given(flight))
        take_given(ring, flight, label);
    if (label->kind == DPB_RING_PARTIAL)
        release(ring, slot_of(ring, label));
    if (round + 1 < flight->end_round)
        queue_chunk(ring, flight, round + 1, chunk_of(label));
    flight->n_received++;
    ring->last_ns = ring->args.host->now_ns();
    if (flight->began_ns == 0)
        flight->began_ns = ring->last_ns;
    if (waits_for_peer(flight))
        flight->waits_from_ns = ring->last_ns;
    finish_if_complete(ring, flight);
    return DPB_OK;
}

/* ---- the mesh's news ----------------------------------------------------------------------- */

static dpb_status begins(void *ring_, uint32_t link, uint64_t n, const struct dpb_mesh_label *label)
{
    struct ring *ring = ring_;
    if (label->kind == DPB_RING_CREDIT)
        return check_credit(ring, link, label);
    if (label->kind > DPB_RING_CREDIT || link != PREVIOUS)
        return refuse(ring, label, "chunks from the member before alone");
    struct flight *flight = find_flight(ring, label);
    DPB_TRY(flight ? check_label(ring, flight, label) : check_early(ring, label));
    if (label->kind == DPB_RING_PARTIAL)
        DPB_TRY(check_slot(ring, label));
    if (n < ring->n_begun[label->kind])
        return DPB_OK;
    report_wait(ring, ring->args.host->now_ns());
    if (flight)
        begin_rounds(ring, flight, round_of(label));
    ring->n_begun[label->kind]++;
    ring->n_arriving++;
    return DPB_OK;
}

static void describe(const struct dpb_mesh_label *label, char text[DPB_MESH_TEXT_BYTES])
{
    if (label->kind == DPB_RING_CREDIT)
        snprintf(text, DPB_MESH_TEXT_BYTES, "a credit for slots %llx behind slot %llu",
                 (unsigned long long)label->word, (unsigned long long)label->bucket * 64);
    else
        snprintf(text, DPB_MESH_TEXT_BYTES,
                 "exchange %llu, bucket %u, round %u, chunk %u (%llu bytes)",
                 (unsigned long long)label->exchange, label->bucket, round_of(label),
                 chunk_of(label), (unsigned long long)label->bytes);
}

static dpb_status take_chunk(struct ring *ring, const struct dpb_mesh_label *label)
{
    struct flight *flight = find_flight(ring, label);
    ring->n_arriving--;
    if (label->kind == DPB_RING_PARTIAL) {
        DPB_TRY(check_slot(ring, label));
        ring->slots[slot_of(ring, label)].taken = true;
    }
    if (flight)
        return take_arrived(ring, flight, label);
    ring->last_ns = ring->args.host->now_ns();
    ring->slots[slot_of(ring, label)].held = true;
    ring->slots[slot_of(ring, label)].label = *label;
    return DPB_OK;
}

static void arrived(void *ring_, uint32_t link, const struct dpb_mesh_label *label)
{
    struct ring *ring = ring_;
    (void)link;
    if (label->kind == DPB_RING_CREDIT) {
        take_credit(ring, label);
    } else if (ring->status == DPB_OK) {
        ring->status = take_chunk(ring, label);
    }
}

static struct dpb_mesh_sink sink_of(struct ring *ring)
{
    return (struct dpb_mesh_sink){
        .owner = ring, .begins = begins, .describe = describe, .arrived = arrived};
}

/* ---- sending ------------------------------------------------------------------------------- */

static void send_chunk(struct ring *ring, struct flight *flight, struct dpb_mesh_label *label)
{
    const struct dpb_ring_memory *memory = &ring->args.memory;
    const bool partial = label->kind == DPB_RING_PARTIAL;
    const char *arena = is_given(flight) ? flight->given
                        : partial        ? memory->arena
                                         : ring->gathered.arena;
    const char *payload = arena + label->at_bytes;
    if (partial) {
        uint32_t slot = ring->free_slots[--ring->n_free];
        ring->slots[slot].lent = true;
        label->at_bytes = slot * memory->slot_bytes;
    }
    ring->sending[ring->n_messages++ % DPB_MESH_QUEUE] =
        (struct sending){flight->bucket, label->bytes};
    ring->ahead_bytes += label->bytes;
    dpb_mesh_send(ring->mesh, NEXT, label, payload);
    flight->n_handed_over++;
    if (flight->began_ns == 0)
        flight->began_ns = ring->args.host->now_ns();
    ring->args.host->count_bytes(label->bytes);
}

/*
 * Hands over the chunks of one bucket that may be sent; false: no more can be sent now. Younger
 * buckets do not get all credits: their chunks may be early for the next member, and would keep its
 * slots until its backward gets there, while older buckets that could move on need the slots.
 */
static bool hand_over(struct ring *ring, struct flight *flight, bool oldest, bool *moved)
{
    while (flight->n_handed_over < flight->n_queued) {
        struct pending next = flight->queue[flight->n_handed_over % ring->queue_size];
        struct dpb_mesh_label label =
            label_of(ring, flight, own_slice(ring, next.round), next.round, next.chunk);
        if (label.kind == DPB_RING_PARTIAL && !oldest && ring->n_free <= ring->reserve)
            return true;
        if (dpb_mesh_room(ring->mesh, NEXT) == 0 || ring->ahead_bytes >= AHEAD_BYTES ||
            (label.kind == DPB_RING_PARTIAL && ring->n_free == 0))
            return false;
        send_chunk(ring, flight, &label);
        *moved = true;
    }
    return true;
}

/* What may be sent of all buckets. */
static void hand_over_all(struct ring *ring, bool *moved)
{
    bool oldest = true;
    for (uint64_t bucket = ring->sums.finished; bucket < ring->sums.posted; bucket++) {
        struct flight *flight = flight_of(ring, bucket);
        if (!hand_over(ring, flight, oldest, moved))
            return;
        oldest = oldest && flight->n_handed_over == flight->n_to_send;
    }
}

static void send_credit(struct ring *ring, uint32_t group)
{
    uint64_t slots = ring->released[group];
    const struct dpb_mesh_label label = {.kind = DPB_RING_CREDIT, .bucket = group, .word = slots};
    ring->released[group] = 0;
    for (; slots != 0; ring->n_released--)
        ring->slots[take_slot(group, &slots)].taken = false;
    dpb_mesh_send(ring->mesh, PREVIOUS, &label, NULL);
}

/* Many at once: a quarter of the inbox is as good as all of it to a sender. */
static void give_back(struct ring *ring)
{
    if (ring->n_released < ring->args.memory.n_slots / 4)
        return;
    for (uint32_t group = 0; group < n_groups(ring); group++)
        if (ring->released[group] != 0 && dpb_mesh_room(ring->mesh, PREVIOUS) > 0)
            send_credit(ring, group);
}

/* The payload of chunks that are sent may be written again. */
static void note_sent(struct ring *ring)
{
    uint64_t n = dpb_mesh_sent(ring->mesh, NEXT);
    for (; ring->n_completed < n; ring->n_completed++) {
        const struct sending *chunk = &ring->sending[ring->n_completed % DPB_MESH_QUEUE];
        struct flight *flight = flight_of(ring, chunk->bucket);
        ring->ahead_bytes -= chunk->bytes;
        flight->n_sent++;
        finish_if_complete(ring, flight);
    }
}

/* ---- for the strategy ---------------------------------------------------------------------- */

/* Takes the chunks that came early for a bucket that is now under way. */
static dpb_status take_held(struct ring *ring, struct flight *flight)
{
    for (uint32_t i = 0; i < ring->args.memory.n_slots; i++) {
        struct slot *slot = &ring->slots[i];
        if (!slot->held || slot->label.exchange != ring->sums.step ||
            slot->label.bucket != flight->bucket)
            continue;
        slot->held = false;
        DPB_TRY(take_arrived(ring, flight, &slot->label));
    }
    return DPB_OK;
}

/* `given`: as in struct flight. */
static void start(struct ring *ring, uint64_t name, uint64_t begin, uint64_t n, char *given)
{
    struct flight *flight = flight_of(ring, ring->sums.posted);
    const uint32_t all_gather = n_members(ring) - 1, first_round = given ? all_gather : 0;
    assert(dpb_sums_has_place(&ring->sums));
    *flight = (struct flight){.bucket = ring->sums.posted++,
                              .begin = begin,
                              .n = n,
                              .name = name,
                              .first_round = first_round,
                              .end_round = gives(ring) && !given ? all_gather : n_rounds(ring),
                              .rounds_begun = first_round,
                              .queue = flight->queue,
                              .seen = flight->seen,
                              .waits_from_ns = ring->args.host->now_ns()};
    flight->given = given;
    for (uint32_t i = 0; i < ring->n_seen_words; i++)
        flight->seen[i] = 0;
    for (uint32_t round = first_round; round < flight->end_round; round++) {
        uint32_t incoming = count_chunks(ring, flight, incoming_slice(ring, round));
        flight->n_to_receive += incoming;
        flight->n_to_reduce += reduces(ring, round) ? incoming : 0;
        flight->n_to_send += count_chunks(ring, flight, own_slice(ring, round));
    }
    const uint32_t first_slice = own_slice(ring, first_round);
    for (uint32_t chunk = 0; n_rounds(ring) > 0 && chunk < count_chunks(ring, flight, first_slice);
         chunk++)
        queue_chunk(ring, flight, first_round, chunk);
    finish_if_complete(ring, flight);
    if (ring->status == DPB_OK)
        ring->status = take_held(ring, flight);
}

static void post(struct dpb_sums *sums, uint64_t begin, uint64_t n)
{
    struct ring *ring = (struct ring *)sums;
    start(ring, ring->args.names ? ring->args.names[sums->posted] : sums->posted, begin, n, NULL);
}

void dpb_ring_sum(struct dpb_sums *sums, uint64_t bucket, uint64_t begin, uint64_t n)
{
    start((struct ring *)sums, bucket, begin, n, NULL);
}

void dpb_ring_give(struct dpb_sums *sums, uint64_t bucket, uint64_t begin, uint64_t n)
{
    struct ring *ring = (struct ring *)sums;
    assert(gives(ring));
    start(ring, bucket, begin, n, ring->args.shards.arena);
}

static uint64_t elements_beside(const struct ring *ring)
{
    return ring->args.shards.beside_bytes / dpb_dtype_size(ring->args.shards.type);
}

void dpb_ring_give_beside(struct dpb_sums *sums, uint64_t bucket)
{
    struct ring *ring = (struct ring *)sums;
    assert(gives(ring) && ring->args.shards.beside);
    start(ring, bucket, 0, n_members(ring) * elements_beside(ring), ring->args.shards.beside);
}

static dpb_status move(struct dpb_sums *sums, int64_t until_ns, bool *moved)
{
    struct ring *ring = (struct ring *)sums;
    bool handed = false;
    *moved = false;
    DPB_TRY(ring->status);
    if (!ring->mesh)
        return DPB_OK;
    hand_over_all(ring, &handed);
    handed = false; /* those go out now */
    dpb_status status = dpb_mesh_move(ring->mesh, until_ns, moved);
    if (ring->status == DPB_OK)
        ring->status = status;
    note_sent(ring);
    give_back(ring);
    hand_over_all(ring, &handed); /* new chunks may be sent on, and there may be room again */
    *moved = *moved || handed;
    return ring->status;
}

static dpb_status wait(struct dpb_sums *sums)
{
    struct ring *ring = (struct ring *)sums;
    const struct flight *flight = flight_of(ring, ring->sums.finished);
    bool receives = flight->n_received < flight->n_to_receive;
    assert(ring->sums.finished < ring->sums.posted);
    struct dpb_wait what = {.step = ring->sums.step,
                            .bucket = flight->name,
                            .bytes = flight->n * dpb_dtype_size(ring->args.type),
                            .peer = receives ? dpb_ring_previous(&ring->args.members)
                                             : dpb_ring_next(&ring->args.members),
                            .purpose = "the next rank in the ring to take its chunks"};
    if (flight->n_received < flight->n_to_reduce)
        what.purpose = "partial sums (scatter-reduce) from the rank before in the ring";
    else if (receives)
        what.purpose = ring->gathered.make || is_given(flight)
                           ? "new weights (all-gather) from the rank before in the ring"
                           : "sums (all-gather) from the rank before in the ring";
    if (dpb_mesh_left(ring->mesh, receives ? PREVIOUS : NEXT))
        return ring->args.host->fail(DPB_PEER,
                                     "rank %u has left the ring before exchange %llu, bucket "
                                     "%llu was through",
                                     what.peer, (unsigned long long)what.step,
                                     (unsigned long long)what.bucket);
    return dpb_mesh_wait(ring->mesh, &what);
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status allocate(struct ring *ring)
{
    uint32_t n_slots = ring->args.memory.n_slots;
    uint64_t slice = (ring->args.bucket_elements + n_members(ring) - 1) / n_members(ring);
    slice = slice > elements_beside(ring) ? slice : elements_beside(ring);
    size_t size = dpb_dtype_size(ring->args.type), given = dpb_dtype_size(ring->args.shards.type);
    ring->chunk_elements =
        ring->args.memory.slot_bytes / (gives(ring) && given > size ? given : size);
    ring->max_chunks = (uint32_t)((slice + ring->chunk_elements - 1) / ring->chunk_elements);
    /* A chunk of the bucket is queued once at a time: it is gone before it comes round again. */
    ring->queue_size = ring->max_chunks * n_members(ring);
    ring->n_seen_words = (n_rounds(ring) * ring->max_chunks + 63) / 64 + 1;
    ring->queues = calloc(DPB_RING_WINDOW * ring->queue_size, sizeof *ring->queues);
    ring->seens = calloc(DPB_RING_WINDOW * ring->n_seen_words, sizeof *ring->seens);
    ring->slots = calloc(n_slots, sizeof *ring->slots);
    ring->free_slots = calloc(n_slots, sizeof *ring->free_slots);
    ring->released = calloc(n_groups(ring), sizeof *ring->released);
    if (!ring->queues || !ring->seens || !ring->slots || !ring->free_slots || !ring->released)
        return ring->args.host->fail(DPB_NO_MEMORY, "no memory for the ring");
    for (uint32_t i = 0; i < DPB_RING_WINDOW; i++) {
        ring->flights[i].queue = ring->queues + (size_t)i * ring->queue_size;
        ring->flights[i].seen = ring->seens + (size_t)i * ring->n_seen_words;
    }
    for (uint32_t i = 0; i < n_slots; i++)
        ring->free_slots[ring->n_free++] = n_slots - 1 - i;
    return DPB_OK;
}

static dpb_status open_mesh(struct ring *ring)
{
    const struct dpb_ring_members *members = &ring->args.members;
    const struct dpb_ring_memory *memory = &ring->args.memory;
    uint64_t inbox_bytes = memory->n_slots * memory->slot_bytes;
    struct dpb_mesh_peer peers[LINKS] = {
        {.rank = dpb_ring_next(members), .number = dpb_ring_own(members) > dpb_ring_next(members)},
        {.rank = dpb_ring_previous(members),
         .number = dpb_ring_previous(members) > dpb_ring_own(members)}};
    const struct dpb_ring_shards *shards = &ring->args.shards;
    const uint64_t elements = memory->arena_bytes / dpb_dtype_size(ring->args.type);
    const struct dpb_mesh_memory memories[] = {
        {"the gradients", memory->arena, memory->arena_bytes},
        {"the inbox", memory->inbox, inbox_bytes},
        {"the weights", shards->arena, elements * dpb_dtype_size(shards->type)},
        {"sums of squares", shards->beside, n_members(ring) * shards->beside_bytes}};
    char shape[128];
    for (uint32_t link = 0; link < LINKS; link++)
        peers[link].landings[DPB_RING_CREDIT].memory = memory->inbox;
    peers[PREVIOUS].landings[DPB_RING_PARTIAL] =
        (struct dpb_mesh_landing){memory->inbox, inbox_bytes};
    peers[PREVIOUS].landings[DPB_RING_SUM] = (struct dpb_mesh_landing){
        ring->gathered.arena, elements * dpb_dtype_size(ring->gathered.type)};
    snprintf(shape, sizeof shape,
             "chunks of %llu bytes, %u of them in the inbox, %llu bytes of gradients",
             (unsigned long long)memory->slot_bytes, memory->n_slots,
             (unsigned long long)memory->arena_bytes);
    const struct dpb_mesh_args args = {.host = ring->args.host,
                                       .transport = ring->args.transport,
                                       .name = members->name,
                                       .what = "the ring",
                                       .shape = shape,
                                       .rank = dpb_ring_own(members),
                                       .keeper = dpb_ring_rank_at(members, 0),
                                       .peers = peers,
                                       .n_peers = LINKS,
                                       .memories = memories,
                                       .n_memories = shards->beside  ? 4
                                                     : shards->arena ? 3
                                                                     : 2,
                                       .doorbell = members->doorbell,
                                       .sink = sink_of(ring)};
    ring->args.transport = NULL; /* the mesh's from here on */
    return dpb_mesh_open(&args, &ring->mesh);
}

static dpb_status connect(struct ring *ring)
{
    DPB_TRY(allocate(ring));
    return n_members(ring) == 1 ? DPB_OK : open_mesh(ring);
}

static void destroy(struct dpb_sums *sums)
{
    struct ring *ring = (struct ring *)sums;
    const struct dpb_host *host = ring->args.host;
    dpb_mesh_close(ring->mesh, ring->status == DPB_OK && dpb_sums_idle(sums));
    if (ring->args.transport)
        ring->args.transport->ops->close(ring->args.transport, false);
    free(ring->queues);
    free(ring->seens);
    free(ring->slots);
    free(ring->free_slots);
    free(ring->released);
    host->release(ring, sizeof *ring);
}

static const struct dpb_sums_ops ops = {
    .post = post, .move = move, .wait = wait, .destroy = destroy};

dpb_status dpb_ring_create(const struct dpb_ring_args *args, struct dpb_sums **made)
{
    struct ring *ring = args->host->alloc(sizeof *ring);
    if (!ring) {
        args->transport->ops->close(args->transport, false);
        return DPB_NO_MEMORY;
    }
    ring->sums = (struct dpb_sums){.ops = &ops, .window = DPB_RING_WINDOW};
    ring->args = *args;
    ring->gathered = args->shards;
    if (!args->shards.make)
        ring->gathered = (struct dpb_ring_shards){.arena = args->memory.arena, .type = args->type};
    ring->reserve = args->memory.n_slots / 4;
    dpb_status status = connect(ring);
    if (status != DPB_OK) {
        destroy(&ring->sums);
        return status;
    }
    *made = &ring->sums;
    return DPB_OK;
}
