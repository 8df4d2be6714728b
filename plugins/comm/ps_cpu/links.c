/* links.c - see links.h. */
#include "comm/ps_cpu/links.h"

#include <stdlib.h>
#include <string.h>

#include "lib/mesh/mesh_transport.h"
#include "lib/tcp/wire.h"

enum { STEP, GRADIENTS, WEIGHTS, LOAD, LOADED, SAY, MODEL, AGE };
enum { STEP_BYTES = 5 * 8 };

struct link {
    uint32_t rank;
    bool is_shard, is_worker; /* for this rank */
    bool shares;              /* links_memory.machines: slices go through shared memory */
    char *inbox;              /* its gradients; NULL: the peer pushes none here */
    char *outbox;             /* weights as last given to the peer; NULL: sent from the arena */
    char *pushed_from;        /* shares: the arena from which the peer pushes */
    uint64_t pushed, given;   /* slices sent to the peer */
    uint64_t asked;           /* slices of weights that the peer is to send */
    uint64_t freed, turns;    /* the peer's: used gradients, in slices; ended turns */
    uint64_t n_loads;         /* sent, or answered */
    uint64_t said, models, n_ages; /* sent: words, slices of the model; expected: slices; ages */
    uint64_t word;                 /* the last one from the peer */
    uint64_t ages[LINKS_AGES];     /* of the own gradients, by exchange */
    /* By bucket, on this machine's clock: when a slice begins to arrive, and is here. */
    int64_t *began_ns, *came_ns;   /* gradients */
    int64_t *given_ns, *waited_ns; /* weights: here; wait of the shard for late workers */
    uint8_t *step;                 /* parameters that the peer has sent */
};

static const char *const kinds[DPB_MESH_KINDS] = {
    "parameters",      "gradients", "new weights", "weights to load",
    "loading weights", "word",      "the model",   "age of gradients"};

_Static_assert((int)AGE < (int)DPB_MESH_KINDS, "kinds of messages");

static uint64_t place_of(const struct links *links, uint64_t bucket, dpb_dtype type)
{
    return bucket * links->slice_elements * dpb_dtype_size(type);
}

/* Where pushed gradients land: with a codec behind the head of a message. */
static uint64_t inbox_at(const struct links *links, uint64_t bucket)
{
    return bucket * links->inbox_slot +
           (links->base->args.codec ? sizeof(struct dpb_coded_message) : 0);
}

static struct link *link_to(const struct links *links, uint32_t rank)
{
    return &links->links[links->by_rank[rank]];
}

enum { PUSHES = 1, FETCHES = 2 };

/* ---- messages ------------------------------------------------------------------------------ */

static void write_step(uint8_t bytes[STEP_BYTES], const struct links_news *news)
{
    const struct dpb_step *step = &news->step;
    uint64_t words[STEP_BYTES / 8] = {step->step, 0, 0, step->seal,
                                      (news->pushes ? PUSHES : 0) | (news->fetches ? FETCHES : 0)};
    memcpy(&words[1], &step->learning_rate, 8);
    memcpy(&words[2], &step->scale, 8);
    for (int i = 0; i < STEP_BYTES / 8; i++)
        bytes = dpb_wire_put(bytes, words[i], 8);
}

static struct links_news read_step(const uint8_t bytes[STEP_BYTES])
{
    uint64_t words[STEP_BYTES / 8];
    struct dpb_step step = {0};
    for (int i = 0; i < STEP_BYTES / 8; i++)
        words[i] = dpb_wire_get(&bytes, 8);
    step.step = words[0];
    memcpy(&step.learning_rate, &words[1], 8);
    memcpy(&step.scale, &words[2], 8);
    step.seal = words[3];
    return (struct links_news){step, words[4] & PUSHES, words[4] & FETCHES};
}

