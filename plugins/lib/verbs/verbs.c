/* verbs.c - see verbs.h. */
#include "lib/verbs/verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/verbs/adapter.h"
#include "lib/verbs/failure.h"

enum {
    MOST_CHUNKS = 1024, /* under way to a member */
    LEAST_CHUNKS = 64,
    SPARE_CREDITS = 8, /* messages that bring no slot: one for a quarter of the chunks */
    SLOT_BITS = 20,
    NO_SLOT = (1 << SLOT_BITS) - 1,
    KEY_BYTES = 96
};

/* What a request was; above its index in wr_id. A label completes by itself only when it fails. */
enum kind { KIND_CHUNK, KIND_LABEL, KIND_CREDIT, KIND_CHUNK_IN, KIND_CREDIT_IN };

/* A place in the ring of labels. */
struct place {
    struct transport_label label;
    uint32_t slot;
    uint8_t unused[DPB_CACHE_LINE - sizeof(struct transport_label) - sizeof(uint32_t)];
};

_Static_assert(sizeof(struct place) == DPB_CACHE_LINE, "a place is a cache line");

/* What a member puts into the store, once for both of its neighbours. */
struct ring_card {
    struct port_card port;
    uint32_t to_next, to_previous;               /* numbers of its queue pairs */
    uint32_t to_next_begins, to_previous_begins; /* first packet numbers (PSN) that they send */
    struct remote arena, inbox, labels;
    /* What must be the same at both ends. */
    uint64_t arena_bytes, slot_bytes;
    uint32_t n_slots, depth;
};

/* The connections to the next member, over which chunks go out and credits come in, and to the one
 * before. */
struct verbs {
    struct transport base;
    const struct dpb_host *host;
    struct transport_ring ring;
    struct transport_memory memory;
    struct transport_sink sink;

    struct adapter adapter;
    struct link next, previous;
    struct place
        *places; /* depth that chunks from the previous member fill, depth for the next's */
    uint32_t depth;
    struct ibv_mr *arena_region, *inbox_region, *places_region;

    /* To the next member. Numbers of chunks only rise. */
    struct remote its_arena, its_inbox, its_labels;
    uint32_t window; /* places there */
    uint64_t n_sent, n_completed, n_returned;
    uint32_t *free_slots, n_free; /* of its inbox */

    /* From the previous member. */
    uint32_t window_in;
    uint64_t n_received;
    uint32_t n_untold;                       /* chunks taken that it does not know of */
    uint32_t *released, n_released, n_given; /* slots to give back, n_slots places; only rise */
    uint32_t n_credits;                      /* credits that may still be posted */
    bool lost; /* the connection failed, for the reason `loss`: see fail_completion */
    struct ibv_wc loss;

    dpb_status status; /* of what failed where none could be returned */
    int wake_fd;
    uint32_t waiting, woken; /* between threads: see verbs_wake */
};

static struct verbs *verbs_of(struct transport *transport)
{
    return (struct verbs *)(void *)transport;
}

static uint64_t request_id(enum kind kind, uint64_t index)
{
    return (uint64_t)kind << 32 | index;
}

static struct place *outgoing(const struct verbs *verbs, uint64_t number)
{
    return &verbs->places[verbs->depth + number % verbs->window];
}

/* ---- requests ------------------------------------------------------------------------------ */

/* A place for what comes with immediate data; the data themselves go elsewhere. */
static dpb_status post_receive(struct verbs *verbs, struct link *link, enum kind kind)
{
    return link_post_receive(verbs->host, link, request_id(kind, 0));
}

/* The chunk whose label and slot are in its place. */
static dpb_status post_chunk(struct verbs *verbs, const struct place *place)
{
    const struct transport_label *label = &place->label;
    const struct remote *target = &verbs->its_arena;
    uint64_t offset = label->at_bytes, index = verbs->n_sent % verbs->window;
    if (label->landing == TRANSPORT_INBOX) {
        target = &verbs->its_inbox;
        offset = place->slot * verbs->memory.slot_bytes;
    }
    const struct link_write words = {.id = request_id(KIND_LABEL, index),
                                     .from = place,
                                     .bytes = sizeof *place,
                                     .offset = index * sizeof *place,
                                     .key = verbs->places_region->lkey,
                                     .to = verbs->its_labels};
    const struct link_write payload = {.id = request_id(KIND_CHUNK, index),
                                       .from = (char *)verbs->memory.arena + label->at_bytes,
                                       .bytes = label->bytes,
                                       .offset = offset,
                                       .key = verbs->arena_region->lkey,
                                       .to = *target};
    return link_post_message(verbs->host, &verbs->next, &words, &payload, (uint32_t)verbs->n_sent);
}

