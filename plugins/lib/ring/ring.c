/* ring.c - see ring.h. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mesh/mesh_transport.h"
#include "lib/ring/ring_state.h"

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
        DPB_TRY(ring_take(ring, flight, &slot->label));
    }
    return DPB_OK;
}

static void post_from(struct ring *ring, uint64_t begin, uint64_t n, uint32_t first_round)
{
    struct flight *flight = flight_of(ring, ring->sums.posted);
    assert(sums_has_place(&ring->sums));
    *flight = (struct flight){.bucket = ring->sums.posted++,
                              .begin = begin,
                              .n = n,
                              .first_round = first_round,
                              .rounds_begun = first_round,
                              .queue = flight->queue,
                              .seen = flight->seen,
                              .waits_from_ns = ring->args.host->now_ns()};
    for (uint32_t i = 0; i < ring->n_seen_words; i++)
        flight->seen[i] = 0;
    for (uint32_t round = first_round; round < n_rounds(ring); round++) {
        uint32_t incoming = ring_count_chunks(ring, flight, incoming_slice(ring, round));
        flight->n_to_receive += incoming;
        flight->n_to_reduce += reduces(ring, round) ? incoming : 0;
        flight->n_to_send += ring_count_chunks(ring, flight, own_slice(ring, round));
    }
    const uint32_t first_slice = own_slice(ring, first_round);
    for (uint32_t chunk = 0;
         n_rounds(ring) > 0 && chunk < ring_count_chunks(ring, flight, first_slice); chunk++)
        ring_queue_chunk(ring, flight, first_round, chunk);
    ring_finish_if_complete(ring, flight);
    if (ring->status == DPB_OK)
        ring->status = take_held(ring, flight);
}

static void post(struct sums *sums, uint64_t begin, uint64_t n)
{
    post_from((struct ring *)sums, begin, n, 0);
}

void ring_give(struct sums *sums, uint64_t begin, uint64_t n)
{
    struct ring *ring = (struct ring *)sums;
    assert(gives(ring));
    post_from(ring, begin, n, n_members(ring) - 1);
}

static dpb_status move(struct sums *sums, int64_t until_ns, bool *moved)
{
    struct ring *ring = (struct ring *)sums;
    bool handed = false;
    *moved = false;
    DPB_TRY(ring->status);
    if (!ring->mesh)
        return DPB_OK;
    ring_hand_over(ring, &handed);
    handed = false; /* those go out now */
    dpb_status status = mesh_move(ring->mesh, until_ns, moved);
    if (ring->status == DPB_OK)
        ring->status = status;
    ring_note_sent(ring);
    ring_give_back(ring);
    ring_hand_over(ring, &handed); /* new chunks may be sent on, and there may be room again */
    *moved = *moved || handed;
    return ring->status;
}