/* The n-th slice between a worker and a shard (`weights`: the way back). */
static struct dpb_mesh_label slice_label(const struct links *links, bool weights, uint32_t shard,
                                         uint64_t n)
{
    const struct dpb_strategy *base = links->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    uint64_t bucket = n % base->arenas.n_buckets;
    uint64_t length = dpb_pipeline_bucket_length(&base->pipeline, bucket);
    struct dpb_range slice = ps_slice(&base->args, shard, bucket, length);
    size_t size = dpb_dtype_size(weights ? layout->weight_type : layout->gradient_type);
    uint64_t at = (bucket * base->arenas.bucket_elements + slice.begin) * size;
    const bool coded = base->args.codec && !weights, answers = weights && links->memory.answers;
    const uint64_t bytes = (slice.end - slice.begin) * size;
    if (answers) {
        const uint64_t head = sizeof(struct dpb_coded_message), slot = links->memory.answer_slot;
        return (struct dpb_mesh_label){.kind = WEIGHTS,
                                       .bucket = (uint32_t)bucket,
                                       .exchange = n / base->arenas.n_buckets,
                                       .at_bytes = bucket * slot + head,
                                       .bytes = bytes > 0 ? slot - head : 0,
                                       .or_less = true};
    }
    return (struct dpb_mesh_label){.kind = weights ? WEIGHTS : GRADIENTS,
                                   .bucket = (uint32_t)bucket,
                                   .exchange = n / base->arenas.n_buckets,
                                   .at_bytes = weights ? at : inbox_at(links, bucket),
                                   .bytes = coded && bytes > 0 ? dpb_coded_content_bytes(base, 0)
                                                               : bytes,
                                   .or_less = coded};
}

/* The label for the message: no payload with shared memory, where the peer accesses the slice. */
static struct dpb_mesh_label as_sent(const struct link *link, struct dpb_mesh_label label)
{
    if (link->shares)
        label.at_bytes = label.bytes = 0;
    return label;
}

static struct dpb_mesh_label step_label(uint64_t turn)
{
    return (struct dpb_mesh_label){.kind = STEP, .exchange = turn, .bytes = STEP_BYTES};
}

/* A message without payload: the n-th of its kind, with a word. */
static struct dpb_mesh_label word_label(uint32_t kind, uint64_t n, uint64_t word)
{
    return (struct dpb_mesh_label){.kind = kind, .exchange = n, .word = word};
}

/* The n-th slice of the model lands where its weights lie. */
static struct dpb_mesh_label model_label(const struct links *links, uint32_t shard, uint64_t n)
{
    struct dpb_mesh_label label = slice_label(links, true, shard, n);
    label.kind = MODEL;
    return label;
}

/* `n` has the count of this kind. */
static struct dpb_mesh_label load_label(const struct links *links, uint32_t kind, uint64_t n)
{
    const struct dpb_layout *layout = &links->base->arenas.layout;
    uint64_t bytes = layout->n_elements * dpb_dtype_size(layout->weight_type);
    return (struct dpb_mesh_label){.kind = kind, .exchange = n, .bytes = kind == LOAD ? bytes : 0};
}

/* ---- the mesh's questions ------------------------------------------------------------------ */

static bool expects_gradients(const struct links *links, const struct link *link, uint64_t n,
                              struct dpb_mesh_label *label)
{
    /* Its place is free: ps_cpu has given the weights of the exchange before, or the turn before
     * has ended. */
    if (!link->is_worker || n >= link->freed + links->base->arenas.n_buckets)
        return false;
    *label = as_sent(link, slice_label(links, false, links->base->args.rank, n));
    if (link->began_ns[label->bucket] <= link->came_ns[label->bucket])
        link->began_ns[label->bucket] = links->host->now_ns();
    return true;
}

static bool expects(void *links_, uint32_t number, uint32_t kind, uint64_t n,
                    struct dpb_mesh_label *label)
{
    const struct links *links = links_;
    const struct link *link = &links->links[number];
    const struct dpb_comm_args *args = &links->base->args;
    bool serves = args->role == DPB_SERVER && link->is_worker;
    switch (kind) {
    case STEP:
        *label = step_label(n);
        return serves && n == link->turns;
    case GRADIENTS:
        return expects_gradients(links, link, n, label);
    case WEIGHTS:
        *label = as_sent(link, slice_label(links, true, link->rank, n));
        return link->is_shard && n < link->asked;
    case LOAD:
        *label = load_label(links, LOAD, n);
        return serves && link->rank == 0 && n == link->n_loads;
    case LOADED:
        *label = load_label(links, LOADED, n);
        return link->is_shard && n < link->n_loads;
    case SAY:
        *label = word_label(SAY, n, 0);
        return serves || link->is_shard;
    case MODEL:
        *label = as_sent(link, model_label(links, link->rank, n));
        return link->is_shard && n < link->models;
    case AGE:
        *label = word_label(AGE, n, 0);
        return link->is_shard && n < link->pushed;
    default:
        return false;
    }
}

static void note_comer(struct links *links, const struct link *link)
{
    links->comers[links->n_come++ % links->n] = link->rank;
}

/* The answer, and the message, whose content lands at `at_bytes`. */
static struct dpb_coded_message *answer_at(const struct links *links, uint64_t at_bytes)
{
    return (struct dpb_coded_message *)(void *)(links->memory.answers + at_bytes -
                                                sizeof(struct dpb_coded_message));
}