static dpb_status post_credit(struct verbs *verbs, uint32_t slot)
{
    DPB_TRY(link_post_number(verbs->host, &verbs->previous, request_id(KIND_CREDIT, 0),
                             verbs->n_untold << SLOT_BITS | slot));
    verbs->n_credits--;
    verbs->n_untold = 0;
    return DPB_OK;
}

static dpb_status give_back(struct verbs *verbs)
{
    while (verbs->n_given != verbs->n_released && verbs->n_credits > 0 && !verbs->lost)
        DPB_TRY(post_credit(verbs, verbs->released[verbs->n_given++ % verbs->memory.n_slots]));
    if (verbs->n_untold >= verbs->window_in / 4 && verbs->n_credits > 0 && !verbs->lost)
        return post_credit(verbs, NO_SLOT);
    return DPB_OK;
}

/* ---- sending and releasing ----------------------------------------------------------------- */

static uint32_t places_left(const struct verbs *verbs)
{
    uint64_t oldest =
        verbs->n_completed < verbs->n_returned ? verbs->n_completed : verbs->n_returned;
    return verbs->window - (uint32_t)(verbs->n_sent - oldest);
}

static uint32_t verbs_room(const struct transport *transport)
{
    const struct verbs *verbs = (const struct verbs *)(const void *)transport;
    uint32_t left = places_left(verbs);
    return left < verbs->n_free ? left : verbs->n_free;
}

static bool verbs_send(struct transport *transport, const struct transport_label *label)
{
    struct verbs *verbs = verbs_of(transport);
    bool inbox = label->landing == TRANSPORT_INBOX;
    if (places_left(verbs) == 0 || (inbox && verbs->n_free == 0) || verbs->status != DPB_OK)
        return false;
    struct place *place = outgoing(verbs, verbs->n_sent);
    *place = (struct place){.label = *label, .slot = NO_SLOT};
    if (inbox)
        place->slot = verbs->free_slots[--verbs->n_free];
    verbs->status = post_chunk(verbs, place);
    if (verbs->status != DPB_OK)
        return false;
    verbs->n_sent++;
    return true;
}

static void verbs_release(struct transport *transport, uint32_t slot)
{
    struct verbs *verbs = verbs_of(transport);
    assert(verbs->n_released - verbs->n_given < verbs->memory.n_slots);
    verbs->released[verbs->n_released++ % verbs->memory.n_slots] = slot;
}

/* ---- completions --------------------------------------------------------------------------- */

static dpb_status refuse(const struct verbs *verbs, const struct link *link, const char *what,
                         uint64_t number)
{
    return verbs->host->fail(DPB_FAILED,
                             "rank %u sent %s (chunk number %llu of the connection), which cannot "
                             "be: the two ranks do not run the same dpbench",
                             link->peer, what, (unsigned long long)number);
}

static dpb_status take_chunk(struct verbs *verbs, const struct ibv_wc *completion)
{
    const struct transport_memory *memory = &verbs->memory;
    uint64_t number = verbs->n_received++;
    struct place place = verbs->places[number % verbs->window_in];
    const struct transport_label *label = &place.label;
    bool inbox = label->landing == TRANSPORT_INBOX;
    uint64_t limit = inbox ? memory->slot_bytes : memory->arena_bytes;
    if (ntohl(completion->imm_data) != (uint32_t)number)
        return refuse(verbs, &verbs->previous, "another chunk's number", number);
    if (label->bytes != completion->byte_len || label->bytes > limit ||
        (inbox ? place.slot >= memory->n_slots : label->at_bytes > limit - label->bytes))
        return refuse(verbs, &verbs->previous, "a label that does not fit its payload", number);
    DPB_TRY(post_receive(verbs, &verbs->previous, KIND_CHUNK_IN));
    verbs->n_untold++;
    DPB_TRY(verbs->sink.begins(verbs->sink.ring, label));
    if (!inbox)
        return verbs->sink.arrived(verbs->sink.ring, label, (char *)memory->arena + label->at_bytes,
                                   UINT32_MAX);
    return verbs->sink.arrived(verbs->sink.ring, label,
                               (char *)memory->inbox + place.slot * memory->slot_bytes, place.slot);
}

