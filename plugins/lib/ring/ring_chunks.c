/* ring_chunks.c - see ring_state.h: chunks that come, are reduced, and are sent on. */
#include <assert.h>
#include <stdio.h>

#include "lib/ring/ring_state.h"

/* Handed to the mesh at once. A slot is chosen when its chunk is handed over. So with fewer chunks
 * ahead fewer slots are in use, and these slots are in the caches. */
#define AHEAD_BYTES (UINT64_C(512) << 10)

/* The flight that a label belongs to; NULL: that bucket is not under way here. */
static struct flight *find_flight(struct ring *ring, const struct mesh_label *label)
{
    bool under_way = label->exchange == ring->sums.step && label->bucket >= ring->sums.finished &&
                     label->bucket < ring->sums.posted;
    return under_way ? flight_of(ring, label->bucket) : NULL;
}

/* ---- slots --------------------------------------------------------------------------------- */

static void release(struct ring *ring, uint32_t slot)
{
    ring->released[slot / 64] |= UINT64_C(1) << (slot % 64);
    ring->n_released++;
}

static void take_credit(struct ring *ring, const struct mesh_label *label)
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
    if (now_ns - from_ns > RING_GAP_NS)
        ring->args.host->span(bucket_of(ring, oldest), DPB_PHASE_WAIT_PEER, from_ns, now_ns);
}

static void begin_rounds(const struct ring *ring, struct flight *flight, uint32_t round)
{
    for (; flight->rounds_begun <= round; flight->rounds_begun++)
        flight->n_begun +=
            ring_count_chunks(ring, flight, incoming_slice(ring, flight->rounds_begun));
}

/* ---- a chunk's way ------------------------------------------------------------------------- */

/* If members keep to their turns, no queue gets more chunks before it has sent some on. */
static bool is_full(const struct ring *ring, const struct flight *flight)
{
    return flight->n_queued - flight->n_handed_over >= ring->queue_size;
}

void ring_queue_chunk(struct ring *ring, struct flight *flight, uint32_t round, uint32_t chunk)
{
    assert(!is_full(ring, flight));
    flight->queue[flight->n_queued++ % ring->queue_size] = (struct pending){round, chunk};
}

/* The bucket's transfer, as far as no span has it. */
static void report_transfer(const struct ring *ring, const struct flight *flight)
{
    const struct dpb_host *host = ring->args.host;
    if (flight->began_ns != 0)
        host->span(bucket_of(ring, flight), DPB_PHASE_TRANSFER, flight->began_ns, host->now_ns());
}

void ring_finish_if_complete(struct ring *ring, struct flight *flight)
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

static void reduce(const struct ring *ring, struct flight *flight, const struct mesh_label *label)
{
    const struct dpb_host *host = ring->args.host;
    const struct ring_memory *memory = &ring->args.memory;
    const size_t size = dpb_dtype_size(ring->args.type);
    uint32_t round = round_of(label);
    struct mesh_label here =
        ring_label(ring, flight, incoming_slice(ring, round), round, chunk_of(label));
    void *own = (char *)memory->arena + here.at_bytes;
    const void *sources[] = {(char *)memory->inbox + label->at_bytes, own};
    int64_t began_ns = host->now_ns();
    host->vec->sum(ring->args.type, &own, 1, sources, 2, label->bytes / size);
    host->span(bucket_of(ring, flight), DPB_PHASE_REDUCE, began_ns, host->now_ns());
    if (ring->gathered.make && !reduces(ring, round + 1))
        make_shard(ring, flight, here.at_bytes / size, label->bytes / size);
}

/* Here, too, the bucket is given: nothing reads the old weights any more. */
static void take_given(const struct ring *ring, const struct flight *flight,
                       const struct mesh_label *label)
{
    const struct ring_shards *shards = &ring->args.shards;
    const uint32_t round = round_of(label);
    const struct mesh_label here =
        ring_label(ring, flight, incoming_slice(ring, round), round, chunk_of(label));
    ring->args.host->vec->copy(shards->type, (char *)shards->arena + here.at_bytes,
                               (const char *)ring->args.memory.inbox + label->at_bytes,
                               label->bytes / dpb_dtype_size(shards->type));
}

dpb_status ring_take(struct ring *ring, struct flight *flight, const struct mesh_label *label)
{
    uint32_t round = round_of(label);
    DPB_TRY(ring_check_label(ring, flight, label));
    if (round + 1 < n_rounds(ring) && is_full(ring, flight))
        return ring_refuse(ring, label, "only rounds whose turn has come");
    DPB_TRY(ring_see(ring, flight, label));
    begin_rounds(ring, flight, round);
    if (reduces(ring, round))
        reduce(ring, flight, label);
    else if (is_given(flight))
        take_given(ring, flight, label);
    if (label->kind == RING_PARTIAL)
        release(ring, slot_of(ring, label));
    if (round + 1 < n_rounds(ring))
        ring_queue_chunk(ring, flight, round + 1, chunk_of(label));
    flight->n_received++;
    ring->last_ns = ring->args.host->now_ns();
    if (flight->began_ns == 0)
        flight->began_ns = ring->last_ns;
    if (waits_for_peer(flight))
        flight->waits_from_ns = ring->last_ns;
    ring_finish_if_complete(ring, flight);
    return DPB_OK;
}

/* ---- the mesh's news ----------------------------------------------------------------------- */