static struct dpb_coded_message *message_at(const struct link *link, uint64_t at_bytes)
{
    return (struct dpb_coded_message *)(void *)(link->inbox + at_bytes -
                                                sizeof(struct dpb_coded_message));
}

/* The bytes of new weights, also where the message has no payload. */
static uint64_t slice_bytes(const struct links *links, const struct link *link,
                            const struct dpb_mesh_label *label)
{
    const uint64_t n = label->exchange * links->base->arenas.n_buckets + label->bucket;
    return slice_label(links, true, link->rank, n).bytes;
}

static void arrived(void *links_, uint32_t number, const struct dpb_mesh_label *label)
{
    struct links *links = links_;
    struct link *link = &links->links[number];
    const int64_t now_ns = links->host->now_ns();
    switch (label->kind) {
    case STEP:
        if (!read_step(link->step).pushes)
            note_comer(links, link);
        return;
    case GRADIENTS:
        link->came_ns[label->bucket] = now_ns;
        if (links->base->args.codec) {
            message_at(link, label->at_bytes)->bytes = label->bytes;
            message_at(link, label->at_bytes)->step = label->word;
        }
        if (label->bucket + 1 == links->base->arenas.n_buckets)
            note_comer(links, link);
        return;
    case SAY:
        __atomic_store_n(&link->word, label->word, __ATOMIC_RELAXED);
        return;
    case AGE:
        link->ages[label->exchange % LINKS_AGES] = label->word;
        for (uint32_t i = 0; i < links->turn.n_gradients; i++)
            links->host->age(label->word);
        return;
    case WEIGHTS:
        if (links->memory.answers && slice_bytes(links, link, label) > 0)
            answer_at(links, label->at_bytes)->bytes = label->bytes;
        break;
    default:
        return;
    }
    link->given_ns[label->bucket] = now_ns;
    link->waited_ns[label->bucket] = (int64_t)(label->word < INT64_MAX ? label->word : 0);
    if (links->base->args.n_servers > 0) /* a server counts nothing by itself */
        links->host->count_bytes(links->memory.answers ? label->bytes
                                                       : slice_bytes(links, link, label));
}

/* ---- sending ------------------------------------------------------------------------------- */

uint32_t links_crowded(const struct links *links, bool weights)
{
    for (uint32_t i = 0; i < links->n; i++) {
        const struct link *link = &links->links[i];
        if ((weights ? link->is_worker : link->is_shard) && dpb_mesh_room(links->mesh, i) < 2)
            return link->rank;
    }
    return NONE;
}

/* Sends the turn's parameters to the servers, which have all of the turn before, parameters
 * included. */
static void begin_turn(struct links *links)
{
    const struct dpb_strategy *base = links->base;
    const struct links_news news = {base->step, links->turn.gradients != NULL, links->turn.fetches};
    const struct dpb_mesh_label label = step_label(links->n_turns++);
    write_step(links->steps, &news);
    links->n_pushes += news.pushes;
    links->n_fetches += news.fetches;
    for (uint32_t i = 0; i < links->n && base->args.n_servers > 0; i++)
        if (links->links[i].is_shard)
            dpb_mesh_send(links->mesh, i, &label, links->steps);
}

/* The payload of a push of a bucket to a shard, whose slice begins at element `at`. */
static const void *payload_of(const struct links *links, uint64_t bucket, uint64_t at,
                              struct dpb_mesh_label *label)
{
    const struct dpb_strategy *base = links->base;
    const size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    if (!base->args.codec)
        return (const char *)links->turn.gradients +
               (bucket * base->arenas.bucket_elements + at) * size;
    const struct dpb_coded_message *message = dpb_coded_message(base, base->args.rank, bucket);
    label->bytes = label->bytes > 0 ? message->bytes : 0;
    label->word = message->step;
    return message->content;
}

void links_push(struct links *links, uint64_t bucket, uint64_t length)
{
    const struct dpb_comm_args *args = &links->base->args;
    if (bucket == 0)
        begin_turn(links);
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        if (!link->is_shard)
            continue;
        struct dpb_range slice = ps_slice(args, link->rank, bucket, length);
        struct dpb_mesh_label label = slice_label(links, false, link->rank, link->pushed++);
        link->asked += links->turn.fetches;
        const void *payload = payload_of(links, bucket, slice.begin, &label);
        links->host->count_bytes(label.bytes);
        label = as_sent(link, label);
        dpb_mesh_send(links->mesh, i, &label, payload);
    }
}