static dpb_status take_credit(struct verbs *verbs, const struct ibv_wc *completion)
{
    uint32_t words = ntohl(completion->imm_data), slot = words & NO_SLOT;
    verbs->n_returned += words >> SLOT_BITS;
    if (verbs->n_returned > verbs->n_sent ||
        (slot != NO_SLOT &&
         (slot >= verbs->memory.n_slots || verbs->n_free >= verbs->memory.n_slots)))
        return refuse(verbs, &verbs->next, "a credit for what it was not sent", verbs->n_returned);
    if (slot != NO_SLOT)
        verbs->free_slots[verbs->n_free++] = slot;
    return post_receive(verbs, &verbs->next, KIND_CREDIT_IN);
}

static void finish_chunk(struct verbs *verbs)
{
    struct transport_label label = outgoing(verbs, verbs->n_completed)->label;
    verbs->n_completed++;
    verbs->sink.sent(verbs->sink.ring, &label);
}

/*
 * Where the connection to the next member fails, chunks do not get there: that is an error. Over
 * the other one only credits are sent, and a member that has all it needs may close while they are
 * under way: so its failure is none before something is expected of that member (verbs_wait).
 */
static dpb_status fail_completion(struct verbs *verbs, enum kind kind,
                                  const struct ibv_wc *completion)
{
    if (kind == KIND_CREDIT || kind == KIND_CHUNK_IN) {
        if (!verbs->lost)
            verbs->loss = *completion;
        verbs->lost = true;
        return DPB_OK;
    }
    if (kind != KIND_CHUNK && kind != KIND_LABEL)
        return failure_of_completion(verbs->host, &verbs->next, completion, NULL);
    const struct transport_label *label =
        &verbs->places[verbs->depth + (uint32_t)completion->wr_id].label;
    char text[160];
    snprintf(text, sizeof text, "step %llu, bucket %u, round %u, chunk %u (%llu bytes)",
             (unsigned long long)label->step, label->bucket, label->round, label->chunk,
             (unsigned long long)label->bytes);
    return failure_of_completion(verbs->host, &verbs->next, completion, text);
}

static dpb_status complete(struct verbs *verbs, const struct ibv_wc *completion)
{
    enum kind kind = (enum kind)(completion->wr_id >> 32);
    if (completion->status != IBV_WC_SUCCESS)
        return fail_completion(verbs, kind, completion);
    switch (kind) {
    case KIND_CHUNK:
        finish_chunk(verbs);
        return DPB_OK;
    case KIND_CREDIT:
        verbs->n_credits++;
        return DPB_OK;
    case KIND_CHUNK_IN:
        return take_chunk(verbs, completion);
    case KIND_CREDIT_IN:
        return take_credit(verbs, completion);
    default:
        return DPB_OK;
    }
}

static dpb_status verbs_move(struct transport *transport, int64_t until_ns, bool *moved)
{
    struct verbs *verbs = verbs_of(transport);
    for (bool some; verbs->status == DPB_OK;) {
        verbs->status = adapter_poll(&verbs->adapter, &some);
        if (verbs->status != DPB_OK || !some)
            break;
        const struct ibv_wc *completion = adapter_take(&verbs->adapter);
        bool chunk = completion->wr_id >> 32 == KIND_CHUNK_IN;
        verbs->status = complete(verbs, completion);
        *moved = true;
        if (chunk && verbs->host->now_ns() >= until_ns)
            break;
    }
    if (verbs->status == DPB_OK)
        verbs->status = give_back(verbs);
    return verbs->status;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* A waiter says that it waits and then looks whether it was woken; who wakes does it the other way
 * round. In the one order of these four accesses one of the two sees the other. */
static void verbs_wake(struct transport *transport)
{
    struct verbs *verbs = verbs_of(transport);
    uint64_t one = 1;
    __atomic_store_n(&verbs->woken, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&verbs->waiting, __ATOMIC_SEQ_CST) != 0)
        (void)!write(verbs->wake_fd, &one, sizeof one);
}

