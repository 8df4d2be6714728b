/* ring.c - see ring.h. */
#include "lib/ring.h"

#include <assert.h>
#include <stdio.h>

/* Shorter gaps between two chunks are the network's, not a late peer's. */
#define GAP_NS INT64_C(20000)

/* What may be sent as soon as the transport takes it. */
struct pending {
    uint32_t round, chunk;
};

/* A bucket on its way round the ring. */
struct flight {
    uint64_t bucket, begin, n;                     /* elements of the arena */
    uint32_t n_to_receive, n_to_reduce, n_to_send; /* chunks */
    uint32_t n_received, n_handed_over, n_sent;
    /* Rounds of which something has come, and how many chunks those have: when all of them are here
     * and scatter-reduce is not over, the bucket waits for a peer. */
    uint32_t rounds_begun, n_begun;
    int64_t waits_from_ns;
    int64_t began_ns;  /* its first chunk came or went; 0: none did */
    uint32_t n_queued; /* since the bucket was posted: the queue's end; n_handed_over is its head */
    struct pending *queue;
    uint64_t *seen; /* a bit for each chunk of each round */
};

/* A chunk that came before this member was ready for it. */
struct held {
    bool used;
    struct transport_label label;
    const void *payload;
};

struct ring {
    struct ring_args args;
    dpb_status status; /* of what failed where none could be returned */
    uint64_t step;
    bool stepping;             /* there was an exchange: `step` counts */
    uint64_t posted, finished; /* buckets of this exchange; finished: all before it are */
    uint64_t chunk_elements;
    uint32_t max_chunks; /* of a slice */
    uint32_t queue_size, n_seen_words;
    uint32_t reserve;    /* credits that are left to the oldest bucket */
    uint32_t n_arriving; /* chunks of which a part is here */
    int64_t last_ns;     /* when the last chunk had come */
    struct flight flights[RING_WINDOW];
    struct held *held; /* by slot */
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

static struct transport_label label_of(const struct ring *ring, const struct flight *flight,
                                       uint32_t slice, uint32_t round, uint32_t chunk)
{
    struct dpb_range range = slice_range(ring, flight, slice);
    uint64_t size = dpb_dtype_size(ring->args.type);
    uint64_t begin = range.begin + chunk * ring->chunk_elements, rest = range.end - begin;
    uint64_t n = rest < ring->chunk_elements ? rest : ring->chunk_elements;
    return (struct transport_label){.step = ring->step,
                                    .bucket = (uint32_t)flight->bucket,
                                    .round = round,
                                    .chunk = chunk,
                                    .landing =
                                        reduces(ring, round) ? TRANSPORT_INBOX : TRANSPORT_ARENA,
                                    .at_bytes = (flight->begin + begin) * size,
                                    .bytes = n * size};
}

static struct flight *flight_of(struct ring *ring, uint64_t bucket)
{
    return &ring->flights[bucket % RING_WINDOW];
}

/* The flight that a label belongs to; NULL: that bucket is not under way here. */
static struct flight *find_flight(struct ring *ring, const struct transport_label *label)
{
    bool under_way = ring->stepping && label->step == ring->step &&
                     label->bucket >= ring->finished && label->bucket < ring->posted;
    return under_way ? flight_of(ring, label->bucket) : NULL;
}

/* ---- refusing ------------------------------------------------------------------------------ */

static dpb_status refuse(const struct ring *ring, const struct transport_label *label,
                         const char *expected)
{
    const struct transport_ring *members = &ring->args.members;
    return ring->args.host->fail(
        DPB_FAILED,
        "rank %u sent step %llu, bucket %u, round %u, chunk %u: %llu bytes for the %s at byte "
        "%llu; rank %u expected %s: the two do not run the same training",
        transport_previous(members), (unsigned long long)label->step, label->bucket, label->round,
        label->chunk, (unsigned long long)label->bytes,
        label->landing == TRANSPORT_INBOX ? "inbox" : "arena", (unsigned long long)label->at_bytes,
        members->members[members->position], expected);
}

/* Whether a label is one that its bucket's flight expects. */
static dpb_status check_label(const struct ring *ring, const struct flight *flight,
                              const struct transport_label *label)
{
    char text[128];
    if (label->round >= n_rounds(ring)) {
        snprintf(text, sizeof text, "rounds below %u", n_rounds(ring));
        return refuse(ring, label, text);
    }
    uint32_t slice = incoming_slice(ring, label->round);
    if (label->chunk >= count_chunks(ring, flight, slice)) {
        snprintf(text, sizeof text, "chunks below %u in that round",
                 count_chunks(ring, flight, slice));
        return refuse(ring, label, text);
    }
    struct transport_label wanted = label_of(ring, flight, slice, label->round, label->chunk);
    if (label->landing == wanted.landing && label->at_bytes == wanted.at_bytes &&
        label->bytes == wanted.bytes)
        return DPB_OK;
    snprintf(
        text, sizeof text, "%llu bytes for the %s at byte %llu", (unsigned long long)wanted.bytes,
        wanted.landing == TRANSPORT_INBOX ? "inbox" : "arena", (unsigned long long)wanted.at_bytes);
    return refuse(ring, label, text);
}

/* What is not under way here may be of a bucket that backward has not got to, or of the next step
 * for a member that was sooner through with this one. */
static dpb_status check_early(const struct ring *ring, const struct transport_label *label)
{
    char text[128];
    bool later = !ring->stepping || label->step == ring->step + 1 ||
                 (label->step == ring->step && label->bucket >= ring->posted);
    if (later && label->bucket < ring->args.n_buckets && label->landing == TRANSPORT_INBOX)
        return DPB_OK;
    snprintf(text, sizeof text, "buckets %llu to %llu of step %llu",
             (unsigned long long)ring->finished, (unsigned long long)ring->args.n_buckets - 1,
             (unsigned long long)ring->step);
    return refuse(ring, label, text);
}

/* Each chunk comes once. */
static dpb_status see(const struct ring *ring, struct flight *flight,
                      const struct transport_label *label)
{
    uint32_t bit = label->round * ring->max_chunks + label->chunk;
    uint64_t mask = UINT64_C(1) << (bit % 64);
    if (flight->seen[bit / 64] & mask)
        return refuse(ring, label, "it once, and had it");
    flight->seen[bit / 64] |= mask;
    return DPB_OK;
}

/* ---- waiting for a peer -------------------------------------------------------------------- */

static bool waits_for_peer(const struct flight *flight)
{
    return flight->n_received == flight->n_begun && flight->n_begun < flight->n_to_reduce;
}

/* A chunk comes after nothing came: what waited for it all the time is the oldest such bucket. */
static void report_wait(struct ring *ring, int64_t now_ns)
{
    const struct flight *oldest = NULL;
    for (uint64_t bucket = ring->finished; bucket < ring->posted; bucket++) {
        const struct flight *flight = flight_of(ring, bucket);
        if (waits_for_peer(flight) && (!oldest || flight->waits_from_ns < oldest->waits_from_ns))
            oldest = flight;
    }
    if (!oldest || ring->n_arriving > 0)
        return;
    int64_t from_ns = oldest->waits_from_ns > ring->last_ns ? oldest->waits_from_ns : ring->last_ns;
    if (now_ns - from_ns > GAP_NS)
        ring->args.host->span(oldest->bucket, DPB_PHASE_WAIT_PEER, from_ns, now_ns);
}

static void begin_rounds(const struct ring *ring, struct flight *flight, uint32_t round)
{
    for (; flight->rounds_begun <= round; flight->rounds_begun++)
        flight->n_begun += count_chunks(ring, flight, incoming_slice(ring, flight->rounds_begun));
}

/* ---- a chunk's way ------------------------------------------------------------------------- */

/* Of members that keep to their turns no more than that comes before it is sent on. */
static bool is_full(const struct ring *ring, const struct flight *flight)
{
    return flight->n_queued - flight->n_handed_over >= ring->queue_size;
}

static void queue_slice_chunk(struct ring *ring, struct flight *flight, uint32_t round,
                              uint32_t chunk)
{
    assert(!is_full(ring, flight));
    flight->queue[flight->n_queued++ % ring->queue_size] = (struct pending){round, chunk};
}

/* A bucket is finished when nothing of it will be read or written here any more. */
static void finish_if_complete(struct ring *ring, struct flight *flight)
{
    const struct dpb_host *host = ring->args.host;
    if (flight->n_received < flight->n_to_receive || flight->n_sent < flight->n_to_send)
        return;
    if (flight->began_ns != 0)
        host->span(flight->bucket, DPB_PHASE_TRANSFER, flight->began_ns, host->now_ns());
    while (ring->finished < ring->posted) {
        const struct flight *oldest = flight_of(ring, ring->finished);
        if (oldest->n_received < oldest->n_to_receive || oldest->n_sent < oldest->n_to_send)
            break;
        ring->finished++;
    }
}

static void reduce(const struct ring *ring, const struct flight *flight,
                   const struct transport_label *label, const void *payload)
{
    const struct dpb_host *host = ring->args.host;
    void *own = (char *)ring->args.memory.arena + label->at_bytes;
    const void *sources[] = {payload, own};
    int64_t began_ns = host->now_ns();
    host->vec->sum(ring->args.type, &own, 1, sources, 2,
                   label->bytes / dpb_dtype_size(ring->args.type));
    host->span(flight->bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
}

/* A chunk that is all here, of a bucket that is under way. */
static dpb_status take(struct ring *ring, struct flight *flight,
                       const struct transport_label *label, const void *payload, uint32_t slot)
{
    DPB_TRY(check_label(ring, flight, label));
    if (label->round + 1 < n_rounds(ring) && is_full(ring, flight))
        return refuse(ring, label, "only rounds whose turn has come");
    DPB_TRY(see(ring, flight, label));
    begin_rounds(ring, flight, label->round);
    if (reduces(ring, label->round)) {
        reduce(ring, flight, label, payload);
        ring->args.transport->ops->release(ring->args.transport, slot);
    }
    if (label->round + 1 < n_rounds(ring))
        queue_slice_chunk(ring, flight, label->round + 1, label->chunk);
    flight->n_received++;
    ring->last_ns = ring->args.host->now_ns();
    if (flight->began_ns == 0)
        flight->began_ns = ring->last_ns;
    if (waits_for_peer(flight))
        flight->waits_from_ns = ring->last_ns;
    finish_if_complete(ring, flight);
    return DPB_OK;
}

/* ---- what the transport says --------------------------------------------------------------- */

static dpb_status begins(void *ring_, const struct transport_label *label)
{
    struct ring *ring = ring_;
    struct flight *flight = find_flight(ring, label);
    report_wait(ring, ring->args.host->now_ns());
    DPB_TRY(flight ? check_label(ring, flight, label) : check_early(ring, label));
    if (flight)
        begin_rounds(ring, flight, label->round);
    ring->n_arriving++;
    return DPB_OK;
}

static dpb_status arrived(void *ring_, const struct transport_label *label, const void *payload,
                          uint32_t slot)
{
    struct ring *ring = ring_;
    struct flight *flight = find_flight(ring, label);
    ring->n_arriving--;
    if (flight)
        return take(ring, flight, label, payload, slot);
    ring->last_ns = ring->args.host->now_ns();
    assert(slot < ring->args.memory.n_slots && !ring->held[slot].used);
    ring->held[slot] = (struct held){.used = true, .label = *label, .payload = payload};
    return DPB_OK;
}

static void sent(void *ring_, const struct transport_label *label)
{
    struct ring *ring = ring_;
    struct flight *flight = find_flight(ring, label);
    assert(flight); /* no bucket is finished before its chunks are sent */
    flight->n_sent++;
    finish_if_complete(ring, flight);
}

/* ---- sending ------------------------------------------------------------------------------- */

/*
 * Hands over what may be sent of one bucket; false: the transport takes nothing more. Credits are
 * not for younger buckets alone: what they send may be early for the next member, and would keep
 * its slots until its backward gets there, while older buckets that could move on need them.
 */
static bool hand_over(struct ring *ring, struct flight *flight, bool oldest, bool *moved)
{
    struct transport *transport = ring->args.transport;
    while (flight->n_handed_over < flight->n_queued) {
        struct pending next = flight->queue[flight->n_handed_over % ring->queue_size];
        struct transport_label label =
            label_of(ring, flight, own_slice(ring, next.round), next.round, next.chunk);
        if (label.landing == TRANSPORT_INBOX && !oldest &&
            transport->ops->room(transport) <= ring->reserve)
            return true;
        if (!transport->ops->send(transport, &label))
            return false;
        flight->n_handed_over++;
        if (flight->began_ns == 0)
            flight->began_ns = ring->args.host->now_ns();
        ring->args.host->count_bytes(label.bytes);
        *moved = true;
    }
    return true;
}

static void hand_over_all(struct ring *ring, bool *moved)
{
    bool oldest = true;
    for (uint64_t bucket = ring->finished; bucket < ring->posted; bucket++) {
        struct flight *flight = flight_of(ring, bucket);
        if (!hand_over(ring, flight, oldest, moved))
            return;
        oldest = oldest && flight->n_handed_over == flight->n_to_send;
    }
}

/* ---- for the strategy ---------------------------------------------------------------------- */

void ring_begin(struct ring *ring, uint64_t step)
{
    assert(ring->posted == ring->finished);
    ring->step = step;
    ring->stepping = true;
    ring->posted = ring->finished = 0;
}

bool ring_has_place(const struct ring *ring)
{
    return ring->posted - ring->finished < RING_WINDOW;
}

bool ring_finished(const struct ring *ring, uint64_t bucket)
{
    return bucket < ring->finished;
}

bool ring_idle(const struct ring *ring)
{
    return ring->posted == ring->finished;
}

/* What came early for a bucket that is now under way. */
static dpb_status take_held(struct ring *ring, struct flight *flight)
{
    for (uint32_t slot = 0; slot < ring->args.memory.n_slots; slot++) {
        struct held held = ring->held[slot];
        if (!held.used || held.label.step != ring->step || held.label.bucket != flight->bucket)
            continue;
        ring->held[slot].used = false;
        DPB_TRY(take(ring, flight, &held.label, held.payload, slot));
    }
    return DPB_OK;
}

void ring_post(struct ring *ring, uint64_t begin, uint64_t n)
{
    struct flight *flight = flight_of(ring, ring->posted);
    assert(ring_has_place(ring));
    *flight = (struct flight){.bucket = ring->posted++,
                              .begin = begin,
                              .n = n,
                              .queue = flight->queue,
                              .seen = flight->seen,
                              .waits_from_ns = ring->args.host->now_ns()};
    for (uint32_t i = 0; i < ring->n_seen_words; i++)
        flight->seen[i] = 0;
    for (uint32_t round = 0; round < n_rounds(ring); round++) {
        uint32_t incoming = count_chunks(ring, flight, incoming_slice(ring, round));
        flight->n_to_receive += incoming;
        flight->n_to_reduce += reduces(ring, round) ? incoming : 0;
        flight->n_to_send += count_chunks(ring, flight, own_slice(ring, round));
    }
    for (uint32_t chunk = 0;
         n_rounds(ring) > 0 && chunk < count_chunks(ring, flight, own_slice(ring, 0)); chunk++)
        queue_slice_chunk(ring, flight, 0, chunk);
    finish_if_complete(ring, flight);
    if (ring->status == DPB_OK)
        ring->status = take_held(ring, flight);
}

dpb_status ring_move(struct ring *ring, int64_t until_ns, bool *moved)
{
    struct transport *transport = ring->args.transport;
    *moved = false;
    DPB_TRY(ring->status);
    if (n_members(ring) == 1)
        return DPB_OK;
    bool handed = false;
    hand_over_all(ring, &handed);
    handed = false; /* those go out now */
    ring->status = transport->ops->move(transport, until_ns, moved);
    hand_over_all(ring, &handed); /* what came may be sent on, and there may be room again */
    *moved = *moved || handed;
    return ring->status;
}

dpb_status ring_wait(struct ring *ring)
{
    const struct flight *flight = flight_of(ring, ring->finished);
    struct transport *transport = ring->args.transport;
    bool receives = flight->n_received < flight->n_to_receive;
    assert(ring->finished < ring->posted);
    struct dpb_wait what = {.step = ring->step,
                            .bucket = flight->bucket,
                            .bytes = flight->n * dpb_dtype_size(ring->args.type),
                            .peer = receives ? transport_previous(&ring->args.members)
                                             : transport_next(&ring->args.members),
                            .purpose = "the next rank in the ring to take its chunks"};
    if (flight->n_received < flight->n_to_reduce)
        what.purpose = "partial sums (scatter-reduce) from the rank before in the ring";
    else if (receives)
        what.purpose = "sums (all-gather) from the rank before in the ring";
    ring->args.host->note("wait_peer", what.bucket, what.peer);
    return transport->ops->wait(transport, &what);
}

void ring_wake(struct ring *ring)
{
    if (n_members(ring) > 1)
        ring->args.transport->ops->wake(ring->args.transport);
}

/* ---- making and ending --------------------------------------------------------------------- */

static size_t queue_bytes(const struct ring *ring)
{
    return RING_WINDOW * ring->queue_size * sizeof *ring->queues;
}

static size_t seen_bytes(const struct ring *ring)
{
    return RING_WINDOW * ring->n_seen_words * sizeof *ring->seens;
}

static size_t held_bytes(const struct ring *ring)
{
    return (ring->args.memory.n_slots + 1) * sizeof *ring->held;
}

static dpb_status allocate(struct ring *ring)
{
    const struct dpb_host *host = ring->args.host;
    uint64_t slice = (ring->args.bucket_elements + n_members(ring) - 1) / n_members(ring);
    ring->chunk_elements = ring->args.memory.slot_bytes / dpb_dtype_size(ring->args.type);
    ring->max_chunks = (uint32_t)((slice + ring->chunk_elements - 1) / ring->chunk_elements);
    /* A chunk of the bucket is queued once at a time: it is gone before it comes round again. */
    ring->queue_size = ring->max_chunks * n_members(ring);
    ring->n_seen_words = (n_rounds(ring) * ring->max_chunks + 63) / 64 + 1;
    ring->queues = host->alloc(queue_bytes(ring));
    ring->seens = host->alloc(seen_bytes(ring));
    ring->held = host->alloc(held_bytes(ring));
    if (!ring->queues || !ring->seens || !ring->held)
        return DPB_NO_MEMORY;
    for (uint32_t i = 0; i < RING_WINDOW; i++) {
        ring->flights[i].queue = ring->queues + (size_t)i * ring->queue_size;
        ring->flights[i].seen = ring->seens + (size_t)i * ring->n_seen_words;
    }
    return DPB_OK;
}

dpb_status ring_create(const struct ring_args *args, struct ring **made)
{
    struct transport *transport = args->transport;
    struct ring *ring = args->host->alloc(sizeof *ring);
    if (!ring) {
        transport->ops->close(transport);
        return DPB_NO_MEMORY;
    }
    ring->args = *args;
    ring->reserve = args->memory.n_slots / 4;
    dpb_status status = allocate(ring);
    const struct transport_sink sink = {
        .ring = ring, .begins = begins, .arrived = arrived, .sent = sent};
    if (status == DPB_OK && n_members(ring) > 1)
        status = transport->ops->connect(transport, &ring->args.members, &ring->args.memory, &sink);
    if (status != DPB_OK) {
        ring_destroy(ring);
        return status;
    }
    *made = ring;
    return DPB_OK;
}

void ring_destroy(struct ring *ring)
{
    if (!ring)
        return;
    const struct dpb_host *host = ring->args.host;
    ring->args.transport->ops->close(ring->args.transport);
    host->release(ring->queues, queue_bytes(ring));
    host->release(ring->seens, seen_bytes(ring));
    host->release(ring->held, held_bytes(ring));
    host->release(ring, sizeof *ring);
}