/* ---- all workers --------------------------------------------------------------------------- */

void links_give(struct links *links, uint64_t bucket, uint64_t length, int64_t pushed_ns)
{
    const struct dpb_strategy *base = links->base;
    const struct dpb_comm_args *args = &base->args;
    uint64_t begin = bucket * base->arenas.bucket_elements;
    struct dpb_range slice = ps_slice(args, args->rank, bucket, length);
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        if (!link->is_worker)
            continue;
        struct dpb_mesh_label label = slice_label(links, true, args->rank, link->given++);
        link->freed++;
        link->turns += bucket + 1 == base->arenas.n_buckets;
        label.word = (uint64_t)(pushed_ns - link->came_ns[bucket]);
        const void *payload = NULL;
        if (!links->memory.answers) {
            payload = dpb_strategy_weights(base, args->rank, begin + slice.begin);
        } else if (label.bytes > 0) {
            const struct dpb_coded_message *answer = answer_at(links, label.at_bytes);
            label.bytes = answer->bytes;
            payload = answer->content;
        }
        dpb_mesh_send(links->mesh, i, &label, payload);
        if (args->role == DPB_WORKER)
            links->host->count_bytes(label.bytes);
    }
}

uint32_t links_busy(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (!dpb_mesh_idle(links->mesh, i))
            return links->links[i].rank;
    return NONE;
}

/* ---- messages that are here ---------------------------------------------------------------- */

/* Whether the message of the n-th exchange, from 0, is here. */
static bool has_come(const struct links *links, uint32_t rank, uint32_t kind, uint64_t n,
                     uint64_t bucket)
{
    return dpb_mesh_arrived(links->mesh, links->by_rank[rank], kind) >
           n * links->base->arenas.n_buckets + bucket;
}

bool links_pushed(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return has_come(links, worker, GRADIENTS, links->base->signals.exchange, bucket);
}

int64_t links_push_came_ns(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return link_to(links, worker)->came_ns[bucket];
}

int64_t links_push_began_ns(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return link_to(links, worker)->began_ns[bucket];
}

void *links_gradients(const struct links *links, uint32_t worker, uint64_t bucket, uint64_t at)
{
    const struct dpb_strategy *base = links->base;
    const struct link *link = link_to(links, worker);
    const size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    if (!link->shares)
        return link->inbox + inbox_at(links, bucket) + at * size;
    const uint64_t length = dpb_pipeline_bucket_length(&base->pipeline, bucket);
    const struct dpb_range slice = ps_slice(&base->args, base->args.rank, bucket, length);
    return link->pushed_from + (bucket * base->arenas.bucket_elements + slice.begin + at) * size;
}

const struct dpb_coded_message *links_message(const struct links *links, uint32_t worker,
                                              uint64_t bucket)
{
    return message_at(link_to(links, worker), inbox_at(links, bucket));
}

bool links_updated(const struct links *links, uint32_t shard, uint64_t bucket)
{
    return !links->turn.fetches || has_come(links, shard, WEIGHTS, links->n_fetches - 1, bucket);
}

/* A bucket is under way from its push on, but for the time in which the shard waited for other
 * workers. The time of this wait is not known here to the part of a way: the wait is taken to be
 * just before the weights came. Without a push all buckets are asked for with the last one. */
void links_report(const struct links *links, uint32_t shard, uint64_t bucket)
{
    const struct link *link = link_to(links, shard);
    const uint64_t from = links->turn.gradients ? bucket : links->base->arenas.n_buckets - 1;
    int64_t ready_ns = dpb_signals_latest_ns(&links->base->signals, ps_pushed(links->base),
                                             dpb_strategy_self(links->base), from);
    int64_t given_ns = link->given_ns[bucket], from_ns = given_ns - link->waited_ns[bucket];
    links->host->span(bucket, DPB_PHASE_TRANSFER, ready_ns, given_ns);
    if (link->waited_ns[bucket] > 0)
        links->host->span(bucket, DPB_PHASE_WAIT_PEER, from_ns > ready_ns ? from_ns : ready_ns,
                          given_ns);
}

/* ---- exchanges, for servers ---------------------------------------------------------------- */

bool links_announced(const struct links *links, uint32_t worker, uint64_t exchange)
{
    return dpb_mesh_arrived(links->mesh, links->by_rank[worker], STEP) > exchange;
}

bool links_left(const struct links *links, uint32_t worker)
{
    return dpb_mesh_left(links->mesh, links->by_rank[worker]);
}