static bool was_woken(const struct verbs *verbs)
{
    return __atomic_load_n(&verbs->woken, __ATOMIC_SEQ_CST) != 0;
}

static dpb_status sleep_for_event(struct verbs *verbs, const struct dpb_wait *what)
{
    int bell = verbs->ring.bell ? *verbs->ring.bell : -1;
    struct pollfd fds[ADAPTER_FDS + 2];
    uint64_t drained;
    bool some;
    DPB_TRY(adapter_arm(&verbs->adapter, bell, &verbs->woken, fds, &some));
    if (some)
        return DPB_OK;
    fds[ADAPTER_FDS] = (struct pollfd){.fd = verbs->wake_fd, .events = POLLIN};
    fds[ADAPTER_FDS + 1] = (struct pollfd){.fd = bell, .events = POLLIN};
    DPB_TRY(verbs->host->poll(fds, sizeof fds / sizeof fds[0], what, NULL));
    if (fds[ADAPTER_FDS].revents != 0)
        (void)!read(verbs->wake_fd, &drained, sizeof drained);
    return adapter_woken(&verbs->adapter, fds);
}

static dpb_status verbs_wait(struct transport *transport, const struct dpb_wait *what)
{
    struct verbs *verbs = verbs_of(transport);
    dpb_status status = DPB_OK;
    if (verbs->adapter.next_held < verbs->adapter.n_held)
        return DPB_OK;
    if (verbs->lost && what->peer == verbs->previous.peer)
        return failure_of_completion(verbs->host, &verbs->previous, &verbs->loss, NULL);
    __atomic_store_n(&verbs->waiting, 1, __ATOMIC_SEQ_CST);
    if (!was_woken(verbs))
        status = sleep_for_event(verbs, what);
    __atomic_store_n(&verbs->waiting, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&verbs->woken, 0, __ATOMIC_SEQ_CST);
    return status;
}

/* ---- making -------------------------------------------------------------------------------- */

/* How many chunks may be under way, within what the device can hold. */
static dpb_status choose_depth(struct verbs *verbs, uint32_t *n_credits, uint32_t *n_completions)
{
    struct ibv_device_attr device;
    uint32_t n_slots = verbs->memory.n_slots;
    DPB_TRY(adapter_limits(&verbs->adapter, &device));
    uint64_t depth = 2 * (uint64_t)n_slots;
    depth = depth < LEAST_CHUNKS ? LEAST_CHUNKS : depth > MOST_CHUNKS ? MOST_CHUNKS : depth;
    if (2 * depth > (uint64_t)device.max_qp_wr)
        depth = (uint64_t)device.max_qp_wr / 2;
    verbs->depth = (uint32_t)depth;
    *n_credits = n_slots + SPARE_CREDITS;
    /* Failed, all of a queue pair's requests complete. */
    *n_completions = 3 * verbs->depth + 2 * *n_credits;
    if (*n_credits > (uint32_t)device.max_qp_wr || *n_completions > (uint32_t)device.max_cqe)
        return verbs->host->fail(DPB_USAGE,
                                 "comm.inbox has place for %u chunks: queues of %s hold %d; set a "
                                 "smaller comm.inbox, or a larger comm.chunk",
                                 n_slots, verbs->adapter.port.name, device.max_qp_wr);
    return DPB_OK;
}

static dpb_status make_queues(struct verbs *verbs)
{
    const struct dpb_host *host = verbs->host;
    const struct adapter *adapter = &verbs->adapter;
    uint32_t n_credits = 0, n_completions = 0;
    DPB_TRY(choose_depth(verbs, &n_credits, &n_completions));
    verbs->n_credits = n_credits;
    DPB_TRY(adapter_make_queue(&verbs->adapter, n_completions));
    const struct link_size to_next = {2 * verbs->depth, n_credits, sizeof(struct place)};
    const struct link_size to_previous = {n_credits, verbs->depth, 0};
    DPB_TRY(link_create(host, &adapter->port, adapter->domain, adapter->completions,
                        transport_next(&verbs->ring), &to_next, &verbs->next));
    DPB_TRY(link_create(host, &adapter->port, adapter->domain, adapter->completions,
                        transport_previous(&verbs->ring), &to_previous, &verbs->previous));
    for (uint32_t i = 0; i < n_credits; i++)
        DPB_TRY(post_receive(verbs, &verbs->next, KIND_CREDIT_IN));
    for (uint32_t i = 0; i < verbs->depth; i++)
        DPB_TRY(post_receive(verbs, &verbs->previous, KIND_CHUNK_IN));
    return DPB_OK;
}