static dpb_status wait(struct sums *sums)
{
    struct ring *ring = (struct ring *)sums;
    const struct flight *flight = flight_of(ring, ring->sums.finished);
    bool receives = flight->n_received < flight->n_to_receive;
    assert(ring->sums.finished < ring->sums.posted);
    struct dpb_wait what = {.step = ring->sums.step,
                            .bucket = bucket_of(ring, flight),
                            .bytes = flight->n * dpb_dtype_size(ring->args.type),
                            .peer = receives ? ring_previous(&ring->args.members)
                                             : ring_next(&ring->args.members),
                            .purpose = "the next rank in the ring to take its chunks"};
    if (flight->n_received < flight->n_to_reduce)
        what.purpose = "partial sums (scatter-reduce) from the rank before in the ring";
    else if (receives)
        what.purpose = ring->gathered.make || is_given(flight)
                           ? "new weights (all-gather) from the rank before in the ring"
                           : "sums (all-gather) from the rank before in the ring";
    if (mesh_left(ring->mesh, receives ? PREVIOUS : NEXT))
        return ring->args.host->fail(DPB_PEER,
                                     "rank %u has left the ring before exchange %llu, bucket "
                                     "%llu was through",
                                     what.peer, (unsigned long long)what.step,
                                     (unsigned long long)what.bucket);
    return mesh_wait(ring->mesh, &what);
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status allocate(struct ring *ring)
{
    uint32_t n_slots = ring->args.memory.n_slots;
    uint64_t slice = (ring->args.bucket_elements + n_members(ring) - 1) / n_members(ring);
    size_t size = dpb_dtype_size(ring->args.type), given = dpb_dtype_size(ring->args.shards.type);
    ring->chunk_elements =
        ring->args.memory.slot_bytes / (gives(ring) && given > size ? given : size);
    ring->max_chunks = (uint32_t)((slice + ring->chunk_elements - 1) / ring->chunk_elements);
    /* A chunk of the bucket is queued once at a time: it is gone before it comes round again. */
    ring->queue_size = ring->max_chunks * n_members(ring);
    ring->n_seen_words = (n_rounds(ring) * ring->max_chunks + 63) / 64 + 1;
    ring->queues = calloc(RING_WINDOW * ring->queue_size, sizeof *ring->queues);
    ring->seens = calloc(RING_WINDOW * ring->n_seen_words, sizeof *ring->seens);
    ring->slots = calloc(n_slots, sizeof *ring->slots);
    ring->free_slots = calloc(n_slots, sizeof *ring->free_slots);
    ring->released = calloc(n_groups(ring), sizeof *ring->released);
    if (!ring->queues || !ring->seens || !ring->slots || !ring->free_slots || !ring->released)
        return ring->args.host->fail(DPB_NO_MEMORY, "no memory for the ring");
    for (uint32_t i = 0; i < RING_WINDOW; i++) {
        ring->flights[i].queue = ring->queues + (size_t)i * ring->queue_size;
        ring->flights[i].seen = ring->seens + (size_t)i * ring->n_seen_words;
    }
    for (uint32_t i = 0; i < n_slots; i++)
        ring->free_slots[ring->n_free++] = n_slots - 1 - i;
    return DPB_OK;
}

static dpb_status open_mesh(struct ring *ring)
{
    const struct ring_members *members = &ring->args.members;
    const struct ring_memory *memory = &ring->args.memory;
    uint64_t inbox_bytes = memory->n_slots * memory->slot_bytes;
    struct mesh_peer peers[LINKS] = {
        {.rank = ring_next(members), .number = ring_own(members) > ring_next(members)},
        {.rank = ring_previous(members), .number = ring_previous(members) > ring_own(members)}};
    const struct ring_shards *shards = &ring->args.shards;
    const uint64_t elements = memory->arena_bytes / dpb_dtype_size(ring->args.type);
    const struct mesh_memory memories[] = {
        {"the gradients", memory->arena, memory->arena_bytes},
        {"the inbox", memory->inbox, inbox_bytes},
        {"the weights", shards->arena, elements * dpb_dtype_size(shards->type)}};
    char shape[128];
    for (uint32_t link = 0; link < LINKS; link++)
        peers[link].landings[RING_CREDIT].memory = memory->inbox;
    peers[PREVIOUS].landings[RING_PARTIAL] = (struct mesh_landing){memory->inbox, inbox_bytes};
    peers[PREVIOUS].landings[RING_SUM] =
        (struct mesh_landing){ring->gathered.arena, elements * dpb_dtype_size(ring->gathered.type)};
    snprintf(shape, sizeof shape,
             "chunks of %llu bytes, %u of them in the inbox, %llu bytes of gradients",
             (unsigned long long)memory->slot_bytes, memory->n_slots,
             (unsigned long long)memory->arena_bytes);
    const struct mesh_args args = {.host = ring->args.host,
                                   .transport = ring->args.transport,
                                   .name = members->name,
                                   .what = "the ring",
                                   .shape = shape,
                                   .rank = ring_own(members),
                                   .keeper = ring_rank_at(members, 0),
                                   .peers = peers,
                                   .n_peers = LINKS,
                                   .memories = memories,
                                   .n_memories = shards->arena ? 3 : 2,
                                   .doorbell = members->doorbell,
                                   .sink = ring_sink(ring)};
    ring->args.transport = NULL; /* the mesh's from here on */
    return mesh_open(&args, &ring->mesh);
}

static dpb_status connect(struct ring *ring)
{
    DPB_TRY(allocate(ring));
    return n_members(ring) == 1 ? DPB_OK : open_mesh(ring);
}

static void destroy(struct sums *sums)
{
    struct ring *ring = (struct ring *)sums;
    const struct dpb_host *host = ring->args.host;
    mesh_close(ring->mesh, ring->status == DPB_OK && sums_idle(sums));
    if (ring->args.transport)
        ring->args.transport->ops->close(ring->args.transport, false);
    free(ring->queues);
    free(ring->seens);
    free(ring->slots);
    free(ring->free_slots);
    free(ring->released);
    host->release(ring, sizeof *ring);
}

static const struct sums_ops ops = {.post = post, .move = move, .wait = wait, .destroy = destroy};

dpb_status ring_create(const struct ring_args *args, struct sums **made)
{
    struct ring *ring = args->host->alloc(sizeof *ring);
    if (!ring) {
        args->transport->ops->close(args->transport, false);
        return DPB_NO_MEMORY;
    }
    ring->sums = (struct sums){.ops = &ops, .window = RING_WINDOW};
    ring->args = *args;
    ring->gathered = args->shards;
    if (!args->shards.make)
        ring->gathered = (struct ring_shards){.arena = args->memory.arena, .type = args->type};
    ring->reserve = args->memory.n_slots / 4;
    dpb_status status = connect(ring);
    if (status != DPB_OK) {
        destroy(&ring->sums);
        return status;
    }
    *made = &ring->sums;
    return DPB_OK;
}