struct dpb_step links_step(const struct links *links)
{
    return read_step(link_to(links, 0)->step).step;
}

/* ---- moving and waiting -------------------------------------------------------------------- */

/* Worker 0's weights are here: worker 0 waits for LOADED. */
static void answer_load(struct links *links)
{
    uint32_t number = links->by_rank[0];
    if (links->base->args.role != DPB_SERVER || number == NONE)
        return;
    struct link *link = &links->links[number];
    if (dpb_mesh_arrived(links->mesh, number, LOAD) == link->n_loads)
        return;
    struct dpb_mesh_label label = load_label(links, LOADED, link->n_loads++);
    dpb_mesh_send(links->mesh, number, &label, NULL);
}

dpb_status links_move(struct links *links, int64_t until_ns, bool *moved)
{
    DPB_TRY(dpb_mesh_move(links->mesh, until_ns, moved));
    answer_load(links);
    return DPB_OK;
}

dpb_status links_wait(struct links *links, const struct dpb_wait *what)
{
    return dpb_mesh_wait(links->mesh, what);
}

dpb_status links_advance(struct links *links, const struct dpb_wait *what)
{
    bool moved = false;
    DPB_TRY(links_move(links, INT64_MAX, &moved));
    return moved ? DPB_OK : links_wait(links, what);
}

static struct link *awaited_load(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (links->links[i].is_shard &&
            dpb_mesh_arrived(links->mesh, i, LOADED) < links->links[i].n_loads)
            return &links->links[i];
    return NULL;
}

dpb_status links_load(struct links *links)
{
    const struct dpb_arenas *arenas = &links->base->arenas;
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = links->base->step.step,
                            .bytes = load_label(links, LOAD, 0).bytes,
                            .purpose = "the server to take the weights"};
    for (uint32_t i = 0; i < links->n; i++) {
        struct dpb_mesh_label label = load_label(links, LOAD, links->links[i].n_loads++);
        dpb_mesh_send(links->mesh, i, &label, arenas->weights);
    }
    for (const struct link *link; (link = awaited_load(links));) {
        what.peer = link->rank;
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}

/* ---- servers, one worker at a time --------------------------------------------------------- */

uint32_t links_next_turn(struct links *links, struct links_news *news)
{
    if (links->n_taken == links->n_come)
        return NONE;
    const uint32_t worker = links->comers[links->n_taken % links->n];
    const struct link *link = link_to(links, worker);
    if (dpb_mesh_arrived(links->mesh, links->by_rank[worker], STEP) <= link->turns)
        return NONE; /* by RDMA it may come behind the gradients */
    *news = read_step(link->step);
    links->n_taken++;
    return worker;
}

void links_end_turn(struct links *links, uint32_t worker, bool pushes)
{
    struct link *link = link_to(links, worker);
    link->turns++;
    link->freed += pushes ? links->base->arenas.n_buckets : 0;
}

void links_keep_sent(struct links *links, uint32_t worker)
{
    const struct dpb_strategy *base = links->base;
    const struct dpb_comm_args *args = &base->args;
    const dpb_dtype type = base->arenas.layout.weight_type;
    const struct link *link = link_to(links, worker);
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const uint64_t length = dpb_pipeline_bucket_length(&base->pipeline, bucket);
        const struct dpb_range slice = ps_slice(args, args->rank, bucket, length);
        const uint64_t begin = bucket * base->arenas.bucket_elements + slice.begin;
        void *to = link->shares ? dpb_strategy_weights(base, worker, begin)
                                : link->outbox + place_of(links, bucket, type);
        links->host->vec->copy(type, to, dpb_strategy_weights(base, args->rank, begin),
                               slice.end - slice.begin);
    }
}

bool links_give_one(struct links *links, uint32_t worker, uint64_t bucket, bool model,
                    int64_t waited_ns)
{
    const struct dpb_strategy *base = links->base;
    const dpb_dtype type = base->arenas.layout.weight_type;
    const uint32_t number = links->by_rank[worker], self = base->args.rank;
    struct link *link = &links->links[number];
    if (dpb_mesh_room(links->mesh, number) < 2)
        return false;
    struct dpb_mesh_label label = model ? model_label(links, self, link->models++)
                                        : slice_label(links, true, self, link->given++);
    label = as_sent(link, label);
    label.word = model ? 0 : (uint64_t)waited_ns;
    dpb_mesh_send(links->mesh, number, &label,
                  link->shares ? NULL : link->outbox + place_of(links, bucket, type));
    return true;
}