static size_t places_bytes(const struct verbs *verbs)
{
    return 2 * (size_t)verbs->depth * sizeof *verbs->places;
}

static size_t slots_bytes(const struct verbs *verbs)
{
    return (size_t)verbs->memory.n_slots * sizeof *verbs->free_slots;
}

static dpb_status register_memory(struct verbs *verbs)
{
    const struct transport_memory *memory = &verbs->memory;
    verbs->places = verbs->host->alloc(places_bytes(verbs));
    verbs->free_slots = verbs->host->alloc(slots_bytes(verbs));
    verbs->released = verbs->host->alloc(slots_bytes(verbs));
    if (!verbs->places || !verbs->free_slots || !verbs->released)
        return DPB_NO_MEMORY;
    verbs->n_free = memory->n_slots;
    for (uint32_t i = 0; i < memory->n_slots; i++)
        verbs->free_slots[i] = memory->n_slots - 1 - i;
    DPB_TRY(adapter_register(&verbs->adapter, "the gradients", memory->arena, memory->arena_bytes,
                             &verbs->arena_region));
    DPB_TRY(adapter_register(&verbs->adapter, "the inbox", memory->inbox,
                             memory->n_slots * memory->slot_bytes, &verbs->inbox_region));
    return adapter_register(&verbs->adapter, "the labels", verbs->places, places_bytes(verbs),
                            &verbs->places_region);
}

/* ---- connecting ---------------------------------------------------------------------------- */

static void make_key(const struct verbs *verbs, const char *what, uint32_t rank,
                     char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s.verbs.%s.%u", verbs->ring.name, what, rank);
}

static dpb_status put_card(const struct verbs *verbs)
{
    char key[KEY_BYTES];
    struct ring_card card = {.port = link_card(&verbs->adapter.port),
                             .to_next = verbs->next.queue->qp_num,
                             .to_previous = verbs->previous.queue->qp_num,
                             .to_next_begins = verbs->next.begins,
                             .to_previous_begins = verbs->previous.begins,
                             .arena = adapter_remote(verbs->arena_region),
                             .inbox = adapter_remote(verbs->inbox_region),
                             .labels = adapter_remote(verbs->places_region),
                             .arena_bytes = verbs->memory.arena_bytes,
                             .slot_bytes = verbs->memory.slot_bytes,
                             .n_slots = verbs->memory.n_slots,
                             .depth = verbs->depth};
    make_key(verbs, "card", verbs->ring.members[verbs->ring.position], key);
    return verbs->host->store->put(key, &card, sizeof card);
}

static dpb_status get_card(const struct verbs *verbs, uint32_t rank, struct ring_card *card)
{
    const struct dpb_host *host = verbs->host;
    const struct transport_memory *memory = &verbs->memory;
    uint32_t self = verbs->ring.members[verbs->ring.position];
    size_t bytes = sizeof *card;
    char key[KEY_BYTES];
    make_key(verbs, "card", rank, key);
    DPB_TRY(host->store->get(key, card, &bytes, 0));
    if (bytes != sizeof *card)
        return host->fail(DPB_USAGE, "rank %u and rank %u run different versions of ring_verbs",
                          self, rank);
    if (card->n_slots != memory->n_slots || card->slot_bytes != memory->slot_bytes ||
        card->arena_bytes != memory->arena_bytes)
        return host->fail(
            DPB_USAGE,
            "rank %u has chunks of %llu bytes, %u of them in the inbox, %llu bytes of gradients; "
            "rank %u has chunks of %llu bytes, %u of them in the inbox, %llu bytes of gradients",
            self, (unsigned long long)memory->slot_bytes, memory->n_slots,
            (unsigned long long)memory->arena_bytes, rank, (unsigned long long)card->slot_bytes,
            card->n_slots, (unsigned long long)card->arena_bytes);
    return link_check_card(host, &verbs->adapter.port, self, rank, &card->port);
}