static dpb_status begins(void *ring_, uint32_t link, uint64_t n, const struct mesh_label *label)
{
    struct ring *ring = ring_;
    if (label->kind == RING_CREDIT)
        return ring_check_credit(ring, link, label);
    if (label->kind > RING_CREDIT || link != PREVIOUS)
        return ring_refuse(ring, label, "chunks from the member before alone");
    struct flight *flight = find_flight(ring, label);
    DPB_TRY(flight ? ring_check_label(ring, flight, label) : ring_check_early(ring, label));
    if (label->kind == RING_PARTIAL)
        DPB_TRY(ring_check_slot(ring, label));
    if (n < ring->n_begun[label->kind])
        return DPB_OK;
    report_wait(ring, ring->args.host->now_ns());
    if (flight)
        begin_rounds(ring, flight, round_of(label));
    ring->n_begun[label->kind]++;
    ring->n_arriving++;
    return DPB_OK;
}

static void describe(const struct mesh_label *label, char text[MESH_TEXT_BYTES])
{
    if (label->kind == RING_CREDIT)
        snprintf(text, MESH_TEXT_BYTES, "a credit for slots %llx behind slot %llu",
                 (unsigned long long)label->word, (unsigned long long)label->bucket * 64);
    else
        snprintf(text, MESH_TEXT_BYTES, "exchange %llu, bucket %u, round %u, chunk %u (%llu bytes)",
                 (unsigned long long)label->exchange, label->bucket, round_of(label),
                 chunk_of(label), (unsigned long long)label->bytes);
}

static dpb_status take_chunk(struct ring *ring, const struct mesh_label *label)
{
    struct flight *flight = find_flight(ring, label);
    ring->n_arriving--;
    if (label->kind == RING_PARTIAL) {
        DPB_TRY(ring_check_slot(ring, label));
        ring->slots[slot_of(ring, label)].taken = true;
    }
    if (flight)
        return ring_take(ring, flight, label);
    ring->last_ns = ring->args.host->now_ns();
    ring->slots[slot_of(ring, label)].held = true;
    ring->slots[slot_of(ring, label)].label = *label;
    return DPB_OK;
}

static void arrived(void *ring_, uint32_t link, const struct mesh_label *label)
{
    struct ring *ring = ring_;
    (void)link;
    if (label->kind == RING_CREDIT) {
        take_credit(ring, label);
    } else if (ring->status == DPB_OK) {
        ring->status = take_chunk(ring, label);
    }
}

struct mesh_sink ring_sink(struct ring *ring)
{
    return (struct mesh_sink){
        .owner = ring, .begins = begins, .describe = describe, .arrived = arrived};
}

/* ---- sending ------------------------------------------------------------------------------- */

static void send_chunk(struct ring *ring, struct flight *flight, struct mesh_label *label)
{
    const struct ring_memory *memory = &ring->args.memory;
    const bool partial = label->kind == RING_PARTIAL;
    const char *arena = is_given(flight) ? ring->args.shards.arena
                        : partial        ? memory->arena
                                         : ring->gathered.arena;
    const char *payload = arena + label->at_bytes;
    if (partial) {
        uint32_t slot = ring->free_slots[--ring->n_free];
        ring->slots[slot].lent = true;
        label->at_bytes = slot * memory->slot_bytes;
    }
    ring->sending[ring->n_messages++ % MESH_QUEUE] = (struct sending){flight->bucket, label->bytes};
    ring->ahead_bytes += label->bytes;
    mesh_send(ring->mesh, NEXT, label, payload);
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
        struct mesh_label label =
            ring_label(ring, flight, own_slice(ring, next.round), next.round, next.chunk);
        if (label.kind == RING_PARTIAL && !oldest && ring->n_free <= ring->reserve)
            return true;
        if (mesh_room(ring->mesh, NEXT) == 0 || ring->ahead_bytes >= AHEAD_BYTES ||
            (label.kind == RING_PARTIAL && ring->n_free == 0))
            return false;
        send_chunk(ring, flight, &label);
        *moved = true;
    }
    return true;
}

void ring_hand_over(struct ring *ring, bool *moved)
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
    const struct mesh_label label = {.kind = RING_CREDIT, .bucket = group, .word = slots};
    ring->released[group] = 0;
    for (; slots != 0; ring->n_released--)
        ring->slots[take_slot(group, &slots)].taken = false;
    mesh_send(ring->mesh, PREVIOUS, &label, NULL);
}

/* Many at once: a quarter of the inbox is as good as all of it to a sender. */
void ring_give_back(struct ring *ring)
{
    if (ring->n_released < ring->args.memory.n_slots / 4)
        return;
    for (uint32_t group = 0; group < n_groups(ring); group++)
        if (ring->released[group] != 0 && mesh_room(ring->mesh, PREVIOUS) > 0)
            send_credit(ring, group);
}

/* The payload of chunks that are sent may be written again. */
void ring_note_sent(struct ring *ring)
{
    uint64_t n = mesh_sent(ring->mesh, NEXT);
    for (; ring->n_completed < n; ring->n_completed++) {
        const struct sending *chunk = &ring->sending[ring->n_completed % MESH_QUEUE];
        struct flight *flight = flight_of(ring, chunk->bucket);
        ring->ahead_bytes -= chunk->bytes;
        flight->n_sent++;
        ring_finish_if_complete(ring, flight);
    }
}