static bool tell(const struct links *links, uint32_t rank, uint32_t kind, uint64_t *n,
                 uint64_t word)
{
    const uint32_t number = links->by_rank[rank];
    if (dpb_mesh_room(links->mesh, number) < 2)
        return false;
    const struct dpb_mesh_label label = word_label(kind, (*n)++, word);
    dpb_mesh_send(links->mesh, number, &label, NULL);
    return true;
}

bool links_tell_age(struct links *links, uint32_t worker, uint64_t age)
{
    return tell(links, worker, AGE, &link_to(links, worker)->n_ages, age);
}

bool links_tell_word(struct links *links, uint32_t worker, uint64_t word)
{
    return tell(links, worker, SAY, &link_to(links, worker)->said, word);
}

uint64_t links_said(const struct links *links, uint32_t rank)
{
    return __atomic_load_n(&link_to(links, rank)->word, __ATOMIC_RELAXED);
}

dpb_status links_await_word(struct links *links, uint64_t word)
{
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = links->base->step.step,
                            .purpose = "the server to be ready for the weights"};
    for (uint32_t i = 0; i < links->n; i++)
        while (links_said(links, what.peer = links->links[i].rank) != word)
            DPB_TRY(links_advance(links, &what));
    return DPB_OK;
}

/* ---- workers ------------------------------------------------------------------------------- */

uint64_t links_age(const struct links *links, uint32_t shard, uint64_t push)
{
    return link_to(links, shard)->ages[push % LINKS_AGES];
}

bool links_aged(const struct links *links, uint32_t shard)
{
    return !links->turn.gradients ||
           dpb_mesh_arrived(links->mesh, links->by_rank[shard], AGE) >= links->n_pushes;
}

void links_ask(struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        links->links[i].asked += links->base->arenas.n_buckets;
    begin_turn(links);
}

/* All links of a worker are to servers. */
static uint32_t untold_server(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (!links_aged(links, links->links[i].rank))
            return links->links[i].rank;
    return links_busy(links);
}

dpb_status links_push_alone(struct links *links)
{
    const struct dpb_strategy *base = links->base;
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = base->step.step,
                            .purpose = "the server to apply the last gradients"};
    for (uint64_t bucket = 0;
         bucket < base->arenas.n_buckets || (what.peer = untold_server(links)) != NONE;) {
        if (bucket < base->arenas.n_buckets && (what.peer = links_crowded(links, false)) == NONE) {
            links_push(links, bucket, dpb_pipeline_bucket_length(&base->pipeline, bucket));
            bucket++;
            continue;
        }
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}

static struct link *awaited_model(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (dpb_mesh_arrived(links->mesh, i, MODEL) < links->links[i].models)
            return &links->links[i];
    return NULL;
}

dpb_status links_say(struct links *links, uint64_t word, bool meets)
{
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = links->base->step.step,
                            .purpose = "the model, for which all workers meet"};
    for (uint32_t i = 0; i < links->n; i++) {
        const struct dpb_mesh_label label = word_label(SAY, links->links[i].said++, word);
        dpb_mesh_send(links->mesh, i, &label, NULL); /* between steps there is room */
        links->links[i].models += meets ? links->base->arenas.n_buckets : 0;
    }
    while (links_busy(links) != NONE || awaited_model(links)) {
        const struct link *link = awaited_model(links);
        what.peer = link ? link->rank : links_busy(links);
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}

/* ---- ranks and sizes ----------------------------------------------------------------------- */

static uint32_t n_ranks(const struct dpb_comm_args *args)
{
    return args->n_workers + args->n_servers;
}

static bool is_a_shard(const struct dpb_comm_args *args, uint32_t rank)
{
    struct dpb_rank_set all = ps_shards(args);
    return rank >= all.first && rank < all.first + all.n;
}

/* Ranks that work together, but on different machines. */
bool links_lead_to(const struct dpb_comm_args *args, uint32_t rank)
{
    bool served = args->role == DPB_WORKER && is_a_shard(args, rank);
    bool serves = ps_is_shard(args) && rank < args->n_workers;
    return (served || serves) && !ps_is_here(args, rank);
}

/* The most that a slice has: a bucket may be given larger than the model is. */
static uint64_t slice_elements(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                               uint64_t bucket_elements)
{
    uint32_t n = ps_shards(args).n;
    return (dpb_strategy_longest_bucket(layout, bucket_elements) + n - 1) / n;
}

static uint64_t inbox_slot(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements)
{
    return args->codec ? dpb_coded_slot_bytes(args->codec, layout, bucket_elements, 0)
                       : slice_elements(args, layout, bucket_elements) *
                             dpb_dtype_size(layout->gradient_type);
}