/* A member that has said so can receive: what is sent to it before would have to be sent again. */
static dpb_status meet(const struct verbs *verbs)
{
    char key[KEY_BYTES], byte = 1;
    make_key(verbs, "ready", verbs->ring.members[verbs->ring.position], key);
    DPB_TRY(verbs->host->store->put(key, &byte, sizeof byte));
    const uint32_t peers[] = {verbs->next.peer, verbs->previous.peer};
    for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
        size_t bytes = sizeof byte;
        make_key(verbs, "ready", peers[i], key);
        DPB_TRY(verbs->host->store->get(key, &byte, &bytes, 0));
    }
    return DPB_OK;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static dpb_status connect_neighbours(struct verbs *verbs)
{
    struct ring_card next, previous;
    uint32_t ack_timeout = (uint32_t)verbs->adapter.options.ack_timeout;
    DPB_TRY(put_card(verbs));
    DPB_TRY(get_card(verbs, verbs->next.peer, &next));
    DPB_TRY(get_card(verbs, verbs->previous.peer, &previous));
    verbs->window = least(verbs->depth, next.depth);
    verbs->window_in = least(verbs->depth, previous.depth);
    verbs->its_arena = next.arena;
    verbs->its_inbox = next.inbox;
    verbs->its_labels = next.labels;
    DPB_TRY(link_connect(verbs->host, &verbs->next, &next.port, next.to_previous,
                         next.to_previous_begins, ack_timeout));
    DPB_TRY(link_connect(verbs->host, &verbs->previous, &previous.port, previous.to_next,
                         previous.to_next_begins, ack_timeout));
    return meet(verbs);
}

static dpb_status verbs_connect(struct transport *transport, const struct transport_ring *ring,
                                const struct transport_memory *memory,
                                const struct transport_sink *sink)
{
    struct verbs *verbs = verbs_of(transport);
    verbs->ring = *ring;
    verbs->memory = *memory;
    verbs->sink = *sink;
    verbs->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (verbs->wake_fd < 0)
        return verbs->host->fail(DPB_IO, "cannot make an eventfd: %s", strerror(errno));
    DPB_TRY(make_queues(verbs));
    DPB_TRY(register_memory(verbs));
    return connect_neighbours(verbs);
}

/* ---- ending -------------------------------------------------------------------------------- */

/* Queue pairs go before memory: with them goes all that could still write there. */
static void verbs_close(struct transport *transport)
{
    struct verbs *verbs = verbs_of(transport);
    if (!verbs)
        return;
    const struct dpb_host *host = verbs->host;
    link_close(&verbs->next);
    link_close(&verbs->previous);
    adapter_deregister(verbs->arena_region);
    adapter_deregister(verbs->inbox_region);
    adapter_deregister(verbs->places_region);
    adapter_close(&verbs->adapter);
    if (verbs->wake_fd >= 0)
        close(verbs->wake_fd);
    host->release(verbs->places, places_bytes(verbs));
    host->release(verbs->free_slots, slots_bytes(verbs));
    host->release(verbs->released, slots_bytes(verbs));
    free(verbs);
}

static const struct transport_ops verbs_ops = {.connect = verbs_connect,
                                               .room = verbs_room,
                                               .send = verbs_send,
                                               .move = verbs_move,
                                               .release = verbs_release,
                                               .wait = verbs_wait,
                                               .wake = verbs_wake,
                                               .close = verbs_close};

dpb_status verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                        uint32_t local_rank, struct transport **transport)
{
    struct verbs *verbs = calloc(1, sizeof *verbs);
    if (!verbs)
        return host->fail(DPB_NO_MEMORY, "no memory for an RDMA transport");
    verbs->base.ops = &verbs_ops;
    verbs->host = host;
    verbs->wake_fd = -1;
    dpb_status status = adapter_open(host, options, local_rank, &verbs->adapter);
    if (status != DPB_OK) {
        free(verbs);
        return status;
    }
    *transport = &verbs->base;
    return DPB_OK;
}

bool verbs_missing(char *text, size_t bytes)
{
    return port_missing(text, bytes);
}