/* Whether slices to and from a rank go through shared memory. */
static bool shares(const struct dpb_comm_args *args, const struct links_memory *memory,
                   uint32_t rank)
{
    return memory->machines && memory->machines[rank] == memory->machines[args->rank];
}

uint64_t links_inbox_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements, const struct links_memory *memory)
{
    const uint64_t in = inbox_slot(args, layout, bucket_elements);
    const uint64_t out =
        slice_elements(args, layout, bucket_elements) * dpb_dtype_size(layout->weight_type);
    uint64_t n = 0;
    for (uint32_t rank = 0; rank < args->n_workers && ps_is_shard(args); rank++)
        n += links_lead_to(args, rank) && !shares(args, memory, rank);
    if (memory->accrues && args->role == DPB_WORKER)
        return layout->n_elements * dpb_dtype_size(layout->gradient_type);
    return n * dpb_strategy_count_buckets(layout, bucket_elements) *
           (in + (memory->keeps_sent ? out : 0));
}

/* ---- making and ending --------------------------------------------------------------------- */

static size_t times_bytes(const struct links *links)
{
    return 4 * (links->base->arenas.n_buckets + 1) * sizeof(int64_t);
}

static size_t steps_bytes(const struct links *links)
{
    return (1 + (size_t)n_ranks(&links->base->args)) * STEP_BYTES;
}

/* The same places in the scratch of all ranks. */
static char *arena_pushed_from(const struct links *links, uint32_t rank)
{
    const struct dpb_arenas *arenas = &links->base->arenas;
    return links->memory.accrues
               ? (char *)arenas->peer_scratch[rank] + (links->inbox - (char *)arenas->scratch)
               : arenas->peer_gradients[rank];
}

static void place_boxes(struct links *links, struct link *link, char **at)
{
    const struct dpb_arenas *arenas = &links->base->arenas;
    if (link->shares) {
        link->pushed_from = arena_pushed_from(links, link->rank);
        return;
    }
    link->inbox = *at;
    *at += arenas->n_buckets * links->inbox_slot;
    if (!links->memory.keeps_sent)
        return;
    link->outbox = *at;
    *at += place_of(links, arenas->n_buckets, arenas->layout.weight_type);
}

static dpb_status make_link(struct links *links, uint32_t rank, char **at)
{
    const struct dpb_strategy *base = links->base;
    const struct dpb_arenas *arenas = &base->arenas;
    struct link *link = &links->links[links->n];
    int64_t *times = links->host->alloc(times_bytes(links));
    if (!times)
        return DPB_NO_MEMORY;
    *link =
        (struct link){.rank = rank,
                      .is_shard = base->args.role == DPB_WORKER && is_a_shard(&base->args, rank),
                      .is_worker = ps_is_shard(&base->args) && rank < base->args.n_workers,
                      .shares = shares(&base->args, &links->memory, rank),
                      .began_ns = times,
                      .came_ns = times + arenas->n_buckets,
                      .given_ns = times + 2 * arenas->n_buckets,
                      .waited_ns = times + 3 * arenas->n_buckets,
                      .step = links->steps + (1 + (size_t)rank) * STEP_BYTES};
    if (link->is_worker)
        place_boxes(links, link, at);
    links->by_rank[rank] = links->n++;
    return DPB_OK;
}

static dpb_status make_links(struct links *links)
{
    const struct dpb_comm_args *args = &links->base->args;
    char *at = links->inbox;
    links->steps = links->host->alloc(steps_bytes(links));
    if (!links->steps)
        return DPB_NO_MEMORY;
    links->links = calloc(n_ranks(args), sizeof *links->links);
    links->by_rank = calloc(n_ranks(args), sizeof *links->by_rank);
    links->comers = calloc(n_ranks(args), sizeof *links->comers);
    if (!links->links || !links->by_rank || !links->comers)
        return links->host->fail(DPB_NO_MEMORY, "no memory for links to %u ranks", n_ranks(args));
    for (uint32_t rank = 0; rank < n_ranks(args); rank++) {
        links->by_rank[rank] = NONE;
        if (links_lead_to(args, rank))
            DPB_TRY(make_link(links, rank, &at));
    }
    return DPB_OK;
}

static dpb_status connect_mesh(struct links *links, struct dpb_mesh_transport *transport,
                               const struct dpb_mesh_peer *peers)
{
    const struct dpb_strategy *base = links->base;
    const struct dpb_arenas *arenas = &base->arenas;
    const struct dpb_layout *layout = &arenas->layout;
    uint64_t messages_bytes = 0;
    void *messages = base->args.codec ? dpb_coded_memory_of(base, &messages_bytes) : NULL;
    const struct dpb_mesh_memory memories[] = {
        {"the weights", arenas->weights,
         arenas->weights ? layout->n_elements * dpb_dtype_size(layout->weight_type) : 0},
        {"the gradients", arenas->gradients,
         arenas->gradients ? layout->n_elements * dpb_dtype_size(layout->gradient_type) : 0},
        {"the messages", messages, messages_bytes},
        {"the answers", links->memory.answers,
         links->memory.answers ? arenas->n_buckets * links->memory.answer_slot : 0},
        {"the inbox", links->inbox, links->inbox_bytes},
        {"the steps' parameters", links->steps, steps_bytes(links)}};
    const struct dpb_mesh_args args = {
        .host = links->host,
        .transport = transport,
        .name = "ps",
        .what = "the parameter servers",
        .kinds = kinds,
        .rank = base->args.rank,
        .keeper = 0,
        .peers = peers,
        .n_peers = links->n,
        .memories = memories,
        .n_memories = sizeof memories / sizeof memories[0],
        .doorbell = base->signals.doorbell,
        .survives = base->args.survives && base->args.role == DPB_SERVER,
        .sink = {.owner = links, .expects = expects, .arrived = arrived}};
    return dpb_mesh_open(&args, &links->mesh);
}

static dpb_status open_mesh(struct links *links, struct dpb_mesh_transport *transport)
{
    const struct dpb_strategy *base = links->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    size_t inbox_bytes = base->arenas.n_buckets * links->inbox_slot;
    const void *arena = base->arenas.weights; /* NULL: of a server that gives answers */
    size_t weight_bytes = arena ? layout->n_elements * dpb_dtype_size(layout->weight_type) : 0;
    struct dpb_mesh_peer *peers = calloc(links->n + 1, sizeof *peers);
    if (!peers) {
        transport->ops->close(transport, false);
        return links->host->fail(DPB_NO_MEMORY, "no memory for %u links", links->n);
    }
    struct dpb_mesh_landing weights = {base->arenas.weights, weight_bytes};
    if (links->memory.answers)
        weights = (struct dpb_mesh_landing){links->memory.answers,
                                            base->arenas.n_buckets * links->memory.answer_slot};
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        peers[i] = (struct dpb_mesh_peer){
            .rank = link->rank,
            .landings = {[STEP] = {link->step, STEP_BYTES},
                         [GRADIENTS] = {link->inbox, link->inbox ? inbox_bytes : 0},
                         [WEIGHTS] = weights,
                         [LOAD] = {base->arenas.weights, weight_bytes},
                         [MODEL] = {base->arenas.weights, weight_bytes}}};
    }
    dpb_status status = connect_mesh(links, transport, peers);
    free(peers);
    return status;
}

dpb_status links_open(struct dpb_strategy *base, struct dpb_mesh_transport *transport, void *inbox,
                      const struct links_memory *memory, struct links **made)
{
    const struct dpb_arenas *arenas = &base->arenas;
    struct links *links = calloc(1, sizeof *links);
    dpb_status status = DPB_OK;
    if (links) {
        links->host = base->host;
        links->base = base;
        links->slice_elements =
            slice_elements(&base->args, &arenas->layout, arenas->bucket_elements);
        links->inbox_slot = inbox_slot(&base->args, &arenas->layout, arenas->bucket_elements);
        links->inbox = inbox;
        links->inbox_bytes =
            links_inbox_bytes(&base->args, &arenas->layout, arenas->bucket_elements, memory);
        links->memory = *memory;
        links->turn = (struct links_turn){arenas->gradients, 1, true};
        status = make_links(links);
        DPB_THEN(status, dpb_strategy_open_doorbell(base, "ps"));
    } else {
        status = base->host->fail(DPB_NO_MEMORY, "no memory for links");
    }
    if (status == DPB_OK)
        status = open_mesh(links, transport);
    else
        transport->ops->close(transport, false);
    if (status != DPB_OK) {
        links_close(links, false);
        return status;
    }
    *made = links;
    return DPB_OK;
}

void links_close(struct links *links, bool through)
{
    if (!links)
        return;
    dpb_mesh_close(links->mesh, through);
    for (uint32_t i = 0; i < links->n; i++)
        links->host->release(links->links[i].began_ns, times_bytes(links));
    links->host->release(links->steps, steps_bytes(links));
    free(links->links);
    free(links->by_rank);
    free(links->comers);
    free(links);
}
